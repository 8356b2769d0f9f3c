//! The one error type of this crate: what went wrong, where in the file, and what to try.

use std::fmt;

pub(crate) type Result<T> = std::result::Result<T, OnnxError>;

/// Why reading, checking or inlining an ONNX file failed.
///
/// The text says what, where (field path such as `graph.node[3].attribute[0]`, the node's name, the byte)
/// and what to try; [`OnnxError::kind`] is for code that decides.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct OnnxError {
    kind: OnnxErrorKind,
    /// Boxed so that a `Result` stays two words wide in the reader's hot loops.
    detail: Box<Detail>,
}

/// What kind of failure an [`OnnxError`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnnxErrorKind {
    /// The bytes are some other kind of file (or none at all).
    NotOnnx,
    /// A field or message ends beyond its enclosing message or the file.
    Truncated,
    /// A field carries another wire type than its definition says, or a group, or an invalid tag.
    WrongWireType,
    /// A variable-length integer does not end within ten bytes or 64 bits.
    BadVarint,
    /// A text field is not UTF-8.
    InvalidUtf8,
    /// Messages, subgraphs or calls nest deeper than any real model.
    TooDeep,
    /// The file expands to far more memory than its size can justify.
    TooDense,
    /// Something that ONNX requires is missing.
    MissingField,
    /// A number that is none of ONNX's element types.
    UnknownDataType,
    /// A number that is none of ONNX's attribute kinds.
    UnknownAttributeType,
    /// A negative dimension, or a size that does not fit this machine.
    BadDims,
    /// Tensor data does not have the length that its dimensions and type ask for.
    DataLength,
    /// Tensor data sits in a field that does not fit its type, or a value does not fit the type.
    BadEncoding,
    /// Valid ONNX that this crate refuses by name.
    Unsupported,
    /// The tensor's data is in another file; resolve it with [`crate::external_path`].
    NeedsExternal,
    /// An external data entry that cannot be understood.
    BadExternal,
    /// An external data location that is absolute or leaves the model's folder.
    ExternalEscape,
    /// An external data file that is not there or cannot be read.
    ExternalMissing,
    /// An external data file that ends before the tensor does.
    ExternalShort,
    /// Sparse indices out of range, out of order, or of the wrong shape.
    BadSparse,
    /// A model-local function that calls itself, directly or not.
    FunctionRecursion,
    /// Inlining model-local functions produces too many nodes or too much data.
    FunctionExpansion,
    /// A model-local function, or a call of one, that does not hold together.
    BadFunction,
}

impl OnnxErrorKind {
    fn hint(self) -> &'static str {
        match self {
            Self::NotOnnx => "give the path of a .onnx file",
            Self::Truncated => "the file looks cut off or damaged: download or export it again",
            Self::WrongWireType | Self::BadVarint | Self::InvalidUtf8 => {
                "the file looks damaged: download or export it again, and check it with onnx.checker"
            }
            Self::TooDeep => "no known exporter nests this deep: check where the file comes from",
            Self::TooDense => "no known exporter writes such files: check where the file comes from",
            Self::MissingField => "export the model again, and check it with onnx.checker",
            Self::UnknownDataType | Self::UnknownAttributeType => {
                "the file may be newer than this reader: export it for an older ONNX version"
            }
            Self::BadDims | Self::DataLength | Self::BadEncoding => {
                "export the model again, and check it with onnx.checker"
            }
            Self::Unsupported => "remove it from the model before exporting",
            Self::NeedsExternal => "load the file that the tensor names, from the model's folder",
            Self::BadExternal => "save the model again with its external data",
            Self::ExternalEscape => {
                "move the data file into the model's folder and save the model with a relative location"
            }
            Self::ExternalMissing => "put the data file beside the model; the two travel together",
            Self::ExternalShort => "the data file looks cut off: download or save it again with its model",
            Self::BadSparse => "save the tensor as a dense initializer, or sort its indices",
            Self::FunctionRecursion => "ONNX forbids recursive functions: rewrite it as a Loop",
            Self::FunctionExpansion => "inline the functions before exporting, or split the model",
            Self::BadFunction => "export the model again, or inline its functions with onnx.inliner",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Detail {
    what: String,
    path: String,
    node: Option<String>,
    offset: Option<usize>,
    hint: &'static str,
}

impl OnnxError {
    pub(crate) fn new(kind: OnnxErrorKind, what: impl Into<String>) -> Self {
        let detail =
            Detail { what: what.into(), path: String::new(), node: None, offset: None, hint: kind.hint() };
        Self { kind, detail: Box::new(detail) }
    }

    /// Which kind of failure this is.
    pub fn kind(&self) -> OnnxErrorKind {
        self.kind
    }

    /// The field path from the top of the file, such as `graph.node[3].attribute[0]`; empty at the top.
    pub fn path(&self) -> &str {
        &self.detail.path
    }

    /// The name of the node that the failure lies in, where it has one.
    pub fn node(&self) -> Option<&str> {
        self.detail.node.as_deref()
    }

    /// The byte of the file at which the failure was found.
    pub fn offset(&self) -> Option<usize> {
        self.detail.offset
    }

    /// Replaces the kind's usual advice where a better one is known.
    pub(crate) fn hint(mut self, hint: &'static str) -> Self {
        self.detail.hint = hint;
        self
    }

    pub(crate) fn at(mut self, offset: usize) -> Self {
        self.detail.offset.get_or_insert(offset);
        self
    }

    /// Adds the field that the error came out of, on the way up.
    pub(crate) fn inside(mut self, field: &str) -> Self {
        if !self.detail.path.is_empty() {
            self.detail.path.insert(0, '.');
        }
        self.detail.path.insert_str(0, field);
        self
    }

    pub(crate) fn inside_nth(self, field: &str, index: usize) -> Self {
        self.inside(&format!("{field}[{index}]"))
    }

    /// Records the innermost named node around the failure.
    pub(crate) fn in_node(mut self, name: &str) -> Self {
        if !name.is_empty() && self.detail.node.is_none() {
            self.detail.node = Some(shorten(name));
        }
        self
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.path.get(..SHOWN_PATH), self.path.len().checked_sub(SHOWN_PATH)) {
            // A path a hundred levels deep says no more than its two ends.
            (Some(start), Some(rest)) if rest > SHOWN_PATH => {
                let end = (rest..).find_map(|from| self.path.get(from..)).unwrap_or_default();
                write!(f, "{start}…{end}")?;
            }
            _ => write!(f, "{}", self.path)?,
        }
        let separator = if self.path.is_empty() { "" } else { " " };
        match (&self.node, self.offset) {
            (Some(node), Some(offset)) => write!(f, "{separator}(node {node:?}, byte {offset}): ")?,
            (Some(node), None) => write!(f, "{separator}(node {node:?}): ")?,
            (None, Some(offset)) => write!(f, "{separator}(byte {offset}): ")?,
            (None, None) if self.path.is_empty() => {}
            (None, None) => write!(f, ": ")?,
        }
        write!(f, "{}; {}", self.what, self.hint)
    }
}

/// Text from the file is quoted in messages only up to this many characters: names can be megabytes.
const SHOWN_CHARS: usize = 80;

/// Of a long path, this many bytes of either end are shown.
const SHOWN_PATH: usize = 120;

/// A name from the file, fit for a message.
pub(crate) fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
