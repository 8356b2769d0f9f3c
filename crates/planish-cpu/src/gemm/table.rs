//! The table of f32 tiles: one row a tile, which drives dispatch, tests and micro-benchmarks.
//!
//! Names are `<op>_<dtypes>_<rows>x<columns>_<instruction set>`. A row's kernel is a grid of instances, one for
//! every number of rows and of vectors up to the tile's, so that edges of a matrix waste nothing.

use super::tile::{TileCall, TileFn, tile};
use crate::isa::Isa;
use crate::isa::Portable;
#[cfg(target_arch = "x86_64")]
use crate::isa::{Avx2, Avx512};

/// One row of the table.
#[derive(Debug)]
pub struct TileRow {
    pub name: &'static str,
    /// Name of the instruction set that it needs.
    pub isa: &'static str,
    /// Rows of C that a full tile holds.
    pub mr: usize,
    /// Vectors of a row of C that a full tile holds.
    pub nv: usize,
    lanes: usize,
    /// `grid[vectors - 1][rows - 1]`.
    grid: &'static [&'static [TileFn]],
}

/// A row of the table that this machine can run.
#[derive(Clone, Copy, Debug)]
pub struct Tile(&'static TileRow);

/// How wide panels of packed columns are: all that a packing takes from its tile.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Panels {
    /// Columns of a full panel.
    pub nr: usize,
    /// The last panel is as narrow as whole vectors of so many allow.
    pub lanes: usize,
}

impl Panels {
    /// Stored elements of a row of `n` columns.
    pub fn width(self, n: usize) -> usize {
        n.next_multiple_of(self.lanes)
    }
}

impl From<Tile> for Panels {
    fn from(tile: Tile) -> Panels {
        Panels { nr: tile.nr(), lanes: tile.lanes() }
    }
}

macro_rules! instances {
    ($compiled:ident, $nv:literal, $($mr:literal)*) => { &[$($compiled::<$mr, $nv> as TileFn),*] };
}

