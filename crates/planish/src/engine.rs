//! `Engine`: a plan on a device.

use std::sync::Arc;

use planish_op::Limits;

use crate::{Error, ErrorKind};
use planish_runtime::{
    Allocator, CodeFrom, Context, ContextOptions, ContextPool, EngineOptions, MemoryInfo, MemoryNeeds,
    PortInfo, Scratch, StatePair,
};

use crate::device::{Device, is_accelerated, other_device};
use crate::plan::Plan;

/// A plan that is ready to run, shared by any number of contexts and threads.
///
/// ```
/// # #[cfg(feature = "build")] {
/// use planish::{Builder, ContextOptions, Device, Engine, EngineOptions, Limits, View};
///
/// # let graph = r#"graph "g" { input %x: f32[n,4] %y: f32[n,4] = Relu(%x) output %y }"#;
/// # let plan = Builder::from_graph(graph.parse()?).tune_level(0).device(Device::Cpu).build()?;
/// let engine = Engine::with_options(plan, Device::Cpu, EngineOptions::default())?;
/// assert_eq!(engine.inputs()[0].ty.to_string(), "f32[n,4]");
/// assert_eq!(engine.record().program.steps.len(), 1);
/// assert_eq!((engine.weight_bytes(), engine.device_memory()), (0, None));
///
/// let sizes = engine.sizes_of(&[("x", &[3, 4])])?;                     // of the symbols, for inputs of these sizes
/// assert_eq!(sizes, [("n".to_string(), 3)]);
/// assert!(engine.memory_at(&sizes)?.is_whole);                         // all of it is known before anything runs
///
/// let engine = engine.limited(Limits::default());                      // bounds what its runs may take
/// let mut context = engine.context_with(ContextOptions::new(1))?;      // or context(), or pool(3)
/// context.run(&[("x", View::new(&[1, 4], &[1f32; 4])?)])?;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    inner: planish_runtime::Engine,
}

impl Engine {
    /// Puts the plan's weights in place on the device.
    ///
    /// A plan that was built for another machine or by another version is an error of kind
    /// [`ErrorKind::NeedsRebuild`], which says why: nothing is built unasked. `Plan::fit` and `Plan::open_for` tell
    /// before, and give what builds the plan again.
    ///
    /// ```
    /// # #[cfg(feature = "build")] {
    /// use planish::{Builder, Device, Engine};
    ///
    /// # let graph = r#"graph "g" { input %x: f32[4] %y: f32[4] = Relu(%x) output %y }"#;
    /// let plan = Builder::from_graph(graph.parse()?).tune_level(0).build()?;
    /// let engine = Engine::new(plan, Device::Auto)?;                  // the device that it was built for
    /// assert_eq!(engine.outputs()[0].ty.to_string(), "f32[4]");
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(plan: Plan, device: Device) -> Result<Engine, Error> {
        Engine::with_options(plan, device, EngineOptions::default())
    }

    /// As [`Engine::new`], with options.
    pub fn with_options(plan: Plan, device: Device, options: EngineOptions) -> Result<Engine, Error> {
        crate::plugin::discover()?;
        // The plan as it was given, before anything is made of it.
        options.code.check_fingerprint(&plan.inner.header.name, || plan.fingerprint())?;
        let options = match options.code {
            // That is settled.
            CodeFrom::Signed { .. } => EngineOptions { code: CodeFrom::Plan, ..options },
            CodeFrom::Plan | CodeFrom::CompileHere => options,
        };
        #[cfg(feature = "build")]
        let plan = match plan.fit(device)? {
            crate::Opened::Fits(plan) => plan,
            crate::Opened::NeedsRebuild(rebuild) => return Err(Error::needs_rebuild(rebuild.why())),
        };
        let targets = &plan.inner.header.targets;
        if let Some(name) = device.accelerator()
            && !targets.iter().any(|target| target.backend == name)
        {
            return Err(other_device("the plan runs on the CPU, a GPU was asked for", name));
        }
        if options.managed_weights && !is_accelerated(targets) {
            let message = "managed weights are for a plan on a GPU, this one runs on the CPU alone";
            return Err(Error::new(ErrorKind::BadOption, message));
        }
        if options.weight_budget.is_some() && !is_accelerated(targets) {
            let message = "a weight budget is for a plan on a GPU, this one runs on the CPU alone";
            return Err(Error::new(ErrorKind::BadOption, message));
        }
        let backends = targets.iter().map(|target| device.backend_for(target)).collect::<Result<_, _>>()?;
        Ok(Engine { inner: planish_runtime::Engine::with_options(plan.inner, backends, options)? })
    }

