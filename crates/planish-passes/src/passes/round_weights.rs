//! Rounds weights to a float type of 16 bits, so that plans store them in half the bytes: for backends that compute in
//! f32 what is stored in 16 bits.
//!
//! Weights stay of type f32, and so does everything that is computed: only their numbers change, here, where whatever
//! reads the graph sees it. Rounded are the factors of products, whatever their size, and tables and other large
//! constants of operators that may read rounded data (`Lowering`, a column of the table); biases and what a norm scales
//! by stay as they are, and so do the windows of convolutions with few products a sum, as depthwise ones: errors of few
//! weights do not even out, and their bytes are few, too (rounding the depthwise weights of mobilenet_v2_imagenet alone
//! brings its logits to 44 dB in f16 and 30 dB in bf16, all its other weights together to 56 and 37). A constant that the type cannot hold (too large, or so small that its bits are lost) stays, too.

use planish_ir::{Node, NodeId};
use planish_op::{Lowering, Op};
use planish_tensor::{DType, Tensor};

use crate::names::matches;
use crate::rounding::{Small, nearest};
use crate::rule::{Match, Operand, Patch, Rule};
use crate::view::View;

/// From so many elements on a constant that is no factor of a product is worth its half.
const LARGE: usize = 1024;

/// Convolutions of fewer products a sum keep their weights.
const FEW_PRODUCTS: usize = 16;

/// Rounds the weights of nodes to a type of 16 bits, but for those with a name that a pattern matches.
pub(crate) struct RoundWeights {
    pub(crate) to: DType,
    /// Patterns of names with `*` for any letters and `?` for one.
    pub(crate) pins: Vec<String>,
}

impl Rule for RoundWeights {
    fn name(&self) -> &'static str {
        "round_weights"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        let node = cx.node(id);
        if !node.bodies.is_empty() {
            return Match::No;
        }
        let mut patch = Patch::new();
        let mut inputs: Vec<Option<Operand>> = node.inputs.iter().map(|id| id.map(Operand::Old)).collect();
        let mut is_changed = false;
        for place in 0..node.inputs.len() {
            let (Some(value), Some(tensor)) = (node.inputs[place], cx.constant_input(node, place)) else {
                continue;
            };
            if tensor.dtype() != DType::F32 || !is_weight(node, place, tensor) {
                continue;
            }
            match self.rounded(tensor) {
                Ok(None) => {}
                Ok(Some(_)) if self.pins.iter().any(|pin| matches(pin, cx.label(node))) => {
                    return Match::blocked("--layer-precision keeps it in f32");
                }
                Ok(Some(tensor)) => {
                    inputs[place] = Some(patch.constant(cx.name(value), tensor));
                    is_changed = true;
                }
                Err(why) => {
                    let (name, to) = (cx.name(value), self.to.name());
                    return Match::blocked(format!("its constant `{name}` {why} in {to}"));
                }
            }
        }
        if !is_changed {
            return Match::No;
        }
        patch.with_inputs(cx, node, inputs);
        Match::Rewrite(patch)
    }
}

impl RoundWeights {
    /// The numbers that the type holds, as f32; `None` where they are there already, and why not where they cannot be.
    fn rounded(&self, tensor: &Tensor) -> Result<Option<Tensor>, &'static str> {
        let numbers = tensor.elements::<f32>().map_err(|_| "cannot be read")?;
        let low = nearest(self.to, &numbers, Small::MustStay)?;
        let is_same = |(a, b): (&f32, &f32)| a == b || (a.is_nan() && b.is_nan());
        if numbers.iter().zip(&low).all(is_same) {
            return Ok(None);
        }
        Tensor::new(tensor.shape(), low).map(Some).map_err(|_| "cannot be stored")
    }
}

