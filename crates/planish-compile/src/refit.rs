//! Other weights for a plan, from another model of the same graph: nothing is lowered, tuned or scheduled again.
//!
//! The new model goes through the passes that the plan's own went through. Where what comes out is the plan's graph but
//! for the elements of constants, these are packed as the plan's were and take their places. Constants that are part of
//! the program (numbers that kernels are made with) cannot be exchanged: where one of them differs, the plan must be built
//! again, and the error says which.

mod pack;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use planish_ir::{Graph, Node, ValueId};
use planish_kernel::{Backend, Ref};
use planish_plan::{Check, Outcome, Plan, Profile, Program, Recipe, StepKind, SymbolRange, Weight};
use planish_tensor::{Bytes, DefaultFloatMode, Tensor, memory};

use crate::backends::Backends;
use crate::build::{Optimized, optimize};
use crate::check::check;
use crate::error::{BuildError, BuildErrorKind};
use crate::lower::is_parameter;
use crate::options::BuildOptions;
use crate::recover::{Recovered, Unpack, options, parse, recover, tensor};
use crate::schedule::weights::narrow;
use pack::repacked_all;

/// A plan with other weights.
#[derive(Debug)]
pub struct Refitted {
    pub plan: Plan,
    /// How many of its weights have other elements now.
    pub n_changed: usize,
}

fn refused(why: impl std::fmt::Display) -> BuildError {
    let message = format!("{why}; the plan cannot be refitted, build it again from the new model");
    BuildError::new(BuildErrorKind::Refused, message)
}

/// Puts the weights of `graph`, whose model has the hash `source`, into a plan that runs on these backends. The plan's
/// certificate says that it was not checked since. Of `calibrated` the ranges are taken, with channels and moments: those
/// that the plan was built with, where its layers are of 8 bits by them.
pub fn refit(
    plan: &Plan,
    graph: &Graph,
    source: [u8; 32],
    backends: &[Arc<dyn Backend>],
    unpack: Unpack<'_>,
    calibrated: Option<&BuildOptions>,
) -> Result<Refitted, BuildError> {
    let _mode = DefaultFloatMode::enter();
    let recipe = plan.recipe();
    let (mut options, _) = options(&recipe);
    take_ranges(&mut options, &recipe.header.options, calibrated)?;
    let mut own = parse(&recipe, &stand_ins(plan)?)?;
    if options.profiles.is_empty() {
        options.profiles = fixed_as(graph, &own);
    }
    let Optimized { graph: new, .. } = optimize(graph, Backends::new(backends)?, &options)?;
    let printed = new.print();
    if printed.constants.len() != plan.constants.len() {
        same_but_constants(&own, &new).map_err(refused)?;
        return Err(refused("the new model has other constants"));
    }
    own = own_graph(plan, &recipe, own, &new, printed.constants, unpack)?;
    if plan.stripped.is_some()
        && let Some(name) = held_otherwise(&plan.program, &new)
    {
        return Err(refused(format!("the constant `{name}` is part of its program and differs")));
    }
    exchange(plan, &own, &new, source, backends)
}

/// The ranges that a plan was built with: by them new weights become the integers that a build would make of them. Other
/// ranges would be other numbers of the program.
fn take_ranges(
    options: &mut BuildOptions,
    recorded: &str,
    calibrated: Option<&BuildOptions>,
) -> Result<(), BuildError> {
    let wanted = |name: &str| recorded.lines().find_map(|line| line.strip_prefix(name));
    let (ranges, moments) = (wanted("ranges="), wanted("moments="));
    let rounds = options.precision.quantizes() && ranges.is_some() || moments.is_some();
    let Some(BuildOptions { ranges: given, channels, moments: together, .. }) = calibrated else {
        return match rounds {
            true => Err(BuildError::new(
                BuildErrorKind::Refused,
                "the plan's layers are of 8 bits by a calibration; give the one that it was built with (--calib FILE), and \
                 its weights can be taken out, put back and exchanged",
            )),
            false => Ok(()),
        };
    };
    (options.ranges, options.channels, options.moments) = (given.clone(), channels.clone(), together.clone());
    let is_same = |wanted: Option<&str>, is: Option<u64>| {
        wanted.map(str::to_owned) == is.map(|digest| format!("{digest:016x}"))
    };
    match is_same(ranges, options.ranges_digest()) && is_same(moments, options.moments_digest()) {
        true => Ok(()),
        false => Err(BuildError::new(
            BuildErrorKind::Refused,
            "the calibration is not the one that the plan was built with; give that one, or build the plan again",
        )),
    }
}

