//! What a list of times comes to: moments and percentiles.

use std::time::Duration;

use serde_json::{Value, json};

/// Milliseconds.
pub(crate) struct Stats {
    pub(crate) mean: f64,
    pub(crate) median: f64,
    pub(crate) std: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) p90: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) trimmed_mean: f64,
    pub(crate) trimmed_std: f64,
}

impl Stats {
    pub(crate) fn new(times: &[Duration], trim_percent: u32) -> Stats {
        let mut ms: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        ms.sort_by(f64::total_cmp);
        let moments = |list: &[f64]| {
            let mean = list.iter().sum::<f64>() / list.len().max(1) as f64;
            let variance = list.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / list.len().max(1) as f64;
            (mean, variance.sqrt())
        };
        // The nearest rank: the smallest time that this share of the runs did not exceed.
        let rank = |percent: f64| {
            let at = (percent / 100.0 * ms.len() as f64).ceil() as usize;
            ms.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        let cut = (ms.len() * trim_percent.min(49) as usize) / 100;
        let (mean, std) = moments(&ms);
        let (trimmed_mean, trimmed_std) = moments(&ms[cut..ms.len() - cut]);
        Stats {
            mean,
            median: rank(50.0),
            std,
            min: ms.first().copied().unwrap_or(0.0),
            max: ms.last().copied().unwrap_or(0.0),
            p90: rank(90.0),
            p95: rank(95.0),
            p99: rank(99.0),
            trimmed_mean,
            trimmed_std,
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "median_ms": self.median, "mean_ms": self.mean, "std_ms": self.std, "min_ms": self.min,
            "max_ms": self.max, "p90_ms": self.p90, "p95_ms": self.p95, "p99_ms": self.p99,
            "trimmed_mean_ms": self.trimmed_mean, "trimmed_std_ms": self.trimmed_std,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let times: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        let stats = Stats::new(&times, 10);
        assert_eq!(
            (stats.min, stats.median, stats.p90, stats.p99, stats.max),
            (1.0, 50.0, 90.0, 99.0, 100.0)
        );
        assert!((stats.mean - 50.5).abs() < 1e-9 && (stats.trimmed_mean - 50.5).abs() < 1e-9);
        assert!(stats.trimmed_std < stats.std);
    }
}
