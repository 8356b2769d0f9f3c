//! Lines along one axis: what softmax, running sums and their like walk over, and sums that stay exact.

use planish_kernel::axes::join;

use crate::isa::Isa;
use crate::simd::{Simd, SimdKernel};
use crate::vecmath;

/// A dimension outside the axis: its size, and its strides in input and output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Outside {
    pub(crate) dim: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// How the lines of a value lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lines {
    /// Elements of a line.
    pub(crate) len: usize,
    /// Their distance in input and output.
    pub(crate) steps: (usize, usize),
    /// Everything else, outermost first; neighbours that go on with one stride are one.
    pub(crate) outside: Vec<Outside>,
    /// Lines that lie side by side, element beside element, in input and output: vectors go across them. 1
    /// where vectors go along the lines or nothing is side by side.
    pub(crate) n_beside: usize,
}

impl Lines {
    /// The lines along `axis`. For an output without the axis (or of size 1 there) its stride is not looked at.
    pub(crate) fn new(dims: &[usize], from: &[usize], to: &[usize], axis: usize) -> Lines {
        let mut outside: Vec<Outside> = (0..dims.len())
            .filter(|idx| *idx != axis && dims[*idx] != 1)
            .map(|idx| Outside { dim: dims[idx], from: from[idx], to: to[idx] })
            .collect();
        outside.sort_by_key(|dim| std::cmp::Reverse(dim.from));
        let mut outside = merged(outside);
        let steps = (from[axis], to[axis]);
        let along = steps == (1, 1) || dims[axis] <= 1;
        let n_beside = match outside.last() {
            Some(Outside { dim, from: 1, to: 1 }) if !along => {
                let dim = *dim;
                outside.pop();
                dim
            }
            _ => 1,
        };
        let steps = if dims[axis] <= 1 { (1, 1) } else { steps };
        Lines { len: dims[axis], steps, outside, n_beside }
    }

    /// How many lines, or bundles of lines side by side.
    pub(crate) fn n_bundles(&self) -> usize {
        self.outside.iter().map(|outside| outside.dim).product()
    }

    /// Whether elements of a line follow each other in both.
    pub(crate) fn is_along(&self) -> bool {
        self.steps == (1, 1)
    }

    /// Where a bundle begins in input and output.
    pub(crate) fn offsets(&self, bundle: usize) -> (usize, usize) {
        offsets(&self.outside, bundle)
    }
}

/// Work over lines, cut into tasks of vectors of lines by sizes alone. A unit is a line, or a vector of lines that lie
/// beside each other.
#[derive(Clone, Debug)]
pub(crate) struct LineTasks {
    pub(crate) isa: Isa,
    pub(crate) lines: Lines,
    /// Of a task.
    pub(crate) n_elements: usize,
}

impl LineTasks {
    fn n_units(&self) -> usize {
        match self.lines.len {
            0 => 0,
            _ => self.lines.n_bundles() * self.lines.n_beside.div_ceil(self.isa.lanes()),
        }
    }

    fn per_task(&self) -> usize {
        let beside = self.lines.n_beside.min(self.isa.lanes()).max(1);
        (self.n_elements / (self.lines.len.max(1) * beside)).max(1)
    }

    /// How many tasks: a matter of sizes alone.
    pub(crate) fn n_tasks(&self) -> usize {
        self.n_units().div_ceil(self.per_task())
    }

    /// The units of a task.
    pub(crate) fn units(&self, task: usize) -> std::ops::Range<usize> {
        task * self.per_task()..((task + 1) * self.per_task()).min(self.n_units())
    }

    /// Where a unit begins in input and output, and how many lines it has.
    #[inline(always)]
    pub(crate) fn unit<S: Simd>(&self, unit: usize) -> (usize, usize, usize) {
        let lines = &self.lines;
        let n_vectors = lines.n_beside.div_ceil(S::LANES);
        let (from, to) = lines.offsets(unit / n_vectors);
        let first = unit % n_vectors * S::LANES;
        (from + first, to + first, (lines.n_beside - first).min(S::LANES))
    }
}

/// What is done to the lines of a value, whose places are settled.
pub(crate) trait LineKernel: Sized {
    /// Elements of the output.
    type To;

    fn tasks(&self) -> &LineTasks;

    /// One unit: `width` lines that begin at these places.
    ///
    /// # Safety
    /// The lines must be readable, and the output's writable.
    unsafe fn unit<S: Simd>(&self, s: S, from: *const f32, to: *mut Self::To, width: usize);

    /// How many tasks: a matter of sizes alone.
    fn n_tasks(&self) -> usize {
        self.tasks().n_tasks()
    }

    /// Runs one task.
    ///
    /// # Safety
    /// `from` and `to` must be valid for the sizes and strides given; other tasks of the run may use them
    /// meanwhile, nobody else.
    unsafe fn run_task(&self, task: usize, from: *const f32, to: *mut Self::To) {
        let tasks = self.tasks();
        tasks.isa.run(TaskOfLines { kernel: self, units: tasks.units(task), from, to });
    }
}

