//! Sizes of matrix products, as MatMul and Gemm have them.

/// Rows, columns and depth of one product of these factors. A factor of one axis is a row, or a column.
pub fn product_sizes(a: &[usize], b: &[usize], trans_a: bool, trans_b: bool) -> (usize, usize, usize) {
    let (rows, depth) = match (a, trans_a) {
        ([depth], _) => (1, *depth),
        ([.., rows, depth], false) | ([.., depth, rows], true) => (*rows, *depth),
        ([], _) => (0, 0),
    };
    let columns = match (b, trans_b) {
        ([_], _) => 1,
        ([.., _, columns], false) | ([.., columns, _], true) => *columns,
        ([], _) => 0,
    };
    (rows, columns, depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_may_be_turned_or_have_one_axis() {
        assert_eq!(product_sizes(&[7, 2, 3], &[3, 5], false, false), (2, 5, 3));
        assert_eq!(product_sizes(&[3, 2], &[5, 3], true, true), (2, 5, 3));
        assert_eq!(product_sizes(&[3], &[3, 5], false, false), (1, 5, 3));
        assert_eq!(product_sizes(&[2, 3], &[3], false, false), (2, 1, 3));
    }
}
