//! `bench --against base.json`: whether a plan became slower, or the machine only looks so.
//!
//! Where both plans are at hand they are run in turn (`paired`). Two measurements at different times cannot be: what is
//! compared then is what other work on the machine
//! changes least: the undisturbed times of rounds (`rounds`), as logarithms, by Welch's test.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use planish::{Error, ErrorKind};
use serde_json::{Value, json};

use super::rounds::{self, Round};
use crate::ending::Answer;

/// What two processes of one plan differ by, as a standard deviation of the time: rounds of one process do not show it. Seen
/// on 2 cores beside 12 busy processes.
const BETWEEN_PROCESSES: f64 = 0.006;
/// Fewer rounds tell nothing.
const LEAST_ROUNDS: usize = 3;
/// An interval that is wider than this on each side does not shut out what matters.
const WIDEST: f64 = 0.05;
/// What Student's distribution leaves 2.5 % of at each end, by degrees of freedom from 1 on.
pub(super) const STUDENT: [f64; 12] =
    [12.7, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18];

/// A stored result.
pub(super) struct Base {
    path: PathBuf,
    report: Value,
    rounds: Vec<Round>,
}

/// What was found.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Verdict {
    /// By how much the new time is longer, as a part of the old one.
    change: f64,
    /// The ends of its interval at 95 %; all that there is where too few rounds are left.
    interval: [f64; 2],
    /// Smaller changes are none.
    tolerance: f64,
    /// What changed.
    of: &'static str,
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
        let rounds = report.get("rounds").and_then(Value::as_array);
        let rounds =
            rounds.and_then(|rounds| rounds.iter().map(Round::from_json).collect::<Option<Vec<_>>>());
        let Some(rounds) = rounds else {
            bail!("{name} is no result of `planish bench --json={name}`: it has no rounds of runs");
        };
        Ok(Base { path: path.to_path_buf(), report, rounds })
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

    /// The plan that it was taken of, where it is still there as it was, and this is the program that took it: then nothing
    /// but the plans can differ, and both can be measured again, in turn.
    pub(super) fn plan_at_hand(&self) -> Option<PathBuf> {
        let is_ours = self.report.get("program")? == &stamp(&std::env::current_exe().ok()?)?;
        let file = self.report.get("plan_file")?;
        let path = PathBuf::from(file.get("path")?.as_str()?);
        (is_ours && stamp(&path)? == *file).then_some(path)
    }

    /// Compares with rounds of now.
    pub(super) fn compare(&self, rounds: &[Round], tolerance: f64) -> Verdict {
        compare(&self.rounds, rounds, tolerance)
    }
}

/// What tells a file from others, and from itself at other times.
pub(super) fn stamp(path: &Path) -> Option<Value> {
    let path = path.canonicalize().ok()?;
    let metadata = path.metadata().ok()?;
    let since = metadata.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(json!({ "path": path, "bytes": metadata.len(), "modified_ns": since.as_nanos() as u64 }))
}

fn compare(base: &[Round], now: &[Round], tolerance: f64) -> Verdict {
    let (old, new) = (Level::of(base), Level::of(now));
    let difference = new.mean - old.mean;
    let error = (old.error.powi(2) + new.error.powi(2) + 2.0 * BETWEEN_PROCESSES.powi(2)).sqrt();
    let freedom = (old.n + new.n).saturating_sub(2);
    let width = match old.n.min(new.n) >= LEAST_ROUNDS {
        true => STUDENT[freedom.clamp(1, STUDENT.len()) - 1] * error,
        false => f64::INFINITY,
    };
    Verdict::new(difference, width, tolerance, "undisturbed time")
}

/// Where the rounds of a measurement lie, as a logarithm.
struct Level {
    mean: f64,
    /// Standard error of the mean.
    error: f64,
    n: usize,
}

impl Level {
    fn of(rounds: &[Round]) -> Level {
        let logs: Vec<f64> = rounds::undisturbed(rounds).into_iter().map(f64::ln).collect();
        let n = logs.len();
        let mean = logs.iter().sum::<f64>() / n.max(1) as f64;
        let variance =
            logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n.saturating_sub(1).max(1) as f64;
        Level { mean, error: (variance / n.max(1) as f64).sqrt(), n }
    }
}

