//! `Metadata`: what a model's file says of itself.

use std::path::Path;

use planish_tensor::Bytes;

use crate::{Error, ErrorKind};

/// What a model's file says of itself, beside what it computes.
///
/// ```
/// use planish::{Bytes, Metadata, Model};
///
/// # let graph = r#"graph "g" { input %x: f32[n,4] %y: f32[n,4] = Relu(%x) output %y }"#;
/// # let path = std::env::temp_dir().join(format!("planish-doc-meta-{}.onnx", std::process::id()));
/// # Model::from(graph.parse::<planish::graph::Graph>()?).save_onnx(&path)?;
/// let metadata = Metadata::read(&path)?;
/// assert_eq!(metadata.graph_name, "g");
/// # let bytes = std::fs::read(&path)?;
/// # std::fs::remove_file(&path)?;
/// assert_eq!(Metadata::from_bytes(&Bytes::from_vec(bytes))?, metadata);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Metadata {
    /// The program that wrote the file.
    pub producer_name: String,
    /// That program's version.
    pub producer_version: String,
    /// Reverse domain name of the model's owner.
    pub domain: String,
    /// The owner's version of the model.
    pub version: i64,
    /// The model in words.
    pub description: String,
    /// The graph's name.
    pub graph_name: String,
    /// The graph in words.
    pub graph_description: String,
    /// Free pairs of keys and values.
    pub properties: Vec<(String, String)>,
}

impl Metadata {
    /// Of an ONNX file.
    pub fn read(path: impl AsRef<Path>) -> Result<Metadata, Error> {
        let path = path.as_ref();
        let bytes = Bytes::map_file(path).map_err(|error| Error::io("read", path, &error))?;
        Metadata::from_bytes(&bytes).map_err(|error| error.within(path.display()))
    }

    /// Of the bytes of an ONNX file.
    pub fn from_bytes(bytes: &Bytes) -> Result<Metadata, Error> {
        let model = planish_onnx::read(bytes);
        let model = model.map_err(|error| Error::new(ErrorKind::BadModel, error.to_string()))?;
        let pairs = model.metadata.iter().map(|(key, value)| (key.to_string(), value.to_string()));
        Ok(Metadata {
            producer_name: model.producer_name.to_string(),
            producer_version: model.producer_version.to_string(),
            domain: model.domain.to_string(),
            version: model.model_version,
            description: model.doc_string.to_string(),
            graph_name: model.graph.name.to_string(),
            graph_description: model.graph.doc_string.to_string(),
            properties: pairs.collect(),
        })
    }
}
