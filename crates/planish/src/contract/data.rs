//! What a contract is measured on: samples, half of them for the search and half held out, and their labels.

use planish_tensor::Tensor;

use super::{Contract, Measure};
use crate::{Error, ErrorKind, Sample};

/// The class of every row of the samples, in their order. [`crate::Builder::build_by_contract`] has an example.
pub type Labels = Vec<i64>;

/// Samples, and the labels that [`Measure::Top1Drop`] counts.
/// [`crate::Builder::build_by_contract`] has an example.
#[derive(Clone, Debug)]
pub struct ContractData {
    pub(super) samples: Vec<Sample>,
    /// For each sample those of its rows.
    labels: Vec<Vec<i64>>,
}

/// Which half of the samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Half {
    Search,
    HeldOut,
}

impl ContractData {
    /// Every second sample is held out from the search; labels are for every row, or none.
    pub fn new(samples: Vec<Sample>, labels: Option<Labels>) -> Result<ContractData, Error> {
        let wrong = |message: String| Err(Error::new(ErrorKind::WrongInputs, message));
        if samples.len() < 2 {
            return wrong(
                "a contract needs two samples at least: one to search with, one held out".to_string(),
            );
        }
        let rows: Vec<usize> = samples.iter().map(|sample| sample.count).collect();
        let mut per_sample = Vec::new();
        if let Some(labels) = labels {
            let n_rows: usize = rows.iter().sum();
            if labels.len() != n_rows {
                return wrong(format!(
                    "{} labels are given for {n_rows} samples; each needs one",
                    labels.len()
                ));
            }
            let mut rest = &labels[..];
            for n in rows {
                let (own, after) = rest.split_at(n);
                per_sample.push(own.to_vec());
                rest = after;
            }
        }
        Ok(ContractData { samples, labels: per_sample })
    }

    pub(super) fn has_labels(&self) -> bool {
        !self.labels.is_empty()
    }

    /// The numbers of the samples of a half, at most so many.
    pub(super) fn half(&self, half: Half, limit: usize) -> Vec<usize> {
        let first = if half == Half::Search { 0 } else { 1 };
        (first..self.samples.len()).step_by(2).take(limit).collect()
    }

    /// What a plan's outputs on some samples are worth beside those in FP32.
    pub(super) fn value(
        &self,
        contract: &Contract,
        at: &[usize],
        got: &[Vec<Tensor>],
        want: &[Vec<Tensor>],
    ) -> f64 {
        match contract.measure {
            Measure::RelativeL2 => relative(got, want),
            Measure::Psnr => psnr(got, want),
            Measure::Cosine => cosine(got, want),
            Measure::Top1Drop => {
                let right = |outputs: &[Vec<Tensor>]| -> usize {
                    at.iter()
                        .zip(outputs)
                        .map(|(&sample, outputs)| n_right(outputs, &self.labels[sample]))
                        .sum()
                };
                let n_rows: usize = at.iter().map(|&sample| self.labels[sample].len()).sum();
                100.0 * (right(want) as f64 - right(got) as f64) / n_rows.max(1) as f64
            }
        }
    }
}

/// Rows of the first output whose largest element is where the label says.
fn n_right(outputs: &[Tensor], labels: &[i64]) -> usize {
    let Some(scores) = outputs.first().map(Tensor::to_f64s) else { return 0 };
    let n_classes = scores.len() / labels.len().max(1);
    let best = |row: &[f64]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]));
    let rows = scores.chunks_exact(n_classes.max(1)).zip(labels);
    rows.filter(|(row, label)| best(row).and_then(|best| i64::try_from(best).ok()) == Some(**label)).count()
}

/// Sums over all samples of one output: of squared differences, of squares, and the ends of what was wanted.
struct Sums {
    error: f64,
    norm: f64,
    n: usize,
    low: f64,
    high: f64,
}

