//! Every step on tensors that the plan itself produced: small ones against the reference at every element; larger ones
//! against other kernels at every element, and against the reference where the two differ most, at corners, tile edges,
//! tails and random points. What is done follows from counts of the plan's own sizes.
//!
//! The run goes on while steps after it are compared on other threads (`compare`); what they find is read in the order
//! of the steps.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;

use planish_kernel::{Backend, Tactic};
use planish_op::Value;
use planish_plan::{Check, Outcome, Plan, Program, Step, StepKind, Storage};
use planish_runtime::{Engine, Observed, RunError, problem_of, tactic_at};
use planish_tensor::Tensor;

use super::compare::{How, Job, REFERENCE_PASSES};
use super::tolerance::Errs;
use super::work::work_of;
use super::written::Written;
use super::{Guilty, skipped};
use crate::options::Progress;

/// What the reference may compute of one step, and of all steps at one set of sizes, in multiplications and additions:
/// a tenth of a second, and a third.
const MAX_STEP_REFERENCE: u64 = 150_000_000;
const MAX_REFERENCE: u64 = 500_000_000;
/// What other kernels may compute at one set of sizes, and the weights that may be packed for them: some tenths of a
/// second. Beyond it, steps whose problem and tactic were compared at every element before get points alone.
const MAX_WITNESS: u64 = 8_000_000_000;
const MAX_WITNESS_BYTES: u64 = 64 << 20;
/// Elements that may be brought into other layouts for it.
const MAX_WITNESS_ELEMENTS: u64 = 40 << 20;
/// At other sizes than the tuned ones it is this part of all that.
const OTHER_SIZES: u64 = 2;
/// Of a body that runs again and again the first trips are compared.
const MAX_TRIPS: usize = 2;
/// Steps are compared on so many threads at most; each waiting one holds the tensors of a step.
const MAX_COMPARERS: usize = 8;

/// A step: the steps of control flow with their bodies that it is inside of, and its number there.
pub(super) type StepPlace = (Vec<(usize, usize)>, usize);

/// A problem and a tactic for it.
type Key = (String, String);

/// What is kept over runs at several sizes.
pub(super) struct Steps<'a> {
    engine: &'a Engine,
    weights: &'a [Tensor],
    /// Other kernels on the host, for a second opinion.
    witness: &'a dyn Backend,
    threads: usize,
    progress: Option<Progress>,
    /// From the model's own bytes: other models are looked at in other places.
    seed: u64,
    /// Steps that were compared at any sizes.
    compared: HashSet<StepPlace>,
    /// Why steps were not, by the first reason met.
    reasons: HashMap<StepPlace, String>,
    /// Problems and tactics that were compared at every element, and at points at least.
    thorough: HashSet<Key>,
    seen: HashSet<Key>,
}

/// How a run under observation ended.
#[derive(Default)]
pub(super) struct Ran {
    pub(super) checks: Vec<Check>,
    pub(super) guilty: Option<Guilty>,
    /// Why it ended before the last step.
    pub(super) ended: Option<String>,
    pub(super) outputs: Vec<Value>,
}

impl Ran {
    /// Whether its outputs are numbers, all of them.
    pub(super) fn is_finite(&self) -> bool {
        let is_finite = |value: &Value| match value.as_tensor() {
            Some(tensor) if tensor.dtype().is_float() => tensor.to_f64s().iter().all(|x| x.is_finite()),
            _ => true,
        };
        self.ended.is_none() && self.outputs.iter().all(is_finite)
    }
}

/// What may be spent of something at one set of sizes.
struct Purse {
    all: u64,
    left: u64,
}

impl Purse {
    fn new(all: u64) -> Purse {
        Purse { all, left: all }
    }

    /// Half is kept for problems that were not compared at every element before; the last of them may overdraw it.
    fn affords(&self, cost: u64, is_new: bool) -> bool {
        match is_new {
            true => cost == 0 || self.left > 0 && cost <= 2 * self.all,
            false => cost <= self.left.saturating_sub(self.all / 2),
        }
    }

    fn pay(&mut self, cost: u64) {
        self.left = self.left.saturating_sub(cost);
    }
}

/// What may be spent at one set of sizes.
struct Budget {
    reference: Purse,
    witness: Purse,
    witness_bytes: Purse,
    witness_elements: Purse,
}

