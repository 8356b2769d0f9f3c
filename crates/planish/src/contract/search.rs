//! The search: uniform precisions first, then layers taken out of the lowest ones until the contract holds.
//!
//! What a layer costs is measured: one plan in which it alone is of low precision, run over samples of the search. What it
//! gains is the time of its step in fp32 less that in low precision. Layers leave in the order of squared error by gain,
//! since errors of different layers add up like squares; how many must leave is found by halving, each time with a plan of
//! its own. All candidates are timed in turns; the fastest that holds is tried on the samples that were held out, and where
//! it fails there, the next one is: in the end fp32, which is what the contract compares with.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use planish_compile::{BuildOptions, Built, Precision, TimingCache, build, is_layer, layer_of, low_layers};
use planish_ir::Graph;
use planish_op::Value;
use planish_runtime::Context;
use planish_tensor::Tensor;

use super::data::{Half, relative};
use super::{Contract, ContractData, Measure};
use crate::{Device, Engine, Error, ErrorKind};

/// Samples of the search that a layer's error is measured on.
const SENSITIVITY_SAMPLES: usize = 16;
/// Rounds of timing, and how long a candidate runs in each.
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(60);

/// A mix must be this many times faster than a uniform precision: less cannot be told from noise.
const LEAST_GAIN: f64 = 1.03;

/// One way to compute the model, and what was measured of it. [`crate::Builder::build_by_contract`] has an example.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct PrecisionCandidate {
    /// What its layers are computed in but for those that stay in fp32.
    pub precision: Precision,
    /// Layers that stay in fp32, by name; empty for a uniform precision.
    pub fp32_layers: Vec<String>,
    /// Layers of low precision.
    pub n_low: usize,
    /// What the contract measures, on the samples of the search.
    pub value: f64,
    /// The same on those held out, where it was tried on them.
    pub held_out: Option<f64>,
    /// The median of a run at the tuned sizes.
    pub latency: Duration,
    /// Whether no other candidate is both faster and more exact.
    pub is_on_front: bool,
}

impl PrecisionCandidate {
    /// As tables name it.
    pub fn name(&self) -> String {
        match self.fp32_layers.len() {
            0 => self.precision.name().to_string(),
            1 => format!("{}, 1 layer in fp32", self.precision.name()),
            n => format!("{}, {n} layers in fp32", self.precision.name()),
        }
    }
}

/// What a search found. [`crate::Builder::build_by_contract`] has an example.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Choice {
    /// What was asked for.
    pub contract: Contract,
    /// All candidates that were built and timed, the fastest first.
    pub candidates: Vec<PrecisionCandidate>,
    /// The fastest that keeps to the contract on samples held out; none where none does.
    pub chosen: Option<usize>,
    /// The one that is nearest to the contract, where none keeps to it.
    pub closest: usize,
    /// Samples that were searched with.
    pub n_search: usize,
    /// Samples that were held out.
    pub n_held_out: usize,
}

/// A plan that is open, with its candidate.
struct Entry {
    candidate: PrecisionCandidate,
    context: Context,
    /// Its layers of low precision.
    low: Vec<String>,
    /// The nanoseconds of its layers' steps.
    times: HashMap<String, f64>,
}

/// What a search goes by.
pub(crate) struct Search<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) device: Device,
    pub(crate) options: &'a BuildOptions,
    pub(crate) contract: Contract,
    pub(crate) data: &'a ContractData,
}

