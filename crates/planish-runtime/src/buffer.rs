//! `HostBuffer`: memory of a caller's own for one tensor, aligned for every kernel, and `Bindings` of such
//! buffers to a model's inputs and outputs.

use std::sync::Arc;

use planish_kernel::{Address, Backend, Memory};
use planish_tensor::{DType, Element};

use crate::device::{DeviceBuffer, is_one_memory};
use crate::error::{RunError, RunErrorKind};
use crate::view::{View, elements_of};

/// A cache line and a vector.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// An owned tensor in memory that kernels read and write in place; a context over a device makes it pinned, so that
/// copies to and from the device need no copy between.
pub struct HostBuffer {
    dtype: DType,
    dims: Vec<usize>,
    storage: Storage,
}

enum Storage {
    Lines(Vec<Line>),
    /// Host memory of a device's making, and that device.
    Pinned(Box<dyn Memory>, Arc<dyn Backend>),
}

impl std::fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostBuffer").field("dtype", &self.dtype).field("dims", &self.dims).finish()
    }
}

impl HostBuffer {
    /// All elements zero.
    pub fn zeros(dtype: DType, dims: &[usize]) -> Result<HostBuffer, RunError> {
        let bytes = dtype.bytes_of(dims);
        let n_lines = bytes.map(|bytes| bytes.div_ceil(size_of::<Line>()));
        let mut lines = Vec::new();
        if n_lines.is_none_or(|n_lines| lines.try_reserve_exact(n_lines).is_err()) {
            let message = format!("there is no memory for {} of shape {dims:?}", dtype.name());
            return Err(RunError::new(RunErrorKind::OutOfMemory, message));
        }
        lines.resize(n_lines.unwrap_or(0), Line([0; 64]));
        Ok(HostBuffer { dtype, dims: dims.to_vec(), storage: Storage::Lines(lines) })
    }

    /// All elements zero, in memory that a device pinned: at least the bytes of these sizes.
    pub(crate) fn pinned(
        dtype: DType,
        dims: &[usize],
        memory: Box<dyn Memory>,
        by: Arc<dyn Backend>,
    ) -> HostBuffer {
        let mut buffer = HostBuffer { dtype, dims: dims.to_vec(), storage: Storage::Pinned(memory, by) };
        let (start, capacity) = (buffer.pointer(), buffer.capacity());
        // SAFETY: the memory is the buffer's own and this long.
        unsafe { std::ptr::write_bytes(start, 0, capacity) };
        buffer
    }

    /// Whether it is pinned for this device; what another one pinned is ordinary memory to it.
    pub(crate) fn is_pinned_by(&self, device: Option<&Arc<dyn Backend>>) -> bool {
        match (&self.storage, device) {
            (Storage::Pinned(_, by), Some(device)) => is_one_memory(&**by, &**device),
            _ => false,
        }
    }

