//! `TensorInfo`: what an input or an output of a model is.

use planish::{DType, Dim, PortInfo, Shape, ValueType};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString, PyTuple};

use crate::element_type;

/// An input or an output: its name, its type, and its shape.
///
/// >>> model = planish.Model.parse('graph "g" { input %x: f32[n,4] %y: f32[n,4] = Relu(%x) output %y }')
/// >>> x = model.inputs[0]
/// >>> x.name, x.dtype, x.shape
/// ('x', 'float32', ('n', 4))
/// >>> x
/// TensorInfo(name='x', dtype='float32', shape=('n', 4))
#[pyclass(frozen, eq, module = "planish")]
#[derive(PartialEq)]
pub(crate) struct TensorInfo {
    /// The name that the model gives it.
    #[pyo3(get)]
    name: String,
    kind: ValueType,
}

impl TensorInfo {
    pub(crate) fn new(port: PortInfo) -> TensorInfo {
        TensorInfo { name: port.name, kind: port.ty }
    }

    pub(crate) fn of_graph(
        graph: &planish::graph::Graph,
        ids: &[planish::graph::ValueId],
    ) -> Vec<TensorInfo> {
        let port = |id: &planish::graph::ValueId| {
            let value = graph.value(*id);
            TensorInfo { name: value.name.to_string(), kind: value.ty.clone() }
        };
        ids.iter().map(port).collect()
    }

    fn dtype_name(&self) -> String {
        match &self.kind {
            ValueType::Tensor(tensor) => element_type::name(tensor.dtype).to_string(),
            other => other.to_string(),
        }
    }

    fn shape(&self) -> Option<&Shape> {
        self.kind.as_tensor()?.shape.as_ref()
    }
}

/// The element type of a port that is a tensor.
pub(crate) fn dtype_of(port: &PortInfo) -> Option<DType> {
    port.ty.as_tensor().map(|tensor| tensor.dtype)
}

#[pymethods]
impl TensorInfo {
    /// The element type as numpy, or `ml_dtypes`, calls it; for what is no tensor, its type in words.
    #[getter]
    fn dtype(&self) -> String {
        self.dtype_name()
    }

    /// The sizes: numbers, names of sizes that a run decides, or None for what only a run can tell. None for a tensor
    /// whose number of dimensions is open, and for what is no tensor.
    #[getter(shape)]
    fn shape_of<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some(shape) = self.shape() else { return Ok(None) };
        let dim = |dim: &Dim| {
            Ok(match dim.as_const() {
                Some(size) => PyInt::new(py, size).into_any(),
                None if dim.is_unknown() => py.None().into_bound(py),
                None => PyString::new(py, &dim.to_string()).into_any(),
            })
        };
        let dims = shape.iter().map(dim).collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(py, dims).map(Some)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shape = self.shape_of(py)?;
        let shape = shape
            .map_or_else(|| Ok("None".to_string()), |shape| shape.repr().map(|text| text.to_string()))?;
        Ok(format!("TensorInfo(name={:?}, dtype={:?}, shape={shape})", self.name, self.dtype_name())
            .replace('"', "'"))
    }
}
