//! Why a step is off by itself: it reads what was rounded badly, it writes so, or what it multiplies with is wrong.
//!
//! The float model's nodes between what the step reads and what it writes are computed by the reference on what the step
//! reads, rounded as it is stored. What that differs by from the float model is what the step's inputs cost; what the step
//! differs by from it is what its weights and its arithmetic do; rounding the float model's output tells the rest.

use std::collections::{BTreeMap, HashMap, HashSet};

use planish_ir::{NodeId, ValueId};
use planish_op::{Class, Op, Value};
use planish_plan::{Program, StepKind};
use planish_reference::evaluate;
use planish_tensor::Tensor;

use super::distance::Distance;
use super::stored::Stored;
use super::{
    Alone, Departure, Diagnose, Diagnosis, MAX_SUSPECTS, NEGLIGIBLE, OUTLIER, StepError, Sums, output_of,
    pins,
};

/// Nodes of the float model that a step may cover.
const MAX_NODES: usize = 64;

/// What a departure comes from.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// A value is rounded badly where it is stored.
    Storage {
        value: String,
        /// The ends of what can be stored of it, where these are not those of f32.
        ends: Option<[f64; 2]>,
        /// The smallest and largest that it should be.
        values: [f64; 2],
        /// The part of its elements that is beyond the ends.
        clipped: f64,
    },
    /// The layer's weights, or the arithmetic of its kernel.
    Weights,
    /// The layer makes much of what is usual rounding in its inputs.
    Sensitive,
}

/// A run on the reference's values, to be taken apart.
pub(super) struct Suspect<'a> {
    pub(super) program: &'a Program,
    pub(super) stored: &'a [Option<Stored>],
    pub(super) truth: &'a HashMap<String, Tensor>,
    /// What each step made of the reference's values.
    pub(super) alone: &'a Alone,
    pub(super) sums: &'a Sums,
    pub(super) what: &'a Diagnose<'a>,
}

/// Where a departure begins: a value that is stored badly, or a step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Root {
    Value(u32),
    Step { step: usize, is_sensitive: bool },
}

