//! Steps of a layer whose recurrent weights were packed at build: a matrix of panels for each gate.
//!
//! A panel holds all that some hidden units need of a gate, so whoever has the panels of a unit in every gate can finish
//! the unit: products, functions and the new state. Where rows and directions alone do not busy a team, units are shared
//! out among its threads, with a meeting after each step; a thread then reads the same part of the weights in every
//! step and finds it in its own cache. What a unit's sum is does not depend on who computes it.

use std::ops::Range;

use super::{Cell, Parts, ROWS, Recurrent, gru_late, gru_mix, gru_reset, lstm, start};
use crate::gemm::pack::PackedB;
use crate::gemm::tile::{Ahead, EpilogueCall, TileCall};
use crate::shared::Shared;
use crate::simd::{Simd, SimdKernel};
use crate::team::{Task, Team};

/// A step that takes less is not worth a meeting of threads, of one or two microseconds.
const FORK_NS: f64 = 6_000.0;
/// What a core reads of weights and multiplies in a nanosecond.
const BYTES_PER_NS: f64 = 40.0;
const FLOPS_PER_NS: f64 = 80.0;

/// Some rows of one direction.
#[derive(Clone, Copy)]
struct Block {
    direction: usize,
    first: usize,
    rows: usize,
}

/// What of a step is computed at once: a unit of a later phase reads all units of the one before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Everything.
    Whole,
    /// The gates of a GRU that resets early, and what its candidate reads.
    Gates,
    /// Its candidate, and the new state.
    Candidate,
}

impl Recurrent {
    /// The panels of one gate.
    fn layout(&self) -> PackedB {
        PackedB::new(self.tile, self.hidden, self.hidden)
    }

    fn block(&self, idx: usize) -> Block {
        let n_blocks = self.batch.div_ceil(ROWS);
        let first = idx % n_blocks * ROWS;
        Block { direction: idx / n_blocks, first, rows: (self.batch - first).min(ROWS) }
    }

    fn phases(&self) -> &'static [Phase] {
        match self.cell {
            Cell::Lstm | Cell::Gru { linear_before_reset: true } => &[Phase::Whole],
            Cell::Gru { linear_before_reset: false } => &[Phase::Gates, Phase::Candidate],
        }
    }

    /// What one block takes for a step on one thread, about.
    fn step_ns(&self) -> f64 {
        let elements = (self.cell.n_gates() * self.hidden * self.hidden) as f64;
        let rows = self.batch.min(ROWS) as f64;
        (elements * size_of::<f32>() as f64 / BYTES_PER_NS).max(2.0 * elements * rows / FLOPS_PER_NS)
    }

    /// All steps, after the products with the input weights.
    ///
    /// # Safety
    /// As for [`Recurrent::run`]; the recurrent weights must be packed.
    pub(super) unsafe fn run_steps(&self, shared: Shared<'_>, parts: &Parts, team: &Team) {
        let n_blocks = self.backwards.len() * self.batch.div_ceil(ROWS);
        let n_panels = self.layout().n_panels();
        let is_long = self.step_ns() / self.phases().len() as f64 > FORK_NS;
        let n_cuts = team.n_slots().div_ceil(n_blocks).min(n_panels);
        if n_cuts <= 1 || !is_long {
            team.for_each(n_blocks, &move |task: Task| {
                let shared = shared;
                let block = self.block(task.idx);
                // SAFETY: as the caller grants; blocks have different rows or directions.
                unsafe {
                    self.begin(shared, parts, block);
                    for step in 0..self.seq {
                        for &phase in self.phases() {
                            self.isa.run(Units {
                                plan: self,
                                shared,
                                parts,
                                block,
                                step,
                                phase,
                                panels: 0..n_panels,
                            });
                        }
                    }
                    self.end(shared, parts, block);
                }
            });
            return;
        }
        // SAFETY: as the caller grants; tasks have different units, rows or directions, and those of a phase have all
        // finished when the next one begins.
        unsafe {
            (0..n_blocks).for_each(|idx| self.begin(shared, parts, self.block(idx)));
            for step in 0..self.seq {
                for &phase in self.phases() {
                    // Cuts outermost: a thread keeps its part of the weights.
                    team.for_each(n_blocks * n_cuts, &move |task: Task| {
                        let shared = shared;
                        let (cut, block) = (task.idx / n_blocks, self.block(task.idx % n_blocks));
                        let panels = n_panels * cut / n_cuts..n_panels * (cut + 1) / n_cuts;
                        self.isa.run(Units { plan: self, shared, parts, block, step, phase, panels });
                    });
                }
            }
            (0..n_blocks).for_each(|idx| self.end(shared, parts, self.block(idx)));
        }
    }

    /// The state that a step reads, of a block: two take turns, as units read what others write.
    ///
    /// # Safety
    /// As for [`Recurrent::run_steps`].
    unsafe fn state(&self, shared: Shared<'_>, parts: &Parts, block: Block, step: usize) -> *mut f32 {
        let at = (block.direction * self.batch + block.first) * self.hidden;
        let part = if step.is_multiple_of(2) { parts.h } else { parts.other_h };
        // SAFETY: the part has all rows of all directions.
        unsafe { shared.workspace.cast::<f32>().add(part + at) }
    }

    /// # Safety
    /// As for [`Recurrent::run_steps`].
    unsafe fn begin(&self, shared: Shared<'_>, parts: &Parts, block: Block) {
        let at = (block.direction * self.batch + block.first) * self.hidden;
        let n = block.rows * self.hidden;
        // SAFETY: states have all rows of all directions.
        unsafe {
            let input = |idx: usize| shared.inputs[idx].cast::<f32>().add(at);
            start(self.initial_h.map(input), self.state(shared, parts, block, 0), n);
            start(self.initial_c.map(input), shared.workspace.cast::<f32>().add(parts.c + at), n);
        }
    }

    /// # Safety
    /// As for [`Recurrent::run_steps`].
    unsafe fn end(&self, shared: Shared<'_>, parts: &Parts, block: Block) {
        let at = (block.direction * self.batch + block.first) * self.hidden;
        // SAFETY: as for `begin`.
        unsafe {
            let h = self.state(shared, parts, block, self.seq);
            let c = shared.workspace.cast::<f32>().add(parts.c + at);
            for (place, from) in [(self.y_h, h), (self.y_c, c)] {
                if let Some(place) = place {
                    let to = shared.outputs[place].cast::<f32>().add(at);
                    std::ptr::copy_nonoverlapping(from, to, block.rows * self.hidden);
                }
            }
        }
    }
}

