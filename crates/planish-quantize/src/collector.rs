//! The values of all observed tensors, sample by sample, and when more of them stop mattering.

use std::collections::HashMap;

use crate::calibration::{Calibration, Range};
use crate::calibrator::Calibrator;
use crate::channels::ChannelObserver;
use crate::error::{CalibrationError, CalibrationErrorKind};
use crate::moments::SecondMoments;
use crate::observer::{NotFinite, Observer};

/// Thresholds that differ by less than this share are the same: the noise of rounding changes by 0.4 dB.
const SAME: f32 = 0.05;
/// Thresholds are compared with those after half of the samples, a quarter, and so on down to this many.
const FIRST_CHECKPOINT: usize = 16;

/// Gathers what is seen of each tensor.
#[derive(Debug)]
pub struct Collector {
    calibrator: Calibrator,
    /// In the order of their first values.
    tensors: Vec<Watched>,
    by_name: HashMap<String, usize>,
    /// What layers read, in the order of their first values.
    channels: Vec<(String, ChannelObserver)>,
    moments: HashMap<String, SecondMoments>,
    n_samples: usize,
    /// Thresholds of all tensors after so many samples, which double from one to the next.
    checkpoints: Vec<(usize, Vec<f32>)>,
}

#[derive(Debug)]
struct Watched {
    name: String,
    observer: Observer,
    /// The first sample, counted from 1, with infinities, and how many there were in it.
    infinite: Option<(usize, NotFinite)>,
}

/// A tensor that gets no threshold, since it becomes infinite: as the masks of some models do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOut {
    pub tensor: String,
    /// The first sample, counted from 1, in which it was infinite.
    pub sample: usize,
}

/// A calibration, and what whoever asked for it should know.
#[derive(Debug)]
pub struct Collected {
    pub calibration: Calibration,
    /// How the channels go together of what matrix products read, where rows were shown.
    pub moments: HashMap<String, SecondMoments>,
    /// The number of samples after which every threshold was within 5 % of the final one and stayed there; `None` where
    /// that was not seen.
    pub settled_after: Option<usize>,
    /// The tensor whose threshold moved most during the second half of the samples, and by what share; `None` where
    /// there were too few samples to tell.
    pub moved_most: Option<(String, f32)>,
    /// Tensors without a threshold.
    pub left_out: Vec<LeftOut>,
}

impl Collector {
    pub fn new(calibrator: Calibrator) -> Collector {
        Collector {
            calibrator,
            tensors: Vec::new(),
            by_name: HashMap::new(),
            channels: Vec::new(),
            moments: HashMap::new(),
            n_samples: 0,
            checkpoints: Vec::new(),
        }
    }

    /// Takes in the values that a tensor has in the run under way. A NaN is an error. A tensor that becomes infinite is
    /// left out of the calibration; masks are the honest case.
    pub fn observe(&mut self, name: &str, values: &[f32]) -> Result<(), CalibrationError> {
        let sample = self.n_samples + 1;
        let tensor = self.watched(name);
        match tensor.observer.observe(values) {
            Ok(()) => Ok(()),
            Err(why) if why.n_nan == 0 => {
                tensor.infinite.get_or_insert((sample, why));
                Ok(())
            }
            Err(why) => Err(not_finite(name, sample, why)),
        }
    }

    /// The same for an input of the model, where infinities are errors, too: they come from the data.
    pub fn observe_input(&mut self, name: &str, values: &[f32]) -> Result<(), CalibrationError> {
        let sample = self.n_samples + 1;
        let observed = self.watched(name).observer.observe(values);
        observed.map_err(|why| not_finite(name, sample, why))
    }

