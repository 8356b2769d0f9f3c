//! The table of bf16 tiles: one row a tile.

use super::super::ConvCall;
use super::super::igemm::{TileAt, TileKernel};
#[cfg(target_arch = "x86_64")]
use super::{amx, dots};
use crate::gemm::table::Panels;
use crate::isa::{Feature, Isa};

/// A compiled instance.
type Bf16Fn = unsafe fn(&ConvCall<'_>, &TileAt);

/// One row of the table.
#[derive(Debug)]
struct Row {
    /// As it stands in the names of tactics, after the tile's sizes: its feature's.
    needs: Feature,
    mr: usize,
    nv: usize,
    /// `grid[vectors - 1][rows - 1]`.
    grid: &'static [&'static [Bf16Fn]],
    /// Multiply-adds a cycle, against those of f32.
    speed: f64,
    scratch_bytes: fn(usize) -> usize,
}

/// Channels of a vector.
const LANES: usize = 16;

#[cfg(target_arch = "x86_64")]
macro_rules! grid {
    ($([$nv:literal: $($mr:literal)*])*) => { &[$(&[$(dots::tile::<$mr, $nv> as Bf16Fn),*]),*] };
}

/// The rows of the tile of AMX, which is one function.
#[cfg(target_arch = "x86_64")]
const AMX_ROWS: [Bf16Fn; amx::SIDE] = [amx::tile; amx::SIDE];

/// Every tile, the fastest first.
#[cfg(target_arch = "x86_64")]
static ROWS: &[Row] = &[
    // 16 times the products of AVX-512 in the time of one; what surrounds them takes most of that.
    Row {
        needs: Feature::AmxBf16,
        mr: amx::SIDE,
        nv: 2,
        grid: &[&AMX_ROWS, &AMX_ROWS],
        speed: 8.0,
        scratch_bytes: amx::scratch_bytes,
    },
    // Twice the products of f32 where a dot product takes a cycle (Zen 4), as many where it takes two (Intel).
    Row {
        needs: Feature::Avx512Bf16,
        mr: 14,
        nv: 2,
        grid: grid!([1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14] [2: 1 2 3 4 5 6 7 8 9 10 11 12 13 14]),
        speed: 1.4,
        scratch_bytes: dots::scratch_bytes,
    },
];

#[cfg(not(target_arch = "x86_64"))]
static ROWS: &[Row] = &[];

/// A row of the table that this machine can run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bf16Tile(&'static Row);

/// Whether any tile runs where `isa` is the widest instruction set.
pub(crate) fn is_here(isa: Isa) -> bool {
    Bf16Tile::all(isa).next().is_some()
}

/// The feature that a tactic of this name needs beside its instruction set, whether or not it is here.
pub(crate) fn needed_feature(tactic: &str) -> Option<Feature> {
    let mut tiles = ROWS.iter().map(Bf16Tile);
    tiles.find(|tile| tactic.ends_with(&tile.name())).map(|tile| tile.0.needs)
}

impl Bf16Tile {
    /// The tiles that may run where `isa` is the widest instruction set.
    pub(crate) fn all(isa: Isa) -> impl Iterator<Item = Bf16Tile> {
        let is_wide = isa.name() == "avx512";
        ROWS.iter().filter(move |row| is_wide && row.needs.is_here()).map(Bf16Tile)
    }

    /// As in `bf16_32x32_amxbf16`.
    pub(crate) fn name(self) -> String {
        format!("bf16_{}x{}_{}", self.0.mr, self.0.nv * LANES, self.0.needs.name())
    }

    pub(crate) fn panels(self) -> Panels {
        Panels { nr: self.0.nv * LANES, lanes: LANES }
    }

    pub(crate) fn speed(self) -> f64 {
        self.0.speed
    }
}

impl TileKernel for Bf16Tile {
    type Call<'a> = ConvCall<'a>;

    // Windows are rounded once for a whole sum.
    const SPLITS_SUMS: bool = false;
    const ELEMENT_BYTES: usize = size_of::<u16>();

    #[inline]
    fn mr(self) -> usize {
        self.0.mr
    }

    #[inline]
    fn nr(self) -> usize {
        self.0.nv * LANES
    }

    #[inline]
    fn panel_width(self, n: usize) -> usize {
        n.next_multiple_of(LANES)
    }

    fn is_amx(self) -> bool {
        self.0.needs == Feature::AmxBf16
    }

    fn scratch_bytes(self, depth: usize) -> usize {
        (self.0.scratch_bytes)(depth)
    }

    fn input(call: &ConvCall<'_>) -> *const f32 {
        call.input
    }

    #[inline]
    unsafe fn run(self, call: &ConvCall<'_>, at: &TileAt) {
        if at.m > 0 && at.n > 0 {
            let instance = self.0.grid[(at.n - 1) / LANES][at.m - 1];
            // SAFETY: a `Bf16Tile` exists only where its instructions do; the rest is the caller's.
            unsafe { instance(call, at) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_and_grids_reach_the_tile() {
        for (idx, row) in ROWS.iter().enumerate() {
            assert!(row.grid.len() == row.nv && row.grid.iter().all(|instances| instances.len() == row.mr));
            let name = Bf16Tile(row).name();
            assert_eq!(needed_feature(&format!("conv_igemm_{name}")), Some(row.needs));
            assert!(ROWS[..idx].iter().all(|other| Bf16Tile(other).name() != name));
        }
        assert_eq!(needed_feature("conv_igemm_f32_14x32_avx512"), None);
    }
}
