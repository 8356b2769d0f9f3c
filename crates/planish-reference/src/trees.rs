//! Reference: ensembles of trees. Weights are gathered in `f64`, tree by tree.

use planish_op::TreeEnsemble;
use planish_op::trees::Forest;
use planish_tensor::Tensor;

use crate::nd;
use crate::{EvalResult, Evaluation};

pub(crate) fn tree_ensemble(op: &TreeEnsemble, cx: &Evaluation<'_>) -> EvalResult {
    let rows = cx.tensor(0)?;
    let dtype = cx.common_float(&[rows])?;
    let forest = Forest::of(op).map_err(|why| cx.bad_attribute(why))?;
    let &[n_rows, n_features] = rows.shape() else {
        return Err(cx.bad_shape(format!("rows must have rank 2, their shape is {:?}", rows.shape())));
    };
    if n_features < forest.n_features {
        let detail = format!("the trees ask for {} features, a row has {n_features}", forest.n_features);
        return Err(cx.bad_shape(detail));
    }
    let shape = [n_rows, forest.n_targets];
    let n_results = nd::output_len(cx, dtype, &shape)?;
    let values = rows.to_f64s();
    let mut results = Vec::with_capacity(n_results);
    for row in values.chunks_exact(n_features.max(1)).take(n_rows) {
        let mut gathered = vec![f64::NAN; forest.n_targets];
        for &root in &forest.roots {
            for &(target, weight) in forest.leaf(forest.walk(root, |feature| row[feature])) {
                gathered[target] = forest.aggregate.with(gathered[target], weight);
            }
        }
        results.extend(gathered.iter().map(|all| forest.aggregate.result(*all, forest.roots.len())));
    }
    // Rows without features can only be of a forest without nodes.
    results.resize(n_results, 0.0);
    Ok(vec![Tensor::from_f64s(dtype, &shape, &results)?.into()])
}

#[cfg(test)]
mod tests {
    use planish_op::Op;

    use super::*;
    use crate::EvalErrorKind;
    use crate::testing::run_all;

    /// Two stumps over two features: the second leaf of the first speaks of both targets.
    fn stumps(aggregate_function: i64) -> Op {
        let op = TreeEnsemble {
            aggregate_function,
            leaf_starts: vec![0, 1, 3, 4],
            leaf_targetids: vec![0, 0, 1, 0, 1],
            leaf_weights: Tensor::vector(vec![1f32, 2., 30., 4., 50.]),
            membership_values: None,
            n_targets: 2,
            nodes_falseleafs: vec![1, 1],
            nodes_falsenodeids: vec![1, 3],
            nodes_featureids: vec![0, 1],
            nodes_missing_value_tracks_true: Vec::new(),
            nodes_modes: Tensor::vector(vec![0u8, 1]),
            nodes_splits: Tensor::vector(vec![0.5f32, 0.5]),
            nodes_trueleafs: vec![1, 1],
            nodes_truenodeids: vec![0, 2],
            tree_roots: vec![0, 1],
        };
        op.into()
    }

    #[test]
    fn weights_are_gathered_by_target() {
        let rows = Tensor::new(&[3, 2], vec![0.5f32, 0.0, 1.0, 0.5, f32::NAN, 0.0]).unwrap();
        let of = |aggregate: i64| run_all(stumps(aggregate), &[&rows], 1).unwrap()[0].to_f64s();
        assert_eq!(of(1), [5.0, 0.0, 2.0, 80.0, 6.0, 30.0]);
        assert_eq!(of(0), [2.5, 0.0, 1.0, 40.0, 3.0, 15.0]);
        assert_eq!(of(2), [1.0, 0.0, 2.0, 30.0, 2.0, 30.0]);
        assert_eq!(of(3), [4.0, 0.0, 2.0, 50.0, 4.0, 30.0]);
    }

    #[test]
    fn rows_without_enough_features_are_refused() {
        let empty = Tensor::zeros(planish_tensor::DType::F32, &[0, 2]).unwrap();
        assert!(run_all(stumps(1), &[&empty], 1).unwrap()[0].is_empty());
        let narrow = Tensor::zeros(planish_tensor::DType::F32, &[1, 1]).unwrap();
        assert_eq!(run_all(stumps(1), &[&narrow], 1).unwrap_err(), EvalErrorKind::BadShape);
    }
}
