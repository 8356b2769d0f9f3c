//! Relu and Clip: several in a row become one, and Max and Min with constants become either.

use planish_ir::{Node, ValueId};
use planish_op::{Clip, Op, Relu};
use planish_tensor::Tensor;

use crate::rule::{Match, Patch};
use crate::view::View;

/// `min(max(x, low), high)`; Relu has no upper bound, and Clip without a bound has the largest finite number.
#[derive(Clone, Copy)]
struct Bounds {
    low: f64,
    high: f64,
}

impl Bounds {
    /// The bounds of a Relu, or of a Clip whose bounds are constants in the right order.
    fn of(cx: &View<'_>, node: &Node) -> Option<Bounds> {
        match node.op {
            Op::Relu(_) => Some(Bounds { low: 0.0, high: f64::INFINITY }),
            Op::Clip(_) => {
                let bounds =
                    Bounds { low: cx.splat(cx.input(node, 1)?)?, high: cx.splat(cx.input(node, 2)?)? };
                (bounds.low <= bounds.high).then_some(bounds)
            }
            _ => None,
        }
    }

    fn apply(self, number: f64) -> f64 {
        number.max(self.low).min(self.high)
    }
}

/// A clamp after another one.
pub(super) fn merge(cx: &View<'_>, node: &Node, output: ValueId) -> Match {
    let Some((between, before)) = cx.input(node, 0).and_then(|id| Some((id, cx.producer(id)?.1))) else {
        return Match::No;
    };
    let Some(source) = cx.input(before, 0).filter(|_| matches!(before.op, Op::Relu(_) | Op::Clip(_))) else {
        return Match::No;
    };
    let (Some(first), Some(second)) = (Bounds::of(cx, before), Bounds::of(cx, node)) else {
        return Match::blocked("the bounds of a Clip are not two constants in order");
    };
    let merged = Bounds { low: second.apply(first.low), high: second.apply(first.high) };
    if merged.low == first.low && merged.high == first.high {
        // The second changes nothing. An output needs a node, which then is the second itself.
        if !cx.is_output(output) || cx.can_become_output(between) {
            return Match::Rewrite(Patch::replacing(output, between));
        }
    }
    clamp(cx, node, source, output, merged).map_or(Match::No, Match::Rewrite)
}

/// Max with a lower bound, and Min with an upper bound after that.
pub(super) fn extremes(cx: &View<'_>, node: &Node, output: ValueId) -> Match {
    let Some((input, number)) = with_scalar(cx, node, output) else { return Match::No };
    match node.op {
        // For `Max(0, x)` with x = -0 either zero is a maximum.
        Op::Max(_) if number == 0.0 => {
            let mut patch = Patch::new();
            let new = patch.node(&node.name, Relu {}, &[input.into()]);
            patch.replace(output, new);
            Match::Rewrite(patch)
        }
        Op::Min(_) => {
            let Some((_, before)) = cx.producer(input) else { return Match::No };
            let (low, source) = match &before.op {
                Op::Relu(_) => (0.0, cx.input(before, 0)),
                Op::Max(_) => match with_scalar(cx, before, input) {
                    Some((source, low)) => (low, Some(source)),
                    None => return Match::No,
                },
                _ => return Match::No,
            };
            let Some(source) = source else { return Match::No };
            if low > number {
                return Match::blocked("the lower bound is above the upper one");
            }
            let bounds = Bounds { low, high: number };
            clamp(cx, node, source, output, bounds).map_or(Match::No, Match::Rewrite)
        }
        _ => Match::No,
    }
}

/// The one value and the one number that a Max or Min of two compares, if the number makes nothing larger.
fn with_scalar(cx: &View<'_>, node: &Node, output: ValueId) -> Option<(ValueId, f64)> {
    let &[Some(left), Some(right)] = &node.inputs[..] else { return None };
    let (value, number) = match (cx.splat(left), cx.splat(right)) {
        (None, Some(number)) => (left, number),
        (Some(number), None) => (right, number),
        _ => return None,
    };
    let is_float = cx.dtype(value).is_some_and(|dtype| dtype.is_float());
    (is_float && !number.is_nan() && cx.same_type(value, output)).then_some((value, number))
}

fn clamp(cx: &View<'_>, node: &Node, source: ValueId, output: ValueId, bounds: Bounds) -> Option<Patch> {
    let dtype = cx.dtype(source)?;
    let mut patch = Patch::new();
    let new = if bounds.low == 0.0 && bounds.high == f64::INFINITY {
        patch.node(&node.name, Relu {}, &[source.into()])
    } else {
        let low = Tensor::from_f64s(dtype, &[], &[bounds.low]).ok()?;
        let high = Tensor::from_f64s(dtype, &[], &[bounds.high]).ok()?;
        let low = patch.constant(&format!("{}.min", node.name), low);
        let high = patch.constant(&format!("{}.max", node.name), high);
        patch.node(&node.name, Clip {}, &[source.into(), low, high])
    };
    patch.replace(output, new);
    Some(patch)
}

#[cfg(test)]
mod tests {
    use crate::passes::canonicalize::Canonicalize;
    use crate::testing::{check_same, kept};
    use expect_test::expect;

    #[test]
    fn a_chain_becomes_one() {
        check_same(
            Canonicalize,
            "input %x: f32[n] const %a: f32[] = -1 const %b: f32[] = 1.5 const %c: f32[] = 6 \
             %p: f32[n] = Relu(%x) \"p\" %q: f32[n] = Relu(%p) \"q\" %r: f32[n] = Clip(%q, %a, %c) \"r\" \
             %s: f32[n] = Clip(%r, %a, %b) \"s\" %y: f32[n] = Relu(%s) \"y\" output %y",
            expect![[r#"
            input %x: f32[n]
            const %y.min: f32[] = 0
            const %y.max: f32[] = 1.5
            %y: f32[n] = Clip(%x, %y.min, %y.max) "y"
            output %y
        "#]],
        );
    }

    #[test]
    fn extremes_become_clamps() {
        check_same(
            Canonicalize,
            "input %x: f32[n] const %a: f32[] = -1 const %z: f32[] = 0 const %b: f32[] = 1.5 \
             %p: f32[n] = Max(%x, %z) \"p\" %q: f32[n] = Max(%a, %x) %r: f32[n] = Min(%q, %b) \"r\" output %p, %r",
            expect![[r#"
            input %x: f32[n]
            const %r.min: f32[] = -1
            const %r.max: f32[] = 1.5
            %p: f32[n] = Relu(%x) "p"
            %r: f32[n] = Clip(%x, %r.min, %r.max) "r"
            output %p, %r
        "#]],
        );
    }

    #[test]
    fn refusals() {
        let order = "the bounds of a Clip are not two constants in order";
        kept(
            Canonicalize,
            "input %x: f32[n] input %a: f32[] %p: f32[n] = Clip(%x, %a) %y: f32[n] = Relu(%p)",
            "y",
            order,
        );
        kept(
            Canonicalize,
            "input %x: f32[n] const %a: f32[] = 2 const %b: f32[] = 1 %p: f32[n] = Relu(%x) %y: f32[n] = Clip(%p, %a, %b)",
            "y",
            order,
        );
        kept(
            Canonicalize,
            "input %x: f32[n] const %a: f32[] = 2 const %b: f32[] = 1 %p: f32[n] = Max(%x, %a) %y: f32[n] = Min(%p, %b)",
            "y",
            "the lower bound is above the upper one",
        );
    }
}
