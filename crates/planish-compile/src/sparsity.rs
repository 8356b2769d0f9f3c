//! 2:4 sparsity: weights of products pruned where that is asked for, found in the graph, and counted in the plan.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use planish_ir::{Graph, ValueId};
use planish_op::two_of_four::{is_two_of_four, summed_axis};
use planish_passes::{Options, Report};
use planish_plan::{Plan, Program, StepKind};

use crate::backends::Backends;
use crate::error::{BuildError, BuildErrorKind, of_passes};
use crate::options::BuildOptions;
use crate::precision::{listed, run_and_explain};

/// What is made of weights of which two of each four neighbours along the sum are zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Sparsity {
    /// Nothing: they are multiplied as others are.
    Disable,
    /// Kernels that count on it compete where weights are so. No value changes.
    #[default]
    Enable,
    /// The same, after the weights of all layers were pruned by magnitude, which changes what the model computes.
    Force,
}

const NAMES: [(&str, Sparsity); 3] =
    [("disable", Sparsity::Disable), ("enable", Sparsity::Enable), ("force", Sparsity::Force)];

impl fmt::Display for Sparsity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMES.iter().find(|(_, sparsity)| sparsity == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for Sparsity {
    type Err = String;

    fn from_str(text: &str) -> Result<Sparsity, String> {
        let found = NAMES.iter().find(|(name, _)| *name == text).map(|(_, sparsity)| *sparsity);
        found.ok_or_else(|| format!("`{text}` is not enable, disable or force"))
    }
}

/// A model whose weights are pruned.
#[derive(Debug)]
pub struct Pruned {
    pub graph: Graph,
    /// Which layers are pruned, what that costs, and which are not.
    pub notes: Vec<String>,
    /// What the passes did and refused.
    pub passes: Report,
}

/// Prunes the weights of a model's products to 2:4 sparsity as [`Sparsity::Force`] does, and leaves all else as it is.
pub fn pruned(graph: &Graph, options: &BuildOptions) -> Result<Pruned, BuildError> {
    let (mut passes, mut notes) = (Report::default(), Vec::new());
    let graph = prune(graph.clone(), options, &mut passes, &mut notes)?;
    Ok(Pruned { graph, notes, passes })
}

/// Prunes the weights of a float model's products, and notes what that costs.
pub(crate) fn prune(
    graph: Graph,
    options: &BuildOptions,
    passes: &mut Report,
    notes: &mut Vec<String>,
) -> Result<Graph, BuildError> {
    let before = graph.clone();
    let pipeline = planish_passes::prune_weights();
    let (graph, n_pruned, reasons) = run_and_explain(pipeline, "prune_weights", graph, options, passes)?;
    let (n_sparse, n_layers) = sparse_layers(&graph);
    if n_sparse == 0 {
        let why = if reasons.is_empty() { "it has none".to_string() } else { listed(&reasons) };
        let message = format!("sparsity: no layer of the model can be pruned: {why}");
        return Err(BuildError::new(BuildErrorKind::Refused, message));
    }
    if n_pruned == 0 {
        return Ok(graph);
    }
    let kept = planish_passes::kept_norms(&before, &graph);
    let percent = |part: f64| format!("{:.1} %", 100.0 * part);
    let least = kept.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let mean = kept.iter().map(|(_, kept)| kept).sum::<f64>() / kept.len().max(1) as f64;
    let least = least.map(|(name, kept)| format!(" (least of `{name}`: {})", percent(*kept)));
    notes.push(format!(
        "sparsity: the weights of {n_pruned} of {n_layers} layers were pruned to 2:4 by magnitude, which changes results: \
         layers keep {} of their weights' norm{}",
        percent(mean),
        least.unwrap_or_default()
    ));
    if options.explain {
        let each = kept.iter().map(|(name, kept)| format!("`{name}` keeps {} of its norm", percent(*kept)));
        notes.extend(each);
    }
    if !reasons.is_empty() {
        notes.push(format!("sparsity: these stay dense: {}", listed(&reasons)));
    }
    Ok(graph)
}

/// Takes the signs off the zeros of sparse weights, which packed weights do not keep.
pub(crate) fn plain_zeros(
    graph: Graph,
    options: &BuildOptions,
    passes: &mut Report,
) -> Result<Graph, BuildError> {
    let pass_options = Options { cancel: options.cancel.clone(), ..Options::default() };
    let pipeline = planish_passes::plain_zeros();
    let (graph, mut report) = pipeline.run(graph, &pass_options).map_err(|error| of_passes(&error))?;
    passes.passes.append(&mut report.passes);
    Ok(graph)
}

/// The constants of a graph that products read and that are sparse along the sum, each with the axis.
pub(crate) fn sparse_weights(graph: &Graph) -> HashSet<(ValueId, usize)> {
    let mut dense = HashSet::new();
    let mut found = HashSet::new();
    for read @ (id, axis) in reads(graph) {
        let is_new = !dense.contains(&read) && !found.contains(&read);
        let weight = graph.value(id).constant().filter(|_| is_new);
        if let Some(weight) = weight {
            let list = if is_two_of_four(weight, axis) { &mut found } else { &mut dense };
            list.insert(read);
        }
    }
    found
}

/// What products read as their weight, each with the axis that they add up along. Sums of fewer than four, as those of
/// depthwise convolutions, have nothing to leave out.
fn reads(graph: &Graph) -> impl Iterator<Item = (ValueId, usize)> + '_ {
    graph.nodes().filter_map(|(_, node)| {
        let id = node.inputs.get(1).copied().flatten()?;
        let weight = graph.value(id).constant()?;
        let axis = summed_axis(&node.op, weight.rank())?;
        (weight.shape()[axis] >= 4).then_some((id, axis))
    })
}

