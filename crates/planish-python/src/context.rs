//! `Context` and `Pool`: an engine's memory for one caller at a time.

use std::ops::DerefMut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use planish::{Context, ContextPool, ErrorKind, Lease};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::addresses;
use crate::errors::wrong;
use crate::runs::{Callable, Called, Inputs, Named, Runs};

/// A context of one's own, or one that a pool lent.
enum Held {
    Own(Context),
    Leased(Lease),
}

impl Held {
    fn context(&mut self) -> &mut Context {
        match self {
            Held::Own(context) => context,
            Held::Leased(lease) => lease.deref_mut(),
        }
    }
}

/// The memory of runs, for one caller at a time: what `engine.context()` and `pool.lease()` give.
///
/// A `with` block gives the memory back, or the context to its pool, where it ends.
///
/// >>> plan = planish.build(planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }'))
/// >>> with plan.engine().context() as context:
/// ...     context(numpy.float32([-1, 2]))
/// array([0., 2.], dtype=float32)
#[pyclass(frozen, name = "Context", module = "planish")]
pub(crate) struct PyContext {
    runs: Arc<Runs>,
    held: Mutex<Option<Held>>,
}

impl PyContext {
    pub(crate) fn own(runs: Arc<Runs>, context: Context) -> PyContext {
        PyContext { runs, held: Mutex::new(Some(Held::Own(context))) }
    }

    /// Waits for other threads that use the context, without the interpreter's lock.
    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, Option<Held>> {
        loop {
            match self.held.try_lock() {
                Ok(held) => return held,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    py.detach(|| drop(self.held.lock().unwrap_or_else(PoisonError::into_inner)));
                }
            }
        }
    }
}

impl Callable for PyContext {
    fn runs(&self) -> &Runs {
        &self.runs
    }

    fn with_context<T>(&self, py: Python<'_>, work: impl FnOnce(&mut Context) -> PyResult<T>) -> PyResult<T> {
        let mut held = self.lock(py);
        let held = held.as_mut().ok_or_else(|| wrong(py, ErrorKind::BadOption, "the context is closed"))?;
        work(held.context())
    }
}

#[pymethods]
impl PyContext {
    /// Runs on inputs by position or by name, and gives the output, or a tuple of all outputs.
    #[pyo3(signature = (*inputs, **named))]
    fn __call__<'py>(&self, inputs: Inputs<'_, 'py>, named: Option<Named<'_, 'py>>) -> Called<'py> {
        self.call(inputs, named)
    }

    /// Runs on a dict of inputs, and gives a dict of outputs.
    ///
    /// >>> plan = planish.build(planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }'))
    /// >>> plan.engine().context().run({"x": numpy.float32([-1, 2])})
    /// {'y': array([0., 2.], dtype=float32)}
    fn run<'py>(&self, inputs: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
        self.call_named(inputs)
    }

    /// Runs at addresses that the caller vouches for, as C does: `inputs` are addresses with sizes, `outputs` addresses with
    /// the bytes that there is room for, 0 for an output that is not wanted. On a GPU (`on_device`) a `stream` has the run
    /// queued; all else is waited for. Gives the sizes of the outputs, None where they are not known yet.
    #[pyo3(signature = (inputs, outputs, *, on_device=false, stream=None))]
    fn run_at<'py>(
        &self,
        py: Python<'py>,
        inputs: Vec<(u64, Vec<usize>)>,
        outputs: Vec<(u64, usize)>,
        on_device: bool,
        stream: Option<u64>,
    ) -> PyResult<Vec<Option<Bound<'py, PyTuple>>>> {
        let made = self.with_context(py, |context| match on_device {
            true => addresses::run_on_device(py, &self.runs, context, &inputs, &outputs, stream),
            false => addresses::run_on_host(py, &self.runs, context, &inputs, &outputs),
        })?;
        made.into_iter().map(|dims| dims.map(|dims| PyTuple::new(py, dims)).transpose()).collect()
    }

    /// Gives the memory back, or the context to its pool. Using it afterwards is an error.
    fn close(&self, py: Python<'_>) {
        let held = self.lock(py).take();
        py.detach(|| drop(held));
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (_kind, _value, _trace))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: Option<&Bound<'_, PyType>>,
        _value: Option<&Bound<'_, PyAny>>,
        _trace: Option<&Bound<'_, PyAny>>,
    ) {
        self.close(py);
    }
}

/// A few contexts that any number of threads take in turn: what `engine.pool(n)` gives.
///
/// >>> plan = planish.build(planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }'))
/// >>> pool = plan.engine().pool(2)
/// >>> pool(numpy.float32([-1, 2]))
/// array([0., 2.], dtype=float32)
/// >>> with pool.lease() as context:
/// ...     context(numpy.float32([3, -4]))
/// array([3., 0.], dtype=float32)
#[pyclass(frozen, module = "planish")]
pub(crate) struct Pool {
    runs: Arc<Runs>,
    contexts: ContextPool,
}

impl Pool {
    pub(crate) fn new(runs: Arc<Runs>, contexts: ContextPool) -> Pool {
        Pool { runs, contexts }
    }

    fn wait(&self, py: Python<'_>) -> Lease {
        match self.contexts.try_lease() {
            Some(lease) => lease,
            None => py.detach(|| self.contexts.lease()),
        }
    }
}

impl Callable for Pool {
    fn runs(&self) -> &Runs {
        &self.runs
    }

    fn with_context<T>(&self, py: Python<'_>, work: impl FnOnce(&mut Context) -> PyResult<T>) -> PyResult<T> {
        work(&mut self.wait(py))
    }
}

#[pymethods]
impl Pool {
    /// A free context; waits until there is one. It goes back when it is closed, which a `with` block does.
    fn lease(&self, py: Python<'_>) -> PyContext {
        let lease = self.wait(py);
        PyContext { runs: self.runs.clone(), held: Mutex::new(Some(Held::Leased(lease))) }
    }

    /// Runs in a free context on inputs by position or by name, and gives the output, or a tuple of all outputs.
    #[pyo3(signature = (*inputs, **named))]
    fn __call__<'py>(&self, inputs: Inputs<'_, 'py>, named: Option<Named<'_, 'py>>) -> Called<'py> {
        self.call(inputs, named)
    }

    /// Runs in a free context on a dict of inputs, and gives a dict of outputs.
    fn run<'py>(&self, inputs: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
        self.call_named(inputs)
    }
}
