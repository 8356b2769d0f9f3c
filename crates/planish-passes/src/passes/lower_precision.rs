//! Computes in f16 or bf16 what can be: products, norms, pools and what lies between them.
//!
//! A node that is lowered reads its operands through casts and is read through one, so that nothing around it
//! changes; `cancel_casts` takes those away that meet. Constants are converted here, once. Names and types of the
//! graph's inputs and outputs stay as they are.
//!
//! What is lowered is a matter of the operator (`Lowering`, a column of the table), and of where its operands come
//! from:
//! - products (convolutions, matrix products, attention), norms, softmax and pools always: kernels sum and divide
//!   in f32 inside, so only what they read and write is rounded;
//! - element-wise operators and movement only where every operand is low already or comes from outside: between
//!   operators that stay in f32 they stay there too, so that an epsilon that f16 cannot hold is not lost on the way
//!   to a root;
//! - never what leaves the range of f16 or adds up many values: Exp, Pow, Log, Reciprocal, squares, sums, running
//!   sums, coordinates, anything that makes numbers from nothing.
//!
//! Products of 8 bits stay as they are; what only moves their results rounds these first, since kernels write 16 bits as
//! readily. Weights of few bits that a lowered product reads become
//! numbers of the lower type at once: their scales are stored in it where it can hold them. A constant that the type
//! cannot hold (too large, or so small that its bits are lost) keeps its node in f32, but for biases that are too small:
//! weights before training have such. Where a calibration has seen how far values reach, what reads or makes one that half
//! of the type's range does not hold stays in f32.

use std::collections::{HashMap, HashSet};

use planish_ir::{Node, NodeId, ValueId};
use planish_op::{Cast, Lowering, Op};
use planish_tensor::{DType, Tensor};

use crate::names::matches;
use crate::passes::quantize_layers::ActivationRange;
use crate::pattern::{cast, made_by};
use crate::quantization::{multiplies_integers, weighs_integers};
use crate::rounding::{Small, rounded};
use crate::rule::{Match, Operand, Patch, Proposals, Sweep};
use crate::view::View;

/// Moves of a constant one after another that are looked through.
const MAX_MOVES: usize = 8;

/// Lowers nodes to a type of 16 bits, but for those with a name that a pattern matches.
pub(crate) struct LowerPrecision {
    pub(crate) to: DType,
    /// Patterns of names with `*` for any letters and `?` for one.
    pub(crate) pins: Vec<String>,
    /// What is known of values, by name.
    pub(crate) ranges: HashMap<String, ActivationRange>,
}

/// The part of the type's range that values of a calibration must stay within: others may reach further.
const KEPT: f32 = 0.5;

impl Sweep for LowerPrecision {
    fn name(&self) -> &'static str {
        "lower_precision"
    }

    fn propose(&self, cx: &View<'_>, proposals: &mut Proposals) {
        // Values that are low, or will be once the patches are in.
        let mut low: HashSet<ValueId> = HashSet::new();
        for (id, node) in cx.graph().nodes() {
            if let Op::Cast(Cast { to: DType::F32, .. }) = node.op
                && let (Some(from), Some(&Some(output))) = (cx.input(node, 0), node.outputs.first())
                && cx.dtype(from) == Some(self.to)
            {
                low.insert(output);
                continue;
            }
            match self.lowered(cx, id, node, &low) {
                Ok(Some(patch)) => {
                    low.extend(node.outputs.iter().flatten().filter(|id| cx.dtype(**id) == Some(DType::F32)));
                    proposals.add(id, Match::Rewrite(patch));
                }
                Ok(None) => {}
                Err(reason) => proposals.add(id, Match::blocked(reason)),
            }
        }
    }
}

/// The largest number of a type of 16 bits.
fn largest(dtype: DType) -> f32 {
    if dtype == DType::F16 { 65504.0 } else { f32::MAX }
}

impl LowerPrecision {
    /// The largest magnitude that a calibration has seen of a value.
    fn reach(&self, name: &str) -> Option<f32> {
        self.ranges.get(name).map(|range| range.max.abs().max(range.min.abs()))
    }