impl Search<'_> {
    /// Searches; new times go into `timings`.
    pub(crate) fn run(&self, timings: &mut TimingCache) -> Result<Choice, Error> {
        if self.contract.measure == Measure::Top1Drop && !self.data.has_labels() {
            return Err(Error::new(
                ErrorKind::BadOption,
                "a contract on labels needs the labels of its samples",
            ));
        }
        let search = self.data.half(Half::Search, usize::MAX);
        let held_out = self.data.half(Half::HeldOut, usize::MAX);
        let mut reference = self.entry(Precision::Fp32, &[], timings)?;
        let wanted = Wanted {
            search: self.outputs(&mut reference.context, &search)?,
            held_out: self.outputs(&mut reference.context, &held_out)?,
        };
        let in_fp32 = reference.times.clone();
        reference.candidate.value = self.data.value(&self.contract, &search, &wanted.search, &wanted.search);
        let mut entries = vec![reference];
        let lower = self.lower_precisions()?;
        for (number, &precision) in lower.iter().enumerate() {
            self.tell("uniform precisions", number, lower.len());
            let mut uniform = self.entry(precision, &[], timings)?;
            uniform.candidate.value = self.value(&mut uniform, &search, &wanted.search)?;
            if precision.quantizes() || matches!(precision, Precision::Fp16 | Precision::Bf16) {
                let order = self.order(&uniform, &in_fp32, &wanted)?;
                for n_out in self.sizes(&uniform, &order, &search, &wanted)? {
                    let pins = &order.layers[..n_out];
                    let mut mixed = self.entry(precision, pins, timings)?;
                    mixed.candidate.value = self.value(&mut mixed, &search, &wanted.search)?;
                    entries.push(mixed);
                }
            }
            entries.push(uniform);
        }
        self.time(&mut entries)?;
        entries.sort_by_key(|entry| entry.candidate.latency);
        self.choose(entries, &held_out, &wanted)
    }

    /// What the device of the plan computes in, below fp32; integers where there are ranges for them.
    fn lower_precisions(&self) -> Result<Vec<Precision>, Error> {
        let backends = self.device.backends()?;
        let Some(preferred) = backends.last() else { return Ok(Vec::new()) };
        let all = [Precision::Tf32, Precision::Fp16, Precision::Bf16, Precision::Int8, Precision::Fp8];
        let is_offered = |precision: &Precision| {
            let has_ranges = !precision.quantizes() || !self.options.ranges.is_empty();
            let arithmetic = precision.arithmetic();
            let is_computed = preferred.arithmetics().contains(&arithmetic);
            has_ranges && (is_computed || preferred.rounded_arithmetics().contains(&arithmetic))
        };
        Ok(all.into_iter().filter(is_offered).collect())
    }

    fn tell(&self, stage: &str, done: usize, of: usize) {
        if let Some(progress) = &self.options.progress {
            progress(stage, done, of);
        }
    }

    /// A plan in a precision with layers left in fp32, tuned as the build is to be.
    fn entry(
        &self,
        precision: Precision,
        pins: &[String],
        timings: &mut TimingCache,
    ) -> Result<Entry, Error> {
        let options = BuildOptions { progress: None, ..self.options.clone() };
        let built = self.build(options, precision, pins, timings)?;
        let engine = Engine::new(built.plan.into(), self.device)?;
        let mut context = engine.context()?;
        let times = self.layer_times(&built.graph, &engine, &mut context)?;
        let mut low = low_layers(&built.graph, precision);
        low.retain(|layer| !pins.contains(layer));
        let candidate = PrecisionCandidate {
            precision,
            fp32_layers: pins.to_vec(),
            n_low: low.len(),
            value: f64::NAN,
            held_out: None,
            latency: Duration::MAX,
            is_on_front: false,
        };
        Ok(Entry { candidate, context, low, times })
    }

    /// A plan whose tactics the cost model chooses: results differ by rounding of f32 at most.
    fn rough(&self, precision: Precision, pins: &[String]) -> Result<Context, Error> {
        let options = BuildOptions { tune_level: 0, progress: None, ..self.options.clone() };
        let built = self.build(options, precision, pins, &mut TimingCache::default())?;
        Engine::new(built.plan.into(), self.device)?.context()
    }

    fn build(
        &self,
        mut options: BuildOptions,
        precision: Precision,
        pins: &[String],
        timings: &mut TimingCache,
    ) -> Result<Built, Error> {
        // The plan that is taken in the end is checked; those on the way are compared on data.
        options.verify = false;
        options.precision = precision;
        options.fp32_layers.extend(pins.iter().cloned());
        build(self.graph, &self.device.backends()?, &options, timings)
    }

    /// The nanoseconds of every layer's step in a run.
    fn layer_times(
        &self,
        graph: &Graph,
        engine: &Engine,
        context: &mut Context,
    ) -> Result<HashMap<String, f64>, Error> {
        let inputs: Vec<(&str, planish_runtime::View<'_>)> =
            self.data.samples[0].inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.into())).collect();
        context.run(&inputs)?;
        let mut times: HashMap<usize, f64> = HashMap::new();
        for _ in 0..ROUNDS {
            for step in context.profile(&inputs)?.steps {
                let best = times.entry(step.step).or_insert(f64::INFINITY);
                *best = best.min(step.ns as f64);
            }
        }
        let program = &engine.record().program;
        let is_product = |step: &planish_plan::Step| step.region.nodes.iter().any(|node| is_layer(&node.op));
        let steps = program.steps.iter().enumerate().filter(|(_, step)| is_product(step));
        let one = |(idx, step)| (layer_of(graph, program, step), times.get(&idx).copied().unwrap_or(0.0));
        Ok(steps.map(one).collect())
    }

    /// What a plan makes of samples.
    fn outputs(&self, context: &mut Context, at: &[usize]) -> Result<Vec<Vec<Tensor>>, Error> {
        let mut all = Vec::with_capacity(at.len());
        for &sample in at {
            let inputs = &self.data.samples[sample].inputs;
            let views: Vec<(&str, planish_runtime::View<'_>)> =
                inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.into())).collect();
            context.run(&views)?;
            let output = |idx: usize| context.output(idx).map(|view| view.to_tensor());
            all.push((0..).map_while(output).collect());
        }
        Ok(all)
    }

    fn value(&self, entry: &mut Entry, at: &[usize], want: &[Vec<Tensor>]) -> Result<f64, Error> {
        let got = self.outputs(&mut entry.context, at)?;
        Ok(self.data.value(&self.contract, at, &got, want))
    }

    /// The layers of a uniform plan in the order in which they leave.
    fn order(
        &self,
        uniform: &Entry,
        in_fp32: &HashMap<String, f64>,
        wanted: &Wanted,
    ) -> Result<Order, Error> {
        let at = self.data.half(Half::Search, SENSITIVITY_SAMPLES);
        let mut scored: Vec<(f64, f64, String)> = Vec::new();
        for (number, layer) in uniform.low.iter().enumerate() {
            self.tell("sensitivity", number, uniform.low.len());
            let others: Vec<String> = uniform.low.iter().filter(|name| *name != layer).cloned().collect();
            let alone = self.rough(uniform.candidate.precision, &others);
            let error = match alone {
                Ok(mut context) => relative(&self.outputs(&mut context, &at)?, &wanted.search[..at.len()]),
                // A build that refuses a single layer says nothing of it.
                Err(error) if *error.kind() == ErrorKind::Refused => f64::NAN,
                Err(error) => return Err(error),
            };
            // What is computed inside of another layer's step counts with that one.
            let gain =
                in_fp32.get(layer).zip(uniform.times.get(layer)).map_or(0.0, |(slow, fast)| slow - fast);
            scored.push((error, gain, layer.clone()));
        }
        // What gains nothing leaves first, then by error for what it gains.
        let score = |(error, gain, _): &(f64, f64, String)| match *gain > 0.0 && error.is_finite() {
            true => error * error / gain,
            false => f64::INFINITY,
        };
        scored.sort_by(|a, b| score(b).total_cmp(&score(a)));
        let n_useless = scored.iter().take_while(|(_, gain, _)| *gain <= 0.0).count();
        let errors = scored.iter().map(|(error, ..)| *error).collect();
        Ok(Order { layers: scored.into_iter().map(|(.., layer)| layer).collect(), errors, n_useless })
    }

    /// How many layers leave, for each plan that is worth timing: as few as hold, some fewer and some more for the front.
    fn sizes(
        &self,
        uniform: &Entry,
        order: &Order,
        search: &[usize],
        wanted: &Wanted,
    ) -> Result<Vec<usize>, Error> {
        let n = order.layers.len();
        if n == 0 {
            return Ok(Vec::new());
        }
        let mut sizes = vec![order.n_useless];
        if self.contract.holds_amply(uniform.candidate.value) {
            sizes.retain(|&size| 0 < size && size < n);
            return Ok(sizes);
        }
        let holds = |n_out: usize| -> Result<bool, Error> {
            self.tell("layers in fp32", n_out, n);
            let mut context = self.rough(uniform.candidate.precision, &order.layers[..n_out])?;
            let got = self.outputs(&mut context, search)?;
            Ok(self.contract.holds_amply(self.data.value(&self.contract, search, &got, &wanted.search)))
        };
        // From what the squares foretell on by doubled steps, then by halving.
        let (mut fails, mut holding) = (0, n);
        let mut guess = self.foretold(order).clamp(1, n);
        let mut step = 1;
        while guess > fails && guess < holding {
            if holds(guess)? {
                holding = guess;
                guess = guess.saturating_sub(step);
            } else {
                fails = guess;
                guess += step;
            }
            step *= 2;
        }
        while holding - fails > 1 {
            let middle = fails + (holding - fails) / 2;
            if holds(middle)? { holding = middle } else { fails = middle }
        }
        sizes.extend([holding, holding / 2, holding + (n - holding) / 3]);
        sizes.sort_unstable();
        sizes.dedup();
        // None out is the uniform plan, all of them fp32.
        sizes.retain(|&size| 0 < size && size < n);
        Ok(sizes)
    }

    /// How many layers must leave if squared errors add up.
    fn foretold(&self, order: &Order) -> usize {
        let bound = match self.contract.measure {
            Measure::RelativeL2 => self.contract.bound,
            _ => return order.layers.len() / 4,
        };
        let mut left: f64 =
            order.errors.iter().filter(|error| error.is_finite()).map(|error| error * error).sum();
        let mut n_out = 0;
        while n_out < order.errors.len() && left > bound * bound {
            left -= if order.errors[n_out].is_finite() { order.errors[n_out].powi(2) } else { 0.0 };
            n_out += 1;
        }
        n_out
    }

    /// Times all candidates in turns.
    fn time(&self, entries: &mut [Entry]) -> Result<(), Error> {
        let inputs: Vec<Value> = {
            let sample = &self.data.samples[0];
            sample.inputs.iter().map(|(_, tensor)| Value::Tensor(tensor.clone())).collect()
        };
        let mut times: Vec<Vec<Duration>> = vec![Vec::new(); entries.len()];
        for round in 0..ROUNDS {
            self.tell("time", round, ROUNDS);
            for (entry, times) in entries.iter_mut().zip(&mut times) {
                let begun = Instant::now();
                while begun.elapsed() < ROUND {
                    let start = Instant::now();
                    entry.context.run_values(&inputs)?;
                    times.push(start.elapsed());
                }
            }
        }
        for (entry, times) in entries.iter_mut().zip(&mut times) {
            times.sort_unstable();
            entry.candidate.latency = times[times.len() / 2];
        }
        Ok(())
    }

    /// The fastest that holds on what was held out, of candidates in the order of their times.
    fn choose(&self, mut entries: Vec<Entry>, held_out: &[usize], wanted: &Wanted) -> Result<Choice, Error> {
        let in_time =
            |entry: &Entry| self.contract.max_latency.is_none_or(|most| entry.candidate.latency <= most);
        let mut chosen = None;
        for at in order_of_trial(entries.iter().map(|entry| &entry.candidate)) {
            let entry = &mut entries[at];
            if !self.contract.holds(entry.candidate.value) {
                continue;
            }
            let value = self.value(entry, held_out, &wanted.held_out)?;
            entry.candidate.held_out = Some(value);
            if self.contract.holds(value) && in_time(entry) {
                chosen = Some(at);
                break;
            }
        }
        let mut candidates: Vec<PrecisionCandidate> =
            entries.into_iter().map(|entry| entry.candidate).collect();
        mark_front(&self.contract, &mut candidates);
        let distance = |candidate: &PrecisionCandidate| {
            let late = self
                .contract
                .max_latency
                .map_or(0.0, |most| candidate.latency.as_secs_f64() / most.as_secs_f64());
            self.contract.excess(candidate.held_out.unwrap_or(candidate.value)).max(late)
        };
        let closest = candidates.iter().enumerate().min_by(|a, b| distance(a.1).total_cmp(&distance(b.1)));
        let closest = closest.map_or(0, |(at, _)| at);
        Ok(Choice {
            contract: self.contract,
            candidates,
            chosen,
            closest,
            n_search: self.data.half(Half::Search, usize::MAX).len(),
            n_held_out: held_out.len(),
        })
    }
}

