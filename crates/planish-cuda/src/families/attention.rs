//! The family of attention: scores, softmax and the mean of the values in one kernel, for inputs of rank 3 and 4. Queries,
//! keys and values may be floats of 8 bits (E4M3), and results may be rounded to 8 bits for the layer after it.

mod forms;
mod from_bytes;
#[cfg(test)]
mod tests;
mod wanted;

use from_bytes::Fed;
use planish_gpu::operands::{candidate, refuse};
use planish_gpu::plan::Plan;
use planish_kernel::{Budget, Candidate, KernelError, Layout, Problem, Tactic, Want};
use planish_tensor::DType;
use wanted::{Wanted, wanted};

use super::to_bytes::Apart;
use crate::family::Family;
use crate::gpu::Gpu;

const REVISION: u32 = 4;

/// Attention of every size.
pub(crate) struct AttentionFamily;

/// How it is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// On tensor cores, each warp with queries of its own and all features in its registers.
    Narrow { warps: usize },
    /// On tensor cores, all warps with the same `tiles` of 16 queries and `keys` a step; the keys cut into `parts`
    /// that different blocks go over.
    Wide { tiles: usize, keys: usize, parts: usize },
    /// On tensor cores, `tiles` of 16 queries a block, a warp each in each of the `groups` that take turns with
    /// `keys` a step; the keys cut into `parts` that different blocks go over, which are a cluster if `together`.
    Grouped { tiles: usize, groups: usize, keys: usize, parts: usize, together: bool },
    /// On tensor cores, each of `warps` with 16 queries, `keys` a step, which come through registers: operands of 8 bits too.
    Rows { warps: usize, keys: usize },
    /// In f32, with rows in shared memory.
    Plain,
    /// In f32, of any size, with a past, lengths, and scores as a result.
    Any,
}

impl Form {
    fn name(self) -> String {
        match self {
            Form::Narrow { warps } => format!("attention_mma{warps}"),
            Form::Wide { tiles, keys, parts } => format!("attention_wide_{}x{keys}_p{parts}", 16 * tiles),
            Form::Grouped { tiles, groups, keys, parts, together } => {
                let how = if together { "c" } else { "p" };
                format!("attention_groups_{}x{groups}x{keys}_{how}{parts}", 16 * tiles)
            }
            Form::Rows { warps, keys } => format!("attention_rows_{}x{keys}", 16 * warps),
            Form::Plain => "attention_plain".to_string(),
            Form::Any => "attention_any".to_string(),
        }
    }

    fn all() -> impl Iterator<Item = Form> {
        let narrow = [4, 2, 1].into_iter().map(|warps| Form::Narrow { warps });
        narrow
            .chain(Form::wide())
            .chain(Form::grouped())
            .chain(Form::rows_and_keys())
            .chain([Form::Plain, Form::Any])
    }

    fn wide() -> impl Iterator<Item = Form> {
        let sizes = [2, 1].into_iter().flat_map(|tiles| [64, 32, 16].map(|keys| (tiles, keys)));
        sizes.flat_map(|(tiles, keys)| [1, 2, 4, 8].map(|parts| Form::Wide { tiles, keys, parts }))
    }

    fn grouped() -> impl Iterator<Item = Form> {
        let warps = [(1, 4), (1, 8), (2, 2), (2, 4), (4, 1), (4, 2)];
        let sizes = warps.into_iter().flat_map(|warps| [64, 32, 16].map(|keys| (warps, keys)));
        let parts = [(1, false), (2, false), (4, false), (8, false), (2, true), (4, true), (8, true)];
        sizes.flat_map(move |((tiles, groups), keys)| {
            parts.map(|(parts, together)| Form::Grouped { tiles, groups, keys, parts, together })
        })
    }

    fn rows_and_keys() -> impl Iterator<Item = Form> {
        [8, 4, 2, 1].into_iter().flat_map(|warps| [128, 64, 32].map(|keys| Form::Rows { warps, keys }))
    }

    fn named(name: &str) -> Option<Form> {
        Form::all().find(|form| form.name() == name)
    }

    /// Whether a GPU computes with the type as the form does, which operands may be stored in 8 bits for.
    fn suits(self, gpu: &Gpu, dtype: DType, is_of_bytes: bool) -> bool {
        match self {
            Form::Rows { .. } if is_of_bytes && gpu.sm < 89 => false,
            form if is_of_bytes && !matches!(form, Form::Rows { .. }) => false,
            Form::Grouped { together: true, .. } if gpu.sm < 90 => false,
            Form::Narrow { .. } | Form::Wide { .. } | Form::Grouped { .. } | Form::Rows { .. } => {
                dtype == DType::F16 || (dtype == DType::BF16 && gpu.sm >= 80)
            }
            Form::Plain | Form::Any => true,
        }
    }
}

