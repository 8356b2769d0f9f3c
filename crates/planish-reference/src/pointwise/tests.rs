//! Tests of the pointwise operators through `evaluate`: values, broadcasting, types and refusals.

use planish_op::*;
use planish_tensor::rounding::{bf16_from_f64, f16_from_f64};
use planish_tensor::{DType, Tensor, bf16, f16};

use crate::testing::{NO_INPUTS, number_types, one, refusal, run};
use crate::{EvalErrorKind, evaluate};

fn floats(values: &[f32]) -> Tensor {
    Tensor::vector(values.to_vec())
}

fn shaped(dtype: DType, shape: &[usize], values: &[f64]) -> Tensor {
    Tensor::from_f64s(dtype, shape, values).unwrap()
}

#[test]
fn arithmetic_is_defined_for_every_numeric_type() {
    for dtype in number_types() {
        let (a, b) = (shaped(dtype, &[4], &[7.0, 6.0, 5.0, 9.0]), shaped(dtype, &[4], &[2.0, 3.0, 5.0, 4.0]));
        let inputs = [a, b];
        assert_eq!(one(Add {}, &inputs).to_f64s(), [9.0, 9.0, 10.0, 13.0], "{dtype}");
        assert_eq!(one(Sub {}, &inputs).to_f64s(), [5.0, 3.0, 0.0, 5.0], "{dtype}");
        assert_eq!(one(Mul {}, &inputs).to_f64s(), [14.0, 18.0, 25.0, 36.0], "{dtype}");
        assert_eq!(one(Pow {}, &inputs).dtype(), dtype);
        assert_eq!(one(Mod { fmod: true }, &inputs).to_f64s(), [1.0, 0.0, 0.0, 1.0], "{dtype}");
        assert_eq!(one(Min {}, &inputs).to_f64s(), [2.0, 3.0, 5.0, 4.0], "{dtype}");
        assert_eq!(one(Max {}, &inputs).to_f64s(), [7.0, 6.0, 5.0, 9.0], "{dtype}");
        let quotients = if dtype.is_int() { [3.0, 2.0, 1.0, 2.0] } else { [3.5, 2.0, 1.0, 2.25] };
        assert_eq!(one(Div {}, &inputs).to_f64s(), quotients, "{dtype}");
        for (op, expected) in [
            (Op::from(Equal {}), [false, false, true, false]),
            (Greater {}.into(), [true, true, false, true]),
            (GreaterOrEqual {}.into(), [true; 4]),
            (Less {}.into(), [false; 4]),
            (LessOrEqual {}.into(), [false, false, true, false]),
        ] {
            assert_eq!(one(op, &inputs), Tensor::vector(expected.to_vec()), "{dtype}");
        }
    }
}

#[test]
fn integers_wrap_in_their_own_width() {
    let pair = |a: i64, b: i64| [Tensor::vector(vec![a]), Tensor::vector(vec![b])];
    assert_eq!(one(Add {}, &pair(i64::MAX, 1)), Tensor::vector(vec![i64::MIN]));
    assert_eq!(one(Mul {}, &pair(i64::MAX - 1, 3)), Tensor::vector(vec![(i64::MAX - 1).wrapping_mul(3)]));
    assert_eq!(one(Div {}, &pair(i64::MIN, -1)), Tensor::vector(vec![i64::MIN]));
    assert_eq!(one(Mod { fmod: false }, &pair(i64::MIN, -1)), Tensor::vector(vec![0i64]));
    assert_eq!(one(Neg {}, &pair(i64::MIN, 0)[..1]), Tensor::vector(vec![i64::MIN]));
    assert_eq!(one(Abs {}, &[Tensor::vector(vec![i8::MIN, -3])]), Tensor::vector(vec![i8::MIN, 3]));
    // Beyond 2^53, where f64 would lose the last digit.
    assert_eq!(one(Sub {}, &pair((1 << 60) + 1, 1)), Tensor::vector(vec![1i64 << 60]));
    let big = [Tensor::vector(vec![u64::MAX]), Tensor::vector(vec![u64::MAX - 1])];
    assert_eq!(one(Mul {}, &big), Tensor::vector(vec![2u64]));
    assert_eq!(one(Greater {}, &big), Tensor::vector(vec![true]));
    assert_eq!(
        one(Sub {}, &[Tensor::vector(vec![3u8]), Tensor::vector(vec![5u8])]),
        Tensor::vector(vec![254u8])
    );
}