impl Suspect<'_> {
    /// Where the plan departs, in the order of the steps.
    pub(super) fn departures(&self, found: &Diagnosis) -> Vec<Departure> {
        let mut suspects: Vec<&StepError> =
            found.steps.iter().filter(|error| error.own.is_nan() || error.own > found.limit).collect();
        suspects.sort_by(|a, b| b.own.total_cmp(&a.own));
        let mut roots: BTreeMap<Root, f64> = BTreeMap::new();
        for suspect in suspects.into_iter().take(MAX_SUSPECTS) {
            let (root, error) = self.root(suspect);
            let known = roots.entry(root).or_insert(0.0);
            *known = if error > *known { error } else { *known };
        }
        let place = |step: usize| found.steps.iter().position(|error| error.step == step);
        let mut departures: Vec<Departure> = roots
            .into_iter()
            .filter_map(|(root, error)| {
                let (step, cause, pins) = match root {
                    Root::Value(value) => {
                        let step = self.maker(value).filter(|step| place(*step).is_some());
                        let pins = pins::of_value(self.what.graph, &self.program.values[value as usize].name);
                        (step.or_else(|| self.reader(value))?, self.storage(value)?, pins)
                    }
                    Root::Step { step, is_sensitive } => {
                        let cause = if is_sensitive { Cause::Sensitive } else { Cause::Weights };
                        (
                            step,
                            cause,
                            vec![super::layer_of(self.what.graph, self.program, &self.program.steps[step])],
                        )
                    }
                };
                Some(Departure { at: place(step)?, cause, error, pins })
            })
            .collect();
        departures.sort_by_key(|departure| departure.at);
        departures
    }

    /// Where a step's own error comes from, and how much of it.
    fn root(&self, suspect: &StepError) -> (Root, f64) {
        let step = &self.program.steps[suspect.step];
        let itself = (Root::Step { step: suspect.step, is_sensitive: false }, suspect.own);
        let Some((place, output)) = output_of(step, self.stored) else { return itself };
        let made = self.alone.get(&suspect.step).and_then(|outputs| outputs.get(place)?.as_ref());
        let (Some(want), Some(made)) =
            (self.truth.get(&output.name), made.and_then(|made| output.decode(made)))
        else {
            return itself;
        };
        let rounded = |stored: &Stored| {
            let want = self.truth.get(&stored.name)?;
            stored.decode(&stored.encode(want)?)
        };
        let writes = match rounded(output) {
            Some(back) if output.is_rounded() => Distance::between(&back, want).relative(),
            _ => 0.0,
        };
        let value = step.outputs[place].unwrap_or_default();
        if writes == f64::INFINITY {
            return (Root::Value(self.moved_from(value)), writes);
        }
        let inputs = step
            .inputs
            .iter()
            .flatten()
            .filter(|value| self.stored[**value as usize].as_ref().is_some_and(Stored::is_rounded));
        let rounding = |value: &u32| self.sums.rounding.get(value).map_or(0.0, Distance::relative);
        let worst = inputs.copied().max_by(|a, b| rounding(a).total_cmp(&rounding(b)));
        let mut read: HashMap<&str, Tensor> = HashMap::new();
        for stored in step.inputs.iter().flatten().filter_map(|value| self.stored[*value as usize].as_ref()) {
            read.extend(rounded(stored).map(|tensor| (stored.name.as_str(), tensor)));
        }
        let (reads, rest) = match self.float_result(&output.name, &read) {
            Some(float) => {
                let reads = Distance::between(&float, want).relative();
                let back = output.encode(&float).and_then(|tensor| output.decode(&tensor));
                (reads, Distance::between(&made, back.as_ref().unwrap_or(&float)).relative())
            }
            // What is not explained by rounding is the step's own.
            None => {
                let reads = worst.as_ref().map_or(0.0, rounding);
                (reads, if suspect.own > 2.0 * reads.max(writes) { suspect.own } else { 0.0 })
            }
        };
        if writes >= reads && writes >= rest {
            return (Root::Value(self.moved_from(value)), writes);
        }
        match worst {
            Some(worst) if reads >= rest && rounding(&worst) > self.usual_rounding() => {
                (Root::Value(self.moved_from(worst)), rounding(&worst))
            }
            _ if reads >= rest => (Root::Step { step: suspect.step, is_sensitive: true }, reads),
            _ => (itself.0, rest),
        }
    }

    /// From where on the rounding of a value stands out.
    fn usual_rounding(&self) -> f64 {
        let mut all: Vec<f64> =
            self.sums.rounding.values().map(Distance::relative).filter(|x| *x > 0.0).collect();
        all.sort_by(f64::total_cmp);
        (OUTLIER * all.get(all.len() / 2).copied().unwrap_or(0.0)).max(NEGLIGIBLE)
    }

    /// The value that one was only moved from: that is where it was rounded.
    fn moved_from(&self, mut value: u32) -> u32 {
        let moves =
            |op: &Op| op.class() == Class::Movement || matches!(op, Op::MaxPool(_) | Op::GlobalMaxPool(_));
        for _ in 0..self.program.steps.len() {
            let step = self.maker(value).map(|step| &self.program.steps[step]);
            let Some(step) = step.filter(|step| step.region.nodes.iter().all(|node| moves(&node.op))) else {
                break;
            };
            let from = step.inputs.iter().flatten().find(|from| self.stored[**from as usize].is_some());
            let Some(&from) = from else { break };
            value = from;
        }
        value
    }

    fn maker(&self, value: u32) -> Option<usize> {
        let is_kernel = |kind: &StepKind| matches!(kind, StepKind::Kernel { .. });
        let makes = |step: &planish_plan::Step| is_kernel(&step.kind) && step.outputs.contains(&Some(value));
        self.program.steps.iter().position(makes)
    }

    fn reader(&self, value: u32) -> Option<usize> {
        self.program.steps.iter().position(|step| step.inputs.contains(&Some(value)))
    }

    fn storage(&self, value: u32) -> Option<Cause> {
        let stored = self.stored[value as usize].as_ref()?;
        let values = self.truth.get(&stored.name)?.to_f64s();
        let ends = stored.ends();
        let n_clipped = match ends {
            Some([low, high]) => values.iter().filter(|x| **x < low || **x > high).count(),
            None => 0,
        };
        let range = values
            .iter()
            .fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], x| [low.min(*x), high.max(*x)]);
        let clipped = n_clipped as f64 / values.len().max(1) as f64;
        Some(Cause::Storage { value: stored.name.clone(), ends, values: range, clipped })
    }

    /// A value of the float model, computed from these values of it; `None` where other values than these, constants and
    /// the model's inputs would be needed.
    fn float_result(&self, name: &str, read: &HashMap<&str, Tensor>) -> Option<Tensor> {
        let graph = self.what.reference;
        let target = graph.find(name)?;
        let known = |id: ValueId| -> Option<Tensor> {
            let value = graph.value(id);
            let given = read.get(&*value.name).or_else(|| value.constant());
            let of_model = || graph.inputs().contains(&id).then(|| self.truth.get(&*value.name)).flatten();
            given.or_else(of_model).cloned()
        };
        let mut nodes: Vec<NodeId> = Vec::new();
        let mut seen: HashSet<ValueId> = HashSet::new();
        let mut open = vec![target];
        while let Some(id) = open.pop() {
            if !seen.insert(id) || (id != target && known(id).is_some()) {
                continue;
            }
            let node = graph.value(id).producer?;
            if !nodes.contains(&node) {
                nodes.push(node);
            }
            if nodes.len() > MAX_NODES || !graph.node(node).bodies.is_empty() {
                return None;
            }
            open.extend(graph.node(node).inputs.iter().flatten());
        }
        nodes.sort_by_key(|node| node.index());
        let mut made: HashMap<ValueId, Value> = HashMap::new();
        for id in nodes {
            let node = graph.node(id);
            let operand = |id: &Option<ValueId>| {
                let id = (*id)?;
                made.get(&id).cloned().or_else(|| known(id).map(Value::Tensor))
            };
            let operands: Vec<Option<Value>> = node.inputs.iter().map(operand).collect();
            let operands: Vec<Option<&Value>> = operands.iter().map(Option::as_ref).collect();
            let outputs = evaluate(&node.op, &operands, node.outputs.len()).ok()?;
            made.extend(node.outputs.iter().zip(outputs).filter_map(|(id, value)| Some(((*id)?, value))));
        }
        made.remove(&target)?.as_tensor().cloned()
    }
}
