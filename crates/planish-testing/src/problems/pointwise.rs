//! Pointwise programs over all types.

use planish_kernel::Problem;
use planish_op::{self as op, Op};
use planish_tensor::{DType, Tensor};

use super::quantized::{self, quantize};
use crate::{Sample, constant, input, node};

/// An operator by name, with its attributes' defaults.
pub fn plain(name: &str) -> Op {
    Op::from_attributes(name, &[]).expect("an operator that needs no attributes")
}

/// QuantizeLinear as calibrated models have it, and the cast of 16-bit floats in front of it.
pub fn cast_and_quantize() -> [Op; 2] {
    let cast = op::Cast { round_mode: op::CastRounding::Up, saturate: true, to: DType::F32 };
    [cast.into(), quantize()]
}

/// To and from 8 bits. Scales are powers of two, so that a quotient at the middle between two integers is there in any
/// precision.
fn in_bytes() -> Vec<Problem> {
    let dequantize = || quantized::dequantize(1);
    let image = [2usize, 40, 9, 11];
    let scale = || Tensor::scalar(0.0625f32);
    let mut all = Vec::new();
    let float = Tensor::zeros(DType::F8E4M3FN, &[]).expect("one number");
    for zero in [Tensor::scalar(-3i8), Tensor::scalar(130u8), float] {
        let dtype = zero.dtype();
        let to = Sample::of(vec![(quantize(), vec![input(0), constant(0), constant(1)])]);
        all.push(to.constant(scale()).constant(zero.clone()).f32(&image).problem());
        let from = Sample::of(vec![(dequantize(), vec![input(0), constant(0), constant(1)])]);
        all.push(from.constant(scale()).constant(zero.clone()).typed(dtype, &image).problem());
        // The sum of two tensors with scales of their own.
        let sum = Sample::of(vec![
            (dequantize(), vec![input(0), constant(0), constant(1)]),
            (dequantize(), vec![input(1), constant(2), constant(1)]),
            (op::Add {}.into(), vec![node(0), node(1)]),
            (op::Relu {}.into(), vec![node(2)]),
            (quantize(), vec![node(3), constant(0), constant(1)]),
        ]);
        let sum = sum.constant(scale()).constant(zero).constant(Tensor::scalar(0.25f32));
        all.push(sum.typed(dtype, &image).typed(dtype, &image).problem());
    }
    all
}

/// Problems that between them ask for each kernel of a family.
pub fn samples() -> Vec<Problem> {
    let relu_add = || {
        vec![
            (Op::from(op::Add {}), vec![input(0), input(1)]),
            (op::Relu {}.into(), vec![node(0)]),
            (op::Sigmoid {}.into(), vec![node(1)]),
        ]
    };
    let cast = |to| Op::from(op::Cast { round_mode: op::CastRounding::Up, saturate: true, to });
    let image = [2usize, 40, 9, 11];
    let mut samples = vec![
        Sample::of(relu_add()).f32(&image).f32(&[40, 1, 1]).problem(),
        Sample::of(relu_add()).typed(DType::F16, &image).typed(DType::F16, &image).problem(),
        Sample::of(relu_add()).typed(DType::BF16, &[7, 13]).typed(DType::BF16, &[13]).problem(),
        Sample::of(vec![(cast(DType::F16), vec![input(0)])]).f32(&image).problem(),
        Sample::of(vec![(cast(DType::F32), vec![input(0)])]).typed(DType::BF16, &image).problem(),
        Sample::of(vec![(cast(DType::I64), vec![input(0)])]).f32(&[33]).problem(),
    ];
    let chosen = vec![
        (Op::from(op::Less {}), vec![input(0), input(1)]),
        (op::Where {}.into(), vec![node(0), input(0), input(1)]),
    ];
    samples.push(Sample::of(chosen).typed(DType::I32, &[5, 8]).typed(DType::I32, &[5, 1]).problem());
    samples.extend(in_bytes());
    samples
}
