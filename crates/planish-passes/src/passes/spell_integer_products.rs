//! Spells MatMulInteger and ConvInteger whose sums become floats as what they mean: a product of dequantized factors.
//!
//! Models that are quantized while they run (ONNX Runtime's dynamic quantization) have DynamicQuantizeLinear, an integer
//! product, a Cast, and a Mul by both scales. Spelled as DequantizeLinear and MatMul or Conv, with the scale and zero point
//! that a node makes, they take the kernels of all other quantized layers. Results differ by roundings of f32: the operators
//! round the exact sum once, the product rounds each factor.

use planish_ir::{Node, NodeId, ValueId};
use planish_op::{Add, Cast, CastRounding, DequantizeLinear, MatMul, Mul, Op, Reshape};
use planish_tensor::{DType, Tensor};

use crate::pattern::{Finder, Found, Miss, blocked, output, relying_on, two_inputs};
use crate::quantization::{can_be_multiplied, conv_of_numbers, is_int8};
use crate::rule::{Operand, Patch};
use crate::view::View;

/// MatMulInteger and ConvInteger.
pub(crate) const SPELL_INTEGER_PRODUCTS: Finder = Finder { name: "spell_integer_products", find };

/// What follows the sums of an integer product.
struct Chain {
    /// The nodes from the product up to the one whose value is replaced.
    nodes: Vec<NodeId>,
    /// What is added to the sums, in `i32`.
    bias: Option<ValueId>,
    /// What the sums are multiplied by once they are floats, and its factors: of the first operand and of the second.
    scale: Option<(ValueId, Scales)>,
    /// The value that the whole amounts to.
    result: ValueId,
}

/// The scales of both factors.
struct Scales {
    first: ValueId,
    second: ValueId,
}

fn find(cx: &View<'_>, id: NodeId) -> Found<Patch> {
    let node = cx.node(id);
    let channel_axis = match &node.op {
        Op::MatMulInteger(_) => -1,
        Op::ConvInteger(_) => 0,
        _ => return Err(Miss::No),
    };
    let sums = output(node)?;
    let mut chain = Chain::after(cx, id, node, sums)?;
    let (Some(a), Some(b)) = (cx.input(node, 0), cx.input(node, 1)) else { return Err(Miss::No) };
    if ![a, b].iter().all(|factor| is_int8(cx.dtype(*factor))) {
        return blocked("its factors are not integers of 8 bits");
    }
    let mut patch = Patch::new();
    let one = patch.constant(&format!("{}.one", node.name), Tensor::scalar(1f32));
    let scales = chain.scale.as_ref().map(|(_, scales)| scales);
    if scales.is_some_and(|scales| ![scales.first, scales.second].iter().all(|s| can_be_multiplied(cx, *s))) {
        return blocked("products by its scales leave f32");
    }
    let first =
        Factor { integers: a, scale: scales.map(|scales| scales.first), zero_point: cx.input(node, 2) };
    let second =
        Factor { integers: b, scale: scales.map(|scales| scales.second), zero_point: cx.input(node, 3) };
    if !first.zero_point.is_none_or(|zero| is_single(cx, zero)) {
        return blocked("its first factor has several zero points");
    }
    let first = first.dequantized(cx, &mut patch, one, None)?;
    let second = second.dequantized(cx, &mut patch, one, Some(channel_axis))?;
    let name = &*node.name;
    let scale = chain.scale.as_ref().map(|(scale, _)| *scale);
    let product = match &node.op {
        Op::ConvInteger(op) => {
            let op = conv_of_numbers(op.window(), op.group);
            let n_channels = cx.fixed_shape(b).and_then(|shape| shape.first().copied());
            let is_own = |bias: &ValueId| {
                let fits = n_channels
                    .zip(cx.rank(sums))
                    .is_some_and(|(n, rank)| follows_channels(cx, *bias, n, rank));
                fits && scale.is_none_or(|scale| is_single(cx, scale))
            };
            let mut inputs = vec![first, second];
            // What would be added to the result is the bias of the convolution.
            if let (Some(bias), Some(n)) = (chain.bias.take_if(|bias| is_own(bias)), n_channels) {
                let bias = reshaped(&mut patch, &format!("{name}.bias"), bias.into(), &[n]);
                inputs.push(bias_in_floats(&mut patch, name, bias, scale));
            }
            patch.node(name, op, &inputs)
        }
        _ => patch.node(name, MatMul {}, &[first, second]),
    };
    patch.has_shape_of(cx, product, DType::F32, sums);
    let result = match chain.bias {
        None => product,
        Some(bias) => {
            let bias = bias_in_floats(&mut patch, name, bias.into(), scale);
            patch.node(&format!("{name}.sum"), Add {}, &[product, bias])
        }
    };
    patch.replace(chain.result, result);
    Ok(relying_on(patch, &chain.nodes))
}

