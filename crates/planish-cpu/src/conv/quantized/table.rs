//! The table of quantized tiles: one row a tile, by the instructions that it needs.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use super::super::igemm::{TileAt, TileKernel};
#[cfg(target_arch = "x86_64")]
use super::amx;
use super::tile::{Dot, QuantizedCall, QuantizedFn, tile, tile_by_size};
use crate::gemm::table::Panels;
#[cfg(target_arch = "x86_64")]
use crate::isa::{Avx2, Avx512};
use crate::isa::{Feature, Isa, Portable};
use crate::simd::arrays;

/// Byte by byte, for every machine.
#[derive(Clone, Copy)]
struct Scalar;

impl Dot<Portable> for Scalar {
    #[inline(always)]
    fn dot(self, _: Portable, acc: [i32; 8], a: [i32; 8], b: [i32; 8]) -> [i32; 8] {
        arrays::from_fn(|lane| {
            let (a, b) = (a[lane].to_ne_bytes(), b[lane].to_ne_bytes());
            (0..4).fold(acc[lane], |sum, i| sum + i32::from(a[i]) * i32::from(b[i] as i8))
        })
    }
}

/// Sums of two neighbouring products in 16 bits, then of two of these: only where no two weights beside each other can
/// leave 16 bits (`255 · (|w0| + |w1|) < 2^15`).
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Pairs;

#[cfg(target_arch = "x86_64")]
impl Dot<Avx2> for Pairs {
    #[inline(always)]
    fn dot(self, _: Avx2, acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the proof of the instruction set is an argument.
        unsafe {
            let pairs = _mm256_maddubs_epi16(a, b);
            _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
    }
}

/// The same with both factors in 16 bits, which always fits: bytes at even places, then those at odd ones. What makes
/// 16 bits of 8 is done once a row and once a vector of weights, not for each product.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Apart;

#[cfg(target_arch = "x86_64")]
impl Dot<Avx2> for Apart {
    #[inline(always)]
    fn dot(self, _: Avx2, acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the proof of the instruction set is an argument.
        unsafe {
            let even = _mm256_and_si256(a, _mm256_set1_epi16(0x00ff));
            let odd = _mm256_srli_epi16::<8>(a);
            let even_weights = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(b));
            let odd_weights = _mm256_srai_epi16::<8>(b);
            let acc = _mm256_add_epi32(acc, _mm256_madd_epi16(even, even_weights));
            _mm256_add_epi32(acc, _mm256_madd_epi16(odd, odd_weights))
        }
    }
}

/// One instruction on 16 lanes (AVX-512 VNNI).
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct Vnni512;

#[cfg(target_arch = "x86_64")]
impl Dot<Avx512> for Vnni512 {
    #[inline(always)]
    fn dot(self, _: Avx512, acc: __m512i, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: reached only through a row of the table, which exists only where the instruction does.
        unsafe { _mm512_dpbusd_epi32(acc, a, b) }
    }
}

/// One instruction on 8 lanes (AVX-VNNI).
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct Vnni256;

#[cfg(target_arch = "x86_64")]
impl Dot<Avx2> for Vnni256 {
    #[inline(always)]
    fn dot(self, _: Avx2, acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: reached only through a row of the table, which exists only where the instruction does.
        unsafe { _mm256_dpbusd_avx_epi32(acc, a, b) }
    }
}

