//! Has activations in the one 8-bit type that a device multiplies: `u8` for the CPU, `i8` for CUDA.
//!
//! An integer and its zero point grow or shrink by 128 together, so every number stays what it is, bit for bit. A value
//! is renamed with all that it is moved into, from QuantizeLinear to DequantizeLinear; where something else reads or
//! makes the integers, or they are inputs or outputs of the graph, they stay. Weights of products become `i8`.

use std::collections::HashMap;

use planish_ir::{Node, NodeId, ValueId};
use planish_op::Op;
use planish_tensor::{DType, Tensor};

use crate::pattern::{Finder, Found, Miss, output};
use crate::quantization::{Quantization, ends, is_int8, is_product, moved_inputs};
use crate::rule::{Match, Operand, Patch, Proposals, Sweep};
use crate::view::View;

/// Activations of the other 8-bit type than this one.
pub(crate) struct ChooseSignedness {
    pub(crate) to: DType,
}

impl Sweep for ChooseSignedness {
    fn name(&self) -> &'static str {
        "choose_signedness"
    }

    fn propose(&self, cx: &View<'_>, proposals: &mut Proposals) {
        let mut is_seen = vec![false; cx.graph().values().len()];
        for (id, node) in cx.graph().nodes() {
            let is_other = |from: &Quantization| is_int8(Some(from.dtype)) && from.dtype != self.to;
            let Some(from) = Quantization::by_quantize(cx, node).filter(is_other) else {
                continue;
            };
            let Some(&Some(start)) = node.outputs.first() else { continue };
            if is_seen[start.index()] {
                continue;
            }
            let values = connected(cx, start);
            values.iter().for_each(|value| is_seen[value.index()] = true);
            match self.renamed(cx, &values, from.dtype) {
                Ok(patch) => proposals.add(id, Match::Rewrite(patch)),
                Err(reason) => proposals.add(id, Match::blocked(reason)),
            }
        }
    }
}

/// The inputs that a node moves into its outputs as they are.
fn moved(node: &Node) -> Option<std::ops::Range<usize>> {
    if matches!(node.op, Op::Split(_)) { Some(0..1) } else { moved_inputs(node) }
}

/// All integers that are moved into or out of each other with these, in order of their makers.
fn connected(cx: &View<'_>, start: ValueId) -> Vec<ValueId> {
    let mut values = vec![start];
    let mut next = 0;
    while let Some(&value) = values.get(next) {
        next += 1;
        let around = cx.readers(value).iter().copied().chain(cx.producer(value).map(|(id, _)| id));
        for (id, node) in around.map(|id| (id, cx.node(id))) {
            let Some(moved) = moved(node) else { continue };
            let ends = node.outputs.iter().flatten().copied();
            let found = ends.chain(moved.filter_map(|place| cx.input(cx.node(id), place)));
            for value in found {
                if !values.contains(&value) {
                    values.push(value);
                }
            }
        }
    }
    values.sort_unstable_by_key(|value| (cx.producer(*value).map(|(id, _)| id.index()), value.index()));
    values
}

