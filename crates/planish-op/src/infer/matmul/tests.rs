//! What inference says of matrix products and small linear algebra.

use crate::Attribute;
use crate::infer::InferErrorKind::{BadAttribute, BadShape, BadType, MissingInput};
use crate::infer::testing::{gives, refuses};

#[test]
fn matrix_products_follow_numpy() {
    gives("MatMul", &[], &["f32[3]", "f32[3]"], &["f32[]"]);
    gives("MatMul", &[], &["f32[3]", "f32[5,3,4]"], &["f32[5,4]"]);
    gives("MatMul", &[], &["f32[5,2,3]", "f32[3]"], &["f32[5,2]"]);
    gives("MatMul", &[], &["i32[2,3]", "i32[3,4]"], &["i32[2,4]"]);
    gives("MatMul", &[], &["f16[b,1,s,64]", "f16[b,8,64,s]"], &["f16[b,8,s,s]"]);
    gives("MatMul", &[], &["f32[b,s,64]", "f32[64,n]"], &["f32[b,s,n]"]);
    gives("MatMul", &[], &["f32[*]", "f32[64,n]"], &["f32[*]"]);
    refuses("MatMul", &[], &["f32[]", "f32[3]"], BadShape);
    refuses("MatMul", &[], &["f32[3]", "f32[]"], BadShape);
    refuses("MatMul", &[], &["f32[2,3]", "f32[4,3]"], BadShape);
    refuses("MatMul", &[], &["f32[2,2,3]", "f32[3,3,3]"], BadShape);
    refuses("MatMul", &[], &["f32[2,3]", "f16[3,3]"], BadType);
    refuses("MatMul", &[], &["u8[2,3]", "u8[3,3]"], BadType);
    refuses("MatMul", &[], &["f32[2,3]"], MissingInput);
}

#[test]
fn gemm_transposes_and_broadcasts() {
    let (a, b) = (("trans_a", Attribute::Bool(true)), ("trans_b", Attribute::Bool(true)));
    gives("Gemm", &[], &["f32[b,512]", "f32[512,1000]", "f32[1000]"], &["f32[b,1000]"]);
    gives("Gemm", &[a.clone(), b], &["f32[3,2]", "f32[4,3]", "f32[]"], &["f32[2,4]"]);
    gives("Gemm", &[], &["f32[2,3]", "f32[3,4]", "f32[2,1]"], &["f32[2,4]"]);
    gives("Gemm", &[], &["i64[2,3]", "i64[*]"], &["i64[2,columns0]"]);
    refuses("Gemm", &[a], &["f32[2,3]", "f32[3,4]"], BadShape);
    refuses("Gemm", &[], &["f32[2,3]", "f32[3,4]", "f32[2]"], BadShape);
    refuses("Gemm", &[], &["f32[2,3]", "f32[3,4]", "f32[1,2,4]"], BadShape);
    refuses("Gemm", &[], &["f32[2,3,1]", "f32[3,4]"], BadShape);
    refuses("Gemm", &[], &["f32[2,3]", "f32[3,4]", "f64[4]"], BadType);
}

#[test]
fn einsum_labels_sizes() {
    let equation = |text: &str| [("equation", Attribute::Str(text.to_string()))];
    gives("Einsum", &equation("bhid, bhjd -> bhij"), &["f32[b,8,i,64]", "f32[b,8,j,64]"], &["f32[b,8,i,j]"]);
    gives("Einsum", &equation("...ii->...i"), &["f32[2,n,3,3]"], &["f32[2,n,3]"]);
    gives("Einsum", &equation("...i,...i"), &["i8[5,1,3]", "i8[4,3]"], &["i8[5,4]"]);
    gives("Einsum", &equation("ij"), &["f32[*]"], &["f32[*]"]);
    gives("Einsum", &equation("ii"), &["f32[n,3]"], &["f32[]"]);
    refuses("Einsum", &equation("ij,jk"), &["f32[2,3]", "f32[4,5]"], BadShape);
    refuses("Einsum", &equation("ii"), &["f32[2,3]"], BadShape);
    refuses("Einsum", &equation("ij"), &["f32[2]"], BadShape);
    refuses("Einsum", &equation("i,j"), &["f32[2]"], BadAttribute);
    refuses("Einsum", &equation("i,,"), &["f32[2]"], BadAttribute);
    refuses("Einsum", &equation("i;"), &["f32[2]"], BadAttribute);
    refuses("Einsum", &equation("i"), &["bool[2]"], BadType);
}

#[test]
fn square_matrices_only() {
    gives("Det", &[], &["f32[3,3]"], &["f32[]"]);
    gives("Det", &[], &["f64[b,2,n,n]"], &["f64[b,2]"]);
    gives("Inverse", &[], &["f32[b,4,4]"], &["f32[b,4,4]"]);
    gives("Det", &[], &["f32[*]"], &["f32[*]"]);
    refuses("Det", &[], &["f32[3,4]"], BadShape);
    refuses("Inverse", &[], &["f32[3]"], BadShape);
    refuses("Inverse", &[], &["i32[3,3]"], BadType);
}
