//! How often magnitudes occur, in bins that widen when larger ones come.
//!
//! Bins begin at zero and are a power of two wide: the narrowest with which the largest magnitude so far still falls
//! into one of them. When a larger one comes, neighbours are merged, which loses nothing: the edges of wide bins are
//! edges of narrow ones. So the histogram depends on the values alone, not on their order or on how they were cut into
//! pieces.

/// Bins kept. The largest magnitude lies in the upper half of them, so that between 2048 and 4096 are in use: at least
/// as many as entropy calibration is usually done with.
const BINS: usize = 4096;
const LOG2_BINS: i32 = 12;

/// Counts of magnitudes. Zeros are counted apart: they are exact at every scale.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Histogram {
    /// Empty until the first value that is not zero.
    counts: Vec<u64>,
    /// Bins are two to the power of this wide.
    log2_width: i32,
    n_zeros: u64,
}

impl Histogram {
    /// Counts finite values.
    pub fn add(&mut self, values: &[f32]) {
        let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        if largest == 0.0 {
            self.n_zeros += values.len() as u64;
            return;
        }
        self.reach(largest);
        // Exact: f64 holds every f32 times every power of two that occurs here.
        let per_width = 2f64.powi(-self.log2_width);
        for &value in values {
            if value == 0.0 {
                self.n_zeros += 1;
            } else {
                self.counts[(f64::from(value.abs()) * per_width) as usize] += 1;
            }
        }
    }

    /// Widens the bins until this magnitude, which is not zero, falls into one of them.
    fn reach(&mut self, magnitude: f32) {
        let log2_width = log2_floor(magnitude) + 1 - LOG2_BINS;
        if self.counts.is_empty() {
            self.counts = vec![0; BINS];
            self.log2_width = log2_width;
        }
        let n_doublings = log2_width - self.log2_width;
        if n_doublings <= 0 {
            return;
        }
        let mut merged = vec![0; BINS];
        for (idx, count) in self.counts.iter().enumerate() {
            merged[idx.checked_shr(n_doublings.unsigned_abs()).unwrap_or(0)] += count;
        }
        (self.counts, self.log2_width) = (merged, log2_width);
    }

    /// Counts by bin, up to the last one that is in use; bin `k` counts magnitudes from `k` up to `k + 1` widths.
    pub fn counts(&self) -> &[u64] {
        let n_used = self.counts.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        &self.counts[..n_used]
    }

    /// How wide a bin is.
    pub fn width(&self) -> f64 {
        2f64.powi(self.log2_width)
    }

    /// How many values were zero.
    pub fn n_zeros(&self) -> u64 {
        self.n_zeros
    }

    #[cfg(test)]
    pub(crate) fn of(values: &[f32]) -> Histogram {
        let mut histogram = Histogram::default();
        histogram.add(values);
        histogram
    }

    /// How many values were counted.
    pub fn n_values(&self) -> u64 {
        self.n_zeros + self.counts.iter().sum::<u64>()
    }
}

/// The exponent of the largest power of two that is not above a magnitude.
fn log2_floor(magnitude: f32) -> i32 {
    // Denormals of f32 are normal numbers of f64.
    let exponent = f64::from(magnitude).to_bits() >> 52;
    (exponent & 0x7ff) as i32 - 1023
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_largest_lies_in_the_upper_half() {
        for largest in [1.0f32, 0.999, 3.7, 1e-30, 1e-45, f32::MAX, f32::MIN_POSITIVE] {
            let histogram = Histogram::of(&[largest]);
            let n_used = histogram.counts().len();
            assert!((BINS / 2 + 1..=BINS).contains(&n_used), "{largest}: {n_used}");
            let low = (n_used - 1) as f64 * histogram.width();
            assert!(low <= f64::from(largest) && f64::from(largest) < low + histogram.width(), "{largest}");
        }
    }

    #[test]
    fn zeros_are_counted_apart() {
        let mut histogram = Histogram::of(&[0.0, -0.0]);
        assert_eq!((histogram.n_zeros(), histogram.counts().len()), (2, 0));
        histogram.add(&[0.0, -1.5]);
        assert_eq!((histogram.n_zeros(), histogram.n_values()), (3, 4));
        assert_eq!(histogram.counts().iter().sum::<u64>(), 1);
    }

    #[test]
    fn growth_merges_neighbours() {
        let mut histogram = Histogram::of(&[1.0, 1.0]);
        let (width, place) = (histogram.width(), histogram.counts().len() - 1);
        histogram.add(&[4.0]);
        assert_eq!(histogram.width(), 4.0 * width);
        assert_eq!(histogram.counts()[place / 4], 2);
        // From the smallest f32 to the largest: everything before is in the first bin.
        let mut histogram = Histogram::of(&[1e-45; 3]);
        histogram.add(&[f32::MAX]);
        assert_eq!((histogram.counts()[0], histogram.n_values()), (3, 4));
    }

    proptest! {
        /// What is counted does not depend on the order of the values or on the pieces in which they come.
        #[test]
        fn pieces_and_order_do_not_matter(
            values in proptest::collection::vec(-1e6f32..1e6, 1..200),
            scales in proptest::collection::vec(-40i32..40, 200),
            cut in 1usize..50,
        ) {
            let values: Vec<f32> = values.iter().zip(&scales).map(|(value, &by)| value * 2f32.powi(by)).collect();
            let whole = Histogram::of(&values);
            let mut pieces = Histogram::default();
            values.chunks(cut).for_each(|piece| pieces.add(piece));
            prop_assert_eq!(&whole, &pieces);
            let mut reversed = Histogram::default();
            values.iter().rev().for_each(|&value| reversed.add(&[value]));
            prop_assert_eq!(&whole, &reversed);
            prop_assert_eq!(whole.n_values(), values.len() as u64);
        }

        /// Every value is in the bin that holds its magnitude.
        #[test]
        fn bins_hold_their_magnitudes(values in proptest::collection::vec(-1e3f32..1e3, 1..100)) {
            let histogram = Histogram::of(&values);
            let mut expected = vec![0u64; histogram.counts().len()];
            for value in values.iter().filter(|value| **value != 0.0) {
                expected[(f64::from(value.abs()) / histogram.width()).floor() as usize] += 1;
            }
            prop_assert_eq!(histogram.counts(), &expected[..]);
        }
    }
}