/// What was seen of a step while the plan ran, in the order of the run.
enum Seen<'a> {
    /// A value that it read was not what had been written.
    Changed(Check),
    /// It is the same problem by the same tactic as one before.
    Again { place: StepPlace, key: Key },
    /// It is compared.
    Compared {
        place: StepPlace,
        key: Option<Key>,
        subject: String,
        step: &'a Step,
        tactic: Option<&'a Tactic>,
    },
}

/// What the threads share that compare steps.
struct Comparers<'j> {
    jobs: Mutex<mpsc::Receiver<(usize, Job<'j>)>>,
    results: Mutex<HashMap<usize, Check>>,
    /// The first step that was found wrong; those after it need not be compared.
    first_wrong: AtomicUsize,
}

impl Comparers<'_> {
    fn work(&self, other_kernels: &dyn Backend) {
        loop {
            let job = self.jobs.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).recv();
            let Ok((order, job)) = job else { return };
            if order > self.first_wrong.load(Ordering::Relaxed) {
                continue;
            }
            let check = job.compare(other_kernels);
            if matches!(check.outcome, Outcome::Failed(_)) {
                self.first_wrong.fetch_min(order, Ordering::Relaxed);
            }
            self.results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(order, check);
        }
    }
}

impl<'a> Steps<'a> {
    pub(super) fn new(
        engine: &'a Engine,
        weights: &'a [Tensor],
        witness: &'a dyn Backend,
        threads: usize,
        progress: Option<Progress>,
    ) -> Steps<'a> {
        let seed = seed_of(engine.plan());
        let (compared, reasons) = (HashSet::new(), HashMap::new());
        let (thorough, seen) = (HashSet::new(), HashSet::new());
        Steps { engine, weights, witness, threads, progress, seed, compared, reasons, thorough, seen }
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// Runs a plan once under observation and compares its kernel steps, those in bodies too. `within` is where the
    /// program of `engine` stands in the plan's, if it is a body. `at` names sizes and inputs; unless `all` are to be
    /// compared, steps are left out that are the same problem by the same tactic as one before.
    pub(super) fn run(
        &mut self,
        engine: &Engine,
        within: &[(usize, usize)],
        inputs: &[Value],
        (at, all): (&str, bool),
    ) -> Ran {
        let n_comparers = self.threads.clamp(1, MAX_COMPARERS);
        let (send, receive) = mpsc::sync_channel(n_comparers);
        let comparers = Comparers {
            jobs: Mutex::new(receive),
            results: Mutex::default(),
            first_wrong: AtomicUsize::new(usize::MAX),
        };
        let other_kernels = self.witness;
        let (seen, ended) = thread::scope(|scope| {
            for _ in 0..n_comparers {
                scope.spawn(|| comparers.work(other_kernels));
            }
            // Those who compare end when nobody can send any more.
            self.observe(engine, within, inputs, (at, all), &comparers.first_wrong, send)
        });
        let results = comparers.results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut ran = self.found(seen, results, at);
        match ended {
            Ok(outputs) => ran.outputs = outputs,
            Err(error) => ran.ended = Some(error.to_string()),
        }
        ran
    }

