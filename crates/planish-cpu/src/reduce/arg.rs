//! Where the largest or smallest element of each line lies.

use crate::isa::Isa;
use crate::lines::{LineKernel, LineTasks, Lines};
use crate::simd::Simd;
use crate::vecmath::MAX_LANES;

/// Elements of a task.
const TASK_ELEMENTS: usize = 1 << 16;

/// A search along an axis, its places settled. The results are i64.
#[derive(Clone, Debug)]
pub struct ArgExtreme {
    tasks: LineTasks,
    smallest: bool,
    /// The last of several that are equal.
    last: bool,
}

impl ArgExtreme {
    /// `to` has a stride for every axis of the input; that of the searched one is not looked at. The axis must
    /// have elements.
    pub fn new(
        isa: Isa,
        (dims, from, to): (&[usize], &[usize], &[usize]),
        axis: usize,
        smallest: bool,
        last: bool,
    ) -> ArgExtreme {
        let mut to = to.to_vec();
        to[axis] = 1;
        ArgExtreme {
            tasks: LineTasks { isa, lines: Lines::new(dims, from, &to, axis), n_elements: TASK_ELEMENTS },
            smallest,
            last,
        }
    }
}

impl LineKernel for ArgExtreme {
    type To = i64;

    fn tasks(&self) -> &LineTasks {
        &self.tasks
    }

    /// A lane for each of `width` lines; along a line, every lane takes a share of it.
    #[inline(always)]
    unsafe fn unit<S: Simd>(&self, s: S, from: *const f32, to: *mut i64, width: usize) {
        let lines = &self.tasks.lines;
        let shares = lines.is_along() && lines.n_beside == 1 && lines.len >= S::LANES;
        // Numbers of rows fit f32 exactly up to 2^24; longer lines are cut.
        const MOST_ROWS: usize = 1 << 24;
        // SAFETY: the caller grants it.
        unsafe {
            let (step, n_rows) =
                if shares { (S::LANES, lines.len / S::LANES) } else { (lines.steps.0, lines.len) };
            let load = |row: usize| match shares {
                true => s.load(from.add(row * step)),
                false => s.load_part(from.add(row * step), width),
            };
            let (mut best, mut rows) = ([0f32; MAX_LANES], [0usize; MAX_LANES]);
            let mut start = 0;
            while start < n_rows {
                let end = (start + MOST_ROWS).min(n_rows);
                let (mut leader, mut row_of) = (load(start), s.zero());
                for row in start + 1..end {
                    let v = load(row);
                    let wins = wins(s, self, leader, v);
                    leader = s.select(wins, v, leader);
                    row_of = s.select(wins, s.splat((row - start) as f32), row_of);
                }
                let (mut leaders, mut found) = ([0f32; MAX_LANES], [0f32; MAX_LANES]);
                s.store(leaders.as_mut_ptr(), leader);
                s.store(found.as_mut_ptr(), row_of);
                for lane in 0..S::LANES {
                    if start == 0 || self.beats(best[lane], leaders[lane]) {
                        (best[lane], rows[lane]) = (leaders[lane], start + found[lane] as usize);
                    }
                }
                start = end;
            }
            if !shares {
                (0..width).for_each(|lane| *to.add(lane) = rows[lane] as i64);
                return;
            }
            // The lanes of one line, then what is left of it, in the order of their places.
            let mut leader = (best[0], rows[0] * S::LANES);
            let lanes = (1..S::LANES).map(|lane| (best[lane], rows[lane] * S::LANES + lane));
            let rest = (n_rows * S::LANES..lines.len).map(|idx| (*from.add(idx), idx));
            for (v, idx) in lanes.chain(rest) {
                let equal = v == leader.0 || (v.is_nan() && leader.0.is_nan());
                let wins = if equal { (idx > leader.1) == self.last } else { self.better(leader.0, v) };
                if wins {
                    leader = (v, idx);
                }
            }
            *to = leader.1 as i64;
        }
    }
}

impl ArgExtreme {
    /// Whether a later element takes the lead.
    fn beats(&self, leader: f32, v: f32) -> bool {
        let equal = v == leader || (v.is_nan() && leader.is_nan());
        if equal { self.last } else { self.better(leader, v) }
    }

    /// Whether `v`, which is not equal, is the better one; NaN is better than any number.
    fn better(&self, leader: f32, v: f32) -> bool {
        !leader.is_nan() && (v.is_nan() || if self.smallest { v < leader } else { v > leader })
    }
}

/// Whether later elements take the lead, lane by lane.
#[inline(always)]
fn wins<S: Simd>(s: S, plan: &ArgExtreme, leader: S::F, v: S::F) -> S::M {
    let better = match (plan.smallest, plan.last) {
        (false, false) => s.lt(leader, v),
        (false, true) => s.le(leader, v),
        (true, false) => s.lt(v, leader),
        (true, true) => s.le(v, leader),
    };
    // A NaN in the lead gives way to a later one only.
    let nan = s.is_nan(v);
    let first = s.mask_and(nan, s.mask_not(s.is_nan(leader)));
    s.mask_or(better, if plan.last { nan } else { first })
}
