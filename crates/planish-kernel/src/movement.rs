//! Operators that only move data, as lists of strided copies ([`Move`]) between views of their operands: what
//! every backend copies by kernels of its own.

mod cut;
mod made;
mod pad;
mod permute;

use planish_op::Op;
use planish_tensor::{Bytes, Tensor};

use crate::{KernelError, Layout, Operand, Problem, Ref, RegionNode, Want};

/// One dimension of a copy; steps are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walk {
    pub len: usize,
    pub from: isize,
    pub to: isize,
}

/// What a copy reads.
#[derive(Clone, Debug)]
pub enum Source {
    /// This input of the problem.
    Input(usize),
    /// A constant of the region, dense.
    Constant(Bytes),
}

/// One copy between operands.
#[derive(Clone, Debug)]
pub struct Move {
    pub source: Source,
    pub output: usize,
    /// Bytes of an element.
    pub width: usize,
    /// Bytes from the address of either side to the first element.
    pub from: usize,
    pub to: usize,
    pub walks: Vec<Walk>,
}

/// A part of a value: where its elements are, relative to the value's address, in elements.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) offset: isize,
    pub(super) dims: Vec<usize>,
    pub(super) strides: Vec<isize>,
}

impl View {
    fn of(operand: &Operand) -> View {
        View {
            offset: 0,
            dims: operand.dims.clone(),
            strides: operand.strides.iter().map(|stride| *stride as isize).collect(),
        }
    }

    /// `len` places of an axis from `start` on, `step` apart.
    fn cut(&self, axis: usize, start: usize, len: usize, step: isize) -> View {
        let mut cut = self.clone();
        cut.offset += start as isize * self.strides[axis];
        cut.dims[axis] = len;
        // The step of an axis that is left with one place may be beyond all bounds.
        cut.strides[axis] = self.strides[axis].wrapping_mul(step);
        cut
    }

    /// One axis taken as two, the second inside the first.
    fn split(&self, axis: usize, inner: usize) -> View {
        let mut split = self.clone();
        split.dims[axis] = self.dims[axis] / inner.max(1);
        split.strides[axis] = self.strides[axis] * inner as isize;
        split.dims.insert(axis + 1, inner);
        split.strides.insert(axis + 1, self.strides[axis]);
        split
    }

    /// Axes in another order.
    fn permuted(&self, perm: &[usize]) -> View {
        View {
            offset: self.offset,
            dims: perm.iter().map(|axis| self.dims[*axis]).collect(),
            strides: perm.iter().map(|axis| self.strides[*axis]).collect(),
        }
    }
}

/// The operator of a problem that is lowered, with what it reads.
pub(super) struct Lowering<'a> {
    problem: &'a Problem,
    node: &'a RegionNode,
}

/// The layouts of inputs and of outputs that copies are offered in.
pub fn layouts(problem: &Problem) -> Vec<(Layout, Layout)> {
    const BOTH: [Layout; 2] = [Layout::Plain, Layout::ChannelsLast];
    let is_reorder = matches!(&problem.region.nodes[..], [node] if matches!(node.op, Op::Identity(_)));
    // Where both layouts are the same, one is enough, but for reorders: they are asked for by their layouts, and other
    // sizes may tell the layouts apart.
    let offered = |layout: Layout, operands: &[Operand]| {
        is_reorder
            || layout == Layout::Plain
            || operands.iter().any(|operand| !layout.same_for(Layout::Plain, &operand.dims))
    };
    BOTH.into_iter()
        .flat_map(|from| BOTH.map(|to| (from, to)))
        .filter(|(from, to)| offered(*from, &problem.inputs) && offered(*to, &problem.outputs))
        .collect()
}

/// What copies ask of inputs and outputs in these layouts.
pub fn wants(problem: &Problem, (from, to): (Layout, Layout)) -> (Vec<Want>, Vec<Want>) {
    // Regrouping needs gapless operands; everything else follows strides.
    let is_regrouped =
        problem.region.nodes.iter().any(|node| {
            matches!(node.op, Op::Reshape(_) | Op::Flatten(_) | Op::Squeeze(_) | Op::Unsqueeze(_))
        });
    let all = |layout, n| vec![Want { inside: !is_regrouped, ..Want::dense(layout) }; n];
    (all(from, problem.inputs.len()), all(to, problem.outputs.len()))
}

