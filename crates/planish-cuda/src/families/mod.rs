//! The families of our own kernels, one file or folder each.

pub(crate) mod conv;
pub(crate) mod gemm;
pub(crate) mod halo;
pub(crate) mod product;
pub(crate) mod wconv;
pub(crate) mod wgemm;
pub(crate) mod whalo;
mod wproduct;