impl Verdict {
    /// Of a difference of logarithms and half of its interval.
    pub(super) fn new(difference: f64, half: f64, tolerance: f64, of: &'static str) -> Verdict {
        let interval = [difference - half, difference + half].map(f64::exp_m1);
        Verdict { change: difference.exp_m1(), interval, tolerance, of }
    }

    /// By how much the new time is longer, as a part of the old one.
    pub(crate) fn change(&self) -> f64 {
        self.change
    }

    pub(crate) fn is_slower(&self) -> bool {
        self.kind() == Kind::Slower
    }

    pub(crate) fn is_faster(&self) -> bool {
        self.kind() == Kind::Faster
    }

    fn kind(&self) -> Kind {
        let [low, high] = self.interval;
        match () {
            () if low > 0.0 && self.change > self.tolerance => Kind::Slower,
            () if high < 0.0 && self.change < -self.tolerance => Kind::Faster,
            // A change that matters is not shut out, and none is shown.
            () if high > WIDEST => Kind::CannotTell,
            () => Kind::Same,
        }
    }

    pub(crate) fn line(&self) -> String {
        let percent = |part: f64| format!("{:+.1} %", 100.0 * part);
        let what = match self.kind() {
            Kind::Slower => "SLOWER",
            Kind::Faster => "faster",
            Kind::Same => "the same",
            Kind::CannotTell => "cannot be told",
        };
        if self.interval[1].is_infinite() {
            return format!("{what}: too few runs were left alone");
        }
        let [low, high] = self.interval.map(percent);
        format!("{what}: {} {} ({low} to {high} at 95 %)", self.of, percent(self.change))
    }

    pub(crate) fn json(&self) -> Value {
        let verdict = match self.kind() {
            Kind::Slower => "slower",
            Kind::Faster => "faster",
            Kind::Same => "same",
            Kind::CannotTell => "cannot tell",
        };
        let is_known = self.interval[1].is_finite();
        json!({
            "verdict": verdict, "of": self.of, "change": is_known.then_some(self.change),
            "change_interval": is_known.then_some(self.interval), "tolerance": self.tolerance,
        })
    }

    /// No where it is slower; an error where this machine does not let one tell.
    pub(super) fn answer(&self) -> Result<Answer> {
        match self.kind() {
            Kind::Slower => Ok(Answer::No),
            Kind::Faster | Kind::Same => Ok(Answer::Yes),
            Kind::CannotTell => {
                let message =
                    "the machine is too restless to compare; try a longer --duration, or a quieter machine";
                Err(anyhow!(Error::new(ErrorKind::Lacking, message)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(list: &[f64]) -> Vec<Round> {
        let round = |ms: &f64| Round::from_json(&json!({ "undisturbed_ms": ms, "clean_times": 9 })).unwrap();
        list.iter().map(round).collect()
    }

    #[test]
    fn changes_beyond_the_noise_are_told_and_others_are_not() {
        let base = rounds(&[1.000, 1.004, 0.998, 1.002, 0.997, 1.001]);
        let kind = |list: &[f64]| compare(&base, &rounds(list), 0.01).kind();
        assert_eq!(kind(&[1.031, 1.027, 1.034, 1.030, 1.029, 1.033]), Kind::Slower);
        assert_eq!(kind(&[0.97, 0.972, 0.969, 0.971, 0.968, 0.97]), Kind::Faster);
        assert_eq!(kind(&[1.003, 0.999, 1.006, 1.001, 1.004, 1.002]), Kind::Same);
        // A round that was never left alone is left out; too few of them tell nothing.
        assert_eq!(kind(&[1.003, 0.999, 1.9, 1.001, 1.004, 1.002]), Kind::Same);
        assert_eq!(kind(&[1.003, 1.9, 1.8]), Kind::CannotTell);
        assert_eq!(kind(&[1.0, 1.08, 0.96, 1.09, 0.97, 1.05]), Kind::CannotTell);
    }
}