macro_rules! compiled {
    ($name:ident, $proof:expr, $dot:expr, $(#[$feature:meta])*) => {
        $(#[$feature])*
        unsafe fn $name<const MR: usize, const NV: usize>(call: &QuantizedCall, at: &TileAt) {
            // SAFETY: the caller has the proof, in the form of a `QuantizedTile`, and grants the memory.
            unsafe { tile::<_, _, MR, NV>($proof, $dot, call, at) }
        }
    };
}

compiled!(portable, Portable, Scalar,);
#[cfg(target_arch = "x86_64")]
compiled!(pairs, Avx2::assume(), Pairs, #[target_feature(enable = "avx2,fma")]);
#[cfg(target_arch = "x86_64")]
compiled!(vnni256, Avx2::assume(), Vnni256, #[target_feature(enable = "avx2,fma,avxvnni")]);
#[cfg(target_arch = "x86_64")]
compiled!(
    vnni512, Avx512::assume(), Vnni512,
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,avx512vnni")]
);

/// Pairs where they fit, apart where not.
///
/// # Safety
/// As for [`tile_by_size`]; reached only through a `QuantizedTile`, which is the proof.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn by_size<const MR: usize, const NV: usize>(call: &QuantizedCall, at: &TileAt) {
    // SAFETY: granted by the caller.
    unsafe { tile_by_size::<_, _, _, MR, NV>(Avx2::assume(), (Pairs, Apart), call, at) }
}

macro_rules! grid {
    ($compiled:ident, $([$nv:literal: $($mr:literal)*])*) => {
        &[$(&[$($compiled::<$mr, $nv> as QuantizedFn),*]),*]
    };
}

/// One row of the table.
#[derive(Debug)]
struct Row {
    /// As it stands in the names of tactics, after the tile's sizes.
    name: &'static str,
    isa: &'static str,
    needs: Option<Feature>,
    mr: usize,
    nv: usize,
    lanes: usize,
    /// `grid[vectors - 1][rows - 1]`.
    grid: &'static [&'static [QuantizedFn]],
    /// The same for panels some of whose weights are too large for `grid`; they have [`super::pack::ORDERED_LANES`].
    wide: Option<&'static [&'static [QuantizedFn]]>,
    /// Multiply-adds a cycle, against those of f32.
    speed: f64,
}

/// Every tile, the fastest of an instruction set first.
static ROWS: &[Row] = &[
    Row {
        name: "portable",
        isa: "portable",
        needs: None,
        mr: 4,
        nv: 1,
        lanes: 8,
        grid: grid!(portable, [1: 1 2 3 4]),
        wide: None,
        speed: 0.5,
    },
    // Ten accumulators: the constant and the pairs take registers too.
    #[cfg(target_arch = "x86_64")]
    Row {
        name: "avx2",
        isa: "avx2",
        needs: None,
        mr: 5,
        nv: 2,
        lanes: 8,
        grid: grid!(pairs, [1: 1 2 3 4 5] [2: 1 2 3 4 5]),
        wide: Some(grid!(by_size, [1: 1 2 3 4 5] [2: 1 2 3 4 5])),
        speed: 1.25,
    },
    #[cfg(target_arch = "x86_64")]
    Row {
        name: "avxvnni",
        isa: "avx2",
        needs: Some(Feature::AvxVnni),
        mr: 6,
        nv: 2,
        lanes: 8,
        grid: grid!(vnni256, [1: 1 2 3 4 5 6] [2: 1 2 3 4 5 6]),
        wide: None,
        speed: 3.8,
    },
    #[cfg(target_arch = "x86_64")]
    Row {
        name: "avx512vnni",
        isa: "avx512",
        needs: Some(Feature::Avx512Vnni),
        mr: 14,
        nv: 2,
        lanes: 16,
        grid: grid!(vnni512, [1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14] [2: 1 2 3 4 5 6 7 8 9 10 11 12 13 14]),
        wide: None,
        speed: 3.8,
    },
    #[cfg(target_arch = "x86_64")]
    Row {
        name: "avx512vnni",
        isa: "avx512",
        needs: Some(Feature::Avx512Vnni),
        mr: 6,
        nv: 4,
        lanes: 16,
        grid: grid!(vnni512, [1: 1 2 3 4 5 6] [2: 1 2 3 4 5 6] [3: 1 2 3 4 5 6] [4: 1 2 3 4 5 6]),
        wide: None,
        speed: 3.8,
    },
    // 16 of the products of AVX-512 in the time of one; what surrounds them takes most of that.
    #[cfg(target_arch = "x86_64")]
    Row {
        name: "amxint8",
        isa: "avx512",
        needs: Some(Feature::AmxInt8),
        mr: amx::SIDE,
        nv: 2,
        lanes: 16,
        grid: &[&AMX_ROWS, &AMX_ROWS],
        wide: None,
        speed: 16.0,
    },
];

/// The rows of the tile of AMX, which is one function.
#[cfg(target_arch = "x86_64")]
const AMX_ROWS: [QuantizedFn; amx::SIDE] = [amx::tile; amx::SIDE];

/// A row of the table that this machine can run, with what padding reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuantizedTile {
    row: &'static Row,
    zero: u8,
}

