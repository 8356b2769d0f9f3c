//! `Plugin`: a declaration with what computes it, registered for the process; and the traits that Rust implements.

use std::fmt;
use std::sync::Arc;

use planish_kernel::{Layout, Operand, Problem, Ref};
use planish_op::infer::{InferResult, Inference};
use planish_op::plugin::{CustomOp, Identity};
use planish_op::{Attribute, Custom, Lowering, Op};
use planish_tensor::{DType, Tensor};

use crate::declaration::Declaration;
use crate::signature::Bound;

/// Why a plugin could not be loaded, checked or run; the message names it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct PluginError(pub String);

/// Where a problem is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Cpu,
    Cuda,
}

/// What a plugin's code is asked to compute: its operator at known sizes.
#[derive(Clone, Debug)]
pub struct Task {
    pub place: Place,
    /// `None` where an optional input is left out.
    pub inputs: Vec<Option<Operand>>,
    pub outputs: Vec<Operand>,
    /// All of them, those that the model leaves out at their defaults.
    pub attributes: Vec<(String, Attribute)>,
    /// What the names of the declaration are.
    pub bound: Bound,
    pub tactic: String,
    /// The numbers that the declaration gives the tactic.
    pub defines: Vec<(String, i64)>,
    /// The most threads that will run it.
    pub threads: usize,
}

impl Task {
    /// A size, a number of the tactic or an integer attribute of this name.
    pub fn number(&self, name: &str) -> Option<i64> {
        let define = self.defines.iter().find(|(known, _)| known == name).map(|(_, number)| *number);
        define.or_else(|| self.bound.sizes.get(name).copied())
    }

    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}

/// Runs parts of a call on the threads that take part.
pub trait Threads {
    /// Runs `work` for every task below `n_tasks` with the slot of its thread, in any order.
    fn for_each(&self, n_tasks: usize, work: &(dyn Fn(usize, usize) + Sync));
}

/// One run: memory, threads, and what follows.
pub struct Run<'a> {
    /// Null where an optional input is left out.
    pub inputs: &'a [*const u8],
    pub outputs: &'a [*mut u8],
    pub workspace: *mut u8,
    pub workspace_bytes: usize,
    /// On CUDA, the stream.
    pub stream: *mut std::ffi::c_void,
    pub threads: &'a dyn Threads,
    /// Goes on with elements `first..first + n` of the first output, counted in plain order, by the thread of a slot; the
    /// plugin calls it once for each element, after it has written it.
    pub finish: Option<&'a (dyn Fn(usize, usize, usize) + Sync)>,
}

impl fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("inputs", &self.inputs)
            .field("outputs", &self.outputs)
            .finish_non_exhaustive()
    }
}

/// What computes an operator: a Rust type, or the functions of a C library.
pub trait Operator: Send + Sync + fmt::Debug {
    /// Settles a task; refuses what it does not compute.
    fn prepare(&self, task: &Task) -> Result<Box<dyn Prepared>, String>;

    /// Its own reference, where the declaration has none: dense outputs on dense inputs.
    fn reference(&self, task: &Task, inputs: &[Option<&Tensor>]) -> Option<Result<Vec<Tensor>, String>> {
        let _ = (task, inputs);
        None
    }

    fn has_reference(&self) -> bool {
        false
    }
}

/// An operator that is ready to run at given sizes.
pub trait Prepared: Send + Sync + fmt::Debug {
    fn workspace_bytes(&self) -> usize {
        0
    }

    /// Runs it, or puts it on the stream.
    ///
    /// # Safety
    /// Operands must be valid for what the task's span, the workspace for `workspace_bytes` and aligned to 64 bytes, and
    /// nobody else may write them meanwhile.
    #[allow(unsafe_code)]
    unsafe fn run(&self, run: &Run<'_>) -> Result<(), String>;
}

/// An operator that a plugin brings.
#[derive(Debug)]
pub struct Plugin {
    identity: Identity,
    declaration: Declaration,
    text: String,
    operator: Option<Box<dyn Operator>>,
    /// CUDA C++ that the backend compiles, and the name of its file.
    source: Option<(&'static str, String)>,
    kernel: &'static str,
}

impl Plugin {
    /// An operator that this program computes. The hash is that of its declaration: say another `version:` when the code
    /// changes.
    pub fn new(declaration: &str, operator: impl Operator + 'static) -> Result<Plugin, PluginError> {
        Plugin::with(declaration, Some(Box::new(operator)), None, "this program", declaration.as_bytes())
    }

