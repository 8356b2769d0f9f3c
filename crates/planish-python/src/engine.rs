//! `Engine`: a plan on a device, called from any thread.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use planish::record::{Step, StepKind};
use planish::{Context, ContextOptions, Device, ErrorKind};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::context::{Pool, PyContext};
use crate::errors::{OrRaise, wrong};
use crate::plan::parse_device;
use crate::port::TensorInfo;
use crate::runs::Runs;

/// A plan on a device, ready to run, shared by any number of threads: what `planish.load` and `plan.engine()` give.
///
/// Inputs are arrays of numpy, or of anything with DLPack, by position or by name; outputs are of the same kind. Arrays
/// that lie in memory without gaps are read where they are, outputs are written where they stay; `copies` counts what had
/// to be copied. The interpreter's lock is released while a model runs.
///
/// >>> model = planish.Model.parse('graph "g" { input %a: f32[n] input %b: f32[n] %c: f32[n] = Add(%a, %b) output %c }')
/// >>> engine = planish.build(model).engine()
/// >>> engine(numpy.float32([1, 2]), numpy.float32([3, 4]))
/// array([4., 6.], dtype=float32)
/// >>> engine(numpy.float32([1, 2]), b=numpy.float32([5, 6]))
/// array([6., 8.], dtype=float32)
/// >>> engine.copies
/// 0
#[pyclass(frozen, module = "planish")]
pub(crate) struct Engine {
    runs: Arc<Runs>,
    options: ContextOptions,
    device: Device,
    /// Where its plan was opened, if it was.
    path: Option<PathBuf>,
    /// Contexts that no call uses at the moment. A call that finds none makes one: as many as there are callers at once.
    free: Mutex<Vec<Context>>,
}

/// The most contexts that wait for the next call; what is beyond that is given back.
const MAX_FREE: usize = 64;

impl Engine {
    pub(crate) fn open(
        py: Python<'_>,
        plan: planish::Plan,
        device: &str,
        threads: Option<usize>,
        path: Option<PathBuf>,
    ) -> PyResult<Engine> {
        let device = parse_device(py, device)?;
        let threads = threads.unwrap_or(plan.record().header.threads.max(1) as usize);
        if threads == 0 {
            return Err(wrong(py, ErrorKind::BadOption, "threads must be at least 1"));
        }
        let engine = py.detach(|| planish::Engine::new(plan, device)).or_raise(py)?;
        let (runs, options) = (Arc::new(Runs::new(engine)), ContextOptions::new(threads));
        Ok(Engine { runs, options, device, path, free: Mutex::default() })
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<Context>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_context(&self, py: Python<'_>) -> PyResult<Context> {
        py.detach(|| self.runs.engine.context_with(self.options)).or_raise(py)
    }

    /// Does something with a context that nobody else uses.
    fn with_context<T>(&self, py: Python<'_>, work: impl FnOnce(&mut Context) -> PyResult<T>) -> PyResult<T> {
        let free = self.free().pop();
        let mut context = match free {
            Some(context) => context,
            None => self.new_context(py)?,
        };
        // A panic leaves it behind.
        let result = work(&mut context);
        let mut free = self.free();
        if free.len() < MAX_FREE {
            free.push(context);
        }
        result
    }

    fn outputs<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let inputs = self.runs.in_order(py, inputs, named)?;
        self.with_context(py, |context| self.runs.run(py, context, &inputs))
    }
}

