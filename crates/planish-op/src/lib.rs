//! The closed set of operators: their attributes, the types of the values between them, and inference.
//!
//! - `op_table` has a row per operator, from which `op` makes the attribute structs, [`Op`] and its views
//!   ([`Pointwise`], [`Reduce`]); `class` says what the columns mean, [`attribute`] what attributes may be;
//! - `value`: values and their types; `limits`: how far a run over them may go;
//! - [`infer`](mod@infer): the types, shapes and known contents of outputs;
//! - [`window`], [`resize`], [`einsum`], [`trees`] and `recurrent_activation`: rules that inference shares with whoever
//!   computes, each written once;
//! - [`plugin`]: operators that plugins bring;
//! - [`two_of_four`]: weights of products that sparse tensor cores take.

pub mod attribute;
mod class;
pub mod einsum;
pub mod infer;
mod limits;
mod op;
mod op_table;
pub mod plugin;
mod recurrent_activation;
pub mod resize;
pub mod trees;
pub mod two_of_four;
mod value;
pub mod window;

pub use attribute::*;
pub use class::{Class, Form, Kinds, Lowering, Reduce, Reduction, Rounding};
pub use infer::infer;
pub use limits::{DEFAULT_MAX_TRIPS, Limits, Meter, Stop};
pub use op::{Attributes, Custom, OpSpec};
pub use op_table::*;
pub use recurrent_activation::RecurrentActivation;
pub use value::{TensorType, Value, ValueType};
