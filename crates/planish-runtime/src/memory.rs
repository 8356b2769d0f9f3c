//! The memory of a program: arenas, outputs and values of their own, as large as the sizes met so far ask for.

use std::sync::Arc;

use planish_kernel::{Address, Memory, MemoryKind};
use planish_op::{Meter, Stop, Value};

use crate::bind::Symbols;
use crate::engine::{Core, Unit};
use crate::error::{RunError, RunErrorKind};
use crate::frame::{Frame, Mode};
use crate::resolve::{Resolved, resolve};

/// Segments at distinct sizes that a frame keeps prepared. A thousand distinct shapes in a row then cost a
/// resolve each, and memory stays bounded.
const MAX_RESOLVED: usize = 32;

/// What a value of its own holds at the moment.
#[derive(Debug, Default)]
pub(crate) enum Own {
    #[default]
    Nothing,
    Host(Value),
    Memory(Box<dyn Memory>),
}

impl Frame {
    pub(crate) fn arena_bytes(&self) -> usize {
        let bytes = |list: &[Option<Box<dyn Memory>>]| -> usize {
            list.iter().flatten().map(|memory| memory.len()).sum()
        };
        bytes(&self.arenas) + bytes(&self.outputs)
    }

    /// Bytes of the arena in the memory of a target.
    pub(crate) fn arena_bytes_of(&self, target: usize) -> usize {
        let bodies: usize = self.bodies.iter().flatten().map(|body| body.arena_bytes_of(target)).sum();
        self.arenas.get(target).and_then(Option::as_ref).map_or(0, |memory| memory.len()) + bodies
    }

    /// Makes room for what is known per value, step, input and output.
    pub(crate) fn prepare(&mut self, core: &Core, unit: &Unit) {
        let n_values = unit.program.values.len();
        if self.own.len() < n_values {
            self.own.resize_with(n_values, Own::default);
            self.arenas.resize_with(core.backends.len(), || None);
            self.outputs.resize_with(unit.program.outputs.len(), || None);
            self.bound.resize(unit.program.outputs.len(), None);
            self.is_gone.resize(unit.program.outputs.len(), false);
            self.bodies.resize_with(unit.program.steps.len(), Vec::new);
            self.staging.resize_with(unit.program.inputs.len(), Vec::new);
            self.staged.resize_with(unit.program.inputs.len(), || None);
        }
    }

    pub(crate) fn resolved(
        &mut self,
        core: &Core,
        unit: &Unit,
        idx: usize,
        symbols: &Symbols,
        mode: Mode,
        meter: &mut Meter,
    ) -> Result<Arc<Resolved>, RunError> {
        let found = self.cache.iter().position(|(at, known)| *at == idx && known.symbols == *symbols);
        let resolved = match found {
            Some(at) => self.cache.remove(at).1,
            None => {
                self.n_resolved += 1;
                let resolved = resolve(core, unit, idx, symbols, mode.threads, mode.streams)?;
                resolved.steps.iter().filter_map(|step| step.fault).for_each(|step| self.faults.note(step));
                Arc::new(resolved)
            }
        };
        self.cache.insert(0, (idx, resolved.clone()));
        self.cache.truncate(MAX_RESOLVED);
        for (target, &bytes) in resolved.arena_bytes.iter().enumerate() {
            grow(&mut self.arenas[target], bytes, core, target, meter)?;
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
            grow(&mut memory, bytes, core, target, meter)?;
            self.own[value as usize] = memory.map_or(Own::Nothing, Own::Memory);
        }
        Ok(resolved)
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
                    grow(&mut self.outputs[output as usize], bytes, core, target, meter)?;
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
) -> Result<(), RunError> {
    if memory.as_ref().is_none_or(|memory| memory.len() < bytes) {
        let before = memory.as_ref().map_or(0, |memory| memory.len() as u64);
        let stopped =
            |stop: Stop| RunError::new(RunErrorKind::Limit, format!("the run cannot begin: {stop}"));
        meter.stand(before, bytes as u64).map_err(stopped)?;
        // The old memory goes first, so that the peak is the larger of the two.
        *memory = None;
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