impl Chain {
    /// Reads on from the sums: perhaps an addition of integers, a Cast to f32, perhaps a product with the scales.
    fn after(cx: &View<'_>, id: NodeId, node: &Node, sums: ValueId) -> Found<Chain> {
        let as_integers = || blocked("its sums are read as integers");
        let mut chain = Chain { nodes: vec![id], bias: None, scale: None, result: sums };
        let Some((mut next, mut reader)) = cx.sole_reader(sums) else { return as_integers() };
        if let (Op::Add(_), Some(pair)) = (&reader.op, two_inputs(reader)) {
            chain.bias = pair.into_iter().find(|value| *value != sums);
            chain.result = output(reader)?;
            chain.nodes.push(next);
            let Some(after) = cx.sole_reader(chain.result) else { return as_integers() };
            (next, reader) = after;
        }
        let to_floats = matches!(&reader.op, Op::Cast(cast) if cast.to == DType::F32);
        if !to_floats || chain.bias == Some(chain.result) {
            return as_integers();
        }
        chain.result = output(reader)?;
        chain.nodes.push(next);
        if let Some((next, reader)) = cx.sole_reader(chain.result)
            && let (Op::Mul(_), Some(pair)) = (&reader.op, two_inputs(reader))
            && let Some(scale) = pair.into_iter().find(|value| *value != chain.result)
            && let Some(scales) = scales(cx, node, scale)
        {
            chain.scale = Some((scale, scales));
            chain.result = output(reader)?;
            chain.nodes.push(next);
        }
        Ok(chain)
    }
}

/// The factors of a scale: one number for the first operand, and one or some for the second.
fn scales(cx: &View<'_>, node: &Node, scale: ValueId) -> Option<Scales> {
    let (_, product) = cx.producer(scale).filter(|(_, node)| matches!(node.op, Op::Mul(_)))?;
    let [a, b] = two_inputs(product)?;
    let is_float = |value: ValueId| cx.dtype(value) == Some(DType::F32);
    if !is_float(a) || !is_float(b) {
        return None;
    }
    // One made with the integers of an operand is that operand's; constants are the weights'.
    let made_with = |value: ValueId, place: usize| {
        let maker = cx.input(node, place).and_then(|integers| cx.producer(integers));
        maker.is_some_and(|(_, maker)| maker.outputs.contains(&Some(value)))
    };
    let belongs = |first: ValueId, second: ValueId| {
        is_single(cx, first) && (made_with(first, 0) || made_with(second, 1) || cx.constant(second).is_some())
    };
    if belongs(a, b) {
        Some(Scales { first: a, second: b })
    } else {
        belongs(b, a).then_some(Scales { first: b, second: a })
    }
}

fn is_single(cx: &View<'_>, value: ValueId) -> bool {
    cx.fixed_shape(value).is_some_and(|shape| shape.iter().product::<usize>() == 1)
}

/// One factor of a product of integers.
struct Factor {
    integers: ValueId,
    /// 1 where there is none.
    scale: Option<ValueId>,
    zero_point: Option<ValueId>,
}

