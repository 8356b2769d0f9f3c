//! `Cuda`: the backend, a table of kernel families over one GPU's memory and streams.
//!
//! The GPU need not be here: known by its data alone, the backend proposes, prices and packs as it would on the
//! device, so that plans can be looked at on any machine; it has no memory then and runs nothing.

use std::sync::{Arc, OnceLock};

use planish_kernel::{
    Address, Approximation, Arithmetic, Backend, Budget, Call, Candidate, Code, Compiler, Device, Event,
    Kernel, KernelError, KernelErrorKind, Memory, MemoryInfo, MemoryKind, OWN_SOURCE, Operand, PackedForm,
    PackedWeight, Prices, Problem, Proposal, Queue, QueueOptions, Tactic, TakenSources, Target, WeightUse,
    Whole,
};
use planish_tensor::Tensor;

use crate::code::{CodeSet, Loaded};
use crate::driver::{Context, DeviceMemory, Module, Pinned, Stream, Timing};
use crate::error::{CudaError, CudaErrorKind};
use crate::families::product::{GELU_IN_F8, gelu_is_fast};
use crate::family::{self, Family, Ready, Work};
use crate::find::{self, Which};
use crate::formats::{self, Packing};
use crate::gpu::Gpu;
use crate::libs::{cublaslt, cudnn};
use crate::queue::{CudaQueue, Point};
use crate::regions;
use crate::source::Source;

/// Every family, in the order in which their candidates are listed.
#[rustfmt::skip]
pub(crate) const FAMILIES: &[&dyn Family] = &[
    &crate::families::conv::ConvFamily,
    &crate::families::gemm::GemmFamily,
    &crate::families::nbits::NBitsFamily,
    &crate::families::sparse::SparseFamily,
    &crate::families::halo::HaloFamily,
    &crate::families::wconv::WConvFamily,
    &crate::families::wgemm::WGemmFamily,
    &crate::families::whalo::WHaloFamily,
    &crate::families::stem::StemFamily,
    &crate::families::pointwise::PointwiseFamily,
    &crate::families::movement::MoveFamily,
    &crate::families::pool::PoolFamily,
    &crate::families::softmax::SoftmaxFamily,
    &crate::families::reduce::ReduceFamily,
    &crate::families::norm::NormFamily,
    &crate::families::attention::AttentionFamily,
    &crate::families::resize::ResizeFamily,
    &crate::families::depthwise::DepthwiseFamily,
    &crate::families::convtranspose::ConvTransposeFamily,
    &crate::families::wtranspose::WTransposeFamily,
    &crate::libs::cublaslt::CublasLtFamily,
    &crate::libs::cudnn::CudnnFamily,
    &crate::families::gather::GatherFamily,
    &crate::families::topk::TopKFamily,
    &crate::families::scan::ScanFamily,
    &crate::families::scatter::ScatterFamily,
    &crate::families::rotary::RotaryFamily,
    &crate::families::recurrent::RecurrentFamily,
    &crate::families::plugin::PluginFamily,
];

/// Where its tactics come from.
pub const SOURCES: &[&str] = &[OWN_SOURCE, "cublaslt", "cudnn"];

/// What products can be taken in, by our own kernels or a library; the last one is not on every GPU.
const ARITHMETICS: &[Arithmetic] =
    &[Arithmetic::F32, Arithmetic::Tf32, Arithmetic::F16, Arithmetic::Bf16, Arithmetic::I8, Arithmetic::F8];

/// Launches are replayed: what lies between two of them is part of their measured times, so a step costs little besides.
/// Memory moves some 2,000 bytes a nanosecond, read and written, and a bus 25 bytes a nanosecond, after some
/// microseconds (an H200; others are slower by less than these prices decide).
const PRICES: Prices = Prices {
    step_ns: 300.0,
    reorder_ns: 2_500.0,
    reorder_ns_per_byte: 0.001,
    transfer_ns_per_byte: 0.04,
    transfer_ns: 8_000.0,
};

