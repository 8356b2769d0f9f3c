//! Samples of any iterable of Python's: for calibration, and for what a precision costs.

use planish::{DType, Error, ErrorKind, Sample};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList, PyTuple};

use crate::borrowed::Borrowed;

/// Samples of a Python iterator, taken with the interpreter's lock and handed on without. What Python raises is kept for
/// whoever has the iterator afterwards.
pub(crate) struct Samples {
    from: Py<PyIterator>,
    /// With their types, where they are tensors.
    inputs: Vec<(String, Option<DType>)>,
    pub(crate) raised: Option<PyErr>,
    /// The first ones, to be used again.
    pub(crate) first: Vec<Sample>,
}

/// As many as a certificate states the cost of a precision on.
const N_FIRST: usize = 4;

impl Samples {
    pub(crate) fn new(of: &Bound<'_, PyAny>, model: &planish::Model) -> PyResult<Samples> {
        let graph = model.graph();
        let typed = |value: &planish::graph::ValueInfo| {
            (value.name.to_string(), value.ty.as_tensor().map(|ty| ty.dtype))
        };
        let inputs = graph.inputs().iter().map(|&id| typed(graph.value(id))).collect();
        Ok(Samples { from: of.try_iter()?.unbind(), inputs, raised: None, first: Vec::new() })
    }

    fn next_sample(&self, py: Python<'_>) -> PyResult<Option<Sample>> {
        let Some(item) = self.from.bind(py).clone().next() else { return Ok(None) };
        let item = item?;
        let mut tensors = Vec::new();
        let mut add = |name: &str, array: &Bound<'_, PyAny>| {
            let wanted = self.inputs.iter().find(|(known, _)| known == name).and_then(|(_, dtype)| *dtype);
            tensors.push((name.to_string(), Borrowed::of(array, name, wanted)?.to_tensor(py)?));
            PyResult::Ok(())
        };
        if let Ok(named) = item.cast::<PyDict>() {
            for (name, array) in named {
                add(&name.extract::<String>()?, &array)?;
            }
        } else if item.is_instance_of::<PyTuple>() || item.is_instance_of::<PyList>() {
            // What comes after the inputs are labels.
            for ((name, _), array) in self.inputs.iter().zip(item.try_iter()?) {
                add(name, &array?)?;
            }
        } else if let Some((name, _)) = self.inputs.first() {
            add(name, &item)?;
        }
        let count = tensors.first().and_then(|(_, tensor)| tensor.shape().first().copied());
        Ok(Some(Sample::new(tensors, count.unwrap_or(1).max(1))))
    }
}

impl Iterator for &mut Samples {
    type Item = Result<Sample, Error>;

    fn next(&mut self) -> Option<Result<Sample, Error>> {
        Python::attach(|py| match self.next_sample(py) {
            Ok(sample) => {
                let sample = sample?;
                if self.first.len() < N_FIRST {
                    self.first.push(sample.clone());
                }
                Some(Ok(sample))
            }
            Err(raised) => {
                self.raised = Some(raised);
                Some(Err(Error::new(ErrorKind::Cancelled, "the samples ended in an exception")))
            }
        })
    }
}
