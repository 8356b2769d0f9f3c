//! Why a model could not be imported: what, where, and what to try, in one line.

use std::fmt;
use std::path::PathBuf;

use planish_ir::{GraphError, GraphErrorKind};
use planish_onnx::OnnxError;
use planish_op::AttributeError;

/// A node that no rule of the importer covers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UnsupportedNode {
    /// Empty for the standard domain.
    pub domain: String,
    pub op_type: String,
    pub opset: i64,
    pub node: String,
    /// Why, if there is more to say than that the operator is unknown.
    pub reason: Option<&'static str>,
}

impl fmt::Display for UnsupportedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let domain = if self.domain.is_empty() { "ai.onnx" } else { &self.domain };
        write!(f, "{domain}.{} (opset {}) at {}", self.op_type, self.opset, self.node)?;
        match self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

/// What went wrong.
#[derive(Debug)]
#[non_exhaustive]
pub enum ImportErrorKind {
    /// A file could not be opened or read.
    Io { path: PathBuf, error: std::io::Error },
    /// The bytes are not a valid ONNX file.
    Onnx(OnnxError),
    /// Nodes that cannot be imported, all of them.
    Unsupported(Vec<UnsupportedNode>),
    /// An operator set version that does not exist or is newer than the importer.
    Opset { version: i64 },
    /// An attribute is missing, unknown or of the wrong kind.
    Attribute(AttributeError),
    /// A node reads a value that nothing makes.
    UndefinedValue { name: String },
    /// Nodes that wait for one another.
    Cycle { nodes: Vec<String> },
    /// An element or value type that is not supported.
    UnsupportedType { what: String },
    /// The operator refuses its inputs, or a name is used twice.
    Graph(GraphError),
    /// A graph that ONNX has no words for, on the way back.
    NotExpressible { what: String },
    /// A few bytes of the file ask for a lot of memory.
    TooLarge { detail: String },
    /// The model breaks a rule of ONNX.
    Invalid { detail: String },
}

/// A model that could not be imported. Its text is one line: where, what, and what to try.
#[derive(Debug)]
pub struct ImportError {
    /// Boxed so that a `Result` stays small on the way up.
    inner: Box<Inner>,
}

#[derive(Debug)]
struct Inner {
    kind: ImportErrorKind,
    place: Option<String>,
    hint: Option<&'static str>,
}

impl ImportError {
    pub(crate) fn new(kind: ImportErrorKind) -> ImportError {
        ImportError { inner: Box::new(Inner { kind, place: None, hint: None }) }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> ImportError {
        ImportError::new(ImportErrorKind::Invalid { detail: detail.into() })
    }

    /// The same error with its place, if it has none yet.
    pub(crate) fn at(mut self, place: impl FnOnce() -> String) -> ImportError {
        self.inner.place.get_or_insert_with(place);
        self
    }

    /// Replaces the kind's usual advice where a better one is known.
    pub(crate) fn hint(mut self, hint: &'static str) -> ImportError {
        self.inner.hint = Some(hint);
        self
    }

    pub fn kind(&self) -> &ImportErrorKind {
        &self.inner.kind
    }

    /// Where in the model: a node by its name or first output, an input, output or initializer.
    pub fn place(&self) -> Option<&str> {
        self.inner.place.as_deref()
    }
}

impl ImportErrorKind {
    fn hint(&self) -> &'static str {
        match self {
            ImportErrorKind::Io { .. } => "check the path and that the file can be read",
            // The text has its own.
            ImportErrorKind::Onnx(_) => "",
            ImportErrorKind::Unsupported(_) => {
                "export with standard ONNX operators (opset 7 to 27), bring them by `--plugin FILE`, or cut these nodes off"
            }
            ImportErrorKind::Opset { .. } => "export with opset_version=21",
            ImportErrorKind::UnsupportedType { .. } => {
                "do this part before or after the model, and export the rest"
            }
            ImportErrorKind::NotExpressible { .. } => "replace the operator by standard ones",
            ImportErrorKind::TooLarge { .. } => {
                "no known exporter writes such files: check where the file comes from"
            }
            ImportErrorKind::Attribute(_)
            | ImportErrorKind::UndefinedValue { .. }
            | ImportErrorKind::Cycle { .. }
            | ImportErrorKind::Graph(_)
            | ImportErrorKind::Invalid { .. } => "check the model with onnx.checker, and export it again",
        }
    }
}

/// Unsupported nodes spelled out in a message; the error itself lists all.
const SHOWN_NODES: usize = 8;

