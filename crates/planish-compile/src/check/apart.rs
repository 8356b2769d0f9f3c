//! The model as it was given, by kernels: what large models are compared with as a whole.
//!
//! The reference would take minutes over them. So the model that no pass has touched is made a plan of its own,
//! without Winograd, and run. It shares kernels with the plan that is checked, which are compared with the
//! reference step by step; it shares no fusion, folding, recognition or layout that a pass decided.
//!
//! Its weights are packed beside those of the plan that is checked, so it is done part by part, each with a plan of its
//! own, where only tensors of known sizes lie between two parts.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use planish_ir::{Graph, ValueId};
use planish_kernel::Backend;
use planish_op::Value;
use planish_plan::StepKind;
use planish_runtime::Engine;

use crate::backends::Backends;
use crate::budget;
use crate::build::assemble;
use crate::options::BuildOptions;
use crate::price::cache::TimingCache;
use crate::stages::Stages;

/// A run of this much takes a fraction of a second.
pub(super) const MAX_FLOPS: u64 = 40_000_000_000;
/// Weights of a part, in bytes: little beside those of a model that is large, and parts are few.
const PART_WEIGHT_BYTES: usize = 12 << 20;
/// Weights beyond this many bytes take longer to pack than the check may.
const MAX_WEIGHT_BYTES: usize = 256 << 20;
/// Elements that steps by the slow reference may make, those of a part together.
const MAX_SLOW_ELEMENTS: u64 = 32 << 20;

/// The outputs of the model at these sizes; an error says why it was not run.
pub(super) fn run(
    graph: &Graph,
    sizes: &[(String, i64)],
    backends: &[Arc<dyn Backend>],
    options: &BuildOptions,
    inputs: &[Value],
) -> Result<Vec<Value>, String> {
    let bytes = graph.values().filter_map(|(_, value)| value.constant()).map(|tensor| tensor.bytes().len());
    let bytes: usize = bytes.sum();
    if bytes > MAX_WEIGHT_BYTES {
        return Err(format!("{} MB of weights are too many to pack twice", bytes >> 20));
    }
    let lookup = |name: &str| sizes.iter().find(|(known, _)| known == name).map(|(_, size)| *size);
    let fixed = graph.specialize(&lookup).map_err(|error| error.to_string())?;
    let options = BuildOptions {
        threads: options.threads,
        banned_tactics: options.banned_tactics.clone(),
        tune_level: 0,
        winograd: false,
        cancel: options.cancel.clone(),
        ..BuildOptions::default()
    };
    let mut values: HashMap<ValueId, Value> =
        fixed.inputs().iter().copied().zip(inputs.iter().cloned()).collect();
    for range in parts(&fixed, PART_WEIGHT_BYTES) {
        let last = range.end;
        let part = fixed.part(range).map_err(|error| error.to_string())?;
        let outer = |id: &ValueId| fixed.find(&part.value(*id).name);
        let given = part.inputs().iter().map(|id| outer(id).and_then(|id| values.get(&id).cloned()));
        let given = given.collect::<Option<Vec<Value>>>().ok_or("a value between two parts was not made")?;
        let made = run_part(&part, sizes, backends, &options, &given)?;
        values.extend(part.outputs().iter().filter_map(outer).zip(made));
        let read_later: HashSet<ValueId> = later(&fixed, last).collect();
        values.retain(|id, _| read_later.contains(id));
    }
    let output = |id: &ValueId| {
        let constant = || fixed.value(*id).constant().cloned().map(Value::Tensor);
        values.get(id).cloned().or_else(constant).ok_or_else(|| "an output was not made".to_string())
    };
    fixed.outputs().iter().map(output).collect()
}

/// The values that nodes from this place on read, and the outputs.
fn later(graph: &Graph, from: usize) -> impl Iterator<Item = ValueId> {
    let nodes = graph.nodes().skip(from).flat_map(|(_, node)| node.inputs.iter().flatten());
    nodes.chain(graph.outputs()).copied()
}

/// Ranges of nodes that are done one after the other, each with weights of at least `least` bytes but for the last.
fn parts(graph: &Graph, least: usize) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    let mut seen = HashSet::new();
    for (idx, (_, node)) in graph.nodes().enumerate() {
        let constants = node.inputs.iter().flatten().filter(|id| seen.insert(**id));
        bytes +=
            constants.filter_map(|id| graph.value(*id).constant()).map(|t| t.bytes().len()).sum::<usize>();
        if bytes >= least && can_cut(graph, idx + 1) {
            parts.push(start..idx + 1);
            (start, bytes) = (idx + 1, 0);
        }
    }
    // Nothing is left where the last node ends a part.
    if start < graph.nodes().len() || parts.is_empty() {
        parts.push(start..graph.nodes().len());
    }
    parts
}

/// Whether all that is read from this place on and was made before is tensors of known sizes.
fn can_cut(graph: &Graph, at: usize) -> bool {
    let made_before = |id: &ValueId| graph.value(*id).producer.is_none_or(|producer| producer.index() < at);
    let is_fixed = |id: ValueId| {
        let shape = graph.value(id).ty.as_tensor().and_then(|ty| ty.shape.as_ref());
        shape.is_some_and(|shape| shape.as_fixed().is_some())
    };
    later(graph, at).filter(made_before).all(is_fixed)
}

/// The outputs of one part.
fn run_part(
    part: &Graph,
    sizes: &[(String, i64)],
    backends: &[Arc<dyn Backend>],
    options: &BuildOptions,
    inputs: &[Value],
) -> Result<Vec<Value>, String> {
    // The host computes everything; devices are what may be wrong.
    let host = &backends[..1];
    let list = Backends::new(host).map_err(|error| error.to_string())?;
    let made = assemble(part, true, list, options, &mut TimingCache::default(), &mut Stages::start());
    let plan = made.map_err(|error| error.to_string())?.plan;
    let is_slow = |kind: &StepKind| !matches!(kind, StepKind::Kernel { slow: false, .. });
    let slow = plan.program.steps.iter().filter(|step| is_slow(&step.kind)).flat_map(|step| &step.outputs);
    let elements = |value: &u32| {
        let ty = plan.program.values[*value as usize].ty.as_tensor()?;
        ty.shape.as_ref()?.element_count().as_const().and_then(|n| u64::try_from(n).ok())
    };
    let n_slow: u64 = slow.flatten().filter_map(elements).sum();
    if n_slow > MAX_SLOW_ELEMENTS {
        return Err(format!("{n_slow} elements would be made by the reference"));
    }
    let engine = Engine::new(plan, host.to_vec()).map_err(|error| error.to_string())?;
    let limits = budget::of_plan(&engine, part, &[sizes.to_vec()], options);
    let engine = engine.limited(limits);
    let outputs = engine.context().and_then(|mut context| context.run_values(inputs));
    outputs.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_weights_and_cover_all_nodes() {
        let graph: Graph =
            "graph \"g\" { input %x: f32[2] const %a: f32[2] = [1, 2] const %b: f32[2] = [3, 4]
             %p: f32[2] = Mul(%x, %a) %q: f32[2] = Relu(%p) %y: f32[2] = Add(%q, %b) output %y }"
                .parse()
                .unwrap();
        let ends = |least| parts(&graph, least).iter().map(|part| (part.start, part.end)).collect::<Vec<_>>();
        assert_eq!(ends(100), [(0, 3)]);
        assert_eq!(ends(16), [(0, 3)]);
        // The last node ends a part, and nothing comes after it.
        assert_eq!(ends(8), [(0, 1), (1, 3)]);
    }
}
