//! Where each node of a model went in its plan: the step that computes it, or why none does.
//!
//! Passes keep the names of nodes and values where these survive. A node whose name and values are gone was taken up by
//! what read it, or by what it read; nodes of constants and of sizes are computed before anything runs.

use std::collections::HashMap;

use planish::graph::{Graph, Node};
use planish::record::{Plan, Storage};
use serde_json::{Value, json};

/// What passes put behind the name of a value that they store otherwise.
const ENDINGS: [&str; 5] = [".quantize", ".dequantize", " to f16", " to bf16", " to f32"];

/// What became of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// The step has it under its name.
    Kept,
    /// The step makes its value, by an operator that was fused or replaced.
    Merged,
    /// Its value is another's memory, seen with other dimensions: nothing is computed.
    View,
    /// Neither its name nor its value is left; the step of what reads it, or of what it reads, does its work.
    Absorbed,
    /// Computed when the plan was built.
    Folded,
    /// Follows from the sizes of the inputs: settled before the run.
    Sizes,
    /// Nothing needs it.
    Unused,
}

impl Fate {
    fn name(self) -> &'static str {
        match self {
            Fate::Kept => "kept",
            Fate::Merged => "merged",
            Fate::View => "view",
            Fate::Absorbed => "absorbed",
            Fate::Folded => "folded",
            Fate::Sizes => "sizes",
            Fate::Unused => "unused",
        }
    }
}

/// The places of all nodes.
pub(crate) struct Mapping<'g> {
    graph: &'g Graph,
    /// By node: what became of it, and the step.
    pub(crate) places: Vec<(Fate, Option<usize>)>,
}

/// Names of a plan that lead to steps.
#[derive(Default)]
struct Names<'p> {
    nodes: HashMap<&'p str, usize>,
    /// The step, and whether its own memory holds the value.
    values: HashMap<&'p str, (usize, bool)>,
}

