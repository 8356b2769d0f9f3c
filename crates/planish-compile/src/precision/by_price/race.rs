//! Whole plans run in turns, where the prices of their steps are too close to tell which is faster.

use std::time::{Duration, Instant};

use planish_op::Value;
use planish_runtime::{Context, Engine};

use crate::backends::Backends;
use crate::build::{Assembled, Optimized, assemble};
use crate::check::random_inputs;
use crate::error::BuildError;
use crate::options::BuildOptions;
use crate::price::cache::TimingCache;
use crate::stages::Stages;

/// How often it is each plan's turn, and how long it runs then.
const TURNS: usize = 14;
const TURN: Duration = Duration::from_millis(25);
const LEAST_RUNS: usize = 3;

/// The nanoseconds of a run of each, the shortest of all: what else the machine does only adds to a run. `None` where they
/// cannot be run on made-up inputs.
pub(super) fn race(
    all: &[(&Optimized, &BuildOptions)],
    backends: Backends<'_>,
    timings: &mut TimingCache,
) -> Result<Option<Vec<f64>>, BuildError> {
    let mut runners = Vec::new();
    for &(optimized, options) in all {
        let Optimized { graph, is_fixed, .. } = optimized;
        let Assembled { plan, .. } =
            assemble(graph, *is_fixed, backends, options, timings, &mut Stages::start())?;
        let Some(inputs) = random_inputs(&plan) else { return Ok(None) };
        let engine = Engine::new(plan, backends.all().to_vec());
        let Ok(context) = engine.and_then(|engine| engine.context()) else { return Ok(None) };
        runners.push((context, inputs, f64::INFINITY));
    }
    for turn in 0..=TURNS {
        for ((context, inputs, best), (_, options)) in runners.iter_mut().zip(all) {
            options.go_on()?;
            let Some(ns) = one_turn(context, inputs) else { return Ok(None) };
            // The first one brings everything into place.
            *best = if turn == 0 { *best } else { best.min(ns) };
        }
    }
    Ok(Some(runners.into_iter().map(|(.., best)| best).collect()))
}

/// The shortest of as many runs as fit into a turn, at least three: the first one finds the other plan in the caches.
fn one_turn(context: &mut Context, inputs: &[Value]) -> Option<f64> {
    let (began, mut shortest, mut n_runs) = (Instant::now(), f64::INFINITY, 0);
    while n_runs < LEAST_RUNS || began.elapsed() < TURN {
        let run = Instant::now();
        context.run_values(inputs).ok()?;
        shortest = shortest.min(run.elapsed().as_nanos() as f64);
        n_runs += 1;
    }
    Some(shortest)
}
