//! The optimized graph as a model for others: the passes alone, without what only our own kernels like.

use planish_ir::Graph;
use planish_passes::{Options, Report};
use planish_tensor::DefaultFloatMode;

use crate::build::at_fixed_sizes;
use crate::error::{BuildError, of_passes};
use crate::integers::FOLD_WEIGHTS;
use crate::options::BuildOptions;

/// The oldest opset that a simplified model can be held to.
pub const OLDEST_SIMPLE_OPSET: i64 = 21;

/// Passes that make operators which older opsets have not: the first opset that has them, and the passes.
const NEWER: &[(i64, &[&str])] = &[
    (23, &["recognize_rms_norm", "recognize_rotary_embedding"]),
    (24, &["recognize_swish", "recognize_attention", "pack_attention_heads"]),
];

/// Runs the passes that every build runs. What they make exists in this opset; integer weights of quantized models stay
/// integers, and types stay those of the model. Of the options a profile of fixed sizes counts, and the passes' own: those
/// left out, where to stop, whether to explain.
pub fn simplified(graph: &Graph, opset: i64, options: &BuildOptions) -> Result<(Graph, Report), BuildError> {
    let _mode = DefaultFloatMode::enter();
    let newer = NEWER.iter().filter(|(first, _)| opset < *first).flat_map(|(_, names)| *names);
    let mut disabled = options.disabled_passes.clone();
    disabled.extend(newer.map(|name| name.to_string()));
    disabled.push(FOLD_WEIGHTS.to_string());
    let pass_options = Options {
        disabled,
        stop_after: options.stop_after,
        explain: options.explain,
        cancel: options.cancel.clone(),
        ..Options::default()
    };
    let (graph, _) = at_fixed_sizes(graph, options)?;
    planish_passes::standard().run(graph, &pass_options).map_err(|error| of_passes(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_those_of_the_opset() {
        let text = r#"graph "g" {
            input %x: f32[n,8]
            %s: f32[n,8] = Sigmoid(%x)
            %y: f32[n,8] = Mul(%x, %s)
            %i: f32[n,8] = Identity(%y)
            output %i
        }"#;
        let graph: Graph = text.parse().unwrap();
        let names = |opset| {
            let (graph, _) = simplified(&graph, opset, &BuildOptions::default()).unwrap();
            graph.nodes().map(|(_, node)| node.op.name().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(OLDEST_SIMPLE_OPSET), ["Sigmoid", "Mul"]);
        assert_eq!(names(24), ["Swish"]);
    }

    #[test]
    fn passes_that_are_left_out_exist() {
        let standard = planish_passes::standard();
        let known: Vec<&str> = standard.names().collect();
        for name in NEWER.iter().flat_map(|(_, names)| *names).chain([&FOLD_WEIGHTS]) {
            assert!(known.contains(name), "{name}");
        }
    }
}
