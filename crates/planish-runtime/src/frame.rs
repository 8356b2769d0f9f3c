//! One program with its memory: resolved at the sizes of its inputs, then run segment by segment.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use planish_kernel::{Address, Event, Memory, Queue};
use planish_op::Meter;
use planish_tensor::Tensor;

use crate::bind::{Symbols, bind_inputs, choose_profile};
use crate::clock::{Clock, Mark, Phase, Phases, Span};
use crate::control::run_control;
use crate::engine::{Core, Unit};
use crate::error::{RunError, RunErrorKind};
use crate::faults::Faults;
use crate::feed::{Bound, Feed, check_types};
use crate::memory::Own;
use crate::resolve::{Action, Resolved};

/// The queues of a context: for each target, one per stream.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) list: Vec<Vec<Box<dyn Queue>>>,
    /// Queues of the device for branches of a captured graph.
    pub(crate) branches: Vec<Box<dyn Queue>>,
    /// What the run on these queues has used of the engine's limits.
    pub(crate) meter: Meter,
}

impl Queues {
    pub(crate) fn get(&mut self, target: u32, stream: u32) -> &mut dyn Queue {
        let streams = &mut self.list[target as usize];
        let at = (stream as usize).min(streams.len() - 1);
        &mut *streams[at]
    }

    /// Names what is done until the range is dropped, for tools that watch the process. The device's queue is the one
    /// that knows of such tools; steps on the host are named too where a plan has a device.
    pub(crate) fn range(&mut self, name: &str) -> Range<'_> {
        if let Some(queue) = self.watched() {
            queue.range_begin(name);
        }
        Range { queues: self }
    }

    fn watched(&mut self) -> Option<&mut Box<dyn Queue>> {
        self.list.last_mut()?.first_mut()
    }

    /// Waits for all of them.
    pub(crate) fn synchronize(&mut self) -> Result<(), RunError> {
        self.list.iter_mut().flatten().try_for_each(|queue| Ok(queue.synchronize()?))
    }
}

/// A named range under way; ended when dropped, also by an error or a panic.
pub(crate) struct Range<'a> {
    queues: &'a mut Queues,
}

impl std::ops::Deref for Range<'_> {
    type Target = Queues;

    fn deref(&self) -> &Queues {
        self.queues
    }
}

impl std::ops::DerefMut for Range<'_> {
    fn deref_mut(&mut self) -> &mut Queues {
        self.queues
    }
}

impl Drop for Range<'_> {
    fn drop(&mut self) {
        if let Some(queue) = self.queues.watched() {
            queue.range_end();
        }
    }
}

/// What a kernel step read and wrote, as plain tensors; weights are left out.
#[derive(Debug)]
pub struct Observed {
    /// For a step inside of bodies, each step of control flow with the number of its body, outermost first; empty for
    /// one of the plan's own program.
    pub path: Vec<(usize, usize)>,
    /// Index of the step in its program.
    pub step: usize,
    /// The sizes that it ran at, of the symbols that its program knows.
    pub sizes: Vec<(String, i64)>,
    pub inputs: Vec<Option<Tensor>>,
    pub outputs: Vec<Option<Tensor>>,
}

/// Who looks on while a program runs.
#[derive(Default)]
pub(crate) struct Watch<'a> {
    /// Gets the nanoseconds of every step.
    pub(crate) times: Option<&'a mut Vec<u64>>,
    /// Gets what the device was busy with.
    pub(crate) phases: Option<&'a mut Phases>,
    pub(crate) observer: Option<&'a mut dyn FnMut(Observed)>,
}

/// How a frame runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub(crate) threads: usize,
    /// Fill arenas and outputs with NaN before each run, so that whoever reads what nobody wrote is seen.
    pub(crate) poison: bool,
    /// Whether launches on devices are captured and replayed.
    pub(crate) captured: bool,
    /// Whether a run waits until everything is done, and not only queued.
    pub(crate) waits: bool,
    /// Streams for the branches of a captured graph.
    pub(crate) streams: usize,
}

