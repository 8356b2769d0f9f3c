//! `Engine`: a plan with its backends, its weights in place, shared by contexts.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use planish_kernel::{Address, Backend, Layout, Memory, MemoryKind, Queue, QueueOptions};
use planish_op::ValueType;
use planish_plan::{Home, Plan, PlanTarget, Program, StepKind, Weight};
use planish_tensor::Tensor;

use crate::bind::Symbols;
use crate::context::{Context, ContextOptions};
use crate::error::{RunError, RunErrorKind};
use crate::outline::Outline;
use crate::pool::ContextPool;
use crate::resolve;

/// The version of Planish, which plans name as their producer. Kernels and packings belong to one version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Weights are used where they lie in the file only if they are aligned like everything else.
const ALIGNMENT: u64 = 64;

/// A plan that is ready to run. Cloning is cheap; all clones share the weights.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) core: Arc<Core>,
}

/// A program and its outline, bodies included.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) program: Program,
    pub(crate) outline: Outline,
    /// For each step the units of its bodies.
    pub(crate) bodies: Vec<Vec<Unit>>,
}

/// One input or output of a model.
#[derive(Clone, PartialEq, Debug)]
pub struct PortInfo {
    pub name: String,
    pub ty: ValueType,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) plan: Plan,
    pub(crate) unit: Unit,
    pub(crate) backends: Vec<Arc<dyn Backend>>,
    pub(crate) input_names: Vec<String>,
    pub(crate) output_names: Vec<String>,
    /// (target, weight, format) to where it is.
    weights: HashMap<(u32, u32, Option<String>), Address>,
    /// Memory of the weights that do not lie in the plan's file.
    _memory: Vec<Box<dyn Memory>>,
    weight_bytes: usize,
    /// The device that pins the host memory of contexts.
    pub(crate) pinning: Option<Arc<dyn Backend>>,
}

impl Unit {
    fn new(program: &Program) -> Unit {
        let bodies = program
            .steps
            .iter()
            .map(|step| match &step.kind {
                StepKind::Control(control) => control.bodies.iter().map(Unit::new).collect(),
                StepKind::Kernel { .. } | StepKind::Transfer | StepKind::Evaluate => Vec::new(),
            })
            .collect();
        Unit { program: program.clone(), outline: Outline::new(program), bodies }
    }
}

impl Core {
    pub(crate) fn input_idx(&self, name: &str) -> Result<usize, RunError> {
        port_idx("input", &self.input_names, name)
    }

    pub(crate) fn output_idx(&self, name: &str) -> Result<usize, RunError> {
        port_idx("output", &self.output_names, name)
    }

    /// Pinned host memory, where the plan has a device that copies from it without us; else nothing.
    pub(crate) fn pinned(&self, bytes: usize) -> Result<Option<Box<dyn Memory>>, RunError> {
        match &self.pinning {
            Some(device) => Ok(device.allocate_pinned(bytes)?),
            None => Ok(None),
        }
    }

    /// Where a weight is.
    pub(crate) fn weight(&self, target: u32, weight: u32, format: Option<&str>) -> Result<Address, RunError> {
        let key = (target, weight, format.map(str::to_string));
        self.weights.get(&key).copied().ok_or_else(|| {
            let name = self.plan.weights.get(weight as usize).map_or("?", |weight| weight.name.as_str());
            RunError::needs_rebuild(format!("weight `{name}` is not in place, the plan is damaged"))
        })
    }
}

fn port_idx(what: &str, names: &[String], name: &str) -> Result<usize, RunError> {
    names.iter().position(|known| known == name).ok_or_else(|| {
        let message = format!("the model has no {what} `{name}`; it has {}", names.join(", "));
        RunError::new(RunErrorKind::WrongInputs, message)
    })
}

