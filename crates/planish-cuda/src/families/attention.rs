//! The family of attention: scores, softmax and the mean of the values in one kernel, for inputs of rank 3 and 4.

use planish_kernel::{Candidate, KernelError, Layout, Operand, Problem, Ref, Tactic, Want};
use planish_op::{self as op, Op};
use planish_tensor::DType;

use crate::codegen::storage_type;
use crate::gpu::Gpu;
use crate::operands::{candidate, is_float, laid, refuse, storage};
use crate::samples::Sample;
use crate::space::{blocks, int};
use crate::steps::{Arg, Code, Plan, Planner, Slot};

#[cfg(test)]
mod tests;

const REVISION: u32 = 1;

/// The most features that registers hold sums of.
const MAX_FEATURES: usize = 128;
/// Keys of a step of the tensor cores' form, and what is added to rows in shared memory.
const KEYS: usize = 64;
const ROW_PAD: usize = 8;
/// Queries and keys of a step of the plain form.
const PLAIN_ROWS: usize = 32;

/// Attention over new keys and values, with or without a mask.
pub(crate) struct Attention;

/// Sizes and strides of batch, head and step of an operand whose features are contiguous.
#[derive(Clone, Copy, Debug)]
struct Heads {
    sizes: [usize; 4],
    strides: [usize; 3],
}

fn heads(operand: &Operand, n_heads: Option<i64>) -> Option<Heads> {
    match (&operand.dims[..], &operand.strides[..]) {
        (&[batch, heads, seq, size], &[b, h, s, f]) if f == 1 || size <= 1 => {
            Some(Heads { sizes: [batch, heads, seq, size], strides: [b, h, s] })
        }
        (&[batch, seq, hidden], &[b, s, f]) if f == 1 || hidden <= 1 => {
            let heads = usize::try_from(n_heads?).ok().filter(|&n| n > 0 && hidden % n == 0)?;
            let size = hidden / heads;
            Some(Heads { sizes: [batch, heads, seq, size], strides: [b, size, s] })
        }
        _ => None,
    }
}

struct Wanted {
    q: (usize, Heads),
    k: (usize, Heads),
    v: (usize, Heads),
    out: Heads,
    /// Input, strides of batch, head, query and key, and keys that it has.
    mask: Option<(usize, [usize; 4], usize)>,
    dtype: DType,
    scale: f32,
    softcap: f32,
    causal: bool,
}

fn wanted(problem: &Problem) -> Option<Wanted> {
    let ([node], [out]) = (&problem.region.nodes[..], &problem.outputs[..]) else { return None };
    let Op::Attention(op) = &node.op else { return None };
    let input = |place: usize| match node.inputs.get(place).copied().flatten() {
        Some(Ref::Input(idx)) => Some(idx as usize),
        _ => None,
    };
    let absent = |place: usize| node.inputs.get(place).copied().flatten().is_none();
    if node.n_outputs != 1 || !(4..=6).all(absent) || (!absent(3) && input(3).is_none()) {
        return None;
    }
    let (q, k, v) = (input(0)?, input(1)?, input(2)?);
    let all = [&problem.inputs[q], &problem.inputs[k], &problem.inputs[v], out];
    if !is_float(out.dtype)
        || all.iter().any(|operand| operand.dtype != out.dtype || operand.packed.is_some())
    {
        return None;
    }
    let (qs, ks) = (heads(all[0], op.q_num_heads)?, heads(all[1], op.kv_num_heads)?);
    let (vs, outs) = (heads(all[2], op.kv_num_heads)?, heads(out, op.q_num_heads)?);
    let [batch, n_heads, n_queries, size] = qs.sizes;
    let [_, kv_heads, n_keys, _] = ks.sizes;
    let value_size = vs.sizes[3];
    let fits = ks.sizes == [batch, kv_heads, n_keys, size]
        && vs.sizes == [batch, kv_heads, n_keys, value_size]
        && outs.sizes == [batch, n_heads, n_queries, value_size]
        && kv_heads > 0
        && n_heads.is_multiple_of(kv_heads)
        && size.max(value_size) <= MAX_FEATURES;
    let mask = match input(3) {
        None => None,
        Some(idx) => {
            let (strides, keys) = mask(&problem.inputs[idx], [batch, n_heads, n_queries, n_keys])?;
            Some((idx, strides, keys))
        }
    };
    fits.then(|| Wanted {
        q: (q, qs),
        k: (k, ks),
        v: (v, vs),
        out: outs,
        mask,
        dtype: out.dtype,
        scale: op.scale.unwrap_or_else(|| (1.0 / (size as f64).sqrt()) as f32),
        softcap: op.softcap,
        causal: op.is_causal,
    })
}

