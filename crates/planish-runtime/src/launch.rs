//! Launches: one kernel at a time, or a stretch of them recorded and replayed.

use planish_kernel::{Address, Call, Queue};
use planish_plan::Step;

use crate::engine::{Core, Unit};
use crate::error::RunError;
use crate::feed::Feed;
use crate::frame::{Frame, Observed, Queues, Watch};
use crate::record::{How, Stretch};
use crate::resolve::{Action, Resolved, ResolvedStep};

impl Frame {
    /// Launches one kernel.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn launch(
        &mut self,
        unit: &Unit,
        idx: usize,
        step: &ResolvedStep,
        record: &Step,
        resolved: &Resolved,
        feeds: &[Feed<'_>],
        queues: &mut Queues,
        watch: &mut Watch<'_>,
    ) -> Result<(), RunError> {
        let mut addresses = std::mem::take(&mut self.addresses);
        addresses.clear();
        let workspace = self.operands(step, resolved, feeds, &mut addresses);
        let read = match watch.observer {
            Some(_) => self.copies(unit, resolved, &record.inputs, &addresses, record, queues)?,
            None => Vec::new(),
        };
        let n_inputs = step.inputs.len();
        run_kernel(step, record, &addresses, workspace, queues.get(record.target, record.stream))?;
        if let Some(observer) = &mut watch.observer {
            let outputs =
                self.copies(unit, resolved, &record.outputs, &addresses[n_inputs..], record, queues)?;
            observer(Observed { step: idx, inputs: read, outputs });
        }
        self.addresses = addresses;
        Ok(())
    }

    /// Adds the addresses of a step's inputs and outputs; gives that of its workspace.
    fn operands(
        &self,
        step: &ResolvedStep,
        resolved: &Resolved,
        feeds: &[Feed<'_>],
        addresses: &mut Vec<Address>,
    ) -> Address {
        for location in step.inputs.iter().chain(&step.outputs) {
            addresses.push(self.address(*location, resolved, feeds));
        }
        match &step.action {
            Action::Kernel { workspace, .. } => self.address(*workspace, resolved, feeds),
            Action::Transfer { .. } | Action::Evaluate | Action::Control => Address::NULL,
        }
    }

    /// Runs a stretch: replayed where it was recorded at these addresses.
    pub(crate) fn stretch(
        &mut self,
        number: usize,
        stretch: &Stretch,
        resolved: &Resolved,
        steps: &[Step],
        feeds: &[Feed<'_>],
        queues: &mut Queues,
    ) -> Result<(), RunError> {
        // Operands and workspace of every step, one behind the other.
        let mut key = std::mem::take(&mut self.addresses);
        key.clear();
        for at in stretch.first..stretch.end {
            let workspace = self.operands(&resolved.steps[at], resolved, feeds, &mut key);
            key.push(workspace);
        }
        let queue = queues.get(steps[stretch.first].target, steps[stretch.first].stream);
        let launch_all = |queue: &mut dyn Queue| -> Result<(), RunError> {
            let mut rest = &key[..];
            let places = stretch.first..stretch.end;
            for (step, record) in resolved.steps[places.clone()].iter().zip(&steps[places]) {
                let (own, behind) = rest.split_at(step.inputs.len() + step.outputs.len() + 1);
                let (addresses, workspace) = own.split_at(own.len() - 1);
                queue.range_begin(&record.name);
                let done = run_kernel(step, record, addresses, workspace[0], queue);
                queue.range_end();
                done?;
                rest = behind;
            }
            Ok(())
        };
        match resolved.recordings.replay(number, &key, queue)? {
            How::Done => {}
            How::Plain => launch_all(queue)?,
            How::Record => {
                // An older recording may have to go, and the run before may be replaying it.
                queue.synchronize()?;
                queue.begin_capture()?;
                let launched = launch_all(queue);
                // Ended whatever happened, so that the queue can be used again.
                let recording = queue.end_capture();
                match (launched, recording) {
                    (Ok(()), Ok(recording)) => {
                        resolved.recordings.keep(number, &key, Some(recording));
                        resolved.recordings.replay(number, &key, queue)?;
                    }
                    // Something in it cannot be recorded: launched as it is, now and from here on.
                    _ => {
                        resolved.recordings.keep(number, &key, None);
                        launch_all(queue)?;
                    }
                }
            }
        }
        self.addresses = key;
        Ok(())
    }

    /// Lets steps on other queues wait for this one. The event is made once, where the backend can.
    pub(crate) fn await_at(
        &mut self,
        core: &Core,
        at: usize,
        record: &Step,
        queues: &mut Queues,
    ) -> Result<(), RunError> {
        let queue = queues.get(record.target, record.stream);
        if self.events[at].is_none() {
            self.events[at] = core.backends[record.target as usize].event(false).ok();
        }
        if let Some(event) = &self.events[at]
            && queue.record_at(&**event).is_ok()
        {
            return Ok(());
        }
        self.events[at] = Some(queue.record()?);
        Ok(())
    }
}

/// Launches a kernel at these addresses, inputs first.
fn run_kernel(
    step: &ResolvedStep,
    record: &Step,
    addresses: &[Address],
    workspace: Address,
    queue: &mut dyn Queue,
) -> Result<(), RunError> {
    let Action::Kernel { kernel, .. } = &step.action else { return Ok(()) };
    let (inputs, outputs) = addresses.split_at(step.inputs.len());
    let call = Call { inputs, outputs, workspace };
    // SAFETY: the arena was laid out for these operands: what is alive together does not overlap; weights and
    // inputs are only read; whoever runs a frame has it for itself.
    let done = unsafe { kernel.launch(&call, queue) };
    done.map_err(|error| RunError::at(&record.name, error))
}
