//! The launches of each form of attention.

use planish_gpu::codegen::storage_type;
use planish_gpu::kernel_args;
use planish_gpu::operands::{refuse, storage};
use planish_gpu::plan::{Arg, KernelCode, Plan, Slot};
use planish_gpu::space::{blocks, int, ints};
use planish_kernel::{KernelError, Problem};
use planish_tensor::DType;

use super::Form;
use super::from_bytes::{Fed, Scales};
use super::wanted::{Wanted, wanted};
use crate::families::to_bytes::{self, Apart, ToBytes};
use crate::gpu::Gpu;

/// The most features that registers of one warp hold sums of, and of eight warps.
const MAX_FEATURES: usize = 128;
const MAX_WIDE_FEATURES: usize = 1024;
/// The most features whose sums fill half of a warp's registers.
const MAX_GROUPED_FEATURES: usize = 256;
/// Steps of keys and values that a group of warps has in shared memory.
const STAGES: usize = 2;
/// Keys of a step of the narrow form, and what is added to rows in shared memory.
const KEYS: usize = 64;
const ROW_PAD: usize = 8;
/// Queries and keys of a step of the plain form.
const PLAIN_ROWS: usize = 32;
/// Features of a block of the form that takes anything.
const ANY_FEATURES: usize = 512;
/// Warps of the wide form.
const WIDE_WARPS: usize = 8;
/// The most blocks along the second and third axis of a grid.
const MAX_GRID: usize = 65_535;

impl Form {
    /// Queries of a block.
    fn rows(self) -> usize {
        match self {
            Form::Narrow { warps } | Form::Rows { warps, .. } => 16 * warps,
            Form::Wide { tiles, .. } | Form::Grouped { tiles, .. } => 16 * tiles,
            Form::Plain => PLAIN_ROWS,
            Form::Any => 1,
        }
    }

    /// What sizes of features are rounded up to.
    fn round(self) -> usize {
        match self {
            Form::Narrow { .. } | Form::Wide { .. } | Form::Grouped { .. } | Form::Rows { .. } => 16,
            Form::Plain | Form::Any => 8,
        }
    }

    /// Bytes of shared memory for rounded features of keys and of values.
    fn shared(self, d: usize, dv: usize) -> usize {
        match self {
            Form::Narrow { warps } => 2 * ((KEYS + 16 * warps) * (d + ROW_PAD) + KEYS * (dv + ROW_PAD)),
            Form::Wide { tiles, keys, .. } => {
                let (rows, scores) = (16 * tiles, keys + ROW_PAD);
                let halves = (rows + keys) * (d + ROW_PAD) + keys * (dv + ROW_PAD) + rows * scores;
                let depth_parts = WIDE_WARPS / (keys / 16);
                2 * halves + 4 * (depth_parts * rows * scores + 2 * rows)
            }
            Form::Grouped { tiles, groups, keys, together, .. } => {
                let rows = 16 * tiles;
                let stage = keys * (d + dv + 2 * ROW_PAD);
                let operands = 2 * (rows * (d + ROW_PAD) + groups * STAGES * stage);
                // Where sums meet, with a greatest score and a total for each row.
                let met = 4 * groups * rows * (dv + ROW_PAD + 2);
                operands.max(met + if together { 16 * rows } else { 0 })
            }
            Form::Rows { warps, keys } => {
                // Queries, two stages of keys and values, and what is added to their scores.
                let stage = keys * (d + dv + 2 * ROW_PAD);
                2 * (16 * warps * (d.max(dv) + ROW_PAD) + STAGES * stage) + 4 * STAGES * keys
            }
            Form::Plain => 4 * PLAIN_ROWS * (2 * (d + 1) + dv + 1 + PLAIN_ROWS + 1),
            Form::Any => 0,
        }
    }
}