/// Puts the elements of a graph's constants into a plan, whose own graph is the same but for these.
fn exchange(
    plan: &Plan,
    own: &Graph,
    new: &Graph,
    source: [u8; 32],
    backends: &[Arc<dyn Backend>],
) -> Result<Refitted, BuildError> {
    let pairs = same_but_constants(own, new).map_err(refused)?;
    let printed = with_elements_of(own, new)?.print();
    if printed.constants.len() != plan.constants.len() {
        return Err(refused("the new model has other constants"));
    }
    let mut tensors = Assigned { plan, of: HashMap::new() };
    for (&number, constant) in plan.constants.iter().zip(&printed.constants) {
        tensors.assign(number, constant)?;
    }
    for (before, after) in &pairs {
        let (old, new_value) = (own.value(*before), new.value(*after));
        let (Some(from), Some(to)) = (old.constant(), new_value.constant()) else { continue };
        let name = &*old.name;
        let numbers = plan.weights.iter().enumerate().filter(|(_, weight)| weight.name == name);
        let numbers: Vec<u32> = numbers.map(|(number, _)| number as u32).collect();
        for &number in &numbers {
            tensors.assign(number, to)?;
        }
        let holds = |number: &u32| tensors.of.get(number).is_some_and(|tensor| tensor.bytes() == to.bytes());
        let is_held = !numbers.is_empty() || plan.constants.iter().any(holds);
        if from.bytes() != to.bytes() && (is_part_of_program(own, *before) || !is_held) {
            return Err(refused(format!("the constant `{name}` is part of its program and differs")));
        }
        if from.bytes() != to.bytes() && is_in_bodies(own, name) {
            return Err(refused(format!("the constant `{name}` has the name of one in control flow")));
        }
    }
    if let Some((a, b)) = parted(own, new, &pairs) {
        return Err(refused(format!("the constants `{a}` and `{b}` had the same elements and differ now")));
    }
    if plan.stripped.is_some() {
        tensors.add_others(own)?;
    }
    let mut weights = plan.weights.clone();
    let mut n_changed = 0;
    for (number, changed) in repacked_all(plan, &tensors.of, backends)? {
        let weight = &plan.weights[number as usize];
        let is_same = plan.stripped.is_none() && weight.widened() == changed.widened();
        if !is_same {
            n_changed += 1;
            weights[number as usize] = changed;
        }
    }
    narrow(&mut weights, &plan.program);
    // The weights that it was checked with, bit by bit: it may be the plan that was checked.
    let (mut refitted, is_same) = match plan.stripped {
        Some(_) => plan.refill(weights),
        None => (Plan { weights, ..plan.clone() }, n_changed == 0),
    };
    refitted.graph = printed.text;
    refitted.header.source = source;
    let unwritable = |error| refused(format!("it cannot be written: {error}"));
    if is_same && refitted.certificate_holds().map_err(unwritable)? {
        return Ok(Refitted { plan: refitted, n_changed });
    }
    let why = "weights were replaced since the self-check; `planish check` runs it again";
    let check = Check {
        subject: planish_plan::REFITTED.to_string(),
        n_points: 0,
        worst: 0.0,
        outcome: Outcome::Skipped(why.to_string()),
    };
    refitted.certify(vec![check]).map_err(unwritable)?;
    Ok(Refitted { plan: refitted, n_changed })
}

/// The plan's own graph with the elements of the new model's. The latter's own text may number constants otherwise: a pass
/// that has nothing to do for a weight (rounding zeros, say) leaves it in its place.
fn with_elements_of(own: &Graph, new: &Graph) -> Result<Graph, BuildError> {
    let mut filled = own.clone();
    for (before, after) in same_but_constants(own, new).map_err(refused)? {
        if let Some(to) = new.value(after).constant() {
            filled.set_elements(before, to.clone());
        }
    }
    Ok(filled)
}

