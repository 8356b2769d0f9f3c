//! How a call goes: arrays of Python's in, a run of a context without the interpreter's lock, arrays out over the memory
//! that the run wrote.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use planish::record::{Plan, StepKind, Storage};
use planish::{Context, DType, Device, Engine, Error, ErrorKind, HostBuffer, PortInfo, Value, View};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::borrowed::{Borrowed, Framework};
use crate::errors::{OrRaise, wrong};
use crate::memory::{check_possible, to_python};
use crate::on_device::OnDevice;
use crate::port::dtype_of;

/// Inputs of a call by position.
pub(crate) type Inputs<'a, 'py> = &'a Bound<'py, PyTuple>;
/// Inputs of a call by name.
pub(crate) type Named<'a, 'py> = &'a Bound<'py, PyDict>;
/// What a call gives: the output, or a tuple of all outputs.
pub(crate) type Called<'py> = PyResult<Bound<'py, PyAny>>;

/// What can be called on arrays.
pub(crate) trait Callable {
    fn runs(&self) -> &Runs;

    /// Does something with a context that nobody else uses meanwhile.
    fn with_context<T>(&self, py: Python<'_>, work: impl FnOnce(&mut Context) -> PyResult<T>) -> PyResult<T>;

    /// The same, with one that ran on this stream last, if there is any.
    fn with_context_on<T>(
        &self,
        py: Python<'_>,
        _stream: u64,
        work: impl FnOnce(&mut Context) -> PyResult<T>,
    ) -> PyResult<T> {
        self.with_context(py, work)
    }

    fn outputs<'py>(
        &self,
        py: Python<'py>,
        inputs: Inputs<'_, 'py>,
        named: Option<Named<'_, 'py>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let inputs = self.runs().in_order(py, inputs, named)?;
        if self.runs().gpu.is_some()
            && let Some(lent) = OnDevice::of(py, self.runs(), &inputs)?
        {
            return self.with_context_on(py, lent.stream, |context| lent.run(py, self.runs(), context));
        }
        self.with_context(py, |context| self.runs().run(py, context, &inputs))
    }

    /// By position or by name: the output, or a tuple of all outputs.
    fn call<'py>(&self, inputs: Inputs<'_, 'py>, named: Option<Named<'_, 'py>>) -> Called<'py> {
        let py = inputs.py();
        Runs::called(py, self.outputs(py, inputs, named)?)
    }

    /// By name: a dict of outputs.
    fn call_named<'py>(&self, inputs: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
        let py = inputs.py();
        let outputs = self.outputs(py, &PyTuple::empty(py), Some(inputs))?;
        self.runs().by_name(py, outputs)
    }
}

/// What all contexts of an engine share on the side of Python.
pub(crate) struct Runs {
    pub(crate) engine: Engine,
    pub(crate) inputs: Vec<PortInfo>,
    pub(crate) outputs: Vec<PortInfo>,
    /// The number of the GPU that it runs on, if it does.
    pub(crate) gpu: Option<usize>,
    /// Whether all inputs and outputs are tensors.
    all_tensors: bool,
    /// The sizes of the outputs at the sizes of inputs that came last.
    last: Mutex<Sizes>,
    /// Outputs that cannot be written in place, found out by trying.
    copied: Mutex<Vec<bool>>,
    n_copies: AtomicU64,
    /// Whether outputs for callers on a GPU are made on the host, found out by trying.
    to_host: AtomicBool,
    /// Streams of callers that contexts know.
    streams: Mutex<BTreeMap<u64, Py<PyAny>>>,
}

#[derive(Default)]
struct Sizes {
    inputs: Vec<Vec<usize>>,
    /// `None` where only a run can tell.
    outputs: Vec<Option<Vec<usize>>>,
}

/// Nothing that is kept under these locks can be left half-made. No Python runs while one is held: whoever waits for the
/// interpreter's lock there would wait for ever.
fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a step other than a transfer reads an input, or a part of one, on the host: it would be given an address of the
/// GPU's. Transfers read inputs wherever they are.
fn is_read_on_host(plan: &Plan) -> bool {
    let values = &plan.program.values;
    let is_given_on_host = |&input: &u32| {
        let mut value = values.get(input as usize);
        while let Some(Storage::Alias { of } | Storage::Inside { of, .. }) = value.map(|value| &value.storage)
        {
            value = values.get(*of as usize);
        }
        value.is_some_and(|value| {
            let target = plan.header.targets.get(value.target as usize);
            value.storage == Storage::Input && target.is_none_or(|target| target.backend == "cpu")
        })
    };
    let mut steps = plan.program.steps.iter().filter(|step| step.kind != StepKind::Transfer);
    steps.any(|step| step.inputs.iter().flatten().any(is_given_on_host))
}

