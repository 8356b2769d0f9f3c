//! Weights at the points of a Winograd transform, as panels: by point, panel of output channels, tap along the
//! axis that is not transformed, input channel, output channel.
//!
//! The transform is made in f64 and rounded once. There are `n_points / n_taps` times as many numbers as in
//! the weight (4 times for F(4x4,3x3)), so these are made when a plan is built or loaded, not stored.

use super::Kind;
use crate::conv::pack::Filter;
use crate::gemm::table::Panels;

/// Elements of the packed form.
pub fn packed_len(kind: Kind, filter: &Filter, panels: impl Into<Panels>) -> usize {
    kind.n_points() * filter.kernel[0] * filter.c * panels.into().width(filter.k)
}

/// The packed form of a weight of [`Filter::len`] elements.
///
/// It is made whenever a plan is opened, so loops run along the output channels of a panel.
pub fn pack(kind: Kind, filter: &Filter, panels: impl Into<Panels>, weight: &[f32]) -> Vec<f32> {
    let panels = panels.into();
    let [y_axis, x_axis] = kind.axes();
    let (rows, cols) = (y_axis.weights(), x_axis.weights());
    let (n_y, n_x) = (y_axis.n_taps(), x_axis.n_taps());
    let depth = filter.kernel[0] * filter.c;
    let per_point = depth * panels.width(filter.k);
    let mut packed = vec![0.0; packed_len(kind, filter, panels)];
    // A row for each tap, then for each tap of a transformed row, of one value for each output channel.
    let mut taps = vec![0.0f64; n_y * n_x * panels.nr];
    let mut half = vec![0.0f64; rows.len() * n_x * panels.nr];
    let mut sum = vec![0.0f64; panels.nr];
    for panel in (0..filter.k).step_by(panels.nr) {
        let n = panels.nr.min(filter.k - panel);
        let width = panels.width(n);
        for z in 0..filter.kernel[0] {
            for c in 0..filter.c {
                for k in 0..n {
                    let at = filter.place(0, c, panel + k, z * n_y * n_x);
                    for tap in 0..n_y * n_x {
                        taps[tap * n + k] = f64::from(weight[at + tap]);
                    }
                }
                for (y, row) in rows.iter().enumerate() {
                    for x in 0..n_x {
                        let at = |t: usize| (t * n_x + x) * n..(t * n_x + x + 1) * n;
                        combine(&mut half[(y * n_x + x) * n..][..n], row, |t| &taps[at(t)]);
                    }
                }
                let place = panel * depth + (z * filter.c + c) * width;
                for y in 0..rows.len() {
                    for (x, col) in cols.iter().enumerate() {
                        combine(&mut sum[..n], col, |t| &half[(y * n_x + t) * n..][..n]);
                        let to = &mut packed[(y * cols.len() + x) * per_point + place..][..n];
                        to.iter_mut().zip(&sum).for_each(|(to, from)| *to = *from as f32);
                    }
                }
            }
        }
    }
    packed
}

/// The sum of rows, each with its factor.
fn combine<'a>(to: &mut [f64], factors: &[f64], row: impl Fn(usize) -> &'a [f64]) {
    to.fill(0.0);
    for (t, factor) in factors.iter().enumerate() {
        to.iter_mut().zip(row(t)).for_each(|(to, from)| *to += factor * from);
    }
}
