//! Tiles that multiply digits with packed bytes, one row for each shape that some instruction has.

use super::{QUAD, ZERO};
use crate::conv::quantized::{Dot, Factors, sum_up};
#[cfg(target_arch = "x86_64")]
use crate::conv::quantized::{Vnni256, Vnni512};
use crate::gemm::table::Panels;
#[cfg(target_arch = "x86_64")]
use crate::isa::{Avx2, Avx512};
use crate::isa::{Feature, Isa};
use crate::simd::Simd;

/// Digits of a number, and what one of them is worth against the next.
pub(super) const DIGITS: usize = 3;
pub(super) const BASE: f32 = 254.0;
/// Rows of the largest tile, and its sums.
pub(super) const MAX_ROWS: usize = 4;
const MAX_SUMS: usize = 24 * 16;

/// Some rows, and a panel of a matrix.
pub(super) struct SumsCall {
    /// The planes of each row.
    pub(super) rows: [*const f32; DIGITS * MAX_ROWS],
    /// Quads of the sum.
    pub(super) depth: usize,
    pub(super) panel: *const i32,
    pub(super) panel_stride: usize,
    /// Of each column the sum of its weights; readable for a whole vector.
    pub(super) sums: *const i32,
    pub(super) row_scales: *const f32,
    pub(super) scales: *const f32,
    /// A number for each column, or null.
    pub(super) bias: *const f32,
    /// Rows that are added, or null.
    pub(super) residual: *const f32,
    pub(super) to: *mut f32,
    /// From row to row of the residual and the sums.
    pub(super) stride: usize,
    pub(super) n: usize,
}

impl SumsCall {
    /// One row again, from its floats: for numbers that have no digits.
    ///
    /// # Safety
    /// As for the call; `from` must be readable for all of the sum.
    pub(super) unsafe fn plainly(&self, row: usize, from: *const f32) {
        for column in 0..self.n {
            // SAFETY: granted by the caller.
            unsafe {
                let mut sum = 0.0;
                for at in 0..self.depth * QUAD {
                    let quad = self.panel.add(at / QUAD * self.panel_stride + column).cast::<i8>();
                    sum += *from.add(at) * f32::from(*quad.add(at % QUAD));
                }
                sum *= *self.scales.add(column);
                for (more, at) in [(self.bias, column), (self.residual, row * self.stride + column)] {
                    sum += if more.is_null() { 0.0 } else { *more.add(at) };
                }
                *self.to.add(row * self.stride + column) = sum;
            }
        }
    }
}

type SumsFn = unsafe fn(&SumsCall);

#[repr(align(64))]
struct Sums([std::mem::MaybeUninit<i32>; MAX_SUMS]);

