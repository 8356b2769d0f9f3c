//! Tests of pointwise inference: types, shapes, contents and refusals.

use planish_tensor::Tensor;

use crate::infer::testing::{
    Input, as_input, assert_output, assert_refused, constant, elements, inferred, ints, of,
};
use crate::infer::{Content, InferErrorKind, Inferred};
use crate::*;

fn one(op: impl Into<Op>, inputs: &[Input]) -> Inferred {
    inferred(op, inputs, 1).unwrap().remove(0)
}

/// The contents as text, empty if none are known; checks that they fit the type.
#[track_caller]
fn contents(op: impl Into<Op>, inputs: &[Input], expected: &str) {
    let output = one(op, inputs);
    if let Some(Content::Ints(ints)) = &output.content {
        let rank = output.ty.as_tensor().and_then(TensorType::rank);
        assert_eq!(rank, Some(usize::from(!ints.is_scalar)));
    }
    assert_eq!(elements(&output).unwrap_or_default(), expected);
}

#[test]
fn unary_operators_keep_type_and_shape() {
    assert_output(Sigmoid {}, &[of("bf16[batch,3]")], "bf16[batch,3]");
    assert_output(Exp {}, &[of("f64[*]")], "f64[*]");
    assert_output(Sign {}, &[of("u8[]")], "u8[]");
    assert_output(IsNaN {}, &[of("f8e5m2[n]")], "bool[n]");
    assert_output(Not {}, &[of("bool[n]")], "bool[n]");
    assert_refused(Exp {}, &[of("i32[n]")], InferErrorKind::BadType);
    assert_refused(Exp {}, &[of("f8e5m2[n]")], InferErrorKind::BadType);
    assert_refused(Neg {}, &[of("u8[n]")], InferErrorKind::BadType);
    assert_refused(Not {}, &[of("i8[n]")], InferErrorKind::BadType);
    assert_refused(
        IsInf { detect_negative: true, detect_positive: true },
        &[of("i32[]")],
        InferErrorKind::BadType,
    );
    assert_refused(BitwiseNot {}, &[of("i4[n]")], InferErrorKind::BadType);
    assert_refused(Relu {}, &[], InferErrorKind::MissingInput);
}

#[test]
fn identity_hands_on_everything() {
    for ty in ["seq(f32[*])", "optional(seq(f32[*]))"] {
        assert_output(Identity {}, &[of(ty)], ty);
        assert_refused(Abs {}, &[of(ty)], InferErrorKind::BadType);
    }
    contents(Identity {}, &[ints(&["n", "3"])], "n,3");
    contents(Identity {}, &[constant(Tensor::vector(vec![1.5f32]))], "1.5");
}

#[test]
fn operands_broadcast() {
    let f32s = |shape: &str| of(&format!("f32{shape}"));
    assert_output(Add {}, &[f32s("[batch,1,4]"), f32s("[3,1]")], "f32[batch,3,4]");
    assert_output(Add {}, &[f32s("[n]"), f32s("[m]")], "f32[broadcast(m,n)]");
    assert_output(Add {}, &[f32s("[0]"), f32s("[1]")], "f32[0]");
    assert_output(Add {}, &[f32s("[n]"), of("f32[*]")], "f32[*]");
    assert_output(Max {}, &[f32s("[3,1]"), f32s("[]"), f32s("[1,n]")], "f32[3,n]");
    assert_output(Sum {}, &[f32s("[3]")], "f32[3]");
    assert_output(Less {}, &[of("u16[n,1]"), of("u16[2]")], "bool[n,2]");
    assert_output(Pow {}, &[of("i32[n,1]"), f32s("[2]")], "i32[n,2]");
    assert_output(Where {}, &[of("bool[n,1]"), of("i4[2]"), of("i4[]")], "i4[n,2]");
    assert_output(BitShift { direction: BitShiftDirection::Left }, &[of("u8[3]"), of("u8[]")], "u8[3]");
    assert_refused(Add {}, &[f32s("[2]"), f32s("[3]")], InferErrorKind::BadShape);
    assert_refused(Add {}, &[f32s("[2]"), of("f16[2]")], InferErrorKind::BadType);
    assert_refused(Add {}, &[of("bool[2]"), of("bool[2]")], InferErrorKind::BadType);
    assert_refused(And {}, &[f32s("[2]"), f32s("[2]")], InferErrorKind::BadType);
    assert_refused(Mean {}, &[], InferErrorKind::MissingInput);
    assert_refused(Mean {}, &[of("i32[2]")], InferErrorKind::BadType);
    assert_refused(Where {}, &[f32s("[2]"), f32s("[2]"), f32s("[2]")], InferErrorKind::BadType);
    assert_refused(Where {}, &[of("bool[3]"), f32s("[2]"), f32s("[2]")], InferErrorKind::BadShape);
    assert_refused(Mod { fmod: false }, &[f32s("[2]"), f32s("[2]")], InferErrorKind::BadAttribute);
    assert_refused(
        BitShift { direction: BitShiftDirection::Left },
        &[of("i8[]"), of("i8[]")],
        InferErrorKind::BadType,
    );
    assert_refused(Pow {}, &[f32s("[]"), of("bool[]")], InferErrorKind::BadType);
}

