//! The tile of quantized products: bytes of activations times packed signed bytes, summed in i32, then scaled, finished
//! and stored as bytes or f32 while it is in registers.
//!
//! It is the f32 tile with four neighbouring channels in the place of one number: an element of the windows is four
//! bytes, an element of the panel the four weights that meet them, and one dot product does what a multiply and add
//! does there.

use super::super::RunCall;
use super::super::igemm::TileAt;
use super::finish::{Channels, Finish, kind};
use super::pack::{LARGE, ORDERED_LANES};
use crate::simd::{Simd, arrays};

/// Dot products of four bytes: `acc + Σ a[i] · b[i]` in each lane, `a` unsigned and `b` signed.
pub(crate) trait Dot<S: Simd>: Copy {
    fn dot(self, s: S, acc: S::I, a: S::I, b: S::I) -> S::I;
}

/// Zero points of the weights.
#[derive(Clone, Copy, Debug)]
pub(super) enum Zeros {
    None,
    One(i32),
    /// One of each output channel.
    Each(*const i8),
}

impl Zeros {
    /// Those of `n` channels from `channel` on.
    ///
    /// # Safety
    /// There must be so many channels.
    #[inline(always)]
    pub(super) unsafe fn of<S: Simd>(self, s: S, channel: usize, n: usize) -> S::I {
        match self {
            Zeros::None => s.splat_int(0),
            Zeros::One(zero) => s.splat_int(zero),
            // SAFETY: granted by the caller.
            Zeros::Each(zeros) => unsafe { s.load_signed_bytes(zeros.add(channel), n) },
        }
    }
}

/// Sums over window `i` without its zero point: what every zero point of a weight takes away from its sums. 0 where there
/// is none.
///
/// # Safety
/// As for [`tile`].
#[inline(always)]
pub(super) unsafe fn centered_sum(call: &QuantizedCall, at: &TileAt, i: usize) -> i32 {
    if let Zeros::None = call.weight_zeros {
        return 0;
    }
    let n_bytes = 4 * at.depth;
    let mut sum = 0;
    for segment in 0..at.n_segments {
        // SAFETY: the windows are readable for `depth` quads a segment.
        let bytes = unsafe {
            let row = *at.rows.add(segment * at.rows_stride + i);
            std::slice::from_raw_parts(row.cast::<u8>(), n_bytes)
        };
        sum += bytes.iter().map(|&byte| i32::from(byte)).sum::<i32>();
    }
    sum - (at.n_segments * n_bytes) as i32 * call.input_zero
}

/// The addresses and numbers of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuantizedCall {
    pub(super) input: *const u8,
    /// Panels, aligned to 64 bytes.
    pub(super) weights: *const i8,
    /// Of each output channel the sum of its weights, for each class of taps; readable for a vector beyond the last.
    pub(super) weight_sums: *const i32,
    /// Of each panel whether neighbouring products may leave 16 bits.
    pub(super) panel_flags: *const u32,
    /// In which order the rows of panels of [`super::pack::ORDERED_LANES`] are read.
    pub(super) panel_order: *const u16,
    pub(super) input_zero: i32,
    /// What taps in the padding read, where that is known to the run alone; or null.
    pub(super) padding: *const u8,
    pub(super) weight_zeros: Zeros,
    pub(super) finish: Finish,
    pub(super) workspace: *mut u8,
}

// SAFETY: tasks write disjoint parts of the output and of the workspace; the rest is read.
unsafe impl Sync for QuantizedCall {}
// SAFETY: as above: the addresses belong to no thread.
unsafe impl Send for QuantizedCall {}

impl RunCall for QuantizedCall {
    fn workspace(&self) -> *mut u8 {
        self.workspace
    }
}

/// A compiled instance for one number of rows and of vectors a row.
pub(super) type QuantizedFn = unsafe fn(&QuantizedCall, &TileAt);

