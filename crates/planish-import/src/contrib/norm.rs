//! Layer normalizations with the additions before them.

use planish_ir::ValueId;
use planish_op as op;
use planish_tensor::DType;

use crate::error::ImportError;
use crate::node::{NodeImport, Out};

/// `input + skip`, plus the bias if there is one.
fn skip_sum(n: &mut NodeImport<'_, '_>, bias: Option<ValueId>) -> Result<ValueId, ImportError> {
    let (input, skip) = (n.required(0)?, n.required(1)?);
    let sum = n.add_values(input, skip)?;
    match bias {
        Some(bias) => n.add_values(sum, bias),
        None => Ok(sum),
    }
}

pub(super) fn skip_layer_normalization(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let bias = n.input(4);
    let sum = skip_sum(n, bias)?;
    let (gamma, beta) = (n.required(2)?, n.input(3));
    let epsilon = n.float_or("epsilon", 1e-12)?;
    let norm = op::LayerNormalization { stash_type: 1, epsilon, axis: -1 };
    let inputs = [Some(sum), Some(gamma), beta];
    let inputs = if beta.is_some() { &inputs[..] } else { &inputs[..2] };
    let wants_statistics = n.wants(1) || n.wants(2);
    let outputs: &[Out] =
        if wants_statistics { &[Out::Node(0), Out::Node(1), Out::Node(2)] } else { &[Out::Node(0)] };
    n.add(norm, inputs, outputs)?;
    if n.wants(3) {
        n.alias(3, sum)?;
    }
    Ok(())
}

pub(super) fn skip_simplified_layer_normalization(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let bias = n.input(3);
    let sum = skip_sum(n, bias)?;
    let gamma = n.required(2)?;
    let epsilon = n.float_or("epsilon", 1e-12)?;
    refuse_statistics(n)?;
    let norm = op::RMSNormalization { stash_type: 1, epsilon, axis: -1 };
    n.make_output(0, norm, &[Some(sum), Some(gamma)])?;
    if n.wants(3) {
        n.alias(3, sum)?;
    }
    Ok(())
}

/// RMSNormalization has one output; the statistics are for training.
fn refuse_statistics(n: &NodeImport<'_, '_>) -> Result<(), ImportError> {
    if n.wants(1) || n.wants(2) {
        return Err(n.unsupported(Some("the statistics of a simplified layer normalization as outputs")));
    }
    Ok(())
}

pub(super) fn simplified_layer_normalization(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    refuse_statistics(n)?;
    let (data, scale) = (n.required(0)?, n.required(1)?);
    let (axis, epsilon) = (n.int_or("axis", -1)?, n.float_or("epsilon", 1e-5)?);
    n.make_output(0, op::RMSNormalization { stash_type: 1, epsilon, axis }, &[Some(data), Some(scale)])
}

/// Word, position and segment embeddings, summed and normalized.
pub(super) fn embed_layer_normalization(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let (ids, segment_ids) = (n.required(0)?, n.input(1));
    let (words, positions, segments) = (n.required(2)?, n.required(3)?, n.input(4));
    let (gamma, beta, mask, position_ids) = (n.required(5)?, n.required(6)?, n.input(7), n.input(8));
    let gather = op::Gather { axis: 0 };
    let word = n.temporary(gather.clone(), &[Some(words), Some(ids)])?;
    let position_ids = match position_ids {
        Some(ids) => ids,
        None => {
            let length = n.dim_vector(ids, 1)?;
            let length = n.reshape_to(length, vec![])?;
            let (zero, one) = (n.number("zero", DType::I64, 0.0)?, n.number("one", DType::I64, 1.0)?);
            n.temporary(op::Range { stash_type: 1 }, &[Some(zero), Some(length), Some(one)])?
        }
    };
    let position = n.temporary(gather.clone(), &[Some(positions), Some(position_ids)])?;
    let mut sum = n.add_values(word, position)?;
    if let (Some(segments), Some(ids)) = (segments, segment_ids) {
        let segment = n.temporary(gather, &[Some(segments), Some(ids)])?;
        sum = n.add_values(sum, segment)?;
    }
    let epsilon = n.float_or("epsilon", 1e-12)?;
    let norm = op::LayerNormalization { stash_type: 1, epsilon, axis: -1 };
    n.make_output(0, norm, &[Some(sum), Some(gamma), Some(beta)])?;
    if n.wants(1) {
        // The number of ones in each row of the mask; zeros without a mask.
        match mask {
            Some(mask) => {
                let axes = n.int_vector("axes", vec![1])?;
                let reduce = op::ReduceSum { noop_with_empty_axes: false, keepdims: false };
                let count = n.temporary(reduce, &[Some(mask), Some(axes)])?;
                let to = op::Cast { to: DType::I32, saturate: true, round_mode: op::CastRounding::Up };
                n.make_output(1, to, &[Some(count)])?;
            }
            None => {
                let batch = n.dim_vector(ids, 0)?;
                let zero = planish_tensor::Tensor::vector(vec![0i32]);
                n.make_output(1, op::ConstantOfShape { value: Some(zero) }, &[Some(batch)])?;
            }
        }
    }
    if n.wants(2) {
        n.alias(2, sum)?;
    }
    Ok(())
}
