//! The families of our own kernels, one file or folder each.

pub(crate) mod attention;
pub(crate) mod conv;
pub(crate) mod convtranspose;
pub(crate) mod depthwise;
mod few_rows;
pub(crate) mod gather;
pub(crate) mod gemm;
pub(crate) mod halo;
pub(crate) mod movement;
pub(crate) mod nbits;
pub(crate) mod norm;
pub(crate) mod pointwise;
pub(crate) mod pool;
pub(crate) mod product;
pub(crate) mod reduce;
pub(crate) mod resize;
pub(crate) mod rotary;
pub(crate) mod scan;
pub(crate) mod scatter;
pub(crate) mod softmax;
pub(crate) mod stem;
pub(crate) mod topk;
pub(crate) mod wconv;
pub(crate) mod wgemm;
pub(crate) mod whalo;
mod wproduct;
pub(crate) mod wtranspose;