/// `MR` rows of `NV` vectors.
///
/// # Safety
/// As for `TileKernel::run`; `at.m` must be `MR`, and `at.n` need exactly `NV` vectors.
#[inline(always)]
pub(super) unsafe fn tile<S: Simd, D: Dot<S>, const MR: usize, const NV: usize>(
    s: S,
    dot: D,
    call: &QuantizedCall,
    at: &TileAt,
) {
    // SAFETY: granted by the caller.
    let mut acc = unsafe { begin::<S, MR, NV>(s, call, at) };
    // SAFETY: rows are read below `depth`, the panel below `n_segments * depth` rows of `NV` vectors.
    unsafe {
        let factors = Factors {
            rows: at.rows,
            rows_stride: at.rows_stride,
            n_segments: at.n_segments,
            depth: at.depth,
            panel: call.weights.cast::<i32>().add(at.weights),
            panel_stride: at.width,
        };
        sum_up(s, dot, &mut acc, &factors);
    }
    // SAFETY: granted by the caller.
    unsafe { end(s, acc, call, at) };
}

/// The same with one dot product for rows of small weights and another one for the rest, in the order that the packing
/// gives: nearly all neighbouring weights of a model are small enough for their products to stay in 16 bits, but few
/// panels have no others.
///
/// # Safety
/// As for [`tile`].
#[inline(always)]
pub(super) unsafe fn tile_by_size<S: Simd, A: Dot<S>, B: Dot<S>, const MR: usize, const NV: usize>(
    s: S,
    (small, large): (A, B),
    call: &QuantizedCall,
    at: &TileAt,
) {
    // SAFETY: granted by the caller.
    let mut acc = unsafe { begin::<S, MR, NV>(s, call, at) };
    // SAFETY: rows are read below `depth`, the panel below `n_segments * depth` rows of `NV` vectors, and the order has an
    // entry for each of these.
    unsafe {
        let mut panel = call.weights.cast::<i32>().add(at.weights);
        let mut order = call.panel_order.add(at.weights / ORDERED_LANES);
        let order_step = at.width / ORDERED_LANES;
        let mut group = at.rows;
        for _ in 0..at.n_segments {
            let mut rows = [std::ptr::null::<i32>(); MR];
            for (i, row) in rows.iter_mut().enumerate() {
                *row = (*group.add(i)).cast();
            }
            let mut done = 0;
            while done < at.depth {
                let k = usize::from(*order.add(done * order_step));
                if k >= usize::from(LARGE) {
                    break;
                }
                // Whatever the order says, it stays inside of the panel.
                let k = k.min(at.depth - 1);
                step(s, small, &mut acc, &rows, k, panel.wrapping_add(k * at.width));
                done += 1;
            }
            while done < at.depth {
                let k = usize::from(*order.add(done * order_step) & !LARGE).min(at.depth - 1);
                step(s, large, &mut acc, &rows, k, panel.wrapping_add(k * at.width));
                done += 1;
            }
            panel = panel.wrapping_add(at.depth * at.width);
            order = order.wrapping_add(at.depth * order_step);
            group = group.add(at.rows_stride);
        }
    }
    // SAFETY: granted by the caller.
    unsafe { end(s, acc, call, at) };
}

/// What sums begin with: the windows hold `x + zero`, and what that adds to each of them is taken away.
///
/// # Safety
/// The sums of the weights must reach a vector beyond the last channel.
#[inline(always)]
unsafe fn begin<S: Simd, const MR: usize, const NV: usize>(
    s: S,
    call: &QuantizedCall,
    at: &TileAt,
) -> [[S::I; NV]; MR] {
    let mut start = [s.splat_int(0); NV];
    let minus_zero = s.splat_int(-call.input_zero);
    for (j, start) in start.iter_mut().enumerate() {
        // SAFETY: granted by the caller.
        let sums = unsafe { s.load_int(call.weight_sums.add(at.class_channel + j * S::LANES)) };
        *start = s.mul_int(sums, minus_zero);
    }
    [start; MR]
}