impl Factor {
    /// Adds its DequantizeLinear. Several scales or zero points lie along `axis`, if there is one.
    fn dequantized(
        self,
        cx: &View<'_>,
        patch: &mut Patch,
        one: Operand,
        axis: Option<i64>,
    ) -> Found<Operand> {
        let name = cx.name(self.integers);
        let n_scales = self.scale.map_or(Some(1), |scale| length(cx, scale));
        let n_zeros = self.zero_point.map_or(Some(1), |zero| length(cx, zero));
        let (Some(n_scales), Some(n_zeros)) = (n_scales, n_zeros) else {
            return blocked("how many scales or zero points there are is not known");
        };
        let n = n_scales.max(n_zeros);
        let shape = cx.fixed_shape(self.integers);
        let axis = match (axis, shape, cx.rank(self.integers)) {
            _ if n == 1 => 0,
            (Some(axis), Some(shape), Some(rank)) if rank > 0 => {
                let axis = if axis < 0 { axis + rank as i64 } else { axis };
                match shape.get(axis as usize) {
                    Some(&size) if size == n => axis,
                    _ => return blocked("its scales or zero points do not follow the output channels"),
                }
            }
            _ => return blocked("its scales or zero points do not follow the output channels"),
        };
        let scale = match self.scale {
            None if n == 1 => one,
            None => patch.constant(&format!("{name}.scale"), Tensor::vector(vec![1f32; n])),
            Some(scale) => repeated(cx, patch, scale, n)?,
        };
        let mut inputs = vec![Operand::Old(self.integers), scale];
        if let Some(zero) = self.zero_point {
            inputs.push(repeated(cx, patch, zero, n)?);
        }
        let op = DequantizeLinear { output_dtype: None, block_size: 0, axis };
        let numbers = patch.node(&format!("{name}.dequantize"), op, &inputs);
        patch.has_shape_of(cx, numbers, DType::F32, self.integers);
        Ok(numbers)
    }
}

/// How many elements there are.
fn length(cx: &View<'_>, value: ValueId) -> Option<usize> {
    Some(cx.fixed_shape(value)?.iter().product())
}

/// A scale or zero point as DequantizeLinear takes it: a scalar, or a vector of `n`.
fn repeated(cx: &View<'_>, patch: &mut Patch, value: ValueId, n: usize) -> Found<Operand> {
    let wanted: Vec<usize> = if n == 1 { Vec::new() } else { vec![n] };
    if cx.fixed_shape(value).as_ref() == Some(&wanted) {
        return Ok(value.into());
    }
    match cx.constant(value) {
        Some(tensor) => {
            let values = tensor.to_f64s();
            let values: Vec<f64> = (0..n).map(|idx| values[idx % values.len()]).collect();
            let tensor = Tensor::from_f64s(tensor.dtype(), &wanted, &values).map_err(|_| Miss::No)?;
            Ok(patch.constant(cx.name(value), tensor))
        }
        None if length(cx, value) == Some(n) => Ok(reshaped(patch, cx.name(value), value.into(), &wanted)),
        None => blocked("its scales and zero points are not as many"),
    }
}

/// Adds a Reshape to a fixed shape.
fn reshaped(patch: &mut Patch, name: &str, x: Operand, shape: &[usize]) -> Operand {
    let sizes = shape.iter().map(|size| *size as i64).collect();
    let sizes = patch.constant(&format!("{name}.shape"), Tensor::vector(sizes));
    patch.node(&format!("{name}.reshape"), Reshape { allowzero: false }, &[x, sizes])
}

/// Whether a value has one number for each of `n` channels of a result of this rank, whose second axis they are.
fn follows_channels(cx: &View<'_>, value: ValueId, n: usize, rank: usize) -> bool {
    let Some(shape) = cx.fixed_shape(value).filter(|shape| shape.len() <= rank) else { return false };
    let axis = |at: usize| (at + shape.len()).checked_sub(rank).map_or(1, |at| shape[at]);
    (0..rank).all(|at| axis(at) == if at == 1 { n } else { 1 })
}

