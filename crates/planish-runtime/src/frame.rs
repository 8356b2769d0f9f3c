//! One program with its memory: resolved at the sizes of its inputs, then run segment by segment.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use planish_kernel::Address;
use planish_op::Meter;
use planish_plan::Step;

use crate::bind::{Symbols, bind_inputs, choose_profile};
use crate::clock::Timer;
use crate::control::run_control;
use crate::engine::{Core, Unit};
use crate::error::{RunError, RunErrorKind};
use crate::faults::Faults;
use crate::feed::{Feed, check_types};
use crate::memory::FrameMemory;
use crate::prepared::Prepared;
use crate::resolve::{Action, Resolved, ResolvedStep};
use crate::run::{Mode, Run};

/// A program's memory and its prepared segments.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub(crate) memory: FrameMemory,
    pub(crate) prepared: Prepared,
    pub(crate) faults: Faults,
    timer: Timer,
    /// For each step of control flow the frames of its bodies.
    pub(crate) bodies: Vec<Vec<Frame>>,
    /// Addresses of one launch or one captured graph, kept so that runs need no memory.
    pub(crate) addresses: Vec<Address>,
}

impl Frame {
    /// How many captured graphs there are, and the bytes that they hold.
    pub(crate) fn graphs(&self) -> (usize, usize) {
        let own = self.prepared.all().map(|resolved| resolved.graphs.size());
        let bodies = self.bodies.iter().flatten().map(Frame::graphs);
        own.chain(bodies).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Forgets what was prepared with weights that are not those of the next run. Nothing is under way.
    pub(crate) fn unprepare(&mut self) {
        self.prepared.clear();
        self.bodies.iter_mut().flatten().for_each(Frame::unprepare);
    }

    /// Bytes of the arena in the memory of a target.
    pub(crate) fn arena_bytes_of(&self, target: usize) -> usize {
        let bodies: usize = self.bodies.iter().flatten().map(|body| body.arena_bytes_of(target)).sum();
        let own = self.memory.arenas.get(target).and_then(Option::as_ref);
        own.map_or(0, |memory| memory.len()) + bodies
    }

    /// Makes room for what is known per value, step, input and output.
    fn prepare(&mut self, core: &Core, unit: &Unit) {
        self.memory.prepare(core, unit);
        if self.bodies.len() < unit.program.steps.len() {
            self.bodies.resize_with(unit.program.steps.len(), Vec::new);
        }
    }

    /// Runs the program. Whatever goes wrong, nothing is under way when this returns, and the next run starts anew.
    pub(crate) fn run(&mut self, mut run: Run<'_, '_>) -> Result<(), RunError> {
        let n_ranges = run.queues.n_ranges();
        let try_run = || {
            if run.is_of_plan() {
                run.queues.meter.restart();
                run.queues.begin_range(&run.core.plan.header.name);
            }
            self.try_run(&mut run)
        };
        let result =
            catch_unwind(AssertUnwindSafe(try_run)).unwrap_or_else(|payload| Err(panicked(&*payload)));
        run.queues.end_ranges(n_ranges);
        self.memory.is_gone.fill(false);
        if result.is_err() {
            self.prepared.forget();
            // The first error is the one to tell.
            run.queues.stop();
        }
        result
    }

    fn try_run(&mut self, run: &mut Run<'_, '_>) -> Result<(), RunError> {
        let Run { core, unit, feeds, mode, .. } = *run;
        check_types(&unit.program, feeds)?;
        self.prepare(core, unit);
        if let Some(resolved) = self.prepared.same_again(feeds) {
            self.memory.take_inputs(run)?;
            // Its memory was compared with its operands when these sizes were new.
            let is_new = false;
            return self.segment(run, 0, &resolved, is_new).map(|_| ());
        }
        if !mode.waits {
            // The run before may be under way still, and new sizes may move its memory.
            run.queues.synchronize()?;
        }
        let dims: Vec<Option<&[usize]>> = feeds.iter().map(Feed::dims).collect();
        let mut symbols = bind_inputs(&unit.program, &dims)?;
        if run.is_of_plan() {
            choose_profile(&core.plan.header.profiles, &symbols)?;
        }
        self.prepared.forget();
        self.memory.take_inputs(run)?;
        for idx in 0..unit.outline.segments.len() {
            let resolved = self.prepared.find(core, unit, idx, &symbols, mode, &mut self.faults)?;
            self.memory.provide(core, unit, &resolved, &mut run.queues.meter)?;
            self.prepared.enter(resolved.clone());
            if let Some(learned) = self.segment(run, idx, &resolved, true)? {
                symbols = learned;
            }
        }
        self.prepared.done(&dims);
        Ok(())
    }

    /// Prepares the first segment for inputs of these sizes. Outputs of an earlier run are gone: their memory may
    /// have moved.
    pub(crate) fn resolve_ahead(
        &mut self,
        core: &Core,
        dims: &[Option<&[usize]>],
        mode: Mode,
        meter: &mut Meter,
    ) -> Result<(), RunError> {
        let unit = &core.unit;
        self.prepare(core, unit);
        let symbols = bind_inputs(&unit.program, dims)?;
        choose_profile(&core.plan.header.profiles, &symbols)?;
        self.prepared.forget();
        let resolved = self.prepared.find(core, unit, 0, &symbols, mode, &mut self.faults)?;
        self.memory.provide(core, unit, &resolved, meter)?;
        self.memory.provide_outputs(core, unit, &resolved, meter)
    }

    /// Runs one segment; gives the symbols with what the segment's steps found out, if anything. Where it is new,
    /// memory is compared with operands before each step.
    fn segment(
        &mut self,
        run: &mut Run<'_, '_>,
        idx: usize,
        resolved: &Resolved,
        is_new: bool,
    ) -> Result<Option<Symbols>, RunError> {
        let Run { core, unit, feeds, mode, .. } = *run;
        self.memory.provide_outputs(core, unit, resolved, &mut run.queues.meter)?;
        self.faults.prepare(core, &unit.program)?;
        if unit.outline.segments.len() > 1 {
            self.memory.check_held(unit, resolved)?;
        }
        if mode.poison {
            self.memory.poison(unit, idx == 0, run.queues)?;
        }
        let first = unit.outline.segments[idx].first;
        let steps = &unit.program.steps[first..];
        let mut learned: Option<Symbols> = None;
        let has_phases = run.watch.phases.is_some();
        if run.watch.times.is_some() || has_phases {
            self.timer.restart(core);
        }
        let may_replay = mode.captured && run.watch.times.is_none() && run.watch.observer.is_none();
        let mut spans = resolved.spans.iter().enumerate().peekable();
        let mut at = 0;
        while at < resolved.steps.len() {
            let (step, record) = (&resolved.steps[at], &steps[at]);
            run.queues.meter.look().map_err(|stop| RunError::stopped(&record.name, stop))?;
            for &target in &step.waits {
                run.queues.get(target).synchronize()?;
            }
            if has_phases {
                self.timer.enter(run, record)?;
            }
            let started = self.timer.begin(run, record)?;
            let may_capture = may_replay && run.queues.get(record.target).can_capture();
            let whole = spans.peek().and_then(|(number, _)| {
                let whole = resolved.with_transfers[*number].as_ref()?;
                let fits = whole.first == at && may_capture && !has_phases;
                let steps = &resolved.steps[whole.first..whole.end];
                // Captured graphs of it are counted after those without transfers.
                (fits && self.memory.is_all_pinned(core, steps, feeds))
                    .then_some((resolved.spans.len() + number, whole))
            });
            let span = match whole {
                Some(_) => {
                    spans.next();
                    whole
                }
                None => spans.next_if(|(_, span)| span.first == at).filter(|_| may_capture),
            };
            let end = span.map_or(at + 1, |(_, span)| span.end);
            if is_new {
                for (step, record) in resolved.steps[at..end].iter().zip(&steps[at..end]) {
                    self.memory.check_memory(run, resolved, step, record)?;
                }
            }
            run.queues.begin_range(span.map_or(&record.name, |(_, span)| &span.name));
            match span {
                Some((number, span)) => self.span(run, number, span, resolved, steps)?,
                None => self.step(run, first + at, resolved, (record, step), &mut learned)?,
            }
            run.queues.end_range();
            if let Some(started) = started {
                self.timer.end(run, record, started)?;
            }
            at = end;
        }
        if has_phases {
            self.timer.leave(run)?;
        }
        // A run that does not wait is one segment, and whoever asked for it waits.
        if mode.waits || unit.outline.segments.len() > 1 {
            run.queues.synchronize()?;
            self.faults.take(0, &unit.program)?;
        }
        self.timer.report(&mut run.watch)?;
        Ok(learned)
    }

    /// Runs one step, number `idx` of the program. Takes note of sizes that it found out.
    fn step(
        &mut self,
        run: &mut Run<'_, '_>,
        idx: usize,
        resolved: &Resolved,
        (record, step): (&Step, &ResolvedStep),
        learned: &mut Option<Symbols>,
    ) -> Result<(), RunError> {
        let results = match step.action {
            Action::Kernel { .. } => return self.launch(run, idx, resolved, (record, step)),
            Action::Transfer { bytes, .. } => {
                let places = (step.inputs[0], step.outputs[0]);
                return self.memory.transfer(run, resolved, record, places, bytes);
            }
            Action::Evaluate => {
                let inputs = self.memory.host_inputs(run, resolved, record, &step.inputs)?;
                let room = usize::try_from(run.queues.meter.room()).unwrap_or(usize::MAX);
                run.core.evaluate(record, &record.region, &inputs, room)?
            }
            Action::Control => {
                let inputs = self.memory.host_inputs(run, resolved, record, &step.inputs)?;
                run_control(run, record, &run.unit.bodies[idx], &mut self.bodies[idx], &inputs, idx)?
            }
        };
        let symbols = learned.get_or_insert_with(|| resolved.symbols.clone());
        self.memory.keep_results(run, resolved, (record, step), results, symbols)
    }
}

/// A panic of a kernel, of a thread or of ours, as an error.
pub(crate) fn panicked(payload: &(dyn Any + Send)) -> RunError {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    RunError::new(RunErrorKind::Failed, format!("the run panicked: {text}; this is a mistake of Planish"))
}