    /// The patch that lowers a node; `None` where there is nothing to lower, and why not where it may not be.
    fn lowered(
        &self,
        cx: &View<'_>,
        id: NodeId,
        node: &Node,
        low: &HashSet<ValueId>,
    ) -> Result<Option<Patch>, String> {
        let is_f32 = |value: &Option<ValueId>| value.is_some_and(|id| cx.dtype(id) == Some(DType::F32));
        let makes_f32 = node.outputs.iter().any(is_f32);
        let data: Vec<usize> = (0..node.inputs.len())
            .filter(|&place| is_data(&node.op, place) && is_f32(&node.inputs[place]))
            .collect();
        if !makes_f32 || data.is_empty() || !node.bodies.is_empty() || matches!(node.op, Op::Cast(_)) {
            return Ok(None);
        }
        if multiplies_integers(cx, node) {
            return Err("it multiplies integers of 8 bits".to_string());
        }
        let name = node.op.name();
        if self.pins.iter().any(|pin| matches(pin, cx.label(node))) {
            return Err("--layer-precision keeps it in f32".to_string());
        }
        let is_weight = self.is_lowered_weight(cx, node);
        let is_constant = |place: &usize| cx.constant_input(node, *place).is_some();
        let variable = || data.iter().filter(|place| !is_constant(place)).filter_map(|&at| node.inputs[at]);
        match node.op.lowering() {
            _ if is_weight || sums_nothing(cx, node) => {}
            Lowering::Never => return Err(format!("{name} needs the range and precision of f32")),
            Lowering::Always => {}
            Lowering::Among => {
                // What is only moved after a product of 8 bits is rounded where the product is made.
                let is_near = |id: ValueId| {
                    let is_moved = moves(&node.op) && is_of_bytes(cx, id, MAX_MOVES);
                    low.contains(&id) || cx.is_input(id) || is_moved
                };
                // A table that is looked up in is worth its half; most other nodes over constants are folded.
                if variable().next().is_none()
                    && !matches!(node.op, Op::Gather(_))
                    && !self.is_read_low(cx, node)
                {
                    return Ok(None);
                }
                // Moved constants go with what they meet, and follow in the next sweep.
                let is_far = |id: ValueId| !is_near(id) && !self.is_moved_constant(cx, id, MAX_MOVES);
                let alone = || variable().find(|&id| !is_near(id)).filter(|_| !variable().any(is_near));
                if let Some(other) = variable().find(|&id| is_far(id)).or_else(alone) {
                    return Err(format!("`{}` is made in f32", cx.name(other)));
                }
            }
        }
        if let Some((value, reach)) =
            variable().chain(node.outputs.iter().flatten().copied()).find_map(|id| {
                let reach = self.reach(cx.name(id))?;
                (reach > KEPT * largest(self.to)).then_some((id, reach))
            })
        {
            let (name, to) = (cx.name(value), self.to.name());
            return Err(format!(
                "`{name}` reaches {reach:.0}, and values beyond {:.0} may leave the range of {to}",
                KEPT * largest(self.to)
            ));
        }
        let mut operands = variable();
        if let (Op::Mul(_), Some(first)) = (&node.op, operands.next())
            && operands.next() == Some(first)
        {
            return Err("a square leaves the range of f16 early".to_string());
        }
        let mut patch = Patch::new();
        let mut op = node.op.clone();
        let mut inputs: Vec<Option<Operand>> = node.inputs.iter().map(|id| id.map(Operand::Old)).collect();
        for &place in &data {
            let Some(value) = node.inputs[place] else { continue };
            inputs[place] = Some(match cx.constant(value) {
                // Scales that the type does not hold to 11 bits stay, and what they make is rounded.
                Some(tensor) if is_weight && !(self.to == DType::F16 && is_normal_in_f16(tensor)) => {
                    if let Op::DequantizeLinear(op) = &mut op {
                        op.output_dtype = Some(self.to);
                    }
                    value.into()
                }
                Some(tensor) => {
                    let converted = self.converted(tensor, small(cx, node, place)).map_err(|why| {
                        format!("its constant `{}` {why} in {}", cx.name(value), self.to.name())
                    })?;
                    patch.constant(cx.name(value), converted)
                }
                None => patch.node(
                    &format!("{} to {}", cx.name(value), self.to.name()),
                    cast(self.to),
                    &[value.into()],
                ),
            });
        }
        let made = patch.node_with(&node.name, op, inputs, node.outputs.len());
        for (old, new) in node.outputs.iter().zip(made) {
            let Some(old) = *old else { continue };
            if cx.dtype(old) == Some(DType::F32) {
                patch.has_shape_of(cx, new, self.to, old);
                let back = patch.node(&format!("{} to f32", cx.name(old)), cast(DType::F32), &[new]);
                patch.replace(old, back);
            } else {
                patch.replace(old, new);
            }
        }
        debug_assert_eq!(cx.node(id).name, node.name);
        Ok(Some(patch))
    }

