//! The small text files of a build (timings, locks of tactics), with the build's errors.

use std::path::Path;

use planish_files::text::{self, TextError};
pub(crate) use planish_files::text::{Format, MAX_BYTES, escape, unescape};

use crate::error::{BuildError, BuildErrorKind};

/// A text that is not what it should be.
fn bad(error: &TextError) -> BuildError {
    BuildError::new(BuildErrorKind::BadFile, error.to_string())
}

/// The lines that hold something, each with its number, after the first has been checked.
pub(crate) fn lines(format: Format, text: &str) -> Result<impl Iterator<Item = (usize, &str)>, BuildError> {
    format.lines(text).map_err(|error| bad(&error))
}

/// What is wrong with a line, and where.
pub(crate) fn bad_line(number: usize, what: &str) -> BuildError {
    bad(&text::bad_line(number, what))
}

/// The text of a file; `None` if there is none.
pub(crate) fn read(path: &Path) -> Result<Option<String>, BuildError> {
    text::read(path).map_err(|error| match &error {
        TextError::Io(error) => BuildError::io("read", path, error),
        TextError::Bad(_) => bad(&error).within(path.display()),
    })
}

/// Writes a file in one piece.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), BuildError> {
    text::write(path, text).map_err(|error| BuildError::io("write", path, &error))
}
