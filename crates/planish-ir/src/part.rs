//! A run of a graph's nodes as a graph of its own.

use std::ops::Range;

use crate::graph::{Declared, Graph, GraphError, NewNode, NewOutput};
use crate::id::ValueId;

impl Graph {
    /// The nodes of this range, by their place in [`Graph::nodes`]: its inputs are the values that they read of nodes
    /// before and of this graph's inputs, its outputs those that nodes after them or this graph's outputs read, each in
    /// the order of this graph and under its name.
    pub fn part(&self, range: Range<usize>) -> Result<Graph, GraphError> {
        let mut part = Graph::body(&self.name, self);
        let mut ids: Vec<Option<ValueId>> = vec![None; self.values.len()];
        let mut is_made = vec![false; self.values.len()];
        let mut is_read = vec![false; self.values.len()];
        for node in &self.nodes[range.clone()] {
            node.inputs.iter().flatten().for_each(|id| is_read[id.index()] = true);
            node.outputs.iter().flatten().for_each(|id| is_made[id.index()] = true);
        }
        for (id, value) in self.values().filter(|(id, _)| is_read[id.index()] && !is_made[id.index()]) {
            ids[id.index()] = Some(match value.constant() {
                Some(tensor) => part.add_constant(&value.name, tensor.clone())?,
                None => part.add_known_input(&value.name, value.ty.clone(), value.content.clone())?,
            });
        }
        for node in &self.nodes[range.clone()] {
            let output = |id: &Option<ValueId>| match id.map(|id| self.value(id)) {
                None => NewOutput::Skip,
                Some(value) => NewOutput::Value {
                    name: value.name.clone(),
                    declared: Declared::Before(value.ty.clone()),
                },
            };
            let new = NewNode {
                name: node.name.clone(),
                op: node.op.clone(),
                inputs: node.inputs.iter().map(|id| id.and_then(|id| ids[id.index()])).collect(),
                outputs: node.outputs.iter().map(output).collect(),
                bodies: node.bodies.clone(),
                n_captured: node.n_captured,
            };
            let made = part.add_node(new)?;
            for (old, new) in node.outputs.iter().zip(&part.node(made).outputs) {
                if let Some(old) = old {
                    ids[old.index()] = *new;
                }
            }
        }
        let mut is_wanted = vec![false; self.values.len()];
        let after = self.nodes[range.end..].iter().flat_map(|node| node.inputs.iter().flatten());
        after.chain(&self.outputs).for_each(|id| is_wanted[id.index()] = true);
        let outputs = self.values().map(|(id, _)| id.index()).filter(|&at| is_made[at] && is_wanted[at]);
        part.outputs = outputs.filter_map(|at| ids[at]).collect();
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use planish_op::Value;
    use planish_tensor::Tensor;

    use crate::{Graph, interpret};

    #[test]
    fn parts_one_after_the_other_are_the_whole() {
        let graph: Graph = r#"graph "g" {
            input %x: f32[n, 2]
            %a: f32[n, 2] = Relu(%x)
            %b: f32[n, 2] = Add(%a, %x)
            %c: f32[n, 2] = Mul(%b, %a)
            output %c, %a
        }"#
        .parse()
        .unwrap();
        let x = Value::from(Tensor::new(&[2, 2], vec![1.0f32, -2.0, 3.0, -4.0]).unwrap());
        let want = interpret(&graph, vec![x.clone()]).unwrap();
        for cut in 0..=3 {
            let (first, second) = (graph.part(0..cut).unwrap(), graph.part(cut..3).unwrap());
            let mut known = vec![("x".to_string(), x.clone())];
            for part in [&first, &second] {
                let given = part.inputs().iter().map(|&id| {
                    let name = &*part.value(id).name;
                    known.iter().find(|(known, _)| known == name).unwrap().1.clone()
                });
                let made = interpret(part, given.collect()).unwrap();
                let names = part.outputs().iter().map(|&id| part.value(id).name.to_string());
                known.extend(names.zip(made));
            }
            let got = |name: &str| known.iter().find(|(known, _)| known == name).unwrap().1.clone();
            assert_eq!([got("c"), got("a")], *want, "cut at {cut}");
        }
    }
}
