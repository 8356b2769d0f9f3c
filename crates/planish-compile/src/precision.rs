//! The graph in the number types that were asked for, and what of it stays in f32.

pub(crate) mod by_price;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use planish_ir::Graph;
use planish_kernel::{Arithmetic, Backend, Numeric, Ref, Region, RegionNode};
use planish_op::Op;
use planish_passes::{Options, Pipeline, Report, name_matches};
use planish_tensor::{DType, Tensor};

use crate::backends::Backends;
use crate::error::{BuildError, BuildErrorKind, of_passes};
use crate::integers::wide_layers;
use crate::options::{BuildOptions, Precision};

/// Reasons that the note about what stays in f32 spells out.
const MAX_LISTED: usize = 6;

/// Brings an optimized graph to the precision that was asked for. Where no backend computes in 16 bits, weights alone
/// are rounded to them. What stays in f32 is noted.
pub(crate) fn lower_precision(
    graph: Graph,
    backends: Backends<'_>,
    options: &BuildOptions,
    passes: &mut Report,
    notes: &mut Vec<String>,
) -> Result<Graph, BuildError> {
    let is_quantized = options.precision.quantizes();
    let precision = if is_quantized { wide_layers(backends) } else { options.precision };
    if is_quantized && precision == Precision::Fp32 {
        return Ok(graph);
    }
    let computes = |backend: &Arc<dyn Backend>| backend.arithmetics().contains(&precision.arithmetic());
    let computes = backends.all().iter().any(computes);
    match precision.storage() {
        None if !computes => {
            let message = format!(
                "--precision {}: {} has no kernels for it; build with --precision fp32, or for a GPU with --device cuda",
                precision.name(),
                names(backends)
            );
            Err(BuildError::new(BuildErrorKind::Refused, message))
        }
        None => Ok(graph),
        Some(storage) if !computes => {
            let (graph, _, reasons) = round_weights(graph, storage, options, passes)?;
            let (name, cpu) = (precision.name(), names(backends));
            let computes = match Products::new(backends, options).rounds {
                true => format!("multiplies in {name} where that is faster, all else is fp32"),
                false => "computes in fp32".to_string(),
            };
            notes.push(format!(
                "--precision {name}: {cpu} {computes}; weights are rounded to {name} and stored in half the bytes"
            ));
            notes.extend(stays("nodes", precision, Precision::Fp32, &reasons));
            Ok(graph)
        }
        Some(storage) => {
            let ranges = if is_quantized { HashMap::new() } else { options.ranges.clone() };
            let pipeline = planish_passes::lower_precision(storage, options.fp32_layers.clone(), ranges);
            let (graph, _, reasons) = run_and_explain(pipeline, "lower_precision", graph, options, passes)?;
            if !is_quantized {
                // Of integers most nodes are something else than 16-bit floats; which of them is no news.
                let n_nodes = graph.nodes().filter(|(_, node)| !matches!(node.op, Op::Cast(_))).count();
                notes.extend(stays(&format!("of {n_nodes} nodes"), precision, Precision::Fp32, &reasons));
            }
            Ok(graph)
        }
    }
}

/// Nodes that a pass refused, by reason.
pub(crate) type Reasons = BTreeMap<String, Vec<String>>;

/// Rounds weights to a type of 16 bits; says of how many nodes, and why those of others stay as they are.
fn round_weights(
    graph: Graph,
    to: DType,
    options: &BuildOptions,
    passes: &mut Report,
) -> Result<(Graph, usize, Reasons), BuildError> {
    let pipeline = planish_passes::round_weights(to, options.fp32_layers.clone());
    run_and_explain(pipeline, "round_weights", graph, options, passes)
}

