//! Normalizations: rows by their own mean and deviation (layer, RMS), groups of channels (group, instance), and
//! lines by their length (Lp).
//!
//! Means and variances are found in two walks, each sum in f32 over blocks and in f64 beyond, and the mean is
//! kept to more digits than f32 has: what is left of `x - mean` is as exact as `x` is. A program of pointwise
//! operators after the normalization runs over what was just written.

pub(crate) mod family;
mod groups;
mod lengths;
mod rows;
#[cfg(test)]
mod tests;

pub use groups::GroupNorm;
pub use lengths::LpNorm;
pub use rows::{RowKind, RowNorm, RowOperands};

/// A mean as two f32: what rounding took from the first is the second.
fn split(mean: f64) -> (f32, f32) {
    let hi = mean as f32;
    // An infinite or NaN mean has nothing after it.
    (hi, if hi.is_finite() { (mean - f64::from(hi)) as f32 } else { 0.0 })
}