/// Finishes sums and stores them.
///
/// # Safety
/// As for [`tile`].
#[inline(always)]
unsafe fn end<S: Simd, const MR: usize, const NV: usize>(
    s: S,
    acc: [[S::I; NV]; MR],
    call: &QuantizedCall,
    at: &TileAt,
) {
    // What follows is a loop over vectors in memory: were it over the accumulators, these would live in memory too, and
    // be stored at each step (half of the speed, measured).
    let mut sums = Sums([std::mem::MaybeUninit::uninit(); MAX_SUMS]);
    for (i, row) in acc.iter().enumerate() {
        for (j, vector) in row.iter().enumerate() {
            // SAFETY: `MR` rows of `NV` vectors are at most `MAX_SUMS`.
            unsafe {
                let to = sums.0.as_mut_ptr().add((i * NV + j) * S::LANES);
                s.store(to.cast(), s.from_bits(*vector));
            }
        }
    }
    // SAFETY: granted by the caller; the sums are there.
    unsafe { finish::<S, MR, NV>(s, sums.0.as_ptr().cast(), call, at) };
}

/// The two sides of a tile's products.
#[derive(Clone, Copy)]
pub(crate) struct Factors {
    /// Pointers to the rows: `n_segments` groups of them, `rows_stride` apart, each of `depth` quads.
    pub(crate) rows: *const *const f32,
    pub(crate) rows_stride: usize,
    pub(crate) n_segments: usize,
    pub(crate) depth: usize,
    pub(crate) panel: *const i32,
    pub(crate) panel_stride: usize,
}

/// Adds all products to the sums.
///
/// # Safety
/// Rows must be readable below `depth`, the panel for `n_segments * depth` rows of `NV` vectors.
#[inline(always)]
pub(crate) unsafe fn sum_up<S: Simd, D: Dot<S>, const MR: usize, const NV: usize>(
    s: S,
    dot: D,
    acc: &mut [[S::I; NV]; MR],
    factors: &Factors,
) {
    let &Factors { rows, rows_stride, n_segments, depth, mut panel, panel_stride } = factors;
    let mut group = rows;
    // SAFETY: granted by the caller.
    unsafe {
        for _ in 0..n_segments {
            let mut rows = [std::ptr::null::<i32>(); MR];
            for (i, row) in rows.iter_mut().enumerate() {
                *row = (*group.add(i)).cast();
            }
            let mut k = 0;
            while k + UNROLL <= depth {
                for u in 0..UNROLL {
                    step(s, dot, acc, &rows, k + u, panel.wrapping_add(u * panel_stride));
                }
                panel = panel.wrapping_add(UNROLL * panel_stride);
                k += UNROLL;
            }
            while k < depth {
                step(s, dot, acc, &rows, k, panel);
                panel = panel.wrapping_add(panel_stride);
                k += 1;
            }
            group = group.add(rows_stride);
        }
    }
}

/// Steps of the sum that are unrolled: the loop's own work, and the reload of row pointers that found no register, are
/// spread over this many.
const UNROLL: usize = 4;

/// The sums of the largest tile: 28 vectors of 16.
const MAX_SUMS: usize = 28 * 16;

#[repr(align(64))]
struct Sums([std::mem::MaybeUninit<i32>; MAX_SUMS]);

/// One step of the sum: quad `k` of the rows times one row of the panel.
///
/// # Safety
/// `rows` must be readable at `k`, `panel` for `NV` vectors.
#[inline(always)]
unsafe fn step<S: Simd, D: Dot<S>, const MR: usize, const NV: usize>(
    s: S,
    dot: D,
    acc: &mut [[S::I; NV]; MR],
    rows: &[*const i32; MR],
    k: usize,
    panel: *const i32,
) {
    let mut b = [s.splat_int(0); NV];
    // SAFETY: granted by the caller.
    unsafe {
        for (j, b) in b.iter_mut().enumerate() {
            *b = s.load_int(panel.add(j * S::LANES));
        }
        for i in 0..MR {
            let a = s.splat_int(rows[i].add(k).read_unaligned());
            for j in 0..NV {
                acc[i][j] = dot.dot(s, acc[i][j], a, b[j]);
            }
        }
    }
}