    /// Whether a node makes numbers of a weight of few bits, for products that are lowered.
    fn is_lowered_weight(&self, cx: &View<'_>, node: &Node) -> bool {
        let (Op::DequantizeLinear(op), &[Some(output)]) = (&node.op, &node.outputs[..]) else { return false };
        let is_lowered = |reader: &NodeId| {
            let reader = cx.node(*reader);
            let reads = reader.inputs.iter().filter(|input| **input == Some(output)).count();
            reads == 1
                && cx.input(reader, 1) == Some(output)
                && weighs_integers(cx, reader)
                && !self.pins.iter().any(|pin| matches(pin, cx.label(reader)))
        };
        let readers = cx.readers(output);
        op.output_dtype.is_none()
            && !readers.is_empty()
            && !cx.is_output(output)
            && readers.iter().all(is_lowered)
    }

    /// Whether a node only moves elements, to readers that all want them low.
    fn is_read_low(&self, cx: &View<'_>, node: &Node) -> bool {
        let wants_low = |id: &NodeId| matches!(cx.node(*id).op, Op::Cast(Cast { to, .. }) if to == self.to);
        let is_low = |id: &ValueId| !cx.is_output(*id) && cx.readers(*id).iter().all(wants_low);
        moves(&node.op) && node.outputs.iter().flatten().all(is_low)
    }

    /// Whether a value holds elements of constants alone that the type can hold: a class token for each image of a batch.
    fn is_moved_constant(&self, cx: &View<'_>, id: ValueId, max_moves: usize) -> bool {
        let Some((_, node)) = cx.producer(id).filter(|_| max_moves > 0) else { return false };
        let is_f32 = |id: &ValueId| cx.dtype(*id) == Some(DType::F32);
        let is_held = |id: ValueId| match cx.constant(id) {
            Some(tensor) => self.converted(tensor, Small::MustStay).is_ok(),
            None => self.is_moved_constant(cx, id, max_moves - 1),
        };
        moves(&node.op) && node.inputs.iter().flatten().copied().filter(is_f32).all(is_held)
    }

    /// A constant in the lower type, unless that loses more than rounding.
    fn converted(&self, tensor: &Tensor, small: Small) -> Result<Tensor, &'static str> {
        rounded(self.to, tensor.shape(), &tensor.to_f64s(), small)
    }
}

/// Whether f16 has all bits of its numbers but those that rounding takes.
fn is_normal_in_f16(tensor: &Tensor) -> bool {
    const LEAST: f64 = 1.0 / 16_384.0;
    const MOST: f64 = 65_504.0;
    tensor.to_f64s().into_iter().all(|value| value == 0.0 || (LEAST..=MOST).contains(&value.abs()))
}

/// Whether an operator makes no numbers, and can stand on constants all the same: a run tells its sizes.
fn moves(op: &Op) -> bool {
    matches!(
        op,
        Op::Concat(_)
            | Op::Expand(_)
            | Op::Reshape(_)
            | Op::Slice(_)
            | Op::Split(_)
            | Op::Tile(_)
            | Op::Transpose(_)
    )
}

/// Whether a value is a product of numbers of 8 bits, or made of one element by element and from constants else, and nothing
/// reads it as numbers of 8 bits.
fn is_of_bytes(cx: &View<'_>, id: ValueId, max_steps: usize) -> bool {
    let is_rounded = |reader: &NodeId| matches!(cx.node(*reader).op, Op::QuantizeLinear(_));
    let Some((_, node)) = cx.producer(id).filter(|_| max_steps > 0) else { return false };
    if cx.readers(id).iter().any(is_rounded) {
        return false;
    }
    let is_made = |value: &ValueId| cx.constant(*value).is_none();
    let mut made = node.inputs.iter().flatten().copied().filter(is_made);
    let (first, more) = (made.next(), made.next());
    multiplies_integers(cx, node)
        || (node.op.is_pointwise()
            && more.is_none()
            && first.is_some_and(|id| is_of_bytes(cx, id, max_steps - 1)))
}