impl Runs {
    pub(crate) fn new(engine: Engine, device: Device) -> Runs {
        let is_on_gpu = engine.record().header.targets.iter().any(|target| target.backend != "cpu");
        let to_host = AtomicBool::new(is_read_on_host(engine.record()));
        let gpu = match device {
            Device::Cuda(index) => Some(index),
            _ => is_on_gpu.then_some(0),
        };
        let (inputs, outputs) = (engine.inputs(), engine.outputs());
        let all_tensors = inputs.iter().chain(&outputs).all(|port| dtype_of(port).is_some());
        let copied = Mutex::new(vec![false; outputs.len()]);
        Runs {
            engine,
            inputs,
            outputs,
            gpu: gpu.filter(|_| all_tensors),
            all_tensors,
            last: Mutex::default(),
            copied,
            n_copies: AtomicU64::new(0),
            to_host,
            streams: Mutex::default(),
        }
    }

    /// How many tensors were copied on their way in or out so far.
    pub(crate) fn n_copies(&self) -> u64 {
        self.n_copies.load(Ordering::Relaxed)
    }

    /// Counts a tensor that was copied.
    pub(crate) fn count_copy(&self) {
        self.n_copies.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn is_taken_to_host(&self) -> bool {
        self.to_host.load(Ordering::Relaxed)
    }

    pub(crate) fn take_to_host(&self) {
        self.to_host.store(true, Ordering::Relaxed);
    }

    /// Keeps CuPy's current stream, as contexts wait for what they left there.
    pub(crate) fn keep_stream(&self, py: Python<'_>, stream: u64) -> PyResult<()> {
        let is_known = locked(&self.streams).contains_key(&stream);
        if is_known {
            return Ok(());
        }
        let cuda = py.import(intern!(py, "cupy"))?.getattr(intern!(py, "cuda"))?;
        let now = cuda.call_method0(intern!(py, "get_current_stream"))?.unbind();
        locked(&self.streams).insert(stream, now);
        Ok(())
    }

    /// Inputs in the model's order, by position or by name.
    pub(crate) fn in_order<'py>(
        &self,
        py: Python<'py>,
        by_position: &Bound<'py, PyTuple>,
        by_name: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let refuse = |message: String| Err(wrong(py, ErrorKind::WrongInputs, message));
        let (n, given) = (self.inputs.len(), by_position.len());
        if given > n {
            return refuse(format!(
                "the model takes {n} inputs ({}), {given} were given",
                self.input_names()
            ));
        }
        let mut inputs: Vec<Option<Bound<'py, PyAny>>> = by_position.iter().map(Some).collect();
        inputs.resize(n, None);
        for (name, value) in by_name.into_iter().flatten() {
            let name: String = name.extract()?;
            let Some(idx) = self.inputs.iter().position(|port| port.name == name) else {
                return refuse(format!(
                    "`{name}` is not an input of the model; its inputs are {}",
                    self.input_names()
                ));
            };
            if inputs[idx].replace(value).is_some() {
                return refuse(format!("input `{name}` was given twice"));
            }
        }
        if let Some(idx) = inputs.iter().position(Option::is_none) {
            return refuse(format!("input `{}` is missing", self.inputs[idx].name));
        }
        Ok(inputs.into_iter().flatten().collect())
    }

    fn input_names(&self) -> String {
        let names: Vec<String> = self.inputs.iter().map(|port| format!("`{}`", port.name)).collect();
        names.join(", ")
    }