/// The units of some panels in one phase of one step, for the rows of a block.
struct Units<'a> {
    plan: &'a Recurrent,
    shared: Shared<'a>,
    parts: &'a Parts,
    block: Block,
    step: usize,
    phase: Phase,
    panels: Range<usize>,
}

impl SimdKernel for Units<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: `Recurrent::run_steps` was granted the operands; nobody else has these units of these rows.
        unsafe { self.compute(s) }
    }
}

impl Units<'_> {
    #[inline(always)]
    unsafe fn compute<S: Simd>(&self, s: S) {
        let (plan, parts, Block { direction, first, rows }) = (self.plan, self.parts, self.block);
        let (hidden, batch) = (plan.hidden, plan.batch);
        let n_gates = plan.cell.n_gates();
        let width = n_gates * hidden;
        let layout = plan.layout();
        let time = if plan.backwards[direction] { plan.seq - 1 - self.step } else { self.step };
        let is_late = plan.cell == Cell::Gru { linear_before_reset: true };
        let gates = match self.phase {
            Phase::Whole => 0..n_gates,
            Phase::Gates => 0..2,
            Phase::Candidate => 2..3,
        };
        // SAFETY: see `run`; the parts of the workspace hold all rows, and packed weights all panels.
        unsafe {
            let workspace = self.shared.workspace.cast::<f32>();
            let at = direction * batch + first;
            let now = workspace.add(parts.now + at * width);
            let pre = workspace.add(parts.pre + ((direction * plan.seq + time) * batch + first) * width);
            let (h, next) = (
                plan.state(self.shared, parts, self.block, self.step),
                plan.state(self.shared, parts, self.block, self.step + 1),
            );
            let (c, reset) = (workspace.add(parts.c + at * hidden), workspace.add(parts.reset + at * hidden));
            let (r, _) = plan.r.at(self.shared, direction);
            let bias = plan.b.map(|b| self.shared.inputs[b].cast::<f32>().add((2 * direction + 1) * width));
            let y = plan.y.map(|y| {
                let row = (time * plan.backwards.len() + direction) * batch + first;
                self.shared.outputs[y].cast::<f32>().add(row * hidden)
            });
            let from = if self.phase == Phase::Candidate { reset } else { h };
            let pointers: [*const f32; ROWS] =
                crate::simd::arrays::from_fn(|row| from.wrapping_add(row * hidden).cast_const());
            let n_chunks = rows.div_ceil(plan.tile.mr());
            for panel in self.panels.clone() {
                let column = panel * plan.tile.nr();
                let n = layout.columns(panel);
                for gate in gates.clone() {
                    let to = gate * hidden + column;
                    for chunk in 0..n_chunks {
                        let row = rows * chunk / n_chunks;
                        let epilogue = EpilogueCall {
                            residual: match is_late {
                                true => std::ptr::null(),
                                false => pre.add(row * width + to).cast_const(),
                            },
                            residual_stride: width,
                            ..EpilogueCall::NONE
                        };
                        plan.tile.run(&TileCall {
                            rows: pointers[row..].as_ptr(),
                            rows_stride: 0,
                            n_segments: 1,
                            depth: hidden,
                            panel: r.add(gate * layout.len() + layout.offset(panel)),
                            panel_stride: layout.width(panel),
                            ahead: Ahead::NONE,
                            c: now.add(row * width + to),
                            c_stride: width,
                            m: rows * (chunk + 1) / n_chunks - row,
                            n,
                            accumulate: false,
                            epilogue,
                        });
                    }
                }
                let units = column..column + n;
                for row in 0..rows {
                    let (pre, now) = (pre.add(row * width), now.add(row * width));
                    let (h, next) = (h.add(row * hidden), next.add(row * hidden));
                    let units = units.clone();
                    match (plan.cell, self.phase) {
                        (Cell::Lstm, _) => lstm(s, now, next, c.add(row * hidden), hidden, units),
                        (Cell::Gru { .. }, Phase::Whole) => {
                            gru_late(s, pre, now, bias, (h, next), hidden, units)
                        }
                        (Cell::Gru { .. }, Phase::Gates) => {
                            gru_reset(s, now, h, reset.add(row * hidden), hidden, units);
                            continue;
                        }
                        (Cell::Gru { .. }, Phase::Candidate) => gru_mix(s, now, (h, next), hidden, units),
                    }
                    if let Some(y) = y {
                        let to = y.add(row * hidden + column);
                        std::ptr::copy_nonoverlapping(next.add(column), to, n);
                    }
                }
            }
        }
    }
}
