//! Softmax and its logarithm along any axis, in either layout.
//!
//! Three walks over a line: its maximum, the exponentials and their sum, the scaling; lines that are short
//! beside the caches are read from memory once. Where elements of a line lie apart but lines lie side by
//! side, vectors go across the lines.

pub(crate) mod family;
#[cfg(test)]
mod tests;

use crate::isa::Isa;
use crate::lines::{Exponential, Lines, each_vector, first_lanes, load_or, max_along, sum_along};
use crate::simd::{Simd, SimdKernel};
use crate::vecmath;

/// Elements of a task: some 20 µs of exponentials.
const TASK_ELEMENTS: usize = 1 << 15;

/// Softmax with the places of its lines settled.
#[derive(Clone, Debug)]
pub struct Softmax {
    isa: Isa,
    lines: Lines,
    log: bool,
    /// Lines (or vectors of lines side by side) of a task.
    per_task: usize,
}

impl Softmax {
    /// Along `axis` of a value of these sizes, with strides of input and output in elements.
    pub fn new(isa: Isa, dims: &[usize], from: &[usize], to: &[usize], axis: usize, log: bool) -> Softmax {
        let lines = Lines::new(dims, from, to, axis);
        let per_unit = lines.len.max(1) * if lines.n_beside > 1 { isa.lanes() } else { 1 };
        Softmax { isa, lines, log, per_task: (TASK_ELEMENTS / per_unit).max(1) }
    }

    /// Lines, or vectors of lines.
    fn n_units(&self) -> usize {
        if self.lines.len == 0 {
            return 0;
        }
        self.lines.n_bundles() * self.lines.n_beside.div_ceil(self.isa.lanes())
    }

    /// How many tasks: a matter of sizes alone.
    pub fn n_tasks(&self) -> usize {
        self.n_units().div_ceil(self.per_task)
    }

    /// Workspace bytes of a slot: a line that has to be gathered.
    pub fn workspace_bytes(&self) -> usize {
        let gathers = !self.lines.is_along() && self.lines.n_beside == 1;
        if gathers { (self.lines.len * size_of::<f32>()).next_multiple_of(64) } else { 0 }
    }

    /// Runs one task.
    ///
    /// # Safety
    /// `from` and `to` must be valid for the sizes and strides given, `workspace` for `workspace_bytes()`; other
    /// tasks of the run may use `from` and `to` meanwhile, nobody else. `to` may be `from`.
    pub unsafe fn run_task(&self, task: usize, from: *const f32, to: *mut f32, workspace: *mut f32) {
        let units = task * self.per_task..((task + 1) * self.per_task).min(self.n_units());
        self.isa.run(Run { plan: self, units, from, to, workspace });
    }
}

struct Run<'a> {
    plan: &'a Softmax,
    units: std::ops::Range<usize>,
    from: *const f32,
    to: *mut f32,
    workspace: *mut f32,
}

impl SimdKernel for Run<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let lines = &self.plan.lines;
        let n_vectors = lines.n_beside.div_ceil(S::LANES);
        for unit in self.units {
            let (bundle, vector) = (unit / n_vectors, unit % n_vectors);
            let (from, to) = lines.offsets(bundle);
            // SAFETY: the caller of `run_task` grants the operands and the workspace.
            unsafe {
                let (from, to) = (self.from.add(from), self.to.add(to));
                if lines.is_along() {
                    line(s, from, to, lines.len, self.plan.log);
                } else if lines.n_beside > 1 {
                    let first = vector * S::LANES;
                    let width = lines.n_beside - first;
                    across(s, from.add(first), to.add(first), width, lines, self.plan.log);
                } else {
                    for idx in 0..lines.len {
                        *self.workspace.add(idx) = *from.add(idx * lines.steps.0);
                    }
                    line(s, self.workspace, self.workspace, lines.len, self.plan.log);
                    for idx in 0..lines.len {
                        *to.add(idx * lines.steps.1) = *self.workspace.add(idx);
                    }
                }
            }
        }
    }
}

