//! `Model`: an ONNX model that was read, or a graph in Planish's text form.

use std::path::PathBuf;

use planish::graph::interpret;
use planish::{Bytes, ErrorKind, Value};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyType};

use crate::borrowed::{Borrowed, Framework};
use crate::errors::{OrRaise, wrong};
use crate::memory::copy_to_python;
use crate::metadata::Metadata;
use crate::port::TensorInfo;

/// A model that was read: `planish.Model("model.onnx")`, of a path or of the file's bytes.
///
/// `planish.build` takes paths and bytes itself; a `Model` is for looking at one, and for reading it once.
///
/// >>> model = planish.Model.parse('graph "g" { input %x: f32[n,4] %y: f32[n,4] = Relu(%x) output %y }')
/// >>> model.name, model.inputs[0].shape, model.outputs[0].name
/// ('g', ('n', 4), 'y')
#[pyclass(frozen, module = "planish")]
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) inner: planish::Model,
    metadata: Metadata,
}

#[pymethods]
impl Model {
    #[new]
    fn new(source: &Bound<'_, PyAny>) -> PyResult<Model> {
        Model::of(source)
    }

    /// A model in the text form that `str(model)` gives. Weights are not part of the text.
    #[classmethod]
    fn parse(_class: &Bound<'_, PyType>, py: Python<'_>, text: &str) -> PyResult<Model> {
        let graph: Result<planish::graph::Graph, _> = text.parse();
        let graph = graph
            .map_err(|error| wrong(py, ErrorKind::BadModel, format!("the text is no model: {error}")))?;
        let inner = planish::Model::from(graph);
        let metadata = Metadata::named(&inner.graph().name);
        Ok(Model { inner, metadata })
    }

    /// Writes the model as an ONNX file.
    fn save_onnx(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.inner.save_onnx(path)).or_raise(py)
    }

    /// The same function with the passes that every build runs behind it, in operators up to this opset.
    ///
    /// >>> model = planish.Model.parse('graph "g" { input %x: f32[n] %i: f32[n] = Neg(%x) %y: f32[n] = Neg(%i) output %y }')
    /// >>> len(model.nodes), len(model.simplified().nodes) <= 2
    /// (2, True)
    #[pyo3(signature = (opset=21))]
    fn simplified(&self, py: Python<'_>, opset: i64) -> PyResult<Model> {
        let made =
            py.detach(|| planish::Builder::from_model(self.inner.clone()).simplify(opset)).or_raise(py)?;
        Ok(Model { inner: made.model, metadata: self.metadata.clone() })
    }

    /// The outputs on a dict of inputs, by the exact reference that plans are checked against: slow, and right.
    ///
    /// >>> model = planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }')
    /// >>> model.evaluate({"x": numpy.float32([-1, 2])})
    /// {'y': array([0., 2.], dtype=float32)}
    fn evaluate<'py>(&self, inputs: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
        let (py, graph) = (inputs.py(), self.inner.graph());
        let mut values = Vec::new();
        for &id in graph.inputs() {
            let value = graph.value(id);
            let name = value.name.to_string();
            let Some(given) = inputs.get_item(&name)? else {
                return Err(wrong(py, ErrorKind::WrongInputs, format!("input `{name}` is missing")));
            };
            let wanted = value.ty.as_tensor().map(|ty| ty.dtype);
            values.push(Value::from(Borrowed::of(&given, &name, wanted)?.to_tensor(py)?));
        }
        let made = py.detach(|| interpret(graph, values));
        let made = made.map_err(|error| wrong(py, ErrorKind::BadValues, error.to_string()))?;
        let outputs = PyDict::new(py);
        for (&id, value) in graph.outputs().iter().zip(&made) {
            let name = graph.value(id).name.to_string();
            let Some(tensor) = value.as_tensor() else {
                let message = format!("output `{name}` is no tensor, which has no array");
                return Err(wrong(py, ErrorKind::Unsupported, message));
            };
            outputs.set_item(name, copy_to_python(py, tensor, Framework::Numpy)?)?;
        }
        Ok(outputs)
    }

    /// The name that the model gives itself.
    #[getter]
    fn name(&self) -> String {
        self.inner.graph().name.to_string()
    }

    /// The names and operators of its nodes, in the order in which they run.
    ///
    /// >>> model = planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }')
    /// >>> [op for _, op in model.nodes]
    /// ['Relu']
    #[getter]
    fn nodes(&self) -> Vec<(String, String)> {
        let nodes = self.inner.graph().nodes();
        nodes.map(|(_, node)| (node.name.to_string(), node.op.name().to_string())).collect()
    }

    /// Tells the model from others: a hash of its file and of the weights beside it.
    #[getter]
    fn hash(&self) -> String {
        self.inner.hash().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What the model's file says of itself.
    #[getter]
    fn metadata(&self) -> Metadata {
        self.metadata.clone()
    }

    /// The model's inputs, in its order.
    #[getter]
    fn inputs(&self) -> Vec<TensorInfo> {
        TensorInfo::of_graph(self.inner.graph(), self.inner.graph().inputs())
    }

    /// The model's outputs, in its order.
    #[getter]
    fn outputs(&self) -> Vec<TensorInfo> {
        TensorInfo::of_graph(self.inner.graph(), self.inner.graph().outputs())
    }

    fn __str__(&self) -> String {
        self.inner.graph().to_string()
    }

    fn __repr__(&self) -> String {
        let graph = self.inner.graph();
        format!("<planish.Model {:?} with {} nodes>", graph.name, graph.nodes().len())
    }
}

impl Model {
    /// The model of a path, of a file's bytes, or one that was read before.
    pub(crate) fn of(source: &Bound<'_, PyAny>) -> PyResult<Model> {
        let py = source.py();
        if let Ok(model) = source.cast::<Model>() {
            return Ok(model.get().clone());
        }
        let bytes = if let Ok(path) = source.extract::<PathBuf>() {
            let read = || Ok((planish::Model::open(&path)?, planish::Metadata::read(&path)?));
            let (inner, metadata) = py.detach(read).or_raise(py)?;
            return Ok(Model { inner, metadata: Metadata::new(metadata) });
        } else if let Ok(bytes) = source.cast::<PyBytes>() {
            Bytes::aligned(bytes.as_bytes())
        } else if let Ok(bytes) = source.cast::<PyByteArray>() {
            Bytes::aligned(&bytes.to_vec())
        } else {
            let message = "a model is a path, the bytes of an ONNX file, or a planish.Model";
            return Err(wrong(py, ErrorKind::WrongType, message));
        };
        let read = || Ok((planish::Model::from_bytes(&bytes)?, planish::Metadata::from_bytes(&bytes)?));
        let (inner, metadata) = py.detach(read).or_raise(py)?;
        Ok(Model { inner, metadata: Metadata::new(metadata) })
    }
}
