//! The tile micro-kernel that matrix products, implicit-GEMM convolution and Winograd share: a block of C that
//! stays in registers while rows of A meet a packed panel of B.
//!
//! A comes as pointers to rows, in segments: one segment for a matrix product, one per tap of the window for a
//! convolution (a tap outside the image points to zeros). So nothing is copied to make A fit, and the same code
//! serves all. The panel is as wide as the tile's columns rounded up to whole vectors, so that a narrow last
//! panel costs no more than it computes; every number of rows has its own instance for the same reason.

use crate::simd::{Simd, arrays};

/// One tile: `C[i][j] = epilogue((accumulate ? C[i][j] : 0) + Σ A(s, i, k) · B(s, k, j))` over segments `s` and depth
/// `k`, where `A(s, i, k) = rows[s·rows_stride + i][k]` and `B(s, k, j) = panel[(s·depth + k)·panel_stride + j]`.
///
/// The order of the sum is fixed by `m`, `n`, `n_segments` and `depth` alone.
#[derive(Clone, Copy, Debug)]
pub struct TileCall {
    /// `n_segments` groups of row pointers, `rows_stride` apart; the first `m` of each are read.
    pub rows: *const *const f32,
    pub rows_stride: usize,
    pub n_segments: usize,
    /// Elements of each row that are read.
    pub depth: usize,
    /// B: packed, or rows of any matrix. Columns past `n` are read up to a whole vector but may hold anything.
    /// 64-byte alignment avoids split loads.
    pub panel: *const f32,
    /// Elements from one row of B to the next; `Tile::panel_width` of the columns where B is packed.
    pub panel_stride: usize,
    pub c: *mut f32,
    /// In elements.
    pub c_stride: usize,
    /// At most the tile's rows.
    pub m: usize,
    /// At most the tile's columns.
    pub n: usize,
    /// Adds to what C holds: for the second and later blocks of a long sum.
    pub accumulate: bool,
    /// [`EpilogueCall::NONE`] for all but the last block of a sum.
    pub epilogue: EpilogueCall,
    /// What is fetched into the second-level cache meanwhile.
    pub ahead: Ahead,
}

/// Memory that is read later, asked for while a tile is computed: the hardware's own prefetching stops at the end of what
/// is read now, and memory beyond the caches that nobody asked for is waited for with idle multipliers.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    /// The first cache line; the others follow one after the other.
    pub from: *const f32,
    /// For every `UNROLL` steps of a segment's depth.
    pub lines: usize,
}

impl Ahead {
    pub const NONE: Ahead = Ahead { from: std::ptr::null(), lines: 0 };

    /// The lines that each of `tiles` tiles must ask for, so that together they fetch rows of `width` elements, one for
    /// each step of their own depth. As few as that takes: more at a time are waited for.
    #[inline]
    pub fn lines(width: usize, tiles: usize) -> usize {
        (UNROLL * width).div_ceil(LINE * tiles.max(1))
    }

    /// Elements that a tile of so many segments fetches with so many lines.
    #[inline]
    pub fn fetched(n_segments: usize, depth: usize, lines: usize) -> usize {
        n_segments * (depth / UNROLL) * lines * LINE
    }
}

impl TileCall {
    /// A row of C of `n` columns whose sum is known: what is left is the epilogue.
    pub(crate) fn after_sum(c: *mut f32, n: usize) -> TileCall {
        TileCall {
            rows: std::ptr::null(),
            rows_stride: 0,
            n_segments: 0,
            depth: 0,
            panel: std::ptr::null(),
            panel_stride: 0,
            c,
            c_stride: 0,
            m: 1,
            n,
            accumulate: false,
            epilogue: EpilogueCall::NONE,
            ahead: Ahead::NONE,
        }
    }
}

/// What belongs to the sum beside products, in registers: `+ bias[j]` (a sum in one part begins with it),
/// `+ residual[i][j]`, then a clamp to `[lo, hi]`.
///
/// NaN passes through the clamp as it does through ONNX's Relu and Clip, and `hi < lo` gives `hi`.
#[derive(Clone, Copy, Debug)]
pub struct EpilogueCall {
    /// One per column, or null.
    pub bias: *const f32,
    /// The element that belongs to the tile's first, or null. May be C itself.
    pub residual: *const f32,
    pub residual_stride: usize,
    pub lo: f32,
    pub hi: f32,
}

impl EpilogueCall {
    /// The sum as it is.
    pub const NONE: EpilogueCall = EpilogueCall {
        bias: std::ptr::null(),
        residual: std::ptr::null(),
        residual_stride: 0,
        lo: f32::NEG_INFINITY,
        hi: f32::INFINITY,
    };

