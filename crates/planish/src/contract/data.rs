//! What a contract is measured on: samples, half of them for the search and half held out, and their labels.

use planish_tensor::Tensor;

use super::{Contract, Measure};
use crate::{Error, ErrorKind, LabelCount, Metrics, Sample};

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
            measure => measure.worst(&metrics(got, want)),
        }
    }
}

/// Rows of the first output whose largest element is where the label says.
fn n_right(outputs: &[Tensor], labels: &[i64]) -> usize {
    let mut count = LabelCount::default();
    if let Some(scores) = outputs.first() {
        count.add(scores, labels);
    }
    count.top1
}

/// Every output over all samples.
fn metrics(got: &[Vec<Tensor>], want: &[Vec<Tensor>]) -> Vec<Metrics> {
    let mut all = vec![Metrics::default(); want.first().map_or(0, Vec::len)];
    for (got, want) in got.iter().zip(want) {
        for ((metrics, got), want) in all.iter_mut().zip(got).zip(want) {
            metrics.add(got, want);
        }
    }
    all
}

pub(super) fn relative(got: &[Vec<Tensor>], want: &[Vec<Tensor>]) -> f64 {
    Measure::RelativeL2.worst(&metrics(got, want))
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
        assert!(relative(&nan, &want) == f64::INFINITY && relative(&want, &want) == 0.0);
    }

    #[test]
    fn every_row_needs_a_label() {
        assert!(ContractData::new(vec![sample()], None).is_err());
        let error = ContractData::new(vec![sample(), sample()], Some(vec![1])).unwrap_err();
        assert_eq!(error.to_string(), "1 labels are given for 2 samples; each needs one");
    }
}
