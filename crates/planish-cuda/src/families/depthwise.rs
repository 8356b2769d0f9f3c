//! The family of depthwise convolutions with channels innermost, and the pointwise nodes after them.

use planish_gpu::epilogue::{EpilogueArgs, EpilogueCode};
use planish_gpu::images::{ImageStrides, WindowAxis, placed, three, weighted_image, window_axes};
use planish_gpu::kernel_args;
use planish_gpu::operands::{candidate, refuse, size_of_element, storage};
use planish_gpu::plan::Plan;
use planish_gpu::space::{Threads, block_of, blocks, int};
use planish_kernel::{Budget, Candidate, KernelError, Layout, Operand, Problem, Tactic, Want};
use planish_op::Op;
use planish_op::window::PlacedAxis;
use planish_tensor::Dim;

use crate::family::Family;
use crate::formats::{Format, Packing};
use crate::gpu::Gpu;

#[cfg(test)]
mod tests;

const REVISION: u32 = 2;

/// How weights are packed: taps outermost, channels innermost.
const PACKED: Format = Format::Taps;

/// Taps beyond these are not unrolled into registers.
const MAX_ROW_TAPS: usize = 31;
/// Registers that pixels and taps under way may take, and the most that one row of taps may.
const LOADED: usize = 96;
const MAX_ROW: usize = 128;
/// Threads that a multiprocessor runs at once, of kernels with many registers.
const RESIDENT: usize = 1024;
/// What a round of loads takes from the second-level cache, in nanoseconds.
const ROUND_NS: f64 = 500.0;

kernel_args! {
    /// What depthwise.cu is given. Threads go over vectors of channels, groups of columns, rows and depths.
    struct DepthwiseArgs {
        threads: Threads,
        channels: i32,
        windows: [WindowAxis; 3],
        x: ImageStrides,
        y: ImageStrides,
        epilogue: EpilogueArgs,
    }
}

/// Convolutions with as many groups as channels.
pub(crate) struct DepthwiseFamily;

struct Wanted<'a> {
    x: &'a Operand,
    weight: &'a Operand,
    axes: [PlacedAxis; 3],
}

fn wanted(problem: &Problem) -> Result<Wanted<'_>, KernelError> {
    let Some(Op::Conv(conv)) = problem.region.nodes.first().map(|node| &node.op) else {
        return refuse("no convolution");
    };
    let (x, weight, y) = weighted_image(problem)?;
    let fits = usize::try_from(conv.group).is_ok_and(|group| group == x.dims[1] && group > 1)
        && weight.dims[..2] == [x.dims[1], 1]
        && y.dims[..2] == x.dims[..2];
    let kernel: Vec<Dim> = weight.dims[2.min(weight.rank())..].iter().map(|dim| Dim::from(*dim)).collect();
    let axes = if fits { placed(&conv.window(), &kernel, x) } else { None };
    match axes.filter(|axes| three(&y.dims[2..], 1).iter().zip(axes).all(|(dim, axis)| *dim == axis.output)) {
        Some(axes) if axes[2].kernel <= MAX_ROW_TAPS => Ok(Wanted { x, weight, axes }),
        _ => refuse("not a depthwise convolution of floats"),
    }
}

/// Channels and outputs of a row that a thread makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Form {
    lanes: usize,
    outputs: usize,
}

impl Form {
    fn all() -> impl Iterator<Item = Form> {
        [8, 4, 2].into_iter().flat_map(|lanes| [1, 2, 4].map(|outputs| Form { lanes, outputs }))
    }

    fn name(self) -> String {
        format!("depthwise_{}x{}", self.lanes, self.outputs)
    }

