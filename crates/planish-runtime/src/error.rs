//! What can go wrong when a plan is opened or run.

use planish_kernel::KernelError;

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
    /// The plan was built for something that this machine does not have; rebuild it.
    NeedsRebuild,
    /// Memory could not be had.
    OutOfMemory,
    /// The inputs' values are outside what an operator defines.
    BadValues,
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

    pub fn kind(&self) -> &RunErrorKind {
        &self.kind
    }

    /// A kernel's error in the step of this name.
    pub(crate) fn at(step: &str, error: KernelError) -> RunError {
        use planish_kernel::KernelErrorKind as Kernel;
        let kind = match error.kind() {
            Kernel::NoSuchTactic => RunErrorKind::NeedsRebuild,
            Kernel::OutOfMemory => RunErrorKind::OutOfMemory,
            Kernel::BadValues => RunErrorKind::BadValues,
            _ => RunErrorKind::Failed,
        };
        RunError::new(kind, format!("step `{step}`: {error}"))
    }
}

impl From<KernelError> for RunError {
    fn from(error: KernelError) -> RunError {
        let RunError { kind, .. } = RunError::at("", error.clone());
        RunError::new(kind, error.to_string())
    }
}
