//! ONNX models to graphs: one rule per operator that changed over the opsets, functions inlined, control
//! flow with explicit captures, weights shared with the mapped file. And back: `export`.

mod adapt;
mod attributes;
mod contrib;
mod declared;
mod error;
mod export;
mod frame;
mod importer;
mod ml;
mod node;
mod order;
mod tensors;
pub mod types;

use std::path::Path;

use planish_ir::Graph;
use planish_tensor::Bytes;

pub use declared::DeclaredShapes;
pub use error::{ImportError, ImportErrorKind, UnsupportedNode};
pub use export::{export, onnx_type};
pub use importer::{NEWEST_OPSET, OLDEST_OPSET};
pub use tensors::{tensor, value};

use importer::{Importer, domain_key};
use tensors::{Place, Weights};

/// A graph and what the file says besides.
#[derive(Clone, Debug)]
pub struct Imported {
    pub graph: Graph,
    /// Operator set versions by domain, the standard one as `ai.onnx`.
    pub opsets: Vec<(String, i64)>,
    pub ir_version: i64,
    pub producer: String,
    pub metadata: Vec<(String, String)>,
    /// What the file says of the sizes that its nodes make.
    pub declared: DeclaredShapes,
    /// What of the model is told in another way than its file says, a line each.
    pub notes: Vec<String>,
}

/// Imports a file. Weights stay in the mapped file until they are used.
pub fn import_file(path: &Path) -> Result<Imported, ImportError> {
    let bytes = Bytes::map_file(path)
        .map_err(|error| ImportError::new(ImportErrorKind::Io { path: path.to_path_buf(), error }))?;
    import_from(&bytes, Place::File(path))
}

/// Imports a model from memory; `folder` is where its external data lies, if it has any.
pub fn import_bytes(bytes: &Bytes, folder: Option<&Path>) -> Result<Imported, ImportError> {
    import_from(bytes, folder.map_or(Place::Memory, Place::Folder))
}

fn import_from(bytes: &Bytes, place: Place<'_>) -> Result<Imported, ImportError> {
    let mut model = planish_onnx::read(bytes)?;
    planish_onnx::inline_functions(&mut model)?;
    let (graph, notes) = Importer::new(&model, Weights::new(bytes.clone(), place))?.model(&model.graph)?;
    let declared = DeclaredShapes::of(&model.graph, &graph);
    let opsets = model
        .opset_imports
        .iter()
        .map(|import| {
            let domain = match domain_key(&import.domain) {
                "" => "ai.onnx",
                domain => domain,
            };
            (domain.to_string(), import.version)
        })
        .collect();
    let producer = format!("{} {}", model.producer_name, model.producer_version).trim().to_string();
    let metadata = model.metadata.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    Ok(Imported { graph, opsets, ir_version: model.ir_version, producer, metadata, declared, notes })
}
