//! `Engine`: a plan on a device, called from any thread.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use planish::record::kernel_of;
use planish::{Context, ContextOptions, Device, ErrorKind, Profile, Session, SlidingWindow, SymbolRange};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::context::{Pool, PyContext};
use crate::errors::{OrRaise, wrong};
use crate::everyday::{self, OneOrMore};
use crate::plan::parse_device;
use crate::port::TensorInfo;
use crate::runs::{Callable, Called, Inputs, Named, Runs};

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
    free: Mutex<Vec<Free>>,
}

/// A context that waits for the next call.
struct Free {
    context: Context,
    /// The stream of a caller that its last run was put on. A run on another one would wait for that.
    stream: Option<u64>,
}

/// The most contexts that wait for the next call; what is beyond that is given back.
const MAX_FREE: usize = 64;
/// The most contexts that are made for streams of their own.
const MAX_STREAMS: usize = 8;

impl Engine {
    pub(crate) fn open(
        py: Python<'_>,
        plan: planish::Plan,
        device: &str,
        threads: Option<usize>,
        weight_budget: Option<usize>,
        path: Option<PathBuf>,
    ) -> PyResult<Engine> {
        let device = parse_device(py, device)?;
        let threads = threads.unwrap_or(plan.record().header.threads.max(1) as usize);
        if threads == 0 {
            return Err(wrong(py, ErrorKind::BadOption, "threads must be at least 1"));
        }
        let how = planish::EngineOptions { weight_budget, ..planish::EngineOptions::default() };
        let engine = py.detach(|| planish::Engine::with_options(plan, device, how)).or_raise(py)?;
        let (runs, options) = (Arc::new(Runs::new(engine, device)), ContextOptions::new(threads));
        Ok(Engine { runs, options, device, path, free: Mutex::default() })
    }

    /// The engine as the library has it, to be shared.
    pub(crate) fn shared(&self) -> &planish::Engine {
        &self.runs.engine
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<Free>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_context(&self, py: Python<'_>) -> PyResult<Context> {
        py.detach(|| self.runs.engine.context_with(self.options)).or_raise(py)
    }
}

impl Callable for Engine {
    fn runs(&self) -> &Runs {
        &self.runs
    }

    fn with_context<T>(&self, py: Python<'_>, work: impl FnOnce(&mut Context) -> PyResult<T>) -> PyResult<T> {
        self.with_free(py, None, work)
    }

    fn with_context_on<T>(
        &self,
        py: Python<'_>,
        stream: u64,
        work: impl FnOnce(&mut Context) -> PyResult<T>,
    ) -> PyResult<T> {
        self.with_free(py, Some(stream), work)
    }
}

impl Engine {
    /// Takes a context that nobody uses, at best one of this stream, or makes one.
    fn with_free<T>(
        &self,
        py: Python<'_>,
        stream: Option<u64>,
        work: impl FnOnce(&mut Context) -> PyResult<T>,
    ) -> PyResult<T> {
        let taken = {
            let mut free = self.free();
            let best = free.iter().rposition(|free| free.stream == stream);
            let best = best.or_else(|| free.iter().rposition(|free| free.stream.is_none()));
            let any = || free.len().checked_sub(1).filter(|_| stream.is_none() || free.len() >= MAX_STREAMS);
            best.or_else(any).map(|idx| free.remove(idx))
        };
        let mut context = match taken {
            Some(free) => free.context,
            None => self.new_context(py)?,
        };
        // A panic leaves it behind.
        let result = work(&mut context);
        let mut free = self.free();
        if free.len() < MAX_FREE {
            free.push(Free { context, stream });
        }
        result
    }
}

#[pymethods]
impl Engine {
    /// Runs on inputs by position or by name, and gives the output, or a tuple of all outputs.
    #[pyo3(signature = (*inputs, **named))]
    fn __call__<'py>(&self, inputs: Inputs<'_, 'py>, named: Option<Named<'_, 'py>>) -> Called<'py> {
        self.call(inputs, named)
    }

    /// Gives the engine the weights of a plan that `Plan.refit` made of its own: a call has the weights that it began with,
    /// calls that begin after this returned have the new ones, in contexts and pools of the engine as well. The engine holds
    /// the weights that it was opened with until it ends.
    ///
    /// >>> plan = planish.build(planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }'))
    /// >>> engine = plan.engine()
    /// >>> engine.refit(plan)                            # or plan.refit(planish.Model("epoch_12.onnx"))
    fn refit(&self, py: Python<'_>, plan: &crate::plan::Plan) -> PyResult<()> {
        py.detach(|| self.runs.engine.clone().refit(plan.inner.clone())).or_raise(py)
    }

    /// Runs on a dict of inputs, and gives a dict of outputs.
    ///
    /// >>> plan = planish.build(planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }'))
    /// >>> plan.engine().run({"x": numpy.float32([-1, 2])})
    /// {'y': array([0., 2.], dtype=float32)}
    fn run<'py>(&self, inputs: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
        self.call_named(inputs)
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
        inputs: Inputs<'_, 'py>,
        named: Option<Named<'_, 'py>>,
    ) -> Called<'py> {
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

