//! Reading patterns of several nodes: what makes a value, what may go with it, and how a refusal is said.
//! Formulas are read in `formula.rs`.

use std::borrow::Cow;

use planish_ir::{Node, NodeId, ValueId};
use planish_op::{Cast, CastRounding, Op};
use planish_tensor::{DType, Dim, Shape, normalize_axis};

use crate::rule::{Match, Patch, Rule};
use crate::view::View;

/// How far a written constant may be from the number that it stands for, relatively: exporters print √½ as
/// 0.70710, which is 9.6e-6 off.
const MAX_CONSTANT_ERROR: f64 = 2e-5;

/// Why a node is not rewritten.
#[derive(Debug)]
pub(crate) enum Miss {
    /// It is something else.
    No,
    /// It is what was looked for, but a precondition does not hold.
    Blocked(Cow<'static, str>),
}

/// What a search found, or why it found nothing.
pub(crate) type Found<T> = Result<T, Miss>;

/// A refusal with a reason.
pub(crate) fn blocked<T>(reason: impl Into<Cow<'static, str>>) -> Found<T> {
    Err(Miss::Blocked(reason.into()))
}

/// A rule by the function that finds its patch.
#[derive(Clone, Copy)]
pub(crate) struct Finder {
    pub(crate) name: &'static str,
    pub(crate) find: fn(&View<'_>, NodeId) -> Found<Patch>,
}

impl Rule for Finder {
    fn name(&self) -> &'static str {
        self.name
    }

    fn try_at(&self, cx: &View<'_>, node: NodeId) -> Match {
        (self.find)(cx, node).into()
    }
}

impl From<Found<Patch>> for Match {
    fn from(found: Found<Patch>) -> Match {
        match found {
            Ok(patch) => Match::Rewrite(patch),
            Err(Miss::No) => Match::No,
            Err(Miss::Blocked(reason)) => Match::Blocked(reason),
        }
    }
}

/// The only output of a node.
pub(crate) fn output(node: &Node) -> Found<ValueId> {
    match node.outputs[..] {
        [Some(id)] => Ok(id),
        _ => Err(Miss::No),
    }
}

/// The two inputs of a node that has exactly two.
pub(crate) fn two_inputs(node: &Node) -> Option<[ValueId; 2]> {
    match node.inputs[..] {
        [Some(a), Some(b)] => Some([a, b]),
        _ => None,
    }
}

/// The only input of a node.
pub(crate) fn one_input(node: &Node) -> Option<ValueId> {
    match node.inputs[..] {
        [Some(a)] => Some(a),
        _ => None,
    }
}

/// The node that makes `id`, if its operator is `wanted`.
pub(crate) fn made_by<'g>(
    cx: &View<'g>,
    id: ValueId,
    wanted: impl Fn(&Op) -> bool,
) -> Option<(NodeId, &'g Node)> {
    cx.producer(id).filter(|(_, node)| wanted(&node.op))
}

/// The pair with a constant number second, whichever of them it is: the other value and the number.
pub(crate) fn with_number(cx: &View<'_>, pair: [ValueId; 2]) -> Option<(ValueId, f64)> {
    let [a, b] = pair;
    match (cx.splat(a), cx.splat(b)) {
        (_, Some(number)) => Some((a, number)),
        (Some(number), None) => Some((b, number)),
        (None, None) => None,
    }
}

/// Whether a constant of the model is the number that a formula has, within what exporters round to.
pub(crate) fn is_number(found: f64, wanted: f64, dtype: DType) -> bool {
    // Constants of narrow types are rounded to them: half a unit of the 11 or 8 significant bits.
    let rounding = match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        _ => MAX_CONSTANT_ERROR,
    };
    (found - wanted).abs() <= rounding * wanted.abs()
}

/// Refuses unless the values of `inner` nodes are read by inner nodes and `root` alone.
pub(crate) fn private(cx: &View<'_>, inner: &[NodeId], root: NodeId) -> Found<()> {
    for &id in inner {
        for &value in cx.node(id).outputs.iter().flatten() {
            let is_inside = |reader: &NodeId| *reader == root || inner.contains(reader);
            if cx.is_output(value) {
                return blocked(format!("`{}` is an output of the graph", cx.name(value)));
            }
            if !cx.readers(value).iter().all(is_inside) {
                return blocked(format!("`{}` is read by another node too", cx.name(value)));
            }
        }
    }
    Ok(())
}

/// A patch that puts nothing in unless all `inner` nodes are still there.
pub(crate) fn relying_on(mut patch: Patch, inner: &[NodeId]) -> Patch {
    inner.iter().for_each(|&node| patch.relies_on(node));
    patch
}