    /// Registers that the pixels and taps of one row of taps take while they are under way.
    fn row_registers(self, axis: &PlacedAxis, size: usize) -> usize {
        let span = (self.outputs - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1;
        (span + axis.kernel) * (self.lanes * size).div_ceil(4)
    }
}

fn plan(gpu: &Gpu, problem: &Problem, form: Form) -> Result<Plan, KernelError> {
    let Wanted { x, weight, axes } = wanted(problem)?;
    let y = &problem.outputs[0];
    let (from, to) = (ImageStrides::of(x)?, ImageStrides::of(y)?);
    if from.c != 1 || to.c != 1 {
        return refuse("channels that are not innermost");
    }
    if y.is_empty() {
        return Ok(Plan::default());
    }
    let Form { lanes, outputs: n_outputs } = form;
    let row = form.row_registers(&axes[2], size_of_element(x.dtype));
    // The narrowest form takes rows of any length.
    if row > MAX_ROW && form != (Form { lanes: 2, outputs: 1 }) {
        return refuse("rows too long for registers");
    }
    let rows_at_once = (LOADED / row).clamp(1, axes[1].kernel);
    let channels = x.dims[1];
    let outputs = axes.map(|axis| axis.output);
    let order = [channels.div_ceil(lanes), outputs[2].div_ceil(n_outputs), outputs[1], outputs[0]];
    let threads = Threads::of(x.dims[0], &order)?;
    let n_threads = threads.len();
    let epilogue = EpilogueCode::after_image(problem, lanes)?;
    let numbers = DepthwiseArgs {
        threads,
        channels: int(channels)?,
        windows: window_axes(&axes)?,
        x: from,
        y: to,
        epilogue: epilogue.args.clone(),
    };
    let source = epilogue
        .code("depthwise.cu", include_str!("../../kernels/depthwise.cu"), "depthwise", &numbers)
        .define("X_T", storage(x)?)
        .define("W_T", planish_gpu::codegen::storage_type(weight.dtype).unwrap_or("float"))
        .define("Y_T", storage(y)?)
        .define("V", lanes)
        .define("P", n_outputs)
        .define("ROWS_AT_ONCE", rows_at_once)
        .define("THREADS", block_of(gpu.n_sms, n_threads))
        .define("KD", axes[0].kernel)
        .define("KH", axes[1].kernel)
        .define("KW", axes[2].kernel)
        .define("SW", axes[2].stride)
        .define("DW", axes[2].dilation);
    let args = epilogue.weighted(&numbers);
    let threads = block_of(gpu.n_sms, n_threads);
    Ok(Plan::one(source, [blocks(n_threads, threads)?, 1, 1], threads as u32, args))
}

impl Family for DepthwiseFamily {
    fn name(&self) -> &'static str {
        "depthwise"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Ok(Wanted { x, axes, .. }) = wanted(problem) else { return Vec::new() };
        let y = &problem.outputs[0];
        let offer = |form: Form| {
            let mut inputs: Vec<Want> = problem
                .inputs
                .iter()
                .map(|input| Want::following(input, x.rank(), Layout::ChannelsLast))
                .collect();
            inputs[0] = Want::inside(Layout::ChannelsLast);
            inputs[1] = Want::dense(Layout::Plain);
            let outputs = vec![Want::inside(Layout::ChannelsLast)];
            plan(gpu, &problem.with_layouts(&inputs, &outputs), form).ok()?;
            // Rows of taps come in rounds; threads that do not run at once wait for each other.
            let row = form.row_registers(&axes[2], size_of_element(x.dtype));
            let rounds = axes[0].kernel * axes[1].kernel.div_ceil((LOADED / row).max(1));
            let n_threads = y.len() as f64 / (form.lanes * form.outputs) as f64;
            let waves = (n_threads / (f64::from(gpu.n_sms) * RESIDENT as f64)).max(1.0);
            let loads = (axes[0].kernel * axes[1].kernel * row) as f64;
            let ns = gpu.roofline_ns(0.0, 1.0, problem.traffic_bytes() as f64);
            let ns = ns + waves * (rounds as f64 * ROUND_NS + loads * 2.0);
            let mut made = candidate(form.name(), REVISION, inputs, outputs, ns);
            made.packed[1] = Some(PACKED.name());
            Some(made)
        };
        let mut list: Vec<Candidate> = Form::all().filter_map(offer).collect();
        list.sort_by(|a, b| a.predicted_ns.total_cmp(&b.predicted_ns));
        list
    }

    fn plan(&self, gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Plan, KernelError> {
        match Form::all().find(|form| form.name() == tactic.name) {
            Some(form) => plan(gpu, problem, form),
            None => refuse(format!("{tactic} is not a depthwise convolution")),
        }
    }

    fn packing(&self, problem: &Problem, _tactic: &Tactic) -> Result<Option<Packing>, KernelError> {
        let dtype = wanted(problem)?.weight.dtype;
        Ok(Some(Packing { input: 1, format: PACKED, dtype }))
    }
}
