//! What of a run happens on host values: inputs and results of the reference, observers, poisoned memory.

use planish_kernel::{Address, Layout, Operand};
use planish_op::Value;
use planish_plan::{Step, Storage};
use planish_tensor::{Bytes, Tensor, memory};

use crate::bind::Symbols;
use crate::engine::Unit;
use crate::error::{RunError, RunErrorKind};
use crate::feed::Feed;
use crate::memory::{FrameMemory, Own, pointer};
use crate::resolve::{Base, Location, Resolved, ResolvedStep};
use crate::run::{Queues, Run};
use crate::weights::tensor_of;

fn filled(bytes: usize, value: u8) -> Result<Vec<u8>, RunError> {
    memory::filled(bytes, value)
        .map_err(|error| RunError::new(RunErrorKind::OutOfMemory, format!("{error}; take smaller sizes")))
}

fn zeroed(bytes: usize) -> Result<Vec<u8>, RunError> {
    filled(bytes, 0)
}

/// An operand of any strides as a plain tensor, of the bytes that it spans.
fn plain(operand: &Operand, bytes: Vec<u8>) -> Result<Tensor, RunError> {
    let damaged = |detail: String| RunError::new(RunErrorKind::Failed, detail);
    let name = operand.dtype.name();
    let plain = operand.gather(bytes).ok_or_else(|| damaged(format!("{name} cannot be gathered")))?;
    Tensor::from_bytes(operand.dtype, &operand.dims, Bytes::from_vec(plain))
        .map_err(|error| damaged(error.to_string()))
}

/// Plain copies of a kernel step's operands, weights left out.
pub(crate) fn copies(
    unit: &Unit,
    resolved: &Resolved,
    values: &[Option<u32>],
    addresses: &[Address],
    target: u32,
    queues: &mut Queues,
) -> Result<Vec<Option<Tensor>>, RunError> {
    let mut copies = Vec::with_capacity(values.len());
    for (value, &address) in values.iter().zip(addresses) {
        let operand = value.and_then(|value| {
            let root = unit.outline.root[value as usize];
            let is_weight = matches!(unit.program.values[root as usize].storage, Storage::Weight(_));
            resolved.operands[value as usize].as_ref().filter(|_| !is_weight)
        });
        let Some(operand) = operand else {
            copies.push(None);
            continue;
        };
        let mut bytes = zeroed(operand.span_bytes())?;
        let queue = queues.get(target);
        queue.synchronize()?;
        // SAFETY: the operand spans these bytes of the backend's memory.
        unsafe { queue.download(&mut bytes, address)? };
        copies.push(Some(plain(operand, bytes)?));
    }
    Ok(copies)
}

/// Writes what is to stand in for a kernel step's inputs where the step reads them. Only memory that the frame itself lays
/// out is written: a weight, an input of the caller's and a value on the host stay what they are.
pub(crate) fn put_stand_ins(
    stand_ins: &mut dyn FnMut(u32) -> Option<Tensor>,
    resolved: &Resolved,
    (record, step): (&Step, &ResolvedStep),
    addresses: &[Address],
    queues: &mut Queues,
) -> Result<(), RunError> {
    for ((value, location), &address) in record.inputs.iter().zip(&step.inputs).zip(addresses) {
        let Some(value) = *value else { continue };
        let is_laid_out = matches!(location.base, Base::Arena(_) | Base::Output(_));
        let operand = resolved.operands[value as usize].as_ref().filter(|_| is_laid_out);
        let Some((operand, tensor)) = operand.and_then(|operand| Some((operand, stand_ins(value)?))) else {
            continue;
        };
        if tensor.dtype() != operand.dtype || tensor.shape() != operand.dims {
            let message = format!("step `{}`: a value of another type or shape cannot stand in", record.name);
            return Err(RunError::new(RunErrorKind::BadValues, message));
        }
        let mut bytes = zeroed(operand.span_bytes())?;
        let queue = queues.get(record.target);
        queue.synchronize()?;
        // SAFETY: the operand spans these bytes of the backend's memory.
        unsafe { queue.download(&mut bytes, address)? };
        if !operand.scatter_into(tensor.bytes(), &mut bytes) {
            continue;
        }
        // SAFETY: as above, and the memory is the frame's own, which nothing else uses while it runs.
        unsafe { queue.upload(address, &bytes)? };
        queue.synchronize()?;
    }
    Ok(())
}

