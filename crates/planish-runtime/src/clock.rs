//! Times on a device: events marked along its queues, read when the queues have passed them.

use std::time::Instant;

use planish_kernel::Event;
use planish_plan::{Step, StepKind};

use crate::engine::Core;
use crate::error::{RunError, RunErrorKind};
use crate::run::{Run, Watch};

/// How long a run was busy with what, by a device's own clock.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Phases {
    /// Bringing inputs to the device.
    pub upload_ns: f64,
    /// Kernels, and whatever lies between them.
    pub compute_ns: f64,
    /// Bringing outputs back.
    pub download_ns: f64,
}

/// What a timed run did on a device and from when on, and when each of its steps ran.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    clock: Clock,
    phases: Vec<(Phase, Mark)>,
    steps: Vec<Span>,
}

/// The beginning of a step whose time is asked for.
pub(crate) type Started = (Instant, Option<Mark>);

/// Events of each target, made when they are first needed and used again by every run.
#[derive(Debug, Default)]
struct Clock {
    events: Vec<Vec<Box<dyn Event>>>,
    n_used: Vec<usize>,
}

/// A point in a queue of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    target: u32,
    at: usize,
}

/// When a step ran.
#[derive(Clone, Copy, Debug)]
enum Span {
    /// Nanoseconds by the host's clock.
    Host(u64),
    /// From one mark to the next.
    Device(Mark, Mark),
}

impl Clock {
    /// Forgets the marks of the run before.
    fn restart(&mut self, core: &Core) {
        self.events.resize_with(core.backends.len(), Vec::new);
        self.n_used.clear();
        self.n_used.resize(core.backends.len(), 0);
    }

    /// Marks the current end of a queue; `None` where the target's events have no times.
    fn mark(&mut self, run: &mut Run<'_, '_>, target: u32) -> Result<Option<Mark>, RunError> {
        let at = self.n_used[target as usize];
        let events = &mut self.events[target as usize];
        if at == events.len() {
            match run.core.backends[target as usize].event(true) {
                Ok(event) => events.push(event),
                Err(_) => return Ok(None),
            }
        }
        run.queues.get(target).record_at(&*events[at])?;
        self.n_used[target as usize] += 1;
        Ok(Some(Mark { target, at }))
    }

    /// Nanoseconds between two marks that their queue has passed.
    fn between(&self, begin: Mark, end: Mark) -> Result<f64, RunError> {
        let event = |mark: Mark| self.events.get(mark.target as usize).and_then(|list| list.get(mark.at));
        match (event(begin), event(end)) {
            (Some(begin), Some(end)) => Ok(end.ns_since(&**begin)?),
            _ => Err(RunError::new(RunErrorKind::Failed, "a time was asked for that nobody took")),
        }
    }

    fn ns(&self, span: Span) -> Result<u64, RunError> {
        match span {
            Span::Host(ns) => Ok(ns),
            Span::Device(begin, end) => Ok(self.between(begin, end)?.max(0.0) as u64),
        }
    }
}

/// What a step is to a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Upload,
    Compute,
    Download,
    End,
}

impl Timer {
    /// Forgets the run before.
    pub(crate) fn restart(&mut self, core: &Core) {
        self.clock.restart(core);
        self.phases.clear();
        self.steps.clear();
    }

    /// Notes what a device begins to do where that changes.
    pub(crate) fn enter(&mut self, run: &mut Run<'_, '_>, record: &Step) -> Result<(), RunError> {
        let (core, unit) = (run.core, run.unit);
        if !core.is_device(record.target) {
            return Ok(());
        }
        let sink = record.outputs.first().copied().flatten();
        let phase = match (&record.kind, sink) {
            (StepKind::Transfer, Some(sink)) => {
                match core.is_device(unit.program.values[sink as usize].target) {
                    true => Phase::Upload,
                    false => Phase::Download,
                }
            }
            _ => Phase::Compute,
        };
        if self.phases.last().is_none_or(|(last, _)| *last != phase)
            && let Some(mark) = self.clock.mark(run, record.target)?
        {
            self.phases.push((phase, mark));
        }
        Ok(())
    }

    /// Notes that a device is done.
    pub(crate) fn leave(&mut self, run: &mut Run<'_, '_>) -> Result<(), RunError> {
        if let Some(&(_, Mark { target, .. })) = self.phases.last()
            && let Some(mark) = self.clock.mark(run, target)?
        {
            self.phases.push((Phase::End, mark));
        }
        Ok(())
    }

    /// The beginning of a step, where times are asked for.
    pub(crate) fn begin(
        &mut self,
        run: &mut Run<'_, '_>,
        record: &Step,
    ) -> Result<Option<Started>, RunError> {
        if run.watch.times.is_none() {
            return Ok(None);
        }
        let mark = match run.core.is_device(record.target) {
            true => self.clock.mark(run, record.target)?,
            false => None,
        };
        Ok(Some((Instant::now(), mark)))
    }

    /// The end of a step whose time is asked for: by the device's clock where it has one.
    pub(crate) fn end(
        &mut self,
        run: &mut Run<'_, '_>,
        record: &Step,
        (started, mark): Started,
    ) -> Result<(), RunError> {
        let span = match mark {
            Some(begin) => self.clock.mark(run, record.target)?.map(|end| Span::Device(begin, end)),
            None => None,
        };
        if span.is_none() {
            run.queues.get(record.target).synchronize()?;
        }
        self.steps.push(span.unwrap_or_else(|| Span::Host(started.elapsed().as_nanos() as u64)));
        Ok(())
    }

    /// Hands out what was timed, once the queues have passed.
    pub(crate) fn report(&self, watch: &mut Watch<'_>) -> Result<(), RunError> {
        if let Some(times) = watch.times.as_deref_mut() {
            for span in &self.steps {
                times.push(self.clock.ns(*span)?);
            }
        }
        if let Some(phases) = watch.phases.as_deref_mut() {
            for pair in self.phases.windows(2) {
                let ns = self.clock.between(pair[0].1, pair[1].1)?;
                match pair[0].0 {
                    Phase::Upload => phases.upload_ns += ns,
                    Phase::Compute => phases.compute_ns += ns,
                    Phase::Download => phases.download_ns += ns,
                    Phase::End => {}
                }
            }
        }
        Ok(())
    }
}