pub(crate) fn family_of(tactic: &Tactic) -> Result<&'static dyn Family, KernelError> {
    let prefix = tactic.name.split('_').next().unwrap_or_default();
    FAMILIES.iter().copied().find(|family| family.name() == prefix).ok_or_else(|| {
        KernelError::new(
            KernelErrorKind::NoSuchTactic,
            format!("the CUDA backend has no tactic `{}`; rebuild the plan", tactic.name),
        )
    })
}

/// Refuses operands that are packed otherwise than the tactic reads them, or not where it reads one packed. Where there
/// is nothing to compute, nothing is read.
pub(crate) fn check_packed(
    family: &dyn Family,
    problem: &Problem,
    tactic: &Tactic,
) -> Result<(), KernelError> {
    if problem.outputs.iter().all(Operand::is_empty) {
        return Ok(());
    }
    let packings = family.packings(problem, tactic)?;
    for Packing { input, format, .. } in &packings {
        format.expect(&problem.inputs[*input], tactic)?;
    }
    problem.check_packed(tactic, &Packing::of_inputs(packings, problem))
}

/// The families of the sources that `takes` names.
fn families_from(takes: TakenSources<'_>) -> impl Iterator<Item = &'static dyn Family> {
    FAMILIES.iter().copied().filter(move |family| takes(family.source()))
}

/// What a plan that calls a library says that it needs: this very version, for which its algorithms were chosen.
fn need_of(which: Which) -> Option<String> {
    find::find(which).ok().map(|found| format!("{}{}", which.need(), found.version))
}

/// One GPU, with the code of one engine or one build. Clones share both.
#[derive(Clone, Debug)]
pub struct Cuda {
    shared: Arc<Shared>,
    code: Arc<CodeSet>,
}

/// What all that use a GPU share.
#[derive(Debug)]
struct Shared {
    gpu: Gpu,
    /// The name under which times are kept.
    device: String,
    /// Nothing where the GPU is known by its data alone.
    opened: Option<Opened>,
    /// Whether code is compiled for one that is not here.
    compiles: bool,
}

/// A GPU that is here.
#[derive(Debug)]
struct Opened {
    /// Begun when first asked for; before the context, which must outlive them.
    cublaslt: OnceLock<Result<cublaslt::Handle, CudaError>>,
    cudnn: OnceLock<Result<cudnn::Handle, CudaError>>,
    loaded: Loaded,
    context: Arc<Context>,
}

impl Cuda {
    /// The GPU `cuda:index`; the error says what is missing on a machine without one.
    pub fn open(index: usize) -> Result<Cuda, CudaError> {
        let context = Context::open(index)?;
        let gpu = context.gpu().clone();
        let driver = find::loaded(Which::Driver).map_or("none", |found| &found.version);
        let device = format!("{}, {} multiprocessors, driver {driver}", gpu.name, gpu.n_sms);
        let opened =
            Opened { context, loaded: Loaded::default(), cublaslt: OnceLock::new(), cudnn: OnceLock::new() };
        Ok(Cuda::of(Shared { gpu, device, opened: Some(opened), compiles: true }))
    }

    /// A GPU that is not here, by its data alone. Tactics of libraries are not among its candidates: only a device
    /// can list them.
    pub fn planned(gpu: Gpu) -> Cuda {
        let device = format!("{}, planned", gpu.name);
        Cuda::planned_as(gpu, &device)
    }

    /// As [`Cuda::planned`], of a device that was measured elsewhere: times kept under its name hold here.
    pub fn planned_as(gpu: Gpu, device: &str) -> Cuda {
        Cuda::of(Shared { gpu, device: device.to_string(), opened: None, compiles: false })
    }

    /// As [`Cuda::planned`], for plans that are to run on such a GPU: the code of their kernels is compiled here.
    pub fn compiling(gpu: Gpu, device: Option<&str>) -> Cuda {
        let device = device.map_or_else(|| format!("{}, planned", gpu.name), str::to_string);
        Cuda::of(Shared { gpu, device, opened: None, compiles: true })
    }

    fn of(shared: Shared) -> Cuda {
        Cuda { shared: Arc::new(shared), code: Arc::default() }
    }

    /// The same GPU with code of its own: what a plan brings, and what is compiled here.
    pub fn with_code(&self, code: &[Code]) -> Cuda {
        Cuda { shared: Arc::clone(&self.shared), code: Arc::new(CodeSet::new(code)) }
    }

    /// Modules of compiled kernels that are loaded on the GPU, whoever uses them.
    pub fn n_modules(&self) -> usize {
        self.shared.opened.as_ref().map_or(0, |opened| opened.loaded.len())
    }

    pub fn gpu(&self) -> &Gpu {
        &self.shared.gpu
    }

    /// The context of a GPU that is here.
    pub fn context(&self) -> Result<&Arc<Context>, CudaError> {
        Ok(&self.opened()?.context)
    }

    fn opened(&self) -> Result<&Opened, CudaError> {
        self.shared.opened.as_ref().ok_or_else(|| {
            let message = format!("{} is not here: nothing runs on a planned GPU", self.gpu().name);
            CudaError::new(CudaErrorKind::Unsupported, message)
        })
    }

    /// cuBLASLt on this device.
    pub(crate) fn cublaslt(&self) -> Result<&cublaslt::Handle, CudaError> {
        let opened = self.opened()?;
        opened.library(&opened.cublaslt, cublaslt::Handle::new)
    }

    /// cuDNN on this device.
    pub(crate) fn cudnn(&self) -> Result<&cudnn::Handle, CudaError> {
        let opened = self.opened()?;
        opened.library(&opened.cudnn, cudnn::Handle::new)
    }

    /// The candidates of one family alone.
    pub fn candidates_of(&self, family: &str, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        let known = FAMILIES.iter().filter(|known| known.name() == family);
        known.flat_map(|family| family.candidates_on(self, problem, budget)).collect()
    }
}

impl Opened {
    /// A library's handle, begun when first asked for.
    fn library<'a, H>(
        &self,
        begun: &'a OnceLock<Result<H, CudaError>>,
        begin: fn() -> Result<H, CudaError>,
    ) -> Result<&'a H, CudaError> {
        begun.get_or_init(|| self.context.bind().and_then(|()| begin())).as_ref().map_err(Clone::clone)
    }
}

