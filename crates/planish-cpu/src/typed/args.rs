//! What a node of one operator reads: inputs of the problem and constants of its region, with how they lie.

use planish_kernel::{Layout, Operand, Problem, Ref};
use planish_tensor::{DType, Tensor};

use crate::shared::Shared;

/// One operand of the node.
#[derive(Clone, Debug)]
pub(crate) struct Arg {
    pub(crate) operand: Operand,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Input(usize),
    Constant(Tensor),
}

/// The type and sizes of an output as inference gives them.
pub(crate) struct Made {
    pub(crate) dtype: DType,
    pub(crate) dims: Vec<usize>,
}

/// The operands of a region's only node, `None` where an optional one is absent.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) all: Vec<Option<Arg>>,
}

impl Args {
    /// `None` where the region has several nodes, gives something else than their outputs in order, or an operand is packed.
    pub(crate) fn of(problem: &Problem) -> Option<Args> {
        let [node] = &problem.region.nodes[..] else { return None };
        let in_order =
            problem.region.outputs.iter().enumerate().all(
                |(idx, output)| matches!(output, Ref::Node { node: 0, output } if *output as usize >= idx),
            );
        let operands = problem.inputs.iter().chain(&problem.outputs);
        if !in_order || operands.clone().any(|operand| operand.packed.is_some()) {
            return None;
        }
        let arg = |reference: &Option<Ref>| match reference {
            None => Some(None),
            Some(Ref::Input(idx)) => {
                let operand = problem.inputs.get(*idx as usize)?.clone();
                Some(Some(Arg { operand, source: Source::Input(*idx as usize) }))
            }
            Some(reference @ Ref::Constant(_)) => {
                let tensor = problem.region.constant(Some(*reference))?.clone();
                let operand = Operand::dense(tensor.dtype(), tensor.shape(), Layout::Plain);
                Some(Some(Arg { operand, source: Source::Constant(tensor) }))
            }
            Some(Ref::Node { .. }) => None,
        };
        Some(Args { all: node.inputs.iter().map(arg).collect::<Option<_>>()? })
    }

    pub(crate) fn get(&self, place: usize) -> Option<&Arg> {
        self.all.get(place).and_then(Option::as_ref)
    }

    /// The operand at a place, if it is there.
    pub(crate) fn operand(&self, place: usize) -> Option<&Operand> {
        self.get(place).map(|arg| &arg.operand)
    }

    /// The constant at a place.
    pub(crate) fn constant(&self, place: usize) -> Option<&Tensor> {
        match &self.get(place)?.source {
            Source::Constant(tensor) => Some(tensor),
            Source::Input(_) => None,
        }
    }

    /// Whether all operands lie plainly without gaps.
    pub(crate) fn are_dense(&self) -> bool {
        self.all.iter().flatten().all(|arg| arg.operand.is_dense(Layout::Plain))
    }

    /// An output of the node by inference.
    pub(crate) fn inferred(&self, problem: &Problem, output: usize) -> Option<Made> {
        let mut types = problem.inner_types().ok()?;
        let made = types.first_mut().filter(|outputs| output < outputs.len())?.swap_remove(output);
        Some(Made { dtype: made.dtype, dims: made.dims })
    }

    /// Where the operand number `idx` of those that are there begins.
    pub(crate) fn pointer(&self, shared: &Shared<'_>, idx: usize) -> *const u8 {
        match self.all.iter().flatten().nth(idx).map(|arg| &arg.source) {
            Some(Source::Input(input)) => shared.inputs[*input],
            Some(Source::Constant(tensor)) => tensor.bytes().as_ptr(),
            None => std::ptr::null(),
        }
    }

    /// Where the operand at a place begins; null where it is absent.
    pub(crate) fn at(&self, shared: &Shared<'_>, place: usize) -> *const u8 {
        match self.get(place).map(|arg| &arg.source) {
            Some(Source::Input(input)) => shared.inputs[*input],
            Some(Source::Constant(tensor)) => tensor.bytes().as_ptr(),
            None => std::ptr::null(),
        }
    }
}