    /// Takes in what a layer reads, with `n_channels` channels of which `inner` values each lie side by side.
    pub fn observe_channels(&mut self, name: &str, values: &[f32], n_channels: usize, inner: usize) {
        let at = self.channels.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            self.channels.push((name.to_string(), ChannelObserver::default()));
            self.channels.len() - 1
        });
        self.channels[at].1.observe(values, n_channels, inner);
    }

    /// Takes in the rows that a matrix product reads.
    pub fn observe_rows(&mut self, name: &str, rows: &[f32], n_channels: usize) {
        if !self.moments.contains_key(name) {
            self.moments.insert(name.to_string(), SecondMoments::new(n_channels));
        }
        let moments = self.moments.get_mut(name).filter(|moments| moments.n_channels() == n_channels);
        if let Some(moments) = moments {
            moments.observe(rows);
        }
    }

    fn watched(&mut self, name: &str) -> &mut Watched {
        let idx = match self.by_name.get(name) {
            Some(&idx) => idx,
            None => {
                let (name, idx) = (name.to_string(), self.tensors.len());
                self.by_name.insert(name.clone(), idx);
                self.tensors.push(Watched { name, observer: Observer::default(), infinite: None });
                idx
            }
        };
        &mut self.tensors[idx]
    }

    /// Ends a run, which had so many samples in it.
    pub fn end_run(&mut self, n_samples: usize) {
        self.n_samples += n_samples;
        let due = self.checkpoints.last().map_or(FIRST_CHECKPOINT, |(at, _)| 2 * at);
        if self.n_samples >= due {
            let thresholds = self.thresholds();
            self.checkpoints.push((self.n_samples, thresholds));
        }
    }

    /// How many samples were seen.
    pub fn n_samples(&self) -> usize {
        self.n_samples
    }

    fn thresholds(&self) -> Vec<f32> {
        self.tensors.iter().map(|tensor| self.calibrator.threshold(&tensor.observer)).collect()
    }

    /// The ranges of all tensors as this calibrator finds them, whichever the collector is for.
    pub fn ranges_by(&self, calibrator: Calibrator) -> Vec<(String, Range)> {
        let of = |tensor: &Watched| {
            let (min, max) = tensor.observer.range().filter(|_| tensor.infinite.is_none())?;
            Some((tensor.name.clone(), Range { min, max, threshold: calibrator.threshold(&tensor.observer) }))
        };
        self.tensors.iter().filter_map(of).collect()
    }

    /// The calibration of the model with this name and hash.
    pub fn finish(self, model: &str, hash: Option<[u8; 32]>) -> Result<Collected, CalibrationError> {
        if self.n_samples == 0 {
            let message = "there are no samples; calibration needs some, 100 to 500 are usual";
            return Err(CalibrationError::new(CalibrationErrorKind::BadValues, message));
        }
        let thresholds = self.thresholds();
        let (settled_after, moved_most) = self.settling(&thresholds);
        let mut calibration = Calibration {
            model: model.to_string(),
            hash,
            calibrator: self.calibrator.to_string(),
            n_samples: self.n_samples as u64,
            ..Calibration::default()
        };
        let seen = |(name, observer): (String, ChannelObserver)| Some((name, observer.channels()?));
        calibration.channels = self.channels.into_iter().filter_map(seen).collect();
        let mut left_out = Vec::new();
        for (tensor, threshold) in self.tensors.into_iter().zip(thresholds) {
            if let Some((sample, _)) = tensor.infinite {
                left_out.push(LeftOut { tensor: tensor.name, sample });
            } else if let Some((min, max)) = tensor.observer.range() {
                calibration.ranges.push((tensor.name, Range { min, max, threshold }));
            }
        }
        Ok(Collected { calibration, moments: self.moments, settled_after, moved_most, left_out })
    }

    fn settling(&self, last: &[f32]) -> (Option<usize>, Option<(String, f32)>) {
        // Only comparisons with at most half of the samples say something about more of them.
        let earlier = self.checkpoints.iter().filter(|(at, _)| 2 * at <= self.n_samples);
        let earlier: Vec<(usize, Option<(usize, f32)>)> =
            earlier.map(|(at, thresholds)| (*at, most_moved(thresholds, last))).collect();
        let is_settled = |moved: &Option<(usize, f32)>| moved.is_none_or(|(_, share)| share < SAME);
        let settled = earlier.iter().rev().take_while(|(_, moved)| is_settled(moved)).last();
        let moved_most = earlier.last().and_then(|(_, moved)| *moved);
        let moved_most = moved_most.map(|(idx, share)| (self.tensors[idx].name.clone(), share));
        (settled.map(|(at, _)| *at), moved_most)
    }
}

/// Which threshold moved most, and by what share of its final value.
fn most_moved(then: &[f32], last: &[f32]) -> Option<(usize, f32)> {
    // A tensor that was not there then has moved all the way.
    let then = then.iter().copied().chain(std::iter::repeat(0.0));
    let shares =
        then.zip(last).map(|(then, &last)| if last == then { 0.0 } else { (last - then).abs() / last });
    shares.enumerate().max_by(|a, b| a.1.total_cmp(&b.1))
}

impl Collected {
    /// In words: whether more samples would change anything, and which tensors stay as they are.
    pub fn notes(&self) -> Vec<String> {
        let n_samples = self.calibration.n_samples;
        let mut notes = Vec::new();
        match (self.settled_after, &self.moved_most) {
            (Some(after), _) => notes.push(format!(
                "after {after} samples all thresholds were within 5 % of those after {n_samples}; more samples change \
                 little"
            )),
            (None, Some((tensor, share))) => notes.push(format!(
                "thresholds still moved by up to {:.0} % (`{tensor}`) in the second half of the samples; more than \
                 {n_samples} samples may give others",
                100.0 * share
            )),
            (None, None) => notes.push(format!(
                "{n_samples} samples are too few to tell whether more would change anything; 100 to 500 are usual"
            )),
        }
        for LeftOut { tensor, sample } in &self.left_out {
            notes.push(format!(
                "`{tensor}` is infinite in sample {sample}; it has no threshold and stays in float"
            ));
        }
        notes
    }
}

