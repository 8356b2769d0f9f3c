//! Linear models and support vectors.

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

/// The sum over the support vectors, or where there are none a linear model.
pub(super) fn svm_regressor(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    if PostTransform::of(n)? != PostTransform::None {
        return Err(n.unsupported(Some("a post_transform of support vectors")));
    }
    let list = |n: &NodeImport<'_, '_>, name: &str| -> Result<Vec<f64>, ImportError> {
        Ok(n.floats(name)?.unwrap_or_default().into_iter().map(f64::from).collect())
    };
    let rows = n.rows()?;
    let rows = n.cast(rows, DType::F32)?;
    let (coefficients, vectors) = (list(n, "coefficients")?, list(n, "support_vectors")?);
    let n_supports = usize::try_from(n.int_or("n_supports", 0)?).unwrap_or(0);
    let similar = if n_supports == 0 {
        rows
    } else {
        if coefficients.len() != n_supports || vectors.is_empty() || !vectors.len().is_multiple_of(n_supports)
        {
            return Err(ImportError::invalid(format!("the lists are not of {n_supports} support vectors")));
        }
        similarity(n, rows, &vectors, n_supports)?
    };
    let coefficients = n.number_list("coefficients", DType::F32, &[coefficients.len(), 1], &coefficients)?;
    let rho = list(n, "rho")?.first().copied().unwrap_or(0.0);
    let rho = n.number_list("rho", DType::F32, &[1], &[rho])?;
    let product = op::Gemm { alpha: 1.0, beta: 1.0, trans_a: false, trans_b: false };
    let mut score = n.temporary(product, &[Some(similar), Some(coefficients), Some(rho)])?;
    if n.int_or("one_class", 0)? != 0 {
        let (zero, inside, outside) = (
            n.number("zero", DType::F32, 0.0)?,
            n.number("in", DType::F32, 1.0)?,
            n.number("out", DType::F32, -1.0)?,
        );
        let is_inside = n.temporary(op::Greater {}, &[Some(score), Some(zero)])?;
        score = n.temporary(op::Where {}, &[Some(is_inside), Some(inside), Some(outside)])?;
    }
    n.alias(0, score)
}

/// The kernel function of every row with every support vector.
fn similarity(n: &mut NodeImport<'_, '_>, rows: ValueId, vectors: &[f64], n_supports: usize) -> Made {
    let parameters = n.floats("kernel_params")?.unwrap_or_default();
    let parameter = |at: usize| f64::from(parameters.get(at).copied().unwrap_or(0.0));
    let (gamma, offset, degree) = (parameter(0), parameter(1), parameter(2));
    let vectors =
        n.number_list("supports", DType::F32, &[n_supports, vectors.len() / n_supports], vectors)?;
    let kernel = n.text("kernel_type")?.unwrap_or_else(|| "LINEAR".to_string());
    if kernel == "RBF" {
        // Differences first: the squares of rows far from 0 would swallow them.
        let rows = n.unsqueeze(rows, vec![1])?;
        let between = n.temporary(op::Sub {}, &[Some(rows), Some(vectors)])?;
        let axes = n.int_vector("axes", vec![-1])?;
        let squares = op::ReduceSumSquare { keepdims: false, noop_with_empty_axes: false };
        let distance = n.temporary(squares, &[Some(between), Some(axes)])?;
        let gamma = n.number("gamma", DType::F32, -gamma)?;
        let exponent = n.mul_values(distance, gamma)?;
        return n.temporary(op::Exp {}, &[Some(exponent)]);
    }
    let vectors = n.transpose(vectors, vec![1, 0])?;
    let product = n.temporary(op::MatMul {}, &[Some(rows), Some(vectors)])?;
    if kernel == "LINEAR" {
        return Ok(product);
    }
    let (gamma, offset) = (n.number("gamma", DType::F32, gamma)?, n.number("offset", DType::F32, offset)?);
    let scaled = n.mul_values(product, gamma)?;
    let moved = n.add_values(scaled, offset)?;
    match kernel.as_str() {
        "POLY" => {
            let degree = n.number("degree", DType::F32, degree)?;
            n.temporary(op::Pow {}, &[Some(moved), Some(degree)])
        }
        "SIGMOID" => n.temporary(op::Tanh {}, &[Some(moved)]),
        _ => Err(ImportError::invalid("attribute `kernel_type` must be LINEAR, POLY, RBF or SIGMOID")),
    }
}

/// The node's output 0 made of `value` in f32.
pub(super) fn finish_scores(n: &mut NodeImport<'_, '_>, value: ValueId) -> Result<(), ImportError> {
    let value = n.cast(value, DType::F32)?;
    n.add(op::Identity {}, &[Some(value)], &[Out::Node(0)]).map(|_| ())
}
