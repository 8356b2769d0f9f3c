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
    // Rank 3 is what the operator calls packed heads, here one.
    if rank == 2 {
        let axes = patch.constant("axes", Tensor::vector(vec![0i64]));
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
        // The scores have an axis for the head.
        let axes = patch.constant("axes", Tensor::vector(vec![1i64]));
        mask = Some(patch.node(name, Unsqueeze {}, &[wide, axes]));
    }
    let op = Attention {
        qk_matmul_output_mode: 0,
        softcap: 0.0,
        softmax_precision: None,
        kv_num_heads: (rank < 4).then_some(1),
        q_num_heads: (rank < 4).then_some(1),
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
    if rank == 2 {
        let axes = patch.constant("axes", Tensor::vector(vec![0i64]));
        result = patch.node(name, Squeeze {}, &[result, axes]);
    }
    if parts.is_transposed {
        let perm = swapped((0..rank as i64).collect());
        result = patch.node(name, Transpose { perm: Some(perm) }, &[result]);
    }
    patch.replace(y, result);
    Ok(relying_on(patch, &parts.nodes))
}

fn turn(patch: &mut Patch, name: &str, turned: Turned) -> Operand {
    match turned.perm {
        Some(perm) => patch.node(name, Transpose { perm: Some(perm) }, &[turned.source.into()]),
        None => turned.source.into(),
    }
}
