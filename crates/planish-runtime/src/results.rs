//! What a run left: its outputs, and the sizes that they have or will have.

use planish_op::Value;
use planish_tensor::Tensor;

use crate::bind::{bind_inputs, choose_profile};
use crate::engine::{Core, Engine, Unit};
use crate::error::{RunError, RunErrorKind};
use crate::feed::{Bound, Site};
use crate::frame::Frame;
use crate::memory::{FrameMemory, Own, pointer};
use crate::view::View;

/// Sizes of the outputs for inputs of these sizes, without running; `None` where only a run can tell.
pub(crate) fn output_dims(
    core: &Core,
    dims: &[Option<&[usize]>],
) -> Result<Vec<Option<Vec<usize>>>, RunError> {
    let program = &core.unit.program;
    let symbols = bind_inputs(program, dims)?;
    choose_profile(&core.plan.header.profiles, &symbols)?;
    let sizes = |&value: &u32| {
        let ty = program.values[value as usize].ty.as_tensor()?;
        symbols.eval_shape(ty.shape.as_ref()?)
    };
    Ok(program.outputs.iter().map(sizes).collect())
}

impl Engine {
    /// The sizes of the model's symbols for inputs of these sizes, as [`Engine::memory_at`] takes them.
    pub fn sizes_of(&self, inputs: &[(&str, &[usize])]) -> Result<Vec<(String, i64)>, RunError> {
        let mut dims = vec![None; self.core.input_names.len()];
        for (name, given) in inputs {
            dims[self.core.input_idx(name)?] = Some(*given);
        }
        Ok(bind_inputs(&self.core.unit.program, &dims)?.pairs())
    }
}

impl Frame {
    /// Output number `idx` of the last run: a view of a tensor, or another value. Nothing where it lies in memory of
    /// the caller that was given back, or on a device.
    pub(crate) fn output<'a>(&'a self, unit: &Unit, idx: usize) -> (Option<View<'a>>, Option<&'a Value>) {
        let Some(&value) = unit.program.outputs.get(idx) else { return (None, None) };
        if !self.prepared.has_run() {
            return (None, None);
        }
        let first = unit.outline.output[value as usize].unwrap_or(idx);
        let FrameMemory { own, bound, outputs, is_gone, .. } = &self.memory;
        if is_gone[first] {
            return (None, None);
        }
        if let Own::Host(held) = &own[value as usize] {
            return match held.as_tensor() {
                Some(tensor) => (Some(View::from(tensor)), None),
                None => (None, Some(held)),
            };
        }
        let Some(operand) = self.prepared.last_operand(value) else { return (None, None) };
        let (address, len) = match (&own[value as usize], bound[first], &outputs[first]) {
            (Own::Memory(memory), ..) => (memory.address(), memory.len()),
            // It lies in the caller's device memory, where no view of ours can reach.
            (_, Some(Bound { site: Site::Device, .. }), _) => return (None, None),
            (_, Some(bound), _) => (bound.to, bound.bytes),
            (_, None, Some(memory)) => (memory.address(), memory.len()),
            (_, None, None) => return (None, None),
        };
        let n_bytes = operand.span_bytes();
        if n_bytes > len {
            return (None, None);
        }
        let bytes = if n_bytes == 0 {
            &[][..]
        } else {
            // SAFETY: the last run wrote the output there, the memory has as many bytes, and the frame is borrowed
            // while the view lives.
            unsafe { std::slice::from_raw_parts(pointer(address).cast_const(), n_bytes) }
        };
        (View::from_bytes(operand.dtype, &operand.dims, bytes).ok(), None)
    }

    /// Sizes of output number `idx` of the last run, wherever it lies.
    pub(crate) fn last_output_dims(&self, unit: &Unit, idx: usize) -> Option<&[usize]> {
        let value = *unit.program.outputs.get(idx)?;
        if let Own::Host(held) = &self.memory.own[value as usize] {
            return held.as_tensor().map(Tensor::shape);
        }
        self.prepared.last_operand(value).map(|operand| &operand.dims[..])
    }

    /// Every output of the last run as a value of its own.
    pub(crate) fn output_values(&self, unit: &Unit) -> Result<Vec<Value>, RunError> {
        (0..unit.program.outputs.len())
            .map(|idx| match self.output(unit, idx) {
                (Some(view), _) => Ok(Value::Tensor(view.to_tensor())),
                (None, Some(value)) => Ok(value.clone()),
                (None, None) => Err(RunError::new(RunErrorKind::Failed, "an output was not made")),
            })
            .collect()
    }
}
