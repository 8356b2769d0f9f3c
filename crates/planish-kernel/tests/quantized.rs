//! Regions around 8-bit integers, taken apart.

use planish_kernel::Ref;
use planish_kernel::quantized::{Dequantized, Scales};
use planish_op::{self as op, Op};
use planish_tensor::DType;
use planish_testing::problems::conv::conv;
use planish_testing::problems::matmul::matmul;
use planish_testing::problems::quantized::{To, quantized};

#[test]
fn integers_are_taken_off_both_ends() {
    let floats = conv(DType::F32, &[1, 16, 5, 5], 8, &[3, 3], |_| {});
    let bytes = quantized(&floats, DType::I8, 3, To::Bytes(-5)).unwrap();
    let apart = Dequantized::of(&bytes).unwrap().unwrap();
    assert_eq!(apart.problem.region.ops(), "Conv+Relu");
    assert!(apart.problem.inputs.iter().chain(&apart.problem.outputs).all(|one| one.dtype == DType::F32));
    assert_eq!(apart.problem.region.nodes[0].inputs[..2], [Some(Ref::Input(0)), Some(Ref::Input(1))]);
    assert_eq!(apart.problem.region.outputs, [Ref::Node { node: 1, output: 0 }]);
    let x = apart.input(0).unwrap();
    assert_eq!((x.dtype, x.zero, x.scales), (DType::I8, 3, Scales::One(0.03125)));
    let weight = apart.input(1).unwrap();
    assert_eq!((weight.zero, weight.scales), (0, Scales::Input { input: 3, axis: 0 }));
    let output = apart.output.unwrap();
    assert_eq!((output.dtype, output.zero), (DType::I8, -5));
    assert!(Dequantized::of(&floats).unwrap().is_none());
}

#[test]
fn results_may_stay_floats_and_scales_follow_columns() {
    let floats = matmul(DType::F32, &[4, 16], &[16, 8], true, Some(op::Relu {}.into()));
    let bytes = quantized(&floats, DType::U8, 128, To::F32).unwrap();
    let apart = Dequantized::of(&bytes).unwrap().unwrap();
    assert_eq!((apart.output, apart.problem.region.ops()), (None, "MatMul+Add+Relu".to_string()));
    assert_eq!(apart.input(1).unwrap().scales, Scales::Input { input: 3, axis: 1 });
    assert_eq!(apart.input(2), None);
}

#[test]
fn other_integers_are_refused() {
    let floats = conv(DType::F32, &[1, 16, 5, 5], 8, &[3, 3], |_| {});
    let bytes = quantized(&floats, DType::I8, 0, To::Bytes(0)).unwrap();
    let mut blocked = bytes.clone();
    let Op::DequantizeLinear(op) = &mut blocked.region.nodes[1].op else { unreachable!() };
    op.block_size = 4;
    assert!(Dequantized::of(&blocked).is_err());
    let mut turned = bytes;
    let Op::DequantizeLinear(op) = &mut turned.region.nodes[1].op else { unreachable!() };
    op.axis = 1;
    assert!(Dequantized::of(&turned).is_err(), "eight scales do not follow sixteen channels");
}
