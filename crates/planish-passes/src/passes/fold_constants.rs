//! Computes what depends on constants alone, by the reference, so that no run has to.
//!
//! Whole chains go at once. Results may not grow a model much: a large tensor made from a few numbers
//! (ConstantOfShape, Expand) is cheaper to make than to store. Quantization stays in place, since it says which
//! precision the model wants.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use planish_ir::{Node, NodeId, ValueId, is_function};
use planish_op::{Op, Value};
use planish_reference::EvalErrorKind;

use crate::rule::{Match, Patch, Proposals, Sweep};
use crate::view::View;

/// Results up to this are stored whatever they are made from: a table of positions, a mask of a long sequence.
const SMALL_BYTES: usize = 1 << 20;
/// Beyond it a result may have so many times the bytes of what it is made from: half precision made single,
/// one byte made four.
const MAX_GROWTH: usize = 4;
/// What all results together may add to a model whose constants are small: a thousand small ones are not.
const MAX_GROWN_BYTES: usize = 64 << 20;
/// Operations that a build spends on one node: a second of the reference.
const MAX_FLOPS: i64 = 1 << 30;
/// And on all of them: a small file can hold thousands of such nodes.
const MAX_ALL_FLOPS: i64 = 8 << 30;
/// The reference computes in eight bytes an element, whatever the result is stored in: at most so many times its own.
const WIDENING: usize = 8;

/// Nodes whose inputs are all constant.
pub(crate) struct FoldConstants {
    /// Operations that are left to spend, over all sweeps.
    flops_left: AtomicI64,
    /// Bytes that results have added, over all sweeps: each sweep finds what the ones before it made among the constants.
    grown: AtomicUsize,
}

impl Default for FoldConstants {
    fn default() -> FoldConstants {
        FoldConstants { flops_left: AtomicI64::new(MAX_ALL_FLOPS), grown: AtomicUsize::new(0) }
    }
}

impl Sweep for FoldConstants {
    fn name(&self) -> &'static str {
        "fold_constants"
    }

    fn propose(&self, cx: &View<'_>, proposals: &mut Proposals) {
        let mut known: HashMap<ValueId, Value> = HashMap::new();
        let stored = cx.graph().values().filter_map(|(_, value)| value.constant());
        let stored: usize = stored.map(|tensor| tensor.bytes().len()).sum();
        let grown = self.grown.load(Ordering::Relaxed);
        let of_model = stored.saturating_sub(grown);
        let all = MAX_GROWN_BYTES.max(of_model.saturating_mul(MAX_GROWTH)).saturating_sub(grown);
        let mut room = all;
        for (id, node) in cx.graph().nodes() {
            if let Some(found) = self.fold(cx, (id, node), &mut known, &mut room) {
                proposals.add(id, found);
            }
        }
        self.grown.store(grown.saturating_add(all - room), Ordering::Relaxed);
    }
}