    pub(crate) fn with(
        text: &str,
        operator: Option<Box<dyn Operator>>,
        source: Option<String>,
        origin: &str,
        hashed: &[u8],
    ) -> Result<Plugin, PluginError> {
        let error = |why: String| PluginError(format!("plugin {origin}: {why}"));
        let declaration = Declaration::parse(text).map_err(error)?;
        if declaration.launch.is_some() != source.is_some() {
            return Err(error("`kernel:` goes with a text of CUDA C++, and only with one".to_string()));
        }
        if declaration.cuda && source.is_none() {
            let why = "code of a library runs on the CPU; kernels for CUDA come as a text (`cuda` of the structure, or a .cu file)";
            return Err(error(why.to_string()));
        }
        if operator.is_none() && source.is_none() {
            return Err(error("it computes nothing".to_string()));
        }
        let has_reference = declaration.reference.is_some()
            || operator.as_ref().is_some_and(|operator| operator.has_reference());
        if !has_reference {
            return Err(error("it has no reference to be checked against: say `reference:`".to_string()));
        }
        let hash = blake3::hash(hashed).to_hex()[..16].to_string();
        // Names that kernels are compiled and looked up by live as long as the process, as plugins do.
        let kernel = declaration.launch.as_ref().map_or("", |launch| String::leak(launch.kernel.clone()));
        let file: &'static str = match &source {
            Some(_) => String::leak(format!("{}_{hash}.cu", declaration.name)),
            None => "",
        };
        let Declaration { domain, name, version, .. } = &declaration;
        let identity = Identity {
            domain: domain.clone(),
            name: name.clone(),
            version: *version,
            hash,
            origin: origin.to_string(),
        };
        let source = source.map(|source| (file, source));
        Ok(Plugin { identity, declaration, text: text.to_string(), operator, source, kernel })
    }

