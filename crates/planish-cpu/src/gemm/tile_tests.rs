//! Every row of the table against a plain f64 loop: all edges, segments, strides and finishes.

use planish_testing::Random;

use super::table::{TILES, Tile};
use super::tile::{Ahead, EpilogueCall, TileCall};

/// Each of `terms` additions and multiplications rounds by at most half a unit of the running sum, which never
/// exceeds the sum of the terms' magnitudes; the epilogue adds three more.
pub(super) fn bound(magnitude: f64, terms: usize) -> f64 {
    magnitude * (terms + 3) as f64 * f64::from(f32::EPSILON) * 0.5 + f64::from(f32::MIN_POSITIVE)
}

struct Case {
    m: usize,
    n: usize,
    n_segments: usize,
    depth: usize,
    accumulate: bool,
    bias: bool,
    residual: bool,
    clamp: Option<(f32, f32)>,
}

/// Memory around C that must stay as it is.
const UNTOUCHED: f32 = 12345.0;

fn check(tile: Tile, case: &Case) {
    let Case { m, n, n_segments, depth, accumulate, .. } = *case;
    // Wider than the panel in some cases, as rows of a plain matrix are.
    let width = tile.panel_width(n) + (m + n) % 3;
    let row_stride = depth + 3;
    let a = Random::new(1).list(n_segments * m * row_stride);
    let mut panel = Random::new(2).list(n_segments * depth * width);
    // What lies after the columns must not matter.
    for row in panel.chunks_mut(width.max(1)) {
        row[n..].fill(f32::NAN);
    }
    let rows_stride = m + 2;
    let mut rows = vec![std::ptr::null(); n_segments * rows_stride];
    for s in 0..n_segments {
        for i in 0..m {
            rows[s * rows_stride + i] = a[(s * m + i) * row_stride..].as_ptr();
        }
    }
    let bias = Random::new(3).list(n);
    let residual_stride = n + 1;
    let residual = Random::new(4).list(m * residual_stride);
    let c_stride = n + 5;
    let before: Vec<f32> = Random::new(5).list(m * c_stride);
    let mut c = before.clone();
    for row in c.chunks_mut(c_stride) {
        row[n..].fill(UNTOUCHED);
    }
    let (lo, hi) = case.clamp.unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
    let epilogue = EpilogueCall {
        bias: if case.bias { bias.as_ptr() } else { std::ptr::null() },
        residual: if case.residual { residual.as_ptr() } else { std::ptr::null() },
        residual_stride,
        lo,
        hi,
    };
    let call = TileCall {
        rows: rows.as_ptr(),
        rows_stride,
        n_segments,
        depth,
        panel: panel.as_ptr(),
        panel_stride: width,
        // What is asked for need not be there, and changes nothing.
        ahead: Ahead { from: panel.as_ptr().wrapping_add(m * 1000), lines: m % 4 },
        c: c.as_mut_ptr(),
        c_stride,
        m,
        n,
        accumulate,
        epilogue,
    };
    // SAFETY: the buffers above have the sizes that the call names.
    unsafe { tile.run(&call) };
    for i in 0..m {
        for j in 0..n {
            let mut sum = 0.0f64;
            let mut magnitude = 0.0f64;
            let mut add = |term: f64| {
                sum += term;
                magnitude += term.abs();
            };
            if accumulate {
                add(before[i * c_stride + j].into());
            }
            for s in 0..n_segments {
                for k in 0..depth {
                    let x = f64::from(a[(s * m + i) * row_stride + k]);
                    add(x * f64::from(panel[(s * depth + k) * width + j]));
                }
            }
            if case.bias {
                add(bias[j].into());
            }
            if case.residual {
                add(residual[i * residual_stride + j].into());
            }
            // A clamp moves no two numbers further apart, so the bound of the sum holds for the result.
            let want = sum.clamp(lo.into(), hi.into());
            let got = c[i * c_stride + j];
            let allowed = bound(magnitude, n_segments * depth);
            assert!(
                (f64::from(got) - want).abs() <= allowed,
                "{} {m}x{n} of {n_segments}x{depth} at ({i}, {j}): {got} against {want}",
                tile.name()
            );
        }
        assert!(
            c[i * c_stride + n..(i + 1) * c_stride].iter().all(|&x| x == UNTOUCHED),
            "wrote past the row"
        );
    }
}

