//! What GPU backends share: launch plans as plain data, kernel arguments that are declared once, index maps, epilogues and
//! the text of generated kernels.
//!
//! Nothing here knows a driver, a compiler or a device. A backend brings its prelude, which defines the functions that
//! generated text calls (`pl_…` of programs, `po_…` of maps; planish-cuda's are in `prelude.cuh` and `ops.cuh`), turns a
//! [`plan::KernelCode`] into what its compiler takes, and launches a [`plan::Plan`].

pub mod args;
pub mod codegen;
pub mod epilogue;
pub mod images;
pub mod indices;
pub mod lines;
pub mod map;
pub mod operands;
pub mod plan;
pub mod space;
