//! Products of 8 bits, integers or floats (E4M3), made of products of wide floats: both factors are dequantized in front, a
//! residual too, and the result is quantized or stays a wide float.
//!
//! Scales are powers of two, and floats beside them multiples of an eighth, so that sums are exact in f32 and the middle
//! between two integers is there in any precision.

use planish_kernel::{Layout, Numeric, Operand, Problem, Ref, RegionNode};
use planish_op::{self as op, CastRounding, Op};
use planish_tensor::{DType, Tensor};

use super::{conv, convtranspose, matmul};

/// What a product is stored as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// Bytes with a zero point, of the type of the activations; floats have none but 0.
    Bytes(i64),
    F32,
    F16,
}

/// Of the activations.
const SCALE: f32 = 0.03125;
/// Of weights that have one for all columns.
const WEIGHT_SCALE: f32 = 0.0625;

pub(super) fn quantize() -> Op {
    op::QuantizeLinear { precision: None, output_dtype: None, block_size: 0, saturate: true, axis: 1 }.into()
}

pub(super) fn dequantize(axis: i64) -> Op {
    op::DequantizeLinear { output_dtype: None, block_size: 0, axis }.into()
}

fn cast(to: DType) -> Op {
    op::Cast { round_mode: CastRounding::Up, saturate: true, to }.into()
}

/// Whether results are exact after such a node.
fn is_exact(op: &Op) -> bool {
    matches!(op, Op::Conv(_) | Op::ConvTranspose(_) | Op::MatMul(_) | Op::Gemm(_) | Op::Add(_) | Op::Relu(_))
}

/// The power of two that is nearest to a thirtieth of what sums of so many products come to.
fn output_scale(depth: usize) -> f32 {
    2f32.powi(((depth.max(1) as f32).sqrt() / 24.0).log2().round() as i32)
}

/// A product of floats with a constant second factor as one of bytes; `None` where it is something else.
pub fn quantized(problem: &Problem, activations: DType, zero: i64, to: To) -> Option<Problem> {
    let main = problem.region.nodes.first()?;
    let (axis, n, depth) = match (&main.op, &problem.inputs.get(1)?.dims[..]) {
        (Op::Conv(_), [n, taps @ ..]) => (0, *n, taps.iter().product()),
        (Op::ConvTranspose(_), [k, n, ..]) => (1, *n, *k),
        (Op::MatMul(_), [k, n]) => (1, *n, *k),
        _ => return None,
    };
    let exact = problem.region.nodes.iter().all(|node| is_exact(&node.op));
    if !problem.inputs[1].constant || (matches!(to, To::Bytes(_)) && !exact) {
        return None;
    }
    let mut made = problem.clone();
    let (numeric, weights) = match activations {
        DType::F8E4M3FN => (Numeric::F8, DType::F8E4M3FN),
        _ => (Numeric::I8, DType::I8),
    };
    made.numeric = numeric;
    for operand in made.inputs.iter_mut().chain(&mut made.outputs) {
        operand.dtype = DType::F32;
    }
    for constant in &mut made.region.constants {
        *constant = Tensor::from_f64s(DType::F32, constant.shape(), &constant.to_f64s()).ok()?;
    }
    let put = |made: &mut Problem, tensor: Tensor| {
        made.region.constants.push(tensor);
        Some(Ref::Constant(made.region.constants.len() as u32 - 1))
    };
    let whole = |value: i64| Tensor::from_f64s(activations, &[], &[value as f64]).ok();
    let scale = put(&mut made, Tensor::scalar(SCALE));
    let zero = put(&mut made, whole(zero)?);
    let scales = made.inputs.len() as u32;
    made.inputs.push(Operand::weight(DType::F32, &[n]));
    made.inputs[0].dtype = activations;
    made.inputs[1].dtype = weights;
    // A residual is an input of the output's own sizes that is added.
    let is_residual = |at: usize| at > 2 && made.inputs[at].dims == made.outputs[0].dims;
    let residual = (0..problem.inputs.len()).find(|at| exact && is_residual(*at));
    let mut front = vec![
        (dequantize(1), vec![Some(Ref::Input(0)), scale, zero]),
        (dequantize(axis), vec![Some(Ref::Input(1)), Some(Ref::Input(scales))]),
    ];
    // It is of the activations' type, or of 16 bits where the result is.
    if let Some(residual) = residual {
        let own = Some(Ref::Input(residual as u32));
        let (dtype, node) = match to {
            To::F16 => (DType::F16, (cast(DType::F32), vec![own])),
            _ => (activations, (dequantize(1), vec![own, scale, zero])),
        };
        made.inputs[residual].dtype = dtype;
        front.push(node);
    }
    let n_front = front.len() as u32;
    let moved = |reference: &Option<Ref>| match *reference {
        Some(Ref::Node { node, output }) => Some(Ref::Node { node: node + n_front, output }),
        Some(Ref::Input(0)) => Some(Ref::Node { node: 0, output: 0 }),
        Some(Ref::Input(1)) => Some(Ref::Node { node: 1, output: 0 }),
        Some(Ref::Input(at)) if residual == Some(at as usize) => Some(Ref::Node { node: 2, output: 0 }),
        other => other,
    };
    let named = |(op, inputs): (Op, Vec<Option<Ref>>)| RegionNode {
        name: op.name().to_string(),
        op,
        inputs,
        n_outputs: 1,
    };
    let rest = problem
        .region
        .nodes
        .iter()
        .map(|node| RegionNode { inputs: node.inputs.iter().map(moved).collect(), ..node.clone() });
    made.region.nodes = front.into_iter().map(named).chain(rest).collect();
    let last = Some(Ref::Node { node: made.region.nodes.len() as u32 - 1, output: 0 });
    let end = match to {
        To::F32 => None,
        To::F16 => {
            made.outputs[0].dtype = DType::F16;
            Some((cast(DType::F16), vec![last]))
        }
        To::Bytes(zero) => {
            made.outputs[0].dtype = activations;
            let (scale, zero) = (Tensor::scalar(output_scale(depth)), whole(zero)?);
            let inputs = vec![last, put(&mut made, scale), put(&mut made, zero)];
            Some((quantize(), inputs))
        }
    };
    made.region.nodes.extend(end.map(named));
    made.region.n_inputs = made.inputs.len() as u32;
    made.region.outputs = vec![Ref::Node { node: made.region.nodes.len() as u32 - 1, output: 0 }];
    let operands = made.inputs.iter_mut().chain(&mut made.outputs);
    operands.for_each(|operand| operand.strides = Layout::Plain.strides(&operand.dims));
    Some(made)
}

