//! Normalizations whose meaning changed: softmax over a flattened tail, batch statistics, grouped scales.

use planish_op::{Attribute, Concat, Div, Expand, Flatten, Op, Reshape, Shape as ShapeOp, Unsqueeze};

use crate::error::ImportError;
use crate::node::{NodeImport, Out};

/// Softmax, LogSoftmax and Hardmax before opset 13 ran over all axes from `axis` on, as one.
pub(super) fn softmax(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let name = n.node.op_type.as_ref();
    if n.opset >= 13 {
        return n.finish_generic(name, &[]);
    }
    let data = n.required(0)?;
    let axis = n.int_or("axis", 1)?;
    let along_last = Op::from_attributes(name, &[("axis".to_string(), Attribute::Int(-1))])?;
    let rank = n.type_of(data)?.rank();
    if axis == -1 || rank.is_some_and(|rank| axis == rank as i64 - 1) {
        return n.finish(along_last, &[Some(data)]);
    }
    let flat = n.temporary(Flatten { axis }, &[Some(data)])?;
    let soft = n.temporary(along_last, &[Some(flat)])?;
    let shape = n.temporary(ShapeOp { start: 0, end: None }, &[Some(data)])?;
    // A size of 0 in the shape means 0, not "as it was".
    n.finish(Reshape { allowzero: true }, &[Some(soft), Some(shape)])
}

pub(super) fn batch_normalization(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    if n.int_or("spatial", 1)? == 0 {
        return Err(n.unsupported(Some("BatchNormalization with spatial=0 (statistics per element)")));
    }
    let list = n.op_attributes("BatchNormalization", &["spatial", "is_test", "consumed_inputs"])?;
    let op = Op::from_attributes("BatchNormalization", &list)?;
    let inputs = n.inputs.clone();
    // Before opset 14 there were up to five outputs, the others used in training alone.
    let outputs: &[Out] = match (n.opset < 14, n.wants(1)) {
        (true, _) | (_, false) => &[Out::Node(0)],
        (false, true) => &[Out::Node(0), Out::Node(1), Out::Node(2)],
    };
    n.add(op, &inputs, outputs).map(|_| ())
}

/// Before opset 21 scale and bias were per group, now they are per channel.
pub(super) fn group_normalization(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    if n.opset >= 21 {
        return n.finish_generic("GroupNormalization", &[]);
    }
    let data = n.required(0)?;
    let n_groups = n.int_or("num_groups", 1)?;
    if n_groups <= 0 {
        return Err(ImportError::invalid(format!("GroupNormalization cannot have {n_groups} groups")));
    }
    // [groups, channels / groups], the channels as the run finds them.
    let groups = n.int_vector("groups", vec![n_groups])?;
    let channels = n.temporary(ShapeOp { start: 1, end: Some(2) }, &[Some(data)])?;
    let per_group = n.temporary(Div {}, &[Some(channels), Some(groups)])?;
    let spread_shape = n.temporary(Concat { axis: 0 }, &[Some(groups), Some(per_group)])?;
    let mut inputs = vec![Some(data)];
    for idx in 1..=2 {
        let vector = n.required(idx)?;
        let axes = n.int_vector("axes", vec![1])?;
        let column = n.temporary(Unsqueeze {}, &[Some(vector), Some(axes)])?;
        let spread = n.temporary(Expand {}, &[Some(column), Some(spread_shape)])?;
        let flat = n.int_vector("flat", vec![-1])?;
        inputs.push(Some(n.temporary(Reshape { allowzero: false }, &[Some(spread), Some(flat)])?));
    }
    n.finish_with("GroupNormalization", &[], &inputs)
}