/// Adds integers that are added to the sums as floats.
fn bias_in_floats(patch: &mut Patch, name: &str, bias: Operand, scale: Option<ValueId>) -> Operand {
    let cast = Cast { round_mode: CastRounding::Up, saturate: true, to: DType::F32 };
    let numbers = patch.node(&format!("{name}.bias"), cast, &[bias]);
    match scale {
        None => numbers,
        Some(scale) => patch.node(&format!("{name}.scaled_bias"), Mul {}, &[numbers, scale.into()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check, check_same};
    use expect_test::expect;

    #[test]
    fn products_quantized_at_run_time() {
        check_same(
            SPELL_INTEGER_PRODUCTS,
            "input %x: f32[3,4] const %w: i8[4,2] = [1, -2, 3, 4, -5, 6, 7, -8] const %wz: i8[] = 0 \
             const %ws: f32[] = 0.5 %q: u8[3,4], %s: f32[], %z: u8[] = DynamicQuantizeLinear(%x) \"q\" \
             %p: i32[3,2] = MatMulInteger(%q, %w, %z, %wz) \"p\" %c: f32[3,2] = Cast(%p) {to=f32} \"c\" \
             %t: f32[] = Mul(%s, %ws) \"t\" %y: f32[3,2] = Mul(%c, %t) \"y\" output %y",
            expect![[r#"
                input %x: f32[3,4]
                const %w: i8[4,2] = [1, -2, 3, 4, -5, 6, 7, -8]
                const %wz: i8[] = 0
                const %ws: f32[] = 0.5
                %q: u8[3,4], %s: f32[], %z: u8[] = DynamicQuantizeLinear(%x) "q"
                %q.dequantize: f32[3,4] = DequantizeLinear(%q, %s, %z) {axis=0} "q.dequantize"
                %w.dequantize: f32[4,2] = DequantizeLinear(%w, %ws, %wz) {axis=0} "w.dequantize"
                %y: f32[3,2] = MatMul(%q.dequantize, %w.dequantize) "p"
                output %y
            "#]],
        );
    }

    #[test]
    fn zero_points_of_weights_and_scales_by_column() {
        check_same(
            SPELL_INTEGER_PRODUCTS,
            "input %x: f32[3,4] const %w: u8[4,2] = [1, 2, 3, 4, 5, 6, 7, 200] const %wz: u8[] = 120 \
             const %ws: f32[2] = [0.5, 0.25] %q: u8[3,4], %s: f32[], %z: u8[] = DynamicQuantizeLinear(%x) \"q\" \
             %p: i32[3,2] = MatMulInteger(%q, %w, %z, %wz) \"p\" %c: f32[3,2] = Cast(%p) {to=f32} \"c\" \
             %t: f32[2] = Mul(%ws, %s) \"t\" %y: f32[3,2] = Mul(%t, %c) \"y\" output %y",
            expect![[r#"
                input %x: f32[3,4]
                const %w: u8[4,2] = [1, 2, 3, 4, 5, 6, 7, 200]
                const %ws: f32[2] = [0.5, 0.25]
                const %wz: u8[2] = [120, 120]
                %q: u8[3,4], %s: f32[], %z: u8[] = DynamicQuantizeLinear(%x) "q"
                %q.dequantize: f32[3,4] = DequantizeLinear(%q, %s, %z) {axis=0} "q.dequantize"
                %w.dequantize: f32[4,2] = DequantizeLinear(%w, %ws, %wz) "w.dequantize"
                %y: f32[3,2] = MatMul(%q.dequantize, %w.dequantize) "p"
                output %y
            "#]],
        );
    }

    #[test]
    fn products_of_two_activations() {
        check_same(
            SPELL_INTEGER_PRODUCTS,
            "input %a: f32[2,3,4] input %b: f32[2,4,5] \
             %qa: u8[2,3,4], %sa: f32[], %za: u8[] = DynamicQuantizeLinear(%a) \"qa\" \
             %qb: u8[2,4,5], %sb: f32[], %zb: u8[] = DynamicQuantizeLinear(%b) \"qb\" \
             %p: i32[2,3,5] = MatMulInteger(%qa, %qb, %za, %zb) \"p\" %c: f32[2,3,5] = Cast(%p) {to=f32} \"c\" \
             %t: f32[] = Mul(%sb, %sa) \"t\" %y: f32[2,3,5] = Mul(%c, %t) \"y\" output %y",
            expect![[r#"
                input %a: f32[2,3,4]
                input %b: f32[2,4,5]
                %qa: u8[2,3,4], %sa: f32[], %za: u8[] = DynamicQuantizeLinear(%a) "qa"
                %qb: u8[2,4,5], %sb: f32[], %zb: u8[] = DynamicQuantizeLinear(%b) "qb"
                %qa.dequantize: f32[2,3,4] = DequantizeLinear(%qa, %sa, %za) {axis=0} "qa.dequantize"
                %qb.dequantize: f32[2,4,5] = DequantizeLinear(%qb, %sb, %zb) {axis=0} "qb.dequantize"
                %y: f32[2,3,5] = MatMul(%qa.dequantize, %qb.dequantize) "p"
                output %y
            "#]],
        );
    }

    #[test]
    fn convolutions_with_an_integer_bias() {
        check_same(
            SPELL_INTEGER_PRODUCTS,
            "input %x: f32[1,1,3,3] const %w: u8[2,1,2,2] = [1, 2, 3, 4, 5, 6, 7, 8] const %wz: u8[] = 3 \
             const %ws: f32[1] = 0.5 const %b: i32[1,2,1,1] = [10, -20] \
             %q: u8[1,1,3,3], %s: f32[], %z: u8[] = DynamicQuantizeLinear(%x) \"q\" \
             %p: i32[1,2,2,2] = ConvInteger(%q, %w, %z, %wz) \"p\" %a: i32[1,2,2,2] = Add(%p, %b) \"a\" \
             %c: f32[1,2,2,2] = Cast(%a) {to=f32} \"c\" %t: f32[1] = Mul(%s, %ws) \"t\" \
             %y: f32[1,2,2,2] = Mul(%c, %t) \"y\" output %y",
            expect![[r#"
                input %x: f32[1,1,3,3]
                const %w: u8[2,1,2,2] = [1, 2, 3, 4, 5, 6, 7, 8]
                const %wz: u8[] = 3
                const %ws: f32[1] = [0.5]
                const %b: i32[1,2,1,1] = [10, -20]
                const %ws.1: f32[] = 0.5
                const %p.bias.shape: i64[1] = [2]
                %q: u8[1,1,3,3], %s: f32[], %z: u8[] = DynamicQuantizeLinear(%x) "q"
                %q.dequantize: f32[1,1,3,3] = DequantizeLinear(%q, %s, %z) {axis=0} "q.dequantize"
                %w.dequantize: f32[2,1,2,2] = DequantizeLinear(%w, %ws.1, %wz) {axis=0} "w.dequantize"
                %p.bias.reshape: i32[2] = Reshape(%b, %p.bias.shape) "p.bias.reshape"
                %p.bias: f32[2] = Cast(%p.bias.reshape) {to=f32} "p.bias"
                %t: f32[1] = Mul(%s, %ws) "t"
                %p.scaled_bias: f32[2] = Mul(%p.bias, %t) "p.scaled_bias"
                %y: f32[1,2,2,2] = Conv(%q.dequantize, %w.dequantize, %p.scaled_bias) "p"
                output %y
            "#]],
        );
    }

    #[test]
    fn without_scales_the_sums_themselves() {
        check_same(
            SPELL_INTEGER_PRODUCTS,
            "input %x: i8[3,4] input %w: i8[4,2] %p: i32[3,2] = MatMulInteger(%x, %w) \"p\" \
             %y: f32[3,2] = Cast(%p) {to=f32} \"y\" output %y",
            expect![[r#"
                input %x: i8[3,4]
                input %w: i8[4,2]
                const %p.one: f32[] = 1
                %x.dequantize: f32[3,4] = DequantizeLinear(%x, %p.one) {axis=0} "x.dequantize"
                %w.dequantize: f32[4,2] = DequantizeLinear(%w, %p.one) {axis=0} "w.dequantize"
                %y: f32[3,2] = MatMul(%x.dequantize, %w.dequantize) "p"
                output %y
            "#]],
        );
    }

    #[test]
    fn sums_that_are_read_as_integers_stay() {
        check(
            SPELL_INTEGER_PRODUCTS,
            "input %x: i8[3,4] input %w: i8[4,2] %p: i32[3,2] = MatMulInteger(%x, %w) \"p\" \
             %y: f32[3,2] = Cast(%p) {to=f32} \"y\" output %y, %p",
            expect![[r#"
                input %x: i8[3,4]
                input %w: i8[4,2]
                %p: i32[3,2] = MatMulInteger(%x, %w) "p"
                %y: f32[3,2] = Cast(%p) {to=f32} "y"
                output %y, %p
                refused at p: its sums are read as integers
            "#]],
        );
        check(
            SPELL_INTEGER_PRODUCTS,
            "input %x: i8[3,4] input %w: i8[4,2] const %z: i8[3] = [1, 2, 3] \
             %p: i32[3,2] = MatMulInteger(%x, %w, %z) \"p\" %y: f32[3,2] = Cast(%p) {to=f32} \"y\" output %y",
            expect![[r#"
                input %x: i8[3,4]
                input %w: i8[4,2]
                const %z: i8[3] = [1, 2, 3]
                %p: i32[3,2] = MatMulInteger(%x, %w, %z) "p"
                %y: f32[3,2] = Cast(%p) {to=f32} "y"
                output %y
                refused at p: its first factor has several zero points
            "#]],
        );
    }
}