#[test]
fn integer_division_and_remainder_signs() {
    let inputs = [Tensor::vector(vec![7i32, -7, 7, -7, 6]), Tensor::vector(vec![3i32, 3, -3, -3, 3])];
    assert_eq!(one(Div {}, &inputs), Tensor::vector(vec![2i32, -2, -2, 2, 2]));
    assert_eq!(one(Mod { fmod: false }, &inputs), Tensor::vector(vec![1i32, 2, -2, -1, 0]));
    assert_eq!(one(Mod { fmod: true }, &inputs), Tensor::vector(vec![1i32, -1, 1, -1, 0]));
    let by_zero = [Tensor::vector(vec![1i32, 1]), Tensor::vector(vec![1i32, 0])];
    assert_eq!(refusal(Div {}, &by_zero), EvalErrorKind::BadValue);
    assert_eq!(refusal(Mod { fmod: true }, &by_zero), EvalErrorKind::BadValue);
    // Nothing is divided, so nothing is refused.
    let nothing = [Tensor::vector(Vec::<i32>::new()), Tensor::vector(vec![0i32])];
    assert_eq!(one(Div {}, &nothing).shape(), [0]);
}

#[test]
fn float_remainder_follows_c() {
    let inputs = [floats(&[-4.5, f32::INFINITY, 1.0, 1.0]), floats(&[3.0, 2.0, 0.0, f32::INFINITY])];
    let out = one(Mod { fmod: true }, &inputs).to_f64s();
    assert_eq!((out[0], out[3]), (-1.5, 1.0));
    assert!(out[1].is_nan() && out[2].is_nan());
    assert_eq!(refusal(Mod { fmod: false }, &inputs), EvalErrorKind::BadAttribute);
}

#[test]
fn broadcasting() {
    let column = shaped(DType::F32, &[3, 1], &[10.0, 20.0, 30.0]);
    let row = shaped(DType::F32, &[2], &[1.0, 2.0]);
    let sum = one(Add {}, &[column.clone(), row.clone()]);
    assert_eq!(sum, shaped(DType::F32, &[3, 2], &[11.0, 12.0, 21.0, 22.0, 31.0, 32.0]));
    let scalar = shaped(DType::F32, &[], &[1.0]);
    assert_eq!(one(Add {}, &[scalar.clone(), scalar.clone()]), shaped(DType::F32, &[], &[2.0]));
    assert_eq!(one(Sub {}, &[scalar, row.clone()]), shaped(DType::F32, &[2], &[0.0, -1.0]));
    let empty = Tensor::zeros(DType::F32, &[0, 1]).unwrap();
    assert_eq!(one(Add {}, &[empty.clone(), row.clone()]).shape(), [0, 2]);
    assert_eq!(
        one(Mean {}, &[empty, column.reshaped(&[1, 3]).unwrap(), row.reshaped(&[2, 1, 1]).unwrap()]).shape(),
        [2, 0, 3]
    );
    assert_eq!(refusal(Add {}, &[column.reshaped(&[3]).unwrap(), row]), EvalErrorKind::BadShape);
    let huge = Tensor::zeros(DType::U8, &[0, 1 << 40, 1 << 40]).unwrap();
    assert_eq!(one(Add {}, &[huge.clone(), huge.clone()]).shape(), huge.shape());
    // More than one block, and a broadcast inside of the blocks.
    let (n, m) = (257, 31);
    let a = shaped(DType::I64, &[n, 1, m], &(0..n * m).map(|i| i as f64).collect::<Vec<_>>());
    let b = shaped(DType::I64, &[3, 1], &[0.0, 1e6, 2e6]);
    let sums = one(Add {}, &[a, b]);
    assert_eq!(sums.shape(), [n, 3, m]);
    let expected = (0..n * 3 * m).map(|i| (i / (3 * m) * m + i % m + i / m % 3 * 1_000_000) as i64);
    assert!(sums.to_i64s().into_iter().eq(expected));
}