impl ChooseSignedness {
    /// The values by the other type, from QuantizeLinear to DequantizeLinear; an error says why they stay.
    fn renamed(&self, cx: &View<'_>, values: &[ValueId], from: DType) -> Result<Patch, String> {
        let mut patch = Patch::new();
        let mut new: HashMap<ValueId, Operand> = HashMap::new();
        let shift = ends(self.to)[0] - ends(from)[0];
        for &value in values {
            if cx.is_output(value) {
                return Err(format!("`{}` is an output of the graph", cx.name(value)));
            }
            if let Some(tensor) = cx.constant(value) {
                let shifted = shifted(tensor, shift, self.to).ok_or("a constant part cannot be renamed")?;
                new.insert(value, patch.constant(cx.name(value), shifted));
                continue;
            }
            let Some((id, node)) = cx.producer(value) else {
                return Err(format!("`{}` is an input of the graph", cx.name(value)));
            };
            let made = match (Quantization::by_quantize(cx, node), moved(node)) {
                (Some(by), _) => {
                    let x = cx.input(node, 0).ok_or("it reads nothing")?;
                    by.renamed(self.to).quantize(&mut patch, &node.name, x.into())
                }
                // The other parts of a Split come with the first.
                (None, Some(_)) if new.contains_key(&value) => continue,
                (None, Some(moved)) => {
                    let mut inputs: Vec<Option<Operand>> =
                        node.inputs.iter().map(|id| id.map(Operand::Old)).collect();
                    for place in moved {
                        inputs[place] = cx.input(node, place).and_then(|id| new.get(&id)).copied();
                    }
                    if let (Op::Pad(_), Some(Some(_))) = (&node.op, node.inputs.get(2)) {
                        let tensor = cx.constant_input(node, 2).ok_or("its padding is not constant")?;
                        let shifted =
                            shifted(tensor, shift, self.to).ok_or("its padding cannot be renamed")?;
                        inputs[2] = Some(patch.constant(&format!("{}.padding", node.name), shifted));
                    } else if matches!(node.op, Op::Pad(_)) {
                        return Err("it pads with the integer 0".to_string());
                    }
                    let made = patch.node_with(&node.name, node.op.clone(), inputs, node.outputs.len());
                    for (old, &made) in node.outputs.iter().zip(&made) {
                        let Some(old) = *old else { continue };
                        patch.has_shape_of(cx, made, self.to, old);
                        new.insert(old, made);
                    }
                    patch.relies_on(id);
                    continue;
                }
                (None, None) => {
                    return Err(format!("`{}` ({}) makes `{}`", node.name, node.op.name(), cx.name(value)));
                }
            };
            patch.relies_on(id);
            patch.has_shape_of(cx, made, self.to, value);
            new.insert(value, made);
        }
        for &value in values {
            for &reader in cx.readers(value) {
                let node = cx.node(reader);
                match (Quantization::by_dequantize(cx, node), moved(node)) {
                    (Some(by), _) => {
                        let (Some(&x), Some(&Some(old))) = (new.get(&value), node.outputs.first()) else {
                            continue;
                        };
                        let numbers = by.renamed(self.to).dequantize(&mut patch, &node.name, x);
                        patch.replace(old, numbers);
                    }
                    (None, Some(_)) => {}
                    (None, None) => {
                        return Err(format!(
                            "`{}` ({}) reads `{}`",
                            node.name,
                            node.op.name(),
                            cx.name(value)
                        ));
                    }
                }
            }
        }
        Ok(patch)
    }
}

/// A tensor of integers of at most 8 bits by the type of the same width with or without a sign.
fn shifted(tensor: &Tensor, shift: i64, to: DType) -> Option<Tensor> {
    let codes = tensor.codes().ok()?.iter().map(|code| code.wrapping_add(shift as u8)).collect();
    Tensor::from_codes(to, tensor.shape(), codes).ok()
}

/// Weights in `u8` and `u4`.
pub(crate) const SIGN_WEIGHTS: Finder = Finder { name: "sign_weights", find };