kernel_args! {
    struct HeadStrides {
        batch: i32,
        head: i32,
        step: i32,
    }

    struct MaskStrides {
        batch: i32,
        head: i32,
        query: i32,
        key: i32,
    }

    /// What every form is given.
    struct AttentionArgs {
        n_heads: i32,
        /// Heads of queries that share one of keys and values.
        sharers: i32,
        n_queries: i32,
        n_keys: i32,
        queries: HeadStrides,
        keys: HeadStrides,
        values: HeadStrides,
        out: HeadStrides,
        mask: MaskStrides,
        /// Keys that the mask has.
        mask_keys: i32,
        scale: f32,
        cap: f32,
        /// Features of queries and keys, and of values.
        size: i32,
        value_size: i32,
        /// Keys before the first query's own.
        n_past: i32,
        /// Parts that keys are split into, and keys of a part.
        n_parts: i32,
        part_keys: i32,
        /// Of results of 8 bits: the scale, and one over it.
        bytes: [f32; 2],
        /// What sums of values are times, where these are stored in 8 bits.
        value_scale: f32,
        /// Of the form that takes anything: steps of the past, the scores, parts of 512 features.
        past_keys: HeadStrides,
        past_values: HeadStrides,
        scores: HeadStrides,
        n_chunks: i32,
    }

    /// What attention_join.cu is given.
    struct AttentionJoinArgs {
        n_rows: i32,
        n_heads: i32,
        n_queries: i32,
        n_parts: i32,
        value_size: i32,
        y: HeadStrides,
    }

    /// What attention_present.cu is given: steps of the past and new ones after each other.
    struct AttentionPresentArgs {
        /// Elements of the result.
        len: i32,
        n_heads: i32,
        n_steps: i32,
        size: i32,
        n_past: i32,
        fresh: HeadStrides,
        past: HeadStrides,
        y: HeadStrides,
    }
}

impl HeadStrides {
    fn of(strides: [usize; 3]) -> Result<HeadStrides, KernelError> {
        let [batch, head, step] = ints(strides)?;
        Ok(HeadStrides { batch, head, step })
    }
}

impl AttentionArgs {
    fn of(wanted: &Wanted, parts: usize, keys_of_part: usize) -> Result<AttentionArgs, KernelError> {
        let [_, n_heads, n_queries, size] = wanted.q.1.sizes;
        let kv_heads = wanted.k.1.sizes[1];
        let (mask, mask_keys) = wanted.mask.map_or(([0; 4], 0), |(_, strides, keys)| (strides, keys));
        let [batch, head, query, key] = ints(mask)?;
        Ok(AttentionArgs {
            n_heads: int(n_heads)?,
            sharers: int(n_heads / kv_heads)?,
            n_queries: int(n_queries)?,
            n_keys: int(wanted.n_keys())?,
            queries: HeadStrides::of(wanted.q.1.strides)?,
            keys: HeadStrides::of(wanted.k.1.strides)?,
            values: HeadStrides::of(wanted.v.1.strides)?,
            out: HeadStrides::of(wanted.out.1.strides)?,
            mask: MaskStrides { batch, head, query, key },
            mask_keys: int(mask_keys)?,
            scale: wanted.scale,
            cap: wanted.softcap,
            size: int(size)?,
            value_size: int(wanted.v.1.sizes[3])?,
            n_past: int(wanted.n_past())?,
            n_parts: int(parts)?,
            part_keys: int(keys_of_part)?,
            ..AttentionArgs::default()
        })
    }
}