impl FoldConstants {
    /// What to do with a node; `None` if it is not made from constants.
    fn fold(
        &self,
        cx: &View<'_>,
        (id, node): (NodeId, &Node),
        known: &mut HashMap<ValueId, Value>,
        room: &mut usize,
    ) -> Option<Match> {
        let keeps_meaning =
            matches!(node.op, Op::Identity(_) | Op::QuantizeLinear(_) | Op::DequantizeLinear(_));
        if keeps_meaning || !is_function(&node.op) {
            return None;
        }
        for input in node.inputs.iter().flatten() {
            if !known.contains_key(input) {
                known.insert(*input, cx.constant(*input)?.clone().into());
            }
        }
        let operands: Vec<Option<&Value>> =
            node.inputs.iter().map(|input| input.and_then(|input| known.get(&input))).collect();
        let bytes_in: usize = operands
            .iter()
            .flatten()
            .filter_map(|value| value.as_tensor())
            .map(|tensor| tensor.bytes().len())
            .sum();
        let budget = SMALL_BYTES.max(bytes_in.saturating_mul(MAX_GROWTH));
        let too_large = "the result would make the model much larger";
        let sizes = node.outputs.iter().flatten().filter_map(|id| bytes(cx, *id));
        let bytes_out = sizes.fold(0, usize::saturating_add);
        // An input that somebody else reads stays, and one that is read twice goes once.
        let goes =
            |input: &ValueId| cx.readers(*input).iter().all(|reader| *reader == id) && !cx.is_output(*input);
        let gone: BTreeSet<ValueId> = node.inputs.iter().flatten().copied().filter(goes).collect();
        let gone = gone.iter().filter_map(|input| known.get(input)?.as_tensor());
        let growth = bytes_out.saturating_sub(gone.map(|tensor| tensor.bytes().len()).sum());
        if bytes_out > budget || growth > *room {
            return Some(Match::blocked(too_large));
        }
        *room -= growth;
        // What cannot be counted reads each element at least once.
        let flops = cx.graph().node_flops(node).and_then(|flops| flops.as_const());
        let flops = flops.unwrap_or(bytes_in as i64).max(0);
        let flops_left = self.flops_left.load(Ordering::Relaxed);
        if flops > MAX_FLOPS || flops > flops_left {
            return Some(Match::blocked("it takes the build too long to compute"));
        }
        self.flops_left.store(flops_left - flops, Ordering::Relaxed);
        let most = budget.saturating_mul(WIDENING);
        let outputs = match planish_reference::evaluate_within(&node.op, &operands, node.outputs.len(), most)
        {
            Ok(outputs) => outputs,
            Err(error) if error.kind() == EvalErrorKind::Limit => return Some(Match::blocked(too_large)),
            Err(error) => return Some(Match::blocked(format!("it cannot be computed: {error}"))),
        };
        let mut patch = Patch::new();
        for (old, value) in node.outputs.iter().zip(outputs) {
            let (Some(old), Value::Tensor(tensor)) = (old, &value) else { continue };
            if tensor.bytes().len() > budget {
                return Some(Match::blocked(too_large));
            }
            let constant = patch.constant(cx.name(*old), tensor.clone());
            patch.replace(*old, constant);
            known.insert(*old, value);
        }
        // Sequences have no constants.
        let is_whole = node.outputs.iter().flatten().all(|old| known.contains_key(old));
        is_whole.then_some(Match::Rewrite(patch))
    }
}

