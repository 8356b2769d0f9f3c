//! `Pipeline`: several engines one behind the other in one piece of memory, with branches, loops and functions of Python's.

use std::cell::RefCell;
use std::collections::BTreeMap;

use planish::{DType, Error, ErrorKind, PipelineBuilder, Tensor, View};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::borrowed::{Borrowed, Framework};
use crate::engine::Engine;
use crate::errors::{OrRaise, wrong};
use crate::memory::copy_to_python;
use crate::port::dtype_of;
use crate::runs::{Called, Inputs, Named, Runs};

/// Lanes of a pipeline if nothing else is said: one computes, one is waited for, one is filled.
const CONTEXTS: usize = 3;

/// A run of an engine in a pipeline: `planish.Stage("encoder", engine, x="image")` feeds the value `image` to the engine's
/// input `x`. Inputs whose names are no words of Python's go into a dict: `planish.Stage("encoder", engine, {"x.1": "image"})`.
/// The engine's outputs are values `encoder.OUTPUT`.
#[pyclass(frozen, module = "planish")]
pub(crate) struct Stage {
    name: String,
    engine: Py<Engine>,
    feeds: Vec<(String, String)>,
}

#[pymethods]
impl Stage {
    #[new]
    #[pyo3(signature = (name, engine, feeds=None, **named))]
    fn new(
        name: String,
        engine: Py<Engine>,
        feeds: Option<&Bound<'_, PyDict>>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Stage> {
        let mut all = Vec::new();
        for (input, value) in [feeds, named].into_iter().flatten().flat_map(|given| given.iter()) {
            all.push((input.extract()?, value.extract()?));
        }
        Ok(Stage { name, engine, feeds: all })
    }
}

/// A function of Python's in a pipeline: `planish.Host("step", function, reads=["unet.noise"], gives={"z": "encoder.z"})` calls
/// `function(trip, noise)` with the number of the innermost loop's trip and copies of the values, and has it give an array, or
/// a tuple of them: values `step.z`, of the type and sizes of `encoder.z`.
#[pyclass(frozen, module = "planish")]
pub(crate) struct Host {
    name: String,
    function: Py<PyAny>,
    reads: Vec<String>,
    gives: Vec<(String, String)>,
}

#[pymethods]
impl Host {
    #[new]
    #[pyo3(signature = (name, function, reads, gives))]
    fn new(
        name: String,
        function: Py<PyAny>,
        reads: Vec<String>,
        gives: &Bound<'_, PyDict>,
    ) -> PyResult<Host> {
        Ok(Host { name, function, reads, gives: pairs(gives)? })
    }
}

/// Stages of a pipeline, done `times` times: `planish.Repeat(30, [...], carry={"encoder.z": "step.z"})`. At the end of each trip
/// a value from before the loop becomes what another one of the trip is, without a copy.
#[pyclass(frozen, module = "planish")]
pub(crate) struct Repeat {
    times: usize,
    stages: Vec<Py<PyAny>>,
    carry: Vec<(String, String)>,
}

#[pymethods]
impl Repeat {
    #[new]
    #[pyo3(signature = (times, stages, carry=None))]
    fn new(times: usize, stages: Vec<Py<PyAny>>, carry: Option<&Bound<'_, PyDict>>) -> PyResult<Repeat> {
        Ok(Repeat { times, stages, carry: carry.map_or(Ok(Vec::new()), pairs)? })
    }
}

/// A dict of names to names, in its order.
fn pairs(of: &Bound<'_, PyDict>) -> PyResult<Vec<(String, String)>> {
    of.iter().map(|(one, other)| Ok((one.extract()?, other.extract()?))).collect()
}

