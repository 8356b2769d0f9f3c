//! Reading: which nodes make up the attention, and what its operands are.

use planish_ir::{NodeId, ValueId};
use planish_op::Op;
use planish_tensor::{Dim, Shape, normalize_axis};

use crate::pattern::{Found, Miss, blocked, broadcasts_into, made_by, one_input, two_inputs, with_number};
use crate::view::View;

/// How many masks and factors may stand between the product and the softmax.
const MAX_STEPS: usize = 8;

/// The nodes of one attention.
pub(super) struct Parts {
    pub(super) query: ValueId,
    /// The second operand of the first product: keys side by side.
    pub(super) key_columns: ValueId,
    pub(super) value: ValueId,
    /// Whether the product is `V·wᵀ` with V side by side.
    pub(super) is_transposed: bool,
    /// Whether weights that are NaN count as zero.
    pub(super) is_guarded: bool,
    pub(super) scale: f64,
    /// What is added to the scores.
    pub(super) masks: Vec<ValueId>,
    /// The result of the first product.
    pub(super) scores: ValueId,
    /// All nodes but the root.
    pub(super) nodes: Vec<NodeId>,
}

/// The scores before softmax.
struct Scores {
    operands: [ValueId; 2],
    scale: f64,
    masks: Vec<ValueId>,
    product: ValueId,
    nodes: Vec<NodeId>,
}

/// Reads the attention whose last product is `root`.
pub(super) fn parts(cx: &View<'_>, root: NodeId) -> Found<Parts> {
    let [a, b] = two_inputs(cx.node(root)).ok_or(Miss::No)?;
    let mut nodes = Vec::new();
    let (weights, value, is_transposed) = match weights(cx, a) {
        true => (a, b, false),
        false => {
            let (id, node) = made_by(cx, b, |op| matches!(op, Op::Transpose(_))).ok_or(Miss::No)?;
            let source = one_input(node).ok_or(Miss::No)?;
            if !weights(cx, source) || !swaps_last_two(cx, source, &node.op) {
                return Err(Miss::No);
            }
            nodes.push(id);
            (source, a, true)
        }
    };
    let (softmax, is_guarded) = match guarded(cx, weights) {
        Some((softmax, guard)) => {
            nodes.extend(guard);
            (softmax, true)
        }
        None => (weights, false),
    };
    let (id, node) = made_by(cx, softmax, |op| matches!(op, Op::Softmax(_))).ok_or(Miss::No)?;
    nodes.push(id);
    let scores = scores(cx, one_input(node).ok_or(Miss::No)?, MAX_STEPS)?;
    let (Op::Softmax(op), Some(rank)) = (&node.op, cx.rank(softmax)) else { return Err(Miss::No) };
    if normalize_axis(op.axis, rank) != Ok(rank - 1) {
        return blocked(format!("the softmax goes along axis {}, not along the keys", op.axis));
    }
    nodes.extend(scores.nodes);
    let [query, key_columns] = scores.operands;
    let Scores { scale, masks, product, .. } = scores;
    Ok(Parts { query, key_columns, value, is_transposed, is_guarded, scale, masks, scores: product, nodes })
}

/// Whether a value is a softmax, guarded or not.
fn weights(cx: &View<'_>, value: ValueId) -> bool {
    let softmax = guarded(cx, value).map_or(value, |(softmax, _)| softmax);
    made_by(cx, softmax, |op| matches!(op, Op::Softmax(_))).is_some()
}

/// `w` of `Where(IsNaN(w), 0, w)`, and the two nodes.
fn guarded(cx: &View<'_>, value: ValueId) -> Option<(ValueId, [NodeId; 2])> {
    let (select, node) = made_by(cx, value, |op| matches!(op, Op::Where(_)))?;
    let [Some(condition), Some(zero), Some(weights)] = node.inputs[..] else { return None };
    let (is_nan, node) = made_by(cx, condition, |op| matches!(op, Op::IsNaN(_)))?;
    let is_guard = cx.splat(zero) == Some(0.0) && one_input(node) == Some(weights);
    (is_guard && cx.same_type(weights, value)).then_some((weights, [select, is_nan]))
}