/// What may happen to the small numbers of a constant: those of a bias may vanish. A single number is not taken for a
/// bias: it may keep a root or a quotient after it from the edge.
fn small(cx: &View<'_>, node: &Node, place: usize) -> Small {
    let is_product = |op: &Op| matches!(op, Op::Conv(_) | Op::ConvTranspose(_) | Op::Gemm(_) | Op::MatMul(_));
    let is_list = cx.constant_input(node, place).is_some_and(|tensor| tensor.len() > 1);
    let behind_product = || {
        let others =
            (0..node.inputs.len()).filter(|other| *other != place).filter_map(|at| cx.input(node, at));
        others.filter_map(|id| cx.producer(uncast(cx, id))).any(|(_, maker)| is_product(&maker.op))
    };
    let is_bias = is_product(&node.op) && place == 2 || matches!(node.op, Op::Add(_)) && behind_product();
    if is_list && is_bias { Small::MayVanish } else { Small::MustStay }
}

/// The value that was cast to f32, or this one.
fn uncast(cx: &View<'_>, id: ValueId) -> ValueId {
    match cx.producer(id) {
        Some((_, node)) if matches!(node.op, Op::Cast(Cast { to: DType::F32, .. })) => {
            cx.input(node, 0).unwrap_or(id)
        }
        _ => id,
    }
}

/// Whether an input is of the type that the operator computes in: not indices, sizes, coordinates or factors of
/// sizes, which have a type of their own.
fn is_data(op: &Op, place: usize) -> bool {
    match op {
        Op::Resize(_) | Op::GridSample(_) | Op::BatchNormalization(_) => place == 0,
        _ => true,
    }
}

