//! Recognizes GELU: `x/2 · (1 + erf(x/√2))`, and with `tanh(√(2/π)·(x + 0.044715·x³))` in place of erf.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use planish_ir::{NodeId, ValueId};
use planish_op::{Gelu, GeluApproximation, Op};

use crate::formula::{Gated, affine, find_gated, polynomial};
use crate::pattern::{
    Finder, Found, Miss, blocked, has_more_factors, is_number, made_by, one_input, rewrite_unary,
};
use crate::rule::Patch;
use crate::view::View;

/// The factor of x³ in the approximation.
const CUBE: f64 = 0.044715;
/// √(2/π) = 2/√π · 1/√2
const TANH_SCALE: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;

/// Products of a value, 0.5 and one plus an erf or tanh, in any order of the operands.
pub(crate) const RECOGNIZE_GELU: Finder = Finder { name: "recognize_gelu", find };

/// `scale · (1 + f(arg))` with `f` erf or tanh.
#[derive(Clone, Debug)]
struct Gate {
    scale: f64,
    arg: ValueId,
    approximate: GeluApproximation,
    nodes: Vec<NodeId>,
}

fn read_gate(cx: &View<'_>, value: ValueId) -> Option<Gate> {
    let sum = affine(cx, value);
    let (id, node) = made_by(cx, sum.value, |op| matches!(op, Op::Erf(_) | Op::Tanh(_)))?;
    if sum.offset != sum.scale || sum.scale == 0.0 {
        return None;
    }
    let approximate = match node.op {
        Op::Erf(_) => GeluApproximation::None,
        _ => GeluApproximation::Tanh,
    };
    let mut nodes = sum.nodes;
    nodes.push(id);
    Some(Gate { scale: sum.scale, arg: one_input(node)?, approximate, nodes })
}

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    find_gated(cx, root, |value| read_gate(cx, value), |product| check(cx, root, product))
}

