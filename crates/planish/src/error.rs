//! The errors of lower floors in the words of the one error.

use planish_import::{ImportError, ImportErrorKind};
use planish_runtime::{Error, ErrorKind};

/// Why a model could not be read.
pub(crate) fn of_import(error: &ImportError, message: String) -> Error {
    let kind = match error.kind() {
        ImportErrorKind::Io { error, .. } if planish_files::is_out_of_room(error) => ErrorKind::NoRoom,
        ImportErrorKind::Io { .. } => ErrorKind::Io,
        _ => ErrorKind::BadModel,
    };
    Error::new(kind, message)
}