/// Whether a node adds up products with zero: zeros, or NaN, in any type of floats.
fn sums_nothing(cx: &View<'_>, node: &Node) -> bool {
    let product = || made_by(cx, cx.input(node, 0)?, |op| matches!(op, Op::Mul(_)));
    let is_zero = |value: &Option<ValueId>| value.is_some_and(|value| cx.splat(value) == Some(0.0));
    matches!(node.op, Op::ReduceSum(_)) && product().is_some_and(|(_, mul)| mul.inputs.iter().any(is_zero))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Pass;
    use crate::testing::{check_pass, run};
    use expect_test::expect;

    fn pass(to: DType) -> Pass {
        Pass::sweep(LowerPrecision { to, pins: vec!["keep*".to_string()], ranges: HashMap::new() })
    }

    #[test]
    fn layers_and_what_lies_between_are_lowered() {
        check_pass(
            pass(DType::F16),
            "input %x: f32[2,3] const %w: f32[3,4] = [1,2,3,4,5,6,7,8,9,10,11,12] \
             %p: f32[2,4] = MatMul(%x, %w) \"p\" %r: f32[2,4] = Relu(%p) \"r\" output %r",
            expect![[r#"
                input %x: f32[2,3]
                const %w: f16[3,4] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
                %"x to f16": f16[2,3] = Cast(%x) {to=f16} "x to f16"
                %p.1: f16[2,4] = MatMul(%"x to f16", %w) "p"
                %p: f32[2,4] = Cast(%p.1) {to=f32} "p to f32"
                %"p to f16": f16[2,4] = Cast(%p) {to=f16} "p to f16"
                %r.1: f16[2,4] = Relu(%"p to f16") "r"
                %r: f32[2,4] = Cast(%r.1) {to=f32} "r to f32"
                output %r
            "#]],
        );
    }

    #[test]
    fn weights_of_few_bits_become_low_numbers_at_once() {
        let product = |scales: &str| {
            format!(
                "input %x: f32[2,4] const %w: i4[4,2] = [1, -2, 3, 4, 5, 6, 7, -8] const %s: f32[2,2] = {scales} \
                 %d: f32[4,2] = DequantizeLinear(%w, %s) {{axis=0, block_size=2}} \"d\" \
                 %y: f32[2,2] = MatMul(%x, %d) \"y\" output %y"
            )
        };
        check_pass(
            pass(DType::F16),
            &product("[0.5, 0.25, 1, 2]"),
            expect![[r#"
                input %x: f32[2,4]
                const %w: i4[4,2] = [1, -2, 3, 4, 5, 6, 7, -8]
                const %s: f16[2,2] = [0.5, 0.25, 1, 2]
                %d.1: f16[4,2] = DequantizeLinear(%w, %s) {block_size=2, axis=0} "d"
                %d: f32[4,2] = Cast(%d.1) {to=f32} "d to f32"
                %"x to f16": f16[2,4] = Cast(%x) {to=f16} "x to f16"
                %"d to f16": f16[4,2] = Cast(%d) {to=f16} "d to f16"
                %y.1: f16[2,2] = MatMul(%"x to f16", %"d to f16") "y"
                %y: f32[2,2] = Cast(%y.1) {to=f32} "y to f32"
                output %y
            "#]],
        );
        check_pass(
            pass(DType::F16),
            &product("[0.5, 1e-7, 1, 2]"),
            expect![[r#"
                input %x: f32[2,4]
                const %w: i4[4,2] = [1, -2, 3, 4, 5, 6, 7, -8]
                const %s: f32[2,2] = [0.5, 1e-7, 1, 2]
                %d.1: f16[4,2] = DequantizeLinear(%w, %s) {output_dtype=f16, block_size=2, axis=0} "d"
                %d: f32[4,2] = Cast(%d.1) {to=f32} "d to f32"
                %"x to f16": f16[2,4] = Cast(%x) {to=f16} "x to f16"
                %"d to f16": f16[4,2] = Cast(%d) {to=f16} "d to f16"
                %y.1: f16[2,2] = MatMul(%"x to f16", %"d to f16") "y"
                %y: f32[2,2] = Cast(%y.1) {to=f32} "y to f32"
                output %y
            "#]],
        );
    }

    /// What moves the result of a product of 8 bits reads it in 16, unless it becomes 8 bits too.
    #[test]
    fn results_of_products_of_8_bits_are_rounded_before_they_are_moved() {
        let text = |more: &str| {
            format!(
                "input %q: i8[2,4] const %s: f32[] = 0.5 const %w: i8[4,4] = [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16] \
                 const %b: f32[4] = [1, 2, 3, 4] const %z: i8[] = 0 const %turned: i64[2] = [4, 2] \
                 %a: f32[2,4] = DequantizeLinear(%q, %s) %d: f32[4,4] = DequantizeLinear(%w, %s) \
                 %p: f32[2,4] = MatMul(%a, %d) %c: f32[2,4] = Add(%p, %b) %r: f32[4,2] = Reshape(%c, %turned) {more}"
            )
        };
        let low = |more: &str| {
            let (after, _) = run(pass(DType::F16), &text(more));
            let moved = after.nodes().map(|(_, node)| node).find(|node| matches!(node.op, Op::Reshape(_)));
            let from = moved.and_then(|node| node.inputs[0]).unwrap();
            after.value(from).ty.as_tensor().map(|ty| ty.dtype)
        };
        assert_eq!(low("output %r"), Some(DType::F16));
        assert_eq!(low("%k: i8[2,4] = QuantizeLinear(%c, %s, %z) output %r, %k"), Some(DType::F32));
    }

    #[test]
    fn what_reaches_beyond_the_range_of_f16_stays() {
        let reach = |max: f32| ActivationRange { min: -1.0, max, threshold: max };
        let ranges = [("p".to_string(), reach(40000.0)), ("q".to_string(), reach(30000.0))];
        let text = "input %x: f32[2,2] const %w: f32[2,2] = [1,2,3,4] %p: f32[2,2] = MatMul(%x, %w) \"p\" \
                    %q: f32[2,2] = MatMul(%x, %w) \"q\" %r: f32[2,2] = MatMul(%p, %w) \"r\" output %q, %r";
        for (to, refused) in [(DType::F16, vec!["p", "r"]), (DType::BF16, vec![])] {
            let (_, report) = run(
                Pass::sweep(LowerPrecision { to, pins: Vec::new(), ranges: ranges.clone().into() }),
                text,
            );
            let nodes: Vec<&str> = report.refusals.iter().map(|refusal| &*refusal.node).collect();
            assert_eq!(nodes, refused);
            let reason = "`p` reaches 40000, and values beyond 32752 may leave the range of f16";
            assert!(report.refusals.iter().all(|refusal| refusal.reason == reason), "{:?}", report.refusals);
        }
    }

    #[test]
    fn sizes_that_only_a_run_tells_keep_their_names() {
        // What reads the padded value says its own sizes in those of the padded one.
        check_pass(
            pass(DType::F16),
            "input %x: f32[1,4,8,8] input %n: i64[8] const %w: f32[2,4,1,1] = [1,2,3,4,5,6,7,8] \
             %p: f32[a,b,c,d] = Pad(%x, %n) \"p\" %y: f32[a,2,c,d] = Conv(%p, %w) \"c\" output %y",
            expect![[r#"
                input %x: f32[1,4,8,8]
                input %n: i64[8]
                const %w: f16[2,4,1,1] = [1, 2, 3, 4, 5, 6, 7, 8]
                %"x to f16": f16[1,4,8,8] = Cast(%x) {to=f16} "x to f16"
                %p.1: f16[a,b,c,d] = Pad(%"x to f16", %n) "p"
                %p: f32[a,b,c,d] = Cast(%p.1) {to=f32} "p to f32"
                %"p to f16": f16[a,b,c,d] = Cast(%p) {to=f16} "p to f16"
                %c: f16[a,2,c,d] = Conv(%"p to f16", %w) "c"
                %y: f32[a,2,c,d] = Cast(%c) {to=f32} "y to f32"
                output %y
            "#]],
        );
    }

    #[test]
    fn what_leaves_the_range_stays_and_says_why() {
        check_pass(
            pass(DType::F16),
            "input %x: f32[2,4] const %e: f32[] = [1e-12] const %huge: f32[] = [1e6] const %one: f32[] = [1] \
             %s: f32[2,4] = Softmax(%x) \"s\" %q: f32[2,4] = Mul(%s, %s) \"q\" %a: f32[2,4] = Add(%s, %e) \"a\" \
             %b: f32[2,4] = Mul(%s, %huge) \"b\" %c: f32[2,4] = Add(%q, %one) \"c\" \
             %d: f32[2,4] = Exp(%s) \"d\" %k: f32[2,4] = Neg(%s) \"keep.1\" output %a, %b, %c, %d, %k",
            expect![[r#"
                input %x: f32[2,4]
                const %e: f32[] = 1e-12
                const %huge: f32[] = 1000000
                const %one: f32[] = 1
                %"x to f16": f16[2,4] = Cast(%x) {to=f16} "x to f16"
                %s.1: f16[2,4] = Softmax(%"x to f16") "s"
                %s: f32[2,4] = Cast(%s.1) {to=f32} "s to f32"
                %q: f32[2,4] = Mul(%s, %s) "q"
                %a: f32[2,4] = Add(%s, %e) "a"
                %b: f32[2,4] = Mul(%s, %huge) "b"
                %c: f32[2,4] = Add(%q, %one) "c"
                %d: f32[2,4] = Exp(%s) "d"
                %k: f32[2,4] = Neg(%s) "keep.1"
                output %a, %b, %c, %d, %k
                refused at q: a square leaves the range of f16 early
                refused at a: its constant `e` loses its small values in f16
                refused at b: its constant `huge` is too large in f16
                refused at c: `q` is made in f32
                refused at d: Exp needs the range and precision of f32
                refused at keep.1: --layer-precision keeps it in f32
            "#]],
        );
    }

    #[test]
    fn moved_constants_go_with_what_they_meet() {
        // A class token for each image of a batch, put before its patches.
        let tokens = "input %x: f32[n,2,3] input %size: i64[3] const %w: f32[3,2] = [1,2,3,4,5,6] \
            const %c: f32[1,1,2] = [7,8] %p: f32[n,2,2] = MatMul(%x, %w) \"p\" \
            %e: f32[n,1,2] = Expand(%c, %size) \"e\"";
        check_pass(
            pass(DType::F16),
            &format!("{tokens} %y: f32[n,3,2] = Concat(%e, %p) {{axis=1}} \"y\" output %y"),
            expect![[r#"
                input %x: f32[n,2,3]
                input %size: i64[3]
                const %w: f16[3,2] = [1, 2, 3, 4, 5, 6]
                const %c: f16[1,1,2] = [7, 8]
                %"x to f16": f16[n,2,3] = Cast(%x) {to=f16} "x to f16"
                %p.1: f16[n,2,2] = MatMul(%"x to f16", %w) "p"
                %p: f32[n,2,2] = Cast(%p.1) {to=f32} "p to f32"
                %e.1: f16[n,1,2] = Expand(%c, %size) "e"
                %e: f32[n,1,2] = Cast(%e.1) {to=f32} "e to f32"
                %"e to f16": f16[n,1,2] = Cast(%e) {to=f16} "e to f16"
                %"p to f16": f16[n,2,2] = Cast(%p) {to=f16} "p to f16"
                %y.1: f16[n,3,2] = Concat(%"e to f16", %"p to f16") {axis=1} "y"
                %y: f32[n,3,2] = Cast(%y.1) {to=f32} "y to f32"
                output %y
            "#]],
        );
        // What others read in f32, or nothing low stands beside, stays.
        let (graph, report) =
            run(pass(DType::F16), &format!("{tokens} %y: f32[n,1,2] = Relu(%e) \"y\" output %y, %p"));
        let reasons: Vec<&str> = report.refusals.iter().map(|refusal| &*refusal.reason).collect();
        assert_eq!(reasons, ["`e` is made in f32"], "{}", graph.print_whole());
        // A mask that would become infinite stays too.
        let mask = tokens.replace("[7,8]", "[0,-1e30]");
        let (_, report) =
            run(pass(DType::F16), &format!("{mask} %y: f32[n,2,2] = Add(%p, %e) \"y\" output %y"));
        let reasons: Vec<&str> = report.refusals.iter().map(|refusal| &*refusal.reason).collect();
        assert_eq!(reasons, ["`e` is made in f32"]);
    }

    #[test]
    fn a_bias_may_be_too_small_and_not_too_large() {
        let layer = |bias: &str| {
            format!(
                "input %x: f32[2,3] const %w: f32[3,2] = [1,2,3,4,5,6] const %b: f32[2] = [{bias}] \
                 %p: f32[2,2] = MatMul(%x, %w) \"p\" %a: f32[2,2] = Add(%p, %b) \"a\" output %a"
            )
        };
        let refusals = |text: &str| {
            let (_, report) = run(pass(DType::F16), text);
            report.refusals.iter().map(|refusal| refusal.reason.clone()).collect::<Vec<_>>()
        };
        assert_eq!(refusals(&layer("1e-7, -3e-9")), Vec::<String>::new());
        assert_eq!(refusals(&layer("1e-7, 1e6")), ["its constant `b` is too large in f16"]);
        let behind_softmax = layer("1e-7, -3e-9")
            .replace("MatMul(%x, %w)", "Softmax(%s)")
            .replace("input %x: f32[2,3]", "input %s: f32[2,2]")
            .replace("const %w: f32[3,2] = [1,2,3,4,5,6]", "");
        assert_eq!(refusals(&behind_softmax), ["its constant `b` loses its small values in f16"]);
    }

    #[test]
    fn sizes_indices_and_coordinates_keep_their_types() {
        check_pass(
            pass(DType::BF16),
            "input %x: f32[1,2,4,4] input %c: bool[1,2,8,8] const %f: f32[4] = [1,1,2,2] \
             %y: f32[1,2,8,8] = Resize(%x, _, %f) \"y\" %z: f32[1,2,8,8] = Where(%c, %y, %y) \"z\" output %z",
            expect![[r#"
                input %x: f32[1,2,4,4]
                input %c: bool[1,2,8,8]
                const %f: f32[4] = [1, 1, 2, 2]
                %"x to bf16": bf16[1,2,4,4] = Cast(%x) {to=bf16} "x to bf16"
                %y.1: bf16[1,2,8,8] = Resize(%"x to bf16", _, %f) "y"
                %y: f32[1,2,8,8] = Cast(%y.1) {to=f32} "y to f32"
                %"y to bf16": bf16[1,2,8,8] = Cast(%y) {to=bf16} "y to bf16"
                %"y to bf16.1": bf16[1,2,8,8] = Cast(%y) {to=bf16} "y to bf16"
                %z.1: bf16[1,2,8,8] = Where(%c, %"y to bf16", %"y to bf16.1") "z"
                %z: f32[1,2,8,8] = Cast(%z.1) {to=f32} "z to f32"
                output %z
            "#]],
        );
    }

    #[test]
    fn a_lowered_graph_stays_as_it_is() {
        let (graph, _) = run(
            pass(DType::F16),
            "input %x: f32[2,4] %s: f32[2,4] = Softmax(%x) \"s\" %r: f32[2,4] = Relu(%s) \"r\" output %r",
        );
        let again = run(pass(DType::F16), &graph.print_whole());
        assert_eq!(again.1.hits, 0, "{}", again.0.print_whole());
    }
}
