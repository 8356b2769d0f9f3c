//! Whether the rows of a batch stay apart in a graph: along which axis of each value they lie.
//!
//! A row is an index of the inputs' first axis. It is followed through every node by rules that know what the
//! operator mixes; where no rule says that rows stay apart they count as mixed, and nothing is claimed.

use planish_ir::{Graph, Node, ValueId};
use planish_op::Op;
use planish_tensor::{Tensor, normalize_axis};

/// What a value's elements depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rows {
    /// On no row.
    Shared,
    /// Each on one row: the axis is a multiple of the number of rows, and every row is a block of it.
    Along(usize),
}

/// Follows `n_rows` rows, which lie along the first axis of the inputs that `has_rows` names, through a graph at
/// sizes `dims`. An error says which node mixes them, or may.
pub(super) fn follow(
    graph: &Graph,
    n_rows: usize,
    has_rows: &dyn Fn(ValueId) -> bool,
    dims: &dyn Fn(ValueId) -> Option<Vec<usize>>,
) -> Result<Vec<Rows>, String> {
    let n_values = graph.values().len();
    let mut follower = Follower { graph, n_rows, dims, rows: vec![Rows::Shared; n_values] };
    for &input in graph.inputs() {
        if has_rows(input) {
            follower.rows[input.index()] = Rows::Along(0);
        }
    }
    for (_, node) in graph.nodes() {
        let mixes = || format!("`{}` ({}) mixes rows, or may", node.name, node.op.name());
        let made = follower.node(node).ok_or_else(mixes)?;
        for (id, rows) in node.outputs.iter().zip(made) {
            let Some(id) = id else { continue };
            if let Rows::Along(axis) = rows
                && !follower.is_divided(*id, axis)
            {
                return Err(mixes());
            }
            follower.rows[id.index()] = rows;
        }
    }
    Ok(follower.rows)
}

struct Follower<'a> {
    graph: &'a Graph,
    n_rows: usize,
    dims: &'a dyn Fn(ValueId) -> Option<Vec<usize>>,
    rows: Vec<Rows>,
}

