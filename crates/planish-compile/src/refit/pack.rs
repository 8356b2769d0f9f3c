//! New elements in the forms that a plan's kernels read.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use planish_kernel::{Backend, Layout, WeightUse};
use planish_plan::{Plan, Program, Step, StepKind, Storage, Weight};
use planish_runtime::{problem_of, tactic_at};
use planish_tensor::{Bytes, DefaultFloatMode, Tensor};

use super::refused;
use crate::error::BuildError;
use crate::schedule::weights::reordered;

/// Weights with these elements, in the forms that the plan's have; large ones are packed on all cores.
pub(super) fn repacked_all(
    plan: &Plan,
    tensors: &HashMap<u32, Tensor>,
    backends: &[Arc<dyn Backend>],
) -> Result<Vec<(u32, Weight)>, BuildError> {
    let list: Vec<(u32, &Tensor)> = tensors.iter().map(|(number, tensor)| (*number, tensor)).collect();
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let next = AtomicUsize::new(0);
    let work = || {
        let _mode = DefaultFloatMode::enter();
        let mut done = Vec::new();
        while let Some(&(number, tensor)) = list.get(next.fetch_add(1, Ordering::Relaxed)) {
            let weight = &plan.weights[number as usize];
            done.push(repacked(plan, number, weight, tensor, backends).map(|changed| (number, changed)));
        }
        done
    };
    let parts = std::thread::scope(|scope| {
        let others: Vec<_> = (1..n_threads).map(|_| scope.spawn(work)).collect();
        let mut parts = work();
        for other in others {
            // A panic goes on where it is caught.
            parts.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        parts
    });
    parts.into_iter().collect()
}

/// Threads that pack; more only wait for memory.
const MAX_THREADS: usize = 8;

/// A weight with these elements, in the form that the plan's has.
fn repacked(
    plan: &Plan,
    number: u32,
    weight: &Weight,
    tensor: &Tensor,
    backends: &[Arc<dyn Backend>],
) -> Result<Weight, BuildError> {
    let mut changed = Weight { narrowed: None, ..weight.clone() };
    let (Some(format), Some(target)) = (&weight.format, weight.packed_by) else {
        changed.bytes = match weight.layout {
            Layout::Plain => Bytes::aligned(tensor.bytes()),
            other => reordered(tensor, other)?,
        };
        return Ok(changed);
    };
    let name = &weight.name;
    let reader = reader_of(&plan.program, number, format, target);
    let (program, step, input) =
        reader.ok_or_else(|| refused(format!("no step reads the weight `{name}`")))?;
    let sizes = &plan.header.tuned_at;
    let problem = problem_of(program, step, sizes, plan.header.threads.max(1) as usize)
        .map_err(|error| refused(format!("the weight `{name}`: {error}")))?;
    let tactic =
        tactic_at(step, sizes).ok_or_else(|| refused(format!("step `{}` has no tactic", step.name)))?;
    let backend = &backends[target as usize];
    let packed = backend
        .pack(WeightUse { problem: &problem, tactic, input }, tensor)
        .map_err(|error| refused(format!("the weight `{name}` cannot be packed: {error}")))?;
    if packed.format != *format || backend.packed_bytes(packed.form_of(tensor)) != Some(packed.bytes.len()) {
        return Err(refused(format!("the weight `{name}` is packed in another format now")));
    }
    // Only a packing that rounds may not lead back.
    let leads_back =
        || backend.unpack(packed.form_of(tensor), &packed.bytes).is_ok_and(|back| back == *tensor);
    if backend.rounds_factors_to(tactic).is_none() || leads_back() {
        changed.bytes = packed.bytes.into_aligned();
    } else {
        // The packing rounds, and these elements are not left as they are: they are packed when the plan is opened.
        (changed.format, changed.packed_by) = (None, None);
        changed.bytes = Bytes::aligned(tensor.bytes());
    }
    Ok(changed)
}

/// A step on this target that reads a weight in this format, with its program and which of its inputs that is.
fn reader_of<'a>(
    program: &'a Program,
    weight: u32,
    format: &str,
    target: u32,
) -> Option<(&'a Program, &'a Step, usize)> {
    for step in &program.steps {
        match &step.kind {
            StepKind::Control(control) => {
                let found = control.bodies.iter().find_map(|body| reader_of(body, weight, format, target));
                if found.is_some() {
                    return found;
                }
            }
            StepKind::Kernel { packed, .. } if step.target == target => {
                let reads = |(idx, value): (usize, &Option<u32>)| {
                    let value = &program.values[(*value)? as usize];
                    let is_it = value.storage == Storage::Weight(weight)
                        && packed.get(idx).and_then(Option::as_deref) == Some(format);
                    is_it.then_some(idx)
                };
                if let Some(input) = step.inputs.iter().enumerate().find_map(reads) {
                    return Some((program, step, input));
                }
            }
            StepKind::Kernel { .. } | StepKind::Transfer | StepKind::Evaluate => {}
        }
    }
    None
}
