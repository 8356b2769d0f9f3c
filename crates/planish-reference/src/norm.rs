//! Reference: normalizations and losses.
//!
//! Everything is computed in `f64` and rounded once. `stash_type` asks for at least that precision in the
//! first stage, so that it only decides the type of the statistics that are outputs.

mod axes;
mod channels;
mod loss;
#[cfg(test)]
mod tests;

pub(crate) use axes::{
    layer_normalization, lp_normalization, lrn, mean_variance_normalization, rms_normalization,
};
pub(crate) use channels::{batch_normalization, group_normalization, instance_normalization};
pub(crate) use loss::{negative_log_likelihood_loss, softmax_cross_entropy_loss};

/// Mean and variance (of the population) of some values, in two passes.
fn moments(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let n = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / n;
    let variance = values.map(|value| (value - mean) * (value - mean)).sum::<f64>() / n;
    (mean, variance)
}
