//! A GPU that is not there: candidates, regions and packing are those of an H200, kernels do nothing, and the clock
//! is noise. Every candidate is listed twice.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use planish_cuda::{Cuda, Gpu, offline};
use planish_kernel::{
    Address, Call, Candidate, CapturedGraph, Code, Device, Event, Kernel, KernelError, Memory, MemoryKind,
    Problem, Queue, QueueOptions, Tactic,
};
use planish_tensor::Bytes;
use planish_testing::{Altered, Change, Random};

/// Samples lie between this and three times as much.
const SHORTEST_NS: usize = 2_000;

#[derive(Debug)]
pub(crate) struct Noisy {
    gpu: Gpu,
    noise: Arc<Mutex<Random>>,
}

impl Noisy {
    /// With its own noise.
    pub(crate) fn gpu(seed: u64) -> Altered<Cuda, Noisy> {
        let gpu = Gpu::known("h200").unwrap();
        let noise = Arc::new(Mutex::new(Random::new(seed)));
        Altered::new(Cuda::planned(gpu.clone()), Noisy { gpu, noise })
    }
}

impl Change for Noisy {
    fn candidates(&self, mut list: Vec<Candidate>) -> Vec<Candidate> {
        // One packing is so promising that of the others only one is worth a look; where that one wins, the search at
        // other sizes looks at those that read the same memory, too.
        let second = list.iter().position(|other| other.packed != list[0].packed);
        for (at, candidate) in list.iter_mut().enumerate() {
            candidate.predicted_ns = if at == 0 {
                100.0
            } else if Some(at) == second {
                300.0
            } else {
                500.0
            };
        }
        list.iter().flat_map(|candidate| [candidate.clone(), candidate.clone()]).collect()
    }

    /// The text of the sources stands for what a compiler would make of it.
    fn code(&self, problem: &Problem, tactic: &Tactic) -> Option<Result<Vec<Code>, KernelError>> {
        let code = |source: planish_cuda::Source| {
            let key = source.key(&self.gpu);
            Code { bytes: Bytes::from_vec(key.clone().into_bytes()), key }
        };
        let sources = offline::sources(&self.gpu, problem, tactic);
        Some(sources.map(|sources| sources.into_iter().map(code).collect()))
    }

    fn device(&self) -> Option<&dyn Device> {
        Some(self)
    }
}

impl Device for Noisy {
    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Device
    }

    fn prepare(&self, _problem: &Problem, _tactic: &Tactic) -> Result<Box<dyn Kernel>, KernelError> {
        Ok(Box::new(Nothing))
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>, KernelError> {
        Ok(Box::new(Absent(bytes)))
    }

    fn queue(&self, _options: QueueOptions) -> Result<Box<dyn Queue>, KernelError> {
        Ok(Box::new(Idle))
    }

    fn event(&self, _timed: bool) -> Result<Box<dyn Event>, KernelError> {
        Ok(Box::new(Dice(Arc::clone(&self.noise))))
    }
}

/// Memory that nobody reads or writes.
#[derive(Debug)]
struct Absent(usize);

impl Memory for Absent {
    fn address(&self) -> Address {
        Address(1 << 20)
    }

    fn len(&self) -> usize {
        self.0
    }
}

#[derive(Debug)]
struct Nothing;

impl Kernel for Nothing {
    fn workspace_bytes(&self) -> usize {
        0
    }

    unsafe fn launch(&self, _call: &Call<'_>, _queue: &mut dyn Queue) -> Result<(), KernelError> {
        Ok(())
    }
}

/// Tells another time whenever it is asked.
#[derive(Debug)]
struct Dice(Arc<Mutex<Random>>);

impl Event for Dice {
    fn is_reached(&self) -> Result<bool, KernelError> {
        Ok(true)
    }

    fn wait(&self) -> Result<(), KernelError> {
        Ok(())
    }

    fn ns_since(&self, _earlier: &dyn Event) -> Result<f64, KernelError> {
        let noise = self.0.lock().unwrap_or_else(PoisonError::into_inner).below(2 * SHORTEST_NS);
        // A sample is the time of sixteen launches, whole nanoseconds each.
        Ok(16.0 * (SHORTEST_NS + noise) as f64)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Debug)]
struct Idle;

#[derive(Debug)]
struct Empty;

impl CapturedGraph for Empty {
    fn len(&self) -> usize {
        0
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Queue for Idle {
    unsafe fn upload(&mut self, _to: Address, _from: &[u8]) -> Result<(), KernelError> {
        Ok(())
    }

    unsafe fn download(&mut self, _to: &mut [u8], _from: Address) -> Result<(), KernelError> {
        Ok(())
    }

    unsafe fn copy(&mut self, _to: Address, _from: Address, _bytes: usize) -> Result<(), KernelError> {
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), KernelError> {
        Ok(())
    }

    fn record(&mut self) -> Result<Box<dyn Event>, KernelError> {
        Ok(Box::new(Dice(Arc::new(Mutex::new(Random::new(0))))))
    }

    fn record_at(&mut self, _event: &dyn Event) -> Result<(), KernelError> {
        Ok(())
    }

    fn wait_for(&mut self, _event: &dyn Event) -> Result<(), KernelError> {
        Ok(())
    }

    fn can_capture(&self) -> bool {
        true
    }

    fn begin_capture(&mut self) -> Result<(), KernelError> {
        Ok(())
    }

    fn end_capture(&mut self) -> Result<Box<dyn CapturedGraph>, KernelError> {
        Ok(Box::new(Empty))
    }

    unsafe fn replay(&mut self, _graph: &dyn CapturedGraph) -> Result<(), KernelError> {
        Ok(())
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