fn code(
    problem: &Problem,
    wanted: &Wanted,
    form: Form,
    numbers: &AttentionArgs,
    (from, bytes): (Option<Scales>, Option<ToBytes<'_>>),
) -> Result<KernelCode, KernelError> {
    let (size, value_size) = (wanted.q.1.sizes[3], wanted.v.1.sizes[3]);
    let (d, dv) = (size.next_multiple_of(form.round()), value_size.next_multiple_of(form.round()));
    let common = include_str!("../../../kernels/attention.cuh");
    let (file, text) = match form {
        Form::Narrow { .. } => ("attention.cu", include_str!("../../../kernels/attention.cu")),
        Form::Wide { .. } => ("attention_wide.cu", include_str!("../../../kernels/attention_wide.cu")),
        Form::Grouped { .. } => ("attention_groups.cu", include_str!("../../../kernels/attention_groups.cu")),
        Form::Rows { .. } => ("attention_rows.cu", include_str!("../../../kernels/attention_rows.cu")),
        Form::Plain => ("attention_plain.cu", include_str!("../../../kernels/attention_plain.cu")),
        Form::Any => ("attention_any.cu", include_str!("../../../kernels/attention_any.cu")),
    };
    let mask_type = match wanted.mask {
        Some((idx, ..)) => storage(&problem.inputs[idx])?,
        None => "float",
    };
    let strides = [&wanted.q, &wanted.k, &wanted.v, &wanted.out].map(|operand| operand.1.strides);
    // Chunks of 16 bytes.
    let chunk = match form {
        Form::Rows { .. } if from.is_some() || bytes.is_some() => 16,
        _ => 8,
    };
    let wide = size % chunk == 0
        && value_size % chunk == 0
        && strides.iter().flatten().all(|stride| stride % chunk == 0);
    let Some(element) = storage_type(wanted.dtype) else {
        return refuse(format!("attention of {}", wanted.dtype));
    };
    let is_bool = wanted.mask.is_some_and(|(idx, ..)| problem.inputs[idx].dtype == DType::Bool);
    let code = KernelCode::new(file, &format!("{common}\n{text}"), "attention", numbers)
        .define("T", element)
        .define("MASK_T", mask_type)
        .define("HAS_MASK", u8::from(wanted.mask.is_some()))
        .define("MASK_BOOL", u8::from(is_bool))
        .define("HAS_CAP", u8::from(wanted.softcap > 0.0))
        .define("CAUSAL", u8::from(wanted.causal));
    let code = to_bytes::define(code, bytes);
    Ok(match form {
        Form::Narrow { warps } => code
            .define("TENSOR", 1)
            .define("THREADS", 32 * warps)
            .define("WARPS", warps)
            .define("D", d)
            .define("DV", dv)
            .define("WIDE", u8::from(wide)),
        Form::Wide { tiles, keys, parts } => code
            .define("TENSOR", 1)
            .define("THREADS", 32 * WIDE_WARPS)
            .define("TILES", tiles)
            .define("KEYS", keys)
            .define("SPLIT", u8::from(parts > 1))
            .define("D", d)
            .define("DV", dv)
            .define("WIDE", u8::from(wide)),
        Form::Grouped { tiles, groups, keys, parts, together } => code
            .define("TENSOR", 1)
            .define("THREADS", 32 * tiles * groups)
            .define("TILES", tiles)
            .define("GROUPS", groups)
            .define("KEYS", keys)
            .define("SPLIT", if together { parts } else { usize::from(parts > 1) })
            .define("D", d)
            .define("DV", dv)
            .define("WIDE", u8::from(wide)),
        Form::Rows { warps, keys } => code
            .define("TENSOR", 1)
            .define("THREADS", 32 * warps)
            .define("WARPS", warps)
            .define("KEYS", keys)
            .define("OPERAND_T", if from.is_some() { "e4m3" } else { element })
            .define("F8", u8::from(from.is_some()))
            .define("BY_KEY", u8::from(depends_on_key_alone(wanted)))
            .define("D", d)
            .define("DV", dv)
            .define("WIDE", u8::from(wide)),
        Form::Plain => code.define("TENSOR", 0).define("D", d).define("DV", dv),
        Form::Any => code
            .define("TENSOR", 0)
            .define("HAS_PAST", u8::from(wanted.past.is_some()))
            .define("HAS_LENGTHS", u8::from(wanted.lengths.is_some()))
            .define("SCORES", wanted.scores.map_or(-1, |(_, stage)| stage)),
    })
}

/// Whether scores are products times a number above zero, and what is added to them is the same for all queries.
fn depends_on_key_alone(wanted: &Wanted) -> bool {
    let is_row = wanted.mask.is_none_or(|(_, strides, _)| strides[2] == 0);
    is_row && wanted.softcap <= 0.0 && !wanted.causal && wanted.scale > 0.0
}

fn operands(wanted: &Wanted) -> Vec<Arg> {
    vec![
        Arg::Address(Slot::Input(wanted.q.0), 0),
        Arg::Address(Slot::Input(wanted.k.0), 0),
        Arg::Address(Slot::Input(wanted.v.0), 0),
        wanted.mask.map_or(Arg::Nothing, |(idx, ..)| Arg::Address(Slot::Input(idx), 0)),
        Arg::Address(Slot::Output(wanted.out.0), 0),
    ]
}

pub(super) fn plan(gpu: &Gpu, problem: &Problem, form: Form) -> Result<Plan, KernelError> {
    let Apart { problem, bytes, stores } = Apart::of(problem)?;
    let Fed { problem, scales: from } = Fed::of(&problem)?;
    let problem = &*problem;
    let Some(wanted) = wanted(problem) else {
        return refuse("not an attention that kernels here compute");
    };
    let rounds = match form {
        Form::Narrow { .. }
        | Form::Rows { .. }
        | Form::Grouped { parts: 1, .. }
        | Form::Grouped { together: true, .. } => !stores,
        _ => false,
    };
    if bytes.is_some() && !rounds {
        return refuse("numbers of 8 bits from another form, or beside floats");
    }
    if from.is_some() && !(matches!(form, Form::Rows { .. }) && gpu.sm >= 89) {
        return refuse("operands of 8 bits for another form, or an older GPU");
    }
    if let Form::Any = form {
        return any(problem, &wanted);
    }
    let [batch, n_heads, n_queries, size] = wanted.q.1.sizes;
    let value_size = wanted.v.1.sizes[3];
    let (d, dv) = (size.next_multiple_of(form.round()), value_size.next_multiple_of(form.round()));
    let most = match form {
        Form::Narrow { .. } | Form::Rows { .. } => MAX_FEATURES,
        Form::Grouped { .. } => MAX_GROUPED_FEATURES,
        _ => MAX_WIDE_FEATURES,
    };
    if !wanted.is_simple() || d.max(dv) > most || form.shared(d, dv) > gpu.smem_per_block {
        return refuse("an attention for another form");
    }
    if problem.outputs[0].is_empty() {
        return Ok(Plan::default());
    }
    if n_heads.max(batch) > MAX_GRID {
        return refuse("more heads than a grid has");
    }
    let (parts, keys_of_part) = match form {
        Form::Wide { keys, parts, .. } | Form::Grouped { keys, parts, .. } => {
            let each = wanted.n_keys().div_ceil(parts).next_multiple_of(keys);
            (parts, each)
        }
        _ => (1, wanted.n_keys()),
    };
    let scales = to_bytes::scales(bytes);
    let numbers = AttentionArgs::of(&wanted, parts, keys_of_part)?;
    let numbers = AttentionArgs {
        bytes: scales,
        scale: wanted.scale * from.map_or(1.0, |from| from.product),
        value_scale: from.map_or(1.0, |from| from.values),
        ..numbers
    };
    let source = code(problem, &wanted, form, &numbers, (from, bytes))?;
    let mut args = operands(&wanted);
    let together = matches!(form, Form::Grouped { together: true, .. });
    if let Form::Wide { .. } | Form::Grouped { .. } = form {
        args.push(if parts > 1 && !together { Arg::Address(Slot::Workspace, 0) } else { Arg::Nothing });
    }
    args.push(Arg::of(&numbers));
    let grid = [blocks(n_queries, form.rows())? * parts as u32, n_heads as u32, batch as u32];
    let threads = match form {
        Form::Narrow { warps } | Form::Rows { warps, .. } => 32 * warps,
        Form::Grouped { tiles, groups, .. } => 32 * tiles * groups,
        _ => 256,
    };
    let mut plan = Plan::one(source, grid, threads as u32, args);
    plan.steps[0].shared = form.shared(d, dv);
    if together {
        plan.steps[0].cluster = parts as u32;
    } else if parts > 1 {
        let n_rows = batch * n_heads * n_queries;
        plan = plan.then(join(&wanted, parts, dv)?);
        plan.workspace = n_rows * parts * (dv + 2) * 4;
    }
    Ok(plan)
}

/// One result of the parts' sums.
fn join(wanted: &Wanted, parts: usize, dv: usize) -> Result<Plan, KernelError> {
    let [batch, n_heads, n_queries, _] = wanted.q.1.sizes;
    let n_rows = batch * n_heads * n_queries;
    let numbers = AttentionJoinArgs {
        n_rows: int(n_rows)?,
        n_heads: int(n_heads)?,
        n_queries: int(n_queries)?,
        n_parts: int(parts)?,
        value_size: int(wanted.v.1.sizes[3])?,
        y: HeadStrides::of(wanted.out.1.strides)?,
    };
    let text = include_str!("../../../kernels/attention_join.cu");
    let source = KernelCode::new("attention_join.cu", text, "attention_join", &numbers)
        .define("T", storage_type(wanted.dtype).unwrap_or("float"))
        .define("DV", dv);
    let args = vec![
        Arg::Address(Slot::Workspace, 0),
        Arg::Address(Slot::Output(wanted.out.0), 0),
        Arg::of(&numbers),
    ];
    Ok(Plan::one(source, [blocks(n_rows, 1)?, 1, 1], 128, args))
}

/// Everything that an attention may have.
fn any(problem: &Problem, wanted: &Wanted) -> Result<Plan, KernelError> {
    let [batch, n_heads, n_queries, _] = wanted.q.1.sizes;
    let chunks = wanted.v.1.sizes[3].div_ceil(ANY_FEATURES).max(1);
    let n_blocks = batch * n_heads * n_queries * chunks;
    let mut plan = Plan::default();
    if n_blocks > 0 {
        let past = wanted.past.map_or([[0; 3]; 2], |(keys, values)| [keys.1.strides, values.1.strides]);
        let numbers = AttentionArgs {
            past_keys: HeadStrides::of(past[0])?,
            past_values: HeadStrides::of(past[1])?,
            scores: HeadStrides::of(wanted.scores.map_or([0; 3], |(at, _)| at.1.strides))?,
            n_chunks: int(chunks)?,
            ..AttentionArgs::of(wanted, 1, wanted.n_keys())?
        };
        let source = code(problem, wanted, Form::Any, &numbers, (None, None))?;
        let mut args = operands(wanted);
        let optional = |slot: Option<Slot>| slot.map_or(Arg::Nothing, |slot| Arg::Address(slot, 0));
        args.push(optional(wanted.past.map(|past| Slot::Input(past.0.0))));
        args.push(optional(wanted.past.map(|past| Slot::Input(past.1.0))));
        args.push(optional(wanted.lengths.map(Slot::Input)));
        args.push(optional(wanted.scores.map(|(at, _)| Slot::Output(at.0))));
        args.push(Arg::of(&numbers));
        plan = Plan::one(source, [blocks(n_blocks, 1)?, 1, 1], 128, args);
    }
    let pasts = [wanted.past.map(|past| past.0), wanted.past.map(|past| past.1)];
    for ((present, fresh), past) in wanted.present.into_iter().zip([wanted.k, wanted.v]).zip(pasts) {
        let Some((to, heads)) = present else { continue };
        let len: usize = heads.sizes.iter().product();
        let numbers = AttentionPresentArgs {
            len: int(len)?,
            n_heads: int(heads.sizes[1])?,
            n_steps: int(heads.sizes[2])?,
            size: int(heads.sizes[3])?,
            n_past: int(wanted.n_past())?,
            fresh: HeadStrides::of(fresh.1.strides)?,
            past: HeadStrides::of(past.map_or([0; 3], |past| past.1.strides))?,
            y: HeadStrides::of(heads.strides)?,
        };
        let text = include_str!("../../../kernels/attention_present.cu");
        let source = KernelCode::new("attention_present.cu", text, "attention_present", &numbers)
            .define("T", storage_type(wanted.dtype).unwrap_or("float"));
        let args = vec![
            Arg::Address(Slot::Input(fresh.0), 0),
            past.map_or(Arg::Nothing, |past| Arg::Address(Slot::Input(past.0), 0)),
            Arg::Address(Slot::Output(to), 0),
            Arg::of(&numbers),
        ];
        plan = plan.then(Plan::one(source, [blocks(len, 256)?, 1, 1], 256, args));
    }
    Ok(plan)
}
