//! The family of depthwise convolutions with channels innermost, and the pointwise nodes behind them.

use planish_kernel::{Candidate, KernelError, Layout, Operand, PackedWeight, Problem, Ref, Tactic, Want};
use planish_op::window::PlacedAxis;
use planish_op::{self as op, Op};
use planish_tensor::{DType, Dim, Tensor};

use super::pool::{image_strides, placed, three};
use crate::ending::Ending;
use crate::formats::Format;
use crate::gpu::Gpu;
use crate::operands::{candidate, is_float, laid, refuse, size_of_element, storage, want};
use crate::samples::{Sample, input, node};
use crate::space::{blocks, divisor, int};
use crate::steps::{Arg, Plan, Planner, Slot};

#[cfg(test)]
mod tests;

const REVISION: u32 = 1;

/// How weights are packed: taps outermost, channels innermost.
const PACKED: Format = Format::Taps;

/// Taps beyond these are not unrolled into registers.
const MAX_ROW_TAPS: usize = 31;
/// Pixels of a row that a thread holds at most, in registers of eight channels each.
const MAX_SPAN: usize = 12;

/// Convolutions with as many groups as channels.
pub(crate) struct Depthwise;

struct Wanted<'a> {
    x: &'a Operand,
    weight: &'a Operand,
    axes: [PlacedAxis; 3],
}

fn wanted(problem: &Problem) -> Result<Wanted<'_>, KernelError> {
    let (Some(node), [y]) = (problem.region.nodes.first(), &problem.outputs[..]) else {
        return refuse("a depthwise convolution with one output");
    };
    let Op::Conv(conv) = &node.op else { return refuse("no convolution") };
    let operand = |idx: usize| match node.inputs.get(idx).copied().flatten() {
        Some(Ref::Input(at)) if at as usize == idx => problem.inputs.get(idx),
        _ => None,
    };
    let (Some(x), Some(weight)) = (operand(0), operand(1)) else {
        return refuse("image and weights that are inputs of the region");
    };
    let fits = (3..=5).contains(&x.rank())
        && weight.rank() == x.rank()
        && weight.constant
        && is_float(x.dtype)
        && weight.dtype == x.dtype
        && is_float(y.dtype)
        && usize::try_from(conv.group).is_ok_and(|group| group == x.dims[1] && group > 1)
        && weight.dims[..2] == [x.dims[1], 1]
        && y.rank() == x.rank()
        && y.dims[..2] == x.dims[..2];
    let kernel: Vec<Dim> = weight.dims[2.min(weight.rank())..].iter().map(|dim| Dim::from(*dim)).collect();
    let axes = if fits { placed(&conv.window(), &kernel, x) } else { None };
    match axes.filter(|axes| three(&y.dims[2..], 1).iter().zip(axes).all(|(dim, axis)| *dim == axis.output)) {
        Some(axes) if axes[2].kernel <= MAX_ROW_TAPS => Ok(Wanted { x, weight, axes }),
        _ => refuse("not a depthwise convolution of floats"),
    }
}

/// Outputs of a row that a thread makes, as a tactic names them.
fn outputs_of(tactic: &str) -> Option<usize> {
    tactic.strip_prefix("depthwise_p")?.parse().ok().filter(|n| [1, 2, 4].contains(n))
}

fn plan(problem: &Problem, n_outputs: usize) -> Result<Plan, KernelError> {
    let Wanted { x, weight, axes } = wanted(problem)?;
    let y = &problem.outputs[0];
    let (Some(from), Some(to)) = (image_strides(x), image_strides(y)) else {
        return refuse("not an image");
    };
    if from[1] != 1 || to[1] != 1 {
        return refuse("channels that are not innermost");
    }
    if y.is_empty() {
        return Ok(Plan::default());
    }
    let span = (n_outputs - 1) * axes[2].stride + (axes[2].kernel - 1) * axes[2].dilation + 1;
    if n_outputs > 1 && span > MAX_SPAN {
        return refuse("rows too long for registers");
    }
    // Long rows of taps have fewer channels at once.
    let lanes = if size_of_element(x.dtype) == 4 || span > MAX_SPAN { 4 } else { 8 };
    let channels = x.dims[1];
    let outputs = axes.map(|axis| axis.output);
    let order = [channels.div_ceil(lanes), outputs[2].div_ceil(n_outputs), outputs[1], outputs[0]];
    let n_threads = x.dims[0] * order.iter().product::<usize>();
    let mut ints = vec![int(n_threads)?];
    order.into_iter().for_each(|dim| ints.extend(divisor(dim)));
    ints.extend([int(channels)?, int(outputs[2])?]);
    let push = |ints: &mut Vec<i32>, values: &[usize]| -> Result<(), KernelError> {
        values.iter().try_for_each(|value| int(*value).map(|value| ints.push(value)))
    };
    push(&mut ints, &axes.map(|axis| axis.input))?;
    push(&mut ints, &[axes[0].stride, axes[1].stride, axes[0].dilation, axes[1].dilation])?;
    push(&mut ints, &axes.map(|axis| axis.pad_begin))?;
    for strides in [from, to] {
        push(&mut ints, &[strides[0], strides[2], strides[3], strides[4]])?;
    }
    let rank = y.rank();
    let spatial: Vec<[usize; 1]> = (2..rank).map(|axis| [axis]).collect();
    let mut rows: [&[usize]; 4] = [&[0], &[], &[], &[]];
    for (to, from) in rows[1..].iter_mut().rev().zip(spatial.iter().rev()) {
        *to = from;
    }
    let ending = Ending::behind(problem, 0, rows, &[1], lanes, ints.len())?;
    ints.extend(&ending.ints);
    let source = ending
        .code("depthwise.cu", include_str!("../../kernels/depthwise.cu"), "depthwise", ints.len())
        .define("X_T", storage(x)?)
        .define("W_T", crate::codegen::storage_type(weight.dtype).unwrap_or("float"))
        .define("Y_T", storage(y)?)
        .define("V", lanes)
        .define("P", n_outputs)
        .define("KD", axes[0].kernel)
        .define("KH", axes[1].kernel)
        .define("KW", axes[2].kernel)
        .define("SW", axes[2].stride)
        .define("DW", axes[2].dilation)
        .source();
    let mut args = vec![
        Arg::Address(Slot::Input(0), 0),
        Arg::Address(Slot::Input(1), 0),
        Arg::Address(Slot::Output(0), 0),
        Arg::Ints(ints),
    ];
    args.extend(ending.args);
    Ok(Plan::one(source, [blocks(n_threads, 256)?, 1, 1], 256, args))
}

