//! Building: the Attention and what stands around it.

use planish_ir::NodeId;
use planish_op::{Add, Attention, IsNaN, Mul, ReduceSum, Squeeze, Transpose, Unsqueeze, Where};
use planish_tensor::Tensor;

use super::read::{Operands, Parts, Turned, swapped};
use crate::pattern::{Found, Miss, output, relying_on};
use crate::rule::{Operand, Patch};
use crate::view::View;

pub(super) fn patch(cx: &View<'_>, root: NodeId, parts: Parts, operands: Operands) -> Found<Patch> {
    let node = cx.node(root);
    let y = output(node)?;
    let name = &*node.name;
    let Operands { query, key, value, scale, rank } = operands;
    let mut patch = Patch::new();
    let mut value = turn(&mut patch, name, value);
    let mut inputs = vec![Operand::from(query), turn(&mut patch, name, key), value];
    let axes = missing_axes(rank);
    if !axes.is_empty() {
        let axes = patch.constant("axes", Tensor::vector(axes.clone()));
        inputs.iter_mut().for_each(|input| *input = patch.node(name, Unsqueeze {}, &[*input, axes]));
        value = inputs[2];
    }
    let mut mask: Option<Operand> = None;
    for &added in &parts.masks {
        let added = Operand::from(added);
        mask = Some(match mask {
            Some(mask) => patch.node(name, Add {}, &[mask, added]),
            None => added,
        });
    }
    let mask_rank = parts.masks.iter().map(|&mask| cx.rank(mask)).max().flatten();
    if let (Some(wide), 3, Some(3)) = (mask, rank, mask_rank) {
        let axes = patch.constant("axes", Tensor::vector(missing_axes(3)));
        mask = Some(patch.node(name, Unsqueeze {}, &[wide, axes]));
    }
    let op = Attention {
        qk_matmul_output_mode: 0,
        softcap: 0.0,
        softmax_precision: None,
        kv_num_heads: None,
        q_num_heads: None,
        scale: Some(scale as f32),
        is_causal: false,
    };
    let mut all: Vec<Option<Operand>> = inputs.into_iter().map(Some).collect();
    all.extend(mask.map(Some));
    let mut result = patch.node_with(name, op, all, 1).pop().ok_or(Miss::No)?;
    if parts.is_guarded {
        let dtype = cx.dtype(query).ok_or(Miss::No)?;
        let zero = Tensor::zeros(dtype, &[]).map_err(|_| Miss::No)?;
        let zero = patch.constant("zero", zero);
        let rows = patch.constant("axes", Tensor::vector(vec![-2i64]));
        let nothing = patch.node(name, Mul {}, &[value, zero]);
        let sums = ReduceSum { noop_with_empty_axes: false, keepdims: true };
        let nothing = patch.node(name, sums, &[nothing, rows]);
        let is_nan = patch.node(name, IsNaN {}, &[result]);
        result = patch.node(name, Where {}, &[is_nan, nothing, result]);
    }
    if !axes.is_empty() {
        let axes = patch.constant("axes", Tensor::vector(axes));
        result = patch.node(name, Squeeze {}, &[result, axes]);
    }
    if parts.is_transposed {
        let perm = swapped((0..rank as i64).collect());
        result = patch.node(name, Transpose { perm: Some(perm) }, &[result]);
    }
    patch.replace(y, result);
    Ok(relying_on(patch, &parts.nodes))
}

/// The axes that make a product of this rank one of rank 4: the first axis of three is the batch, so that it
/// stays what symbols are expected at.
fn missing_axes(rank: usize) -> Vec<i64> {
    match rank {
        2 => vec![0, 1],
        3 => vec![1],
        _ => Vec::new(),
    }
}

fn turn(patch: &mut Patch, name: &str, turned: Turned) -> Operand {
    match turned.perm {
        Some(perm) => patch.node(name, Transpose { perm: Some(perm) }, &[turned.source.into()]),
        None => turned.source.into(),
    }
}