struct TaskOfLines<'a, K: LineKernel> {
    kernel: &'a K,
    units: std::ops::Range<usize>,
    from: *const f32,
    to: *mut K::To,
}

impl<K: LineKernel> SimdKernel for TaskOfLines<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for unit in self.units {
            let (from, to, width) = self.kernel.tasks().unit::<S>(unit);
            // SAFETY: the caller of `run_task` grants the operands.
            unsafe { self.kernel.unit(s, self.from.add(from), self.to.add(to), width) };
        }
    }
}

/// Where the element of this number lies in input and output.
pub(crate) fn offsets(outside: &[Outside], mut idx: usize) -> (usize, usize) {
    if let [only] = outside {
        return (idx * only.from, idx * only.to);
    }
    let (mut from, mut to) = (0, 0);
    for outside in outside.iter().rev() {
        let at = idx % outside.dim;
        idx /= outside.dim;
        from += at * outside.from;
        to += at * outside.to;
    }
    (from, to)
}

/// Joins neighbours that go on with one stride in both.
pub(crate) fn merged(dims: Vec<Outside>) -> Vec<Outside> {
    let stride =
        |dim: &Outside, operand: usize| [dim.from, dim.to].get(operand).map(|stride| *stride as isize);
    join(dims, |dim| &mut dim.dim, stride)
}

/// 0, 1, 2 … of the widest vector.
static LANES: [f32; 16] = {
    let mut lanes = [0.0; 16];
    let mut idx = 0;
    while idx < 16 {
        lanes[idx] = idx as f32;
        idx += 1;
    }
    lanes
};

/// A mask of the first `n` lanes.
#[inline(always)]
pub(crate) fn first_lanes<S: Simd>(s: S, n: usize) -> S::M {
    // SAFETY: no vector has more than 16 lanes.
    let lanes = unsafe { s.load(LANES.as_ptr()) };
    s.lt(lanes, s.splat(n.min(S::LANES) as f32))
}

/// The first `n` elements, `fill` in the other lanes.
///
/// # Safety
/// `from` must be readable for `min(n, LANES)` elements.
#[inline(always)]
pub(crate) unsafe fn load_or<S: Simd>(s: S, from: *const f32, n: usize, fill: f32) -> S::F {
    // SAFETY: the caller grants it.
    let loaded = unsafe { s.load_part(from, n) };
    s.select(first_lanes(s, n), loaded, s.splat(fill))
}

/// Elements that are added in f32 before the sum goes on in f64: 64 to a lane of the widest vector, in four
/// chains, so that the error of a sum does not grow with its length.
const BLOCK: usize = 4096;

/// What a sum has of one element, beside a center. Types instead of closures, which are not inlined for
/// certain and would then be compiled without the instruction set.
pub(crate) trait Term: Copy {
    fn of<S: Simd>(s: S, v: S::F, center: S::F) -> S::F;
}

/// The element itself.
#[derive(Clone, Copy)]
pub(crate) struct Own;
/// Its magnitude.
#[derive(Clone, Copy)]
pub(crate) struct Magnitude;
/// Its square.
#[derive(Clone, Copy)]
pub(crate) struct Square;
/// `e` to the distance from the center.
#[derive(Clone, Copy)]
pub(crate) struct Exponential;

impl Term for Own {
    #[inline(always)]
    fn of<S: Simd>(_: S, v: S::F, _: S::F) -> S::F {
        v
    }
}

impl Term for Magnitude {
    #[inline(always)]
    fn of<S: Simd>(s: S, v: S::F, _: S::F) -> S::F {
        s.abs(v)
    }
}

impl Term for Square {
    #[inline(always)]
    fn of<S: Simd>(s: S, v: S::F, _: S::F) -> S::F {
        s.mul(v, v)
    }
}

impl Term for Exponential {
    #[inline(always)]
    fn of<S: Simd>(s: S, v: S::F, center: S::F) -> S::F {
        vecmath::exp(s, s.sub(v, center))
    }
}

/// The sum of the terms of `n` elements.
///
/// # Safety
/// `from` must be readable for `n` elements.
#[inline(always)]
pub(crate) unsafe fn sum_along<S: Simd, T: Term>(s: S, from: *const f32, n: usize, center: S::F) -> f64 {
    let mut total = 0.0;
    let mut start = 0;
    while start < n {
        let end = (start + BLOCK).min(n);
        let mut sums = [s.zero(); 4];
        let mut at = start;
        // SAFETY: the caller grants `n` elements.
        unsafe {
            while at + 4 * S::LANES <= end {
                for (part, sum) in sums.iter_mut().enumerate() {
                    *sum = s.add(*sum, T::of(s, s.load(from.add(at + part * S::LANES)), center));
                }
                at += 4 * S::LANES;
            }
            while at < end {
                let term = T::of(s, s.load_part(from.add(at), end - at), center);
                sums[0] = s.add(sums[0], s.select(first_lanes(s, end - at), term, s.zero()));
                at += S::LANES;
            }
        }
        total += f64::from(s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]))));
        start = end;
    }
    total
}