fn check(cx: &View<'_>, root: NodeId, product: Gated<Gate>) -> Found<Patch> {
    let Gated { x, constant, gate, nodes } = product;
    let inner = polynomial(cx, gate.arg, x).ok_or(Miss::No)?;
    let dtype = cx.dtype(x).ok_or(Miss::No)?;
    let wanted = match gate.approximate {
        GeluApproximation::None => [0.0, FRAC_1_SQRT_2, 0.0, 0.0],
        GeluApproximation::Tanh => [0.0, TANH_SCALE, 0.0, TANH_SCALE * CUBE],
    };
    if !inner.coefs.iter().zip(wanted).all(|(&found, wanted)| is_number(found, wanted, dtype)) {
        let [_, scale, _, cube] = inner.coefs;
        return blocked(format!("inside erf or tanh stands {scale:.4}·x + {cube:.4}·x³, which is not GELU"));
    }
    let factor = constant * gate.scale;
    if !is_number(factor, 0.5, dtype) {
        return match has_more_factors(cx, root)? {
            true => Err(Miss::No),
            false => blocked(format!("the product has the factor {factor}, not 0.5")),
        };
    }
    let parts = nodes.into_iter().chain(gate.nodes).chain(inner.nodes);
    rewrite_unary(cx, root, x, Gelu { approximate: gate.approximate }, parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, PLAIN, SPECIAL, agrees, becomes, refuses};
    use crate::testing::check;
    use expect_test::expect;

    /// The forms of PyTorch, PaddlePaddle and ONNX Runtime's tools; the last one as TensorFlow writes halves.
    const ERF_FORMS: [&str; 4] = [
        "%d: f32[n,4] = Div(%x, %r2) %e: f32[n,4] = Erf(%d) %s: f32[n,4] = Add(%e, %one) \
         %m: f32[n,4] = Mul(%x, %s) %y: f32[n,4] = Mul(%m, %half)",
        "%d: f32[n,4] = Div(%x, %r2) %e: f32[n,4] = Erf(%d) %s: f32[n,4] = Add(%one, %e) \
         %m: f32[n,4] = Mul(%half, %s) %y: f32[n,4] = Mul(%m, %x)",
        "%d: f32[n,4] = Mul(%rh, %x) %e: f32[n,4] = Erf(%d) %s: f32[n,4] = Add(%e, %one) \
         %m: f32[n,4] = Mul(%x, %half) %y: f32[n,4] = Mul(%s, %m)",
        "%d: f32[n,4] = Mul(%x, %rh) %e: f32[n,4] = Erf(%d) %h: f32[n,4] = Mul(%e, %half) \
         %s: f32[n,4] = Add(%half, %h) %y: f32[n,4] = Mul(%x, %s)",
    ];

    fn erf_form(form: &str, root: &str) -> String {
        format!(
            "input %x: f32[n,4] const %r2: f32[] = [{root}] const %rh: f32[1] = [0.70710677] \
             const %one: f32[] = [1] const %half: f32[] = [0.5] {form} output %y"
        )
    }

    #[test]
    fn every_order_of_operands_is_found() {
        for form in ERF_FORMS {
            check(
                RECOGNIZE_GELU,
                &erf_form(form, "1.4142135"),
                expect![[r#"
                    input %x: f32[n,4]
                    %y: f32[n,4] = Gelu(%x)
                    output %y
                "#]],
            );
            let feed = Feed { sizes: &[("n", 3)], ..SPECIAL };
            agrees(RECOGNIZE_GELU, &erf_form(form, "1.4142135"), feed);
        }
    }

    const TANH: &str = "input %x: f32[2,8] const %c: f32[] = [0.044715] const %s: f32[] = [0.7978846] \
        const %one: f32[] = [1] const %half: f32[] = [0.5] const %three: f32[] = [3]";

    #[test]
    fn both_ways_to_write_the_cube_are_found() {
        let with_pow = format!(
            "{TANH} %p: f32[2,8] = Pow(%x, %three) %q: f32[2,8] = Mul(%c, %p) %a: f32[2,8] = Add(%x, %q) \
             %m: f32[2,8] = Mul(%s, %a) %t: f32[2,8] = Tanh(%m) %u: f32[2,8] = Add(%one, %t) \
             %h: f32[2,8] = Mul(%half, %x) %y: f32[2,8] = Mul(%h, %u) output %y"
        );
        let with_products = format!(
            "{TANH} %p: f32[2,8] = Mul(%c, %x) %q: f32[2,8] = Mul(%x, %p) %r: f32[2,8] = Mul(%x, %q) \
             %a: f32[2,8] = Add(%x, %r) %m: f32[2,8] = Mul(%s, %a) %t: f32[2,8] = Tanh(%m) \
             %u: f32[2,8] = Add(%one, %t) %h: f32[2,8] = Mul(%half, %u) %y: f32[2,8] = Mul(%x, %h) output %y"
        );
        for form in [with_pow, with_products] {
            becomes(
                RECOGNIZE_GELU,
                &form,
                "input %x: f32[2,8] %y: f32[2,8] = Gelu(%x) {approximate=\"tanh\"} output %y",
                PLAIN,
            );
        }
    }

    #[test]
    fn constants_rounded_to_their_type_are_the_same_constants() {
        // √2 as f16 is 1.4140625.
        check(
            RECOGNIZE_GELU,
            "input %x: f16[4] const %r: f16[] = [1.4140625] const %one: f16[] = [1] const %h: f16[] = [0.5] \
             %d: f16[4] = Div(%x, %r) %e: f16[4] = Erf(%d) %s: f16[4] = Add(%e, %one) %m: f16[4] = Mul(%h, %s) \
             %y: f16[4] = Mul(%x, %m) output %y",
            expect![[r#"
                input %x: f16[4]
                %y: f16[4] = Gelu(%x)
                output %y
            "#]],
        );
    }

    #[test]
    fn another_constant_is_refused() {
        refuses(
            RECOGNIZE_GELU,
            &erf_form(ERF_FORMS[0], "1.5"),
            "inside erf or tanh stands 0.6667·x + 0.0000·x³, which is not GELU",
        );
    }

    #[test]
    fn another_factor_is_refused() {
        refuses(
            RECOGNIZE_GELU,
            "input %x: f32[4] const %r: f32[] = [0.70710677] const %one: f32[] = [1] %d: f32[4] = Mul(%x, %r) \
             %e: f32[4] = Erf(%d) %s: f32[4] = Add(%e, %one) %y: f32[4] = Mul(%x, %s) output %y",
            "the product has the factor 1, not 0.5",
        );
    }

    #[test]
    fn a_part_that_others_read_is_refused() {
        let form = erf_form(ERF_FORMS[0], "1.4142135").replace("output %y", "output %y, %e");
        refuses(RECOGNIZE_GELU, &form, "`e` is an output of the graph");
        let form =
            erf_form(ERF_FORMS[0], "1.4142135").replace("output %y", "%z: f32[n,4] = Relu(%s) output %y, %z");
        refuses(RECOGNIZE_GELU, &form, "`s` is read by another node too");
    }

    #[test]
    fn a_constant_that_adds_an_axis_is_refused() {
        refuses(
            RECOGNIZE_GELU,
            "input %x: f32[4] const %r: f32[] = [0.70710677] const %one: f32[1,1] = [1] const %h: f32[] = [0.5] \
             %d: f32[4] = Mul(%x, %r) %e: f32[4] = Erf(%d) %s: f32[1,4] = Add(%e, %one) \
             %m: f32[1,4] = Mul(%x, %s) %y: f32[1,4] = Mul(%m, %h) output %y",
            "the result is not known to have the shape of the argument",
        );
    }
}
