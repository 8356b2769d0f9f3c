//! Arithmetic with constants: sums and products instead of differences and quotients, scalars instead of
//! filled tensors, and no Expand where broadcasting does the same.

use planish_ir::{Node, ValueId};
use planish_op::{Add, LeakyRelu, Mul, Op};
use planish_tensor::{DType, Shape, Tensor};

use crate::rule::{Match, Operand, Patch};
use crate::view::View;

pub(super) fn simplify(cx: &View<'_>, node: &Node, output: ValueId) -> Match {
    if !node.op.is_broadcast() || matches!(node.op, Op::PRelu(_)) {
        return Match::No;
    }
    let is_float = cx.dtype(output).is_some_and(|dtype| dtype.is_float());
    let patch = match &node.op {
        Op::Sum(_) if node.inputs.len() == 2 && is_float => {
            node.inputs.iter().copied().collect::<Option<Vec<_>>>().map(|inputs| {
                let inputs: Vec<Operand> = inputs.into_iter().map(Operand::from).collect();
                let mut patch = Patch::new();
                let new = patch.node(&node.name, Add {}, &inputs);
                patch.replace(output, new);
                patch
            })
        }
        Op::Sub(_) if is_float => with_constant(cx, node, output, Add {}.into(), |number| Some(-number)),
        Op::Div(_) if is_float => {
            let dtype = cx.dtype(output).unwrap_or(DType::F32);
            with_constant(cx, node, output, Mul {}.into(), |number| exact_reciprocal(number, dtype))
        }
        _ => None,
    };
    let patch = patch.or_else(|| scalar(cx, node, output)).or_else(|| without_expand(cx, node, output));
    patch.map_or(Match::No, Match::Rewrite)
}

/// The node as `op` with its second input, a constant, turned; `None` if a number cannot be.
fn with_constant(
    cx: &View<'_>,
    node: &Node,
    output: ValueId,
    op: Op,
    turn: impl Fn(f64) -> Option<f64>,
) -> Option<Patch> {
    let (value, constant) = (cx.input(node, 0)?, cx.input(node, 1)?);
    let tensor = cx.constant(constant).filter(|_| cx.constant(value).is_none())?;
    let numbers: Vec<f64> = tensor.to_f64s().into_iter().map(turn).collect::<Option<_>>()?;
    let tensor = Tensor::from_f64s(tensor.dtype(), tensor.shape(), &numbers).ok()?;
    let mut patch = Patch::new();
    let turned = patch.constant(cx.name(constant), tensor);
    let new = patch.node(&node.name, op, &[value.into(), turned]);
    patch.replace(output, new);
    Some(patch)
}

/// 1/x for a power of two whose reciprocal is a normal number: dividing and multiplying then round alike.
fn exact_reciprocal(number: f64, dtype: DType) -> Option<f64> {
    let max_exponent = match dtype {
        DType::F64 => 1022,
        DType::F32 | DType::BF16 => 126,
        DType::F16 => 14,
        _ => return None,
    };
    let exponent = number.abs().log2();
    let is_power = number.is_finite() && exponent.fract() == 0.0 && exponent.abs() <= f64::from(max_exponent);
    (is_power && number.abs() == exponent.exp2()).then(|| number.recip())
}

/// The node with a filled constant made a scalar, if the other inputs have the output's shape anyway.
fn scalar(cx: &View<'_>, node: &Node, output: ValueId) -> Option<Patch> {
    let shape = cx.shape(output)?;
    for (place, &input) in node.inputs.iter().enumerate() {
        let (Some(input), true) = (input, node.inputs.len() > 1) else { continue };
        let Some(filled) = cx.constant(input).filter(|filled| filled.rank() > 0) else { continue };
        // One number per channel stays so even if all are equal: that is a bias, and kernels know it as one.
        let n_axes = filled.shape().iter().filter(|&&size| size != 1).count();
        if n_axes == 1 || cx.splat(input).is_none() {
            continue;
        }
        let others = node.inputs.iter().enumerate().filter(|(other, _)| *other != place);
        let others = others.map(|(_, id)| cx.shape((*id)?)).collect::<Option<Vec<&Shape>>>()?;
        if broadcast(&others)? != *shape {
            continue;
        }
        let width = filled.dtype().bits() / 8;
        let first = Tensor::from_bytes(filled.dtype(), &[], filled.bytes().slice(0..width)?).ok()?;
        let mut patch = Patch::new();
        let scalar = patch.constant(cx.name(input), first);
        return Some(with_input(patch, node, output, place, scalar));
    }
    None
}

/// The node reading what an Expand in front of it reads, if broadcasting gives the same.
fn without_expand(cx: &View<'_>, node: &Node, output: ValueId) -> Option<Patch> {
    let shape = cx.shape(output)?;
    for (place, &input) in node.inputs.iter().enumerate() {
        let Some((_, expand)) = input.and_then(|input| cx.producer(input)) else { continue };
        let (Op::Expand(_), Some(source)) = (&expand.op, cx.input(expand, 0)) else { continue };
        let shapes = node
            .inputs
            .iter()
            .enumerate()
            .map(|(other, id)| if other == place { cx.shape(source) } else { cx.shape((*id)?) });
        let shapes = shapes.collect::<Option<Vec<&Shape>>>()?;
        if broadcast(&shapes)? == *shape {
            return Some(with_input(Patch::new(), node, output, place, source.into()));
        }
    }
    None
}

