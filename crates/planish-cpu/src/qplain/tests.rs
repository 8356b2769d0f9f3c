//! Against the reference: sums bit by bit, numbers and quantized results as near as two roundings of f32 allow.

use planish_kernel::{Layout, Operand, Region};
use planish_op as op;
use planish_op::{AutoPad, Op};
use planish_tensor::{DType, Tensor};
use planish_testing::{Placement, Random, Tolerance, input, node, region};

use super::PlainQuantizedFamily;
use crate::isa::Isa;
use crate::trial::{Input, OpTrial, check_placed};

const BYTES: [DType; 2] = [DType::U8, DType::I8];

/// Bytes over their whole range.
fn bytes(random: &mut Random, dtype: DType, dims: &[usize]) -> Tensor {
    let low = if dtype == DType::I8 { -128.0 } else { 0.0 };
    let value = |_| low + (random.unit() * 256.0).floor();
    let values: Vec<f64> = (0..dims.iter().product()).map(value).collect();
    Tensor::from_f64s(dtype, dims, &values).unwrap()
}

/// Dense operands on every instruction set, to the last bit.
#[track_caller]
fn check_sums(op: impl Into<Op>, inputs: &[Input]) {
    let trial = OpTrial::new(op, inputs, 1);
    let operand = |t: &Tensor| Operand::dense(t.dtype(), t.shape(), Layout::Plain);
    let from: Vec<Operand> = trial.data.iter().map(operand).collect();
    let to: Vec<Operand> = trial.want.iter().map(operand).collect();
    for isa in Isa::available() {
        let got = trial.run(&PlainQuantizedFamily, isa, &from, &to).unwrap();
        assert!(got == trial.want, "{isa}: {:?} of {from:?}", trial.region.nodes[0].op);
    }
}

#[test]
fn sums_of_matrix_products_are_exact() {
    let mut random = Random::new(1);
    // Around a panel of 32 columns and eight rows, primes, single elements and nothing at all.
    let sizes = [(1, 1, 1), (2, 3, 4), (7, 31, 5), (8, 32, 64), (9, 33, 13), (17, 67, 129)];
    let empty = [(0, 3, 2), (3, 0, 2), (3, 5, 0)];
    for a_type in BYTES {
        for b_type in BYTES {
            for (m, n, k) in sizes.into_iter().chain(empty) {
                let a = Input::Data(bytes(&mut random, a_type, &[m, k]));
                let b = Input::Data(bytes(&mut random, b_type, &[k, n]));
                check_sums(op::MatMulInteger {}, &[a.clone(), b.clone()]);
                let zero = Input::Parameter(bytes(&mut random, a_type, &[]));
                check_sums(op::MatMulInteger {}, &[a.clone(), b.clone(), zero]);
                let rows = Input::Data(bytes(&mut random, a_type, &[m]));
                let columns = Input::Parameter(bytes(&mut random, b_type, &[n]));
                check_sums(op::MatMulInteger {}, &[a.clone(), b.clone(), rows, columns.clone()]);
                check_sums(op::MatMulInteger {}, &[a, b, Input::Absent, columns]);
            }
        }
    }
}

#[test]
fn batches_are_broadcast_and_zero_points_follow_them() {
    let mut random = Random::new(2);
    let shapes: [(&[usize], &[usize]); 6] = [
        (&[2, 3, 4, 5], &[5, 7]),
        (&[4, 5], &[3, 5, 33]),
        (&[2, 1, 4, 5], &[3, 5, 2]),
        (&[5], &[5, 7]),
        (&[3, 5], &[5]),
        (&[0, 4, 5], &[5, 7]),
    ];
    for (a_dims, b_dims) in shapes {
        let a = Input::Data(bytes(&mut random, DType::U8, a_dims));
        let b = Input::Data(bytes(&mut random, DType::I8, b_dims));
        check_sums(op::MatMulInteger {}, &[a, b]);
    }
    let a = Input::Data(bytes(&mut random, DType::U8, &[2, 3, 4, 5]));
    let b = Input::Data(bytes(&mut random, DType::U8, &[3, 5, 35]));
    for zero in [&[2, 3, 4, 1][..], &[1, 3, 1, 1], &[2, 1, 4, 1], &[1, 1, 4, 1]] {
        let zero = Input::Data(bytes(&mut random, DType::U8, zero));
        check_sums(op::MatMulInteger {}, &[a.clone(), b.clone(), zero]);
    }
    for zero in [&[3, 1, 35][..], &[1, 1, 35], &[3, 1, 1]] {
        let zero = Input::Parameter(bytes(&mut random, DType::U8, zero));
        check_sums(op::MatMulInteger {}, &[a.clone(), b.clone(), Input::Absent, zero]);
    }
}

struct Window {
    group: i64,
    pads: &'static [i64],
    strides: &'static [i64],
    dilations: &'static [i64],
}