/// Several engines one behind the other: what one writes the next reads where it lies. It is called like an engine, from any
/// number of threads; `contexts` runs are under way at the same time.
///
/// Values are the inputs and `STAGE.OUTPUT`; a stage reads any earlier one, so branches are stages that read the same.
///
/// >>> def engine(text):
/// ...     return planish.build(planish.Model.parse(text), tune_level=0).engine()
/// >>> encoder = engine('graph "e" { input %x: f32[n,2] %z: f32[n,2] = Neg(%x) output %z }')
/// >>> denoiser = engine('graph "u" { input %z: f32[n,2] input %x: f32[n,2] %e: f32[n,2] = Add(%z, %x) output %e }')
/// >>> pipeline = planish.Pipeline(
/// ...     ["image"],
/// ...     [
/// ...         planish.Stage("encoder", encoder, x="image"),
/// ...         planish.Repeat(3, [
/// ...             planish.Stage("denoiser", denoiser, z="encoder.z", x="image"),
/// ...             planish.Host("scheduler", lambda trip, e: e * numpy.float32(trip + 1), ["denoiser.e"], {"z": "encoder.z"}),
/// ...         ], carry={"encoder.z": "scheduler.z"}),
/// ...     ],
/// ...     {"picture": "encoder.z"},
/// ... )
/// >>> pipeline(numpy.float32([[1, 2]]))             # -x, then (z + x) * 1 = 0, (0 + x) * 2, (2x + x) * 3
/// array([[ 9., 18.]], dtype=float32)
/// >>> print(pipeline.proofs({"image": (1, 2)})[0].splitlines()[-1].strip())
/// 13 pairs are needed at one time, none of them overlaps
#[pyclass(frozen, module = "planish")]
pub(crate) struct Pipeline {
    inner: planish::Pipeline,
    /// With the type of the first engine input that reads each.
    inputs: Vec<(String, Option<DType>)>,
}

#[pymethods]
impl Pipeline {
    #[new]
    #[pyo3(signature = (inputs, stages, outputs, *, contexts=CONTEXTS))]
    fn new(
        py: Python<'_>,
        inputs: Vec<String>,
        stages: Vec<Py<PyAny>>,
        outputs: &Bound<'_, PyDict>,
        contexts: usize,
    ) -> PyResult<Pipeline> {
        let mut builder = planish::Pipeline::builder().contexts(contexts);
        for input in &inputs {
            builder = builder.input(input);
        }
        let mut types = BTreeMap::new();
        builder = said(py, builder, &stages, &mut types)?;
        for (name, value) in pairs(outputs)? {
            builder = builder.output(&name, &value);
        }
        let inner = builder.build().or_raise(py)?;
        let typed = |name: String| {
            let dtype = types.get(&name).copied();
            (name, dtype)
        };
        Ok(Pipeline { inner, inputs: inputs.into_iter().map(typed).collect() })
    }

    /// Runs all stages on inputs by position or by name, and gives the output, or a tuple of all outputs.
    #[pyo3(signature = (*inputs, **named))]
    fn __call__<'py>(&self, inputs: Inputs<'_, 'py>, named: Option<Named<'_, 'py>>) -> Called<'py> {
        let py = inputs.py();
        let made = self.run_on(py, inputs, named)?;
        Runs::called(py, made.into_iter().map(|(_, array)| array).collect())
    }

    /// Runs all stages on a dict of inputs, and gives a dict of outputs.
    fn run<'py>(&self, inputs: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
        let py = inputs.py();
        let outputs = PyDict::new(py);
        for (name, array) in self.run_on(py, &PyTuple::empty(py), Some(inputs))? {
            outputs.set_item(name, array)?;
        }
        Ok(outputs)
    }

    /// What lies where in the memory of one run at these sizes of the inputs, and that nothing overlaps: a text for each memory.
    fn proofs(&self, py: Python<'_>, sizes: BTreeMap<String, Vec<usize>>) -> PyResult<Vec<String>> {
        let sizes: Vec<(&str, &[usize])> =
            sizes.iter().map(|(name, sizes)| (&name[..], &sizes[..])).collect();
        let proofs = py.detach(|| self.inner.proofs(&sizes)).or_raise(py)?;
        Ok(proofs.iter().map(ToString::to_string).collect())
    }
}

impl Pipeline {
    fn run_on<'py>(
        &self,
        py: Python<'py>,
        inputs: Inputs<'_, 'py>,
        named: Option<Named<'_, 'py>>,
    ) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        let named = named.map_or_else(|| PyDict::new(py), Clone::clone);
        if inputs.len() > self.inputs.len() {
            let message =
                format!("the pipeline has {} inputs, {} are given", self.inputs.len(), inputs.len());
            return Err(wrong(py, ErrorKind::WrongInputs, message));
        }
        let by_position =
            self.inputs.iter().map(|(name, _)| name.clone()).zip(inputs.iter()).map(PyResult::Ok);
        let by_name = named.iter().map(|(name, array)| Ok((name.extract::<String>()?, array)));
        let mut borrowed = Vec::new();
        for given in by_position.chain(by_name) {
            let (name, array) = given?;
            let wanted = self.inputs.iter().find(|(known, _)| *known == name).and_then(|(_, dtype)| *dtype);
            borrowed.push((Borrowed::of(&array, &name, wanted)?, name));
        }
        let views = borrowed.iter().map(|(input, name)| Ok((name.as_str(), input.view(py)?)));
        let views = views.collect::<PyResult<Vec<(&str, View<'_>)>>>()?;
        let made = py.detach(|| self.inner.run(&views));
        let raised = RAISED.take();
        let made = made.or_raise(py).inspect_err(|error| error.set_cause(py, raised))?;
        let framework =
            borrowed.iter().map(|(input, _)| input.framework).find(|&one| one != Framework::Numpy);
        let array = |(name, tensor): (String, Tensor)| {
            copy_to_python(py, &tensor, framework.unwrap_or_default()).map(|array| (name, array))
        };
        made.into_iter().map(array).collect()
    }
}