impl QuantizedTile {
    /// The tiles that may run where `isa` is the widest instruction set; padding reads `zero`.
    pub(super) fn all(isa: Isa, zero: u8) -> impl Iterator<Item = QuantizedTile> {
        let fits = move |row: &&Row| {
            Isa::named(row.isa).is_some_and(|own| own.is_within(isa))
                && row.needs.is_none_or(|feature| feature.is_here())
        };
        ROWS.iter().filter(fits).map(move |row| QuantizedTile { row, zero })
    }

    /// As in `u8_14x32_avx512vnni`.
    pub(super) fn name(self) -> String {
        format!("u8_{}x{}_{}", self.row.mr, self.row.nv * self.row.lanes, self.row.name)
    }

    pub(super) fn panels(self) -> Panels {
        Panels { nr: self.row.nv * self.row.lanes, lanes: self.row.lanes }
    }

    pub(super) fn speed(self) -> f64 {
        self.row.speed
    }
}

/// The feature that a tactic of this name needs beside its instruction set, whether or not it is here.
pub(super) fn needed_feature(tactic: &str) -> Option<Feature> {
    ROWS.iter().find(|row| tactic.ends_with(&format!("_{}", row.name))).and_then(|row| row.needs)
}

impl TileKernel for QuantizedTile {
    type Call<'a> = QuantizedCall;

    // The output holds bytes.
    const SPLITS_SUMS: bool = false;

    #[inline]
    fn mr(self) -> usize {
        self.row.mr
    }

    #[inline]
    fn nr(self) -> usize {
        self.row.nv * self.row.lanes
    }

    #[inline]
    fn panel_width(self, n: usize) -> usize {
        n.next_multiple_of(self.row.lanes)
    }

    fn is_amx(self) -> bool {
        self.row.needs == Some(Feature::AmxInt8)
    }

    #[cfg(target_arch = "x86_64")]
    fn scratch_bytes(self, depth: usize) -> usize {
        if self.is_amx() { amx::scratch_bytes(depth) } else { 0 }
    }

    fn input(call: &QuantizedCall) -> *const f32 {
        call.input.cast()
    }

    fn padding(self) -> f32 {
        f32::from_ne_bytes([self.zero; 4])
    }

    fn padding_of(call: &QuantizedCall) -> Option<*const f32> {
        (!call.padding.is_null()).then_some(call.padding.cast())
    }

    #[inline]
    unsafe fn run(self, call: &QuantizedCall, at: &TileAt) {
        // SAFETY: the flags are as many as the panels.
        let is_wide = self.row.wide.is_some() && unsafe { *call.panel_flags.add(at.panel) != 0 };
        let grid = self.row.wide.filter(|_| is_wide).unwrap_or(self.row.grid);
        if at.m > 0 && at.n > 0 {
            let instance = grid[(at.n - 1) / self.row.lanes][at.m - 1];
            // SAFETY: a `QuantizedTile` exists only where its instructions do; the rest is the caller's.
            unsafe { instance(call, at) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_and_grids_reach_the_tile() {
        let mut names: Vec<String> = ROWS.iter().map(|row| QuantizedTile { row, zero: 0 }.name()).collect();
        for row in ROWS {
            for grid in [Some(row.grid), row.wide].into_iter().flatten() {
                assert!(row.wide.is_none() || row.lanes == super::super::pack::ORDERED_LANES);
                assert!(grid.len() == row.nv && grid.iter().all(|instances| instances.len() == row.mr));
            }
            assert_eq!(needed_feature(&format!("qconv_igemm_u8_1x1_{}", row.name)), row.needs);
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
    }
}
