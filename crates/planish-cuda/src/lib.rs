//! The CUDA backend: kernel families over NVIDIA's driver, compiled through NVRTC, beside cuBLASLt and cuDNN.
//!
//! Nothing of CUDA is linked: driver and libraries are found at run time (`find`), and without them everything
//! else works. What needs no GPU (candidates, sources, prices) is asked of a [`Gpu`], which is plain data.

// The driver and the libraries are C interfaces; every call states why it may be made.
#![allow(unsafe_code)]

mod backend;
mod cache;
mod code;
#[doc(hidden)]
pub mod drill;
pub mod driver;
mod error;
mod families;
mod family;
pub mod find;
mod formats;
mod gpu;
pub mod launch;
mod library;
mod libs;
mod link;
pub mod nvml;
pub mod nvrtc;
pub mod nvtx;
pub mod offline;
mod planned;
mod queue;
mod regions;
mod report;
mod source;
#[cfg(test)]
mod trial;

pub use backend::{Cuda, SOURCES};
pub use error::{CudaError, CudaErrorKind};
pub use formats::unpack;
pub use gpu::Gpu;
pub use link::LinkRate;
pub use queue::CudaQueue;
pub use report::{LibraryReport, Report};
pub use source::{OPTIONS, PRELUDE, Source};
