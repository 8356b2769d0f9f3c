//! Lines along one axis: what softmax, running sums and their like walk over, and sums that stay exact.

use crate::simd::Simd;

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
    let mut list: Vec<Outside> = Vec::with_capacity(dims.len());
    for inner in dims {
        match list.last_mut() {
            Some(outer) if outer.from == inner.from * inner.dim && outer.to == inner.to * inner.dim => {
                *outer = Outside { dim: outer.dim * inner.dim, ..inner };
            }
            _ => list.push(inner),
        }
    }
    list
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

/// The sum of what `map` makes of `n` elements.
///
/// # Safety
/// `from` must be readable for `n` elements.
#[inline(always)]
pub(crate) unsafe fn sum_along<S: Simd>(s: S, from: *const f32, n: usize, map: impl Fn(S::F) -> S::F) -> f64 {
    // SAFETY: the caller grants it.
    let [sum] = unsafe { sums_along(s, from, n, |v| [map(v)]) };
    sum
}

/// The sums of what `map` makes of `n` elements.
///
/// # Safety
/// `from` must be readable for `n` elements.
#[inline(always)]
pub(crate) unsafe fn sums_along<S: Simd, const K: usize>(
    s: S,
    from: *const f32,
    n: usize,
    map: impl Fn(S::F) -> [S::F; K],
) -> [f64; K] {
    let mut totals = [0.0; K];
    let mut start = 0;
    while start < n {
        let end = (start + BLOCK).min(n);
        // SAFETY: the caller grants all of it.
        let sums = unsafe { block_sums(s, from.add(start), end - start, &map) };
        totals.iter_mut().zip(sums).for_each(|(total, sum)| *total += f64::from(sum));
        start = end;
    }
    totals
}

#[inline(always)]
unsafe fn block_sums<S: Simd, const K: usize>(
    s: S,
    from: *const f32,
    n: usize,
    map: &impl Fn(S::F) -> [S::F; K],
) -> [f32; K] {
    let mut sums = [[s.zero(); K]; 4];
    let add = |sums: &mut [S::F; K], terms: [S::F; K]| {
        sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum = s.add(*sum, term));
    };
    let mut at = 0;
    // SAFETY: the caller grants `n` elements.
    unsafe {
        while at + 4 * S::LANES <= n {
            for (part, sums) in sums.iter_mut().enumerate() {
                add(sums, map(s.load(from.add(at + part * S::LANES))));
            }
            at += 4 * S::LANES;
        }
        while at + S::LANES <= n {
            add(&mut sums[0], map(s.load(from.add(at))));
            at += S::LANES;
        }
        if at < n {
            let mask = first_lanes(s, n - at);
            let rest = map(s.load_part(from.add(at), n - at));
            add(&mut sums[1], rest.map(|term| s.select(mask, term, s.zero())));
        }
    }
    std::array::from_fn(|k| s.sum(s.add(s.add(sums[0][k], sums[1][k]), s.add(sums[2][k], sums[3][k]))))
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
        sum += unsafe { sum_along(s, run, len, |v| v) };
    }
    let near = (sum / count) as f32;
    let center = s.splat(near);
    let (mut off, mut squares) = (0.0, 0.0);
    for run in runs {
        // SAFETY: the caller grants it.
        let sums = unsafe {
            sums_along(s, run, len, |v| {
                let d = s.sub(v, center);
                [d, s.mul(d, d)]
            })
        };
        off += sums[0];
        squares += sums[1];
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
