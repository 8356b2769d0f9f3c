//! Types and shapes of conversions and quantized products, known and symbolic, and their refusals.

use planish_tensor::{DType, Dim, Shape, Tensor};

use crate::infer::{
    Content, InferError, InferErrorKind, InferInput, Inference, Inferred, SymbolicInts, infer,
};
use crate::{
    AutoPad, BitCast, Cast, CastRounding, ConvInteger, DequantizeLinear, DynamicQuantizeLinear,
    MatMulInteger, Op, QLinearConv, QLinearMatMul, QuantizeLinear, ValueType,
};

/// An input: its type in text (`*` for an unknown rank) and what is known of its elements.
type Input<'a> = Option<(DType, &'a str, Option<Content>)>;

fn input(dtype: DType, shape: &str) -> Input<'_> {
    Some((dtype, shape, None))
}

fn run(op: impl Into<Op>, inputs: &[Input<'_>], n_outputs: usize) -> Result<Vec<Inferred>, InferError> {
    let op = op.into();
    let types: Vec<Option<ValueType>> = inputs
        .iter()
        .map(|input| {
            input.as_ref().map(|(dtype, shape, _)| match *shape {
                "*" => ValueType::unranked(*dtype),
                shape => ValueType::tensor(*dtype, shape.parse().unwrap()),
            })
        })
        .collect();
    let inputs: Vec<Option<InferInput<'_>>> = inputs
        .iter()
        .zip(&types)
        .map(|(input, ty)| {
            let content = input.as_ref().and_then(|(_, _, content)| content.as_ref());
            ty.as_ref().map(|ty| InferInput { ty, content })
        })
        .collect();
    let mut n_fresh = 0;
    let mut fresh = |hint: &str| {
        n_fresh += 1;
        Dim::symbol(&format!("{hint}{n_fresh}"))
    };
    infer(&op, &mut Inference::new(op.name(), &inputs, n_outputs, &mut fresh))
}

#[track_caller]
fn check(op: impl Into<Op>, inputs: &[Input<'_>], expected: &str) {
    let outputs = run(op, inputs, 1).unwrap();
    assert_eq!(outputs.len(), 1);
    assert_eq!(outputs[0].ty.to_string(), expected);
}

#[track_caller]
fn check_refusal(op: impl Into<Op>, inputs: &[Input<'_>], kind: InferErrorKind) {
    assert_eq!(run(op, inputs, 1).unwrap_err().kind(), kind);
}

fn cast(to: DType) -> Cast {
    Cast { round_mode: CastRounding::Up, saturate: true, to }
}

#[test]
fn casts_keep_the_shape() {
    for from in DType::ALL {
        for to in DType::ALL {
            check(cast(to), &[input(from, "[n,3]")], &format!("{to}[n,3]"));
        }
        check(cast(from), &[input(DType::F32, "*")], &format!("{from}[*]"));
    }
    check(BitCast { to: DType::I32 }, &[input(DType::F32, "[n,0]")], "i32[n,0]");
    check(BitCast { to: DType::F4E2M1 }, &[input(DType::U4, "[]")], "f4e2m1[]");
    let narrow = BitCast { to: DType::I16 };
    check_refusal(narrow, &[input(DType::F32, "[1]")], InferErrorKind::BadAttribute);
}

/// The contents after a cast, as text.
fn cast_content(to: DType, from: DType, content: Content) -> Option<String> {
    let len = match &content {
        Content::Tensor(tensor) => tensor.len(),
        Content::Ints(ints) => ints.dims.len(),
        Content::Grid(dims) => dims.len(),
    };
    let shape = format!("[{len}]");
    let output = run(cast(to), &[Some((from, &shape, Some(content)))], 1).unwrap().remove(0);
    assert_eq!(output.ty.to_string(), format!("{to}{shape}"));
    match output.content? {
        Content::Ints(ints) => Some(Shape::new(ints.dims).to_string()),
        Content::Grid(dims) => Some(Shape::new(dims).to_string()),
        Content::Tensor(tensor) => Some(format!("{tensor:?}")),
    }
}

#[test]
fn casts_between_integers_keep_contents() {
    let symbolic = |text: &str| {
        Content::Ints(SymbolicInts { dims: text.parse::<Shape>().unwrap().into_dims(), is_scalar: false })
    };
    let ints = |values: Vec<i64>| Content::Tensor(Tensor::vector(values));
    let cases = [
        (DType::I32, symbolic("[batch,3,seq-5]"), Some("[batch,3,seq-5]")),
        (DType::U64, symbolic("[batch,3]"), Some("[batch,3]")),
        (DType::U64, symbolic("[seq-5]"), None),
        (DType::I8, symbolic("[batch]"), None),
        (DType::Bool, symbolic("[batch]"), None),
        (DType::F32, symbolic("[batch]"), None),
        (DType::I8, ints(vec![200, -1, 7]), Some("[-56,-1,7]")),
        (DType::U8, ints(vec![200, -1, 7]), Some("[200,255,7]")),
        (DType::U64, ints(vec![1, -1]), None),
        (DType::U32, ints(vec![1, -1]), Some("[1,4294967295]")),
        (DType::I4, ints(vec![9, 7]), Some("[-7,7]")),
        (DType::Bool, ints(vec![0, -3]), Some("[0,1]")),
        (DType::F32, ints(vec![1, 2]), None),
    ];
    for (to, content, expected) in cases {
        let shown = format!("{content:?} to {to}");
        assert_eq!(cast_content(to, DType::I64, content).as_deref(), expected, "{shown}");
    }
    let flags = Content::Tensor(Tensor::vector(vec![true, false]));
    assert_eq!(cast_content(DType::I64, DType::Bool, flags).as_deref(), Some("[1,0]"));
    let floats = Content::Tensor(Tensor::vector(vec![1.0f32]));
    assert_eq!(cast_content(DType::I64, DType::F32, floats.clone()), None);
    assert_eq!(cast_content(DType::F32, DType::F32, floats).as_deref(), Some("f32[1][1.0]"));
}

const QUANTIZE: QuantizeLinear =
    QuantizeLinear { precision: None, output_dtype: None, block_size: 0, saturate: true, axis: 1 };
const DEQUANTIZE: DequantizeLinear = DequantizeLinear { output_dtype: None, block_size: 0, axis: 1 };

#[test]
fn quantization_takes_its_type_from_the_zero_point_or_the_attribute() {
    let (x, scale) = (input(DType::F32, "[n,3]"), input(DType::F32, "[3]"));
    check(QUANTIZE, &[x.clone(), scale.clone()], "u8[n,3]");
    check(QUANTIZE, &[x.clone(), scale.clone(), input(DType::I4, "[3]")], "i4[n,3]");
    let f8 = QuantizeLinear { output_dtype: Some(DType::F8E5M2), ..QUANTIZE };
    check(f8.clone(), &[x.clone(), scale.clone()], "f8e5m2[n,3]");
    check_refusal(f8, &[x.clone(), scale.clone(), input(DType::U8, "[3]")], InferErrorKind::BadType);
    check_refusal(QUANTIZE, &[x.clone(), scale.clone(), input(DType::I32, "[3]")], InferErrorKind::BadType);
    check_refusal(QUANTIZE, &[input(DType::I8, "[]"), scale.clone()], InferErrorKind::BadType);
    check_refusal(QUANTIZE, &[x.clone(), input(DType::I8, "[3]")], InferErrorKind::BadType);
    let odd = QuantizeLinear { precision: Some(DType::I8), ..QUANTIZE };
    check_refusal(odd, &[x.clone(), scale], InferErrorKind::BadAttribute);
    check_refusal(QUANTIZE, &[x], InferErrorKind::MissingInput);
}

#[test]
fn scales_must_fit_the_data() {
    let x = || input(DType::F32, "[2,n,6]");
    let axis = |axis| QuantizeLinear { axis, ..QUANTIZE };
    let block = |axis, block_size| QuantizeLinear { axis, block_size, ..QUANTIZE };
    let scale = |shape| input(DType::F32, shape);
    for (op, shape) in [
        (axis(9), "[]"),
        (axis(9), "[1]"),
        (axis(9), "[k]"),
        (axis(-1), "[6]"),
        (axis(1), "[7]"),
        (axis(0), "*"),
        (block(-1, 4), "[2,n,2]"),
        (block(1, 4), "[2,ceildiv(n,4),6]"),
        (block(1, 4), "[]"),
    ] {
        check(op, &[x(), scale(shape)], "u8[2,n,6]");
    }
    let unranked = input(DType::F32, "*");
    check(axis(1), &[unranked, scale("[7]")], "u8[*]");
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
        check_refusal(op, &[x(), scale(shape)], kind);
    }
    let zero = |shape| input(DType::U8, shape);
    check(axis(2), &[x(), scale("[1]"), zero("[]")], "u8[2,n,6]");
    check_refusal(axis(2), &[x(), scale("[6]"), zero("[]")], InferErrorKind::BadShape);
    check_refusal(axis(2), &[x(), scale("[6]"), zero("[5]")], InferErrorKind::BadShape);
}

#[test]
fn dequantization_takes_its_type_from_the_scale_or_the_attribute() {
    let x = || input(DType::I4, "[n]");
    check(DEQUANTIZE, &[x(), input(DType::F16, "[]")], "f16[n]");
    let op = || DequantizeLinear { output_dtype: Some(DType::BF16), ..DEQUANTIZE };
    check(op(), &[x(), input(DType::F8E8M0, "[]")], "bf16[n]");
    check(DEQUANTIZE, &[input(DType::I32, "[n]"), input(DType::F32, "[]")], "f32[n]");
    check_refusal(DEQUANTIZE, &[x(), input(DType::F8E8M0, "[]")], InferErrorKind::BadType);
    let zero = input(DType::U4, "[]");
    check_refusal(op(), &[x(), input(DType::F32, "[]"), zero], InferErrorKind::BadType);
    check_refusal(op(), &[input(DType::I64, "[]"), input(DType::F32, "[]")], InferErrorKind::BadType);
}

#[test]
fn dynamic_quantization_gives_scalars_beside_the_data() {
    let types = |n| -> Vec<String> {
        let outputs = run(DynamicQuantizeLinear {}, &[input(DType::F32, "[a,b]")], n).unwrap();
        outputs.iter().map(|output| output.ty.to_string()).collect()
    };
    assert_eq!(types(3), ["u8[a,b]", "f32[]", "u8[]"]);
    assert_eq!(types(1), ["u8[a,b]"]);
    check_refusal(DynamicQuantizeLinear {}, &[input(DType::F64, "[]")], InferErrorKind::BadType);
}

#[test]
fn integer_products_have_the_shape_of_matmul() {
    let op = MatMulInteger {};
    let u8 = |shape| input(DType::U8, shape);
    for (a, b, expected) in [
        ("[m,k]", "[k,n]", "i32[m,n]"),
        ("[b,1,m,4]", "[h,4,n]", "i32[b,h,m,n]"),
        ("[4]", "[4,n]", "i32[n]"),
        ("[m,4]", "[4]", "i32[m]"),
        ("[4]", "[4]", "i32[]"),
        ("[m,0]", "[0,n]", "i32[m,n]"),
        ("*", "[4]", "i32[*]"),
    ] {
        check(op.clone(), &[u8(a), u8(b)], expected);
    }
    check_refusal(op.clone(), &[u8("[2,3]"), u8("[4,2]")], InferErrorKind::BadShape);
    check_refusal(op.clone(), &[u8("[]"), u8("[4,2]")], InferErrorKind::BadShape);
    check_refusal(op.clone(), &[u8("[2,3,4]"), u8("[3,4,5]")], InferErrorKind::BadShape);
    check_refusal(op.clone(), &[u8("[3,4]"), input(DType::I32, "[4,5]")], InferErrorKind::BadType);
    let zeros = |a, b| [u8("[2,3,4]"), u8("[2,4,5]"), Some((DType::U8, a, None)), Some((DType::U8, b, None))];
    for (a, b) in [("[]", "[1]"), ("[3]", "[5]"), ("[2,3,1]", "[1,1,5]"), ("[r]", "*"), ("[1,1,1]", "[c]")] {
        check(op.clone(), &zeros(a, b), "i32[2,3,5]");
    }
    for (a, b) in [("[4]", "[]"), ("[]", "[4]"), ("[2,3,4]", "[]"), ("[]", "[2,1]"), ("[3,3,1]", "[]")] {
        check_refusal(op.clone(), &zeros(a, b), InferErrorKind::BadShape);
    }
}

#[test]
fn quantized_products_take_the_type_of_the_output_zero_point() {
    let scale = || input(DType::F16, "[]");
    let inputs = |y_scale: &'static str, y_zero| {
        let (a_zero, b_zero) = (input(DType::U8, "[]"), input(DType::I8, "[3]"));
        let (a, b) = (input(DType::U8, "[2,m,4]"), input(DType::I8, "[4,3]"));
        let y_scale = input(DType::F16, y_scale);
        vec![a, scale(), a_zero, b, input(DType::F16, "[3]"), b_zero, y_scale, input(y_zero, "[]")]
    };
    check(QLinearMatMul {}, &inputs("[]", DType::I8), "i8[2,m,3]");
    check(QLinearMatMul {}, &inputs("[1]", DType::F8E4M3FN), "f8e4m3fn[2,m,3]");
    check_refusal(QLinearMatMul {}, &inputs("[3]", DType::I8), InferErrorKind::BadShape);
    check_refusal(QLinearMatMul {}, &inputs("[]", DType::I32), InferErrorKind::BadType);
}

fn conv() -> ConvInteger {
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
fn convolutions_compute_symbolic_sizes() {
    let (x, w) = (|| input(DType::U8, "[n,6,h,8]"), || input(DType::I8, "[4,3,3,3]"));
    let grouped = || ConvInteger { group: 2, ..conv() };
    check(grouped(), &[x(), w()], "i32[n,4,h-2,6]");
    let op = ConvInteger { pads: vec![1; 4], strides: vec![2, 3], ..grouped() };
    check(op, &[x(), w()], "i32[n,4,floordiv(h+1,2),3]");
    let op = ConvInteger { dilations: vec![3, 3], auto_pad: AutoPad::Valid, ..grouped() };
    check(op, &[x(), w()], "i32[n,4,h-6,2]");
    let op = ConvInteger { strides: vec![3, 3], auto_pad: AutoPad::SameLower, ..grouped() };
    check(op, &[x(), w()], "i32[n,4,floordiv(h+2,3),3]");
    let op = ConvInteger { kernel_shape: Some(vec![3, 1]), ..conv() };
    check(op, &[x(), input(DType::I8, "*")], "i32[n,channels1,h-2,8]");
    check(conv(), &[x(), input(DType::I8, "*")], "i32[n,channels1,spatial2,spatial3]");
    check(conv(), &[input(DType::U8, "*"), w()], "i32[*]");
    check(conv(), &[input(DType::U8, "[1,2,5]"), input(DType::U8, "[3,2,5]")], "i32[1,3,1]");
    // Nothing fits, but nothing is missing more than one step either.
    let op = ConvInteger { dilations: vec![1, 4], ..grouped() };
    check(op, &[x(), w()], "i32[n,4,h-2,0]");
}

#[test]
fn convolutions_refuse_what_does_not_fit() {
    let (x, w) = (|| input(DType::U8, "[n,6,h,8]"), || input(DType::I8, "[4,6,3,3]"));
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
        check_refusal(op, &[x(), w()], kind);
    }
    for (x, w) in [("[1,6]", "[4,6]"), ("[]", "*"), ("[1,6,8]", "[4,6,3,3]"), ("[1,6,8]", "[4,6,10]")] {
        check_refusal(conv(), &[input(DType::U8, x), input(DType::U8, w)], InferErrorKind::BadShape);
    }
    let empty_kernel = [input(DType::U8, "[1,6,8]"), input(DType::U8, "[4,6,0]")];
    check_refusal(conv(), &empty_kernel, InferErrorKind::BadAttribute);
    check_refusal(conv(), &[input(DType::F32, "*"), w()], InferErrorKind::BadType);
    let zeros = |x_zero, w_zero| [x(), w(), input(DType::U8, x_zero), input(DType::I8, w_zero)];
    check(conv(), &zeros("[]", "[4]"), "i32[n,4,h-2,6]");
    check(conv(), &zeros("[1]", "[1]"), "i32[n,4,h-2,6]");
    check_refusal(conv(), &zeros("[6]", "[]"), InferErrorKind::BadShape);
    check_refusal(conv(), &zeros("[]", "[6]"), InferErrorKind::BadShape);
    let wrong = [x(), w(), None, input(DType::U8, "[]")];
    check_refusal(conv(), &wrong, InferErrorKind::BadType);
}

#[test]
fn quantized_convolutions_check_their_parameters() {
    let op = || QLinearConv {
        group: 1,
        pads: Vec::new(),
        strides: Vec::new(),
        dilations: Vec::new(),
        kernel_shape: None,
        auto_pad: AutoPad::NotSet,
    };
    let inputs = |w_scale: &'static str, bias: &'static str| {
        let f32 = |shape| input(DType::F32, shape);
        let (u8, i8) = (|| input(DType::U8, "[]"), || input(DType::I8, "[]"));
        let (x, w) = (input(DType::U8, "[n,3,9]"), input(DType::I8, "[4,3,3]"));
        vec![x, f32("[]"), u8(), w, f32(w_scale), i8(), f32("[]"), i8(), input(DType::I32, bias)]
    };
    check(op(), &inputs("[4]", "[4]"), "i8[n,4,7]");
    check(op(), &inputs("[]", "[4]"), "i8[n,4,7]");
    check_refusal(op(), &inputs("[3]", "[4]"), InferErrorKind::BadShape);
    check_refusal(op(), &inputs("[]", "[3]"), InferErrorKind::BadShape);
    check_refusal(op(), &inputs("[]", "[1]"), InferErrorKind::BadShape);
    check_refusal(op(), &inputs("[]", "[]"), InferErrorKind::BadShape);
}