fn find(cx: &View<'_>, id: NodeId) -> Found<Patch> {
    let node = cx.node(id);
    let (Op::DequantizeLinear(op), result) = (&node.op, output(node)?) else { return Err(Miss::No) };
    let is_weights = |reader: &NodeId| {
        let reader: &Node = cx.node(*reader);
        let places = match reader.op {
            Op::LSTM(_) | Op::GRU(_) => 1..3,
            _ => 1..2 * usize::from(is_product(&reader.op)),
        };
        places.into_iter().any(|place| cx.input(reader, place) == Some(result))
    };
    let Some(weights) = cx.input(node, 0) else { return Err(Miss::No) };
    let (from, to, shift) = match cx.dtype(weights) {
        Some(DType::U8) => (DType::U8, DType::I8, -128),
        Some(DType::U4) => (DType::U4, DType::I4, -8),
        _ => return Err(Miss::No),
    };
    let (Some(tensor), Some(scale)) = (cx.constant(weights), cx.constant_input(node, 1)) else {
        return Err(Miss::No);
    };
    if !cx.readers(result).iter().any(is_weights) {
        return Err(Miss::No);
    }
    let zero_points = match cx.input(node, 2) {
        Some(id) => cx.constant(id).cloned(),
        None => Tensor::zeros(from, scale.shape()).ok(),
    };
    let signed = |tensor: &Tensor| shifted(tensor, shift, to).ok_or(Miss::No);
    let mut patch = Patch::new();
    let integers = patch.constant(cx.name(weights), signed(tensor)?);
    let zero_points = signed(&zero_points.ok_or(Miss::No)?)?;
    let zero_points = patch.constant(&format!("{}.zero_point", cx.name(weights)), zero_points);
    let Some(scale) = cx.input(node, 1) else { return Err(Miss::No) };
    let numbers = patch.node(&node.name, op.clone(), &[integers, scale.into(), zero_points]);
    patch.replace(result, numbers);
    Ok(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{PLAIN, agrees};
    use crate::driver::Pass;
    use crate::testing::{assert_same_outputs, check_pass, graph, run};
    use expect_test::expect;

    const GIVEN: &str = "const %s: f32[] = 0.5 const %z: i8[] = 3 const %u: u8[] = 3 \
        const %pads: i64[2] = [1, 0] const %low: i8[] = -128";

    fn unsigned() -> Pass {
        Pass::sweep(ChooseSignedness { to: DType::U8 })
    }

    #[test]
    fn integers_are_renamed_from_one_end_to_the_other() {
        let text = format!(
            "input %x: f32[4] {GIVEN} %q: i8[4] = QuantizeLinear(%x, %s, %z) \"q\" \
             %p: i8[5] = Pad(%q, %pads, %low) \"p\" %a: f32[5] = DequantizeLinear(%p, %s, %z) \"a\" \
             %b: f32[4] = DequantizeLinear(%q, %s, %z) \"b\" output %a, %b"
        );
        check_pass(
            unsigned(),
            &text,
            expect![[r#"
            input %x: f32[4]
            const %pads: i64[2] = [1, 0]
            const %q.scale: f32[] = 0.5
            const %q.zero_point: u8[] = 131
            const %p.padding: u8[] = 0
            const %b.scale: f32[] = 0.5
            const %b.zero_point: u8[] = 131
            const %a.scale: f32[] = 0.5
            const %a.zero_point: u8[] = 131
            %q: u8[4] = QuantizeLinear(%x, %q.scale, %q.zero_point) "q"
            %p: u8[5] = Pad(%q, %pads, %p.padding) "p"
            %b: f32[4] = DequantizeLinear(%q, %b.scale, %b.zero_point) "b"
            %a: f32[5] = DequantizeLinear(%p, %a.scale, %a.zero_point) "a"
            output %a, %b
        "#]],
        );
        assert_same_outputs(&graph(&text), &run(unsigned(), &text).0);
        let signed = text.replace("i8[", "u8[").replace("= -128", "= 0");
        let to_signed = || Pass::sweep(ChooseSignedness { to: DType::I8 });
        let (after, report) = run(to_signed(), &signed);
        assert_eq!(report.hits, 1);
        assert_same_outputs(&graph(&signed), &after);
    }

    #[test]
    fn parts_of_one_tensor_are_renamed_together() {
        let text = format!(
            "input %x: f32[4] input %y: f32[2] {GIVEN} %q: i8[4] = QuantizeLinear(%x, %s, %z) \"q\" \
             %r: i8[2] = QuantizeLinear(%y, %s, %z) \"r\" const %k: i8[1] = [-5] \
             %c: i8[7] = Concat(%q, %k, %r) {{axis=0}} \"c\" %a: f32[7] = DequantizeLinear(%c, %s, %z) \"a\" output %a"
        );
        let (after, report) = run(unsigned(), &text);
        assert_eq!((report.hits, report.refusals.len()), (1, 0));
        assert!(after.nodes().all(|(_, node)| {
            node.outputs
                .iter()
                .flatten()
                .all(|id| after.value(*id).ty.as_tensor().unwrap().dtype != DType::I8)
        }));
        assert_same_outputs(&graph(&text), &after);
    }

    #[test]
    fn parts_of_a_split_are_renamed_together() {
        let text = format!(
            "input %x: f32[4] {GIVEN} const %sizes: i64[2] = [1, 3] %q: i8[4] = QuantizeLinear(%x, %s, %z) \"q\" \
             %g: i8[1], %h: i8[3] = Split(%q, %sizes) {{axis=0}} \"p\" \
             %a: f32[1] = DequantizeLinear(%g, %s, %z) \"a\" %b: f32[3] = DequantizeLinear(%h, %s, %z) \"b\" \
             %c: i8[4] = Concat(%h, %g) {{axis=0}} \"c\" %d: f32[4] = DequantizeLinear(%c, %s, %z) \"d\" \
             output %a, %b, %d"
        );
        let (after, report) = run(unsigned(), &text);
        assert_eq!((report.hits, report.refusals.len()), (1, 0), "{:?}", report.refusals);
        let is_signed = |id: &ValueId| after.value(*id).ty.as_tensor().unwrap().dtype == DType::I8;
        assert!(!after.nodes().any(|(_, node)| node.outputs.iter().flatten().any(is_signed)), "{after}");
        assert_same_outputs(&graph(&text), &after);
    }

    #[test]
    fn integers_that_others_see_stay() {
        for (rest, reason) in [
            ("output %q", "`q` is an output of the graph"),
            ("%m: i8[4] = Identity(%q) \"m\" output %m", "`m` (Identity) reads `q`"),
            (
                "input %g: i8[4] %c: i8[8] = Concat(%q, %g) {axis=0} %a: f32[8] = DequantizeLinear(%c, %s, %z) output %a",
                "`g` is an input of the graph",
            ),
        ] {
            let text =
                format!("input %x: f32[4] {GIVEN} %q: i8[4] = QuantizeLinear(%x, %s, %z) \"q\" {rest}");
            let (_, report) = run(unsigned(), &text);
            let reasons: Vec<&str> = report.refusals.iter().map(|refusal| &*refusal.reason).collect();
            assert_eq!((report.hits, &reasons[..]), (0, &[reason][..]));
        }
    }

    #[test]
    fn unsigned_weights_become_signed() {
        agrees(
            SIGN_WEIGHTS,
            "input %x: f32[2,2] const %w: u8[2,3] = [1, 200, 3, 128, 0, 255] const %s: f32[3] = [1, 2, 3] \
             const %z: u8[3] = [128, 0, 255] %d: f32[2,3] = DequantizeLinear(%w, %s, %z) {axis=1} \
             %y: f32[2,3] = MatMul(%x, %d) output %y",
            PLAIN,
        );
        agrees(
            SIGN_WEIGHTS,
            "input %x: f32[2,2] const %w: u8[2,2] = [1, 200, 3, 128] const %s: f32[] = 0.5 \
             %d: f32[2,2] = DequantizeLinear(%w, %s) %y: f32[2,2] = Gemm(%x, %d) output %y",
            PLAIN,
        );
        // In blocks, of 4 bits.
        agrees(
            SIGN_WEIGHTS,
            "input %x: f32[2,4] const %w: u4[4,2] = [1, 15, 3, 8, 0, 7, 9, 2] \
             const %s: f32[2,2] = [0.5, 1, 2, 4] const %z: u4[2,2] = [8, 3, 0, 15] \
             %d: f32[4,2] = DequantizeLinear(%w, %s, %z) {axis=0, block_size=2} %y: f32[2,2] = MatMul(%x, %d) output %y",
            PLAIN,
        );
    }
}
