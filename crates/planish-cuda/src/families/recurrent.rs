//! The family of recurrent layers: LSTM, GRU and RNN.
//!
//! One product for the inputs of all steps, then one launch for all steps: clusters of blocks hold the recurrent weights
//! in their shared memory and the state in everybody's, and wait for each other once a step (twice where a GRU resets
//! before its product). Rows of the batch and directions never meet, so each has clusters of its own.

use planish_gpu::kernel_args;
use planish_gpu::operands::{candidate, is_float, refuse, size_of_element, storage};
use planish_gpu::plan::{Arg, KernelCode, Plan, Slot, Step};
use planish_gpu::space::{blocks, int};
use planish_kernel::recurrent::{RecurrentCell, RecurrentLayer};
use planish_kernel::{Arithmetic, Budget, Candidate, KernelError, Layout, Operand, Problem, Tactic, Want};

use crate::family::Family;
use crate::gpu::Gpu;

#[cfg(test)]
mod tests;

const REVISION: u32 = 1;

const THREADS: usize = 512;

/// Rows and gates that a block of the first product has.
const TILE: usize = 64;

/// Blocks of a cluster that every GPU with clusters grants.
const MOST_BLOCKS: usize = 8;

/// Rows of a batch that share a cluster at most: each is a register of every thread.
const MOST_ROWS: usize = 8;

/// Nanoseconds of a step beside its products: functions, a wait of the block, a wait of the cluster.
const STEP_NS: f64 = 700.0;
const CLUSTER_NS: f64 = 500.0;

/// Bytes of weights a nanosecond that a block reads from its shared memory, and from the second-level cache.
const SHARED_SPEED: f64 = 150.0;
const CACHE_SPEED: f64 = 40.0;

/// LSTM, GRU and RNN without peepholes, clipping, lengths or other functions than the usual ones.
pub(crate) struct RecurrentFamily;

kernel_args! {
    /// What recurrent.cu and recurrent_inputs.cu are given.
    struct RecurrentArgs {
        seq: i32,
        batch: i32,
        /// Elements that a step reads.
        size: i32,
        hidden: i32,
        /// Units of the hidden state that a block has.
        units: i32,
        gates: i32,
        directions: i32,
        /// A bit for each direction that runs backwards.
        reverse: i32,
        /// Sums of parts that shared memory holds.
        n_sums: i32,
    }
}

/// How the steps are taken.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Form {
    /// Blocks of a cluster.
    blocks: usize,
    /// Rows of the batch that a cluster has.
    rows: usize,
    /// Whether weights lie in shared memory.
    resident: bool,
}

impl Form {
    fn name(self) -> String {
        let place = if self.resident { "shared" } else { "cached" };
        format!("recurrent_c{}_r{}_{place}", self.blocks, self.rows)
    }

    fn named(name: &str) -> Option<Form> {
        let mut parts = name.strip_prefix("recurrent_c")?.split('_');
        let blocks = parts.next()?.parse().ok().filter(|n| [1, 2, 4, MOST_BLOCKS].contains(n))?;
        let rows =
            parts.next()?.strip_prefix('r')?.parse().ok().filter(|n| [1, 2, 4, MOST_ROWS].contains(n))?;
        let resident = match parts.next()? {
            "shared" => true,
            "cached" => false,
            _ => return None,
        };
        parts.next().is_none().then_some(Form { blocks, rows, resident })
    }

    fn units(self, layer: &RecurrentLayer) -> usize {
        layer.hidden.div_ceil(self.blocks)
    }

    fn n_sums(self, layer: &RecurrentLayer) -> usize {
        THREADS.max((layer.cell.n_gates() * self.units(layer)).next_multiple_of(32)) * self.rows
    }

    /// Bytes of a block's weights.
    fn weight_bytes(self, layer: &RecurrentLayer, element: usize) -> usize {
        layer.cell.n_gates() * self.units(layer) * layer.hidden.next_multiple_of(4) * element
    }

