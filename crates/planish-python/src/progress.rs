//! How far a build is, told to Python, and Ctrl-C told to the build.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use planish::Progress;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBool;

/// How often Python is asked at most; a build tells more often than anyone can look.
const INTERVAL: Duration = Duration::from_millis(50);

/// What a build is watched by.
pub(crate) struct Watch {
    told: Option<Py<PyAny>>,
    pub(crate) cancel: Arc<AtomicBool>,
    raised: Mutex<Option<PyErr>>,
    last: Mutex<(String, Option<Instant>)>,
}

impl Watch {
    /// `progress` is True for a bar, or a function of the stage, how much is done, and of how much.
    pub(crate) fn new(progress: Option<&Bound<'_, PyAny>>) -> PyResult<Arc<Watch>> {
        let told = match progress {
            None => None,
            Some(flag) if flag.is_instance_of::<PyBool>() => match flag.is_truthy()? {
                true => {
                    let py = flag.py();
                    Some(
                        py.import(intern!(py, "planish._progress"))?
                            .getattr(intern!(py, "Bar"))?
                            .call0()?
                            .unbind(),
                    )
                }
                false => None,
            },
            Some(function) => Some(function.clone().unbind()),
        };
        let last = Mutex::new((String::new(), None));
        Ok(Arc::new(Watch { told, cancel: Arc::default(), raised: Mutex::new(None), last }))
    }

    /// What the build calls.
    pub(crate) fn progress(self: &Arc<Watch>) -> Progress {
        let watch = Arc::clone(self);
        Arc::new(move |stage, done, of| watch.tell(stage, done, of))
    }

    fn tell(&self, stage: &str, done: usize, of: usize) {
        {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            let is_new = last.0 != stage || done == of;
            if !is_new && last.1.is_some_and(|last| last.elapsed() < INTERVAL) {
                return;
            }
            *last = (stage.to_string(), Some(Instant::now()));
        }
        Python::attach(|py| {
            let told = self.told.as_ref().map_or(Ok(()), |told| told.call1(py, (stage, done, of)).map(drop));
            if let Err(raised) = told.and_then(|()| py.check_signals()) {
                self.cancel.store(true, Ordering::Relaxed);
                self.raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(raised);
            }
        });
    }

    /// Ends the bar, and gives what stopped the build, if Python did.
    pub(crate) fn end(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(told) = &self.told
            && let Some(close) = told.bind(py).getattr_opt(intern!(py, "close"))?
        {
            close.call0()?;
        }
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner).take();
        raised.map_or(Ok(()), Err)
    }
}
