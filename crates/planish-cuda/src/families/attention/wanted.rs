//! What an attention's operands say: heads, strides, masks, the past, and which results are wanted.

use planish_gpu::operands::is_float;
use planish_kernel::attention::{Heads, mask_strides};
use planish_kernel::{Operand, Problem, Ref};
use planish_op::Op;
use planish_tensor::DType;

/// An operand by its place among the problem's, and how it lies.
pub(super) type At = (usize, Heads);

#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) q: At,
    pub(super) k: At,
    pub(super) v: At,
    /// Keys and values from before.
    pub(super) past: Option<(At, At)>,
    /// The input that says how many keys of each batch count.
    pub(super) lengths: Option<usize>,
    pub(super) out: At,
    /// Keys and values with those from before, where they are results.
    pub(super) present: [Option<At>; 2],
    /// Where scores are a result, and of which stage.
    pub(super) scores: Option<(At, i64)>,
    /// Input, strides of batch, head, query and key, and keys that it has.
    pub(super) mask: Option<(usize, [usize; 4], usize)>,
    pub(super) dtype: DType,
    pub(super) scale: f32,
    pub(super) softcap: f32,
    pub(super) causal: bool,
}

impl Wanted {
    /// Keys in all.
    pub(super) fn n_keys(&self) -> usize {
        self.n_past() + self.k.1.sizes[2]
    }

    pub(super) fn n_past(&self) -> usize {
        self.past.map_or(0, |(keys, _)| keys.1.sizes[2])
    }

    /// Whether there is nothing but queries, keys, values, a mask and the one result.
    pub(super) fn is_simple(&self) -> bool {
        let results = self.present.iter().flatten().count() + self.scores.iter().count();
        self.past.is_none() && self.lengths.is_none() && results == 0 && self.n_keys() > 0
    }
}

pub(super) fn wanted(problem: &Problem) -> Option<Wanted> {
    let [node] = &problem.region.nodes[..] else { return None };
    let Op::Attention(op) = &node.op else { return None };
    let given = |place: usize| node.inputs.get(place).copied().flatten();
    let input = |place: usize| match given(place) {
        Some(Ref::Input(idx)) => Some(idx as usize),
        _ => None,
    };
    if (3..=6).any(|place| given(place).is_some() && input(place).is_none()) {
        return None;
    }
    let output = |nth: u32| {
        let goal = Ref::Node { node: 0, output: nth };
        let idx = problem.region.outputs.iter().position(|reference| *reference == goal)?;
        Some((idx, problem.outputs.get(idx)?))
    };
    let (out, result) = output(0)?;
    let dtype = result.dtype;
    let read = |place: usize, n_heads: Option<i64>| {
        let idx = input(place)?;
        let operand = problem.inputs.get(idx)?;
        let fits = operand.dtype == dtype && operand.packed.is_none();
        if fits { Some((idx, Heads::of(operand, n_heads)?)) } else { None }
    };
    let written = |nth: u32| match output(nth) {
        None => Some(None),
        Some((idx, operand)) if operand.dtype == dtype => Some(Some((idx, Heads::of(operand, None)?))),
        Some(_) => None,
    };
    let (q, k, v) = (read(0, op.q_num_heads)?, read(1, op.kv_num_heads)?, read(2, op.kv_num_heads)?);
    let past = match (given(4), given(5)) {
        (None, None) => None,
        _ => Some((read(4, None)?, read(5, None)?)),
    };
    let lengths = input(6);
    let (present, scores) = ([written(1)?, written(2)?], written(3)?);
    let outs = Heads::of(result, op.q_num_heads)?;
    let [batch, n_heads, n_queries, size] = q.1.sizes;
    let [_, kv_heads, n_new, _] = k.1.sizes;
    let value_size = v.1.sizes[3];
    let n_past = past.map_or(0, |(keys, _)| keys.1.sizes[2]);
    let n_keys = n_past + n_new;
    let is_of = |at: Option<At>, sizes: [usize; 4]| at.is_none_or(|at| at.1.sizes == sizes);
    let fits = is_float(dtype)
        && k.1.sizes == [batch, kv_heads, n_new, size]
        && v.1.sizes == [batch, kv_heads, n_new, value_size]
        && outs.sizes == [batch, n_heads, n_queries, value_size]
        && is_of(past.map(|past| past.0), [batch, kv_heads, n_past, size])
        && is_of(past.map(|past| past.1), [batch, kv_heads, n_past, value_size])
        && is_of(present[0], [batch, kv_heads, n_keys, size])
        && is_of(present[1], [batch, kv_heads, n_keys, value_size])
        && is_of(scores, [batch, n_heads, n_queries, n_keys])
        && lengths.is_none_or(|idx| {
            let operand = &problem.inputs[idx];
            operand.dtype == DType::I64 && operand.dims == [batch] && operand.strides == [1]
        })
        && kv_heads > 0
        && n_heads.is_multiple_of(kv_heads);
    let mask = match input(3) {
        None => None,
        Some(idx) => {
            let (strides, keys) = mask(&problem.inputs[idx], [batch, n_heads, n_queries, n_keys])?;
            Some((idx, strides, keys))
        }
    };
    fits.then(|| Wanted {
        q,
        k,
        v,
        past,
        lengths,
        out: (out, outs),
        present,
        scores: scores.map(|at| (at, op.qk_matmul_output_mode)),
        mask,
        dtype,
        scale: op.scale.unwrap_or_else(|| (1.0 / (size as f64).sqrt()) as f32),
        softcap: op.softcap,
        causal: op.is_causal,
    })
}

/// The mask's strides along batch, head, query and key, and how many keys it has.
fn mask(operand: &Operand, scores: [usize; 4]) -> Option<([usize; 4], usize)> {
    let known = is_float(operand.dtype) || matches!(operand.dtype, DType::Bool | DType::I32 | DType::I64);
    (known && operand.packed.is_none()).then_some(())?;
    mask_strides(operand, scores)
}