#[test]
fn variadic_operators() {
    let inputs = [floats(&[1.0, f32::NAN, 2.0]), floats(&[4.0, 1.0, -3.0]), floats(&[0.5, 0.0, 7.0])];
    let max = one(Max {}, &inputs).to_f64s();
    let min = one(Min {}, &inputs).to_f64s();
    assert_eq!((max[0], max[2], min[0], min[2]), (4.0, 7.0, 0.5, -3.0));
    assert!(max[1].is_nan() && min[1].is_nan(), "NaN wins wherever it stands");
    let finite = [floats(&[1e30, 1.0]), floats(&[1.0, 2.0]), floats(&[-1e30, 6.0])];
    assert_eq!(one(Mean {}, &finite).to_f64s()[1], 3.0);
    assert_eq!(one(Sum {}, &finite[1..2]), finite[1]);
    assert_eq!(one(Sum {}, &finite).to_f64s()[1], 9.0);
    assert_eq!(refusal(Sum {}, NO_INPUTS), EvalErrorKind::MissingInput);
    assert_eq!(refusal(Sum {}, &[Tensor::vector(vec![1i32])]), EvalErrorKind::BadType);
}

#[test]
fn results_are_rounded_once() {
    // 1 + 2^-11 + 2^-22 in f16: the sum is above the tie, although rounded to f32 steps it is near it.
    let (a, b) =
        (Tensor::vector(vec![f16_from_f64(1.0)]), Tensor::vector(vec![f16_from_f64(2f64.powi(-11))]));
    assert_eq!(one(Add {}, &[a.clone(), b.clone()]).to_f64s(), [1.0]);
    let tiny = Tensor::vector(vec![f16_from_f64(2f64.powi(-24))]);
    assert_eq!(one(Sum {}, &[a, b, tiny]).to_f64s(), [1.0 + 2f64.powi(-10)]);
    let x = Tensor::vector(vec![bf16_from_f64(0.3)]);
    let expected = bf16_from_f64(bf16_from_f64(0.3).to_f64().exp());
    assert_eq!(one(Exp {}, &[x]), Tensor::vector(vec![expected]));
    let third = one(Reciprocal {}, &[floats(&[3.0])]);
    assert_eq!(third, floats(&[1.0 / 3.0]));
}

#[test]
fn unary_operators_are_the_functions_of_their_names() {
    let at = |op: Op, x: f64| one(op, &[Tensor::vector(vec![x])]).to_f64s()[0];
    type Row = (Op, fn(f64) -> f64);
    let table: [Row; 20] = [
        (Abs {}.into(), f64::abs),
        (Acos {}.into(), f64::acos),
        (Asin {}.into(), f64::asin),
        (Asinh {}.into(), f64::asinh),
        (Atan {}.into(), f64::atan),
        (Atanh {}.into(), f64::atanh),
        (Ceil {}.into(), f64::ceil),
        (Cos {}.into(), f64::cos),
        (Cosh {}.into(), f64::cosh),
        (Exp {}.into(), f64::exp),
        (Floor {}.into(), f64::floor),
        (Log {}.into(), f64::ln),
        (Neg {}.into(), |x| -x),
        (Reciprocal {}.into(), |x| 1.0 / x),
        (Round {}.into(), f64::round_ties_even),
        (Sin {}.into(), f64::sin),
        (Sinh {}.into(), f64::sinh),
        (Sqrt {}.into(), f64::sqrt),
        (Tan {}.into(), f64::tan),
        (Tanh {}.into(), f64::tanh),
    ];
    for (op, function) in table {
        for x in [0.25, 0.5, 0.9] {
            assert_eq!(at(op.clone(), x), function(x), "{op:?}");
        }
    }
    assert!((at(Acosh {}.into(), 1.5) - 0.9624236501192069).abs() < 1e-15);
    assert!((at(Erf {}.into(), 1.0) - 0.8427007929497149).abs() < 1e-15);
    assert_eq!(one(Round {}, &[floats(&[0.5, 1.5, -2.5, -0.4])]), floats(&[0.0, 2.0, -2.0, -0.0]));
    assert_eq!(one(Sign {}, &[Tensor::vector(vec![-5i16, 0, 9])]), Tensor::vector(vec![-1i16, 0, 1]));
    assert_eq!(one(Relu {}, &[Tensor::vector(vec![-5i8, 0, 9])]), Tensor::vector(vec![0i8, 0, 9]));
    assert_eq!(refusal(Sqrt {}, &[Tensor::vector(vec![4i32])]), EvalErrorKind::BadType);
    assert_eq!(refusal(Neg {}, &[Tensor::vector(vec![true])]), EvalErrorKind::BadType);
    assert_eq!(refusal(Exp {}, &[shaped(DType::F8E4M3FN, &[1], &[1.0])]), EvalErrorKind::BadType);
}

