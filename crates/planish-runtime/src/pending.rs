//! `Pending`: a run under way on the context's own thread (`run_async`).

use crate::buffer::Bindings;
use crate::context::Context;
use crate::error::{RunError, RunErrorKind};
use crate::frame::panicked;
use crate::run::Watch;
use crate::runner::Runner;
use crate::state::State;

/// What moves to a context's runner and back: the state and the buffers of one run.
pub(crate) struct Job {
    pub(crate) state: Box<State>,
    pub(crate) bindings: Bindings,
}

/// The context's own thread.
pub(crate) type ContextRunner = Runner<Job, Result<(), RunError>>;

pub(crate) fn start_runner() -> Result<ContextRunner, RunError> {
    let work = |job: &mut Job| job.state.run_bound(&mut job.bindings, Watch::default());
    Runner::start("planish-run", work).map_err(|error| {
        RunError::new(RunErrorKind::Failed, format!("the system gives no thread to run on: {error}"))
    })
}

impl Context {
    /// Waits for the run that is under way and takes the state back.
    pub(crate) fn finish(&mut self) -> (Bindings, Result<(), RunError>) {
        match self.runner.as_ref().and_then(Runner::take_back) {
            Some(done) => {
                self.state = Some(done.job.state);
                (done.job.bindings, done.result.unwrap_or_else(|payload| Err(panicked(&*payload))))
            }
            None => (Bindings::new(), Err(lost())),
        }
    }
}

/// A runner that ended without giving the state back, which only a mistake of ours can bring about.
pub(crate) fn lost() -> RunError {
    RunError::new(RunErrorKind::Failed, "the context's run was lost; make a new context")
}

/// A run under way. Dropping it waits.
#[derive(Debug)]
#[must_use = "dropping it waits for the run and drops the buffers"]
pub struct Pending<'a> {
    pub(crate) context: &'a mut Context,
}

impl Pending<'_> {
    /// Waits for the run and gives the buffers back; errors of the run surface here.
    pub fn wait(self) -> Result<Bindings, RunError> {
        let (bindings, result) = self.wait_with_buffers();
        result.map(|()| bindings)
    }

    /// Waits for the run and gives the buffers back whether it succeeded or not.
    pub fn wait_with_buffers(self) -> (Bindings, Result<(), RunError>) {
        self.context.finish()
    }

    /// Whether waiting would return at once.
    pub fn is_done(&self) -> bool {
        self.context.runner.as_ref().is_none_or(Runner::is_done)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.context.state.is_none() {
            drop(self.context.finish());
        }
    }
}
