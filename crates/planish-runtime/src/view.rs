//! Tensors as callers hand them in and get them out: borrowed, typed, plain.

use std::fmt;

use planish_tensor::{Bytes, DType, Element, Tensor};

use crate::engine::Core;
use crate::error::{RunError, RunErrorKind};
use crate::frame::Frame;

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
        let expected = dtype.bytes_of(dims);
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

    /// The elements, if they are of this type and lie where it may be read. Booleans other than 0 and 1 have
    /// no slice.
    pub fn as_slice<T: Element>(&self) -> Option<&'a [T]> {
        elements_of(self.dtype, self.bytes)
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

/// Bytes as elements, if that is what they are.
pub(crate) fn elements_of<T: Element>(dtype: DType, bytes: &[u8]) -> Option<&[T]> {
    let valid = T::DTYPE == dtype
        && bytes.as_ptr().cast::<T>().is_aligned()
        && (dtype != DType::Bool || bytes.iter().all(|&byte| byte <= 1));
    // SAFETY: aligned, as many whole elements as fit, and every element type but bool accepts any bits; those
    // of bool were looked at.
    valid.then(|| unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>()) })
}

fn copied<T: Element>(bytes: &[u8]) -> Vec<T> {
    let mut elements = vec![T::default(); bytes.len() / size_of::<T>()];
    // SAFETY: both are this long, and the types this is called for accept any bits.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), elements.as_mut_ptr().cast(), size_of_val(&*elements));
    }
    elements
}

/// The outputs of a run, in the context's memory until its next run. Looking at them allocates nothing.
pub struct Outputs<'a> {
    pub(crate) core: &'a Core,
    pub(crate) frame: &'a Frame,
}

impl fmt::Debug for Outputs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outputs").field("names", &self.names()).finish_non_exhaustive()
    }
}

impl<'a> Outputs<'a> {
    pub fn names(&self) -> &'a [String] {
        &self.core.output_names
    }

    pub fn len(&self) -> usize {
        self.names().len()
    }

    pub fn is_empty(&self) -> bool {
        self.names().is_empty()
    }

    /// The tensor that is output `name`.
    pub fn get(&self, name: &str) -> Option<View<'a>> {
        self.at(self.names().iter().position(|known| known == name)?)
    }

    /// Output number `idx`, if it is a tensor.
    pub fn at(&self, idx: usize) -> Option<View<'a>> {
        self.frame.output(&self.core.unit, idx).0
    }

    /// Every output as a value of its own.
    pub fn to_values(&self) -> Vec<planish_op::Value> {
        let value = |idx| match self.frame.output(&self.core.unit, idx) {
            (Some(view), _) => planish_op::Value::Tensor(view.to_tensor()),
            (None, Some(other)) => other.clone(),
            (None, None) => planish_op::Value::Sequence(Vec::new()),
        };
        (0..self.len()).map(value).collect()
    }
}
