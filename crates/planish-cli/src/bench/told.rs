//! What blocks of runs tell: an interval for the median, and whether the machine was too restless to tell more.

use serde_json::{Value, json};

use super::blocks::Block;
use crate::print;

/// The quantile of a normal distribution that leaves 2.5 % at each end.
const Z95: f64 = 1.96;
/// Fewer blocks tell nothing of what lies between them.
const LEAST_BLOCKS: usize = 6;
/// A median that is known no better than this, as a part of it, does not tell plans apart that differ by a few percent.
const RESTLESS: f64 = 0.02;
/// Neither do runs that others held up for so large a part of their time.
const HELD_UP: f64 = 0.05;

/// What a measurement is worth.
pub(super) struct Told {
    /// The ends between which the median lies at 95 %.
    pub(super) interval_ms: Option<[f64; 2]>,
    median_ms: f64,
    /// The part of the time that runs waited for a processor.
    held_up: Option<f64>,
}

impl Told {
    pub(super) fn of(blocks: &[Block]) -> Told {
        let medians: Vec<f64> = blocks.iter().map(|block| block.median_ms).collect();
        let sums = |of: fn(&Block) -> Option<f64>| {
            let each = blocks.iter().map(|block| Some(of(block)? * block.runs as f64));
            each.sum::<Option<f64>>()
        };
        let held_up = sums(|block| block.waited_ms).zip(sums(|block| block.cpu_ms));
        Told {
            interval_ms: interval(&medians),
            median_ms: quantile(&sorted(&medians), 0.5),
            held_up: held_up.map(|(waited, worked)| waited / (waited + worked).max(f64::MIN_POSITIVE)),
        }
    }

    /// Half the interval as a part of the median.
    fn half_width(&self) -> Option<f64> {
        self.interval_ms.map(|[low, high]| (high - low) / 2.0 / self.median_ms)
    }

    pub(super) fn is_restless(&self) -> bool {
        self.half_width().is_some_and(|half| half > RESTLESS)
            || self.held_up.is_some_and(|part| part > HELD_UP)
    }

    /// The line of the alarm; `None` where there is nothing to say.
    pub(super) fn alarm(&self) -> Option<String> {
        if !self.is_restless() {
            return None;
        }
        let mut why = Vec::new();
        if let Some(part) = self.held_up.filter(|part| *part > HELD_UP) {
            why.push(format!("other work held runs up for {:.0} % of their time", 100.0 * part));
        }
        if let Some(half) = self.half_width() {
            why.push(format!("the median is known to ±{:.1} %", 100.0 * half));
        }
        Some(format!(
            "the machine is restless: {}; a longer --duration, or a quieter machine",
            why.join(", ")
        ))
    }

    /// The interval in words.
    pub(super) fn line(&self) -> String {
        match self.interval_ms {
            Some([low, high]) => format!(" ({} to {} at 95 %)", print::number(low), print::number(high)),
            None => String::new(),
        }
    }

    pub(super) fn json(&self) -> [(&'static str, Value); 3] {
        [
            ("median_interval_ms", json!(self.interval_ms)),
            ("held_up_share", json!(self.held_up)),
            ("restless", json!(self.is_restless())),
        ]
    }
}

pub(super) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

/// A quantile of sorted numbers, between two of them where it falls there.
pub(super) fn quantile(sorted: &[f64], part: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = part.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * (at - at.floor())
}

/// As many independent numbers as a row of numbers is worth that hang on those before them.
fn independent(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    let variance: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    let along: f64 = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    let rho = if variance > 0.0 { (along / variance).clamp(0.0, 0.9) } else { 0.0 };
    (n * (1.0 - rho) / (1.0 + rho)).max(2.0)
}

/// The ends of a 95 % interval for the median, by ranks: no shape of the distribution is taken for granted.
fn interval(values: &[f64]) -> Option<[f64; 2]> {
    if values.len() < LEAST_BLOCKS {
        return None;
    }
    let half = Z95 * 0.5 / independent(values).sqrt();
    let sorted = sorted(values);
    Some([quantile(&sorted, 0.5 - half), quantile(&sorted, 0.5 + half)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(medians: &[f64], waited: f64) -> Vec<Block> {
        let block = |&median_ms: &f64| Block {
            runs: 10,
            median_ms,
            cpu_ms: Some(median_ms),
            waited_ms: Some(waited * median_ms),
            ..Block::default()
        };
        medians.iter().map(block).collect()
    }

    #[test]
    fn a_quiet_machine_gives_a_narrow_interval_and_no_alarm() {
        let quiet: Vec<f64> = (0..40).map(|n| 1.0 + 0.001 * f64::from(n * 7 % 11)).collect();
        let told = Told::of(&blocks(&quiet, 0.0));
        let [low, high] = told.interval_ms.unwrap();
        assert!(1.002 < low && low < high && high < 1.008, "{low} {high}");
        assert!(told.alarm().is_none());
        assert!(Told::of(&blocks(&quiet[..3], 0.0)).interval_ms.is_none());
    }

    #[test]
    fn a_restless_machine_raises_an_alarm() {
        let restless: Vec<f64> = (0..40).map(|n| 1.0 + 0.05 * f64::from(n * 7 % 11)).collect();
        let alarm = Told::of(&blocks(&restless, 0.0)).alarm().unwrap();
        assert!(alarm.contains("known to ±"), "{alarm}");
        let held_up = Told::of(&blocks(&[1.0; 40], 0.25)).alarm().unwrap();
        assert!(held_up.contains("20 % of their time"), "{held_up}");
    }

    #[test]
    fn what_drifts_is_worth_less() {
        let alternating: Vec<f64> = (0..40).map(|n| f64::from(n % 2)).collect();
        let drifting: Vec<f64> = (0..40).map(f64::from).collect();
        assert_eq!(independent(&alternating), 40.0);
        assert!(independent(&drifting) < 5.0);
    }
}
