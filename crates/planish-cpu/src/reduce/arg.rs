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

    /// A lane for each of `width` lines; a line that lies along memory is searched by all lanes.
    #[inline(always)]
    unsafe fn unit<S: Simd>(&self, s: S, from: *const f32, to: *mut i64, width: usize) {
        let lines = &self.tasks.lines;
        // SAFETY: the caller grants it.
        unsafe {
            match lines.is_along() && lines.n_beside == 1 && lines.len >= S::LANES {
                true => *to = self.along(s, from, lines.len) as i64,
                false => self.beside(s, from, to, width),
            }
        }
    }
}

impl ArgExtreme {
    /// The extreme of a line first, then where it is: twice over the line, but without a chain of selections.
    ///
    /// # Safety
    /// The line must be readable, and hold a vector.
    #[inline(always)]
    unsafe fn along<S: Simd>(&self, s: S, from: *const f32, len: usize) -> usize {
        // Vectors from these places on cover the line; the last may lie upon the one before.
        let end = len - S::LANES;
        let starts = (0..len).step_by(S::LANES).map(|at| at.min(end));
        let load = |at: usize| {
            // SAFETY: granted by the caller; a vector from here on is within the line.
            unsafe { s.load(from.add(at)) }
        };
        let mut best = load(0);
        let mut nans = s.is_nan(best);
        for at in starts.clone().skip(1) {
            let v = load(at);
            nans = s.mask_or(nans, s.is_nan(v));
            best = if self.smallest { s.min(best, v) } else { s.max(best, v) };
        }
        // What is no number is better than any.
        let wants_nan = s.any(nans);
        let best = if self.smallest { -s.max_lane(s.neg(best)) } else { s.max_lane(best) };
        let is_found = |at: usize| {
            let v = load(at);
            s.any(if wants_nan { s.is_nan(v) } else { s.eq(v, s.splat(best)) })
        };
        let is_it = |at: &usize| {
            // SAFETY: as above.
            let v = unsafe { *from.add(*at) };
            if wants_nan { v.is_nan() } else { v == best }
        };
        let within = |at: usize| at..at + S::LANES;
        let place = if self.last {
            starts.rev().find(|at| is_found(*at)).and_then(|at| within(at).rev().find(is_it))
        } else {
            let mut starts = starts;
            starts.find(|at| is_found(*at)).and_then(|at| within(at).find(is_it))
        };
        place.unwrap_or(0)
    }

    /// # Safety
    /// As for `unit`.
    #[inline(always)]
    unsafe fn beside<S: Simd>(&self, s: S, from: *const f32, to: *mut i64, width: usize) {
        let lines = &self.tasks.lines;
        // Numbers of rows fit f32 exactly up to 2^24; longer lines are cut.
        const MOST_ROWS: usize = 1 << 24;
        // SAFETY: the caller grants it.
        unsafe {
            let (step, n_rows) = (lines.steps.0, lines.len);
            let load = |row: usize| s.load_part(from.add(row * step), width);
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
            (0..width).for_each(|lane| *to.add(lane) = rows[lane] as i64);
        }
    }

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
