//! Plugins against their own references: every type that a plugin takes, at sizes that it declares and at edge sizes, by
//! each of its tactics, every element. Before each build that uses them, and as `planish plugin check`.

use std::collections::BTreeSet;
use std::sync::Arc;

use planish_ir::Graph;
use planish_kernel::{
    Backend, Budget, Layout, MemoryKind, Numeric, Operand, Problem, Ref, Region, RegionNode,
};
use planish_op::plugin::CustomOp;
use planish_op::{Attribute, Custom, Op};
use planish_plan::{Check, Outcome};
use planish_plugin::{Axis, Bound, Formula, Place, Plugin, PortType, Signature};
use planish_tensor::{DType, Tensor};

use crate::check::{Numbers, launch_alone};
use crate::error::{BuildError, BuildErrorKind, of_passes};

mod pattern;

/// Sizes that are tried for all names at once, then for each name with the others as they are: around vectors and tiles.
const EVEN: [i64; 5] = [4, 8, 16, 2, 1];
const EDGES: [i64; 7] = [0, 1, 2, 3, 17, 33, 64];
/// What stands for `...`.
const RESTS: [&[usize]; 3] = [&[2, 3], &[], &[5]];
/// Cases of one plugin and type, and elements of one operand.
const MAX_CASES: usize = 48;
const MAX_ELEMENTS: usize = 1 << 22;

/// What a plugin was tried with, and what came of it.
#[derive(Clone, Debug)]
pub struct PluginCheck {
    /// As `my.ops::Rope@1`.
    pub operator: String,
    /// The tactic, with the backend: `default on cpu`.
    pub by: String,
    /// The types of its names, as in `T = f16`.
    pub types: String,
    pub n_cases: usize,
    pub n_points: u64,
    /// The largest error, relative to results above 1, and what is allowed.
    pub worst: f64,
    pub allowed: f64,
    /// Why it failed, with the sizes.
    pub failure: Option<String>,
}

/// One set of sizes and types that fit a signature.
struct Case {
    bound: Bound,
    inputs: Vec<Option<(DType, Vec<usize>)>>,
    attributes: Vec<(String, Attribute)>,
}

/// Tries a plugin on a backend that is here; nothing where it has no code for it.
pub fn check_plugin(plugin: &Plugin, backend: &dyn Backend) -> Vec<PluginCheck> {
    let place = match backend.memory_kind() {
        MemoryKind::Host => Place::Cpu,
        MemoryKind::Device => Place::Cuda,
    };
    if !plugin.runs_on(place) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for types in all_types(&plugin.declaration().signature) {
        let cases = cases(plugin, &types);
        for rule in &plugin.declaration().tactics {
            let words: Vec<String> = types.iter().map(|(name, dtype)| format!("{name} = {dtype}")).collect();
            let mut check = PluginCheck {
                operator: plugin.identity().to_string(),
                by: format!("{} on {}", rule.name, backend.name()),
                types: words.join(", "),
                n_cases: 0,
                n_points: 0,
                worst: 0.0,
                allowed: 0.0,
                failure: cases
                    .is_empty()
                    .then(|| "no sizes fit its declaration; say some by `sizes:`".to_string()),
            };
            for (seed, case) in cases.iter().enumerate() {
                check.n_cases += 1;
                if let Err(why) = try_case(plugin, backend, &rule.name, case, seed as u64, &mut check) {
                    check.failure = Some(format!("{why} ({})", described(case)));
                    break;
                }
            }
            found.push(check);
        }
    }
    found
}

