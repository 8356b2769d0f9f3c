//! How a node changes when its tensors are laid out with their axes in another order.

use planish_ir::{Node, ValueId};
use planish_op::{
    ArgMax, ArgMin, Concat, DequantizeLinear, Hardmax, LogSoftmax, Op, QuantizeLinear, Softmax, Split,
};
use planish_tensor::{Tensor, normalize_axis};

use crate::view::View;

/// An input of a moved node.
pub(super) enum Input {
    /// The value in the other layout.
    Relaid(ValueId),
    /// The value as it is.
    Same(ValueId),
    /// A constant made for it, named like this value.
    Fresh(ValueId, Tensor),
}

/// The node in the other layout.
pub(super) struct Moved {
    pub(super) op: Op,
    pub(super) inputs: Vec<Option<Input>>,
}

impl Moved {
    /// The inputs that are laid out anew.
    pub(super) fn relaid(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.inputs.iter().flatten().filter_map(|input| match input {
            Input::Relaid(id) => Some(*id),
            Input::Same(_) | Input::Fresh(..) => None,
        })
    }
}

/// `node` with its tensors of rank `perm.len()` laid out so that axis `a` becomes axis `perm[a]`; `None` if
/// the node cannot be said that way.
pub(super) fn moved(cx: &View<'_>, node: &Node, perm: &[usize]) -> Option<Moved> {
    let rank = perm.len();
    let has_rank = |id: ValueId| cx.rank(id) == Some(rank);
    if node.outputs.is_empty() || !node.outputs.iter().flatten().all(|id| has_rank(*id)) {
        return None;
    }
    let mover = Mover { cx, node, perm };
    match &node.op {
        op if op.is_unary() => {
            let first = mover.relaid(0)?;
            let rest = node.inputs[1..].iter().map(|id| id.map(Input::Same));
            mover.with(op.clone(), [Some(first)].into_iter().chain(rest).collect())
        }
        op if op.is_broadcast() => {
            let inputs: Option<Vec<_>> =
                node.inputs.iter().map(|id| mover.broadcast((*id)?).map(Some)).collect();
            mover.with(op.clone(), inputs?)
        }
        Op::Concat(op) => {
            let inputs: Option<Vec<_>> = node
                .inputs
                .iter()
                .map(|id| mover.broadcast(id.filter(|id| has_rank(*id))?).map(Some))
                .collect();
            mover.with(Concat { axis: mover.axis(op.axis)? }.into(), inputs?)
        }
        Op::Split(op) => mover.along(Split { axis: mover.axis(op.axis)?, ..op.clone() }.into()),
        Op::Softmax(op) => mover.along(Softmax { axis: mover.inner_axis(op.axis)? }.into()),
        Op::LogSoftmax(op) => mover.along(LogSoftmax { axis: mover.inner_axis(op.axis)? }.into()),
        Op::Hardmax(op) => mover.along(Hardmax { axis: mover.inner_axis(op.axis)? }.into()),
        Op::ArgMax(op) if op.keepdims => {
            mover.along(ArgMax { axis: mover.axis(op.axis)?, ..op.clone() }.into())
        }
        Op::ArgMin(op) if op.keepdims => {
            mover.along(ArgMin { axis: mover.axis(op.axis)?, ..op.clone() }.into())
        }
        op if op.as_reduce().is_some_and(|reduce| reduce.keepdims) => {
            let mut inputs = vec![Some(mover.relaid(0)?)];
            if let Some(axes) = cx.input(node, 1) {
                inputs.push(Some(Input::Fresh(axes, mover.axes(axes)?)));
            }
            mover.with(op.clone(), inputs)
        }
        Op::Pad(_) => {
            let pads = cx.input(node, 1)?;
            let mut inputs = vec![Some(mover.relaid(0)?)];
            match cx.input(node, 3) {
                Some(axes) => {
                    inputs.extend([Some(Input::Same(pads)), cx.input(node, 2).map(Input::Same)]);
                    inputs.push(Some(Input::Fresh(axes, mover.axes(axes)?)));
                }
                None => {
                    let given = cx.constant(pads)?.to_i64s();
                    if given.len() != 2 * rank {
                        return None;
                    }
                    let mut turned = vec![0; 2 * rank];
                    for (axis, &to) in perm.iter().enumerate() {
                        (turned[to], turned[rank + to]) = (given[axis], given[rank + axis]);
                    }
                    inputs.push(Some(Input::Fresh(pads, Tensor::vector(turned))));
                    inputs.extend(node.inputs.get(2).map(|id| id.map(Input::Same)));
                }
            }
            mover.with(node.op.clone(), inputs)
        }
        Op::Slice(_) => {
            let (starts, ends) = (cx.input(node, 1)?, cx.input(node, 2)?);
            let axes = match cx.input(node, 3) {
                Some(axes) => Input::Fresh(axes, mover.axes(axes)?),
                None => {
                    let count = cx.constant(starts)?.len();
                    let axes = perm.iter().take(count).map(|&axis| axis as i64).collect();
                    Input::Fresh(starts, Tensor::vector::<i64>(axes))
                }
            };
            let mut inputs =
                vec![Some(mover.relaid(0)?), Some(Input::Same(starts)), Some(Input::Same(ends)), Some(axes)];
            inputs.extend(node.inputs.get(4).map(|id| id.map(Input::Same)));
            mover.with(node.op.clone(), inputs)
        }
        Op::Resize(op) if op.axes.is_none() && cx.input(node, 1).is_none() => {
            let mut inputs = vec![Some(mover.relaid(0)?), None];
            for place in [2, 3] {
                let id = cx.input(node, place);
                inputs.push(match id {
                    Some(id) => Some(Input::Fresh(id, mover.per_axis(id)?)),
                    None => None,
                });
            }
            inputs.truncate(node.inputs.len());
            mover.with(node.op.clone(), inputs)
        }
        Op::Tile(_) | Op::Expand(_) => {
            let counts = cx.input(node, 1)?;
            mover.with(
                node.op.clone(),
                vec![Some(mover.relaid(0)?), Some(Input::Fresh(counts, mover.per_axis(counts)?))],
            )
        }
        Op::QuantizeLinear(op) if op.block_size == 0 => {
            mover.along(QuantizeLinear { axis: mover.scale_axis(op.axis)?, ..op.clone() }.into())
        }
        Op::DequantizeLinear(op) if op.block_size == 0 => {
            mover.along(DequantizeLinear { axis: mover.scale_axis(op.axis)?, ..op.clone() }.into())
        }
        // Rows come in any order as long as they stay whole, and weights are the same for all of them.
        Op::MatMul(_) if mover.keeps_from(rank - 1) && cx.rank(cx.input(node, 1)?) == Some(2) => {
            mover.along(node.op.clone())
        }
        Op::LayerNormalization(op) => mover.rows(op.axis),
        Op::RMSNormalization(op) => mover.rows(op.axis),
        _ => None,
    }
}

