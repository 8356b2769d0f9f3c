//! Lp normalization: every line along an axis divided by its length, the sum of magnitudes or the root of the
//! sum of squares.

use crate::isa::Isa;
use crate::lines::{LineKernel, LineTasks, Lines, Magnitude, Square, each_vector, sum_along};
use crate::simd::Simd;

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
}

impl LineKernel for LpNorm {
    type To = f32;

    fn tasks(&self) -> &LineTasks {
        &self.tasks
    }

    #[inline(always)]
    unsafe fn unit<S: Simd>(&self, s: S, from: *const f32, to: *mut f32, width: usize) {
        let (lines, squares) = (&self.tasks.lines, self.squares);
        let grown = |v: S::F| if squares { s.mul(v, v) } else { s.abs(v) };
        // ONNX defines the quotient by a zero length as zero.
        let quotient = |v: S::F, length: S::F| s.select(s.eq(length, s.zero()), s.zero(), s.div(v, length));
        // SAFETY: the caller grants the lines; `to` may be `from`, since each element is read before it is written.
        unsafe {
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