    /// Runs a plan and sends its steps to be compared, with their places in the list that it gives.
    fn observe<'e>(
        &mut self,
        engine: &'e Engine,
        within: &[(usize, usize)],
        inputs: &[Value],
        (at, all): (&str, bool),
        first_wrong: &AtomicUsize,
        send: mpsc::SyncSender<(usize, Job<'e>)>,
    ) -> (Vec<Seen<'e>>, Result<Vec<Value>, RunError>) {
        let mut list: Vec<Seen<'e>> = Vec::new();
        let mut written = Written::default();
        let mut trips: HashMap<StepPlace, usize> = HashMap::new();
        let share = if all { 1 } else { OTHER_SIZES };
        let mut budget = Budget {
            reference: Purse::new(MAX_REFERENCE / share),
            witness: Purse::new(MAX_WITNESS / share),
            witness_bytes: Purse::new(MAX_WITNESS_BYTES / share),
            witness_elements: Purse::new(MAX_WITNESS_ELEMENTS / share),
        };
        let plan = engine.plan();
        let mut observer = |observed: Observed| {
            if first_wrong.load(Ordering::Relaxed) != usize::MAX {
                return;
            }
            let place = ([within, &observed.path[..]].concat(), observed.step);
            let trip = trips.entry(place.clone()).or_default();
            *trip += 1;
            if *trip > MAX_TRIPS {
                return;
            }
            let Some(program) = program_at(&plan.program, &observed.path) else { return };
            let step = &program.steps[observed.step];
            let subject = subject(&place, step);
            if let Some(why) = written.changed(program, step, &observed) {
                let (subject, outcome) = (format!("memory of {subject}{at}"), Outcome::Failed(why));
                list.push(Seen::Changed(Check { subject, n_points: 0, worst: f64::INFINITY, outcome }));
            }
            written.keep(step, &observed);
            let tactic = tactic_at(step, &observed.sizes);
            let problem = problem_of(program, step, &observed.sizes, self.threads).ok();
            let key = problem
                .as_ref()
                .map(|problem| (problem.key(), tactic.map(Tactic::to_string).unwrap_or_default()));
            if let Some(key) = &key
                && !(all && *trip == 1)
                && self.seen.contains(key)
            {
                list.push(Seen::Again { place, key: key.clone() });
                return;
            }
            self.seen.extend(key.clone());
            let seed = self.seed ^ hash_of(&place);
            let order = list.len();
            if let Some(progress) = &self.progress {
                progress("check", order, plan.program.steps.len());
            }
            list.push(Seen::Compared { place, key: key.clone(), subject, step, tactic });
            if matches!(&step.kind, StepKind::Kernel { slow: true, .. }) {
                return;
            }
            let is_weight = |value: &Option<u32>| value.and_then(|value| weight_at(program, value)).is_some();
            let weight = |value: u32| self.weights.get(weight_at(program, value)? as usize).cloned();
            let inputs = step.inputs.iter().zip(observed.inputs);
            let mut job = Job {
                step,
                tactic,
                errs: Errs::of(engine.backend(step.target), problem.as_ref(), tactic),
                rounds: tactic.and_then(|tactic| engine.backend(step.target).rounds_factors_to(tactic)),
                inputs: inputs.map(|(value, seen)| seen.or_else(|| value.and_then(weight))).collect(),
                is_weight: step.inputs.iter().map(is_weight).collect(),
                outputs: observed.outputs,
                work: problem.as_ref().and_then(work_of),
                how: How::Points,
                seed,
            };
            job.how = self.decide(&job, key, &mut budget);
            // Nobody takes it only where a comparer panicked, which the scope passes on.
            let _ = send.send((order, job));
        };
        let ended = engine.context().and_then(|mut context| context.observe(inputs, &mut observer));
        (list, ended)
    }

    /// How a step is compared, by what it costs and what is left.
    fn decide(&mut self, job: &Job<'_>, key: Option<Key>, budget: &mut Budget) -> How {
        let Some(work) = job.work else {
            self.thorough.extend(key);
            return How::Everywhere;
        };
        let is_new = key.as_ref().is_none_or(|key| !self.thorough.contains(key));
        let cost = REFERENCE_PASSES * work.all;
        if cost <= MAX_STEP_REFERENCE && budget.reference.affords(cost, is_new) {
            budget.reference.pay(cost);
            self.thorough.extend(key);
            return How::Everywhere;
        }
        let tensors = || job.inputs.iter().flatten();
        let weights = job.inputs.iter().zip(&job.is_weight).filter(|(_, is_weight)| **is_weight);
        let bytes: u64 = weights.filter_map(|(weight, _)| Some(weight.as_ref()?.bytes().len() as u64)).sum();
        let elements = tensors().chain(job.outputs.iter().flatten()).map(|tensor| tensor.len() as u64);
        let elements = elements.sum::<u64>() * job.step.region.nodes.len() as u64;
        if !(budget.witness.affords(work.heavy, is_new)
            && budget.witness_bytes.affords(bytes, is_new)
            && budget.witness_elements.affords(elements, is_new))
        {
            return How::Points;
        }
        budget.witness.pay(work.heavy);
        budget.witness_bytes.pay(bytes);
        budget.witness_elements.pay(elements);
        self.thorough.extend(key);
        How::Witness
    }

