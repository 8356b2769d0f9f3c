//! What each alternative costs, measured on the device as the network would run it.
//!
//! Activations stay where the step before would have left them, in cache; weights come from further away, so
//! several copies are read in turn. Candidates are run in turns, so that a slow moment of the machine meets all
//! of them; a device's median counts, and what a quarter of the host's samples did not exceed.
//!
//! A device's launches are captured as a run would capture them, several with rotating weights in one graph, and
//! timed by the device's own events around a replay: gaps between launches count as they will in a run. Their code is
//! compiled on the other cores in the meantime.

use std::collections::{HashMap, HashSet};
use std::thread;
use std::time::Instant;

use planish_kernel::{
    Backend, KernelError, KernelErrorKind, MemoryKind, Problem, Queue, QueueOptions, Tactic, Wait,
};

use crate::backends::Backends;
use crate::budget;
use crate::code::Ahead;
use crate::error::{BuildError, BuildErrorKind};
use crate::lower::candidates::{Alternative, Choices};
use crate::lower::{Draft, DraftStep, Source};
use crate::options::BuildOptions;
use crate::price::cache::{TimingCache, TimingKey};
use crate::price::policy::{
    DROP_RATIO, FEW_COMPILED_UP_TO, MAX_COMPILED, MAX_COMPILED_RATIO, MAX_DEVICE_ROTATION_BYTES,
    MAX_PREDICTED_RATIO, SAVE_EVERY, TIMING_CORES, UNMEASURED, rounds,
};
use crate::price::trial::{Trial, TrialInputs};

/// What is to be measured, once for all places of the list that ask for the same: a time that each of them got for
/// itself would not be the one that the cache gives them later.
struct Open {
    places: Vec<usize>,
    posed: Problem,
    key: TimingKey,
}

/// What is being measured.
struct Rival {
    places: Vec<usize>,
    key: TimingKey,
    trial: Trial,
}

impl Rival {
    /// Takes over what was measured.
    fn end(self, choices: &mut Choices, cache: &mut TimingCache) {
        choices.price(&self.places, self.trial.typical());
        cache.insert(self.key, self.trial.entry());
    }
}

impl Choices {
    /// Takes over a measured time.
    fn price(&mut self, places: &[usize], median_ns: u64) {
        for &at in places {
            self.list[at].ns = median_ns as f64;
            self.list[at].measured = true;
        }
    }

    /// A candidate that cannot be prepared or launched is not a candidate. One that takes the device with it ends the
    /// build: nothing else can be tried in this process.
    fn refuse(&mut self, places: &[usize], error: &KernelError) -> Result<(), BuildError> {
        for &at in places {
            self.list[at].ns = f64::INFINITY;
        }
        let tactic = &self.list[places[0]].candidate.tactic;
        if *error.kind() == KernelErrorKind::DeviceLost {
            let message = format!("while {tactic} was measured: {error}");
            return Err(BuildError::new(BuildErrorKind::DeviceLost, message));
        }
        self.refused.push(format!("{tactic} is left out, it cannot run: {error}"));
        Ok(())
    }
}

/// A step whose alternatives want prices.
pub(crate) struct Asked<'a> {
    pub(crate) step: &'a DraftStep,
    pub(crate) choices: &'a mut Choices,
    /// Whether an alternative without a rival wants one too.
    pub(crate) alone: bool,
}

