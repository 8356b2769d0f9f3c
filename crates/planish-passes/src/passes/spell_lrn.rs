//! Spells LRN as what kernels compute: squares averaged over a window of channels, then pointwise nodes.
//!
//! `x / (bias + alpha/size · sum of size squares)^beta`; the window's edges lie in zeros, so that an average which counts
//! them is the sum over `size`. The channels become a spatial axis of their own for it.

use planish_ir::NodeId;
use planish_op::{Add, AutoPad, AveragePool, Div, Mul, Op, Pow, Squeeze, Unsqueeze};
use planish_tensor::Tensor;

use crate::pattern::output;
use crate::rule::{Match, Patch, Rule};
use crate::view::View;

/// LRN of one or two spatial axes.
pub(crate) struct SpellLrn;

impl Rule for SpellLrn {
    fn name(&self) -> &'static str {
        "spell_lrn"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        let node = cx.node(id);
        let Op::LRN(op) = &node.op else { return Match::No };
        let (Some(x), Ok(y)) = (cx.input(node, 0), output(node)) else { return Match::No };
        let (Some(dtype), Some(rank)) = (cx.dtype(x), cx.rank(x)) else { return Match::No };
        if !matches!(rank, 3 | 4) {
            return Match::blocked("pools have three spatial axes at most");
        }
        let mut kernel_shape = vec![1; rank - 1];
        kernel_shape[0] = op.size;
        let mut pads = vec![0; 2 * (rank - 1)];
        (pads[0], pads[rank - 1]) = ((op.size - 1) / 2, op.size / 2);
        let pool = AveragePool {
            count_include_pad: true,
            dilations: Vec::new(),
            ceil_mode: false,
            pads,
            auto_pad: AutoPad::NotSet,
            strides: Vec::new(),
            kernel_shape,
        };
        let mut patch = Patch::new();
        let name = &*node.name;
        let number = |patch: &mut Patch, what: &str, number: f32| {
            let scalar = Tensor::from_f64s(dtype, &[], &[f64::from(number)]);
            scalar.map(|scalar| patch.constant(&format!("{name}.{what}"), scalar))
        };
        let numbers = [("alpha", op.alpha), ("bias", op.bias), ("beta", op.beta)];
        let [Ok(alpha), Ok(bias), Ok(beta)] = numbers.map(|(what, value)| number(&mut patch, what, value))
        else {
            return Match::No;
        };
        let axis = patch.constant(&format!("{name}.axis"), Tensor::vector(vec![1i64]));
        let square = patch.node(name, Mul {}, &[x.into(), x.into()]);
        let apart = patch.node(name, Unsqueeze {}, &[square, axis]);
        let mean = patch.node(name, pool, &[apart]);
        let mean = patch.node(name, Squeeze {}, &[mean, axis]);
        let scaled = patch.node(name, Mul {}, &[mean, alpha]);
        let sum = patch.node(name, Add {}, &[scaled, bias]);
        let divisor = patch.node(name, Pow {}, &[sum, beta]);
        let new = patch.node(name, Div {}, &[x.into(), divisor]);
        patch.replace(y, new);
        Match::Rewrite(patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, PLAIN, agrees, becomes, refuses};

    #[test]
    fn squares_are_averaged_over_channels() {
        becomes(
            SpellLrn,
            "input %x: f32[n,6,h,w] %y: f32[n,6,h,w] = LRN(%x) {alpha=0.5, beta=0.75, bias=2, size=4} \"l\" output %y",
            "input %x: f32[n,6,h,w] const %l.alpha: f32[] = 0.5 const %l.bias: f32[] = 2 \
             const %l.beta: f32[] = 0.75 const %l.axis: i64[1] = [1] %l: f32[n,6,h,w] = Mul(%x, %x) \"l\" \
             %l.1: f32[n,1,6,h,w] = Unsqueeze(%l, %l.axis) \"l\" \
             %l.2: f32[n,1,6,h,w] = AveragePool(%l.1) {count_include_pad=true, kernel_shape=[4,1,1], \
             pads=[1,0,0,2,0,0]} \"l\" %l.3: f32[n,6,h,w] = Squeeze(%l.2, %l.axis) \"l\" \
             %l.4: f32[n,6,h,w] = Mul(%l.3, %l.alpha) \"l\" %l.5: f32[n,6,h,w] = Add(%l.4, %l.bias) \"l\" \
             %l.6: f32[n,6,h,w] = Pow(%l.5, %l.beta) \"l\" %y: f32[n,6,h,w] = Div(%x, %l.6) \"l\" output %y",
            Feed { sizes: &[("n", 2), ("h", 3), ("w", 2)], ..PLAIN },
        );
    }

    #[test]
    fn windows_of_every_size_agree() {
        for size in [1, 2, 3, 5, 9] {
            for shape in ["2,5,3", "1,5,2,3"] {
                let text = format!(
                    "input %x: f32[{shape}] %y: f32[{shape}] = LRN(%x) {{alpha=0.3, size={size}}} output %y"
                );
                agrees(SpellLrn, &text, PLAIN);
            }
        }
    }

    #[test]
    fn more_axes_are_refused() {
        let text = "input %x: f32[1,5,2,3,2] %y: f32[1,5,2,3,2] = LRN(%x) {size=3} output %y";
        refuses(SpellLrn, text, "pools have three spatial axes at most");
    }
}
