//! Matrix products and small linear algebra against values computed by hand.

use std::time::Instant;

use planish_op::Attribute;
use planish_tensor::{DType, Tensor};

use crate::EvalErrorKind::{BadAttribute, BadShape, BadType, TooLarge};
use crate::testing::{counting, f32s, named, run};

#[test]
fn matmul_of_vectors_and_batches() {
    let matrix = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let row = f32s(&[2], &[10.0, 1.0]);
    let column = f32s(&[3], &[1.0, 0.0, -1.0]);
    assert_eq!(run(named("MatMul", &[]), &[&row, &matrix]).unwrap(), f32s(&[3], &[14.0, 25.0, 36.0]));
    assert_eq!(run(named("MatMul", &[]), &[&matrix, &column]).unwrap(), f32s(&[2], &[-2.0, -2.0]));
    assert_eq!(run(named("MatMul", &[]), &[&column, &column]).unwrap(), f32s(&[], &[2.0]));
    // [2,1,1,2] by [3,2,1] broadcasts to [2,3,1,1].
    let a = f32s(&[2, 1, 1, 2], &[1.0, 2.0, 3.0, 4.0]);
    let b = f32s(&[3, 2, 1], &[1.0, 1.0, 0.0, 1.0, 2.0, 0.0]);
    let expected = f32s(&[2, 3, 1, 1], &[3.0, 2.0, 2.0, 7.0, 4.0, 6.0]);
    assert_eq!(run(named("MatMul", &[]), &[&a, &b]).unwrap(), expected);
}

#[test]
fn matmul_of_empty_and_hostile_shapes() {
    let none = f32s(&[2, 0], &[]);
    let wide = f32s(&[0, 3], &[]);
    assert_eq!(run(named("MatMul", &[]), &[&none, &wide]).unwrap(), f32s(&[2, 3], &[0.0; 6]));
    assert_eq!(run(named("MatMul", &[]), &[&wide, &f32s(&[3, 2], &[0.0; 6])]).unwrap(), f32s(&[0, 2], &[]));
    let huge = Tensor::zeros(DType::F32, &[1 << 40, 0]).unwrap();
    let other = Tensor::zeros(DType::F32, &[0, 1 << 40]).unwrap();
    assert_eq!(run(named("MatMul", &[]), &[&huge, &other]), Err(TooLarge));
    assert_eq!(
        run(named("MatMul", &[]), &[&huge, &Tensor::zeros(DType::F32, &[0, 0]).unwrap()]).unwrap().len(),
        0
    );
    let deep = Tensor::zeros(DType::F32, &[1 << 40, 1 << 40, 0]).unwrap();
    assert_eq!(run(named("MatMul", &[]), &[&deep, &other]), Err(TooLarge));
    assert_eq!(run(named("MatMul", &[]), &[&f32s(&[], &[1.0]), &none]), Err(BadShape));
    assert_eq!(run(named("MatMul", &[]), &[&none, &none]), Err(BadShape));
    assert_eq!(run(named("MatMul", &[]), &[&none, &counting(DType::F64, &[0, 3])]), Err(BadType));
    assert_eq!(
        run(named("MatMul", &[]), &[&counting(DType::U8, &[1, 1]), &counting(DType::U8, &[1, 1])]),
        Err(BadType)
    );
}

#[test]
fn integer_products_are_exact_and_wrap() {
    let a = Tensor::new(&[1, 2], vec![i64::MAX, 1i64 << 53]).unwrap();
    let b = Tensor::new(&[2, 1], vec![2i64, 1]).unwrap();
    let product = run(named("MatMul", &[]), &[&a, &b]).unwrap();
    assert_eq!(product.to_i64s(), [(1i64 << 53) - 2]);
    let a = Tensor::new(&[1, 1], vec![u32::MAX]).unwrap();
    assert_eq!(run(named("MatMul", &[]), &[&a, &a]).unwrap(), Tensor::new(&[1, 1], vec![1u32]).unwrap());
    let big = Tensor::new(&[1, 1], vec![(1u64 << 60) + 1]).unwrap();
    let c = Tensor::scalar(5u64);
    let gemm = run(
        named("Gemm", &[("alpha", Attribute::Float(-3.0)), ("beta", Attribute::Float(2.0))]),
        &[&big, &big, &c],
    );
    let square = ((1u64 << 60) + 1).wrapping_mul((1 << 60) + 1);
    let expected = square.wrapping_mul(3).wrapping_neg().wrapping_add(10);
    assert_eq!(gemm.unwrap(), Tensor::new(&[1, 1], vec![expected]).unwrap());
    let a = Tensor::new(&[1, 1], vec![7i32]).unwrap();
    let half = run(named("Gemm", &[("alpha", Attribute::Float(0.5))]), &[&a, &a]).unwrap();
    assert_eq!(half.to_i64s(), [24]);
}

