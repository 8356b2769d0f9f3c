//! Axes: where numbers stand, and at which of them there is a tick.

/// From numbers to places between 0 and 1.
#[derive(Clone, Debug)]
pub(super) enum Scale {
    Linear {
        low: f64,
        high: f64,
    },
    /// By powers of ten.
    Log {
        low: f64,
        high: f64,
    },
}

/// Some more than this many ticks are too close to be read.
const MOST_TICKS: f64 = 6.0;

impl Scale {
    /// A linear scale over these numbers, from zero where they do not go below it.
    pub(super) fn linear(values: impl Iterator<Item = f64>) -> Scale {
        let (low, high) = ends(values.filter(|value| value.is_finite()));
        let low = low.min(0.0);
        let high = if high > low { high } else { low + 1.0 };
        let step = step(high - low);
        Scale::Linear { low: (low / step).floor() * step, high: (high / step).ceil() * step }
    }

    /// The same without going down to zero, for numbers whose differences matter.
    pub(super) fn close(values: impl Iterator<Item = f64>) -> Scale {
        let (low, high) = ends(values.filter(|value| value.is_finite()));
        if low < high {
            Scale::Linear { low, high }
        } else {
            Scale::Linear { low: low - 1.0, high: low + 1.0 }
        }
    }

    /// A scale of powers over the positive ones of these numbers.
    pub(super) fn log(values: impl Iterator<Item = f64>) -> Scale {
        let (low, high) = ends(values.filter(|value| value.is_finite() && *value > 0.0));
        if low > high {
            return Scale::Log { low: 0.1, high: 1.0 };
        }
        // Whole powers, and at least one of them; what is too small for the floats here stays at the lowest.
        let (low, high) = (low.log10().floor().max(-300.0), high.log10().ceil().min(300.0));
        Scale::Log { low: 10f64.powf(low), high: 10f64.powf(high.max(low + 1.0)) }
    }

    /// Between 0 and 1; what lies outside stands at the edge.
    pub(super) fn place(&self, value: f64) -> f64 {
        let part = match *self {
            Scale::Linear { low, high } => (value - low) / (high - low),
            Scale::Log { low, .. } if value <= low => 0.0,
            Scale::Log { low, high } => (value / low).ln() / (high / low).ln(),
        };
        if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) }
    }

    /// Numbers that get a tick, with what stands there.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        match *self {
            Scale::Linear { low, high } => {
                let step = step(high - low);
                let first = (low / step).ceil() as i64;
                let last = (high / step + 1e-9).floor() as i64;
                (first..=last).map(|n| n as f64 * step).map(|value| (value, plain(value, step))).collect()
            }
            Scale::Log { low, high } => {
                let (first, last) = (low.log10().round() as i32, high.log10().round() as i32);
                let every = ((last - first) as f64 / MOST_TICKS).ceil().max(1.0) as usize;
                let powers = (first..=last).step_by(every);
                powers.map(|power| (10f64.powi(power), power_text(power))).collect()
            }
        }
    }
}

fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)))
}

/// 1, 2 or 5 times a power of ten, so that some five steps make the range.
fn step(range: f64) -> f64 {
    let rough = (range / MOST_TICKS).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough * 0.999).unwrap_or(10.0);
    factor * power
}

/// A number with as many digits as its steps need.
fn plain(value: f64, step: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{}M", trimmed(value / 1e6)),
        size if size >= 1e4 => format!("{}k", trimmed(value / 1e3)),
        _ => {
            let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
            format!("{value:.decimals$}")
        }
    }
}

fn trimmed(value: f64) -> String {
    format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_string()
}

fn power_text(power: i32) -> String {
    match power {
        -2..=3 => format!("{}", 10f64.powi(power)),
        _ => format!("1e{power}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: &Scale) -> Vec<String> {
        scale.ticks().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(texts(&Scale::linear([3.0, 48.0].into_iter())), ["0", "10", "20", "30", "40", "50"]);
        assert_eq!(
            texts(&Scale::linear([0.012].into_iter())),
            ["0.000", "0.002", "0.004", "0.006", "0.008", "0.010", "0.012"]
        );
        assert_eq!(
            texts(&Scale::log([2e-5, 3.0].into_iter())),
            ["1e-5", "1e-4", "1e-3", "0.01", "0.1", "1", "10"]
        );
        assert_eq!(texts(&Scale::linear([90_000.0].into_iter())).last().unwrap(), "100k");
    }

    #[test]
    fn every_number_has_a_place() {
        for scale in [
            Scale::linear([].into_iter()),
            Scale::log([].into_iter()),
            Scale::close([2.0].into_iter()),
            Scale::linear([f64::NAN, 1.0].into_iter()),
            Scale::log([0.0, -1.0, 1e-320, 1e308].into_iter()),
        ] {
            for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -3.0, 1e300] {
                assert!((0.0..=1.0).contains(&scale.place(value)), "{scale:?} {value}");
            }
            assert!(scale.ticks().len() < 12, "{scale:?}");
        }
        assert_eq!(Scale::log([1.0, 100.0].into_iter()).place(10.0), 0.5);
    }
}
