//! Why a model could not be imported: what, where, and what to try.

use std::fmt;
use std::path::PathBuf;

use planish_ir::GraphError;
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
        write!(f, "{domain}.{} (opset {}) at node `{}`", self.op_type, self.opset, self.node)?;
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
    /// The node breaks a rule of ONNX.
    Invalid { detail: String },
}

/// A model that could not be imported.
#[derive(Debug)]
pub struct ImportError {
    kind: ImportErrorKind,
    /// The node, as a user finds it: its name, or operator and outputs.
    node: Option<String>,
}

impl ImportError {
    pub(crate) fn new(kind: ImportErrorKind) -> ImportError {
        ImportError { kind, node: None }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> ImportError {
        ImportError::new(ImportErrorKind::Invalid { detail: detail.into() })
    }

    /// The same error with its place, if it has none yet.
    pub(crate) fn at(mut self, node: impl FnOnce() -> String) -> ImportError {
        self.node.get_or_insert_with(node);
        self
    }

    pub fn kind(&self) -> &ImportErrorKind {
        &self.kind
    }

    pub fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }
}

/// Unsupported nodes spelled out in a message; the error itself lists all.
const SHOWN_NODES: usize = 8;

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(node) = &self.node {
            write!(f, "node {node}: ")?;
        }
        match &self.kind {
            ImportErrorKind::Io { path, error } => write!(f, "cannot read {}: {error}", path.display()),
            ImportErrorKind::Onnx(error) => write!(f, "{error}"),
            ImportErrorKind::Unsupported(nodes) => {
                write!(f, "{} node(s) are not supported: ", nodes.len())?;
                for (idx, node) in nodes.iter().take(SHOWN_NODES).enumerate() {
                    write!(f, "{}{node}", if idx == 0 { "" } else { "; " })?;
                }
                if nodes.len() > SHOWN_NODES {
                    write!(f, "; and {} more", nodes.len() - SHOWN_NODES)?;
                }
                write!(
                    f,
                    ". Try exporting with standard ONNX operators (opset 7 to 27), or cut these nodes off"
                )
            }
            ImportErrorKind::Attribute(error) => write!(f, "{error}"),
            ImportErrorKind::UndefinedValue { name } => {
                write!(f, "the value `{name}` is neither an input, nor an initializer, nor made by a node")
            }
            ImportErrorKind::Cycle { nodes } => {
                write!(f, "the graph has a cycle through {}", nodes.join(", "))
            }
            ImportErrorKind::UnsupportedType { what } => write!(f, "{what} is not supported"),
            ImportErrorKind::Graph(error) => match error.kind() {
                planish_ir::GraphErrorKind::Infer(error) => write!(f, "{error}"),
                _ => write!(f, "{error}"),
            },
            ImportErrorKind::Invalid { detail } => write!(f, "{detail}"),
        }
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