#[test]
fn gemm_combines() {
    let a = f32s(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let b = f32s(&[1, 3], &[1.0, 0.0, 2.0]);
    let transposed = [("trans_a", Attribute::Bool(true)), ("trans_b", Attribute::Bool(true))];
    // a' = [[1,3,5],[2,4,6]], so a' b' = [11, 14].
    assert_eq!(run(named("Gemm", &transposed), &[&a, &b]).unwrap(), f32s(&[2, 1], &[11.0, 14.0]));
    let c = f32s(&[2, 1], &[1.0, -1.0]);
    let scaled = [("alpha", Attribute::Float(2.0)), ("beta", Attribute::Float(0.5))];
    let all: Vec<(&str, Attribute)> = transposed.iter().chain(&scaled).cloned().collect();
    assert_eq!(run(named("Gemm", &all), &[&a, &b, &c]).unwrap(), f32s(&[2, 1], &[22.5, 27.5]));
    // beta = 0 hides even NaN.
    let hidden: Vec<(&str, Attribute)> =
        transposed.iter().cloned().chain([("beta", Attribute::Float(0.0))]).collect();
    assert_eq!(
        run(named("Gemm", &hidden), &[&a, &b, &f32s(&[], &[f64::NAN])]).unwrap(),
        f32s(&[2, 1], &[11.0, 14.0])
    );
    assert_eq!(run(named("Gemm", &transposed), &[&a, &b, &f32s(&[2], &[0.0; 2])]), Err(BadShape));
    assert_eq!(run(named("Gemm", &[]), &[&a, &b]), Err(BadShape));
    assert_eq!(run(named("Gemm", &[]), &[&f32s(&[2], &[0.0; 2]), &b]), Err(BadShape));
}

#[test]
fn sums_are_rounded_once() {
    // In f16 arithmetic 2048 + 1 stays 2048; the exact sum 2048 + 1 + 1 is representable.
    let a = Tensor::from_f64s(DType::F16, &[1, 3], &[2048.0, 1.0, 1.0]).unwrap();
    let b = Tensor::from_f64s(DType::F16, &[3, 1], &[1.0, 1.0, 1.0]).unwrap();
    assert_eq!(run(named("MatMul", &[]), &[&a, &b]).unwrap().to_f64s(), [2050.0]);
}

#[test]
fn einsum_of_every_kind() {
    let einsum = |text: &str, inputs: &[&Tensor]| {
        run(named("Einsum", &[("equation", Attribute::Str(text.to_string()))]), inputs)
    };
    let x = counting(DType::F32, &[2, 3]);
    let square = counting(DType::I32, &[3, 3]);
    assert_eq!(einsum("ij->ji", &[&x]).unwrap(), f32s(&[3, 2], &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]));
    assert_eq!(einsum("ij->i", &[&x]).unwrap(), f32s(&[2], &[3.0, 12.0]));
    assert_eq!(einsum("ij ->", &[&x]).unwrap(), f32s(&[], &[15.0]));
    assert_eq!(einsum("ii->i", &[&square]).unwrap().to_i64s(), [0, 4, 8]);
    assert_eq!(einsum("ii", &[&square]).unwrap().to_i64s(), [12]);
    assert_eq!(einsum("ij,ij", &[&x, &x]).unwrap(), f32s(&[], &[55.0]));
    assert_eq!(einsum("ij,kj->ik", &[&x, &x]).unwrap(), f32s(&[2, 2], &[5.0, 14.0, 14.0, 50.0]));
    assert_eq!(
        einsum("i,j", &[&f32s(&[2], &[1.0, 2.0]), &f32s(&[1], &[3.0])]).unwrap(),
        f32s(&[2, 1], &[3.0, 6.0])
    );
    // A three-operand chain: x (2x3) x' (3x2) x (2x3).
    let chain = einsum("ij,kj,kl->il", &[&x, &x, &x]).unwrap();
    assert_eq!(chain, f32s(&[2, 3], &[42.0, 61.0, 80.0, 150.0, 214.0, 278.0]));
    // The ellipsis broadcasts from the right, and a one broadcasts under a letter too.
    let batches = counting(DType::F32, &[2, 1, 2]);
    let ones = f32s(&[3, 1], &[1.0, 10.0, 100.0]);
    let out = einsum("...i,...i->...", &[&batches, &ones]).unwrap();
    assert_eq!(out, f32s(&[2, 3], &[1.0, 10.0, 100.0, 5.0, 50.0, 500.0]));
    assert_eq!(einsum("...", &[&x]).unwrap(), x);
    assert_eq!(einsum("->", &[&f32s(&[], &[7.0])]).unwrap(), f32s(&[], &[7.0]));
    assert_eq!(
        einsum("ij,jk->ik", &[&f32s(&[2, 0], &[]), &f32s(&[0, 1], &[])]).unwrap(),
        f32s(&[2, 1], &[0.0; 2])
    );
    let hollow = Tensor::zeros(DType::F32, &[1 << 40, 1 << 40, 0]).unwrap();
    assert_eq!(einsum("abc->", &[&hollow]).unwrap(), f32s(&[], &[0.0]));
    assert_eq!(einsum("ij,jk", &[&x, &x]), Err(BadShape));
    assert_eq!(einsum("ii", &[&x]), Err(BadShape));
    assert_eq!(einsum("ijk", &[&x]), Err(BadShape));
    assert_eq!(einsum("i?", &[&x]), Err(BadAttribute));
    assert_eq!(einsum("i", &[&counting(DType::Bool, &[2])]), Err(BadType));
    let long = counting(DType::F32, &[1 << 20, 1]);
    assert_eq!(einsum("ab,cd,ef->abcdef", &[&long, &long, &long]), Err(TooLarge));
}