#[test]
fn activations_take_their_attributes() {
    let x = Tensor::vector(vec![-2.0f64, 0.5, 3.0]);
    let at = |op: Op| one(op, std::slice::from_ref(&x)).to_f64s();
    assert_eq!(at(LeakyRelu { alpha: 0.5 }.into()), [-1.0, 0.5, 3.0]);
    assert_eq!(at(Elu { alpha: 2.0 }.into()), [2.0 * (-2f64).exp_m1(), 0.5, 3.0]);
    assert_eq!(at(Selu { alpha: 2.0, gamma: 3.0 }.into()), [6.0 * (-2f64).exp_m1(), 1.5, 9.0]);
    assert_eq!(at(Celu { alpha: 2.0 }.into()), [2.0 * (-1f64).exp_m1(), 0.5, 3.0]);
    assert_eq!(at(HardSigmoid { alpha: 0.25, beta: 0.5 }.into()), [0.0, 0.625, 1.0]);
    assert_eq!(at(Swish { alpha: 2.0 }.into())[1], 0.5 / (1.0 + (-1f64).exp()));
    assert_eq!(at(ThresholdedRelu { alpha: 0.5 }.into()), [0.0, 0.0, 3.0]);
    assert_eq!(at(Shrink { bias: 0.5, lambd: 1.0 }.into()), [-1.5, 0.0, 2.5]);
    assert_eq!(at(Softsign {}.into()), [-2.0 / 3.0, 1.0 / 3.0, 0.75]);
    assert_eq!(at(HardSwish {}.into()), [-2.0 * (0.5 - 1.0 / 3.0), 0.5 * (0.5 / 6.0 + 0.5), 3.0]);
    let exact = at(Gelu { approximate: GeluApproximation::None }.into());
    let approximate = at(Gelu { approximate: GeluApproximation::Tanh }.into());
    assert!((exact[0] - -0.04550026389635842).abs() < 1e-15, "{exact:?}");
    assert!((approximate[0] - -0.04540230591222495).abs() < 1e-15, "{approximate:?}");
}

#[test]
fn shrink_of_integers_cuts_and_wraps() {
    let op = |bias, lambd| Shrink { bias, lambd };
    let x = Tensor::vector(vec![-3i32, -1, 0, 1, 3]);
    assert_eq!(one(op(1.5, 1.5), &[x]), Tensor::vector(vec![-1i32, 0, 0, 0, 1]));
    let x = Tensor::vector(vec![0u8, 1, 3, 200]);
    assert_eq!(one(op(1.5, 1.5), &[x]), Tensor::vector(vec![0u8, 0, 1, 198]));
    let x = Tensor::vector(vec![-128i8, -3, 1, 127]);
    assert_eq!(one(op(-100.0, 1.5), &[x]), Tensor::vector(vec![28i8, -103, 0, -29]));
    let x = Tensor::vector(vec![(1i64 << 60) + 1]);
    assert_eq!(one(op(0.0, 0.5), &[x]), Tensor::vector(vec![(1i64 << 60) + 1]));
    let x = Tensor::vector(vec![1i32]);
    assert_eq!(one(op(f32::NAN, f32::NAN), std::slice::from_ref(&x)), Tensor::vector(vec![0i32]));
    assert_eq!(one(op(f32::MAX, 0.5), &[x]).len(), 1);
}