/// `R` rows, which are `MR` planes, over `NV` vectors.
///
/// # Safety
/// Everything in the call must be there; `n` must need exactly `NV` vectors.
#[inline(always)]
unsafe fn tile<S: Simd, D: Dot<S>, const R: usize, const MR: usize, const NV: usize>(
    s: S,
    dot: D,
    call: &SumsCall,
) {
    let mut sums = Sums([std::mem::MaybeUninit::uninit(); MAX_SUMS]);
    let sums = sums.0.as_mut_ptr().cast::<i32>();
    // SAFETY: granted by the caller; `MR` rows of `NV` vectors are at most `MAX_SUMS`.
    unsafe {
        let mut begin = [s.splat_int(0); NV];
        for (j, begin) in begin.iter_mut().enumerate() {
            let of_column = s.load_int(call.sums.add(j * S::LANES));
            *begin = s.mul_int(of_column, s.splat_int(-ZERO));
        }
        let mut acc = [begin; MR];
        let factors = Factors {
            rows: call.rows.as_ptr(),
            rows_stride: 0,
            n_segments: 1,
            depth: call.depth,
            panel: call.panel,
            panel_stride: call.panel_stride,
        };
        sum_up(s, dot, &mut acc, &factors);
        // As in the tile of quantized products: a loop over accumulators would keep them in memory.
        for (i, row) in acc.iter().enumerate() {
            for (j, vector) in row.iter().enumerate() {
                s.store(sums.add((i * NV + j) * S::LANES).cast(), s.from_bits(*vector));
            }
        }
        let base = s.splat(BASE);
        for j in 0..NV {
            let column = j * S::LANES;
            let rest = call.n - column;
            let scale = s.load_part(call.scales.add(column), rest);
            let bias = match call.bias.is_null() {
                true => s.zero(),
                false => s.load_part(call.bias.add(column), rest),
            };
            for row in 0..R {
                let digit = |place: usize| {
                    s.to_float(s.load_int(sums.add(((row * DIGITS + place) * NV + j) * S::LANES)))
                };
                let whole = s.mul_add(s.mul_add(digit(0), base, digit(1)), base, digit(2));
                let scale = s.mul(scale, s.splat(*call.row_scales.add(row)));
                let more = match call.residual.is_null() {
                    true => bias,
                    false => s.add(bias, s.load_part(call.residual.add(row * call.stride + column), rest)),
                };
                let to = call.to.add(row * call.stride + column);
                s.store_part(to, rest, s.mul_add(whole, scale, more));
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,avx512vnni")]
unsafe fn vnni512<const R: usize, const MR: usize, const NV: usize>(call: &SumsCall) {
    // SAFETY: the caller has the proof, in the form of a `DigitsTile`, and grants the memory.
    unsafe { tile::<_, _, R, MR, NV>(Avx512::assume(), Vnni512, call) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avxvnni")]
unsafe fn vnni256<const R: usize, const MR: usize, const NV: usize>(call: &SumsCall) {
    // SAFETY: as above.
    unsafe { tile::<_, _, R, MR, NV>(Avx2::assume(), Vnni256, call) }
}

macro_rules! grid {
    ($compiled:ident, $([$nv:literal: $($r:literal $mr:literal),*])*) => {
        &[$(&[$($compiled::<$r, $mr, $nv> as SumsFn),*]),*]
    };
}

/// One row of the table.
#[derive(Debug)]
struct Row {
    name: &'static str,
    isa: &'static str,
    needs: Feature,
    rows: usize,
    panels: Panels,
    /// `grid[vectors - 1][rows - 1]`.
    grid: &'static [&'static [SumsFn]],
}

static ROWS: &[Row] = &[
    // Few rows: as many accumulators as a dot product takes cycles.
    #[cfg(target_arch = "x86_64")]
    Row {
        name: "avx512vnni",
        isa: "avx512",
        needs: Feature::Avx512Vnni,
        rows: 2,
        panels: Panels { nr: 64, lanes: 16 },
        grid: grid!(vnni512, [1: 1 3, 2 6] [2: 1 3, 2 6] [3: 1 3, 2 6] [4: 1 3, 2 6]),
    },
    #[cfg(target_arch = "x86_64")]
    Row {
        name: "avx512vnni",
        isa: "avx512",
        needs: Feature::Avx512Vnni,
        rows: 4,
        panels: Panels { nr: 32, lanes: 16 },
        grid: grid!(vnni512, [1: 1 3, 2 6, 3 9, 4 12] [2: 1 3, 2 6, 3 9, 4 12]),
    },
    #[cfg(target_arch = "x86_64")]
    Row {
        name: "avxvnni",
        isa: "avx2",
        needs: Feature::AvxVnni,
        rows: 2,
        panels: Panels { nr: 16, lanes: 8 },
        grid: grid!(vnni256, [1: 1 3, 2 6] [2: 1 3, 2 6]),
    },
];

/// A row of the table that this machine can run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DigitsTile {
    row: &'static Row,
}

impl DigitsTile {
    /// The tiles that may run where `isa` is the widest instruction set.
    pub(super) fn all(isa: Isa) -> impl Iterator<Item = DigitsTile> {
        let fits = move |row: &&Row| {
            Isa::named(row.isa).is_some_and(|own| own.is_within(isa)) && row.needs.is_here()
        };
        ROWS.iter().filter(fits).map(|row| DigitsTile { row })
    }

    /// As in `u8_4x32_avx512vnni`.
    pub(super) fn name(self) -> String {
        format!("u8_{}x{}_{}", self.row.rows, self.row.panels.nr, self.row.name)
    }

    pub(super) fn panels(self) -> Panels {
        self.row.panels
    }

    pub(super) fn rows(self) -> usize {
        self.row.rows
    }

    /// # Safety
    /// Everything in the call must be there for `m` rows, at most those of the tile.
    #[inline]
    pub(super) unsafe fn run(self, call: &SumsCall, m: usize) {
        let instance = self.row.grid[(call.n - 1) / self.row.panels.lanes][m - 1];
        // SAFETY: a `DigitsTile` exists only where its instructions do; the rest is the caller's.
        unsafe { instance(call) }
    }
}

/// The feature that a tactic of this name needs, whether or not it is here.
pub(crate) fn needed_feature(tactic: &str) -> Option<Feature> {
    let is_of = |row: &&Row| tactic.ends_with(&format!("_{}", row.name));
    tactic.strip_prefix("recurrent_digits_").and_then(|_| ROWS.iter().find(is_of)).map(|row| row.needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_reach_the_tile_and_names_tell_the_feature() {
        for row in ROWS {
            let n_vectors = row.panels.nr / row.panels.lanes;
            assert!(
                row.grid.len() == n_vectors && row.grid.iter().all(|instances| instances.len() == row.rows)
            );
            assert!(DIGITS * row.rows * row.panels.nr <= MAX_SUMS && row.rows <= MAX_ROWS);
            let tactic = format!("recurrent_digits_{}", DigitsTile { row }.name());
            assert_eq!(needed_feature(&tactic), Some(row.needs));
        }
        assert_eq!(needed_feature("recurrent_i8_avx512"), None);
    }
}
