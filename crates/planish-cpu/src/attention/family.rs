//! The family of attention: which operand is what, for inputs of rank 3 and 4.

use planish_kernel::attention::{Heads, mask_strides};
use planish_kernel::{Budget, Candidate, KernelError, Layout, Operand, Problem, Ref, Tactic, Want};
use planish_op::Op;
use planish_tensor::{DType, Tensor};

use super::{Attention, HeadStrides, MaskPlace};
use crate::family::{Family, Work};
use crate::gemm::Tile;
use crate::isa::Isa;
use crate::price::expected_ns;
use crate::shared::Shared;
use crate::team::Team;

/// Raised when the kernel changes.
const REVISION: u32 = 3;

/// Operations that an exponential counts as, beside the products.
const EXP_OPERATIONS: f64 = 40.0;

/// Attention over new keys and values, with or without a mask.
pub(crate) struct AttentionFamily;

/// An operand seen as `[batch, head, step, feature]`: sizes and strides.
fn heads(operand: &Operand, n_heads: Option<i64>) -> Option<([usize; 4], HeadStrides)> {
    let Heads { sizes, strides: [batch, head, step] } = Heads::of(operand, n_heads)?;
    Some((sizes, HeadStrides { batch, head, step }))
}

fn plan(isa: Isa, problem: &Problem, tile: Tile) -> Option<Attention> {
    let ([node], [out]) = (&problem.region.nodes[..], &problem.outputs[..]) else { return None };
    let Op::Attention(op) = &node.op else { return None };
    let input = |place: usize| match node.inputs.get(place).copied().flatten() {
        Some(Ref::Input(idx)) => Some(idx as usize),
        _ => None,
    };
    let absent = |place: usize| node.inputs.get(place).copied().flatten().is_none();
    if node.n_outputs != 1 || !(4..=6).all(absent) {
        return None;
    }
    let (q, k, v) = (input(0)?, input(1)?, input(2)?);
    let floats = [&problem.inputs[q], &problem.inputs[k], &problem.inputs[v], out];
    if floats.iter().any(|operand| operand.dtype != DType::F32) {
        return None;
    }
    let (q_sizes, q_strides) = heads(&problem.inputs[q], op.q_num_heads)?;
    let (k_sizes, k_strides) = heads(&problem.inputs[k], op.kv_num_heads)?;
    let (v_sizes, v_strides) = heads(&problem.inputs[v], op.kv_num_heads)?;
    let (out_sizes, out_strides) = heads(out, op.q_num_heads)?;
    let [batch, n_heads, n_queries, size] = q_sizes;
    let [_, kv_heads, n_keys, _] = k_sizes;
    let value_size = v_sizes[3];
    let fits = k_sizes == [batch, kv_heads, n_keys, size]
        && v_sizes == [batch, kv_heads, n_keys, value_size]
        && out_sizes == [batch, n_heads, n_queries, value_size]
        && kv_heads > 0
        && n_heads.is_multiple_of(kv_heads);
    if !fits {
        return None;
    }
    let scores = [batch, n_heads, n_queries, n_keys];
    let mask = match node.inputs.get(3).copied().flatten() {
        None => None,
        Some(Ref::Input(idx)) => Some(mask(&problem.inputs[idx as usize], idx as usize, scores)?),
        // Of a decoder's first token, for one: a mask of one element that a graph computes of constants.
        Some(constant) => {
            masks_nothing(problem.region.constant(Some(constant))?, scores).then_some(())?;
            None
        }
    };
    Some(Attention {
        isa,
        tile,
        batch,
        heads: n_heads,
        group: n_heads / kv_heads,
        n_queries,
        n_keys,
        size,
        value_size,
        q: (q, q_strides),
        k: (k, k_strides),
        v: (v, v_strides),
        out: out_strides,
        mask,
        scale: op.scale.unwrap_or_else(|| (1.0 / (size as f64).sqrt()) as f32),
        softcap: op.softcap,
        causal: op.is_causal,
    })
}

/// Whether a mask of one element leaves every probability as it is: the same finite number is added to all scores.
fn masks_nothing(mask: &Tensor, scores: [usize; 4]) -> bool {
    let reaches_all = mask_strides(&Operand::dense(mask.dtype(), mask.shape(), Layout::Plain), scores)
        .is_some_and(|(_, n_keys)| n_keys >= scores[3]);
    let keeps = match (mask.dtype(), &mask.to_f64s()[..]) {
        (DType::Bool, [x]) => *x != 0.0,
        (DType::F32, [x]) => x.is_finite(),
        _ => false,
    };
    mask.len() == 1 && reaches_all && keeps
}

fn mask(operand: &Operand, input: usize, scores: [usize; 4]) -> Option<MaskPlace> {
    matches!(operand.dtype, DType::F32 | DType::Bool).then_some(())?;
    let ([batch, head, step, key], n_keys) = mask_strides(operand, scores)?;
    let strides = HeadStrides { batch, head, step };
    Some(MaskPlace { input, boolean: operand.dtype == DType::Bool, strides, key, n_keys })
}

impl Family for AttentionFamily {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Some(plan) = plan(isa, problem, Tile::usual(isa)) else { return Vec::new() };
        let n_scores = (plan.batch * plan.heads * plan.n_queries * plan.n_keys) as f64;
        let operations = n_scores * (2.0 * (plan.size + plan.value_size) as f64 + EXP_OPERATIONS);
        vec![Candidate::new(
            Tactic::new(format!("attention_f32_{isa}"), REVISION),
            vec![Want::inside(Layout::Plain); problem.inputs.len()],
            vec![Want::inside(Layout::Plain)],
            expected_ns(isa, operations, problem.traffic_bytes() as f64, problem.threads),
        )]
    }

    fn prepare(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let plan = plan(isa, problem, Tile::usual(isa));
        let plan = plan.ok_or_else(|| KernelError::unsupported(format!("{tactic}: not this attention")))?;
        Ok(Box::new(plan))
    }
}

impl Work for Attention {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        Attention::workspace_bytes(self, n_slots)
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let Shared { inputs, outputs, workspace } = shared;
        // SAFETY: the caller grants what the operands span.
        unsafe { Attention::run(self, Shared { inputs, outputs, workspace }, team) };
        Ok(())
    }
}
