//! Neighbouring axes of an index space that are one.

/// Joins neighbours, outermost first, where every operand goes on from one to the next with the same stride.
///
/// `size` is an axis' number of elements, and `stride` gives an operand's distance from one of them to the next, `None`
/// past the last operand. A joined axis has the strides of its innermost part.
pub fn join<A>(
    axes: impl IntoIterator<Item = A>,
    size: impl Fn(&mut A) -> &mut usize,
    stride: impl Fn(&A, usize) -> Option<isize>,
) -> Vec<A> {
    let mut joined: Vec<A> = Vec::new();
    for mut axis in axes {
        let count = *size(&mut axis);
        let goes_on = |outer: &A| {
            let pairs = (0..).map_while(|operand| Some((stride(outer, operand)?, stride(&axis, operand)?)));
            let times = |step: isize| isize::try_from(count).ok().and_then(|count| step.checked_mul(count));
            pairs.into_iter().all(|(outer, inner)| times(inner) == Some(outer))
        };
        match joined.last_mut() {
            Some(outer) if goes_on(outer) => {
                *size(&mut axis) = *size(outer) * count;
                *outer = axis;
            }
            _ => joined.push(axis),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    fn join(axes: &[(usize, [isize; 2])]) -> Vec<(usize, [isize; 2])> {
        super::join(axes.iter().copied(), |axis| &mut axis.0, |axis, operand| axis.1.get(operand).copied())
    }

    #[test]
    fn axes_join_where_all_operands_go_on() {
        assert_eq!(join(&[(2, [12, 12]), (3, [4, 4]), (4, [1, 1])]), [(24, [1, 1])]);
        // Channels last with a vector along the channels.
        assert_eq!(join(&[(2, [60, 0]), (20, [3, 0]), (3, [1, 1])]), [(40, [3, 0]), (3, [1, 1])]);
        // One of both has a gap.
        assert_eq!(join(&[(2, [4, 5]), (4, [1, 1])]).len(), 2);
        // Backwards, and strides whose product is not a number.
        assert_eq!(join(&[(2, [-4, 4]), (4, [-1, 1])]), [(8, [-1, 1])]);
        assert_eq!(join(&[(2, [0, 0]), (4, [isize::MAX, 0])]).len(), 2);
        assert_eq!(join(&[]), []);
    }
}
