//! Two plans at hand, run in turn: which is faster, on a machine that is never left alone.
//!
//! What disturbs one run disturbs the next as well, so each pair of runs gives a quotient of times, and the median over many
//! pairs tells plans apart whose times alone could not be told apart. The order within pairs changes from pair to pair. A plan
//! of one thread is timed by what that thread worked, so that it does not count when others have the processor. Where memory
//! lies makes a percent: so there are rounds, each with engines and contexts of its own, and what the rounds differ by is
//! what the result is worth.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use cpu_time::ThreadTime;
use planish::{Context as Lane, ContextOptions, Engine, Tensor, View};

use super::against::{STUDENT, Verdict};
use super::told::{quantile, sorted};

/// Rounds that there are at least, and at most.
const LEAST_ROUNDS: usize = 8;
const MOST_ROUNDS: usize = 40;
/// A change that is known as well as this needs no more rounds.
const WELL_KNOWN: f64 = 0.008;
/// So many times the duration are taken at most.
const PATIENCE: u32 = 5;
/// Pairs that a round has at least.
const LEAST_PAIRS: usize = 3;

/// One of the two.
pub(crate) struct Side<'a> {
    /// Opens the plan, every time in other memory.
    pub(crate) open: &'a dyn Fn() -> Result<Engine>,
    pub(crate) inputs: &'a [(String, Tensor)],
    pub(crate) threads: usize,
    /// What a run counts for: samples, where both sides have other batches.
    pub(crate) weight: f64,
}

/// What was found.
pub(crate) struct Paired {
    /// Of the second against the first.
    pub(crate) verdict: Verdict,
    /// Medians of all runs.
    pub(crate) ms: [f64; 2],
    pub(crate) pairs: usize,
    pub(crate) rounds: usize,
}

/// A side that is open.
struct Open<'a> {
    /// Kept, so that the next engine lies elsewhere.
    _engine: Engine,
    context: Lane,
    views: Vec<View<'a>>,
    by_thread: bool,
}

