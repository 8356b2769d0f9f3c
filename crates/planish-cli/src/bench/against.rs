//! `bench --against base.json`: whether a plan became slower, or the machine only looks so.
//!
//! Two measurements at different times cannot be interleaved, so what drifts between them must be modelled. Blocks are
//! compared as logarithms, by the time that is least disturbed (`Clock`), with each block's ruler as covariate: its slope is
//! fitted within the two measurements, so that a ruler that tells nothing changes nothing. What is left between two
//! processes of one plan (where its memory lies) cannot be seen from within; it enters as a variance of its own.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use planish::{Error, ErrorKind};
use serde_json::{Value, json};

use super::blocks::Block;
use super::told::{LEAST_BLOCKS, Z95, independent, quantile, sorted};
use crate::ending::Answer;

/// The standard deviation of the time of one plan between processes, as a part of it.
const BETWEEN_PROCESSES: f64 = 0.006;
/// Blocks farther from the median than so many of their deviations were disturbed, and are left out.
const OUTLIER: f64 = 3.0;

/// A stored result.
pub(super) struct Base {
    path: PathBuf,
    report: Value,
    blocks: Vec<Block>,
}

/// Which time of a block is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Clock {
    /// The wall's: the time of a run's quarter.
    Wall,
    /// What our threads worked: others cannot hold that up.
    Worked,
}

/// What was found.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Verdict {
    /// By how much the new time is longer, as a part of the old one.
    change: f64,
    /// The ends of its interval at 95 %.
    interval: [f64; 2],
    /// Smaller changes are none.
    tolerance: f64,
    clock: Clock,
}

/// What a verdict comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Slower,
    Faster,
    Same,
    CannotTell,
}

impl Base {
    pub(super) fn open(path: &Path) -> Result<Base> {
        let name = path.display();
        let text = planish::files::text::read(path).with_context(|| format!("cannot read {name}"))?;
        let text = text.with_context(|| format!("cannot read {name}: there is no such file"))?;
        let report: Value = serde_json::from_str(&text).with_context(|| format!("{name} is not JSON"))?;
        let blocks = report.get("blocks").and_then(Value::as_array);
        let blocks =
            blocks.and_then(|blocks| blocks.iter().map(Block::from_json).collect::<Option<Vec<_>>>());
        let Some(blocks) = blocks else {
            bail!("{name} is no result of `planish bench --json={name}`: it has no blocks of runs");
        };
        ensure!(
            blocks.len() >= LEAST_BLOCKS,
            "{name} has {} blocks of runs, and fewer than {LEAST_BLOCKS} tell nothing; take it with a longer --duration",
            blocks.len()
        );
        Ok(Base { path: path.to_path_buf(), report, blocks })
    }

    /// Refuses a result that was taken otherwise.
    pub(super) fn check(&self, setting: &Value) -> Result<()> {
        for (name, now) in setting.as_object().into_iter().flatten() {
            let then = self.report.get(name).unwrap_or(&Value::Null);
            ensure!(
                then == now,
                "{} was taken with {name} {then}, and this is {now}; take both alike",
                self.path.display()
            );
        }
        Ok(())
    }

    /// Compares with blocks of now.
    pub(super) fn compare(&self, blocks: &[Block], tolerance: f64) -> Verdict {
        compare(&self.blocks, blocks, tolerance)
    }
}

fn compare(base: &[Block], now: &[Block], tolerance: f64) -> Verdict {
    let worked = |blocks: &[Block]| blocks.iter().all(|block| block.cpu_ms.is_some_and(|ms| ms > 0.0));
    let clock = if worked(base) && worked(now) { Clock::Worked } else { Clock::Wall };
    let (base, now) = (Side::new(base, clock), Side::new(now, clock));
    let slope = Side::slope(&base, &now);
    let [(old, old_error), (new, new_error)] = [&base, &now].map(|side| side.level(slope));
    let error = (old_error.powi(2) + new_error.powi(2) + 2.0 * BETWEEN_PROCESSES.powi(2)).sqrt();
    let difference = new - old;
    let ends = [difference - Z95 * error, difference + Z95 * error];
    Verdict { change: difference.exp_m1(), interval: ends.map(f64::exp_m1), tolerance, clock }
}