#[test]
fn powers_mix_types() {
    let ints = |values: &[i32]| Tensor::vector(values.to_vec());
    assert_eq!(one(Pow {}, &[floats(&[2.0, -2.0]), Tensor::vector(vec![3i64, -3])]), floats(&[8.0, -0.125]));
    assert_eq!(one(Pow {}, &[floats(&[2.0]), Tensor::vector(vec![0.5f64])]), floats(&[2f32.sqrt()]));
    assert_eq!(one(Pow {}, &[ints(&[2, 3, 4]), floats(&[0.5, 1.5, -0.5])]), ints(&[1, 5, 0]));
    assert_eq!(one(Pow {}, &[ints(&[2, -2, 7, -1]), ints(&[-1, 3, 0, -3])]), ints(&[0, -8, 1, -1]));
    assert_eq!(one(Pow {}, &[ints(&[3]), Tensor::vector(vec![40u64])]), ints(&[3i32.wrapping_pow(40)]));
    // Whole exponents are exact where f64 would not be: 3^39 is above 2^53.
    let exact = Tensor::vector(vec![3i64.pow(39)]);
    assert_eq!(one(Pow {}, &[Tensor::vector(vec![3i64]), floats(&[39.0])]), exact);
    assert_eq!(one(Pow {}, &[ints(&[-1, 3]), floats(&[1e38, 1e38])]), ints(&[1, 1]));
    assert_eq!(one(Pow {}, &[ints(&[2, 2]), floats(&[f32::INFINITY, f32::NAN])]), ints(&[i32::MAX, 0]));
    assert_eq!(refusal(Pow {}, &[ints(&[0]), ints(&[-1])]), EvalErrorKind::BadValue);
    assert_eq!(refusal(Pow {}, &[ints(&[0]), Tensor::vector(vec![true])]), EvalErrorKind::BadType);
    assert_eq!(refusal(Pow {}, &[Tensor::vector(vec![true]), ints(&[1])]), EvalErrorKind::BadType);
    let one_to_nan = one(Pow {}, &[floats(&[1.0, f32::NAN]), floats(&[f32::NAN, 0.0])]);
    assert_eq!(one_to_nan, floats(&[1.0, 1.0]));
}

#[test]
fn clip_bounds() {
    let x = floats(&[f32::NAN, f32::NEG_INFINITY, f32::INFINITY, -3.0, 0.5]);
    let scalar = |value: f32| Some(Tensor::scalar(value));
    let clip = |low: Option<Tensor>, high: Option<Tensor>| run(Clip {}, &[Some(x.clone()), low, high]);
    let out = clip(scalar(-1.0), scalar(1.0)).unwrap().to_f64s();
    assert!(out[0].is_nan() && out[1..] == [-1.0, 1.0, -1.0, 0.5], "{out:?}");
    let out = clip(scalar(2.0), scalar(-2.0)).unwrap().to_f64s();
    assert!(out[1..] == [-2.0; 4], "the upper bound has the last word: {out:?}");
    let out = clip(None, None).unwrap().to_f64s();
    assert_eq!(out[1..3], [f64::from(f32::MIN), f64::from(f32::MAX)]);
    let out = clip(Some(floats(&[-1.0])), None).unwrap().to_f64s();
    assert_eq!(out[1..], [-1.0, f64::from(f32::MAX), -1.0, 0.5]);
    assert_eq!(clip(Some(floats(&[1.0, 2.0])), None).unwrap_err(), EvalErrorKind::BadShape);
    assert_eq!(clip(Some(Tensor::scalar(1i32)), None).unwrap_err(), EvalErrorKind::BadType);
    let ints = Tensor::vector(vec![i64::MIN, 5, i64::MAX]);
    let out = run(Clip {}, &[Some(ints.clone()), None, Some(Tensor::scalar(7i64))]).unwrap();
    assert_eq!(out, Tensor::vector(vec![i64::MIN, 5, 7]));
    let half = Tensor::vector(vec![f16::INFINITY]);
    assert_eq!(one(Clip {}, &[half]).to_f64s(), [65504.0]);
    let half = Tensor::vector(vec![bf16::NEG_INFINITY]);
    assert_eq!(one(Clip {}, &[half]), Tensor::vector(vec![bf16::MIN]));
    for dtype in number_types() {
        let x = shaped(dtype, &[2], &[1.0, 100.0]);
        let bounds = [x, shaped(dtype, &[], &[2.0]), shaped(dtype, &[], &[50.0])];
        assert_eq!(one(Clip {}, &bounds).to_f64s(), [2.0, 50.0], "{dtype}");
    }
}

