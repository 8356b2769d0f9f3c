//! The family of transposed convolutions, with the pointwise nodes after them: on tensor cores for half types
//! with channels innermost, on the plain units for everything else.

use planish_gpu::codegen::storage_type;
use planish_gpu::epilogue::{EpilogueArgs, EpilogueCode};
use planish_gpu::images::{ImageStrides, NO_AXIS, WindowAxis, three, weighted_image, window_axes};
use planish_gpu::kernel_args;
use planish_gpu::operands::{candidate, refuse, storage};
use planish_gpu::plan::Plan;
use planish_gpu::space::{Threads, blocks, int};
use planish_kernel::{Budget, Candidate, KernelError, Layout, Operand, Problem, Tactic, Want, layouts_for};
use planish_op::Op;
use planish_op::window::PlacedAxis;
use planish_tensor::{DType, Dim};

use crate::family::Family;
use crate::formats::{Format, Packing};
use crate::gpu::Gpu;

#[cfg(test)]
mod tests;

const REVISION: u32 = 2;

/// The tactics on tensor cores: all phases in one product, or each in its own.
const JOINED: &str = "convtranspose_joined";
const PHASES: &str = "convtranspose_mma";

/// Rows and columns of a tile on tensor cores.
const TILE: usize = 64;
/// Output channels of a thread on the plain units.
const LANES: usize = 4;

kernel_args! {
    /// What convtranspose.cu is given. Threads go over vectors of a group's output channels, groups, columns, rows
    /// and depths.
    struct ConvTransposeArgs {
        threads: Threads,
        groups: i32,
        /// Channels of a group: output and input.
        per_group: i32,
        inputs: i32,
        windows: [WindowAxis; 3],
        x: ImageStrides,
        y: ImageStrides,
        epilogue: EpilogueArgs,
    }

    /// What convtranspose_mma.cu is given.
    struct ConvTransposeMmaArgs {
        samples: i32,
        /// Channels.
        inputs: i32,
        outputs: i32,
        windows: [WindowAxis; 3],
        x: ImageStrides,
        y: ImageStrides,
        epilogue: EpilogueArgs,
    }
}

/// Transposed convolutions.
pub(crate) struct ConvTransposeFamily;

pub(super) struct Wanted<'a> {
    pub(super) x: &'a Operand,
    weight: &'a Operand,
    /// Windows slide over the output: `input` is its size, `output` the image's.
    pub(super) axes: [PlacedAxis; 3],
    pub(super) groups: usize,
    /// Channels of a group.
    pub(super) inputs: usize,
    pub(super) outputs: usize,
}

/// Whether windows lie side by side along an axis and fill the output.
pub(super) fn lies_beside(axis: &PlacedAxis) -> bool {
    axis.kernel == axis.stride && axis.pad_begin == 0 && axis.input == axis.output * axis.stride
}

pub(super) fn wanted(problem: &Problem) -> Result<Wanted<'_>, KernelError> {
    let Some(Op::ConvTranspose(conv)) = problem.region.nodes.first().map(|node| &node.op) else {
        return refuse("no transposed convolution");
    };
    let (x, weight, y) = weighted_image(problem)?;
    let groups = usize::try_from(conv.group).unwrap_or(0);
    let fits = groups > 0
        && x.dims[1].is_multiple_of(groups)
        && weight.dims[0] == x.dims[1]
        && y.dims[..2] == [x.dims[0], weight.dims[1] * groups];
    if !fits {
        return refuse("not a transposed convolution of floats");
    }
    let unfit = || KernelError::unsupported("windows that do not fit the image");
    let kernel: Vec<Dim> = weight.dims[2..].iter().map(|dim| Dim::from(*dim)).collect();
    let window = conv.window();
    let kernel = window.kernel_of_weight(&kernel).map_err(|_| unfit())?;
    let axes = window
        .transposed_axes(&kernel, &conv.output_padding, conv.output_shape.as_deref())
        .map_err(|_| unfit())?;
    let placed: Vec<PlacedAxis> = axes
        .iter()
        .zip(&x.dims[2..])
        .map(|(axis, size)| axis.place(*size).map_err(|_| unfit()))
        .collect::<Result<_, _>>()?;
    let axes = three(&placed, NO_AXIS);
    if three(&y.dims[2..], 1).iter().zip(&axes).any(|(dim, axis)| *dim != axis.input) {
        return Err(unfit());
    }
    Ok(Wanted { x, weight, axes, groups, inputs: x.dims[1] / groups, outputs: weight.dims[1] })
}

fn plain(problem: &Problem) -> Result<Plan, KernelError> {
    let Wanted { x, weight, axes, groups, inputs, outputs } = wanted(problem)?;
    let y = &problem.outputs[0];
    let (from, to) = (ImageStrides::of(x)?, ImageStrides::of(y)?);
    if y.is_empty() {
        return Ok(Plan::default());
    }
    let sizes = axes.map(|axis| axis.input);
    let order = [outputs.div_ceil(LANES), groups, sizes[2], sizes[1], sizes[0]];
    let threads = Threads::of(x.dims[0], &order)?;
    let n_threads = threads.len();
    let epilogue = EpilogueCode::after_image(problem, LANES)?;
    let numbers = ConvTransposeArgs {
        threads,
        groups: int(groups)?,
        per_group: int(outputs)?,
        inputs: int(inputs)?,
        windows: window_axes(&axes)?,
        x: from,
        y: to,
        epilogue: epilogue.args.clone(),
    };
    let text = include_str!("../../kernels/convtranspose.cu");
    let source = epilogue
        .code("convtranspose.cu", text, "convtranspose", &numbers)
        .define("X_T", storage(x)?)
        .define("W_T", storage_type(weight.dtype).unwrap_or("float"))
        .define("Y_T", storage(y)?)
        .define("V", LANES);
    let grid = [blocks(n_threads, 256)?, 1, 1];
    Ok(Plan::one(source, grid, 256, epilogue.weighted(&numbers)))
}