/// Runs passes; says how often the one of this name hit, and why it did not where it refused.
pub(crate) fn run_and_explain(
    pipeline: Pipeline,
    name: &str,
    graph: Graph,
    options: &BuildOptions,
    passes: &mut Report,
) -> Result<(Graph, usize, Reasons), BuildError> {
    // Refusals are what stayed in f32: they are asked for always, and listed only where that was asked for.
    let pass_options = Options { explain: true, cancel: options.cancel.clone(), ..Options::default() };
    let (graph, mut report) = pipeline.run(graph, &pass_options).map_err(|error| of_passes(&error))?;
    let (mut n_hits, mut reasons) = (0, Reasons::new());
    for pass in &mut report.passes {
        if pass.pass == name {
            n_hits += pass.hits;
            for refusal in &pass.refusals {
                reasons.entry(refusal.reason.clone()).or_default().push(refusal.node.clone());
            }
        }
        if !options.explain {
            pass.refusals.clear();
        }
    }
    passes.passes.append(&mut report.passes);
    Ok((graph, n_hits, reasons))
}

/// The backends' names, in words.
fn names(backends: Backends<'_>) -> String {
    let names: Vec<&str> = backends.all().iter().map(|backend| backend.name()).collect();
    names.join(" and ")
}

/// A model of 16-bit floats computed in f32, where no backend has arithmetic of 16 bits, and what its weights were
/// stored in. Noted, since values between nodes are then more exact than the model's types ask for.
pub(crate) fn raise_precision(
    graph: Graph,
    backends: Backends<'_>,
    options: &BuildOptions,
    notes: &mut Vec<String>,
) -> Result<(Graph, Option<Precision>), BuildError> {
    let half = |dtype: DType| matches!(dtype, DType::F16 | DType::BF16);
    let in_half = |node: &planish_ir::Node| {
        let ends = node.inputs.iter().chain(&node.outputs).flatten();
        let mut types = ends.filter_map(|id| graph.value(*id).ty.as_tensor().map(|ty| ty.dtype));
        !matches!(node.op, Op::Cast(_)) && types.any(half)
    };
    let n_half = graph.nodes().filter(|(_, node)| in_half(node)).count();
    let can = [Precision::Fp16, Precision::Bf16].map(Precision::arithmetic);
    let has = |backend: &Arc<dyn Backend>| can.iter().any(|one| backend.arithmetics().contains(one));
    if n_half == 0 || backends.all().iter().any(has) {
        return Ok((graph, None));
    }
    let n_elements = |precision: &Precision| -> usize {
        let constants = graph.values().filter_map(|(_, value)| value.constant());
        constants.filter(|tensor| Some(tensor.dtype()) == precision.storage()).map(Tensor::len).sum()
    };
    let weights = [Precision::Fp16, Precision::Bf16].into_iter().max_by_key(n_elements);
    let weights = weights.filter(|precision| n_elements(precision) > 0);
    let (graph, _) = planish_passes::raise_precision()
        .run(graph, &Options { cancel: options.cancel.clone(), ..Options::default() })
        .map_err(|error| of_passes(&error))?;
    notes.push(format!(
        "{n_half} nodes of 16-bit floats are computed in fp32: {} has no kernels for them",
        names(backends)
    ));
    Ok((graph, weights))
}

/// Brings weights back to the 16 bits that a raised model had them in: passes fold other numbers into them. Gives the
/// precision back if any were rounded.
pub(crate) fn keep_weights(
    graph: Graph,
    precision: Precision,
    options: &BuildOptions,
    passes: &mut Report,
) -> Result<(Graph, Option<Precision>), BuildError> {
    let Some(storage) = precision.storage() else { return Ok((graph, None)) };
    let (graph, n_rounded, _) = round_weights(graph, storage, options, passes)?;
    Ok((graph, Some(precision).filter(|_| n_rounded > 0)))
}

/// What computes in a wider precision, and why; `among` says of how many.
pub(crate) fn stays(among: &str, precision: Precision, wide: Precision, reasons: &Reasons) -> Option<String> {
    let n_kept: usize = reasons.values().map(Vec::len).sum();
    let (precision, wide) = (precision.name(), wide.name());
    (n_kept > 0)
        .then(|| format!("--precision {precision}: {n_kept} {among} stay in {wide}: {}", listed(reasons)))
}

