//! Types and shapes of conversions and quantized products, known and symbolic, and their refusals.

use planish_tensor::{DType, Tensor};

use crate::infer::InferErrorKind;
use crate::infer::testing::{
    Input, assert_output, assert_refused, constant, elements, inferred, ints, named, numbers, of, outputs,
};
use crate::{
    Attributes, AutoPad, BitCast, Cast, CastRounding, ConvInteger, DequantizeLinear, DynamicQuantizeLinear,
    MatMulInteger, QLinearMatMul, QuantizeLinear,
};

fn cast(to: DType) -> Cast {
    Cast { round_mode: CastRounding::Up, saturate: true, to }
}

#[test]
fn casts_keep_the_shape() {
    for from in DType::ALL {
        for to in DType::ALL {
            assert_output(cast(to), &[of(&format!("{from}[n,3]"))], &format!("{to}[n,3]"));
        }
        assert_output(cast(from), &[of("f32[*]")], &format!("{from}[*]"));
    }
    assert_output(BitCast { to: DType::I32 }, &[of("f32[n,0]")], "i32[n,0]");
    assert_output(BitCast { to: DType::F4E2M1 }, &[of("u4[]")], "f4e2m1[]");
    let narrow = BitCast { to: DType::I16 };
    assert_refused(narrow, &[of("f32[1]")], InferErrorKind::BadAttribute);
}

/// The contents after a cast, as text.
fn cast_elements(to: DType, input: Input) -> Option<String> {
    let output = inferred(cast(to), &[input], 1).unwrap().remove(0);
    assert_eq!(output.ty.as_tensor().map(|ty| ty.dtype), Some(to));
    elements(&output)
}

#[test]
fn casts_between_integers_keep_contents() {
    let cases = [
        (DType::I32, ints(&["batch", "3", "seq-5"]), Some("batch,3,seq-5")),
        (DType::U64, ints(&["batch", "3"]), Some("batch,3")),
        (DType::U64, ints(&["seq-5"]), None),
        (DType::I8, ints(&["batch"]), None),
        (DType::Bool, ints(&["batch"]), None),
        (DType::F32, ints(&["batch"]), None),
        (DType::I8, numbers(&[200, -1, 7]), Some("-56,-1,7")),
        (DType::U8, numbers(&[200, -1, 7]), Some("200,255,7")),
        (DType::U64, numbers(&[1, -1]), None),
        (DType::U32, numbers(&[1, -1]), Some("1,4294967295")),
        (DType::I4, numbers(&[9, 7]), Some("-7,7")),
        (DType::Bool, numbers(&[0, -3]), Some("0,1")),
        (DType::F32, numbers(&[1, 2]), None),
    ];
    for (to, input, expected) in cases {
        let shown = format!("{input:?} to {to}");
        assert_eq!(cast_elements(to, input).as_deref(), expected, "{shown}");
    }
    let flags = constant(Tensor::vector(vec![true, false]));
    assert_eq!(cast_elements(DType::I64, flags).as_deref(), Some("1,0"));
    let floats = constant(Tensor::vector(vec![1.0f32]));
    assert_eq!(cast_elements(DType::I64, floats.clone()), None);
    assert_eq!(cast_elements(DType::F32, floats).as_deref(), Some("1"));
}

const QUANTIZE: QuantizeLinear =
    QuantizeLinear { precision: None, output_dtype: None, block_size: 0, saturate: true, axis: 1 };
const DEQUANTIZE: DequantizeLinear = DequantizeLinear { output_dtype: None, block_size: 0, axis: 1 };

#[test]
fn quantization_takes_its_type_from_the_zero_point_or_the_attribute() {
    let (x, scale) = (of("f32[n,3]"), of("f32[3]"));
    assert_output(QUANTIZE, &[x.clone(), scale.clone()], "u8[n,3]");
    assert_output(QUANTIZE, &[x.clone(), scale.clone(), of("i4[3]")], "i4[n,3]");
    let f8 = QuantizeLinear { output_dtype: Some(DType::F8E5M2), ..QUANTIZE };
    assert_output(f8.clone(), &[x.clone(), scale.clone()], "f8e5m2[n,3]");
    assert_refused(f8, &[x.clone(), scale.clone(), of("u8[3]")], InferErrorKind::BadType);
    assert_refused(QUANTIZE, &[x.clone(), scale.clone(), of("i32[3]")], InferErrorKind::BadType);
    assert_refused(QUANTIZE, &[of("i8[]"), scale.clone()], InferErrorKind::BadType);
    assert_refused(QUANTIZE, &[x.clone(), of("i8[3]")], InferErrorKind::BadType);
    let odd = QuantizeLinear { precision: Some(DType::I8), ..QUANTIZE };
    assert_refused(odd, &[x.clone(), scale], InferErrorKind::BadAttribute);
    assert_refused(QUANTIZE, &[x], InferErrorKind::MissingInput);
}

