//! Transposes and their orders of axes.

use planish_ir::{Node, ValueId};
use planish_op::{Op, Transpose};

use crate::view::View;

/// The input and order of a Transpose.
pub(crate) fn transposed(cx: &View<'_>, node: &Node) -> Option<(ValueId, Vec<usize>)> {
    let (Op::Transpose(op), Some(input)) = (&node.op, cx.input(node, 0)) else { return None };
    let rank = cx.rank(input)?;
    let perm = match &op.perm {
        Some(perm) => planish_tensor::distinct_axes(perm, rank).ok()?,
        None => (0..rank).rev().collect(),
    };
    (perm.len() == rank).then_some((input, perm))
}

pub(crate) fn inverse(perm: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; perm.len()];
    perm.iter().enumerate().for_each(|(axis, &from)| inverse[from] = axis);
    inverse
}

/// The order of a Transpose by `second` of a Transpose by `first`.
pub(crate) fn after(first: &[usize], second: &[usize]) -> Vec<usize> {
    second.iter().map(|&axis| first[axis]).collect()
}

pub(crate) fn is_identity(perm: &[usize]) -> bool {
    perm.iter().enumerate().all(|(axis, &from)| axis == from)
}

pub(crate) fn transpose_op(perm: &[usize]) -> Transpose {
    Transpose { perm: Some(perm.iter().map(|&axis| axis as i64).collect()) }
}
