//! Kernels on this machine's GPU.

use std::sync::OnceLock;

use planish_kernel::{Address, Call, Candidate, Device, Problem, QueueOptions};

use crate::backend::Cuda;

/// The GPU of this machine, if it has one.
pub(crate) fn cuda() -> Option<&'static Cuda> {
    static CUDA: OnceLock<Option<Cuda>> = OnceLock::new();
    CUDA.get_or_init(|| match Cuda::open(0) {
        Ok(cuda) => Some(cuda),
        Err(error) => {
            println!("no GPU ({error}): kernels run on the host instead");
            None
        }
    })
    .as_ref()
}

pub(super) fn on_device(
    cuda: &Cuda,
    problem: &Problem,
    candidate: &Candidate,
    from: &[Vec<u8>],
    to: &mut [Vec<u8>],
) {
    let kernel = cuda.prepare(problem, &candidate.tactic).unwrap();
    let mut queue = cuda.queue(QueueOptions::new(1)).unwrap();
    let memory = |bytes: &[u8]| cuda.allocate(bytes.len().max(64)).unwrap();
    let inputs: Vec<_> = from.iter().map(|bytes| memory(bytes)).collect();
    let outputs: Vec<_> = to.iter().map(|bytes| memory(bytes)).collect();
    let workspace = cuda.allocate(kernel.workspace_bytes().max(64)).unwrap();
    // SAFETY: every address is memory of this backend, as large as what is copied or spanned, and used by
    // this queue alone until it is synchronized.
    unsafe {
        for (memory, bytes) in inputs.iter().zip(from).chain(outputs.iter().zip(to.iter())) {
            queue.upload(memory.address(), bytes).unwrap();
        }
        // Anything may lie in workspace; NaN is what would show.
        queue.upload(workspace.address(), &vec![0xff; kernel.workspace_bytes()]).unwrap();
        let inputs: Vec<Address> = inputs.iter().map(|memory| memory.address()).collect();
        let addresses: Vec<Address> = outputs.iter().map(|memory| memory.address()).collect();
        let call = Call {
            inputs: &inputs,
            outputs: &addresses,
            workspace: workspace.address(),
            fault: Address::NULL,
        };
        kernel.launch(&call, queue.as_mut()).unwrap();
        for (memory, bytes) in outputs.iter().zip(to.iter_mut()) {
            queue.download(bytes, memory.address()).unwrap();
        }
        queue.synchronize().unwrap();
    }
}
