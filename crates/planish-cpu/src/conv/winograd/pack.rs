//! Weights at the points of a Winograd transform, as panels: by point, panel of output channels, tap along the
//! axis that is not transformed, input channel, output channel.
//!
//! The transform is made in f64 and rounded once. There are `n_points / n_taps` times as many numbers as in
//! the weight (4 times for F(4x4,3x3)), so these are made when a plan is built or loaded, not stored.

use super::Kind;
use crate::conv::pack::Filter;
use crate::gemm::table::Tile;

/// Elements of the packed form.
pub fn packed_len(kind: Kind, filter: &Filter, tile: Tile) -> usize {
    kind.n_points() * filter.kernel[0] * filter.c * tile.panel_width(filter.k)
}

/// The packed form of a weight of [`Filter::len`] elements.
pub fn pack(kind: Kind, filter: &Filter, tile: Tile, weight: &[f32]) -> Vec<f32> {
    let [y_axis, x_axis] = kind.axes();
    let (rows, cols) = (y_axis.weights(), x_axis.weights());
    let (n_y, n_x) = (y_axis.n_taps(), x_axis.n_taps());
    let per_point = filter.kernel[0] * filter.c * tile.panel_width(filter.k);
    let mut packed = vec![0.0; packed_len(kind, filter, tile)];
    let mut half = vec![0.0f64; rows.len() * n_x];
    for k in 0..filter.k {
        let panel = k / tile.nr() * tile.nr();
        let width = tile.panel_width(tile.nr().min(filter.k - panel));
        for z in 0..filter.kernel[0] {
            for c in 0..filter.c {
                let at = filter.place(0, c, k, z * n_y * n_x);
                let taps = &weight[at..at + n_y * n_x];
                for (y, row) in rows.iter().enumerate() {
                    for x in 0..n_x {
                        half[y * n_x + x] = (0..n_y).map(|t| row[t] * f64::from(taps[t * n_x + x])).sum();
                    }
                }
                let place = panel * filter.kernel[0] * filter.c + (z * filter.c + c) * width + k - panel;
                for y in 0..rows.len() {
                    for (x, col) in cols.iter().enumerate() {
                        let value: f64 = (0..n_x).map(|t| col[t] * half[y * n_x + t]).sum();
                        packed[(y * cols.len() + x) * per_point + place] = value as f32;
                    }
                }
            }
        }
    }
    packed
}
