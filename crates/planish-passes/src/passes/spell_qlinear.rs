//! Spells QLinearConv and QLinearMatMul as what they mean: dequantized factors, a product, a quantized result.
//!
//! There is one spelling of quantization then, and whatever knows DequantizeLinear and QuantizeLinear knows these
//! operators too. Integers may differ by one where a sum lies in the middle between two: the operators multiply the
//! integer sum by one factor, the product in f32 is rounded before it is divided by the scale. Sums that leave 32 bits
//! wrap around in the operators, which ONNX allows and nobody wants; the product has no such limit.

use planish_ir::{Node, NodeId, ValueId};
use planish_op::{DequantizeLinear, MatMul, Op, QuantizeLinear};
use planish_tensor::{DType, Tensor};

use crate::pattern::{Finder, Found, Miss, blocked, output};
use crate::quantization::{can_be_divided_by, can_be_multiplied, conv_of_numbers, is_int8};
use crate::rule::{Operand, Patch};
use crate::view::View;

/// QLinearConv and QLinearMatMul.
pub(crate) const SPELL_QLINEAR: Finder = Finder { name: "spell_qlinear", find };

fn find(cx: &View<'_>, id: NodeId) -> Found<Patch> {
    let node = cx.node(id);
    let result = output(node)?;
    let mut patch = Patch::new();
    let product = match &node.op {
        Op::QLinearConv(op) => {
            // Not the axis of input channels for weights: their first axis holds the output channels.
            let x = factor(cx, &mut patch, node, 0, 1)?;
            let w = factor(cx, &mut patch, node, 3, 0)?;
            let bias = bias(cx, &mut patch, node)?;
            let op = conv_of_numbers(op.window(), op.group);
            let inputs: Vec<Operand> = [Some(x), Some(w), bias].into_iter().flatten().collect();
            patch.node(&node.name, op, &inputs)
        }
        Op::QLinearMatMul(_) => {
            let a = factor(cx, &mut patch, node, 0, -2)?;
            let b = factor(cx, &mut patch, node, 3, -1)?;
            patch.node(&node.name, MatMul {}, &[a, b])
        }
        _ => return Err(Miss::No),
    };
    let scale = scale(cx, node, 6)?;
    if !can_be_divided_by(cx, scale) {
        return blocked(format!("the scale `{}` is too small to divide a sum of f32 by", cx.name(scale)));
    }
    let zero_point = cx.input(node, 7);
    let output_dtype = if zero_point.is_some() { None } else { cx.dtype(result) };
    let op = QuantizeLinear { precision: None, output_dtype, block_size: 0, saturate: true, axis: 1 };
    let inputs: Vec<Operand> = [Some(scale), zero_point].into_iter().flatten().map(Operand::Old).collect();
    let name = format!("{}.quantize", node.name);
    let quantized = patch.node(&name, op, &[&[product], &inputs[..]].concat());
    patch.replace(result, quantized);
    Ok(patch)
}

/// The scale at an input, if it is one that the result can be computed in.
fn scale(cx: &View<'_>, node: &Node, place: usize) -> Found<ValueId> {
    let Some(scale) = cx.input(node, place) else { return Err(Miss::No) };
    match cx.dtype(scale) {
        Some(DType::F32) => Ok(scale),
        _ => blocked(format!("the scale `{}` is not in f32", cx.name(scale))),
    }
}

