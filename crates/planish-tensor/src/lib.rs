//! Element types, symbolic dimensions, shapes and tensors: the values that everything else passes around.

mod bytes;
mod dim;
mod dtype;
mod element;
mod float_mode;
pub mod heap;
pub mod memory;
mod pages;
mod quoted;
pub mod rounding;
mod shape;
pub mod small_float;
mod tensor;

pub use bytes::Bytes;
pub use dim::*;
pub use dtype::{DType, UnknownDType};
pub use element::Element;
pub use float_mode::DefaultFloatMode;
pub use half::{bf16, f16};
pub use pages::Pages;
pub use quoted::Quoted;
pub use shape::*;
pub use tensor::{Tensor, TensorError, element_count};
