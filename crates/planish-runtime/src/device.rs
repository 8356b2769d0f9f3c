//! Tensors in a device's memory: owned buffers, and views of memory that a caller vouches for.

use std::sync::Arc;

use planish_kernel::{Address, Backend, Memory, QueueOptions};
use planish_tensor::DType;

use crate::buffer::resize;
use crate::error::{RunError, RunErrorKind};
use crate::view::View;

/// A plain tensor in a device's memory that the caller owns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DeviceView<'a> {
    pub(crate) dtype: DType,
    pub(crate) dims: &'a [usize],
    pub(crate) address: Address,
}

impl<'a> DeviceView<'a> {
    /// A view of memory at a device address, as the device's own interface names it (a `CUdeviceptr`).
    ///
    /// # Safety
    /// A plain tensor of this type and these sizes must be there, in memory of the device that the plan runs on,
    /// aligned to 64 bytes, and stay there untouched by others for as long as a run that was given it is under
    /// way.
    pub unsafe fn from_raw(dtype: DType, dims: &'a [usize], address: u64) -> DeviceView<'a> {
        DeviceView { dtype, dims, address: Address(address) }
    }

    pub fn dims(&self) -> &'a [usize] {
        self.dims
    }
}

/// Where a run writes an output in a device's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceTarget {
    pub(crate) address: Address,
    pub(crate) bytes: usize,
}

impl DeviceTarget {
    /// Memory at a device address.
    ///
    /// # Safety
    /// As for [`DeviceView::from_raw`], writable for `bytes`.
    pub unsafe fn from_raw(address: u64, bytes: usize) -> DeviceTarget {
        DeviceTarget { address: Address(address), bytes }
    }
}

/// Whether addresses of one backend mean the same to the other.
pub(crate) fn is_one_memory(one: &dyn Backend, other: &dyn Backend) -> bool {
    one.name() == other.name() && one.memory_space() == other.memory_space()
}

/// An owned tensor in a device's memory: what a run reads and writes there without a transfer.
pub struct DeviceBuffer {
    dtype: DType,
    dims: Vec<usize>,
    memory: Box<dyn Memory>,
    backend: Arc<dyn Backend>,
}

impl std::fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceBuffer").field("dtype", &self.dtype).field("dims", &self.dims).finish()
    }
}

impl DeviceBuffer {
    /// All bytes zero.
    pub(crate) fn zeros(
        backend: Arc<dyn Backend>,
        dtype: DType,
        dims: &[usize],
    ) -> Result<DeviceBuffer, RunError> {
        let mut buffer = DeviceBuffer::room(backend, dtype, dims)?;
        buffer.write(&vec![0; buffer.n_bytes()])?;
        Ok(buffer)
    }

    /// Of these sizes, whatever its bytes are now.
    pub(crate) fn room(
        backend: Arc<dyn Backend>,
        dtype: DType,
        dims: &[usize],
    ) -> Result<DeviceBuffer, RunError> {
        let bytes = dtype.bytes_of(dims).ok_or_else(|| {
            let message = format!("there is no memory for {} of shape {dims:?}", dtype.name());
            RunError::new(RunErrorKind::OutOfMemory, message)
        })?;
        let mut buffer = DeviceBuffer::with_capacity(backend, dtype, bytes)?;
        buffer.dims = dims.to_vec();
        Ok(buffer)
    }

    /// Room for so many bytes, whatever they are now, and no elements yet.
    pub(crate) fn with_capacity(
        backend: Arc<dyn Backend>,
        dtype: DType,
        bytes: usize,
    ) -> Result<DeviceBuffer, RunError> {
        let memory = backend.allocate(bytes)?;
        Ok(DeviceBuffer { dtype, dims: vec![0], memory, backend })
    }

    /// A tensor of these sizes in memory that has room for it, whatever is there now.
    pub(crate) fn over(
        backend: Arc<dyn Backend>,
        dtype: DType,
        dims: &[usize],
        memory: Box<dyn Memory>,
    ) -> DeviceBuffer {
        DeviceBuffer { dtype, dims: dims.to_vec(), memory, backend }
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Where it lies, as the device's own interface names it (a `CUdeviceptr`).
    pub fn address(&self) -> u64 {
        self.memory.address().0
    }

    /// Bytes that a tensor in it can have.
    pub fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// Copies a tensor of the buffer's type into it and takes its sizes over.
    pub fn upload(&mut self, from: View<'_>) -> Result<(), RunError> {
        if from.dtype() != self.dtype {
            let message = format!("a buffer for {} was given {}", self.dtype.name(), from.dtype().name());
            return Err(RunError::new(RunErrorKind::WrongType, message));
        }
        if !self.set_dims(from.dims()) {
            let (needs, has) = (from.bytes().len(), self.capacity());
            let message = format!("a tensor of {needs} bytes does not fit a buffer of {has}");
            return Err(RunError::new(RunErrorKind::WrongShape, message));
        }
        self.write(from.bytes())
    }

    /// Makes its elements zeros.
    pub(crate) fn clear(&mut self) -> Result<(), RunError> {
        let bytes = vec![0; self.n_bytes()];
        self.write(&bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), RunError> {
        let mut queue = self.backend.queue(QueueOptions::new(1))?;
        // SAFETY: the memory is the buffer's own and at least this long; `&mut` keeps others away.
        unsafe { queue.upload(self.memory.address(), bytes)? };
        Ok(queue.synchronize()?)
    }

    /// A copy of its bytes.
    pub fn download(&self) -> Result<Vec<u8>, RunError> {
        let mut bytes = vec![0; self.n_bytes()];
        let mut queue = self.backend.queue(QueueOptions::new(1))?;
        // SAFETY: the memory is the buffer's own, holds at least these bytes, and no run writes it: a run owns the
        // buffers that it was given.
        unsafe { queue.download(&mut bytes, self.memory.address())? };
        Ok(bytes)
    }

    pub(crate) fn set_dims(&mut self, dims: &[usize]) -> bool {
        let capacity = self.capacity();
        resize(&mut self.dims, dims, self.dtype, capacity)
    }

    fn n_bytes(&self) -> usize {
        let n_bytes = self.dtype.bytes_of(&self.dims);
        n_bytes.unwrap_or(0).min(self.capacity())
    }

    /// Whether a device's kernels can use it where it lies.
    pub(crate) fn is_of(&self, device: &dyn Backend) -> bool {
        is_one_memory(&*self.backend, device)
    }

    /// The tensor where it lies.
    pub(crate) fn view(&self) -> DeviceView<'_> {
        DeviceView { dtype: self.dtype, dims: &self.dims, address: self.memory.address() }
    }

    pub(crate) fn target(&self) -> DeviceTarget {
        DeviceTarget { address: self.memory.address(), bytes: self.capacity() }
    }
}