/// Adds the numbers of the integers at an input, whose scale and zero point follow it. Several scales lie along `axis`.
fn factor(cx: &View<'_>, patch: &mut Patch, node: &Node, place: usize, axis: i64) -> Found<Operand> {
    let Some(integers) = cx.input(node, place) else { return Err(Miss::No) };
    if !is_int8(cx.dtype(integers)) {
        return blocked("its factors are not integers of 8 bits");
    }
    let scale = scale(cx, node, place + 1)?;
    if !can_be_multiplied(cx, scale) {
        return blocked(format!("products by the scale `{}` leave f32", cx.name(scale)));
    }
    let (Some(scale_shape), Some(rank)) = (cx.fixed_shape(scale), cx.rank(integers)) else {
        return blocked("how many scales there are is not known");
    };
    let n_scales: usize = scale_shape.iter().product();
    if scale_shape.len() > 1 || (axis < 0 && rank < 2 && n_scales > 1) {
        return blocked("scales of several axes have no spelling by DequantizeLinear");
    }
    let axis = if axis < 0 { axis + rank as i64 } else { axis };
    let mut inputs = vec![Operand::Old(integers), Operand::Old(scale)];
    if let Some(zero_point) = cx.input(node, place + 2) {
        let same = cx.fixed_shape(zero_point).is_some_and(|shape| shape == scale_shape);
        inputs.push(match cx.constant(zero_point) {
            // One zero point for each scale.
            Some(tensor) if !same && tensor.len() == 1 && n_scales > 1 => {
                let values = vec![tensor.to_f64s()[0]; n_scales];
                let spread = Tensor::from_f64s(tensor.dtype(), &scale_shape, &values);
                patch.constant(cx.name(zero_point), spread.map_err(|_| Miss::No)?)
            }
            _ if !same && n_scales > 1 => return blocked("there are not as many zero points as scales"),
            _ => zero_point.into(),
        });
    }
    let op = DequantizeLinear { output_dtype: None, block_size: 0, axis };
    Ok(patch.node(&format!("{}.dequantize", cx.name(integers)), op, &inputs))
}