    fn start(&self) -> *const u8 {
        match &self.storage {
            Storage::Lines(lines) => lines.as_ptr().cast(),
            Storage::Pinned(memory, _) => std::ptr::with_exposed_provenance(memory.address().0 as usize),
        }
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Bytes that a tensor in it can have.
    pub fn capacity(&self) -> usize {
        match &self.storage {
            Storage::Lines(lines) => lines.len() * size_of::<Line>(),
            Storage::Pinned(memory, _) => memory.len(),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        if self.n_bytes() == 0 {
            return &[];
        }
        // SAFETY: the memory is initialized bytes, at least the tensor's.
        unsafe { std::slice::from_raw_parts(self.start(), self.n_bytes()) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let n_bytes = self.n_bytes();
        if n_bytes == 0 {
            return &mut [];
        }
        // SAFETY: the memory is initialized bytes, at least the tensor's.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(), n_bytes) }
    }

    /// The elements, if they are of this type.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        elements_of(self.dtype, self.bytes())
    }

    /// The elements, if they are of this type.
    pub fn as_mut_slice<T: Element>(&mut self) -> Option<&mut [T]> {
        let n = self.as_slice::<T>()?.len();
        // SAFETY: `as_slice` found this many valid elements there; the memory is borrowed mutably.
        Some(unsafe { std::slice::from_raw_parts_mut(self.pointer().cast(), n) })
    }

    /// The tensor, borrowed.
    pub fn view(&self) -> View<'_> {
        View::from_bytes(self.dtype, &self.dims, self.bytes()).expect("the buffer has the bytes of its shape")
    }

    fn n_bytes(&self) -> usize {
        let n_bytes = self.dtype.bytes_of(&self.dims);
        // Checked when the sizes were set.
        n_bytes.unwrap_or(0).min(self.capacity())
    }

    /// Where kernels write; valid for the capacity until the buffer is dropped.
    pub(crate) fn pointer(&mut self) -> *mut u8 {
        match &mut self.storage {
            Storage::Lines(lines) => lines.as_mut_ptr().cast(),
            Storage::Pinned(memory, _) => std::ptr::with_exposed_provenance_mut(memory.address().0 as usize),
        }
    }

    /// Other sizes for the same memory; false when they do not fit in.
    pub(crate) fn set_dims(&mut self, dims: &[usize]) -> bool {
        let capacity = self.capacity();
        resize(&mut self.dims, dims, self.dtype, capacity)
    }
}

/// Gives a buffer of so many bytes other sizes; false when they do not fit in.
pub(crate) fn resize(own: &mut Vec<usize>, dims: &[usize], dtype: DType, capacity: usize) -> bool {
    let fits = dtype.bytes_of(dims).is_some_and(|bytes| bytes <= capacity);
    if fits {
        own.clear();
        own.extend_from_slice(dims);
    }
    fits
}

/// A buffer in host memory or on a device.
#[derive(Debug)]
pub enum Buffer {
    Host(HostBuffer),
    Device(DeviceBuffer),
}

impl From<HostBuffer> for Buffer {
    fn from(buffer: HostBuffer) -> Buffer {
        Buffer::Host(buffer)
    }
}

impl From<DeviceBuffer> for Buffer {
    fn from(buffer: DeviceBuffer) -> Buffer {
        Buffer::Device(buffer)
    }
}

impl Buffer {
    pub(crate) fn dtype(&self) -> DType {
        match self {
            Buffer::Host(buffer) => buffer.dtype(),
            Buffer::Device(buffer) => buffer.dtype(),
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        match self {
            Buffer::Host(buffer) => buffer.capacity(),
            Buffer::Device(buffer) => buffer.capacity(),
        }
    }

    /// Takes sizes over if they fit.
    pub(crate) fn set_dims(&mut self, dims: &[usize]) -> bool {
        match self {
            Buffer::Host(buffer) => buffer.set_dims(dims),
            Buffer::Device(buffer) => buffer.set_dims(dims),
        }
    }

    pub(crate) fn dims(&self) -> &[usize] {
        match self {
            Buffer::Host(buffer) => buffer.dims(),
            Buffer::Device(buffer) => buffer.dims(),
        }
    }

    /// Where its elements are.
    pub(crate) fn address(&self) -> Address {
        match self {
            Buffer::Host(buffer) => Address(buffer.start().expose_provenance() as u64),
            Buffer::Device(buffer) => buffer.target().address,
        }
    }

    fn host(&self) -> Option<&HostBuffer> {
        match self {
            Buffer::Host(buffer) => Some(buffer),
            Buffer::Device(_) => None,
        }
    }
}

/// Buffers by the names of inputs and outputs. Outputs without a buffer stay in the context.
#[derive(Debug, Default)]
pub struct Bindings {
    pub(crate) inputs: Vec<(String, Buffer)>,
    pub(crate) outputs: Vec<(String, Buffer)>,
}

impl Bindings {
    pub fn new() -> Bindings {
        Bindings::default()
    }