/// Whether a Transpose of `source` exchanges the last two axes and keeps the others.
fn swaps_last_two(cx: &View<'_>, source: ValueId, op: &Op) -> bool {
    let (Op::Transpose(op), Some(rank)) = (op, cx.rank(source)) else { return false };
    match &op.perm {
        Some(perm) => rank >= 2 && *perm == swapped((0..rank as i64).collect()),
        None => rank == 2,
    }
}

/// The permutation with its last two entries exchanged.
pub(super) fn swapped(mut perm: Vec<i64>) -> Vec<i64> {
    if let [.., a, b] = &mut perm[..] {
        std::mem::swap(a, b);
    }
    perm
}

fn scores(cx: &View<'_>, value: ValueId, steps: usize) -> Found<Scores> {
    let (id, node) = cx.producer(value).filter(|_| steps > 0).ok_or(Miss::No)?;
    match (&node.op, &node.inputs[..]) {
        (Op::MatMul(_), &[Some(a), Some(b)]) => {
            Ok(Scores { operands: [a, b], scale: 1.0, masks: Vec::new(), product: value, nodes: vec![id] })
        }
        (Op::Add(_), &[Some(a), Some(b)]) => {
            let (mut found, mask) = match scores(cx, a, steps - 1) {
                Err(Miss::No) => (scores(cx, b, steps - 1)?, a),
                found => (found?, b),
            };
            found.masks.push(mask);
            found.nodes.push(id);
            Ok(found)
        }
        (Op::Mul(_) | Op::Div(_), &[Some(a), Some(b)]) => {
            let (inner, factor) = match node.op {
                Op::Mul(_) => with_number(cx, [a, b]),
                _ => cx.splat(b).map(|number| (a, 1.0 / number)),
            }
            .unwrap_or((a, f64::NAN));
            let mut found = scores(cx, inner, steps - 1)?;
            if !factor.is_finite() {
                return blocked("the scores are scaled by more than one number");
            }
            if !found.masks.is_empty() {
                return blocked("the mask is scaled together with the scores");
            }
            found.scale *= factor;
            found.nodes.push(id);
            Ok(found)
        }
        (Op::Where(_), &[Some(_), Some(a), Some(b)]) => {
            match (scores(cx, a, steps - 1), scores(cx, b, steps - 1)) {
                (Err(Miss::No), Err(Miss::No)) => Err(Miss::No),
                // Added minus infinity leaves a NaN score NaN, and a finite number leaves other weights.
                _ => blocked("a Where puts numbers in place of scores, which an added mask cannot do"),
            }
        }
        _ => Err(Miss::No),
    }
}

/// Q, K and V with rows for queries and keys, by what a patch has to do to get them.
pub(super) struct Operands {
    pub(super) query: ValueId,
    pub(super) key: Turned,
    pub(super) value: Turned,
    /// The factors on the scores, on Q and on K together.
    pub(super) scale: f64,
    pub(super) rank: usize,
}

/// A value behind a transpose that is still to be made, or as it is.
pub(super) struct Turned {
    pub(super) source: ValueId,
    pub(super) perm: Option<Vec<i64>>,
}