    /// Takes over what was found of the steps of a run, up to the first that is wrong.
    fn found(&mut self, list: Vec<Seen<'_>>, mut results: HashMap<usize, Check>, at: &str) -> Ran {
        let mut ran = Ran::default();
        let mut not_compared: HashMap<Key, String> = HashMap::new();
        for (order, seen) in list.into_iter().enumerate() {
            match seen {
                Seen::Changed(check) => ran.checks.push(check),
                Seen::Again { place, key } => match not_compared.get(&key) {
                    Some(why) => drop(self.reasons.entry(place).or_insert_with(|| why.clone())),
                    None => drop(self.compared.insert(place)),
                },
                Seen::Compared { place, key, subject, step, tactic } => {
                    let is_reference = matches!(&step.kind, StepKind::Kernel { slow: true, .. });
                    let check = match results.remove(&order) {
                        Some(check) => check,
                        None if is_reference => skipped("", IS_REFERENCE.to_string()),
                        None => break,
                    };
                    let subject = format!("{subject}{}{at}", check.subject);
                    match &check.outcome {
                        Outcome::Skipped(why) => {
                            if let Some(key) = key {
                                self.seen.remove(&key);
                                not_compared.insert(key, why.clone());
                            }
                            self.reasons.entry(place).or_insert_with(|| why.clone());
                        }
                        Outcome::Passed => drop(self.compared.insert(place)),
                        Outcome::Failed(why) => {
                            self.compared.insert(place);
                            ran.guilty = tactic.map(|tactic| Guilty {
                                what: format!("`{}` by {}{at}: {why}", step.name, tactic.name),
                                tactic: tactic.clone(),
                            });
                        }
                    }
                    let is_wrong = matches!(check.outcome, Outcome::Failed(_));
                    ran.checks.push(Check { subject, ..check });
                    if is_wrong {
                        break;
                    }
                }
            }
        }
        ran
    }

    /// The steps by kernels, in bodies too, that were never compared, each with the reason if there is one.
    pub(super) fn not_compared(&self) -> Vec<(StepPlace, String, Option<String>)> {
        let mut list = Vec::new();
        self.collect(&self.engine.plan().program, &mut Vec::new(), &mut list);
        list
    }

    fn collect(
        &self,
        program: &Program,
        path: &mut Vec<(usize, usize)>,
        list: &mut Vec<(StepPlace, String, Option<String>)>,
    ) {
        for (idx, step) in program.steps.iter().enumerate() {
            match &step.kind {
                StepKind::Kernel { slow: false, .. } => {
                    let place = (path.clone(), idx);
                    if !self.compared.contains(&place) {
                        let why = self.reasons.get(&place).cloned();
                        list.push((place, step.name.clone(), why));
                    }
                }
                StepKind::Control(control) => {
                    for (number, body) in control.bodies.iter().enumerate() {
                        path.push((idx, number));
                        self.collect(body, path, list);
                        path.pop();
                    }
                }
                StepKind::Kernel { slow: true, .. } | StepKind::Transfer | StepKind::Evaluate => {}
            }
        }
    }
}

/// From the model's own bytes, so that equal builds are equal and other models are looked at in other places.
pub(super) fn seed_of(plan: &Plan) -> u64 {
    u64::from_le_bytes(plan.header.source.first_chunk().copied().unwrap_or_default())
}

const IS_REFERENCE: &str = "it is the reference";

/// Which weight a value is, if it is one.
fn weight_at(program: &Program, value: u32) -> Option<u32> {
    match program.values[value as usize].storage {
        Storage::Weight(weight) => Some(weight),
        _ => None,
    }
}

/// The program of a body.
pub(super) fn program_at<'p>(program: &'p Program, path: &[(usize, usize)]) -> Option<&'p Program> {
    path.iter().try_fold(program, |program, &(step, body)| match &program.steps.get(step)?.kind {
        StepKind::Control(control) => control.bodies.get(body),
        StepKind::Kernel { .. } | StepKind::Transfer | StepKind::Evaluate => None,
    })
}

/// A step by its number, with those of the steps that it is inside of: `step 3.0.7: conv1` is step 7 of the first body
/// of step 3.
fn subject((path, step): &StepPlace, of: &Step) -> String {
    let outer: String = path.iter().map(|(step, body)| format!("{step}.{body}.")).collect();
    format!("step {outer}{step}: {}", of.name)
}

fn hash_of(place: &StepPlace) -> u64 {
    let numbers = place.0.iter().flat_map(|(step, body)| [*step, *body]).chain([place.1]);
    numbers.fold(0u64, |hash, number| (hash ^ number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}