/// How many products have weights that are 2:4 sparse, of how many with constant weights.
pub fn sparse_layers(graph: &Graph) -> (usize, usize) {
    let sparse = sparse_weights(graph);
    let n_sparse = reads(graph).filter(|read| sparse.contains(read)).count();
    (n_sparse, reads(graph).count())
}

/// Says how many layers have sparse weights, and for how many of them kernels that count on it won.
pub(crate) fn note(graph: &Graph, plan: &Plan, backends: Backends<'_>) -> Option<String> {
    let (n_sparse, n_layers) = sparse_layers(graph);
    (n_sparse > 0).then(|| {
        let n_used = used(&plan.program, backends);
        format!(
            "sparsity: {n_sparse} of {n_layers} layers have weights that are 2:4 sparse; {n_used} steps run by kernels that \
             count on it"
        )
    })
}

fn used(program: &Program, backends: Backends<'_>) -> usize {
    let counts = |step: &planish_plan::Step| match &step.kind {
        StepKind::Kernel { variants, .. } => {
            let backend = backends.get(step.target);
            usize::from(variants.iter().any(|variant| backend.counts_on_sparsity(&variant.tactic)))
        }
        StepKind::Control(control) => control.bodies.iter().map(|body| used(body, backends)).sum(),
        StepKind::Transfer | StepKind::Evaluate => 0,
    };
    program.steps.iter().map(counts).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_sparse_along_the_sum_of_whoever_reads_them() {
        let text = r#"graph "g" {
            input %x: f32[n,4]
            const %w: f32[4,4] = [1,2,3,4, 5,6,7,8, 0,0,0,0, 0,0,0,0]
            %a: f32[n,4] = MatMul(%x, %w)
            %b: f32[n,4] = Gemm(%x, %w) {trans_b=true}
            %y: f32[n,4] = Add(%a, %b)
            output %y
        }"#;
        let graph: Graph = text.parse().unwrap();
        let axes: Vec<usize> = sparse_weights(&graph).into_iter().map(|(_, axis)| axis).collect();
        assert_eq!(axes, [0]);
        assert_eq!(sparse_layers(&graph), (1, 2));
    }

    #[test]
    fn sums_of_fewer_than_four_are_not_sparse() {
        let text = r#"graph "g" {
            input %x: f32[n,2,3,3]
            const %w: f32[2,1,1,1] = [1,2]
            %y: f32[n,2,3,3] = Conv(%x, %w) {group=2}
            output %y
        }"#;
        assert_eq!(sparse_layers(&text.parse().unwrap()), (0, 0));
    }

    #[test]
    fn names_come_back() {
        for (name, sparsity) in NAMES {
            assert_eq!((name.parse(), sparsity.to_string()), (Ok(sparsity), name.to_string()));
        }
        assert!("on".parse::<Sparsity>().is_err());
    }
}