/// A program's memory and its prepared segments.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub(crate) arenas: Vec<Option<Box<dyn Memory>>>,
    pub(crate) outputs: Vec<Option<Box<dyn Memory>>>,
    /// Where the caller wants an output written.
    pub(crate) bound: Vec<Option<Bound>>,
    /// Whether the last run wrote an output to memory of the caller that was given back since.
    pub(crate) is_gone: Vec<bool>,
    pub(crate) own: Vec<Own>,
    /// Most recently used first.
    pub(crate) cache: Vec<(usize, Arc<Resolved>)>,
    /// The segments of the last run, and the input sizes it had.
    pub(crate) current: Vec<Arc<Resolved>>,
    pub(crate) last_dims: Vec<Vec<usize>>,
    pub(crate) bodies: Vec<Vec<Frame>>,
    /// Copies of inputs that the caller's memory has at addresses that their type does not allow.
    pub(crate) staging: Vec<Vec<u64>>,
    /// Pinned memory that inputs from pageable memory pass through on their way to a device.
    pub(crate) staged: Vec<Option<Box<dyn Memory>>>,
    pub(crate) addresses: Vec<Address>,
    pub(crate) events: Vec<Option<Box<dyn Event>>>,
    pub(crate) clock: Clock,
    /// What a timed run did on a device and from when on, and when each of its steps ran.
    pub(crate) marks: Vec<(Phase, Mark)>,
    pub(crate) spans: Vec<Span>,
    pub(crate) n_resolved: usize,
    pub(crate) faults: Faults,
}

