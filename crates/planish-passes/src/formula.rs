//! Reading formulas: the factors of a product, the coefficients of a polynomial, ramps.
//!
//! Exporters write one formula in many operand orders. Instead of a list of orders, a rule asks here what a
//! value is made of, and compares numbers.

use planish_ir::{Node, NodeId, ValueId};
use planish_op::Op;

use crate::pattern::{
    Found, Miss, first_found, made_by, one_input, output, rewrite_unary, two_inputs, with_number,
};
use crate::rule::Patch;
use crate::view::View;

/// How far a search goes up from a node. The longest formula looked for (GELU by tanh) has 6 levels.
const MAX_DEPTH: usize = 8;

/// A product taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Product {
    /// The product of all constant numbers.
    pub(crate) constant: f64,
    pub(crate) factors: Vec<ValueId>,
    /// The nodes that multiply, the last one first.
    pub(crate) nodes: Vec<NodeId>,
}

/// The factors of `value`, through Mul and through Div by a number; values in `whole` are not taken apart.
pub(crate) fn product(cx: &View<'_>, value: ValueId, whole: &[ValueId]) -> Product {
    let mut found = Product { constant: 1.0, factors: Vec::new(), nodes: Vec::new() };
    collect_factors(cx, value, whole, MAX_DEPTH, &mut found);
    found
}

fn collect_factors(cx: &View<'_>, value: ValueId, whole: &[ValueId], depth: usize, found: &mut Product) {
    if let Some(number) = cx.splat(value) {
        found.constant *= number;
        return;
    }
    let parts = cx.producer(value).filter(|_| depth > 0 && !whole.contains(&value));
    let parts = parts.and_then(|(id, node)| Some((id, &node.op, two_inputs(node)?)));
    match parts {
        Some((id, Op::Mul(_), [a, b])) => {
            found.nodes.push(id);
            collect_factors(cx, a, whole, depth - 1, found);
            collect_factors(cx, b, whole, depth - 1, found);
        }
        Some((id, Op::Div(_), [a, b])) if cx.splat(b).is_some_and(|number| number != 0.0) => {
            found.nodes.push(id);
            found.constant /= cx.splat(b).unwrap_or(1.0);
            collect_factors(cx, a, whole, depth - 1, found);
        }
        _ => found.factors.push(value),
    }
}

/// All values that a product is made of, partial products included, constants and `value` itself excluded.
fn partial_products(cx: &View<'_>, value: ValueId, depth: usize, found: &mut Vec<ValueId>) {
    let Some((_, node)) = made_by(cx, value, |op| matches!(op, Op::Mul(_) | Op::Div(_))) else { return };
    let Some([a, b]) = two_inputs(node).filter(|_| depth > 0) else { return };
    let is_quotient = matches!(node.op, Op::Div(_));
    if is_quotient && cx.splat(b).is_none() {
        return;
    }
    for part in if is_quotient { vec![a] } else { vec![a, b] } {
        if cx.splat(part).is_none() && !found.contains(&part) {
            found.push(part);
            partial_products(cx, part, depth - 1, found);
        }
    }
}

/// A product `constant · x · gate`.
#[derive(Clone, Debug)]
pub(crate) struct Gated<G> {
    pub(crate) x: ValueId,
    pub(crate) constant: f64,
    /// What the caller knows of the gate.
    pub(crate) gate: G,
    /// The nodes that multiply, the root first.
    pub(crate) nodes: Vec<NodeId>,
}

impl<G> Gated<G> {
    /// The patch that puts `op` of `x` in the place of a product without a further number; `parts` are the gate's nodes.
    pub(crate) fn rewrite(
        self,
        cx: &View<'_>,
        root: NodeId,
        op: impl Into<Op>,
        parts: impl IntoIterator<Item = NodeId>,
    ) -> Found<Patch> {
        if self.constant != 1.0 {
            return Err(Miss::No);
        }
        rewrite_unary(cx, root, self.x, op, self.nodes.into_iter().chain(parts))
    }
}

