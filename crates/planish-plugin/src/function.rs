//! Operators that are one safe function of Rust: dense operands as slices, one thread.

#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use planish_tensor::Element;

use crate::plugin::{Operator, Plugin, PluginError, Prepared, Run, Task};

/// What a function computes with.
#[derive(Debug)]
pub struct Slices<'a> {
    task: &'a Task,
    inputs: &'a [*const u8],
    outputs: &'a [*mut u8],
}

impl Slices<'_> {
    /// The elements of an input in plain order; empty where it is left out. Refused where they are of another type.
    pub fn input<T: Element>(&self, idx: usize) -> Result<&[T], String> {
        match self.task.inputs.get(idx) {
            Some(Some(operand)) if operand.dtype == T::DTYPE => {
                // SAFETY: the runtime grants what the operand spans, which is dense, of this type and aligned to 64 bytes.
                Ok(unsafe { std::slice::from_raw_parts(self.inputs[idx].cast(), operand.len()) })
            }
            Some(None) => Ok(&[]),
            Some(Some(operand)) => Err(format!("input {idx} is of type {}", operand.dtype)),
            None => Err(format!("there is no input {idx}")),
        }
    }

    /// The elements of an output in plain order, with anything in them.
    pub fn output<T: Element>(&mut self, idx: usize) -> Result<&mut [T], String> {
        match self.task.outputs.get(idx) {
            Some(operand) if operand.dtype == T::DTYPE => {
                // SAFETY: as above; outputs lie apart, and this one is borrowed with all others.
                Ok(unsafe { std::slice::from_raw_parts_mut(self.outputs[idx].cast(), operand.len()) })
            }
            Some(operand) => Err(format!("output {idx} is of type {}", operand.dtype)),
            None => Err(format!("there is no output {idx}")),
        }
    }

    /// An input and an output at once.
    pub fn pair<T: Element, U: Element>(
        &mut self,
        input: usize,
        output: usize,
    ) -> Result<(&[T], &mut [U]), String> {
        let from = self.input::<T>(input)?;
        // SAFETY: the same memory as borrowed above; an input and an output lie apart, since a function declares no
        // `in-place:`.
        let from = unsafe { std::slice::from_raw_parts(from.as_ptr(), from.len()) };
        Ok((from, self.output::<U>(output)?))
    }
}

type Compute = dyn Fn(&Task, &mut Slices<'_>) -> Result<(), String> + Send + Sync;

struct Function(Arc<Compute>);

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Function")
    }
}

#[derive(Debug)]
struct Ready {
    function: Function,
    task: Task,
}

impl Operator for Function {
    fn prepare(&self, task: &Task) -> Result<Box<dyn Prepared>, String> {
        Ok(Box::new(Ready { function: Function(self.0.clone()), task: task.clone() }))
    }
}

impl Prepared for Ready {
    unsafe fn run(&self, run: &Run<'_>) -> Result<(), String> {
        let mut slices = Slices { task: &self.task, inputs: run.inputs, outputs: run.outputs };
        (self.function.0)(&self.task, &mut slices)?;
        if let (Some(finish), Some(first)) = (run.finish, self.task.outputs.first()) {
            finish(0, first.len(), 0);
        }
        Ok(())
    }
}

impl Plugin {
    /// An operator that a function of this program computes, on the CPU.
    pub fn function(
        declaration: &str,
        compute: impl Fn(&Task, &mut Slices<'_>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<Plugin, PluginError> {
        let plugin = Plugin::new(declaration, Function(Arc::new(compute)))?;
        let declared = plugin.declaration();
        match declared.strided || declared.channels_last || !declared.in_place.is_empty() {
            true => Err(PluginError(format!(
                "plugin {}: a function takes dense operands that lie apart",
                plugin.identity()
            ))),
            false => Ok(plugin),
        }
    }
}
