//! Why a calibration failed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use planish_files::text::TextError;

/// What kind of thing went wrong.
#[derive(Debug)]
#[non_exhaustive]
pub enum CalibrationErrorKind {
    /// A file cannot be read or written.
    Io {
        /// `read` or `write`.
        doing: &'static str,
        path: PathBuf,
        error: io::Error,
    },
    /// A file is not a calibration, or a line of it is not as it must be.
    BadFile,
    /// The calibration is of another model.
    OtherModel,
    /// Values that have no range: NaN, infinities, or none at all.
    BadValues,
    /// A calibrator that does not exist, or an argument outside of what it takes.
    BadOption,
}

/// What went wrong, where, and what to try.
#[derive(Debug)]
pub struct CalibrationError {
    kind: CalibrationErrorKind,
    message: String,
}

impl CalibrationError {
    pub(crate) fn new(kind: CalibrationErrorKind, message: impl Into<String>) -> CalibrationError {
        CalibrationError { kind, message: message.into() }
    }

    pub(crate) fn io(doing: &'static str, path: &Path, error: io::Error) -> CalibrationError {
        let message = format!("cannot {doing} {}: {error}", path.display());
        CalibrationError::new(CalibrationErrorKind::Io { doing, path: path.to_path_buf(), error }, message)
    }

    /// The same error, with where it happened in front of its message.
    pub(crate) fn within(mut self, place: impl fmt::Display) -> CalibrationError {
        self.message = format!("{place}: {}", self.message);
        self
    }

    pub fn kind(&self) -> &CalibrationErrorKind {
        &self.kind
    }
}

impl fmt::Display for CalibrationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CalibrationError {}

/// A text that is not what it should be; who opened the file says where it lies.
impl From<TextError> for CalibrationError {
    fn from(error: TextError) -> CalibrationError {
        CalibrationError::new(CalibrationErrorKind::BadFile, error.to_string())
    }
}
