//! The ways from a histogram to a threshold.

use std::fmt;
use std::str::FromStr;

use crate::error::{CalibrationError, CalibrationErrorKind};
use crate::observer::Observer;
use crate::{best, entropy};

/// The share of magnitudes that percentile calibration keeps if nothing else is said, in percent.
pub const DEFAULT_PERCENTILE: f64 = 99.99;

/// How the threshold of a tensor is found: the magnitude at which values are clipped when they become integers.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[non_exhaustive]
pub enum Calibrator {
    /// The threshold whose quantized distribution is closest to the real one by the Kullback-Leibler divergence.
    #[default]
    Entropy,
    /// The largest magnitude: nothing is clipped.
    MinMax,
    /// This share of all magnitudes, in percent, is not clipped.
    Percentile(f64),
    /// The threshold with the least squared error of rounding and clipping.
    Best,
}

impl Calibrator {
    /// Percentile calibration that keeps this share, in percent: above 0, up to 100.
    pub fn percentile(percent: f64) -> Result<Calibrator, CalibrationError> {
        if percent > 0.0 && percent <= 100.0 {
            return Ok(Calibrator::Percentile(percent));
        }
        let message = format!("a percentile lies above 0 and up to 100, {percent} does not; 99.99 is usual");
        Err(CalibrationError::new(CalibrationErrorKind::BadOption, message))
    }

    /// The threshold of a tensor; 0 for one that was zero throughout.
    pub fn threshold(self, observer: &Observer) -> f32 {
        let (histogram, largest) = (observer.histogram(), f64::from(observer.largest()));
        let up_to = |n_bins: f64| (n_bins * histogram.width()).min(largest);
        let threshold = match self {
            Calibrator::Entropy => entropy::bins_kept(histogram).map_or(0.0, |n_bins| up_to(n_bins as f64)),
            Calibrator::MinMax => largest,
            Calibrator::Percentile(percent) => {
                let wanted = histogram.n_values() as f64 * percent / 100.0;
                up_to(bins_below(histogram.counts(), histogram.n_zeros(), wanted))
            }
            Calibrator::Best => best::threshold(histogram, largest).unwrap_or(0.0),
        };
        threshold as f32
    }
}

/// How many bins, with a fraction of the last, hold so many values together with the zeros.
fn bins_below(counts: &[u64], n_zeros: u64, wanted: f64) -> f64 {
    let mut below = n_zeros as f64;
    for (idx, &count) in counts.iter().enumerate() {
        let count = count as f64;
        if below + count >= wanted && count > 0.0 {
            return idx as f64 + ((wanted - below) / count).max(0.0);
        }
        below += count;
    }
    counts.len() as f64
}

impl fmt::Display for Calibrator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Calibrator::Entropy => f.write_str("entropy"),
            Calibrator::MinMax => f.write_str("minmax"),
            Calibrator::Percentile(percent) => write!(f, "percentile {percent}"),
            Calibrator::Best => f.write_str("best"),
        }
    }
}

/// As it is written, and as users name them: `percentile` alone is the usual one, `percentile:99.9` another.
impl FromStr for Calibrator {
    type Err = CalibrationError;

