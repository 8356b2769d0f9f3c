//! Why a plan could not be built: the runtime's error, and what passes say in its words.

use planish_passes::{PassError, PassErrorKind};
pub use planish_runtime::{Error as BuildError, ErrorKind as BuildErrorKind};

/// What the passes say: a stop, an option that names no pass, or a mistake of theirs.
pub(crate) fn of_passes(error: &PassError) -> BuildError {
    match error.kind() {
        PassErrorKind::Cancelled => BuildError::cancelled(),
        PassErrorKind::UnknownPass { .. } => BuildError::new(BuildErrorKind::BadOption, error.to_string()),
        _ => BuildError::internal(error.to_string()),
    }
}