/// Whether a constant input is a factor of a product, a table or the like.
fn is_weight(node: &Node, place: usize, tensor: &Tensor) -> bool {
    match node.op {
        Op::Conv(_) => place < 2 && tensor.shape().iter().skip(1).product::<usize>() >= FEW_PRODUCTS,
        Op::ConvTranspose(_) | Op::Gemm(_) | Op::MatMul(_) => place < 2,
        Op::LSTM(_) | Op::GRU(_) | Op::RNN(_) => matches!(place, 1 | 2),
        Op::Resize(_) | Op::BatchNormalization(_) => false,
        _ => tensor.len() >= LARGE && tensor.rank() > 1 && node.op.lowering() != Lowering::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Pass;
    use crate::testing::{check, run};
    use expect_test::expect;

    fn rule(to: DType) -> RoundWeights {
        RoundWeights { to, pins: vec!["keep*".to_string()] }
    }

    #[test]
    fn factors_are_rounded_and_biases_are_not() {
        check(
            rule(DType::BF16),
            "input %x: f32[2,2] const %w: f32[2,2] = [1,0.1,0.30000001,-4] const %b: f32[2] = [0.1,0.2] \
             %y: f32[2,2] = Gemm(%x, %w, %b) \"y\" output %y",
            expect![[r#"
                input %x: f32[2,2]
                const %b: f32[2] = [0.1, 0.2]
                const %w: f32[2,2] = [1, 0.100097656, 0.30078125, -4]
                %y: f32[2,2] = Gemm(%x, %w, %b) "y"
                output %y
            "#]],
        );
    }

    #[test]
    fn convolutions_of_few_products_keep_their_weights() {
        let text = |channels: usize, window: usize| {
            format!(
                "input %x: f32[1,{0},4,4] const %w: f32[{0},1,{window},{window}] = [{1}] \
                 %y: f32[1,{0},{2},{2}] = Conv(%x, %w) {{group={0}}} output %y",
                channels,
                vec!["0.1"; channels * window * window].join(","),
                5 - window,
            )
        };
        let hits = |text: &str| run(Pass::rule(rule(DType::BF16)), text).1.hits;
        assert_eq!([hits(&text(2, 3)), hits(&text(2, 4))], [0, 1]);
    }

    #[test]
    fn what_16_bits_hold_stays_as_it_is() {
        let text = "input %x: f32[2,2] const %w: f32[2,2] = [1,0.5,-0.25,1024] \
            %y: f32[2,2] = MatMul(%x, %w) output %y";
        for to in [DType::F16, DType::BF16] {
            let (_, report) = run(Pass::rule(rule(to)), text);
            assert_eq!((report.hits, report.refusals.len()), (0, 0));
        }
    }

    #[test]
    fn what_the_type_cannot_hold_and_what_is_pinned_stay_and_say_why() {
        check(
            rule(DType::F16),
            "input %x: f32[2,2] const %a: f32[2,2] = [0.1,1e6,0,0] const %b: f32[2,2] = [1e-9,3e-9,0,0] \
             const %c: f32[2,2] = [0.1,0,0,0] %p: f32[2,2] = MatMul(%x, %a) \"p\" \
             %q: f32[2,2] = MatMul(%x, %b) \"q\" %r: f32[2,2] = MatMul(%x, %c) \"keep.r\" output %p, %q, %r",
            expect![[r#"
                input %x: f32[2,2]
                const %a: f32[2,2] = [0.1, 1000000, 0, 0]
                const %b: f32[2,2] = [1e-9, 3e-9, 0, 0]
                const %c: f32[2,2] = [0.1, 0, 0, 0]
                %p: f32[2,2] = MatMul(%x, %a) "p"
                %q: f32[2,2] = MatMul(%x, %b) "q"
                %r: f32[2,2] = MatMul(%x, %c) "keep.r"
                output %p, %q, %r
                refused at p: its constant `a` is too large in f16
                refused at q: its constant `b` loses its small values in f16
                refused at keep.r: --layer-precision keeps it in f32
            "#]],
        );
    }

    #[test]
    fn large_tables_are_rounded_and_small_ones_are_not() {
        let table = |n: usize| {
            let rows: Vec<String> = (0..2 * n).map(|i| format!("{}", 0.1 * i as f32)).collect();
            format!(
                "input %i: i64[3] const %t: f32[{n},2] = [{}] %y: f32[3,2] = Gather(%t, %i) output %y",
                rows.join(",")
            )
        };
        for (n, n_rounded) in [(LARGE / 2 - 1, 0), (LARGE / 2, 1)] {
            let (_, report) = run(Pass::rule(rule(DType::F16)), &table(n));
            assert_eq!(report.hits, n_rounded, "{n} rows");
        }
    }

    #[test]
    fn recurrent_weights_are_rounded() {
        let ones = |n: usize| vec!["0.1"; n].join(",");
        let text = format!(
            "input %x: f32[4,1,2] const %w: f32[1,3,2] = [{}] const %r: f32[1,3,3] = [{}] \
             const %b: f32[1,6] = [{}] %y: f32[4,1,1,3] = RNN(%x, %w, %r, %b) {{hidden_size=3}} output %y",
            ones(6),
            ones(9),
            ones(6)
        );
        let (graph, report) = run(Pass::rule(rule(DType::F16)), &text);
        assert_eq!(report.hits, 1);
        let text = graph.print_whole();
        assert_eq!(text.matches("0.099975586").count(), 6 + 9, "{text}");
        assert_eq!(text.matches("0.1,").count() + text.matches("0.1]").count(), 6, "{text}");
    }
}
