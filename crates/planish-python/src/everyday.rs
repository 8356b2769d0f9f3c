//! Lists of items in batches, and sliding windows over images that are larger than a model's input.

use planish::{Blend, ErrorKind, NamedTensors, Padding, Session, SlidingWindow, Tensor, View};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::borrowed::{Borrowed, Framework};
use crate::errors::{OrRaise, wrong};
use crate::memory::copy_to_python;
use crate::runs::Runs;

/// A number for every axis, or one for all.
#[derive(FromPyObject)]
pub(crate) enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

impl<T> OneOrMore<T> {
    pub(crate) fn list(self) -> Vec<T> {
        match self {
            OneOrMore::One(one) => vec![one],
            OneOrMore::More(list) => list,
        }
    }
}

/// One item's inputs: an array, or several by name.
fn borrow<'py>(runs: &Runs, item: &Bound<'py, PyAny>) -> PyResult<Vec<Borrowed<'py>>> {
    let py = item.py();
    let inputs = match item.cast() {
        Ok(named) => runs.in_order(py, &PyTuple::empty(py), Some(named))?,
        Err(_) => runs.in_order(py, &PyTuple::new(py, [item])?, None)?,
    };
    runs.borrow(&inputs)
}

/// The same as the library takes it.
fn named<'a>(py: Python<'_>, runs: &'a Runs, item: &'a [Borrowed<'_>]) -> PyResult<Vec<(&'a str, View<'a>)>> {
    let inputs = runs.inputs.iter().zip(item);
    inputs.map(|(port, input)| Ok((port.name.as_str(), input.view(py)?))).collect()
}

/// Outputs as a call gives them: one alone, or all in the model's order.
fn outputs<'py>(
    py: Python<'py>,
    runs: &Runs,
    made: NamedTensors,
    framework: Framework,
) -> PyResult<Bound<'py, PyAny>> {
    let array = |tensor: Tensor| {
        runs.count_copy();
        copy_to_python(py, &tensor, framework)
    };
    Runs::called(py, made.into_tensors().into_iter().map(array).collect::<PyResult<Vec<_>>>()?)
}

/// Whose arrays the inputs are.
fn framework<'a>(mut inputs: impl Iterator<Item = &'a Borrowed<'a>>) -> Framework {
    inputs.find(|input| input.framework != Framework::Numpy).map(|input| input.framework).unwrap_or_default()
}

/// A result for each item of a list.
pub(crate) fn batch_inference<'py>(
    runs: &Runs,
    session: impl FnOnce() -> Result<Session, planish::Error> + Send,
    items: &Bound<'py, PyAny>,
    batch_size: Option<usize>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let py = items.py();
    let items = items.try_iter()?.map(|item| borrow(runs, &item?)).collect::<PyResult<Vec<_>>>()?;
    let views = items.iter().map(|item| named(py, runs, item)).collect::<PyResult<Vec<_>>>()?;
    let results = py.detach(|| {
        let mut session = session()?;
        let batch_size = batch_size.unwrap_or(session.batch_size());
        session.batch_inference(&views, batch_size).map(|batched| batched.results)
    });
    let framework = framework(items.iter().flatten());
    results.or_raise(py)?.into_iter().map(|made| outputs(py, runs, made, framework)).collect()
}

/// The blended results over an image.
pub(crate) fn sliding_window<'py>(
    runs: &Runs,
    session: impl FnOnce() -> Result<Session, planish::Error> + Send,
    image: &Bound<'py, PyAny>,
    windows: &SlidingWindow,
) -> PyResult<Bound<'py, PyAny>> {
    let py = image.py();
    let item = borrow(runs, image)?;
    let views = named(py, runs, &item)?;
    let made = py.detach(|| session()?.sliding_window(&views, windows));
    outputs(py, runs, made.or_raise(py)?, framework(item.iter()))
}

/// Reads how windows are blended.
pub(crate) fn blend(py: Python<'_>, mode: &str) -> PyResult<Blend> {
    match mode {
        "constant" => Ok(Blend::Constant),
        "gaussian" => Ok(Blend::Gaussian),
        _ => {
            let message = format!("mode is `constant` or `gaussian`, not `{mode}`");
            Err(wrong(py, ErrorKind::BadOption, message))
        }
    }
}

/// Reads what lies around an image.
pub(crate) fn padding(py: Python<'_>, mode: &str) -> PyResult<Padding> {
    match mode {
        "constant" => Ok(Padding::Constant),
        "reflect" => Ok(Padding::Reflect),
        "replicate" => Ok(Padding::Replicate),
        "circular" => Ok(Padding::Circular),
        _ => {
            let known = "`constant`, `reflect`, `replicate` or `circular`";
            Err(wrong(py, ErrorKind::BadOption, format!("padding_mode is {known}, not `{mode}`")))
        }
    }
}
