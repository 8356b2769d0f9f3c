//! The closed set of operators: their attributes, the types of the values between them, and inference.

mod arity;
pub mod attribute;
pub mod einsum;
pub mod infer;
mod op;
mod op_table;
mod recurrent_activation;
pub mod resize;
mod value;
pub mod window;

pub use attribute::*;
pub use infer::infer;
pub use op::{Attributes, Custom, OpSpec};
pub use op_table::*;
pub use recurrent_activation::RecurrentActivation;
pub use value::{TensorType, Value, ValueType};