/// Checks the plugins of all that a graph has of them, on the backends that they may run on. An error names the first that
/// fails; what passed goes into the certificate.
pub(crate) fn check_used(graph: &Graph, backends: &[Arc<dyn Backend>]) -> Result<Vec<Check>, BuildError> {
    let mut seen = BTreeSet::new();
    let mut checks = Vec::new();
    for (_, node) in graph.nodes() {
        let Op::Custom(op) = &node.op else { continue };
        for backend in backends {
            let is_host = backend.memory_kind() == MemoryKind::Host;
            for plugin in planish_plugin::plugins_for(op, if is_host { Place::Cpu } else { Place::Cuda }) {
                if !seen.insert((plugin.identity().hash.clone(), is_host)) {
                    continue;
                }
                if !is_host && backend.memory_info().is_none_or(|memory| memory.total == 0) {
                    let why = "the GPU is not here".to_string();
                    let subject = format!("plugin {} on {}", plugin.identity(), backend.name());
                    checks.push(Check { subject, n_points: 0, worst: 0.0, outcome: Outcome::Skipped(why) });
                    continue;
                }
                for check in check_plugin(&plugin, &**backend) {
                    let PluginCheck { by, types, n_cases, n_points, worst, failure, .. } = &check;
                    if let Some(why) = failure {
                        let (identity, origin) = (plugin.identity(), &plugin.identity().origin);
                        let message = format!(
                            "the plugin {identity} ({origin}) does not compute what its reference does, by {by} with \
                             {types}: {why}; `planish plugin check` tries it alone"
                        );
                        return Err(BuildError::new(BuildErrorKind::BadOption, message));
                    }
                    let subject = format!(
                        "plugin {} by {by}, {types}, {n_cases} sets of sizes, every element",
                        plugin.identity()
                    );
                    checks.push(Check {
                        subject,
                        n_points: *n_points,
                        worst: *worst,
                        outcome: Outcome::Passed,
                    });
                }
            }
        }
    }
    Ok(checks)
}

/// Runs one case, compares every element.
fn try_case(
    plugin: &Plugin,
    backend: &dyn Backend,
    tactic: &str,
    case: &Case,
    seed: u64,
    check: &mut PluginCheck,
) -> Result<(), String> {
    let op = plugin.custom(case.attributes.clone());
    let mut numbers = Numbers::new(seed.wrapping_add(7));
    let mut tensors = Vec::new();
    for input in &case.inputs {
        tensors.push(match input {
            None => None,
            // Integers may be indices: 0 and 1 are in most ranges.
            Some((dtype, dims)) => {
                Some(numbers.tensor_within(*dtype, dims, (0, 1)).ok_or("a type that is not made up")?)
            }
        });
    }
    let borrowed: Vec<Option<&Tensor>> = tensors.iter().map(Option::as_ref).collect();
    let n_outputs = plugin.declaration().signature.outputs.len();
    let expected =
        plugin.evaluate(&op, &borrowed, n_outputs).map_err(|why| format!("its reference: {why}"))?;
    let problem = problem(&op, case, &expected);
    let name = plugin.tactic_name(tactic);
    let candidates = backend.candidates(&problem, &Budget::USUAL);
    let own: Vec<_> = candidates.iter().filter(|candidate| candidate.tactic.name == name).collect();
    if own.is_empty() && !problem.outputs.iter().all(Operand::is_empty) {
        let task = plugin.task(
            &problem,
            if backend.memory_kind() == MemoryKind::Host { Place::Cpu } else { Place::Cuda },
            tactic,
        );
        let prepared = task.and_then(|task| plugin.prepare(&task).map(drop));
        return Err(prepared.err().unwrap_or_else(|| "it offers nothing for this problem".to_string()));
    }
    let given: Vec<Option<Tensor>> = tensors.iter().flatten().cloned().map(Some).collect();
    for candidate in own {
        let laid = problem.for_candidate(candidate);
        let made =
            launch_alone(backend, &laid, &candidate.tactic, &given).map_err(|error| error.to_string())?;
        for (output, (got, want)) in made.iter().zip(&expected).enumerate() {
            check.allowed = check.allowed.max(plugin.tolerance(want.dtype()));
            compare(output, got, want, plugin.tolerance(want.dtype()), check)?;
        }
    }
    Ok(())
}

fn compare(
    output: usize,
    got: &Tensor,
    want: &Tensor,
    allowed: f64,
    check: &mut PluginCheck,
) -> Result<(), String> {
    for (at, (got, want)) in got.to_f64s().into_iter().zip(want.to_f64s()).enumerate() {
        check.n_points += 1;
        let same = got == want || got.is_nan() && want.is_nan();
        let error = if same { 0.0 } else { (got - want).abs() / want.abs().max(1.0) };
        // NaN is no error that is small.
        if error.is_nan() || error > allowed {
            check.worst = if error.is_nan() { f64::INFINITY } else { error };
            return Err(format!(
                "element {at} of output {output} is {got} instead of {want}, off by {error:.1e} where {allowed:.1e} is allowed"
            ));
        }
        check.worst = check.worst.max(error);
    }
    Ok(())
}

