//! `Engine`: a plan with its backends, its weights in place, shared by contexts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use planish_kernel::{Backend, Memory, MemoryKind, Region, Target};
use planish_op::{Limits, Value, ValueType};
use planish_plan::{Control, Plan, Program, Role, Step, StepKind};
use planish_tensor::DefaultFloatMode;

use crate::code::CodeFrom;
use crate::context::{Context, ContextOptions};
use crate::error::{RunError, RunErrorKind};
use crate::outline::Outline;
use crate::pool::ContextPool;
use crate::scratch::{Allocator, Scratch};
use crate::states::{self, StatePair};
use crate::weights::{WeightPlace, Weights};

/// The version of Planish, which plans name as their producer. Kernels and packings belong to one version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The least that is pinned to see whether a device pins memory at all.
const LEAST: usize = 64;

/// A plan that is ready to run. Cloning is cheap; all clones share the weights.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) core: Arc<Core>,
    /// What the next runs of all contexts take in its place.
    newest: Arc<Newest>,
    /// How far a run of its contexts may go.
    pub(crate) limits: Limits,
    /// Where its contexts have the memory between steps from, where it is not their own.
    pub(crate) scratch: Option<Scratch>,
    pub(crate) allocator: Option<Arc<dyn Allocator>>,
}

/// The core that runs take, shared by all clones of an engine and by their contexts.
#[derive(Debug)]
struct Newest {
    core: Mutex<Arc<Core>>,
    /// How often it was replaced, so that a run asks for one number.
    n_refits: AtomicU64,
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
    pub(crate) weights: Weights,
    managed_weights: bool,
    weight_budget: Option<usize>,
    /// How many refits came before it.
    n_refits: u64,
    /// The same in all that refits made of one engine.
    pub(crate) origin: Arc<()>,
    /// The device that pins the host memory of contexts.
    pub(crate) pinning: Option<Arc<dyn Backend>>,
    /// Inputs that are what outputs were in the run before.
    pub(crate) states: Vec<StatePair>,
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
        Unit { program: without_bodies(program), outline: Outline::new(program), bodies }
    }
}

/// A program whose steps leave their bodies out: each has a unit of its own, and copies of copies would take memory
/// for every level that it is nested.
fn without_bodies(program: &Program) -> Program {
    let step = |step: &Step| {
        let kind = match &step.kind {
            StepKind::Control(Control { n_captured, .. }) => {
                StepKind::Control(Control { bodies: Vec::new(), n_captured: *n_captured })
            }
            other => other.clone(),
        };
        Step {
            kind,
            name: step.name.clone(),
            region: step.region.clone(),
            inputs: step.inputs.clone(),
            outputs: step.outputs.clone(),
            ..*step
        }
    };
    Program {
        values: program.values.clone(),
        inputs: program.inputs.clone(),
        outputs: program.outputs.clone(),
        steps: program.steps.iter().map(step).collect(),
    }
}

/// Whether inputs, outputs and everything that the host works on lie in host memory, in bodies too: their addresses
/// are used as pointers.
fn check_host_memory(program: &Program, backends: &[Arc<dyn Backend>]) -> Result<(), RunError> {
    let is_host = |target: u32| {
        backends.get(target as usize).is_some_and(|backend| backend.memory_kind() == MemoryKind::Host)
    };
    for &value in program.inputs.iter().chain(&program.outputs) {
        let value = &program.values[value as usize];
        if !is_host(value.target) {
            return Err(RunError::needs_rebuild(format!("`{}` is not in the caller's memory", value.name)));
        }
    }
    for step in &program.steps {
        let bodies = match &step.kind {
            StepKind::Kernel { .. } | StepKind::Transfer => continue,
            StepKind::Evaluate => &[][..],
            StepKind::Control(control) => &control.bodies[..],
        };
        if !is_host(step.target) {
            let why = format!("step `{}` works on the host, its values are on a device", step.name);
            return Err(RunError::needs_rebuild(why));
        }
        bodies.iter().try_for_each(|body| check_host_memory(body, backends))?;
    }
    Ok(())
}

