//! `Cpu`: the backend, a table of kernel families over host memory and the thread pool.

use planish_kernel::{
    Address, Arithmetic, Backend, Budget, Call, Candidate, Compiler, Device, Host, Kernel, KernelError,
    KernelErrorKind, Memory, MemoryKind, OWN_SOURCE, Operand, PackedForm, PackedWeight, Prices, Problem,
    Proposal, Queue, QueueOptions, REFERENCE_SOURCE, Region, Tactic, Target, WeightUse, Whole,
};
use planish_op::Value;
use planish_tensor::{DType, Tensor};

use crate::attention::family::AttentionFamily;
use crate::bottleneck::BottleneckFamily;
use crate::conv::ConvFamily;
use crate::conv::bf16;
use crate::conv::quantized::{self, QuantizedFamily};
use crate::depthwise::{DepthwiseFamily, QuantizedDepthwiseFamily};
use crate::dynquant::DynamicQuantizeFamily;
use crate::evaluate::{self, ReferenceFamily};
use crate::family::{Family, Work};
use crate::filter::FilterFamily;
use crate::formats;
use crate::gemm::family::GemmFamily;
use crate::host::{HostMemory, HostQueue};
use crate::isa::{Feature, Isa};
use crate::live::LiveFamily;
use crate::movement::{MoveFamily, PickFamily};
use crate::nbits::NBitsFamily;
use crate::norm::family::NormFamily;
use crate::plugin::PluginFamily;
use crate::pointwise::family::PointwiseFamily;
use crate::pool::PoolFamily;
use crate::qplain::PlainQuantizedFamily;
use crate::recurrent;
use crate::recurrent::family::RecurrentFamily;
use crate::reduce::family::ReduceFamily;
use crate::regions;
use crate::resize::ResizeFamily;
use crate::rotary::RotaryFamily;
use crate::shared::Shared;
use crate::softmax::family::SoftmaxFamily;
use crate::topk::TopKFamily;
use crate::trees::TreesFamily;
use crate::typed::TypedFamily;
use crate::valued::ValuedFamily;

/// Every family, in the order in which their candidates are listed. The reference is last: it computes what
/// no other family does.
#[rustfmt::skip]
const FAMILIES: &[&dyn Family] = &[
    &AttentionFamily,
    &BottleneckFamily,
    &ConvFamily,
    &QuantizedFamily::Conv,
    &DepthwiseFamily,
    &QuantizedDepthwiseFamily,
    &FilterFamily,
    &GemmFamily,
    &QuantizedFamily::Matrix,
    &PlainQuantizedFamily,
    &NBitsFamily,
    &PoolFamily,
    &ResizeFamily,
    &PointwiseFamily,
    &SoftmaxFamily,
    &NormFamily,
    &ReduceFamily,
    &RecurrentFamily,
    &MoveFamily,
    &PickFamily,
    &TopKFamily,
    &TreesFamily,
    &RotaryFamily,
    &DynamicQuantizeFamily,
    &LiveFamily,
    &TypedFamily,
    &ValuedFamily,
    &PluginFamily,
    &ReferenceFamily,
];

/// All of them, the reference last.
pub(crate) fn families() -> impl Iterator<Item = &'static dyn Family> {
    FAMILIES.iter().copied()
}

/// Where its tactics come from.
pub const SOURCES: &[&str] = &[OWN_SOURCE, REFERENCE_SOURCE];

/// A step costs what cold descriptions and a fork and join cost, a reorder reads and writes at some 8 bytes a nanosecond,
/// and nothing is transferred.
const PRICES: Prices = Prices {
    step_ns: 1_500.0,
    reorder_ns: 1_500.0,
    reorder_ns_per_byte: 0.25,
    transfer_ns_per_byte: 0.0,
    transfer_ns: 0.0,
};

/// The most operands of a step whose pointers are kept on the stack of a launch.
const MAX_STACK_OPERANDS: usize = 16;

/// The CPU of this process, with one instruction set.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    isa: Isa,
}

impl Default for Cpu {
    fn default() -> Cpu {
        Cpu { isa: Isa::best() }
    }
}

impl Cpu {
    /// With the widest instruction set that this machine has.
    pub fn new() -> Cpu {
        Cpu::default()
    }

