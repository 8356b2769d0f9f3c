//! Conversions and quantized products checked against values worked out by hand, and their refusals.

use planish_op::{
    AutoPad, BitCast, Cast, CastRounding, ConvInteger, DequantizeLinear, DynamicQuantizeLinear,
    MatMulInteger, QLinearConv, QLinearMatMul, QuantizeLinear,
};
use planish_tensor::{DType, Tensor};

use crate::EvalErrorKind;
use crate::testing::{one, refusal, run_all};

fn numbers(dtype: DType, shape: &[usize], values: &[f64]) -> Tensor {
    Tensor::from_f64s(dtype, shape, values).unwrap()
}

fn cast_op(to: DType) -> Cast {
    Cast { round_mode: CastRounding::Up, saturate: true, to }
}

fn cast(to: DType, x: &Tensor) -> Tensor {
    let y = one(cast_op(to), &[x]);
    assert_eq!((y.dtype(), y.shape()), (to, x.shape()));
    y
}

#[test]
fn every_pair_of_types_casts_small_numbers() {
    for from in DType::ALL {
        let x = numbers(from, &[3, 1], &[1.0; 3]);
        for to in DType::ALL {
            assert_eq!(cast(to, &x).to_f64s(), [1.0; 3], "{from} to {to}");
        }
        let empty = numbers(from, &[0, 5], &[]);
        assert!(cast(DType::I4, &empty).is_empty());
    }
}

#[test]
fn floats_are_truncated_and_wrap_as_on_x86() {
    let x = Tensor::vector(vec![-1.5f32, 200.7, 300.0, -40000.0, 3e9, 1e20, f32::NAN, f32::NEG_INFINITY]);
    let min32 = i64::from(i32::MIN);
    for (to, expected) in [
        (DType::I8, [-1, -56, 44, -64, 0, 0, 0, 0]),
        (DType::U8, [255, 200, 44, 192, 0, 0, 0, 0]),
        (DType::I16, [-1, 200, 300, 25536, 0, 0, 0, 0]),
        (DType::U16, [65535, 200, 300, 25536, 0, 0, 0, 0]),
        (DType::I32, [-1, 200, 300, -40000, min32, min32, min32, min32]),
        (DType::I64, [-1, 200, 300, -40000, 3_000_000_000, i64::MIN, i64::MIN, i64::MIN]),
        (DType::U32, [u32::MAX.into(), 200, 300, 4_294_927_296, 3_000_000_000, 0, 0, 0]),
        (DType::I4, [-1, -8, -4, 0, 0, 0, 0, 0]),
        (DType::U2, [3, 0, 0, 0, 0, 0, 0, 0]),
        (DType::Bool, [1; 8]),
    ] {
        assert_eq!(cast(to, &x).to_i64s(), expected, "{to}");
    }
    let x = Tensor::vector(vec![1.5e19f64, -1.0, 1e20, f64::NAN, 2f64.powi(63), i32::MIN.into()]);
    let y = cast(DType::U64, &x);
    let expected = [15_000_000_000_000_000_000, u64::MAX, 0, 1 << 63, 1 << 63, u64::MAX << 31];
    assert_eq!(*y.elements::<u64>().unwrap(), expected);
    let edge = Tensor::vector(vec![-2_147_483_648.9f64, 2_147_483_647.9, -2_147_483_649.0, 2_147_483_648.0]);
    let expected = [i32::MIN, i32::MAX, i32::MIN, i32::MIN];
    assert_eq!(*cast(DType::I32, &edge).elements::<i32>().unwrap(), expected);
}

#[test]
fn zeros_of_either_sign_are_false() {
    let x = Tensor::vector(vec![0.0f32, -0.0, 1e-45, f32::NAN]);
    assert_eq!(*cast(DType::Bool, &x).elements::<bool>().unwrap(), [false, false, true, true]);
}

