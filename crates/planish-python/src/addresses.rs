//! Runs at addresses, as scripts for TensorRT and ONNX Runtime give them: whoever gives one vouches for it, as in C.

use planish::{Context, DType, DeviceTarget, DeviceView, ErrorKind, View};
use pyo3::prelude::*;

use crate::errors::{OrRaise, wrong};
use crate::port::dtype_of;
use crate::runs::Runs;

/// Of memory that kernels write, and that a GPU's kernels read.
const ALIGNMENT: u64 = 64;

/// Sizes of outputs, where they are known.
type Sizes = Vec<Option<Vec<usize>>>;

/// The types of the inputs and their bytes, after a look at what was given.
fn checked(
    py: Python<'_>,
    runs: &Runs,
    inputs: &[(u64, Vec<usize>)],
    outputs: &[(u64, usize)],
) -> PyResult<Vec<(DType, usize)>> {
    let (n_inputs, n_outputs) = (runs.inputs.len(), runs.outputs.len());
    if inputs.len() != n_inputs || outputs.len() != n_outputs {
        let message = format!(
            "the model has {n_inputs} inputs and {n_outputs} outputs, {} and {} addresses were given",
            inputs.len(),
            outputs.len()
        );
        return Err(wrong(py, ErrorKind::WrongInputs, message));
    }
    let mut known = Vec::with_capacity(n_inputs);
    for (port, (address, dims)) in runs.inputs.iter().zip(inputs) {
        let name = &port.name;
        let Some(dtype) = dtype_of(port) else {
            let message = format!("input `{name}` is not a tensor, and only tensors have addresses");
            return Err(wrong(py, ErrorKind::WrongType, message));
        };
        let n_bytes = dtype.bytes_of(dims).ok_or_else(|| {
            wrong(py, ErrorKind::WrongShape, format!("input `{name}` is larger than any memory"))
        })?;
        if *address == 0 && n_bytes > 0 {
            let message = format!("the address of input `{name}` is 0; give that of its memory");
            return Err(wrong(py, ErrorKind::WrongInputs, message));
        }
        known.push((dtype, n_bytes));
    }
    Ok(known)
}

/// Runs on host memory, and waits. Outputs that do not begin at a multiple of 64 bytes are copied there.
pub(crate) fn run_on_host(
    py: Python<'_>,
    runs: &Runs,
    context: &mut Context,
    inputs: &[(u64, Vec<usize>)],
    outputs: &[(u64, usize)],
) -> PyResult<Sizes> {
    let known = checked(py, runs, inputs, outputs)?;
    let mut views = Vec::with_capacity(inputs.len());
    for ((address, dims), (dtype, n_bytes)) in inputs.iter().zip(known) {
        let bytes: &[u8] = match n_bytes {
            0 => &[],
            // SAFETY: the caller vouches for this many bytes there, until the run is over.
            _ => unsafe {
                std::slice::from_raw_parts(std::ptr::with_exposed_provenance(*address as usize), n_bytes)
            },
        };
        views.push(View::from_bytes(dtype, dims, bytes).or_raise(py)?);
    }
    let mut in_place = vec![false; outputs.len()];
    for (idx, (port, &(address, room))) in runs.outputs.iter().zip(outputs).enumerate() {
        if address != 0 && room > 0 && address.is_multiple_of(ALIGNMENT) {
            let to = std::ptr::with_exposed_provenance_mut(address as usize);
            // SAFETY: the caller vouches for the room; all outputs are unbound below, whatever happens. Outputs that cannot
            // be written in place are copied.
            in_place[idx] = unsafe { context.bind_output(&port.name, to, room) }.is_ok();
        }
    }
    let result = py.detach(|| context.run_in_order(&views)).or_raise(py);
    let made = result.and_then(|()| {
        let each = runs.outputs.iter().zip(outputs).zip(&in_place).enumerate();
        each.map(|(idx, ((port, &(address, room)), &is_in_place))| {
            let view = context.output(idx);
            let view = view.ok_or_else(|| wrong(py, ErrorKind::Failed, "an output was not made"))?;
            if address != 0 && !is_in_place && !view.bytes().is_empty() {
                if view.bytes().len() > room {
                    let (name, needs) = (&port.name, view.bytes().len());
                    let message = format!("output `{name}` has {needs} bytes, there is room for {room}");
                    return Err(wrong(py, ErrorKind::WrongShape, message));
                }
                let to = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
                // SAFETY: the caller vouches for the room, which was compared, and it is none of the context's memory.
                unsafe { std::ptr::copy(view.bytes().as_ptr(), to, view.bytes().len()) };
                runs.count_copy();
            }
            Ok(Some(view.dims().to_vec()))
        })
        .collect()
    });
    context.unbind_outputs();
    made
}

/// Runs on memory of the engine's GPU: on a stream, where one is given, without waiting.
pub(crate) fn run_on_device(
    py: Python<'_>,
    runs: &Runs,
    context: &mut Context,
    inputs: &[(u64, Vec<usize>)],
    outputs: &[(u64, usize)],
    stream: Option<u64>,
) -> PyResult<Sizes> {
    let known = checked(py, runs, inputs, outputs)?;
    let mut all = inputs.iter().map(|(address, _)| address).chain(outputs.iter().map(|(address, _)| address));
    if all.any(|address| !address.is_multiple_of(ALIGNMENT)) {
        let message =
            format!("an address is not a multiple of {ALIGNMENT} bytes, which kernels of a GPU rely on");
        return Err(wrong(py, ErrorKind::WrongInputs, message));
    }
    let dims: Vec<&[usize]> = inputs.iter().map(|(_, dims)| &dims[..]).collect();
    let sizes = runs.output_sizes(context, &dims).or_raise(py)?;
    let mut views = Vec::with_capacity(inputs.len());
    for ((port, (address, dims)), (dtype, _)) in runs.inputs.iter().zip(inputs).zip(known) {
        // SAFETY: the caller vouches for the memory until the run is over; its alignment was looked at.
        views.push((port.name.as_str(), unsafe { DeviceView::from_raw(dtype, dims, *address) }));
    }
    let mut targets = Vec::with_capacity(outputs.len());
    for (port, &(address, room)) in runs.outputs.iter().zip(outputs) {
        if address != 0 && room > 0 {
            // SAFETY: as above.
            targets.push((port.name.as_str(), unsafe { DeviceTarget::from_raw(address, room) }));
        }
    }
    // SAFETY: the caller vouches for the memory and for the stream.
    py.detach(|| unsafe { context.run_device(&views, &targets, stream) }).or_raise(py)?;
    Ok(sizes)
}
