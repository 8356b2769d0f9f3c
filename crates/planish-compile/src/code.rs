//! What the plan's tactics need of a machine, and the compiled code that the plan carries for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Scope};

use planish_kernel::{Backend, Code, MemoryKind, Problem, Tactic};
use planish_op::{Op, plugin};
use planish_plan::{Profile, Program, StepKind, SymbolRange};
use planish_tensor::Bytes;

use crate::backends::{Backends, HOST};
use crate::error::BuildError;
use crate::options::BuildOptions;
use crate::sizes::{OPEN_GROWTH, Sizes};

/// What a program needs beside itself.
#[derive(Debug, Default)]
pub(crate) struct Needed {
    /// (target, need), each once.
    pub(crate) needs: BTreeSet<(u32, String)>,
    /// By ascending key, each once.
    pub(crate) code: Vec<Code>,
}

/// Collects needs and code of every kernel step, bodies included: at the tuned sizes and at others that the plan
/// may run at, since kernels may be made for sizes (whole vectors or not, a line in registers or not) and a machine
/// that runs the plan may have no compiler.
pub(crate) fn needs_and_code(
    program: &Program,
    backends: Backends<'_>,
    sizes: &Sizes,
    options: &BuildOptions,
) -> Result<Needed, BuildError> {
    if backends.all().len() == 1 {
        let mut needs = BTreeSet::new();
        plugins_of(program, backends, &mut needs);
        return Ok(Needed { needs, code: Vec::new() });
    }
    let mut all = vec![sizes.all_pairs()];
    for point in points(&sizes.pairs(), &options.profiles) {
        let pairs = sizes.with(point.into_iter()).all_pairs();
        if !all.contains(&pairs) {
            all.push(pairs);
        }
    }
    let mut collected = Collected { needs: BTreeSet::new(), code: BTreeMap::new() };
    plugins_of(program, backends, &mut collected.needs);
    let mut wanted = Vec::new();
    collected.program(program, backends, options.threads, &all, &mut wanted);
    let of_devices = wanted.iter().filter(|want| want.target != HOST);
    let work = of_devices.map(|want| (backends.get(want.target), want.problem.clone(), want.tactic.clone()));
    Ahead::new(work.collect()).finish(thread::available_parallelism().map_or(1, usize::from));
    for Wanted { target, step, problem, tactic, is_tuned } in wanted {
        match backends.get(target).code(&problem, &tactic) {
            Ok(code) => collected.code.extend(code.into_iter().map(|Code { key, bytes }| (key, bytes))),
            Err(error) if is_tuned => {
                let message = format!("no code for `{step}` by {tactic}: {error}");
                return Err(BuildError::of_kernel(&error, message));
            }
            // A size that the model may not take at all.
            Err(_) => {}
        }
    }
    let code = collected.code.into_iter().map(|(key, bytes)| Code { key, bytes }).collect();
    Ok(Needed { needs: collected.needs, code })
}

/// The plugins that steps were computed by, on the host too, or whose reference they are.
fn plugins_of(program: &Program, backends: Backends<'_>, needs: &mut BTreeSet<(u32, String)>) {
    for step in &program.steps {
        let tactics: Vec<&Tactic> = match &step.kind {
            StepKind::Kernel { variants, .. } => variants.iter().map(|variant| &variant.tactic).collect(),
            StepKind::Control(control) => {
                control.bodies.iter().for_each(|body| plugins_of(body, backends, needs));
                continue;
            }
            StepKind::Transfer | StepKind::Evaluate => Vec::new(),
        };
        let custom = step.region.nodes.iter().filter_map(|node| match &node.op {
            Op::Custom(op) => plugin::find(op),
            _ => None,
        });
        for plugin in custom {
            let of = |tactic: &&Tactic| backends.get(step.target).tactic_needs(tactic);
            let mut own: Vec<String> =
                tactics.iter().flat_map(of).filter(|need| plugin::is_need(need)).collect();
            if own.is_empty() {
                own.push(plugin.identity().need());
            }
            needs.extend(own.into_iter().map(|need| (step.target, need)));
        }
    }
}

