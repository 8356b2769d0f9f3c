//! How much each pixel of a window counts, and the sum of what all windows count at each pixel.
//!
//! A weight is a product of one factor for each axis, but no less than [`LEAST`]: that makes the map as large as a window
//! not a product of its axes, so neither is the sum of all windows. It is computed from the factors, one row of the
//! result at a time.

use super::Blend;
use super::grid::Axis;

/// The least weight: Gaussians fall below what sums of floats keep apart.
pub(super) const LEAST: f32 = 1e-3;

/// One axis of a result: where windows lie in it, and their factors.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Factors {
    /// Of the result.
    pub(super) size: usize,
    pub(super) starts: Vec<usize>,
    /// Of a window's pixels along this axis.
    pub(super) factors: Vec<f32>,
}

impl Factors {
    /// For an output that has `out` pixels where a window has its own number of them.
    pub(super) fn new(axis: &Axis, out: usize, mode: Blend, sigma_scale: f64) -> Factors {
        let roi = axis.roi;
        let window = window_factors(roi, mode, sigma_scale);
        // Of the nearest pixel of the window, by their middles.
        let factors = (0..out).map(|at| window[(2 * at + 1) * roi / (2 * out)]).collect();
        let scaled = |at: usize| at * out / roi;
        let starts = axis.starts.iter().map(|&start| scaled(start)).collect();
        Factors { size: scaled(axis.padded()), starts, factors }
    }

    /// The factors that windows have at a pixel, one for each window that covers it.
    fn at(&self, pixel: usize) -> impl Iterator<Item = f32> + '_ {
        let first = self.starts.partition_point(|start| start + self.factors.len() <= pixel);
        self.starts[first..]
            .iter()
            .take_while(move |start| **start <= pixel)
            .map(move |start| self.factors[pixel - start])
    }
}

/// The factors of a window's pixels, as long as it is.
fn window_factors(roi: usize, mode: Blend, sigma_scale: f64) -> Vec<f32> {
    match mode {
        Blend::Constant => vec![1.0; roi],
        Blend::Gaussian => {
            let sigma = roi as f64 * sigma_scale;
            let middle = (roi as f64 - 1.0) / 2.0;
            let factor = |at: usize| {
                let x = (at as f64 - middle) as f32;
                (x * x / (-2.0 * sigma * sigma) as f32).exp()
            };
            (0..roi).map(factor).collect()
        }
    }
}

/// Adds to `sums` what all windows count in a row of the result: the row along `last`, at these places of the other axes.
pub(super) fn add_row(leading: &[Factors], places: &[usize], last: &Factors, sums: &mut [f32]) {
    let mut products = vec![1f32];
    for (axis, &place) in leading.iter().zip(places) {
        let times = |product: &f32| axis.at(place).map(|factor| product * factor).collect::<Vec<_>>();
        products = products.iter().flat_map(times).collect();
    }
    for &start in &last.starts {
        let row = &mut sums[start..start + last.factors.len()];
        for &product in &products {
            row.iter_mut().zip(&last.factors).for_each(|(sum, factor)| *sum += (product * factor).max(LEAST));
        }
    }
}