/// The same with one scale for the whole weight, a constant of the region.
fn per_tensor(mut problem: Problem) -> Problem {
    // `quantized` puts the scales behind all other inputs.
    problem.inputs.pop();
    problem.region.n_inputs -= 1;
    problem.region.constants.push(Tensor::scalar(WEIGHT_SCALE));
    problem.region.nodes[1].inputs[1] = Some(Ref::Constant(problem.region.constants.len() as u32 - 1));
    problem
}

/// All of them that can be, in turn to bytes and to floats; first of integers, then of floats.
fn of(problems: &[Problem]) -> Vec<Problem> {
    let each = |dtype: DType, zero: i64| {
        problems.iter().enumerate().filter_map(move |(idx, problem)| {
            let to = [To::Bytes(0), To::F32, To::Bytes(zero), To::F16][idx % 4];
            quantized(problem, dtype, 0, to).or_else(|| quantized(problem, dtype, 0, To::F32))
        })
    };
    each(DType::I8, -5).chain(each(DType::F8E4M3FN, 0)).collect()
}

/// Convolutions of every kind.
pub fn convolutions() -> Vec<Problem> {
    let mut all = of(&[conv::samples(), conv::convolutions()].concat());
    // Each to bytes and to 16 bits: results and residuals of them have ways of their own to memory.
    let residual = conv::with_residual();
    for dtype in [DType::I8, DType::F8E4M3FN] {
        for to in [To::Bytes(0), To::F16] {
            all.extend(residual.iter().filter_map(|problem| quantized(problem, dtype, 0, to)));
        }
    }
    all
}

/// Convolutions whose windows overlap, and whose channels come in whole chunks of 16 bytes.
pub fn overlapping() -> Vec<Problem> {
    let in_chunks = |problem: &Problem| problem.inputs[0].dims[1].is_multiple_of(16);
    of(&conv::overlapping().into_iter().filter(in_chunks).collect::<Vec<_>>())
}

/// Transposed convolutions whose windows lie side by side.
pub fn patches() -> Vec<Problem> {
    of(&convtranspose::patches())
}

/// Matrix products.
pub fn products() -> Vec<Problem> {
    let mut all = of(&[matmul::samples(), matmul::products(), matmul::strided_products()].concat());
    // Models of others have one scale for a weight.
    let bare = |problem: Problem| quantized(&problem, DType::I8, 0, To::Bytes(0)).map(per_tensor);
    all.extend(matmul::products().into_iter().filter_map(bare));
    for to in [To::Bytes(0), To::F16] {
        let bare = |problem: Problem| quantized(&problem, DType::F8E4M3FN, 0, to).map(per_tensor);
        all.extend(matmul::products().into_iter().filter_map(bare));
    }
    all
}

/// Products of wide floats whose results become bytes, integers or floats in turn.
pub fn to_bytes() -> Vec<Problem> {
    let end = |(idx, problem): (usize, &Problem)| {
        let (dtype, zero) = [(DType::I8, 3), (DType::F8E4M3FN, 0)][idx % 2];
        let bytes = quantized(problem, dtype, 0, To::Bytes(zero))?;
        let mut made = problem.clone();
        let last = bytes.region.nodes.last()?.clone();
        let n_constants = made.region.constants.len() as u32;
        made.region.constants.extend(bytes.region.constants[bytes.region.constants.len() - 2..].to_vec());
        let from = made.region.outputs[0];
        let inputs = vec![Some(from), Some(Ref::Constant(n_constants)), Some(Ref::Constant(n_constants + 1))];
        made.region.nodes.push(RegionNode { inputs, ..last });
        made.region.outputs = vec![Ref::Node { node: made.region.nodes.len() as u32 - 1, output: 0 }];
        made.outputs[0].dtype = dtype;
        Some(made)
    };
    [conv::samples(), conv::few_channels(), conv::overlapping(), matmul::samples()]
        .concat()
        .iter()
        .enumerate()
        .filter_map(end)
        .collect()
}
