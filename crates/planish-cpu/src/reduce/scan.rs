//! Running sums along an axis.

use crate::isa::Isa;
use crate::lines::{LineTasks, Lines};
use crate::simd::{Simd, SimdKernel};
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
    plan: &'a RunningSum,
    units: std::ops::Range<usize>,
    from: *const f32,
    to: *mut f32,
}

impl SimdKernel for Run<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let plan = self.plan;
        let lines = &plan.tasks.lines;
        for unit in self.units {
            let (from, to, width) = plan.tasks.unit::<S>(unit);
            let mut sums = [0f64; MAX_LANES];
            for idx in 0..lines.len {
                let idx = if plan.reverse { lines.len - 1 - idx } else { idx };
                // SAFETY: the caller of `run_task` grants the operands.
                unsafe {
                    let from = self.from.add(from + idx * lines.steps.0);
                    let to = self.to.add(to + idx * lines.steps.1);
                    for (lane, sum) in sums.iter_mut().enumerate().take(width) {
                        let before = *sum;
                        *sum += f64::from(*from.add(lane));
                        *to.add(lane) = if plan.exclusive { before } else { *sum } as f32;
                    }
                }
            }
        }
    }
}
