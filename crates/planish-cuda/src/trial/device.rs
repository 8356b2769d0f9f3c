//! Kernels on this machine's GPU: one run, and the time of many.

use std::sync::OnceLock;

use planish_kernel::{Address, Backend, Call, Candidate, Problem, QueueOptions};

use super::{Numbers, lie};
use crate::backend::Cuda;
use crate::steps::Planner;

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
        // Anything may lie in scratch memory; NaN is what would show.
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

/// Microseconds of one run of a candidate among many in a recording, data mostly in the second-level cache.
pub(super) fn microseconds(
    cuda: &Cuda,
    family: &dyn Planner,
    problem: &Problem,
    candidate: &Candidate,
) -> f64 {
    const LAUNCHES: usize = 50;
    let mut arranged = problem.clone();
    let mut numbers = Numbers::new(1);
    let mut inputs = Vec::new();
    for (idx, operand) in arranged.inputs.iter_mut().enumerate() {
        lie(operand, candidate.inputs[idx], 0);
        inputs.push(match &candidate.packed[idx] {
            Some(format) => {
                operand.packed = Some(format.clone());
                let tensor = numbers.tensor(operand.dtype, &operand.dims, 1.0);
                family.pack(problem, &candidate.tactic, idx, &tensor).unwrap().bytes
            }
            // A few numbers over and over: times do not depend on them.
            None => {
                let some = numbers.tensor(operand.dtype, &[4099], 1.0);
                some.bytes().iter().copied().cycle().take(operand.span_bytes()).collect()
            }
        });
    }
    arranged.outputs.iter_mut().zip(&candidate.outputs).for_each(|(operand, want)| lie(operand, *want, 0));
    let kernel = cuda.prepare(&arranged, &candidate.tactic).unwrap();
    let mut queue = cuda.queue(QueueOptions::new(1)).unwrap();
    let from: Vec<_> = inputs.iter().map(|bytes| cuda.allocate(bytes.len().max(64)).unwrap()).collect();
    let to: Vec<_> =
        arranged.outputs.iter().map(|operand| cuda.allocate(operand.span_bytes().max(64)).unwrap()).collect();
    let workspace = cuda.allocate(kernel.workspace_bytes().max(64)).unwrap();
    let addresses: Vec<Address> = from.iter().map(|memory| memory.address()).collect();
    let outputs: Vec<Address> = to.iter().map(|memory| memory.address()).collect();
    let call =
        Call { inputs: &addresses, outputs: &outputs, workspace: workspace.address(), fault: Address::NULL };
    let mut times = Vec::new();
    // SAFETY: as in `on_device`; the memory outlives the queue's work.
    unsafe {
        for (memory, bytes) in from.iter().zip(&inputs) {
            queue.upload(memory.address(), bytes).unwrap();
        }
        kernel.launch(&call, queue.as_mut()).unwrap();
        queue.synchronize().unwrap();
        queue.begin_capture().unwrap();
        for _ in 0..LAUNCHES {
            kernel.launch(&call, queue.as_mut()).unwrap();
        }
        let recording = queue.end_capture().unwrap();
        for _ in 0..7 {
            let start = std::time::Instant::now();
            queue.replay(recording.as_ref()).unwrap();
            queue.synchronize().unwrap();
            times.push(start.elapsed().as_secs_f64() * 1e6 / LAUNCHES as f64);
        }
    }
    times.sort_by(f64::total_cmp);
    times[0]
}
