//! A file of ONNX with the weights beside it, and the types of its values.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Write;
use std::path::{Path, PathBuf};

use planish_import::{ImportErrorKind, UnsupportedNode, onnx_type};
use planish_onnx::{Dimension, Model, OnnxError, Tensor, TensorData, Type, ValueInfo};
use planish_tensor::Bytes;

use super::names::{each_tensor_mut, each_tensor_of};
use crate::{Error, ErrorKind};

/// A file that was opened. [`File::model`] borrows from it.
/// [`crate::onnx`] has an example.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    bytes: Bytes,
    /// Files beside it, each mapped once.
    external: HashMap<PathBuf, Bytes>,
}

impl File {
    /// Opens a file and the weights beside it; nothing is copied.
    pub fn open(path: impl AsRef<Path>) -> Result<File, Error> {
        let path = path.as_ref();
        let bytes = Bytes::map_file(path).map_err(|error| Error::io("read", path, &error))?;
        let mut external = HashMap::new();
        let mut model = planish_onnx::read(&bytes).map_err(|error| unusable(path, &error))?;
        let mut map = |tensor: &mut Tensor<'_>| -> Result<(), Error> {
            let TensorData::External(place) = &tensor.data else { return Ok(()) };
            let file =
                planish_onnx::external_path_beside(path, place).map_err(|error| unusable(path, &error))?;
            if let Entry::Vacant(entry) = external.entry(file) {
                let bytes =
                    Bytes::map_file(entry.key()).map_err(|error| Error::io("read", entry.key(), &error))?;
                entry.insert(bytes);
            }
            Ok(())
        };
        each_tensor_mut(&mut model.graph, &mut map)?;
        for node in model.functions.iter_mut().flat_map(|function| &mut function.nodes) {
            each_tensor_of(node, &mut map)?;
        }
        Ok(File { path: path.to_path_buf(), bytes, external })
    }

    /// Its model, with all weights in place.
    pub fn model(&self) -> Result<Model<'_>, Error> {
        let mut model = planish_onnx::read(&self.bytes).map_err(|error| unusable(&self.path, &error))?;
        each_tensor_mut(&mut model.graph, &mut |tensor| self.place(tensor))?;
        for node in model.functions.iter_mut().flat_map(|function| &mut function.nodes) {
            each_tensor_of(node, &mut |tensor| self.place(tensor))?;
        }
        Ok(model)
    }

    fn place<'a>(&'a self, tensor: &mut Tensor<'a>) -> Result<(), Error> {
        let TensorData::External(place) = &tensor.data else { return Ok(()) };
        let unusable = |error| unusable(&self.path, &error);
        let file = planish_onnx::external_path_beside(&self.path, place).map_err(unusable)?;
        let n_bytes = match place.length {
            Some(length) => length,
            None => tensor.byte_len().map_err(unusable)? as u64,
        };
        let end = place.offset.checked_add(n_bytes).and_then(|end| usize::try_from(end).ok());
        let range = usize::try_from(place.offset).ok().zip(end).map(|(start, end)| start..end);
        let bytes = self.external.get(&file).and_then(|bytes| bytes.get(range?)).ok_or_else(|| {
            let message = format!(
                "{}: `{}` lies beyond the end of {}",
                self.path.display(),
                tensor.name,
                file.display()
            );
            Error::new(ErrorKind::BadModel, message)
        })?;
        tensor.data = TensorData::Raw(bytes.into());
        Ok(())
    }

    /// The types of its values: what inference finds, or the file declares.
    pub fn types(&self) -> Types {
        let (graph, unsupported, why) = match planish_import::import_file(&self.path) {
            Ok(imported) => (Some(imported.graph), Vec::new(), None),
            Err(error) => match error.kind() {
                ImportErrorKind::Unsupported(nodes) => (None, nodes.clone(), None),
                _ => (None, Vec::new(), Some(error.to_string())),
            },
        };
        let mut declared = HashMap::new();
        if let Ok(model) = planish_onnx::read(&self.bytes) {
            let graph = &model.graph;
            for info in graph.value_infos.iter().chain(&graph.inputs).chain(&graph.outputs) {
                if let Some(ty) = &info.ty {
                    declared.insert(info.name.to_string(), owned(ty));
                }
            }
        }
        Types { graph, declared, unsupported, why }
    }
}

/// The types of a file's values, by name.
/// Given by [`File::types`].
#[derive(Clone, Debug)]
pub struct Types {
    graph: Option<planish_ir::Graph>,
    declared: HashMap<String, Type<'static>>,
    unsupported: Vec<UnsupportedNode>,
    why: Option<String>,
}

