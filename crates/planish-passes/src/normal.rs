//! Reading normalizations written out: `v / √(mean(v²) + ε)`, with or without the mean taken off first, and
//! the scale and shift after it.

use planish_ir::{NodeId, ValueId};
use planish_op::Op;
use planish_tensor::Tensor;

use crate::pattern::{
    Found, Miss, Reduction, blocked, broadcasts_into, kept_reduction, made_by, one_input, output, relying_on,
    two_inputs, with_number,
};
use crate::rule::{Operand, Patch};
use crate::view::View;

/// `value / √(mean over axes of value² + epsilon)`
#[derive(Clone, Debug)]
pub(crate) struct Normal {
    pub(crate) value: ValueId,
    pub(crate) axes: Vec<usize>,
    pub(crate) epsilon: f64,
    /// A factor that was put on the reciprocal root before the product, as Keras does.
    pub(crate) early_scale: Option<ValueId>,
    /// All nodes but the root, which is the quotient or product.
    pub(crate) nodes: Vec<NodeId>,
}

/// Reads the node `root` as a value over its own root mean square.
pub(crate) fn normal(cx: &View<'_>, root: NodeId) -> Option<Normal> {
    let node = cx.node(root);
    let [a, b] = two_inputs(node)?;
    match node.op {
        Op::Div(_) => over(cx, a, power(cx, b, 0.5)?, None),
        Op::Mul(_) => [(a, b), (b, a)].into_iter().find_map(|(value, factor)| {
            if let Some(root) = reciprocal(cx, factor) {
                return over(cx, value, root, None);
            }
            let (id, product) = made_by(cx, factor, |op| matches!(op, Op::Mul(_)))?;
            let [c, d] = two_inputs(product)?;
            [(c, d), (d, c)].into_iter().find_map(|(inner, scale)| {
                let mut root = reciprocal(cx, inner)?;
                root.nodes.push(id);
                over(cx, value, root, Some(scale))
            })
        }),
        _ => None,
    }
}

/// A norm along the last axes, where a parameter has a number for each element of a row.
pub(crate) struct Rows {
    /// What the root makes.
    pub(crate) y: ValueId,
    /// The first of the axes, counted from the end.
    pub(crate) axis: i64,
    pub(crate) sizes: Vec<usize>,
}

/// How the axes of `normal` lie in `x`, the value that is normalized.
pub(crate) fn rows(cx: &View<'_>, root: NodeId, x: ValueId, normal: &Normal) -> Found<Rows> {
    let n_axes = normal.axes.len();
    let rank = cx.rank(x).filter(|rank| *rank >= n_axes);
    if !rank.is_some_and(|rank| normal.axes.iter().copied().eq(rank - n_axes..rank)) {
        return blocked(format!("the axes {:?} are not the last ones", normal.axes));
    }
    if normal.axes.is_empty() {
        return Err(Miss::No);
    }
    if normal.early_scale.is_some_and(|scale| !is_parameter(cx, scale, x, &normal.axes)) {
        return blocked("the scale is not one number per normalized element");
    }
    let y = output(cx.node(root))?;
    if !cx.same_type(x, y) {
        return blocked("the result is not known to have the shape of the argument");
    }
    Ok(Rows { y, axis: -(n_axes as i64), sizes: fixed_sizes(cx, x, &normal.axes)? })
}

/// What a root is taken of, and the nodes that do.
struct Root {
    of: ValueId,
    nodes: Vec<NodeId>,
}

/// Reads one over a root.
fn reciprocal(cx: &View<'_>, factor: ValueId) -> Option<Root> {
    let (id, node) = cx.producer(factor)?;
    let inner = match (&node.op, two_inputs(node)) {
        (Op::Reciprocal(_), None) => one_input(node)?,
        (Op::Div(_), Some([one, root])) if cx.splat(one) == Some(1.0) => root,
        _ => return power(cx, factor, -0.5),
    };
    let mut root = power(cx, inner, 0.5)?;
    root.nodes.push(id);
    Some(root)
}

/// Reads a power, Sqrt included.
fn power(cx: &View<'_>, value: ValueId, wanted: f64) -> Option<Root> {
    let (id, node) = cx.producer(value)?;
    let of = match (&node.op, two_inputs(node)) {
        (Op::Sqrt(_), None) if wanted == 0.5 => one_input(node)?,
        (Op::Pow(_), Some([of, power])) if cx.splat(power) == Some(wanted) => of,
        _ => return None,
    };
    Some(Root { of, nodes: vec![id] })
}

