//! How attention's operands lie: heads of values that have them as an axis or inside the last one, and masks that
//! are broadcast over the scores.

use crate::Operand;

/// An operand seen as `[batch, head, step, feature]`, features contiguous.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heads {
    pub sizes: [usize; 4],
    /// Of batch, head and step.
    pub strides: [usize; 3],
}

impl Heads {
    /// Of rank 4, or of rank 3 with so many heads in the last axis; `None` where it is neither.
    pub fn of(operand: &Operand, n_heads: Option<i64>) -> Option<Heads> {
        match (&operand.dims[..], &operand.strides[..]) {
            (&[batch, heads, seq, size], &[b, h, s, f]) if f == 1 || size <= 1 => {
                Some(Heads { sizes: [batch, heads, seq, size], strides: [b, h, s] })
            }
            (&[batch, seq, hidden], &[b, s, f]) if f == 1 || hidden <= 1 => {
                let heads = usize::try_from(n_heads?).ok().filter(|&n| n > 0 && hidden % n == 0)?;
                let size = hidden / heads;
                Some(Heads { sizes: [batch, heads, seq, size], strides: [b, size, s] })
            }
            _ => None,
        }
    }
}

/// A mask's strides along batch, head, query and key, 0 where it is broadcast, and how many keys it has: its last
/// axis may be shorter than that of the scores.
pub fn mask_strides(mask: &Operand, scores: [usize; 4]) -> Option<([usize; 4], usize)> {
    let rank = mask.rank();
    let stride = |axis: usize| {
        let own = (axis + rank).checked_sub(4);
        own.map_or(Some(0), |own| match mask.dims[own] {
            1 => Some(0),
            dim if dim == scores[axis] => Some(mask.strides[own]),
            _ => None,
        })
    };
    let (key, n_keys) = match rank {
        0 => (0, scores[3]),
        _ => (mask.strides[rank - 1], mask.dims[rank - 1]),
    };
    (rank <= 4 && n_keys <= scores[3]).then_some(())?;
    Some(([stride(0)?, stride(1)?, stride(2)?, key], n_keys))
}

#[cfg(test)]
mod tests {
    use planish_tensor::DType;

    use super::*;
    use crate::Layout;

    #[test]
    fn heads_are_an_axis_or_inside_the_last() {
        let apart = Operand::dense(DType::F32, &[2, 4, 10, 8], Layout::Plain);
        let inside = Operand::dense(DType::F32, &[2, 10, 32], Layout::Plain);
        let sizes = [2, 4, 10, 8];
        assert_eq!(Heads::of(&apart, None), Some(Heads { sizes, strides: [320, 80, 8] }));
        assert_eq!(Heads::of(&inside, Some(4)), Some(Heads { sizes, strides: [320, 8, 32] }));
        assert_eq!(Heads::of(&inside, Some(5)), None);
        assert_eq!(Heads::of(&inside, None), None);
    }

    #[test]
    fn masks_are_broadcast_and_may_be_short() {
        let mask = |dims: &[usize]| Operand::dense(DType::F32, dims, Layout::Plain);
        let scores = [2, 4, 10, 12];
        assert_eq!(mask_strides(&mask(&[10, 12]), scores), Some(([0, 0, 12, 1], 12)));
        assert_eq!(mask_strides(&mask(&[2, 1, 1, 9]), scores), Some(([9, 0, 0, 1], 9)));
        assert_eq!(mask_strides(&mask(&[]), scores), Some(([0; 4], 12)));
        assert_eq!(mask_strides(&mask(&[3, 12]), scores), None);
        assert_eq!(mask_strides(&mask(&[10, 13]), scores), None);
        assert_eq!(mask_strides(&mask(&[1, 2, 4, 10, 12]), scores), None);
    }
}
