//! Nodes on host values: by kernels, and the same as the reference.

use planish_kernel::{Ref, RegionNode};
use planish_op::{self as op, Op, Value};
use planish_tensor::{DType, Tensor};
use planish_testing::{Random, Tolerance, assert_close, evaluate_op};

use super::*;

/// Sums in another order than the reference's, in f32.
const SUMS: Tolerance = Tolerance { relative: 1e-5, absolute: 1e-5 };

fn node(op: Op, n_inputs: usize, n_outputs: usize) -> RegionNode {
    let inputs = (0..n_inputs as u32).map(|idx| Some(Ref::Input(idx))).collect();
    RegionNode { name: "node".into(), op, inputs, n_outputs: n_outputs as u32 }
}

/// By kernels, and as the reference has it.
#[track_caller]
fn check(op: impl Into<Op>, inputs: &[Tensor], n_outputs: usize) {
    let op = op.into();
    let tensors: Vec<Option<&Tensor>> = inputs.iter().map(Some).collect();
    let want = evaluate_op(&op, &tensors, n_outputs);
    let values: Vec<Value> = inputs.iter().cloned().map(Value::Tensor).collect();
    let operands: Vec<Option<&Value>> = values.iter().map(Some).collect();
    let node = node(op, inputs.len(), n_outputs);
    for isa in Isa::available() {
        // Twice: prepared, and kept from before.
        for _ in 0..2 {
            let got = by_kernel(isa, &node, &operands, usize::MAX, 2).unwrap();
            let got = got.unwrap_or_else(|| panic!("{} on the reference", node.op.name()));
            for (got, want) in got.iter().zip(&want) {
                assert_close(got.as_tensor().unwrap(), want, SUMS, node.op.name());
            }
        }
    }
}

#[test]
fn layers_whose_sizes_only_a_run_tells() {
    let mut random = Random::new(7);
    let image = random.tensor(DType::F32, &[1, 5, 13, 11], 1.0);
    let weight = random.tensor(DType::F32, &[6, 5, 3, 3], 1.0);
    let conv = op::Conv {
        group: 1,
        pads: vec![1; 4],
        auto_pad: op::AutoPad::NotSet,
        strides: vec![1, 2],
        dilations: Vec::new(),
        kernel_shape: None,
    };
    check(conv, &[image.clone(), weight], 1);
    check(op::Softmax { axis: 1 }, std::slice::from_ref(&image), 1);
    check(op::Sigmoid {}, std::slice::from_ref(&image), 1);
    check(op::Concat { axis: 1 }, &[image.clone(), image.clone()], 1);
    let ints = |list: &[i64]| Tensor::vector(list.to_vec());
    let large = random.tensor(DType::F32, &[1, 5, 33, 31], 1.0);
    check(op::Slice {}, &[large, ints(&[1, 2]), ints(&[32, 29]), ints(&[2, 3]), ints(&[1, 2])], 1);
    check(op::Pad { mode: op::PadMode::Edge }, &[image.clone(), ints(&[0, 0, 1, 2, 0, 0, 2, 1])], 1);
    let (x, w, r) = (
        random.tensor(DType::F32, &[7, 3, 5], 1.0),
        random.tensor(DType::F32, &[1, 32, 5], 1.0),
        random.tensor(DType::F32, &[1, 32, 8], 1.0),
    );
    let lstm = op::LSTM {
        clip: None,
        activation_beta: Vec::new(),
        activation_alpha: Vec::new(),
        hidden_size: Some(8),
        direction: op::RecurrentDirection::Forward,
        input_forget: false,
        layout: 0,
        activations: Vec::new(),
    };
    check(lstm, &[x, w, r], 3);
}

#[test]
fn what_is_found_is_what_the_reference_finds() {
    let mut random = Random::new(3);
    for dims in [vec![40], vec![3, 50, 7], vec![2, 0, 4], vec![1, 1], vec![]] {
        let x = random.tensor(DType::F32, &dims, 1.0).to_f64s();
        let x: Vec<f64> = x.into_iter().map(|x| if x > 0.0 { x } else { 0.0 }).collect();
        for dtype in [DType::F32, DType::Bool, DType::I64, DType::U8, DType::F64] {
            let x = Tensor::from_f64s(dtype, &dims, &x).unwrap();
            check(op::NonZero {}, &[x], 1);
        }
    }
    let x = random.tensor(DType::F32, &[4, 6, 5], 1.0);
    let condition = Tensor::vector(vec![true, false, true, true, false]);
    for axis in [None, Some(1), Some(-1)] {
        check(op::Compress { axis }, &[x.clone(), condition.clone()], 1);
    }
}