/// The mask's strides along batch, head, query and key; its last axis may be shorter than the keys.
fn mask(operand: &Operand, scores: [usize; 4]) -> Option<([usize; 4], usize)> {
    let rank = operand.rank();
    if rank > 4 || !(is_float(operand.dtype) || operand.dtype == DType::Bool) || operand.packed.is_some() {
        return None;
    }
    let stride = |axis: usize| {
        let own = (axis + rank).checked_sub(4);
        own.map_or(Some(0), |own| match operand.dims[own] {
            1 => Some(0),
            dim if dim == scores[axis] => Some(operand.strides[own]),
            _ => None,
        })
    };
    let (key, n_keys) = match rank {
        0 => (0, scores[3]),
        _ => (operand.strides[rank - 1], operand.dims[rank - 1]),
    };
    (n_keys <= scores[3]).then_some(())?;
    Some(([stride(0)?, stride(1)?, stride(2)?, key], n_keys))
}

/// Warps of the tensor cores' form that a tactic names; `None` for the plain form.
fn warps_of(tactic: &str) -> Option<usize> {
    tactic.strip_prefix("attention_mma")?.parse().ok().filter(|warps| [1, 2, 4].contains(warps))
}

fn plan(problem: &Problem, warps: Option<usize>) -> Result<Plan, KernelError> {
    let Some(wanted) = wanted(problem) else {
        return refuse("not an attention that kernels here compute");
    };
    let Wanted { q, k, v, out, .. } = &wanted;
    let [batch, n_heads, n_queries, size] = q.1.sizes;
    let [_, kv_heads, n_keys, _] = k.1.sizes;
    let value_size = v.1.sizes[3];
    if problem.outputs[0].is_empty() {
        return Ok(Plan::default());
    }
    if n_keys == 0 {
        return refuse("attention without keys");
    }
    let rows = warps.map_or(PLAIN_ROWS, |warps| 16 * warps);
    let mut ints = vec![int(n_heads)?, int(n_heads / kv_heads)?, int(n_queries)?, int(n_keys)?];
    for operand in [&q.1, &k.1, &v.1, out] {
        for stride in operand.strides {
            ints.push(int(stride)?);
        }
    }
    let (mask_strides, mask_keys) = wanted.mask.map_or(([0; 4], 0), |(_, strides, keys)| (strides, keys));
    for stride in mask_strides {
        ints.push(int(stride)?);
    }
    ints.extend([int(mask_keys)?, wanted.scale.to_bits() as i32, wanted.softcap.to_bits() as i32]);
    ints.extend([
        i32::from(wanted.mask.is_some()),
        int(size)?,
        int(value_size)?,
        int(n_queries.div_ceil(rows))?,
    ]);
    let mask_type = match wanted.mask {
        Some((idx, ..)) => storage(&problem.inputs[idx])?,
        None => "float",
    };
    let round = if warps.is_some() { 16 } else { 8 };
    let (d, dv) = (size.next_multiple_of(round), value_size.next_multiple_of(round));
    let scorer = include_str!("../../kernels/attention.cuh");
    let (file, text) = match warps {
        Some(_) => ("attention.cu", include_str!("../../kernels/attention.cu")),
        None => ("attention_plain.cu", include_str!("../../kernels/attention_plain.cu")),
    };
    let strides = [&q.1, &k.1, &v.1, out].map(|operand| operand.strides);
    let wide = size % 8 == 0 && value_size % 8 == 0 && strides.iter().flatten().all(|stride| stride % 8 == 0);
    let Some(element) = storage_type(wanted.dtype) else {
        return refuse(format!("attention of {}", wanted.dtype));
    };
    let is_bool = wanted.mask.is_some_and(|(idx, ..)| problem.inputs[idx].dtype == DType::Bool);
    let source = Code::new(file, &format!("{scorer}\n{text}"), "attention", ints.len())
        .define("T", element)
        .define("MASK_T", mask_type)
        .define("HAS_MASK", u8::from(wanted.mask.is_some()))
        .define("MASK_BOOL", u8::from(is_bool))
        .define("HAS_CAP", u8::from(wanted.softcap > 0.0))
        .define("CAUSAL", u8::from(wanted.causal))
        .define("D", d)
        .define("DV", dv)
        .define("WARPS", warps.unwrap_or(1))
        .define("WIDE", u8::from(wide))
        .source();
    let args = vec![
        Arg::Address(Slot::Input(q.0), 0),
        Arg::Address(Slot::Input(k.0), 0),
        Arg::Address(Slot::Input(v.0), 0),
        wanted.mask.map_or(Arg::Nothing, |(idx, ..)| Arg::Address(Slot::Input(idx), 0)),
        Arg::Address(Slot::Output(0), 0),
        Arg::Ints(ints),
    ];
    if n_heads.max(batch) > 65_535 {
        return refuse("more heads than a grid has");
    }
    let grid = [blocks(n_queries, rows)?, n_heads as u32, batch as u32];
    let (threads, shared) = match warps {
        Some(warps) => (32 * warps, KEYS * (d + dv + 2 * ROW_PAD) * 2),
        None => (256, 4 * PLAIN_ROWS * (2 * (d + 1) + dv + 1 + PLAIN_ROWS + 1)),
    };
    let mut plan = Plan::one(source, grid, threads as u32, args);
    plan.steps[0].shared = shared;
    Ok(plan)
}