#[test]
fn determinants_and_inverses() {
    let x = f32s(&[2, 2, 2], &[1.0, 2.0, 3.0, 4.0, 0.0, 1.0, 1.0, 0.0]);
    assert_eq!(run(named("Det", &[]), &[&x]).unwrap(), f32s(&[2], &[-2.0, -1.0]));
    let expected = f32s(&[2, 2, 2], &[-2.0, 1.0, 1.5, -0.5, 0.0, 1.0, 1.0, 0.0]);
    assert_eq!(run(named("Inverse", &[]), &[&x]).unwrap(), expected);
    let singular = f32s(&[2, 2], &[1.0, 2.0, 2.0, 4.0]);
    assert_eq!(run(named("Det", &[]), &[&singular]).unwrap(), f32s(&[], &[0.0]));
    assert!(run(named("Inverse", &[]), &[&singular]).unwrap().to_f64s().iter().all(|value| value.is_nan()));
    assert_eq!(run(named("Det", &[]), &[&f32s(&[0, 0], &[])]).unwrap(), f32s(&[], &[1.0]));
    assert_eq!(run(named("Det", &[]), &[&f32s(&[0, 3, 3], &[])]).unwrap(), f32s(&[0], &[]));
    let hollow = Tensor::zeros(DType::F32, &[0, 1 << 40, 1 << 40]).unwrap();
    assert_eq!(run(named("Det", &[]), &[&hollow]).unwrap(), f32s(&[0], &[]));
    assert_eq!(run(named("Inverse", &[]), &[&hollow]).unwrap(), hollow);
    assert_eq!(run(named("Det", &[]), &[&f32s(&[2, 3], &[0.0; 6])]), Err(BadShape));
    assert_eq!(run(named("Inverse", &[]), &[&counting(DType::I32, &[2, 2])]), Err(BadType));
}

/// A guard against an accidental scalar inner loop, far above what a loaded machine needs (0.03 s idle).
const MAX_MATMUL_SECONDS: f64 = 5.0;

#[test]
fn a_large_product_is_quick() {
    let x = counting(DType::F32, &[512, 512]);
    let start = Instant::now();
    let product = run(named("MatMul", &[]), &[&x, &x]).unwrap();
    let seconds = start.elapsed().as_secs_f64();
    // Row 0 is 0..512, column 0 is the multiples of 512.
    let expected: f64 = (0..512).map(|k| f64::from(k) * f64::from(k) * 512.0).sum();
    assert_eq!(product.to_f64s()[0], f64::from(expected as f32));
    assert!(seconds < MAX_MATMUL_SECONDS, "{seconds} s");
}
