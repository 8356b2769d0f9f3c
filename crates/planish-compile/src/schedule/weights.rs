//! The plan's weights: each stored once, in the form that kernels read where there is a way back.

use std::collections::{HashMap, HashSet};

use planish_kernel::{Backend, Layout, Problem, Tactic, WeightUse};
use planish_op::Value;
use planish_plan::{Program, StepKind, Storage, Weight};
use planish_tensor::{Bytes, Tensor};

use crate::error::BuildError;

/// Weights on their way into a plan.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    pub(crate) list: Vec<Weight>,
    /// Where a tensor's memory lies, its type and layout, to its weight.
    known: HashMap<(usize, usize, String), u32>,
    /// Tensors by number, as the graph has them: `list` may hold another layout or their packed form.
    pub(crate) tensors: Vec<Tensor>,
}

impl Weights {
    /// The number of this tensor in this layout; stored plain until something packs it.
    pub(crate) fn add(&mut self, name: &str, tensor: &Tensor, layout: Layout) -> Result<u32, BuildError> {
        let identity = format!("{} {:?} {}", tensor.dtype().name(), tensor.shape(), layout.name());
        let (address, len) = memory(tensor);
        let key = (address, len, identity);
        if let Some(&known) = self.known.get(&key) {
            return Ok(known);
        }
        let bytes = match layout {
            Layout::Plain => tensor.bytes().clone(),
            other => reordered(tensor, other)?,
        };
        let number = self.list.len() as u32;
        self.list.push(Weight {
            name: name.to_string(),
            dtype: tensor.dtype(),
            dims: tensor.shape().to_vec(),
            layout,
            format: None,
            packed_by: None,
            narrowed: None,
            bytes,
        });
        self.tensors.push(tensor.clone());
        self.known.insert(key, number);
        Ok(number)
    }

    /// For each of these constants the weight that holds it; those that no step reads as a weight are added.
    pub(crate) fn holders(&mut self, constants: &[Tensor]) -> Result<Vec<u32>, BuildError> {
        let mut holder: HashMap<(usize, usize), Vec<u32>> = HashMap::new();
        for (number, tensor) in self.tensors.iter().enumerate() {
            holder.entry(memory(tensor)).or_default().push(number as u32);
        }
        let mut numbers = Vec::with_capacity(constants.len());
        for (at, constant) in constants.iter().enumerate() {
            let same = |number: &&u32| {
                let tensor = &self.tensors[**number as usize];
                tensor.dtype() == constant.dtype() && tensor.shape() == constant.shape()
            };
            let found = holder.get(&memory(constant)).and_then(|list| list.iter().find(same));
            numbers.push(match found {
                Some(&number) => number,
                None => self.add(&format!("#{at}"), constant, Layout::Plain)?,
            });
        }
        Ok(numbers)
    }

    /// Stores a weight packed, if it is stored plain, nothing else reads it plain, and the packing has a way
    /// back that gives the same bits.
    pub(crate) fn pack(
        &mut self,
        backend: &dyn Backend,
        problem: &Problem,
        tactic: &Tactic,
        (target, input): (u32, usize),
        number: u32,
    ) -> Result<(), BuildError> {
        let weight = &mut self.list[number as usize];
        if weight.format.is_some() {
            return Ok(());
        }
        let tensor = &self.tensors[number as usize];
        let fail = |error: planish_kernel::KernelError| {
            let message = format!("weight `{}` could not be packed for {tactic}: {error}", weight.name);
            BuildError::of_kernel(&error, message)
        };
        let packed = backend.pack(WeightUse { problem, tactic, input }, tensor).map_err(fail)?;
        let form = packed.form_of(tensor);
        let Ok(back) = backend.unpack(form, &packed.bytes) else { return Ok(()) };
        // One that is rounded on the way is packed when the plan is opened.
        if back != *tensor && backend.rounds_factors_to(tactic).is_some() {
            return Ok(());
        }
        if back != *tensor || backend.packed_bytes(form) != Some(packed.bytes.len()) {
            return Err(BuildError::internal(format!(
                "weight `{}` does not come back from the packing `{}`",
                weight.name, packed.format
            )));
        }
        weight.format = Some(packed.format);
        // Where an engine reads it, so that it makes no copy of its own.
        weight.bytes = packed.bytes.into_aligned();
        weight.layout = Layout::Plain;
        weight.packed_by = Some(target);
        Ok(())
    }
}

/// Stores weights in 16 bits that lose nothing by it. Steps on host values read theirs from the plan in every run, so those
/// stay as they are.
pub(crate) fn narrow(list: &mut [Weight], program: &Program) {
    let mut by_host = HashSet::new();
    read_by_host(program, &mut by_host);
    for (number, weight) in list.iter_mut().enumerate() {
        if weight.bytes.len() >= LEAST_NARROWED && !by_host.contains(&(number as u32)) {
            weight.narrow();
        }
    }
}

/// Fewer bytes are not worth memory of their own when the plan is opened.
const LEAST_NARROWED: usize = 4 << 10;

/// The weights that steps without a kernel read.
fn read_by_host(program: &Program, found: &mut HashSet<u32>) {
    for step in &program.steps {
        if let StepKind::Control(control) = &step.kind {
            control.bodies.iter().for_each(|body| read_by_host(body, found));
        }
        if matches!(step.kind, StepKind::Evaluate | StepKind::Control(_)) {
            let storages = step.inputs.iter().flatten().map(|&value| &program.values[value as usize].storage);
            found.extend(storages.filter_map(|storage| match storage {
                Storage::Weight(weight) => Some(*weight),
                _ => None,
            }));
        }
    }
}

/// What tells a tensor's memory from all others.
fn memory(tensor: &Tensor) -> (usize, usize) {
    (tensor.bytes().as_ptr().addr(), tensor.bytes().len())
}

/// A tensor's elements in the order of a layout.
pub(crate) fn reordered(tensor: &Tensor, layout: Layout) -> Result<Bytes, BuildError> {
    let perm = layout.order(tensor.rank()).into_iter().map(|axis| axis as i64).collect();
    let op = planish_op::Transpose { perm: Some(perm) };
    let value = Value::Tensor(tensor.clone());
    let outputs = planish_reference::evaluate(&op.into(), &[Some(&value)], 1)
        .map_err(|error| BuildError::internal(format!("a weight could not be reordered: {error}")))?;
    let moved = outputs.first().and_then(Value::as_tensor).map(|tensor| Bytes::aligned(tensor.bytes()));
    moved.ok_or_else(|| BuildError::internal("a weight could not be reordered"))
}
