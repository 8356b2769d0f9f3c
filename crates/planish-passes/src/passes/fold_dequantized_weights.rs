//! Computes weights that a model stores quantized, for builds that compute in floating point.
//!
//! Kernels take constant weights and lay them out once; weights that a node makes at run time they cannot. The
//! last of the passes that change anything: what the model says about its precision is gone after it. Where integers
//! are computed with, weights of 8 bits stay that meet a factor of 8 bits, matrices of 4 and 8 bits that meet floats, and
//! those of recurrent layers.

use planish_ir::NodeId;
use planish_op::{Op, Value};

use crate::quantization::keeps_integers;
use crate::rule::{Match, Patch, Rule};
use crate::view::View;

/// DequantizeLinear of constants.
#[derive(Default)]
pub(crate) struct FoldDequantizedWeights {
    /// Whether kernels read integers.
    pub(crate) keeps_factors: bool,
    /// Nodes whose integers none reads, by name.
    pub(crate) loose: Vec<Box<str>>,
}

impl Rule for FoldDequantizedWeights {
    fn name(&self) -> &'static str {
        "fold_dequantized_weights"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        let node = cx.node(id);
        let (Op::DequantizeLinear(_), &[Some(output)]) = (&node.op, &node.outputs[..]) else {
            return Match::No;
        };
        let is_factor = |reader: &NodeId| keeps_integers(cx, cx.node(*reader), output);
        if self.keeps_factors && !self.loose.contains(&node.name) && cx.readers(output).iter().any(is_factor)
        {
            return Match::No;
        }
        let constants: Option<Vec<Option<Value>>> = node
            .inputs
            .iter()
            .map(|input| match input {
                None => Some(None),
                Some(input) => Some(Some(cx.constant(*input)?.clone().into())),
            })
            .collect();
        let Some(constants) = constants else { return Match::No };
        let operands: Vec<Option<&Value>> = constants.iter().map(Option::as_ref).collect();
        let values = match planish_reference::evaluate(&node.op, &operands, 1) {
            Ok(values) => values,
            Err(error) => return Match::blocked(format!("it cannot be computed: {error}")),
        };
        let Some(Value::Tensor(tensor)) = values.into_iter().next() else { return Match::No };
        let mut patch = Patch::new();
        let constant = patch.constant(cx.name(output), tensor);
        patch.replace(output, constant);
        Match::Rewrite(patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check;
    use expect_test::expect;

    #[test]
    fn weights_become_numbers_and_activations_stay() {
        check(
            FoldDequantizedWeights::default(),
            "input %x: u8[n,2] const %w: i8[2,2] = [1, -2, 3, 4] const %s: f32[2] = [0.5, 0.25] const %t: f32[] = 0.5 \
             %a: f32[n,2] = DequantizeLinear(%x, %t) \"a\" %b: f32[2,2] = DequantizeLinear(%w, %s) {axis=1} \"b\" \
             %y: f32[n,2] = MatMul(%a, %b) \"y\" output %y",
            expect![[r#"
                input %x: u8[n,2]
                const %t: f32[] = 0.5
                const %b: f32[2,2] = [0.5, -0.5, 1.5, 1]
                %a: f32[n,2] = DequantizeLinear(%x, %t) "a"
                %y: f32[n,2] = MatMul(%a, %b) "y"
                output %y
            "#]],
        );
    }

    #[test]
    fn factors_of_integers_stay_where_integers_are_multiplied() {
        check(
            FoldDequantizedWeights { keeps_factors: true, ..Default::default() },
            "input %x: u8[n,2] input %f: f32[n,2] const %w: i8[2,2] = [1, -2, 3, 4] const %s: f32[2] = [0.5, 0.25] \
             const %t: f32[] = 0.5 %a: f32[n,2] = DequantizeLinear(%x, %t) \"a\" \
             %b: f32[2,2] = DequantizeLinear(%w, %s) {axis=1} \"b\" %c: f32[2,2] = DequantizeLinear(%w, %t) \"c\" \
             %p: f32[n,2] = MatMul(%a, %b) \"p\" %q: f32[n,2] = MatMul(%f, %c) \"q\" output %p, %q",
            expect![[r#"
                input %x: u8[n,2]
                input %f: f32[n,2]
                const %w: i8[2,2] = [1, -2, 3, 4]
                const %s: f32[2] = [0.5, 0.25]
                const %t: f32[] = 0.5
                const %c: f32[2,2] = [0.5, -1, 1.5, 2]
                %a: f32[n,2] = DequantizeLinear(%x, %t) "a"
                %b: f32[2,2] = DequantizeLinear(%w, %s) "b"
                %p: f32[n,2] = MatMul(%a, %b) "p"
                %q: f32[n,2] = MatMul(%f, %c) "q"
                output %p, %q
            "#]],
        );
    }

    #[test]
    fn matrices_in_blocks_stay_until_it_is_known_that_no_kernel_reads_them() {
        let text = "input %x: f32[n,4] const %w: i4[4,2] = [1, -2, 3, 4, 5, 6, 7, -8] \
                    const %s: f32[2,2] = [0.5, 0.25, 1, 2] \
                    %b: f32[4,2] = DequantizeLinear(%w, %s) {axis=0, block_size=2} \"b\" \
                    %y: f32[n,2] = MatMul(%x, %b) \"y\" output %y";
        check(
            FoldDequantizedWeights { keeps_factors: true, ..Default::default() },
            text,
            expect![[r#"
                input %x: f32[n,4]
                const %w: i4[4,2] = [1, -2, 3, 4, 5, 6, 7, -8]
                const %s: f32[2,2] = [0.5, 0.25, 1, 2]
                %b: f32[4,2] = DequantizeLinear(%w, %s) {block_size=2, axis=0} "b"
                %y: f32[n,2] = MatMul(%x, %b) "y"
                output %y
            "#]],
        );
        check(
            FoldDequantizedWeights { keeps_factors: true, loose: vec!["b".into()] },
            text,
            expect![[r#"
                input %x: f32[n,4]
                const %b: f32[4,2] = [0.5, -0.5, 1.5, 1, 5, 12, 7, -16]
                %y: f32[n,2] = MatMul(%x, %b) "y"
                output %y
            "#]],
        );
    }

    #[test]
    fn an_output_keeps_a_node() {
        check(
            FoldDequantizedWeights::default(),
            "const %w: i8[1,2] = [2, 4] const %s: f32[2] = [0.5, 0.25] %y: f32[1,2] = DequantizeLinear(%w, %s) {axis=1} \"y\" \
             output %y",
            expect![[r#"
                const %y.1: f32[1,2] = [1, 1]
                %y: f32[1,2] = Identity(%y.1) "y"
                output %y
            "#]],
        );
    }
}