fn over(cx: &View<'_>, value: ValueId, root: Root, early_scale: Option<ValueId>) -> Option<Normal> {
    let Root { of, mut nodes } = root;
    let (id, node) = made_by(cx, of, |op| matches!(op, Op::Add(_)))?;
    nodes.push(id);
    let (mean, epsilon) = with_number(cx, two_inputs(node)?)?;
    if let Some((x, axes, variance)) = difference_of_squares(cx, mean) {
        let (of, own, centering) = centered(cx, value)?;
        nodes.extend(variance.into_iter().chain([centering]));
        let is_same = of == x && mean_of(cx, own)?.axes == axes;
        return is_same.then_some(Normal { value, axes, epsilon, early_scale, nodes });
    }
    let Reduction { of: square, axes, nodes: reducing } = mean_of(cx, mean)?;
    nodes.extend(reducing);
    let (squared, id) = squared(cx, square)?;
    nodes.push(id);
    if squared != value {
        // Before common subexpressions are merged, the same difference may stand twice.
        let (x, mean, difference) = centered(cx, value)?;
        let (other_x, other_mean, other) = centered(cx, squared)?;
        if x != other_x || mean_of(cx, mean)?.axes != mean_of(cx, other_mean)?.axes {
            return None;
        }
        nodes.extend([difference, other]);
    }
    Some(Normal { value, axes, epsilon, early_scale, nodes })
}

/// Reads a variance as ONNX's own bodies have it, `mean(x²) - mean(x)²`: `x`, the axes and the nodes. The norms
/// compute the same without its loss of digits.
fn difference_of_squares(cx: &View<'_>, value: ValueId) -> Option<(ValueId, Vec<usize>, Vec<NodeId>)> {
    let (id, node) = made_by(cx, value, |op| matches!(op, Op::Sub(_)))?;
    let [of_square, of_mean] = two_inputs(node)?;
    let of_square = mean_of(cx, of_square)?;
    let (x, square) = squared(cx, of_square.of)?;
    let (mean, mean_square) = squared(cx, of_mean)?;
    let mean = mean_of(cx, mean)?;
    let mut nodes = vec![id, square, mean_square];
    nodes.extend(of_square.nodes.into_iter().chain(mean.nodes));
    (mean.of == x && mean.axes == of_square.axes).then_some((x, mean.axes, nodes))
}

/// What a value is the square of, and the node.
fn squared(cx: &View<'_>, value: ValueId) -> Option<(ValueId, NodeId)> {
    let (id, node) = cx.producer(value)?;
    let [a, b] = two_inputs(node)?;
    match node.op {
        Op::Mul(_) if a == b => Some((a, id)),
        Op::Pow(_) if cx.splat(b) == Some(2.0) => Some((a, id)),
        _ => None,
    }
}

/// Reads a mean that broadcasts against what it is the mean of.
fn mean_of(cx: &View<'_>, value: ValueId) -> Option<Reduction> {
    kept_reduction(cx, value, |op| match op {
        Op::ReduceMean(op) => Some((op.keepdims, op.noop_with_empty_axes)),
        _ => None,
    })
}

/// `x` and the mean of `x - mean`, and the node.
fn centered(cx: &View<'_>, value: ValueId) -> Option<(ValueId, ValueId, NodeId)> {
    let (id, node) = made_by(cx, value, |op| matches!(op, Op::Sub(_)))?;
    let [x, mean] = two_inputs(node)?;
    (mean_of(cx, mean)?.of == x).then_some((x, mean, id))
}

/// What a normal is of once its mean is taken off: `x`, and the nodes of the difference and the mean; `None`
/// if the mean of other axes, or nothing, was taken off.
pub(crate) fn off_center(cx: &View<'_>, normal: &Normal) -> Option<(ValueId, Vec<NodeId>)> {
    let (x, mean, difference) = centered(cx, normal.value)?;
    let Reduction { axes, mut nodes, .. } = mean_of(cx, mean)?;
    nodes.push(difference);
    (axes == normal.axes).then_some((x, nodes))
}

/// What follows a normalized value: its last value, and the scale and shift on the way there.
#[derive(Clone, Debug)]
pub(crate) struct Affinity {
    pub(crate) result: ValueId,
    pub(crate) scale: Option<ValueId>,
    pub(crate) shift: Option<ValueId>,
    pub(crate) nodes: Vec<NodeId>,
}

