//! Features before the model: scaled, normalized, filled in, put side by side.

use planish_ir::ValueId;
use planish_op as op;
use planish_tensor::{DType, Tensor};

use crate::error::ImportError;
use crate::node::NodeImport;

pub(super) fn scaler(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let mut value = n.floats_in()?;
    if let Some(offset) = n.floats("offset")?.filter(|list| !list.is_empty()) {
        let offset = n.constant("offset", Tensor::vector(offset))?;
        value = n.temporary(op::Sub {}, &[Some(value), Some(offset)])?;
    }
    if let Some(scale) = n.floats("scale")?.filter(|list| !list.is_empty()) {
        let scale = n.constant("scale", Tensor::vector(scale))?;
        value = n.mul_values(value, scale)?;
    }
    n.alias(0, value)
}

/// Rows over their largest element or their norm; a row whose divisor is 0 stays as it is.
pub(super) fn normalizer(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let value = n.floats_in()?;
    let reduction = match n.text("norm")?.as_deref() {
        None | Some("MAX") => "ReduceMax",
        Some("L1") => "ReduceL1",
        Some("L2") => "ReduceL2",
        Some(_) => return Err(ImportError::invalid("attribute `norm` must be MAX, L1 or L2")),
    };
    let divisor = n.reduced(reduction, value)?;
    let (zero, one) = (n.number("zero", DType::F32, 0.0)?, n.number("one", DType::F32, 1.0)?);
    let is_zero = n.temporary(op::Equal {}, &[Some(divisor), Some(zero)])?;
    let divisor = n.temporary(op::Where {}, &[Some(is_zero), Some(one), Some(divisor)])?;
    n.finish(op::Div {}, &[Some(value), Some(divisor)])
}

pub(super) fn binarizer(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let value = n.required(0)?;
    let dtype = n.type_of(value)?.dtype;
    let wide = if dtype.is_float() { value } else { n.cast(value, DType::F64)? };
    let wide_dtype = n.type_of(wide)?.dtype;
    let threshold = f64::from(n.float_or("threshold", 0.0)?);
    let threshold = n.number("threshold", wide_dtype, threshold)?;
    let is_above = n.temporary(op::Greater {}, &[Some(wide), Some(threshold)])?;
    n.finish(op::Cast { to: dtype, saturate: true, round_mode: op::CastRounding::Up }, &[Some(is_above)])
}

pub(super) fn imputer(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let value = n.required(0)?;
    let dtype = n.type_of(value)?.dtype;
    let (imputed, replaced) = if dtype.is_float() {
        let list = n.floats("imputed_value_floats")?.unwrap_or_default();
        let list = list.into_iter().map(f64::from).collect::<Vec<f64>>();
        (list, f64::from(n.float_or("replaced_value_float", 0.0)?))
    } else {
        let list = n.ints("imputed_value_int64s")?.unwrap_or_default();
        (list.into_iter().map(|value| value as f64).collect(), n.int_or("replaced_value_int64", 0)? as f64)
    };
    if imputed.is_empty() {
        return Err(ImportError::invalid("there is no value to put in place of those that are missing"));
    }
    let imputed = n.number_list("imputed", dtype, &[imputed.len()], &imputed)?;
    let is_missing = if replaced.is_nan() {
        n.temporary(op::IsNaN {}, &[Some(value)])?
    } else {
        let replaced = n.number("replaced", dtype, replaced)?;
        n.temporary(op::Equal {}, &[Some(value), Some(replaced)])?
    };
    n.finish(op::Where {}, &[Some(is_missing), Some(imputed), Some(value)])
}

/// A new last axis with a 1 at the category; what is none of them is all 0.
pub(super) fn one_hot_encoder(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let Some(categories) = n.ints("cats_int64s")?.filter(|list| !list.is_empty()) else {
        return Err(n.unsupported(Some("categories that are strings; map them before the model")));
    };
    let value = n.required(0)?;
    let value = n.cast(value, DType::I64)?;
    let value = n.unsqueeze(value, vec![-1])?;
    let categories = n.int_vector("categories", categories)?;
    let is_it = n.temporary(op::Equal {}, &[Some(value), Some(categories)])?;
    n.finish(op::Cast { to: DType::F32, saturate: true, round_mode: op::CastRounding::Up }, &[Some(is_it)])
}

pub(super) fn feature_vectorizer(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let widths = n.ints("inputdimensions")?.unwrap_or_default();
    let mut parts: Vec<Option<ValueId>> = Vec::new();
    for idx in 0..n.inputs.len() {
        let part = n.required(idx)?;
        let mut part = n.cast(part, DType::F32)?;
        if n.rank_of(part)? == 1 {
            part = n.unsqueeze(part, vec![0])?;
        }
        let own = n.shape_of(part)?.iter().last().and_then(|dim| dim.as_const());
        if let (Some(width), Some(own)) = (widths.get(idx), own)
            && *width != own
        {
            return Err(n.unsupported(Some("inputs of other widths than `inputdimensions` says")));
        }
        parts.push(Some(part));
    }
    n.finish(op::Concat { axis: 1 }, &parts)
}

/// Columns by their numbers. A vector is one row.
pub(super) fn array_feature_extractor(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let (mut data, places) = (n.required(0)?, n.required(1)?);
    if n.rank_of(data)? == 1 {
        data = n.unsqueeze(data, vec![0])?;
    }
    let places = n.reshape_to(places, vec![-1])?;
    n.finish(op::Gather { axis: -1 }, &[Some(data), Some(places)])
}