thread_local! {
    /// What a function of Python's raised in the run of this thread: functions are called by the thread that runs the pipeline.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Says stages to a builder; `types` are those of the values, as far as engines tell.
fn said(
    py: Python<'_>,
    mut builder: PipelineBuilder,
    stages: &[Py<PyAny>],
    types: &mut BTreeMap<String, DType>,
) -> PyResult<PipelineBuilder> {
    for stage in stages {
        let stage = stage.bind(py);
        if let Ok(stage) = stage.cast::<Stage>() {
            let Stage { name, engine, feeds } = stage.get();
            let engine = engine.get().shared();
            for port in engine.inputs() {
                let value = feeds.iter().find(|(input, _)| *input == port.name);
                if let (Some((_, value)), Some(dtype)) = (value, dtype_of(&port)) {
                    types.entry(value.clone()).or_insert(dtype);
                }
            }
            for port in engine.outputs() {
                dtype_of(&port).map(|dtype| types.insert(format!("{name}.{}", port.name), dtype));
            }
            let feeds: Vec<(&str, &str)> =
                feeds.iter().map(|(input, value)| (&input[..], &value[..])).collect();
            builder = builder.stage(name, engine, &feeds);
        } else if let Ok(host) = stage.cast::<Host>() {
            let Host { name, function, reads, gives } = host.get();
            let mut wanted = Vec::new();
            for (output, like) in gives {
                let dtype = types.get(like).copied();
                dtype.map(|dtype| types.insert(format!("{name}.{output}"), dtype));
                wanted.push((format!("{name}.{output}"), dtype));
            }
            let reads: Vec<&str> = reads.iter().map(String::as_str).collect();
            let gives: Vec<(&str, &str)> =
                gives.iter().map(|(output, like)| (&output[..], &like[..])).collect();
            let function = function.clone_ref(py);
            builder =
                builder.host(name, &reads, &gives, move |trip, read| call(&function, trip, read, &wanted));
        } else if let Ok(repeat) = stage.cast::<Repeat>() {
            let Repeat { times, stages, carry } = repeat.get();
            let mut inner = Ok(());
            builder = builder.repeat(*times, |trip| {
                let mut trip = match said(py, trip.clone(), stages, types) {
                    Ok(trip) => trip,
                    Err(error) => {
                        inner = Err(error);
                        trip
                    }
                };
                for (value, from) in carry {
                    trip = trip.carry(value, from);
                }
                trip
            });
            inner?;
        } else {
            let is = stage.get_type().name()?;
            let message =
                format!("a pipeline's stages are planish.Stage, planish.Host and planish.Repeat, not {is}");
            return Err(wrong(py, ErrorKind::WrongType, message));
        }
    }
    Ok(builder)
}

/// Calls a function of Python's on copies of values, and copies what it gives.
fn call(
    function: &Py<PyAny>,
    trip: usize,
    read: &[Tensor],
    wanted: &[(String, Option<DType>)],
) -> Result<Vec<Tensor>, Error> {
    let called = |py: Python<'_>| -> PyResult<Vec<Tensor>> {
        let mut arguments = vec![trip.into_pyobject(py)?.into_any()];
        for tensor in read {
            arguments.push(copy_to_python(py, tensor, Framework::Numpy)?);
        }
        let made = function.bind(py).call1(PyTuple::new(py, arguments)?)?;
        let made: Vec<Bound<'_, PyAny>> = match made.cast::<PyTuple>() {
            Ok(several) => several.iter().collect(),
            Err(_) => vec![made],
        };
        let tensor = |(idx, array): (usize, &Bound<'_, PyAny>)| {
            let (name, dtype) = wanted.get(idx).map_or(("", None), |(name, dtype)| (name.as_str(), *dtype));
            Borrowed::of(array, name, dtype)?.to_tensor(py)
        };
        made.iter().enumerate().map(tensor).collect()
    };
    Python::attach(|py| {
        called(py).map_err(|raised| {
            let error = Error::new(ErrorKind::Failed, raised.to_string());
            RAISED.set(Some(raised));
            error
        })
    })
}