/// Every way to read the output of `root` as a number times some `x` times a gate that `read` knows.
fn gated<G: Clone>(cx: &View<'_>, root: &Node, read: impl Fn(ValueId) -> Option<G>) -> Vec<Gated<G>> {
    let Ok(result) = output(root) else { return Vec::new() };
    let mut parts = Vec::new();
    partial_products(cx, result, MAX_DEPTH, &mut parts);
    let mut all = Vec::new();
    for (gate_value, gate) in parts.iter().filter_map(|&part| Some((part, read(part)?))) {
        for &x in parts.iter().filter(|&&x| x != gate_value) {
            let Product { constant, mut factors, nodes } = product(cx, result, &[x, gate_value]);
            factors.sort_unstable();
            if factors == [x.min(gate_value), x.max(gate_value)] {
                all.push(Gated { x, constant, gate: gate.clone(), nodes });
            }
        }
    }
    all
}

/// The patch for a product at `root` of some `x` and a gate: `read` knows gates, `check` what they must be of `x`.
pub(crate) fn find_gated<G: Clone>(
    cx: &View<'_>,
    root: NodeId,
    read: impl Fn(ValueId) -> Option<G>,
    check: impl Fn(Gated<G>) -> Found<Patch>,
) -> Found<Patch> {
    let node = cx.node(root);
    if !matches!(node.op, Op::Mul(_) | Op::Div(_)) {
        return Err(Miss::No);
    }
    first_found(gated(cx, node, read).into_iter().map(check))
}

/// Coefficients of 1, x, x² and x³, and the nodes that compute the polynomial.
#[derive(Clone, Debug)]
pub(crate) struct Polynomial {
    pub(crate) coefs: [f64; 4],
    pub(crate) nodes: Vec<NodeId>,
}

impl Polynomial {
    fn new(coefs: [f64; 4]) -> Polynomial {
        Polynomial { coefs, nodes: Vec::new() }
    }

    fn with(mut self, node: NodeId, other: Polynomial) -> Polynomial {
        self.nodes.extend(other.nodes);
        self.nodes.push(node);
        self
    }

    /// `None` beyond the third power.
    fn times(&self, other: &Polynomial) -> Option<[f64; 4]> {
        let mut coefs = [0.0; 4];
        for (i, a) in self.coefs.iter().enumerate().filter(|(_, a)| **a != 0.0) {
            for (j, b) in other.coefs.iter().enumerate().filter(|(_, b)| **b != 0.0) {
                *coefs.get_mut(i + j)? += a * b;
            }
        }
        Some(coefs)
    }
}

/// `value` as a polynomial of `x`, if that is what it is.
pub(crate) fn polynomial(cx: &View<'_>, value: ValueId, x: ValueId) -> Option<Polynomial> {
    polynomial_within(cx, value, x, MAX_DEPTH)
}

fn polynomial_within(cx: &View<'_>, value: ValueId, x: ValueId, depth: usize) -> Option<Polynomial> {
    if value == x {
        return Some(Polynomial::new([0.0, 1.0, 0.0, 0.0]));
    }
    if let Some(number) = cx.splat(value) {
        return Some(Polynomial::new([number, 0.0, 0.0, 0.0]));
    }
    let (id, node) = cx.producer(value).filter(|_| depth > 0)?;
    let read = |value| polynomial_within(cx, value, x, depth - 1);
    if let Op::Neg(_) = node.op {
        let inner = read(one_input(node)?)?;
        let coefs = inner.coefs.map(|coef| -coef);
        return Some(Polynomial::new(coefs).with(id, inner));
    }
    let [a, b] = two_inputs(node)?;
    let zip = |f: fn(f64, f64) -> f64, p: &Polynomial, q: &Polynomial| {
        std::array::from_fn(|power| f(p.coefs[power], q.coefs[power]))
    };
    match node.op {
        Op::Add(_) | Op::Sub(_) | Op::Mul(_) => {
            let (p, q) = (read(a)?, read(b)?);
            let coefs = match node.op {
                Op::Add(_) => zip(|a, b| a + b, &p, &q),
                Op::Sub(_) => zip(|a, b| a - b, &p, &q),
                _ => p.times(&q)?,
            };
            let mut sum = Polynomial::new(coefs).with(id, p);
            sum.nodes.extend(q.nodes);
            Some(sum)
        }
        Op::Div(_) => {
            let number = cx.splat(b).filter(|&number| number != 0.0)?;
            let p = read(a)?;
            Some(Polynomial::new(p.coefs.map(|coef| coef / number)).with(id, p))
        }
        Op::Pow(_) => {
            let p = read(a)?;
            let power = cx.splat(b)?;
            let coefs = match power {
                2.0 => p.times(&p)?,
                3.0 => Polynomial::new(p.times(&p)?).times(&p)?,
                _ => return None,
            };
            Some(Polynomial::new(coefs).with(id, p))
        }
        _ => None,
    }
}

