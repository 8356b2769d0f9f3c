//! Operators before opset 7: broadcasting by attribute, and attributes that were dropped since.

use planish_ir::ValueId;
use planish_op::Unsqueeze;
use planish_tensor::normalize_axis;

use crate::error::ImportError;
use crate::node::NodeImport;

/// Binary operators before opset 7: `broadcast` allows it, `axis` says where the second operand aligns.
pub(super) fn binary(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let op = n.node.op_type.as_ref();
    let (a, b) = (n.required(0)?, n.required(1)?);
    let axis = n.int("axis")?;
    let b = match axis {
        Some(axis) if n.int_or("broadcast", 0)? != 0 => align(n, a, b, axis)?,
        _ => b,
    };
    n.finish_with(op, &["axis", "broadcast", "consumed_inputs"], &[Some(a), Some(b)])
}

/// `b` with ones appended so that its first axis stands at `axis` of `a`.
fn align(n: &mut NodeImport<'_, '_>, a: ValueId, b: ValueId, axis: i64) -> Result<ValueId, ImportError> {
    let (rank_a, rank_b) = (n.rank_of(a)?, n.rank_of(b)?);
    let n_appended =
        normalize_axis(axis, rank_a).ok().and_then(|axis| rank_a.checked_sub(axis)?.checked_sub(rank_b));
    let Some(n_appended) = n_appended else {
        return Err(ImportError::invalid(format!("axis {axis} leaves no room for the second operand")));
    };
    if n_appended == 0 {
        return Ok(b);
    }
    let axes = n.int_vector("axes", (rank_b..rank_b + n_appended).map(|axis| axis as i64).collect())?;
    n.temporary(Unsqueeze {}, &[Some(b), Some(axes)])
}

/// PRelu before opset 7: a slope per channel is a vector, whatever the rank of the data.
pub(super) fn prelu(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let (data, slope) = (n.required(0)?, n.required(1)?);
    let shared = n.shape_of(slope)?.element_count().as_const() == Some(1);
    let slope = if shared { slope } else { align(n, data, slope, 1)? };
    n.finish_with("PRelu", &["consumed_inputs"], &[Some(data), Some(slope)])
}

/// Operators whose old attributes are dropped without a change of meaning at inference.
pub(super) fn drop_old_attributes(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let op = n.node.op_type.as_ref();
    n.finish_generic(op, &["broadcast", "consumed_inputs", "is_test"])
}

/// Concat's axis was optional at first.
pub(super) fn concat(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let axis = n.int_or("axis", 1)?;
    let inputs = n.inputs.clone();
    n.finish(planish_op::Concat { axis }, &inputs)
}

/// Reshape's target was an attribute at first.
pub(super) fn reshape(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    if n.opset >= 5 {
        return n.finish_generic("Reshape", &[]);
    }
    let data = n.required(0)?;
    let shape =
        n.ints("shape")?.ok_or_else(|| ImportError::invalid("Reshape needs the attribute `shape`"))?;
    let shape = n.int_vector("shape", shape)?;
    n.finish_with("Reshape", &["shape", "consumed_inputs"], &[Some(data), Some(shape)])
}