impl Backend for Cuda {
    fn name(&self) -> &str {
        "cuda"
    }

    fn target(&self) -> Target {
        let Shared { gpu, device, .. } = &*self.shared;
        Target { backend: "cuda".to_string(), needs: vec![format!("sm_{}", gpu.sm)], device: device.clone() }
    }

    fn provides(&self, need: &str) -> bool {
        if planish_op::plugin::is_need(need) {
            return planish_op::plugin::provides(need).is_ok();
        }
        let library =
            [Which::CublasLt, Which::Cudnn].into_iter().find(|which| need.starts_with(which.need()));
        match library {
            Some(which) => need_of(which).is_some_and(|own| own == need),
            None => self.target().needs.iter().any(|own| own == need),
        }
    }

    fn with_code(&self, code: &[Code]) -> Result<Option<Arc<dyn Backend>>, KernelError> {
        Ok(Some(Arc::new(Cuda::with_code(self, code))))
    }
}

impl Compiler for Cuda {
    fn regions(&self, whole: &Whole) -> Vec<Proposal> {
        regions::propose(whole)
    }

    fn candidates(&self, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        FAMILIES.iter().flat_map(|family| family.candidates_on(self, problem, budget)).collect()
    }

    fn candidates_from(&self, problem: &Problem, budget: &Budget, takes: TakenSources<'_>) -> Vec<Candidate> {
        families_from(takes).flat_map(|family| family.candidates_on(self, problem, budget)).collect()
    }

    fn versions(&self, takes: TakenSources<'_>) -> Vec<String> {
        let libraries = families_from(takes).filter_map(|family| family.needs());
        let compiler = takes(OWN_SOURCE).then_some(Which::Nvrtc);
        libraries.chain(compiler).filter_map(need_of).collect()
    }

