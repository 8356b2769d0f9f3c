//! What can go wrong with a GPU, its driver and its libraries.

use planish_kernel::{KernelError, KernelErrorKind};

/// Why something could not be done on a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CudaErrorKind {
    /// No NVIDIA driver on this machine, or one that is too old.
    NoDriver,
    /// A driver, but no such device.
    NoDevice,
    /// A library that is needed was not found.
    MissingLibrary,
    /// A library was found, of a version that this program was not written for.
    WrongVersion,
    /// Device or pinned memory could not be had.
    OutOfMemory,
    /// The device failed in a way that ends every use of it in this process.
    LostDevice,
    /// A kernel's source did not compile.
    Compile,
    /// The device, driver or library cannot do what was asked.
    Unsupported,
    /// A call failed.
    Failed,
}

/// A failure of the CUDA backend.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct CudaError {
    kind: CudaErrorKind,
    message: String,
}

impl CudaError {
    pub fn new(kind: CudaErrorKind, message: impl Into<String>) -> CudaError {
        CudaError { kind, message: message.into() }
    }

    pub fn kind(&self) -> CudaErrorKind {
        self.kind
    }

    /// Whether it says that this machine has no usable GPU, or lacks a library: nothing is wrong with the
    /// model or the plan.
    pub fn is_missing(&self) -> bool {
        matches!(
            self.kind,
            CudaErrorKind::NoDriver
                | CudaErrorKind::NoDevice
                | CudaErrorKind::MissingLibrary
                | CudaErrorKind::WrongVersion
        )
    }
}

impl From<CudaError> for KernelError {
    fn from(error: CudaError) -> KernelError {
        let kind = match error.kind {
            CudaErrorKind::OutOfMemory => KernelErrorKind::OutOfMemory,
            CudaErrorKind::Unsupported
            | CudaErrorKind::MissingLibrary
            | CudaErrorKind::WrongVersion
            | CudaErrorKind::NoDriver
            | CudaErrorKind::NoDevice => KernelErrorKind::Unsupported,
            CudaErrorKind::LostDevice => KernelErrorKind::DeviceLost,
            CudaErrorKind::Compile | CudaErrorKind::Failed => KernelErrorKind::Failed,
        };
        KernelError::new(kind, error.message)
    }
}