    /// Shared memory of a block, in the order of recurrent.cu: states, what is reset, own values, sums, weights.
    fn shared_bytes(self, layer: &RecurrentLayer, element: usize) -> usize {
        let pitch = layer.hidden.next_multiple_of(4);
        let reset = if layer.cell == (RecurrentCell::Gru { late: false }) { self.rows * pitch } else { 0 };
        let own = (self.units(layer) * self.rows).next_multiple_of(4);
        let floats = 2 * self.rows * pitch + reset + own + self.n_sums(layer);
        floats * size_of::<f32>() + if self.resident { self.weight_bytes(layer, element) } else { 0 }
    }

    /// Whether a GPU has what it takes.
    fn fits(self, gpu: &Gpu, layer: &RecurrentLayer, element: usize) -> bool {
        (self.blocks == 1 || gpu.sm >= 90) && self.shared_bytes(layer, element) <= gpu.smem_per_block
    }

    /// Expected nanoseconds of all steps.
    fn steps_ns(self, gpu: &Gpu, layer: &RecurrentLayer, element: usize) -> f64 {
        let speed = if self.resident { SHARED_SPEED } else { CACHE_SPEED };
        let waits = if layer.cell == (RecurrentCell::Gru { late: false }) { 2.0 } else { 1.0 };
        let wait = STEP_NS + if self.blocks > 1 { CLUSTER_NS } else { 0.0 };
        let work = self.weight_bytes(layer, element) as f64 / speed;
        let n_blocks = layer.backwards.len() * layer.batch.div_ceil(self.rows) * self.blocks;
        let waves = n_blocks.div_ceil(gpu.n_sms as usize) as f64;
        layer.seq as f64 * (waits * wait + work * (1.0 + 0.15 * self.rows as f64)) * waves
    }
}

/// The layer, where every operand is dense and of one type of floats.
fn layer_of(problem: &Problem) -> Result<RecurrentLayer, KernelError> {
    let Some(layer) = RecurrentLayer::of(problem) else { return refuse("a plain recurrent layer") };
    let dtype = problem.inputs[layer.x].dtype;
    let fits = |operand: &Operand| {
        operand.dtype == dtype && operand.packed.is_none() && operand.is_dense(Layout::Plain)
    };
    if !is_float(dtype) || !problem.inputs.iter().chain(&problem.outputs).all(fits) {
        return refuse("a recurrent layer of one type of floats, all of it dense");
    }
    Ok(layer)
}

fn plan(gpu: &Gpu, problem: &Problem, form: Form) -> Result<Plan, KernelError> {
    let layer = layer_of(problem)?;
    let x = &problem.inputs[layer.x];
    let element = size_of_element(x.dtype);
    if !form.fits(gpu, &layer, element) {
        return refuse("weights that fit the shared memory of a cluster");
    }
    let directions = layer.backwards.len();
    if layer.batch == 0 || layer.hidden == 0 {
        return Ok(Plan::default());
    }
    let gates = layer.cell.n_gates();
    let reverse = layer.backwards.iter().enumerate().map(|(at, back)| i32::from(*back) << at).sum();
    let n_rows = layer.seq * layer.batch;
    let pre_len = directions * n_rows * gates * layer.hidden;
    // Kernels count in 32 bits what a direction has.
    int(pre_len.max(directions * gates * layer.hidden * layer.hidden.max(layer.size)))?;
    let numbers = RecurrentArgs {
        seq: int(layer.seq)?,
        batch: int(layer.batch)?,
        size: int(layer.size)?,
        hidden: int(layer.hidden)?,
        units: int(form.units(&layer))?,
        gates: int(gates)?,
        directions: int(directions)?,
        reverse,
        n_sums: int(form.n_sums(&layer))?,
    };
    let cell = match layer.cell {
        RecurrentCell::Tanh => 0,
        RecurrentCell::Relu => 1,
        RecurrentCell::Lstm => 2,
        RecurrentCell::Gru { late: false } => 3,
        RecurrentCell::Gru { late: true } => 4,
    };
    let given = |place: Option<usize>| place.map_or(Arg::Nothing, |at| Arg::Address(Slot::Input(at), 0));
    let wanted = |place: Option<usize>| place.map_or(Arg::Nothing, |at| Arg::Address(Slot::Output(at), 0));
    let pre = Arg::Address(Slot::Workspace, 0);
    let mut plan = Plan { workspace: pre_len * size_of::<f32>(), ..Plan::default() };
    if n_rows > 0 {
        let text = include_str!("../../kernels/recurrent_inputs.cu");
        let code = KernelCode::new("recurrent_inputs.cu", text, "recurrent_inputs", &numbers)
            .define("T", storage(x)?)
            .define("LATE", u8::from(cell == 4));
        plan.sources.push(code);
        plan.steps.push(Step {
            source: 0,
            grid: [blocks(n_rows, TILE)?, blocks(gates * layer.hidden, TILE)?, directions as u32],
            threads: 256,
            shared: 0,
            cluster: 1,
            args: vec![
                given(Some(layer.x)),
                given(Some(layer.w)),
                given(layer.b),
                pre.clone(),
                Arg::of(&numbers),
            ],
        });
    }
    let code =
        KernelCode::new("recurrent.cu", include_str!("../../kernels/recurrent.cu"), "recurrent", &numbers)
            .define("T", storage(x)?)
            .define("CELL", cell)
            .define("GATES", gates)
            .define("ROWS", form.rows)
            .define("BLOCKS", form.blocks)
            .define("RESIDENT", u8::from(form.resident))
            .define("THREADS", THREADS)
            .define("AT_ONCE", if form.rows > 4 { 2 } else { 4 });
    plan.sources.push(code);
    plan.steps.push(Step {
        source: plan.sources.len() - 1,
        grid: [blocks(directions * layer.batch.div_ceil(form.rows) * form.blocks, 1)?, 1, 1],
        threads: THREADS as u32,
        shared: form.shared_bytes(&layer, element),
        cluster: form.blocks as u32,
        args: vec![
            pre,
            given(Some(layer.r)),
            given(layer.b),
            given(layer.initial_h),
            given(layer.initial_c),
            wanted(layer.y),
            wanted(layer.y_h),
            wanted(layer.y_c),
            Arg::of(&numbers),
        ],
    });
    Ok(plan)
}

