//! The one error type of this crate: what is wrong with a plan, where, and what to do next.

use std::fmt;
use std::path::Path;

pub(crate) type Result<T> = std::result::Result<T, PlanError>;

/// Why a plan could not be read or written.
///
/// The text says what, where (file, section, byte, step) and what to try; [`PlanError::kind`] is for code that
/// decides.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{detail}")]
pub struct PlanError {
    kind: PlanErrorKind,
    /// Boxed so that a `Result` stays small in the reader's loops.
    detail: Box<Detail>,
}

/// What kind of failure a [`PlanError`] is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum PlanErrorKind {
    /// The file cannot be opened, read or written.
    Io,
    /// The disk is full, a limit on files is reached, or memory is.
    NoRoom,
    /// The bytes are some other kind of file.
    NotAPlan,
    /// The plan was written in a format that this version does not know yet.
    NewerFormat,
    /// The plan was written in a format that this version no longer reads.
    OlderFormat,
    /// The program belongs to another version; [`crate::Recipe`] reads what it takes to build it anew.
    OtherProgram,
    /// The file ends too early, or goes on after its end.
    Truncated,
    /// A checksum does not fit, or padding is not empty: the file was changed after it was written.
    Damaged,
    /// The checksums fit, but what is stored does not follow the format.
    Malformed,
    /// Programs or types nest deeper than any that is written.
    TooDeep,
    /// The file expands to far more memory than its size can justify.
    TooDense,
    /// An operator, element type, layout or attribute that this version does not have.
    Unknown,
    /// The certificate was made for another plan, or for this one before it was changed.
    OtherCertificate,
    /// Everything can be read, but indices, types or orders contradict each other.
    Inconsistent,
}

impl PlanErrorKind {
    fn hint(self) -> &'static str {
        match self {
            PlanErrorKind::Io => "check the path and its permissions",
            PlanErrorKind::NoRoom => "make room, raise the limit, or choose another place",
            PlanErrorKind::NotAPlan => "give the path of a plan, made with `planish build MODEL.onnx`",
            PlanErrorKind::OlderFormat => {
                "build the plan again from its model with `planish build MODEL.onnx`"
            }
            PlanErrorKind::OtherProgram => "rebuild the plan with this version's `planish build`",
            PlanErrorKind::NewerFormat => "update Planish, or rebuild the plan with this `planish build`",
            PlanErrorKind::Truncated | PlanErrorKind::Damaged => {
                "copy the plan again, or rebuild it with `planish build`"
            }
            PlanErrorKind::OtherCertificate => {
                "build the plan again with `planish build MODEL.onnx`, which checks it anew"
            }
            PlanErrorKind::Unknown => "rebuild the plan with this version's `planish build`",
            PlanErrorKind::Malformed
            | PlanErrorKind::TooDeep
            | PlanErrorKind::TooDense
            | PlanErrorKind::Inconsistent => {
                "rebuild the plan with `planish build`, and report it if that does not help"
            }
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Detail {
    what: String,
    file: Option<String>,
    section: Option<&'static str>,
    offset: Option<u64>,
    hint: &'static str,
}

impl PlanError {
    pub(crate) fn new(kind: PlanErrorKind, what: impl Into<String>) -> PlanError {
        let detail = Detail { what: what.into(), file: None, section: None, offset: None, hint: kind.hint() };
        PlanError { kind, detail: Box::new(detail) }
    }

    pub(crate) fn io(doing: &str, error: &std::io::Error) -> PlanError {
        let kind = match planish_files::is_out_of_room(error) {
            true => PlanErrorKind::NoRoom,
            false => PlanErrorKind::Io,
        };
        PlanError::new(kind, format!("cannot {doing}: {error}"))
    }

    /// Which kind of failure this is.
    pub fn kind(&self) -> PlanErrorKind {
        self.kind
    }

    /// The section of the file in which it was found.
    pub fn section(&self) -> Option<&'static str> {
        self.detail.section
    }

    /// The byte of the file at which it was found.
    pub fn offset(&self) -> Option<u64> {
        self.detail.offset
    }

    pub(crate) fn at(mut self, offset: usize) -> PlanError {
        self.detail.offset.get_or_insert(offset as u64);
        self
    }

    pub(crate) fn in_section(mut self, section: &'static str) -> PlanError {
        self.detail.section.get_or_insert(section);
        self
    }

    pub(crate) fn in_plan(mut self, idx: usize) -> PlanError {
        self.detail.what = format!("plan {idx} of the bundle: {}", self.detail.what);
        self
    }

    pub(crate) fn in_file(mut self, path: &Path) -> PlanError {
        self.detail.file.get_or_insert_with(|| path.display().to_string());
        self
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}: ")?;
        }
        match (self.section, self.offset) {
            (Some(section), Some(offset)) => write!(f, "{section} (byte {offset}): ")?,
            (Some(section), None) => write!(f, "{section}: ")?,
            (None, Some(offset)) => write!(f, "byte {offset}: ")?,
            (None, None) => {}
        }
        write!(f, "{}; {}", self.what, self.hint)
    }
}

/// Text from the file is quoted in messages only up to this many characters: names can be megabytes.
const SHOWN_CHARS: usize = 80;

/// A name from the file, fit for a message.
pub(crate) fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