/// An operand in host memory as a tensor for the reference.
fn copy_out(operand: &Operand, from: Address) -> Result<Tensor, RunError> {
    if !operand.is_dense(Layout::Plain) {
        let message = "a value for the reference is not plain; the plan is damaged, rebuild it";
        return Err(RunError::new(RunErrorKind::BadFile, message));
    }
    let mut bytes = zeroed(operand.span_bytes())?;
    // SAFETY: the operand spans these bytes in host memory.
    unsafe { std::ptr::copy_nonoverlapping(pointer(from).cast_const(), bytes.as_mut_ptr(), bytes.len()) };
    Tensor::from_bytes(operand.dtype, &operand.dims, Bytes::from_vec(bytes))
        .map_err(|error| RunError::new(RunErrorKind::Failed, error.to_string()))
}

impl FrameMemory {
    /// Inputs of a step as values on the host.
    pub(crate) fn host_inputs(
        &self,
        run: &Run<'_, '_>,
        resolved: &Resolved,
        record: &Step,
        locations: &[Location],
    ) -> Result<Vec<Option<Value>>, RunError> {
        let Run { core, unit, feeds, .. } = *run;
        let mut inputs = Vec::with_capacity(record.inputs.len());
        for (&value, &location) in record.inputs.iter().zip(locations) {
            let Some(value) = value else {
                inputs.push(None);
                continue;
            };
            let root = unit.outline.root[value as usize];
            let held = match (&self.own[root as usize], &unit.program.values[root as usize].storage) {
                (Own::Host(held), _) if root == value => Some(held.clone()),
                (_, Storage::Weight(weight)) if root == value => {
                    Some(Value::Tensor(tensor_of(&core.plan.weights[*weight as usize])?))
                }
                (_, Storage::Input) if root == value => {
                    match unit.outline.input[root as usize].and_then(|idx| feeds.get(idx as usize)) {
                        Some(Feed::Value(value)) => Some((*value).clone()),
                        Some(Feed::View(view) | Feed::Pinned(view)) => Some(Value::Tensor(view.to_tensor())),
                        Some(Feed::Absent | Feed::Device(_)) | None => None,
                    }
                }
                _ => None,
            };
            inputs.push(Some(match held {
                Some(held) => held,
                None => {
                    let operand = resolved.operands[value as usize].as_ref().ok_or_else(|| {
                        let message = format!("step `{}`: an input's size is not known", record.name);
                        RunError::new(RunErrorKind::Failed, message)
                    })?;
                    let from = self.held(location, resolved, feeds);
                    if !from.has(operand.span_bytes(), false) {
                        let name = &unit.program.values[value as usize].name;
                        let why = format!("step `{}`: `{name}` has no memory", record.name);
                        return Err(RunError::needs_rebuild(format!("{why}, the plan is damaged")));
                    }
                    Value::Tensor(copy_out(operand, from.address())?)
                }
            }));
        }
        Ok(inputs)
    }

