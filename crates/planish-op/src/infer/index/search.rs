//! Operators that look for elements: how many they find is mostly known at run time only.

use planish_tensor::{DType, Dim, Shape};

use crate::infer::checks::checked_dim;
use crate::infer::known::{Element, Known, with_known};
use crate::infer::movement::{List, with_dim};
use crate::infer::{InferResult, Inference, Inferred};

pub(in crate::infer) fn non_zero(_op: &crate::NonZero, cx: &mut Inference<'_>) -> InferResult {
    cx.tensor(0)?;
    if let Some(found) = Known::of(cx, 0).and_then(|known| coordinates(&known)) {
        return Ok(vec![with_known(DType::I64, Shape::from(&found.shape[..]), Some(found))]);
    }
    let rank = match cx.shape(0)? {
        Some(shape) => Dim::from(shape.rank()),
        None => cx.fresh_dim("rank"),
    };
    let count = cx.fresh_dim("nonzero");
    Ok(vec![Inferred::tensor(DType::I64, Shape::new(vec![rank, count]))])
}

/// One row per axis, one column per element that is not zero; `None` if one may or may not be.
fn coordinates(known: &Known) -> Option<Known> {
    let mut found: Vec<Vec<usize>> = Vec::new();
    for (element, place) in known.elements.iter().zip(known.places()?) {
        let is_zero = match element {
            Element::Float(value) => *value == 0.0,
            Element::Int(dim) => dim.as_const()? == 0,
        };
        if !is_zero {
            found.push(place);
        }
    }
    let rank = known.shape.len();
    let rows = (0..rank).flat_map(|axis| found.iter().map(move |place| Dim::from(place[axis])));
    Known::vector(rows.collect()).reshaped(&[rank, found.len()])
}

pub(in crate::infer) fn topk(op: &crate::TopK, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    if dtype == DType::Bool || dtype.is_small_float() || dtype.is_sub_byte() {
        return Err(cx.bad_type(format!("elements of type {dtype} have no order here")));
    }
    let k = List::of(cx, 1)?;
    if k.len().is_some_and(|len| len != 1) {
        return Err(cx.bad_shape("k must be one number"));
    }
    let Some(shape) = cx.shape(0)? else {
        let outputs = [dtype, DType::I64].map(|dtype| Inferred::maybe_ranked(dtype, None));
        return Ok(outputs.into_iter().take(cx.n_outputs()).collect());
    };
    let axis = cx.axis(op.axis, shape.rank())?;
    let k = checked_dim(cx, k.get(0).cloned().unwrap_or(Dim::UNKNOWN), "topk")?;
    if let (Some(k), Some(dim)) = (k.as_const(), shape[axis].as_const())
        && k > dim
    {
        return Err(cx.bad_shape(format!("k is {k}, axis {axis} of {shape} has only {dim}")));
    }
    let shape = with_dim(shape, axis, k);
    let outputs = [dtype, DType::I64].map(|dtype| Inferred::tensor(dtype, shape.clone()));
    Ok(outputs.into_iter().take(cx.n_outputs()).collect())
}

pub(in crate::infer) fn unique(op: &crate::Unique, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    let data = cx.shape(0)?;
    let count = cx.fresh_dim("unique");
    let (values, places) = match (op.axis, data) {
        (None, _) => (Some(Shape::new(vec![count.clone()])), data.map(Shape::element_count)),
        (Some(axis), Some(shape)) => {
            let axis = cx.axis(axis, shape.rank())?;
            (Some(with_dim(shape, axis, count.clone())), Some(shape[axis].clone()))
        }
        (Some(_), None) => (None, None),
    };
    let places = checked_dim(cx, places.unwrap_or(Dim::UNKNOWN), "unique")?;
    let list = |len: &Dim| Inferred::tensor(DType::I64, Shape::new(vec![len.clone()]));
    let outputs = [Inferred::maybe_ranked(dtype, values), list(&count), list(&places), list(&count)];
    Ok(outputs.into_iter().take(cx.n_outputs()).collect())
}

pub(in crate::infer) fn tfidf_vectorizer(op: &crate::TfIdfVectorizer, cx: &mut Inference<'_>) -> InferResult {
    if !op.pool_strings.is_empty() {
        return Err(cx.bad_type("n-grams of strings are not supported; map the strings to integers first"));
    }
    let dtype = cx.dtype(0)?;
    if !dtype.is_int() {
        return Err(cx.bad_type(format!("n-grams of {dtype} are not counted, only of integers")));
    }
    let last = op.ngram_indexes.iter().copied().max().and_then(|last| last.checked_add(1));
    let smallest = op.ngram_indexes.iter().copied().min();
    let (Some(width), Some(0..)) = (last, smallest) else {
        return Err(cx.bad_attribute("ngram_indexes must be a list of places in the output"));
    };
    let width = Dim::from(width);
    let shape = match cx.shape(0)?.map(Shape::dims) {
        None => None,
        Some([] | [_]) => Some(Shape::new(vec![width])),
        Some([rows, _]) => Some(Shape::new(vec![rows.clone(), width])),
        Some(_) => return Err(cx.bad_shape("the input must have rank 1 or 2")),
    };
    Ok(vec![Inferred::maybe_ranked(DType::F32, shape)])
}