    fn from_str(text: &str) -> Result<Calibrator, CalibrationError> {
        let unknown = || {
            let message =
                format!("there is no calibrator `{text}`; there are entropy, minmax, percentile and best");
            CalibrationError::new(CalibrationErrorKind::BadOption, message)
        };
        match text {
            "entropy" => Ok(Calibrator::Entropy),
            "minmax" => Ok(Calibrator::MinMax),
            "percentile" => Ok(Calibrator::Percentile(DEFAULT_PERCENTILE)),
            "best" => Ok(Calibrator::Best),
            _ => {
                let percent = text.strip_prefix("percentile").ok_or_else(unknown)?;
                let percent = percent.strip_prefix([' ', ':']).ok_or_else(unknown)?;
                Calibrator::percentile(percent.parse().map_err(|_| unknown())?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_testing::Random;

    const N: usize = 200_000;
    const ALL: [Calibrator; 4] = [
        Calibrator::Entropy,
        Calibrator::MinMax,
        Calibrator::Percentile(DEFAULT_PERCENTILE),
        Calibrator::Best,
    ];

    fn of(draw: impl FnMut(usize) -> f32) -> Observer {
        let mut observer = Observer::default();
        observer.observe(&(0..N).map(draw).collect::<Vec<_>>()).unwrap();
        observer
    }

    #[test]
    fn the_scale_of_the_values_is_the_scale_of_the_threshold() {
        let mut random = Random::new(2);
        let values: Vec<f32> = (0..N).map(|_| random.normal() as f32).collect();
        let one = of(|idx| values[idx]);
        // A power of two moves all bins alike.
        let eight = of(|idx| 8.0 * values[idx]);
        for calibrator in ALL {
            assert_eq!(8.0 * calibrator.threshold(&one), calibrator.threshold(&eight), "{calibrator}");
        }
    }

    #[test]
    fn normal_values_are_clipped_far_out() {
        let mut random = Random::new(3);
        let observer = of(|_| random.normal() as f32);
        let largest = observer.largest();
        assert!((4.0..5.5).contains(&largest), "{largest}");
        assert_eq!(Calibrator::MinMax.threshold(&observer), largest);
        // One in ten thousand of a normal distribution lies beyond 3.89 deviations.
        let percentile = Calibrator::Percentile(99.99).threshold(&observer);
        assert!((3.7..4.1).contains(&percentile), "{percentile}");
        // The least squared error of 8 bits lies at 3.9 to 4 deviations; entropy clips earlier, but not the bulk.
        let best = Calibrator::Best.threshold(&observer);
        assert!((3.6..4.3).contains(&best), "{best}");
        let entropy = Calibrator::Entropy.threshold(&observer);
        assert!((2.5..=4.5).contains(&entropy), "{entropy}");
    }

    #[test]
    fn a_heavy_tail_is_cut_off() {
        // The product of four normal numbers: the largest of 200,000 is some hundred times the median.
        let mut random = Random::new(4);
        let mut draw = || (0..4).map(|_| random.normal()).product::<f64>();
        let mut observer = of(|_| draw() as f32);
        observer.observe(&[500.0]).unwrap();
        for calibrator in [Calibrator::Entropy, Calibrator::Percentile(99.9)] {
            let threshold = calibrator.threshold(&observer);
            assert!((1.0..50.0).contains(&threshold), "{calibrator}: {threshold}");
        }
        // The square of one error of 500 weighs as much as those of all others.
        let best = Calibrator::Best.threshold(&observer);
        assert!((250.0..500.0).contains(&best), "{best}");
        assert_eq!(Calibrator::MinMax.threshold(&observer), 500.0);
    }

    #[test]
    fn even_values_are_kept_whole() {
        let mut random = Random::new(7);
        let observer = of(|_| random.float());
        for calibrator in ALL {
            let threshold = calibrator.threshold(&observer);
            // Bins hold 49 values each, so that a few of them look as good as all.
            assert!((0.97..=1.0).contains(&threshold), "{calibrator}: {threshold}");
        }
    }

    #[test]
    fn a_value_that_is_everywhere_does_not_clip_the_others() {
        let mut random = Random::new(10);
        // Half of the values are one, as what a layer makes of a constant background.
        let observer = of(|idx| if idx % 2 == 0 { 0.05 } else { random.normal().abs() as f32 });
        let entropy = Calibrator::Entropy.threshold(&observer);
        // One in fifty of the normal ones lies beyond 2.33 deviations.
        assert!(entropy > 2.2, "{entropy}");
    }

    #[test]
    fn zeros_after_an_activation_change_no_entropy() {
        let mut random = Random::new(8);
        let values: Vec<f32> = (0..N).map(|_| random.normal().abs() as f32).collect();
        let dense = of(|idx| values[idx]);
        let mut sparse = dense.clone();
        sparse.observe(&vec![0.0; 10 * N]).unwrap();
        for calibrator in [Calibrator::Entropy, Calibrator::Best] {
            assert_eq!(calibrator.threshold(&dense), calibrator.threshold(&sparse), "{calibrator}");
        }
        // Percentiles are of all values.
        let percentile = Calibrator::Percentile(99.9);
        assert!(percentile.threshold(&sparse) < percentile.threshold(&dense));
    }

    #[test]
    fn no_threshold_exceeds_the_range() {
        let mut random = Random::new(9);
        for n in [1, 2, 3, 100] {
            let mut observer = Observer::default();
            observer.observe(&random.list(n)).unwrap();
            for calibrator in
                ALL.into_iter().chain([Calibrator::Percentile(1.0), Calibrator::Percentile(100.0)])
            {
                let threshold = calibrator.threshold(&observer);
                assert!(
                    threshold > 0.0 && threshold <= observer.largest(),
                    "{calibrator} of {n}: {threshold}"
                );
            }
        }
        let mut zeros = Observer::default();
        zeros.observe(&[0.0; 5]).unwrap();
        assert!(ALL.iter().all(|calibrator| calibrator.threshold(&zeros) == 0.0));
    }

    #[test]
    fn percentiles_count() {
        let mut observer = Observer::default();
        // 1 to 1000: the n-th percentile of a thousandth each.
        observer.observe(&(1..=1000).map(|n| n as f32).collect::<Vec<_>>()).unwrap();
        for percent in [10.0, 50.0, 99.0, 99.9] {
            let threshold = f64::from(Calibrator::Percentile(percent).threshold(&observer));
            // Two values and the width of a bin.
            assert!((threshold - 10.0 * percent).abs() < 2.25, "{percent}: {threshold}");
        }
        assert_eq!(Calibrator::Percentile(100.0).threshold(&observer), 1000.0);
    }

    #[test]
    fn names_come_back() {
        for calibrator in ALL {
            assert_eq!(calibrator.to_string().parse::<Calibrator>().unwrap(), calibrator);
        }
        assert_eq!("percentile".parse::<Calibrator>().unwrap(), Calibrator::Percentile(99.99));
        assert_eq!("percentile:99.9".parse::<Calibrator>().unwrap(), Calibrator::Percentile(99.9));
        for text in
            ["", "kl", "percentiles", "percentile 0", "percentile 101", "percentile x", "percentile NaN"]
        {
            assert!(text.parse::<Calibrator>().is_err(), "{text}");
        }
    }
}