fn not_finite(name: &str, sample: usize, why: NotFinite) -> CalibrationError {
    let message = format!(
        "`{name}` has {why} in sample {sample}, which have no range; look at that sample and at its preprocessing"
    );
    CalibrationError::new(CalibrationErrorKind::BadValues, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_testing::Random;

    #[test]
    fn ranges_come_in_the_order_of_the_graph() {
        let mut collector = Collector::new(Calibrator::MinMax);
        for sample in 0..3 {
            collector.observe_input("x", &[sample as f32, -0.5]).unwrap();
            collector.observe("b", &[1.0]).unwrap();
            collector.observe("a", &[0.0, -0.0]).unwrap();
            collector.observe("empty", &[]).unwrap();
            collector.end_run(1);
        }
        // Of one value or none, all calibrators say the same.
        let by_another = collector.ranges_by(Calibrator::Percentile(100.0));
        let collected = collector.finish("m", Some([7; 32])).unwrap();
        let range = |min, max, threshold| Range { min, max, threshold };
        let expected = [
            ("x".to_string(), range(-0.5, 2.0, 2.0)),
            ("b".to_string(), range(1.0, 1.0, 1.0)),
            ("a".to_string(), range(0.0, 0.0, 0.0)),
        ];
        assert_eq!(collected.calibration.ranges, expected);
        assert_eq!(by_another, expected);
        assert_eq!(collected.calibration.n_samples, 3);
        assert!(collected.notes()[0].starts_with("3 samples are too few"), "{:?}", collected.notes());
    }

    #[test]
    fn more_samples_stop_mattering() {
        let mut random = Random::new(11);
        let mut collector = Collector::new(Calibrator::MinMax);
        for sample in 0..200 {
            // The whole range is there from the 20th sample on.
            let reach = if sample < 20 { 0.5 } else { 1.0 };
            let values: Vec<f32> = random.list(50).iter().map(|value| value * 0.4 * reach).collect();
            collector.observe("x", &values).unwrap();
            collector.observe("x", &[reach]).unwrap();
            collector.end_run(1);
        }
        let collected = collector.finish("m", None).unwrap();
        assert_eq!(collected.settled_after, Some(32));
        assert_eq!(
            collected.notes(),
            ["after 32 samples all thresholds were within 5 % of those after 200; more \
                                        samples change little"]
        );
    }

    #[test]
    fn ranges_that_grow_on_are_told() {
        let mut collector = Collector::new(Calibrator::MinMax);
        for sample in 1..=64 {
            collector.observe("still", &[1.0]).unwrap();
            collector.observe("growing", &[sample as f32]).unwrap();
            collector.end_run(1);
        }
        let collected = collector.finish("m", None).unwrap();
        assert_eq!(collected.settled_after, None);
        assert_eq!(collected.moved_most, Some(("growing".to_string(), 0.5)));
        assert!(collected.notes()[0].contains("by up to 50 % (`growing`)"), "{:?}", collected.notes());
    }

    #[test]
    fn what_is_not_finite_is_refused_or_left_out() {
        let mut collector = Collector::new(Calibrator::Entropy);
        collector.observe_input("x", &[1.0]).unwrap();
        collector.observe("mask", &[0.0, f32::NEG_INFINITY]).unwrap();
        collector.end_run(1);
        let error = collector.observe("y", &[f32::NAN]).unwrap_err();
        assert!(matches!(error.kind(), CalibrationErrorKind::BadValues));
        assert!(error.to_string().starts_with("`y` has 1 NaN value in sample 2"), "{error}");
        let error = collector.observe_input("x", &[f32::INFINITY]).unwrap_err();
        assert!(error.to_string().starts_with("`x` has 1 infinite value in sample 2"), "{error}");
        let collected = collector.finish("m", None).unwrap();
        assert_eq!(collected.left_out, [LeftOut { tensor: "mask".to_string(), sample: 1 }]);
        assert!(collected.calibration.get("mask").is_none() && collected.calibration.get("x").is_some());
        assert!(collected.notes()[1].starts_with("`mask` is infinite in sample 1"));
        assert!(Collector::new(Calibrator::Entropy).finish("m", None).is_err());
    }
}
