//! `Plan`: a built model, in memory or in its file.

use std::path::PathBuf;

use planish::record::kernel_of;
use planish::{CertificateState, Device, ErrorKind, Opened};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::engine::Engine;
use crate::errors::{OrRaise, wrong};
use crate::model::Model;

/// A model that was optimized, tuned and checked for a machine: what `planish.build` gives.
///
/// >>> plan = planish.build(planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }'))
/// >>> plan.is_checked, [step.operators for step in plan.steps]
/// (True, ['Relu'])
/// >>> plan.save("relu.plan")
/// >>> planish.load("relu.plan")(numpy.float32([-1, 2]))
/// array([0., 2.], dtype=float32)
#[pyclass(frozen, module = "planish")]
pub(crate) struct Plan {
    pub(crate) inner: planish::Plan,
    notes: Vec<String>,
}

impl Plan {
    pub(crate) fn new(inner: planish::Plan, notes: Vec<String>) -> Plan {
        Plan { inner, notes }
    }
}

/// Reads a device as users write it.
pub(crate) fn parse_device(py: Python<'_>, device: &str) -> PyResult<Device> {
    device.parse().map_err(|why: String| wrong(py, ErrorKind::BadOption, why))
}

#[pymethods]
impl Plan {
    /// Opens a plan's file without putting it on a device.
    #[classmethod]
    fn open(_class: &Bound<'_, PyType>, py: Python<'_>, path: PathBuf) -> PyResult<Plan> {
        let inner = py.detach(|| planish::Plan::open(path)).or_raise(py)?;
        Ok(Plan::new(inner, Vec::new()))
    }

    /// The plan with the weights of another model of the same graph, one that was trained on, say. Nothing is built; the
    /// self-check is run again, unless `verify` is False.
    ///
    /// >>> scaled = lambda by: planish.Model.parse(f'graph "g" {{ input %x: f32[n,2] const %w: f32[2,2] = [{by},0, 0,{by}] '
    /// ...     '%y: f32[n,2] = MatMul(%x, %w) output %y }')
    /// >>> plan = planish.build(scaled(2)).refit(scaled(3))
    /// >>> plan.engine()(numpy.float32([[1, 2]]))
    /// array([[3., 6.]], dtype=float32)
    #[pyo3(signature = (model, *, verify=true))]
    fn refit(&self, py: Python<'_>, model: &Bound<'_, PyAny>, verify: bool) -> PyResult<Plan> {
        let model = Model::of(model)?.inner;
        let newer = py.detach(|| {
            let newer = self.inner.refit(&model)?;
            if verify { newer.recheck() } else { Ok(newer) }
        });
        Ok(Plan::new(newer.or_raise(py)?, Vec::new()))
    }

    /// Writes the plan's file, in one piece.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.inner.save(path)).or_raise(py).map(drop)
    }

    /// Puts the plan on a device, to be run. `threads` are the CPU threads of a run, those that it was built for if not
    /// given; results do not depend on them. `weight_budget` is how many bytes of a GPU's memory its weights may take; the
    /// rest stays in pinned host memory and is brought to the GPU ahead of its use in every run.
    #[pyo3(signature = (device="auto", *, threads=None, weight_budget=None))]
    fn engine(
        &self,
        py: Python<'_>,
        device: &str,
        threads: Option<usize>,
        weight_budget: Option<usize>,
    ) -> PyResult<Engine> {
        Engine::open(py, self.inner.clone(), device, threads, weight_budget, None)
    }

    /// The same plan without its weights: `refit` with the model that it was built from gives it back.
    fn strip(&self, py: Python<'_>) -> PyResult<Plan> {
        Ok(Plan::new(py.detach(|| self.inner.strip()).or_raise(py)?, self.notes.clone()))
    }

    /// The name of the model.
    #[getter]
    fn name(&self) -> String {
        self.inner.record().header.name.clone()
    }

    /// The CPU threads that it was tuned for.
    #[getter]
    fn threads(&self) -> u32 {
        self.inner.record().header.threads
    }

    /// Whether this very plan passed its self-check.
    #[getter]
    fn is_checked(&self) -> bool {
        self.inner.certificate().state() == CertificateState::Checked
    }

    /// What its build had to say.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// What it was built for: the device of each of its targets.
    #[getter]
    fn targets(&self) -> Vec<String> {
        self.inner.record().header.targets.iter().map(|target| target.device.clone()).collect()
    }

    /// Tells the plan from others, in hexadecimal digits: what a signature speaks for.
    #[getter]
    fn fingerprint(&self, py: Python<'_>) -> PyResult<String> {
        let digest = py.detach(|| self.inner.fingerprint()).or_raise(py)?;
        Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The steps of a run: the layers that each computes, its operators, and its kernel.
    #[getter]
    fn steps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        steps(py, self.inner.record())
    }

    fn __repr__(&self) -> String {
        let record = self.inner.record();
        let device = record.header.targets.iter().map(|target| target.device.as_str()).collect::<Vec<_>>();
        format!(
            "<planish.Plan {:?}, {} steps, for {}>",
            record.header.name,
            record.program.steps.len(),
            device.join(" and ")
        )
    }

    fn _repr_html_<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.steps(py)?.call_method0(intern!(py, "_repr_html_"))
    }
}

