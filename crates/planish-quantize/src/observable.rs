//! Which values of a graph are worth observing.

use std::collections::BTreeSet;

use planish_ir::{Graph, ValueId};
use planish_op::Lowering;
use planish_tensor::DType;

/// The f32 values that a node reads or writes which may compute in less than f32 (the operator table says which), in
/// the graph's order, its inputs first. Constants are known without running, and what is inside of control flow is not
/// looked at.
pub fn observable(graph: &Graph) -> Vec<ValueId> {
    let nodes = graph.nodes().filter(|(_, node)| node.op.lowering() != Lowering::Never);
    let seen: BTreeSet<ValueId> =
        nodes.flat_map(|(_, node)| node.inputs.iter().chain(&node.outputs).flatten().copied()).collect();
    let is_observed = |id: &ValueId| {
        let value = graph.value(*id);
        let is_float = value.ty.as_tensor().is_some_and(|ty| ty.dtype == DType::F32);
        is_float && value.constant().is_none() && seen.contains(id)
    };
    let made = graph.values().filter(|(_, value)| value.producer.is_some()).map(|(id, _)| id);
    graph.inputs().iter().copied().chain(made).filter(is_observed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_are_observed_and_weights_and_integers_are_not() {
        let graph: Graph = r#"graph "g" {
            input %ids: i64[2]
            input %x: f32[1,2,4,4]
            input %unused: f32[3]
            const %w: f32[2,2,1,1] = [1,2,3,4]
            const %table: f32[3,2] = [1,2,3,4,5,6]
            %y: f32[1,2,4,4] = Conv(%x, %w, _) {kernel_shape=[1,1]}
            %z: f32[1,2,4,4] = Relu(%y)
            %e: f32[2,2] = Gather(%table, %ids)
            %c: f32[2,2] = Cos(%e)
            %s: f32[2,2] = Sin(%c)
            output %z, %s
        }"#
        .parse()
        .unwrap();
        let names: Vec<&str> = observable(&graph).into_iter().map(|id| &*graph.value(id).name).collect();
        // Cos and Sin stay in f32 wherever they are; what Gather makes is seen there.
        assert_eq!(names, ["x", "y", "z", "e"]);
    }
}
