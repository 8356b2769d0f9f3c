//! A region: operators wired together, the meaning of one step of a plan.

use std::fmt::Write;

use planish_op::Op;
use planish_tensor::Tensor;

/// Where an operator of a region reads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ref {
    /// An input of the region.
    Input(u32),
    /// A small constant that is part of the region: an axis list, a clip bound, a scalar factor.
    Constant(u32),
    /// An output of an earlier node of the region.
    Node { node: u32, output: u32 },
}

/// One operator of a region.
#[derive(Clone, PartialEq, Debug)]
pub struct RegionNode {
    /// The node of the graph that it came from; for people, no part of the meaning.
    pub name: String,
    pub op: Op,
    /// `None` where an optional input is left out.
    pub inputs: Vec<Option<Ref>>,
    pub n_outputs: u32,
}

/// Operators wired together. Nodes are in an order in which each reads only earlier ones.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Region {
    pub n_inputs: u32,
    pub constants: Vec<Tensor>,
    pub nodes: Vec<RegionNode>,
    pub outputs: Vec<Ref>,
}

impl Region {
    /// A region of one operator whose inputs are the region's, in order.
    pub fn single(op: Op, n_inputs: u32, n_outputs: u32) -> Region {
        Region {
            n_inputs,
            constants: Vec::new(),
            nodes: vec![RegionNode {
                name: op.name().to_string(),
                op,
                inputs: (0..n_inputs).map(|idx| Some(Ref::Input(idx))).collect(),
                n_outputs,
            }],
            outputs: (0..n_outputs).map(|output| Ref::Node { node: 0, output }).collect(),
        }
    }

    /// The constant behind a reference.
    pub fn constant(&self, reference: Option<Ref>) -> Option<&Tensor> {
        match reference? {
            Ref::Constant(idx) => self.constants.get(idx as usize),
            Ref::Input(_) | Ref::Node { .. } => None,
        }
    }

    /// The nodes that read an output of `node`.
    pub fn users(&self, node: u32) -> impl Iterator<Item = u32> {
        self.nodes.iter().enumerate().filter_map(move |(idx, user)| {
            let reads =
                user.inputs.iter().flatten().any(|r| matches!(r, Ref::Node { node: n, .. } if *n == node));
            reads.then_some(idx as u32)
        })
    }

    /// Names of the graph's nodes that it covers, joined by ` + `; its operators where the model's file gives none of
    /// them a name.
    pub fn title(&self) -> String {
        let names: Vec<&str> =
            self.nodes.iter().map(|node| node.name.as_str()).filter(|name| !name.is_empty()).collect();
        if names.is_empty() { self.ops() } else { names.join(" + ") }
    }

    /// Whether none of its nodes has a name.
    pub fn is_nameless(&self) -> bool {
        self.nodes.iter().all(|node| node.name.is_empty())
    }

    /// The operators alone, as in `Conv+Add+Relu`.
    pub fn ops(&self) -> String {
        self.nodes.iter().map(|node| node.op.name()).collect::<Vec<_>>().join("+")
    }

    /// The whole meaning as one line of text, without the nodes' names.
    pub fn key(&self) -> String {
        self.described(|_, _| true)
    }

    /// The same without single scales of integers, whose values change no time: layers that differ in nothing else share
    /// theirs.
    pub fn timing_key(&self) -> String {
        self.described(|node, place| {
            let scaled = matches!(node.op, Op::QuantizeLinear(_) | Op::DequantizeLinear(_));
            let constant = self.constant(node.inputs.get(place).copied().flatten());
            !(scaled && place == 1 && constant.is_some_and(|scale| scale.len() == 1))
        })
    }

    /// The meaning with the values of those constants that `tells` the node and the place of.
    fn described(&self, tells: impl Fn(&RegionNode, usize) -> bool) -> String {
        let mut key = String::new();
        for node in &self.nodes {
            key.push_str(node.op.name());
            for (name, attribute) in node.op.attributes() {
                let _ = write!(key, " {name}={attribute:?}");
            }
            key.push('(');
            for (idx, input) in node.inputs.iter().enumerate() {
                if idx > 0 {
                    key.push(',');
                }
                match input {
                    None => key.push('-'),
                    Some(Ref::Input(idx)) => {
                        let _ = write!(key, "i{idx}");
                    }
                    Some(Ref::Constant(constant)) => {
                        let constant = self.constants.get(*constant as usize);
                        let _ = match constant.filter(|_| !tells(node, idx)) {
                            Some(scale) => write!(key, "{} scale", scale.dtype().name()),
                            None => write!(key, "{}", constant.map(describe).unwrap_or_default()),
                        };
                    }
                    Some(Ref::Node { node, output }) => {
                        let _ = write!(key, "n{node}.{output}");
                    }
                }
            }
            key.push_str(");");
        }
        for output in &self.outputs {
            if let Ref::Node { node, output } = output {
                let _ = write!(key, "->n{node}.{output}");
            }
        }
        key
    }
}

/// A constant with all its bytes, so that different values never share a key.
fn describe(tensor: &Tensor) -> String {
    let mut text = format!("{}{:?}:", tensor.dtype().name(), tensor.shape());
    for byte in tensor.bytes().iter() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_op as op;

    #[test]
    fn keys_tell_attributes_wiring_and_constants_apart() {
        let relu = Region::single(op::Relu {}.into(), 1, 1);
        let leaky = Region::single(op::LeakyRelu { alpha: 0.2 }.into(), 1, 1);
        let leakier = Region::single(op::LeakyRelu { alpha: 0.3 }.into(), 1, 1);
        let keys = [relu.key(), leaky.key(), leakier.key()];
        assert_eq!(keys[0], "Relu(i0);->n0.0");
        assert!(keys[1] != keys[2] && keys[0] != keys[1], "{keys:?}");
        let mut swapped = Region::single(op::Sub {}.into(), 2, 1);
        let straight = swapped.key();
        swapped.nodes[0].inputs.swap(0, 1);
        assert_ne!(swapped.key(), straight);
    }

    #[test]
    fn nodes_without_names_go_by_their_operators() {
        let mut region = Region::single(op::Relu {}.into(), 1, 1);
        region.nodes.push(RegionNode { name: String::new(), ..region.nodes[0].clone() });
        region.nodes[0].name = "act".to_string();
        assert_eq!((region.title(), region.is_nameless()), ("act".to_string(), false));
        region.nodes[0].name.clear();
        assert_eq!((region.title(), region.is_nameless()), ("Relu+Relu".to_string(), true));
    }

    #[test]
    fn times_do_not_go_by_the_value_of_a_scale() {
        let quantized = |scale: f32, zero: i8| {
            let op = op::DequantizeLinear { axis: 1, block_size: 0, output_dtype: None };
            let mut region = Region::single(op.into(), 3, 1);
            region.constants = vec![Tensor::scalar(scale), Tensor::scalar(zero)];
            region.nodes[0].inputs[1..].copy_from_slice(&[Some(Ref::Constant(0)), Some(Ref::Constant(1))]);
            region
        };
        let (one, other, shifted) = (quantized(0.1, 0), quantized(0.2, 0), quantized(0.1, 3));
        assert_ne!(one.key(), other.key());
        assert_eq!(one.timing_key(), other.timing_key());
        assert_ne!(one.timing_key(), shifted.timing_key());
    }
}
