//! The type and sizes of every value inside a problem, found by inference from its operands.

use planish_op::infer::{Content, InferInput, Inference};
use planish_op::{TensorType, ValueType, infer};
use planish_tensor::{DType, Dim, Shape};

use crate::{KernelError, Operand, Problem, Ref};

/// The element type and sizes of a value inside a problem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inner {
    pub dtype: DType,
    pub dims: Vec<usize>,
}

impl Problem {
    /// Element type and sizes of each node's outputs. Refused where a size hangs on the contents of an input.
    pub fn inner_types(&self) -> Result<Vec<Vec<Inner>>, KernelError> {
        let inputs: Vec<ValueType> = self.inputs.iter().map(type_of).collect();
        let constants: Vec<(ValueType, Content)> = self
            .region
            .constants
            .iter()
            .map(|tensor| (type_from(tensor.dtype(), tensor.shape()), Content::Tensor(tensor.clone())))
            .collect();
        let mut known: Vec<Vec<Inner>> = Vec::with_capacity(self.region.nodes.len());
        let mut types: Vec<Vec<ValueType>> = Vec::with_capacity(self.region.nodes.len());
        for node in &self.region.nodes {
            let wrong = |detail: String| KernelError::unsupported(format!("node {}: {detail}", node.name));
            let mut operands = Vec::with_capacity(node.inputs.len());
            for reference in &node.inputs {
                operands.push(match reference {
                    None => None,
                    Some(Ref::Input(idx)) => {
                        inputs.get(*idx as usize).map(|ty| InferInput { ty, content: None })
                    }
                    Some(Ref::Constant(idx)) => {
                        let found = constants.get(*idx as usize);
                        found.map(|(ty, content)| InferInput { ty, content: Some(content) })
                    }
                    Some(Ref::Node { node, output }) => {
                        let found = types.get(*node as usize).and_then(|list| list.get(*output as usize));
                        found.map(|ty| InferInput { ty, content: None })
                    }
                });
            }
            let mut fresh = |_: &str| Dim::UNKNOWN;
            let mut cx = Inference::new(node.op.name(), &operands, node.n_outputs as usize, &mut fresh);
            let outputs = infer(&node.op, &mut cx).map_err(|error| wrong(error.to_string()))?;
            let mut inner = Vec::with_capacity(outputs.len());
            for (place, output) in outputs.iter().enumerate() {
                let here = Ref::Node { node: known.len() as u32, output: place as u32 };
                let found = output.ty.as_tensor().and_then(|tensor| {
                    let dims = tensor.shape.as_ref()?.as_fixed();
                    // What inference cannot follow, a shape that is computed, the problem knows of its outputs.
                    let given = || {
                        let place = self.region.outputs.iter().position(|output| *output == here)?;
                        self.outputs.get(place).map(|operand| operand.dims.clone())
                    };
                    Some(Inner { dtype: tensor.dtype, dims: dims.or_else(given)? })
                });
                inner.push(found.ok_or_else(|| wrong(format!("the sizes of {} are not known", output.ty)))?);
            }
            known.push(inner);
            types.push(outputs.into_iter().map(|output| output.ty).collect());
        }
        Ok(known)
    }
}

fn type_of(operand: &Operand) -> ValueType {
    type_from(operand.dtype, &operand.dims)
}

fn type_from(dtype: DType, dims: &[usize]) -> ValueType {
    let shape: Shape = dims.iter().map(|dim| Dim::from(*dim)).collect();
    ValueType::Tensor(TensorType::new(dtype, shape))
}