impl Engine {
    /// Puts the plan's weights in place on the backends, one per target of the plan and in that order.
    pub fn new(plan: Plan, backends: Vec<Arc<dyn Backend>>) -> Result<Engine, RunError> {
        if backends.len() != plan.targets.len() {
            let (wanted, given) = (plan.targets.len(), backends.len());
            return Err(RunError::needs_rebuild(format!(
                "the plan runs on {wanted} backends, {given} were given"
            )));
        }
        for (target, backend) in plan.targets.iter().zip(&backends) {
            let here = backend.target();
            if !fits(target, &**backend) {
                return Err(RunError::needs_rebuild(format!(
                    "the plan was built for {} with {}, this is {} with {}",
                    target.backend,
                    target.needs.join(" "),
                    here.backend,
                    here.needs.join(" ")
                )));
            }
        }
        if plan.producer != VERSION {
            let producer = &plan.producer;
            let why = format!("the plan was built by Planish {producer:?}, this is {VERSION:?}");
            return Err(RunError::needs_rebuild(why));
        }
        for &value in plan.program.inputs.iter().chain(&plan.program.outputs) {
            let value = &plan.program.values[value as usize];
            let backend = backends.get(value.target as usize);
            if backend.is_none_or(|backend| backend.memory_kind() != MemoryKind::Host) {
                return Err(RunError::needs_rebuild(format!(
                    "`{}` is not in the caller's memory",
                    value.name
                )));
            }
        }
        // Each piece of code names what it is made for; a backend that cannot use one leaves it.
        if !plan.code.is_empty() {
            for backend in backends.iter().filter(|backend| backend.memory_kind() == MemoryKind::Device) {
                backend.add_code(&plan.code)?;
            }
        }
        let unit = Unit::new(&plan.program);
        let names = |list: &[u32]| {
            list.iter().map(|&value| plan.program.values[value as usize].name.clone()).collect::<Vec<_>>()
        };
        let (input_names, output_names) = (names(&plan.program.inputs), names(&plan.program.outputs));
        let mut placing = Placing {
            plan: &plan,
            backends: &backends,
            weights: HashMap::new(),
            memory: Vec::new(),
            queues: BTreeMap::new(),
            bytes: 0,
        };
        placing.program(&plan.program)?;
        placing.finish()?;
        let (weights, memory, weight_bytes) = (placing.weights, placing.memory, placing.bytes);
        let device = backends.iter().find(|backend| backend.memory_kind() == MemoryKind::Device);
        let pinning = match device {
            Some(device) => device.allocate_pinned(ALIGNMENT as usize)?.map(|_| device.clone()),
            None => None,
        };
        Ok(Engine {
            core: Arc::new(Core {
                plan,
                unit,
                backends,
                input_names,
                output_names,
                weights,
                _memory: memory,
                weight_bytes,
                pinning,
            }),
        })
    }

    pub fn plan(&self) -> &Plan {
        &self.core.plan
    }

    /// Inputs with their types, in the model's order.
    pub fn inputs(&self) -> Vec<PortInfo> {
        self.ports(&self.core.plan.program.inputs)
    }

    /// Outputs with their types, in the model's order.
    pub fn outputs(&self) -> Vec<PortInfo> {
        self.ports(&self.core.plan.program.outputs)
    }

    fn ports(&self, list: &[u32]) -> Vec<PortInfo> {
        let port = |&value: &u32| {
            let value = &self.core.plan.program.values[value as usize];
            PortInfo { name: value.name.clone(), ty: value.ty.clone() }
        };
        list.iter().map(port).collect()
    }

    /// Bytes of all weights, each in the form that kernels read.
    pub fn weight_bytes(&self) -> usize {
        self.core.weight_bytes
    }

    /// A context with as many threads as the plan was built for.
    pub fn context(&self) -> Result<Context, RunError> {
        self.context_with(ContextOptions::new(self.core.plan.threads.max(1) as usize))
    }

    pub fn context_with(&self, options: ContextOptions) -> Result<Context, RunError> {
        Context::new(self.clone(), options)
    }

    /// A pool of `n_contexts` contexts that threads take in turn.
    pub fn pool(&self, n_contexts: usize) -> Result<ContextPool, RunError> {
        ContextPool::new(self, n_contexts, ContextOptions::new(self.core.plan.threads.max(1) as usize))
    }
}

/// Whether a backend is what a target of a plan asks for.
pub fn fits(target: &PlanTarget, backend: &dyn Backend) -> bool {
    let here = backend.target();
    // What tactics need besides stands behind the target's own needs.
    here.backend == target.backend
        && target.needs.get(..here.needs.len()) == Some(&here.needs[..])
        && target.needs.iter().all(|need| backend.provides(need))
}

/// Weights being put in place.
struct Placing<'a> {
    plan: &'a Plan,
    backends: &'a [Arc<dyn Backend>],
    weights: HashMap<(u32, u32, Option<String>), Address>,
    memory: Vec<Box<dyn Memory>>,
    /// One for each target, so that copies are waited for once.
    queues: BTreeMap<u32, Box<dyn Queue>>,
    bytes: usize,
}