    /// Puts the results of a step on the host where later steps find them, and takes over new sizes.
    pub(crate) fn keep_results(
        &mut self,
        run: &mut Run<'_, '_>,
        resolved: &Resolved,
        (record, step): (&Step, &ResolvedStep),
        results: Vec<Value>,
        symbols: &mut Symbols,
    ) -> Result<(), RunError> {
        let (unit, meter) = (run.unit, &mut run.queues.meter);
        let wrong = |detail: &str| {
            RunError::new(RunErrorKind::BadValues, format!("step `{}`: {detail}", record.name))
        };
        if results.len() < record.outputs.len() {
            return Err(wrong("fewer outputs were made than the model names"));
        }
        for ((&value, location), result) in record.outputs.iter().zip(&step.outputs).zip(results) {
            let Some(value) = value else { continue };
            let ty = &unit.program.values[value as usize].ty;
            let mut result = result;
            // At every run: a branch may make another kind of value than the other.
            let wanted = ty.as_tensor().map(|ty| ty.dtype);
            if wanted.is_some() && wanted != result.as_tensor().map(Tensor::dtype) {
                return Err(wrong("an output has another type or shape than was inferred"));
            }
            if let (Some(tensor), Some(shape)) =
                (result.as_tensor(), ty.as_tensor().and_then(|ty| ty.shape.as_ref()))
            {
                let what = format!("step `{}`: its output", record.name);
                match (symbols.bind(&what, shape, tensor.shape()), symbols.eval_shape(shape)) {
                    (Ok(()), _) => {}
                    // One element is one element: models declare [] where they make [1], and the other way.
                    (Err(_), Some(dims)) if tensor.len() == 1 && dims.iter().all(|&dim| dim == 1) => {
                        let seen = tensor.reshaped(&dims).map_err(|error| wrong(&error.to_string()))?;
                        result = Value::Tensor(seen);
                    }
                    (Err(error), _) => return Err(error),
                }
            }
            if let Base::Own(_) = location.base {
                let operand = resolved.operands[value as usize].as_ref();
                let is_short = |operand: &Operand| {
                    result.as_tensor().is_some_and(|tensor| tensor.bytes().len() < operand.span_bytes())
                };
                if operand.is_some_and(is_short) {
                    return Err(wrong("an output has another type or shape than was inferred"));
                }
                let before = match &self.own[value as usize] {
                    Own::Host(held) => held.bytes(),
                    Own::Memory(memory) => memory.len() as u64,
                    Own::Nothing => 0,
                };
                let stopped = |stop| RunError::stopped(&record.name, stop);
                meter.stand(before, result.bytes()).map_err(stopped)?;
                self.own[value as usize] = Own::Host(result);
                continue;
            }
            let tensor = result.as_tensor().ok_or_else(|| wrong("a tensor was expected"))?;
            let to = self.held(*location, resolved, &[]);
            let fits = resolved.operands[value as usize].as_ref().is_some_and(|operand| {
                operand.dims == tensor.shape()
                    && operand.dtype == tensor.dtype()
                    && operand.is_dense(Layout::Plain)
                    && to.has(operand.span_bytes(), true)
            });
            if !fits {
                return Err(wrong("an output has another type or shape than was inferred"));
            }
            let to = to.address();
            // SAFETY: the operand has the tensor's type and shape, and lies plain in this frame's memory.
            unsafe {
                std::ptr::copy_nonoverlapping(tensor.bytes().as_ptr(), pointer(to), tensor.bytes().len())
            };
        }
        Ok(())
    }

    /// Fills the arenas with NaN; before the first segment also what lives longer than one.
    pub(crate) fn poison(
        &mut self,
        unit: &Unit,
        is_first: bool,
        queues: &mut Queues,
    ) -> Result<(), RunError> {
        let target_of = |value: u32| unit.program.values[value as usize].target;
        let arenas = self.arenas.iter().enumerate().map(|(target, arena)| (target as u32, arena.as_ref()));
        let outputs = unit.program.outputs.iter().zip(&self.outputs);
        let outputs = outputs.map(|(&value, memory)| (target_of(value), memory.as_ref()));
        let own = self.own.iter().enumerate().map(|(value, own)| match own {
            Own::Memory(memory) => (target_of(value as u32), Some(memory)),
            Own::Nothing | Own::Host(_) => (0, None),
        });
        let lasting = outputs.chain(own).filter(|_| is_first);
        for (target, memory) in arenas.chain(lasting) {
            let Some(memory) = memory else { continue };
            // 0xFF bytes are NaN in every float type.
            let bytes = filled(memory.len(), 0xFF)?;
            let queue = queues.get(target);
            // SAFETY: the memory is this long, and nothing runs.
            unsafe { queue.upload(memory.address(), &bytes)? };
            // A stream of the caller, or a branch, may be the first to write there.
            queue.synchronize()?;
        }
        Ok(())
    }
}
