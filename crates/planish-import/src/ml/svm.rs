//! Support vectors.

use planish_ir::ValueId;
use planish_op as op;
use planish_tensor::DType;

use super::labels::Labels;
use super::{Made, PostTransform};
use crate::error::ImportError;
use crate::node::NodeImport;

fn list(n: &NodeImport<'_, '_>, name: &str) -> Result<Vec<f64>, ImportError> {
    Ok(n.floats(name)?.unwrap_or_default().into_iter().map(f64::from).collect())
}

/// The sum over the support vectors, or where there are none a linear model.
pub(super) fn svm_regressor(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    if PostTransform::of(n)? != PostTransform::None {
        return Err(n.unsupported(Some("a post_transform of support vectors")));
    }
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

/// A score for each pair of classes; whoever wins more pairs than the others is the class, the first of several.
pub(super) fn svm_classifier(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    if PostTransform::of(n)? != PostTransform::None {
        return Err(n.unsupported(Some("a post_transform of support vectors")));
    }
    if !list(n, "prob_a")?.is_empty() {
        let reason =
            "probabilities of support vectors are found by iterations; export with probability=False";
        return Err(n.unsupported(Some(reason)));
    }
    let labels = Labels::of(n, "classlabels_ints")?;
    let pairs = Pairs::of(n, labels.len())?;
    let rows = n.rows()?;
    let rows = n.cast(rows, DType::F32)?;
    let vectors = list(n, "support_vectors")?;
    if vectors.is_empty() || !vectors.len().is_multiple_of(pairs.n_supports) {
        let detail = format!("{} numbers are not {} support vectors", vectors.len(), pairs.n_supports);
        return Err(ImportError::invalid(detail));
    }
    let similar = similarity(n, rows, &vectors, pairs.n_supports)?;
    let (n_pairs, n_classes) = (pairs.rho.len(), labels.len());
    let weights = n.number_list("weights", DType::F32, &[pairs.n_supports, n_pairs], &pairs.weights)?;
    let rho = n.number_list("rho", DType::F32, &[n_pairs], &pairs.rho)?;
    let product = op::Gemm { alpha: 1.0, beta: 1.0, trans_a: false, trans_b: false };
    let scores = n.temporary(product.clone(), &[Some(similar), Some(weights), Some(rho)])?;
    if n.wants(0) {
        let zero = n.number("zero", DType::F32, 0.0)?;
        let is_first = n.temporary(op::Greater {}, &[Some(scores), Some(zero)])?;
        let is_first = n.cast(is_first, DType::F32)?;
        let gains = n.number_list("gains", DType::F32, &[n_pairs, n_classes], &pairs.gains)?;
        let starts = n.number_list("starts", DType::F32, &[n_classes], &pairs.starts)?;
        let votes = n.temporary(product, &[Some(is_first), Some(gains), Some(starts)])?;
        let largest = op::ArgMax { axis: 1, keepdims: false, select_last_index: false };
        let class = n.temporary(largest, &[Some(votes)])?;
        labels.finish(n, class)?;
    }
    if !n.wants(1) {
        return Ok(());
    }
    if n_pairs > 1 {
        return n.alias(1, scores);
    }
    let opposite = n.temporary(op::Neg {}, &[Some(scores)])?;
    let both = n.temporary(op::Concat { axis: 1 }, &[Some(opposite), Some(scores)])?;
    n.alias(1, both)
}

/// Pairs of classes as columns of matrices.
struct Pairs {
    n_supports: usize,
    /// What each support vector counts in each pair, `[n_supports, n_pairs]`: nothing where it is of neither class.
    weights: Vec<f64>,
    rho: Vec<f64>,
    /// Votes that a pair moves where its first class wins, `[n_pairs, n_classes]`.
    gains: Vec<f64>,
    /// Votes of each class where the second class of every pair wins.
    starts: Vec<f64>,
}

impl Pairs {
    fn of(n: &NodeImport<'_, '_>, n_classes: usize) -> Result<Pairs, ImportError> {
        let per_class = n.ints("vectors_per_class")?.unwrap_or_default();
        let per_class: Option<Vec<usize>> =
            per_class.iter().map(|count| usize::try_from(*count).ok()).collect();
        let per_class = per_class.filter(|list| list.len() == n_classes);
        let Some(per_class) = per_class.filter(|_| n_classes >= 2) else {
            return Err(
                n.unsupported(Some("support vectors that are not counted for each of two or more classes"))
            );
        };
        let mut first_of = Vec::with_capacity(n_classes);
        let mut n_supports = 0_usize;
        for count in &per_class {
            first_of.push(n_supports);
            n_supports = n_supports.saturating_add(*count);
        }
        let (coefficients, rho) = (list(n, "coefficients")?, list(n, "rho")?);
        let n_pairs = n_classes * (n_classes - 1) / 2;
        if n_supports == 0
            || rho.len() != n_pairs
            || Some(coefficients.len()) != n_supports.checked_mul(n_classes - 1)
        {
            let detail = format!(
                "{} coefficients and {} rho are not of {n_supports} support vectors and {n_classes} classes",
                coefficients.len(),
                rho.len()
            );
            return Err(ImportError::invalid(detail));
        }
        let mut weights = vec![0.0; n_supports * n_pairs];
        let (mut gains, mut starts) = (vec![0.0; n_pairs * n_classes], vec![0.0; n_classes]);
        let pairs = (0..n_classes).flat_map(|i| (i + 1..n_classes).map(move |j| (i, j)));
        for (pair, (i, j)) in pairs.enumerate() {
            // A class's coefficients against the others lie in rows that leave out the class itself.
            for (of, row) in [(i, j - 1), (j, i)] {
                for at in first_of[of]..first_of[of] + per_class[of] {
                    weights[at * n_pairs + pair] = coefficients[row * n_supports + at];
                }
            }
            gains[pair * n_classes + i] = 1.0;
            gains[pair * n_classes + j] = -1.0;
            starts[j] += 1.0;
        }
        Ok(Pairs { n_supports, weights, rho, gains, starts })
    }
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
