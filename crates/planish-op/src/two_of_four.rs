//! 2:4 sparsity: of each four neighbours along the axis that a product adds up, two at least are zero. Sparse tensor cores
//! multiply such weights at twice the rate, from little more than half the bytes.

use planish_tensor::{DType, Tensor};

use crate::Op;

/// The axis of a product's weight, its second factor, along which the product adds up: of a convolution the channels, which
/// matrix products see innermost. `None` where the operator is no product, or the weight no matrix of one.
pub fn summed_axis(op: &Op, rank: usize) -> Option<usize> {
    match op {
        Op::MatMul(_) if rank == 2 => Some(0),
        Op::Gemm(gemm) if rank == 2 => Some(usize::from(gemm.trans_b)),
        Op::Conv(_) if rank > 2 => Some(1),
        _ => None,
    }
}

/// The places of four neighbours along an axis, of all such fours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fours {
    outer: usize,
    len: usize,
    inner: usize,
}

impl Fours {
    /// Of a tensor of these sizes.
    pub fn along(dims: &[usize], axis: usize) -> Fours {
        let product = |dims: &[usize]| dims.iter().product();
        Fours { outer: product(&dims[..axis]), len: dims[axis], inner: product(&dims[axis + 1..]) }
    }

    /// Shows the places of each four, fewer at the end of the axis, as long as `visit` gives true; says whether it always
    /// did.
    pub fn all(&self, mut visit: impl FnMut(&[usize]) -> bool) -> bool {
        let Fours { outer, len, inner } = *self;
        for outer in 0..outer {
            for first in (0..len).step_by(4) {
                let n = (len - first).min(4);
                for inner_at in 0..inner {
                    let start = (outer * len + first) * inner + inner_at;
                    let places = [0, 1, 2, 3].map(|at| start + at * inner);
                    if !visit(&places[..n]) {
                        return false;
                    }
                }
            }
        }
        true
    }
}

/// Whether of each four neighbours along the axis at most two have any bit set: a zero with a sign is none.
pub fn is_two_of_four(weight: &Tensor, axis: usize) -> bool {
    let size = match weight.dtype() {
        DType::F32 => 4,
        DType::F16 | DType::BF16 => 2,
        DType::I8 => 1,
        _ => return false,
    };
    if weight.is_empty() || axis >= weight.rank() {
        return false;
    }
    let bytes: &[u8] = weight.bytes();
    let is_set = |place: &&usize| bytes[**place * size..(**place + 1) * size].iter().any(|byte| *byte != 0);
    Fours::along(weight.shape(), axis).all(|places| places.iter().filter(is_set).count() <= 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AutoPad, Conv, Gemm, MatMul};

    #[test]
    fn fours_lie_along_the_axis() {
        let mut seen = Vec::new();
        assert!(Fours::along(&[2, 5, 2], 1).all(|places| {
            seen.push(places.to_vec());
            true
        }));
        assert_eq!(seen[..4], [vec![0, 2, 4, 6], vec![1, 3, 5, 7], vec![8], vec![9]]);
        assert_eq!(seen.concat().len(), 20);
    }

    #[test]
    fn two_of_each_four_may_be_set() {
        let of = |dims: &[usize], values: &[f32]| Tensor::new(dims, values.to_vec()).unwrap();
        let rows = of(&[2, 4], &[1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 3.0, 4.0]);
        assert!(is_two_of_four(&rows, 1));
        // Columns have two elements each.
        assert!(is_two_of_four(&rows, 0));
        assert!(!is_two_of_four(&of(&[1, 4], &[1.0, 5.0, 2.0, 0.0]), 1));
        assert!(is_two_of_four(&of(&[4, 1], &[1.0, 0.0, 2.0, 0.0]), 0));
        // A negative zero has a bit that a packed weight would not keep.
        assert!(!is_two_of_four(&of(&[1, 4], &[1.0, -0.0, 2.0, 0.0]), 1));
        // Three at the end of the axis.
        assert!(!is_two_of_four(&of(&[1, 7], &[0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]), 1));
        assert!(!is_two_of_four(&of(&[0, 4], &[]), 1));
        assert!(!is_two_of_four(&rows, 2));
        let integers = Tensor::new(&[4], vec![1i8, 0, -3, 0]).unwrap();
        assert!(is_two_of_four(&integers, 0));
    }

    #[test]
    fn products_add_up_along_the_rows_of_their_weight_or_its_channels() {
        assert_eq!(summed_axis(&MatMul {}.into(), 2), Some(0));
        assert_eq!(summed_axis(&MatMul {}.into(), 3), None);
        let gemm = |trans_b| Gemm { alpha: 1.0, beta: 1.0, trans_a: false, trans_b };
        assert_eq!(summed_axis(&gemm(false).into(), 2), Some(0));
        assert_eq!(summed_axis(&gemm(true).into(), 2), Some(1));
        let conv = Conv {
            group: 1,
            pads: Vec::new(),
            auto_pad: AutoPad::NotSet,
            strides: Vec::new(),
            dilations: Vec::new(),
            kernel_shape: None,
        };
        assert_eq!(summed_axis(&conv.into(), 4), Some(1));
    }
}
