//! Runs in blocks: what a machine with other work on it lets one tell of the time that a run takes.
//!
//! Single runs lie: on a busy machine they are cut by others, and what disturbs them comes in stretches that are longer than
//! a run. So times are kept by blocks of some tens of milliseconds. Beside its median each block has the time that our
//! threads worked and that they waited for a processor, and a *ruler*: the time of a fixed piece of arithmetic right before
//! it. Where the ruler is slow, so is the machine (a busy sibling of the core, a lower clock), and not the plan.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Blocks of a measurement.
pub(super) const BLOCKS: u32 = 40;
/// Beside shorter ones the ruler would take its share of the time.
pub(super) const SHORTEST_BLOCK: Duration = Duration::from_millis(5);
/// Elements of the ruler, within the first cache, and how often it goes over them: some hundred microseconds.
const RULER_ELEMENTS: usize = 2048;
const RULER_ROUNDS: usize = 120;
/// The middle one of so many rulers.
const RULERS: usize = 5;

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
    pub(crate) ruler_us: Option<f64>,
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
            "waited_ms": self.waited_ms, "ruler_us": self.ruler_us,
        })
    }

    pub(super) fn from_json(value: &Value) -> Option<Block> {
        let number =
            |name: &str| value.get(name).and_then(Value::as_f64).filter(|x| x.is_finite() && *x >= 0.0);
        Some(Block {
            runs: value.get("runs")?.as_u64()? as usize,
            median_ms: number("median_ms").filter(|ms| *ms > 0.0)?,
            quarter_ms: number("quarter_ms").filter(|ms| *ms > 0.0)?,
            cpu_ms: number("cpu_ms"),
            waited_ms: number("waited_ms"),
            ruler_us: number("ruler_us"),
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

/// A fixed piece of arithmetic.
pub(super) struct Ruler(Vec<f32>);

impl Ruler {
    pub(super) fn new() -> Ruler {
        Ruler((0..RULER_ELEMENTS).map(|at| at as f32).collect())
    }

    /// Microseconds that it takes now.
    fn read(&mut self) -> f64 {
        let mut times = [0.0; RULERS];
        for time in &mut times {
            let begun = Instant::now();
            for _ in 0..RULER_ROUNDS {
                // Every element stays between 0 and its start, so that none becomes slow to compute with.
                self.0.iter_mut().for_each(|x| *x = *x * 0.5 + 0.25);
                std::hint::black_box(&mut self.0);
            }
            *time = begun.elapsed().as_secs_f64() * 1e6;
        }
        times.sort_by(f64::total_cmp);
        times[RULERS / 2]
    }
}

/// A block that is being run.
pub(super) struct Begun {
    ruler_us: f64,
    usage: Option<Usage>,
    at: Instant,
}

impl Begun {
    pub(super) fn now(ruler: &mut Ruler) -> Begun {
        let ruler_us = ruler.read();
        Begun { ruler_us, usage: Usage::now(), at: Instant::now() }
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
            ruler_us: Some(self.ruler_us),
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
        let json = blocks[0].json();
        assert_eq!(Block::from_json(&json), Some(blocks[0].clone()));
        assert_eq!(Block::from_json(&serde_json::json!({ "runs": 1, "median_ms": "fast" })), None);
    }

    #[test]
    fn the_ruler_and_the_account_go_forward() {
        let mut ruler = Ruler::new();
        let begun = Begun::now(&mut ruler);
        let (block, wall) = begun.end(&[Duration::from_millis(2), Duration::from_millis(4)]);
        assert!(block.ruler_us.unwrap() > 0.0 && wall > Duration::ZERO && block.runs == 2);
        assert!((0..10).all(|_| ruler.read() > 0.0) && ruler.0.iter().all(|x| x.is_normal()));
    }
}
