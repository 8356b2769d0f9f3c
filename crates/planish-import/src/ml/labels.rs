//! Classes and their labels.

use planish_ir::ValueId;
use planish_onnx::AttributeValue;
use planish_op as op;
use planish_tensor::{DType, Tensor};

use super::Made;
use crate::error::{ImportError, shorten};
use crate::node::{NodeImport, Out};

/// Labels that a note spells out.
const SHOWN: usize = 20;

/// The labels of a classifier.
pub(super) enum Labels {
    Ints(Vec<i64>),
    Texts(Vec<String>),
}

impl Labels {
    /// What the node lists, as numbers under `ints` or as `classlabels_strings`.
    pub(super) fn of(n: &NodeImport<'_, '_>, ints: &str) -> Result<Labels, ImportError> {
        match (n.texts("classlabels_strings")?, n.ints(ints)?.filter(|list| !list.is_empty())) {
            (Some(texts), _) => Ok(Labels::Texts(texts)),
            (None, Some(ints)) => Ok(Labels::Ints(ints)),
            (None, None) => Err(ImportError::invalid("a classifier needs the labels of its classes")),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Labels::Ints(list) => list.len(),
            Labels::Texts(list) => list.len(),
        }
    }

    /// The node's first output: the label of each row's class, which is told by its place among them.
    pub(super) fn finish(self, n: &mut NodeImport<'_, '_>, class: ValueId) -> Result<(), ImportError> {
        if !n.wants(0) {
            return Ok(());
        }
        match self {
            Labels::Ints(list) => {
                let labels = n.int_vector("labels", list)?;
                n.add(op::Gather { axis: 0 }, &[Some(labels), Some(class)], &[Out::Node(0)]).map(|_| ())
            }
            Labels::Texts(list) => {
                note_places(n, &list);
                n.alias(0, class)
            }
        }
    }
}

/// Says that strings are told by their places.
fn note_places(n: &mut NodeImport<'_, '_>, texts: &[String]) {
    let shown: Vec<String> = texts
        .iter()
        .take(SHOWN)
        .enumerate()
        .map(|(place, text)| format!("{place} is {}", shorten(text)))
        .collect();
    let more = texts.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let output = n.node.outputs.first().map_or("", |name| name.as_ref());
    let note = format!(
        "`{}` tells classes by their places, as there are no tensors of strings: {}{more}",
        shorten(output),
        shown.join(", ")
    );
    n.importer.note(note);
}

/// Its output would be a sequence of maps, of which there are none: the tensor of probabilities stands for it.
pub(super) fn zip_map(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let probabilities = n.required(0)?;
    let output = n.node.outputs.first().map_or("", |name| name.as_ref());
    let note = format!("`{}` is the tensor of probabilities that ZipMap would make maps of", shorten(output));
    n.importer.note(note);
    n.alias(0, probabilities)
}

/// One side of a LabelEncoder.
fn side(n: &mut NodeImport<'_, '_>, name: &str) -> Result<Option<Tensor>, ImportError> {
    if let Some(ints) = n.ints(&format!("{name}_int64s"))?.filter(|list| !list.is_empty()) {
        return Ok(Some(Tensor::vector(ints)));
    }
    if let Some(floats) = n.floats(&format!("{name}_floats"))?.filter(|list| !list.is_empty()) {
        return Ok(Some(Tensor::vector(floats)));
    }
    match n.attribute(&format!("{name}_tensor")) {
        Some(AttributeValue::Tensor(tensor)) => Ok(Some(n.importer.weights.tensor(tensor)?)),
        _ => Ok(None),
    }
}

pub(super) fn label_encoder(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    const STRINGS: &str = "keys that are strings; map them before the model";
    let Some(keys) = side(n, "keys")? else { return Err(n.unsupported(Some(STRINGS))) };
    let values = match (side(n, "values")?, n.texts("values_strings")?) {
        (Some(values), _) => values,
        (None, Some(texts)) => {
            note_places(n, &texts);
            Tensor::vector((0..texts.len() as i64).collect())
        }
        (None, None) => return Err(ImportError::invalid("LabelEncoder has no values")),
    };
    if keys.len() != values.len() || keys.is_empty() {
        let detail = format!("LabelEncoder has {} keys and {} values", keys.len(), values.len());
        return Err(ImportError::invalid(detail));
    }
    let default = match n.attribute("default_tensor") {
        Some(AttributeValue::Tensor(tensor)) => n.importer.weights.tensor(tensor)?.to_f64s().first().copied(),
        _ => None,
    };
    let default = match (default, values.dtype().is_float()) {
        (Some(default), _) => default,
        (None, true) => f64::from(n.float_or("default_float", -0.0)?),
        (None, false) => n.int_or("default_int64", -1)? as f64,
    };
    let value_dtype = values.dtype();
    let (place, is_known) = place_among(n, &keys)?;
    let values = values.reshaped(&[values.len()]).map_err(|error| ImportError::invalid(error.to_string()))?;
    let values = n.constant("values", values)?;
    let value = n.temporary(op::Gather { axis: 0 }, &[Some(values), Some(place)])?;
    let default = n.number("default", value_dtype, default)?;
    n.finish(op::Where {}, &[Some(is_known), Some(value), Some(default)])
}

/// The place of each element of input 0 among the keys (any, where it is none), and whether it is one.
fn place_among(n: &mut NodeImport<'_, '_>, keys: &Tensor) -> Result<(ValueId, ValueId), ImportError> {
    let data = n.required(0)?;
    let data = n.cast(data, keys.dtype())?;
    let dtype = keys.dtype();
    let counts_up =
        dtype == DType::I64 && keys.to_i64s().iter().enumerate().all(|(at, key)| *key == at as i64);
    if counts_up {
        let (first, last) =
            (n.number("first", dtype, 0.0)?, n.number("last", dtype, keys.len() as f64 - 1.0)?);
        let place = n.temporary(op::Clip {}, &[Some(data), Some(first), Some(last)])?;
        return Ok((place, n.temporary(op::Equal {}, &[Some(data), Some(place)])?));
    }
    let is_missing: Vec<bool> = keys.to_f64s().iter().map(|key| key.is_nan()).collect();
    let list = keys.reshaped(&[keys.len()]).map_err(|error| ImportError::invalid(error.to_string()))?;
    let list = n.constant("keys", list)?;
    let data = n.unsqueeze(data, vec![-1])?;
    let mut hit = n.temporary(op::Equal {}, &[Some(data), Some(list)])?;
    // NaN equals nothing, and may be a key.
    if dtype.is_float() && is_missing.contains(&true) {
        let missing_key = n.constant("missing", Tensor::vector(is_missing))?;
        let missing: Made = n.temporary(op::IsNaN {}, &[Some(data)]);
        let missing = n.temporary(op::And {}, &[Some(missing?), Some(missing_key)])?;
        hit = n.temporary(op::Or {}, &[Some(hit), Some(missing)])?;
    }
    // As f32, for which searches and reductions have kernels.
    let hit = n.cast(hit, DType::F32)?;
    let first = op::ArgMax { axis: -1, keepdims: false, select_last_index: false };
    let place = n.temporary(first, &[Some(hit)])?;
    let axes = n.int_vector("axes", vec![-1])?;
    let any = op::ReduceMax { keepdims: false, noop_with_empty_axes: false };
    let any = n.temporary(any, &[Some(hit), Some(axes)])?;
    Ok((place, n.cast(any, DType::Bool)?))
}