    /// A pipeline of this engine and others, each reading what the one before it gives: the outputs go to the inputs of the same
    /// names, or in order where there are none. The pipeline has this engine's inputs and the last one's outputs; branches,
    /// loops and functions are said to `planish.Pipeline`.
    ///
    /// >>> plan = planish.build(planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Neg(%x) output %y }'))
    /// >>> plan.engine().pipeline(plan.engine(), plan.engine())(numpy.float32([1, 2]))
    /// array([-1., -2.], dtype=float32)
    #[pyo3(signature = (*others, contexts=3))]
    fn pipeline<'py>(slf: &Bound<'py, Self>, others: Inputs<'_, 'py>, contexts: usize) -> Called<'py> {
        let py = slf.py();
        let chained = py.import(intern!(py, "planish._pipeline"))?;
        chained.call_method1(intern!(py, "chain"), (slf, others, contexts))
    }

    /// Runs on a list of items, each an array (or a dict of them) without the batch axis or with a 1 there, and gives a
    /// result for each. `batch_size` items go together; those that the plan was tuned for if not given.
    ///
    /// >>> plan = planish.build(planish.Model.parse('graph "g" { input %x: f32[n,2] %y: f32[n,2] = Relu(%x) output %y }'))
    /// >>> plan.engine().batch_inference([numpy.float32([-1, 1]), numpy.float32([2, -2])], batch_size=2)
    /// [array([0., 1.], dtype=float32), array([2., 0.], dtype=float32)]
    #[pyo3(signature = (items, batch_size=None))]
    fn batch_inference<'py>(
        &self,
        items: &Bound<'py, PyAny>,
        batch_size: Option<usize>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let session = || Session::with_options(&self.runs.engine, self.options);
        everyday::batch_inference(&self.runs, session, items, batch_size)
    }

    /// Runs over an image or a volume in overlapping windows and blends the results, as MONAI's
    /// `sliding_window_inference` does.
    ///
    /// `image` has the sizes `[N, C, …]`, `[C, …]` or, for one channel, the pixels alone, of any type; a dict gives several
    /// inputs. `roi` are the sizes of a window, those that the plan was tuned for if not given; `overlap`, `roi` and
    /// `sigma_scale` are one number, or one for each axis. `mode` is `constant` or `gaussian`; `padding_mode` (`constant`
    /// with `cval`, `reflect`, `replicate`, `circular`) is what lies around an image smaller than a window. `argmax` gives
    /// labels. Pixels are multiplied by `scale`, `mean` is subtracted, and they are divided by `std`, by channel.
    ///
    /// >>> model = planish.Model.parse('graph "g" { input %x: f32[n,1,4,4] %y: f32[n,1,4,4] = Neg(%x) output %y }')
    /// >>> engine = planish.build(model).engine()
    /// >>> image = numpy.arange(48, dtype=numpy.float32).reshape(6, 8)
    /// >>> made = engine.sliding_window(image, roi=4, overlap=0.5, mode="gaussian")
    /// >>> made.shape, bool(numpy.allclose(made[0, 0], -image))
    /// ((1, 1, 6, 8), True)
    #[pyo3(signature = (
        image, roi=None, *, overlap=OneOrMore::One(0.25), mode="constant", sigma_scale=OneOrMore::One(0.125),
        padding_mode="constant", cval=0.0, batch_size=0, argmax=false, scale=1.0, mean=None, std=None,
    ))]
    #[pyo3(
        text_signature = "($self, image, roi=None, *, overlap=0.25, mode='constant', sigma_scale=0.125, padding_mode='constant', cval=0.0, batch_size=0, argmax=False, scale=1.0, mean=None, std=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "each is an option of Python's, given by name")]
    fn sliding_window<'py>(
        &self,
        image: &Bound<'py, PyAny>,
        roi: Option<OneOrMore<usize>>,
        overlap: OneOrMore<f64>,
        mode: &str,
        sigma_scale: OneOrMore<f64>,
        padding_mode: &str,
        cval: f64,
        batch_size: usize,
        argmax: bool,
        scale: f64,
        mean: Option<OneOrMore<f64>>,
        std: Option<OneOrMore<f64>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = image.py();
        let windows = SlidingWindow {
            roi: roi.map(OneOrMore::list).unwrap_or_default(),
            batch: batch_size,
            overlap: overlap.list(),
            mode: everyday::blend(py, mode)?,
            sigma_scale: sigma_scale.list(),
            padding_mode: everyday::padding(py, padding_mode)?,
            cval,
            argmax,
            scale,
            mean: mean.map(OneOrMore::list).unwrap_or_default(),
            std: std.map(OneOrMore::list).unwrap_or_default(),
        };
        let session = || Session::with_options(&self.runs.engine, self.options);
        everyday::sliding_window(&self.runs, session, image, &windows)
    }

    /// The sizes of the outputs for inputs of these sizes, by name, without running; None where only a run can tell.
    ///
    /// >>> plan = planish.build(planish.Model.parse('graph "g" { input %x: f32[n,2] %y: f32[n,2] = Relu(%x) output %y }'))
    /// >>> plan.engine().output_shapes({"x": (3, 2)})
    /// {'y': (3, 2)}
    fn output_shapes<'py>(
        &self,
        py: Python<'py>,
        shapes: BTreeMap<String, Vec<usize>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let given: Vec<(&str, &[usize])> =
            shapes.iter().map(|(name, shape)| (&name[..], &shape[..])).collect();
        let dims = self.with_context(py, |context| context.output_dims(&given).or_raise(py))?;
        let named = PyDict::new(py);
        for (port, dims) in self.runs.outputs.iter().zip(dims) {
            named.set_item(&port.name, dims.map(|dims| PyTuple::new(py, dims)).transpose()?)?;
        }
        Ok(named)
    }

    /// The time of one run on these inputs in microseconds, the median of `runs`, without what Python adds.
    ///
    /// >>> plan = planish.build(planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }'))
    /// >>> plan.engine().time({"x": numpy.float32([-1, 2])}) > 0
    /// True
    #[pyo3(signature = (inputs, *, runs=100))]
    fn time<'py>(&self, py: Python<'py>, inputs: &Bound<'py, PyDict>, runs: usize) -> PyResult<f64> {
        let given = self.runs.in_order(py, &PyTuple::empty(py), Some(inputs))?;
        let borrowed = self.runs.borrow(&given)?;
        let views = borrowed.iter().map(|input| input.view(py)).collect::<PyResult<Vec<_>>>()?;
        let times = self.with_context(py, |context| {
            let run = |context: &mut Context| {
                let start = Instant::now();
                context.run_in_order(&views)?;
                Ok(start.elapsed().as_nanos() as u64)
            };
            py.detach(|| (0..runs.max(1)).map(|_| run(context)).collect::<Result<Vec<_>, _>>()).or_raise(py)
        })?;
        Ok(median_us(times))
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
            list.push((step.name.as_str(), step.region.ops(), kernel_of(step), median_us(of_step.collect())));
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

    /// The sizes that the plan is for: of each profile, the smallest, the usual and the largest shape of every input, -1
    /// where it leaves a size open. Without profiles a plan runs at any size.
    ///
    /// >>> model = planish.Model.parse('graph "g" { input %x: f32[n,4] %y: f32[n,4] = Relu(%x) output %y }')
    /// >>> planish.build(model, profiles={"x": [(1, 4), (2, 4), (8, 4)]}).engine().profiles
    /// [{'x': [(1, 4), (2, 4), (8, 4)]}]
    #[getter]
    fn profiles<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let profiles = &self.runs.engine.record().header.profiles;
        let inputs = self.runs.engine.inputs();
        let bounds: [fn(&SymbolRange) -> i64; 3] = [|range| range.min, |range| range.opt, |range| range.max];
        let of_profile = |profile: &Profile| {
            let named = PyDict::new(py);
            for port in &inputs {
                let Some(shape) = port.ty.as_tensor().and_then(|tensor| tensor.shape.as_ref()) else {
                    continue;
                };
                let three = bounds.map(|of| {
                    let size =
                        |symbol: &str| profile.ranges.iter().find(|range| range.symbol == symbol).map(of);
                    PyTuple::new(py, shape.iter().map(|dim| dim.eval(&size).unwrap_or(-1)))
                });
                named.set_item(&port.name, three.into_iter().collect::<PyResult<Vec<_>>>()?)?;
            }
            Ok(named)
        };
        profiles.iter().map(of_profile).collect()
    }

    /// The model's outputs, in its order.
    #[getter(outputs)]
    fn outputs_info(&self) -> Vec<TensorInfo> {
        self.runs.engine.outputs().into_iter().map(TensorInfo::new).collect()
    }

    /// Bytes of all weights, in the form that kernels read.
    #[getter]
    fn weight_bytes(&self) -> usize {
        self.runs.engine.weight_bytes()
    }

    /// Those of them that stay in pinned host memory and are brought to the GPU in every run (`weight_budget`).
    #[getter]
    fn streamed_bytes(&self) -> usize {
        self.runs.engine.streamed_bytes()
    }

    /// The steps of a run: the layers that each computes, its operators, and its kernel.
    #[getter]
    fn steps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        crate::plan::steps(py, self.runs.engine.record())
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

    /// Where it runs: `cpu`, or the GPU as in `cuda:0`.
    #[getter]
    fn placed_on(&self) -> String {
        self.runs.gpu.map_or_else(|| "cpu".to_string(), |index| format!("cuda:{index}"))
    }

    /// Waits for the runs that calls have put on streams of theirs, and raises what their kernels found wrong with the
    /// inputs' values (an index out of range, say), as a later run would. Calls on host memory need no waiting for.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let mut waiting = std::mem::take(&mut *self.free());
            let done = waiting.iter_mut().try_for_each(|free| free.context.synchronize());
            self.free().append(&mut waiting);
            done
        })
        .or_raise(py)
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

fn median_us(mut ns: Vec<u64>) -> f64 {
    ns.sort_unstable();
    ns.get(ns.len() / 2).copied().unwrap_or(0) as f64 / 1e3
}