/// The outputs in FP32.
struct Wanted {
    search: Vec<Vec<Tensor>>,
    held_out: Vec<Vec<Tensor>>,
}

/// Layers in the order in which they leave, with what each costs alone.
struct Order {
    layers: Vec<String>,
    errors: Vec<f64>,
    /// The first that gain nothing.
    n_useless: usize,
}

/// The numbers of candidates in the order in which they are tried: the fastest first, uniform ones before mixes that are
/// hardly faster.
fn order_of_trial<'c>(candidates: impl Iterator<Item = &'c PrecisionCandidate>) -> Vec<usize> {
    let handicap =
        |candidate: &PrecisionCandidate| if candidate.fp32_layers.is_empty() { 1.0 } else { LEAST_GAIN };
    let times: Vec<f64> =
        candidates.map(|candidate| handicap(candidate) * candidate.latency.as_secs_f64()).collect();
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by(|&a, &b| times[a].total_cmp(&times[b]));
    order
}

/// Marks the candidates that no other beats in both time and exactness; they are in the order of their times.
fn mark_front(contract: &Contract, candidates: &mut [PrecisionCandidate]) {
    let mut best = f64::INFINITY;
    for candidate in candidates {
        let excess = contract.excess(candidate.value);
        candidate.is_on_front = excess < best;
        best = best.min(excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(n_out: usize, value: f64, us: u64) -> PrecisionCandidate {
        PrecisionCandidate {
            precision: Precision::Int8,
            fp32_layers: (0..n_out).map(|n| format!("layer{n}")).collect(),
            n_low: 9 - n_out,
            value,
            held_out: None,
            latency: Duration::from_micros(us),
            is_on_front: false,
        }
    }

    #[test]
    fn a_mix_must_be_clearly_faster_than_what_is_uniform() {
        let order = |mixed: u64| order_of_trial([candidate(3, 0.1, mixed), candidate(0, 0.1, 1000)].iter());
        assert_eq!(order(900), [0, 1]);
        assert_eq!(order(990), [1, 0]);
    }

    #[test]
    fn the_front_is_what_nothing_beats() {
        let mut all =
            [candidate(0, 0.5, 100), candidate(1, 0.6, 110), candidate(2, 0.2, 120), candidate(3, 0.2, 130)];
        mark_front(&Contract::new(Measure::RelativeL2, 0.3), &mut all);
        assert_eq!(all.map(|candidate| candidate.is_on_front), [true, false, true, false]);
    }
}