#[pymethods]
impl Engine {
    /// Runs on inputs by position or by name, and gives the output, or a tuple of all outputs.
    #[pyo3(signature = (*inputs, **named))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Runs::called(py, self.outputs(py, inputs, named)?)
    }

    /// Runs on a dict of inputs, and gives a dict of outputs.
    ///
    /// >>> plan = planish.build(planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }'))
    /// >>> plan.engine().run({"x": numpy.float32([-1, 2])})
    /// {'y': array([0., 2.], dtype=float32)}
    fn run<'py>(&self, py: Python<'py>, inputs: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
        let outputs = self.outputs(py, &PyTuple::empty(py), Some(inputs))?;
        self.runs.by_name(py, outputs)
    }

    /// The same as a call, for `await`: the run goes on beside the event loop, in a thread of its own.
    ///
    /// >>> import asyncio
    /// >>> plan = planish.build(planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }'))
    /// >>> asyncio.run(plan.engine().run_async(numpy.float32([-1, 2])))
    /// array([0., 2.], dtype=float32)
    #[pyo3(signature = (*inputs, **named))]
    fn run_async<'py>(
        slf: &Bound<'py, Self>,
        inputs: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let beside = py.import(intern!(py, "planish._beside"))?;
        beside.call_method1(intern!(py, "run_async"), (slf, inputs, named))
    }

    /// A context of one's own: its memory is there when a run needs it, and no other thread waits for it.
    ///
    /// >>> plan = planish.build(planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }'))
    /// >>> with plan.engine().context(threads=1) as context:
    /// ...     context(numpy.float32([-1, 2]))
    /// array([0., 2.], dtype=float32)
    #[pyo3(signature = (*, threads=None))]
    fn context(&self, py: Python<'_>, threads: Option<usize>) -> PyResult<PyContext> {
        let options =
            ContextOptions { threads: threads.unwrap_or(self.options.threads).max(1), ..self.options };
        let context = py.detach(|| self.runs.engine.context_with(options)).or_raise(py)?;
        Ok(PyContext::own(self.runs.clone(), context))
    }

    /// `contexts` contexts that any number of threads take in turn.
    ///
    /// >>> plan = planish.build(planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }'))
    /// >>> plan.engine().pool(2)(numpy.float32([-1, 2]))
    /// array([0., 2.], dtype=float32)
    fn pool(&self, py: Python<'_>, contexts: usize) -> PyResult<Pool> {
        let pool = py.detach(|| self.runs.engine.pool(contexts)).or_raise(py)?;
        Ok(Pool::new(self.runs.clone(), pool))
    }

    /// The time of every step over `runs` runs on these inputs, in microseconds: a list that prints as a table.
    ///
    /// >>> plan = planish.build(planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }'))
    /// >>> profile = plan.engine().profile({"x": numpy.float32([-1, 2])})
    /// >>> [step.operators for step in profile], profile.total_us > 0
    /// (['Relu'], True)
    #[pyo3(signature = (inputs, *, runs=10))]
    fn profile<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyDict>,
        runs: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let given = self.runs.in_order(py, &PyTuple::empty(py), Some(inputs))?;
        let borrowed = self.runs.borrow(&given)?;
        let mut views = Vec::with_capacity(borrowed.len());
        for (input, port) in borrowed.iter().zip(&self.runs.inputs) {
            views.push((port.name.as_str(), input.view(py)?));
        }
        let times = self.with_context(py, |context| {
            let profiled = py.detach(|| {
                context.run(&views)?;
                (0..runs.max(1)).map(|_| context.profile(&views)).collect::<Result<Vec<_>, _>>()
            });
            profiled.or_raise(py)
        })?;
        let steps = &self.runs.engine.record().program.steps;
        let mut list = Vec::with_capacity(steps.len());
        for (idx, step) in steps.iter().enumerate() {
            let of_step = times
                .iter()
                .map(|times| times.steps.iter().find(|time| time.step == idx).map_or(0, |time| time.ns));
            list.push((step.name.as_str(), step.region.ops(), kernel(step), median_us(of_step.collect())));
        }
        let total = median_us(times.iter().map(|times| times.total_ns).collect());
        let views = py.import(intern!(py, "planish._views"))?;
        views.call_method1(intern!(py, "profile"), (list, total))
    }

    /// The model's inputs, in its order.
    #[getter]
    fn inputs(&self) -> Vec<TensorInfo> {
        self.runs.engine.inputs().into_iter().map(TensorInfo::new).collect()
    }

    /// The model's outputs, in its order.
    #[getter(outputs)]
    fn outputs_info(&self) -> Vec<TensorInfo> {
        self.runs.engine.outputs().into_iter().map(TensorInfo::new).collect()
    }

    /// How many tensors calls have copied on their way in or out: inputs that do not lie in memory as a model reads them,
    /// and outputs whose size only a run can tell.
    #[getter]
    fn copies(&self) -> u64 {
        self.runs.n_copies()
    }

    /// The device as it was asked for.
    #[getter]
    fn device(&self) -> String {
        self.device.to_string()
    }

    /// The threads that a run may use, the caller's included.
    #[getter]
    fn threads(&self) -> usize {
        self.options.threads
    }

    /// The file of its plan, if it came from one.
    #[getter]
    fn path(&self) -> Option<PathBuf> {
        self.path.clone()
    }

    /// Engines go to other processes by the path of their plan.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (PathBuf, String, usize))> {
        let Some(path) = &self.path else {
            let message =
                "the engine's plan is in memory alone; save it, and pickle the engine of planish.load";
            return Err(wrong(py, ErrorKind::BadOption, message));
        };
        let load = py.import(intern!(py, "planish"))?.getattr(intern!(py, "_reload"))?;
        Ok((load, (path.clone(), self.device.to_string(), self.options.threads)))
    }

    fn __repr__(&self) -> String {
        let names = |ports: &[planish::PortInfo]| {
            let all: Vec<String> = ports.iter().map(|port| format!("{}: {}", port.name, port.ty)).collect();
            all.join(", ")
        };
        format!("<planish.Engine ({}) -> ({})>", names(&self.runs.inputs), names(&self.runs.outputs))
    }
}

/// The kernel of a step, or how else it is run.
pub(crate) fn kernel(step: &Step) -> String {
    match &step.kind {
        StepKind::Kernel { variants, .. } => {
            variants.first().map_or_else(String::new, |one| one.tactic.to_string())
        }
        StepKind::Transfer => "transfer".to_string(),
        StepKind::Evaluate => "reference".to_string(),
        _ => "control flow".to_string(),
    }
}

fn median_us(mut ns: Vec<u64>) -> f64 {
    ns.sort_unstable();
    ns.get(ns.len() / 2).copied().unwrap_or(0) as f64 / 1e3
}
