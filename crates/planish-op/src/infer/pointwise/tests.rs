//! Tests of pointwise inference: types, shapes, contents and refusals.

use planish_tensor::{DType, Dim, Tensor};

use super::super::{
    Content, InferError, InferErrorKind, InferInput, Inference, Inferred, SymbolicInts, infer,
};
use crate::*;

/// An operand: its type in text and what is known of it.
#[derive(Clone)]
struct Operand {
    ty: ValueType,
    content: Option<Content>,
}

fn tensor(dtype: DType, shape: &str) -> Operand {
    Operand { ty: ValueType::tensor(dtype, shape.parse().unwrap()), content: None }
}

fn unranked(dtype: DType) -> Operand {
    Operand { ty: ValueType::unranked(dtype), content: None }
}

/// A vector of known `i64`s, given as dimensions in text.
fn ints(dims: &[&str]) -> Operand {
    let dims: Vec<Dim> = dims.iter().map(|dim| dim.parse().unwrap()).collect();
    let Inferred { ty, content } = Inferred::ints(DType::I64, SymbolicInts { dims, is_scalar: false });
    Operand { ty, content }
}

fn constant(tensor: Tensor) -> Operand {
    let ty = ValueType::tensor(tensor.dtype(), tensor.shape().into());
    Operand { ty, content: Some(Content::Tensor(tensor)) }
}

fn try_infer(op: impl Into<Op>, operands: &[Operand]) -> Result<Inferred, InferError> {
    let inputs: Vec<Option<InferInput<'_>>> =
        operands.iter().map(|o| Some(InferInput { ty: &o.ty, content: o.content.as_ref() })).collect();
    let op = op.into();
    let mut fresh = |hint: &str| Dim::symbol(hint);
    let mut outputs = infer(&op, &mut Inference::new(op.name(), &inputs, 1, &mut fresh))?;
    assert_eq!(outputs.len(), 1);
    Ok(outputs.remove(0))
}

#[track_caller]
fn check(op: impl Into<Op>, operands: &[Operand], expected: &str) {
    assert_eq!(try_infer(op, operands).unwrap().ty.to_string(), expected);
}

#[track_caller]
fn refused(op: impl Into<Op>, operands: &[Operand], kind: InferErrorKind) {
    assert_eq!(try_infer(op, operands).unwrap_err().kind(), kind);
}

/// The contents as text, `?` for nothing known; checks that they fit the type.
#[track_caller]
fn contents(op: impl Into<Op>, operands: &[Operand], expected: &str) {
    let inferred = try_infer(op, operands).unwrap();
    let text = match &inferred.content {
        Some(Content::Ints(ints)) => {
            let rank = inferred.ty.as_tensor().and_then(TensorType::rank);
            assert_eq!(rank, Some(usize::from(!ints.is_scalar)));
            ints.dims.iter().map(|dim| if dim.is_unknown() { "?".into() } else { dim.to_string() }).collect()
        }
        Some(Content::Tensor(_) | Content::Grid(_)) => vec!["tensor".to_string()],
        None => vec![],
    };
    assert_eq!(text.join(" "), expected);
}

#[test]
fn unary_operators_keep_type_and_shape() {
    check(Sigmoid {}, &[tensor(DType::BF16, "[batch,3]")], "bf16[batch,3]");
    check(Exp {}, &[unranked(DType::F64)], "f64[*]");
    check(Sign {}, &[tensor(DType::U8, "[]")], "u8[]");
    check(IsNaN {}, &[tensor(DType::F8E5M2, "[n]")], "bool[n]");
    check(Not {}, &[tensor(DType::Bool, "[n]")], "bool[n]");
    refused(Exp {}, &[tensor(DType::I32, "[n]")], InferErrorKind::BadType);
    refused(Exp {}, &[tensor(DType::F8E5M2, "[n]")], InferErrorKind::BadType);
    refused(Neg {}, &[tensor(DType::U8, "[n]")], InferErrorKind::BadType);
    refused(Not {}, &[tensor(DType::I8, "[n]")], InferErrorKind::BadType);
    refused(
        IsInf { detect_negative: true, detect_positive: true },
        &[tensor(DType::I32, "[]")],
        InferErrorKind::BadType,
    );
    refused(BitwiseNot {}, &[tensor(DType::I4, "[n]")], InferErrorKind::BadType);
    refused(Relu {}, &[], InferErrorKind::MissingInput);
}

#[test]
fn identity_hands_on_everything() {
    let sequence = ValueType::Sequence(Box::new(ValueType::unranked(DType::F32)));
    let optional = ValueType::Optional(Box::new(sequence.clone()));
    for ty in [sequence, optional] {
        let expected = ty.to_string();
        check(Identity {}, &[Operand { ty: ty.clone(), content: None }], &expected);
        refused(Abs {}, &[Operand { ty, content: None }], InferErrorKind::BadType);
    }
    contents(Identity {}, &[ints(&["n", "3"])], "n 3");
    contents(Identity {}, &[constant(Tensor::vector(vec![1.5f32]))], "tensor");
}