/// One line whose elements follow each other.
///
/// # Safety
/// Both must be good for `n` elements.
#[inline(always)]
unsafe fn line<S: Simd>(s: S, from: *const f32, to: *mut f32, n: usize, log: bool) {
    // SAFETY: the caller grants it.
    unsafe {
        // A NaN in the line makes the sum NaN, whatever the maximum is.
        let most = s.splat(max_along(s, from, n));
        if log {
            let sum = sum_along::<S, Exponential>(s, from, n, most);
            let log_sum = s.splat(sum.ln() as f32);
            each_vector!(S, n, |at, rest| {
                let x = s.load_part(from.add(at), rest);
                s.store_part(to.add(at), rest, s.sub(s.sub(x, most), log_sum));
            });
        } else {
            let sum = exponentials(s, from, to, n, most);
            let inverse = s.splat((1.0 / sum) as f32);
            each_vector!(S, n, |at, rest| {
                let x = s.load_part(to.add(at), rest);
                s.store_part(to.add(at), rest, s.mul(x, inverse));
            });
        }
    }
}

/// Elements whose exponentials are added in f32 before the sum goes on in f64.
const SUM_BLOCK: usize = 4096;

/// Writes `e^(x - most)` and gives the sum.
///
/// # Safety
/// Both must be good for `n` elements.
#[inline(always)]
unsafe fn exponentials<S: Simd>(s: S, from: *const f32, to: *mut f32, n: usize, most: S::F) -> f64 {
    let mut total = 0.0;
    let mut start = 0;
    while start < n {
        let end = (start + SUM_BLOCK).min(n);
        let mut sums = [s.zero(); 2];
        let mut at = start;
        // SAFETY: the caller grants it.
        unsafe {
            while at + 2 * S::LANES <= end {
                let a = vecmath::exp(s, s.sub(s.load(from.add(at)), most));
                let b = vecmath::exp(s, s.sub(s.load(from.add(at + S::LANES)), most));
                s.store(to.add(at), a);
                s.store(to.add(at + S::LANES), b);
                sums = [s.add(sums[0], a), s.add(sums[1], b)];
                at += 2 * S::LANES;
            }
            while at < end {
                let rest = end - at;
                let value = vecmath::exp(s, s.sub(s.load_part(from.add(at), rest), most));
                s.store_part(to.add(at), rest, value);
                sums[0] = s.add(sums[0], s.select(first_lanes(s, rest), value, s.zero()));
                at += S::LANES;
            }
        }
        total += f64::from(s.sum(s.add(sums[0], sums[1])));
        start = end;
    }
    total
}

/// Up to a vector of lines side by side.
///
/// # Safety
/// Both must be good for the lines.
#[inline(always)]
unsafe fn across<S: Simd>(s: S, from: *const f32, to: *mut f32, width: usize, lines: &Lines, log: bool) {
    /// Exponentials added in f32 before the sum is put aside: lines of 64·64 lose at most 7 bits of 24 to it.
    const BLOCK: usize = 64;
    let (from_step, to_step) = lines.steps;
    // SAFETY: the caller grants it; lanes beyond `width` are filled and never stored.
    unsafe {
        let load = |idx: usize| load_or(s, from.add(idx * from_step), width, 0.0);
        let mut most = load(0);
        for idx in 1..lines.len {
            most = s.max(load(idx), most);
        }
        let mut sum = s.zero();
        for start in (0..lines.len).step_by(BLOCK) {
            let mut part = s.zero();
            for idx in start..(start + BLOCK).min(lines.len) {
                let value = vecmath::exp(s, s.sub(load(idx), most));
                if !log {
                    s.store_part(to.add(idx * to_step), width, value);
                }
                part = s.add(part, value);
            }
            sum = s.add(sum, part);
        }
        if log {
            let log_sum = vecmath::log(s, sum);
            for idx in 0..lines.len {
                s.store_part(to.add(idx * to_step), width, s.sub(s.sub(load(idx), most), log_sum));
            }
        } else {
            let inverse = s.div(s.splat(1.0), sum);
            for idx in 0..lines.len {
                let at = to.add(idx * to_step);
                s.store_part(at, width, s.mul(s.load_part(at, width), inverse));
            }
        }
    }
}
