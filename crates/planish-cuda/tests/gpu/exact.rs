//! The reference's answer without rounding in between: every real in f64.

use planish_kernel::{Ref, Region};
use planish_op::{Op, Value};
use planish_tensor::{DType, Tensor};

fn is_real(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

fn promoted(tensor: &Tensor) -> Tensor {
    match is_real(tensor.dtype()) {
        true => Tensor::from_f64s(DType::F64, tensor.shape(), &tensor.to_f64s()).unwrap(),
        false => tensor.clone(),
    }
}

/// The region's outputs on these inputs. Reals are computed in f64, so that results differ from a kernel's by
/// the kernel's own rounding alone.
pub(crate) fn evaluate(region: &Region, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let inputs: Vec<Value> = inputs.iter().map(promoted).map(Value::Tensor).collect();
    let constants: Vec<Value> = region.constants.iter().map(promoted).map(Value::Tensor).collect();
    let mut made: Vec<Vec<Value>> = Vec::new();
    for node in &region.nodes {
        let operands: Vec<Option<&Value>> = node
            .inputs
            .iter()
            .map(|reference| match (*reference)? {
                Ref::Input(idx) => inputs.get(idx as usize),
                Ref::Constant(idx) => constants.get(idx as usize),
                Ref::Node { node, output } => made.get(node as usize)?.get(output as usize),
            })
            .collect();
        let op = without_rounding(&node.op);
        let outputs = planish_reference::evaluate(&op, &operands, node.n_outputs as usize)
            .map_err(|error| format!("the reference refuses {}: {error}", node.name))?;
        made.push(outputs);
    }
    let output = |reference: &Ref| {
        let value = match *reference {
            Ref::Input(idx) => inputs.get(idx as usize),
            Ref::Constant(idx) => constants.get(idx as usize),
            Ref::Node { node, output } => made.get(node as usize).and_then(|list| list.get(output as usize)),
        };
        value.and_then(Value::as_tensor).cloned().ok_or_else(|| "a region's output is no tensor".to_string())
    };
    region.outputs.iter().map(output).collect()
}

/// The same operator, with casts between real types left out.
fn without_rounding(op: &Op) -> Op {
    match op {
        Op::Cast(cast) if is_real(cast.to) => {
            let mut cast = cast.clone();
            cast.to = DType::F64;
            cast.into()
        }
        other => other.clone(),
    }
}