/// One measurement: logarithms of times and rulers of its blocks.
struct Side {
    times: Vec<f64>,
    rulers: Vec<f64>,
}

impl Side {
    fn new(blocks: &[Block], clock: Clock) -> Side {
        let time = |block: &Block| match clock {
            Clock::Wall => block.quarter_ms,
            Clock::Worked => block.cpu_ms.unwrap_or(block.quarter_ms),
        };
        Side {
            times: blocks.iter().map(|block| time(block).max(1e-9).ln()).collect(),
            // Without a ruler all are the same.
            rulers: blocks.iter().map(|block| block.ruler_us.unwrap_or(1.0).max(1e-9).ln()).collect(),
        }
    }

    /// How much of the ruler's movement the times follow, within both sides: between none of it and all.
    fn slope(a: &Side, b: &Side) -> f64 {
        let (mut along, mut square) = (0.0, 0.0);
        for side in [a, b] {
            let (time, ruler) = (middle(&side.times), middle(&side.rulers));
            for (x, y) in side.rulers.iter().zip(&side.times) {
                along += (x - ruler) * (y - time);
                square += (x - ruler).powi(2);
            }
        }
        if square > 0.0 { (along / square).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// The level of the times without what the ruler tells, and its standard error.
    fn level(&self, slope: f64) -> (f64, f64) {
        let values: Vec<f64> =
            self.times.iter().zip(&self.rulers).map(|(time, ruler)| time - slope * ruler).collect();
        let median = middle(&values);
        let deviations: Vec<f64> = values.iter().map(|x| (x - median).abs()).collect();
        // Of a normal distribution the median of deviations is 0.6745 of the standard deviation.
        let deviation = middle(&deviations) / 0.6745;
        let kept: Vec<f64> =
            values.iter().copied().filter(|x| (x - median).abs() <= OUTLIER * deviation.max(1e-12)).collect();
        let mean = kept.iter().sum::<f64>() / kept.len().max(1) as f64;
        (mean, deviation / independent(&kept).sqrt())
    }
}

fn middle(values: &[f64]) -> f64 {
    quantile(&sorted(values), 0.5)
}

impl Verdict {
    fn kind(&self) -> Kind {
        let [low, high] = self.interval;
        match () {
            () if low > 0.0 && self.change > self.tolerance => Kind::Slower,
            () if high < 0.0 && self.change < -self.tolerance => Kind::Faster,
            // A change that matters is not shut out, and none is shown.
            () if (high - low) / 2.0 > WIDEST => Kind::CannotTell,
            () => Kind::Same,
        }
    }

    pub(super) fn line(&self) -> String {
        let percent = |part: f64| format!("{:+.1} %", 100.0 * part);
        let [low, high] = self.interval.map(percent);
        let what = match self.kind() {
            Kind::Slower => "SLOWER",
            Kind::Faster => "faster",
            Kind::Same => "the same",
            Kind::CannotTell => "cannot be told",
        };
        let clock = match self.clock {
            Clock::Wall => "time of a run",
            Clock::Worked => "processor time of a run",
        };
        format!("{what}: {clock} {} ({low} to {high} at 95 %)", percent(self.change))
    }

    pub(super) fn json(&self) -> Value {
        let verdict = match self.kind() {
            Kind::Slower => "slower",
            Kind::Faster => "faster",
            Kind::Same => "same",
            Kind::CannotTell => "cannot tell",
        };
        let clock = if self.clock == Clock::Wall { "wall" } else { "processor" };
        json!({ "verdict": verdict, "change": self.change, "change_interval": self.interval, "clock": clock })
    }

    /// No where it is slower; an error where this machine does not let one tell.
    pub(super) fn answer(&self) -> Result<Answer> {
        match self.kind() {
            Kind::Slower => Ok(Answer::No),
            Kind::Faster | Kind::Same => Ok(Answer::Yes),
            Kind::CannotTell => {
                let half = 100.0 * (self.interval[1] - self.interval[0]) / 2.0;
                Err(anyhow!(Error::new(
                    ErrorKind::Lacking,
                    format!(
                        "the machine is too restless to compare: the change is known to ±{half:.1} % only; try a longer \
                         --duration, or a quieter machine"
                    )
                )))
            }
        }
    }
}

/// An interval wider than this on each side does not shut out what matters.
const WIDEST: f64 = 0.05;
