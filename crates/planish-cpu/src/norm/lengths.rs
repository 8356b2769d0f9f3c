//! Lp normalization: every line along an axis divided by its length, the sum of magnitudes or the root of the
//! sum of squares.

use crate::isa::Isa;
use crate::lines::{LineTasks, Lines, Magnitude, Square, each_vector, sum_along};
use crate::simd::{Simd, SimdKernel};

/// Elements of a task.
const TASK_ELEMENTS: usize = 1 << 15;

/// A normalization of lines, their places settled.
#[derive(Clone, Debug)]
pub struct LpNorm {
    tasks: LineTasks,
    /// Squares instead of magnitudes.
    squares: bool,
}

impl LpNorm {
    /// Along `axis`, with strides of input and output in elements.
    pub fn new(isa: Isa, dims: &[usize], from: &[usize], to: &[usize], axis: usize, squares: bool) -> LpNorm {
        LpNorm {
            tasks: LineTasks { isa, lines: Lines::new(dims, from, to, axis), n_elements: TASK_ELEMENTS },
            squares,
        }
    }

    /// How many tasks: a matter of sizes alone.
    pub fn n_tasks(&self) -> usize {
        self.tasks.n_tasks()
    }

    /// Runs one task.
    ///
    /// # Safety
    /// `from` and `to` must be valid for the sizes and strides given; other tasks of the run may use them
    /// meanwhile, nobody else. `to` may be `from`.
    pub unsafe fn run_task(&self, task: usize, from: *const f32, to: *mut f32) {
        self.tasks.isa.run(Run { plan: self, units: self.tasks.units(task), from, to });
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
        let (tasks, squares) = (&self.plan.tasks, self.plan.squares);
        let lines = &tasks.lines;
        let grown = |v: S::F| if squares { s.mul(v, v) } else { s.abs(v) };
        // ONNX defines the quotient by a zero length as zero.
        let quotient = |v: S::F, length: S::F| s.select(s.eq(length, s.zero()), s.zero(), s.div(v, length));
        for unit in self.units {
            let (from, to, width) = tasks.unit::<S>(unit);
            // SAFETY: the caller of `run_task` grants the operands.
            unsafe {
                let (from, to) = (self.from.add(from), self.to.add(to));
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