/// Where element `(channel, tap)` of the weights goes: taps outermost.
fn turned(bytes: &[u8], size: usize, rows: usize, cols: usize) -> Vec<u8> {
    let mut out = vec![0; bytes.len()];
    for row in 0..rows {
        for col in 0..cols {
            let (from, to) = ((row * cols + col) * size, (col * rows + row) * size);
            out[to..to + size].copy_from_slice(&bytes[from..from + size]);
        }
    }
    out
}

impl Planner for Depthwise {
    fn name(&self) -> &'static str {
        "depthwise"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem) -> Vec<Candidate> {
        let Ok(Wanted { x, axes, .. }) = wanted(problem) else { return Vec::new() };
        let taps: usize = axes.iter().map(|axis| axis.kernel).product();
        let y = &problem.outputs[0];
        let offer = |n_outputs: usize| {
            let mut inputs: Vec<Want> =
                problem.inputs.iter().map(|input| want(input, x.rank(), Layout::ChannelsLast)).collect();
            inputs[0] = Want::inside(Layout::ChannelsLast);
            inputs[1] = Want::dense(Layout::Plain);
            let outputs = vec![Want::inside(Layout::ChannelsLast)];
            plan(&laid(problem, &inputs, &outputs), n_outputs).ok()?;
            // A pixel is read once for each row of taps and each group of outputs.
            let reads = y.len() as f64 * taps as f64 * (0.4 + 0.6 / n_outputs as f64);
            let bytes = problem.traffic_bytes() as f64;
            let ns = gpu.roofline_ns(reads * 2.0, 2e13, bytes);
            let mut made = candidate(format!("depthwise_p{n_outputs}"), REVISION, inputs, outputs, ns);
            made.packed[1] = Some(PACKED.name());
            Some(made)
        };
        [4, 2, 1].into_iter().filter_map(offer).collect()
    }

    fn plan(&self, _gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Plan, KernelError> {
        match outputs_of(&tactic.name) {
            Some(n_outputs) => plan(problem, n_outputs),
            None => refuse(format!("{tactic} is no depthwise convolution")),
        }
    }

    fn pack(
        &self,
        problem: &Problem,
        tactic: &Tactic,
        input: usize,
        weight: &Tensor,
    ) -> Result<PackedWeight, KernelError> {
        let wanted = wanted(problem)?;
        if input != 1 || weight.shape() != wanted.weight.dims {
            return refuse(format!("{tactic} packs its weights only"));
        }
        let (size, channels) = (size_of_element(weight.dtype()), weight.shape()[0]);
        let bytes = turned(weight.bytes(), size, channels, weight.len() / channels.max(1));
        Ok(PackedWeight { format: PACKED.name(), bytes })
    }

    fn samples(&self) -> Vec<Problem> {
        let conv = |group: i64, pads: &[i64], strides: &[i64], dilations: &[i64]| {
            Op::from(op::Conv {
                group,
                pads: pads.to_vec(),
                auto_pad: op::AutoPad::NotSet,
                strides: strides.to_vec(),
                dilations: dilations.to_vec(),
                kernel_shape: None,
            })
        };
        let half = DType::F16;
        let clipped = vec![
            (conv(24, &[1, 1, 1, 1], &[1, 1], &[1, 1]), vec![input(0), input(1), input(2)]),
            (op::Relu {}.into(), vec![node(0)]),
            (op::Add {}.into(), vec![node(1), input(3)]),
        ];
        let one = |op| Sample::of(vec![(op, vec![input(0), input(1)])]);
        vec![
            Sample::of(clipped)
                .typed(half, &[2, 24, 9, 10])
                .weight(half, &[24, 1, 3, 3])
                .weight(half, &[24])
                .typed(half, &[2, 24, 9, 10])
                .problem(),
            one(conv(10, &[2, 2, 2, 2], &[2, 2], &[1, 1]))
                .f32(&[1, 10, 11, 9])
                .weight(DType::F32, &[10, 1, 5, 5])
                .problem(),
            one(conv(16, &[3, 3, 3, 3], &[1, 1], &[1, 1]))
                .typed(half, &[1, 16, 8, 8])
                .weight(half, &[16, 1, 7, 7])
                .problem(),
            one(conv(8, &[2, 2, 2, 2], &[1, 1], &[2, 2]))
                .typed(DType::BF16, &[1, 8, 7, 7])
                .weight(DType::BF16, &[8, 1, 3, 3])
                .problem(),
            one(conv(6, &[0, 1, 1, 0, 1, 1], &[1, 2, 1], &[1, 1, 1]))
                .f32(&[1, 6, 4, 5, 6])
                .weight(DType::F32, &[6, 1, 2, 3, 3])
                .problem(),
        ]
    }
}
