//! What is kept of one tensor: its range, and how its magnitudes are spread.

use std::fmt;

use crate::histogram::Histogram;

/// The values of one tensor over all samples.
#[derive(Clone, Debug, Default)]
pub struct Observer {
    /// Smallest and largest value; nothing before the first.
    range: Option<(f32, f32)>,
    histogram: Histogram,
}

/// Values that have no range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotFinite {
    pub n_nan: usize,
    pub n_infinite: usize,
}

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = |n: usize, what: &str| format!("{n} {what} value{}", if n == 1 { "" } else { "s" });
        match (self.n_nan, self.n_infinite) {
            (n_nan, 0) => f.write_str(&values(n_nan, "NaN")),
            (0, n_infinite) => f.write_str(&values(n_infinite, "infinite")),
            (n_nan, n_infinite) => {
                write!(f, "{} and {}", values(n_nan, "NaN"), values(n_infinite, "infinite"))
            }
        }
    }
}

impl Observer {
    /// Takes in values; if one of them is not finite, none.
    pub fn observe(&mut self, values: &[f32]) -> Result<(), NotFinite> {
        let Some(&first) = values.first() else { return Ok(()) };
        // `min` and `max` lose a NaN.
        let (mut min, mut max, mut is_finite) = (first, first, true);
        for &value in values {
            min = min.min(value);
            max = max.max(value);
            is_finite &= value.is_finite();
        }
        if !is_finite {
            let n_nan = values.iter().filter(|value| value.is_nan()).count();
            let n_infinite = values.iter().filter(|value| value.is_infinite()).count();
            return Err(NotFinite { n_nan, n_infinite });
        }
        self.histogram.add(values);
        self.range = Some(self.range.map_or((min, max), |range| (range.0.min(min), range.1.max(max))));
        Ok(())
    }

    /// Smallest and largest value; `None` if there was none.
    pub fn range(&self) -> Option<(f32, f32)> {
        self.range
    }

    /// The largest magnitude; 0 if there was no value.
    pub fn largest(&self) -> f32 {
        self.range.map_or(0.0, |(min, max)| max.abs().max(min.abs()))
    }

    pub fn histogram(&self) -> &Histogram {
        &self.histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_grow_with_what_is_seen() {
        let mut observer = Observer::default();
        assert_eq!((observer.range(), observer.largest()), (None, 0.0));
        observer.observe(&[]).unwrap();
        assert_eq!(observer.range(), None);
        observer.observe(&[0.5, 0.25]).unwrap();
        observer.observe(&[-3.0]).unwrap();
        assert_eq!((observer.range(), observer.largest()), (Some((-3.0, 0.5)), 3.0));
        assert_eq!(observer.histogram().n_values(), 3);
    }

    #[test]
    fn what_is_not_finite_is_counted_and_changes_nothing() {
        let mut observer = Observer::default();
        observer.observe(&[1.0]).unwrap();
        let error = observer.observe(&[2.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY]).unwrap_err();
        assert_eq!(error, NotFinite { n_nan: 1, n_infinite: 2 });
        assert_eq!(error.to_string(), "1 NaN value and 2 infinite values");
        assert_eq!((observer.range(), observer.histogram().n_values()), (Some((1.0, 1.0)), 1));
    }
}
