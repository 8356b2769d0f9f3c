//! The one error of Planish: what can go wrong when a model is built into a plan, and when a plan is opened or run.

use std::io;
use std::path::Path;

use planish_kernel::{KernelError, KernelErrorKind};
use planish_op::Stop;
use planish_plan::{PlanError, PlanErrorKind, SignatureError};
use planish_tensor::TensorError;

/// What kind of thing went wrong: what a program decides by.
///
/// ```
/// # use planish_runtime::{Error, ErrorKind};
/// fn http_status(error: &Error) -> u16 {
///     match error.kind() {
///         ErrorKind::WrongInputs | ErrorKind::WrongType | ErrorKind::WrongShape | ErrorKind::BadValues => 400,
///         ErrorKind::OutOfMemory | ErrorKind::Limit => 503,
///         _ => 500,
///     }
/// }
/// # let error = Error::new(ErrorKind::WrongShape, "input `x` has 2 dimensions");
/// # assert_eq!(http_status(&error), 400);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The model is not usable, be it a file or defined by hand.
    BadModel,
    /// A plan, a timing cache, a tactic lock or an array file does not follow its format, or is damaged.
    BadFile,
    /// A file cannot be read or written.
    Io,
    /// The disk is full, or a limit on files is reached.
    NoRoom,
    /// An option does not say what it may, or contradicts another one.
    BadOption,
    /// The model asks for what nothing here can compute.
    Unsupported,
    /// `strict`, a tactic lock or `timing_cache_only` refuses what was found.
    Refused,
    /// An input is missing, unknown or given twice.
    WrongInputs,
    /// An input has another element type than the model takes.
    WrongType,
    /// Sizes that the model or its profiles do not accept.
    WrongShape,
    /// The inputs' values are outside of what an operator defines.
    BadValues,
    /// The plan was built for another machine or by another version, or contradicts itself.
    NeedsRebuild {
        /// What differs.
        why: String,
        /// The command that makes a plan for this machine.
        command: String,
    },
    /// The plan is not signed by a key that is trusted.
    Untrusted,
    /// There is not enough memory.
    OutOfMemory,
    /// A run would make more trips or take more bytes than the engine's limits allow.
    Limit,
    /// The caller asked to stop.
    Cancelled,
    /// This machine lacks what is needed: a GPU, a driver, a library.
    Lacking,
    /// The device failed in a way that ends every use of it in this process; a new process can use it again.
    DeviceLost,
    /// The self-check found a wrong answer that could not be repaired: a mistake of ours, or of the machine.
    CheckFailed,
    /// A mistake of ours: a pass, a kernel or a thread failed.
    Failed,
}

/// What went wrong, where, and what to try. Nothing is left half done: files are whole, and a context can run again.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    /// An error of this kind; the message says what went wrong, where, and what to try.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into() }
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// The same error, with where it happened in front of its message.
    pub fn within(mut self, place: impl std::fmt::Display) -> Error {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// A mistake of ours.
    pub fn internal(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Failed, message)
    }

    /// What a build ends with that was told to stop.
    pub fn cancelled() -> Error {
        Error::new(ErrorKind::Cancelled, "the build was stopped")
    }

    /// The plan cannot run here, for this reason.
    pub fn needs_rebuild(why: impl Into<String>) -> Error {
        let (why, command) = (why.into(), "planish build MODEL.onnx".to_string());
        let message = format!("{why}; make a plan for this machine with `{command}`");
        Error::new(ErrorKind::NeedsRebuild { why, command }, message)
    }

    /// The plan has no weights.
    pub fn stripped() -> Error {
        let why = "the plan was stripped of its weights".to_string();
        let command = "planish refit STRIPPED.plan MODEL.onnx -o FULL.plan".to_string();
        let message = format!("{why}; fill it again with `{command}`");
        Error::new(ErrorKind::NeedsRebuild { why, command }, message)
    }

    /// A file that cannot be read or written: `doing` is the verb.
    pub fn io(doing: &str, path: &Path, error: &io::Error) -> Error {
        let kind = if planish_files::is_out_of_room(error) { ErrorKind::NoRoom } else { ErrorKind::Io };
        Error::new(kind, format!("cannot {doing} {}: {error}", path.display()))
    }

    /// What a backend's refusal means where nothing else can do the work: a lack of the machine, or a mistake of ours.
    pub fn of_kernel(error: &KernelError, message: impl Into<String>) -> Error {
        let kind = match error.kind() {
            KernelErrorKind::OutOfMemory => ErrorKind::OutOfMemory,
            KernelErrorKind::DeviceLost => ErrorKind::DeviceLost,
            _ => ErrorKind::Failed,
        };
        Error::new(kind, message)
    }

    /// The run was ended in the step of this name.
    pub(crate) fn stopped(step: &str, stop: Stop) -> Error {
        let kind = match stop {
            Stop::Cancelled => ErrorKind::Cancelled,
            Stop::Memory(_) => ErrorKind::OutOfMemory,
            _ => ErrorKind::Limit,
        };
        Error::new(kind, format!("step `{step}`: {stop}"))
    }

    /// A kernel's error in the step of this name.
    pub(crate) fn at(step: &str, error: KernelError) -> Error {
        use KernelErrorKind as Kernel;
        let kind = match error.kind() {
            // A plan that was built here names tactics that compute its steps: it is of another machine or version, or was
            // changed by hand.
            Kernel::NoSuchTactic | Kernel::Unsupported => {
                return Error::needs_rebuild(format!("step `{step}`: {error}"));
            }
            Kernel::OutOfMemory => ErrorKind::OutOfMemory,
            Kernel::Limit => ErrorKind::Limit,
            Kernel::BadValues => ErrorKind::BadValues,
            Kernel::DeviceLost => ErrorKind::DeviceLost,
            _ => ErrorKind::Failed,
        };
        Error::new(kind, format!("step `{step}`: {error}"))
    }
}

impl From<KernelError> for Error {
    fn from(error: KernelError) -> Error {
        let kind = Error::at("", error.clone()).kind;
        Error::new(kind, error.to_string())
    }
}

impl From<PlanError> for Error {
    fn from(error: PlanError) -> Error {
        let message = error.to_string();
        let kind = match error.kind() {
            // What the plan is built from can be read.
            PlanErrorKind::OtherProgram | PlanErrorKind::Unknown => {
                let command = "planish build MODEL.onnx".to_string();
                ErrorKind::NeedsRebuild { why: message.clone(), command }
            }
            PlanErrorKind::Io => ErrorKind::Io,
            PlanErrorKind::NoRoom => ErrorKind::NoRoom,
            _ => ErrorKind::BadFile,
        };
        Error::new(kind, message)
    }
}

impl From<SignatureError> for Error {
    fn from(error: SignatureError) -> Error {
        Error::new(ErrorKind::Untrusted, error.to_string())
    }
}

impl From<TensorError> for Error {
    fn from(error: TensorError) -> Error {
        let kind = match error {
            TensorError::TooLarge { .. } => ErrorKind::OutOfMemory,
            _ => ErrorKind::WrongShape,
        };
        Error::new(kind, error.to_string())
    }
}

/// The error, as the runtime's own files call it.
pub type RunError = Error;
/// Its kinds, likewise.
pub type RunErrorKind = ErrorKind;