/// Takes scales and transposes off the operands and checks that they fit one Attention.
pub(super) fn operands(cx: &View<'_>, parts: &Parts) -> Found<Operands> {
    let (query, query_scale) = without_scale(cx, parts.query);
    let (columns, outer_scale) = without_scale(cx, parts.key_columns);
    let key = turned(cx, columns).ok_or(Miss::No)?;
    let (source, inner_scale) = without_scale(cx, key.source);
    let key = Turned { source, ..key };
    let value = match parts.is_transposed {
        true => turned(cx, parts.value).ok_or(Miss::No)?,
        false => Turned { source: parts.value, perm: None },
    };
    let scale = parts.scale * query_scale * outer_scale * inner_scale;
    let dtype = cx.dtype(query).ok_or(Miss::No)?;
    if !dtype.is_wide_float() || [key.source, value.source].iter().any(|&id| cx.dtype(id) != Some(dtype)) {
        return Err(Miss::No);
    }
    let shapes = (cx.shape(query), shape_of(cx, &key), shape_of(cx, &value));
    let (Some(q), Some(k), Some(v)) = shapes else {
        return blocked("the ranks of queries, keys and values are not known");
    };
    let rank = q.rank();
    if !(2..=4).contains(&rank) || k.rank() != rank || v.rank() != rank {
        return blocked(format!("queries {q}, keys {k} and values {v} are not of one rank up to 4"));
    }
    let is_same = |a: &Dim, b: &Dim| a == b && !a.is_unknown();
    let leads = |shape: &Shape| shape.dims()[..rank - 2].to_vec();
    // One head of keys and values may serve all queries of rank 4.
    let shares = rank == 4 && is_same(&q[0], &k[0]) && k[1] == Dim::ONE;
    let leads_fit = leads(&k).iter().zip(&leads(&v)).all(|(k, v)| is_same(k, v))
        && (shares || leads(q).iter().zip(&leads(&k)).all(|(q, k)| is_same(q, k)));
    if !leads_fit || !is_same(&k[rank - 2], &v[rank - 2]) || !is_same(&q[rank - 1], &k[rank - 1]) {
        return blocked(format!("queries {q}, keys {k} and values {v} do not fit without broadcasting"));
    }
    if !scale.is_finite() {
        return blocked("the scale of the scores is not finite");
    }
    let scores = cx.shape(parts.scores).ok_or(Miss::No)?;
    parts.masks.iter().try_for_each(|&mask| check_mask(cx, mask, scores))?;
    Ok(Operands { query, key, value, scale, rank })
}

/// A mask must broadcast into the scores, but not along the keys: Attention reads a shorter row of a mask as
/// keys that are hidden.
fn check_mask(cx: &View<'_>, mask: ValueId, scores: &Shape) -> Found<()> {
    let Some(shape) = cx.shape(mask) else { return blocked("the rank of the mask is not known") };
    if !broadcasts_into(shape, scores) {
        return blocked(format!("a mask {shape} does not broadcast into scores {scores}"));
    }
    let keys = scores.dims().last();
    if shape.rank() > 0 && shape.dims().last() != keys {
        return blocked(format!("a mask {shape} has one number for all keys"));
    }
    Ok(())
}

/// The value before it was multiplied with numbers, where nobody else reads the product.
fn without_scale(cx: &View<'_>, mut value: ValueId) -> (ValueId, f64) {
    let mut scale = 1.0;
    while let Some((_, node)) = cx.producer(value).filter(|_| cx.sole_reader(value).is_some()) {
        let inner = match (&node.op, two_inputs(node)) {
            (Op::Mul(_), Some(pair)) => with_number(cx, pair),
            (Op::Div(_), Some([a, b])) => cx.splat(b).map(|number| (a, 1.0 / number)),
            _ => None,
        };
        // A number with more axes than the value would change its shape.
        let Some((inner, factor)) = inner.filter(|(inner, _)| cx.same_type(*inner, value)) else { break };
        value = inner;
        scale *= factor;
    }
    (value, scale)
}

/// The value with its last two axes exchanged: through the Transpose that made it, if one did.
fn turned(cx: &View<'_>, value: ValueId) -> Option<Turned> {
    let rank = cx.rank(value)?;
    let identity: Vec<i64> = (0..rank as i64).collect();
    let made = made_by(cx, value, |op| matches!(op, Op::Transpose(_)));
    let (source, perm) = match made.and_then(|(_, node)| Some((one_input(node)?, &node.op))) {
        Some((source, Op::Transpose(op))) => {
            let perm = op.perm.clone().unwrap_or_else(|| identity.iter().rev().copied().collect());
            (source, swapped(perm))
        }
        _ => (value, swapped(identity.clone())),
    };
    Some(Turned { source, perm: (perm != identity).then_some(perm) })
}

fn shape_of(cx: &View<'_>, turned: &Turned) -> Option<Shape> {
    let shape = cx.shape(turned.source)?;
    match &turned.perm {
        Some(perm) => perm.iter().map(|&axis| shape.get(usize::try_from(axis).ok()?).cloned()).collect(),
        None => Some(shape.clone()),
    }
}