    /// The same for the tile that begins `row` and `col` further on.
    ///
    /// # Safety
    /// The non-null pointers must stay inside their allocations.
    #[inline(always)]
    pub unsafe fn at(self, row: usize, col: usize) -> EpilogueCall {
        let mut moved = self;
        if !self.bias.is_null() {
            // SAFETY: the caller says that the element is there.
            moved.bias = unsafe { self.bias.add(col) };
        }
        if !self.residual.is_null() {
            // SAFETY: the caller says that the element is there.
            moved.residual = unsafe { self.residual.add(row * self.residual_stride + col) };
        }
        moved
    }

    /// Whether the clamp does nothing.
    #[inline(always)]
    pub fn is_unclamped(&self) -> bool {
        self.lo == f32::NEG_INFINITY && self.hi == f32::INFINITY
    }
}

/// A compiled instance for one number of rows and of vectors a row.
pub type TileFn = unsafe fn(&TileCall);

/// Independent chains of additions that hide the latency of a fused multiply and add: four cycles on two ports.
const CHAINS: usize = 8;
/// More copies of the accumulators than this gain nothing: a one-row tile waits for memory anyway.
const MAX_SETS: usize = 4;

/// How many copies of the accumulators a tile of `mr` rows of `nv` vectors needs to have enough chains.
const fn sets(mr: usize, nv: usize) -> usize {
    let mut sets = 1;
    while sets < MAX_SETS && sets * mr * nv < CHAINS {
        sets *= 2;
    }
    sets
}

/// Steps of the sum that are unrolled: the loop's own work, and the reload of row pointers that found no
/// register, are spread over this many.
const UNROLL: usize = 4;
/// Floats of a cache line.
const LINE: usize = 16;

/// `MR` rows of `NV` vectors: see [`TileCall`].
///
/// # Safety
/// The memory that the call names must be readable, and C writable, for `MR` rows and the call's `n` columns,
/// and `n` must need exactly `NV` vectors.
#[inline(always)]
pub(super) unsafe fn tile<S: Simd, const MR: usize, const NV: usize>(s: S, call: &TileCall) {
    let width = NV * S::LANES;
    let mut acc = [[[s.zero(); NV]; MR]; MAX_SETS];
    // A sum that is made in one go begins with its bias: at the end nothing else would hide the additions.
    if !call.accumulate && !call.epilogue.bias.is_null() {
        // SAFETY: the bias has the call's columns.
        let bias = unsafe { vectors(s, call.epilogue.bias, call.n - (NV - 1) * S::LANES) };
        acc[0] = [bias; MR];
    }
    // SAFETY: granted by the caller.
    unsafe {
        // A stride that is known at compile time is part of the addresses, which is worth 4 % of peak on AVX2.
        if call.panel_stride == width {
            accumulate(s, &mut acc, call, width);
        } else {
            accumulate(s, &mut acc, call, call.panel_stride);
        }
    }
    let mut sum = match const { sets(MR, NV) } {
        1 => acc[0],
        2 => plus(s, acc[0], acc[1]),
        _ => plus(s, plus(s, acc[0], acc[2]), plus(s, acc[1], acc[3])),
    };
    // SAFETY: the caller grants C, bias and residual.
    unsafe { apply_epilogue(s, &mut sum, call) };
}

/// The sum, over segments and depth, dealt out to the copies of the accumulators in turn.
///
/// # Safety
/// As for [`tile`].
#[inline(always)]
unsafe fn accumulate<S: Simd, const MR: usize, const NV: usize>(
    s: S,
    acc: &mut [[[S::F; NV]; MR]; MAX_SETS],
    call: &TileCall,
    stride: usize,
) {
    let n_sets = const { sets(MR, NV) };
    let mut panel = call.panel;
    let mut group = call.rows;
    let Ahead { from: mut ahead, lines } = call.ahead;
    // SAFETY: rows are read below `depth`, the panel below `n_segments * depth` rows of `NV` vectors, as the
    // caller grants.
    unsafe {
        for _ in 0..call.n_segments {
            let mut rows = [std::ptr::null::<f32>(); MR];
            for (i, row) in rows.iter_mut().enumerate() {
                *row = *group.add(i);
            }
            let mut k = 0;
            while k + UNROLL <= call.depth {
                for u in 0..UNROLL {
                    step(s, &mut acc[u % n_sets], &rows, k + u, panel.wrapping_add(u * stride));
                }
                for _ in 0..lines {
                    fetch(ahead);
                    ahead = ahead.wrapping_add(LINE);
                }
                panel = panel.wrapping_add(UNROLL * stride);
                k += UNROLL;
            }
            while k < call.depth {
                step(s, &mut acc[0], &rows, k, panel);
                panel = panel.wrapping_add(stride);
                k += 1;
            }
            group = group.add(call.rows_stride);
        }
    }
}

