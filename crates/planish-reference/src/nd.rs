//! Index arithmetic over row-major shapes, broadcasting, and the loop that all references share.

use std::num::NonZero;

use crate::{EvalError, Evaluation};

/// Row-major strides, in elements.
pub fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

/// The coordinates of a flat index.
pub fn unravel(mut flat: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for axis in (0..shape.len()).rev() {
        index[axis] = flat % shape[axis];
        flat /= shape[axis];
    }
    index
}

/// The flat index of coordinates.
pub fn ravel(index: &[usize], shape: &[usize]) -> usize {
    index.iter().zip(shape).fold(0, |flat, (&place, &dim)| flat * dim + place)
}

/// The product of dimensions.
pub fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// The shape that two shapes broadcast to.
pub fn broadcast(cx: &Evaluation<'_>, a: &[usize], b: &[usize]) -> Result<Vec<usize>, EvalError> {
    let rank = a.len().max(b.len());
    (0..rank)
        .map(|axis| {
            let dim =
                |shape: &[usize]| (axis + shape.len()).checked_sub(rank).map_or(1, |place| shape[place]);
            match (dim(a), dim(b)) {
                (left, right) if left == right => Ok(left),
                (1, other) | (other, 1) => Ok(other),
                _ => Err(cx.bad_shape(format!("shapes {a:?} and {b:?} do not broadcast"))),
            }
        })
        .collect()
}

/// Strides for reading a tensor of shape `from` as if it were broadcast to `to`: zero where it repeats.
pub fn broadcast_strides(from: &[usize], to: &[usize]) -> Vec<usize> {
    let missing = to.len() - from.len();
    let own = strides(from);
    (0..to.len())
        .map(|axis| match axis.checked_sub(missing) {
            Some(place) if from[place] != 1 => own[place],
            _ => 0,
        })
        .collect()
}

/// Calls `visit` with the flat output index and the offset under `strides`, for every index of `shape`
/// in row-major order, from flat index `range.start` to `range.end`.
pub fn for_each_offset(
    shape: &[usize],
    strides: &[usize],
    range: std::ops::Range<usize>,
    mut visit: impl FnMut(usize, usize),
) {
    if range.is_empty() {
        return;
    }
    let mut index = unravel(range.start, shape);
    let mut offset: usize = index.iter().zip(strides).map(|(place, stride)| place * stride).sum();
    for flat in range {
        visit(flat, offset);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            offset += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            offset -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
}

/// The sum of products of two slices of the same length (a longer one is cut). Eight partial sums, added up
/// at the end, so that the loop vectorizes; their order depends on the length alone.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    const LANES: usize = 8;
    let len = a.len().min(b.len());
    let (a_lanes, a_rest) = a[..len].as_chunks::<LANES>();
    let (b_lanes, b_rest) = b[..len].as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (a, b) in a_lanes.iter().zip(b_lanes) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}

/// Work below this many "steps" is not worth a thread.
const MIN_STEPS_PER_THREAD: usize = 1 << 16;

/// Fills a vector in blocks of `block` elements, in parallel over blocks: `fill(block_idx, &mut out)` writes
/// the block. `steps_per_block` is a guess of its cost in inner steps. Every block is computed by one thread
/// from start to end, so results do not depend on the number of threads.
pub fn fill_blocks<T: Copy + Default + Send>(
    n_blocks: usize,
    block: usize,
    steps_per_block: usize,
    fill: impl Fn(usize, &mut [T]) + Sync,
) -> Vec<T> {
    let mut out = vec![T::default(); n_blocks * block];
    if out.is_empty() {
        return out;
    }
    let available = std::thread::available_parallelism().map_or(1, NonZero::get);
    let worthwhile = n_blocks.saturating_mul(steps_per_block) / MIN_STEPS_PER_THREAD + 1;
    let n_threads = available.min(worthwhile).min(n_blocks);
    if n_threads == 1 {
        out.chunks_mut(block).enumerate().for_each(|(idx, chunk)| fill(idx, chunk));
        return out;
    }
    let per_thread = n_blocks.div_ceil(n_threads);
    std::thread::scope(|scope| {
        for (thread_idx, part) in out.chunks_mut(per_thread * block).enumerate() {
            let fill = &fill;
            scope.spawn(move || {
                for (idx, chunk) in part.chunks_mut(block).enumerate() {
                    fill(thread_idx * per_thread + idx, chunk);
                }
            });
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_go_there_and_back() {
        let shape = [2, 3, 4];
        assert_eq!(strides(&shape), [12, 4, 1]);
        for flat in 0..24 {
            assert_eq!(ravel(&unravel(flat, &shape), &shape), flat);
        }
    }

    #[test]
    fn offsets_follow_broadcast_strides() {
        let strides = broadcast_strides(&[3, 1], &[2, 3, 2]);
        assert_eq!(strides, [0, 1, 0]);
        let mut seen = Vec::new();
        for_each_offset(&[2, 3, 2], &strides, 1..9, |_, offset| seen.push(offset));
        assert_eq!(seen, [0, 1, 1, 2, 2, 0, 0, 1]);
    }

    #[test]
    fn dot_takes_every_element_once() {
        for len in [0, 1, 7, 8, 9, 31] {
            let a: Vec<f64> = (0..len).map(f64::from).collect();
            let b: Vec<f64> = (0..len).map(|value| f64::from(value) + 1.0).collect();
            let expected: i32 = (0..len).map(|value| value * (value + 1)).sum();
            assert_eq!(dot(&a, &b), f64::from(expected));
        }
    }

    #[test]
    fn blocks_are_filled_once_each() {
        let out: Vec<usize> = fill_blocks(1000, 3, 1 << 12, |idx, out| out.fill(idx));
        assert!(out.iter().enumerate().all(|(place, &value)| value == place / 3));
    }
}
