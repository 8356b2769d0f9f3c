//! The threshold whose quantized distribution tells most about the real one.
//!
//! For every number of bins that could be kept, the magnitudes beyond are clipped onto the last of them, which gives the
//! distribution P, and the kept bins are spread over the levels of the quantized type, each level evenly over those of
//! its bins that hold anything, which gives Q. The threshold is where the Kullback-Leibler divergence of Q from P is
//! least. This is the method of TensorRT's entropy calibrators (8-bit Inference with TensorRT, GTC 2017).
//!
//! Zeros are not part of the distributions. They are exact at every scale, and after a ReLU they are most of the values:
//! spread over a level with others they would pull the threshold far too low. For the same reason no more than one in a
//! hundred of the other magnitudes is clipped.

use crate::histogram::Histogram;

/// Magnitudes of symmetric INT8, zero among them.
const LEVELS: usize = 128;
/// Every second number of bins is tried: between 1024 and 2048 of them.
const STRIDE: usize = 2;
/// The share of magnitudes that is kept in any case. A value that occurs very often, as what a layer makes of a constant
/// background, stands alone in its bin and is spread over a level like the rest; only levels of a bin each tell it apart,
/// and the divergence alone would clip nearly everything to have them.
const KEPT: f64 = 0.99;

/// How many bins to keep; all of them where nothing is gained by less. `None` for a histogram of zeros.
pub(crate) fn bins_kept(histogram: &Histogram) -> Option<usize> {
    let counts = histogram.counts();
    let sums = Sums::of(counts);
    let total = sums.count[counts.len()];
    let least = sums.count.partition_point(|&kept| kept < KEPT * total).max(LEVELS).min(counts.len());
    // From all bins down, so that one divergence is finite.
    let candidates = (least..=counts.len()).rev().step_by(STRIDE);
    let divergences = candidates.filter_map(|n_kept| Some((sums.divergence(counts, n_kept)?, n_kept)));
    divergences.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, n_kept)| n_kept)
}

/// Sums over the first bins, so that a level costs nothing but two of them.
struct Sums {
    count: Vec<f64>,
    /// Bins that hold anything.
    n_filled: Vec<u32>,
    /// Of `count ln count`.
    count_ln_count: Vec<f64>,
}

impl Sums {
    fn of(counts: &[u64]) -> Sums {
        let mut sums = Sums { count: vec![0.0], n_filled: vec![0], count_ln_count: vec![0.0] };
        let (mut total, mut n_filled, mut entropy) = (0.0, 0, 0.0);
        for &count in counts {
            total += count as f64;
            n_filled += u32::from(count > 0);
            entropy += x_ln_x(count as f64);
            sums.count.push(total);
            sums.n_filled.push(n_filled);
            sums.count_ln_count.push(entropy);
        }
        sums
    }

    /// The divergence of the quantized distribution if so many bins are kept; `None` where it is infinite: something is
    /// clipped onto a bin that no level knows of.
    fn divergence(&self, counts: &[u64], n_kept: usize) -> Option<f64> {
        let total = self.count[counts.len()];
        let kept = self.count[n_kept];
        let clipped = total - kept;
        let last = *counts.get(n_kept.checked_sub(1)?)? as f64;
        if kept == 0.0 || (last == 0.0 && clipped > 0.0) {
            return None;
        }
        // Sum of P ln P, in counts.
        let own = self.count_ln_count[n_kept - 1] + x_ln_x(last + clipped);
        // Sum of P ln Q: Q is the same in all filled bins of a level.
        let n_levels = LEVELS.min(n_kept);
        let mut cross = 0.0;
        for level in 0..n_levels {
            let (from, to) = (level * n_kept / n_levels, (level + 1) * n_kept / n_levels);
            let inside = self.count[to] - self.count[from];
            if inside > 0.0 {
                let n_filled = f64::from(self.n_filled[to] - self.n_filled[from]);
                let beyond = if to == n_kept { clipped } else { 0.0 };
                cross += (inside + beyond) * (inside / n_filled).ln();
            }
        }
        Some((own - cross) / total - (total / kept).ln())
    }
}

fn x_ln_x(x: f64) -> f64 {
    if x > 0.0 { x * x.ln() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_testing::Random;

    /// The divergence as it is defined, bin by bin.
    fn slow_divergence(counts: &[u64], n_kept: usize) -> f64 {
        let mut p: Vec<f64> = counts[..n_kept].iter().map(|&count| count as f64).collect();
        let mut q = vec![0.0; n_kept];
        let n_levels = LEVELS.min(n_kept);
        for level in 0..n_levels {
            let bins = level * n_kept / n_levels..(level + 1) * n_kept / n_levels;
            let inside: f64 = p[bins.clone()].iter().sum();
            let n_filled = p[bins.clone()].iter().filter(|count| **count > 0.0).count() as f64;
            bins.filter(|&bin| p[bin] > 0.0).for_each(|bin| q[bin] = inside / n_filled);
        }
        p[n_kept - 1] += counts[n_kept..].iter().map(|&count| count as f64).sum::<f64>();
        let (p_total, q_total) = (p.iter().sum::<f64>(), q.iter().sum::<f64>());
        let term = |(p, q): (&f64, &f64)| {
            if *p == 0.0 { 0.0 } else { p / p_total * ((p / p_total) / (q / q_total)).ln() }
        };
        p.iter().zip(&q).map(term).sum()
    }

    /// Both are sums of some thousand terms of at most ten each in f64.
    const ROUNDING: f64 = 1e-9;

    #[test]
    fn sums_give_the_divergence_of_the_definition() {
        let mut random = Random::new(1);
        for n_bins in [1, 2, 127, 128, 129, 300, 2048, 2500] {
            let counts: Vec<u64> =
                (0..n_bins).map(|_| if random.chance(3) { 0 } else { random.below(50) as u64 }).collect();
            let sums = Sums::of(&counts);
            for n_kept in (1..=n_bins).step_by(1 + n_bins / 50).chain([n_bins]) {
                let slow = slow_divergence(&counts, n_kept);
                match sums.divergence(&counts, n_kept) {
                    Some(fast) => {
                        assert!((fast - slow).abs() < ROUNDING, "{n_kept} of {n_bins}: {fast} {slow}")
                    }
                    None => assert!(!slow.is_finite() || slow.is_nan(), "{n_kept} of {n_bins}: {slow}"),
                }
            }
        }
    }

    #[test]
    fn nothing_to_count_has_no_threshold() {
        assert_eq!(bins_kept(&Histogram::default()), None);
        let mut one = Histogram::default();
        one.add(&[0.0, 7.0, 7.0]);
        assert_eq!(bins_kept(&one), Some(one.counts().len()));
    }
}