/// The bytes of a tensor whose shape is known.
fn bytes(cx: &View<'_>, id: ValueId) -> Option<usize> {
    let shape = cx.fixed_shape(id)?;
    // What overflows is too large for any budget.
    let count = planish_tensor::element_count(&shape).unwrap_or(usize::MAX);
    Some(cx.dtype(id)?.bytes_for(count).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Pass;
    use crate::testing::{check_pass, run};
    use expect_test::expect;

    fn check(before: &str, after: expect_test::Expect) {
        check_pass(Pass::sweep(FoldConstants::default()), before, after);
    }

    #[test]
    fn chains_are_computed_at_once() {
        check(
            "input %x: f32[2] const %a: f32[2] = [1, 2] const %b: f32[] = 3 \
             %c: f32[2] = Mul(%a, %b) \"c\" %d: f32[2] = Sqrt(%c) \"d\" %y: f32[2] = Add(%x, %d) \"e\" output %y",
            expect![[r#"
                input %x: f32[2]
                const %d: f32[2] = [1.7320508, 2.4494898]
                %y: f32[2] = Add(%x, %d) "e"
                output %y
            "#]],
        );
    }

    #[test]
    fn an_output_that_is_constant_stays_a_node() {
        check(
            "const %a: f32[] = 4 %y: f32[] = Sqrt(%a) \"s\" output %y",
            expect![[r#"
            const %y.1: f32[] = 2
            %y: f32[] = Identity(%y.1) "s"
            output %y
        "#]],
        );
    }

    #[test]
    fn several_outputs_become_several_constants() {
        check(
            "const %a: f32[4] = [1, 2, 3, 4] input %x: f32[2] %b: f32[2], %c: f32[2] = Split(%a) {num_outputs=2} \
             %d: f32[2] = Mul(%x, %b) %y: f32[2] = Add(%d, %c) output %y",
            expect![[r#"
                input %x: f32[2]
                const %b: f32[2] = [1, 2]
                const %c: f32[2] = [3, 4]
                %d: f32[2] = Mul(%x, %b)
                %y: f32[2] = Add(%d, %c)
                output %y
            "#]],
        );
    }

    #[test]
    fn large_results_of_small_inputs_are_left_to_the_run() {
        check(
            "const %s: i64[2] = [1024, 1024] %y: f32[1024,1024] = ConstantOfShape(%s) \"zeros\" output %y",
            expect![[r#"
                const %s: i64[2] = [1024, 1024]
                %y: f32[1024,1024] = ConstantOfShape(%s) "zeros"
                output %y
                refused at zeros: the result would make the model much larger
            "#]],
        );
    }

    #[test]
    fn random_numbers_quantization_and_what_cannot_be_computed_stay() {
        check(
            "const %p: f32[2] = [0.5, 0.5] const %q: u8[2] = [1, 2] const %s: f32[] = 0.5 const %i: i64[1] = [7] \
             const %d: i64[1] = [0] %a: f32[2] = Bernoulli(%p) %b: f32[2] = DequantizeLinear(%q, %s) \
             %c: i64[1] = Div(%i, %d) \"by_zero\" output %a, %b, %c",
            expect![[r#"
                const %p: f32[2] = [0.5, 0.5]
                const %q: u8[2] = [1, 2]
                const %s: f32[] = 0.5
                const %i: i64[1] = [7]
                const %d: i64[1] = [0]
                %a: f32[2] = Bernoulli(%p)
                %b: f32[2] = DequantizeLinear(%q, %s)
                %c: i64[1] = Div(%i, %d) "by_zero"
                output %a, %b, %c
                refused at by_zero: it cannot be computed: Div: integer division by zero
            "#]],
        );
    }

    #[test]
    fn bodies_are_folded_too() {
        check(
            "input %c: bool[] input %x: f32[] %y: f32[] = If(%c; %x) \"if\" [ \
             graph \"then\" { input %x: f32[] const %a: f32[] = 2 %b: f32[] = Neg(%a) \"n\" %z: f32[] = Add(%x, %b) output %z }, \
             graph \"else\" { input %x: f32[] %z: f32[] = Neg(%x) output %z } ] output %y",
            expect![[r#"
                input %c: bool[]
                input %x: f32[]
                %y: f32[] = If(%c; %x) "if" [
                  graph "then" {
                    input %x: f32[]
                    const %b: f32[] = -2
                    %z: f32[] = Add(%x, %b)
                    output %z
                  },
                  graph "else" {
                    input %x: f32[]
                    %z: f32[] = Neg(%x)
                    output %z
                  }
                ]
                output %y
            "#]],
        );
    }

    /// A pass runs until nothing is left to do: what a sweep made must not count as the model's own in the next one.
    #[test]
    fn a_chain_that_doubles_stays_small() {
        let mut text = format!("input %x: f32[] const %k0: f32[1024] = [{}]", vec!["1"; 1024].join(", "));
        for level in 1..=30 {
            let (n, from) = (1024u64 << level, level - 1);
            text.push_str(&format!(" %k{level}: f32[{n}] = Concat(%k{from}, %k{from}) {{axis=0}}"));
        }
        text.push_str(" %s: f32[] = ReduceSum(%k30) {keepdims=false} %y: f32[] = Add(%x, %s) output %y");
        let (graph, _) = run(Pass::sweep(FoldConstants::default()), &text);
        let stored = graph.values().filter_map(|(_, value)| value.constant());
        let stored: usize = stored.map(|tensor| tensor.bytes().len()).sum();
        assert!((1 << 20..=2 * MAX_GROWN_BYTES).contains(&stored), "{stored} bytes");
    }
}
