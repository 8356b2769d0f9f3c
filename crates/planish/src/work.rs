//! `StepWork`: the arithmetic and the memory of each step of a plan; `Roof`: the least time that it can take.

use planish_ir::{Declared, Graph, GraphError, NewNode, NewOutput, ValueId};
use planish_kernel::{Arithmetic, Operand, Problem, Ref};
use planish_op::ValueType;
use planish_plan::StepKind;
use planish_runtime::problem_of;
use planish_tensor::{DType, Shape};

use crate::Engine;
use crate::machine::{PeakUnit, Peaks};

/// What one step of a plan is, counted from its sizes, whatever its kernel makes of it.
/// Given by [`Engine::work_at`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StepWork {
    /// Operations, a multiplication and an addition counted as two, by the rules of [`crate::graph::Graph::work`]; `None`
    /// where an operator has no plain count, or only a run can tell the sizes.
    pub flops: Option<u64>,
    /// Bytes of all operands, weights and activations, each once; `None` where only a run can tell the sizes.
    pub bytes: Option<u64>,
    /// What products are taken in.
    pub arithmetic: Arithmetic,
}

impl Engine {
    /// The work of every step of the plan at these sizes of its symbols, in the order of the steps.
    ///
    /// ```
    /// use planish::{Builder, DType, Device, Engine, NetworkBuilder, Tensor};
    ///
    /// let mut net = NetworkBuilder::new("product");
    /// let x = net.input("x", DType::F32, "rows,8")?;
    /// let y = net.matmul(x, Tensor::new(&[8, 4], vec![0.5f32; 32])?)?;
    /// net.output("y", y)?;
    /// let engine = Engine::new(Builder::from_network(net)?.tune_level(0).build()?, Device::Auto)?;
    /// let work = engine.work_at(&engine.sizes_of(&[("x", &[3, 8])])?);
    /// assert_eq!(work[0].flops, Some(2 * 3 * 8 * 4));
    /// assert_eq!(work[0].bytes, Some(4 * (3 * 8 + 8 * 4 + 3 * 4)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn work_at(&self, sizes: &[(String, i64)]) -> Vec<StepWork> {
        let record = self.record();
        let work = |step| {
            let problem = problem_of(&record.program, step, sizes, 1).ok();
            let (flops, bytes) = match (&step.kind, &problem) {
                (StepKind::Control(_), _) | (_, None) => (None, None),
                (StepKind::Transfer, Some(problem)) => (Some(0), Some(bytes_of(problem))),
                (_, Some(problem)) => (flops_of(problem), Some(bytes_of(problem))),
            };
            StepWork { flops, bytes, arithmetic: step.numeric.element }
        };
        record.program.steps.iter().map(work).collect()
    }
}

/// Every operand once: those that repeat elements by what they hold, those with gaps by their elements.
fn bytes_of(problem: &Problem) -> u64 {
    let bytes = |operand: &Operand| {
        let dense = operand.dtype.bytes_for(operand.dims.iter().product()).unwrap_or(usize::MAX);
        dense.min(operand.span_bytes()) as u64
    };
    problem.inputs.iter().chain(&problem.outputs).map(bytes).sum()
}

/// The operations of a step: those of its region as a graph.
fn flops_of(problem: &Problem) -> Option<u64> {
    let work = graph_of(problem).ok()??.work(&|_| None);
    work.uncounted.is_empty().then_some(work.flops)
}

/// The region of a step as a graph of fixed sizes; `None` where sizes inside of it hang on values.
fn graph_of(problem: &Problem) -> Result<Option<Graph>, GraphError> {
    let Ok(types) = problem.inner_types() else { return Ok(None) };
    let ty = |dtype: DType, dims: &[usize]| ValueType::tensor(dtype, Shape::from(dims));
    let region = &problem.region;
    let mut graph = Graph::new("step");
    let mut inputs = Vec::new();
    for (idx, operand) in problem.inputs.iter().enumerate() {
        inputs.push(graph.add_input(&format!("input {idx}"), ty(operand.dtype, &operand.dims))?);
    }
    let mut constants = Vec::new();
    for (idx, tensor) in region.constants.iter().enumerate() {
        constants.push(graph.add_constant(&format!("constant {idx}"), tensor.clone())?);
    }
    let mut made: Vec<Vec<Option<ValueId>>> = Vec::new();
    for (node, types) in region.nodes.iter().zip(&types) {
        let read = |from: &Ref| match *from {
            Ref::Input(idx) => inputs.get(idx as usize).copied(),
            Ref::Constant(idx) => constants.get(idx as usize).copied(),
            Ref::Node { node, output } => made.get(node as usize)?.get(output as usize).copied()?,
        };
        let inputs = node.inputs.iter().map(|from| from.as_ref().and_then(read)).collect();
        let mut new = NewNode::new(&node.name, node.op.clone(), inputs, &[]);
        new.outputs = types
            .iter()
            .enumerate()
            .map(|(output, inner)| NewOutput::Value {
                name: format!("{} {output}", made.len()).into(),
                declared: Declared::Exact(ty(inner.dtype, &inner.dims)),
            })
            .collect();
        let id = graph.add_node(new)?;
        made.push(graph.node(id).outputs.clone());
    }
    Ok(Some(graph))
}

