//! A region's outputs by the reference: what every kernel is compared with.

use planish_kernel::{Ref, Region};
use planish_op::{Op, Value};
use planish_tensor::{DType, Tensor};

/// What reals are computed in, whatever they are stored in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reals {
    /// As stored: every node rounds to the type of its output, as the graph says.
    Stored,
    /// 16-bit floats become f32, as kernels hold them between load and store.
    F32,
    /// All in f64 and casts between reals left out, so that a result differs by the kernel's own rounding alone.
    F64,
}

impl Reals {
    fn tensor(self, tensor: &Tensor) -> Tensor {
        let to = match (self, tensor.dtype()) {
            (Reals::F32, DType::F16 | DType::BF16) => DType::F32,
            (Reals::F64, DType::F32 | DType::F16 | DType::BF16) => DType::F64,
            _ => return tensor.clone(),
        };
        Tensor::from_f64s(to, tensor.shape(), &tensor.to_f64s()).expect("as many numbers as before")
    }

    fn op(self, op: &Op) -> Op {
        match op {
            Op::Cast(cast) if self == Reals::F64 && is_real(cast.to) => {
                let mut cast = cast.clone();
                cast.to = DType::F64;
                cast.into()
            }
            // Numbers of its scales' type, which is as wide as all others then.
            Op::DequantizeLinear(op) if self != Reals::Stored && op.output_dtype.is_some_and(is_real) => {
                let mut op = op.clone();
                op.output_dtype = None;
                op.into()
            }
            other => other.clone(),
        }
    }
}

fn is_real(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// The region's outputs on these inputs, node by node. An error says which node the reference refuses.
pub fn evaluate(region: &Region, inputs: &[Tensor], reals: Reals) -> Result<Vec<Tensor>, String> {
    let value = |tensor: &Tensor| Value::Tensor(reals.tensor(tensor));
    let inputs: Vec<Value> = inputs.iter().map(value).collect();
    let constants: Vec<Value> = region.constants.iter().map(value).collect();
    let mut made: Vec<Vec<Value>> = Vec::with_capacity(region.nodes.len());
    fn find<'a>(
        reference: Ref,
        inputs: &'a [Value],
        constants: &'a [Value],
        made: &'a [Vec<Value>],
    ) -> Option<&'a Value> {
        match reference {
            Ref::Input(idx) => inputs.get(idx as usize),
            Ref::Constant(idx) => constants.get(idx as usize),
            Ref::Node { node, output } => made.get(node as usize)?.get(output as usize),
        }
    }
    for node in &region.nodes {
        let read = |reference: &Option<Ref>| find((*reference)?, &inputs, &constants, &made);
        let operands: Vec<Option<&Value>> = node.inputs.iter().map(read).collect();
        let outputs = planish_reference::evaluate(&reals.op(&node.op), &operands, node.n_outputs as usize)
            .map_err(|error| format!("the reference refuses {}: {error}", node.name))?;
        made.push(outputs);
    }
    let output = |reference: &Ref| {
        let value = find(*reference, &inputs, &constants, &made);
        value
            .and_then(Value::as_tensor)
            .cloned()
            .ok_or_else(|| "a region's output is not a tensor".to_string())
    };
    region.outputs.iter().map(output).collect()
}

/// One operator's outputs on these inputs, as stored.
#[track_caller]
pub fn evaluate_op(op: &Op, inputs: &[Option<&Tensor>], n_outputs: usize) -> Vec<Tensor> {
    let values: Vec<Option<Value>> = inputs.iter().map(|input| input.cloned().map(Value::Tensor)).collect();
    let values: Vec<Option<&Value>> = values.iter().map(Option::as_ref).collect();
    let outputs = planish_reference::evaluate(op, &values, n_outputs).expect("the reference takes it");
    outputs.iter().map(|value| value.as_tensor().expect("a tensor").clone()).collect()
}

#[cfg(test)]
mod tests {
    use planish_op as op;

    use super::*;
    use crate::{constant, input, node, region};

    #[test]
    fn reals_are_rounded_where_asked() {
        // 1 + 2^-12 is 1 in f16; the difference to 1 is lost where nodes round.
        let half = |value: f64| Tensor::from_f64s(DType::F16, &[1], &[value]).unwrap();
        let sum = region(
            2,
            vec![half(1.0)],
            vec![
                (op::Add {}.into(), vec![input(0), input(1)]),
                (op::Sub {}.into(), vec![node(0), constant(0)]),
            ],
        );
        let inputs = [half(1.0), half(2f64.powi(-12))];
        let one = |reals| evaluate(&sum, &inputs, reals).unwrap().remove(0);
        assert_eq!((one(Reals::Stored).dtype(), one(Reals::Stored).to_f64s()), (DType::F16, vec![0.0]));
        for (reals, dtype) in [(Reals::F32, DType::F32), (Reals::F64, DType::F64)] {
            assert_eq!((one(reals).dtype(), one(reals).to_f64s()), (dtype, vec![2f64.powi(-12)]));
        }
        assert_eq!(evaluate_op(&op::Add {}.into(), &[Some(&inputs[0]), Some(&inputs[0])], 1)[0], half(2.0));
    }

    #[test]
    fn what_the_reference_refuses_is_named() {
        let product = region(2, vec![], vec![(op::MatMul {}.into(), vec![input(0), input(1)])]);
        let inputs = [Tensor::vector(vec![1.0f32, 2.0]), Tensor::vector(vec![1.0f32])];
        let error = evaluate(&product, &inputs, Reals::Stored).unwrap_err();
        assert!(error.contains("refuses MatMul"), "{error}");
    }
}
