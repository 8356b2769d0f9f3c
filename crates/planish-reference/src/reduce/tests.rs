//! Reductions and scans by hand.

use planish_op::{
    ArgMax, ArgMin, CumProd, CumSum, Hardmax, LogSoftmax, Op, ReduceL1, ReduceL2, ReduceLogSum,
    ReduceLogSumExp, ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum, ReduceSumSquare, Softmax,
};
use planish_tensor::{DType, Tensor, f16};

use crate::EvalErrorKind;
use crate::testing::{assert_near, counting, ints, one, refusal};

macro_rules! reduce {
    ($op:ident) => {
        Op::from($op { noop_with_empty_axes: false, keepdims: false })
    };
    ($op:ident, noop) => {
        Op::from($op { noop_with_empty_axes: true, keepdims: true })
    };
}

#[test]
fn every_reduction_of_a_vector() {
    let x = Tensor::vector(vec![3f32, -4.0, 12.0]);
    for (op, expected) in [
        (reduce!(ReduceL1), 19.0),
        (reduce!(ReduceL2), 13.0),
        (reduce!(ReduceLogSum), 11f64.ln()),
        (reduce!(ReduceLogSumExp), (3f64.exp() + (-4f64).exp() + 12f64.exp()).ln()),
        (reduce!(ReduceMax), 12.0),
        (reduce!(ReduceMean), 11.0 / 3.0),
        (reduce!(ReduceMin), -4.0),
        (reduce!(ReduceProd), -144.0),
        (reduce!(ReduceSum), 11.0),
        (reduce!(ReduceSumSquare), 169.0),
    ] {
        assert_near(&one(op, &[&x]), &[expected]);
    }
}

#[test]
fn axes_may_be_any_and_negative_and_repeat() {
    let x = counting(DType::F32, &[2, 3, 2]);
    let sum =
        |axes: &[i64], keepdims| one(ReduceSum { noop_with_empty_axes: false, keepdims }, &[&x, &ints(axes)]);
    assert_eq!(sum(&[1], false).to_i64s(), [6, 9, 24, 27]);
    assert_eq!(sum(&[1], true).shape(), [2, 1, 2]);
    assert_eq!(sum(&[0, -1], false).to_i64s(), [14, 22, 30]);
    assert_eq!(sum(&[2, 0, -1], false).to_i64s(), [14, 22, 30]);
    assert_eq!((sum(&[], true).to_i64s(), sum(&[], true).shape().to_vec()), (vec![66], vec![1, 1, 1]));
    let scalar = Tensor::scalar(5i32);
    assert_eq!(one(reduce!(ReduceSum), &[&scalar, &ints(&[0])]), scalar);
}

#[test]
fn no_axes_may_mean_no_reduction() {
    let x = Tensor::vector(vec![-2f32, 3.0]);
    assert_near(&one(reduce!(ReduceSum, noop), &[&x, &ints(&[])]), &[-2.0, 3.0]);
    assert_near(&one(reduce!(ReduceL2, noop), &[&x]), &[2.0, 3.0]);
    assert_near(&one(reduce!(ReduceSumSquare, noop), &[&x]), &[4.0, 9.0]);
    assert_near(&one(reduce!(ReduceLogSum, noop), &[&x]), &[f64::NAN, 3f64.ln()]);
    assert_near(&one(reduce!(ReduceLogSumExp, noop), &[&x]), &[-2.0, 3.0]);
}