fn tiles() -> impl Iterator<Item = Tile> {
    TILES.iter().filter_map(|row| Tile::named(row.name))
}

#[test]
fn every_tile_matches_at_every_edge() {
    for tile in tiles() {
        for m in 0..=tile.mr() {
            for n in 0..=tile.nr() {
                let depth = [0, 1, 3, 4, 5, 17][(m * 7 + n) % 6];
                let flags = m * 31 + n;
                let case = Case {
                    m,
                    n,
                    n_segments: [1, 3][flags % 2],
                    depth,
                    accumulate: flags % 3 == 0,
                    bias: flags % 5 < 3,
                    residual: flags % 7 < 3,
                    clamp: (flags % 4 == 1).then_some((0.0, f32::INFINITY)),
                };
                check(tile, &case);
            }
        }
    }
}

#[test]
fn every_finish_and_long_sums() {
    for tile in tiles() {
        for flags in 0..16 {
            let case = Case {
                m: tile.mr(),
                n: tile.nr() - flags % 2,
                n_segments: 1 + flags % 9,
                depth: 67,
                accumulate: flags & 1 != 0,
                bias: flags & 2 != 0,
                residual: flags & 4 != 0,
                clamp: (flags & 8 != 0).then_some((-0.5, 0.75)),
            };
            check(tile, &case);
        }
    }
}

#[test]
fn nan_passes_the_clamp_and_crossed_bounds_give_the_upper() {
    for tile in tiles() {
        let (one, row) = ([1.0f32], [f32::NAN, 2.0, -2.0, f32::INFINITY]);
        let mut panel = vec![0.0f32; tile.lanes()];
        panel[..4].copy_from_slice(&row);
        let rows = [one.as_ptr()];
        let run = |lo: f32, hi: f32| {
            let mut c = [0.0f32; 4];
            let call = TileCall {
                rows: rows.as_ptr(),
                rows_stride: 1,
                n_segments: 1,
                depth: 1,
                panel: panel.as_ptr(),
                panel_stride: tile.lanes(),
                ahead: Ahead::NONE,
                c: c.as_mut_ptr(),
                c_stride: 4,
                m: 1,
                n: 4,
                accumulate: false,
                epilogue: EpilogueCall { lo, hi, ..EpilogueCall::NONE },
            };
            // SAFETY: one row of one element, a panel of one vector, C of four columns.
            unsafe { tile.run(&call) };
            c
        };
        let relu = run(0.0, f32::INFINITY);
        assert!(relu[0].is_nan() && relu[1..] == [2.0, 0.0, f32::INFINITY], "{relu:?}");
        let crossed = run(3.0, 1.0);
        assert!(crossed[0].is_nan() && crossed[1..] == [1.0; 3], "{crossed:?}");
    }
}

#[test]
fn tiles_together_fetch_a_panel() {
    for width in [8, 16, 32, 48, 64] {
        for tiles in [0, 1, 2, 3, 7, 22, 1000] {
            for (n_segments, depth) in [(1, 64), (9, 4), (3, 3), (0, 8)] {
                let lines = Ahead::lines(width, tiles);
                let fetched = tiles.max(1) * Ahead::fetched(n_segments, depth, lines);
                let whole = n_segments * (depth - depth % 4) * width;
                assert!(fetched >= whole, "{width} wide, {tiles} tiles of {n_segments}x{depth}: {fetched}");
                // With a line less it would not be all.
                let fewer = tiles.max(1) * Ahead::fetched(n_segments, depth, lines - 1);
                assert!(fewer < whole || whole == 0, "{width} wide, {tiles} tiles: {lines} lines");
            }
        }
    }
}
