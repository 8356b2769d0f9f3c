//! What can go wrong when a plan is opened or run.

use planish_kernel::KernelError;
use planish_op::Stop;

/// Why a plan could not be opened or run.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RunErrorKind {
    /// An input is missing, unknown or given twice.
    WrongInputs,
    /// An input has another element type than the model takes.
    WrongType,
    /// Sizes that the model or the profiles do not accept.
    WrongShape,
    /// The plan was built for another machine or by another version, or does not fit itself: why, and the command
    /// that makes one for this machine.
    NeedsRebuild { why: String, command: String },
    /// Memory could not be had.
    OutOfMemory,
    /// More trips or bytes than the engine's limits allow.
    Limit,
    /// Whoever runs asked to stop.
    Cancelled,
    /// The inputs' values are outside what an operator defines.
    BadValues,
    /// The plan is not signed by a key that is trusted.
    Untrusted,
    /// The machine cannot do what was asked.
    Unsupported,
    /// The device failed in a way that ends every use of it in this process: only a new process can use it again.
    DeviceLost,
    /// A kernel or a thread failed.
    Failed,
}

/// A plan's refusal or failure; nothing is left behind, the context can run again.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct RunError {
    kind: RunErrorKind,
    message: String,
}

impl RunError {
    pub(crate) fn new(kind: RunErrorKind, message: impl Into<String>) -> RunError {
        RunError { kind, message: message.into() }
    }

    /// The plan cannot run here, for this reason.
    pub(crate) fn needs_rebuild(why: impl Into<String>) -> RunError {
        let (why, command) = (why.into(), "planish build MODEL.onnx".to_string());
        let message = format!("{why}; make a plan for this machine with `{command}`");
        RunError::new(RunErrorKind::NeedsRebuild { why, command }, message)
    }

    /// The run was ended in the step of this name.
    pub(crate) fn stopped(step: &str, stop: Stop) -> RunError {
        let kind = match stop {
            Stop::Cancelled => RunErrorKind::Cancelled,
            Stop::Memory(_) => RunErrorKind::OutOfMemory,
            _ => RunErrorKind::Limit,
        };
        RunError::new(kind, format!("step `{step}`: {stop}"))
    }

    pub fn kind(&self) -> &RunErrorKind {
        &self.kind
    }

    /// A kernel's error in the step of this name.
    pub(crate) fn at(step: &str, error: KernelError) -> RunError {
        use planish_kernel::KernelErrorKind as Kernel;
        let kind = match error.kind() {
            Kernel::NoSuchTactic => return RunError::needs_rebuild(format!("step `{step}`: {error}")),
            Kernel::OutOfMemory => RunErrorKind::OutOfMemory,
            Kernel::Limit => RunErrorKind::Limit,
            Kernel::BadValues => RunErrorKind::BadValues,
            Kernel::DeviceLost => RunErrorKind::DeviceLost,
            _ => RunErrorKind::Failed,
        };
        RunError::new(kind, format!("step `{step}`: {error}"))
    }
}

impl From<KernelError> for RunError {
    fn from(error: KernelError) -> RunError {
        let kind = RunError::at("", error.clone()).kind;
        RunError::new(kind, error.to_string())
    }
}