#[test]
fn reductions_of_nothing() {
    let (infinity, low) = (f64::INFINITY, f64::from(i32::MIN));
    for (op, of_floats, of_ints) in [
        (reduce!(ReduceL1), 0.0, 0.0),
        (reduce!(ReduceL2), 0.0, 0.0),
        (reduce!(ReduceLogSum), -infinity, low),
        (reduce!(ReduceLogSumExp), -infinity, low),
        (reduce!(ReduceMax), -infinity, low),
        (reduce!(ReduceMean), f64::NAN, 0.0),
        (reduce!(ReduceMin), infinity, f64::from(i32::MAX)),
        (reduce!(ReduceProd), 1.0, 1.0),
        (reduce!(ReduceSum), 0.0, 0.0),
        (reduce!(ReduceSumSquare), 0.0, 0.0),
    ] {
        for (dtype, expected) in [(DType::F16, of_floats), (DType::I32, of_ints)] {
            let x = Tensor::zeros(dtype, &[2, 0]).unwrap();
            assert_near(&one(op.clone(), &[&x, &ints(&[1])]), &[expected; 2]);
            assert_near(&one(op.clone(), &[&x, &ints(&[0])]), &[]);
        }
    }
    // The sign of an empty sum is ONNX's 0, not the neutral -0.
    let empty = Tensor::zeros(DType::F32, &[0]).unwrap();
    assert!(one(reduce!(ReduceSum), &[&empty]).to_f64s()[0].is_sign_positive());
    let none = Tensor::zeros(DType::Bool, &[0]).unwrap();
    assert_eq!(one(reduce!(ReduceMax), &[&none]).to_i64s(), [0]);
    assert_eq!(one(reduce!(ReduceMin), &[&none]).to_i64s(), [1]);
}

#[test]
fn integers_are_exact_and_wrap_in_their_width() {
    let big = Tensor::vector(vec![i64::MAX, -1, 0]);
    assert_eq!(one(reduce!(ReduceSum), &[&big]).to_i64s(), [i64::MAX - 1]);
    assert_eq!(one(reduce!(ReduceMax), &[&big]).to_i64s(), [i64::MAX]);
    let unsigned = Tensor::vector(vec![u64::MAX, u64::MAX - 4]);
    assert_eq!(one(reduce!(ReduceMin), &[&unsigned]), Tensor::scalar(u64::MAX - 4));
    assert_eq!(one(reduce!(ReduceMean), &[&unsigned]), Tensor::scalar(u64::MAX - 2));
    assert_eq!(one(reduce!(ReduceSum), &[&unsigned]), Tensor::scalar(u64::MAX - 5));
    assert_eq!(one(reduce!(ReduceL2), &[&unsigned]), Tensor::scalar(u64::MAX));
    let bytes = Tensor::vector(vec![100i8, 100, -128]);
    assert_eq!(one(reduce!(ReduceSum), &[&bytes]), Tensor::scalar(72i8));
    assert_eq!(one(reduce!(ReduceProd), &[&Tensor::vector(vec![100i8, 3])]), Tensor::scalar(44i8));
    assert_eq!(one(reduce!(ReduceL1), &[&Tensor::vector(vec![-128i8])]), Tensor::scalar(-128i8));
    let small = Tensor::vector(vec![3i32, -4, 7]);
    assert_eq!(one(reduce!(ReduceMean), &[&small]).to_i64s(), [2]);
    assert_eq!(one(reduce!(ReduceMean), &[&Tensor::vector(vec![-3i32, -4])]).to_i64s(), [-3]);
    assert_eq!(one(reduce!(ReduceL2), &[&small]).to_i64s(), [8]);
    assert_eq!(one(reduce!(ReduceLogSumExp), &[&small]).to_i64s(), [7]);
    assert_eq!(one(reduce!(ReduceLogSum), &[&Tensor::vector(vec![20i32, 1])]).to_i64s(), [3]);
}

#[test]
fn half_floats_are_rounded_once() {
    // In f16 arithmetic 2048 + 1 stays 2048, twice.
    let x = Tensor::vector([2048.0, 1.0, 1.0].map(f16::from_f64).to_vec());
    assert_near(&one(reduce!(ReduceSum), &[&x]), &[2050.0]);
    let x = Tensor::from_f64s(DType::BF16, &[4], &[256.0, 1.0, 1.0, 0.0]).unwrap();
    assert_near(&one(reduce!(ReduceSum), &[&x]), &[258.0]);
}

#[test]
fn extremes_carry_nan_and_logsumexp_infinities() {
    let x = Tensor::vector(vec![1f32, f32::NAN, 3.0]);
    assert_near(&one(reduce!(ReduceMax), &[&x]), &[f64::NAN]);
    assert_near(&one(reduce!(ReduceMin), &[&x]), &[f64::NAN]);
    let infinite = Tensor::vector(vec![f32::INFINITY, 1.0]);
    assert_near(&one(reduce!(ReduceLogSumExp), &[&infinite]), &[f64::INFINITY]);
    let large = Tensor::vector(vec![1000f32, 1000.0]);
    assert_near(&one(reduce!(ReduceLogSumExp), &[&large]), &[f64::from((1000.0 + 2f64.ln()) as f32)]);
}

