//! Errors of the library as Python's exceptions: a class for each kind, in `planish.errors`.

use planish::{Error, ErrorKind};
use pyo3::prelude::*;

/// The name of a kind's class.
fn class(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::BadModel => "BadModel",
        ErrorKind::BadFile => "BadFile",
        ErrorKind::Io => "FileError",
        ErrorKind::NoRoom => "NoRoom",
        ErrorKind::BadOption => "BadOption",
        ErrorKind::Unsupported => "Unsupported",
        ErrorKind::Refused => "Refused",
        ErrorKind::WrongInputs => "WrongInputs",
        ErrorKind::WrongType => "WrongType",
        ErrorKind::WrongShape => "WrongShape",
        ErrorKind::BadValues => "BadValues",
        ErrorKind::NeedsRebuild { .. } => "NeedsRebuild",
        ErrorKind::Untrusted => "Untrusted",
        ErrorKind::OutOfMemory => "OutOfMemory",
        ErrorKind::Limit => "LimitReached",
        ErrorKind::Cancelled => "Cancelled",
        ErrorKind::Lacking => "Lacking",
        ErrorKind::DeviceLost => "DeviceLost",
        ErrorKind::CheckFailed => "CheckFailed",
        // `Failed`, and what a newer library may add.
        _ => "Failed",
    }
}

/// The exception of an error.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let made = || {
        let class = py.import("planish.errors")?.getattr(class(error.kind()))?;
        let made = class.call1((error.to_string(),))?;
        if let ErrorKind::NeedsRebuild { why, command } = error.kind() {
            made.setattr("why", why)?;
            made.setattr("command", command)?;
        }
        Ok(made)
    };
    made().map_or_else(|error| error, PyErr::from_value)
}

/// Of results of the library.
pub(crate) trait OrRaise<T> {
    /// The value, or the error as an exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Error> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error))
    }
}

/// An exception of this kind.
pub(crate) fn wrong(py: Python<'_>, kind: ErrorKind, message: impl Into<String>) -> PyErr {
    exception(py, &Error::new(kind, message))
}