/// The most frequent reasons, with the first node of each.
pub(crate) fn listed(reasons: &Reasons) -> String {
    let mut listed: Vec<(&String, &Vec<String>)> = reasons.iter().collect();
    listed.sort_by_key(|(reason, nodes)| (std::cmp::Reverse(nodes.len()), *reason));
    let shown: Vec<String> = listed
        .iter()
        .take(MAX_LISTED)
        .map(|(reason, nodes)| match &nodes[..] {
            [only] => format!("`{only}`: {reason}"),
            [first, ..] => format!("`{first}` and {} more: {reason}", nodes.len() - 1),
            [] => String::new(),
        })
        .collect();
    let more = listed.len().saturating_sub(MAX_LISTED);
    let more = if more > 0 { format!("; {more} more reasons, see --explain") } else { String::new() };
    format!("{}{more}", shown.join("; "))
}

/// What a product of the region whose factors are dequantized there is taken in, if it has one. `inputs` are the types of the
/// region's.
fn multiplied_bytes(region: &Region, inputs: &[DType]) -> Option<Numeric> {
    let dequantized = |reference: &Option<Ref>| {
        let Some(Ref::Node { node, .. }) = reference else { return None };
        let node = &region.nodes[*node as usize];
        matches!(node.op, Op::DequantizeLinear(_)).then(|| node.inputs.first().copied().flatten())
    };
    let numeric = |node: &RegionNode| {
        let is_product = matches!(node.op, Op::Conv(_) | Op::ConvTranspose(_) | Op::MatMul(_) | Op::Gemm(_));
        let first = dequantized(node.inputs.first().filter(|_| is_product)?)?;
        dequantized(node.inputs.get(1)?)?;
        match first {
            Some(Ref::Input(idx)) if inputs.get(idx as usize) == Some(&DType::F8E4M3FN) => Some(Numeric::F8),
            _ => Some(Numeric::I8),
        }
    };
    region.nodes.iter().find_map(numeric)
}

/// What the products of a graph may be taken in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Products {
    precision: Precision,
    /// Whether factors of f32 may be rounded to it: a backend has tactics that do, and none that values of 16 bits are for.
    rounds: bool,
    /// Patterns of the names of layers that stay in f32.
    pins: Vec<String>,
}

impl Products {
    pub(crate) fn new(backends: Backends<'_>, options: &BuildOptions) -> Products {
        let wanted = options.precision.arithmetic();
        let has = |list: fn(&dyn Backend) -> &[Arithmetic]| {
            backends.all().iter().any(|backend| list(&**backend).contains(&wanted))
        };
        let rounds = has(|backend| backend.rounded_arithmetics()) && !has(|backend| backend.arithmetics());
        Products { precision: options.precision, rounds, pins: options.fp32_layers.clone() }
    }

    /// Whether the factors of a region may be rounded: of layers without a name nobody can say which are pinned.
    fn may_round(&self, region: &Region) -> bool {
        let is_pinned = |name: &str| name.is_empty() || self.pins.iter().any(|pin| name_matches(pin, name));
        self.rounds && (self.pins.is_empty() || !region.nodes.iter().any(|node| is_pinned(&node.name)))
    }
}

/// The number types that a region over operands of these types computes in; where factors may be rounded, the tactic
/// decides whether they are.
pub(crate) fn numeric(products: &Products, region: &Region, inputs: impl Iterator<Item = DType>) -> Numeric {
    let inputs: Vec<DType> = inputs.collect();
    let mut element = None;
    for dtype in &inputs {
        element = match dtype {
            DType::F16 => Some(Numeric::F16),
            DType::BF16 => Some(Numeric::BF16),
            _ => element,
        };
    }
    let multiplies = region.nodes.iter().any(|node| {
        matches!(
            node.op,
            Op::Conv(_)
                | Op::ConvTranspose(_)
                | Op::MatMul(_)
                | Op::Gemm(_)
                | Op::Einsum(_)
                | Op::Attention(_)
        )
    });
    if let Some(bytes) = multiplied_bytes(region, &inputs) {
        return bytes;
    }
    match element {
        Some(element) => element,
        None if products.precision == Precision::Tf32 && multiplies => Numeric::TF32,
        None if multiplies && products.may_round(region) => Numeric::BF16,
        None => Numeric::F32,
    }
}