#[test]
fn reductions_refuse() {
    let x = counting(DType::F32, &[2, 3]);
    assert_eq!(refusal(reduce!(ReduceSum), &[&x, &ints(&[2])]), EvalErrorKind::BadAttribute);
    assert_eq!(refusal(reduce!(ReduceSum), &[&x, &ints(&[i64::MIN])]), EvalErrorKind::BadAttribute);
    assert_eq!(refusal(reduce!(ReduceSum), &[&x, &Tensor::scalar(0i64)]), EvalErrorKind::BadShape);
    assert_eq!(refusal(reduce!(ReduceSum), &[&x, &x]), EvalErrorKind::BadType);
    let flags = Tensor::vector(vec![true, false]);
    assert_eq!(refusal(reduce!(ReduceSum), &[&flags]), EvalErrorKind::BadType);
    let nibbles = Tensor::zeros(DType::I4, &[2]).unwrap();
    assert_eq!(refusal(reduce!(ReduceMax), &[&nibbles]), EvalErrorKind::BadType);
    let hollow = Tensor::zeros(DType::F32, &[1 << 30, 1 << 30, 0]).unwrap();
    assert_eq!(refusal(reduce!(ReduceSum), &[&hollow, &ints(&[2])]), EvalErrorKind::TooLarge);
    assert_eq!(one(reduce!(ReduceSum), &[&hollow]).to_i64s(), [0]);
}

#[test]
fn extremes_are_found_first_or_last() {
    let x = Tensor::new(&[2, 3], vec![2f32, 5.0, 5.0, 1.0, 1.0, 0.0]).unwrap();
    let max = |axis, last| one(ArgMax { select_last_index: last, keepdims: false, axis }, &[&x]);
    let min = |axis, last| one(ArgMin { select_last_index: last, keepdims: true, axis }, &[&x]);
    assert_eq!(max(1, false).to_i64s(), [1, 0]);
    assert_eq!(max(-1, true).to_i64s(), [2, 1]);
    assert_eq!(max(0, false).to_i64s(), [0, 0, 0]);
    assert_eq!((min(1, true).to_i64s(), min(1, true).shape()), (vec![0, 2], &[2, 1][..]));
    let unsigned = Tensor::vector(vec![1u64, u64::MAX, u64::MAX - 1]);
    assert_eq!(
        one(ArgMax { select_last_index: false, keepdims: true, axis: 0 }, &[&unsigned]).to_i64s(),
        [1]
    );
    let nan = Tensor::vector(vec![1f32, f32::NAN, 9.0, f32::NAN]);
    for (last, expected) in [(false, 1), (true, 3)] {
        assert_eq!(
            one(ArgMin { select_last_index: last, keepdims: true, axis: 0 }, &[&nan]).to_i64s(),
            [expected]
        );
    }
}

#[test]
fn extremes_of_nothing_are_refused_where_wanted() {
    let op = ArgMax { select_last_index: false, keepdims: true, axis: 1 };
    let x = Tensor::zeros(DType::F32, &[2, 0]).unwrap();
    assert_eq!(refusal(op.clone(), &[&x]), EvalErrorKind::BadShape);
    let x = Tensor::zeros(DType::F32, &[0, 0]).unwrap();
    assert_eq!(one(op.clone(), &[&x]).shape(), [0, 1]);
    assert_eq!(refusal(op, &[&Tensor::scalar(1f32)]), EvalErrorKind::BadAttribute);
}

