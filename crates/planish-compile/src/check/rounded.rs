//! A step whose tactic rounds what it multiplies, as a step on rounded factors: so what the reference computes is what
//! the tactic means, and bounds stay those of sums in f32.

use planish_kernel::{Ref, Region};
use planish_op::Value;
use planish_tensor::{DType, Tensor};

use super::points::is_sum_of_products;

/// A region with its operands.
pub(super) struct Posed {
    pub(super) region: Region,
    pub(super) inputs: Vec<Option<Value>>,
    pub(super) is_weight: Vec<bool>,
}

impl Posed {
    /// The same with the factors of its products rounded. What else reads such an operand (a residual) reads it as it
    /// is, so a factor becomes an operand of its own.
    pub(super) fn with_rounded_factors(mut self, to: DType) -> Posed {
        let mut rounded: Vec<(u32, u32)> = Vec::new();
        for node in self.region.nodes.iter_mut().filter(|node| is_sum_of_products(&node.op)) {
            for factor in node.inputs.iter_mut().take(2) {
                let Some(Ref::Input(idx)) = *factor else { continue };
                let known = rounded.iter().find(|(from, _)| *from == idx).map(|(_, to)| *to);
                let own = known.unwrap_or_else(|| {
                    let value = self.inputs.get(idx as usize).cloned().flatten();
                    self.inputs.push(value.map(|value| nearest(&value, to)));
                    self.is_weight.push(self.is_weight.get(idx as usize) == Some(&true));
                    rounded.push((idx, self.region.n_inputs));
                    self.region.n_inputs += 1;
                    self.region.n_inputs - 1
                });
                *factor = Some(Ref::Input(own));
            }
        }
        self
    }
}

/// A tensor of f32 with the nearest numbers of another type.
fn nearest(value: &Value, to: DType) -> Value {
    let tensor = value.as_tensor().filter(|tensor| tensor.dtype() == DType::F32);
    let low = tensor.and_then(|tensor| Tensor::from_f64s(to, tensor.shape(), &tensor.to_f64s()).ok());
    let wide = low.and_then(|low| Tensor::from_f64s(DType::F32, low.shape(), &low.to_f64s()).ok());
    wide.map_or_else(|| value.clone(), Value::Tensor)
}

#[cfg(test)]
mod tests {
    use planish_kernel::RegionNode;
    use planish_op::Op;

    use super::*;

    #[test]
    fn factors_are_rounded_and_residuals_are_not() {
        let node = |op: Op, inputs: &[Ref]| RegionNode {
            name: op.name().to_string(),
            op,
            inputs: inputs.iter().copied().map(Some).collect(),
            n_outputs: 1,
        };
        let product = planish_op::MatMul {}.into();
        let sum = planish_op::Add {}.into();
        let region = Region {
            n_inputs: 2,
            constants: Vec::new(),
            nodes: vec![
                node(product, &[Ref::Input(0), Ref::Input(1)]),
                node(sum, &[Ref::Node { node: 0, output: 0 }, Ref::Input(0)]),
            ],
            outputs: vec![Ref::Node { node: 1, output: 0 }],
        };
        let numbers = |list: Vec<f32>| Some(Value::Tensor(Tensor::new(&[1, list.len()], list).unwrap()));
        let inputs = vec![numbers(vec![0.1]), numbers(vec![1.0 + 1.0 / 512.0])];
        let posed = Posed { region, inputs, is_weight: vec![false, true] }.with_rounded_factors(DType::BF16);
        assert_eq!(posed.region.n_inputs, 4);
        assert_eq!(posed.region.nodes[0].inputs, [Some(Ref::Input(2)), Some(Ref::Input(3))]);
        assert_eq!(posed.region.nodes[1].inputs[1], Some(Ref::Input(0)));
        assert_eq!(posed.is_weight, [false, true, false, true]);
        let number = |idx: usize| posed.inputs[idx].as_ref().unwrap().as_tensor().unwrap().to_f64s()[0];
        assert_eq!((number(0) as f32, number(2), number(3)), (0.1, 0.10009765625, 1.0));
    }
}