    /// The inputs of a run, borrowed.
    pub(crate) fn borrow<'py>(&self, inputs: &[Bound<'py, PyAny>]) -> PyResult<Vec<Borrowed<'py>>> {
        let borrowed = inputs.iter().zip(&self.inputs).map(|(input, port)| {
            let borrowed = Borrowed::of(input, &port.name, dtype_of(port))?;
            if borrowed.is_copied() {
                self.count_copy();
            }
            Ok(borrowed)
        });
        borrowed.collect()
    }

    /// Runs once and gives the outputs in the model's order, as arrays of whose the inputs are.
    pub(crate) fn run<'py>(
        &self,
        py: Python<'py>,
        context: &mut Context,
        inputs: &[Bound<'py, PyAny>],
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        if !self.all_tensors {
            return self.run_values(py, context, inputs);
        }
        let borrowed = self.borrow(inputs)?;
        let framework = borrowed.iter().map(|input| input.framework).find(|&one| one != Framework::Numpy);
        let framework = framework.unwrap_or_default();
        let views = borrowed.iter().map(|input| input.view(py)).collect::<PyResult<Vec<View<'_>>>>()?;
        for port in &self.outputs {
            dtype_of(port).map_or(Ok(()), |dtype| check_possible(py, dtype, &port.name, framework))?;
        }
        let mut buffers = self.output_buffers(context, &borrowed).or_raise(py)?;
        let bound: PyResult<()> =
            buffers.iter_mut().enumerate().try_for_each(|(idx, buffer)| self.bind(py, context, idx, buffer));
        let result = bound.and_then(|()| py.detach(|| context.run_in_order(&views)).or_raise(py));
        // Whatever happened: nothing may point at the buffers from here on. Those that stay in the context are copied
        // before the next run.
        let kept = match &result {
            Ok(()) => self.kept_outputs(py, context, &buffers),
            Err(_) => Ok(Vec::new()),
        };
        context.unbind_outputs();
        result?;
        let made = buffers.into_iter().zip(kept?).map(|(buffer, kept)| {
            let buffer =
                buffer.or(kept).ok_or_else(|| wrong(py, ErrorKind::Failed, "an output was not made"))?;
            if buffer.dtype().is_sub_byte() {
                self.count_copy();
            }
            to_python(py, buffer, framework)
        });
        made.collect()
    }

    /// A buffer for each output whose size is known before the run, and that the run can write in place.
    fn output_buffers(
        &self,
        context: &Context,
        inputs: &[Borrowed<'_>],
    ) -> Result<Vec<Option<HostBuffer>>, Error> {
        let mut last = locked(&self.last);
        self.know_sizes(&mut last, context, inputs.iter().map(Borrowed::dims))?;
        let copied = locked(&self.copied);
        let buffers =
            self.outputs.iter().zip(&last.outputs).zip(&*copied).map(|((port, dims), &is_copied)| {
                match (dtype_of(port), dims.as_ref().filter(|_| !is_copied)) {
                    (Some(dtype), Some(dims)) => HostBuffer::zeros(dtype, dims).map(Some),
                    _ => Ok(None),
                }
            });
        buffers.collect()
    }

    /// The sizes of all outputs for inputs of these sizes; `None` where only a run can tell.
    pub(crate) fn output_sizes(
        &self,
        context: &Context,
        inputs: &[&[usize]],
    ) -> Result<Vec<Option<Vec<usize>>>, Error> {
        let mut last = locked(&self.last);
        self.know_sizes(&mut last, context, inputs.iter().copied())?;
        Ok(last.outputs.clone())
    }

    /// Looks up the sizes of the outputs, unless those of the inputs are the last ones.
    fn know_sizes<'a>(
        &self,
        last: &mut Sizes,
        context: &Context,
        inputs: impl ExactSizeIterator<Item = &'a [usize]> + Clone,
    ) -> Result<(), Error> {
        let is_last = last.inputs.len() == inputs.len()
            && last.outputs.len() == self.outputs.len()
            && last.inputs.iter().zip(inputs.clone()).all(|(known, dims)| known == dims);
        if !is_last {
            let named: Vec<(&str, &[usize])> =
                self.inputs.iter().map(|port| port.name.as_str()).zip(inputs.clone()).collect();
            let outputs = context.output_dims(&named)?;
            *last = Sizes { inputs: inputs.map(<[usize]>::to_vec).collect(), outputs };
        }
        Ok(())
    }

    /// Has the next run write an output to its buffer; a buffer that cannot be written in place is given up.
    fn bind(
        &self,
        py: Python<'_>,
        context: &mut Context,
        idx: usize,
        buffer: &mut Option<HostBuffer>,
    ) -> PyResult<()> {
        let Some(memory) = buffer else { return Ok(()) };
        let bytes = memory.bytes_mut();
        let (to, n_bytes) = (bytes.as_mut_ptr(), bytes.len());
        // An empty slice begins anywhere; nothing is written to it.
        if n_bytes == 0 {
            *buffer = None;
            return Ok(());
        }
        // SAFETY: the memory is the buffer's own, which begins at a cache line, outlives the run, and is looked at by
        // nobody before the outputs are unbound: `run` does that on every way out of it.
        let bound = unsafe { context.bind_output(&self.outputs[idx].name, to, n_bytes) };
        match bound {
            Ok(()) => Ok(()),
            Err(error) if *error.kind() == ErrorKind::WrongInputs => {
                locked(&self.copied)[idx] = true;
                *buffer = None;
                Ok(())
            }
            Err(error) => Err(error).or_raise(py),
        }
    }

    /// Copies of the outputs that the run left in the context.
    fn kept_outputs(
        &self,
        py: Python<'_>,
        context: &Context,
        buffers: &[Option<HostBuffer>],
    ) -> PyResult<Vec<Option<HostBuffer>>> {
        let copy = |(idx, buffer): (usize, &Option<HostBuffer>)| {
            if buffer.is_some() {
                return Ok(None);
            }
            let view = context.output(idx);
            let view = view.ok_or_else(|| wrong(py, ErrorKind::Failed, "an output was not made"))?;
            let mut copy = HostBuffer::zeros(view.dtype(), view.dims()).or_raise(py)?;
            copy.bytes_mut().copy_from_slice(view.bytes());
            if !view.bytes().is_empty() {
                self.count_copy();
            }
            Ok(Some(copy))
        };
        buffers.iter().enumerate().map(copy).collect()
    }

    /// Runs a model with sequences or optionals among its inputs or outputs, by copies.
    fn run_values<'py>(
        &self,
        py: Python<'py>,
        context: &mut Context,
        inputs: &[Bound<'py, PyAny>],
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let values = inputs
            .iter()
            .zip(&self.inputs)
            .map(|(input, port)| self.value_of(input, &port.name, dtype_of(port)));
        let values = values.collect::<PyResult<Vec<Value>>>()?;
        let outputs = py.detach(|| context.run_values(&values)).or_raise(py)?;
        let outputs = outputs.into_iter().map(|value| self.value_to_python(py, value));
        outputs.collect()
    }

    fn value_of(&self, given: &Bound<'_, PyAny>, name: &str, wanted: Option<DType>) -> PyResult<Value> {
        if wanted.is_none() && given.is_none() {
            return Ok(Value::Optional(None));
        }
        if let (None, Ok(list)) = (wanted, given.cast::<PyList>()) {
            let elements = list.iter().map(|element| self.value_of(&element, name, None));
            return Ok(Value::Sequence(elements.collect::<PyResult<_>>()?));
        }
        self.count_copy();
        Ok(Value::from(Borrowed::of(given, name, wanted)?.to_tensor(given.py())?))
    }

    fn value_to_python<'py>(&self, py: Python<'py>, value: Value) -> PyResult<Bound<'py, PyAny>> {
        match value {
            Value::Tensor(tensor) => {
                let mut copy = HostBuffer::zeros(tensor.dtype(), tensor.shape()).or_raise(py)?;
                copy.bytes_mut().copy_from_slice(tensor.bytes());
                self.count_copy();
                to_python(py, copy, Framework::Numpy)
            }
            Value::Sequence(elements) => {
                let elements = elements.into_iter().map(|element| self.value_to_python(py, element));
                Ok(PyList::new(py, elements.collect::<PyResult<Vec<_>>>()?)?.into_any())
            }
            Value::Optional(None) => Ok(py.None().into_bound(py)),
            Value::Optional(Some(inner)) => self.value_to_python(py, *inner),
        }
    }

    /// The outputs of a call: one alone, or all in the model's order.
    pub(crate) fn called<'py>(
        py: Python<'py>,
        mut outputs: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match outputs.len() {
            1 => Ok(outputs.remove(0)),
            _ => Ok(PyTuple::new(py, outputs)?.into_any()),
        }
    }

    /// The outputs of a run, by name.
    pub(crate) fn by_name<'py>(
        &self,
        py: Python<'py>,
        outputs: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let named = PyDict::new(py);
        for (port, output) in self.outputs.iter().zip(outputs) {
            named.set_item(&port.name, output)?;
        }
        Ok(named)
    }
}
