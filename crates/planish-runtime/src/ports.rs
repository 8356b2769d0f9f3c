//! Buffers for a model's inputs and outputs, checked against what the model says of them.

use std::sync::Arc;

use planish_kernel::Backend;
use planish_tensor::DType;

use crate::buffer::{Buffer, HostBuffer};
use crate::engine::Core;
use crate::error::{RunError, RunErrorKind};

/// The plan's device.
pub(crate) fn device_of(core: &Core) -> Result<Arc<dyn Backend>, RunError> {
    Ok(core.backends[core.device()? as usize].clone())
}

/// Refuses a buffer in the memory of another device than the plan's, or where the plan has none.
pub(crate) fn check_site(core: &Core, what: &str, name: &str, buffer: &Buffer) -> Result<(), RunError> {
    let Buffer::Device(buffer) = buffer else { return Ok(()) };
    if buffer.is_of(&*device_of(core)?) {
        return Ok(());
    }
    let message = format!(
        "the buffer of {what} `{name}` lies on another device than the plan's; make it by a context of this plan"
    );
    Err(RunError::new(RunErrorKind::WrongInputs, message))
}

/// A buffer for an input or output, pinned where the plan has a device.
pub(crate) fn buffer(
    core: &Core,
    what: &str,
    name: &str,
    value: u32,
    dims: &[usize],
) -> Result<HostBuffer, RunError> {
    let dtype = checked(core, what, name, value, dims)?;
    let bytes = dtype.bytes_of(dims);
    match (&core.pinning, bytes.map(|bytes| core.pinned(bytes.max(1))).transpose()?.flatten()) {
        (Some(by), Some(memory)) => Ok(HostBuffer::pinned(dtype, dims, memory, by.clone())),
        _ => HostBuffer::zeros(dtype, dims),
    }
}

/// The type of an input or output, its rank checked; sizes are when it is used.
pub(crate) fn checked(
    core: &Core,
    what: &str,
    name: &str,
    value: u32,
    dims: &[usize],
) -> Result<DType, RunError> {
    let ty = &core.plan.program.values[value as usize].ty;
    let Some(tensor) = ty.as_tensor() else {
        let message = format!("{what} `{name}` is not a tensor; use run_values");
        return Err(RunError::new(RunErrorKind::WrongType, message));
    };
    if let Some(shape) = &tensor.shape
        && shape.rank() != dims.len()
    {
        let message = format!("{what} `{name}` has shape {shape}, not {dims:?}");
        return Err(RunError::new(RunErrorKind::WrongShape, message));
    }
    Ok(tensor.dtype)
}