/// What a plan file says of itself, read without the rest of it: versions, targets, shapes, precision, and the pairs of
/// whoever built it (`metadata`).
///
/// >>> planish.build(planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }')).save("relu.plan")
/// >>> found = planish.plan_metadata("relu.plan")
/// >>> found["name"], found["inputs"], found["precision"]
/// ('g', {'x': 'f32[n]'}, 'fp32')
#[pyfunction]
pub(crate) fn plan_metadata(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let found = py.detach(|| planish::Plan::metadata(path)).or_raise(py)?;
    let ports = |list: &[planish::Port]| -> PyResult<Bound<'_, PyDict>> {
        let dict = PyDict::new(py);
        list.iter().try_for_each(|port| dict.set_item(&port.name, port.ty.to_string()))?;
        Ok(dict)
    };
    let header = &found.header;
    let targets: Vec<&str> = header.targets.iter().map(|target| target.device.as_str()).collect();
    let pairs = PyDict::new(py);
    header.metadata.iter().try_for_each(|(key, value)| pairs.set_item(key, value))?;
    let dict = PyDict::new(py);
    dict.set_item("name", &header.name)?;
    dict.set_item("producer", &header.producer)?;
    dict.set_item("format_version", found.format_version)?;
    dict.set_item("is_current", found.is_current)?;
    dict.set_item("precision", found.precision())?;
    dict.set_item("threads", header.threads)?;
    dict.set_item("targets", targets)?;
    dict.set_item("inputs", ports(&found.inputs)?)?;
    dict.set_item("outputs", ports(&found.outputs)?)?;
    dict.set_item("is_stripped", found.is_stripped)?;
    dict.set_item("weight_bytes", found.weight_bytes)?;
    dict.set_item("is_checked", found.certificate == Some(CertificateState::Checked))?;
    dict.set_item("metadata", pairs)?;
    Ok(dict)
}

/// The steps of a plan, as a table.
pub(crate) fn steps<'py>(py: Python<'py>, plan: &planish::record::Plan) -> PyResult<Bound<'py, PyAny>> {
    let steps = plan.program.steps.iter();
    let row = |step: &planish::record::Step| {
        (step.name.clone(), step.region.ops(), kernel_of(step), step.numeric.element.name())
    };
    let steps: Vec<_> = steps.map(row).collect();
    py.import(intern!(py, "planish._views"))?.call_method1(intern!(py, "steps"), (steps,))
}

/// Opens a plan file and puts it on a device, to be run.
///
/// `threads` are the CPU threads of a run, those that the plan was built for if not given. `copy` reads the file into
/// memory first, for files that are written in place while they are used. A plan of another machine, or of another version
/// of Planish, is an error (`planish.errors.NeedsRebuild`), unless `rebuild` has it built again in memory. `weight_budget`
/// is how many bytes of a GPU's memory weights may take; the rest is streamed from pinned host memory in every run.
///
/// >>> planish.build(planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }')).save("relu.plan")
/// >>> engine = planish.load("relu.plan", device="cpu")
/// >>> engine
/// <planish.Engine (x: f32[n]) -> (y: f32[n])>
#[pyfunction]
#[pyo3(signature = (path, device="auto", *, threads=None, copy=false, rebuild=false, weight_budget=None))]
pub(crate) fn load(
    py: Python<'_>,
    path: PathBuf,
    device: &str,
    threads: Option<usize>,
    copy: bool,
    rebuild: bool,
    weight_budget: Option<usize>,
) -> PyResult<Engine> {
    let target = parse_device(py, device)?;
    let plan = py.detach(|| {
        if rebuild {
            let opened = match copy {
                true => planish::Plan::open_copied_for(&path, target),
                false => planish::Plan::open_for(&path, target),
            };
            return match opened? {
                Opened::Fits(plan) => Ok(plan),
                Opened::NeedsRebuild(rebuild) => Ok(rebuild.build_with_report()?.plan.into()),
            };
        }
        if copy { planish::Plan::open_copied(&path) } else { planish::Plan::open(&path) }
    });
    let plan = plan.or_raise(py)?;
    Engine::open(py, plan, device, threads, weight_budget, Some(path))
}