/// Points of a plan's sizes: all of a profile's where they are few, else where kernels may change. Where any size
/// is allowed, those around the tuned ones.
fn points(tuned: &[(String, i64)], profiles: &[Profile]) -> Vec<Vec<(String, i64)>> {
    let open = [Profile {
        ranges: tuned
            .iter()
            .map(|(symbol, size)| {
                let (min, max) = (1, size.saturating_mul(OPEN_GROWTH));
                SymbolRange { symbol: symbol.clone(), min, opt: *size, max }
            })
            .collect(),
    }];
    let is_open = profiles.is_empty();
    let profiles = if is_open { &open } else { profiles };
    let mut all = Vec::new();
    for Profile { ranges, .. } in profiles {
        let along: Vec<Vec<i64>> =
            ranges.iter().map(|range| if is_open { around(range) } else { telling(range) }).collect();
        let at = |pick: &dyn Fn(usize) -> i64| -> Vec<(String, i64)> {
            ranges.iter().enumerate().map(|(idx, range)| (range.symbol.clone(), pick(idx))).collect()
        };
        let n_all = along.iter().try_fold(1usize, |n, sizes| n.checked_mul(sizes.len()));
        if let Some(n_all) = n_all.filter(|n| *n <= MAX_POINTS) {
            all.extend((0..n_all).map(|mut number| {
                let digits: Vec<i64> = along
                    .iter()
                    .map(|sizes| {
                        let digit = sizes[number % sizes.len()];
                        number /= sizes.len();
                        digit
                    })
                    .collect();
                at(&|idx| digits[idx])
            }));
            continue;
        }
        // One size after the other, the rest as tuned; then all together.
        for (moved, sizes) in along.iter().enumerate() {
            for &size in sizes {
                all.push(at(&|idx| if idx == moved { size } else { ranges[idx].opt }));
            }
        }
        for step in 0..along.iter().map(Vec::len).max().unwrap_or(0) {
            all.push(at(&|idx| along[idx][step.min(along[idx].len() - 1)]));
        }
    }
    all
}

/// Points whose code is looked for; each costs every step's source, not its compilation.
const MAX_POINTS: usize = 64;
/// Ranges up to this many sizes are gone through one by one.
const MAX_EACH: i64 = 32;

/// Sizes of an open plan: those that it will likely meet, one of them odd.
fn around(range: &SymbolRange) -> Vec<i64> {
    let SymbolRange { opt, max, .. } = *range;
    let all: BTreeSet<i64> = [opt, opt.saturating_add(1), opt.saturating_mul(2), max].into_iter().collect();
    all.into_iter().collect()
}

/// Sizes of a range at which code may differ: ends, the tuned size, powers of two and their neighbours, and every
/// remainder by 8 there is, since vectors have up to 8 elements.
fn telling(range: &SymbolRange) -> Vec<i64> {
    let SymbolRange { min, opt, max, .. } = *range;
    if max.saturating_sub(min) < MAX_EACH {
        return (min..=max.max(min)).collect();
    }
    let powers = (0..40).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1]);
    let remainders = (0..8).map(|rest| opt / 8 * 8 + rest);
    let all: BTreeSet<i64> = [min, opt, max].into_iter().chain(powers).chain(remainders).collect();
    all.into_iter().filter(|size| (min..=max).contains(size)).collect()
}

/// Code that is going to be wanted, compiled ahead on several cores: backends keep what they compiled. Whatever cannot be
/// compiled says so when it is prepared.
pub(crate) struct Ahead<'a> {
    work: Vec<(&'a dyn Backend, Problem, Tactic)>,
    next: AtomicUsize,
}