/// The plan's graph with its own elements where they matter, constants of the new graph elsewhere: unpacking all of the
/// old weights would take as long as packing the new ones. Elements matter in bodies, which keep their constants, and
/// where they are part of the program; those that a plan does not hold any more are taken for the new ones. `stand_ins` is
/// the plan's graph with other elements, `printed` are the constants of the new graph as its text numbers them.
fn own_graph(
    plan: &Plan,
    recipe: &Recipe,
    stand_ins: Graph,
    new: &Graph,
    printed: Vec<Tensor>,
    unpack: Unpack<'_>,
) -> Result<Graph, BuildError> {
    let has_bodies = stand_ins.nodes().any(|(_, node)| !node.bodies.is_empty());
    if has_bodies && plan.stripped.is_none() {
        return Ok(recover(recipe, unpack)?.graph);
    }
    let holds = |(number, tensor): (&u32, &Tensor)| {
        let weight = &plan.weights[*number as usize];
        (weight.dtype, &weight.dims[..]) == (tensor.dtype(), tensor.shape())
    };
    let mut constants = match has_bodies {
        true if plan.constants.iter().zip(&printed).all(holds) => printed,
        true => return Err(refused("the new model has other constants")),
        false => with_elements_of(&stand_ins, new)?.print().constants,
    };
    if constants.len() != plan.constants.len() {
        return Err(refused("the new model has other constants"));
    }
    let graph = parse(recipe, &constants)?;
    if plan.stripped.is_some() {
        return Ok(graph);
    }
    let mut any = false;
    for (number, constant) in plan.constants.iter().zip(&mut constants) {
        if is_parameter_of(&graph, constant) {
            *constant = tensor(recipe, &plan.weights[*number as usize], unpack)?;
            any = true;
        }
    }
    if any { parse(recipe, &constants) } else { Ok(graph) }
}

/// Tensors of the types and sizes of the plan's constants, all over the same zeros.
fn stand_ins(plan: &Plan) -> Result<Vec<Tensor>, BuildError> {
    let n_bytes = |weight: &Weight| weight.dtype.bytes_of(&weight.dims).unwrap_or(0);
    let weights = || plan.constants.iter().map(|number| &plan.weights[*number as usize]);
    // Packed weights say any sizes: nothing has held them against their bytes yet.
    let most = weights().map(n_bytes).max().unwrap_or(0);
    let too_large = |_| refused(format!("a weight of {most} bytes is larger than this machine's memory"));
    memory::fits(most).map_err(too_large)?;
    let zeros = Bytes::from_vec(vec![0u64; most.div_ceil(8)]);
    let one = |weight: &Weight| {
        let zeros = zeros.slice(0..n_bytes(weight)).ok_or_else(|| refused("its weights have no sizes"))?;
        Tensor::from_bytes(weight.dtype, &weight.dims, zeros).map_err(|error| refused(error.to_string()))
    };
    weights().map(one).collect()
}

/// The name of a constant that a step of the program holds itself, with other elements than the graph has.
fn held_otherwise<'g>(program: &Program, graph: &'g Graph) -> Option<&'g str> {
    let nodes: HashMap<&str, &Node> = graph.nodes().map(|(_, node)| (&*node.name, node)).collect();
    program.steps.iter().find_map(|step| {
        step.region.nodes.iter().find_map(|part| {
            let node = nodes.get(part.name.as_str())?;
            if let StepKind::Control(control) = &step.kind {
                let mut bodies = control.bodies.iter().zip(&node.bodies);
                return bodies.find_map(|(body, graph)| held_otherwise(body, graph));
            }
            part.inputs.iter().zip(&node.inputs).find_map(|(input, id)| {
                let (Some(Ref::Constant(number)), Some(id)) = (input, id) else { return None };
                let (held, value) = (step.region.constants.get(*number as usize)?, graph.value(*id));
                (*held != *value.constant()?).then_some(&*value.name)
            })
        })
    })
}

/// Runs the self-check of a plan again, against the graph that it carries, and certifies it.
pub fn recheck(plan: &Plan, backends: &[Arc<dyn Backend>], unpack: Unpack<'_>) -> Result<Plan, BuildError> {
    let _mode = DefaultFloatMode::enter();
    let recipe = plan.recipe();
    let Recovered { graph, options, of_weight, .. } = recover(&recipe, unpack)?;
    // The check tells constants by their memory, which graph, regions and weights share after a build.
    let mut sharing = plan.clone();
    share_constants(&mut sharing.program, &graph);
    let mut tensors = Vec::with_capacity(plan.weights.len());
    for (number, weight) in plan.weights.iter().enumerate() {
        tensors.push(match of_weight.get(&(number as u32)) {
            Some(known) => known.clone(),
            None => {
                let own = tensor(&recipe, weight, unpack)?;
                let named = named_constant(&graph, &weight.name).filter(|known| **known == own);
                let known = named.or_else(|| of_weight.values().find(|known| **known == own));
                known.cloned().unwrap_or(own)
            }
        });
    }
    let options = BuildOptions { verify: true, ..options };
    let findings = check(&graph, &graph, &sharing, &tensors, backends, &options)?;
    if let Some(failure) = findings.failure() {
        let message = format!("the plan does not compute its graph: {failure}");
        return Err(BuildError::new(BuildErrorKind::CheckFailed, message));
    }
    let mut checked = plan.clone();
    checked
        .certify(findings.certificate.checks)
        .map_err(|error| BuildError::internal(format!("the plan cannot be written: {error}")))?;
    Ok(checked)
}

