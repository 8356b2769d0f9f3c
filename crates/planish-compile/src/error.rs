//! Why a plan could not be built.

use planish_kernel::{KernelError, KernelErrorKind};
use planish_passes::{PassError, PassErrorKind};

/// Why a plan could not be built.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BuildErrorKind {
    /// The graph cannot be had at the sizes asked for.
    WrongShapes,
    /// A pass or a stage of the compiler made a mistake.
    Internal,
    /// Nothing can compute a node.
    Unsupported,
    /// What `--strict`, a tactic lock or `--timing-cache-only` refuses.
    Refused,
    /// A file of timings or tactics that cannot be read or written.
    Io,
    /// A file of timings or tactics for which the disk has no room, or a limit none.
    NoRoom,
    /// Memory could not be had.
    OutOfMemory,
    /// A file of timings or tactics that does not follow its format.
    BadFile,
    /// An option that does not say what it may.
    BadOption,
    /// A plan that is to be built again does not hold what that takes.
    BadPlan,
    /// The self-check found a wrong answer that could not be repaired.
    CheckFailed,
    /// The device failed in a way that ends every use of it in this process.
    DeviceLost,
    /// The caller asked to stop.
    Cancelled,
}

/// A build's refusal or failure.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct BuildError {
    kind: BuildErrorKind,
    message: String,
}

impl BuildError {
    pub(crate) fn new(kind: BuildErrorKind, message: impl Into<String>) -> BuildError {
        BuildError { kind, message: message.into() }
    }

    pub(crate) fn internal(message: impl Into<String>) -> BuildError {
        BuildError::new(BuildErrorKind::Internal, message)
    }

    pub(crate) fn cancelled() -> BuildError {
        BuildError::new(BuildErrorKind::Cancelled, "the build was stopped")
    }

    /// What a backend's refusal means where nothing else can do the work: a lack of the machine, or a mistake of ours.
    pub(crate) fn of_kernel(error: &KernelError, message: impl Into<String>) -> BuildError {
        let kind = match error.kind() {
            KernelErrorKind::OutOfMemory => BuildErrorKind::OutOfMemory,
            KernelErrorKind::DeviceLost => BuildErrorKind::DeviceLost,
            _ => BuildErrorKind::Internal,
        };
        BuildError::new(kind, message)
    }

    /// What the passes say: a stop, or a mistake of theirs.
    pub(crate) fn of_passes(error: &PassError) -> BuildError {
        match error.kind() {
            PassErrorKind::Cancelled => BuildError::cancelled(),
            PassErrorKind::UnknownPass { .. } => {
                BuildError::new(BuildErrorKind::BadOption, error.to_string())
            }
            _ => BuildError::internal(error.to_string()),
        }
    }

    /// A file of timings or tactics that cannot be read or written.
    pub(crate) fn io(doing: &str, path: &std::path::Path, error: &std::io::Error) -> BuildError {
        let kind = match planish_files::is_out_of_room(error) {
            true => BuildErrorKind::NoRoom,
            false => BuildErrorKind::Io,
        };
        BuildError::new(kind, format!("cannot {doing} {}: {error}", path.display()))
    }

    pub(crate) fn in_file(mut self, path: &std::path::Path) -> BuildError {
        self.message = format!("{}: {}", path.display(), self.message);
        self
    }

    pub fn kind(&self) -> &BuildErrorKind {
        &self.kind
    }
}
