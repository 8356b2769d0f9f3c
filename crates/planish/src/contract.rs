//! Contracts: how far a plan may be from the model in FP32, and the fastest precision that keeps to it.

mod chart;
mod data;
mod search;

use std::time::Duration;

pub use data::{ContractData, Labels};
pub(crate) use search::Search;
pub use search::{Choice, PrecisionCandidate};

use crate::{Error, ErrorKind, Metrics};

/// What is measured of a plan's outputs beside those of the plan in FP32. [`Contract`] has an example.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Measure {
    /// Norm of the difference over the norm of the outputs, the worst output's.
    RelativeL2,
    /// Peak signal-to-noise ratio in dB, the peak being the range of the outputs in FP32; the worst output's.
    Psnr,
    /// Cosine of the angle between the outputs of a sample, in the mean of all; the worst output's.
    Cosine,
    /// The largest absolute difference of all outputs.
    MaxAbs,
    /// The mean absolute difference, the worst output's.
    MeanAbs,
    /// Percentage points of labels that FP32 gets right and the plan does not, less those the other way round.
    Top1Drop,
}

impl Measure {
    /// As tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Measure::RelativeL2 => "rel",
            Measure::Psnr => "psnr",
            Measure::Cosine => "cosine",
            Measure::MaxAbs => "max",
            Measure::MeanAbs => "mae",
            Measure::Top1Drop => "drop",
        }
    }

    /// Whether larger values are worse.
    pub fn is_error(self) -> bool {
        !matches!(self, Measure::Psnr | Measure::Cosine)
    }

    /// What it says of an output; NaN for [`Measure::Top1Drop`], which is about labels.
    pub fn of(self, metrics: &Metrics) -> f64 {
        match self {
            Measure::RelativeL2 => metrics.relative_l2(),
            Measure::Psnr => metrics.psnr(),
            Measure::Cosine => metrics.cosine(),
            Measure::MaxAbs => metrics.max_abs(),
            Measure::MeanAbs => metrics.mean_abs(),
            Measure::Top1Drop => f64::NAN,
        }
    }

    /// What it says of the worst of several outputs; NaN counts as the worst.
    fn worst(self, outputs: &[Metrics]) -> f64 {
        let best = match self {
            Measure::Psnr => f64::INFINITY,
            Measure::Cosine => 1.0,
            _ => 0.0,
        };
        outputs.iter().map(|metrics| self.of(metrics)).fold(best, |worst, value| {
            let is_worse = if self.is_error() { value > worst } else { value < worst };
            if value.is_nan() || is_worse { value } else { worst }
        })
    }
}

/// How far a plan may be from the model in FP32, and how long it may take.
///
/// ```
/// use planish::{Contract, Measure};
///
/// let contract: Contract = "psnr>=40".parse()?;                       // or "cosine>=0.999", "rel<=1e-2", "0.01"
/// assert!(contract.holds(41.5) && !contract.holds(39.0));
/// assert!(contract.measure.name() == "psnr" && !contract.measure.is_error());
/// # let metrics = planish::Metrics::default();
/// assert!(contract.holds(contract.measure.of(&metrics)));              // of outputs that were compared
/// assert_eq!(Contract::new(Measure::Top1Drop, 0.5).to_string(), "drop<=0.5");
/// # Ok::<(), planish::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Contract {
    /// What is measured.
    pub measure: Measure,
    /// How far it may go: an error up to it, anything else down to it.
    pub bound: f64,
    /// The longest that a run may take, in the median.
    pub max_latency: Option<Duration>,
}

impl Contract {
    /// A bound on what is measured.
    pub fn new(measure: Measure, bound: f64) -> Contract {
        Contract { measure, bound, max_latency: None }
    }

    /// Whether a measured value is within the bound.
    pub fn holds(&self, value: f64) -> bool {
        if self.measure.is_error() { value <= self.bound } else { value >= self.bound }
    }

    /// Whether it is so by a margin, for a search whose result is to hold on other data.
    fn holds_amply(&self, value: f64) -> bool {
        match self.measure {
            Measure::RelativeL2 | Measure::MaxAbs | Measure::MeanAbs => value <= MARGIN * self.bound,
            // Half a decibel is as much as the margin of an error.
            Measure::Psnr => value >= self.bound - 20.0 * MARGIN.log10(),
            Measure::Cosine => 1.0 - value <= MARGIN * (1.0 - self.bound),
            Measure::Top1Drop => value <= self.bound,
        }
    }

    /// How far a value is from the bound, in parts of it: more than 1 beyond it.
    fn excess(&self, value: f64) -> f64 {
        match self.measure {
            Measure::RelativeL2 | Measure::MaxAbs | Measure::MeanAbs => value / self.bound,
            Measure::Psnr => 10f64.powf((self.bound - value) / 20.0),
            Measure::Cosine => (1.0 - value) / (1.0 - self.bound).max(f64::MIN_POSITIVE),
            // A drop may be none at all, and below it.
            Measure::Top1Drop => (1.0 + value.max(0.0)) / (1.0 + self.bound),
        }
    }
}

/// What is found on one half of the data holds on the other but for a few percent.
const MARGIN: f64 = 0.95;

impl std::fmt::Display for Contract {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.measure.is_error() { "<=" } else { ">=" };
        write!(f, "{}{sign}{}", self.measure.name(), self.bound)
    }
}

impl std::str::FromStr for Contract {
    type Err = Error;

    fn from_str(text: &str) -> Result<Contract, Error> {
        let bad = || {
            let message = format!(
                "`{text}` is not a contract; give rel<=0.01, psnr>=40, cosine>=0.999, max<=0.1, mae<=0.01, or a number for rel"
            );
            Error::new(ErrorKind::BadOption, message)
        };
        let forms = [
            ("rel<=", Measure::RelativeL2),
            ("psnr>=", Measure::Psnr),
            ("cosine>=", Measure::Cosine),
            ("max<=", Measure::MaxAbs),
            ("mae<=", Measure::MeanAbs),
        ];
        let found = forms.iter().find_map(|(start, measure)| Some((text.strip_prefix(start)?, *measure)));
        let (number, measure) = found.unwrap_or((text, Measure::RelativeL2));
        let bound: f64 = number.trim().parse().map_err(|_| bad())?;
        let is_possible = match measure {
            Measure::Cosine => (-1.0..1.0).contains(&bound),
            _ => bound.is_finite() && bound > 0.0,
        };
        if is_possible { Ok(Contract::new(measure, bound)) } else { Err(bad()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contracts_are_read_as_users_write_them() {
        let read = |text: &str| text.parse::<Contract>().map(|contract| contract.to_string()).ok();
        assert_eq!(read("0.01").as_deref(), Some("rel<=0.01"));
        for text in ["psnr>=40", "max<=0.5", "mae<=0.001"] {
            assert_eq!(read(text).as_deref(), Some(text));
        }
        for wrong in ["", "rel>=1", "psnr", "cosine>=1", "0", "-1", "nan", "rel<=inf"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn more_than_one_is_beyond_the_bound() {
        for (contract, good, bad) in
            [("rel<=0.1", 0.09, 0.2), ("psnr>=40", 41.0, 30.0), ("cosine>=0.9", 0.95, 0.5)]
        {
            let contract: Contract = contract.parse().unwrap();
            assert!(contract.holds(good) && contract.excess(good) < 1.0, "{contract}");
            assert!(!contract.holds(bad) && contract.excess(bad) > 1.0, "{contract}");
            assert!(contract.holds(contract.bound) && !contract.holds_amply(contract.bound), "{contract}");
        }
    }
}