fn with_input(mut patch: Patch, node: &Node, output: ValueId, place: usize, with: Operand) -> Patch {
    let mut inputs: Vec<Option<Operand>> = node.inputs.iter().map(|id| id.map(Operand::from)).collect();
    inputs[place] = Some(with);
    let new = patch.node_with(&node.name, node.op.clone(), inputs, 1);
    patch.replace(output, new[0]);
    patch
}

/// The shape that these broadcast to; `None` if a dimension of it is not known for sure.
fn broadcast(shapes: &[&Shape]) -> Option<Shape> {
    let mut all = Shape::scalar();
    for shape in shapes {
        all = Shape::broadcast(&all, shape).ok()?;
    }
    all.iter().all(|dim| !dim.is_unknown()).then_some(all)
}

/// PRelu with one slope as LeakyRelu.
pub(super) fn leaky(cx: &View<'_>, node: &Node, output: ValueId) -> Match {
    let (Some(input), Some(slope)) = (cx.input(node, 0), cx.input(node, 1)) else { return Match::No };
    let Some(alpha) = cx.splat(slope).filter(|_| cx.dtype(input) == Some(DType::F32)) else {
        return Match::No;
    };
    let mut patch = Patch::new();
    // A slope of type f32 goes through f64 and back unchanged.
    let new = patch.node(&node.name, LeakyRelu { alpha: alpha as f32 }, &[input.into()]);
    patch.replace(output, new);
    Match::Rewrite(patch)
}

#[cfg(test)]
mod tests {
    use crate::passes::canonicalize::Canonicalize;
    use crate::testing::{check_same, kept};
    use expect_test::expect;

    #[test]
    fn differences_and_exact_quotients() {
        check_same(
            Canonicalize,
            "input %x: f32[n] const %a: f32[1] = [3] const %b: f32[1] = [-0.25] %p: f32[n] = Sub(%x, %a) \"p\" \
             %q: f32[n] = Div(%p, %b) \"q\" %r: f32[n] = Sum(%q, %x) \"r\" output %r",
            expect![[r#"
            input %x: f32[n]
            const %a: f32[] = -3
            const %b: f32[] = -4
            %p: f32[n] = Add(%x, %a) "p"
            %q: f32[n] = Mul(%p, %b) "q"
            %r: f32[n] = Add(%q, %x) "r"
            output %r
        "#]],
        );
    }

    #[test]
    fn filled_constants_become_scalars_and_expand_goes() {
        check_same(
            Canonicalize,
            "input %x: f32[n,2] const %a: f32[1,1] = [3] const %z: f32[] = 1 input %m: bool[n,1] \
             const %s: i64[2] = [1, 2] %w: bool[n,2] = Expand(%m, %s) \"w\" \
             %p: f32[n,2] = Mul(%a, %x) \"p\" %q: f32[n,2] = Where(%w, %p, %z) \"q\" output %q",
            expect![[r#"
            input %x: f32[n,2]
            input %m: bool[n,1]
            const %z: f32[] = 1
            const %a: f32[] = 3
            %p: f32[n,2] = Mul(%a, %x) "p"
            %q: f32[n,2] = Where(%m, %p, %z) "q"
            output %q
        "#]],
        );
    }

    #[test]
    fn a_single_slope_is_leaky() {
        let before =
            "input %x: f32[n,2] const %a: f32[2] = [0.1, 0.1] %y: f32[n,2] = PRelu(%x, %a) \"p\" output %y";
        check_same(
            Canonicalize,
            before,
            expect![[r#"
            input %x: f32[n,2]
            %y: f32[n,2] = LeakyRelu(%x) {alpha=0.1} "p"
            output %y
        "#]],
        );
    }

    #[test]
    fn what_would_change_bits_or_shapes_stays() {
        for node in [
            "const %a: f32[] = 3 %y: f32[n,2] = Div(%x, %a)",
            "const %a: f32[] = 0 %y: f32[n,2] = Div(%x, %a)",
            "const %a: f32[] = 3 %y: f32[n,2] = Sub(%a, %x)",
            "const %a: f32[3,1,1] = [2, 2, 2] %y: f32[3,n,2] = Mul(%a, %x)",
            "const %s: i64[3] = [4, 1, 1] %w: f32[4,n,2] = Expand(%x, %s) %y: f32[4,n,2] = Mul(%w, %x)",
            "const %a: f32[2] = [0.1, 0.2] %y: f32[n,2] = PRelu(%x, %a)",
            "const %a: f32[2] = [3, 3] %y: f32[n,2] = Add(%x, %a)",
        ] {
            kept(Canonicalize, &format!("input %x: f32[n,2] {node}"), "y", "");
        }
        kept(
            Canonicalize,
            "input %x: u8[n] const %a: u8[] = 3 %z: u8[n] = Sub(%x, %a) %y: f32[n] = Cast(%z) {to=f32}",
            "y",
            "",
        );
    }
}