#[test]
fn prelu_broadcasts_one_way() {
    let x = shaped(DType::F32, &[2, 2], &[-1.0, 2.0, -3.0, -4.0]);
    let slope = shaped(DType::F32, &[2, 1], &[2.0, 3.0]);
    assert_eq!(one(PRelu {}, &[x.clone(), slope.clone()]).to_f64s(), [-2.0, 2.0, -9.0, -12.0]);
    let thin = shaped(DType::F32, &[1, 2], &[-1.0, 2.0]);
    assert_eq!(refusal(PRelu {}, &[thin, slope]), EvalErrorKind::BadShape);
    let ints = [Tensor::vector(vec![-3i32, 2]), Tensor::vector(vec![2i32])];
    assert_eq!(one(PRelu {}, &ints), Tensor::vector(vec![-6i32, 2]));
}

#[test]
fn comparisons_with_nan_and_bool() {
    let inputs = [floats(&[f32::NAN, 1.0]), floats(&[f32::NAN, 1.0])];
    let answers = |op: Op| one(op, &inputs).elements::<bool>().unwrap().to_vec();
    assert_eq!(answers(Equal {}.into()), [false, true]);
    assert_eq!(answers(LessOrEqual {}.into()), [false, true]);
    assert_eq!(answers(Less {}.into()), [false, false]);
    assert_eq!(answers(GreaterOrEqual {}.into()), [false, true]);
    let bools = [Tensor::vector(vec![true, false]), Tensor::scalar(true)];
    assert_eq!(one(Equal {}, &bools), bools[0]);
    assert_eq!(refusal(Equal {}, &[floats(&[1.0]), Tensor::vector(vec![1.0f64])]), EvalErrorKind::BadType);
}

#[test]
fn logic_and_bits() {
    let (a, b) =
        (Tensor::vector(vec![false, false, true, true]), Tensor::vector(vec![false, true, false, true]));
    let inputs = [a.clone(), b];
    assert_eq!(one(And {}, &inputs), Tensor::vector(vec![false, false, false, true]));
    assert_eq!(one(Or {}, &inputs), Tensor::vector(vec![false, true, true, true]));
    assert_eq!(one(Xor {}, &inputs), Tensor::vector(vec![false, true, true, false]));
    assert_eq!(one(Not {}, std::slice::from_ref(&a)), Tensor::vector(vec![true, true, false, false]));
    let ints = [Tensor::vector(vec![0b1100i8, -1]), Tensor::vector(vec![0b1010i8, 1])];
    assert_eq!(one(BitwiseAnd {}, &ints), Tensor::vector(vec![0b1000i8, 1]));
    assert_eq!(one(BitwiseOr {}, &ints), Tensor::vector(vec![0b1110i8, -1]));
    assert_eq!(one(BitwiseXor {}, &ints), Tensor::vector(vec![0b0110i8, -2]));
    assert_eq!(one(BitwiseNot {}, &[Tensor::vector(vec![0u8, 5])]), Tensor::vector(vec![255u8, 250]));
    assert_eq!(refusal(And {}, &ints), EvalErrorKind::BadType);
    assert_eq!(refusal(Not {}, &ints[..1]), EvalErrorKind::BadType);
    assert_eq!(refusal(BitwiseAnd {}, &inputs), EvalErrorKind::BadType);
    assert_eq!(refusal(BitwiseNot {}, &[floats(&[1.0])]), EvalErrorKind::BadType);
}

#[test]
fn shifts_beyond_the_width_leave_zero() {
    let shift = |direction| BitShift { direction };
    let inputs = [Tensor::vector(vec![255u8, 255, 255]), Tensor::vector(vec![7u8, 8, 200])];
    assert_eq!(one(shift(BitShiftDirection::Left), &inputs), Tensor::vector(vec![128u8, 0, 0]));
    assert_eq!(one(shift(BitShiftDirection::Right), &inputs), Tensor::vector(vec![1u8, 0, 0]));
    let inputs = [Tensor::vector(vec![u64::MAX; 3]), Tensor::vector(vec![63u64, 64, u64::MAX])];
    assert_eq!(one(shift(BitShiftDirection::Left), &inputs), Tensor::vector(vec![1u64 << 63, 0, 0]));
    assert_eq!(one(shift(BitShiftDirection::Right), &inputs), Tensor::vector(vec![1u64, 0, 0]));
    let signed = [Tensor::vector(vec![1i32]), Tensor::vector(vec![1i32])];
    assert_eq!(refusal(shift(BitShiftDirection::Left), &signed), EvalErrorKind::BadType);
}