/// Adds the bias of a QLinearConv as numbers: it is in units of both factors' scales.
fn bias(cx: &View<'_>, patch: &mut Patch, node: &Node) -> Found<Option<Operand>> {
    let Some(bias) = cx.input(node, 8) else { return Ok(None) };
    let constants = [8, 1, 4].map(|place| cx.constant_input(node, place).map(Tensor::to_f64s));
    let [Some(integers), Some(x_scale), Some(w_scales)] = constants else {
        return blocked("the bias or a scale is not constant");
    };
    let (&[x_scale], false) = (&x_scale[..], w_scales.is_empty()) else { return Err(Miss::No) };
    let number = |(channel, integer): (usize, &f64)| integer * x_scale * w_scales[channel % w_scales.len()];
    let numbers: Vec<f64> = integers.iter().enumerate().map(number).collect();
    let tensor = Tensor::from_f64s(DType::F32, &[numbers.len()], &numbers).map_err(|_| Miss::No)?;
    Ok(Some(patch.constant(cx.name(bias), tensor)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Pass;
    use crate::testing::{check, graph, run};
    use expect_test::expect;
    use planish_ir::interpret;
    use planish_op::Value;
    use planish_testing::Random;

    /// Where the sum lies in the middle between two integers, roundings decide: see the top of this file.
    const MAX_STEPS: i64 = 1;
    /// Roundings of f32 move a sum by 1e-5 of a step or so, so that few integers are hit.
    const MAX_SHARE: f64 = 1e-3;

    /// That the spelled graph gives the integers of the operator, but for a few that differ by one.
    fn same_integers(text: &str) {
        let before = graph(text);
        let (after, report) = run(Pass::rule(SPELL_QLINEAR), text);
        assert_eq!((report.hits, report.refusals.len()), (1, 0), "{:?}", report.refusals);
        let (mut n_all, mut n_off) = (0, 0);
        for seed in 1..=20 {
            let mut random = Random::new(seed);
            let mut fill = |id: &ValueId| {
                let ty = before.value(*id).ty.as_tensor().unwrap();
                let shape = ty.shape.as_ref().unwrap().as_fixed().unwrap();
                let [low, high] = crate::quantization::ends(ty.dtype);
                let values: Vec<f64> = (0..shape.iter().product::<usize>())
                    .map(|_| low as f64 + (random.unit() * (high - low + 1) as f64).floor())
                    .collect();
                Value::from(Tensor::from_f64s(ty.dtype, &shape, &values).unwrap())
            };
            let inputs: Vec<Value> = before.inputs().iter().map(&mut fill).collect();
            let integers = |graph| match &interpret(graph, inputs.clone()).unwrap()[..] {
                [Value::Tensor(tensor)] => tensor.to_i64s(),
                _ => panic!("one tensor"),
            };
            for (one, other) in integers(&before).into_iter().zip(integers(&after)) {
                assert!((one - other).abs() <= MAX_STEPS, "{one} became {other} in\n{after}");
                n_all += 1;
                n_off += usize::from(one != other);
            }
        }
        assert!(n_off as f64 <= MAX_SHARE * n_all as f64, "{n_off} of {n_all} integers differ");
    }

    #[test]
    fn convolutions_get_their_bias_in_numbers() {
        check(
            SPELL_QLINEAR,
            "input %x: u8[1,1,2,2] const %xs: f32[] = 0.5 const %xz: u8[] = 3 const %w: i8[2,1,1,1] = [2, -3] \
             const %ws: f32[2] = [0.25, 0.5] const %wz: i8[] = 0 const %ys: f32[] = 1 const %yz: u8[] = 7 \
             const %b: i32[2] = [8, -4] \
             %y: u8[1,2,2,2] = QLinearConv(%x, %xs, %xz, %w, %ws, %wz, %ys, %yz, %b) \"c\" output %y",
            expect![[r#"
                input %x: u8[1,1,2,2]
                const %xs: f32[] = 0.5
                const %xz: u8[] = 3
                const %w: i8[2,1,1,1] = [2, -3]
                const %ws: f32[2] = [0.25, 0.5]
                const %ys: f32[] = 1
                const %yz: u8[] = 7
                const %wz: i8[2] = [0, 0]
                const %b: f32[2] = [1, -1]
                %x.dequantize: f32[1,1,2,2] = DequantizeLinear(%x, %xs, %xz) "x.dequantize"
                %w.dequantize: f32[2,1,1,1] = DequantizeLinear(%w, %ws, %wz) {axis=0} "w.dequantize"
                %c: f32[1,2,2,2] = Conv(%x.dequantize, %w.dequantize, %b) "c"
                %y: u8[1,2,2,2] = QuantizeLinear(%c, %ys, %yz) "c.quantize"
                output %y
            "#]],
        );
    }

    #[test]
    fn scales_that_leave_f32_stay_with_the_operator() {
        let hits = |x_scale: &str, w_scale: &str, y_scale: &str| {
            let conv = format!(
                "input %x: u8[1,1,2,2] input %w: i8[2,1,1,1] const %xs: f32[] = {x_scale} const %xz: u8[] = 0 \
                 const %ws: f32[2] = [0.5, {w_scale}] const %wz: i8[2] = [0, 0] const %ys: f32[] = {y_scale} \
                 const %yz: u8[] = 0 %y: u8[1,2,2,2] = QLinearConv(%x, %xs, %xz, %w, %ws, %wz, %ys, %yz) output %y"
            );
            let product = format!(
                "input %x: u8[3,2] input %w: i8[2,2] const %xs: f32[] = {x_scale} const %xz: u8[] = 0 \
                 const %ws: f32[2] = [0.5, {w_scale}] const %wz: i8[2] = [0, 0] const %ys: f32[] = {y_scale} \
                 const %yz: u8[] = 0 %y: u8[3,2] = QLinearMatMul(%x, %xs, %xz, %w, %ws, %wz, %ys, %yz) output %y"
            );
            [conv, product].map(|text| {
                let (_, report) = run(Pass::rule(SPELL_QLINEAR), &text);
                assert_eq!(report.hits + report.refusals.len(), 1);
                report.hits
            })
        };
        assert_eq!(hits("0.25", "0.5", "1"), [1, 1]);
        // 0 times infinity would be no number, where the operator gives its zero point.
        assert_eq!(hits("3e38", "0.5", "1"), [0, 0]);
        assert_eq!(hits("-3e38", "0.5", "1"), [0, 0]);
        assert_eq!(hits("0.25", "3e38", "1"), [0, 0]);
        assert_eq!(hits("9e13", "9e13", "1"), [1, 1]);
        // The quotient counts, and a product that is nearly 0 in f32 has lost its digits.
        assert_eq!(hits("1e-25", "1e-20", "1e-40"), [0, 0]);
        assert_eq!(hits("1e-25", "1e-20", "1e-25"), [1, 1]);
        assert_eq!(hits("0", "0", "0"), [1, 1]);
    }

    #[test]
    fn random_convolutions_agree() {
        let scales = "const %xs: f32[] = 0.0173 const %ys: f32[] = 0.31 const %ws: f32[] = 0.0071";
        same_integers(&format!(
            "input %x: u8[2,3,5,4] input %w: u8[4,3,3,2] const %xz: u8[] = 121 const %wz: u8[] = 130 {scales} \
             const %yz: u8[] = 119 %y: u8[2,4,5,3] = QLinearConv(%x, %xs, %xz, %w, %ws, %wz, %ys, %yz) \
             {{pads=[1,0,1,0]}} output %y"
        ));
        same_integers(&format!(
            "input %x: i8[1,4,6,6] input %w: i8[4,2,3,3] const %b: i32[4] = [500, -3000, 70, 0] {scales} \
             const %s: f32[4] = [0.01, 0.002, 0.007, 0.05] const %xz: i8[] = -7 const %wz: i8[4] = [0, 1, 2, -3] \
             const %yz: i8[] = 5 %y: i8[1,4,2,2] = QLinearConv(%x, %xs, %xz, %w, %s, %wz, %ys, %yz, %b) \
             {{group=2, strides=[2,2]}} output %y"
        ));
        // Without zero points the result has the type of the input.
        same_integers(&format!(
            "input %x: i8[1,2,9] input %w: i8[3,2,2] {scales} \
             %y: i8[1,3,8] = QLinearConv(%x, %xs, _, %w, %ws, _, %ys) output %y"
        ));
    }

    #[test]
    fn random_products_agree() {
        same_integers(
            "input %a: u8[2,5,7] input %b: i8[7,3] const %as: f32[] = 0.013 const %bs: f32[3] = [0.02, 0.003, 0.011] \
             const %ys: f32[] = 0.5 const %az: u8[] = 99 const %bz: i8[3] = [0, -4, 9] const %yz: u8[] = 130 \
             %y: u8[2,5,3] = QLinearMatMul(%a, %as, %az, %b, %bs, %bz, %ys, %yz) output %y",
        );
        same_integers(
            "input %a: i8[4,6] input %b: i8[6,3] const %as: f32[4] = [0.1, 0.02, 0.05, 0.3] const %bs: f32[] = 0.02 \
             const %ys: f32[] = 1.3 const %az: i8[4] = [0, 1, 2, 3] const %bz: i8[] = 0 const %yz: i8[] = -3 \
             %y: i8[4,3] = QLinearMatMul(%a, %as, %az, %b, %bs, %bz, %ys, %yz) output %y",
        );
    }

    #[test]
    fn what_has_no_spelling_stays() {
        check(
            SPELL_QLINEAR,
            "input %a: u8[2,5,7] input %b: i8[7,3] const %as: f32[1,5,1] = [1, 2, 3, 4, 5] const %bs: f32[] = 1 \
             const %ys: f32[] = 1 const %az: u8[1,5,1] = [1, 2, 3, 4, 5] const %bz: i8[] = 0 const %yz: u8[] = 0 \
             %y: u8[2,5,3] = QLinearMatMul(%a, %as, %az, %b, %bs, %bz, %ys, %yz) \"m\" output %y",
            expect![[r#"
                input %a: u8[2,5,7]
                input %b: i8[7,3]
                const %as: f32[1,5,1] = [1, 2, 3, 4, 5]
                const %bs: f32[] = 1
                const %ys: f32[] = 1
                const %az: u8[1,5,1] = [1, 2, 3, 4, 5]
                const %bz: i8[] = 0
                const %yz: u8[] = 0
                %y: u8[2,5,3] = QLinearMatMul(%a, %as, %az, %b, %bs, %bz, %ys, %yz) "m"
                output %y
                refused at m: scales of several axes have no spelling by DequantizeLinear
            "#]],
        );
        check(
            SPELL_QLINEAR,
            "input %x: u8[1,1,2] input %b: i32[1] const %s: f32[] = 1 const %z: u8[] = 0 input %w: u8[1,1,1] \
             %y: u8[1,1,2] = QLinearConv(%x, %s, %z, %w, %s, %z, %s, %z, %b) \"c\" output %y",
            expect![[r#"
                input %x: u8[1,1,2]
                input %b: i32[1]
                input %w: u8[1,1,1]
                const %s: f32[] = 1
                const %z: u8[] = 0
                %y: u8[1,1,2] = QLinearConv(%x, %s, %z, %w, %s, %z, %s, %z, %b) "c"
                output %y
                refused at c: the bias or a scale is not constant
            "#]],
        );
    }
}
