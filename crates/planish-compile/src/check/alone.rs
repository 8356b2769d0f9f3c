//! One kernel alone, in memory of its own.

#![allow(unsafe_code)]

use planish_kernel::{Address, Backend, Call, KernelError, Layout, Operand, Problem, QueueOptions, Tactic};
use planish_tensor::{Bytes, Tensor};

/// Runs a kernel once on plain tensors; the outputs as plain tensors. Weights that the tactic wants packed are packed.
pub(super) fn launch(
    backend: &dyn Backend,
    problem: &Problem,
    tactic: &Tactic,
    inputs: &[Option<Tensor>],
) -> Result<Vec<Tensor>, KernelError> {
    let kernel = backend.prepare(problem, tactic)?;
    let mut queue = backend.queue(QueueOptions::new(problem.threads))?;
    let mut memory = Vec::new();
    let mut addresses: Vec<Address> = Vec::new();
    for (place, (operand, tensor)) in problem.inputs.iter().zip(inputs).enumerate() {
        let bytes = match tensor {
            None => Vec::new(),
            Some(tensor) if operand.packed.is_some() => backend.pack(problem, tactic, place, tensor)?.bytes,
            Some(tensor) => scattered(operand, tensor.bytes()),
        };
        let own = backend.allocate(bytes.len())?;
        // SAFETY: the memory was just allocated with this length.
        unsafe { queue.upload(own.address(), &bytes)? };
        addresses.push(own.address());
        memory.push(own);
    }
    let mut outputs = Vec::new();
    for operand in &problem.outputs {
        let own = backend.allocate(operand.span_bytes())?;
        outputs.push(own.address());
        memory.push(own);
    }
    let workspace = backend.allocate(kernel.workspace_bytes())?;
    let call =
        Call { inputs: &addresses, outputs: &outputs, workspace: workspace.address(), fault: Address::NULL };
    // SAFETY: every operand has memory of its own that spans it, and nobody else touches it.
    unsafe { kernel.launch(&call, &mut *queue)? };
    queue.synchronize()?;
    let mut results = Vec::new();
    for (operand, &address) in problem.outputs.iter().zip(&outputs) {
        let mut bytes = vec![0; operand.span_bytes()];
        // SAFETY: the operand spans these bytes.
        unsafe { queue.download(&mut bytes, address)? };
        let plain = gathered(operand, bytes);
        let tensor = Tensor::from_bytes(operand.dtype, &operand.dims, Bytes::from_vec(plain));
        results.push(tensor.map_err(|error| KernelError::unsupported(error.to_string()))?);
    }
    Ok(results)
}

/// A plain tensor's bytes where the operand has its elements.
fn scattered(operand: &Operand, plain: &[u8]) -> Vec<u8> {
    let Some(size) = element_bytes(operand) else { return plain.to_vec() };
    let mut bytes = vec![0; operand.span_bytes()];
    let copy = |at: usize, to: usize, bytes: &mut [u8]| {
        bytes[to * size..(to + 1) * size].copy_from_slice(&plain[at * size..(at + 1) * size]);
    };
    for_each_place(operand, |at, to| copy(at, to, &mut bytes));
    bytes
}

/// The elements of an operand in plain order.
fn gathered(operand: &Operand, bytes: Vec<u8>) -> Vec<u8> {
    let Some(size) = element_bytes(operand) else { return bytes };
    let mut plain = vec![0; operand.len() * size];
    for_each_place(operand, |at, from| {
        plain[at * size..(at + 1) * size].copy_from_slice(&bytes[from * size..(from + 1) * size]);
    });
    plain
}

/// Bytes of an element; `None` where the bytes are in plain order anyway.
fn element_bytes(operand: &Operand) -> Option<usize> {
    let is_plain = operand.is_dense(Layout::Plain) || operand.dtype.is_sub_byte();
    operand.dtype.bytes_for(1).filter(|_| !is_plain)
}

/// Shows each element's number in plain order and its place in memory, counted in elements.
fn for_each_place(operand: &Operand, mut see: impl FnMut(usize, usize)) {
    if operand.is_empty() {
        return;
    }
    let (Some((&n_inner, dims)), Some((&stride, strides))) =
        (operand.dims.split_last(), operand.strides.split_last())
    else {
        return see(0, 0);
    };
    let mut index = vec![0usize; dims.len()];
    for row in 0..dims.iter().product() {
        let first: usize = index.iter().zip(strides).map(|(place, stride)| place * stride).sum();
        for place in 0..n_inner {
            see(row * n_inner + place, first + place * stride);
        }
        for axis in (0..index.len()).rev() {
            index[axis] += 1;
            if index[axis] < dims[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}
