//! One kernel alone, in memory of its own.

#![allow(unsafe_code)]

use planish_kernel::{Address, Backend, Call, KernelError, Problem, QueueOptions, Tactic, WeightUse};
use planish_tensor::{Bytes, Tensor};

/// Runs a kernel once on plain tensors; the outputs as plain tensors. Weights that the tactic wants packed are packed.
pub(crate) fn launch(
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
            None => Bytes::from_vec(Vec::<u8>::new()),
            Some(tensor) if operand.packed.is_some() => {
                backend.pack(WeightUse::new(problem, tactic, place), tensor)?.bytes
            }
            // What is in another order than plain has whole bytes; the rest is as it is.
            Some(tensor) => match operand.scatter(tensor.bytes()) {
                Some(scattered) => Bytes::from_vec(scattered),
                None => tensor.bytes().clone(),
            },
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
        let plain = operand.gather(bytes).ok_or_else(|| KernelError::unsupported("it cannot be gathered"))?;
        let tensor = Tensor::from_bytes(operand.dtype, &operand.dims, Bytes::from_vec(plain));
        results.push(tensor.map_err(|error| KernelError::unsupported(error.to_string()))?);
    }
    Ok(results)
}