impl Planner for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem) -> Vec<Candidate> {
        let Some(wanted) = wanted(problem) else { return Vec::new() };
        let [batch, n_heads, n_queries, size] = wanted.q.1.sizes;
        let [.., n_keys, _] = wanted.k.1.sizes;
        let n_scores = (batch * n_heads * n_queries * n_keys) as f64;
        let flops = n_scores * 2.0 * (size + wanted.v.1.sizes[3]) as f64;
        let bytes = problem.traffic_bytes() as f64;
        let tensor_cores = match wanted.dtype {
            DType::F16 => true,
            DType::BF16 => gpu.sm >= 80,
            _ => false,
        };
        let forms: Vec<Option<usize>> =
            if tensor_cores { vec![Some(4), Some(2), Some(1)] } else { vec![None] };
        let offer = |warps: Option<usize>| {
            let inputs = vec![Want::inside(Layout::Plain); problem.inputs.len()];
            let outputs = vec![Want::inside(Layout::Plain)];
            let plan = plan(&laid(problem, &inputs, &outputs), warps).ok()?;
            let (name, peak) = match warps {
                // A warp alone reads as many keys as four do together.
                Some(warps) => (format!("attention_mma{warps}"), 1e14 * (1.0 + warps as f64 / 4.0)),
                None => ("attention_plain".to_string(), 1e13),
            };
            let blocks: f64 =
                plan.steps.first().map_or(1.0, |step| step.grid.iter().map(|n| f64::from(*n)).product());
            let per_sm = warps.map_or(2.0, |warps| 8.0 / warps as f64);
            let filled = (blocks / (f64::from(gpu.n_sms) * per_sm)).min(1.0);
            let ns = gpu.roofline_ns(flops / filled.max(0.02), peak, bytes);
            Some(candidate(name, REVISION, inputs, outputs, ns))
        };
        let mut list: Vec<Candidate> = forms.into_iter().filter_map(offer).collect();
        list.sort_by(|a, b| a.predicted_ns.total_cmp(&b.predicted_ns));
        list
    }

    fn plan(&self, _gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Plan, KernelError> {
        match (warps_of(&tactic.name), tactic.name.as_str()) {
            (Some(warps), _) => plan(problem, Some(warps)),
            (None, "attention_plain") => plan(problem, None),
            _ => refuse(format!("{tactic} is no attention")),
        }
    }

    fn samples(&self) -> Vec<Problem> {
        let attention = |is_causal| op::Attention {
            qk_matmul_output_mode: 0,
            softcap: 0.0,
            softmax_precision: None,
            kv_num_heads: None,
            q_num_heads: None,
            scale: None,
            is_causal,
        };
        let three = |dtype, dims: &[usize], keys: &[usize]| {
            Sample::op(attention(false), 3).typed(dtype, dims).typed(dtype, keys).typed(dtype, keys)
        };
        let masked = Sample::op(attention(false), 4)
            .typed(DType::F16, &[1, 2, 40, 32])
            .typed(DType::F16, &[1, 2, 90, 32])
            .typed(DType::F16, &[1, 2, 90, 32]);
        vec![
            three(DType::F16, &[1, 2, 70, 64], &[1, 2, 130, 64]).problem(),
            masked.typed(DType::Bool, &[1, 1, 40, 90]).problem(),
            three(DType::BF16, &[2, 1, 17, 128], &[2, 1, 20, 128]).problem(),
            Sample::op(attention(true), 3)
                .f32(&[1, 2, 35, 24])
                .f32(&[1, 2, 35, 24])
                .f32(&[1, 2, 35, 24])
                .problem(),
        ]
    }
}