/// The sum of distances of `n` elements from the center, and that of their squares.
///
/// # Safety
/// `from` must be readable for `n` elements.
#[inline(always)]
unsafe fn sums_around<S: Simd>(s: S, from: *const f32, n: usize, center: S::F) -> (f64, f64) {
    let mut totals = (0.0, 0.0);
    let mut start = 0;
    while start < n {
        let end = (start + BLOCK).min(n);
        let (mut off, mut squares) = ([s.zero(); 4], [s.zero(); 4]);
        let mut at = start;
        // SAFETY: the caller grants `n` elements.
        unsafe {
            while at + 4 * S::LANES <= end {
                for part in 0..4 {
                    let d = s.sub(s.load(from.add(at + part * S::LANES)), center);
                    off[part] = s.add(off[part], d);
                    squares[part] = s.mul_add(d, d, squares[part]);
                }
                at += 4 * S::LANES;
            }
            while at < end {
                let d = s.sub(s.load_part(from.add(at), end - at), center);
                let d = s.select(first_lanes(s, end - at), d, s.zero());
                off[0] = s.add(off[0], d);
                squares[0] = s.mul_add(d, d, squares[0]);
                at += S::LANES;
            }
        }
        totals.0 += f64::from(s.sum(s.add(s.add(off[0], off[1]), s.add(off[2], off[3]))));
        totals.1 += f64::from(s.sum(s.add(s.add(squares[0], squares[1]), s.add(squares[2], squares[3]))));
        start = end;
    }
    totals
}

/// The mean of `n` elements and the sum of squares around it. The second walk also finds by how much the first
/// one's mean is off, so that a mean of many deviations costs no digits.
///
/// # Safety
/// `runs` must be readable for `len` elements each.
#[inline(always)]
pub(crate) unsafe fn moments_along<S: Simd>(
    s: S,
    runs: impl Iterator<Item = *const f32> + Clone,
    len: usize,
) -> (f64, f64) {
    let count = (runs.clone().count() * len) as f64;
    let mut sum = 0.0;
    for run in runs.clone() {
        // SAFETY: the caller grants it.
        sum += unsafe { sum_along::<S, Own>(s, run, len, s.zero()) };
    }
    let near = (sum / count) as f32;
    let center = s.splat(near);
    let (mut off, mut squares) = (0.0, 0.0);
    for run in runs {
        // SAFETY: the caller grants it.
        let sums = unsafe { sums_around(s, run, len, center) };
        off += sums.0;
        squares += sums.1;
    }
    (f64::from(near) + off / count, (squares - off * off / count).max(0.0))
}

/// The largest of `n` elements; NaN may be passed over. Minus infinity of none.
///
/// # Safety
/// `from` must be readable for `n` elements.
#[inline(always)]
pub(crate) unsafe fn max_along<S: Simd>(s: S, from: *const f32, n: usize) -> f32 {
    let mut most = [s.splat(f32::NEG_INFINITY); 4];
    let mut at = 0;
    // SAFETY: the caller grants `n` elements.
    unsafe {
        while at + 4 * S::LANES <= n {
            for (part, most) in most.iter_mut().enumerate() {
                *most = s.max(s.load(from.add(at + part * S::LANES)), *most);
            }
            at += 4 * S::LANES;
        }
        while at < n {
            most[0] = s.max(load_or(s, from.add(at), n - at, f32::NEG_INFINITY), most[0]);
            at += S::LANES;
        }
    }
    s.max_lane(s.max(s.max(most[0], most[1]), s.max(most[2], most[3])))
}

/// The body for every vector of `n` elements, with its first element and how many are left: all lanes of a
/// vector but for the last. A macro, because the body stands twice and a closure would not be inlined for
/// certain.
macro_rules! each_vector {
    ($simd:ty, $n:expr, |$at:ident, $rest:ident| $body:expr) => {{
        let n: usize = $n;
        let mut start = 0;
        while start + <$simd>::LANES <= n {
            let ($at, $rest) = (start, <$simd>::LANES);
            $body;
            start += <$simd>::LANES;
        }
        if start < n {
            let ($at, $rest) = (start, n - start);
            $body;
        }
    }};
}
pub(crate) use each_vector;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_layouts() {
        // Softmax along the last axis of dense 2x3x4: six rows.
        let rows = Lines::new(&[2, 3, 4], &[12, 4, 1], &[12, 4, 1], 2);
        assert!(rows.is_along());
        assert_eq!((rows.n_bundles(), rows.n_beside, rows.offsets(5)), (6, 1, (20, 20)));
        // Along the middle axis four lines lie side by side.
        let columns = Lines::new(&[2, 3, 4], &[12, 4, 1], &[12, 4, 1], 1);
        assert_eq!((columns.n_bundles(), columns.n_beside, columns.steps), (2, 4, (4, 4)));
        // Channels last, along the channels: rows again.
        let last = Lines::new(&[2, 3, 4, 5], &[60, 1, 15, 3], &[60, 1, 15, 3], 1);
        assert!(last.is_along());
        assert_eq!((last.outside.len(), last.n_bundles()), (1, 40));
    }
}