#[test]
fn operands_broadcast() {
    let f32s = |shape| tensor(DType::F32, shape);
    check(Add {}, &[f32s("[batch,1,4]"), f32s("[3,1]")], "f32[batch,3,4]");
    check(Add {}, &[f32s("[n]"), f32s("[m]")], "f32[broadcast(m,n)]");
    check(Add {}, &[f32s("[0]"), f32s("[1]")], "f32[0]");
    check(Add {}, &[f32s("[n]"), unranked(DType::F32)], "f32[*]");
    check(Max {}, &[f32s("[3,1]"), f32s("[]"), f32s("[1,n]")], "f32[3,n]");
    check(Sum {}, &[f32s("[3]")], "f32[3]");
    check(Less {}, &[tensor(DType::U16, "[n,1]"), tensor(DType::U16, "[2]")], "bool[n,2]");
    check(Pow {}, &[tensor(DType::I32, "[n,1]"), f32s("[2]")], "i32[n,2]");
    check(
        Where {},
        &[tensor(DType::Bool, "[n,1]"), tensor(DType::I4, "[2]"), tensor(DType::I4, "[]")],
        "i4[n,2]",
    );
    check(
        BitShift { direction: BitShiftDirection::Left },
        &[tensor(DType::U8, "[3]"), tensor(DType::U8, "[]")],
        "u8[3]",
    );
    refused(Add {}, &[f32s("[2]"), f32s("[3]")], InferErrorKind::BadShape);
    refused(Add {}, &[f32s("[2]"), tensor(DType::F16, "[2]")], InferErrorKind::BadType);
    refused(Add {}, &[tensor(DType::Bool, "[2]"), tensor(DType::Bool, "[2]")], InferErrorKind::BadType);
    refused(And {}, &[f32s("[2]"), f32s("[2]")], InferErrorKind::BadType);
    refused(Mean {}, &[], InferErrorKind::MissingInput);
    refused(Mean {}, &[tensor(DType::I32, "[2]")], InferErrorKind::BadType);
    refused(Where {}, &[f32s("[2]"), f32s("[2]"), f32s("[2]")], InferErrorKind::BadType);
    refused(Where {}, &[tensor(DType::Bool, "[3]"), f32s("[2]"), f32s("[2]")], InferErrorKind::BadShape);
    refused(Mod { fmod: false }, &[f32s("[2]"), f32s("[2]")], InferErrorKind::BadAttribute);
    refused(
        BitShift { direction: BitShiftDirection::Left },
        &[tensor(DType::I8, "[]"), tensor(DType::I8, "[]")],
        InferErrorKind::BadType,
    );
    refused(Pow {}, &[f32s("[]"), tensor(DType::Bool, "[]")], InferErrorKind::BadType);
}

#[test]
fn slopes_and_bounds() {
    let f32s = |shape| tensor(DType::F32, shape);
    check(PRelu {}, &[f32s("[n,3,h]"), f32s("[3,1]")], "f32[n,3,h]");
    check(PRelu {}, &[f32s("[n,c,h]"), f32s("[3,1]")], "f32[n,c,h]");
    refused(PRelu {}, &[f32s("[3]"), f32s("[1,3]")], InferErrorKind::BadShape);
    refused(PRelu {}, &[f32s("[1,3]"), f32s("[2,3]")], InferErrorKind::BadShape);
    refused(PRelu {}, &[f32s("[2]"), f32s("[3]")], InferErrorKind::BadShape);
    check(Clip {}, &[f32s("[n]"), f32s("[]"), f32s("[1]")], "f32[n]");
    check(Clip {}, &[f32s("[n]")], "f32[n]");
    refused(Clip {}, &[f32s("[n]"), f32s("[2]")], InferErrorKind::BadShape);
    refused(Clip {}, &[f32s("[n]"), tensor(DType::F64, "[]")], InferErrorKind::BadType);
}

#[test]
fn integer_arithmetic_is_followed() {
    let x = || ints(&["n", "7", "-7", "2*n"]);
    contents(Add {}, &[x(), ints(&["1"])], "n+1 8 -6 2*n+1");
    contents(Sub {}, &[x(), x()], "0 0 0 0");
    contents(Mul {}, &[x(), ints(&["3"])], "3*n 21 -21 6*n");
    contents(Div {}, &[x(), ints(&["2"])], "floordiv(n,2) 3 -3 n");
    contents(Mod { fmod: false }, &[x(), ints(&["4"])], "mod(n,4) 3 1 2*mod(n,2)");
    contents(Mod { fmod: true }, &[x(), ints(&["4"])], "mod(n,4) 3 -3 2*mod(n,2)");
    contents(Neg {}, &[x()], "-n -7 7 -2*n");
    contents(Abs {}, &[x()], "n 7 7 2*n");
    contents(Relu {}, &[x()], "n 7 0 2*n");
    contents(Min {}, &[x(), ints(&["3"])], "min(3,n) 3 -7 min(3,2*n)");
    contents(Max {}, &[x(), ints(&["-1"]), ints(&["0", "9", "0", "n"])], "n 9 0 2*n");
    contents(
        Clip {},
        &[x(), constant(Tensor::scalar(0i64)), constant(Tensor::scalar(5i64))],
        "min(5,n) 5 0 min(5,2*n)",
    );
    // A scalar with a scalar stays a scalar.
    contents(Add {}, &[constant(Tensor::scalar(2i64)), constant(Tensor::scalar(3i64))], "5");
    contents(Add {}, &[constant(Tensor::scalar(2i64)), ints(&["n"])], "n+2");
}