impl<'p> Names<'p> {
    fn new(plan: &'p Plan) -> Names<'p> {
        let program = &plan.program;
        let mut names = Names::default();
        let (mut makers, mut readers) = (vec![None; program.values.len()], vec![None; program.values.len()]);
        for (at, step) in program.steps.iter().enumerate() {
            for node in step.region.nodes.iter().filter(|node| !node.name.is_empty()) {
                names.nodes.entry(&node.name).or_insert(at);
            }
            for (list, slots) in [(&step.outputs, &mut makers), (&step.inputs, &mut readers)] {
                for &value in list.iter().flatten() {
                    if let Some(slot) = slots.get_mut(value as usize) {
                        slot.get_or_insert(at);
                    }
                }
            }
        }
        let step_of = |value: usize| makers[value].or(readers[value]);
        for (at, value) in program.values.iter().enumerate() {
            let (root, is_own) = match value.storage {
                Storage::Alias { of } if makers[at].is_none() => (of as usize, false),
                _ => (at, true),
            };
            let Some(step) = step_of(at).or_else(|| step_of(root)) else { continue };
            // Plain names first: what passes made of a value must not take the place of the value itself.
            names.values.insert(&value.name, (step, is_own));
        }
        for value in &program.values {
            let Some(&found) = names.values.get(value.name.as_str()) else { continue };
            names.values.entry(plain(&value.name)).or_insert(found);
        }
        names
    }
}

/// The name before what passes put behind it.
fn plain(name: &str) -> &str {
    let mut name = name.split(" for ").next().unwrap_or(name);
    loop {
        let unnumbered =
            name.trim_end_matches(|c: char| c.is_ascii_digit()).strip_suffix('.').unwrap_or(name);
        match ENDINGS.iter().find_map(|ending| unnumbered.strip_suffix(ending)) {
            Some(shorter) => name = shorter,
            None => return name,
        }
    }
}

impl<'g> Mapping<'g> {
    /// Of a plan and the model that it was built from.
    pub(crate) fn new(plan: &Plan, graph: &'g Graph) -> Option<Mapping<'g>> {
        let names = Names::new(plan);
        let nodes: Vec<&Node> = graph.nodes().map(|(_, node)| node).collect();
        let mut places: Vec<Option<(Fate, Option<usize>)>> = vec![None; nodes.len()];
        for (place, node) in places.iter_mut().zip(&nodes) {
            let outputs = node.outputs.iter().flatten().map(|&id| &*graph.value(id).name);
            let made = outputs.filter_map(|name| names.values.get(name)).next();
            *place = match (names.nodes.get(&*node.name), made) {
                (Some(&step), _) => Some((Fate::Kept, Some(step))),
                (None, Some(&(step, true))) => Some((Fate::Merged, Some(step))),
                (None, Some(&(step, false))) => Some((Fate::View, Some(step))),
                (None, None) => None,
            };
        }
        // Nodes stand in an order in which each reads only earlier ones.
        for at in 0..nodes.len() {
            let is_settled = |id: planish::graph::ValueId| {
                let value = graph.value(id);
                match value.producer {
                    None => value.constant().is_some(),
                    Some(node) => matches!(places[node.index()], Some((Fate::Folded, _))),
                }
            };
            let node = nodes[at];
            let mut inputs = node.inputs.iter().flatten();
            if places[at].is_none() && node.bodies.is_empty() && inputs.all(|&id| is_settled(id)) {
                places[at] = Some((Fate::Folded, None));
            }
            let has_content = |id: &planish::graph::ValueId| graph.value(*id).content.is_some();
            if places[at].is_none()
                && !node.outputs.is_empty()
                && node.outputs.iter().flatten().all(has_content)
            {
                places[at] = Some((Fate::Sizes, None));
            }
        }
        let mut reader_of: HashMap<planish::graph::ValueId, Vec<usize>> = HashMap::new();
        for (at, node) in nodes.iter().enumerate() {
            node.inputs.iter().flatten().for_each(|&id| reader_of.entry(id).or_default().push(at));
        }
        let step_at =
            |places: &[Option<(Fate, Option<usize>)>], at: usize| places[at].and_then(|(_, step)| step);
        for at in (0..nodes.len()).rev() {
            if places[at].is_some() {
                continue;
            }
            let readers = nodes[at].outputs.iter().flatten().filter_map(|id| reader_of.get(id)).flatten();
            let step = readers.filter_map(|&reader| step_at(&places, reader)).min();
            places[at] = step.map(|step| (Fate::Absorbed, Some(step)));
        }
        for at in 0..nodes.len() {
            if places[at].is_some() {
                continue;
            }
            let makers = nodes[at].inputs.iter().flatten().filter_map(|&id| graph.value(id).producer);
            let step = makers.filter_map(|node| step_at(&places, node.index())).max();
            let is_read = nodes[at]
                .outputs
                .iter()
                .flatten()
                .any(|id| reader_of.contains_key(id) || graph.outputs().contains(id));
            places[at] = match step.filter(|_| is_read) {
                Some(step) => Some((Fate::Absorbed, Some(step))),
                None => Some((Fate::Unused, None)),
            };
        }
        let places = places.into_iter().collect::<Option<Vec<_>>>()?;
        Some(Mapping { graph, places })
    }

    pub(crate) fn json(&self) -> Value {
        let one = |((_, node), (fate, step)): ((_, &Node), &(Fate, Option<usize>))| {
            let output = node.outputs.iter().flatten().next().map(|&id| self.graph.value(id));
            let makers = node.inputs.iter().flatten().filter_map(|&id| self.graph.value(id).producer);
            let name = match (node.name.is_empty(), output) {
                (true, Some(output)) => &output.name,
                _ => &node.name,
            };
            json!({
                "name": name, "op": node.op.name(), "type": output.map(|output| output.ty.to_string()),
                "reads": makers.map(|node| node.index()).collect::<Vec<_>>(), "layer": step, "fate": fate.name(),
            })
        };
        self.graph.nodes().zip(&self.places).map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use planish::Builder;

    use super::*;

    const GRAPH: &str = r#"graph "g" {
    input %x: f32[n,4]
    %a: f32[n,4] = Relu(%x)
    %b: f32[n,4] = Exp(%a)
    %unused: f32[n,4] = Neg(%x)
    %y: f32[n,4] = Abs(%b)
    output %y
}"#;

    #[test]
    fn every_node_has_a_place() {
        let graph: Graph = GRAPH.parse().unwrap();
        let plan = Builder::from_graph(graph.clone()).tune_level(0).build().unwrap();
        let mapping = Mapping::new(plan.record(), &graph).unwrap();
        let fates: Vec<Fate> = mapping.places.iter().map(|(fate, _)| *fate).collect();
        assert_eq!(fates.len(), 4);
        assert_eq!(fates[2], Fate::Unused);
        assert!(
            mapping.places.iter().enumerate().all(|(at, (_, step))| at == 2 || *step == Some(0)),
            "{fates:?}"
        );
        assert_eq!(mapping.json().as_array().unwrap()[3]["reads"], serde_json::json!([1]));
    }

    #[test]
    fn names_are_followed_back() {
        assert_eq!(plain("x to f16"), "x");
        assert_eq!(plain("conv1.quantize.2"), "conv1");
        assert_eq!(plain("y.quantize for conv2"), "y");
        assert_eq!(plain("layer.12"), "layer.12");
    }
}
