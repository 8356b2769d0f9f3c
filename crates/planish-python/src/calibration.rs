//! `Calibration`: the ranges of a model's activations.

use std::path::PathBuf;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::errors::OrRaise;
use crate::model::Model;

/// The ranges of a model's activations: what `planish.calibrate` finds, and `planish.build` takes as `calib`.
#[pyclass(frozen, module = "planish")]
#[derive(Clone)]
pub(crate) struct Calibration {
    pub(crate) inner: planish::Calibration,
}

impl Calibration {
    pub(crate) fn open_at(py: Python<'_>, path: PathBuf) -> PyResult<Calibration> {
        let inner = py.detach(|| planish::Calibration::open(path)).or_raise(py)?;
        Ok(Calibration { inner })
    }
}

#[pymethods]
impl Calibration {
    /// Reads a calibration: Planish's own, or a calibration cache of TensorRT.
    #[classmethod]
    fn open(_class: &Bound<'_, PyType>, py: Python<'_>, path: PathBuf) -> PyResult<Calibration> {
        Calibration::open_at(py, path)
    }

    /// Writes the file, in one piece.
    ///
    /// >>> model = planish.Model.parse('graph "g" { input %x: f32[n,2] %y: f32[n,2] = Relu(%x) output %y }')
    /// >>> planish.calibrate(model, [numpy.float32([[1, 2]])]).save("relu.calib")
    /// >>> planish.Calibration.open("relu.calib").n_samples
    /// 1
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.inner.save(path)).or_raise(py)
    }

    /// Writes TensorRT's calibration cache, in one piece.
    fn save_tensorrt(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.inner.save_tensorrt(path)).or_raise(py)
    }

    /// The same calibration, bound to this model: for caches of TensorRT, which do not say what they are of.
    fn bound_to(&self, model: &Model) -> Calibration {
        Calibration { inner: self.inner.clone().bound_to(&model.inner) }
    }

    /// How thresholds were found.
    #[getter]
    fn calibrator(&self) -> String {
        self.inner.calibrator().to_string()
    }

    /// How many samples were seen; 0 where the file does not say.
    #[getter]
    fn n_samples(&self) -> u64 {
        self.inner.n_samples()
    }

    /// Whether more samples would change anything, and which tensors have no threshold.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.inner.notes().to_vec()
    }

    /// By tensor: the smallest and the largest value, and where it is clipped.
    #[getter]
    fn ranges<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let range = py.import(intern!(py, "planish._views"))?.getattr(intern!(py, "Range"))?;
        let ranges = PyDict::new(py);
        for (name, found) in self.inner.ranges() {
            ranges.set_item(name, range.call1((found.min, found.max, found.threshold))?)?;
        }
        Ok(ranges)
    }

    fn __repr__(&self) -> String {
        format!(
            "<planish.Calibration of {} tensors by {}>",
            self.inner.ranges().len(),
            self.inner.calibrator()
        )
    }
}
