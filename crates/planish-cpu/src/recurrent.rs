//! LSTM and GRU: one large product of all inputs with the input weights, then step by step a thin product with
//! the recurrent weights and the gates' arithmetic.
//!
//! Rows of a batch and directions never meet, so a task takes some rows of one direction through all steps, and
//! the state of these rows stays in cache. Weights that are known at build are packed; `panels.rs` has the steps of these.

#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports))]
mod digits;
pub(crate) mod family;
mod panels;
#[cfg(test)]
mod tests;
mod weight;

use std::ops::Range;

use crate::gemm::{
    BatchDim, EpilogueCall, GemmCall, GemmPlan, GemmProblem, MAX_BATCH_DIMS, MatrixA, MatrixB, Tile,
};
use crate::isa::Isa;
use crate::shared::Shared;
use crate::simd::{Simd, SimdKernel};
use crate::team::{Task, Team};
use crate::vecmath::{sigmoid, tanh};
pub(crate) use digits::needed_feature;
use weight::Weight;

/// Rows of a batch that one task takes through all steps.
const ROWS: usize = 16;

/// Which cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cell {
    Lstm,
    /// Whether the reset gate is applied after the product instead of before it.
    Gru {
        linear_before_reset: bool,
    },
}

impl Cell {
    /// Gates, each of the hidden size.
    pub(crate) fn n_gates(self) -> usize {
        match self {
            Cell::Lstm => 4,
            Cell::Gru { .. } => 3,
        }
    }
}

/// A recurrent layer at given sizes. Operands are dense.
#[derive(Debug)]
pub(crate) struct Recurrent {
    pub(crate) isa: Isa,
    pub(crate) cell: Cell,
    pub(crate) seq: usize,
    pub(crate) batch: usize,
    pub(crate) hidden: usize,
    /// Whether each direction runs backwards.
    pub(crate) backwards: Vec<bool>,
    pub(crate) w: Weight,
    pub(crate) r: Weight,
    /// Places of X, and of B and the initial states where they are given, among the inputs.
    pub(crate) x: usize,
    pub(crate) b: Option<usize>,
    pub(crate) initial_h: Option<usize>,
    pub(crate) initial_c: Option<usize>,
    /// Places of Y, the last h and the last c among the outputs, where they are wanted.
    pub(crate) y: Option<usize>,
    pub(crate) y_h: Option<usize>,
    pub(crate) y_c: Option<usize>,
    /// The product of all inputs with the input weights.
    pub(crate) gates: GemmPlan,
    /// Products with the recurrent weights: of `ROWS` rows, and of the rest. GRU has the candidate's apart.
    pub(crate) full: Thin,
    pub(crate) rest: Thin,
    /// Of packed recurrent weights.
    pub(crate) tile: Tile,
}

/// The products of one step for some number of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thin {
    /// All gates, or all but the candidate's.
    gates: GemmPlan,
    /// The candidate's alone.
    candidate: GemmPlan,
}

impl Thin {
    pub(crate) fn new(isa: Isa, cell: Cell, rows: usize, hidden: usize, r: MatrixB) -> Thin {
        let n = match cell {
            Cell::Lstm | Cell::Gru { linear_before_reset: true } => cell.n_gates() * hidden,
            Cell::Gru { linear_before_reset: false } => 2 * hidden,
        };
        let width = cell.n_gates() * hidden;
        Thin {
            gates: GemmPlan::new(transposed(rows, n, hidden, r, width), isa),
            candidate: GemmPlan::new(transposed(rows, hidden, hidden, r, width), isa),
        }
    }

    fn workspace_bytes(&self) -> usize {
        self.gates.workspace_bytes(1).max(self.candidate.workspace_bytes(1))
    }
}

/// `C = A · Bᵀ` with dense rows of A, B of `n` rows of `k`, and C's rows `c_stride` apart.
pub(crate) fn transposed(m: usize, n: usize, k: usize, b: MatrixB, c_stride: usize) -> GemmProblem {
    GemmProblem {
        m,
        n,
        k,
        a: MatrixA::Rows { stride: k },
        b,
        c_stride,
        batch: [BatchDim::ONE; MAX_BATCH_DIMS],
    }
}

/// Where the parts of the workspace begin, in f32.
struct Parts {
    /// Sums of all steps: `[direction][step][row][gate]`.
    pre: usize,
    /// Sums of the step at hand, of every direction and row.
    now: usize,
    h: usize,
    /// The state of every other step, where weights are packed.
    other_h: usize,
    c: usize,
    /// `r ⊙ h` of GRU.
    reset: usize,
    bias: usize,
    /// The products' own, for each slot.
    gemm: usize,
    gemm_len: usize,
    len: usize,
}