impl Family for RecurrentFamily {
    fn name(&self) -> &'static str {
        "recurrent"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let dense = |operand: &Operand| Operand::dense(operand.dtype, &operand.dims, Layout::Plain);
        let mut arranged = problem.clone();
        arranged.inputs.iter_mut().chain(&mut arranged.outputs).for_each(|operand| {
            *operand = Operand { constant: operand.constant, ..dense(operand) };
        });
        let Ok(layer) = layer_of(&arranged) else { return Vec::new() };
        let element = size_of_element(problem.inputs[layer.x].dtype);
        let rows = layer.batch.max(1).next_power_of_two().min(MOST_ROWS);
        let mut offers = Vec::new();
        for blocks in [MOST_BLOCKS, 4, 2, 1] {
            for rows in [rows, rows / 2].into_iter().filter(|rows| *rows > 0) {
                let ways = [true, false].map(|resident| Form { blocks, rows, resident });
                // What lies in shared memory is never slower.
                offers.extend(ways.into_iter().find(|form| form.fits(gpu, &layer, element)));
            }
        }
        let products = (layer.backwards.len() * layer.seq * layer.batch * layer.cell.n_gates()) as f64
            * (layer.hidden * layer.size) as f64;
        let inputs_ns =
            gpu.roofline_ns(2.0 * products, gpu.flops(Arithmetic::F32) / 2.0, problem.traffic_bytes() as f64);
        let mut candidates: Vec<Candidate> = offers
            .into_iter()
            .filter(|form| plan(gpu, &arranged, *form).is_ok())
            .map(|form| {
                let ns = inputs_ns + form.steps_ns(gpu, &layer, element);
                let wants = |n: usize| vec![Want::dense(Layout::Plain); n];
                candidate(
                    form.name(),
                    REVISION,
                    wants(problem.inputs.len()),
                    wants(problem.outputs.len()),
                    ns,
                )
            })
            .collect();
        candidates.sort_by(|a, b| a.predicted_ns.total_cmp(&b.predicted_ns));
        candidates
    }

    fn plan(&self, gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Plan, KernelError> {
        match Form::named(&tactic.name) {
            Some(form) => plan(gpu, problem, form),
            None => refuse(format!("no tactic is called `{}`; rebuild the plan", tactic.name)),
        }
    }
}
