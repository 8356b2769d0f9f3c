//! The family of resizes of images: nearest pixels of any type, linear and cubic of floats.

use planish_gpu::images::{ImageStrides, pixel_threads, three};
use planish_gpu::kernel_args;
use planish_gpu::operands::{candidate, is_float, moved_type, refuse, storage};
use planish_gpu::plan::{Arg, KernelCode, Plan, Slot};
use planish_gpu::space::{Threads, blocks, int};
use planish_kernel::resize::{ResizedAxis, resized_axes};
use planish_kernel::{Budget, Candidate, KernelError, Layout, Problem, Ref, Tactic, Want, layouts_for};
use planish_op::resize::ResizeScale;
use planish_op::{Op, ResizeCoordinates, ResizeMode, ResizeNearest};

use crate::family::Family;
use crate::gpu::Gpu;

#[cfg(test)]
mod tests;

const REVISION: u32 = 1;

kernel_args! {
    /// How points of the output lie along an axis of the input.
    struct ResizeAxis {
        /// Of the input.
        size: i32,
        /// 0 down, 1 up, 2 to the nearest, halves down, 3 halves up, 4 the axis is left alone.
        rounding: i32,
        /// Point `p` is at `(p · line[0] + line[1]) / line[2] + line[3]`.
        line: [f64; 4],
    }

    /// What resize.cu is given. Threads go over the output as a pool's do.
    struct ResizeArgs {
        threads: Threads,
        channels: i32,
        x: ImageStrides,
        y: ImageStrides,
        /// Depth, row, column.
        axes: [ResizeAxis; 3],
    }
}

/// Resizes of the spatial axes of images.
pub(crate) struct ResizeFamily;

/// Point `p` of the output is at `(p · a + b) / c + d` of the input; whole numbers where the scale is a
/// quotient, so that points that should lie on a pixel or half-way between two do so exactly.
fn line(axis: &ResizedAxis, mode: ResizeCoordinates) -> Option<[f64; 4]> {
    let (up, down) = axis.quotient();
    let centred = match axis.scale {
        ResizeScale::Ratio(_) => [2.0 * down, down - up, 2.0 * up, 0.0],
        ResizeScale::Factor(_) => [1.0, 0.5, up, -0.5],
    };
    Some(match mode {
        ResizeCoordinates::HalfPixel => centred,
        ResizeCoordinates::HalfPixelSymmetric => {
            let (from, exact) = (axis.from as f64, axis.from as f64 * up / down);
            let moved = from / 2.0 * (1.0 - axis.to as f64 / exact);
            [centred[0], centred[1], centred[2], centred[3] + moved]
        }
        ResizeCoordinates::PytorchHalfPixel if axis.to > 1 => centred,
        ResizeCoordinates::AlignCorners if axis.to > 1 => {
            [axis.from as f64 - 1.0, 0.0, axis.to as f64 - 1.0, 0.0]
        }
        ResizeCoordinates::PytorchHalfPixel | ResizeCoordinates::AlignCorners => [0.0, 0.0, 1.0, 0.0],
        ResizeCoordinates::Asymmetric => [down, 0.0, up, 0.0],
        ResizeCoordinates::TfHalfPixelForNn => [down, 0.5 * down, up, 0.0],
        ResizeCoordinates::TfCropAndResize => return None,
    })
}

/// How the kernel rounds; 4 where the axis is left alone.
fn rounding(axis: &ResizedAxis, mode: ResizeNearest) -> i32 {
    let (up, down) = axis.quotient();
    match mode {
        _ if axis.is_identity() => 4,
        ResizeNearest::Floor => 0,
        ResizeNearest::Ceil => 1,
        ResizeNearest::RoundPreferFloor => 2,
        ResizeNearest::RoundPreferCeil => 3,
        ResizeNearest::Simple => i32::from(up < down),
    }
}