#[test]
fn scales_must_fit_the_data() {
    let x = || of("f32[2,n,6]");
    let axis = |axis| QuantizeLinear { axis, ..QUANTIZE };
    let block = |axis, block_size| QuantizeLinear { axis, block_size, ..QUANTIZE };
    let scale = |shape: &str| of(&format!("f32{shape}"));
    for (op, shape) in [
        (axis(9), "[]"),
        (axis(9), "[1]"),
        (axis(9), "[k]"),
        (axis(-1), "[6]"),
        (axis(1), "[7]"),
        (axis(0), "[*]"),
        (block(-1, 4), "[2,n,2]"),
        (block(1, 4), "[2,ceildiv(n,4),6]"),
        (block(1, 4), "[]"),
    ] {
        assert_output(op, &[x(), scale(shape)], "u8[2,n,6]");
    }
    let unranked = of("f32[*]");
    assert_output(axis(1), &[unranked, scale("[7]")], "u8[*]");
    for (op, shape, kind) in [
        (axis(9), "[6]", InferErrorKind::BadAttribute),
        (axis(i64::MIN), "[6]", InferErrorKind::BadAttribute),
        (axis(2), "[5]", InferErrorKind::BadShape),
        (axis(2), "[2,1,6]", InferErrorKind::BadShape),
        (block(2, 4), "[2,n,3]", InferErrorKind::BadShape),
        (block(2, 4), "[2]", InferErrorKind::BadShape),
        (block(7, 4), "[2,n,2]", InferErrorKind::BadAttribute),
        (block(2, i64::MIN), "[2,n,2]", InferErrorKind::BadAttribute),
    ] {
        assert_refused(op, &[x(), scale(shape)], kind);
    }
    let zero = |shape: &str| of(&format!("u8{shape}"));
    assert_output(axis(2), &[x(), scale("[1]"), zero("[]")], "u8[2,n,6]");
    assert_refused(axis(2), &[x(), scale("[6]"), zero("[]")], InferErrorKind::BadShape);
    assert_refused(axis(2), &[x(), scale("[6]"), zero("[5]")], InferErrorKind::BadShape);
}

#[test]
fn dequantization_takes_its_type_from_the_scale_or_the_attribute() {
    let x = || of("i4[n]");
    assert_output(DEQUANTIZE, &[x(), of("f16[]")], "f16[n]");
    let op = || DequantizeLinear { output_dtype: Some(DType::BF16), ..DEQUANTIZE };
    assert_output(op(), &[x(), of("f8e8m0[]")], "bf16[n]");
    assert_output(DEQUANTIZE, &[of("i32[n]"), of("f32[]")], "f32[n]");
    assert_refused(DEQUANTIZE, &[x(), of("f8e8m0[]")], InferErrorKind::BadType);
    let zero = of("u4[]");
    assert_refused(op(), &[x(), of("f32[]"), zero], InferErrorKind::BadType);
    assert_refused(op(), &[of("i64[]"), of("f32[]")], InferErrorKind::BadType);
}

#[test]
fn dynamic_quantization_gives_scalars_beside_the_data() {
    let types = |n| outputs(DynamicQuantizeLinear {}, &[of("f32[a,b]")], n).unwrap();
    assert_eq!(types(3), ["u8[a,b]", "f32[]", "u8[]"]);
    assert_eq!(types(1), ["u8[a,b]"]);
    assert_refused(DynamicQuantizeLinear {}, &[of("f64[]")], InferErrorKind::BadType);
}