struct Mover<'a, 'g> {
    cx: &'a View<'g>,
    node: &'a Node,
    perm: &'a [usize],
}

impl Mover<'_, '_> {
    fn with(&self, op: Op, inputs: Vec<Option<Input>>) -> Option<Moved> {
        Some(Moved { op, inputs })
    }

    /// The node with its first input laid out anew and the others as they are.
    fn along(&self, op: Op) -> Option<Moved> {
        let first = self.relaid(0)?;
        let rest = self.node.inputs[1..].iter().map(|id| id.map(Input::Same));
        self.with(op, [Some(first)].into_iter().chain(rest).collect())
    }

    /// Whether the axes from `first` on stay where they are.
    fn keeps_from(&self, first: usize) -> bool {
        (first..self.perm.len()).all(|axis| self.perm[axis] == axis)
    }

    /// A norm of rows from `axis` on, with parameters for a row and no statistics.
    fn rows(&self, axis: i64) -> Option<Moved> {
        let rank = self.perm.len();
        let first = normalize_axis(axis, rank).ok()?;
        let parameters = self.node.inputs[1..].iter().flatten();
        let are_of_rows =
            parameters.map(|id| self.cx.rank(*id)).all(|own| own.is_some_and(|own| own <= rank - first));
        let is_plain = self.node.outputs.len() == 1;
        (self.keeps_from(first) && are_of_rows && is_plain).then(|| self.along(self.node.op.clone()))?
    }

    fn relaid(&self, place: usize) -> Option<Input> {
        let id = self.cx.input(self.node, place)?;
        (self.cx.rank(id) == Some(self.perm.len()) && self.cx.constant(id).is_none())
            .then_some(Input::Relaid(id))
    }

    fn axis(&self, axis: i64) -> Option<i64> {
        Some(self.perm[normalize_axis(axis, self.perm.len()).ok()?] as i64)
    }

    /// The new axis, unless the innermost one would no longer be: kernels run along it.
    fn inner_axis(&self, axis: i64) -> Option<i64> {
        let last = self.perm.len() as i64 - 1;
        let old = normalize_axis(axis, self.perm.len()).ok()? as i64;
        let new = self.axis(axis)?;
        (new == last || old != last).then_some(new)
    }

    /// Where one scale per slice lies; the axis says nothing if there is one scale for all.
    fn scale_axis(&self, axis: i64) -> Option<i64> {
        let scale = self.cx.input(self.node, 1)?;
        match self.cx.rank(scale)? {
            0 => Some(axis),
            1 => self.axis(axis),
            _ => None,
        }
    }

    /// A constant list of axes.
    fn axes(&self, id: ValueId) -> Option<Tensor> {
        let tensor = self.cx.constant(id)?;
        let axes: Vec<i64> =
            tensor.to_i64s().into_iter().map(|axis| self.axis(axis)).collect::<Option<_>>()?;
        Tensor::from_i64s(tensor.dtype(), tensor.shape(), &axes).ok()
    }

    /// A constant with one entry per axis.
    fn per_axis(&self, id: ValueId) -> Option<Tensor> {
        let tensor = self.cx.constant(id).filter(|tensor| tensor.shape() == [self.perm.len()])?;
        let numbers = tensor.to_f64s();
        let mut turned = vec![0.0; numbers.len()];
        self.perm.iter().zip(numbers).for_each(|(&to, number)| turned[to] = number);
        Tensor::from_f64s(tensor.dtype(), tensor.shape(), &turned).ok()
    }

    /// An operand that is broadcast: a constant turned beforehand, a scalar as it is, or a whole tensor.
    fn broadcast(&self, id: ValueId) -> Option<Input> {
        let rank = self.perm.len();
        match (self.cx.constant(id), self.cx.rank(id)?) {
            (_, 0) => Some(Input::Same(id)),
            (None, own) => (own == rank).then_some(Input::Relaid(id)),
            (Some(tensor), own) => {
                let ones = rank.checked_sub(own)?;
                let shape: Vec<usize> =
                    vec![1; ones].into_iter().chain(tensor.shape().iter().copied()).collect();
                let tensor = tensor.reshaped(&shape).ok()?;
                let mut inverse = vec![0i64; rank];
                self.perm.iter().enumerate().for_each(|(axis, &to)| inverse[to] = axis as i64);
                let op = Op::from(planish_op::Transpose { perm: Some(inverse) });
                let turned = planish_reference::evaluate(&op, &[Some(&tensor.into())], 1).ok()?.pop()?;
                Some(Input::Fresh(id, turned.as_tensor()?.clone()))
            }
        }
    }
}
