//! Pools of one to three axes.

use planish_kernel::Problem;
use planish_op::{self as op, Op};
use planish_tensor::DType;

use crate::{Sample, input};

/// Problems that between them ask for each kernel of a family.
pub fn samples() -> Vec<Problem> {
    let max = |kernel: i64, strides: i64, pad: i64, n: usize| op::MaxPool {
        kernel_shape: vec![kernel; n],
        strides: vec![strides; n],
        pads: vec![pad; 2 * n],
        storage_order: 0,
        dilations: Vec::new(),
        ceil_mode: false,
        auto_pad: op::AutoPad::NotSet,
    };
    let average = |include| op::AveragePool {
        kernel_shape: vec![3, 2],
        strides: vec![2, 1],
        pads: vec![1, 0, 1, 1],
        count_include_pad: include,
        dilations: Vec::new(),
        ceil_mode: false,
        auto_pad: op::AutoPad::NotSet,
    };
    let of = |op: Op| Sample::of(vec![(op, vec![input(0)])]);
    vec![
        of(max(3, 2, 1, 2).into()).typed(DType::F16, &[2, 64, 15, 14]).problem(),
        of(max(2, 2, 0, 3).into()).typed(DType::BF16, &[1, 9, 6, 5, 8]).problem(),
        of(max(3, 1, 1, 1).into()).f32(&[3, 5, 11]).problem(),
        of(max(3, 2, 1, 2).into()).typed(DType::I8, &[2, 64, 15, 14]).problem(),
        of(max(2, 2, 0, 2).into()).typed(DType::U8, &[1, 20, 9, 8]).problem(),
        of(max(2, 1, 1, 3).into()).typed(DType::I8, &[1, 16, 5, 6, 7]).problem(),
        of(average(true).into()).typed(DType::F16, &[1, 12, 9, 10]).problem(),
        of(average(false).into()).f32(&[2, 3, 9, 7]).problem(),
    ]
}