/// Compiles the tile for an instruction set; the instances are reached only through [`Tile`], which exists
/// only where the instruction set does.
macro_rules! compiled {
    ($name:ident, $proof:expr, $(#[$feature:meta])*) => {
        $(#[$feature])*
        unsafe fn $name<const MR: usize, const NV: usize>(call: &TileCall) {
            // SAFETY: the caller has the proof, in the form of a `Tile`, and grants the memory.
            unsafe { tile::<_, MR, NV>($proof, call) }
        }
    };
}

compiled!(portable, Portable,);
#[cfg(target_arch = "x86_64")]
compiled!(avx2, Avx2::assume(), #[target_feature(enable = "avx2,fma")]);
#[cfg(target_arch = "x86_64")]
compiled!(avx512, Avx512::assume(), #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]);

/// Eight SSE registers of accumulators.
const PORTABLE: &[&[TileFn]] = &[instances!(portable, 1, 1 2 3 4)];

/// Twelve accumulators of sixteen registers: the rest holds the panel's row and a broadcast. Four rows of three
/// vectors would need all sixteen; the compiler spills them (43 % of peak, measured).
#[cfg(target_arch = "x86_64")]
const AVX2: &[&[TileFn]] =
    &[instances!(avx2, 1, 1 2 3 4 5 6), instances!(avx2, 2, 1 2 3 4 5 6), instances!(avx2, 3, 1 2 3 4)];

/// Up to 28 accumulators of 32 registers.
#[cfg(target_arch = "x86_64")]
const AVX512: &[&[TileFn]] = &[
    instances!(avx512, 1, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
    instances!(avx512, 2, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
    instances!(avx512, 3, 1 2 3 4 5 6 7 8),
    instances!(avx512, 4, 1 2 3 4 5 6),
];

pub(crate) const fn row(
    name: &'static str,
    isa: &'static str,
    mr: usize,
    nv: usize,
    lanes: usize,
    grid: &'static [&'static [TileFn]],
) -> TileRow {
    TileRow { name, isa, mr, nv, lanes, grid }
}

/// Every tile. Within an instruction set the first is the one to take without measuring.
pub static TILES: &[TileRow] = &[
    row("gemm_f32_4x8_portable", "portable", 4, 1, 8, PORTABLE),
    #[cfg(target_arch = "x86_64")]
    row("gemm_f32_6x16_avx2", "avx2", 6, 2, 8, AVX2),
    #[cfg(target_arch = "x86_64")]
    row("gemm_f32_6x8_avx2", "avx2", 6, 1, 8, AVX2),
    #[cfg(target_arch = "x86_64")]
    row("gemm_f32_14x32_avx512", "avx512", 14, 2, 16, AVX512),
    #[cfg(target_arch = "x86_64")]
    row("gemm_f32_8x48_avx512", "avx512", 8, 3, 16, AVX512),
    #[cfg(target_arch = "x86_64")]
    row("gemm_f32_6x64_avx512", "avx512", 6, 4, 16, AVX512),
    #[cfg(target_arch = "x86_64")]
    row("gemm_f32_14x16_avx512", "avx512", 14, 1, 16, AVX512),
];

impl Tile {
    /// The tiles of an instruction set, the usual one first.
    pub fn of(isa: Isa) -> impl Iterator<Item = Tile> + Clone {
        TILES.iter().filter(move |row| row.isa == isa.name()).map(Tile)
    }

    /// The tiles of an instruction set that may be fastest for `n` columns: none wider than they are, and none
    /// of one vector where two are filled, since each load of A then serves half as much.
    pub fn suited(isa: Isa, n: usize) -> impl Iterator<Item = Tile> + Clone {
        let width = n.max(1).next_multiple_of(isa.lanes());
        let fits = move |tile: &Tile| tile.nr() <= width && (tile.0.nv > 1 || width == tile.lanes());
        let usual = if Tile::of(isa).any(|tile| fits(&tile)) { None } else { Some(Tile::usual(isa)) };
        Tile::of(isa).filter(fits).chain(usual)
    }

    /// The tile to take without measuring where sums are short, so that what is around a tile counts: 24 products and 144
    /// columns run at 88 % of a Zen 5's peak with 8 rows of 48 columns, at 74 % with 14 of 32.
    pub fn of_short_sums(isa: Isa, n: usize) -> Tile {
        let widest = Tile::of(isa).find(|tile| tile.lanes() == 16 && tile.0.nv == 3);
        widest.filter(|tile| n > tile.nr() - tile.lanes()).unwrap_or(Tile::usual(isa))
    }

    /// The tile to take without measuring.
    pub fn usual(isa: Isa) -> Tile {
        Tile::of(isa).next().unwrap_or(Tile(&TILES[0]))
    }

    /// The tile of a row that is not in the table, if this machine runs it: its elements are of another type.
    pub(crate) fn of_row(row: &'static TileRow) -> Option<Tile> {
        Isa::named(row.isa).map(|_| Tile(row))
    }

    /// The tile of this name, if this machine runs it.
    pub fn named(name: &str) -> Option<Tile> {
        let row = TILES.iter().find(|row| row.name == name)?;
        Isa::named(row.isa).map(|_| Tile(row))
    }

    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The instruction set that it needs, which this machine has.
    pub fn isa(self) -> Isa {
        Isa::named(self.0.isa).unwrap_or_else(Isa::best)
    }

    /// Rows of a full tile.
    #[inline]
    pub fn mr(self) -> usize {
        self.0.mr
    }

    /// Columns of a full tile, and of a full panel of packed B.
    #[inline]
    pub fn nr(self) -> usize {
        self.0.nv * self.0.lanes
    }

    /// Columns of a vector: panels are this or a multiple wide.
    #[inline]
    pub fn lanes(self) -> usize {
        self.0.lanes
    }

    /// How wide a panel of `n` columns is stored.
    #[inline]
    pub fn panel_width(self, n: usize) -> usize {
        n.next_multiple_of(self.0.lanes)
    }

    /// Computes one tile; nothing where `m` or `n` is 0.
    ///
    /// # Safety
    /// What the call names must be readable, and C writable, for `m` rows and `n` columns.
    #[inline]
    pub unsafe fn run(self, call: &TileCall) {
        debug_assert!(call.m <= self.mr() && call.n <= self.nr(), "{}: {call:?}", self.name());
        if call.m > 0 && call.n > 0 {
            let instance = self.0.grid[(call.n - 1) / self.0.lanes][call.m - 1];
            // SAFETY: a `Tile` exists only where the instruction set does; the rest is the caller's.
            unsafe { instance(call) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_grammar_and_grids_reach_the_tile() {
        for row in TILES {
            let columns = row.nv * row.lanes;
            assert_eq!(row.name, format!("gemm_f32_{}x{columns}_{}", row.mr, row.isa));
            assert!(row.grid.len() >= row.nv);
            assert!(row.grid[..row.nv].iter().all(|instances| instances.len() >= row.mr));
        }
    }

    #[test]
    fn every_instruction_set_has_a_tile() {
        for isa in Isa::available() {
            assert_eq!(Tile::of(isa).next().map(Tile::name), Some(Tile::usual(isa).name()));
            assert!(
                Tile::of(isa).all(|tile| Tile::named(tile.name()).is_some() && tile.lanes() == isa.lanes())
            );
        }
        assert!(Tile::named("gemm_f32_1x1_abacus").is_none());
    }

    #[test]
    fn suited_tiles_are_filled() {
        for isa in Isa::available() {
            let lanes = isa.lanes();
            for n in [0, 1, lanes, lanes + 1, 2 * lanes, 3 * lanes, 500] {
                let tiles: Vec<Tile> = Tile::suited(isa, n).collect();
                assert!(!tiles.is_empty());
                assert!(tiles.iter().all(|tile| tile.nr() < n.max(1) + lanes), "{isa} {n}: {tiles:?}");
            }
            assert_eq!(Tile::suited(isa, 500).next().map(Tile::name), Some(Tile::usual(isa).name()));
        }
    }
}
