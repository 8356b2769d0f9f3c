//! What can go wrong in the zoo.

use std::fmt;

use planish_import::ImportError;
use planish_ir::GraphError;
use planish_tensor::TensorError;

/// Why there is no model.
#[derive(Debug)]
#[non_exhaustive]
pub enum ZooErrorKind {
    /// No model has this name.
    Unknown,
    /// A layer does not fit its inputs: a mistake in this crate.
    Graph(GraphError),
    /// A weight could not be made: a mistake in this crate, or no memory.
    Weight(TensorError),
    /// The graph cannot be written as ONNX.
    Export(Box<ImportError>),
}

/// A model that could not be made.
#[derive(Debug)]
pub struct ZooError {
    kind: ZooErrorKind,
    place: String,
}

impl ZooError {
    pub(crate) fn new(kind: ZooErrorKind, place: impl Into<String>) -> ZooError {
        ZooError { kind, place: place.into() }
    }

    pub(crate) fn unknown(name: &str) -> ZooError {
        ZooError::new(ZooErrorKind::Unknown, name)
    }

    pub fn kind(&self) -> &ZooErrorKind {
        &self.kind
    }

    /// The model or the layer concerned.
    pub fn place(&self) -> &str {
        &self.place
    }
}

impl fmt::Display for ZooError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.place;
        match &self.kind {
            ZooErrorKind::Unknown => {
                let near: Vec<&str> = near(place).collect();
                write!(f, "there is no model `{place}` in the zoo")?;
                match near.is_empty() {
                    true => write!(f, "; `planish zoo` lists all"),
                    false => write!(f, "; did you mean {}?", near.join(" or ")),
                }
            }
            ZooErrorKind::Graph(error) => write!(f, "layer `{place}`: {error}"),
            ZooErrorKind::Weight(error) => write!(f, "weight `{place}`: {error}"),
            ZooErrorKind::Export(error) => write!(f, "`{place}` as ONNX: {error}"),
        }
    }
}

impl std::error::Error for ZooError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ZooErrorKind::Unknown => None,
            ZooErrorKind::Graph(error) => Some(error),
            ZooErrorKind::Weight(error) => Some(error),
            ZooErrorKind::Export(error) => Some(error),
        }
    }
}

/// Models whose name begins as the given one, apart from case and separators.
fn near(name: &str) -> impl Iterator<Item = &'static str> {
    let plain = |text: &str| -> String {
        text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    let wanted = plain(name);
    crate::names().filter(move |known| wanted.len() > 2 && plain(known).starts_with(&wanted))
}