/// Prices the alternatives of steps; times come from the cache or go into it.
pub(crate) fn measure(
    draft: &Draft,
    asked: &mut [Asked<'_>],
    backends: Backends<'_>,
    options: &BuildOptions,
    cache: &mut TimingCache,
) -> Result<(), BuildError> {
    if rounds(options.tune_level) == 0 {
        return Ok(());
    }
    let is_late = backends.is_late(options.build_time);
    let ahead = Ahead::new(if is_late { Vec::new() } else { open_code(asked, backends, options, cache) });
    let n_cores = thread::available_parallelism().map_or(1, usize::from);
    if n_cores < 2 * TIMING_CORES {
        ahead.finish(n_cores);
    }
    thread::scope(|scope| {
        ahead.start(scope, n_cores - TIMING_CORES.min(n_cores));
        let timed = time(draft, asked, backends, options, cache);
        ahead.stop();
        timed
    })
}

/// Times what the cache does not know, step by step; what is still being compiled is waited for.
fn time(
    draft: &Draft,
    asked: &mut [Asked<'_>],
    backends: Backends<'_>,
    options: &BuildOptions,
    cache: &mut TimingCache,
) -> Result<(), BuildError> {
    let rounds = rounds(options.tune_level);
    let rotation = rotation_bytes(draft);
    let mut saved = Instant::now();
    let n_steps = asked.len();
    for (idx, Asked { step, choices, alone }) in asked.iter_mut().enumerate() {
        options.go_on()?;
        options.tell("tune", idx, n_steps);
        let Some(problem) = choices.problem.clone() else { continue };
        let backend = backends.get(step.target);
        let device = backend.target().device;
        let rivals = choices.list.iter().filter(|alternative| !alternative.view).count();
        if rivals < 2 && !*alone {
            continue;
        }
        let best = choices.list.iter().filter(|a| !a.view).map(|a| a.ns).fold(f64::INFINITY, f64::min);
        if let Some(why) = budget::too_long_to_time(&problem, best) {
            choices.refused.push(why);
            continue;
        }
        let worth = worth_timing(&prices(choices, backend), is_few(backend, options));
        let mut open = Vec::new();
        for (at, alternative) in choices.list.iter_mut().enumerate() {
            if alternative.view {
                continue;
            }
            let posed = problem.for_candidate(&alternative.candidate);
            let key = timing_key(backend, &device, &posed, &alternative.candidate.tactic);
            // Not looked up either: whether another list had it measured must not change what this one says.
            if !worth[at] {
                continue;
            }
            if let Some(entry) = cache.get(&key) {
                alternative.ns = entry.median_ns as f64;
                alternative.measured = true;
            } else if let Some(same) = open.iter_mut().find(|one: &&mut Open| one.key == key) {
                same.places.push(at);
            } else if !backends.is_late(options.build_time) {
                open.push(Open { places: vec![at], posed, key });
            }
        }
        let weight = |place: usize| match step.inputs[place].map(|value| &draft.values[value].source) {
            Some(Source::Weight(tensor)) => Some(tensor),
            _ => None,
        };
        let mut queue = match open.is_empty() {
            true => None,
            false => Some(queue(backend, options.threads)?),
        };
        let mut inputs = TrialInputs::new(backend, &weight, rotation);
        let mut trials: Vec<Rival> = Vec::new();
        // Why nothing may be left in the end: for want of memory, if that was so of any.
        let mut why: Option<KernelError> = None;
        let is_short = |why: &KernelError| *why.kind() == KernelErrorKind::OutOfMemory;
        let mut fastest = u64::MAX;
        let is_alone = open.len() == 1;
        let is_behind = |trial: &Trial, fastest: u64| trial.typical() as f64 > fastest as f64 * DROP_RATIO;
        // The first round: who is far behind leaves at once, so that only rivals' weights are in memory together.
        for Open { places, posed, key } in open {
            options.go_on()?;
            let tactic = &choices.list[places[0]].candidate.tactic;
            let tried = Trial::new(&posed, tactic, &mut inputs).and_then(|mut trial| {
                if let (false, Some(queue)) = (options.timing_cache_only, &mut queue) {
                    trial.sample(&mut **queue)?;
                    // Who is behind, or has nobody to be compared with, gets another chance: a sample may have been cut.
                    if is_alone || is_behind(&trial, fastest) {
                        trial.sample(&mut **queue)?;
                        trial.sample(&mut **queue)?;
                    }
                    fastest = fastest.min(trial.typical());
                }
                Ok(trial)
            });
            match tried {
                Ok(trial) => trials.push(Rival { places, key, trial }),
                Err(error) => {
                    choices.refuse(&places, &error)?;
                    why = why.take().filter(is_short).or(Some(error));
                }
            }
            let leaves = |rival: &mut Rival| is_behind(&rival.trial, fastest);
            trials.extract_if(.., leaves).for_each(|rival| rival.end(choices, cache));
        }
        if let (true, [Rival { places, .. }, ..]) = (options.timing_cache_only, &trials[..]) {
            let message = format!(
                "--timing-cache-only: {} of {rivals} times of `{}` are not in the cache, that of {} among them; \
                 build once without it",
                trials.len(),
                problem.region.title(),
                choices.list[places[0]].candidate.tactic
            );
            return Err(BuildError::new(BuildErrorKind::Refused, message));
        }
        for _ in 1..rounds {
            options.go_on()?;
            let Some(queue) = queue.as_mut().filter(|_| trials.len() > 1) else { break };
            let mut lost = Ok(());
            trials.retain_mut(|Rival { places, trial, .. }| match trial.sample(&mut **queue) {
                Ok(()) => true,
                Err(error) => {
                    lost = choices.refuse(places, &error);
                    why = why.take().filter(is_short).or(Some(error));
                    false
                }
            });
            lost?;
        }
        trials.into_iter().for_each(|rival| rival.end(choices, cache));
        if let Some(why) = why
            && choices.list.iter().all(|alternative| alternative.ns == f64::INFINITY)
        {
            let message = format!("nothing can compute `{}`: {why}", problem.region.title());
            return Err(BuildError::of_kernel(&why, message));
        }
        if let Some(path) = &options.timing_cache
            && saved.elapsed() >= SAVE_EVERY
        {
            cache.save(path)?;
            saved = Instant::now();
        }
        // What was not measured is priced by the model, and must not win against what was.
        let slowest = choices.list.iter().filter(|a| a.measured).map(|a| a.ns).fold(0.0, f64::max);
        for alternative in choices.list.iter_mut().filter(|a| !a.measured && !a.view) {
            alternative.ns = alternative.ns.max(slowest * UNMEASURED);
        }
    }
    Ok(())
}

fn queue(backend: &dyn Backend, threads: usize) -> Result<Box<dyn Queue>, BuildError> {
    let options = QueueOptions { threads, wait: Wait::Spin };
    backend.queue(options).map_err(|error| BuildError::of_kernel(&error, error.to_string()))
}

/// Bytes of the model's weights, within bounds.
fn rotation_bytes(draft: &Draft) -> usize {
    let bytes = |value: &crate::lower::DraftValue| match &value.source {
        Source::Weight(tensor) => tensor.bytes().len(),
        Source::Input | Source::Step => 0,
    };
    draft.values.iter().map(bytes).sum::<usize>().min(MAX_DEVICE_ROTATION_BYTES)
}

/// What a time is kept under. A library's tactic has the library's version after it: another version may take another
/// time for it, or not have it. A device's time does not follow the threads of the host that asks for it, so that a cache
/// serves hosts with other numbers of cores.
fn timing_key(backend: &dyn Backend, device: &str, problem: &Problem, tactic: &Tactic) -> TimingKey {
    let mut name = tactic.to_string();
    for need in backend.tactic_needs(tactic) {
        name.push(' ');
        name.push_str(&need);
    }
    let threads = match backend.memory_kind() {
        MemoryKind::Device => 1,
        MemoryKind::Host => problem.threads,
    };
    let problem = Problem { threads, ..problem.clone() }.timing_key();
    TimingKey { device: device.to_string(), problem, tactic: name }
}

/// The price of each alternative with its source; views cost nothing and are never timed.
fn prices(choices: &Choices, backend: &dyn Backend) -> Vec<Option<(f64, &'static str)>> {
    let price = |a: &Alternative| (!a.view).then(|| (a.ns, backend.source(&a.candidate.tactic)));
    choices.list.iter().map(price).collect()
}

/// Whether few candidates are looked at: on a device each is compiled first.
fn is_few(backend: &dyn Backend, options: &BuildOptions) -> bool {
    backend.memory_kind() == MemoryKind::Device && options.tune_level <= FEW_COMPILED_UP_TO
}

/// Which alternatives are timed, going by their prices and sources.
fn worth_timing(prices: &[Option<(f64, &str)>], few: bool) -> Vec<bool> {
    let best = prices.iter().flatten().map(|(ns, _)| *ns).fold(f64::INFINITY, f64::min);
    let (ratio, most) =
        if few { (MAX_COMPILED_RATIO, MAX_COMPILED) } else { (MAX_PREDICTED_RATIO, usize::MAX) };
    let near = |price: &(usize, f64, &str)| price.1 <= best * ratio;
    let mut order: Vec<(usize, f64, &str)> = prices
        .iter()
        .enumerate()
        .filter_map(|(at, price)| price.map(|(ns, source)| (at, ns, source)))
        .filter(near)
        .collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut n_of: HashMap<&str, usize> = HashMap::new();
    let mut worth = vec![false; prices.len()];
    for (at, _, source) in order {
        let n = n_of.entry(source).or_default();
        *n += 1;
        worth[at] = *n <= most;
    }
    worth
}

/// The code of all that is going to be measured on devices, each once, in the order in which it will be.
fn open_code<'a>(
    asked: &[Asked<'_>],
    backends: Backends<'a>,
    options: &BuildOptions,
    cache: &TimingCache,
) -> Vec<(&'a dyn Backend, Problem, Tactic)> {
    let mut seen = HashSet::new();
    let mut work = Vec::new();
    for Asked { step, choices, .. } in asked {
        let backend = backends.get(step.target);
        let Some(problem) = choices.problem.as_ref().filter(|_| backend.memory_kind() == MemoryKind::Device)
        else {
            continue;
        };
        let device = backend.target().device;
        let worth = worth_timing(&prices(choices, backend), is_few(backend, options));
        for (alternative, _) in choices.list.iter().zip(worth).filter(|(_, worth)| *worth) {
            let posed = problem.for_candidate(&alternative.candidate);
            let key = timing_key(backend, &device, &posed, &alternative.candidate.tactic);
            if cache.get(&key).is_none() && seen.insert((step.target, key.problem, key.tactic)) {
                work.push((backend, posed, alternative.candidate.tactic.clone()));
            }
        }
    }
    work
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_looks_at_few_of_each_source() {
        let own = (0..40).map(|at| Some((100.0 + f64::from(at), "own")));
        let rest = [
            Some((199.0, "cudnn")),
            Some((201.0, "cudnn")),
            Some((399.0, "own")),
            Some((401.0, "own")),
            None,
        ];
        let prices: Vec<_> = own.rev().chain(rest).collect();
        let few = worth_timing(&prices, true);
        let kept: Vec<usize> = (0..prices.len()).filter(|&at| few[at]).collect();
        assert_eq!(
            kept,
            (40 - MAX_COMPILED..=40).collect::<Vec<_>>(),
            "the nearest of ours, and cuDNN's within twice"
        );
        let all = worth_timing(&prices, false);
        assert_eq!(all.iter().filter(|worth| **worth).count(), 43);
        assert!(!all[43] && !all[44], "beyond the ratio, and a view");
    }
}