#[test]
fn where_moves_every_type() {
    for dtype in DType::ALL {
        let x = shaped(dtype, &[3, 1], &[1.0, 0.5, 2.0]);
        let y = shaped(dtype, &[], &[4.0]);
        let condition = Tensor::new(&[3], vec![true, false, true]).unwrap();
        let out = one(Where {}, &[condition, x.clone(), y.clone()]);
        let (x, y) = (x.to_f64s(), y.to_f64s()[0]);
        let expected = x.iter().flat_map(|&x| [x, y, x]).collect::<Vec<_>>();
        assert_eq!(out, shaped(dtype, &[3, 3], &expected), "{dtype}");
    }
    let (x, y) = (floats(&[1.0]), Tensor::vector(vec![1i32]));
    assert_eq!(refusal(Where {}, &[Tensor::scalar(true), x.clone(), y.clone()]), EvalErrorKind::BadType);
    assert_eq!(refusal(Where {}, &[y, x.clone(), x.clone()]), EvalErrorKind::BadType);
    let wide = floats(&[1.0, 2.0]);
    let three = Tensor::vector(vec![true; 3]);
    assert_eq!(refusal(Where {}, &[three, wide, x]), EvalErrorKind::BadShape);
}

#[test]
fn nan_and_infinity_are_found_in_every_float_type() {
    let is_inf = |detect_negative, detect_positive| IsInf { detect_negative, detect_positive };
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_float()) {
        let x = shaped(dtype, &[2], &[f64::NAN, 1.0]);
        let has_nan = dtype != DType::F4E2M1;
        assert_eq!(one(IsNaN {}, &[x]), Tensor::vector(vec![has_nan, false]), "{dtype}");
    }
    // E5M2: 0x7c and 0xfc are the infinities, 0x7f is a NaN.
    let x = Tensor::from_codes(DType::F8E5M2, &[3], vec![0x7c, 0xfc, 0x7f]).unwrap();
    assert_eq!(one(is_inf(true, true), std::slice::from_ref(&x)), Tensor::vector(vec![true, true, false]));
    assert_eq!(one(IsNaN {}, &[x]), Tensor::vector(vec![false, false, true]));
    let x = floats(&[f32::NEG_INFINITY, 1.0, f32::INFINITY, f32::NAN]);
    let inf = |op: IsInf| one(op, std::slice::from_ref(&x)).elements::<bool>().unwrap().to_vec();
    assert_eq!(inf(is_inf(true, true)), [true, false, true, false]);
    assert_eq!(inf(is_inf(true, false)), [true, false, false, false]);
    assert_eq!(inf(is_inf(false, true)), [false, false, true, false]);
    assert_eq!(inf(is_inf(false, false)), [false; 4]);
    assert_eq!(refusal(IsNaN {}, &[Tensor::scalar(1i32)]), EvalErrorKind::BadType);
}

#[test]
fn identity_passes_every_kind_of_value() {
    let tensor = Value::Tensor(shaped(DType::I4, &[3], &[1.0, -8.0, 7.0]));
    let sequence = Value::Sequence(vec![tensor.clone()]);
    let values = [tensor, Value::Optional(None), Value::Optional(Some(Box::new(sequence.clone()))), sequence];
    for value in values {
        assert_eq!(evaluate(&Identity {}.into(), &[Some(&value)], 1), Ok(vec![value.clone()]));
        let is_tensor = value.as_tensor().is_some();
        assert!(is_tensor || evaluate(&Neg {}.into(), &[Some(&value)], 1).is_err());
    }
    assert_eq!(refusal(Identity {}, NO_INPUTS), EvalErrorKind::MissingInput);
    assert_eq!(refusal(Add {}, &[floats(&[1.0])]), EvalErrorKind::MissingInput);
}