fn plan(problem: &Problem) -> Result<Plan, KernelError> {
    let ([node], [x], [y]) = (&problem.region.nodes[..], &problem.inputs[..], &problem.outputs[..]) else {
        return refuse("one resize");
    };
    let Op::Resize(op) = &node.op else { return refuse("no resize") };
    let is_nearest = op.mode == ResizeMode::Nearest;
    let fits = node.inputs.first() == Some(&Some(Ref::Input(0)))
        && x.dtype == y.dtype
        && (is_float(x.dtype) || (is_nearest && !x.dtype.is_sub_byte()))
        && x.packed.is_none()
        && !op.antialias;
    let (Ok(from), Ok(to), true) = (ImageStrides::of(x), ImageStrides::of(y), fits) else {
        return refuse("not a resize of an image that kernels here compute");
    };
    let Some(axes) = resized_axes(op, problem, x, y) else {
        return refuse("a resize by sizes that only a run can tell");
    };
    let (outer, spatial) = axes.split_at(2);
    if outer.iter().any(|axis| !axis.is_identity()) || x.is_empty() != y.is_empty() {
        return refuse("only spatial axes are resized");
    }
    if y.is_empty() {
        return Ok(Plan::default());
    }
    let spatial = three(spatial, ResizedAxis::TRIVIAL);
    let channels = x.dims[1];
    let last = from.c == 1 && to.c == 1 && channels > 1;
    let size = x.dtype.bits() / 8;
    let widest = if is_nearest { 16 / size } else { 8 };
    let lanes = if last { widest.min(channels.next_power_of_two()) } else { 1 };
    let outputs = spatial.map(|axis| axis.to);
    let threads = pixel_threads(x.dims[0], channels, outputs, last.then_some(lanes))?;
    let n_threads = threads.len();
    int(x.span_bytes().max(y.span_bytes()) / size)?;
    let mut axes = <[ResizeAxis; 3]>::default();
    for (to, axis) in axes.iter_mut().zip(spatial) {
        let Some(line) = line(&axis, op.coordinate_transformation_mode) else {
            return refuse("a region of interest");
        };
        *to = ResizeAxis { size: int(axis.from)?, rounding: rounding(&axis, op.nearest_mode), line };
    }
    let numbers = ResizeArgs { threads, channels: int(channels)?, x: from, y: to, axes };
    let element = if is_nearest { moved_type(size)? } else { storage(x)? };
    let taps = match op.mode {
        ResizeMode::Nearest => 1,
        ResizeMode::Linear => 2,
        ResizeMode::Cubic => 4,
    };
    let source = KernelCode::new("resize.cu", include_str!("../../kernels/resize.cu"), "resize", &numbers)
        .define("T", element)
        .define("V", lanes)
        .define("LAST", u8::from(last))
        .define("TAPS", taps)
        .define("EXCLUDE", u8::from(op.exclude_outside))
        .define("CUBIC_A", format!("{:?}f", op.cubic_coeff_a));
    let args = vec![Arg::Address(Slot::Input(0), 0), Arg::Address(Slot::Output(0), 0), Arg::of(&numbers)];
    Ok(Plan::one(source, [blocks(n_threads, 256)?, 1, 1], 256, args))
}

impl Family for ResizeFamily {
    fn name(&self) -> &'static str {
        "resize"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let ns = gpu.roofline_ns(0.0, 1.0, problem.traffic_bytes() as f64);
        let offer = |layout: Layout| {
            let wants = vec![Want::inside(layout)];
            plan(&problem.with_layouts(&wants, &wants)).ok()?;
            let slower = if layout == Layout::Plain { 1.3 } else { 1.0 };
            Some(candidate(format!("resize_{}", layout.name()), REVISION, wants.clone(), wants, ns * slower))
        };
        layouts_for(&problem.outputs).filter_map(offer).collect()
    }

    fn plan(&self, _gpu: &Gpu, problem: &Problem, _tactic: &Tactic) -> Result<Plan, KernelError> {
        plan(problem)
    }
}