/// Expected nanoseconds of the form's launches.
fn price(gpu: &Gpu, problem: &Problem, wanted: &Wanted, form: Form, plan: &Plan) -> f64 {
    let [batch, n_heads, n_queries, size] = wanted.q.1.sizes;
    let (n_keys, value_size) = (wanted.n_keys(), wanted.v.1.sizes[3]);
    let flops = (batch * n_heads * n_queries * n_keys) as f64 * 2.0 * (size + value_size) as f64;
    let bytes = problem.traffic_bytes() as f64;
    let n_blocks: f64 =
        plan.steps.first().map_or(1.0, |step| step.grid.iter().map(|n| f64::from(*n)).product());
    let filled = |per_sm: f64| (n_blocks / (f64::from(gpu.n_sms) * per_sm)).clamp(0.02, 1.0);
    match form {
        // A warp alone reads as many keys as four do together.
        Form::Narrow { warps } => {
            let peak = 1e14 * (1.0 + warps as f64 / 4.0);
            gpu.roofline_ns(flops / filled(8.0 / warps as f64), peak, bytes)
        }
        Form::Wide { tiles, keys, parts } => {
            // A step waits for its keys and values: about 60 bytes a nanosecond from the second-level cache, and
            // never less than the barriers take.
            let step_bytes = (keys * (size + value_size) * 2) as f64;
            let step = (step_bytes / 60.0).max(250.0 + 100.0 * tiles as f64);
            let n_steps = n_keys.div_ceil(parts).div_ceil(keys) as f64;
            let waves = (n_blocks / f64::from(gpu.n_sms)).ceil().max(1.0);
            let join = if parts > 1 { 1_500.0 + 100.0 * parts as f64 } else { 0.0 };
            2_000.0 + waves * n_steps * step + join
        }
        Form::Grouped { tiles, groups, keys, parts, together } => {
            // A multiprocessor reads about 60 bytes a nanosecond of keys and values. A warp's step has 16 queries'
            // products, about 6 ns a pair of 16 by 16 where four warps run at once, and what softmax waits for.
            let part_keys = n_keys.div_ceil(parts) as f64;
            let read = part_keys * ((size + value_size) * 2) as f64 / 60.0;
            let depth = (size.div_ceil(16) + value_size.div_ceil(16)) as f64;
            let n_steps = n_keys.div_ceil(parts).div_ceil(keys).div_ceil(groups) as f64;
            let sharers = ((tiles * groups) as f64 / 4.0).max(1.0);
            let step = (keys as f64 / 16.0 * depth * 12.0 * sharers).max(150.0) + 200.0;
            let waves = (n_blocks / f64::from(gpu.n_sms)).ceil().max(1.0);
            let join = match (parts, together) {
                (1, _) => 0.0,
                (_, true) => 700.0 + 50.0 * parts as f64,
                (_, false) => 1_500.0 + 100.0 * parts as f64,
            };
            2_300.0 + waves * read.max(n_steps * step) + 40.0 * groups as f64 + join
        }
        Form::Rows { warps, keys } => {
            // Sixteen warps share a multiprocessor; each has some 12 instructions for every 32 scores beside its products,
            // and every block reads all keys and values.
            let scores = (batch * n_heads * n_queries.next_multiple_of(16 * warps)) as f64 * n_keys as f64;
            let depth = (size.div_ceil(16) + value_size.div_ceil(16)) as f64;
            let cycles = scores / 32.0 * (12.0 + depth * 0.75) / 4.0;
            let spread = filled(1.0) * f64::from(gpu.n_sms);
            let steps = n_keys.div_ceil(keys) as f64 * 300.0;
            2_500.0 + steps + (cycles / spread / 1.7).max(gpu.roofline_ns(flops, 4e14, bytes))
        }
        Form::Plain => gpu.roofline_ns(flops / filled(2.0), 1e13, bytes),
        Form::Any => gpu.roofline_ns(flops / filled(8.0), 1e12, bytes),
    }
}

impl Family for AttentionFamily {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        let inputs = vec![Want::inside(Layout::Plain); problem.inputs.len()];
        let outputs = vec![Want::inside(Layout::Plain); problem.outputs.len()];
        let laid = problem.with_layouts(&inputs, &outputs);
        let Ok(apart) = Apart::of(&laid) else { return Vec::new() };
        let Ok(fed) = Fed::of(&apart.problem) else { return Vec::new() };
        let Some(wanted) = wanted(&fed.problem) else { return Vec::new() };
        let offer = |form: Form| {
            if !form.suits(gpu, wanted.dtype, fed.scales.is_some()) {
                return None;
            }
            let plan = forms::plan(gpu, &laid, form).ok()?;
            let ns = price(gpu, problem, &wanted, form, &plan);
            Some(candidate(form.name(), REVISION, inputs.clone(), outputs.clone(), ns))
        };
        let sorted = |mut list: Vec<Candidate>| {
            list.sort_by(|a, b| a.predicted_ns.total_cmp(&b.predicted_ns));
            list
        };
        let mut list: Vec<Candidate> =
            [4, 2, 1].into_iter().filter_map(|warps| offer(Form::Narrow { warps })).collect();
        // A part has one step at least.
        let useful = |form: &Form| match form {
            Form::Wide { keys, parts, .. } => (parts - 1) * keys < wanted.n_keys(),
            Form::Grouped { keys, parts, groups, .. } => {
                (parts - 1) * keys < wanted.n_keys() && (groups - 1) * keys < wanted.n_keys().div_ceil(*parts)
            }
            _ => true,
        };
        let wide = sorted(Form::wide().filter(useful).filter_map(offer).collect());
        list.extend(wide.into_iter().take(budget.few));
        let grouped = sorted(Form::grouped().filter(useful).filter_map(offer).collect());
        list.extend(grouped.into_iter().take(budget.per_group));
        // A step that has more keys than there are waits for zeros.
        let useful = |form: &Form| match form {
            Form::Rows { warps, keys } => {
                *keys < 2 * wanted.n_keys().max(32) && 16 * (warps - 1) < wanted.q.1.sizes[2].max(1)
            }
            _ => true,
        };
        let rows = sorted(Form::rows_and_keys().filter(useful).filter_map(offer).collect());
        list.extend(rows.into_iter().take(budget.few));
        if list.is_empty() {
            list.extend(offer(Form::Plain));
        }
        if list.is_empty() {
            list.extend(offer(Form::Any));
        }
        sorted(list)
    }

    fn plan(&self, gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Plan, KernelError> {
        match Form::named(&tactic.name) {
            Some(form) => forms::plan(gpu, problem, form),
            None => refuse(format!("{tactic} is not attention")),
        }
    }
}