/// The first patch found, or else the last refusal.
pub(crate) fn first_found(candidates: impl IntoIterator<Item = Found<Patch>>) -> Found<Patch> {
    let mut miss = Miss::No;
    for candidate in candidates {
        match candidate {
            Ok(patch) => return Ok(patch),
            Err(Miss::No) => {}
            Err(reason) => miss = reason,
        }
    }
    Err(miss)
}

/// Whether a product goes on: then the node after is asked too, with more factors.
pub(crate) fn has_more_factors(cx: &View<'_>, root: NodeId) -> Found<bool> {
    let y = output(cx.node(root))?;
    Ok(cx.sole_reader(y).is_some_and(|(_, node)| matches!(node.op, Op::Mul(_) | Op::Div(_))))
}

/// The patch that has `op` of `x` in place of the output of `root`, which the `parts` (with or without the
/// root) compute now.
pub(crate) fn rewrite_unary(
    cx: &View<'_>,
    root: NodeId,
    x: ValueId,
    op: impl Into<Op>,
    parts: impl IntoIterator<Item = NodeId>,
) -> Found<Patch> {
    let node = cx.node(root);
    let y = output(node)?;
    // Also rules out constants with more axes than x.
    if !cx.same_type(x, y) {
        return blocked("the result is not known to have the shape of the argument");
    }
    let inner: Vec<NodeId> = parts.into_iter().filter(|&part| part != root).collect();
    private(cx, &inner, root)?;
    let mut patch = Patch::new();
    let result = patch.node(&node.name, op, &[x.into()]);
    patch.replace(y, result);
    Ok(relying_on(patch, &inner))
}

/// The axes that a reduction with `axes` as second input goes over, sorted; `None` if they are not known.
pub(crate) fn reduced_axes(cx: &View<'_>, node: &Node, noop_with_empty_axes: bool) -> Option<Vec<usize>> {
    let rank = cx.rank(cx.input(node, 0)?)?;
    let given = match cx.input(node, 1) {
        Some(axes) => cx.ints(axes)?,
        None => Vec::new(),
    };
    if given.is_empty() {
        return (!noop_with_empty_axes).then(|| (0..rank).collect());
    }
    let mut axes: Vec<usize> =
        given.into_iter().map(|axis| normalize_axis(axis, rank).ok()).collect::<Option<_>>()?;
    axes.sort_unstable();
    axes.dedup();
    Some(axes)
}

/// A reduction whose result broadcasts against its operand.
#[derive(Clone, Debug)]
pub(crate) struct Reduction {
    pub(crate) of: ValueId,
    pub(crate) axes: Vec<usize>,
    pub(crate) nodes: Vec<NodeId>,
}

/// Reads a reduction that keeps its axes, or one whose axes a Reshape or Unsqueeze puts back. `reduces` says of
/// an operator that it is the one, by its attributes `keepdims` and `noop_with_empty_axes`.
pub(crate) fn kept_reduction(
    cx: &View<'_>,
    value: ValueId,
    reduces: impl Fn(&Op) -> Option<(bool, bool)>,
) -> Option<Reduction> {
    let (id, node) = cx.producer(value)?;
    if let Some((true, noop)) = reduces(&node.op) {
        let axes = reduced_axes(cx, node, noop)?;
        return Some(Reduction { of: cx.input(node, 0)?, axes, nodes: vec![id] });
    }
    if !matches!(node.op, Op::Reshape(_) | Op::Unsqueeze(_)) {
        return None;
    }
    let (inner, reduction) = cx.producer(cx.input(node, 0)?)?;
    let (_, noop) = reduces(&reduction.op)?;
    let axes = reduced_axes(cx, reduction, noop)?;
    let of = cx.input(reduction, 0)?;
    let kept: Shape = (cx.shape(of)?.iter().enumerate())
        .map(|(axis, dim)| if axes.contains(&axis) { Dim::ONE } else { dim.clone() })
        .collect();
    let is_kept = cx.shape(value) == Some(&kept) && !kept.iter().any(Dim::is_unknown);
    is_kept.then(|| Reduction { of, axes, nodes: vec![id, inner] })
}

/// Whether a tensor of shape `part` changes nothing in the shape of `whole` when both are combined.
pub(crate) fn broadcasts_into(part: &Shape, whole: &Shape) -> bool {
    part.rank() <= whole.rank()
        && part
            .iter()
            .rev()
            .zip(whole.iter().rev())
            .all(|(part, whole)| part.as_const() == Some(1) || (part == whole && !part.is_unknown()))
}

/// A Cast as ONNX has it by default.
pub(crate) fn cast(to: DType) -> Cast {
    Cast { to, saturate: true, round_mode: CastRounding::Up }
}