#[test]
fn slopes_and_bounds() {
    let f32s = |shape: &str| of(&format!("f32{shape}"));
    assert_output(PRelu {}, &[f32s("[n,3,h]"), f32s("[3,1]")], "f32[n,3,h]");
    assert_output(PRelu {}, &[f32s("[n,c,h]"), f32s("[3,1]")], "f32[n,c,h]");
    assert_refused(PRelu {}, &[f32s("[3]"), f32s("[1,3]")], InferErrorKind::BadShape);
    assert_refused(PRelu {}, &[f32s("[1,3]"), f32s("[2,3]")], InferErrorKind::BadShape);
    assert_refused(PRelu {}, &[f32s("[2]"), f32s("[3]")], InferErrorKind::BadShape);
    assert_output(Clip {}, &[f32s("[n]"), f32s("[]"), f32s("[1]")], "f32[n]");
    assert_output(Clip {}, &[f32s("[n]")], "f32[n]");
    assert_refused(Clip {}, &[f32s("[n]"), f32s("[2]")], InferErrorKind::BadShape);
    assert_refused(Clip {}, &[f32s("[n]"), of("f64[]")], InferErrorKind::BadType);
}

#[test]
fn integer_arithmetic_is_followed() {
    let x = || ints(&["n", "7", "-7", "2*n"]);
    contents(Add {}, &[x(), ints(&["1"])], "n+1,8,-6,2*n+1");
    contents(Sub {}, &[x(), x()], "0,0,0,0");
    contents(Mul {}, &[x(), ints(&["3"])], "3*n,21,-21,6*n");
    contents(Div {}, &[x(), ints(&["2"])], "floordiv(n,2),3,-3,n");
    contents(Mod { fmod: false }, &[x(), ints(&["4"])], "mod(n,4),3,1,2*mod(n,2)");
    contents(Mod { fmod: true }, &[x(), ints(&["4"])], "mod(n,4),3,-3,2*mod(n,2)");
    contents(Neg {}, &[x()], "-n,-7,7,-2*n");
    contents(Abs {}, &[x()], "n,7,7,2*n");
    contents(Relu {}, &[x()], "n,7,0,2*n");
    contents(Min {}, &[x(), ints(&["3"])], "min(3,n),3,-7,min(3,2*n)");
    contents(Max {}, &[x(), ints(&["-1"]), ints(&["0", "9", "0", "n"])], "n,9,0,2*n");
    contents(
        Clip {},
        &[x(), constant(Tensor::scalar(0i64)), constant(Tensor::scalar(5i64))],
        "min(5,n),5,0,min(5,2*n)",
    );
    // A scalar with a scalar stays a scalar.
    contents(Add {}, &[constant(Tensor::scalar(2i64)), constant(Tensor::scalar(3i64))], "5");
    contents(Add {}, &[constant(Tensor::scalar(2i64)), ints(&["n"])], "n+2");
}

#[test]
fn what_cannot_be_told_is_dropped() {
    contents(Add {}, &[ints(&["n"]), of("i64[1]")], "");
    contents(Div {}, &[ints(&["n-1", "4", "4"]), ints(&["2", "0", "2"])], "?,?,2");
    contents(Div {}, &[ints(&["n-1"]), ints(&["2"])], "");
    contents(Div {}, &[ints(&["2*n-2", "1"]), ints(&["2", "1"])], "n-1,1");
    // Overflow of the element type: nothing wraps silently.
    let i32s = |values: Vec<i32>| constant(Tensor::vector(values));
    contents(Add {}, &[i32s(vec![i32::MAX, 1]), i32s(vec![1])], "?,2");
    contents(Sub {}, &[constant(Tensor::vector(vec![1u8, 5])), constant(Tensor::vector(vec![2u8]))], "?,3");
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
    contents(Equal {}, &[shape(), ints(&["-1"])], "0,1,0,0");
    contents(Equal {}, &[shape(), ints(&["n"])], "1,0,?,?");
    contents(Less {}, &[shape(), ints(&["0"])], "0,1,0,0");
    contents(Greater {}, &[ints(&["n+1", "n"]), ints(&["n", "n+1"])], "1,0");
    contents(LessOrEqual {}, &[shape(), ints(&["3"])], "?,1,1,?");
    contents(GreaterOrEqual {}, &[shape(), ints(&["0"])], "1,0,1,1");
    let bools = |values: Vec<bool>| constant(Tensor::vector(values));
    let (a, b) = (bools(vec![false, false, true, true]), bools(vec![false, true, false, true]));
    contents(And {}, &[a.clone(), b.clone()], "0,0,0,1");
    contents(Or {}, &[a.clone(), b.clone()], "0,1,1,1");
    contents(Xor {}, &[a.clone(), b], "0,1,1,0");
    contents(Not {}, std::slice::from_ref(&a), "1,1,0,0");
    contents(Where {}, &[a, shape(), ints(&["1"])], "1,1,3,m");
    // What exporters write to expand: ones where the target says -1.
    let is_free = as_input(one(Equal {}, &[shape(), ints(&["-1"])]));
    contents(Where {}, &[is_free, ints(&["1", "1", "1", "1"]), shape()], "n,1,3,m");
    // An unknown condition does not matter where both choices agree.
    let unknown = as_input(one(Equal {}, &[ints(&["n", "1"]), ints(&["2", "1"])]));
    contents(Where {}, &[unknown, ints(&["k", "5"]), ints(&["k", "6"])], "k,5");
}

#[test]
fn constant_scales_are_rounded() {
    let x = constant(Tensor::vector(vec![1.5f32, -0.5]));
    for (op, expected) in [(Op::from(Floor {}), [1f32, -1.0]), (Ceil {}.into(), [2.0, -0.0])] {
        let inferred = one(op, std::slice::from_ref(&x));
        match inferred.content {
            Some(Content::Tensor(tensor)) => assert_eq!(tensor, Tensor::vector(expected.to_vec())),
            other => panic!("{other:?}"),
        }
    }
    assert!(one(Floor {}, &[constant(Tensor::vector(vec![0f32; 65]))]).content.is_none());
    assert!(one(Sqrt {}, &[x]).content.is_none());
}
