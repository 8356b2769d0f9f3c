//! Lp normalization: every line along an axis divided by its length, the sum of magnitudes or the root of the
//! sum of squares.

use crate::isa::Isa;
use crate::lines::{Lines, Magnitude, Square, each_vector, sum_along};
use crate::simd::{Simd, SimdKernel};

/// Elements of a task.
const TASK_ELEMENTS: usize = 1 << 15;

/// A normalization of lines, their places settled.
#[derive(Clone, Debug)]
pub struct LpNorm {
    isa: Isa,
    lines: Lines,
    /// Squares instead of magnitudes.
    squares: bool,
}

impl LpNorm {
    /// Along `axis`, with strides of input and output in elements.
    pub fn new(isa: Isa, dims: &[usize], from: &[usize], to: &[usize], axis: usize, squares: bool) -> LpNorm {
        LpNorm { isa, lines: Lines::new(dims, from, to, axis), squares }
    }

    fn n_units(&self) -> usize {
        match self.lines.len {
            0 => 0,
            _ => self.lines.n_bundles() * self.lines.n_beside.div_ceil(self.isa.lanes()),
        }
    }

    fn per_task(&self) -> usize {
        let beside = self.lines.n_beside.min(self.isa.lanes());
        (TASK_ELEMENTS / (self.lines.len.max(1) * beside)).max(1)
    }

    /// How many tasks: a matter of sizes alone.
    pub fn n_tasks(&self) -> usize {
        self.n_units().div_ceil(self.per_task())
    }

    /// Runs one task.
    ///
    /// # Safety
    /// `from` and `to` must be valid for the sizes and strides given; other tasks of the run may use them
    /// meanwhile, nobody else. `to` may be `from`.
    pub unsafe fn run_task(&self, task: usize, from: *const f32, to: *mut f32) {
        let units = task * self.per_task()..((task + 1) * self.per_task()).min(self.n_units());
        self.isa.run(Run { plan: self, units, from, to });
    }
}

struct Run<'a> {
    plan: &'a LpNorm,
    units: std::ops::Range<usize>,
    from: *const f32,
    to: *mut f32,
}

impl SimdKernel for Run<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (lines, squares) = (&self.plan.lines, self.plan.squares);
        let n_vectors = lines.n_beside.div_ceil(S::LANES);
        let grown = |v: S::F| if squares { s.mul(v, v) } else { s.abs(v) };
        // ONNX defines the quotient by a zero length as zero.
        let quotient = |v: S::F, length: S::F| s.select(s.eq(length, s.zero()), s.zero(), s.div(v, length));
        for unit in self.units {
            let (from, to) = lines.offsets(unit / n_vectors);
            let first = unit % n_vectors * S::LANES;
            let width = lines.n_beside - first;
            // SAFETY: the caller of `run_task` grants the operands.
            unsafe {
                let (from, to) = (self.from.add(from + first), self.to.add(to + first));
                if lines.is_along() {
                    let length = match squares {
                        true => sum_along::<S, Square>(s, from, lines.len, s.zero()).sqrt(),
                        false => sum_along::<S, Magnitude>(s, from, lines.len, s.zero()),
                    };
                    let length = s.splat(length as f32);
                    each_vector!(S, lines.len, |at, rest| {
                        s.store_part(to.add(at), rest, quotient(s.load_part(from.add(at), rest), length));
                    });
                } else {
                    let mut sum = s.zero();
                    for start in (0..lines.len).step_by(64) {
                        let mut part = s.zero();
                        for idx in start..(start + 64).min(lines.len) {
                            part = s.add(part, grown(s.load_part(from.add(idx * lines.steps.0), width)));
                        }
                        sum = s.add(sum, part);
                    }
                    let length = if squares { s.sqrt(sum) } else { sum };
                    for idx in 0..lines.len {
                        let v = s.load_part(from.add(idx * lines.steps.0), width);
                        s.store_part(to.add(idx * lines.steps.1), width, quotient(v, length));
                    }
                }
            }
        }
    }
}
