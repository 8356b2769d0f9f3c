//! Elements of matrix products: one row of the left side and one column of the right.

use std::ops::Range;

use planish_op::{Gemm, Op};

use super::cut::{Channels, Cut, single, within};
use crate::{Evaluation, nd};

/// The ranges of the left and the right input that an element of their product depends on.
struct Product {
    left: Vec<Range<usize>>,
    right: Vec<Range<usize>>,
}

impl Product {
    /// Of inputs number `left` and `right`, in the manner of numpy.
    fn of(cx: &Evaluation<'_>, left: usize, right: usize, point: &[usize]) -> Option<Product> {
        let (a, b) = (cx.tensor(left).ok()?.shape(), cx.tensor(right).ok()?.shape());
        let (a_batch, a_matrix) = a.split_at(a.len().saturating_sub(2));
        let (b_batch, b_matrix) = b.split_at(b.len().saturating_sub(2));
        let (depth, rows) = a_matrix.split_last()?;
        // A vector on the right has no columns.
        let (b_depth, columns) = b_matrix.split_first()?;
        let batch = nd::broadcast(cx, a_batch, b_batch).ok().filter(|_| depth == b_depth)?;
        within(point, &[&batch, rows, columns].concat())?;
        let (at_batch, at) = point.split_at(batch.len());
        let (at_row, at_column) = at.split_at(rows.len());
        let along = |own: &[usize]| -> Vec<Range<usize>> {
            let missing = batch.len() - own.len();
            let range = |(&dim, &place): (&usize, &usize)| if dim == 1 { 0..1 } else { place..place + 1 };
            own.iter().zip(&at_batch[missing..]).map(range).collect()
        };
        let whole = 0..*depth;
        Some(Product {
            left: [along(a_batch), single(at_row), vec![whole.clone()]].concat(),
            right: [along(b_batch), vec![whole], single(at_column)].concat(),
        })
    }
}

pub(super) fn matmul(op: &Op, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    let product = Product::of(cx, 0, 1, point)?;
    let cut = Cut::new(op.clone(), cx, vec![0; point.len()]);
    cut.restrict(cx, 0, &product.left)?.restrict(cx, 1, &product.right)
}

pub(super) fn matmul_integer(op: &Op, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    quantized(op, cx, point, (0, &[2]), (1, &[3]))
}

pub(super) fn qlinear_matmul(op: &Op, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    quantized(op, cx, point, (0, &[1, 2]), (3, &[4, 5]))
}

/// Each side is an input with its scales and zero points.
fn quantized(
    op: &Op,
    cx: &Evaluation<'_>,
    point: &[usize],
    (left, left_parameters): (usize, &[usize]),
    (right, right_parameters): (usize, &[usize]),
) -> Option<Cut> {
    let product = Product::of(cx, left, right, point)?;
    let mut cut = Cut::new(op.clone(), cx, vec![0; point.len()])
        .restrict(cx, left, &product.left)?
        .restrict(cx, right, &product.right)?;
    let row = product.left.iter().rev().nth(1);
    let column = if product.right.len() > 1 { product.right.last() } else { None };
    let (left_shape, right_shape) = (cx.tensor(left).ok()?.shape(), cx.tensor(right).ok()?.shape());
    let n_rows = left_shape.iter().rev().nth(1);
    for (parameters, shape, ranges, n, line) in [
        (left_parameters, left_shape, &product.left, n_rows, row),
        (right_parameters, right_shape, &product.right, right_shape.last(), column),
    ] {
        for &idx in parameters {
            cut = match cx.optional_tensor(idx).ok()? {
                // One element for every row of the left side or column of the right.
                Some(parameter) if parameter.rank() == 1 && parameter.len() != 1 => {
                    cut.restrict_vector(cx, idx, &Channels { n: *n?, taken: line?.clone() })?
                }
                Some(parameter) if parameter.len() != 1 => {
                    cut.restrict_broadcast(cx, idx, (shape, ranges))?
                }
                _ => cut,
            };
        }
    }
    Some(cut)
}

pub(super) fn gemm(op: &Gemm, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    let (&[a_rows, a_columns], &[b_rows, b_columns]) =
        (cx.tensor(0).ok()?.shape(), cx.tensor(1).ok()?.shape())
    else {
        return None;
    };
    let (n_rows, depth) = if op.trans_a { (a_columns, a_rows) } else { (a_rows, a_columns) };
    let (b_depth, n_columns) = if op.trans_b { (b_columns, b_rows) } else { (b_rows, b_columns) };
    let shape = [n_rows, n_columns];
    within(point, &shape).filter(|()| depth == b_depth)?;
    let [row, column] = [point[0], point[1]].map(|place| place..place + 1);
    let (mut left, mut right) = ([row.clone(), 0..depth], [0..depth, column.clone()]);
    if op.trans_a {
        left.reverse();
    }
    if op.trans_b {
        right.reverse();
    }
    Cut::new(op.clone(), cx, vec![0, 0]).restrict(cx, 0, &left)?.restrict(cx, 1, &right)?.restrict_broadcast(
        cx,
        2,
        (&shape, &[row, column]),
    )
}