impl Recurrent {
    fn parts(&self, n_slots: usize) -> Parts {
        let line = |n: usize| n.next_multiple_of(16);
        let (dirs, width) = (self.backwards.len(), self.cell.n_gates() * self.hidden);
        let pre = 0;
        let now = pre + line(dirs * self.seq * self.batch * width);
        let h = now + line(dirs * self.batch * width);
        let other_h = h + line(dirs * self.batch * self.hidden);
        let c = other_h + line(dirs * self.batch * self.hidden);
        let reset = c + line(dirs * self.batch * self.hidden);
        let bias = reset + line(dirs * self.batch * self.hidden);
        let gemm = bias + line(dirs * width);
        let thin = self.full.workspace_bytes().max(self.rest.workspace_bytes());
        let gemm_len = line(thin.div_ceil(size_of::<f32>()));
        let wide = self.gates.workspace_bytes(n_slots).div_ceil(size_of::<f32>());
        Parts {
            pre,
            now,
            h,
            other_h,
            c,
            reset,
            bias,
            gemm,
            gemm_len,
            len: gemm + line(wide.max(n_slots * gemm_len)),
        }
    }

    pub(crate) fn workspace_bytes(&self, n_slots: usize) -> usize {
        self.parts(n_slots).len * size_of::<f32>()
    }

    /// Whether there is nothing to compute; then the outputs are as the reference has them.
    ///
    /// # Safety
    /// The pointers must be valid for what the operands span.
    unsafe fn is_empty(&self, shared: Shared<'_>) -> bool {
        let n = self.backwards.len() * self.batch * self.hidden;
        if n > 0 && self.seq == 0 {
            // No step, no state, not even the initial one.
            for place in [self.y_h, self.y_c].into_iter().flatten() {
                // SAFETY: the last states have this many elements.
                unsafe { std::ptr::write_bytes(shared.outputs[place].cast::<f32>(), 0, n) };
            }
        }
        n == 0 || self.seq == 0
    }

    /// Computes it.
    ///
    /// # Safety
    /// The pointers must be valid for what the operands span, and workspace for [`Recurrent::workspace_bytes`].
    pub(crate) unsafe fn run(&self, shared: Shared<'_>, team: &Team) {
        let parts = self.parts(team.n_slots());
        let width = self.cell.n_gates() * self.hidden;
        let workspace = shared.workspace.cast::<f32>();
        let n_blocks = self.batch.div_ceil(ROWS);
        // SAFETY: the caller grants operands and workspace; the parts do not overlap.
        unsafe {
            for direction in 0..self.backwards.len() {
                let bias = workspace.add(parts.bias + direction * width);
                self.sum_biases(shared, direction, bias);
                let (b, blocks) = self.w.at(shared, direction);
                let call = GemmCall {
                    a: shared.inputs[self.x].cast(),
                    b,
                    blocks,
                    c: workspace.add(parts.pre + direction * self.seq * self.batch * width),
                    epilogue: EpilogueCall { bias, ..EpilogueCall::NONE },
                    hook: None,
                    workspace: workspace.add(parts.gemm),
                };
                self.gates.run(&call, team);
            }
        }
        let parts = &parts;
        if self.r.is_packed() {
            // SAFETY: as granted by the caller; the weights are packed.
            return unsafe { self.run_steps(shared, parts, team) };
        }
        team.for_each(self.backwards.len() * n_blocks, &move |task: Task| {
            let shared = shared;
            self.isa.run(Rows { plan: self, shared, parts, task });
        });
    }

    /// The biases that are simply added: both, but for the recurrent one of a GRU's candidate that is reset.
    unsafe fn sum_biases(&self, shared: Shared<'_>, direction: usize, to: *mut f32) {
        let width = self.cell.n_gates() * self.hidden;
        let late = matches!(self.cell, Cell::Gru { linear_before_reset: true });
        for at in 0..width {
            // SAFETY: the bias, where given, has twice the width for each direction.
            unsafe {
                *to.add(at) = match self.b {
                    None => 0.0,
                    Some(b) => {
                        let from = shared.inputs[b].cast::<f32>().add(direction * 2 * width);
                        let recurrent =
                            if late && at >= 2 * self.hidden { 0.0 } else { *from.add(width + at) };
                        *from.add(at) + recurrent
                    }
                };
            }
        }
    }
}

