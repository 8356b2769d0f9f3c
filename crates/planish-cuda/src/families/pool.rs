//! The family of pooling over windows. Pools over whole images are reductions.

use planish_gpu::images::{ImageStrides, WindowAxis, pixel_threads, placed, three, window_axes};
use planish_gpu::kernel_args;
use planish_gpu::operands::{candidate, is_float, refuse, size_of_element, storage};
use planish_gpu::plan::{Arg, KernelCode, Plan, Slot};
use planish_gpu::space::{Threads, block_of, blocks, int};
use planish_kernel::{Budget, Candidate, KernelError, Layout, Problem, Ref, Tactic, Want, layouts_for};
use planish_op::Op;
use planish_op::window::PlacedAxis;
use planish_tensor::DType;

use crate::family::Family;
use crate::gpu::Gpu;

#[cfg(test)]
mod tests;

const REVISION: u32 = 4;

/// Taps of a plane of windows whose elements are loaded together.
const MAX_TAPS: usize = 9;
/// Of so many planes of taps a word says which lie in the image.
const MAX_DEPTH: usize = 32;

/// Elements of one access with channels innermost; of bytes as many as are 16 bytes.
const LANES: usize = 8;
const BYTE_LANES: usize = 16;

kernel_args! {
    /// What pool.cu is given. Threads go over vectors of channels, columns, rows and depths where channels are
    /// innermost, else over columns, rows, depths and channels.
    struct PoolArgs {
        threads: Threads,
        channels: i32,
        windows: [WindowAxis; 3],
        x: ImageStrides,
        y: ImageStrides,
    }
}

/// Max and average pools.
pub(crate) struct PoolFamily;

/// What is taken of the elements under a window.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fold {
    Max,
    Average { include_pad: bool },
}

fn wanted(problem: &Problem) -> Result<([PlacedAxis; 3], Fold), KernelError> {
    let ([node], [x], [y]) = (&problem.region.nodes[..], &problem.inputs[..], &problem.outputs[..]) else {
        return refuse("one pool with one output");
    };
    let fits = node.inputs == [Some(Ref::Input(0))]
        && node.n_outputs == 1
        && (3..=5).contains(&x.rank())
        && x.rank() == y.rank()
        && x.dims[..2] == y.dims[..2]
        && x.dtype == y.dtype
        && (is_float(x.dtype) || matches!((x.dtype, &node.op), (DType::I8 | DType::U8, Op::MaxPool(_))));
    let found = match &node.op {
        Op::MaxPool(op) => placed(&op.window(), &op.window().kernel(), x).map(|axes| (axes, Fold::Max)),
        Op::AveragePool(op) => placed(&op.window(), &op.window().kernel(), x)
            .map(|axes| (axes, Fold::Average { include_pad: op.count_include_pad })),
        _ => None,
    };
    match found.filter(|(axes, _)| {
        fits && three(&y.dims[2..], 1).iter().zip(axes).all(|(dim, axis)| *dim == axis.output)
    }) {
        Some(found) => Ok(found),
        None => refuse("not a pool of an image of floats, nor the largest of bytes"),
    }
}

fn plan(gpu: &Gpu, problem: &Problem) -> Result<Plan, KernelError> {
    let (axes, fold) = wanted(problem)?;
    let (x, y) = (&problem.inputs[0], &problem.outputs[0]);
    let (from, to) = (ImageStrides::of(x)?, ImageStrides::of(y)?);
    let channels = x.dims[1];
    let last = from.c == 1 && to.c == 1 && channels > 1;
    let size = size_of_element(x.dtype);
    let most = if size == 1 { BYTE_LANES } else { LANES };
    let lanes = match channels {
        _ if !last => 1,
        1..4 => 1,
        4..8 => 4,
        8..16 => LANES,
        _ => most,
    };
    let outputs = axes.map(|axis| axis.output);
    let threads = pixel_threads(x.dims[0], channels, outputs, last.then_some(lanes))?;
    let n_threads = threads.len();
    let numbers =
        PoolArgs { threads, channels: int(channels)?, windows: window_axes(&axes)?, x: from, y: to };
    int(x.span_bytes().max(y.span_bytes()) / 2)?;
    let small = axes[1].kernel * axes[2].kernel <= MAX_TAPS && axes[0].kernel <= MAX_DEPTH;
    let threads = block_of(gpu.n_sms, n_threads);
    let text = include_str!("../../kernels/pool.cu");
    let source = KernelCode::new("pool.cu", text, "pool", &numbers)
        .define("T", storage(x)?)
        .define("V", lanes)
        .define("IS_MAX", u8::from(fold == Fold::Max))
        .define("WITH_PAD", u8::from(fold == Fold::Average { include_pad: true }))
        .define("LAST", u8::from(last))
        .define("KD", if small { axes[0].kernel } else { 0 })
        .define("DEPTHS", (MAX_TAPS / (axes[1].kernel * axes[2].kernel)).clamp(1, axes[0].kernel))
        .define("KH", axes[1].kernel)
        .define("KW", axes[2].kernel)
        .define("PACKED", u8::from(fold == Fold::Max && lanes == most && size <= 2))
        .define("THREADS", threads);
    let args = vec![Arg::Address(Slot::Input(0), 0), Arg::Address(Slot::Output(0), 0), Arg::of(&numbers)];
    Ok(Plan::one(source, [blocks(n_threads, threads)?, 1, 1], threads as u32, args))
}

impl Family for PoolFamily {
    fn name(&self) -> &'static str {
        "pool"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Ok((axes, _)) = wanted(problem) else { return Vec::new() };
        let taps: usize = axes.iter().map(|axis| axis.kernel).product();
        let reads = (problem.outputs[0].len() * taps) as f64;
        let mut layouts: Vec<Layout> =
            layouts_for(&problem.inputs).chain(layouts_for(&problem.outputs)).collect();
        layouts.sort_unstable_by(|a, b| b.cmp(a));
        layouts.dedup();
        let offer = |layout: Layout| {
            let wants = vec![Want::inside(layout)];
            plan(gpu, &problem.with_layouts(&wants, &wants)).ok()?;
            // Threads of the plain layout read element by element.
            let slower = if layout == Layout::Plain { 2.0 } else { 1.0 };
            let ns = gpu.roofline_ns(reads * slower, 1e13, problem.traffic_bytes() as f64);
            Some(candidate(format!("pool_{}", layout.name()), REVISION, wants.clone(), wants, ns))
        };
        layouts.into_iter().filter_map(offer).collect()
    }

    fn plan(&self, gpu: &Gpu, problem: &Problem, _tactic: &Tactic) -> Result<Plan, KernelError> {
        plan(gpu, problem)
    }
}