/// Finishes the sums and stores them.
///
/// # Safety
/// As for [`tile`]; `sums` holds `MR` rows of `NV` vectors.
#[inline(always)]
unsafe fn finish<S: Simd, const MR: usize, const NV: usize>(
    s: S,
    sums: *const i32,
    call: &QuantizedCall,
    at: &TileAt,
) {
    let is_whole = at.n == NV * S::LANES && matches!(call.weight_zeros, Zeros::None);
    // SAFETY: granted by the caller.
    unsafe {
        match call.finish.kind(is_whole) {
            kind::BYTES => return finish_whole::<S, MR, NV, { kind::BYTES }>(s, sums, call, at),
            kind::SUM => return finish_whole::<S, MR, NV, { kind::SUM }>(s, sums, call, at),
            _ => {}
        }
    }
    // SAFETY: granted by the caller.
    let centered: [i32; MR] = arrays::from_fn(|i| unsafe { centered_sum(call, at, i) });
    for j in 0..NV {
        let column = j * S::LANES;
        let n = (at.n - column).min(S::LANES);
        // SAFETY: the caller grants scales, zero points, bias, residual and output for the tile's columns.
        unsafe {
            let channels = call.finish.channels(s, at.channel + column, n);
            let zeros = call.weight_zeros.of(s, at.channel + column, n);
            for (i, centered) in centered.iter().enumerate() {
                let sum = s.load_int(sums.add((i * NV + j) * S::LANES));
                let sum = match call.weight_zeros {
                    Zeros::None => sum,
                    _ => s.sub_int(sum, s.mul_int(zeros, s.splat_int(*centered))),
                };
                let sum = s.to_float(sum);
                let residual = at.residual.unwrap_or(0) + i * at.residual_stride + column;
                let to = at.output + i * at.output_stride + column;
                call.finish.store::<S, { kind::ANY }>(s, &channels, sum, residual, to);
            }
        }
    }
}

/// The same for whole vectors of results of one kind, without zero points of weights: what is the same for all rows stays in
/// registers.
///
/// # Safety
/// As for [`finish`].
#[inline(always)]
unsafe fn finish_whole<S: Simd, const MR: usize, const NV: usize, const KIND: u8>(
    s: S,
    sums: *const i32,
    call: &QuantizedCall,
    at: &TileAt,
) {
    // SAFETY: the caller grants scales, bias, residual and output for the tile's columns.
    unsafe {
        let mut channels: [Channels<S>; NV] = [call.finish.channels(s, at.channel, S::LANES); NV];
        for (j, channels) in channels.iter_mut().enumerate().skip(1) {
            *channels = call.finish.channels(s, at.channel + j * S::LANES, S::LANES);
        }
        for i in 0..MR {
            let row = sums.add(i * NV * S::LANES);
            let residual = at.residual.unwrap_or(0) + i * at.residual_stride;
            let to = at.output + i * at.output_stride;
            for j in (0..NV - NV % 2).step_by(2) {
                let column = j * S::LANES;
                let two = [
                    s.to_float(s.load_int(row.add(column))),
                    s.to_float(s.load_int(row.add(column + S::LANES))),
                ];
                let pair = [&channels[j], &channels[j + 1]];
                call.finish.store_two::<S, KIND>(s, pair, two, residual + column, to + column);
            }
            if NV % 2 == 1 {
                let column = (NV - 1) * S::LANES;
                let sum = s.to_float(s.load_int(row.add(column)));
                call.finish.store::<S, KIND>(s, &channels[NV - 1], sum, residual + column, to + column);
            }
        }
    }
}
