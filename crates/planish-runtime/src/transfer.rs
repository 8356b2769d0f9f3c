//! Where operands are, and how values get from one memory to another.
//!
//! Host memory of a context is pinned where there is a device, so that copies are queued like launches and nothing
//! waits for them but whoever needs them. What the caller hands in is copied into such memory piece by piece, each
//! on its way while the next is copied, or read where it lies if that is pinned. A caller's own device memory takes
//! the place of the device's copy of an input or output, and nothing is copied at all.

use planish_kernel::{Address, Memory, MemoryKind};
use planish_op::Value;
use planish_plan::Step;

use crate::device::DeviceView;
use crate::engine::Core;
use crate::error::{RunError, RunErrorKind};
use crate::feed::{Feed, Site};
use crate::memory::{FrameMemory, Own, address_in, pointer};
use crate::resolve::{Action, Base, Location, Resolved, ResolvedStep, Way};
use crate::run::{Queues, Run};

/// Pageable memory is copied in pieces of this size: small enough that the bus starts early, large enough that its
/// calls do not count.
const PIECE: usize = 512 << 10;

/// The memory that a location begins in, some bytes into it.
pub(crate) struct Held<'a> {
    memory: Holder<'a>,
    offset: u64,
}

enum Holder<'a> {
    /// A backend's.
    Memory(&'a dyn Memory),
    /// Of the caller or of the reference, only to be read.
    Bytes(&'a [u8]),
    /// Given with its length by the caller.
    Lent(Address, usize),
    /// Weights: their lengths are compared when a segment is resolved, and nothing writes there.
    Weights,
    Nothing,
}

impl<'a> Holder<'a> {
    fn memory(memory: &'a Option<Box<dyn Memory>>) -> Holder<'a> {
        memory.as_ref().map_or(Holder::Nothing, |memory| Holder::Memory(&**memory))
    }

    fn value(value: &'a Value) -> Holder<'a> {
        value.as_tensor().map_or(Holder::Nothing, |tensor| Holder::Bytes(tensor.bytes()))
    }

    fn view(view: &DeviceView<'_>) -> Holder<'a> {
        let bytes = view.dtype.bytes_of(view.dims);
        Holder::Lent(view.address, bytes.unwrap_or(0))
    }
}

impl Held<'_> {
    #[inline]
    pub(crate) fn address(&self) -> Address {
        let base = match self.memory {
            Holder::Memory(memory) => memory.address(),
            Holder::Bytes(bytes) => address_in(bytes),
            Holder::Lent(address, _) => address,
            Holder::Weights | Holder::Nothing => Address::NULL,
        };
        Address(base.0 + self.offset)
    }

    /// Whether so many bytes can be read here, or written.
    pub(crate) fn has(&self, bytes: usize, written: bool) -> bool {
        let len = match self.memory {
            Holder::Memory(memory) => memory.len(),
            Holder::Bytes(_) | Holder::Weights if written && bytes > 0 => return false,
            Holder::Bytes(bytes) => bytes.len(),
            Holder::Lent(_, bytes) => bytes,
            Holder::Weights => return true,
            Holder::Nothing => 0,
        };
        bytes == 0 || self.offset.checked_add(bytes as u64).is_some_and(|end| end <= len as u64)
    }
}

impl FrameMemory {
    /// Where a location is, with the memory that it is in.
    pub(crate) fn held<'a>(
        &'a self,
        location: Location,
        resolved: &Resolved,
        feeds: &'a [Feed<'_>],
    ) -> Held<'a> {
        let in_arena = |place: Option<(u32, usize)>| match place {
            Some((target, offset)) => (Holder::memory(&self.arenas[target as usize]), offset as u64),
            None => (Holder::Nothing, 0),
        };
        let (memory, start) = match location.base {
            Base::Absolute => (Holder::Weights, 0),
            Base::Ring => (Holder::memory(&self.ring), 0),
            Base::Arena(target) => (Holder::memory(&self.arenas[target as usize]), 0),
            Base::Output(output) => match self.bound[output as usize] {
                Some(bound) if bound.site != Site::Device => (Holder::Lent(bound.to, bound.bytes), 0),
                _ => (Holder::memory(&self.outputs[output as usize]), 0),
            },
            Base::Input(input) => match &feeds[input as usize] {
                _ if !self.aligned[input as usize].is_empty() => {
                    let words = &self.aligned[input as usize];
                    let address = Address(words.as_ptr().expose_provenance() as u64);
                    (Holder::Lent(address, size_of_val(&**words)), 0)
                }
                Feed::Absent => (Holder::Nothing, 0),
                Feed::View(view) | Feed::Pinned(view) => (Holder::Bytes(view.bytes()), 0),
                Feed::Value(value) => (Holder::value(value), 0),
                Feed::Device(view) => (Holder::view(view), 0),
            },
            Base::Entry(input) => match &feeds[input as usize] {
                Feed::Device(view) => (Holder::view(view), 0),
                _ => in_arena(resolved.entries[input as usize]),
            },
            Base::Exit(output) => match self.bound[output as usize] {
                Some(bound) if bound.site == Site::Device => (Holder::Lent(bound.to, bound.bytes), 0),
                _ => in_arena(resolved.exits[output as usize]),
            },
            Base::Own(value) => match &self.own[value as usize] {
                Own::Memory(memory) => (Holder::Memory(&**memory), 0),
                Own::Host(value) => (Holder::value(value), 0),
                Own::Nothing => (Holder::Nothing, 0),
            },
        };
        Held { memory, offset: start + location.offset }
    }

    pub(crate) fn address(&self, location: Location, resolved: &Resolved, feeds: &[Feed<'_>]) -> Address {
        self.held(location, resolved, feeds).address()
    }

    /// Whether every operand of a step has the memory that it spans, and outputs one that may be written: looked at
    /// where a segment is new or values of the host change with each run, before anything is launched there.
    pub(crate) fn check_memory(
        &self,
        run: &Run<'_, '_>,
        resolved: &Resolved,
        step: &ResolvedStep,
        record: &Step,
    ) -> Result<(), RunError> {
        let Run { unit, feeds, .. } = *run;
        let inputs = record.inputs.iter().zip(&step.inputs).map(|(value, location)| (value, location, false));
        let outputs =
            record.outputs.iter().zip(&step.outputs).map(|(value, location)| (value, location, true));
        for (value, location, written) in inputs.chain(outputs) {
            let Some(value) = *value else { continue };
            let Some(operand) = &resolved.operands[value as usize] else { continue };
            // A packed weight is as long as its format says.
            let bytes = match location.base {
                Base::Absolute | Base::Ring => 0,
                _ => operand.span_bytes(),
            };
            // A transfer to the host leaves its value in the caller's device memory where an output is bound there.
            let bound = match (location.base, &step.action) {
                (Base::Output(output), Action::Transfer { .. }) => self.bound[output as usize],
                _ => None,
            };
            let has_memory = match bound.filter(|bound| bound.site == Site::Device) {
                Some(bound) => location.offset == 0 && bytes <= bound.bytes,
                None => self.held(*location, resolved, feeds).has(bytes, written),
            };
            if !has_memory {
                let name = &unit.program.values[value as usize].name;
                let why = format!("step `{}`: `{name}` has no memory for its {bytes} bytes", record.name);
                return Err(RunError::needs_rebuild(format!("{why}, the plan is damaged")));
            }
        }
        if let Action::Kernel { kernel, workspace } = &step.action
            && !self.held(*workspace, resolved, feeds).has(kernel.workspace_bytes(), true)
        {
            let why = format!("step `{}` has less workspace than it asks for", record.name);
            return Err(RunError::new(RunErrorKind::Failed, why));
        }
        Ok(())
    }

    /// Whether host memory may be read and written by a device's queue while we go on.
    fn is_pinned(&self, core: &Core, location: Location, feeds: &[Feed<'_>]) -> bool {
        match location.base {
            Base::Input(input) => {
                matches!(feeds[input as usize], Feed::Pinned(_)) && self.aligned[input as usize].is_empty()
            }
            Base::Output(output) => match self.bound[output as usize] {
                Some(bound) => bound.site == Site::Pinned,
                None => core.pinning.is_some(),
            },
            Base::Arena(_) => core.pinning.is_some(),
            Base::Own(value) => core.pinning.is_some() && matches!(self.own[value as usize], Own::Memory(_)),
            Base::Absolute | Base::Ring | Base::Entry(_) | Base::Exit(_) => false,
        }
    }

    /// Whether all transfers of a span are copies between a device and pinned memory: then they can be captured.
    pub(crate) fn is_all_pinned(&self, core: &Core, steps: &[ResolvedStep], feeds: &[Feed<'_>]) -> bool {
        let on_device = |location: Location| match location.base {
            Base::Input(input) => matches!(feeds[input as usize], Feed::Device(_)),
            Base::Output(output) => {
                self.bound[output as usize].is_some_and(|bound| bound.site == Site::Device)
            }
            _ => false,
        };
        steps.iter().all(|step| {
            let Action::Transfer { way, .. } = step.action else { return true };
            let host = if way == Way::Up { step.inputs[0] } else { step.outputs[0] };
            !on_device(host) && self.is_pinned(core, host, feeds)
        })
    }

    /// Brings a value from one memory to another, queued where that can be.
    pub(crate) fn transfer(
        &mut self,
        run: &mut Run<'_, '_>,
        resolved: &Resolved,
        record: &Step,
        (from, to): (Location, Location),
        bytes: usize,
    ) -> Result<(), RunError> {
        use MemoryKind::{Device, Host};
        let Run { core, unit, feeds, .. } = *run;
        let queues = &mut *run.queues;
        let value = |list: &[Option<u32>]| list.first().copied().flatten().unwrap_or(0) as usize;
        let source = unit.program.values[value(&record.inputs)].target;
        let sink = unit.program.values[value(&record.outputs)].target;
        let kind = |target: u32| core.backends[target as usize].memory_kind();
        let (from_at, to_at) = (self.address(from, resolved, feeds), self.address(to, resolved, feeds));
        // The caller's device memory is the value already, or is to have a copy of it.
        if let Base::Input(input) = from.base
            && let Feed::Device(view) = &feeds[input as usize]
            && kind(sink) == Device
        {
            if !matches!(to.base, Base::Entry(_)) {
                // SAFETY: the caller vouches for the view; the arena has room for the value.
                unsafe { queues.get(sink).copy(to_at, view.address, bytes)? };
            }
            return Ok(());
        }
        if let Base::Output(output) = to.base
            && let Some(bound) = self.bound[output as usize].filter(|bound| bound.site == Site::Device)
        {
            if !matches!(from.base, Base::Exit(_)) {
                // SAFETY: the caller vouches for its memory, which is large enough.
                unsafe { queues.get(source).copy(bound.to, from_at, bytes)? };
            }
            return Ok(());
        }
        // SAFETY: the locations of both operands span `bytes`; host addresses are this process's memory, and
        // the two are different values, so they do not overlap. Pinned memory is the context's, or is lent to it
        // until the run is over, and nothing writes it before whoever waits for this step.
        unsafe {
            match (kind(source), kind(sink)) {
                (Host, _) => {
                    let host = std::slice::from_raw_parts(pointer(from_at).cast_const(), bytes);
                    if kind(sink) == Device && self.is_pinned(core, from, feeds) {
                        queues.get(sink).upload_pinned(to_at, host)?;
                    } else if kind(sink) == Device && core.pinning.is_some() {
                        self.stage(core, from, to_at, host, queues, sink)?;
                    } else {
                        queues.get(sink).upload(to_at, host)?;
                    }
                }
                (Device, Host) if self.is_pinned(core, to, feeds) => {
                    let host = std::ptr::slice_from_raw_parts_mut(pointer(to_at), bytes);
                    queues.get(source).download_pinned(host, from_at)?;
                }
                (Device, Host) => {
                    let host = std::slice::from_raw_parts_mut(pointer(to_at), bytes);
                    queues.get(source).download(host, from_at)?;
                }
                (Device, Device) => {
                    let mut staging = vec![0u8; bytes];
                    queues.get(source).download(&mut staging, from_at)?;
                    queues.get(sink).upload(to_at, &staging)?;
                }
            }
            if sink != record.target {
                // Whoever waits for this step waits for its own queue.
                queues.get(sink).synchronize()?;
            }
        }
        Ok(())
    }

    /// Uploads pageable memory through pinned memory of the context's own.
    ///
    /// # Safety
    /// `to` must be memory of the target, writable for the bytes of `host`.
    unsafe fn stage(
        &mut self,
        core: &Core,
        from: Location,
        to: Address,
        host: &[u8],
        queues: &mut Queues,
        target: u32,
    ) -> Result<(), RunError> {
        // One for each input; other pageable values (weights, results of the reference) are rare, and a plain
        // upload reads them before it returns.
        let Base::Input(input) = from.base else {
            // SAFETY: the caller's promise.
            unsafe { queues.get(target).upload(to, host)? };
            return Ok(());
        };
        let staged = &mut self.pinned[input as usize];
        if staged.as_ref().is_none_or(|memory| memory.len() < host.len()) {
            *staged = None;
            *staged = core.pinned(host.len())?;
        }
        let Some(memory) = staged else {
            // SAFETY: the caller's promise.
            unsafe { queues.get(target).upload(to, host)? };
            return Ok(());
        };
        let start = pointer(memory.address());
        for (idx, piece) in host.chunks(PIECE).enumerate() {
            let offset = idx * PIECE;
            // SAFETY: the staging memory has room for all of `host`; the queue passed its last use when the run
            // before ended, and reads this piece before the next run begins.
            unsafe {
                std::ptr::copy_nonoverlapping(piece.as_ptr(), start.add(offset), piece.len());
                let piece = std::slice::from_raw_parts(start.add(offset).cast_const(), piece.len());
                queues.get(target).upload_pinned(to.offset(offset), piece)?;
            }
        }
        Ok(())
    }
}