#[test]
fn different_elements_are_those_of_the_reference() {
    let mut random = Random::new(4);
    for dims in [vec![1], vec![40], vec![3, 50, 7], vec![2, 0, 4], vec![]] {
        let x = random.tensor(DType::F32, &dims, 1.0).to_f64s();
        for dtype in [DType::F32, DType::Bool, DType::I64, DType::U8, DType::F64, DType::I16, DType::U64] {
            // Close together, and far apart: looked up in a table and not.
            for scale in [3.0, 1e9] {
                let scale = if matches!(dtype, DType::U8 | DType::I16 | DType::Bool) { 3.0 } else { scale };
                let sign = |x: f64| if dtype.is_signed_int() || dtype.is_float() { x } else { x.abs() };
                let x: Vec<f64> = x.iter().map(|x| sign((x * scale).trunc())).collect();
                let x = Tensor::from_f64s(dtype, &dims, &x).unwrap();
                for sorted in [true, false] {
                    for n_outputs in [1, 4] {
                        check(op::Unique { axis: None, sorted }, std::slice::from_ref(&x), n_outputs);
                    }
                }
            }
        }
    }
    let zeros = Tensor::vector(vec![0f32, -0.0, 1.0, -1.0, 0.0]);
    check(op::Unique { axis: Some(-1), sorted: true }, &[zeros], 4);
    // Order of what is no number is the reference's.
    let x = Value::Tensor(Tensor::vector(vec![1f32, f32::NAN]));
    let node = node(op::Unique { axis: None, sorted: true }.into(), 1, 4);
    assert!(by_kernel(Isa::best(), &node, &[Some(&x)], usize::MAX, 1).unwrap().is_none());
}

#[test]
fn boxes_are_suppressed_as_by_the_reference() {
    let mut random = Random::new(5);
    for (n_boxes, n_classes, limit) in
        [(1, 1, 5), (17, 2, 100), (300, 3, 1000), (300, 1, 7), (0, 1, 3), (40, 1, 0)]
    {
        for center_point_box in [false, true] {
            // Corners on a grid, so that overlaps equal to the threshold, equal scores and empty boxes are among them.
            let corners: Vec<f32> = (0..2 * n_boxes * 4).map(|_| random.below(12) as f32).collect();
            let boxes = Tensor::new(&[2, n_boxes, 4], corners).unwrap();
            let scores: Vec<f32> =
                (0..2 * n_classes * n_boxes).map(|_| random.below(40) as f32 / 40.0).collect();
            let scores = Tensor::new(&[2, n_classes, n_boxes], scores).unwrap();
            for threshold in [0f32, 0.25, 0.5, 1.0] {
                let [limit, threshold, least] = [
                    Tensor::vector(vec![limit as i64]),
                    Tensor::vector(vec![threshold]),
                    Tensor::vector(vec![0.2f32]),
                ];
                let inputs = [boxes.clone(), scores.clone(), limit, threshold, least];
                check(op::NonMaxSuppression { center_point_box }, &inputs, 1);
            }
        }
    }
}

#[test]
fn more_than_is_allowed_is_not_made() {
    let x = Value::Tensor(Tensor::vector(vec![true; 4096]));
    let node = node(op::NonZero {}.into(), 1, 1);
    assert!(by_kernel(Isa::best(), &node, &[Some(&x)], 1 << 10, 1).unwrap().is_none());
}

#[test]
fn a_few_elements_of_a_large_tensor_are_taken_without_a_kernel() {
    let large = Value::Tensor(Tensor::vector(vec![1f32; 100_000]));
    let [start, end, axis] = [7i64, 9, 0].map(|place| Value::Tensor(Tensor::vector(vec![place])));
    let operands = [&large, &start, &end, &axis].map(Some);
    let node = node(op::Slice {}.into(), 4, 1);
    assert!(by_kernel(Isa::best(), &node, &operands, usize::MAX, 1).unwrap().is_none());
    assert!(KEPT.with_borrow(HashMap::is_empty));
}
