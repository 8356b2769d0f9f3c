//! What a run is: inputs, queues, how it goes and who looks on, handed down as one thing.

use planish_kernel::Queue;
use planish_op::Meter;
use planish_tensor::Tensor;

use crate::clock::Phases;
use crate::engine::{Core, Unit};
use crate::error::RunError;
use crate::feed::Feed;
use crate::streaming::Feeder;

/// A run of one program.
pub(crate) struct Run<'a, 'w> {
    pub(crate) core: &'a Core,
    pub(crate) unit: &'a Unit,
    pub(crate) feeds: &'a [Feed<'a>],
    pub(crate) queues: &'a mut Queues,
    pub(crate) mode: Mode,
    pub(crate) watch: Watch<'w>,
}

impl Run<'_, '_> {
    /// Whether it is of the plan's own program and not of a body of control flow.
    pub(crate) fn is_of_plan(&self) -> bool {
        std::ptr::eq(self.unit, &self.core.unit)
    }
}

/// The queues of a context, one for each target.
#[derive(Debug)]
pub(crate) struct Queues {
    list: Vec<Box<dyn Queue>>,
    /// The target that knows of tools which watch the process: the device's, where there is one.
    watched: u32,
    /// Ranges that were begun and not ended.
    n_ranges: usize,
    /// Queues of the device for branches of a captured graph.
    pub(crate) branches: Vec<Box<dyn Queue>>,
    /// Brings streamed weights.
    pub(crate) feeder: Option<Feeder>,
    /// What the run on these queues has used of the engine's limits.
    pub(crate) meter: Meter,
}

impl Queues {
    pub(crate) fn new(list: Vec<Box<dyn Queue>>, watched: u32, meter: Meter) -> Queues {
        Queues { list, watched, n_ranges: 0, branches: Vec::new(), feeder: None, meter }
    }

    pub(crate) fn get(&mut self, target: u32) -> &mut dyn Queue {
        &mut *self.list[target as usize]
    }

    /// The queue of a target, those for the branches of its captured graphs, and what brings its weights.
    pub(crate) fn with_branches(
        &mut self,
        target: u32,
    ) -> (&mut dyn Queue, &mut [Box<dyn Queue>], Option<&mut Feeder>) {
        (&mut *self.list[target as usize], &mut self.branches, self.feeder.as_mut())
    }

    /// Puts another queue in the place of a target's, and gives that one.
    pub(crate) fn replace(&mut self, target: u32, queue: Box<dyn Queue>) -> Box<dyn Queue> {
        std::mem::replace(&mut self.list[target as usize], queue)
    }

    /// Names what is done until [`Queues::end_range`], for tools that watch the process; steps on the host are named
    /// too where a plan has a device.
    pub(crate) fn begin_range(&mut self, name: &str) {
        self.list[self.watched as usize].range_begin(name);
        self.n_ranges += 1;
    }

    pub(crate) fn end_range(&mut self) {
        self.list[self.watched as usize].range_end();
        self.n_ranges -= 1;
    }

    pub(crate) fn n_ranges(&self) -> usize {
        self.n_ranges
    }

    /// Ends what an error or a panic left open, down to so many ranges.
    pub(crate) fn end_ranges(&mut self, down_to: usize) {
        while self.n_ranges > down_to {
            self.end_range();
        }
    }

    /// Waits for all of them.
    pub(crate) fn synchronize(&mut self) -> Result<(), RunError> {
        self.list.iter_mut().try_for_each(|queue| Ok::<(), RunError>(queue.synchronize()?))?;
        self.feeder.as_mut().map_or(Ok(()), Feeder::synchronize)
    }

    /// Waits for all of them, whatever they say: nothing writes any more when this returns.
    pub(crate) fn stop(&mut self) {
        for queue in &mut self.list {
            let _ = queue.synchronize();
        }
        let _ = self.feeder.as_mut().map(Feeder::synchronize);
    }

    /// Host memory that they hold for copies.
    pub(crate) fn staging_bytes(&self) -> usize {
        self.list.iter().map(|queue| queue.staging_bytes()).sum()
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
    /// Gives what kernel steps read in place of a value, by its number in the program; steps in bodies read what there is.
    pub(crate) stand_ins: Option<&'a mut dyn FnMut(u32) -> Option<Tensor>>,
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
