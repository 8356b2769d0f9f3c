//! Where operands are, and how values get from one memory to another.
//!
//! Host memory of a context is pinned where there is a device, so that copies are queued like launches and nothing
//! waits for them but whoever needs them. What the caller hands in is copied into such memory piece by piece, each
//! on its way while the next is copied, or read where it lies if that is pinned. A caller's own device memory takes
//! the place of the device's copy of an input or output, and nothing is copied at all.

use planish_kernel::{Address, MemoryKind};
use planish_plan::Step;

use crate::engine::{Core, Unit};
use crate::error::RunError;
use crate::feed::{Feed, Site};
use crate::frame::{Frame, Queues};
use crate::memory::{Own, address_in, address_of, pointer};
use crate::resolve::{Action, Base, Location, Resolved, ResolvedStep, Way};

/// Pageable memory is copied in pieces of this size: small enough that the bus starts early, large enough that its
/// calls do not count.
const PIECE: usize = 512 << 10;

impl Frame {
    pub(crate) fn address(&self, location: Location, resolved: &Resolved, feeds: &[Feed<'_>]) -> Address {
        let arena = |target: u32| address_of(&self.arenas[target as usize]);
        let base = match location.base {
            Base::Absolute => Address(0),
            Base::Arena(target) => arena(target),
            Base::Output(output) => match self.bound[output as usize] {
                Some(bound) if bound.site != Site::Device => bound.to,
                _ => address_of(&self.outputs[output as usize]),
            },
            Base::Input(input) => match &feeds[input as usize] {
                _ if !self.staging[input as usize].is_empty() => {
                    Address(self.staging[input as usize].as_ptr().expose_provenance() as u64)
                }
                Feed::Absent => Address::NULL,
                Feed::View(view) | Feed::Pinned(view) => address_in(view.bytes()),
                Feed::Value(value) => value.as_tensor().map_or(Address::NULL, |t| address_in(t.bytes())),
                Feed::Device(view) => view.address,
            },
            Base::Entry(input) => match (&feeds[input as usize], resolved.entries[input as usize]) {
                (Feed::Device(view), _) => view.address,
                (_, Some((target, offset))) => arena(target).offset(offset),
                (_, None) => Address::NULL,
            },
            Base::Exit(output) => match (self.bound[output as usize], resolved.exits[output as usize]) {
                (Some(bound), _) if bound.site == Site::Device => bound.to,
                (_, Some((target, offset))) => arena(target).offset(offset),
                (_, None) => Address::NULL,
            },
            Base::Own(value) => match &self.own[value as usize] {
                Own::Memory(memory) => memory.address(),
                Own::Host(value) => value.as_tensor().map_or(Address::NULL, |t| address_in(t.bytes())),
                Own::Nothing => Address::NULL,
            },
        };
        Address(base.0 + location.offset)
    }

    /// Whether host memory may be read and written by a device's queue while we go on.
    fn is_pinned(&self, core: &Core, location: Location, feeds: &[Feed<'_>]) -> bool {
        match location.base {
            Base::Input(input) => {
                matches!(feeds[input as usize], Feed::Pinned(_)) && self.staging[input as usize].is_empty()
            }
            Base::Output(output) => match self.bound[output as usize] {
                Some(bound) => bound.site == Site::Pinned,
                None => core.pinning.is_some(),
            },
            Base::Arena(_) => core.pinning.is_some(),
            Base::Own(value) => core.pinning.is_some() && matches!(self.own[value as usize], Own::Memory(_)),
            Base::Absolute | Base::Entry(_) | Base::Exit(_) => false,
        }
    }

    /// Whether all transfers of a stretch are copies between a device and pinned memory: then they can be recorded.
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
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn transfer(
        &mut self,
        core: &Core,
        unit: &Unit,
        resolved: &Resolved,
        feeds: &[Feed<'_>],
        record: &Step,
        (from, to): (Location, Location),
        bytes: usize,
        queues: &mut Queues,
    ) -> Result<(), RunError> {
        use MemoryKind::{Device, Host};
        let value = |list: &[Option<u32>]| list.first().copied().flatten().unwrap_or(0) as usize;
        let source = unit.program.values[value(&record.inputs)].target;
        let sink = unit.program.values[value(&record.outputs)].target;
        let kind = |target: u32| core.backends[target as usize].memory_kind();
        // Copies are queued on the step's own stream, so that they come behind what it waited for.
        let stream = |target: u32| if target == record.target { record.stream } else { 0 };
        let (from_at, to_at) = (self.address(from, resolved, feeds), self.address(to, resolved, feeds));
        // The caller's device memory is the value already, or is to have a copy of it.
        if let Base::Input(input) = from.base
            && let Feed::Device(view) = &feeds[input as usize]
            && kind(sink) == Device
        {
            if !matches!(to.base, Base::Entry(_)) {
                // SAFETY: the caller vouches for the view; the arena has room for the value.
                unsafe { queues.get(sink, stream(sink)).copy(to_at, view.address, bytes)? };
            }
            return Ok(());
        }
        if let Base::Output(output) = to.base
            && let Some(bound) = self.bound[output as usize].filter(|bound| bound.site == Site::Device)
        {
            if !matches!(from.base, Base::Exit(_)) {
                // SAFETY: the caller vouches for its memory, which is large enough.
                unsafe { queues.get(source, stream(source)).copy(bound.to, from_at, bytes)? };
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
                        queues.get(sink, stream(sink)).upload_pinned(to_at, host)?;
                    } else if kind(sink) == Device && core.pinning.is_some() {
                        self.stage(core, from, to_at, host, queues, (sink, stream(sink)))?;
                    } else {
                        queues.get(sink, stream(sink)).upload(to_at, host)?;
                    }
                }
                (Device, Host) if self.is_pinned(core, to, feeds) => {
                    queues.get(source, stream(source)).download_pinned(pointer(to_at), from_at, bytes)?;
                }
                (Device, Host) => {
                    let host = std::slice::from_raw_parts_mut(pointer(to_at), bytes);
                    queues.get(source, stream(source)).download(host, from_at)?;
                }
                (Device, Device) => {
                    let mut staging = vec![0u8; bytes];
                    queues.get(source, stream(source)).download(&mut staging, from_at)?;
                    queues.get(sink, stream(sink)).upload(to_at, &staging)?;
                }
            }
            if sink != record.target {
                // Whoever waits for this step waits for its own queue.
                queues.get(sink, 0).synchronize()?;
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
        (target, stream): (u32, u32),
    ) -> Result<(), RunError> {
        // One for each input; other pageable values (weights, results of the reference) are rare, and a plain
        // upload reads them before it returns.
        let Base::Input(input) = from.base else {
            // SAFETY: the caller's promise.
            unsafe { queues.get(target, stream).upload(to, host)? };
            return Ok(());
        };
        let staged = &mut self.staged[input as usize];
        if staged.as_ref().is_none_or(|memory| memory.len() < host.len()) {
            *staged = None;
            *staged = core.pinned(host.len())?;
        }
        let Some(memory) = staged else {
            // SAFETY: the caller's promise.
            unsafe { queues.get(target, stream).upload(to, host)? };
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
                queues.get(target, stream).upload_pinned(to.offset(offset), piece)?;
            }
        }
        Ok(())
    }
}
