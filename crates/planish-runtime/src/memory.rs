//! The memory of a program: arenas, outputs and values of their own, as large as the sizes met so far ask for.

use std::sync::Arc;

use planish_kernel::{Address, Memory, MemoryKind};
use planish_op::{Meter, Stop, Value};

use crate::engine::{Core, Unit};
use crate::error::{RunError, RunErrorKind};
use crate::feed::Bound;
use crate::resolve::Resolved;
use crate::scratch::Allocator;

/// What a value of its own holds at the moment.
#[derive(Debug, Default)]
pub(crate) enum Own {
    #[default]
    Nothing,
    Host(Value),
    Memory(Box<dyn Memory>),
}

/// The memory of one program and of what its runs are given.
#[derive(Debug, Default)]
pub(crate) struct FrameMemory {
    /// By target: what lies between steps.
    pub(crate) arenas: Vec<Option<Box<dyn Memory>>>,
    /// What streamed weights come to.
    pub(crate) ring: Option<Box<dyn Memory>>,
    /// Where arenas come from, where that is not the backend.
    pub(crate) allocator: Option<Arc<dyn Allocator>>,
    pub(crate) outputs: Vec<Option<Box<dyn Memory>>>,
    /// Where the caller wants an output written.
    pub(crate) bound: Vec<Option<Bound>>,
    /// Whether the last run wrote an output to memory of the caller that was given back since.
    pub(crate) is_gone: Vec<bool>,
    /// By value: those that live longer than a segment.
    pub(crate) own: Vec<Own>,
    /// Copies of inputs that the caller's memory has at addresses that their type does not allow.
    pub(crate) aligned: Vec<Vec<u64>>,
    /// Pinned memory that inputs from pageable memory pass through on their way to a device.
    pub(crate) pinned: Vec<Option<Box<dyn Memory>>>,
}

