//! Matrix products, the inner loop of everything linear.
//!
//! Both factors are kept as [`Strips`]: vectors of equal length, interleaved by four. The kernel then adds
//! outer products of four by four, sixteen sums that live in registers while both factors are read
//! contiguously, which plain SSE2 vectorizes. Every sum runs over its terms in order, whatever the blocking.

use std::ops::Range;

use crate::nd;
use crate::scalar::Scalar;

/// Vectors in one strip.
const LANES: usize = 4;

/// Strips that one task fills from a matrix: 64 neighbouring columns are eight cache lines of f64.
const STRIPS_PER_TASK: usize = 16;
/// Places that are filled strip by strip: one cache line of f64.
const PLACES_PER_BLOCK: usize = 8;

/// Rows of the left factor that one task multiplies.
const ROWS_PER_TASK: usize = 32;

/// `n` vectors of length `depth`, interleaved by [`LANES`]: the rows of a left factor or the columns of a
/// right one. The last strip is filled up with zeros.
#[derive(Clone, Debug)]
pub(crate) struct Strips<T> {
    n: usize,
    depth: usize,
    data: Vec<T>,
}

impl<T: Scalar> Strips<T> {
    pub(crate) fn zeros(n: usize, depth: usize) -> Strips<T> {
        Strips { n, depth, data: vec![T::default(); n.next_multiple_of(LANES) * depth] }
    }

    /// The vectors `vector * vector_stride + place * place_stride` of `data`.
    pub(crate) fn strided(
        data: &[T],
        n: usize,
        depth: usize,
        vector_stride: usize,
        place_stride: usize,
    ) -> Strips<T> {
        let n_strips = if depth == 0 { 0 } else { n.div_ceil(LANES) };
        let tasks: Vec<Range<usize>> = (0..n_strips)
            .step_by(STRIPS_PER_TASK)
            .map(|first| first..(first + STRIPS_PER_TASK).min(n_strips))
            .collect();
        let lengths: Vec<usize> = tasks.iter().map(|strips| strips.len() * LANES * depth).collect();
        let data = nd::fill_slices(&lengths, 1, |idx, out| {
            // In blocks of places and strips, so that whichever stride is 1, a cache line that was read or
            // written is finished while it is still there, even where the other stride is a power of two.
            for block in (0..depth).step_by(PLACES_PER_BLOCK) {
                let places = block..(block + PLACES_PER_BLOCK).min(depth);
                for (out, strip) in out.chunks_exact_mut(LANES * depth).zip(tasks[idx].clone()) {
                    let first = strip * LANES;
                    for place in places.clone() {
                        let lanes = &mut out[place * LANES..][..LANES.min(n - first)];
                        for (lane, value) in lanes.iter_mut().enumerate() {
                            *value = data[(first + lane) * vector_stride + place * place_stride];
                        }
                    }
                }
            }
        });
        Strips { n, depth, data }
    }

    /// The vectors with these elements.
    pub(crate) fn from_fn(n: usize, depth: usize, at: impl Fn(usize, usize) -> T) -> Strips<T> {
        let mut strips = Strips::zeros(n, depth);
        strips.fill(depth, |vector, _, place| at(vector, place));
        strips
    }

    /// Replaces every element. Places along the vectors are counted in two digits, the second below `n_inner`.
    pub(crate) fn fill(&mut self, n_inner: usize, at: impl Fn(usize, usize, usize) -> T) {
        if self.depth == 0 {
            return;
        }
        for (idx, strip) in self.data.chunks_exact_mut(LANES * self.depth).enumerate() {
            let first = idx * LANES;
            let n_lanes = LANES.min(self.n - first);
            for (outer, places) in strip.chunks_exact_mut(LANES * n_inner).enumerate() {
                for (inner, lanes) in places.chunks_exact_mut(LANES).enumerate() {
                    for (lane, value) in lanes.iter_mut().take(n_lanes).enumerate() {
                        *value = at(first + lane, outer, inner);
                    }
                }
            }
        }
    }

    /// The number of vectors.
    pub(crate) fn len(&self) -> usize {
        self.n
    }

    /// Strip `idx`, empty if the vectors are.
    fn strip(&self, idx: usize) -> &[[T; LANES]] {
        let len = LANES * self.depth;
        self.data[idx * len..][..len].as_chunks().0
    }
}