#[test]
fn what_cannot_be_told_is_dropped() {
    contents(Add {}, &[ints(&["n"]), tensor(DType::I64, "[1]")], "");
    contents(Div {}, &[ints(&["n-1", "4", "4"]), ints(&["2", "0", "2"])], "? ? 2");
    contents(Div {}, &[ints(&["n-1"]), ints(&["2"])], "");
    contents(Div {}, &[ints(&["2*n-2", "1"]), ints(&["2", "1"])], "n-1 1");
    // Overflow of the element type: nothing wraps silently.
    let i32s = |values: Vec<i32>| constant(Tensor::vector(values));
    contents(Add {}, &[i32s(vec![i32::MAX, 1]), i32s(vec![1])], "? 2");
    contents(Sub {}, &[constant(Tensor::vector(vec![1u8, 5])), constant(Tensor::vector(vec![2u8]))], "? 3");
    contents(Add {}, &[ints(&["9223372036854775807"]), ints(&["1"])], "");
    let lowest = constant(Tensor::vector(vec![i64::MIN]));
    contents(Neg {}, std::slice::from_ref(&lowest), "");
    contents(Div {}, &[lowest.clone(), ints(&["-1"])], "");
    contents(Mod { fmod: true }, &[lowest, ints(&["-1"])], "");
    // Floats are not followed.
    contents(Add {}, &[constant(Tensor::vector(vec![1f32])), constant(Tensor::vector(vec![1f32]))], "");
}

#[test]
fn comparisons_and_choices_are_followed() {
    let shape = || ints(&["n", "-1", "3", "m"]);
    contents(Equal {}, &[shape(), ints(&["-1"])], "0 1 0 0");
    contents(Equal {}, &[shape(), ints(&["n"])], "1 0 ? ?");
    contents(Less {}, &[shape(), ints(&["0"])], "0 1 0 0");
    contents(Greater {}, &[ints(&["n+1", "n"]), ints(&["n", "n+1"])], "1 0");
    contents(LessOrEqual {}, &[shape(), ints(&["3"])], "? 1 1 ?");
    contents(GreaterOrEqual {}, &[shape(), ints(&["0"])], "1 0 1 1");
    let bools = |values: Vec<bool>| constant(Tensor::vector(values));
    let (a, b) = (bools(vec![false, false, true, true]), bools(vec![false, true, false, true]));
    contents(And {}, &[a.clone(), b.clone()], "0 0 0 1");
    contents(Or {}, &[a.clone(), b.clone()], "0 1 1 1");
    contents(Xor {}, &[a.clone(), b], "0 1 1 0");
    contents(Not {}, std::slice::from_ref(&a), "1 1 0 0");
    contents(Where {}, &[a, shape(), ints(&["1"])], "1 1 3 m");
    // What exporters write to expand: ones where the target says -1.
    let is_free = try_infer(Equal {}, &[shape(), ints(&["-1"])]).unwrap();
    let is_free = Operand { ty: is_free.ty, content: is_free.content };
    contents(Where {}, &[is_free, ints(&["1", "1", "1", "1"]), shape()], "n 1 3 m");
    // An unknown condition does not matter where both choices agree.
    let unknown = try_infer(Equal {}, &[ints(&["n", "1"]), ints(&["2", "1"])]).unwrap();
    let unknown = Operand { ty: unknown.ty, content: unknown.content };
    contents(Where {}, &[unknown, ints(&["k", "5"]), ints(&["k", "6"])], "k 5");
}

#[test]
fn constant_scales_are_rounded() {
    let x = constant(Tensor::vector(vec![1.5f32, -0.5]));
    for (op, expected) in [(Op::from(Floor {}), [1f32, -1.0]), (Ceil {}.into(), [2.0, -0.0])] {
        let inferred = try_infer(op, std::slice::from_ref(&x)).unwrap();
        match inferred.content {
            Some(Content::Tensor(tensor)) => assert_eq!(tensor, Tensor::vector(expected.to_vec())),
            other => panic!("{other:?}"),
        }
    }
    assert!(try_infer(Floor {}, &[constant(Tensor::vector(vec![0f32; 65]))]).unwrap().content.is_none());
    assert!(try_infer(Sqrt {}, &[x]).unwrap().content.is_none());
}
