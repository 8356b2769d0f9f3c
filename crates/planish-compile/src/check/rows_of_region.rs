//! Single rows of a batch of a step whose layers leave rows apart: what a large fused step is evaluated on.

use planish_kernel::{Ref, Region};
use planish_op::Op;
use planish_op::Value;
use planish_reference::evaluate;
use planish_tensor::Tensor;

/// Rows of a batch that are looked at.
const N_ROWS: usize = 2;

/// A step's inputs cut to one row, and the points of that row: as the output has them, and as the cut one has.
pub(super) struct Row {
    pub(super) inputs: Vec<Option<Value>>,
    pub(super) points: Vec<Vec<usize>>,
    pub(super) inner_points: Vec<Vec<usize>>,
}

/// The rows of the first of `suspects`, the first and the last row, each with its points; `None` where the region may mix rows, or there is one only.
pub(super) fn cut_rows(
    region: &Region,
    inputs: &[Option<Value>],
    output: &[usize],
    points: &[Vec<usize>],
    suspects: &[Vec<usize>],
) -> Option<Vec<Row>> {
    let n_rows = *output.first().filter(|&&n| n > 1)?;
    let mut has_rows = vec![false; inputs.len()];
    let mut is_shared = vec![false; inputs.len()];
    for node in &region.nodes {
        let leaves_apart = node.op.is_elementwise()
            || matches!(
                node.op,
                Op::Conv(_)
                    | Op::ConvTranspose(_)
                    | Op::MaxPool(_)
                    | Op::AveragePool(_)
                    | Op::GlobalAveragePool(_)
                    | Op::GlobalMaxPool(_)
            );
        if !leaves_apart {
            return None;
        }
        for (place, reference) in node.inputs.iter().enumerate() {
            let Some(Ref::Input(idx)) = reference else { continue };
            let shape = inputs.get(*idx as usize)?.as_ref()?.as_tensor()?.shape();
            let follows = shape.len() == output.len() && shape.first() == Some(&n_rows);
            let is_image = place == 0 || node.op.is_pointwise();
            let list = if is_image && follows { &mut has_rows } else { &mut is_shared };
            list[*idx as usize] = true;
        }
    }
    if has_rows.iter().zip(&is_shared).any(|(rows, shared)| *rows && *shared) || !has_rows.contains(&true) {
        return None;
    }
    let mut numbers: Vec<usize> = Vec::new();
    for row in suspects.iter().map(|point| point[0]).chain([0, n_rows - 1]) {
        if !numbers.contains(&row) && numbers.len() < N_ROWS {
            numbers.push(row);
        }
    }
    let mut rows = Vec::new();
    for row in numbers {
        let cut = |(value, has_rows): (&Option<Value>, &bool)| -> Option<Option<Value>> {
            match value {
                Some(value) if *has_rows => Some(Some(slice(value, row)?)),
                other => Some(other.clone()),
            }
        };
        let inputs = inputs.iter().zip(&has_rows).map(cut).collect::<Option<Vec<_>>>()?;
        let points: Vec<Vec<usize>> = points
            .iter()
            .filter(|point| point[0] == row || !suspects.contains(point))
            .map(|point| {
                // Points of rows that are not looked at are looked at in this one.
                let mut point = point.clone();
                point[0] = row;
                point
            })
            .collect();
        let inner = |point: &Vec<usize>| {
            let mut point = point.clone();
            point[0] = 0;
            point
        };
        rows.push(Row { inputs, inner_points: points.iter().map(inner).collect(), points });
    }
    Some(rows)
}

fn slice(value: &Value, row: usize) -> Option<Value> {
    let ends = |at: usize| Value::Tensor(Tensor::vector(vec![at as i64]));
    let op: Op = planish_op::Slice {}.into();
    let outputs = evaluate(&op, &[Some(value), Some(&ends(row)), Some(&ends(row + 1))], 1).ok()?;
    outputs.into_iter().next()
}