/// The sums of every output.
fn sums(got: &[Vec<Tensor>], want: &[Vec<Tensor>]) -> Vec<Sums> {
    let n_outputs = want.first().map_or(0, Vec::len);
    let one = |place: usize| {
        let mut sums = Sums { error: 0.0, norm: 0.0, n: 0, low: f64::INFINITY, high: f64::NEG_INFINITY };
        for (got, want) in got.iter().zip(want) {
            for (x, y) in got[place].to_f64s().into_iter().zip(want[place].to_f64s()) {
                // The same infinity or NaN on both sides is no difference.
                if x.to_bits() != y.to_bits() && !(x.is_nan() && y.is_nan()) {
                    sums.error += (x - y) * (x - y);
                }
                if y.is_finite() {
                    sums.norm += y * y;
                    (sums.low, sums.high) = (sums.low.min(y), sums.high.max(y));
                }
                sums.n += 1;
            }
        }
        sums
    };
    (0..n_outputs).map(one).collect()
}

/// The worst of several; NaN counts as the worst.
fn worst(values: impl Iterator<Item = f64>, start: f64, is_worse: fn(f64, f64) -> bool) -> f64 {
    values.fold(start, |worst, value| if value.is_nan() || is_worse(value, worst) { value } else { worst })
}

pub(super) fn relative(got: &[Vec<Tensor>], want: &[Vec<Tensor>]) -> f64 {
    let one = |sums: Sums| match sums.error {
        0.0 => 0.0,
        error => (error / sums.norm.max(f64::MIN_POSITIVE)).sqrt(),
    };
    worst(sums(got, want).into_iter().map(one), 0.0, |a, b| a > b)
}

fn psnr(got: &[Vec<Tensor>], want: &[Vec<Tensor>]) -> f64 {
    let one = |sums: Sums| match sums.error {
        0.0 => f64::INFINITY,
        error => 20.0 * ((sums.high - sums.low) / (error / sums.n as f64).sqrt()).log10(),
    };
    worst(sums(got, want).into_iter().map(one), f64::INFINITY, |a, b| a < b)
}

fn cosine(got: &[Vec<Tensor>], want: &[Vec<Tensor>]) -> f64 {
    let one = |place: usize| {
        let cosines = got.iter().zip(want).map(|(got, want)| {
            let (x, y) = (got[place].to_f64s(), want[place].to_f64s());
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let norms = (dot(&x, &x) * dot(&y, &y)).sqrt();
            if norms > 0.0 { dot(&x, &y) / norms } else { 1.0 }
        });
        cosines.sum::<f64>() / got.len().max(1) as f64
    };
    worst((0..want.first().map_or(0, Vec::len)).map(one), 1.0, |a, b| a < b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs(rows: &[&[f32]]) -> Vec<Vec<Tensor>> {
        rows.iter().map(|row| vec![Tensor::new(&[1, row.len()], row.to_vec()).unwrap()]).collect()
    }

    fn sample() -> Sample {
        Sample::new(Vec::new(), 1)
    }

    #[test]
    fn outputs_are_measured_in_four_ways() {
        let data = ContractData::new(vec![sample(), sample(), sample()], Some(vec![0, 1, 1])).unwrap();
        let want = outputs(&[&[3.0, 1.0], &[0.0, 2.0], &[1.0, 4.0]]);
        let got = outputs(&[&[3.0, 1.0], &[0.0, 2.0], &[4.0, 1.0]]);
        let all = [0, 1, 2];
        let value = |measure: Measure| data.value(&Contract::new(measure, 1.0), &all, &got, &want);
        assert_eq!(value(Measure::RelativeL2), (18f64 / 31.0).sqrt());
        assert_eq!(value(Measure::Psnr), 20.0 * (4.0 / 3f64.sqrt()).log10());
        assert!((value(Measure::Cosine) - (2.0 + 8.0 / 17.0) / 3.0).abs() < 1e-12);
        assert!((value(Measure::Top1Drop) - 100.0 / 3.0).abs() < 1e-12);
        assert_eq!(data.half(Half::Search, 9), [0, 2]);
        assert_eq!(data.half(Half::HeldOut, 9), [1]);
        let nan = outputs(&[&[f32::NAN, 1.0], &[0.0, 2.0], &[1.0, 4.0]]);
        assert!(relative(&nan, &want).is_nan() && relative(&want, &want) == 0.0);
    }

    #[test]
    fn every_row_needs_a_label() {
        assert!(ContractData::new(vec![sample()], None).is_err());
        let error = ContractData::new(vec![sample(), sample()], Some(vec![1])).unwrap_err();
        assert_eq!(error.to_string(), "1 labels are given for 2 samples; each needs one");
    }
}