impl fmt::Display for ImportErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportErrorKind::Io { path, error } => write!(f, "cannot read {}: {error}", path.display()),
            ImportErrorKind::Onnx(error) => write!(f, "{error}"),
            ImportErrorKind::Unsupported(nodes) => {
                write!(f, "{} node(s) are not supported: ", nodes.len())?;
                for (idx, node) in nodes.iter().take(SHOWN_NODES).enumerate() {
                    write!(f, "{}{node}", if idx == 0 { "" } else { ", " })?;
                }
                match nodes.len().checked_sub(SHOWN_NODES) {
                    None | Some(0) => Ok(()),
                    Some(more) => write!(f, ", and {more} more"),
                }
            }
            ImportErrorKind::Opset { version } if *version < 1 => {
                write!(f, "opset {version} does not exist")
            }
            ImportErrorKind::Opset { version } => {
                let newest = crate::NEWEST_OPSET;
                write!(f, "opset {version} is newer than {newest}, the newest that is known")
            }
            ImportErrorKind::Attribute(error) => write!(f, "{error}"),
            ImportErrorKind::UndefinedValue { name } => {
                let name = shorten(name);
                write!(f, "the value `{name}` is neither an input, nor an initializer, nor made by a node")
            }
            ImportErrorKind::Cycle { nodes } => {
                write!(f, "the graph has a cycle through {}", nodes.join(", "))
            }
            ImportErrorKind::UnsupportedType { what } => write!(f, "{what} is not supported"),
            ImportErrorKind::NotExpressible { what } => write!(f, "ONNX cannot say {what}"),
            // The place of an inference error is the node, which the importer names better.
            ImportErrorKind::Graph(error) => match error.kind() {
                GraphErrorKind::Infer(error) => write!(f, "{error}"),
                _ => write!(f, "{error}"),
            },
            ImportErrorKind::TooLarge { detail } | ImportErrorKind::Invalid { detail } => {
                write!(f, "{detail}")
            }
        }
    }
}

/// A message is cut in the middle beyond this: lists of attributes and shapes can be megabytes.
const SHOWN_CHARS: usize = 600;

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, place, hint } = &*self.inner;
        let place = place.as_ref().map_or(String::new(), |place| format!("{place}: "));
        let what = one_line(&format!("{place}{kind}"), SHOWN_CHARS);
        match hint.unwrap_or(kind.hint()) {
            "" => write!(f, "{what}"),
            hint => write!(f, "{what}; {hint}"),
        }
    }
}

/// Text without line breaks and other control characters, and only so long: names come from the file.
fn one_line(text: &str, limit: usize) -> String {
    let mut line = String::with_capacity(text.len().min(4 * limit));
    let n_chars = text.chars().count();
    let (front, back) = (limit / 2, limit - limit / 2);
    for (idx, char) in text.chars().enumerate() {
        if n_chars > limit && idx == front {
            line.push('…');
        }
        if n_chars > limit && idx >= front && idx < n_chars - back {
            continue;
        }
        if char.is_control() || matches!(char, '\u{2028}' | '\u{2029}') {
            line.extend(char.escape_default());
        } else {
            line.push(char);
        }
    }
    line
}

/// Names are quoted up to this many characters.
const SHOWN_NAME: usize = 80;

/// A name from the file, fit for a message.
pub(crate) fn shorten(name: &str) -> String {
    match name.char_indices().nth(SHOWN_NAME) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

impl std::error::Error for ImportError {}

impl From<OnnxError> for ImportError {
    fn from(error: OnnxError) -> ImportError {
        ImportError::new(ImportErrorKind::Onnx(error))
    }
}

impl From<AttributeError> for ImportError {
    fn from(error: AttributeError) -> ImportError {
        ImportError::new(ImportErrorKind::Attribute(error))
    }
}

impl From<GraphError> for ImportError {
    fn from(error: GraphError) -> ImportError {
        ImportError::new(ImportErrorKind::Graph(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_of_bounded_length() {
        let error = ImportError::invalid("a\nb\r\u{2028}c\u{1b}[31m".to_string()).at(|| "node `x`".into());
        assert_eq!(
            error.to_string(),
            "node `x`: a\\nb\\r\\u{2028}c\\u{1b}[31m; check the model with onnx.checker, and export it again"
        );
        let error = ImportError::invalid("é".repeat(10_000)).hint("try");
        let text = error.to_string();
        assert!(text.chars().count() < 700 && text.contains('…') && text.ends_with("; try"), "{text}");
    }

    #[test]
    fn many_unsupported_nodes_are_counted() {
        let node = |idx: usize| UnsupportedNode {
            domain: String::new(),
            op_type: "Foo".into(),
            opset: 9,
            node: format!("node `n{idx}` (Foo)"),
            reason: None,
        };
        let text = ImportError::new(ImportErrorKind::Unsupported((0..20).map(node).collect())).to_string();
        assert!(text.starts_with("20 node(s) are not supported: ai.onnx.Foo (opset 9) at node `n0` (Foo), "));
        assert!(text.contains("and 12 more; export with standard"), "{text}");
    }
}