impl<'a> Open<'a> {
    fn new(side: &Side<'a>) -> Result<Open<'a>> {
        let engine = (side.open)()?;
        let by_thread = side.threads == 1 && engine.record().device().is_none();
        let mut context = engine.context_with(ContextOptions::new(side.threads))?;
        let views: Vec<View<'a>> = side.inputs.iter().map(|(_, tensor)| View::from(tensor)).collect();
        for _ in 0..2 {
            context.run_in_order(&views).context("the run failed")?;
        }
        Ok(Open { _engine: engine, context, views, by_thread })
    }

    fn run(&mut self) -> Result<f64> {
        let (wall, worked) = (Instant::now(), self.by_thread.then(ThreadTime::try_now).and_then(Result::ok));
        self.context.run_in_order(&self.views)?;
        let time = worked.map_or_else(|| wall.elapsed(), |worked| worked.elapsed());
        Ok(time.as_secs_f64().max(1e-9))
    }
}

/// Runs both in turn until the change is known well, or for `duration` times the patience at most.
pub(crate) fn compare(sides: [&Side<'_>; 2], duration: Duration, tolerance: f64) -> Result<Paired> {
    let share = duration / LEAST_ROUNDS as u32;
    let begun = Instant::now();
    let (mut rounds, mut times): (Vec<f64>, [Vec<f64>; 2]) = (Vec::new(), Default::default());
    let mut last = None;
    while rounds.len() < MOST_ROUNDS {
        let (_, interval) = level(&rounds);
        let is_known = interval.is_some_and(|half| half <= WELL_KNOWN);
        if rounds.len() >= LEAST_ROUNDS && (is_known || begun.elapsed() > PATIENCE * duration) {
            break;
        }
        let mut open = [Open::new(sides[0])?, Open::new(sides[1])?];
        let start = Instant::now();
        let mut quotients = Vec::new();
        while start.elapsed() < share || quotients.len() < LEAST_PAIRS {
            let first = (quotients.len() + rounds.len()) % 2;
            let mut pair = [0.0; 2];
            for which in [first, 1 - first] {
                pair[which] = open[which].run()? / sides[which].weight;
            }
            times.iter_mut().zip(pair).for_each(|(times, seconds)| times.push(seconds * 1e3));
            quotients.push((pair[1] / pair[0]).ln());
        }
        rounds.push(quantile(&sorted(&quotients), 0.5));
        last = Some(open);
    }
    drop(last);
    let (change, half) = level(&rounds);
    let half = half.unwrap_or(f64::INFINITY);
    let verdict = Verdict::new(change, half, tolerance, "time of runs in turn");
    let ms = [0, 1].map(|which| quantile(&sorted(&times[which]), 0.5));
    Ok(Paired { verdict, ms, pairs: times[0].len(), rounds: rounds.len() })
}

/// The mean of the rounds and half of its interval at 95 %. A round that lies far from the middle of all was one in which
/// something else happened: those beyond three times the usual distance (by the median) are left out.
fn level(rounds: &[f64]) -> (f64, Option<f64>) {
    let middle = quantile(&sorted(rounds), 0.5);
    let apart: Vec<f64> = rounds.iter().map(|round| (round - middle).abs()).collect();
    // The median of distances is 0.67 standard deviations.
    let most = 3.0 / 0.6745 * quantile(&sorted(&apart), 0.5);
    let kept: Vec<f64> =
        rounds.iter().copied().filter(|round| (round - middle).abs() <= most.max(1e-6)).collect();
    let n = kept.len() as f64;
    if kept.len() < 3 {
        return (middle, None);
    }
    let mean = kept.iter().sum::<f64>() / n;
    let variance = kept.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let student = STUDENT[(kept.len() - 1).clamp(1, STUDENT.len()) - 1];
    (mean, Some(student * (variance / n).sqrt()))
}

#[cfg(test)]
mod tests {
    use planish::{Builder, Device};

    use super::*;

    #[test]
    fn a_round_in_which_something_else_happened_is_left_out() {
        let (mean, half) = level(&[0.030, 0.031, 0.029, 0.032, 0.028, 0.030, 0.4, 0.031]);
        assert!((mean - 0.030).abs() < 0.002 && half.unwrap() < 0.005, "{mean} {half:?}");
        assert_eq!(level(&[0.1, 0.2]).1, None);
    }

    #[test]
    fn twice_the_work_is_slower_and_the_same_is_not() {
        let plan = |n: usize| {
            let mut text = String::from("graph \"g\" {\n input %x: f32[64,64]\n");
            for number in 0..n {
                let from = if number == 0 { "x".to_string() } else { format!("y{}", number - 1) };
                text += &format!(" %y{number}: f32[64,64] = MatMul(%{from}, %x)\n");
            }
            text += &format!(" output %y{}\n}}", n - 1);
            let builder =
                Builder::from_graph(text.parse().unwrap()).threads(1).tune_level(0).device(Device::Cpu);
            builder.build().unwrap()
        };
        let (short, long) = (plan(10), plan(20));
        let open = |plan: &planish::Plan| Ok(Engine::new(plan.clone(), Device::Cpu)?);
        let (open_short, open_long) = (|| open(&short), || open(&long));
        let inputs = [("x".to_string(), Tensor::new(&[64, 64], vec![0.01f32; 64 * 64]).unwrap())];
        let side = |open| Side { open, inputs: &inputs, threads: 1, weight: 1.0 };
        let (one, two) = (side(&open_short), side(&open_long));
        let found = compare([&one, &two], Duration::from_millis(160), 0.01).unwrap();
        assert!(
            found.verdict.is_slower() && found.rounds >= LEAST_ROUNDS && found.pairs >= 24,
            "{:?}",
            found.verdict
        );
        let found = compare([&two, &one], Duration::from_millis(160), 0.01).unwrap();
        assert!(found.verdict.is_faster() && found.ms[0] > found.ms[1], "{:?}", found.verdict);
        // A sample of a batch counts for itself.
        let halves = Side { weight: 2.0, ..side(&open_long) };
        let found = compare([&one, &halves], Duration::from_millis(160), 0.2).unwrap();
        assert!(!found.verdict.is_slower() && !found.verdict.is_faster(), "{:?}", found.verdict);
    }
}
