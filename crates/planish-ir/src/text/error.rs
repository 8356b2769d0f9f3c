//! Why a text is not a graph, and where.

use std::fmt;

use planish_op::AttributeError;
use planish_tensor::{ShapeError, TensorError, UnknownDType};

use crate::graph::GraphError;

/// What is wrong with a text.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// Something else was expected.
    Syntax { expected: String, found: String },
    /// A number that its type cannot hold, or a word that is not a number.
    BadNumber { text: String, wanted: String },
    /// A value that nothing before made.
    UnknownValue { name: String },
    /// Two values with one name.
    DuplicateValue { name: String },
    /// A large constant that was not given beside the text.
    NoConstant { index: usize, n_given: usize },
    /// A type that is not of the kind needed here.
    BadType { detail: String },
    /// A word that names no element type.
    UnknownDType(UnknownDType),
    /// A shape that cannot be read.
    Shape(ShapeError),
    /// Elements and type do not fit.
    Tensor(TensorError),
    /// An operator or attribute that does not exist, or an attribute that does not fit.
    Attribute(AttributeError),
    /// The graph refuses the node.
    Graph(GraphError),
    /// Bodies or types nested too deeply.
    TooDeep { limit: u32 },
}

impl fmt::Display for ParseErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseErrorKind::Syntax { expected, found } => write!(f, "expected {expected}, found {found}"),
            ParseErrorKind::BadNumber { text, wanted } => write!(f, "`{text}` is not {wanted}"),
            ParseErrorKind::UnknownValue { name } => write!(f, "no value before is called `{name}`"),
            ParseErrorKind::DuplicateValue { name } => write!(f, "a second value is called `{name}`"),
            ParseErrorKind::NoConstant { index, n_given } => {
                write!(f, "constant #{index} was not given; {n_given} were")
            }
            ParseErrorKind::BadType { detail } => f.write_str(detail),
            ParseErrorKind::UnknownDType(error) => error.fmt(f),
            ParseErrorKind::Shape(error) => error.fmt(f),
            ParseErrorKind::Tensor(error) => error.fmt(f),
            ParseErrorKind::Attribute(error) => error.fmt(f),
            ParseErrorKind::Graph(error) => error.fmt(f),
            ParseErrorKind::TooDeep { limit } => write!(f, "nested more than {limit} levels deep"),
        }
    }
}

/// A text that is not a graph.
#[derive(Clone, PartialEq, Debug)]
pub struct ParseError {
    kind: Box<ParseErrorKind>,
    line: usize,
    column: usize,
}

impl ParseError {
    /// The error at byte `at` of `text`.
    pub(super) fn new(kind: ParseErrorKind, text: &str, at: usize) -> ParseError {
        let before = text.get(..at).unwrap_or(text);
        let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        ParseError { kind: Box::new(kind), line, column }
    }

    pub fn kind(&self) -> &ParseErrorKind {
        &self.kind
    }

    /// The line, the first being 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The character in the line, the first being 1.
    pub fn column(&self) -> usize {
        self.column
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.kind)
    }
}

impl std::error::Error for ParseError {}
