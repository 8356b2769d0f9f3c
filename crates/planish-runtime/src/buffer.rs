//! `HostBuffer`: memory of a caller's own for one tensor, aligned for every kernel, and `Bindings` of such
//! buffers to a model's inputs and outputs.

use planish_tensor::{DType, Element};

use crate::error::{RunError, RunErrorKind};
use crate::view::{View, elements_of};

/// A cache line and a vector.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// An owned tensor in memory that kernels read and write in place.
pub struct HostBuffer {
    dtype: DType,
    dims: Vec<usize>,
    lines: Vec<Line>,
}

impl std::fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostBuffer").field("dtype", &self.dtype).field("dims", &self.dims).finish()
    }
}

impl HostBuffer {
    /// All elements zero.
    pub fn zeros(dtype: DType, dims: &[usize]) -> Result<HostBuffer, RunError> {
        let bytes = planish_tensor::element_count(dims).and_then(|n| dtype.bytes_for(n));
        let n_lines = bytes.map(|bytes| bytes.div_ceil(size_of::<Line>()));
        let mut lines = Vec::new();
        if n_lines.is_none_or(|n_lines| lines.try_reserve_exact(n_lines).is_err()) {
            let message = format!("there is no memory for {} of shape {dims:?}", dtype.name());
            return Err(RunError::new(RunErrorKind::OutOfMemory, message));
        }
        lines.resize(n_lines.unwrap_or(0), Line([0; 64]));
        Ok(HostBuffer { dtype, dims: dims.to_vec(), lines })
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Bytes that a tensor in it can have.
    pub fn capacity(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: lines are plain bytes without padding, and hold at least the tensor's.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.n_bytes()) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let n_bytes = self.n_bytes();
        // SAFETY: lines are plain bytes without padding, and hold at least the tensor's.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), n_bytes) }
    }

    /// The elements, if they are of this type.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        elements_of(self.dtype, self.bytes())
    }

    /// The elements, if they are of this type.
    pub fn as_mut_slice<T: Element>(&mut self) -> Option<&mut [T]> {
        let n = self.as_slice::<T>()?.len();
        // SAFETY: `as_slice` found this many valid elements there; the memory is borrowed mutably.
        Some(unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), n) })
    }

    /// The tensor, borrowed.
    pub fn view(&self) -> View<'_> {
        View::from_bytes(self.dtype, &self.dims, self.bytes()).expect("the buffer has the bytes of its shape")
    }

    fn n_bytes(&self) -> usize {
        let n_bytes = planish_tensor::element_count(&self.dims).and_then(|n| self.dtype.bytes_for(n));
        // Checked when the sizes were set.
        n_bytes.unwrap_or(0).min(self.capacity())
    }

    /// Where kernels write; valid for the capacity until the buffer is dropped.
    pub(crate) fn pointer(&mut self) -> *mut u8 {
        self.lines.as_mut_ptr().cast()
    }

    /// Other sizes for the same memory; false when they do not fit in.
    pub(crate) fn set_dims(&mut self, dims: &[usize]) -> bool {
        let bytes = planish_tensor::element_count(dims).and_then(|n| self.dtype.bytes_for(n));
        let fits = bytes.is_some_and(|bytes| bytes <= self.capacity());
        if fits {
            self.dims.clear();
            self.dims.extend_from_slice(dims);
        }
        fits
    }
}

/// Buffers by the names of inputs and outputs. Outputs without a buffer stay in the context.
#[derive(Debug, Default)]
pub struct Bindings {
    pub(crate) inputs: Vec<(String, HostBuffer)>,
    pub(crate) outputs: Vec<(String, HostBuffer)>,
}

impl Bindings {
    pub fn new() -> Bindings {
        Bindings::default()
    }

    /// Reads input `name` from this buffer.
    pub fn input(mut self, name: &str, buffer: HostBuffer) -> Bindings {
        self.inputs.push((name.to_string(), buffer));
        self
    }

    /// Writes output `name` to this buffer, which must be large enough; its sizes become the output's.
    pub fn output(mut self, name: &str, buffer: HostBuffer) -> Bindings {
        self.outputs.push((name.to_string(), buffer));
        self
    }

    /// The buffer of an input, to be filled for the next run.
    pub fn input_mut(&mut self, name: &str) -> Option<&mut HostBuffer> {
        self.inputs.iter_mut().find(|(known, _)| known == name).map(|(_, buffer)| buffer)
    }

    /// The buffer of an output.
    pub fn get_output(&self, name: &str) -> Option<&HostBuffer> {
        self.outputs.iter().find(|(known, _)| known == name).map(|(_, buffer)| buffer)
    }

    /// Takes the buffer of an output out.
    pub fn take_output(&mut self, name: &str) -> Option<HostBuffer> {
        let idx = self.outputs.iter().position(|(known, _)| known == name)?;
        Some(self.outputs.swap_remove(idx).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_seen_by_their_own_type_only() {
        let mut buffer = HostBuffer::zeros(DType::F32, &[2, 3]).unwrap();
        buffer.as_mut_slice::<f32>().unwrap()[5] = 2.5;
        assert_eq!(buffer.as_slice::<f32>().unwrap(), [0.0, 0.0, 0.0, 0.0, 0.0, 2.5]);
        assert!(buffer.as_slice::<i32>().is_none());
        assert_eq!((buffer.bytes().len(), buffer.capacity()), (24, 64));
        assert_eq!(buffer.bytes().as_ptr().addr() % 64, 0);
        assert!(!buffer.set_dims(&[17]) && buffer.set_dims(&[16]));
        assert_eq!(buffer.view().dims(), [16]);
    }

    #[test]
    fn bytes_that_are_no_booleans_have_no_slice() {
        let mut buffer = HostBuffer::zeros(DType::Bool, &[2]).unwrap();
        assert_eq!(buffer.as_slice::<bool>().unwrap(), [false, false]);
        buffer.bytes_mut()[1] = 7;
        assert!(buffer.as_slice::<bool>().is_none() && buffer.as_mut_slice::<bool>().is_none());
    }

    #[test]
    fn a_size_beyond_memory_is_an_error() {
        let error = HostBuffer::zeros(DType::F32, &[usize::MAX, 2]).unwrap_err();
        assert_eq!(*error.kind(), RunErrorKind::OutOfMemory);
        assert_eq!(HostBuffer::zeros(DType::F32, &[0, 4]).unwrap().bytes().len(), 0);
    }
}
