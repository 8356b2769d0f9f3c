//! A candidate's time in a replayed graph of many launches, weights rotating among copies that no cache holds.

use std::sync::atomic::{AtomicUsize, Ordering};

use planish_cuda::Cuda;
use planish_kernel::{
    Address, Budget, Call, Candidate, Compiler, Device, KernelError, Memory, Operand, PackedForm, Problem,
    Queue, WeightUse,
};
use planish_tensor::DType;
use planish_testing::Random;
use planish_testing::problems::sparse;

/// Bytes of weights in rotation: several times what the second-level cache holds.
const ROTATION: usize = 400 << 20;
/// Launches in one graph at least, and how often it is replayed.
const LAUNCHES: usize = 24;
const REPLAYS: usize = 7;

/// Compiles on all cores.
pub(crate) fn compile_all(cuda: &Cuda, problem: &Problem, candidates: &[Candidate]) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(4, usize::from) {
            scope.spawn(|| {
                while let Some(candidate) = candidates.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // What fails is told when its turn comes.
                    let _ = cuda.code(&problem.for_candidate(candidate), &candidate.tactic);
                }
            });
        }
    });
}

/// Bytes of an operand, packed where it is.
pub(crate) fn n_bytes(cuda: &Cuda, operand: &Operand) -> usize {
    match &operand.packed {
        Some(format) => {
            let form = PackedForm { format, dtype: operand.dtype, dims: &operand.dims };
            cuda.packed_bytes(form).unwrap_or(0)
        }
        None => operand.span_bytes(),
    }
}

/// A chunk of a sparse weight, of which any number is one.
fn sparse_chunk(cuda: &Cuda, dtype: DType) -> Vec<u8> {
    let problem = sparse::product(dtype, &[1], [16, 64], None);
    let candidate = cuda.candidates_of("sparse", &problem, &Budget::USUAL).remove(0);
    let weight = Random::new(3).input(&problem, 1, 1.0);
    cuda.pack(WeightUse::new(&problem, &candidate.tactic, 1), &weight)
        .expect("a sparse weight")
        .bytes
        .to_vec()
}

/// So many bytes: any bits are integers; floats are small and differ.
fn filled(cuda: &Cuda, operand: &Operand, len: usize) -> Vec<u8> {
    let number = |at: usize| 0.001 * (1 + at % 97) as f32;
    let pattern: Vec<u8> = match operand.dtype {
        dtype if operand.two_of_four => sparse_chunk(cuda, dtype),
        DType::F16 => {
            (0..9700).flat_map(|at| planish_tensor::f16::from_f32(number(at)).to_ne_bytes()).collect()
        }
        DType::F32 => (0..9700).flat_map(|at| number(at).to_ne_bytes()).collect(),
        _ => (0..25_100usize).map(|at| (at * 167 + at / 251 * 13) as u8).collect(),
    };
    let mut bytes = vec![0; len];
    for part in bytes.chunks_mut(pattern.len()) {
        part.copy_from_slice(&pattern[..part.len()]);
    }
    bytes
}

/// Microseconds of a launch, each with another copy of the constants.
pub(crate) fn time(
    cuda: &Cuda,
    queue: &mut dyn Queue,
    problem: &Problem,
    candidate: &Candidate,
) -> Result<f64, KernelError> {
    let problem = problem.for_candidate(candidate);
    let kernel = cuda.prepare(&problem, &candidate.tactic)?;
    let constants = problem.inputs.iter().filter(|operand| operand.constant);
    let weights: usize = constants.map(|operand| n_bytes(cuda, operand)).sum();
    let n_copies = ROTATION.div_ceil(weights.max(1)).clamp(2, 64);
    let mut memory: Vec<Box<dyn Memory>> = Vec::new();
    let mut calls: Vec<Vec<Address>> = vec![Vec::new(); n_copies];
    for operand in &problem.inputs {
        let bytes = filled(cuda, operand, n_bytes(cuda, operand));
        let n_own = if operand.constant { n_copies } else { 1 };
        let first = memory.len();
        for copy in 0..n_own {
            let own = cuda.allocate(bytes.len().max(64))?;
            // SAFETY: the memory was made for these bytes.
            unsafe {
                match copy {
                    0 => queue.upload(own.address(), &bytes)?,
                    _ => queue.copy(own.address(), memory[first].address(), bytes.len())?,
                }
            }
            memory.push(own);
        }
        for (copy, call) in calls.iter_mut().enumerate() {
            call.push(memory[first + copy % n_own].address());
        }
    }
    let output = cuda.allocate(problem.outputs[0].span_bytes().max(64))?;
    let workspace = cuda.allocate(kernel.workspace_bytes().max(64))?;
    let outputs = [output.address()];
    let n_launches = n_copies.max(LAUNCHES).next_multiple_of(n_copies);
    queue.begin_capture()?;
    let mut launched = Ok(());
    for at in 0..n_launches {
        let call = Call {
            inputs: &calls[at % n_copies],
            outputs: &outputs,
            workspace: workspace.address(),
            fault: Address::NULL,
        };
        // SAFETY: all memory was made for the operands and lives until the queue is waited for.
        launched = launched.and(unsafe { kernel.launch(&call, queue) });
    }
    let graph = queue.end_capture()?;
    launched?;
    let mut times = Vec::with_capacity(REPLAYS);
    for round in 0..=REPLAYS {
        let (start, end) = (cuda.event(true)?, cuda.event(true)?);
        queue.record_at(start.as_ref())?;
        // SAFETY: as above.
        unsafe { queue.replay(graph.as_ref())? };
        queue.record_at(end.as_ref())?;
        queue.synchronize()?;
        if round > 0 {
            times.push(end.ns_since(start.as_ref())? * 1e-3 / n_launches as f64);
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