#[test]
fn sums_of_convolutions_are_exact() {
    let mut random = Random::new(3);
    let plain = |group| Window { group, pads: &[], strides: &[], dilations: &[] };
    let cases: [(&[usize], &[usize], Window); 6] = [
        (&[1, 1, 3, 3], &[1, 1, 2, 2], plain(1)),
        (
            &[2, 3, 9, 7],
            &[5, 3, 3, 3],
            Window { group: 1, pads: &[1, 0, 2, 1], strides: &[1, 2], dilations: &[] },
        ),
        (&[1, 6, 8, 5], &[9, 2, 3, 2], Window { group: 3, pads: &[], strides: &[], dilations: &[2, 1] }),
        (&[2, 4, 11], &[4, 1, 3], Window { group: 4, pads: &[2, 2], strides: &[1], dilations: &[1] }),
        (&[1, 2, 3, 4, 5], &[2, 2, 2, 2, 2], plain(1)),
        (&[0, 2, 4, 4], &[3, 2, 1, 1], plain(1)),
    ];
    for x_type in BYTES {
        for w_type in BYTES {
            for (x_dims, w_dims, window) in &cases {
                let conv = op::ConvInteger {
                    auto_pad: AutoPad::NotSet,
                    dilations: window.dilations.to_vec(),
                    group: window.group,
                    kernel_shape: None,
                    pads: window.pads.to_vec(),
                    strides: window.strides.to_vec(),
                };
                let x = Input::Data(bytes(&mut random, x_type, x_dims));
                let w = Input::Data(bytes(&mut random, w_type, w_dims));
                check_sums(conv.clone(), &[x.clone(), w.clone()]);
                let zero = Input::Data(bytes(&mut random, x_type, &[]));
                check_sums(conv.clone(), &[x.clone(), w.clone(), zero.clone()]);
                let rows = Input::Parameter(bytes(&mut random, w_type, &w_dims[..1]));
                check_sums(conv, &[x, w, zero, rows]);
            }
        }
    }
}

/// A product of two dequantized inputs, whose scales and zero points are inputs as well, and its result as bytes or numbers.
fn quantized(product: Op, bias: Option<Tensor>, to: Option<DType>, axes: [i64; 2]) -> Region {
    let dequantize = |axis| op::DequantizeLinear { output_dtype: None, block_size: 0, axis };
    let constants: Vec<Tensor> = bias.into_iter().collect();
    let mut main = vec![node(0), node(1)];
    if !constants.is_empty() {
        main.push(Some(planish_kernel::Ref::Constant(0)));
    }
    let mut nodes: Vec<(Op, Vec<_>)> = vec![
        (dequantize(axes[0]).into(), vec![input(0), input(1), input(2)]),
        (dequantize(axes[1]).into(), vec![input(3), input(4), input(5)]),
        (product, main),
    ];
    if to.is_some() {
        let quantize = op::QuantizeLinear {
            precision: None,
            output_dtype: None,
            block_size: 0,
            saturate: true,
            axis: 1,
        };
        nodes.push((quantize.into(), vec![node(2), input(6), input(7)]));
    }
    region(if to.is_some() { 8 } else { 6 }, constants, nodes)
}

#[test]
fn products_of_dequantized_values_are_those_of_the_reference() {
    let mut random = Random::new(4);
    let dense = [Placement::ALL[0]];
    for dtype in BYTES {
        for (a_dims, b_dims) in [(&[2usize, 4][..], &[4usize, 3][..]), (&[3, 9, 13], &[3, 13, 37])] {
            for of_columns in [false, true] {
                let n = b_dims[b_dims.len() - 1];
                let count = if of_columns { n } else { 1 };
                let scales: Vec<f32> = (0..count).map(|at| 0.004 + 0.0001 * at as f32).collect();
                let inputs = vec![
                    bytes(&mut random, dtype, a_dims),
                    Tensor::vector(vec![0.0066f32]),
                    bytes(&mut random, dtype, &[1]),
                    bytes(&mut random, dtype, b_dims),
                    Tensor::vector(scales),
                    bytes(&mut random, dtype, &[count]),
                    Tensor::vector(vec![0.0731f32]),
                    bytes(&mut random, dtype, &[1]),
                ];
                let axes = [0, b_dims.len() as i64 - 1];
                let numbers = quantized(op::MatMul {}.into(), None, None, axes);
                let near = Tolerance { relative: 1e-6, absolute: 1e-4 };
                check_placed(&PlainQuantizedFamily, &numbers, &inputs[..6], near, &dense);
                // A sum in the middle between two bytes may become either.
                let step = Tolerance { relative: 0.0, absolute: 1.0 };
                let integers = quantized(op::MatMul {}.into(), None, Some(dtype), axes);
                check_placed(&PlainQuantizedFamily, &integers, &inputs, step, &dense);
            }
        }
        let conv = op::Conv {
            auto_pad: AutoPad::NotSet,
            dilations: vec![1, 1],
            group: 2,
            kernel_shape: None,
            pads: vec![1, 1, 0, 1],
            strides: vec![1, 1],
        };
        let inputs = vec![
            bytes(&mut random, dtype, &[2, 6, 5, 7]),
            Tensor::scalar(0.0066f32),
            bytes(&mut random, dtype, &[]),
            bytes(&mut random, dtype, &[4, 3, 3, 3]),
            Tensor::vector(vec![0.01f32, 0.02, 0.03, 0.04]),
            bytes(&mut random, dtype, &[4]),
            Tensor::scalar(0.173f32),
            bytes(&mut random, dtype, &[]),
        ];
        let bias = Tensor::vector(vec![0.5f32, -3.0, 2.0, 0.0]);
        let step = Tolerance { relative: 0.0, absolute: 1.0 };
        let integers = quantized(conv.clone().into(), Some(bias.clone()), Some(dtype), [1, 0]);
        check_placed(&PlainQuantizedFamily, &integers, &inputs, step, &dense);
        let near = Tolerance { relative: 1e-6, absolute: 1e-4 };
        let numbers = quantized(conv.into(), Some(bias), None, [1, 0]);
        check_placed(&PlainQuantizedFamily, &numbers, &inputs[..6], near, &dense);
    }
}
