//! Problems by kind: what kernels are compiled with, run on and compared with the reference.

pub mod attention;
pub mod conv;
pub mod convtranspose;
pub mod depthwise;
pub mod dynquant;
pub mod gather;
pub mod matmul;
pub mod movement;
pub mod nbits;
pub mod norm;
pub mod pointwise;
pub mod pool;
pub mod quantized;
pub mod recurrent;
pub mod reduce;
pub mod resize;
pub mod rotary;
pub mod scan;
pub mod scatter;
pub mod softmax;
pub mod sparse;
pub mod topk;

use planish_kernel::{Layout, Numeric, Operand, Problem, Ref, RegionNode};
use planish_op::Op;
use planish_tensor::DType;

/// Problems that between them ask for each kernel of a family of this name; nothing for a name that no family has.
/// What a library computes is asked of it as of the family that it stands for.
pub fn of_family(family: &str) -> Vec<Problem> {
    match family {
        "attention" => [attention::samples(), attention::of_floats_of_8_bits()].concat(),
        "conv" => [conv::samples(), quantized::convolutions(), quantized::to_bytes()].concat(),
        "cudnn" => [conv::samples(), quantized::convolutions(), quantized::to_bytes()].concat(),
        "halo" => conv::samples(),
        "convtranspose" => convtranspose::samples(),
        "depthwise" => depthwise::samples(),
        "dynquant" => dynquant::samples(),
        "gather" => gather::samples(),
        "gemm" => [matmul::samples(), quantized::products()].concat(),
        "matmul" => matmul::samples(),
        "cublaslt" => [matmul::samples(), quantized::products()].concat(),
        "movement" | "move" => movement::samples(),
        "nbits" => nbits::samples(),
        "norm" => norm::samples(),
        "pointwise" => pointwise::samples(),
        "pool" => pool::samples(),
        "recurrent" => recurrent::samples(),
        "reduce" => reduce::samples(),
        "resize" => resize::samples(),
        "rotary" => rotary::samples(),
        "scan" => scan::samples(),
        "scatter" => scatter::samples(),
        "softmax" => softmax::samples(),
        "sparse" => sparse::samples(),
        "stem" => conv::few_channels(),
        "topk" => topk::samples(),
        "wconv" => [conv::convolutions(), quantized::convolutions()].concat(),
        "wgemm" => [matmul::products(), quantized::products()].concat(),
        "wtranspose" => [convtranspose::patches(), quantized::patches()].concat(),
        "whalo" => [conv::overlapping(), quantized::overlapping()].concat(),
        _ => Vec::new(),
    }
}

/// What products of this type are taken in.
fn numeric(dtype: DType) -> Numeric {
    match dtype {
        DType::F16 => Numeric::F16,
        DType::BF16 => Numeric::BF16,
        _ => Numeric::F32,
    }
}

/// Puts an operator after what the region gave so far, with a further input of these sizes.
fn with(mut problem: Problem, op: impl Into<Op>, other: Option<&[usize]>) -> Problem {
    let op = op.into();
    let dtype = problem.outputs[0].dtype;
    let mut inputs = vec![Some(problem.region.outputs[0])];
    if let Some(dims) = other {
        inputs.push(Some(Ref::Input(problem.inputs.len() as u32)));
        problem.inputs.push(Operand::dense(dtype, dims, Layout::Plain));
        problem.region.n_inputs += 1;
    }
    let node = problem.region.nodes.len() as u32;
    problem.region.nodes.push(RegionNode { name: op.name().to_string(), op, inputs, n_outputs: 1 });
    problem.region.outputs = vec![Ref::Node { node, output: 0 }];
    problem
}

/// As [`with`] and a further input of the output's own sizes.
fn with_image(problem: Problem, op: impl Into<Op>) -> Problem {
    let dims = problem.outputs[0].dims.clone();
    with(problem, op, Some(&dims))
}