    /// With a given instruction set, for tests and for plans that were built for it.
    pub fn with_isa(isa: Isa) -> Cpu {
        Cpu { isa }
    }

    pub fn isa(&self) -> Isa {
        self.isa
    }

    fn family(tactic: &Tactic) -> Result<&'static dyn Family, KernelError> {
        let prefix = tactic.name.split('_').next().unwrap_or_default();
        FAMILIES.iter().copied().find(|family| family.name() == prefix).ok_or_else(|| {
            KernelError::new(
                KernelErrorKind::NoSuchTactic,
                format!("the CPU backend has no tactic `{}`; rebuild the plan", tactic.name),
            )
        })
    }
}

impl Backend for Cpu {
    fn name(&self) -> &str {
        "cpu"
    }

    fn target(&self) -> Target {
        Target {
            backend: "cpu".to_string(),
            needs: vec![self.isa.name().to_string()],
            device: crate::host::cpu_model(),
        }
    }

    fn provides(&self, need: &str) -> bool {
        if planish_op::plugin::is_need(need) {
            return planish_op::plugin::provides(need).is_ok();
        }
        let feature = Feature::ALL.into_iter().find(|feature| feature.name() == need);
        feature.map_or_else(|| self.target().needs.iter().any(|own| own == need), Feature::is_here)
    }

    fn host(&self) -> Option<&dyn Host> {
        Some(self)
    }
}

impl Compiler for Cpu {
    fn regions(&self, whole: &Whole) -> Vec<Proposal> {
        regions::propose(whole)
    }

    fn candidates(&self, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        FAMILIES.iter().flat_map(|family| family.candidates(self.isa, problem, budget)).collect()
    }

    fn pack(&self, used: WeightUse<'_>, weight: &Tensor) -> Result<PackedWeight, KernelError> {
        Cpu::family(used.tactic)?.pack(self.isa, used, weight)
    }

    fn packed_bytes(&self, form: PackedForm<'_>) -> Option<usize> {
        formats::packed_bytes(form)
    }

    fn unpack(&self, form: PackedForm<'_>, bytes: &[u8]) -> Result<Tensor, KernelError> {
        formats::unpack(form, bytes)
    }

    fn tactic_needs(&self, tactic: &Tactic) -> Vec<String> {
        quantized::needed_feature(&tactic.name)
            .or_else(|| bf16::needed_feature(&tactic.name))
            .or_else(|| recurrent::needed_feature(&tactic.name))
            .map(|feature| feature.name().to_string())
            .or_else(|| planish_plugin::of_tactic(&tactic.name).map(|(plugin, _)| plugin.identity().need()))
            .into_iter()
            .collect()
    }

    /// Plugins that are loaded decide what there is.
    fn versions(&self, _takes: planish_kernel::TakenSources<'_>) -> Vec<String> {
        planish_op::plugin::registered().iter().map(|plugin| plugin.identity().need()).collect()
    }

    fn in_place(&self, problem: &Problem, tactic: &Tactic) -> Vec<(usize, usize)> {
        Cpu::family(tactic).map_or(Vec::new(), |family| family.in_place(self.isa, problem))
    }

    fn sources(&self) -> &'static [&'static str] {
        SOURCES
    }

    fn source(&self, tactic: &Tactic) -> &'static str {
        match self.checks_results(tactic) {
            true => REFERENCE_SOURCE,
            false => OWN_SOURCE,
        }
    }

    fn prices(&self) -> Prices {
        PRICES
    }

    fn arithmetics(&self) -> &[Arithmetic] {
        &[Arithmetic::F32, Arithmetic::I8]
    }

    fn rounded_arithmetics(&self) -> &[Arithmetic] {
        if bf16::is_here(self.isa) { &[Arithmetic::Bf16] } else { &[] }
    }

    fn rounds_factors_to(&self, tactic: &Tactic) -> Option<DType> {
        bf16::needed_feature(&tactic.name).map(|_| DType::BF16)
    }

    fn error_growth(&self, tactic: &Tactic) -> f64 {
        Cpu::family(tactic).map_or(1.0, |family| family.error_growth(self.isa, tactic))
    }
}

