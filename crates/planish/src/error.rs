//! One error for everything that users call.

/// What kind of thing went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The model, the plan or the inputs are not usable.
    BadInput,
    /// A file could not be read or written.
    Io,
    /// This machine cannot do it.
    Lacking,
    /// The device failed in a way that ends every use of it in this process; a new process can try again.
    DeviceLost,
    /// The plan does not fit this machine; it can be rebuilt.
    NeedsRebuild,
    /// A mistake of ours, or of the machine.
    Failed,
    /// The caller asked to stop.
    Cancelled,
}

/// What went wrong, where, and what to try.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into() }
    }

    /// What an error of the system means: a file that cannot be read or written, or a machine that has no room.
    #[cfg(feature = "build")]
    pub(crate) fn io_kind(error: &std::io::Error) -> ErrorKind {
        match planish_files::is_out_of_room(error) {
            true => ErrorKind::Lacking,
            false => ErrorKind::Io,
        }
    }

    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl From<planish_runtime::RunError> for Error {
    fn from(error: planish_runtime::RunError) -> Error {
        use planish_runtime::RunErrorKind as Run;
        let kind = match error.kind() {
            Run::NeedsRebuild { .. } => ErrorKind::NeedsRebuild,
            Run::OutOfMemory | Run::Unsupported => ErrorKind::Lacking,
            Run::DeviceLost => ErrorKind::DeviceLost,
            Run::Failed => ErrorKind::Failed,
            _ => ErrorKind::BadInput,
        };
        Error::new(kind, error.to_string())
    }
}

impl From<planish_plan::PlanError> for Error {
    fn from(error: planish_plan::PlanError) -> Error {
        let kind = match error.kind() {
            _ if crate::plan::is_of_another_version(&error) => ErrorKind::NeedsRebuild,
            planish_plan::PlanErrorKind::Io => ErrorKind::Io,
            planish_plan::PlanErrorKind::NoRoom => ErrorKind::Lacking,
            _ => ErrorKind::BadInput,
        };
        Error::new(kind, error.to_string())
    }
}

#[cfg(feature = "build")]
impl From<planish_compile::BuildError> for Error {
    fn from(error: planish_compile::BuildError) -> Error {
        use planish_compile::BuildErrorKind as Build;
        let kind = match error.kind() {
            Build::Internal | Build::CheckFailed => ErrorKind::Failed,
            Build::Io => ErrorKind::Io,
            Build::NoRoom | Build::OutOfMemory => ErrorKind::Lacking,
            Build::Cancelled => ErrorKind::Cancelled,
            Build::BadPlan => ErrorKind::NeedsRebuild,
            Build::DeviceLost => ErrorKind::DeviceLost,
            _ => ErrorKind::BadInput,
        };
        Error::new(kind, error.to_string())
    }
}

#[cfg(feature = "build")]
impl From<planish_import::ImportError> for Error {
    fn from(error: planish_import::ImportError) -> Error {
        let kind = match error.kind() {
            planish_import::ImportErrorKind::Io { error, .. } => Error::io_kind(error),
            _ => ErrorKind::BadInput,
        };
        Error::new(kind, error.to_string())
    }
}