impl Core {
    pub(crate) fn input_idx(&self, name: &str) -> Result<usize, RunError> {
        port_idx("input", &self.input_names, name)
    }

    pub(crate) fn output_idx(&self, name: &str) -> Result<usize, RunError> {
        port_idx("output", &self.output_names, name)
    }

    /// Computes a step on host values.
    pub(crate) fn evaluate(
        &self,
        step: &Step,
        region: &Region,
        inputs: &[Option<Value>],
        max_bytes: usize,
    ) -> Result<Vec<Value>, RunError> {
        let backend = &self.backends[step.target as usize];
        let host = backend.host().ok_or_else(|| {
            let why = format!("step `{}` works on the host, {} is none", step.name, backend.name());
            RunError::needs_rebuild(why)
        })?;
        let threads = self.plan.header.threads.max(1) as usize;
        host.evaluate(region, inputs, max_bytes, threads).map_err(|error| RunError::at(&step.name, error))
    }

    /// The plan's device.
    pub(crate) fn device(&self) -> Result<u32, RunError> {
        self.plan.device().ok_or_else(|| {
            let message = "the plan runs in host memory alone; give it host buffers";
            RunError::new(RunErrorKind::WrongInputs, message)
        })
    }

    pub(crate) fn is_device(&self, target: u32) -> bool {
        self.plan.device() == Some(target)
    }

    /// Pinned host memory, where the plan has a device that copies from it without us; else nothing.
    pub(crate) fn pinned(&self, bytes: usize) -> Result<Option<Box<dyn Memory>>, RunError> {
        match &self.pinning {
            Some(device) => Ok(device.allocate_pinned(bytes)?),
            None => Ok(None),
        }
    }