/// Asks for a cache line in the second-level cache.
#[inline(always)]
fn fetch(at: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: any address may be asked for.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// One step of the sum: column `k` of the rows times one row of the panel.
///
/// # Safety
/// `rows` must be readable at `k`, `panel` for `NV` vectors.
#[inline(always)]
pub(crate) unsafe fn step<S: Simd, const MR: usize, const NV: usize>(
    s: S,
    acc: &mut [[S::F; NV]; MR],
    rows: &[*const f32; MR],
    k: usize,
    panel: *const f32,
) {
    let mut b = [s.zero(); NV];
    // SAFETY: granted by the caller.
    unsafe {
        for (j, b) in b.iter_mut().enumerate() {
            *b = s.load(panel.add(j * S::LANES));
        }
        for i in 0..MR {
            let a = s.splat(*rows[i].add(k));
            for j in 0..NV {
                acc[i][j] = s.mul_add(a, b[j], acc[i][j]);
            }
        }
    }
}

/// Adds two copies of the accumulators.
#[inline(always)]
fn plus<S: Simd, const MR: usize, const NV: usize>(
    s: S,
    a: [[S::F; NV]; MR],
    b: [[S::F; NV]; MR],
) -> [[S::F; NV]; MR] {
    arrays::from_fn(|i| arrays::from_fn(|j| s.add(a[i][j], b[i][j])))
}

/// Adds bias and residual to the sums of one row, clamps and stores them.
///
/// # Safety
/// The caller grants C, bias and residual for the call's columns, which need exactly `NV` vectors.
#[inline(always)]
pub(crate) unsafe fn finish_row<S: Simd, const NV: usize>(s: S, sums: [S::F; NV], call: &TileCall) {
    let mut acc = [sums];
    // SAFETY: granted by the caller.
    unsafe {
        if !call.epilogue.bias.is_null() {
            add_rows(s, &mut acc, call.epilogue.bias, 0, call.n - (NV - 1) * S::LANES);
        }
        apply_epilogue(s, &mut acc, call);
    }
}

/// Adds what C holds, the bias and the residual, clamps and stores.
///
/// # Safety
/// As for [`tile`].
#[inline(always)]
unsafe fn apply_epilogue<S: Simd, const MR: usize, const NV: usize>(
    s: S,
    acc: &mut [[S::F; NV]; MR],
    call: &TileCall,
) {
    let last = call.n - (NV - 1) * S::LANES;
    let whole = last == S::LANES;
    // SAFETY: granted by the caller: all vectors but the last are whole, the last has `last` lanes.
    unsafe {
        if call.accumulate {
            add_rows(s, acc, call.c, call.c_stride, last);
        }
        if call.accumulate && !call.epilogue.bias.is_null() {
            add_rows(s, acc, call.epilogue.bias, 0, last);
        }
        if !call.epilogue.residual.is_null() {
            add_rows(s, acc, call.epilogue.residual, call.epilogue.residual_stride, last);
        }
    }
    if !call.epilogue.is_unclamped() {
        let (lo, hi) = (s.splat(call.epilogue.lo), s.splat(call.epilogue.hi));
        for row in acc.iter_mut() {
            for vector in row.iter_mut() {
                // The second operand is the answer where one is NaN, so a NaN sum stays.
                *vector = s.min(hi, s.max(lo, *vector));
            }
        }
    }
    // SAFETY: C is writable for `MR` rows of `n` columns.
    unsafe {
        for (i, row) in acc.iter().enumerate() {
            let c = call.c.add(i * call.c_stride);
            for (j, vector) in row.iter().enumerate() {
                let to = c.add(j * S::LANES);
                if j + 1 < NV || whole { s.store(to, *vector) } else { s.store_part(to, last, *vector) }
            }
        }
    }
}

/// `NV` vectors, the last of `last` lanes.
///
/// # Safety
/// They must be readable.
#[inline(always)]
pub(crate) unsafe fn vectors<S: Simd, const NV: usize>(s: S, from: *const f32, last: usize) -> [S::F; NV] {
    let mut vectors = [s.zero(); NV];
    for (j, vector) in vectors.iter_mut().enumerate() {
        // SAFETY: granted by the caller.
        *vector = unsafe {
            let from = from.add(j * S::LANES);
            if j + 1 < NV || last == S::LANES { s.load(from) } else { s.load_part(from, last) }
        };
    }
    vectors
}

/// Adds rows of memory to the accumulators. A function, because a closure that is called thrice is not inlined, and is
/// then compiled without the instruction set.
///
/// # Safety
/// `from` must be readable for `MR` rows of `NV` vectors, the last of `last` lanes.
#[inline(always)]
unsafe fn add_rows<S: Simd, const MR: usize, const NV: usize>(
    s: S,
    acc: &mut [[S::F; NV]; MR],
    from: *const f32,
    stride: usize,
    last: usize,
) {
    for (i, row) in acc.iter_mut().enumerate() {
        for (j, vector) in row.iter_mut().enumerate() {
            // SAFETY: granted by the caller.
            let term = unsafe {
                let from = from.add(i * stride + j * S::LANES);
                if j + 1 < NV || last == S::LANES { s.load(from) } else { s.load_part(from, last) }
            };
            *vector = s.add(*vector, term);
        }
    }
}