impl Device for Cpu {
    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn prepare(&self, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Kernel>, KernelError> {
        let family = Cpu::family(tactic)?;
        // For all families at once: most of them never look whether an operand is packed.
        if problem.inputs.iter().chain(&problem.outputs).any(|operand| operand.packed.is_some()) {
            let format = |input| family.format(self.isa, WeightUse { problem, tactic, input });
            let formats = (0..problem.inputs.len()).map(format).collect::<Result<Vec<_>, _>>()?;
            problem.check_packed(tactic, &formats)?;
        }
        // A run may meet sizes of zero where a plan was tuned at others, and not every kernel takes them.
        if problem.outputs.iter().all(Operand::is_empty) {
            return Ok(Box::new(Nothing));
        }
        let work = family.prepare(self.isa, problem, tactic)?;
        Ok(Box::new(Prepared { workspace: work.workspace_bytes(problem.threads.max(1)), work }))
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>, KernelError> {
        Ok(Box::new(HostMemory::new(bytes)?))
    }

    fn queue(&self, options: QueueOptions) -> Result<Box<dyn Queue>, KernelError> {
        Ok(Box::new(HostQueue::new(options.threads)))
    }

    fn checks_results(&self, tactic: &Tactic) -> bool {
        tactic.name == ReferenceFamily.name()
    }
}

impl Host for Cpu {
    fn evaluate(
        &self,
        region: &Region,
        inputs: &[Option<Value>],
        max_bytes: usize,
        threads: usize,
    ) -> Result<Vec<Value>, KernelError> {
        evaluate::evaluate_on(self.isa, region, inputs, max_bytes, threads)
    }

    fn other_kernels(&self) -> Option<Box<dyn Backend>> {
        let all = Isa::available();
        let narrower = all.iter().position(|isa| *isa == self.isa)?.checked_sub(1)?;
        Some(Box::new(Cpu::with_isa(all[narrower])))
    }
}

/// Outputs without elements.
#[derive(Debug)]
struct Nothing;

impl Kernel for Nothing {
    fn workspace_bytes(&self) -> usize {
        0
    }

    unsafe fn launch(&self, _: &Call<'_>, _: &mut dyn Queue) -> Result<(), KernelError> {
        Ok(())
    }
}

#[derive(Debug)]
struct Prepared {
    work: Box<dyn Work>,
    workspace: usize,
}

impl Kernel for Prepared {
    fn workspace_bytes(&self) -> usize {
        self.workspace
    }

    unsafe fn launch(&self, call: &Call<'_>, queue: &mut dyn Queue) -> Result<(), KernelError> {
        let queue = queue.as_any().downcast_mut::<HostQueue>().ok_or_else(|| {
            KernelError::new(KernelErrorKind::Failed, "a CPU kernel was launched on another backend's queue")
        })?;
        let pointer = |address: &Address| std::ptr::with_exposed_provenance_mut::<u8>(address.0 as usize);
        let workspace = pointer(&call.workspace);
        let team = queue.team();
        if call.inputs.len() <= MAX_STACK_OPERANDS && call.outputs.len() <= MAX_STACK_OPERANDS {
            let mut inputs = [std::ptr::null::<u8>(); MAX_STACK_OPERANDS];
            let mut outputs = [std::ptr::null_mut::<u8>(); MAX_STACK_OPERANDS];
            for (to, from) in inputs.iter_mut().zip(call.inputs) {
                *to = pointer(from).cast_const();
            }
            for (to, from) in outputs.iter_mut().zip(call.outputs) {
                *to = pointer(from);
            }
            // SAFETY: the caller of `launch` grants what `run` asks for.
            unsafe {
                self.work.run(
                    Shared::new(&inputs[..call.inputs.len()], &outputs[..call.outputs.len()], workspace),
                    team,
                )
            }
        } else {
            let inputs: Vec<*const u8> = call.inputs.iter().map(|at| pointer(at).cast_const()).collect();
            let outputs: Vec<*mut u8> = call.outputs.iter().map(pointer).collect();
            // SAFETY: as above.
            unsafe { self.work.run(Shared::new(&inputs, &outputs, workspace), team) }
        }
    }
}
