//! Inference: ensembles of trees.

use planish_tensor::{Dim, Shape};

use crate::TreeEnsemble;
use crate::trees::Forest;

use super::checks;
use super::{InferResult, Inference, Inferred};

pub(super) fn tree_ensemble(op: &TreeEnsemble, cx: &mut Inference<'_>) -> InferResult {
    let dtype = checks::float(cx, 0)?;
    for (name, own) in [("nodes_splits", &op.nodes_splits), ("leaf_weights", &op.leaf_weights)] {
        if own.dtype() != dtype {
            return Err(cx.bad_type(format!("`{name}` is of {}, the rows are of {dtype}", own.dtype())));
        }
    }
    let forest = Forest::of(op).map_err(|why| cx.bad_attribute(why))?;
    let rows = match cx.shape_of_rank(0, 2)? {
        Some(shape) => {
            if let Some(n) = shape[1].as_const().filter(|n| *n < forest.n_features as i64) {
                return Err(
                    cx.bad_shape(format!("the trees ask for {} features, a row has {n}", forest.n_features))
                );
            }
            shape[0].clone()
        }
        None => cx.fresh_dim("rows"),
    };
    let shape = Shape::from_iter([rows, Dim::from(forest.n_targets)]);
    checks::outputs(cx, vec![Inferred::tensor(dtype, shape)])
}

#[cfg(test)]
mod tests {
    use planish_tensor::Tensor;

    use super::super::InferErrorKind;
    use super::super::testing::{assert_output, assert_refused, of};
    use super::*;

    fn stump() -> TreeEnsemble {
        TreeEnsemble {
            aggregate_function: 1,
            leaf_starts: Vec::new(),
            leaf_targetids: vec![0, 2],
            leaf_weights: Tensor::vector(vec![1f32, 2.]),
            membership_values: None,
            n_targets: 3,
            nodes_falseleafs: vec![1],
            nodes_falsenodeids: vec![1],
            nodes_featureids: vec![4],
            nodes_missing_value_tracks_true: Vec::new(),
            nodes_modes: Tensor::vector(vec![0u8]),
            nodes_splits: Tensor::vector(vec![1f32]),
            nodes_trueleafs: vec![1],
            nodes_truenodeids: vec![0],
            tree_roots: vec![0],
        }
    }

    #[test]
    fn rows_in_and_targets_out() {
        assert_output(stump(), &[of("f32[n,5]")], "f32[n,3]");
        assert_output(stump(), &[of("f32[0,m]")], "f32[0,3]");
        assert_output(stump(), &[of("f32[*]")], "f32[rows0,3]");
        assert_refused(stump(), &[of("f32[n,4]")], InferErrorKind::BadShape);
        assert_refused(stump(), &[of("f64[n,5]")], InferErrorKind::BadType);
        assert_refused(stump(), &[of("i64[n,5]")], InferErrorKind::BadType);
        let none = TreeEnsemble { n_targets: 2, ..stump() };
        assert_refused(none, &[of("f32[n,5]")], InferErrorKind::BadAttribute);
    }
}