    /// Reads input `name` from this buffer.
    pub fn input(mut self, name: &str, buffer: impl Into<Buffer>) -> Bindings {
        self.inputs.push((name.to_string(), buffer.into()));
        self
    }

    /// Writes output `name` to this buffer, which must be large enough; its sizes become the output's.
    pub fn output(mut self, name: &str, buffer: impl Into<Buffer>) -> Bindings {
        self.outputs.push((name.to_string(), buffer.into()));
        self
    }

    /// The host buffer of an input, to be filled for the next run.
    pub fn input_mut(&mut self, name: &str) -> Option<&mut HostBuffer> {
        self.inputs.iter_mut().find(|(known, _)| known == name).and_then(|(_, buffer)| match buffer {
            Buffer::Host(buffer) => Some(buffer),
            Buffer::Device(_) => None,
        })
    }

    /// The device buffer of an input, to be filled for the next run.
    pub fn device_input_mut(&mut self, name: &str) -> Option<&mut DeviceBuffer> {
        self.inputs.iter_mut().find(|(known, _)| known == name).and_then(|(_, buffer)| match buffer {
            Buffer::Device(buffer) => Some(buffer),
            Buffer::Host(_) => None,
        })
    }

    /// Bytes of all its buffers on a device.
    pub fn device_bytes(&self) -> usize {
        let bytes = |(_, buffer): &(String, Buffer)| match buffer {
            Buffer::Device(buffer) => buffer.capacity(),
            Buffer::Host(_) => 0,
        };
        self.inputs.iter().chain(&self.outputs).map(bytes).sum()
    }

    /// The host buffer of an output.
    pub fn get_output(&self, name: &str) -> Option<&HostBuffer> {
        self.outputs.iter().find(|(known, _)| known == name).and_then(|(_, buffer)| buffer.host())
    }

    /// The device buffer of an output.
    pub fn device_output(&self, name: &str) -> Option<&DeviceBuffer> {
        self.outputs.iter().find(|(known, _)| known == name).and_then(|(_, buffer)| match buffer {
            Buffer::Device(buffer) => Some(buffer),
            Buffer::Host(_) => None,
        })
    }

    /// Takes the buffer of an input out, wherever it lies.
    pub fn take_input(&mut self, name: &str) -> Option<Buffer> {
        let idx = self.inputs.iter().position(|(known, _)| known == name)?;
        Some(self.inputs.swap_remove(idx).1)
    }

    /// Takes the buffer of an output out, wherever it lies: to be an input of the next run, say.
    pub fn take_output_buffer(&mut self, name: &str) -> Option<Buffer> {
        let idx = self.outputs.iter().position(|(known, _)| known == name)?;
        Some(self.outputs.swap_remove(idx).1)
    }

    /// Takes the host buffer of an output out.
    pub fn take_output(&mut self, name: &str) -> Option<HostBuffer> {
        let wanted = |(known, buffer): &(String, Buffer)| known == name && buffer.host().is_some();
        let idx = self.outputs.iter().position(wanted)?;
        match self.outputs.swap_remove(idx).1 {
            Buffer::Host(buffer) => Some(buffer),
            Buffer::Device(_) => None,
        }
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
    fn a_buffer_goes_from_an_output_to_an_input_and_back() {
        let mut first = Bindings::new().output("y", HostBuffer::zeros(DType::F32, &[4]).unwrap());
        let buffer = first.take_output_buffer("y").unwrap();
        assert!(first.take_output_buffer("y").is_none() && first.take_output("y").is_none());
        let mut second = Bindings::new().input("x", buffer);
        second.input_mut("x").unwrap().bytes_mut()[0] = 1;
        assert!(second.take_input("y").is_none());
        let buffer = second.take_input("x").unwrap();
        assert_eq!(buffer.host().unwrap().bytes()[0], 1);
        assert!(second.take_input("x").is_none());
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