/// One task: some rows of one direction.
struct Rows<'a> {
    plan: &'a Recurrent,
    shared: Shared<'a>,
    parts: &'a Parts,
    task: Task,
}

impl SimdKernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: `Recurrent::run` was granted the operands; tasks have different rows or directions.
        unsafe { self.compute(s) }
    }
}

impl Rows<'_> {
    #[inline(always)]
    unsafe fn compute<S: Simd>(&self, s: S) {
        let (plan, parts) = (self.plan, self.parts);
        let (hidden, batch) = (plan.hidden, plan.batch);
        let n_gates = plan.cell.n_gates();
        let width = n_gates * hidden;
        let n_blocks = batch.div_ceil(ROWS);
        let direction = self.task.idx / n_blocks;
        let first = self.task.idx % n_blocks * ROWS;
        let rows = (batch - first).min(ROWS);
        let thin = if rows == ROWS { &plan.full } else { &plan.rest };
        let alone = Team::alone();
        // SAFETY: see `run`.
        unsafe {
            let workspace = self.shared.workspace.cast::<f32>();
            let at = direction * batch + first;
            let (now, h) = (workspace.add(parts.now + at * width), workspace.add(parts.h + at * hidden));
            let (c, reset) = (workspace.add(parts.c + at * hidden), workspace.add(parts.reset + at * hidden));
            let gemm = workspace.add(parts.gemm + self.task.slot * parts.gemm_len);
            let input = |idx: usize| self.shared.inputs[idx].cast::<f32>();
            let (r, blocks) = plan.r.at(self.shared, direction);
            let recurrent_bias = plan.b.map(|b| input(b).add(direction * 2 * width + width));
            start(plan.initial_h.map(|idx| input(idx).add(at * hidden)), h, rows * hidden);
            start(plan.initial_c.map(|idx| input(idx).add(at * hidden)), c, rows * hidden);
            for step in 0..plan.seq {
                let time = if plan.backwards[direction] { plan.seq - 1 - step } else { step };
                let pre = workspace.add(parts.pre + ((direction * plan.seq + time) * batch + first) * width);
                let late = matches!(plan.cell, Cell::Gru { linear_before_reset: true });
                let sums = EpilogueCall {
                    residual: if late { std::ptr::null() } else { pre.cast_const() },
                    residual_stride: width,
                    ..EpilogueCall::NONE
                };
                let call =
                    GemmCall { a: h, b: r, blocks, c: now, epilogue: sums, hook: None, workspace: gemm };
                thin.gates.run(&call, &alone);
                match plan.cell {
                    Cell::Lstm => {
                        for row in 0..rows {
                            let (now, h) = (now.add(row * width), h.add(row * hidden));
                            lstm(s, now, h, c.add(row * hidden), hidden, 0..hidden);
                        }
                    }
                    Cell::Gru { linear_before_reset: true } => {
                        for row in 0..rows {
                            let (pre, now) = (pre.add(row * width), now.add(row * width));
                            let h = h.add(row * hidden);
                            gru_late(s, pre, now, recurrent_bias, (h, h), hidden, 0..hidden);
                        }
                    }
                    Cell::Gru { linear_before_reset: false } => {
                        for row in 0..rows {
                            let now = now.add(row * width);
                            let (h, reset) = (h.add(row * hidden), reset.add(row * hidden));
                            gru_reset(s, now, h, reset, hidden, 0..hidden);
                        }
                        let epilogue = EpilogueCall {
                            residual: pre.add(2 * hidden),
                            residual_stride: width,
                            ..EpilogueCall::NONE
                        };
                        // Bytes are packed whole: this cell has floats.
                        let b = r.add(2 * hidden * hidden);
                        let c = now.add(2 * hidden);
                        let call =
                            GemmCall { a: reset, b, blocks: None, c, epilogue, hook: None, workspace: gemm };
                        thin.candidate.run(&call, &alone);
                        for row in 0..rows {
                            let h = h.add(row * hidden);
                            gru_mix(s, now.add(row * width), (h, h), hidden, 0..hidden);
                        }
                    }
                }
                if let Some(y) = plan.y {
                    let to = (time * plan.backwards.len() + direction) * batch + first;
                    let to = self.shared.outputs[y].cast::<f32>().add(to * hidden);
                    std::ptr::copy_nonoverlapping(h, to, rows * hidden);
                }
            }
            for (place, from) in [(plan.y_h, h), (plan.y_c, c)] {
                if let Some(place) = place {
                    let to = self.shared.outputs[place].cast::<f32>().add(at * hidden);
                    std::ptr::copy_nonoverlapping(from, to, rows * hidden);
                }
            }
        }
    }
}

