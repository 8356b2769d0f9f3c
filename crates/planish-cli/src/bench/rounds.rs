//! The time that a run takes if nobody disturbs it, told on a machine where somebody always does.
//!
//! Whole runs are disturbed on a busy machine, nearly all of them: they are cut, and a busy sibling of the core halves their
//! speed. Single steps are short, and each of them is left alone now and then. So runs are profiled, and for every step the
//! shortest times are kept: the median of those that lie close to the very shortest. Their sum is the *undisturbed* time.
//! It is taken in rounds, each with an engine and a context of its own, since where memory lies makes a percent as well;
//! what rounds differ by is what the result is worth.

use planish::Profiled;
use serde_json::{Value, json};

use super::blocks::Block;
use super::told::{quantile, sorted};

/// Times of a step up to this part above the shortest count as undisturbed: all of the jitter of a step that is left alone,
/// while a busy sibling of the core costs far more. On 2 cores with 12 processes medians within 20 % had half the spread
/// from process to process of those within 8 % (0.58 against 1.04 %), and a third of that of the very shortest (1.93 %).
const CLOSE: f64 = 0.2;
/// So many undisturbed times of the middle step end a round; with fewer than the second number it tells nothing.
const ENOUGH: usize = 8;
const LEAST: usize = 4;
/// A round that is this many times as long as the shortest was never left alone.
const DISTURBED: f64 = 1.15;

/// The times of all steps, by step.
#[derive(Default)]
pub(super) struct Steps(Vec<Vec<u64>>);

impl Steps {
    pub(super) fn add(&mut self, profiled: &Profiled) {
        self.0.resize(profiled.steps.len().max(self.0.len()), Vec::new());
        for time in &profiled.steps {
            self.0[time.step].push(time.ns);
        }
    }

    /// The undisturbed time, and how many times of the middle step it stands on.
    fn undisturbed(&self) -> Option<(f64, usize)> {
        let (mut sum, mut counts) = (0.0, Vec::new());
        for times in self.0.iter().filter(|times| !times.is_empty()) {
            let shortest = times.iter().copied().min()? as f64;
            let close: Vec<f64> =
                times.iter().map(|&ns| ns as f64).filter(|ns| *ns <= shortest * (1.0 + CLOSE)).collect();
            counts.push(close.len());
            sum += quantile(&sorted(&close), 0.5) / 1e6;
        }
        counts.sort_unstable();
        Some((sum, *counts.get(counts.len() / 2)?)).filter(|(ms, _)| *ms > 0.0)
    }

    /// Whether more runs are not needed.
    pub(super) fn are_settled(&self) -> bool {
        self.undisturbed().is_some_and(|(_, n_clean)| n_clean >= ENOUGH)
    }
}

/// One engine and context.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Round {
    /// The undisturbed time; where steps were not timed, that of a quarter of the runs.
    pub(super) ms: f64,
    /// How many undisturbed times it stands on.
    n_clean: usize,
}

impl Round {
    pub(super) fn of(steps: &Steps, blocks: &[Block]) -> Option<Round> {
        if let Some((ms, n_clean)) = steps.undisturbed() {
            return Some(Round { ms, n_clean });
        }
        let quarters: Vec<f64> = blocks.iter().map(|block| block.quarter_ms).collect();
        let ms = quantile(&sorted(&quarters), 0.5);
        (ms > 0.0).then_some(Round { ms, n_clean: blocks.iter().map(|block| block.runs / 4).sum() })
    }

    pub(super) fn json(&self) -> Value {
        json!({ "undisturbed_ms": self.ms, "clean_times": self.n_clean })
    }

    pub(super) fn from_json(value: &Value) -> Option<Round> {
        let ms = value.get("undisturbed_ms")?.as_f64().filter(|ms| ms.is_finite() && *ms > 0.0)?;
        Some(Round { ms, n_clean: value.get("clean_times")?.as_u64()? as usize })
    }
}

/// The times of the rounds that were left alone.
pub(super) fn undisturbed(rounds: &[Round]) -> Vec<f64> {
    let settled = rounds.iter().filter(|round| round.n_clean >= LEAST).map(|round| round.ms);
    let shortest = settled.clone().fold(f64::INFINITY, f64::min);
    settled.filter(|ms| *ms <= DISTURBED * shortest).collect()
}

#[cfg(test)]
mod tests {
    use planish::StepTime;

    use super::*;

    #[test]
    fn the_undisturbed_time_is_that_of_the_shortest_steps() {
        let mut steps = Steps::default();
        // Two steps of 100 and 50 us, one of them disturbed in every run.
        for run in 0..40u64 {
            let jitter = run % 5 * 1000;
            let times =
                if run % 2 == 0 { [100_000 + jitter, 95_000] } else { [190_000, 50_000 + jitter / 2] };
            let list = times.iter().enumerate().map(|(step, &ns)| StepTime { step, ns });
            steps.add(&Profiled { steps: list.collect(), total_ns: times.iter().sum() });
        }
        let round = Round::of(&steps, &[]).unwrap();
        assert!((0.150..0.156).contains(&round.ms) && steps.are_settled(), "{round:?}");
        let disturbed = Round { ms: 0.3, ..round };
        let few = Round { ms: 0.1, n_clean: 1 };
        assert_eq!(undisturbed(&[round, disturbed, few, round]), [round.ms; 2]);
        assert_eq!(Round::from_json(&round.json()), Some(round));
        assert!(Round::of(&Steps::default(), &[]).is_none() && !Steps::default().are_settled());
    }
}