    /// The same engine, for contexts whose runs may go this far: a run that would make more trips through loops, or
    /// hold more memory, or is told to stop from another thread, ends in an error.
    pub fn limited(self, limits: Limits) -> Engine {
        Engine { inner: self.inner.limited(limits) }
    }

    /// Gives the engine the weights of a plan that [`Plan::refit`] made of its own, atomically: a run has the weights that it
    /// began with; every run that begins after this returned has the new ones, in contexts and pools of all clones. The old
    /// ones go with the last run, and the last clone that was not refitted itself, that has them. A plan that is another one
    /// is an error of kind [`ErrorKind::Refused`], and the engine stays as it was.
    ///
    /// ```
    /// # #[cfg(feature = "build")] {
    /// use planish::{Builder, DType, Device, Engine, Model, NetworkBuilder, Session, Tensor};
    ///
    /// let model = |scale: f32| -> Result<Model, planish::Error> {
    ///     let mut net = NetworkBuilder::new("linear");
    ///     let x = net.input("x", DType::F32, "batch,2")?;
    ///     let y = net.linear(x, Tensor::new(&[2, 2], vec![scale, 0., 0., scale])?, None)?;
    ///     net.output("y", y)?;
    ///     Model::from_network(net)
    /// };
    /// let plan = Builder::from_model(model(1.0)?).tune_level(0).build()?;
    /// let mut engine = Engine::new(plan.clone(), Device::Auto)?;
    /// let (mut session, x) = (Session::new(&engine)?, Tensor::new(&[1, 2], vec![1f32, 2.])?);
    /// assert_eq!(session.infer(&x)?.tensors()[0], x);
    /// engine.refit(plan.refit(&model(3.0)?)?)?;
    /// assert_eq!(session.infer(&x)?.tensors()[0], Tensor::new(&[1, 2], vec![3f32, 6.])?);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refit(&mut self, plan: Plan) -> Result<(), Error> {
        self.inner.refit(plan.inner)
    }

    /// The same engine, for contexts that share the memory between their steps with those of other engines: as much as the
    /// largest of them needs, once. Their runs go one after the other.
    ///
    /// ```
    /// # #[cfg(feature = "build")] {
    /// use planish::{Builder, Device, Engine, Scratch, View};
    ///
    /// let scratch = Scratch::new();
    /// # let graph = r#"graph "g" { input %x: f32[n,4] %a: f32[n,4] = Softmax(%x) %y: f32[n,4] = Softmax(%a) output %y }"#;
    /// # let plan = Builder::from_graph(graph.parse()?).tune_level(0).device(Device::Cpu).build()?;
    /// let engine = Engine::new(plan, Device::Cpu)?.sharing(&scratch);
    /// let mut contexts = [engine.context()?, engine.context()?];       // of other engines too
    /// for context in &mut contexts {
    ///     context.run(&[("x", View::new(&[2, 4], &[1f32; 8])?)])?;
    ///     assert_eq!(context.memory().device_arena, 0);
    /// }
    /// assert!(scratch.bytes() > 0);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sharing(self, scratch: &Scratch) -> Engine {
        Engine { inner: self.inner.sharing(scratch) }
    }

    /// The same engine, for contexts that have the memory between their steps from a caller's allocator.
    ///
    /// ```
    /// # #[cfg(feature = "build")] {
    /// use std::sync::Arc;
    ///
    /// use planish::memory::{Address, Allocator, Memory, MemoryKind};
    /// use planish::{Builder, Device, Engine, Error, View};
    ///
    /// #[derive(Debug)]
    /// struct Pages(Vec<[u64; 8]>);
    ///
    /// impl Memory for Pages {
    ///     fn address(&self) -> Address {
    ///         Address(self.0.as_ptr().expose_provenance().next_multiple_of(64) as u64)
    ///     }
    ///
    ///     fn len(&self) -> usize {
    ///         64 * (self.0.len() - 1)
    ///     }
    /// }
    ///
    /// #[derive(Debug)]
    /// struct Mine;
    ///
    /// // SAFETY: lines of its own for each, aligned, one of them spare for that.
    /// unsafe impl Allocator for Mine {
    ///     fn allocate(&self, _: &str, kind: MemoryKind, bytes: usize) -> Result<Option<Box<dyn Memory>>, Error> {
    ///         Ok((kind == MemoryKind::Host).then(|| Box::new(Pages(vec![[0; 8]; bytes.div_ceil(64) + 1])) as _))
    ///     }
    /// }
    ///
    /// # let graph = r#"graph "g" { input %x: f32[n,4] %a: f32[n,4] = Softmax(%x) %y: f32[n,4] = Softmax(%a) output %y }"#;
    /// # let plan = Builder::from_graph(graph.parse()?).tune_level(0).device(Device::Cpu).build()?;
    /// let mut context = Engine::new(plan, Device::Cpu)?.allocating(Arc::new(Mine)).context()?;
    /// context.run(&[("x", View::new(&[2, 4], &[1f32; 8])?)])?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allocating(self, allocator: Arc<dyn Allocator>) -> Engine {
        Engine { inner: self.inner.allocating(allocator) }
    }

    /// A context with as many threads as the plan was built for.
    pub fn context(&self) -> Result<Context, Error> {
        self.inner.context()
    }

    /// A context with these options: threads, how it waits for a GPU, and over how many streams it spreads.
    pub fn context_with(&self, options: ContextOptions) -> Result<Context, Error> {
        self.inner.context_with(options)
    }

    /// Contexts that threads take in turn.
    pub fn pool(&self, n_contexts: usize) -> Result<ContextPool, Error> {
        self.inner.pool(n_contexts)
    }

    /// The engine below, for what is made of several.
    pub(crate) fn runtime(&self) -> &planish_runtime::Engine {
        &self.inner
    }

    /// Inputs with their types, in the model's order.
    pub fn inputs(&self) -> Vec<PortInfo> {
        self.inner.inputs()
    }

    /// Outputs with their types, in the model's order.
    pub fn outputs(&self) -> Vec<PortInfo> {
        self.inner.outputs()
    }

    /// Inputs that are what outputs were in the run before ([`Context::states`]).
    pub fn states(&self) -> &[StatePair] {
        self.inner.states()
    }

    /// Everything that the plan holds.
    pub fn record(&self) -> &planish_plan::Plan {
        self.inner.plan()
    }

    /// Bytes of weights that stay in pinned host memory and are brought to the GPU in every run
    /// ([`EngineOptions::weight_budget`]).
    ///
    /// ```
    /// fn is_resident(engine: &planish::Engine) -> bool {
    ///     engine.streamed_bytes() == 0
    /// }
    /// ```
    pub fn streamed_bytes(&self) -> usize {
        self.inner.streamed_bytes()
    }

    /// The sizes of the model's symbols for inputs of these sizes: what [`Engine::memory_at`] and `Engine::work_at` take.
    pub fn sizes_of(&self, inputs: &[(&str, &[usize])]) -> Result<Vec<(String, i64)>, Error> {
        self.inner.sizes_of(inputs)
    }

    /// The memory that the plan needs at these sizes of its symbols, known before anything runs.
    pub fn memory_at(&self, sizes: &[(String, i64)]) -> Result<MemoryNeeds, Error> {
        self.inner.memory_at(sizes)
    }

    /// The memory of the plan's GPU at this moment; `None` for a plan on the CPU.
    pub fn device_memory(&self) -> Option<MemoryInfo> {
        self.inner.device_memory()
    }

    /// Bytes of all weights, in the form that kernels read.
    pub fn weight_bytes(&self) -> usize {
        self.inner.weight_bytes()
    }
}