/// What a device can do at most on as many threads as a plan has: the roof of the roofline model.
///
/// ```
/// use planish::Roof;
/// use planish::machine::Peaks;
///
/// // `Peaks::kept` gives nothing where `planish doctor --measure` was never run.
/// let roof = Peaks::kept().and_then(|peaks| Roof::new(&peaks, "some GPU", 1));
/// assert!(roof.is_none());
/// ```
///
/// A plan beside it:
///
/// ```no_run
/// use planish::machine::Peaks;
/// use planish::tactic::Arithmetic;
/// use planish::{Device, Engine, Plan, Roof};
///
/// let engine = Engine::new(Plan::open("model.plan")?, Device::Cpu)?;
/// let device = &engine.record().header.targets[0].device;
/// let Some(roof) = Peaks::kept().and_then(|peaks| Roof::new(&peaks, device, 2)) else { return Ok(()) };
/// let steps = engine.work_at(&[]);
/// println!("{:?} FLOP/s, {} bytes/s", roof.flops(Arithmetic::F32), roof.bandwidth());
/// println!("{} s of arithmetic, {} s of memory", roof.compute_seconds(&steps), roof.memory_seconds(&steps));
/// println!("at least {} s", steps.iter().map(|step| roof.seconds(*step)).sum::<f64>());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Roof {
    /// Operations a second by what products are taken in; those that were measured.
    arithmetic: Vec<(Arithmetic, f64)>,
    /// Bytes a second from and to memory.
    bandwidth: f64,
}

impl Roof {
    /// Of the device that plans name so ([`crate::record::Target::device`]); `None` where its peaks were not measured.
    /// Of a CPU on fewer threads than it has: as many times what one thread does, at most what all do.
    pub fn new(peaks: &Peaks, device: &str, threads: usize) -> Option<Roof> {
        let rate = |begins: &str, unit: PeakUnit| {
            let of = peaks.list.iter().filter(|peak| peak.device == device && peak.unit == unit);
            let of: Vec<_> = of.filter(|peak| peak.name.starts_with(begins)).collect();
            let most = of.iter().map(|peak| peak.per_second).reduce(f64::max)?;
            let one = of.iter().filter(|peak| peak.name.ends_with(", 1 thread"));
            let one = one.map(|peak| peak.per_second).reduce(f64::max);
            Some(one.map_or(most, |one| most.min(one * threads.max(1) as f64)))
        };
        let flop = |name: &str| rate(name, PeakUnit::Flop);
        // A CPU computes halves in f32, but for products of bf16, whose peak nobody measured.
        let cpu = flop("fp32 fma");
        let kinds = [
            (Arithmetic::F32, cpu.or(flop("fp32 gemm"))),
            (Arithmetic::Tf32, cpu.or(flop("tf32 gemm"))),
            (Arithmetic::F16, cpu.or(flop("fp16 gemm"))),
            // On tensor cores as fast as FP16.
            (Arithmetic::Bf16, flop("fp16 gemm")),
            (Arithmetic::I8, rate("int8 ", PeakUnit::Op)),
        ];
        let arithmetic: Vec<_> = kinds.into_iter().filter_map(|(kind, rate)| Some((kind, rate?))).collect();
        let bandwidth = rate("memory ", PeakUnit::Byte)?;
        (!arithmetic.is_empty()).then_some(Roof { arithmetic, bandwidth })
    }

    /// Operations a second that take their products so.
    pub fn flops(&self, arithmetic: Arithmetic) -> Option<f64> {
        self.arithmetic.iter().find(|(kind, _)| *kind == arithmetic).map(|(_, rate)| *rate)
    }

    /// Bytes a second from and to memory.
    pub fn bandwidth(&self) -> f64 {
        self.bandwidth
    }

    /// The seconds that the arithmetic of these steps takes at the peak; of those that are counted and whose kind was
    /// measured.
    pub fn compute_seconds(&self, steps: &[StepWork]) -> f64 {
        steps.iter().filter_map(|step| Some(step.flops? as f64 / self.flops(step.arithmetic)?)).sum()
    }

    /// The seconds that their operands take at the peak of the memory, each read or written once.
    pub fn memory_seconds(&self, steps: &[StepWork]) -> f64 {
        steps.iter().filter_map(|step| step.bytes).map(|bytes| bytes as f64 / self.bandwidth).sum()
    }

    /// The least seconds that a step takes if its operands come from memory: arithmetic and memory, whichever is longer.
    /// Operands that lie in a cache can be faster.
    pub fn seconds(&self, step: StepWork) -> f64 {
        self.compute_seconds(&[step]).max(self.memory_seconds(&[step]))
    }
}
