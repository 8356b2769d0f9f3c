//! GELU and its relatives.

use planish_op::{Gelu, GeluApproximation, Swish};

use crate::error::ImportError;
use crate::node::NodeImport;

pub(super) fn gelu(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let data = n.required(0)?;
    n.finish(Gelu { approximate: GeluApproximation::None }, &[Some(data)])
}

/// The tanh form, of the data plus an optional bias.
pub(super) fn fast_gelu(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let mut data = n.required(0)?;
    if let Some(bias) = n.input(1) {
        data = n.add_values(data, bias)?;
    }
    n.finish(Gelu { approximate: GeluApproximation::Tanh }, &[Some(data)])
}

pub(super) fn bias_gelu(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let (data, bias) = (n.required(0)?, n.required(1)?);
    let sum = n.add_values(data, bias)?;
    n.finish(Gelu { approximate: GeluApproximation::None }, &[Some(sum)])
}

/// `x * sigmoid(alpha * x)`.
pub(super) fn quick_gelu(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let data = n.required(0)?;
    let alpha = n.float_or("alpha", 1.702)?;
    n.finish(Swish { alpha }, &[Some(data)])
}