/// `scale · value + offset` of the nearest value up from here that is not made by scaling and shifting.
#[derive(Clone, Debug)]
pub(crate) struct Affine {
    pub(crate) value: ValueId,
    pub(crate) scale: f64,
    pub(crate) offset: f64,
    pub(crate) nodes: Vec<NodeId>,
}

/// Takes numbers that are added and multiplied off a value.
pub(crate) fn affine(cx: &View<'_>, value: ValueId) -> Affine {
    let mut found = Affine { value, scale: 1.0, offset: 0.0, nodes: Vec::new() };
    for _ in 0..MAX_DEPTH {
        let Some((id, node)) = cx.producer(found.value) else { break };
        let step = match (&node.op, two_inputs(node)) {
            (Op::Add(_), Some(pair)) => with_number(cx, pair).map(|(value, number)| (value, 1.0, number)),
            (Op::Mul(_), Some(pair)) => with_number(cx, pair).map(|(value, number)| (value, number, 0.0)),
            (Op::Sub(_), Some([a, b])) => match (cx.splat(a), cx.splat(b)) {
                (None, Some(number)) => Some((a, 1.0, -number)),
                (Some(number), None) => Some((b, -1.0, number)),
                _ => None,
            },
            (Op::Div(_), Some([a, b])) => {
                cx.splat(b).filter(|&number| number != 0.0).map(|number| (a, 1.0 / number, 0.0))
            }
            (Op::Neg(_), None) => one_input(node).map(|value| (value, -1.0, 0.0)),
            _ => None,
        };
        let Some((value, scale, offset)) = step else { break };
        // found = s·(scale·value + offset) + o
        found.offset += found.scale * offset;
        found.scale *= scale;
        found.value = value;
        found.nodes.push(id);
    }
    found
}

/// `max(low, min(high, arg))`
#[derive(Clone, Debug)]
pub(crate) struct Ramp {
    pub(crate) arg: ValueId,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) nodes: Vec<NodeId>,
}

/// Reads Clip between numbers, the minimum of a Relu and a number, and the Relu of a minimum.
pub(crate) fn ramp(cx: &View<'_>, value: ValueId) -> Option<Ramp> {
    let (id, node) = cx.producer(value)?;
    match node.op {
        Op::Clip(_) => {
            let bound = |idx| cx.splat(cx.input(node, idx)?);
            Some(Ramp { arg: cx.input(node, 0)?, low: bound(1)?, high: bound(2)?, nodes: vec![id] })
        }
        Op::Min(_) => {
            let (relu, high) = with_number(cx, two_inputs(node)?)?;
            let (relu, node) = made_by(cx, relu, |op| matches!(op, Op::Relu(_)))?;
            Some(Ramp { arg: one_input(node)?, low: 0.0, high, nodes: vec![id, relu] })
        }
        Op::Relu(_) => {
            let (min, node) = made_by(cx, one_input(node)?, |op| matches!(op, Op::Min(_)))?;
            let (arg, high) = with_number(cx, two_inputs(node)?).filter(|(_, high)| *high >= 0.0)?;
            Some(Ramp { arg, low: 0.0, high, nodes: vec![id, min] })
        }
        _ => None,
    }
}
