//! `Cuda`: the backend, a table of kernel families over one GPU's memory and streams.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use planish_kernel::{
    Backend, Call, Candidate, Kernel, KernelError, KernelErrorKind, Memory, MemoryKind, PackedWeight,
    Problem, Proposal, Queue, QueueOptions, Region, Tactic, Target, Whole,
};
use planish_op::Value;
use planish_tensor::Tensor;

use crate::driver::{Context, DeviceMemory, Module, Wait};
use crate::error::CudaError;
use crate::family::{Family, Work};
use crate::find::{self, Which};
use crate::gpu::Gpu;
use crate::nvrtc;
use crate::queue::CudaQueue;
use crate::source::Source;

/// Every family, in the order in which their candidates are listed.
#[rustfmt::skip]
pub(crate) const FAMILIES: &[&dyn Family] = &[
    &crate::families::conv::Conv,
    &crate::families::gemm::Gemm,
];

pub(crate) fn family_of(tactic: &Tactic) -> Result<&'static dyn Family, KernelError> {
    let prefix = tactic.name.split('_').next().unwrap_or_default();
    FAMILIES.iter().copied().find(|family| family.name() == prefix).ok_or_else(|| {
        KernelError::new(
            KernelErrorKind::NoSuchTactic,
            format!("the CUDA backend has no tactic `{}`; rebuild the plan", tactic.name),
        )
    })
}

/// One GPU.
#[derive(Clone, Debug)]
pub struct Cuda {
    shared: Arc<Shared>,
    wait: Wait,
}

#[derive(Debug)]
struct Shared {
    context: Arc<Context>,
    /// Loaded code by the key of its source.
    modules: Mutex<HashMap<String, Arc<Module>>>,
    /// Compiled code that plans brought, by key.
    brought: Mutex<HashMap<String, Arc<[u8]>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The maps are never left half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cuda {
    /// The GPU `cuda:index`; the error says what is missing on a machine without one.
    pub fn open(index: usize) -> Result<Cuda, CudaError> {
        let context = Context::open(index)?;
        let shared = Shared { context, modules: Mutex::default(), brought: Mutex::default() };
        Ok(Cuda { shared: Arc::new(shared), wait: Wait::default() })
    }

    /// Queues that are made from here on wait like this.
    pub fn with_wait(mut self, wait: Wait) -> Cuda {
        self.wait = wait;
        self
    }

    pub fn gpu(&self) -> &Gpu {
        self.shared.context.gpu()
    }

    pub fn context(&self) -> &Arc<Context> {
        &self.shared.context
    }

    /// The module of a source: loaded before, brought by a plan, or compiled now.
    pub(crate) fn module(&self, source: &Source) -> Result<Arc<Module>, KernelError> {
        let key = source.key(self.gpu());
        if let Some(module) = lock(&self.shared.modules).get(&key) {
            return Ok(Arc::clone(module));
        }
        let brought = lock(&self.shared.brought).get(&key).cloned();
        let module = match brought {
            Some(cubin) => Module::new(&self.shared.context, &cubin)?,
            None => Module::new(&self.shared.context, &nvrtc::compile(source, self.gpu())?)?,
        };
        let module = Arc::new(module);
        // Two threads may have loaded it; the first stays.
        Ok(Arc::clone(lock(&self.shared.modules).entry(key).or_insert(module)))
    }
}

impl Backend for Cuda {
    fn name(&self) -> &str {
        "cuda"
    }

    fn target(&self) -> Target {
        let gpu = self.gpu();
        let version = |which| find::loaded(which).map_or("none".to_string(), |found| found.version.clone());
        Target {
            backend: "cuda".to_string(),
            needs: vec![format!("sm_{}", gpu.sm)],
            device: format!("{}, {} multiprocessors, driver {}", gpu.name, gpu.n_sms, version(Which::Driver)),
        }
    }

    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Device
    }

    fn regions(&self, _whole: &Whole) -> Vec<Proposal> {
        Vec::new()
    }

    fn candidates(&self, problem: &Problem) -> Vec<Candidate> {
        FAMILIES.iter().flat_map(|family| family.candidates(self.gpu(), problem)).collect()
    }

    fn pack(
        &self,
        problem: &Problem,
        tactic: &Tactic,
        input: usize,
        weight: &Tensor,
    ) -> Result<PackedWeight, KernelError> {
        family_of(tactic)?.pack(self.gpu(), problem, tactic, input, weight)
    }

    fn unpack(
        &self,
        problem: &Problem,
        tactic: &Tactic,
        input: usize,
        packed: &PackedWeight,
    ) -> Result<Tensor, KernelError> {
        family_of(tactic)?.unpack(self.gpu(), problem, tactic, input, packed)
    }

    fn prepare(&self, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Kernel>, KernelError> {
        let family = family_of(tactic)?;
        let sources = family.sources(self.gpu(), problem, tactic)?;
        let code: Vec<Arc<Module>> =
            sources.iter().map(|source| self.module(source)).collect::<Result<_, _>>()?;
        let work = family.prepare(self, problem, tactic, &code)?;
        Ok(Box::new(Prepared { work, context: Arc::clone(&self.shared.context) }))
    }

    fn evaluate(&self, region: &Region, _inputs: &[Option<Value>]) -> Result<Vec<Value>, KernelError> {
        Err(KernelError::unsupported(format!("{} is not evaluated on a GPU", region.ops())))
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>, KernelError> {
        Ok(Box::new(DeviceMemory::new(&self.shared.context, bytes)?))
    }

    fn queue(&self, _options: QueueOptions) -> Result<Box<dyn Queue>, KernelError> {
        Ok(Box::new(CudaQueue::new(&self.shared.context, self.wait)?))
    }
}

#[derive(Debug)]
struct Prepared {
    work: Box<dyn Work>,
    context: Arc<Context>,
}

impl Kernel for Prepared {
    fn workspace_bytes(&self) -> usize {
        self.work.workspace_bytes()
    }

    unsafe fn launch(&self, call: &Call<'_>, queue: &mut dyn Queue) -> Result<(), KernelError> {
        let queue = queue.as_any().downcast_mut::<CudaQueue>().ok_or_else(|| {
            KernelError::new(KernelErrorKind::Failed, "a CUDA kernel was launched on another backend's queue")
        })?;
        queue.stream().must_be_of(&self.context)?;
        self.context.bind()?;
        // SAFETY: the caller of `launch` grants what it asks for; the context is current.
        unsafe { self.work.launch(call, queue.stream()) }
    }
}