fn problem(op: &Custom, case: &Case, expected: &[Tensor]) -> Problem {
    let mut inputs = Vec::new();
    let mut reads = Vec::new();
    for input in &case.inputs {
        reads.push(input.as_ref().map(|(dtype, dims)| {
            inputs.push(Operand::dense(*dtype, dims, Layout::Plain));
            Ref::Input(inputs.len() as u32 - 1)
        }));
    }
    let n_outputs = expected.len() as u32;
    let node = RegionNode { name: op.name.clone(), op: Op::Custom(op.clone()), inputs: reads, n_outputs };
    let dense = |tensor: &Tensor| Operand::dense(tensor.dtype(), tensor.shape(), Layout::Plain);
    Problem {
        region: Region {
            n_inputs: inputs.len() as u32,
            constants: Vec::new(),
            nodes: vec![node],
            outputs: (0..n_outputs).map(|output| Ref::Node { node: 0, output }).collect(),
        },
        outputs: expected.iter().map(dense).collect(),
        inputs,
        numeric: Numeric::F32,
        threads: 2,
    }
}

/// Every choice of types for a signature's names.
fn all_types(signature: &Signature) -> Vec<Vec<(String, DType)>> {
    let mut all = vec![Vec::new()];
    for (name, types) in &signature.variables {
        let with = |known: &Vec<(String, DType)>| {
            let one = |dtype: &DType| [&known[..], &[(name.clone(), *dtype)]].concat();
            types.iter().map(one).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).collect();
    }
    all
}

/// Sizes that fit the declaration: those that it names, all names alike, and one name after the other at edges.
fn cases(plugin: &Plugin, types: &[(String, DType)]) -> Vec<Case> {
    let declaration = plugin.declaration();
    let signature = &declaration.signature;
    let mut names = BTreeSet::new();
    let (mut has_rest, mut has_optional) = (false, false);
    for port in &signature.inputs {
        has_optional |= port.optional;
        for axis in &port.axes {
            match axis {
                Axis::Rest => has_rest = true,
                Axis::Size(size) => names.extend(size.as_name().map(str::to_string)),
            }
        }
    }
    let rests = if has_rest { &RESTS[..] } else { &RESTS[1..2] };
    let Ok(plain) = declaration.filled(&required(plugin)) else { return Vec::new() };
    let mut sets: Vec<Vec<(String, i64)>> = declaration.sizes.clone();
    sets.extend(EVEN.map(|size| names.iter().map(|name| (name.clone(), size)).collect()));
    let base =
        sets.iter().find(|sizes| case(signature, types, sizes, rests[0], &plain, true).is_some()).cloned();
    for name in &names {
        for size in EDGES {
            let mut moved = base.clone().unwrap_or_default();
            moved.retain(|(known, _)| known != name);
            moved.push((name.clone(), size));
            sets.push(moved);
        }
    }
    let mut all = Vec::new();
    for sizes in &sets {
        all.extend(case(signature, types, sizes, rests[0], &plain, true));
    }
    for rest in &rests[1..] {
        all.extend(base.iter().filter_map(|sizes| case(signature, types, sizes, rest, &plain, true)));
    }
    if has_optional {
        all.extend(base.iter().filter_map(|sizes| case(signature, types, sizes, rests[0], &plain, false)));
    }
    // Switches, the other way round.
    for (idx, (name, value)) in plain.iter().enumerate() {
        if let (Attribute::Int(switch @ (0 | 1)), Some(base)) = (value, &base) {
            let mut other = plain.clone();
            other[idx] = (name.clone(), Attribute::Int(1 - switch));
            all.extend(case(signature, types, base, rests[0], &other, true));
        }
    }
    all.truncate(MAX_CASES);
    all
}

/// Attributes that a model must give, made up.
fn required(plugin: &Plugin) -> Vec<(String, Attribute)> {
    let rules = plugin.declaration().attributes.iter().filter(|rule| rule.required);
    rules.map(|rule| (rule.name.clone(), rule.example.clone())).collect()
}

