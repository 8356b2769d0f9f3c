//! NVIDIA's libraries as families: their algorithms compete with our own kernels, and plans that use them say so.

pub(crate) mod cublaslt;
pub(crate) mod cudnn;