/// The constant of this name in a graph or in its bodies.
fn named_constant<'g>(graph: &'g Graph, name: &str) -> Option<&'g Tensor> {
    let own = graph.find(name).and_then(|id| graph.value(id).constant());
    own.or_else(|| {
        graph.nodes().flat_map(|(_, node)| &node.bodies).find_map(|body| named_constant(body, name))
    })
}

/// Has the regions of a program hold the constants of its graph themselves, not copies of them.
fn share_constants(program: &mut Program, graph: &Graph) {
    let nodes: HashMap<&str, &Node> = graph.nodes().map(|(_, node)| (&*node.name, node)).collect();
    for step in &mut program.steps {
        for at in 0..step.region.nodes.len() {
            let Some(node) = nodes.get(step.region.nodes[at].name.as_str()) else { continue };
            if let StepKind::Control(control) = &mut step.kind {
                for (body, graph) in control.bodies.iter_mut().zip(&node.bodies) {
                    share_constants(body, graph);
                }
            }
            for (input, id) in step.region.nodes[at].inputs.iter().zip(&node.inputs) {
                let (Some(Ref::Constant(number)), Some(id)) = (input, id) else { continue };
                let held = step.region.constants.get_mut(*number as usize);
                if let (Some(held), Some(tensor)) = (held, graph.value(*id).constant())
                    && *held == *tensor
                {
                    *held = tensor.clone();
                }
            }
        }
    }
}

/// The profile that fixes the symbols of a model's inputs at the sizes that the plan's graph has; none where that is open.
fn fixed_as(graph: &Graph, own: &Graph) -> Vec<Profile> {
    let mut ranges: Vec<SymbolRange> = Vec::new();
    for (&new, &old) in graph.inputs().iter().zip(own.inputs()) {
        let shape =
            |graph: &Graph, id: ValueId| graph.value(id).ty.as_tensor().and_then(|ty| ty.shape.clone());
        let (Some(new), Some(old)) = (shape(graph, new), shape(own, old)) else { continue };
        for (new, old) in new.dims().iter().zip(old.dims()) {
            if let (Some(symbol), Some(size)) = (new.as_symbol(), old.as_const())
                && ranges.iter().all(|range| range.symbol != symbol)
            {
                ranges.push(SymbolRange { symbol: symbol.to_string(), min: size, opt: size, max: size });
            }
        }
    }
    if ranges.is_empty() { Vec::new() } else { vec![Profile { ranges }] }
}

/// Tensors for weights by their numbers.
struct Assigned<'a> {
    plan: &'a Plan,
    of: HashMap<u32, Tensor>,
}

impl Assigned<'_> {
    fn assign(&mut self, number: u32, tensor: &Tensor) -> Result<(), BuildError> {
        let weight = &self.plan.weights[number as usize];
        if (weight.dtype, &weight.dims[..]) != (tensor.dtype(), tensor.shape()) {
            return Err(refused(format!("the weight `{}` has other sizes or another type", weight.name)));
        }
        match self.of.get(&number) {
            Some(known) if known.bytes() != tensor.bytes() => {
                Err(refused(format!("the weight `{}` serves several constants that differ now", weight.name)))
            }
            _ => {
                self.of.insert(number, tensor.clone());
                Ok(())
            }
        }
    }

    /// Weights that no constant was assigned to so far, by their names: of bodies, say.
    fn add_others(&mut self, graph: &Graph) -> Result<(), BuildError> {
        for (number, weight) in self.plan.weights.iter().enumerate() {
            if !self.of.contains_key(&(number as u32)) {
                let known = named_constant(graph, &weight.name);
                let tensor = known.ok_or_else(|| {
                    refused(format!("the weight `{}` is none of the model's constants", weight.name))
                })?;
                self.assign(number as u32, tensor)?;
            }
        }
        Ok(())
    }
}