#[test]
fn integers_wrap_and_stay_exact() {
    let x = Tensor::vector(vec![i64::MAX, i64::MIN, -1]);
    assert_eq!(*cast(DType::U64, &x).elements::<u64>().unwrap(), [u64::MAX >> 1, 1 << 63, u64::MAX]);
    assert_eq!(cast(DType::I16, &x).to_i64s(), [-1, 0, -1]);
    let x = Tensor::vector(vec![u64::MAX, (1 << 63) + (1 << 55) + 1]);
    assert_eq!(cast(DType::F64, &x).to_f64s(), [2f64.powi(64), 2f64.powi(63) + 2f64.powi(55)]);
    // The second lies just above the midpoint of two bf16 numbers.
    assert_eq!(cast(DType::BF16, &x).to_f64s(), [2f64.powi(64), 2f64.powi(63) + 2f64.powi(56)]);
    let x = Tensor::vector(vec![70000i32, -65504]);
    assert_eq!(cast(DType::F16, &x).to_f64s(), [f64::INFINITY, -65504.0]);
}

#[test]
fn saturation_is_for_the_8_bit_floats_alone() {
    let x = Tensor::vector(vec![1e6f32, -1e6, f32::INFINITY, 0.3]);
    let y = cast(DType::F8E5M2, &x);
    assert_eq!(y.to_f64s(), [57344.0, -57344.0, 57344.0, 0.3125]);
    let y = one(Cast { saturate: false, ..cast_op(DType::F8E5M2) }, &[&x]);
    assert_eq!(y.to_f64s(), [f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY, 0.3125]);
    assert_eq!(cast(DType::F16, &x).to_f64s()[..2], [f64::INFINITY, f64::NEG_INFINITY]);
    let y = one(Cast { saturate: false, ..cast_op(DType::F4E2M1) }, &[&x]);
    assert_eq!(y.to_f64s(), [6.0, -6.0, 6.0, 0.5]);
}

#[test]
fn e8m0_rounds_as_the_attribute_says() {
    let x = Tensor::vector(vec![1.25f32, 1.5, 2.0, 0.0]);
    for (round_mode, expected) in [
        (CastRounding::Up, [128, 128, 128, 0]),
        (CastRounding::Down, [127, 127, 128, 0]),
        (CastRounding::Nearest, [127, 128, 128, 0]),
    ] {
        let y = one(Cast { round_mode, ..cast_op(DType::F8E8M0) }, &[&x]);
        assert_eq!(*y.codes().unwrap(), expected, "{round_mode:?}");
    }
    let y = one(Cast { saturate: false, ..cast_op(DType::F8E8M0) }, &[&x]);
    assert_eq!(*y.codes().unwrap(), [128, 128, 128, 255]);
}

#[test]
fn bits_are_kept_by_bit_cast() {
    let x = Tensor::vector(vec![1.0f32, -0.0]);
    let y = one(BitCast { to: DType::U32 }, &[&x]);
    assert_eq!(*y.elements::<u32>().unwrap(), [0x3f80_0000, 0x8000_0000]);
    let x = numbers(DType::I4, &[3], &[-1.0, 7.0, -8.0]);
    assert_eq!(one(BitCast { to: DType::U4 }, &[&x]).to_i64s(), [15, 7, 8]);
    assert_eq!(refusal(BitCast { to: DType::I16 }, &[&Tensor::scalar(1i32)]), EvalErrorKind::BadAttribute);
}

const QUANTIZE: QuantizeLinear =
    QuantizeLinear { precision: None, output_dtype: None, block_size: 0, saturate: true, axis: 1 };
const DEQUANTIZE: DequantizeLinear = DequantizeLinear { output_dtype: None, block_size: 0, axis: 1 };

#[test]
fn quantization_rounds_to_even_before_the_zero_point() {
    let x = Tensor::vector(vec![0.5f32, 1.5, 2.5, -1e30, f32::INFINITY, f32::NAN]);
    let (scale, zero) = (Tensor::scalar(1.0f32), Tensor::scalar(3u8));
    assert_eq!(one(QUANTIZE, &[&x, &scale, &zero]).to_i64s(), [3, 5, 5, 0, 255, 0]);
    assert_eq!(one(QUANTIZE, &[&x, &scale]).dtype(), DType::U8);
    let op = QuantizeLinear { output_dtype: Some(DType::I2), ..QUANTIZE };
    assert_eq!(one(op, &[&x, &scale]).to_i64s(), [0, 1, 1, -2, 1, -2]);
}

