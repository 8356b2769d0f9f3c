//! A graph as a part of a larger one.

use crate::graph::{Declared, Graph, GraphError, NewNode, NewOutput};
use crate::id::ValueId;

impl Graph {
    /// Adds all nodes of another graph behind this one's, over these values of this graph in the place of its inputs, and
    /// gives what its outputs are here. The inputs' types must be those of the values; `rename` says what values and nodes
    /// are called here.
    ///
    /// Its symbols stay, so that this graph must be numbered from it ([`Graph::numbered_from`]).
    pub fn append(
        &mut self,
        other: &Graph,
        inputs: &[ValueId],
        rename: &dyn Fn(&str) -> String,
    ) -> Result<Vec<ValueId>, GraphError> {
        let mut ids: Vec<Option<ValueId>> = vec![None; other.values.len()];
        for (id, &here) in other.inputs.iter().zip(inputs) {
            ids[id.index()] = Some(here);
        }
        for (id, value) in other.values() {
            if let Some(tensor) = value.constant() {
                ids[id.index()] = Some(self.add_constant(&rename(&value.name), tensor.clone())?);
            }
        }
        for node in &other.nodes {
            let output = |id: &Option<ValueId>| match id.map(|id| other.value(id)) {
                None => NewOutput::Skip,
                Some(value) => NewOutput::Value {
                    name: rename(&value.name).into(),
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
            let made = self.add_node(new)?;
            for (old, new) in node.outputs.iter().zip(&self.nodes[made.index()].outputs) {
                if let Some(old) = old {
                    ids[old.index()] = *new;
                }
            }
        }
        Ok(other.outputs.iter().filter_map(|id| ids[id.index()]).collect())
    }
}

#[cfg(test)]
mod tests {
    use planish_op::{Relu, Value};
    use planish_tensor::Tensor;

    use crate::{Graph, NewNode, interpret};

    #[test]
    fn a_graph_inside_another_computes_what_it_did() {
        let inner: Graph = r#"graph "g" {
            input %x: f32[n]
            %c: f32[n] = Neg(%x)
            %y: f32[n] = Add(%c, %x)
            output %y, %c
        }"#
        .parse()
        .unwrap();
        let mut outer = Graph::numbered_from("outer", inner.n_fresh_symbols());
        let ty = inner.value(inner.inputs()[0]).ty.clone();
        let x = outer.add_input("x", ty).unwrap();
        let made = outer.add_node(NewNode::new("relu", Relu {}, vec![Some(x)], &["x.in"])).unwrap();
        let fed = outer.node(made).outputs[0].unwrap();
        let outputs = outer.append(&inner, &[fed], &|name| format!("{name}.in2")).unwrap();
        outer.set_outputs(outputs);
        outer.verify().unwrap();
        let x = Value::from(Tensor::vector(vec![1.0f32, -2.0]));
        let got = interpret(&outer, vec![x]).unwrap();
        assert_eq!(got[0].as_tensor(), Some(&Tensor::vector(vec![0.0f32, 0.0])));
        assert_eq!(got[1].as_tensor(), Some(&Tensor::vector(vec![-1.0f32, -0.0])));
    }
}
