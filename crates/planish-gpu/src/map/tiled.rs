//! The tiled form of a map: blocks bring tiles of inputs whose neighbours lie along another axis than the output's.

use std::fmt::Write;

use planish_kernel::KernelError;

use super::{Inner, Map, Place, Shape, THREADS};
use crate::kernel_args;
use crate::space::{self, Axis, Divisor};

kernel_args! {
    /// What the kernel is given.
    pub(super) struct TiledMapArgs {
        /// Sizes of the innermost axis and of the one that tiled inputs lie along, and tiles along both.
        inner: i32,
        across: i32,
        inner_tiles: Divisor,
        across_tiles: Divisor,
        /// The other axes, innermost first; and each operand's strides along all.
        others: Vec<Divisor>,
        strides: Vec<Vec<i32>>,
    }
}

/// Rows and columns of a tile, and the least sizes of the two axes for which tiles pay.
const TILE: usize = 64;
const LEAST_TILED: usize = 16;
/// Shared memory that a kernel has without asking.
const SHARED: usize = 48 << 10;

/// Marks inputs that are brought in tiles, those whose neighbours lie along another long axis, and says which axis.
pub(super) fn choose(map: &Map, axes: &[Axis], inner: &mut [Inner]) -> Option<usize> {
    let last = axes.len() - 1;
    let mut across = None;
    let mut shared = 0;
    for (idx, input) in map.inputs.iter().enumerate() {
        let along = axes[..last].iter().position(|axis| axis.strides[idx] == 1);
        let Some(along) = along.filter(|_| inner[idx] == Inner::Strided) else { continue };
        let long = axes[along].dim >= LEAST_TILED && axes[last].dim >= LEAST_TILED;
        let tile = TILE * pitch(input.size) * input.size;
        let operand = matches!(input.place, Place::Operand(..));
        if long && operand && across.is_none_or(|axis| axis == along) && shared + tile <= SHARED {
            across = Some(along);
            shared += tile;
            inner[idx] = Inner::Tiled;
        }
    }
    across
}

impl Shape<'_> {
    /// What the kernel is given, and how many blocks there are.
    pub(super) fn tiled_args(&self, across: usize) -> Result<(TiledMapArgs, u32), KernelError> {
        let last = self.axes.len() - 1;
        let (dim_a, dim_b) = (self.axes[last].dim, self.axes[across].dim);
        let (tiles_a, tiles_b) = (dim_a.div_ceil(TILE), dim_b.div_ceil(TILE));
        let others = self.axes[..last].iter().enumerate().rev().filter(|(idx, _)| *idx != across);
        let others: Vec<usize> = others.map(|(_, axis)| axis.dim).collect();
        let numbers = TiledMapArgs {
            inner: space::int(dim_a)?,
            across: space::int(dim_b)?,
            inner_tiles: Divisor::of(tiles_a),
            across_tiles: Divisor::of(tiles_b),
            others: others.iter().map(|dim| Divisor::of(*dim)).collect(),
            strides: self.strides()?,
        };
        let n_tiles = tiles_a * tiles_b * others.iter().product::<usize>();
        Ok((numbers, space::blocks(n_tiles, 1)?))
    }

    pub(super) fn tiled_text(&self, across: usize) -> Result<String, KernelError> {
        let mut text = self.head("TiledMapArgs")?;
        let n_axes = self.axes.len();
        let last = n_axes - 1;
        // Strides are stored innermost first.
        let b_axis = last - across;
        let outer: Vec<usize> = (1..n_axes).filter(|axis| *axis != b_axis).collect();
        text.push_str("  u32 rest = blockIdx.x;\n");
        let _ = writeln!(text, "  const int a0 = po_take(rest, a.inner_tiles) * {TILE};");
        let _ = writeln!(text, "  const int b0 = po_take(rest, a.across_tiles) * {TILE};");
        for (place, axis) in outer.iter().enumerate() {
            let _ = writeln!(text, "  const int y{axis} = po_take(rest, a.others[{place}]);");
        }
        for idx in 0..self.inner.len() {
            let mut terms: Vec<String> =
                outer.iter().map(|axis| format!("y{axis} * a.strides[{idx}][{axis}]")).collect();
            terms.push(format!("a0 * a.strides[{idx}][0]"));
            terms.push(format!("b0 * a.strides[{idx}][{b_axis}]"));
            let _ = writeln!(text, "  const int z{idx} = {};", terms.join(" + "));
        }
        for idx in (0..self.n_inputs()).filter(|idx| self.inner[*idx] == Inner::Tiled) {
            let (storage, size) = (self.storage(idx), self.map.inputs[idx].size);
            let width = 16 / size;
            let (pitch, per_row) = (pitch(size), TILE / width);
            let _ = writeln!(
                text,
                "  __shared__ {storage} t{idx}[{TILE} * {pitch}];\n\
                 #pragma unroll 2\n  for (int i = threadIdx.x; i < {TILE} * {per_row}; i += {THREADS}) {{\n\
                 \x20   const int ra = i / {per_row}, cb = i % {per_row} * {width};\n\
                 \x20   const int n = a.across - b0 - cb;\n\
                 \x20   if (a0 + ra < a.inner && n > 0) tile_row<{storage}, {width}>(t{idx} + ra * {pitch} + cb, p{idx} + z{idx} + ra * a.strides[{idx}][0] + cb, n);\n\
                 \x20 }}"
            );
        }
        let per_row = TILE / self.lanes;
        let _ = writeln!(
            text,
            "  __syncthreads();\n\
             \x20 for (int i = threadIdx.x; i < {TILE} * {per_row}; i += {THREADS}) {{\n\
             \x20 const int ax = i % {per_row} * {}, bx = i / {per_row};\n\
             \x20 const int left = a.inner - a0 - ax;\n\
             \x20 if (left <= 0 || b0 + bx >= a.across) continue;",
            self.lanes
        );
        for idx in (0..self.inner.len()).filter(|idx| self.inner[*idx] != Inner::Tiled) {
            let _ = writeln!(
                text,
                "  const int x{idx} = z{idx} + ax * a.strides[{idx}][0] + bx * a.strides[{idx}][{b_axis}];"
            );
        }
        self.element_text(&mut text, true);
        text.push_str("  }\n}\n");
        Ok(format!("{TILE_ROW}{text}"))
    }
}

/// The first `n` of V neighbours from memory to a tile's row, bit by bit.
const TILE_ROW: &str = "\
template <class T, int V> PL_INLINE void tile_row(T* to, const T* from, int n) {
  union { uint4 all; T each[V]; } u;
  if (n >= V && ((u64)from & 15) == 0) {
    u.all = *(const uint4*)from;
#pragma unroll
    for (int i = 0; i < V; i++) to[i] = u.each[i];
  } else {
#pragma unroll
    for (int i = 0; i < V; i++)
      if (i < n) to[i] = from[i];
  }
}
";

/// Elements from one row of a tile to the next: one word more than the row, so that columns fall into
/// different banks.
pub(super) fn pitch(size: usize) -> usize {
    TILE + (4 / size).max(1)
}