#[test]
fn integer_products_have_the_shape_of_matmul() {
    let op = MatMulInteger {};
    let u8 = |shape: &str| of(&format!("u8{shape}"));
    for (a, b, expected) in [
        ("[m,k]", "[k,n]", "i32[m,n]"),
        ("[b,1,m,4]", "[h,4,n]", "i32[b,h,m,n]"),
        ("[4]", "[4,n]", "i32[n]"),
        ("[m,4]", "[4]", "i32[m]"),
        ("[4]", "[4]", "i32[]"),
        ("[m,0]", "[0,n]", "i32[m,n]"),
        ("[*]", "[4]", "i32[*]"),
    ] {
        assert_output(op.clone(), &[u8(a), u8(b)], expected);
    }
    assert_refused(op.clone(), &[u8("[2,3]"), u8("[4,2]")], InferErrorKind::BadShape);
    assert_refused(op.clone(), &[u8("[]"), u8("[4,2]")], InferErrorKind::BadShape);
    assert_refused(op.clone(), &[u8("[2,3,4]"), u8("[3,4,5]")], InferErrorKind::BadShape);
    assert_refused(op.clone(), &[u8("[3,4]"), of("i32[4,5]")], InferErrorKind::BadType);
    let zeros = |a, b| [u8("[2,3,4]"), u8("[2,4,5]"), u8(a), u8(b)];
    for (a, b) in [("[]", "[1]"), ("[3]", "[5]"), ("[2,3,1]", "[1,1,5]"), ("[r]", "[*]"), ("[1,1,1]", "[c]")]
    {
        assert_output(op.clone(), &zeros(a, b), "i32[2,3,5]");
    }
    for (a, b) in [("[4]", "[]"), ("[]", "[4]"), ("[2,3,4]", "[]"), ("[]", "[2,1]"), ("[3,3,1]", "[]")] {
        assert_refused(op.clone(), &zeros(a, b), InferErrorKind::BadShape);
    }
}

#[test]
fn quantized_products_take_the_type_of_the_output_zero_point() {
    let scale = || of("f16[]");
    let inputs = |y_scale: &'static str, y_zero| {
        let (a_zero, b_zero) = (of("u8[]"), of("i8[3]"));
        let (a, b) = (of("u8[2,m,4]"), of("i8[4,3]"));
        let y_scale = of(&format!("f16{y_scale}"));
        vec![a, scale(), a_zero, b, of("f16[3]"), b_zero, y_scale, of(&format!("{y_zero}[]"))]
    };
    assert_output(QLinearMatMul {}, &inputs("[]", DType::I8), "i8[2,m,3]");
    assert_output(QLinearMatMul {}, &inputs("[1]", DType::F8E4M3FN), "f8e4m3fn[2,m,3]");
    assert_refused(QLinearMatMul {}, &inputs("[3]", DType::I8), InferErrorKind::BadShape);
    assert_refused(QLinearMatMul {}, &inputs("[]", DType::I32), InferErrorKind::BadType);
}

fn conv() -> ConvInteger {
    Attributes::from_attributes(&[]).unwrap()
}

#[test]
fn convolutions_compute_symbolic_sizes() {
    let (x, w) = (|| of("u8[n,6,h,8]"), || of("i8[4,3,3,3]"));
    let grouped = || ConvInteger { group: 2, ..conv() };
    assert_output(grouped(), &[x(), w()], "i32[n,4,h-2,6]");
    let op = ConvInteger { pads: vec![1; 4], strides: vec![2, 3], ..grouped() };
    assert_output(op, &[x(), w()], "i32[n,4,floordiv(h+1,2),3]");
    let op = ConvInteger { dilations: vec![3, 3], auto_pad: AutoPad::Valid, ..grouped() };
    assert_output(op, &[x(), w()], "i32[n,4,h-6,2]");
    let op = ConvInteger { strides: vec![3, 3], auto_pad: AutoPad::SameLower, ..grouped() };
    assert_output(op, &[x(), w()], "i32[n,4,floordiv(h+2,3),3]");
    let op = ConvInteger { kernel_shape: Some(vec![3, 1]), ..conv() };
    assert_output(op, &[x(), of("i8[*]")], "i32[n,channels0,h-2,8]");
    assert_output(conv(), &[x(), of("i8[*]")], "i32[n,channels2,h-kernel0+1,-kernel1+9]");
    assert_output(conv(), &[of("u8[*]"), w()], "i32[*]");
    assert_output(conv(), &[of("u8[1,2,5]"), of("u8[3,2,5]")], "i32[1,3,1]");
    // Nothing fits, but nothing is missing more than one step either.
    let op = ConvInteger { dilations: vec![1, 4], ..grouped() };
    assert_output(op, &[x(), w()], "i32[n,4,h-2,0]");
}

