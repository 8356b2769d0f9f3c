//! Where every step of a plan reads and writes at given sizes, without running: for whoever proves a plan.

use planish_kernel::Operand;
use planish_plan::Storage;

use crate::bind::Symbols;
use crate::branches::DEFAULT_STREAMS;
use crate::engine::Engine;
use crate::error::RunError;
use crate::resolve::{Action, Base, Location, Resolved, resolve};

/// A span of memory that operands lie in. Those of different spaces never touch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Space {
    /// Weights, which nobody writes.
    Weights,
    /// The arena of a target.
    Arena(u32),
    /// An input of the program.
    Input(u32),
    /// An output of the program.
    Output(u32),
    /// Memory of a value's own.
    Own(u32),
}

/// Where an operand is, and how its elements lie there.
#[derive(Clone, PartialEq, Debug)]
pub struct Place {
    pub space: Space,
    /// Bytes from the beginning of the space.
    pub offset: u64,
    pub operand: Operand,
}

/// One step's memory.
#[derive(Clone, Debug)]
pub struct PlacedStep {
    /// Index of the step in the plan's program.
    pub step: usize,
    /// In the order of the step's inputs; `None` where one is absent or its size is not known before a run.
    pub inputs: Vec<Option<Place>>,
    pub outputs: Vec<Option<Place>>,
    /// Target, offset and bytes of its workspace in the target's arena.
    pub workspace: Option<(u32, u64, u64)>,
}

/// Where a plan's program reads and writes at given sizes.
#[derive(Clone, Debug)]
pub struct Placement {
    /// The steps whose sizes are known before a run, in order.
    pub steps: Vec<PlacedStep>,
    pub inputs: Vec<Option<Place>>,
    /// The outputs, where all steps were placed.
    pub outputs: Vec<Option<Place>>,
    /// How many steps there are in all.
    pub n_steps: usize,
}

impl Engine {
    /// Where every step reads and writes at these sizes of the symbols. Steps after one whose output only a run can
    /// size are left out, unless `sizes` says those too.
    pub fn placement(&self, sizes: &[(String, i64)], threads: usize) -> Result<Placement, RunError> {
        let core = &self.core;
        let (program, outline) = (&core.unit.program, &core.unit.outline);
        let symbols = Symbols::from_pairs(sizes);
        let place = |resolved: &Resolved, location: &Location, operand: Option<&Operand>| {
            // A device's end of a transfer is in its arena, unless the caller puts own memory there.
            let end = |end: Option<(u32, usize)>| end.map(|(target, at)| (Space::Arena(target), at as u64));
            let (space, base) = match location.base {
                Base::Absolute | Base::Ring => (Space::Weights, 0),
                Base::Arena(target) => (Space::Arena(target), 0),
                Base::Input(idx) => (Space::Input(idx), 0),
                Base::Output(idx) => (Space::Output(idx), 0),
                Base::Own(root) => (Space::Own(root), 0),
                Base::Entry(idx) => end(resolved.entries[idx as usize])?,
                Base::Exit(idx) => end(resolved.exits[idx as usize])?,
            };
            Some(Place { space, offset: base + location.offset, operand: operand?.clone() })
        };
        let mut steps = Vec::new();
        let mut last: Option<Resolved> = None;
        for (idx, segment) in outline.segments.iter().enumerate() {
            let resolved = match resolve(core, &core.unit, idx, &symbols, threads, DEFAULT_STREAMS) {
                Ok(resolved) => resolved,
                Err(error) if idx == 0 => return Err(error),
                Err(_) => break,
            };
            for (at, resolved_step) in resolved.steps.iter().enumerate() {
                let step = segment.first + at;
                let list = |values: &[Option<u32>], locations: &[Location]| {
                    let one = |(value, location): (&Option<u32>, &Location)| {
                        value.and_then(|value| {
                            place(&resolved, location, resolved.operands[value as usize].as_ref())
                        })
                    };
                    values.iter().zip(locations).map(one).collect()
                };
                let record = &program.steps[step];
                let workspace = match &resolved_step.action {
                    Action::Kernel { kernel, workspace } => {
                        let bytes = kernel.workspace_bytes() as u64;
                        (bytes > 0).then_some((record.target, workspace.offset, bytes))
                    }
                    Action::Transfer { .. } | Action::Evaluate | Action::Control => None,
                };
                steps.push(PlacedStep {
                    step,
                    inputs: list(&record.inputs, &resolved_step.inputs),
                    outputs: list(&record.outputs, &resolved_step.outputs),
                    workspace,
                });
            }
            last = Some(resolved);
        }
        let operand = |value: u32| last.as_ref().and_then(|last| last.operands[value as usize].as_ref());
        let input = |(idx, &value): (usize, &u32)| {
            let ty = program.values[value as usize].ty.as_tensor()?;
            let dims = symbols.eval_shape(ty.shape.as_ref()?)?;
            let operand = Operand::dense(ty.dtype, &dims, program.values[value as usize].layout);
            Some(Place { space: Space::Input(idx as u32), offset: 0, operand })
        };
        let output = |&value: &u32| {
            let root = outline.root[value as usize];
            let space = match (&program.values[root as usize].storage, outline.output[root as usize]) {
                (Storage::Input | Storage::Weight(_), _) => return None,
                _ if outline.own[root as usize] => Space::Own(root),
                (_, Some(idx)) => Space::Output(idx as u32),
                _ => return None,
            };
            (root == value)
                .then(|| operand(value).map(|operand| Place { space, offset: 0, operand: operand.clone() }))?
        };
        let all = steps.len() == program.steps.len();
        Ok(Placement {
            inputs: program.inputs.iter().enumerate().map(input).collect(),
            outputs: program.outputs.iter().map(|value| output(value).filter(|_| all)).collect(),
            n_steps: program.steps.len(),
            steps,
        })
    }
}
