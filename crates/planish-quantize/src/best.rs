//! The threshold with the least squared error.
//!
//! What becomes an integer is rounded to a multiple of the step, or clipped at the threshold. Within a bin magnitudes
//! are taken to be spread evenly, so that both errors are integrals with closed forms: nothing depends on how a step and
//! a bin happen to lie.

use crate::MAX_INT8;
use crate::histogram::Histogram;

/// Thresholds tried: enough that two neighbours differ by 1 % of the range at most.
const CANDIDATES: usize = 128;

/// The squared error summed over all values, if magnitudes are clipped at a threshold and rounded to 127 steps.
pub(crate) fn squared_error(histogram: &Histogram, threshold: f64) -> f64 {
    let width = histogram.width();
    let step = threshold / f64::from(MAX_INT8);
    // What is rounded of all magnitudes from zero to x, and what is clipped of those from the threshold to x.
    let up_to = |x: f64| {
        if x > threshold {
            rounded(threshold, step) + (x - threshold).powi(3) / 3.0
        } else {
            rounded(x, step)
        }
    };
    let mut below = 0.0;
    let mut error = 0.0;
    for (idx, &count) in histogram.counts().iter().enumerate() {
        let above = up_to((idx + 1) as f64 * width);
        error += count as f64 * (above - below) / width;
        below = above;
    }
    error
}

/// The integral from zero to `x` of the squared distance to the nearest multiple of a step.
fn rounded(x: f64, step: f64) -> f64 {
    let n = (x / step).round();
    let rest = x - n * step;
    n * step.powi(3) / 12.0 + rest.powi(3) / 3.0
}

/// The best of the thresholds up to the largest magnitude. `None` for a histogram of zeros.
pub(crate) fn threshold(histogram: &Histogram, largest: f64) -> Option<f64> {
    if histogram.counts().is_empty() {
        return None;
    }
    let candidates = (1..=CANDIDATES).map(|idx| largest * idx as f64 / CANDIDATES as f64);
    let errors = candidates.map(|threshold| (squared_error(histogram, threshold), threshold));
    errors.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, threshold)| threshold)
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_testing::Random;

    /// What the error is for the values themselves.
    fn exact(values: &[f32], threshold: f64) -> f64 {
        let step = threshold / f64::from(MAX_INT8);
        let error = |&value: &f32| {
            let magnitude = f64::from(value.abs());
            (magnitude - (magnitude / step).round().min(f64::from(MAX_INT8)) * step).powi(2)
        };
        values.iter().map(error).sum()
    }

    /// Errors of 100,000 values differ from their expectation by some tenths of a percent; bins add as much.
    const SPREAD: f64 = 0.02;

    #[test]
    fn the_error_is_that_of_the_values() {
        let mut random = Random::new(5);
        let values: Vec<f32> = (0..100_000).map(|_| random.normal() as f32).collect();
        let histogram = Histogram::of(&values);
        for threshold in [0.5, 1.0, 2.0, 3.0, 4.0, 5.0] {
            let (estimated, exact) = (squared_error(&histogram, threshold), exact(&values, threshold));
            assert!((estimated / exact - 1.0).abs() < SPREAD, "{threshold}: {estimated} {exact}");
        }
    }

    #[test]
    fn no_threshold_tried_is_better() {
        let mut random = Random::new(6);
        // Cubes of normal numbers: a heavy tail.
        let values: Vec<f32> = (0..50_000).map(|_| random.normal().powi(3) as f32).collect();
        let largest = values.iter().fold(0f32, |a, b| a.max(b.abs()));
        let best = threshold(&Histogram::of(&values), f64::from(largest)).unwrap();
        let least = exact(&values, best);
        for idx in 1..=20 {
            let other = f64::from(largest) * f64::from(idx) / 20.0;
            assert!(least <= exact(&values, other) * (1.0 + SPREAD), "{best} against {other}");
        }
        assert!(best < f64::from(largest), "{best} of {largest}");
        assert_eq!(threshold(&Histogram::default(), 0.0), None);
    }
}