impl Types {
    /// The type of a value.
    pub fn of(&self, name: &str) -> Option<Type<'static>> {
        self.inferred(name).or_else(|| self.declared.get(name).cloned())
    }

    /// What inference found.
    pub(super) fn inferred(&self, name: &str) -> Option<Type<'static>> {
        let graph = self.graph.as_ref()?;
        Some(onnx_type(&graph.value(graph.find(name)?).ty))
    }

    /// The same at these sizes of the model's symbols.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("planish-doc-types-{}.onnx", std::process::id()));
    /// # let graph = r#"graph "g" { input %x: f32[n,4] %y: f32[n,4] = Relu(%x) output %y }"#;
    /// # planish::Model::from(graph.parse::<planish::graph::Graph>()?).save_onnx(&path)?;
    /// use planish::onnx::{DataType, Dimension, File, Type};
    ///
    /// let types = File::open(&path)?.types().at(&|symbol| (symbol == "n").then_some(3))?;
    /// let dims = vec![Dimension::Value(3), Dimension::Value(4)];
    /// assert_eq!(types.of("y"), Some(Type::Tensor { elem: DataType::Float, shape: Some(dims) }));
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn at(mut self, size: &dyn Fn(&str) -> Option<i64>) -> Result<Types, Error> {
        if let Some(graph) = &self.graph {
            let specialized = graph.specialize(size).map_err(|error| {
                Error::new(ErrorKind::WrongShape, format!("the model does not accept these shapes: {error}"))
            })?;
            self.graph = Some(specialized);
        }
        Ok(self)
    }

    /// Nodes that Planish does not have; types are then those that the file declares.
    pub fn unsupported(&self) -> &[UnsupportedNode] {
        &self.unsupported
    }

    /// Why the file is not a model, where it is none.
    pub(super) fn why_not(&self) -> Option<&str> {
        self.why.as_deref()
    }
}

/// The type with text of its own.
pub(super) fn owned(ty: &Type<'_>) -> Type<'static> {
    let dims = |shape: &Option<Vec<Dimension<'_>>>| {
        let dim = |dim: &Dimension<'_>| match dim {
            Dimension::Value(size) => Dimension::Value(*size),
            Dimension::Param(name) => Dimension::Param(name.to_string().into()),
            Dimension::Unknown => Dimension::Unknown,
        };
        shape.as_ref().map(|dims| dims.iter().map(dim).collect())
    };
    match ty {
        Type::Tensor { elem, shape } => Type::Tensor { elem: *elem, shape: dims(shape) },
        Type::SparseTensor { elem, shape } => Type::SparseTensor { elem: *elem, shape: dims(shape) },
        Type::Sequence(element) => Type::Sequence(Box::new(owned(element))),
        Type::Optional(element) => Type::Optional(Box::new(owned(element))),
        Type::Map { key, value } => Type::Map { key: *key, value: Box::new(owned(value)) },
        Type::Opaque { domain, name } => {
            Type::Opaque { domain: domain.to_string().into(), name: name.to_string().into() }
        }
    }
}

/// A value by name, with its type where that is known.
pub(super) fn value_info(name: &str, types: &Types) -> ValueInfo<'static> {
    ValueInfo { name: name.to_string().into(), ty: types.of(name), ..ValueInfo::default() }
}

/// Protobuf counts in 31 bits; a little is left for the graph itself.
const MAX_FILE: usize = (i32::MAX as usize) - (16 << 20);

/// Writes a model as one file, weights included; gives its length.
/// [`crate::onnx`] has an example.
pub fn save(model: &Model<'_>, path: impl AsRef<Path>) -> Result<u64, Error> {
    let path = path.as_ref();
    let bytes = to_bytes(model)?;
    planish_files::write(path, |file| file.write_all(&bytes))
        .map_err(|error| Error::io("write", path, &error))?;
    Ok(bytes.len() as u64)
}

/// The model that these structures become, as [`crate::Model::open`] gives it of a file.
/// [`crate::onnx`] has an example.
pub fn to_model(model: &Model<'_>) -> Result<crate::Model, Error> {
    crate::Model::from_bytes(&Bytes::from_vec(to_bytes(model)?))
}

fn to_bytes(model: &Model<'_>) -> Result<Vec<u8>, Error> {
    let n_bytes = model.graph.initializers.iter().map(|tensor| tensor.byte_len().unwrap_or(0));
    let n_bytes = n_bytes.fold(0, usize::saturating_add);
    if n_bytes > MAX_FILE {
        let message = format!(
            "the weights take {n_bytes} bytes, one ONNX file holds at most {MAX_FILE}; take a part of the model with fewer"
        );
        return Err(Error::new(ErrorKind::BadModel, message));
    }
    Ok(planish_onnx::write(model))
}

fn unusable(path: &Path, error: &OnnxError) -> Error {
    Error::new(ErrorKind::BadModel, format!("{} is not a usable ONNX model: {error}", path.display()))
}