impl FrameMemory {
    /// Bytes of arenas and outputs.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |list: &[Option<Box<dyn Memory>>]| -> usize {
            list.iter().flatten().map(|memory| memory.len()).sum()
        };
        bytes(&self.arenas) + bytes(&self.outputs)
    }

    /// Bytes of the arenas, by target.
    pub(crate) fn arena_lengths(&self) -> Vec<usize> {
        self.arenas.iter().map(|arena| arena.as_ref().map_or(0, |memory| memory.len())).collect()
    }

    /// Makes room for what is known per value, input and output.
    pub(crate) fn prepare(&mut self, core: &Core, unit: &Unit) {
        let n_values = unit.program.values.len();
        // A program without values has arenas all the same, of no bytes.
        if self.arenas.len() < core.backends.len() {
            self.arenas.resize_with(core.backends.len(), || None);
        }
        if self.own.len() < n_values {
            self.own.resize_with(n_values, Own::default);
            self.outputs.resize_with(unit.program.outputs.len(), || None);
            self.bound.resize(unit.program.outputs.len(), None);
            self.is_gone.resize(unit.program.outputs.len(), false);
            self.aligned.resize_with(unit.program.inputs.len(), Vec::new);
            self.pinned.resize_with(unit.program.inputs.len(), || None);
        }
    }

    /// Makes sure that arenas and values of their own are as large as a segment at these sizes needs.
    pub(crate) fn provide(
        &mut self,
        core: &Core,
        unit: &Unit,
        resolved: &Resolved,
        meter: &mut Meter,
    ) -> Result<(), RunError> {
        for (target, &bytes) in resolved.arena_bytes.iter().enumerate() {
            let allocator = self.allocator.as_deref();
            grow(&mut self.arenas[target], bytes, core, target, meter, allocator)?;
        }
        if let Some(streaming) = core.weights.streaming.as_ref().filter(|_| std::ptr::eq(unit, &core.unit)) {
            // Weights do not count against a run's limit.
            if self.ring.is_none() {
                self.ring = Some(core.backends[streaming.target as usize].allocate(streaming.ring_bytes)?);
            }
        }
        for &(value, bytes) in &resolved.own_bytes {
            let target = unit.program.values[value as usize].target as usize;
            let mut memory = match std::mem::take(&mut self.own[value as usize]) {
                Own::Memory(memory) => Some(memory),
                Own::Nothing => None,
                Own::Host(value) => {
                    meter.stand_less(value.bytes());
                    None
                }
            };
            grow(&mut memory, bytes, core, target, meter, None)?;
            self.own[value as usize] = memory.map_or(Own::Nothing, Own::Memory);
        }
        Ok(())
    }

    /// Makes sure that there is memory for every output: the caller's must be large enough, where there is none of the
    /// caller's the context has its own.
    pub(crate) fn provide_outputs(
        &mut self,
        core: &Core,
        unit: &Unit,
        resolved: &Resolved,
        meter: &mut Meter,
    ) -> Result<(), RunError> {
        for &(output, bytes) in &resolved.output_bytes {
            let value = &unit.program.values[unit.program.outputs[output as usize] as usize];
            match self.bound[output as usize] {
                None => {
                    let target = value.target as usize;
                    grow(&mut self.outputs[output as usize], bytes, core, target, meter, None)?;
                }
                Some(bound) if bound.bytes < bytes => {
                    let (name, has) = (&value.name, bound.bytes);
                    let message = format!("output `{name}` needs {bytes} bytes here, its buffer has {has}");
                    return Err(RunError::new(RunErrorKind::WrongShape, message));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Whether values that steps on the host left are as long as kernels of this segment will read.
    pub(crate) fn check_held(&self, unit: &Unit, resolved: &Resolved) -> Result<(), RunError> {
        for ((own, operand), value) in self.own.iter().zip(&resolved.operands).zip(&unit.program.values) {
            if let (Own::Host(Value::Tensor(tensor)), Some(operand)) = (own, operand)
                && tensor.bytes().len() < operand.span_bytes()
            {
                let (name, ty, dims) = (&value.name, operand.dtype, &operand.dims);
                let why =
                    format!("`{name}` was made with other sizes than {ty}{dims:?}, the plan is damaged");
                return Err(RunError::needs_rebuild(why));
            }
        }
        Ok(())
    }
}

/// Makes sure that `memory` has at least `bytes`.
fn grow(
    memory: &mut Option<Box<dyn Memory>>,
    bytes: usize,
    core: &Core,
    target: usize,
    meter: &mut Meter,
    allocator: Option<&dyn Allocator>,
) -> Result<(), RunError> {
    if memory.as_ref().is_none_or(|memory| memory.len() < bytes) {
        let before = memory.as_ref().map_or(0, |memory| memory.len() as u64);
        let stopped =
            |stop: Stop| RunError::new(RunErrorKind::Limit, format!("the run cannot begin: {stop}"));
        meter.stand(before, bytes as u64).map_err(stopped)?;
        // The old memory goes first, so that the peak is the larger of the two.
        *memory = None;
        let backend = &core.backends[target];
        let given =
            allocator.map(|allocator| allocator.allocate(backend.name(), backend.memory_kind(), bytes));
        if let Some(given) = given.transpose()?.flatten() {
            if given.len() < bytes {
                let (has, name) = (given.len(), backend.name());
                let message = format!("the allocator gave {has} bytes for {name} instead of {bytes}");
                return Err(RunError::new(RunErrorKind::OutOfMemory, message));
            }
            *memory = Some(given);
            return Ok(());
        }
        let pinned = match core.backends[target].memory_kind() {
            MemoryKind::Host => core.pinned(bytes)?,
            MemoryKind::Device => None,
        };
        *memory = Some(match pinned {
            Some(pinned) => pinned,
            None => core.backends[target].allocate(bytes)?,
        });
    }
    Ok(())
}

pub(crate) fn address_of(memory: &Option<Box<dyn Memory>>) -> Address {
    memory.as_ref().map_or(Address::NULL, |memory| memory.address())
}

pub(crate) fn address_in(bytes: &[u8]) -> Address {
    Address(bytes.as_ptr().expose_provenance() as u64)
}

pub(crate) fn pointer(address: Address) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address.0 as usize)
}