/// Writes rows `rows` of the product to `out`, one after another: `out[i][j]` is the sum of
/// `left[i] * right[j]`. `rows` must start at a multiple of [`LANES`].
pub(crate) fn multiply<T: Scalar>(left: &Strips<T>, right: &Strips<T>, rows: Range<usize>, out: &mut [T]) {
    debug_assert!(left.depth == right.depth && rows.start.is_multiple_of(LANES));
    let mut write_tile = |row: usize, column: usize| {
        let sums = tile(left.strip(row / LANES), right.strip(column / LANES));
        let n_columns = LANES.min(right.n - column);
        for (lane, sums) in sums.iter().enumerate().take(rows.end - row) {
            let start = (row - rows.start + lane) * right.n + column;
            out[start..][..n_columns].copy_from_slice(&sums[..n_columns]);
        }
    };
    let (row_starts, column_starts) = (rows.clone().step_by(LANES), (0..right.n).step_by(LANES));
    // The larger factor is read once, the smaller one stays in the cache.
    if right.n > rows.len() {
        column_starts.for_each(|column| row_starts.clone().for_each(|row| write_tile(row, column)));
    } else {
        row_starts.for_each(|row| column_starts.clone().for_each(|column| write_tile(row, column)));
    }
}

/// The sixteen sums of products of two strips.
fn tile<T: Scalar>(left: &[[T; LANES]], right: &[[T; LANES]]) -> [[T; LANES]; LANES] {
    let mut sums = [[T::default(); LANES]; LANES];
    for (left, right) in left.iter().zip(right) {
        for (sums, &a) in sums.iter_mut().zip(left) {
            for (sum, &b) in sums.iter_mut().zip(right) {
                *sum = sum.plus(a.times(b));
            }
        }
    }
    sums
}

/// Batched products, in parallel: batch `idx` multiplies `left[pairs[idx].0]` by `right[pairs[idx].1]`, all of
/// the same sizes. The results follow one another.
pub(crate) fn multiply_all<T: Scalar>(
    left: &[Strips<T>],
    right: &[Strips<T>],
    pairs: &[(usize, usize)],
) -> Vec<T> {
    let (Some(first_left), Some(first_right)) = (left.first(), right.first()) else { return Vec::new() };
    let (n_rows, n_columns, depth) = (first_left.n, first_right.n, first_left.depth);
    if n_rows == 0 || n_columns == 0 {
        return Vec::new();
    }
    let starts = || (0..n_rows).step_by(ROWS_PER_TASK);
    let tasks: Vec<(usize, usize, Range<usize>)> = pairs
        .iter()
        .flat_map(|&(a, b)| starts().map(move |row| (a, b, row..(row + ROWS_PER_TASK).min(n_rows))))
        .collect();
    let lengths: Vec<usize> = tasks.iter().map(|(_, _, rows)| rows.len() * n_columns).collect();
    nd::fill_slices(&lengths, depth, |idx, out| {
        let (a, b, rows) = &tasks[idx];
        multiply(&left[*a], &right[*b], rows.clone(), out);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_all_edge_sizes() {
        for (m, k, n) in [(1, 1, 1), (3, 5, 7), (4, 4, 4), (5, 0, 3), (33, 9, 6), (0, 3, 4), (2, 3, 0)] {
            let a: Vec<i64> = (0..m * k).map(|idx| idx as i64 - 5).collect();
            let b: Vec<i64> = (0..k * n).map(|idx| 3 * idx as i64 - 7).collect();
            let left = Strips::strided(&a, m, k, k, 1);
            let right = Strips::strided(&b, n, k, 1, n);
            let dot = |i: usize, j: usize| (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum::<i64>();
            let expected: Vec<i64> = (0..m * n).map(|flat| dot(flat / n, flat % n)).collect();
            assert_eq!(multiply_all(&[left], &[right], &[(0, 0)]), expected, "{m}x{k}x{n}");
        }
    }

    #[test]
    fn integers_wrap() {
        let factor = [Strips::from_fn(1, 2, |_, _| u32::MAX)];
        assert_eq!(multiply_all(&factor, &factor, &[(0, 0)]), [2]);
    }

    #[test]
    fn padding_lanes_do_not_leak() {
        let left = Strips::from_fn(1, 2, |_, _| f64::INFINITY);
        let right = Strips::from_fn(1, 2, |_, _| 1.0);
        assert_eq!(multiply_all(&[left], &[right], &[(0, 0)]), [f64::INFINITY]);
    }
}
