//! What the last softmax or sigmoid before an output reads. Where these saturate, any numbers on the same side give the same
//! output, and all calibrations look equally good by it; what they read still tells them apart.

use std::collections::BTreeSet;

use planish_ir::{Graph, ValueId};
use planish_op::{Class, Op};

/// The values in f32 that a Softmax or Sigmoid makes outputs of, with nothing but movement behind it, and that are not
/// outputs themselves.
pub(super) fn squashed(graph: &Graph) -> Vec<ValueId> {
    let outputs: BTreeSet<ValueId> = graph.outputs().iter().copied().collect();
    let mut seen = outputs.clone();
    let mut to_see: Vec<ValueId> = graph.outputs().to_vec();
    let mut found: Vec<ValueId> = Vec::new();
    while let Some(id) = to_see.pop() {
        let Some(producer) = graph.value(id).producer else { continue };
        let node = graph.node(producer);
        let mut read = node.inputs.iter().flatten().copied();
        match &node.op {
            Op::Softmax(_) | Op::Sigmoid(_) => {
                let is_new = |id: &ValueId| !outputs.contains(id) && !found.contains(id);
                let made = |id: &ValueId| graph.value(*id).producer.is_some() && is_new(id);
                let logits = read.next().filter(made);
                found.extend(logits);
            }
            Op::Concat(_) => to_see.extend(read.filter(|id| seen.insert(*id))),
            op if op.class() == Class::Movement => {
                to_see.extend(read.next().filter(|id| seen.insert(*id)));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let graph: Graph = text.parse().unwrap();
        squashed(&graph).into_iter().map(|id| graph.value(id).name.to_string()).collect()
    }

    #[test]
    fn logits_are_found_behind_movement_alone() {
        let text = r#"graph "g" {
            input %x: f32[1,4]
            const %shape: i64[2] = [2,2]
            %a: f32[1,4] = Relu(%x)
            %p: f32[1,4] = Softmax(%a) {axis=1}
            %q: f32[2,2] = Reshape(%p, %shape)
            %b: f32[1,4] = Neg(%x)
            %s: f32[1,4] = Sigmoid(%b)
            %c: f32[1,8] = Concat(%s, %a) {axis=1}
            output %q, %c
        }"#;
        assert_eq!(names(text), ["b", "a"]);
    }

    #[test]
    fn what_is_an_input_an_output_or_within_the_network_is_not() {
        let text = r#"graph "g" {
            input %x: f32[1,4]
            %a: f32[1,4] = Sigmoid(%x)
            %b: f32[1,4] = Relu(%a)
            %c: f32[1,4] = Softmax(%b) {axis=1}
            %d: f32[1,4] = Sigmoid(%b)
            %e: f32[1,4] = Mul(%d, %b)
            output %a, %b, %c, %e
        }"#;
        assert_eq!(names(text), Vec::<String>::new());
    }
}