/// The copies that make the problem's outputs. An error where the operator is not one that only moves data, or
/// its parameters are not constants.
pub fn lower(problem: &Problem) -> Result<Vec<Move>, KernelError> {
    let [node] = &problem.region.nodes[..] else {
        return Err(KernelError::unsupported("only single operators are lowered to copies"));
    };
    let whole = problem.region.outputs.iter().enumerate().all(|(idx, output)| {
        *output == Ref::Node { node: 0, output: idx as u32 } && idx < problem.outputs.len()
    });
    let is_bytewise =
        problem.inputs.iter().chain(&problem.outputs).all(|operand| !operand.dtype.is_sub_byte());
    if !whole || !is_bytewise || problem.region.outputs.len() != problem.outputs.len() {
        return Err(KernelError::unsupported("elements of whole bytes and all outputs are needed"));
    }
    let cx = &Lowering { problem, node };
    match &node.op {
        Op::Identity(_) => cx.whole(0),
        Op::Transpose(op) => permute::transpose(cx, op),
        Op::Expand(_) => permute::expand(cx),
        Op::Tile(_) => permute::tile(cx),
        Op::DepthToSpace(op) => permute::depth_to_space(cx, op),
        Op::SpaceToDepth(op) => permute::space_to_depth(cx, op),
        Op::Reshape(_) | Op::Flatten(_) | Op::Squeeze(_) | Op::Unsqueeze(_) => permute::reshape(cx),
        Op::Shape(op) => made::shape(cx, op),
        Op::Size(_) => made::size(cx),
        Op::ConstantOfShape(op) => made::constant_of_shape(cx, op),
        Op::Range(_) => made::range(cx),
        Op::Concat(op) => cut::concat(cx, op),
        Op::Split(op) => cut::split(cx, op),
        Op::Slice(_) => cut::slice(cx),
        Op::Gather(op) => cut::gather(cx, op),
        Op::Pad(op) => pad::pad(cx, op),
        _ => Err(cx.unsupported("does more than move data")),
    }
}

impl Lowering<'_> {
    fn unsupported(&self, why: &str) -> KernelError {
        KernelError::unsupported(format!("{} {why}", self.node.op.name()))
    }

    fn unfit(&self) -> KernelError {
        self.unsupported("has operands that do not fit each other")
    }

    /// The value that the operator reads as data: an input or a constant.
    fn data(&self, idx: usize) -> Result<(Source, Operand), KernelError> {
        match self.node.inputs.get(idx).copied().flatten() {
            Some(Ref::Input(input)) => {
                let operand = self.problem.inputs.get(input as usize).ok_or_else(|| self.unfit())?;
                Ok((Source::Input(input as usize), operand.clone()))
            }
            Some(reference @ Ref::Constant(_)) => {
                let tensor = self.problem.region.constant(Some(reference)).ok_or_else(|| self.unfit())?;
                let layout = crate::Layout::Plain;
                let operand = Operand::dense(tensor.dtype(), tensor.shape(), layout);
                Ok((Source::Constant(tensor.bytes().clone()), operand))
            }
            _ => Err(self.unsupported("lacks an input")),
        }
    }

    /// A parameter that must be constant; `None` where it is left out.
    fn parameter(&self, idx: usize) -> Result<Option<&Tensor>, KernelError> {
        match self.node.inputs.get(idx).copied().flatten() {
            None => Ok(None),
            reference => match self.problem.region.constant(reference) {
                Some(tensor) => Ok(Some(tensor)),
                None => Err(self.unsupported("has parameters that only a run can tell")),
            },
        }
    }

    fn ints(&self, idx: usize) -> Result<Option<Vec<i64>>, KernelError> {
        Ok(self.parameter(idx)?.map(Tensor::to_i64s))
    }

    fn output(&self, idx: usize) -> Result<&Operand, KernelError> {
        self.problem.outputs.get(idx).ok_or_else(|| self.unfit())
    }

    /// An axis counted from the front.
    fn axis(&self, axis: i64, rank: usize) -> Result<usize, KernelError> {
        let counted = if axis < 0 { axis + rank as i64 } else { axis };
        usize::try_from(counted).ok().filter(|axis| *axis < rank).ok_or_else(|| self.unfit())
    }

    /// Axes counted from the front, each once.
    fn axes(&self, axes: &[i64], rank: usize) -> Result<Vec<usize>, KernelError> {
        let found = axes.iter().map(|axis| self.axis(*axis, rank)).collect::<Result<Vec<_>, _>>()?;
        match (0..found.len()).all(|idx| !found[..idx].contains(&found[idx])) {
            true => Ok(found),
            false => Err(self.unfit()),
        }
    }

    /// The copy from a part of a value to a part of an output of the same sizes.
    fn copy(&self, source: &Source, from: &View, output: usize, to: &View) -> Result<Move, KernelError> {
        let width = self.output(output)?.dtype.bits() / 8;
        if from.dims != to.dims {
            return Err(self.unfit());
        }
        let bytes = |elements: isize| elements.wrapping_mul(width as isize);
        let walk = |((len, from), to): ((&usize, &isize), &isize)| Walk {
            len: *len,
            from: bytes(*from),
            to: bytes(*to),
        };
        let walks = from.dims.iter().zip(&from.strides).zip(&to.strides).map(walk).collect();
        let start = |offset: isize| usize::try_from(bytes(offset)).map_err(|_| self.unfit());
        Ok(Move {
            source: source.clone(),
            output,
            width,
            from: start(from.offset)?,
            to: start(to.offset)?,
            walks,
        })
    }

    /// Output `output` as input 0 is.
    fn whole(&self, output: usize) -> Result<Vec<Move>, KernelError> {
        let (source, x) = self.data(0)?;
        self.same_type(&x, output)?;
        Ok(vec![self.copy(&source, &View::of(&x), output, &View::of(self.output(output)?))?])
    }

    fn same_type(&self, x: &Operand, output: usize) -> Result<(), KernelError> {
        if x.dtype == self.output(output)?.dtype { Ok(()) } else { Err(self.unfit()) }
    }
}