impl<'a> Ahead<'a> {
    pub(crate) fn new(work: Vec<(&'a dyn Backend, Problem, Tactic)>) -> Ahead<'a> {
        Ahead { work, next: AtomicUsize::new(0) }
    }

    fn compile(&self) {
        while let Some((backend, problem, tactic)) = self.work.get(self.next.fetch_add(1, Ordering::Relaxed))
        {
            let _ = backend.code(problem, tactic);
        }
    }

    /// Begins in the order of the list, on so many threads beside the caller's.
    pub(crate) fn start<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, n_threads: usize) {
        for _ in 0..n_threads.min(self.work.len()) {
            // Where the system gives no more threads, those that are there do it.
            let _ = thread::Builder::new().spawn_scoped(scope, || self.compile());
        }
    }

    /// Begins nothing more.
    pub(crate) fn stop(&self) {
        self.next.store(self.work.len(), Ordering::Relaxed);
    }

    /// Compiles all of it, on so many threads.
    pub(crate) fn finish(&self, n_threads: usize) {
        thread::scope(|scope| {
            self.start(scope, n_threads.saturating_sub(1));
            self.compile();
        });
    }
}

struct Collected {
    needs: BTreeSet<(u32, String)>,
    code: BTreeMap<String, Bytes>,
}

/// Code that a step wants at some sizes.
struct Wanted {
    target: u32,
    step: String,
    problem: Problem,
    tactic: Tactic,
    is_tuned: bool,
}

impl Collected {
    /// Notes needs, and what code is wanted; the first of the sizes are the tuned ones.
    fn program(
        &mut self,
        program: &Program,
        backends: Backends<'_>,
        threads: usize,
        sizes: &[Vec<(String, i64)>],
        wanted: &mut Vec<Wanted>,
    ) {
        for step in &program.steps {
            let variants = match &step.kind {
                StepKind::Kernel { variants, .. } => variants,
                StepKind::Control(control) => {
                    for body in &control.bodies {
                        self.program(body, backends, threads, sizes, wanted);
                    }
                    continue;
                }
                StepKind::Transfer | StepKind::Evaluate => continue,
            };
            let backend = backends.get(step.target);
            // Host kernels are part of the program, and asking them costs an opening its time.
            if backend.memory_kind() == MemoryKind::Host {
                continue;
            }
            for variant in variants {
                let needs = backend.tactic_needs(&variant.tactic);
                self.needs.extend(needs.into_iter().map(|need| (step.target, need)));
            }
            let mut seen = BTreeSet::new();
            for (place, sizes) in sizes.iter().enumerate() {
                // Sizes inside bodies may be known to a run alone; the runtime then compiles, or says so.
                let (Ok(problem), Some(tactic)) = (
                    planish_runtime::problem_of(program, step, sizes, threads),
                    planish_runtime::tactic_at(step, sizes),
                ) else {
                    continue;
                };
                if seen.insert((problem.key(), tactic.clone())) {
                    let (target, step) = (step.target, step.name.clone());
                    wanted.push(Wanted {
                        target,
                        step,
                        problem,
                        tactic: tactic.clone(),
                        is_tuned: place == 0,
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(symbol: &str, min: i64, opt: i64, max: i64) -> SymbolRange {
        SymbolRange { symbol: symbol.into(), min, opt, max }
    }

    #[test]
    fn small_profiles_are_gone_through_whole() {
        let profile = Profile { ranges: vec![range("n", 1, 2, 4), range("m", 5, 5, 6)] };
        let all: BTreeSet<_> = points(&[], &[profile]).into_iter().collect();
        assert_eq!(all.len(), 8);
        assert!(all.contains(&vec![("n".to_string(), 3), ("m".to_string(), 6)]));
    }

    #[test]
    fn large_profiles_and_open_plans_are_gone_through_where_code_may_differ() {
        let profile = Profile { ranges: vec![range("batch", 1, 8, 64), range("length", 16, 128, 512)] };
        let all = points(&[], &[profile]);
        for (batch, length) in [(1, 128), (64, 128), (8, 16), (8, 512), (8, 129), (8, 131), (8, 33), (1, 16)]
        {
            let point = vec![("batch".to_string(), batch), ("length".to_string(), length)];
            assert!(all.contains(&point), "{point:?}");
        }
        let is_inside = |point: &Vec<(String, i64)>| point[0].1 <= 64 && (16..=512).contains(&point[1].1);
        assert!(all.iter().all(is_inside));
        let open = points(&[("batch".to_string(), 1)], &[]);
        assert_eq!(open.iter().map(|point| point[0].1).collect::<Vec<_>>(), [1, 2, 4]);
        let images = [("batch".to_string(), 1), ("height".to_string(), 224), ("width".to_string(), 224)];
        assert!(points(&images, &[]).len() <= MAX_POINTS);
    }
}
