//! Tensors as callers hand them in and get them out: borrowed, typed, plain.

use planish_tensor::{Bytes, DType, Element, Tensor};

use crate::error::{RunError, RunErrorKind};

/// A borrowed plain tensor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct View<'a> {
    dtype: DType,
    dims: &'a [usize],
    bytes: &'a [u8],
}

impl<'a> View<'a> {
    /// A view of `data` as a tensor of these sizes.
    pub fn new<T: Element>(dims: &'a [usize], data: &'a [T]) -> Result<View<'a>, RunError> {
        // SAFETY: elements are plain data without padding, so their memory is initialized bytes.
        let bytes = unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), size_of_val(data)) };
        View::from_bytes(T::DTYPE, dims, bytes)
    }

    /// A view of little-endian packed bytes.
    pub fn from_bytes(dtype: DType, dims: &'a [usize], bytes: &'a [u8]) -> Result<View<'a>, RunError> {
        let expected = planish_tensor::element_count(dims).and_then(|n| dtype.bytes_for(n));
        if expected != Some(bytes.len()) {
            let message = format!("{} of shape {dims:?} does not have {} bytes", dtype.name(), bytes.len());
            return Err(RunError::new(RunErrorKind::WrongShape, message));
        }
        Ok(View { dtype, dims, bytes })
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn dims(&self) -> &'a [usize] {
        self.dims
    }

    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// A copy that owns its memory.
    pub fn to_tensor(&self) -> Tensor {
        let dtype = self.dtype;
        let shape = self.dims;
        let owned = match dtype {
            // Aligned memory for the types that kernels and callers read as slices.
            DType::F32 => Bytes::from_vec(copied::<f32>(self.bytes)),
            DType::F64 => Bytes::from_vec(copied::<f64>(self.bytes)),
            DType::I64 => Bytes::from_vec(copied::<i64>(self.bytes)),
            DType::I32 => Bytes::from_vec(copied::<i32>(self.bytes)),
            _ => Bytes::from_vec(self.bytes.to_vec()),
        };
        Tensor::from_bytes(dtype, shape, owned).expect("a view has the bytes of its shape")
    }
}

impl<'a> From<&'a Tensor> for View<'a> {
    fn from(tensor: &'a Tensor) -> View<'a> {
        View { dtype: tensor.dtype(), dims: tensor.shape(), bytes: tensor.bytes() }
    }
}

fn copied<T: Element>(bytes: &[u8]) -> Vec<T> {
    let mut elements = vec![T::default(); bytes.len() / size_of::<T>()];
    // SAFETY: both are this long, and the types this is called for accept any bits.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), elements.as_mut_ptr().cast(), size_of_val(&*elements));
    }
    elements
}

/// The outputs of a run, in the context's memory until its next run.
#[derive(Debug)]
pub struct Outputs<'a> {
    pub(crate) names: &'a [String],
    pub(crate) values: Vec<Option<View<'a>>>,
    /// Sequences and optionals, which have no view.
    pub(crate) others: Vec<Option<planish_op::Value>>,
}

impl<'a> Outputs<'a> {
    pub fn names(&self) -> &'a [String] {
        self.names
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The tensor that is output `name`.
    pub fn get(&self, name: &str) -> Option<View<'a>> {
        let idx = self.names.iter().position(|known| known == name)?;
        self.values[idx]
    }

    /// Output number `idx`, if it is a tensor.
    pub fn at(&self, idx: usize) -> Option<View<'a>> {
        self.values.get(idx).copied().flatten()
    }

    /// Every output as a value of its own.
    pub fn to_values(&self) -> Vec<planish_op::Value> {
        let tensor = |view: &View<'_>| planish_op::Value::Tensor(view.to_tensor());
        self.values
            .iter()
            .zip(&self.others)
            .map(|(view, other)| match (view, other) {
                (Some(view), _) => tensor(view),
                (None, Some(other)) => other.clone(),
                (None, None) => planish_op::Value::Sequence(Vec::new()),
            })
            .collect()
    }
}
