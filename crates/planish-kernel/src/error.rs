//! What can go wrong when a backend is asked to do something.

/// Why a backend could not do what was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum KernelErrorKind {
    /// The tactic is not one of this backend, or not for this problem.
    NoSuchTactic,
    /// The problem is outside what the tactic computes.
    Unsupported,
    /// Memory could not be had.
    OutOfMemory,
    /// More than whoever runs allows.
    Limit,
    /// The inputs' values are outside what the operator defines.
    BadValues,
    /// The device failed in a way that ends every use of it in this process.
    DeviceLost,
    /// A worker thread or the device failed.
    Failed,
}

/// A backend's refusal or failure.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct KernelError {
    kind: KernelErrorKind,
    message: String,
}

impl KernelError {
    pub fn new(kind: KernelErrorKind, message: impl Into<String>) -> KernelError {
        KernelError { kind, message: message.into() }
    }

    /// The tactic does not compute this problem.
    pub fn unsupported(message: impl Into<String>) -> KernelError {
        KernelError::new(KernelErrorKind::Unsupported, message)
    }

    pub fn kind(&self) -> &KernelErrorKind {
        &self.kind
    }
}