impl Placing<'_> {
    fn program(&mut self, program: &Program) -> Result<(), RunError> {
        let sizes = Symbols::from_pairs(&self.plan.tuned_at).with_guesses(program);
        for step in &program.steps {
            let packed: &[Option<String>] = match &step.kind {
                StepKind::Kernel { packed, .. } => packed,
                StepKind::Control(control) => {
                    for body in &control.bodies {
                        self.program(body)?;
                    }
                    &[]
                }
                StepKind::Transfer | StepKind::Evaluate => &[],
            };
            for (idx, value) in step.inputs.iter().enumerate() {
                let Some(value) = value else { continue };
                let Some(weight_idx) = weight_of(program, *value) else { continue };
                let format = packed.get(idx).cloned().flatten();
                let key = (step.target, weight_idx, format.clone());
                if self.weights.contains_key(&key) {
                    continue;
                }
                let weight = self.plan.weights.get(weight_idx as usize);
                let weight = weight.ok_or_else(|| RunError::needs_rebuild("a weight is missing"))?;
                let address = match &format {
                    _ if weight.format == format && weight.packed_by.is_none_or(|by| by == step.target) => {
                        self.check_packed(step.target, weight, format.as_deref(), weight.bytes.len())?;
                        self.put(step.target, &weight.bytes)?
                    }
                    // Steps read it in different forms; the one that is stored leads to the others.
                    Some(format) => {
                        let threads = self.plan.threads.max(1) as usize;
                        let problem = resolve::problem(program, step, &sizes, threads)?;
                        let tactic = resolve::tactic(step, &sizes)?;
                        let tensor = self.tensor_of(weight)?;
                        let packed = self.backends[step.target as usize]
                            .pack(&problem, tactic, idx, &tensor)
                            .map_err(|error| RunError::at(&step.name, error))?;
                        if packed.format != *format {
                            let (name, other) = (&step.name, &packed.format);
                            return Err(RunError::needs_rebuild(format!(
                                "step `{name}` reads a weight as {format}, its kernel packs it as {other}"
                            )));
                        }
                        self.check_packed(step.target, weight, Some(format), packed.bytes.len())?;
                        self.copy(step.target, &packed.bytes)?
                    }
                    None => self.copy(step.target, self.tensor_of(weight)?.bytes())?,
                };
                self.weights.insert(key, address);
            }
        }
        Ok(())
    }

    /// Whether a packed weight is as long as its kernel will read; a plan may say anything.
    fn check_packed(
        &self,
        target: u32,
        weight: &Weight,
        format: Option<&str>,
        len: usize,
    ) -> Result<(), RunError> {
        let Some(format) = format else { return Ok(()) };
        let backend = &self.backends[target as usize];
        let expected = backend.packed_bytes(format, weight.dtype, &weight.dims);
        // A format that is never stored was packed here, so its length is right.
        let fits = expected == Some(len) || (expected.is_none() && weight.format.is_none());
        if fits {
            return Ok(());
        }
        Err(RunError::needs_rebuild(format!(
            "weight `{}`, {}{:?} as `{format}`, has {len} bytes, {} reads {expected:?}",
            weight.name,
            weight.dtype,
            weight.dims,
            backend.name()
        )))
    }

    /// A weight as the graph has it.
    fn tensor_of(&self, weight: &Weight) -> Result<Tensor, RunError> {
        let (Some(format), Some(target)) = (&weight.format, weight.packed_by) else {
            return tensor_of(weight);
        };
        let backend = &self.backends[target as usize];
        backend.unpack(format, weight.dtype, &weight.dims, &weight.bytes).map_err(|error| {
            RunError::needs_rebuild(format!("weight `{}` cannot be unpacked: {error}", weight.name))
        })
    }

    /// The bytes where they lie if the backend can read them there, else a copy.
    fn put(&mut self, target: u32, bytes: &[u8]) -> Result<Address, RunError> {
        let here = bytes.as_ptr().expose_provenance() as u64;
        let host = self.backends[target as usize].memory_kind() == MemoryKind::Host;
        if host && here.is_multiple_of(ALIGNMENT) {
            self.bytes += bytes.len();
            return Ok(Address(here));
        }
        self.copy(target, bytes)
    }

    fn copy(&mut self, target: u32, bytes: &[u8]) -> Result<Address, RunError> {
        let backend = &self.backends[target as usize];
        let memory = backend.allocate(bytes.len())?;
        let address = memory.address();
        let queue = match self.queues.entry(target) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(backend.queue(QueueOptions::new(1))?),
        };
        // SAFETY: the memory was just allocated with this length.
        unsafe { queue.upload(address, bytes)? };
        self.bytes += bytes.len();
        self.memory.push(memory);
        Ok(address)
    }

    /// Waits for all copies.
    fn finish(&mut self) -> Result<(), RunError> {
        self.queues.values_mut().try_for_each(|queue| Ok(queue.synchronize()?))
    }
}

/// The weight that a value is or lies in.
fn weight_of(program: &Program, value: u32) -> Option<u32> {
    let mut at = value;
    for _ in 0..program.values.len() {
        match &program.values[at as usize].home {
            Home::Weight(weight) => return Some(*weight),
            Home::Alias { of } | Home::Inside { of, .. } => at = *of,
            Home::Input | Home::Arena | Home::Own => return None,
        }
    }
    None
}

/// A weight that is stored plain, as the graph has it.
pub(crate) fn tensor_of(weight: &Weight) -> Result<Tensor, RunError> {
    if weight.format.is_some() || !weight.layout.same_for(Layout::Plain, &weight.dims) {
        let why = format!("weight `{}` is needed plain, but is stored in another form", weight.name);
        return Err(RunError::needs_rebuild(why));
    }
    Tensor::from_bytes(weight.dtype, &weight.dims, weight.bytes.clone())
        .map_err(|error| RunError::needs_rebuild(format!("weight `{}`: {error}", weight.name)))
}