#[test]
fn convolutions_refuse_what_does_not_fit() {
    let (x, w) = (|| of("u8[n,6,h,8]"), || of("i8[4,6,3,3]"));
    for (op, kind) in [
        (ConvInteger { group: 0, ..conv() }, InferErrorKind::BadAttribute),
        (ConvInteger { group: i64::MIN, ..conv() }, InferErrorKind::BadAttribute),
        (ConvInteger { group: 2, ..conv() }, InferErrorKind::BadShape),
        (ConvInteger { strides: vec![1], ..conv() }, InferErrorKind::BadAttribute),
        (ConvInteger { strides: vec![0, 1], ..conv() }, InferErrorKind::BadAttribute),
        (ConvInteger { dilations: vec![1, -1], ..conv() }, InferErrorKind::BadAttribute),
        (ConvInteger { dilations: vec![1, 5], ..conv() }, InferErrorKind::BadShape),
        (ConvInteger { pads: vec![i64::MAX; 4], ..conv() }, InferErrorKind::BadAttribute),
        (ConvInteger { pads: vec![0, 0], ..conv() }, InferErrorKind::BadAttribute),
        (ConvInteger { pads: vec![0, 0, -1, 0], ..conv() }, InferErrorKind::BadAttribute),
        (ConvInteger { kernel_shape: Some(vec![3, 4]), ..conv() }, InferErrorKind::BadAttribute),
        (ConvInteger { kernel_shape: Some(vec![3]), ..conv() }, InferErrorKind::BadAttribute),
    ] {
        assert_refused(op, &[x(), w()], kind);
    }
    for (x, w) in [("[1,6]", "[4,6]"), ("[]", "[*]"), ("[1,6,8]", "[4,6,3,3]"), ("[1,6,8]", "[4,6,10]")] {
        assert_refused(conv(), &[of(&format!("u8{x}")), of(&format!("u8{w}"))], InferErrorKind::BadShape);
    }
    let empty_kernel = [of("u8[1,6,8]"), of("u8[4,6,0]")];
    assert_refused(conv(), &empty_kernel, InferErrorKind::BadAttribute);
    assert_refused(conv(), &[of("f32[*]"), w()], InferErrorKind::BadType);
    let zeros = |x_zero, w_zero| [x(), w(), of(&format!("u8{x_zero}")), of(&format!("i8{w_zero}"))];
    assert_output(conv(), &zeros("[]", "[4]"), "i32[n,4,h-2,6]");
    assert_output(conv(), &zeros("[1]", "[1]"), "i32[n,4,h-2,6]");
    assert_refused(conv(), &zeros("[6]", "[]"), InferErrorKind::BadShape);
    assert_refused(conv(), &zeros("[]", "[6]"), InferErrorKind::BadShape);
    let wrong = [x(), w(), None, of("u8[]")];
    assert_refused(conv(), &wrong, InferErrorKind::BadType);
}

#[test]
fn quantized_convolutions_check_their_parameters() {
    let conv = || named("QLinearConv", &[]);
    let inputs = |w_scale: &'static str, bias: &'static str| {
        let f32 = |shape: &str| of(&format!("f32{shape}"));
        let (u8, i8) = (|| of("u8[]"), || of("i8[]"));
        let (x, w) = (of("u8[n,3,9]"), of("i8[4,3,3]"));
        vec![x, f32("[]"), u8(), w, f32(w_scale), i8(), f32("[]"), i8(), of(&format!("i32{bias}"))]
    };
    assert_output(conv(), &inputs("[4]", "[4]"), "i8[n,4,7]");
    assert_output(conv(), &inputs("[]", "[4]"), "i8[n,4,7]");
    assert_refused(conv(), &inputs("[3]", "[4]"), InferErrorKind::BadShape);
    assert_refused(conv(), &inputs("[]", "[3]"), InferErrorKind::BadShape);
    assert_refused(conv(), &inputs("[]", "[1]"), InferErrorKind::BadShape);
    assert_refused(conv(), &inputs("[]", "[]"), InferErrorKind::BadShape);
}