/// Copies an initial state, or zeros.
unsafe fn start(from: Option<*const f32>, to: *mut f32, n: usize) {
    // SAFETY: the caller grants `n` elements of both.
    unsafe {
        match from {
            Some(from) => std::ptr::copy_nonoverlapping(from, to, n),
            None => std::ptr::write_bytes(to, 0, n),
        }
    }
}

/// Gates i, o, f and the candidate of one row, in this order; updates these units of h and c.
#[inline(always)]
unsafe fn lstm<S: Simd>(s: S, gates: *const f32, h: *mut f32, c: *mut f32, n: usize, units: Range<usize>) {
    for at in units.clone().step_by(S::LANES) {
        let rest = units.end - at;
        // SAFETY: the gates hold four times `n`, the states `n`.
        unsafe {
            let gate = |idx: usize| s.load_part(gates.add(idx * n + at), rest);
            let i = sigmoid(s, gate(0));
            let o = sigmoid(s, gate(1));
            let f = sigmoid(s, gate(2));
            let new = s.mul_add(f, s.load_part(c.add(at), rest), s.mul(i, tanh(s, gate(3))));
            s.store_part(c.add(at), rest, new);
            s.store_part(h.add(at), rest, s.mul(o, tanh(s, new)));
        }
    }
}

/// Applies the gates z and r of one row, and makes `r ⊙ h`.
#[inline(always)]
unsafe fn gru_reset<S: Simd>(
    s: S,
    gates: *mut f32,
    h: *const f32,
    reset: *mut f32,
    n: usize,
    units: Range<usize>,
) {
    for at in units.clone().step_by(S::LANES) {
        let rest = units.end - at;
        // SAFETY: the gates hold three times `n`, the states `n`.
        unsafe {
            let z = sigmoid(s, s.load_part(gates.add(at), rest));
            let r = sigmoid(s, s.load_part(gates.add(n + at), rest));
            s.store_part(gates.add(at), rest, z);
            s.store_part(reset.add(at), rest, s.mul(r, s.load_part(h.add(at), rest)));
        }
    }
}

/// `new = (1 - z) ⊙ tanh(candidate) + z ⊙ h`, z being final.
#[inline(always)]
unsafe fn gru_mix<S: Simd>(
    s: S,
    gates: *const f32,
    (h, new): (*const f32, *mut f32),
    n: usize,
    units: Range<usize>,
) {
    for at in units.clone().step_by(S::LANES) {
        let rest = units.end - at;
        // SAFETY: as for `gru_reset`.
        unsafe {
            let z = s.load_part(gates.add(at), rest);
            let candidate = tanh(s, s.load_part(gates.add(2 * n + at), rest));
            let kept = s.mul(z, s.load_part(h.add(at), rest));
            s.store_part(new.add(at), rest, s.mul_add(s.sub(s.splat(1.0), z), candidate, kept));
        }
    }
}

/// A step of a GRU whose reset gate is applied after the product: `recurrent` holds the products alone.
#[inline(always)]
unsafe fn gru_late<S: Simd>(
    s: S,
    pre: *const f32,
    recurrent: *const f32,
    bias: Option<*const f32>,
    (h, new): (*const f32, *mut f32),
    n: usize,
    units: Range<usize>,
) {
    for at in units.clone().step_by(S::LANES) {
        let rest = units.end - at;
        // SAFETY: sums and bias hold three times `n`, the states `n`.
        unsafe {
            let sum = |idx: usize| {
                s.add(
                    s.load_part(pre.add(idx * n + at), rest),
                    s.load_part(recurrent.add(idx * n + at), rest),
                )
            };
            let (z, r) = (sigmoid(s, sum(0)), sigmoid(s, sum(1)));
            let own = bias.map_or(s.zero(), |bias| s.load_part(bias.add(2 * n + at), rest));
            let fed_back = s.add(s.load_part(recurrent.add(2 * n + at), rest), own);
            let candidate = tanh(s, s.mul_add(r, fed_back, s.load_part(pre.add(2 * n + at), rest)));
            let kept = s.mul(z, s.load_part(h.add(at), rest));
            s.store_part(new.add(at), rest, s.mul_add(s.sub(s.splat(1.0), z), candidate, kept));
        }
    }
}
