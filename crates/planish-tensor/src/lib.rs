//! Element types, dimensions, shapes and tensors.
