//! Convolutions and matrix products with what was fused after them.

use planish_ir::ValueId;
use planish_op::{Attribute, MatMul, Op};

use crate::error::ImportError;
use crate::node::NodeImport;

/// The activation as the node's output 0, or the value itself if there is none.
fn activate(
    n: &mut NodeImport<'_, '_>,
    value: ValueId,
    name: &str,
    params: &[f32],
) -> Result<(), ImportError> {
    let fields: &[&str] = match name {
        "" => return n.alias(0, value),
        "Relu" | "Tanh" | "Sigmoid" | "HardSwish" => &[],
        "LeakyRelu" => &["alpha"],
        "HardSigmoid" => &["alpha", "beta"],
        "Clip" => {
            let dtype = n.type_of(value)?.dtype;
            let mut inputs = vec![Some(value)];
            for (hint, &bound) in ["min", "max"].into_iter().zip(params) {
                inputs.push(Some(n.number(hint, dtype, f64::from(bound))?));
            }
            return n.make_output(0, planish_op::Clip {}, &inputs);
        }
        _ => return Err(n.unsupported(Some("an activation that is not known to be fused"))),
    };
    let list: Vec<(String, Attribute)> = fields
        .iter()
        .zip(params)
        .map(|(field, &value)| (field.to_string(), Attribute::Float(value)))
        .collect();
    n.make_output(0, Op::from_attributes(name, &list)?, &[Some(value)])
}

pub(super) fn fused_conv(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let list = n.op_attributes("Conv", &["activation", "activation_params"])?;
    let conv = Op::from_attributes("Conv", &list)?;
    let inputs = [Some(n.required(0)?), Some(n.required(1)?), n.input(2)];
    let mut value = n.temporary(conv, &inputs[..if inputs[2].is_some() { 3 } else { 2 }])?;
    if let Some(residual) = n.input(3) {
        value = n.add_values(value, residual)?;
    }
    let activation = n.text("activation")?.unwrap_or_default();
    let params = n.floats("activation_params")?.unwrap_or_default();
    activate(n, value, &activation, &params)
}

pub(super) fn fused_gemm(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    const OWN: [&str; 4] = ["activation", "activation_alpha", "activation_beta", "activation_gamma"];
    let list = n.op_attributes("Gemm", &OWN)?;
    let gemm = Op::from_attributes("Gemm", &list)?;
    let inputs = n.inputs.clone();
    let value = n.temporary(gemm, &inputs)?;
    let activation = n.text("activation")?.unwrap_or_default();
    let mut params = Vec::new();
    for name in &OWN[1..] {
        params.extend(n.float(name)?);
    }
    activate(n, value, &activation, &params)
}

/// `alpha * A' x B'`, with either operand transposed in its last two axes, or its first moved after the
/// batch axes.
pub(super) fn fused_matmul(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let mut operands = [n.required(0)?, n.required(1)?];
    for (operand, (swap, batch)) in
        operands.iter_mut().zip([("transA", "transBatchA"), ("transB", "transBatchB")])
    {
        let (swap, batch) = (n.int_or(swap, 0)? != 0, n.int_or(batch, 0)? != 0);
        if !swap && !batch {
            continue;
        }
        let rank = n.rank_of(*operand)? as i64;
        if rank < 2 {
            continue;
        }
        let mut perm: Vec<i64> = (0..rank).collect();
        if batch {
            let first = perm.remove(0);
            perm.insert(rank as usize - 2, first);
        }
        if swap {
            perm.swap(rank as usize - 2, rank as usize - 1);
        }
        *operand = n.transpose(*operand, perm)?;
    }
    let alpha = n.float_or("alpha", 1.0)?;
    let inputs = operands.map(Some);
    if alpha == 1.0 {
        return n.finish(MatMul {}, &inputs);
    }
    let product = n.temporary(MatMul {}, &inputs)?;
    let dtype = n.type_of(product)?.dtype;
    let alpha = n.number("alpha", dtype, f64::from(alpha))?;
    n.finish(planish_op::Mul {}, &[Some(product), Some(alpha)])
}
