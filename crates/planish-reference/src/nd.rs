//! Index arithmetic over row-major shapes, broadcasting, the size of results, and the parallel loops that
//! all references share.

use std::num::NonZero;
use std::ops::Range;
use std::sync::{Mutex, OnceLock};

use planish_tensor::{DType, element_count, memory};

use crate::{EvalError, EvalErrorKind, Evaluation};

/// Row-major strides, in elements.
pub fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        // Only a shape with a zero in it, which has no elements to find, can overflow here.
        strides[axis - 1] = strides[axis].wrapping_mul(shape[axis]);
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

/// The product of dimensions. A zero among them makes it 0 even where the others overflow; an overflow
/// without one, which no tensor has, saturates.
pub fn count(shape: &[usize]) -> usize {
    element_count(shape).unwrap_or(usize::MAX)
}

/// Results beyond 2^40 bytes are refused before memory is asked for.
const MAX_RESULT_BYTES: usize = 1 << 40;

/// The number of elements of an output, refused if it cannot be held. Elements below a byte count as one:
/// they are unpacked on the way.
pub fn output_len(cx: &Evaluation<'_>, dtype: DType, shape: &[usize]) -> Result<usize, EvalError> {
    let too_large =
        || cx.error(EvalErrorKind::TooLarge, format!("an output {dtype}{shape:?} does not fit into memory"));
    let len = element_count(shape).ok_or_else(too_large)?;
    let bytes = len.checked_mul(dtype.bits().div_ceil(8)).ok_or_else(too_large)?;
    if bytes > cx.max_bytes() {
        let detail =
            format!("an output {dtype}{shape:?} has more than the {} bytes that are allowed", cx.max_bytes());
        return Err(cx.error(EvalErrorKind::Limit, detail));
    }
    if bytes > MAX_RESULT_BYTES || memory::fits(bytes).is_err() {
        return Err(too_large());
    }
    Ok(len)
}

