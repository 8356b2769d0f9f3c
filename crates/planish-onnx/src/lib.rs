//! Reads and writes ONNX files: bytes to structures and back.
//!
//! [`read`] borrows text and weights from the file's bytes, so opening a model costs little more than its
//! graph. No length in the file is trusted: no input makes the reader panic, recurse without bound or take
//! memory beyond a small multiple of the file, and every failure is an [`OnnxError`] that says what is
//! wrong, where, and what to try. [`inline_functions`] replaces calls of model-local functions by their
//! bodies; [`write()`] is the way back to bytes.
//!
//! ```
//! use planish_onnx::{Graph, Model, Node, OpsetImport, read, write};
//!
//! let graph = Graph { nodes: vec![Node::new("Relu", &["x"], &["y"])], ..Graph::default() };
//! let opset_imports = vec![OpsetImport { domain: "".into(), version: 21 }];
//! let model = Model { ir_version: 10, opset_imports, graph, ..Model::default() };
//! let bytes = write(&model);
//! assert_eq!(read(&bytes)?, model);
//! # Ok::<(), planish_onnx::OnnxError>(())
//! ```

mod data_type;
mod error;
mod external;
mod inline;
mod model;
mod read;
mod sparse;
mod tensor;
mod wire;
mod write;

pub use data_type::DataType;
pub use error::{OnnxError, OnnxErrorKind};
pub use external::{External, external_path, external_path_beside};
pub use inline::inline_functions;
pub use model::{
    Attribute, AttributeKind, AttributeValue, Dimension, Function, Graph, Metadata, Model, Node, OpsetImport,
    OptionalValue, QuantizationAnnotation, Sequence, Type, Value, ValueInfo,
};
pub use read::{read, read_optional, read_sequence, read_tensor};
pub use sparse::SparseTensor;
pub use tensor::{Tensor, TensorData};
pub use write::{write, write_tensor};
