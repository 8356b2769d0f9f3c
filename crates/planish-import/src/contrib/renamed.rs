//! Standard operators under another roof, name or layout.

use planish_op as op;
use planish_op::Op;

use super::qlinear::{to_channels_first, to_channels_last};
use crate::error::ImportError;
use crate::node::NodeImport;

/// The operator of the table with the same name, inputs and attributes.
pub(super) fn same_name(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let op = n.node.op_type.as_ref();
    n.finish_generic(op, &[])
}

/// Unique of a vector: the values in order of first appearance, with inverse indices and counts, but
/// without the indices that the standard one has.
pub(super) fn unique(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    use crate::node::Out;
    let data = n.required(0)?;
    let op = op::Unique { axis: None, sorted: false };
    n.add(op, &[Some(data)], &[Out::Node(0), Out::Temporary, Out::Node(1), Out::Node(2)]).map(|_| ())
}

/// The axis is a scalar input.
pub(super) fn expand_dims(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let (data, axis) = (n.required(0)?, n.required(1)?);
    let axis = n.cast(axis, planish_tensor::DType::I64)?;
    let axes = n.reshape_to(axis, vec![1])?;
    n.finish(op::Unsqueeze {}, &[Some(data), Some(axes)])
}

pub(super) fn nhwc_max_pool(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let list = n.op_attributes("MaxPool", &[])?;
    let pool = Op::from_attributes("MaxPool", &list)?;
    let data = n.required(0)?;
    let rank = n.rank_of(data)? as i64;
    let data = n.transpose(data, to_channels_first(rank))?;
    let pooled = n.temporary(pool, &[Some(data)])?;
    n.finish(op::Transpose { perm: Some(to_channels_last(rank)) }, &[Some(pooled)])
}
