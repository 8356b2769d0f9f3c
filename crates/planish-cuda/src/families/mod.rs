//! The families of our own kernels, one file or folder each.