    /// Makes it known to the whole process. Another plugin for the same operator must declare the same of it.
    pub fn register(self) -> Result<Arc<Plugin>, PluginError> {
        let op = self.custom(Vec::new());
        for other in plugins().iter().filter(|other| other.custom(Vec::new()) == op) {
            if other.declaration.signature != self.declaration.signature
                || other.declaration.attributes != self.declaration.attributes
            {
                return Err(PluginError(format!(
                    "plugin {}: {} declares other inputs, outputs or attributes of {}; raise its `version:`",
                    self.identity.origin, other.identity.origin, self.identity
                )));
            }
        }
        let plugin = Arc::new(self);
        planish_op::plugin::register(plugin.clone());
        Ok(plugin)
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    /// The declaration as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text of its kernels with the name of the file, and the kernel to launch.
    pub fn source(&self) -> Option<(&'static str, &str, &'static str)> {
        self.source.as_ref().map(|(file, text)| (*file, text.as_str(), self.kernel))
    }

    /// What a node of it is.
    pub fn custom(&self, attributes: Vec<(String, Attribute)>) -> Custom {
        let Identity { domain, name, version, .. } = self.identity.clone();
        Custom { domain, name, version, attributes }
    }

    /// Whether it has something to run there.
    pub fn runs_on(&self, place: Place) -> bool {
        match place {
            Place::Cpu => self.declaration.cpu && self.operator.is_some(),
            Place::Cuda => self.declaration.cuda,
        }
    }

    /// The tactic's name in plans: `plugin_HASH_NAME`.
    pub fn tactic_name(&self, tactic: &str) -> String {
        format!("plugin_{}_{tactic}", self.identity.hash)
    }

    /// The plugin's part of a problem: its first node, which must be an operator of this plugin with operands as the
    /// declaration asks for. What follows that node is not looked at.
    pub fn task(&self, problem: &Problem, place: Place, tactic: &str) -> Result<Task, String> {
        let node = problem.region.nodes.first().ok_or("an empty region")?;
        let Op::Custom(op) = &node.op else {
            return Err("a region that does not begin with a plugin's operator".into());
        };
        if self.custom(op.attributes.clone()) != *op {
            return Err(format!(
                "{} is another operator than {}::{}@{}",
                self.identity, op.domain, op.name, op.version
            ));
        }
        let rule = self.declaration.tactics.iter().find(|rule| rule.name == tactic);
        let rule = rule.ok_or_else(|| format!("{} has no tactic `{tactic}`", self.identity))?;
        let attributes = self.declaration.filled(&op.attributes)?;
        let mut inputs = Vec::new();
        for input in &node.inputs {
            inputs.push(match input {
                None => None,
                Some(Ref::Input(idx)) => {
                    let operand = problem.inputs.get(*idx as usize).ok_or("an input that is not there")?;
                    if operand.packed.is_some() {
                        return Err("a packed weight".to_string());
                    }
                    Some(operand.clone())
                }
                Some(constant @ Ref::Constant(_)) => {
                    let tensor =
                        problem.region.constant(Some(*constant)).ok_or("a constant that is not there")?;
                    Some(Operand::dense(tensor.dtype(), tensor.shape(), Layout::Plain))
                }
                Some(Ref::Node { .. }) => return Err("a result of the region".to_string()),
            });
        }
        let forms: Vec<_> = inputs
            .iter()
            .map(|input| input.as_ref().map(|operand| (operand.dtype, &operand.dims[..])))
            .collect();
        let bound = self.declaration.signature.bind(&forms, &attributes)?;
        let made = self.declaration.signature.outputs(&bound)?;
        let outputs: Vec<Operand> = match problem.region.nodes.len() {
            1 => problem.outputs.clone(),
            // Results of the region, which an epilogue has gone on with: of the same sizes and, in memory, type.
            _ => problem.outputs.iter().take(1).cloned().collect(),
        };
        let fits = node.n_outputs as usize == outputs.len()
            && outputs.iter().zip(&made).all(|(operand, (dtype, dims))| {
                operand.dtype == *dtype && operand.dims == *dims && operand.packed.is_none()
            });
        if !fits || problem.region.nodes.len() == 1 && !gives_its_outputs(problem) {
            return Err(format!("outputs of other sizes or types than {} makes", self.identity));
        }
        self.check_layout(inputs.iter().flatten().chain(&outputs))?;
        let (defines, tactic) = (rule.defines.clone(), tactic.to_string());
        Ok(Task {
            place,
            inputs,
            outputs,
            attributes,
            bound,
            tactic,
            defines,
            threads: problem.threads.max(1),
        })
    }

    fn check_layout<'a>(&self, operands: impl Iterator<Item = &'a Operand>) -> Result<(), String> {
        for operand in operands {
            let dense = operand.is_dense(Layout::Plain)
                || self.declaration.channels_last && operand.is_dense(Layout::ChannelsLast);
            let in_rows = || operand.rank() > 0 && operand.contiguous_along(operand.rank() - 1);
            let fits = dense || self.declaration.strided && in_rows();
            if !fits {
                return Err("an operand with gaps or in another order".to_string());
            }
        }
        Ok(())
    }

    /// Bytes of scratch that the declaration asks for.
    pub fn declared_workspace(&self, task: &Task) -> Result<usize, String> {
        let bytes = self.declaration.workspace.eval(&|name| task.number(name));
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        bytes.ok_or_else(|| format!("the workspace of {} is no number from 0 on", self.identity))
    }