/// Constants of two graphs that are the same but for their elements, in pairs; or what differs.
fn same_but_constants(own: &Graph, new: &Graph) -> Result<Vec<(ValueId, ValueId)>, String> {
    let same_list = |a: &[ValueId], b: &[ValueId]| {
        let of = |graph: &Graph, id: &ValueId| (graph.value(*id).name.clone(), graph.value(*id).ty.clone());
        a.iter().map(|id| of(own, id)).eq(b.iter().map(|id| of(new, id)))
    };
    if !same_list(own.inputs(), new.inputs()) {
        return Err("the new model has other inputs".to_string());
    }
    if !same_list(own.outputs(), new.outputs()) {
        return Err("the new model has other outputs".to_string());
    }
    if own.nodes().len() != new.nodes().len() {
        let (n_own, n_new) = (own.nodes().len(), new.nodes().len());
        return Err(format!("the plan's graph has {n_own} nodes, that of the new model {n_new}"));
    }
    let mut pairs: Vec<(ValueId, ValueId)> =
        own.outputs().iter().copied().zip(new.outputs().iter().copied()).collect();
    let mut known: HashSet<ValueId> = own.outputs().iter().copied().collect();
    for ((_, a), (_, b)) in own.nodes().zip(new.nodes()) {
        let differs = || format!("node `{}` of the plan's graph is not that of the new model", a.name);
        let names = |graph: &Graph, list: &[Option<ValueId>]| {
            let of = |id: &Option<ValueId>| {
                id.map(|id| (graph.value(id).name.clone(), graph.value(id).ty.clone()))
            };
            list.iter().map(of).collect::<Vec<_>>()
        };
        let is_same = a.op == b.op
            && a.n_captured == b.n_captured
            && names(own, &a.inputs) == names(new, &b.inputs)
            && names(own, &a.outputs) == names(new, &b.outputs)
            && same_bodies(a, b);
        if !is_same {
            return Err(differs());
        }
        for (a, b) in a.inputs.iter().flatten().zip(b.inputs.iter().flatten()) {
            if own.value(*a).constant().is_some() != new.value(*b).constant().is_some() {
                return Err(differs());
            }
            if known.insert(*a) {
                pairs.push((*a, *b));
            }
        }
    }
    Ok(pairs)
}

/// Two constants without a number in the graph's text that were the same and are not any more: they may share a weight.
fn parted<'a>(own: &'a Graph, new: &Graph, pairs: &[(ValueId, ValueId)]) -> Option<(&'a str, &'a str)> {
    let numbered: HashSet<usize> =
        own.print().constants.iter().map(|tensor| tensor.bytes().as_ptr().addr()).collect();
    let mut seen: Vec<(&str, &Tensor, &Tensor)> = Vec::new();
    for (before, after) in pairs {
        let (from, to) = (own.value(*before), new.value(*after));
        let (Some(old), Some(tensor)) = (from.constant(), to.constant()) else { continue };
        if numbered.contains(&old.bytes().as_ptr().addr()) {
            continue;
        }
        match seen.iter().find(|(_, known, _)| *known == old) {
            Some((name, _, known)) if known.bytes() != tensor.bytes() => return Some((name, &from.name)),
            Some(_) => {}
            None => seen.push((&from.name, old, tensor)),
        }
    }
    None
}

/// Bodies of control flow keep their constants.
fn same_bodies(a: &Node, b: &Node) -> bool {
    let same = |(a, b): (&Graph, &Graph)| a.print_whole() == b.print_whole();
    a.bodies.len() == b.bodies.len() && a.bodies.iter().zip(&b.bodies).all(same)
}

/// Whether a step holds the constant as a number of its own.
fn is_part_of_program(graph: &Graph, constant: ValueId) -> bool {
    graph.value(constant).constant().is_some_and(|tensor| is_parameter_of(graph, tensor))
}

/// Whether a node takes this very tensor as one of its parameters.
fn is_parameter_of(graph: &Graph, tensor: &Tensor) -> bool {
    let is_it = |id: ValueId| graph.value(id).constant().is_some_and(|known| shares(known, tensor));
    graph.nodes().any(|(_, node)| {
        let mut places = node.inputs.iter().enumerate().filter_map(|(place, id)| Some((place, (*id)?)));
        places.any(|(place, id)| is_it(id) && is_parameter(&node.op, place, tensor))
    })
}

/// Whether two tensors are views of the same memory.
fn shares(a: &Tensor, b: &Tensor) -> bool {
    std::ptr::eq(&raw const **a.bytes(), &raw const **b.bytes())
}

/// Whether a body of control flow has a constant of this name.
fn is_in_bodies(graph: &Graph, name: &str) -> bool {
    let has = |body: &Graph| {
        let mut constants = body.values().filter(|(_, value)| value.constant().is_some());
        constants.any(|(_, value)| *value.name == *name) || is_in_bodies(body, name)
    };
    graph.nodes().any(|(_, node)| node.bodies.iter().any(has))
}
