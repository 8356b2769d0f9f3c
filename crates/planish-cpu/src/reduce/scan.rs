//! Running sums along an axis.

use crate::isa::Isa;
use crate::lines::{LineKernel, LineTasks, Lines};
use crate::simd::Simd;
use crate::vecmath::MAX_LANES;

/// Elements of a task.
const TASK_ELEMENTS: usize = 1 << 15;

/// A running sum with its places settled. Sums are kept in f64.
#[derive(Clone, Debug)]
pub struct RunningSum {
    tasks: LineTasks,
    reverse: bool,
    exclusive: bool,
}

impl RunningSum {
    /// Along `axis` of a value of these sizes, with strides of input and output in elements.
    pub fn new(
        isa: Isa,
        (dims, from, to): (&[usize], &[usize], &[usize]),
        axis: usize,
        reverse: bool,
        exclusive: bool,
    ) -> RunningSum {
        RunningSum {
            tasks: LineTasks { isa, lines: Lines::new(dims, from, to, axis), n_elements: TASK_ELEMENTS },
            reverse,
            exclusive,
        }
    }
}

impl LineKernel for RunningSum {
    type To = f32;

    fn tasks(&self) -> &LineTasks {
        &self.tasks
    }

    #[inline(always)]
    unsafe fn unit<S: Simd>(&self, _: S, from: *const f32, to: *mut f32, width: usize) {
        let lines = &self.tasks.lines;
        let mut sums = [0f64; MAX_LANES];
        for idx in 0..lines.len {
            let idx = if self.reverse { lines.len - 1 - idx } else { idx };
            // SAFETY: the caller grants the lines; `to` may be `from`, since each element is read before it is written.
            unsafe {
                let (from, to) = (from.add(idx * lines.steps.0), to.add(idx * lines.steps.1));
                for (lane, sum) in sums.iter_mut().enumerate().take(width) {
                    let before = *sum;
                    *sum += f64::from(*from.add(lane));
                    *to.add(lane) = if self.exclusive { before } else { *sum } as f32;
                }
            }
        }
    }
}