#[test]
fn quantization_per_axis_and_blocked() {
    let x = numbers(DType::F32, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let (scale, zero) = (Tensor::vector(vec![1.0f32, 2.0, 4.0]), Tensor::vector(vec![0i16, 10, -10]));
    assert_eq!(one(QUANTIZE, &[&x, &scale, &zero]).to_i64s(), [1, 11, -9, 4, 12, -8]);
    let op = QuantizeLinear { axis: -2, ..QUANTIZE };
    let scale = Tensor::vector(vec![1.0f32, 2.0]);
    assert_eq!(one(op, &[&x, &scale]).to_i64s(), [1, 2, 3, 2, 2, 3]);

    // Blocks of two along an axis of three: the second block is short.
    let op = QuantizeLinear { block_size: 2, ..QUANTIZE };
    let scale = Tensor::new(&[2, 2], vec![1.0f32, 3.0, 4.0, 2.0]).unwrap();
    assert_eq!(one(op, &[&x, &scale]).to_i64s(), [1, 2, 1, 1, 1, 3]);
    let op = DequantizeLinear { block_size: 2, axis: 0, ..DEQUANTIZE };
    let q = numbers(DType::U4, &[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let scale = Tensor::new(&[2, 2], vec![1.0f32, 10.0, 100.0, 1000.0]).unwrap();
    let zero = numbers(DType::U4, &[2, 2], &[1.0, 0.0, 0.0, 2.0]);
    assert_eq!(one(op, &[&q, &scale, &zero]).to_f64s(), [0.0, 20.0, 2.0, 40.0, 500.0, 4000.0]);
}

#[test]
fn the_division_has_the_precision_that_was_asked_for() {
    // 2049/1 is 2048 in f16 (a tie, to even) and 2049 in f32.
    let (x, scale) = (Tensor::vector(vec![2049.0f32]), numbers(DType::F16, &[], &[1.0]));
    let op = QuantizeLinear { output_dtype: Some(DType::U16), ..QUANTIZE };
    assert_eq!(one(op.clone(), &[&x, &scale]).to_i64s(), [2048]);
    let wide = QuantizeLinear { precision: Some(DType::F32), ..op.clone() };
    assert_eq!(one(wide, &[&x, &scale]).to_i64s(), [2049]);
    let odd = QuantizeLinear { precision: Some(DType::I8), ..op };
    assert_eq!(refusal(odd, &[&x, &scale]), EvalErrorKind::BadAttribute);
}

#[test]
fn quantization_to_small_floats() {
    let (x, scale) = (Tensor::vector(vec![0.0f32, 1.0, 2.2, 1000.0, -1e6]), Tensor::scalar(2.0f32));
    let op = QuantizeLinear { output_dtype: Some(DType::F8E4M3FN), ..QUANTIZE };
    assert_eq!(one(op.clone(), &[&x, &scale]).to_f64s(), [0.0, 0.5, 1.125, 448.0, -448.0]);
    let open = one(QuantizeLinear { saturate: false, ..op }, &[&x, &scale]).to_f64s();
    assert!(open[3].is_nan() && open[4].is_nan());
    let (zero, e8m0) = (numbers(DType::F4E2M1, &[], &[1.0]), numbers(DType::F8E8M0, &[], &[2.0]));
    assert_eq!(one(QUANTIZE, &[&x, &e8m0, &zero]).to_f64s(), [1.0, 1.5, 2.0, 6.0, -6.0]);
}

#[test]
fn dequantization_subtracts_then_scales() {
    let (scale, zero) = (Tensor::scalar(0.5f32), Tensor::scalar(128u8));
    let x = Tensor::new(&[2, 2], vec![0u8, 3, 128, 255]).unwrap();
    assert_eq!(one(DEQUANTIZE, &[&x, &scale, &zero]).to_f64s(), [-64.0, -62.5, 0.0, 63.5]);
    let x = Tensor::vector(vec![i32::MIN, 7]);
    let op = DequantizeLinear { output_dtype: Some(DType::BF16), ..DEQUANTIZE };
    let y = one(op, &[&x, &scale]);
    assert_eq!((y.dtype(), y.to_f64s()), (DType::BF16, vec![-2f64.powi(30), 3.5]));
    let e8m0 = numbers(DType::F8E8M0, &[], &[0.5]);
    assert_eq!(refusal(DEQUANTIZE, &[&x, &e8m0]), EvalErrorKind::BadType);
}

#[test]
fn quantization_refuses_what_does_not_fit() {
    let x = numbers(DType::F32, &[2, 3], &[0.0; 6]);
    let scale3 = Tensor::vector(vec![1.0f32; 3]);
    let scalar = Tensor::scalar(1.0f32);
    let axis = |axis| QuantizeLinear { axis, ..QUANTIZE };
    let block = |block_size| QuantizeLinear { block_size, ..QUANTIZE };
    assert_eq!(refusal(axis(0), &[&x, &scale3]), EvalErrorKind::BadShape);
    assert_eq!(refusal(axis(i64::MIN), &[&x, &scale3]), EvalErrorKind::BadAttribute);
    assert_eq!(refusal(block(-1), &[&x, &scalar]), EvalErrorKind::BadAttribute);
    assert_eq!(refusal(block(i64::MAX), &[&x, &scale3]), EvalErrorKind::BadShape);
    assert_eq!(refusal(QUANTIZE, &[&x, &scale3, &Tensor::scalar(0u8)]), EvalErrorKind::BadShape);
    assert_eq!(refusal(QUANTIZE, &[&x, &scalar, &Tensor::scalar(0i32)]), EvalErrorKind::BadType);
    let output = QuantizeLinear { output_dtype: Some(DType::I8), ..QUANTIZE };
    assert_eq!(refusal(output, &[&x, &scalar, &Tensor::scalar(0u8)]), EvalErrorKind::BadType);
    assert_eq!(refusal(DEQUANTIZE, &[&x, &scalar]), EvalErrorKind::BadType);
    assert_eq!(refusal(QUANTIZE, &[&x]), EvalErrorKind::MissingInput);
}

#[test]
fn dynamic_quantization_includes_zero() {
    let quantize =
        |values: Vec<f32>| run_all(DynamicQuantizeLinear {}, &[Tensor::vector(values)], 3).unwrap();
    let y = quantize(vec![0.0, 2.0, -3.0, -2.5, 1.34, 0.5]);
    assert_eq!(y[0].to_i64s(), [153, 255, 0, 26, 221, 179]);
    assert_eq!((y[1].to_f64s()[0] as f32, y[2].to_i64s()[0]), (5.0 / 255.0, 153));
    let y = quantize(vec![510.0]);
    assert_eq!((y[0].to_i64s()[0], y[1].to_f64s()[0], y[2].to_i64s()[0]), (255, 2.0, 0));
    let y = quantize(vec![]);
    assert_eq!((y[0].len(), y[1].to_f64s()[0], y[2].to_i64s()[0]), (0, 1.0, 0));
}

#[test]
fn integer_products_subtract_zero_points_per_line() {
    let a = Tensor::new(&[2, 3], vec![1u8, 2, 3, 4, 5, 6]).unwrap();
    let b = Tensor::new(&[3, 2], vec![1i8, -1, 2, -2, 3, -3]).unwrap();
    assert_eq!(one(MatMulInteger {}, &[&a, &b]).to_i64s(), [14, -14, 32, -32]);
    let (rows, columns) = (Tensor::vector(vec![1u8, 4]), Tensor::vector(vec![1i8, 0]));
    // Both rows become 0 1 2; the first column 0 1 2.
    assert_eq!(one(MatMulInteger {}, &[&a, &b, &rows, &columns]).to_i64s(), [5, -8, 5, -8]);
    let rows = rows.reshaped(&[2, 1]).unwrap();
    let columns = columns.reshaped(&[1, 2]).unwrap();
    assert_eq!(one(MatMulInteger {}, &[&a, &b, &rows, &columns]).to_i64s(), [5, -8, 5, -8]);
}

#[test]
fn integer_products_broadcast_like_numpy() {
    let a = Tensor::new(&[2, 1, 1, 2], vec![1u8, 2, 3, 4]).unwrap();
    let b = Tensor::new(&[3, 2, 1], vec![1u8, 0, 0, 1, 1, 1]).unwrap();
    let y = one(MatMulInteger {}, &[&a, &b]);
    assert_eq!((y.shape(), y.to_i64s()), (&[2, 3, 1, 1][..], vec![1, 2, 3, 3, 4, 7]));
    // A zero point per row and matrix of the left side.
    let zero = Tensor::new(&[2, 1, 1, 1], vec![1u8, 3]).unwrap();
    assert_eq!(one(MatMulInteger {}, &[&a, &b, &zero]).to_i64s(), [0, 1, 1, 0, 1, 1]);
    let (row, column) = (Tensor::vector(vec![1u8, 2]), Tensor::vector(vec![3u8, 4]));
    let y = one(MatMulInteger {}, &[&row, &column]);
    assert_eq!((y.rank(), y.to_i64s()), (0, vec![11]));
    let empty = Tensor::new(&[2, 0], Vec::<u8>::new()).unwrap();
    let y = one(MatMulInteger {}, &[&empty, &Tensor::new(&[0, 2], Vec::<u8>::new()).unwrap()]);
    assert_eq!(y.to_i64s(), [0; 4]);
}

#[test]
fn empty_tensors_of_absurd_shapes_are_harmless() {
    let big = 1usize << 40;
    let none = |dtype, shape: &[usize]| Tensor::zeros(dtype, shape).unwrap();
    let a = none(DType::U8, &[big, big, big, 0, 3]);
    let y = one(MatMulInteger {}, &[&a, &none(DType::U8, &[3, 2])]);
    assert_eq!(y.shape(), [big, big, big, 0, 2]);
    let x = none(DType::F32, &[0, big, big, big]);
    assert!(one(QuantizeLinear { axis: 0, ..QUANTIZE }, &[&x, &none(DType::F32, &[0])]).is_empty());
    let x = none(DType::U8, &[0, 1, big, big, big]);
    assert!(one(conv_integer(), &[&x, &none(DType::U8, &[1, 1, 1, 1, 1])]).is_empty());
    // An empty sum per output, and more outputs than memory.
    let (a, b) = (none(DType::U8, &[big, 0]), none(DType::U8, &[0, big]));
    assert_eq!(refusal(MatMulInteger {}, &[&a, &b]), EvalErrorKind::TooLarge);
}

#[test]
fn products_refuse_what_does_not_fit() {
    let a = Tensor::new(&[2, 3], vec![0u8; 6]).unwrap();
    let b = Tensor::new(&[3, 2], vec![0u8; 6]).unwrap();
    let op = MatMulInteger {};
    assert_eq!(refusal(op.clone(), &[&a, &a]), EvalErrorKind::BadShape);
    assert_eq!(refusal(op.clone(), &[&Tensor::scalar(0u8), &b]), EvalErrorKind::BadShape);
    assert_eq!(refusal(op.clone(), &[&a, &b, &Tensor::vector(vec![0u8; 3])]), EvalErrorKind::BadShape);
    assert_eq!(refusal(op.clone(), &[&a, &b, &Tensor::scalar(0i8)]), EvalErrorKind::BadType);
    assert_eq!(refusal(op, &[&a, &Tensor::new(&[3, 1], vec![0i32; 3]).unwrap()]), EvalErrorKind::BadType);
}

#[test]
fn quantized_products_requantize_per_line() {
    let a = Tensor::new(&[2, 2], vec![129u8, 130, 128, 127]).unwrap();
    let b = Tensor::new(&[2, 2], vec![1i8, 2, 3, 4]).unwrap();
    let (a_zero, b_zero) = (Tensor::scalar(128u8), Tensor::scalar(0i8));
    let (half, whole) = (Tensor::scalar(0.5f32), Tensor::scalar(1.0f32));
    let (y_scale, y_zero) = (Tensor::vector(vec![0.25f32]), Tensor::scalar(100u8));
    // a is 1 2 / 0 -1, so the products are 7 10 / -3 -4, and 0.5 / 0.25 doubles them.
    let inputs = [&a, &half, &a_zero, &b, &whole, &b_zero, &y_scale, &y_zero];
    assert_eq!(one(QLinearMatMul {}, &inputs).to_i64s(), [114, 120, 94, 92]);
    let (rows, columns) = (Tensor::vector(vec![1.0f32, 10.0]), Tensor::vector(vec![1.0f32, 0.125]));
    let inputs = [&a, &rows, &a_zero, &b, &columns, &b_zero, &y_scale, &y_zero];
    // 28, 5 and -120, -20, the second row times ten; 100 - 120 saturates.
    assert_eq!(one(QLinearMatMul {}, &inputs).to_i64s(), [128, 105, 0, 80]);
}

#[test]
fn quantized_products_of_small_floats() {
    let a = numbers(DType::F8E4M3FN, &[1, 2], &[1.5, -2.0]);
    let b = numbers(DType::F8E5M2, &[2, 1], &[2.0, 0.5]);
    let (scale, a_zero, b_zero) =
        (Tensor::scalar(1.0f32), numbers(DType::F8E4M3FN, &[], &[0.0]), numbers(DType::F8E5M2, &[], &[0.0]));
    let inputs = [&a, &scale, &a_zero, &b, &scale, &b_zero, &scale, &a_zero];
    let y = one(QLinearMatMul {}, &inputs);
    assert_eq!((y.dtype(), y.to_f64s()), (DType::F8E4M3FN, vec![2.0]));
}

fn conv_integer() -> ConvInteger {
    ConvInteger {
        group: 1,
        pads: Vec::new(),
        strides: Vec::new(),
        dilations: Vec::new(),
        kernel_shape: None,
        auto_pad: AutoPad::NotSet,
    }
}

#[test]
fn integer_convolution_pads_with_the_zero_point() {
    let x = Tensor::new(&[1, 1, 3, 3], (2u8..11).collect()).unwrap();
    let w = Tensor::new(&[1, 1, 2, 2], vec![1u8; 4]).unwrap();
    let zero = Tensor::scalar(1u8);
    assert_eq!(one(conv_integer(), &[&x, &w, &zero]).to_i64s(), [12, 16, 24, 28]);
    let op = ConvInteger { pads: vec![1; 4], ..conv_integer() };
    let expected = [1, 3, 5, 3, 5, 12, 16, 9, 11, 24, 28, 15, 7, 15, 17, 9];
    assert_eq!(one(op, &[&x, &w, &zero]).to_i64s(), expected);
    let op = ConvInteger { auto_pad: AutoPad::SameLower, strides: vec![2, 2], ..conv_integer() };
    // Two outputs at stride 2 cover four of the three inputs, so one is padded, here at the beginning.
    assert_eq!(one(op, &[&x, &w, &zero]).to_i64s(), [1, 5, 11, 28]);
}

#[test]
fn integer_convolution_in_one_and_three_dimensions_with_groups() {
    // Two groups of one channel; the second filter has a zero point of its own; dilation 2.
    let x = Tensor::new(&[1, 2, 4], vec![1i8, 2, 3, 4, -1, -2, -3, -4]).unwrap();
    let w = Tensor::new(&[2, 1, 2], vec![1i8, 10, 2, 3]).unwrap();
    let op = ConvInteger { group: 2, dilations: vec![2], ..conv_integer() };
    let zeros = Tensor::vector(vec![0i8, 2]);
    let inputs = [Some(x), Some(w), None, Some(zeros)];
    let y = one(op, &inputs);
    assert_eq!((y.shape(), y.to_i64s()), (&[1, 2, 2][..], vec![31, 42, -3, -4]));
    let x = Tensor::new(&[2, 1, 2, 2, 2], (0u8..16).collect()).unwrap();
    let w = Tensor::new(&[1, 1, 2, 2, 2], vec![1u8; 8]).unwrap();
    let y = one(conv_integer(), &[&x, &w]);
    assert_eq!((y.shape(), y.to_i64s()), (&[2, 1, 1, 1, 1][..], vec![28, 92]));
}

#[test]
fn convolutions_refuse_what_does_not_fit() {
    let x = Tensor::new(&[1, 2, 3], vec![0u8; 6]).unwrap();
    let w = Tensor::new(&[2, 2, 2], vec![0u8; 8]).unwrap();
    let shape = |x: &Tensor, w: &Tensor| refusal(conv_integer(), &[x, w]);
    assert_eq!(shape(&x, &x.reshaped(&[1, 3, 2]).unwrap()), EvalErrorKind::BadShape);
    assert_eq!(shape(&x, &w.reshaped(&[2, 2, 2, 1]).unwrap()), EvalErrorKind::BadShape);
    assert_eq!(shape(&x.reshaped(&[2, 3]).unwrap(), &w), EvalErrorKind::BadShape);
    assert_eq!(shape(&x, &Tensor::new(&[1, 2, 5], vec![0u8; 10]).unwrap()), EvalErrorKind::BadShape);
    // A kernel that misses by one step leaves an empty output.
    assert_eq!(one(conv_integer(), &[&x, &w.reshaped(&[1, 2, 4]).unwrap()]).shape(), [1, 1, 0]);
    let base = conv_integer;
    for op in [
        ConvInteger { group: 0, ..base() },
        ConvInteger { group: i64::MIN, ..base() },
        ConvInteger { strides: vec![0], ..base() },
        ConvInteger { strides: vec![1, 1], ..base() },
        ConvInteger { dilations: vec![-1], ..base() },
        ConvInteger { pads: vec![-1, 0], ..base() },
        ConvInteger { pads: vec![0], ..base() },
        ConvInteger { kernel_shape: Some(vec![3]), ..base() },
        ConvInteger { dilations: vec![i64::MAX], ..base() },
        ConvInteger { pads: vec![i64::MAX, 0], ..base() },
    ] {
        assert_eq!(refusal(op.clone(), &[&x, &w]), EvalErrorKind::BadAttribute, "{op:?}");
    }
    let op = ConvInteger { pads: vec![i64::MAX / 2, 0], ..base() };
    assert_eq!(refusal(op, &[&x, &w]), EvalErrorKind::TooLarge);
    let op = ConvInteger { group: 2, ..base() };
    assert_eq!(refusal(op, &[&x, &w]), EvalErrorKind::BadShape);
    let four_zeros = Tensor::vector(vec![0u8; 4]);
    assert_eq!(refusal(base(), &[&x, &w, &four_zeros]), EvalErrorKind::BadShape);
    assert_eq!(refusal(base(), &[&x, &w, &Tensor::scalar(0i8)]), EvalErrorKind::BadType);
}

#[test]
fn quantized_convolution_adds_the_bias_before_it_scales() {
    let op = || QLinearConv {
        group: 1,
        pads: Vec::new(),
        strides: Vec::new(),
        dilations: Vec::new(),
        kernel_shape: Some(vec![1]),
        auto_pad: AutoPad::Valid,
    };
    let x = Tensor::new(&[1, 1, 3], vec![10u8, 12, 200]).unwrap();
    let w = Tensor::new(&[2, 1, 1], vec![2i8, -3]).unwrap();
    let (x_scale, x_zero) = (Tensor::scalar(0.5f32), Tensor::scalar(10u8));
    let (w_scale, w_zero) = (Tensor::vector(vec![1.0f32, 2.0]), Tensor::vector(vec![0i8, -1]));
    let (y_scale, y_zero) = (Tensor::scalar(2.0f32), Tensor::scalar(-5i8));
    let bias = Tensor::vector(vec![2i32, 100]);
    let inputs = [&x, &x_scale, &x_zero, &w, &w_scale, &w_zero, &y_scale, &y_zero];
    // Sums: 0 4 380 and 0 -4 -380; multipliers 1/4 and 1/2.
    assert_eq!(one(op(), &inputs).to_i64s(), [-5, -4, 90, -5, -7, -128]);
    let inputs = [&x, &x_scale, &x_zero, &w, &w_scale, &w_zero, &y_scale, &y_zero, &bias];
    // With the bias: 2 6 382 and 100 96 -280. 0.5 and 1.5 round to 0 and 2.
    assert_eq!(one(op(), &inputs).to_i64s(), [-5, -3, 91, 45, 43, -128]);
    let bad_bias = Tensor::vector(vec![0i32; 3]);
    let inputs = [&x, &x_scale, &x_zero, &w, &w_scale, &w_zero, &y_scale, &y_zero, &bad_bias];
    assert_eq!(refusal(op(), &inputs), EvalErrorKind::BadShape);
}