    fn tactic_needs(&self, tactic: &Tactic) -> Vec<String> {
        let library = family_of(tactic).ok().and_then(|family| family.needs());
        let plugin = || planish_plugin::of_tactic(&tactic.name).map(|(plugin, _)| plugin.identity().need());
        library.and_then(need_of).or_else(plugin).into_iter().collect()
    }

    fn counts_on_sparsity(&self, tactic: &Tactic) -> bool {
        family_of(tactic).is_ok_and(|family| family.name() == crate::families::sparse::NAME)
    }

    fn approximation(&self, problem: &Problem, tactic: &Tactic) -> Approximation {
        let is_own = family_of(tactic).is_ok_and(|family| family.needs().is_none());
        if is_own && gelu_is_fast(problem) { GELU_IN_F8 } else { Approximation::default() }
    }

    fn pack(&self, used: WeightUse<'_>, weight: &Tensor) -> Result<PackedWeight, KernelError> {
        family::pack(family_of(used.tactic)?, used, weight)
    }

    fn packed_bytes(&self, form: PackedForm<'_>) -> Option<usize> {
        formats::packed_bytes(form)
    }

    fn unpack(&self, form: PackedForm<'_>, bytes: &[u8]) -> Result<Tensor, KernelError> {
        formats::unpack(form, bytes)
    }

    fn in_place(&self, problem: &Problem, tactic: &Tactic) -> Vec<(usize, usize)> {
        family_of(tactic).map_or(Vec::new(), |family| family.in_place(problem, tactic))
    }

    /// None for a GPU that is not here, where nobody runs it; [`crate::offline`] tells what it would be.
    fn code(&self, problem: &Problem, tactic: &Tactic) -> Result<Vec<Code>, KernelError> {
        if self.shared.opened.is_none() && !self.shared.compiles {
            return Ok(Vec::new());
        }
        let sources = family_of(tactic)?.sources(self.gpu(), problem, tactic)?;
        sources.iter().map(|source| self.code.compiled(source, self.gpu())).collect()
    }

    fn sources(&self) -> &'static [&'static str] {
        SOURCES
    }

    fn source(&self, tactic: &Tactic) -> &'static str {
        family_of(tactic).map_or(OWN_SOURCE, |family| family.source())
    }

    fn prices(&self) -> Prices {
        PRICES
    }

    fn arithmetics(&self) -> &[Arithmetic] {
        let n_known = ARITHMETICS.len() - usize::from(!self.gpu().has_f8());
        &ARITHMETICS[..n_known]
    }
}