impl Follower<'_> {
    fn is_divided(&self, id: ValueId, axis: usize) -> bool {
        let size = (self.dims)(id).and_then(|dims| dims.get(axis).copied());
        size.is_some_and(|size| size > 0 && size.is_multiple_of(self.n_rows))
    }

    fn of(&self, id: Option<ValueId>) -> Rows {
        id.map_or(Rows::Shared, |id| self.rows[id.index()])
    }

    /// The axis of input 0, if all other inputs are the same for every row.
    fn first_alone(&self, node: &Node) -> Option<usize> {
        let others = node.inputs.iter().skip(1).all(|&id| self.of(id) == Rows::Shared);
        match self.of(node.inputs.first().copied().flatten()) {
            Rows::Along(axis) if others => Some(axis),
            Rows::Along(_) | Rows::Shared => None,
        }
    }

    /// The integers of a constant input.
    fn ints(&self, node: &Node, place: usize) -> Option<Vec<i64>> {
        let id = node.inputs.get(place).copied().flatten()?;
        self.graph.value(id).constant().map(Tensor::to_i64s)
    }

    fn input_dims(&self, node: &Node, place: usize) -> Option<Vec<usize>> {
        (self.dims)(node.inputs.get(place).copied().flatten()?)
    }

    fn output_dims(&self, node: &Node) -> Option<Vec<usize>> {
        (self.dims)(node.outputs.first().copied().flatten()?)
    }

    /// Where rows lie in the outputs; `None` where they are mixed, or may be.
    fn node(&self, node: &Node) -> Option<Vec<Rows>> {
        let all = |rows: Rows| Some(vec![rows; node.outputs.len()]);
        // What is made of shapes does not depend on what the rows hold.
        let of_shapes = matches!(node.op, Op::Shape(_) | Op::Size(_));
        if of_shapes || node.inputs.iter().all(|&id| self.of(id) == Rows::Shared) {
            return all(Rows::Shared);
        }
        if node.op.is_pointwise() {
            return all(Rows::Along(self.broadcast(node, node.inputs.len())?));
        }
        if let Some(reduce) = node.op.as_reduce() {
            return all(Rows::Along(self.reduced(node, reduce.keepdims)?));
        }
        let rank = |place: usize| self.input_dims(node, place).map(|dims| dims.len());
        let axis = match &node.op {
            Op::Conv(_)
            | Op::ConvTranspose(_)
            | Op::MaxPool(_)
            | Op::AveragePool(_)
            | Op::LpPool(_)
            | Op::GlobalAveragePool(_)
            | Op::GlobalMaxPool(_)
            | Op::GlobalLpPool(_)
            | Op::InstanceNormalization(_)
            | Op::GroupNormalization(_)
            | Op::LRN(_)
            | Op::DepthToSpace(_)
            | Op::SpaceToDepth(_) => self.first_alone(node).filter(|&axis| axis == 0)?,
            Op::BatchNormalization(norm) if !norm.training_mode => {
                self.first_alone(node).filter(|&axis| axis == 0)?
            }
            Op::QuantizeLinear(_) | Op::DequantizeLinear(_) => self.first_alone(node)?,
            Op::Dropout(_) if node.inputs.len() == 1 => self.first_alone(node)?,
            Op::Softmax(softmax) => self.beside(node, softmax.axis)?,
            Op::LogSoftmax(softmax) => self.beside(node, softmax.axis)?,
            Op::Hardmax(hardmax) => self.beside(node, hardmax.axis)?,
            Op::LpNormalization(norm) => self.beside(node, norm.axis)?,
            Op::TopK(top) => self.beside(node, top.axis)?,
            Op::Split(split) => self.beside(node, split.axis)?,
            Op::CumSum(_) | Op::CumProd(_) => match self.ints(node, 1)?[..] {
                [axis] => self.beside(node, axis)?,
                _ => return None,
            },
            Op::LayerNormalization(norm) => self.before(node, norm.axis)?,
            Op::RMSNormalization(norm) => self.before(node, norm.axis)?,
            Op::ArgMax(op) => self.without(self.first_alone(node)?, &[op.axis], rank(0)?, op.keepdims)?,
            Op::ArgMin(op) => self.without(self.first_alone(node)?, &[op.axis], rank(0)?, op.keepdims)?,
            Op::Reshape(_) | Op::Flatten(_) | Op::Squeeze(_) | Op::Unsqueeze(_) => self.reshaped(node)?,
            Op::Transpose(transpose) => {
                let from = self.first_alone(node)?;
                match &transpose.perm {
                    Some(perm) => perm.iter().position(|&axis| usize::try_from(axis) == Ok(from))?,
                    None => rank(0)? - 1 - from,
                }
            }
            Op::Concat(concat) => {
                let axis = self.aligned(node, node.inputs.len())?;
                (normalize_axis(concat.axis, rank(0)?).ok()? != axis).then_some(axis)?
            }
            Op::Slice(_) => {
                let from = self.first_alone(node)?;
                let axes = match node.inputs.get(3) {
                    Some(Some(_)) => self.ints(node, 3)?,
                    _ => (0..self.input_dims(node, 1)?.first().copied()? as i64).collect(),
                };
                self.without(from, &axes, rank(0)?, true)?
            }
            Op::Pad(_) => {
                let from = self.first_alone(node)?;
                let pads =
                    self.ints(node, 1).filter(|pads| Some(pads.len()) == rank(0).map(|rank| 2 * rank))?;
                (pads[from] == 0 && pads[from + pads.len() / 2] == 0).then_some(from)?
            }
            Op::Resize(_) if node.inputs.get(1).copied().flatten().is_none() => self.kept(node)?,
            Op::Expand(_) => {
                self.first_alone(node)?;
                self.broadcast(node, 1)?
            }
            Op::Gather(gather) => self.gathered(node, normalize_axis(gather.axis, rank(0)?).ok()?)?,
            Op::GatherElements(gather) => {
                let axis = self.aligned(node, 2)?;
                (normalize_axis(gather.axis, rank(0)?).ok()? != axis).then_some(axis)?
            }
            Op::MatMul(_) => self.product(node)?,
            Op::Gemm(gemm) => {
                let rows = self.of(node.inputs.first().copied().flatten());
                let fits = rows == Rows::Along(usize::from(gemm.trans_a))
                    && self.of(node.inputs.get(1).copied().flatten()) == Rows::Shared;
                let addend = match (self.of(node.inputs.get(2).copied().flatten()), rank(2)) {
                    (Rows::Shared, _) | (Rows::Along(0), Some(2)) => true,
                    (Rows::Along(_), _) => false,
                };
                (fits && addend).then_some(0)?
            }
            Op::Attention(_) | Op::RotaryEmbedding(_) => {
                let apart = |(place, &id): (usize, &Option<ValueId>)| match self.of(id) {
                    Rows::Shared => true,
                    // A mask of lower rank begins with other axes than the batch.
                    Rows::Along(axis) => axis == 0 && (place != 3 || rank(3) == Some(4)),
                };
                node.inputs.iter().enumerate().all(apart).then_some(0)?
            }
            Op::LSTM(op) if op.layout == 0 => return self.recurrent(node),
            Op::GRU(op) if op.layout == 0 => return self.recurrent(node),
            _ => return None,
        };
        all(Rows::Along(axis))
    }

    /// The one axis of the output that the rows of the first inputs lie along when sizes of 1 are repeated.
    fn broadcast(&self, node: &Node, n_inputs: usize) -> Option<usize> {
        let rank = self.output_dims(node)?.len();
        let mut found = None;
        for (place, &id) in node.inputs.iter().enumerate().take(n_inputs) {
            let Rows::Along(axis) = self.of(id) else { continue };
            let axis = (axis + rank).checked_sub(self.input_dims(node, place)?.len())?;
            let from = self.input_dims(node, place)?;
            let same = from[axis + from.len() - rank] == self.output_dims(node)?[axis];
            if !same || found.is_some_and(|known| known != axis) {
                return None;
            }
            found = Some(axis);
        }
        found
    }

    /// The one axis that the rows of all these inputs lie along, as they are.
    fn aligned(&self, node: &Node, n_inputs: usize) -> Option<usize> {
        let mut found = None;
        for &id in node.inputs.iter().take(n_inputs) {
            match self.of(id) {
                Rows::Along(axis) if found.is_none_or(|known| known == axis) => found = Some(axis),
                Rows::Along(_) => return None,
                Rows::Shared => {}
            }
        }
        found
    }

    /// The rows of input 0, which an operator along `axis` leaves apart.
    fn beside(&self, node: &Node, axis: i64) -> Option<usize> {
        let rank = self.input_dims(node, 0)?.len();
        self.without(self.first_alone(node)?, &[axis], rank, true)
    }

    /// The rows of input 0, which an operator over all axes from `axis` on leaves apart.
    fn before(&self, node: &Node, axis: i64) -> Option<usize> {
        let rank = self.input_dims(node, 0)?.len();
        self.first_alone(node).filter(|&rows| normalize_axis(axis, rank).is_ok_and(|axis| rows < axis))
    }

    /// Where axis `rows` is after an operator over `axes`, which stay or go.
    fn without(&self, rows: usize, axes: &[i64], rank: usize, keep: bool) -> Option<usize> {
        let axes: Vec<usize> =
            axes.iter().map(|&axis| normalize_axis(axis, rank)).collect::<Result<_, _>>().ok()?;
        if axes.contains(&rows) {
            return None;
        }
        Some(if keep { rows } else { rows - axes.iter().filter(|&&axis| axis < rows).count() })
    }

    fn reduced(&self, node: &Node, keep: bool) -> Option<usize> {
        let axes = self.ints(node, 1).filter(|axes| !axes.is_empty())?;
        self.without(self.first_alone(node)?, &axes, self.input_dims(node, 0)?.len(), keep)
    }

    /// Rows that keep their axis and its size.
    fn kept(&self, node: &Node) -> Option<usize> {
        let axis = self.first_alone(node)?;
        (self.input_dims(node, 0)?.get(axis) == self.output_dims(node)?.get(axis)).then_some(axis)
    }

    /// The axis before which there is as much as before the rows, and which is divided into them.
    fn reshaped(&self, node: &Node) -> Option<usize> {
        let from = self.first_alone(node)?;
        let (inner, outer) = (self.input_dims(node, 0)?, self.output_dims(node)?);
        let before: usize = inner[..from].iter().product();
        let fits = |axis: &usize| {
            outer[..*axis].iter().product::<usize>() == before && outer[*axis].is_multiple_of(self.n_rows)
        };
        (0..outer.len()).find(|axis| outer[*axis] > 0 && fits(axis))
    }

    fn gathered(&self, node: &Node, along: usize) -> Option<usize> {
        let indices = self.input_dims(node, 1)?.len();
        match (
            self.of(node.inputs.first().copied().flatten()),
            self.of(node.inputs.get(1).copied().flatten()),
        ) {
            (Rows::Shared, Rows::Along(axis)) => Some(along + axis),
            (Rows::Along(axis), Rows::Shared) if axis < along => Some(axis),
            (Rows::Along(axis), Rows::Shared) if axis > along => Some(axis + indices - 1),
            _ => None,
        }
    }

    fn product(&self, node: &Node) -> Option<usize> {
        let rank = self.output_dims(node)?.len();
        let (left, right) = (self.input_dims(node, 0)?.len(), self.input_dims(node, 1)?.len());
        if left < 2 || right < 2 {
            return None;
        }
        let of_left = match self.of(node.inputs.first().copied().flatten()) {
            Rows::Along(axis) if axis + 1 < left => Some(axis + rank - left),
            Rows::Along(_) => return None,
            Rows::Shared => None,
        };
        let of_right = match self.of(node.inputs.get(1).copied().flatten()) {
            Rows::Along(axis) if axis + 2 != right => Some(axis + rank - right),
            Rows::Along(_) => return None,
            Rows::Shared => None,
        };
        match (of_left, of_right) {
            (Some(left), Some(right)) => (left == right).then_some(left),
            (left, right) => left.or(right),
        }
    }

    /// `[time, batch, features]` and states of `[directions, batch, size]`.
    fn recurrent(&self, node: &Node) -> Option<Vec<Rows>> {
        let apart = |(place, &id): (usize, &Option<ValueId>)| match (place, self.of(id)) {
            (_, Rows::Shared) => true,
            // The sequence, the lengths, and the states that it begins with.
            (0 | 5 | 6, Rows::Along(axis)) => axis == 1,
            (4, Rows::Along(axis)) => axis == 0,
            _ => false,
        };
        let fits = node.inputs.iter().enumerate().all(apart);
        let places = [Rows::Along(2), Rows::Along(1), Rows::Along(1)];
        fits.then(|| places[..node.outputs.len().min(places.len())].to_vec())
    }
}