/// The case of these sizes, if they fit.
fn case(
    signature: &Signature,
    types: &[(String, DType)],
    sizes: &[(String, i64)],
    rest: &[usize],
    attributes: &[(String, Attribute)],
    with_optional: bool,
) -> Option<Case> {
    let number = |(name, value): &(String, Attribute)| match value {
        Attribute::Int(number) => Some((name.clone(), *number)),
        _ => None,
    };
    let wished = Bound {
        types: types.iter().cloned().collect(),
        sizes: attributes.iter().filter_map(number).chain(sizes.iter().cloned()).collect(),
        rest: rest.to_vec(),
    };
    let mut inputs = Vec::new();
    for port in &signature.inputs {
        let dtype = match &port.ty {
            PortType::Fixed(dtype) => *dtype,
            PortType::Variable(name) => *wished.types.get(name)?,
        };
        let given = !port.optional || with_optional;
        inputs.push(if given { Some((dtype, wished.dims(port).ok()?)) } else { None });
    }
    let forms: Vec<_> =
        inputs.iter().map(|input| input.as_ref().map(|(dtype, dims)| (*dtype, &dims[..]))).collect();
    let bound = signature.bind(&forms, attributes).ok()?;
    let made = signature.outputs(&bound).ok()?;
    let lens = made.iter().map(|(_, dims)| dims).chain(inputs.iter().flatten().map(|(_, dims)| dims));
    let is_small = lens.map(|dims| dims.iter().product::<usize>()).all(|len| len <= MAX_ELEMENTS);
    is_small.then(|| Case { bound, inputs, attributes: attributes.to_vec() })
}

fn described(case: &Case) -> String {
    let sizes: Vec<String> = case.bound.sizes.iter().map(|(name, size)| format!("{name}={size}")).collect();
    sizes.join(" ")
}

/// What [`match_plugin`] looks for.
#[derive(Clone, Copy, Debug)]
pub enum Pattern<'a> {
    /// The plugin's own reference.
    Reference,
    /// A formula over the names of the plugin's inputs, outputs and attributes.
    Text(&'a str),
    /// A graph of one output, whose inputs are named as the plugin's.
    Graph(&'a Graph),
}

/// The graph with a plugin's operator wherever it computes the pattern, the plugin's reference if none is given, and how
/// often that is.
pub fn match_plugin(
    graph: &Graph,
    plugin: &Arc<Plugin>,
    pattern: Pattern<'_>,
) -> Result<(Graph, usize), BuildError> {
    let bad = |why: String| BuildError::new(BuildErrorKind::BadOption, why);
    let declaration = plugin.declaration();
    let formula = match (pattern, &declaration.reference) {
        (Pattern::Graph(pattern), _) => pattern::of_graph(pattern, plugin).map_err(bad)?,
        (Pattern::Text(text), _) => {
            let inputs: Vec<&str> =
                declaration.signature.inputs.iter().map(|port| port.name.as_str()).collect();
            let outputs: Vec<&str> =
                declaration.signature.outputs.iter().map(|port| port.name.as_str()).collect();
            let own: Vec<&str> = declaration.attributes.iter().map(|rule| rule.name.as_str()).collect();
            Formula::parse(text, &inputs, &outputs, &own).map_err(bad)?
        }
        (Pattern::Reference, Some(formula)) => formula.clone(),
        (Pattern::Reference, None) => {
            let message =
                format!("the reference of {} is code, not a formula: give --pattern", plugin.identity());
            return Err(bad(message));
        }
    };
    if formula.outputs.len() != 1 {
        return Err(bad("a pattern has one result".to_string()));
    }
    let options = planish_passes::Options::default();
    let count = |graph: &Graph| {
        let is_own = |op: &Op| matches!(op, Op::Custom(op) if plugin.custom(op.attributes.clone()) == *op);
        graph.nodes().filter(|(_, node)| is_own(&node.op)).count()
    };
    let before = count(graph);
    let run = planish_passes::match_plugin(Arc::clone(plugin), formula).run(graph.clone(), &options);
    let (matched, _) = run.map_err(|error| of_passes(&error))?;
    let n = count(&matched) - before;
    Ok((matched, n))
}
