//! Linear models.

use planish_ir::ValueId;
use planish_op as op;
use planish_tensor::DType;

use super::labels::Labels;
use super::{Made, PostTransform};
use crate::error::ImportError;
use crate::node::{NodeImport, Out};

/// Rows times the coefficients plus the intercepts, `n_targets` of them.
fn scores(n: &mut NodeImport<'_, '_>, n_targets: usize) -> Made {
    let rows = n.rows()?;
    let rows = n.cast(rows, DType::F32)?;
    let coefficients: Vec<f64> =
        n.floats("coefficients")?.unwrap_or_default().into_iter().map(f64::from).collect();
    if n_targets == 0 || coefficients.is_empty() || !coefficients.len().is_multiple_of(n_targets) {
        let detail = format!("{} coefficients are not of {n_targets} targets", coefficients.len());
        return Err(ImportError::invalid(detail));
    }
    let n_features = coefficients.len() / n_targets;
    let weight = n.number_list("coefficients", DType::F32, &[n_targets, n_features], &coefficients)?;
    let mut inputs = vec![Some(rows), Some(weight)];
    if let Some(list) = n.floats("intercepts")?.filter(|list| !list.is_empty()) {
        let list: Vec<f64> = list.into_iter().map(f64::from).collect();
        inputs.push(Some(n.number_list("intercepts", DType::F32, &[list.len()], &list)?));
    }
    n.temporary(op::Gemm { alpha: 1.0, beta: 1.0, trans_a: false, trans_b: true }, &inputs)
}

pub(super) fn linear_regressor(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let transform = PostTransform::of(n)?;
    let n_targets = usize::try_from(n.int_or("targets", 1)?).unwrap_or(0);
    let scores = scores(n, n_targets)?;
    let value = transform.apply(n, scores)?;
    n.alias(0, value)
}

pub(super) fn linear_classifier(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let transform = PostTransform::of(n)?;
    let labels = Labels::of(n, "classlabels_ints")?;
    let n_scores = n.floats("intercepts")?.map_or(0, |list| list.len());
    let n_scores = if n_scores == 0 { labels.len() } else { n_scores };
    let scores = scores(n, n_scores)?;
    if n_scores == 1 && labels.len() == 2 {
        return one_score_of_two(n, scores, labels, Second { threshold: 0.0, is_share: true, transform });
    }
    finish_classes(n, scores, labels, transform)
}

/// How the one score of two classes is read.
pub(super) struct Second {
    /// Above this it is the second class.
    pub(super) threshold: f64,
    /// The score is the second class's share of 1: the first has the rest. Else the first has its opposite.
    pub(super) is_share: bool,
    pub(super) transform: PostTransform,
}

/// The outputs of a classifier of two classes with one score.
pub(super) fn one_score_of_two(
    n: &mut NodeImport<'_, '_>,
    score: ValueId,
    labels: Labels,
    second: Second,
) -> Result<(), ImportError> {
    let dtype = n.type_of(score)?.dtype;
    let threshold = n.number("threshold", dtype, second.threshold)?;
    let is_second = n.temporary(op::Greater {}, &[Some(score), Some(threshold)])?;
    let class = n.cast(is_second, DType::I64)?;
    let class = n.reshape_to(class, vec![-1])?;
    labels.finish(n, class)?;
    if !n.wants(1) {
        return Ok(());
    }
    let is_logistic = second.transform == PostTransform::Logistic;
    let (first, second) = if second.is_share {
        let score = if is_logistic { second.transform.apply(n, score)? } else { score };
        let one = n.number("one", dtype, 1.0)?;
        (n.temporary(op::Sub {}, &[Some(one), Some(score)])?, score)
    } else {
        let opposite = n.temporary(op::Neg {}, &[Some(score)])?;
        match is_logistic {
            true => (second.transform.apply(n, opposite)?, second.transform.apply(n, score)?),
            false => (opposite, score),
        }
    };
    let both = n.temporary(op::Concat { axis: 1 }, &[Some(first), Some(second)])?;
    let both = n.cast(both, DType::F32)?;
    n.alias(1, both)
}

/// The outputs of a classifier with a score for each class.
pub(super) fn finish_classes(
    n: &mut NodeImport<'_, '_>,
    scores: ValueId,
    labels: Labels,
    transform: PostTransform,
) -> Result<(), ImportError> {
    let largest = op::ArgMax { axis: 1, keepdims: false, select_last_index: false };
    let class = n.temporary(largest, &[Some(scores)])?;
    labels.finish(n, class)?;
    if !n.wants(1) {
        return Ok(());
    }
    let scores = transform.apply(n, scores)?;
    let scores = n.cast(scores, DType::F32)?;
    n.alias(1, scores)
}

/// The node's output 0 made of `value` in f32.
pub(super) fn finish_scores(n: &mut NodeImport<'_, '_>, value: ValueId) -> Result<(), ImportError> {
    let value = n.cast(value, DType::F32)?;
    n.add(op::Identity {}, &[Some(value)], &[Out::Node(0)]).map(|_| ())
}
