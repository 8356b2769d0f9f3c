//! Reads and writes ONNX files.