impl Device for Cuda {
    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Device
    }

    /// All of a process share a GPU's primary context.
    fn memory_space(&self) -> usize {
        match &self.shared.opened {
            Some(opened) => opened.context.device_number(),
            None => Arc::as_ptr(&self.shared).addr(),
        }
    }

    fn prepare(&self, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Kernel>, KernelError> {
        let family = family_of(tactic)?;
        let Opened { context, loaded, .. } = self.opened()?;
        check_packed(family, problem, tactic)?;
        // A run may meet sizes of zero where a plan was tuned at others, and libraries refuse them.
        if problem.outputs.iter().all(Operand::is_empty) {
            return Ok(Box::new(Prepared { work: Box::new(NoWork), context: Arc::clone(context) }));
        }
        let sources = family.sources(self.gpu(), problem, tactic)?;
        let module = |source: &Source| self.code.module(source, context, loaded);
        let code: Vec<Arc<Module>> = sources.iter().map(module).collect::<Result<_, _>>()?;
        let work = family.prepare(&Ready { cuda: self, problem, tactic, code: &code })?;
        Ok(Box::new(Prepared { work, context: Arc::clone(context) }))
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>, KernelError> {
        Ok(Box::new(DeviceMemory::new(self.context()?, bytes)?))
    }

    fn allocate_managed(&self, bytes: usize) -> Result<Box<dyn Memory>, KernelError> {
        Ok(Box::new(DeviceMemory::managed(self.context()?, bytes)?))
    }

    fn queue(&self, options: QueueOptions) -> Result<Box<dyn Queue>, KernelError> {
        Ok(Box::new(CudaQueue::new(self.context()?, options.wait)?))
    }

    fn allocate_pinned(&self, bytes: usize) -> Result<Option<Box<dyn Memory>>, KernelError> {
        Ok(Some(Box::new(PinnedMemory(Pinned::new(self.context()?, bytes)?))))
    }

    fn memory_info(&self) -> Option<MemoryInfo> {
        let context = self.context().ok()?;
        let (free, total) = context.memory_info().ok()?;
        Some(MemoryInfo { free, total, pooled: context.pooled_bytes().unwrap_or(0) })
    }

    fn event(&self, timed: bool) -> Result<Box<dyn Event>, KernelError> {
        let timing = if timed { Timing::Timed } else { Timing::None };
        Ok(Box::new(Point::new(self.context()?, timing)?))
    }

    unsafe fn queue_over(&self, stream: u64, options: QueueOptions) -> Result<Box<dyn Queue>, KernelError> {
        let raw = std::ptr::with_exposed_provenance_mut(stream as usize);
        // SAFETY: the caller promises a stream of this device that outlives all use of the queue but its end.
        let stream = unsafe { Stream::foreign(self.context()?, raw) };
        Ok(Box::new(CudaQueue::on(Arc::new(stream), options.wait)))
    }
}

/// Pinned memory as the runtime sees it.
#[derive(Debug)]
struct PinnedMemory(Pinned);

impl Memory for PinnedMemory {
    fn address(&self) -> Address {
        Address(self.0.as_ptr().expose_provenance() as u64)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Nothing, for outputs without elements.
#[derive(Debug)]
struct NoWork;

impl Work for NoWork {
    fn workspace_bytes(&self) -> usize {
        0
    }

    unsafe fn launch(&self, _: &Call<'_>, _: &Stream) -> Result<(), KernelError> {
        Ok(())
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

    fn may_fault(&self) -> bool {
        self.work.may_fault()
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

#[cfg(test)]
mod tests {
    use planish_testing::problems;

    use super::*;

    #[test]
    fn libraries_that_are_left_out_are_not_asked() {
        let n_libraries =
            |takes: TakenSources<'_>| families_from(takes).filter(|family| family.needs().is_some()).count();
        assert_eq!(n_libraries(&|_| true), 2);
        assert_eq!(n_libraries(&|source| source == "own"), 0);
        assert_eq!(n_libraries(&|source| source != "cudnn"), 1);
        assert_eq!(families_from(&|source| source == "own").count(), FAMILIES.len() - 2);
    }

    /// What candidates ask for passes, and the same packing of any other input does not.
    #[test]
    fn packed_operands_are_those_that_a_tactic_packs() {
        let gpu = Gpu::known("h200").unwrap();
        let (mut n_packed, mut n_shared) = (0, 0);
        for family in FAMILIES {
            for problem in problems::of_family(family.name()) {
                for candidate in family.candidates(&gpu, &problem, &Budget::USUAL) {
                    let arranged = problem.for_candidate(&candidate);
                    let check = |problem: &Problem| check_packed(*family, problem, &candidate.tactic);
                    check(&arranged).unwrap();
                    n_packed += usize::from(candidate.packed.iter().any(Option::is_some));
                    for idx in (0..arranged.inputs.len()).filter(|idx| candidate.packed[*idx].is_none()) {
                        let mut forged = arranged.clone();
                        forged.inputs[idx].packed = Some("rows8".into());
                        assert!(check(&forged).is_err(), "{} input {idx}", candidate.tactic);
                    }
                    let allowed = family.in_place(&arranged, &candidate.tactic);
                    assert!(candidate.in_place.iter().all(|pair| allowed.contains(pair)), "{allowed:?}");
                    n_shared += allowed.len();
                }
            }
        }
        assert!(n_packed > 50 && n_shared > 10, "{n_packed} packed, {n_shared} in place");
    }
}