fn mma(problem: &Problem, joined: bool) -> Result<Plan, KernelError> {
    let Wanted { x, axes, groups, inputs, outputs, .. } = wanted(problem)?;
    let y = &problem.outputs[0];
    let (from, to) = (ImageStrides::of(x)?, ImageStrides::of(y)?);
    let spaced = axes.iter().any(|axis| axis.dilation != 1 && axis.kernel > 1);
    let half = matches!(x.dtype, DType::F16 | DType::BF16);
    let aligned = from.are_multiples_of(8);
    if !half || groups != 1 || spaced || inputs % 8 != 0 || from.c != 1 || to.c != 1 || !aligned {
        return refuse(
            "only one group of half types in whole chunks, channels innermost, goes to tensor cores",
        );
    }
    if joined && (!axes.iter().all(lies_beside) || outputs % 8 != 0) {
        return refuse("windows that do not lie side by side, or channels not in whole chunks");
    }
    if y.is_empty() {
        return Ok(Plan::default());
    }
    let epilogue = EpilogueCode::after_image(problem, 8)?;
    let numbers = ConvTransposeMmaArgs {
        samples: int(x.dims[0])?,
        inputs: int(inputs)?,
        outputs: int(outputs)?,
        windows: window_axes(&axes)?,
        x: from,
        y: to,
        epilogue: epilogue.args.clone(),
    };
    let text = include_str!("../../kernels/convtranspose_mma.cu");
    let source = epilogue
        .code("convtranspose_mma.cu", text, "convtranspose_mma", &numbers)
        .define("T", storage(x)?)
        .define("Y_T", storage(y)?)
        .define("JOINED", u8::from(joined));
    let rows: usize = axes.iter().map(|axis| axis.input.div_ceil(axis.stride)).product::<usize>() * x.dims[0];
    let phases: usize = axes.iter().map(|axis| axis.stride).product();
    if phases > 65_535 || (outputs * phases).div_ceil(TILE) > 65_535 {
        return refuse("more phases than a grid has");
    }
    let grid = if joined {
        let rows: usize = axes.iter().map(|axis| axis.output).product::<usize>() * x.dims[0];
        [blocks(rows, TILE)?, blocks(outputs * phases, TILE)?, 1]
    } else {
        [blocks(rows, TILE)?, outputs.div_ceil(TILE) as u32, phases as u32]
    };
    Ok(Plan::one(source, grid, 128, epilogue.weighted(&numbers)))
}

impl Family for ConvTransposeFamily {
    fn name(&self) -> &'static str {
        "convtranspose"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Ok(Wanted { x, weight, inputs, groups, .. }) = wanted(problem) else { return Vec::new() };
        let taps: usize = weight.dims[2..].iter().product();
        let flops = 2.0 * (x.len() / x.dims[1].max(1) * taps * weight.dims[1] * inputs) as f64;
        let bytes = problem.traffic_bytes() as f64;
        let mut list = Vec::new();
        let mut offer = |name: &str, layout: Layout, format: Format, peak: f64| {
            let mut inputs: Vec<Want> =
                problem.inputs.iter().map(|input| Want::following(input, x.rank(), layout)).collect();
            inputs[0] = Want::inside(layout);
            inputs[1] = Want::dense(Layout::Plain);
            let outputs = vec![Want::inside(layout)];
            let laid = problem.with_layouts(&inputs, &outputs);
            let planned = match format == Format::TapsOutIn {
                true => mma(&laid, name == JOINED),
                false => plain(&laid),
            };
            if planned.is_ok() {
                let ns = gpu.roofline_ns(flops, peak, bytes);
                let mut made = candidate(name.to_string(), REVISION, inputs, outputs, ns);
                made.packed[1] = Some(format.name());
                // Rows in whole chunks: a larger value may put them anywhere.
                if format == Format::TapsOutIn {
                    made.inputs[0] = Want::dense(layout);
                }
                list.push(made);
            }
        };
        if gpu.sm >= 80 || x.dtype == DType::F16 {
            offer(JOINED, Layout::ChannelsLast, Format::TapsOutIn, 2e14);
            offer(PHASES, Layout::ChannelsLast, Format::TapsOutIn, 1e14);
        }
        for layout in layouts_for(&problem.outputs) {
            offer(&format!("convtranspose_{}", layout.name()), layout, Format::TapsInOut { groups }, 4e12);
        }
        list
    }

    fn plan(&self, _gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Plan, KernelError> {
        match tactic.name.as_str() {
            JOINED => mma(problem, true),
            PHASES => mma(problem, false),
            _ => plain(problem),
        }
    }

    fn packing(&self, problem: &Problem, tactic: &Tactic) -> Result<Option<Packing>, KernelError> {
        let Wanted { weight, groups, .. } = wanted(problem)?;
        let format = match tactic.name.as_str() {
            JOINED | PHASES => Format::TapsOutIn,
            _ => Format::TapsInOut { groups },
        };
        Ok(Some(Packing { input: 1, format, dtype: weight.dtype }))
    }
}