#[test]
fn running_sums_in_four_forms() {
    let x = Tensor::new(&[2, 3], vec![1i32, 2, 3, 4, 5, 6]).unwrap();
    let axis = Tensor::scalar(1i32);
    for (exclusive, reverse, expected) in [
        (false, false, [1, 3, 6, 4, 9, 15]),
        (true, false, [0, 1, 3, 0, 4, 9]),
        (false, true, [6, 5, 3, 15, 11, 6]),
        (true, true, [5, 3, 0, 11, 6, 0]),
    ] {
        assert_eq!(one(CumSum { reverse, exclusive }, &[&x, &axis]).to_i64s(), expected);
    }
    let product = CumProd { reverse: false, exclusive: true };
    assert_eq!(one(product, &[&x, &ints(&[-2])]).to_i64s(), [1, 1, 1, 1, 2, 3]);
    let bytes = Tensor::vector(vec![200u8, 100, 1]);
    let sum = CumSum { reverse: false, exclusive: false };
    assert_eq!(one(sum.clone(), &[&bytes, &Tensor::scalar(0i64)]).to_i64s(), [200, 44, 45]);
    // Every partial sum is rounded once from the exact one.
    let halves = Tensor::vector([2048.0, 1.0, 1.0].map(f16::from_f64).to_vec());
    assert_near(&one(sum.clone(), &[&halves, &Tensor::scalar(0i64)]), &[2048.0, 2048.0, 2050.0]);
    assert_eq!(refusal(sum.clone(), &[&bytes, &ints(&[0, 0])]), EvalErrorKind::BadShape);
    assert_eq!(refusal(sum.clone(), &[&bytes, &ints(&[1])]), EvalErrorKind::BadAttribute);
    assert_eq!(refusal(sum, &[&bytes, &bytes]), EvalErrorKind::BadType);
}

#[test]
fn softmax_and_relatives_along_any_axis() {
    let x = Tensor::new(&[2, 2], vec![0f32, 0.0, 0.0, 2f32.ln()]).unwrap();
    assert_near(&one(Softmax { axis: 0 }, &[&x]), &[0.5, 1.0 / 3.0, 0.5, 2.0 / 3.0]);
    assert_near(&one(Softmax { axis: -1 }, &[&x]), &[0.5, 0.5, 1.0 / 3.0, 2.0 / 3.0]);
    let large = Tensor::vector(vec![1000f32, 1000.0, 0.0]);
    assert_near(&one(Softmax { axis: 0 }, &[&large]), &[0.5, 0.5, 0.0]);
    let logs = one(LogSoftmax { axis: 1 }, &[&Tensor::new(&[1, 2], vec![0f32, 1000.0]).unwrap()]);
    assert_near(&logs, &[-1000.0, 0.0]);
    let ties = Tensor::new(&[2, 3], vec![1f32, 4.0, 4.0, 2.0, 2.0, 2.0]).unwrap();
    assert_eq!(one(Hardmax { axis: 1 }, &[&ties]).to_i64s(), [0, 1, 0, 1, 0, 0]);
    let masked = Tensor::vector(vec![f32::NEG_INFINITY; 2]);
    assert_near(&one(Softmax { axis: 0 }, &[&masked]), &[f64::NAN; 2]);
    let empty = Tensor::zeros(DType::BF16, &[3, 0, 2]).unwrap();
    assert_eq!(one(Softmax { axis: 1 }, &[&empty]), empty);
    assert_eq!(refusal(Softmax { axis: 0 }, &[&Tensor::scalar(1f32)]), EvalErrorKind::BadAttribute);
    assert_eq!(refusal(Hardmax { axis: 0 }, &[&Tensor::vector(vec![1i32])]), EvalErrorKind::BadType);
}

#[test]
fn blocks_in_parallel_give_what_one_line_gives() {
    // Large enough for several threads; every line alone must agree bit by bit.
    let x = counting(DType::F32, &[64, 300, 7]);
    let all = one(LogSoftmax { axis: 1 }, &[&x]);
    let (found, x) = (all.to_f64s(), x.to_f64s());
    for outer in [0, 31, 63] {
        let line: Vec<f32> = (0..300).map(|idx| x[(outer * 300 + idx) * 7 + 2] as f32).collect();
        let expected = one(LogSoftmax { axis: 0 }, &[&Tensor::vector(line)]).to_f64s();
        assert!((0..300).all(|idx| found[(outer * 300 + idx) * 7 + 2] == expected[idx]));
    }
}
