//! Runs in blocks: what a machine with other work on it lets one tell of the time that a run takes.
//!
//! Single runs lie: on a busy machine they are cut by others, and what disturbs them comes in stretches that are longer than
//! a run. So times are kept by blocks of some tens of milliseconds. Beside its median each block has the time that our
//! threads worked and that they waited for a processor.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Blocks of a measurement.
pub(super) const BLOCKS: u32 = 40;
/// Reading the accounts must not take its share of the time.
pub(super) const SHORTEST_BLOCK: Duration = Duration::from_millis(5);

/// Some runs in a row.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Block {
    pub(crate) runs: usize,
    pub(crate) median_ms: f64,
    /// The time that a quarter of the runs did not exceed.
    pub(crate) quarter_ms: f64,
    /// What our threads worked for a run; `None` where the system does not tell, or others of our contexts ran beside.
    pub(crate) cpu_ms: Option<f64>,
    /// What they waited for a processor, for a run.
    pub(crate) waited_ms: Option<f64>,
}

impl Block {
    /// Of runs alone.
    fn of(times: &[Duration]) -> Block {
        let mut ms: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        ms.sort_by(f64::total_cmp);
        let at =
            |part: f64| ms.get((part * (ms.len() as f64 - 1.0)).round() as usize).copied().unwrap_or(0.0);
        Block { runs: ms.len(), median_ms: at(0.5), quarter_ms: at(0.25), ..Block::default() }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "runs": self.runs, "median_ms": self.median_ms, "quarter_ms": self.quarter_ms, "cpu_ms": self.cpu_ms,
            "waited_ms": self.waited_ms,
        })
    }
}

/// Runs that were timed in one go, cut into blocks of about equal length.
pub(super) fn cut(times: &[Duration]) -> Vec<Block> {
    let length = times.iter().sum::<Duration>() / BLOCKS;
    let (mut blocks, mut begun, mut sum) = (Vec::new(), 0, Duration::ZERO);
    for (at, time) in times.iter().enumerate() {
        sum += *time;
        if sum >= length || at + 1 == times.len() {
            blocks.push(Block::of(&times[begun..=at]));
            (begun, sum) = (at + 1, Duration::ZERO);
        }
    }
    blocks
}

/// What the threads of this process worked, and waited for a processor. Beside other work on the machine that says more than
/// the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Usage {
    pub(super) worked: Duration,
    pub(super) waited: Duration,
}

impl Usage {
    /// Up to now; `None` where the system does not tell.
    pub(super) fn now() -> Option<Usage> {
        // The system brings a thread's account up to date when it gives the processor away.
        std::thread::yield_now();
        let tasks = std::fs::read_dir("/proc/self/task").ok()?;
        let mut sum = [0u64; 2];
        for task in tasks.flatten() {
            let Ok(text) = std::fs::read_to_string(task.path().join("schedstat")) else { continue };
            let mut numbers = text.split_whitespace().map_while(|word| word.parse::<u64>().ok());
            for part in &mut sum {
                *part += numbers.next().unwrap_or(0);
            }
        }
        let [worked, waited] = sum.map(Duration::from_nanos);
        (!worked.is_zero()).then_some(Usage { worked, waited })
    }
}

/// A block that is being run.
pub(super) struct Begun {
    usage: Option<Usage>,
    at: Instant,
}

impl Begun {
    pub(super) fn now() -> Begun {
        Begun { usage: Usage::now(), at: Instant::now() }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.at.elapsed()
    }

    /// The block of these runs, and how long it was.
    pub(super) fn end(self, times: &[Duration]) -> (Block, Duration) {
        let wall = self.at.elapsed();
        let used = self.usage.zip(Usage::now());
        let per_run = |time: Duration| time.as_secs_f64() * 1e3 / times.len().max(1) as f64;
        let block = Block {
            cpu_ms: used.map(|(from, to)| per_run(to.worked.saturating_sub(from.worked))),
            waited_ms: used.map(|(from, to)| per_run(to.waited.saturating_sub(from.waited))),
            ..Block::of(times)
        };
        (block, wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cut_into_blocks_of_equal_length() {
        let times: Vec<Duration> = (0..400).map(|n| Duration::from_micros(100 + n % 3)).collect();
        let blocks = cut(&times);
        assert!((blocks.len() as i64 - i64::from(BLOCKS)).abs() <= 4, "{}", blocks.len());
        assert_eq!(blocks.iter().map(|block| block.runs).sum::<usize>(), 400);
        assert!(blocks.iter().all(|block| (0.1..=0.102).contains(&block.median_ms)));
        assert!(cut(&[]).is_empty());
        assert_eq!(blocks[0].json()["runs"], blocks[0].runs);
    }

    #[test]
    fn a_block_has_its_runs_and_its_account() {
        let (block, wall) = Begun::now().end(&[Duration::from_millis(2), Duration::from_millis(4)]);
        assert!(wall > Duration::ZERO && block.runs == 2 && block.median_ms > 1.0);
        // Threads of other tests that end take their account with them, so that two sums cannot be compared here.
        assert!(Usage::now().is_none_or(|usage| !usage.worked.is_zero()));
    }
}