impl Affinity {
    /// The patch with `op` in place of the `inner` nodes and those that follow.
    pub(crate) fn replaced_by(
        self,
        mut patch: Patch,
        name: &str,
        op: impl Into<Op>,
        inputs: &[Operand],
        mut inner: Vec<NodeId>,
    ) -> Found<Patch> {
        let result = patch.node(name, op, inputs);
        patch.replace(self.result, result);
        inner.extend(self.nodes);
        Ok(relying_on(patch, &inner))
    }
}

/// Follows a product and a sum after `result` as long as `fits` accepts what is multiplied or added.
pub(crate) fn affinity(
    cx: &View<'_>,
    result: ValueId,
    early_scale: Option<ValueId>,
    fits: impl Fn(ValueId) -> bool,
) -> Affinity {
    let mut found = Affinity { result, scale: early_scale, shift: None, nodes: Vec::new() };
    for _ in 0..2 {
        let Some((id, node)) = cx.sole_reader(found.result) else { break };
        let Some([a, b]) = two_inputs(node) else { break };
        let other = if a == found.result { b } else { a };
        let Ok(next) = output(node) else { break };
        if !fits(other) || !cx.same_type(found.result, next) {
            break;
        }
        match node.op {
            Op::Mul(_) if found.scale.is_none() && found.shift.is_none() => found.scale = Some(other),
            Op::Add(_) if found.shift.is_none() => found.shift = Some(other),
            _ => break,
        }
        found.result = next;
        found.nodes.push(id);
    }
    found
}

/// A parameter as an operand of the given shape: itself, a constant with other axes of size 1, or `otherwise`
/// in all elements if it is absent.
pub(crate) fn parameter(
    cx: &View<'_>,
    patch: &mut Patch,
    x: ValueId,
    given: Option<ValueId>,
    shape: &[usize],
    otherwise: f64,
) -> Found<Operand> {
    let dtype = cx.dtype(x).ok_or(Miss::No)?;
    let n: usize = shape.iter().product();
    let filled = |number| Tensor::from_f64s(dtype, shape, &vec![number; n]).map_err(|_| Miss::No);
    let Some(given) = given else { return Ok(patch.constant("filled", filled(otherwise)?)) };
    if cx.fixed_shape(given).is_some_and(|found| found == shape) {
        return Ok(given.into());
    }
    let Some(tensor) = cx.constant(given) else { return blocked("a parameter has another shape") };
    let tensor = match cx.splat(given) {
        Some(number) => filled(number)?,
        None => tensor.reshaped(shape).map_err(|_| Miss::No)?,
    };
    Ok(patch.constant(cx.name(given), tensor))
}

/// Whether a parameter holds one number per element of the axes in `own`: it broadcasts into `x`, is constant
/// or has exactly these axes, and has size 1 elsewhere.
pub(crate) fn is_parameter(cx: &View<'_>, id: ValueId, x: ValueId, own: &[usize]) -> bool {
    let (Some(shape), Some(whole)) = (cx.shape(id), cx.shape(x)) else { return false };
    if cx.dtype(id) != cx.dtype(x) || !broadcasts_into(shape, whole) {
        return false;
    }
    if cx.splat(id).is_some() {
        return true;
    }
    let missing = whole.rank() - shape.rank();
    let per_axis = |axis: usize| axis.checked_sub(missing).and_then(|place| shape.get(place));
    let fits = (0..whole.rank()).all(|axis| match per_axis(axis) {
        Some(dim) if own.contains(&axis) => *dim == whole[axis],
        Some(dim) => dim.as_const() == Some(1),
        None => !own.contains(&axis) || whole[axis].as_const() == Some(1),
    });
    fits && (cx.constant(id).is_some() || shape.rank() == own.len())
}

/// The sizes of the given axes, all of which must be numbers.
pub(crate) fn fixed_sizes(cx: &View<'_>, x: ValueId, axes: &[usize]) -> Found<Vec<usize>> {
    let shape = cx.shape(x).ok_or(Miss::No)?;
    let sizes: Option<Vec<usize>> = axes.iter().map(|&axis| shape.get(axis)?.as_usize()).collect();
    match sizes {
        Some(sizes) => Ok(sizes),
        None => blocked("the size of a normalized axis is not known"),
    }
}