/// The number of elements of a result that is computed in eight bytes an element.
pub fn result_len(cx: &Evaluation<'_>, shape: &[usize]) -> Result<usize, EvalError> {
    output_len(cx, DType::F64, shape)
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
    range: Range<usize>,
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

/// Asked once: the standard library reads several files under /proc and /sys for it each time, which is more
/// work than most small problems.
fn available_threads() -> usize {
    static AVAILABLE: OnceLock<usize> = OnceLock::new();
    *AVAILABLE.get_or_init(|| std::thread::available_parallelism().map_or(1, NonZero::get))
}

/// Fills a vector in blocks of `block` elements, in parallel over blocks: `fill(block_idx, &mut out)` writes
/// the block. `steps_per_block` is a guess of its cost in inner steps. Every block is computed by one thread
/// from start to end, so results do not depend on the number of threads.
pub fn fill_blocks<T: Copy + Default + Send>(
    n_blocks: usize,
    block: usize,
    steps_per_block: usize,
    fill: impl Fn(usize, &mut [T]) + Sync,
) -> Vec<T> {
    filled_blocks(n_blocks, block, steps_per_block, &fill)
}

/// As [`fill_blocks`]; compiled once for each type and not for each of the many that fill.
fn filled_blocks<T: Copy + Default + Send>(
    n_blocks: usize,
    block: usize,
    steps_per_block: usize,
    fill: &(dyn Fn(usize, &mut [T]) + Sync),
) -> Vec<T> {
    let mut out = vec![T::default(); n_blocks * block];
    if out.is_empty() {
        return out;
    }
    let worthwhile = n_blocks.saturating_mul(steps_per_block) / MIN_STEPS_PER_THREAD + 1;
    let n_threads = available_threads().min(worthwhile).min(n_blocks);
    if n_threads == 1 {
        out.chunks_mut(block).enumerate().for_each(|(idx, chunk)| fill(idx, chunk));
        return out;
    }
    let per_thread = n_blocks.div_ceil(n_threads);
    let queue = Mutex::new(out.chunks_mut(per_thread * block).enumerate());
    in_parallel(n_threads, &|| {
        while let Some((part_idx, part)) = next_of(&queue) {
            for (idx, chunk) in part.chunks_mut(block).enumerate() {
                fill(part_idx * per_thread + idx, chunk);
            }
        }
    });
    out
}

/// The next of what several threads take from. A poisoned queue means that another thread panicked, which is passed on.
fn next_of<T>(queue: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    queue.lock().ok().and_then(|mut rest| rest.next())
}

/// Has so many threads do this, the caller among them; fewer where the system gives no more.
fn in_parallel(n_threads: usize, work: &(dyn Fn() + Sync)) {
    std::thread::scope(|scope| {
        for _ in 1..n_threads {
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
}

/// Elements that `fill_elements` hands out at a time: enough to forget the overhead of a block, few enough
/// that several operands of a block stay in the first-level cache.
const ELEMENTS_PER_BLOCK: usize = 1024;

/// Fills a vector of `len` elements in parallel: `fill(range, &mut out)` writes the elements of a range of
/// flat indices.
pub fn fill_elements<T: Copy + Default + Send>(
    len: usize,
    fill: impl Fn(Range<usize>, &mut [T]) + Sync,
) -> Vec<T> {
    let block = len.clamp(1, ELEMENTS_PER_BLOCK);
    let mut out = fill_blocks(len.div_ceil(block), block, block, |idx, out| {
        let start = idx * block;
        let end = len.min(start + block);
        fill(start..end, &mut out[..end - start]);
    });
    out.truncate(len);
    out
}

/// Fills a vector made of slices of these lengths, in parallel over slices: `fill(slice_idx, &mut slice)`
/// writes one. `steps` is a guess of the cost of one element. Every slice is computed by one thread from
/// start to end, so results do not depend on the number of threads.
pub fn fill_slices<T: Copy + Default + Send>(
    lengths: &[usize],
    steps: usize,
    fill: impl Fn(usize, &mut [T]) + Sync,
) -> Vec<T> {
    let mut out = vec![T::default(); lengths.iter().sum()];
    let worthwhile = out.len().saturating_mul(steps) / MIN_STEPS_PER_THREAD + 1;
    let mut rest = out.as_mut_slice();
    let mut slices = Vec::with_capacity(lengths.len());
    for (idx, &len) in lengths.iter().enumerate() {
        let (slice, tail) = rest.split_at_mut(len);
        slices.push((idx, slice));
        rest = tail;
    }
    let n_threads = available_threads().min(worthwhile).min(slices.len());
    if n_threads <= 1 {
        slices.into_iter().for_each(|(idx, slice)| fill(idx, slice));
        return out;
    }
    let queue = Mutex::new(slices.into_iter());
    in_parallel(n_threads, &|| {
        while let Some((idx, slice)) = next_of(&queue) {
            fill(idx, slice);
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

    #[test]
    fn elements_are_filled_once_each() {
        for len in [0, 1, 1023, 1024, 1025, 200_000] {
            let out: Vec<usize> = fill_elements(len, |range, out| {
                out.iter_mut().zip(range).for_each(|(to, place)| *to += place + 1);
            });
            assert!(out.len() == len && out.iter().enumerate().all(|(place, &value)| value == place + 1));
        }
    }

    #[test]
    fn outputs_beyond_memory_are_refused() {
        let cx = Evaluation::new("Test", &[], 1);
        assert_eq!(output_len(&cx, DType::F32, &[2, 3]), Ok(6));
        assert_eq!(output_len(&cx, DType::F32, &[1 << 40, 1 << 40, 0]), Ok(0));
        for shape in [[1 << 39, 1], [1 << 40, 1 << 40]] {
            assert_eq!(output_len(&cx, DType::F32, &shape).unwrap_err().kind(), EvalErrorKind::TooLarge);
        }
        assert_eq!(strides(&[0, 1 << 40, 1 << 40]).len(), 3);
    }

    #[test]
    fn slices_are_filled_once_each() {
        let lengths: Vec<usize> = (0..100).collect();
        let out: Vec<usize> = fill_slices(&lengths, 1 << 12, |idx, out| out.fill(idx));
        let expected: Vec<usize> = lengths.iter().flat_map(|&len| std::iter::repeat_n(len, len)).collect();
        assert_eq!(out, expected);
        assert_eq!(fill_slices::<u8>(&[], 1, |_, _| {}), [0u8; 0]);
    }
}