    /// A task, settled.
    pub fn prepare(&self, task: &Task) -> Result<Box<dyn Prepared>, String> {
        let operator = self.operator.as_ref().ok_or("it has no code of its own")?;
        operator
            .prepare(task)
            .map_err(|why| format!("the plugin {} ({}): {why}", self.identity, self.identity.origin))
    }
}

fn gives_its_outputs(problem: &Problem) -> bool {
    let own = |(idx, output): (usize, &Ref)| *output == Ref::Node { node: 0, output: idx as u32 };
    problem.region.outputs.iter().enumerate().all(own)
}

/// Every plugin that is registered.
pub fn plugins() -> Vec<Arc<Plugin>> {
    let plugin =
        |op: Arc<dyn CustomOp>| (op as Arc<dyn std::any::Any + Send + Sync>).downcast::<Plugin>().ok();
    planish_op::plugin::registered().into_iter().filter_map(plugin).collect()
}

/// The plugins that compute an operator there.
pub fn plugins_for(op: &Custom, place: Place) -> Vec<Arc<Plugin>> {
    let mut all = plugins();
    all.retain(|plugin| plugin.custom(op.attributes.clone()) == *op && plugin.runs_on(place));
    all
}

/// The plugin and the tactic that a name in a plan means.
pub fn of_tactic(name: &str) -> Option<(Arc<Plugin>, String)> {
    let (hash, tactic) = name.strip_prefix("plugin_")?.split_once('_')?;
    let plugin = plugins().into_iter().find(|plugin| plugin.identity.hash == hash)?;
    Some((plugin, tactic.to_string()))
}

impl CustomOp for Plugin {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn check_attributes(&self, op: &Custom) -> Result<(), String> {
        self.declaration.filled(&op.attributes).map(drop)
    }

    fn infer(&self, op: &Custom, cx: &mut Inference<'_>) -> InferResult {
        let attributes = self.declaration.filled(&op.attributes).map_err(|why| cx.bad_attribute(why))?;
        self.declaration.signature.infer(&attributes, cx)
    }

    fn has_reference(&self) -> bool {
        true
    }

    fn evaluate(
        &self,
        op: &Custom,
        inputs: &[Option<&Tensor>],
        n_outputs: usize,
    ) -> Result<Vec<Tensor>, String> {
        let attributes = self.declaration.filled(&op.attributes)?;
        let forms: Vec<_> =
            inputs.iter().map(|input| input.map(|tensor| (tensor.dtype(), tensor.shape()))).collect();
        let bound = self.declaration.signature.bind(&forms, &attributes)?;
        let made = self.declaration.signature.outputs(&bound)?;
        let results = match (&self.declaration.reference, &self.operator) {
            (Some(formula), _) => {
                let types: Vec<DType> = made.iter().map(|(dtype, _)| *dtype).collect();
                formula.evaluate(&attributes, inputs, &types)?
            }
            (None, Some(operator)) => {
                let dense = |form: &Option<(DType, &[usize])>| {
                    form.map(|(dtype, dims)| Operand::dense(dtype, dims, Layout::Plain))
                };
                let outputs = made.iter().map(|(dtype, dims)| Operand::dense(*dtype, dims, Layout::Plain));
                let task = Task {
                    place: Place::Cpu,
                    inputs: forms.iter().map(dense).collect(),
                    outputs: outputs.collect(),
                    attributes,
                    bound,
                    tactic: String::new(),
                    defines: Vec::new(),
                    threads: 1,
                };
                operator.reference(&task, inputs).ok_or("it has no reference")??
            }
            (None, None) => return Err("it has no reference".to_string()),
        };
        let fits = |(tensor, (dtype, dims)): (&Tensor, &(DType, Vec<usize>))| {
            tensor.dtype() == *dtype && tensor.shape() == *dims
        };
        if results.len() != made.len() || !results.iter().zip(&made).all(fits) {
            return Err("it makes other sizes or types than are declared".to_string());
        }
        Ok(results.into_iter().take(n_outputs).collect())
    }

    fn tolerance(&self, dtype: DType) -> f64 {
        self.declaration.tolerance(dtype)
    }

    fn takes_epilogue(&self) -> bool {
        self.declaration.epilogue
    }

    /// Among low operands, where each of its types may be f16 and bf16.
    fn lowering(&self) -> Lowering {
        let low = |types: &Vec<DType>| {
            !types.contains(&DType::F32) || types.contains(&DType::F16) && types.contains(&DType::BF16)
        };
        match self.declaration.signature.variables.iter().all(|(_, types)| low(types)) {
            true => Lowering::Among,
            false => Lowering::Never,
        }
    }
}