impl Frame {
    /// How many captured graphs there are, and the bytes that they hold.
    pub(crate) fn graphs(&self) -> (usize, usize) {
        let own = self.cache.iter().map(|(_, resolved)| resolved.graphs.size());
        let bodies = self.bodies.iter().flatten().map(Frame::graphs);
        own.chain(bodies).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    pub(crate) fn n_resolved(&self) -> usize {
        self.n_resolved
    }

    /// There is no last run any more: the next one starts anew.
    pub(crate) fn forget(&mut self) {
        self.last_dims.clear();
        self.current.clear();
    }

    /// Runs the program on these inputs. Whatever goes wrong, nothing is under way when this returns, and the
    /// next run starts anew.
    pub(crate) fn run(
        &mut self,
        core: &Core,
        unit: &Unit,
        feeds: &[Feed<'_>],
        queues: &mut Queues,
        mode: Mode,
        watch: Watch<'_>,
    ) -> Result<(), RunError> {
        let run = || match std::ptr::eq(unit, &core.unit) {
            true => {
                queues.meter.restart();
                self.try_run(core, unit, feeds, &mut queues.range(&core.plan.name), mode, watch)
            }
            false => self.try_run(core, unit, feeds, queues, mode, watch),
        };
        let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| Err(panicked(&*payload)));
        self.is_gone.fill(false);
        if result.is_err() {
            self.forget();
            for queue in queues.list.iter_mut().flatten() {
                // The first error is the one to tell; what matters here is that nothing writes any more.
                let _ = queue.synchronize();
            }
        }
        result
    }

    fn try_run(
        &mut self,
        core: &Core,
        unit: &Unit,
        feeds: &[Feed<'_>],
        queues: &mut Queues,
        mode: Mode,
        mut watch: Watch<'_>,
    ) -> Result<(), RunError> {
        check_types(&unit.program, feeds)?;
        self.prepare(core, unit);
        let same = self.last_dims.len() == feeds.len()
            && !self.current.is_empty()
            && feeds.iter().zip(&self.last_dims).all(|(feed, last)| feed.dims().unwrap_or(&[]) == *last);
        if same && unit.outline.segments.len() == 1 {
            let resolved = self.current[0].clone();
            self.take_inputs(unit, feeds, queues)?;
            // Its memory was compared with its operands when these sizes were new.
            let is_new = false;
            return self
                .segment(core, unit, 0, &resolved, is_new, feeds, queues, mode, &mut watch)
                .map(|_| ());
        }
        if !mode.waits {
            // The run before may be under way still, and new sizes may move its memory.
            queues.synchronize()?;
        }
        let dims: Vec<Option<&[usize]>> = feeds.iter().map(Feed::dims).collect();
        let mut symbols = bind_inputs(&unit.program, &dims)?;
        if std::ptr::eq(unit, &core.unit) {
            choose_profile(&core.plan.profiles, &symbols)?;
        }
        self.current.clear();
        self.last_dims.clear();
        self.take_inputs(unit, feeds, queues)?;
        for idx in 0..unit.outline.segments.len() {
            let resolved = self.resolved(core, unit, idx, &symbols, mode, &mut queues.meter)?;
            self.current.push(resolved.clone());
            if let Some(learned) =
                self.segment(core, unit, idx, &resolved, true, feeds, queues, mode, &mut watch)?
            {
                symbols = learned;
            }
        }
        self.last_dims = dims.iter().map(|dims| dims.unwrap_or(&[]).to_vec()).collect();
        Ok(())
    }

    /// Prepares the first segment for inputs of these sizes. Outputs of an earlier run are gone: their memory may
    /// have moved.
    pub(crate) fn resolve_ahead(
        &mut self,
        core: &Core,
        unit: &Unit,
        dims: &[Option<&[usize]>],
        mode: Mode,
        meter: &mut Meter,
    ) -> Result<(), RunError> {
        self.prepare(core, unit);
        let symbols = bind_inputs(&unit.program, dims)?;
        choose_profile(&core.plan.profiles, &symbols)?;
        self.current.clear();
        self.last_dims.clear();
        let resolved = self.resolved(core, unit, 0, &symbols, mode, meter)?;
        self.provide_outputs(core, unit, &resolved, meter)
    }

    /// Runs one segment; gives the symbols with what the segment's steps found out, if anything. Where it is new,
    /// memory is compared with operands before each step.
    #[allow(clippy::too_many_arguments)]
    fn segment(
        &mut self,
        core: &Core,
        unit: &Unit,
        idx: usize,
        resolved: &Resolved,
        is_new: bool,
        feeds: &[Feed<'_>],
        queues: &mut Queues,
        mode: Mode,
        watch: &mut Watch<'_>,
    ) -> Result<Option<Symbols>, RunError> {
        self.provide_outputs(core, unit, resolved, &mut queues.meter)?;
        self.faults.prepare(core, &unit.program)?;
        if unit.outline.segments.len() > 1 {
            self.check_held(unit, resolved)?;
        }
        if mode.poison {
            self.poison(unit, idx == 0, queues)?;
        }
        let first = unit.outline.segments[idx].first;
        let steps = &unit.program.steps[first..];
        let mut learned: Option<Symbols> = None;
        if resolved.steps.iter().any(|step| step.awaited) && self.events.len() < resolved.steps.len() {
            self.events.resize_with(resolved.steps.len(), || None);
        }
        let is_timed = watch.times.is_some() || watch.phases.is_some();
        if is_timed {
            self.clock.restart(core);
            self.marks.clear();
            self.spans.clear();
        }
        let is_observed = watch.observer.is_some();
        let may_replay = mode.captured && watch.times.is_none() && watch.observer.is_none();
        let mut spans = resolved.spans.iter().enumerate().peekable();
        let mut at = 0;
        while at < resolved.steps.len() {
            let (step, record) = (&resolved.steps[at], &steps[at]);
            queues.meter.look().map_err(|stop| RunError::stopped(&record.name, stop))?;
            for &earlier in &step.waits {
                let other = &steps[earlier];
                if other.target != record.target {
                    // An event means something to its own backend alone.
                    queues.get(other.target, other.stream).synchronize()?;
                } else if let Some(Some(event)) = self.events.get(earlier) {
                    queues.get(record.target, record.stream).wait_for(&**event)?;
                }
            }
            if watch.phases.is_some() {
                self.enter(core, unit, record, queues)?;
            }
            let started = self.begin(core, record, queues, watch)?;
            let mut last = at;
            let may_capture = may_replay && queues.get(record.target, record.stream).can_capture();
            let whole = spans.peek().and_then(|(number, _)| {
                let whole = resolved.with_transfers[*number].as_ref()?;
                let fits = whole.first == at && may_capture && watch.phases.is_none();
                let steps = &resolved.steps[whole.first..whole.end];
                // Captured graphs of it are counted after those without transfers.
                (fits && self.is_all_pinned(core, steps, feeds))
                    .then_some((resolved.spans.len() + number, whole))
            });
            let span = match whole {
                Some(_) => {
                    spans.next();
                    whole
                }
                None => spans.next_if(|(_, span)| span.first == at).filter(|_| may_capture),
            };
            if is_new {
                let end = span.map_or(at + 1, |(_, span)| span.end);
                for (step, record) in resolved.steps[at..end].iter().zip(&steps[at..end]) {
                    self.check_memory(unit, resolved, step, record, feeds)?;
                }
            }
            let name = span.map_or(&record.name, |(_, span)| &span.name);
            let queues = &mut *queues.range(name);
            match (span, &step.action) {
                (Some((number, span)), _) => {
                    self.span(core, number, span, resolved, steps, feeds, queues, mode)?;
                    last = span.end - 1;
                }
                (_, Action::Kernel { .. }) => {
                    self.launch(unit, first + at, step, record, resolved, feeds, queues, watch)?;
                }
                (_, Action::Transfer { bytes, .. }) => {
                    let places = (step.inputs[0], step.outputs[0]);
                    self.transfer(core, unit, resolved, feeds, record, places, *bytes, queues)?;
                }
                (_, Action::Evaluate | Action::Control) => {
                    let inputs = self.host_inputs(core, unit, resolved, feeds, record, &step.inputs)?;
                    let results = if matches!(step.action, Action::Evaluate) {
                        let room = usize::try_from(queues.meter.room()).unwrap_or(usize::MAX);
                        core.backends[record.target as usize]
                            .evaluate(&record.region, &inputs, room)
                            .map_err(|error| RunError::at(&record.name, error))?
                    } else {
                        let frames = &mut self.bodies[first + at];
                        let units = &unit.bodies[first + at];
                        // Whoever looks on learns inside of which step of control flow a step ran.
                        let mut within = |body: usize, mut inner: Observed| {
                            inner.path.insert(0, (first + at, body));
                            if let Some(observer) = &mut watch.observer {
                                observer(inner);
                            }
                        };
                        let observer: Option<&mut dyn FnMut(usize, Observed)> = match is_observed {
                            true => Some(&mut within),
                            false => None,
                        };
                        run_control(core, record, units, frames, &inputs, queues, mode, observer)?
                    };
                    let symbols = learned.get_or_insert_with(|| resolved.symbols.clone());
                    self.keep_results(unit, resolved, record, step, results, symbols, &mut queues.meter)?;
                }
            }
            if resolved.steps[last].awaited {
                self.await_at(core, last, &steps[last], queues)?;
            }
            if let Some(started) = started {
                self.end(core, record, started, queues)?;
            }
            at = last + 1;
        }
        if watch.phases.is_some() {
            self.leave(core, queues)?;
        }
        // A run that does not wait is one segment, and whoever asked for it waits.
        if mode.waits || unit.outline.segments.len() > 1 {
            queues.synchronize()?;
            self.faults.take(0, &unit.program)?;
        }
        self.report(watch)?;
        Ok(learned)
    }
}

/// A panic of a kernel, of a thread or of ours, as an error.
pub(crate) fn panicked(payload: &(dyn Any + Send)) -> RunError {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    RunError::new(RunErrorKind::Failed, format!("the run panicked: {text}; this is a mistake of Planish"))
}
