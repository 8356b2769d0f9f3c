//! The graph that everything between import and lowering works on: nodes and values, verification, the text
//! form, and interpretation over the reference.

mod append;
mod control;
mod cost;
mod graph;
mod id;
mod interpret;
mod knowledge;
mod part;
mod same;
mod specialize;
pub mod text;
mod verify;

pub use control::{compatible, join, refines};
pub use cost::Work;
pub use graph::{Declared, Graph, GraphError, GraphErrorKind, NewNode, NewOutput, Node, ValueInfo};
pub use id::{NodeId, ValueId};
pub use interpret::{InterpretError, Observer, interpret, interpret_with, interpret_within};
pub use specialize::is_function;
pub use text::{ParseError, ParseErrorKind, Printed, parse};
