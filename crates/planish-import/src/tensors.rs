//! ONNX tensors to ours: borrowed from the mapped file where the encoding allows, external data included.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use planish_onnx::{SparseTensor, TensorData};
use planish_op::Value;
use planish_tensor::{Bytes, Tensor};

use crate::error::{ImportError, ImportErrorKind};
use crate::types::dtype;

/// Where the model comes from, beside which its external data lies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'p> {
    File(&'p Path),
    Folder(&'p Path),
    Memory,
}

/// Where weights come from: the model's own bytes and the files beside it.
#[derive(Debug)]
pub(crate) struct Weights<'p> {
    model: Bytes,
    place: Place<'p>,
    /// External files, each mapped once.
    mapped: HashMap<PathBuf, Bytes>,
    /// Bytes of constants that were made rather than found in a file.
    n_made: usize,
}

/// Constants that are not in the file as they are (dense forms of sparse ones, unpacked zero points) may take
/// this much, whatever the size of the file.
const MADE_FLOOR: usize = 64 << 20;

/// Beyond the floor, they may take this many bytes per byte of file. The dense form of a tensor of which one
/// element in a hundred is stored, with its index, takes 33.
const MADE_PER_BYTE: usize = 64;

impl<'p> Weights<'p> {
    pub(crate) fn new(model: Bytes, place: Place<'p>) -> Weights<'p> {
        Weights { model, place, mapped: HashMap::new(), n_made: 0 }
    }

    /// Counts a constant that is about to be made.
    pub(crate) fn charge(&mut self, n_bytes: usize) -> Result<(), ImportError> {
        self.n_made = self.n_made.saturating_add(n_bytes);
        let most = self.model.len().saturating_mul(MADE_PER_BYTE).saturating_add(MADE_FLOOR);
        if self.n_made <= most {
            return Ok(());
        }
        let detail = format!("constants that are not in the file would take more than {} MiB", most >> 20);
        Err(ImportError::new(ImportErrorKind::TooLarge { detail }))
    }

    /// What was counted so far, to be given back if what it was made for is thrown away.
    pub(crate) fn charged(&self) -> usize {
        self.n_made
    }

    pub(crate) fn uncharge_to(&mut self, n_made: usize) {
        self.n_made = n_made;
    }

    pub(crate) fn tensor(&mut self, tensor: &planish_onnx::Tensor<'_>) -> Result<Tensor, ImportError> {
        let dtype = dtype(tensor.data_type)?;
        tensor.element_count()?;
        let shape = dims(&tensor.dims)?;
        let data = match &tensor.data {
            TensorData::External(external) => self.external(external, tensor)?,
            _ => self.bytes(tensor.to_le_bytes()?),
        };
        Tensor::from_bytes(dtype, &shape, data).map_err(|error| ImportError::invalid(error.to_string()))
    }

    pub(crate) fn sparse(&mut self, sparse: &SparseTensor<'_>) -> Result<Tensor, ImportError> {
        let dtype = dtype(sparse.values.data_type)?;
        let shape = dims(&sparse.dims)?;
        self.charge(sparse.dense_byte_len()?)?;
        let data = Bytes::from_vec(sparse.to_dense_le_bytes()?);
        Tensor::from_bytes(dtype, &shape, data).map_err(|error| ImportError::invalid(error.to_string()))
    }

    /// Shares the file's memory where the data was borrowed from it.
    fn bytes(&self, data: Cow<'_, [u8]>) -> Bytes {
        match data {
            Cow::Borrowed(part) => {
                self.model.slice_of(part).unwrap_or_else(|| Bytes::from_vec(part.to_vec()))
            }
            Cow::Owned(data) => Bytes::from_vec(data),
        }
    }

    fn external(
        &mut self,
        external: &planish_onnx::External<'_>,
        tensor: &planish_onnx::Tensor<'_>,
    ) -> Result<Bytes, ImportError> {
        let path = match self.place {
            Place::File(model) => planish_onnx::external_path_beside(model, external)?,
            Place::Folder(folder) => planish_onnx::external_path(folder, external)?,
            Place::Memory => {
                let detail = "the model keeps weights in other files, but was not read from a folder";
                return Err(ImportError::invalid(detail).hint("give the path of the model's file"));
            }
        };
        let file = match self.mapped.get(&path) {
            Some(bytes) => bytes.clone(),
            None => {
                let bytes = planish_files::open_canonical(&path)
                    .and_then(|file| Bytes::map_opened(&file))
                    .map_err(|error| ImportError::new(ImportErrorKind::Io { path: path.clone(), error }))?;
                self.mapped.insert(path.clone(), bytes.clone());
                bytes
            }
        };
        let range = external.range(tensor, file.len() as u64)?;
        let slice = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
        slice
            .and_then(|(start, end)| file.slice(start..end))
            .ok_or_else(|| ImportError::invalid(format!("{} is too short", path.display())))
    }
}

fn dims(dims: &[i64]) -> Result<Vec<usize>, ImportError> {
    dims.iter()
        .map(|&dim| {
            usize::try_from(dim)
                .map_err(|_| ImportError::invalid(format!("a tensor has the dimension {dim}")))
        })
        .collect()
}

/// A tensor of a file beside a model (test data, calibration data), copied.
pub fn tensor(tensor: &planish_onnx::Tensor<'_>) -> Result<Tensor, ImportError> {
    Weights::new(Bytes::from_vec(Vec::<u8>::new()), Place::Memory).tensor(tensor)
}

/// A value of a file beside a model, copied.
pub fn value(value: &planish_onnx::Value<'_>) -> Result<Value, ImportError> {
    Ok(match value {
        planish_onnx::Value::Tensor(dense) => Value::Tensor(tensor(dense)?),
        planish_onnx::Value::SparseTensor(sparse) => {
            Value::Tensor(Weights::new(Bytes::from_vec(Vec::<u8>::new()), Place::Memory).sparse(sparse)?)
        }
        planish_onnx::Value::Sequence(sequence) => {
            Value::Sequence(sequence.values.iter().map(self::value).collect::<Result<_, _>>()?)
        }
        planish_onnx::Value::Optional(optional) => {
            let inner = optional.value.as_deref().map(self::value).transpose()?;
            Value::Optional(inner.map(Box::new))
        }
    })
}
