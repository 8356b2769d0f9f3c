//! `Context`: one caller's memory and queues over a shared engine.

use planish_kernel::QueueOptions;
use planish_op::Value;

use crate::engine::Engine;
use crate::error::{RunError, RunErrorKind};
use crate::frame::{Feed, Frame, Mode, Observed, Queues, Watch};
use crate::view::{Outputs, View};

/// How a context runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextOptions {
    /// CPU threads that a run may use, the caller included. Results do not depend on it.
    pub threads: usize,
}

/// What a run needs beside the shared engine: memory and queues. Serves one caller at a time.
#[derive(Debug)]
pub struct Context {
    engine: Engine,
    frame: Frame,
    queues: Queues,
    mode: Mode,
}

/// The time of one step.
#[derive(Clone, PartialEq, Debug)]
pub struct StepTime {
    /// Index of the step in the plan's program.
    pub step: usize,
    pub ns: u64,
}

/// The times of a profiled run; steps sum to the total but for the time between them.
#[derive(Clone, PartialEq, Debug)]
pub struct Profiled {
    pub steps: Vec<StepTime>,
    pub total_ns: u64,
}

impl Context {
    pub(crate) fn new(engine: Engine, options: ContextOptions) -> Result<Context, RunError> {
        let threads = options.threads.max(1);
        let program = &engine.core.plan.program;
        let mut list = Vec::new();
        for (target, backend) in engine.core.backends.iter().enumerate() {
            let steps = program.steps.iter().filter(|step| step.target as usize == target);
            let n_streams = steps.map(|step| step.stream + 1).max().unwrap_or(1);
            let mut streams = Vec::new();
            for _ in 0..n_streams {
                streams.push(backend.queue(QueueOptions { threads })?);
            }
            list.push(streams);
        }
        let mode = Mode { threads, poison: false };
        Ok(Context { engine, frame: Frame::default(), queues: Queues { list }, mode })
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Fills memory with NaN before each run from now on: what reads what nobody wrote then shows.
    pub fn set_poison(&mut self, poison: bool) {
        self.mode.poison = poison;
    }

    /// Runs the model on inputs by name and waits. The outputs lie in the context until its next run.
    pub fn run(&mut self, inputs: &[(&str, View<'_>)]) -> Result<Outputs<'_>, RunError> {
        let feeds = self.feeds(inputs)?;
        let core = &self.engine.core;
        self.frame.run(core, &core.unit, &feeds, &mut self.queues, self.mode, Watch::default())?;
        Ok(self.outputs())
    }

    /// Runs the model on inputs in its own order and waits, without allocating once sizes were seen.
    pub fn run_in_order(&mut self, inputs: &[View<'_>]) -> Result<(), RunError> {
        const MAX_STACK_INPUTS: usize = 16;
        let core = &self.engine.core;
        let mut run = |feeds: &[Feed<'_>]| {
            self.frame.run(core, &core.unit, feeds, &mut self.queues, self.mode, Watch::default())
        };
        match inputs {
            [] => run(&[]),
            [first, ..] if inputs.len() <= MAX_STACK_INPUTS => {
                let mut feeds = [Feed::View(*first); MAX_STACK_INPUTS];
                for (feed, input) in feeds.iter_mut().zip(inputs) {
                    *feed = Feed::View(*input);
                }
                run(&feeds[..inputs.len()])
            }
            _ => run(&inputs.iter().map(|input| Feed::View(*input)).collect::<Vec<_>>()),
        }
    }

    /// Output number `idx` of the last run, if it is a tensor.
    pub fn output(&self, idx: usize) -> Option<View<'_>> {
        self.frame.output(&self.engine.core.unit, idx).0
    }

    /// Runs the model on values of any kind, in the model's order of inputs.
    pub fn run_values(&mut self, inputs: &[Value]) -> Result<Vec<Value>, RunError> {
        let feeds: Vec<Feed<'_>> = inputs.iter().map(Feed::Value).collect();
        let core = &self.engine.core;
        self.frame.run(core, &core.unit, &feeds, &mut self.queues, self.mode, Watch::default())?;
        self.frame.output_values(&core.unit)
    }

    /// Runs once and times every step.
    pub fn profile(&mut self, inputs: &[(&str, View<'_>)]) -> Result<Profiled, RunError> {
        let feeds = self.feeds(inputs)?;
        let core = &self.engine.core;
        let mut times = Vec::with_capacity(core.plan.program.steps.len());
        let started = std::time::Instant::now();
        let watch = Watch { times: Some(&mut times), observer: None };
        self.frame.run(core, &core.unit, &feeds, &mut self.queues, self.mode, watch)?;
        let total_ns = started.elapsed().as_nanos() as u64;
        let steps = times.into_iter().enumerate().map(|(step, ns)| StepTime { step, ns }).collect();
        Ok(Profiled { steps, total_ns })
    }

    /// Runs once, and shows what every kernel step read and wrote.
    pub fn observe(
        &mut self,
        inputs: &[Value],
        observer: &mut dyn FnMut(Observed),
    ) -> Result<Vec<Value>, RunError> {
        let feeds: Vec<Feed<'_>> = inputs.iter().map(Feed::Value).collect();
        let core = &self.engine.core;
        let watch = Watch { times: None, observer: Some(observer) };
        self.frame.run(core, &core.unit, &feeds, &mut self.queues, self.mode, watch)?;
        self.frame.output_values(&core.unit)
    }

    /// Sizes of the outputs for inputs of these sizes, in the model's order, without running; `None` where
    /// only a run can tell.
    pub fn output_dims(&self, inputs: &[(&str, &[usize])]) -> Result<Vec<Option<Vec<usize>>>, RunError> {
        let mut dims = vec![None; self.engine.core.input_names.len()];
        for (name, given) in inputs {
            dims[self.input_idx(name)?] = Some(*given);
        }
        Frame::output_dims(&self.engine.core.unit, &self.engine.core, &dims)
    }

    /// Bytes of the arena and the outputs, as large as runs have needed so far.
    pub fn arena_bytes(&self) -> usize {
        self.frame.arena_bytes()
    }

    /// How often sizes were met that had to be resolved.
    pub fn n_resolved(&self) -> usize {
        self.frame.n_resolved()
    }

    fn outputs(&self) -> Outputs<'_> {
        let core = &self.engine.core;
        let both = (0..core.output_names.len()).map(|idx| self.frame.output(&core.unit, idx));
        let (values, others) = both.map(|(view, other)| (view, other.cloned())).unzip();
        Outputs { names: &core.output_names, values, others }
    }

    fn input_idx(&self, name: &str) -> Result<usize, RunError> {
        let names = &self.engine.core.input_names;
        names.iter().position(|known| known == name).ok_or_else(|| {
            let message = format!("the model has no input `{name}`; it takes {}", names.join(", "));
            RunError::new(RunErrorKind::WrongInputs, message)
        })
    }

    fn feeds<'a>(&self, inputs: &[(&str, View<'a>)]) -> Result<Vec<Feed<'a>>, RunError> {
        let names = &self.engine.core.input_names;
        let mut feeds: Vec<Option<Feed<'a>>> = vec![None; names.len()];
        for (name, view) in inputs {
            let idx = self.input_idx(name)?;
            if feeds[idx].replace(Feed::View(*view)).is_some() {
                let message = format!("input `{name}` was given twice");
                return Err(RunError::new(RunErrorKind::WrongInputs, message));
            }
        }
        let missing = feeds.iter().position(Option::is_none);
        if let Some(idx) = missing {
            let message = format!("input `{}` is missing", names[idx]);
            return Err(RunError::new(RunErrorKind::WrongInputs, message));
        }
        Ok(feeds.into_iter().flatten().collect())
    }
}