    /// Where a weight is, and how long.
    pub(crate) fn weight(
        &self,
        target: u32,
        weight: u32,
        format: Option<&str>,
    ) -> Result<WeightPlace, RunError> {
        self.weights.find(target, weight, format).ok_or_else(|| {
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

/// How an engine is opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EngineOptions {
    /// Weights on a device are put into managed memory: there from the start, and the driver's to move to the host
    /// and back where the device runs short of memory, say with many engines of which few run. Opening fails where
    /// the device cannot do that, or has less free than the weights need.
    pub managed_weights: bool,
    /// Bytes of a device's memory for weights. What does not fit stays in pinned host memory and is brought ahead of its
    /// use, through a ring that is a part of the budget; every context beyond the first has a further ring. Opening fails
    /// where the budget is below what the largest step needs. Results are the same.
    pub weight_budget: Option<usize>,
    /// Where the compiled code of kernels comes from. A plan for a GPU is a program: its code runs with the rights of
    /// this process.
    pub code: CodeFrom,
}

impl Engine {
    /// Puts the plan's weights in place on the backends, one per target of the plan and in that order.
    pub fn new(plan: Plan, backends: Vec<Arc<dyn Backend>>) -> Result<Engine, RunError> {
        Engine::with_options(plan, backends, EngineOptions::default())
    }

    /// As [`Engine::new`], with options.
    pub fn with_options(
        plan: Plan,
        mut backends: Vec<Arc<dyn Backend>>,
        options: EngineOptions,
    ) -> Result<Engine, RunError> {
        // Packing weights may compute.
        let _mode = DefaultFloatMode::enter();
        if plan.stripped.is_some() {
            return Err(RunError::stripped());
        }
        if options.managed_weights && plan.device().is_none() {
            let message = "managed weights are for a plan on a GPU, this one runs on the CPU alone";
            return Err(RunError::new(RunErrorKind::Lacking, message));
        }
        if options.weight_budget.is_some() && plan.device().is_none() {
            let message = "a weight budget is for a plan on a GPU, this one runs on the CPU alone";
            return Err(RunError::new(RunErrorKind::Lacking, message));
        }
        if options.weight_budget.is_some() && options.managed_weights {
            let message =
                "weights are streamed within a budget or lie in managed memory; ask for one of both";
            return Err(RunError::new(RunErrorKind::Lacking, message));
        }
        if backends.len() != plan.header.targets.len() {
            let (wanted, given) = (plan.header.targets.len(), backends.len());
            return Err(RunError::needs_rebuild(format!(
                "the plan runs on {wanted} backends, {given} were given"
            )));
        }
        for (role, backend) in plan.roles.iter().zip(&backends) {
            let role_here = Role::from(backend.memory_kind());
            if *role != role_here {
                let (name, role, here) = (backend.name(), role.name(), role_here.name());
                let why = format!("the plan takes `{name}` for its {role}, it is a {here}");
                return Err(RunError::needs_rebuild(why));
            }
        }
        plugins_are_here(&plan.header.targets)?;
        for (target, backend) in plan.header.targets.iter().zip(&backends) {
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
        if plan.header.producer != VERSION {
            let producer = &plan.header.producer;
            let why = format!("the plan was built by Planish {producer:?}, this is {VERSION:?}");
            return Err(RunError::needs_rebuild(why));
        }
        check_host_memory(&plan.program, &backends)?;
        let states = states::of_plan(&plan)?;
        let code = options.code.taken_from(&plan)?;
        for backend in backends.iter_mut().filter(|backend| backend.memory_kind() == MemoryKind::Device) {
            // Each piece of code names what it is made for; a backend that cannot use one leaves it.
            if let Some(own) = backend.with_code(code)? {
                *backend = own;
            }
        }
        let unit = Unit::new(&plan.program);
        let names = |list: &[u32]| {
            list.iter().map(|&value| plan.program.values[value as usize].name.clone()).collect::<Vec<_>>()
        };
        let (input_names, output_names) = (names(&plan.program.inputs), names(&plan.program.outputs));
        let weights = Weights::place(&plan, &backends, options.managed_weights, options.weight_budget)?;
        let pinning = match plan.device().map(|device| &backends[device as usize]) {
            Some(device) => device.allocate_pinned(LEAST)?.map(|_| device.clone()),
            None => None,
        };
        let EngineOptions { managed_weights, weight_budget, .. } = options;
        let core = Arc::new(Core {
            plan,
            unit,
            backends,
            input_names,
            output_names,
            weights,
            managed_weights,
            weight_budget,
            n_refits: 0,
            origin: Arc::new(()),
            pinning,
            states,
        });
        let newest = Arc::new(Newest { core: Mutex::new(core.clone()), n_refits: AtomicU64::new(0) });
        Ok(Engine { core, newest, limits: Limits::default(), scratch: None, allocator: None })
    }

    /// Gives the engine the weights of a plan that is its own but for these, as a refit makes it. Runs that are under way go
    /// on with the weights that they began with; every run that begins after this returned has the new ones, in contexts
    /// that were made before as well. The old weights go with the last run, and the last clone of this engine, that has them.
    pub fn refit(&mut self, plan: Plan) -> Result<(), RunError> {
        let _mode = DefaultFloatMode::enter();
        if plan.stripped.is_some() {
            return Err(RunError::stripped());
        }
        // Two at once would leave it open which is the newer one.
        let mut newest = self.newest.core.lock().unwrap_or_else(PoisonError::into_inner);
        let old = newest.clone();
        if !plan.runs_as(&old.plan) {
            let message = "the plan is another one than the engine's; an engine takes other weights for its own plan, as \
                           `Plan::refit` puts them there, and nothing else";
            return Err(RunError::new(RunErrorKind::Refused, message));
        }
        let weights = Weights::place(&plan, &old.backends, old.managed_weights, old.weight_budget)?;
        let core = Arc::new(Core {
            unit: Unit::new(&plan.program),
            plan,
            backends: old.backends.clone(),
            input_names: old.input_names.clone(),
            output_names: old.output_names.clone(),
            weights,
            managed_weights: old.managed_weights,
            weight_budget: old.weight_budget,
            n_refits: old.n_refits + 1,
            origin: old.origin.clone(),
            pinning: old.pinning.clone(),
            states: old.states.clone(),
        });
        *newest = core.clone();
        self.newest.n_refits.store(core.n_refits, Ordering::Release);
        drop(newest);
        self.core = core;
        Ok(())
    }

    /// Takes the newest weights; gives whether they are others than before.
    pub(crate) fn catch_up(&mut self) -> bool {
        if self.newest.n_refits.load(Ordering::Acquire) == self.core.n_refits {
            return false;
        }
        let newest = self.newest.core.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_newer = newest.n_refits != self.core.n_refits;
        self.core = newest;
        is_newer
    }

    /// The same engine, for contexts whose runs may go this far: a run that would make more trips through loops, or
    /// hold more memory, ends in an error.
    pub fn limited(self, limits: Limits) -> Engine {
        Engine { limits, ..self }
    }

    /// The same engine, for contexts that share their memory between steps with those of other engines: runs of all of them
    /// go one after the other.
    pub fn sharing(self, scratch: &Scratch) -> Engine {
        Engine { scratch: Some(scratch.clone()), ..self }
    }

    /// The same engine, for contexts that have their memory between steps from a caller's allocator.
    pub fn allocating(self, allocator: Arc<dyn Allocator>) -> Engine {
        Engine { allocator: Some(allocator), ..self }
    }

    /// The plan with the weights that this clone was opened or refitted with.
    pub fn plan(&self) -> &Plan {
        &self.core.plan
    }

    /// Who runs the steps of a target of the plan.
    pub fn backend(&self, target: u32) -> &dyn Backend {
        &*self.core.backends[target as usize]
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

    /// Inputs that are what outputs were in the run before.
    pub fn states(&self) -> &[StatePair] {
        &self.core.states
    }

    /// Bytes of all weights, each in the form that kernels read.
    pub fn weight_bytes(&self) -> usize {
        self.core.weights.bytes.iter().sum::<usize>() + self.streamed_bytes()
    }

    /// Those of them that stay in pinned host memory and are brought to the device in every run.
    pub fn streamed_bytes(&self) -> usize {
        self.core.weights.streaming.as_ref().map_or(0, |streaming| streaming.host_bytes)
    }

    /// A context with as many threads as the plan was built for.
    pub fn context(&self) -> Result<Context, RunError> {
        self.context_with(ContextOptions::new(self.core.plan.header.threads.max(1) as usize))
    }

    pub fn context_with(&self, options: ContextOptions) -> Result<Context, RunError> {
        Context::new(self.clone(), options)
    }

    /// A pool of `n_contexts` contexts that threads take in turn.
    pub fn pool(&self, n_contexts: usize) -> Result<ContextPool, RunError> {
        ContextPool::new(self, n_contexts, ContextOptions::new(self.core.plan.header.threads.max(1) as usize))
    }
}

/// Refuses a plan whose plugins are not loaded, or are others than it was built with. Nothing is loaded for it.
pub fn plugins_are_here(targets: &[Target]) -> Result<(), RunError> {
    let needs = targets.iter().flat_map(|target| &target.needs);
    for need in needs.filter(|need| planish_op::plugin::is_need(need)) {
        planish_op::plugin::provides(need).map_err(|why| RunError::new(RunErrorKind::Lacking, why))?;
    }
    Ok(())
}

/// Whether a backend is what a target of a plan asks for.
pub fn fits(target: &Target, backend: &dyn Backend) -> bool {
    let here = backend.target();
    // What tactics need besides stands after the target's own needs.
    here.backend == target.backend
        && target.needs.get(..here.needs.len()) == Some(&here.needs[..])
        && target.needs.iter().all(|need| backend.provides(need))
}
