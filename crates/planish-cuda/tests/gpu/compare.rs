//! How far a kernel's result may be from the exact one.

use planish_kernel::{Arithmetic, Problem};
use planish_tensor::{DType, Tensor};

/// Sums of some thousand products in f32 are off by a few units in the last place of their terms: 6e-8 times the
/// square root of the terms, with room for approximated functions.
const F32: f64 = 2e-5;
/// Factors lose all but 10 bits of mantissa: 2^-11 each, and chance adds up to some four times that.
const TF32: f64 = 4e-3;
/// The result is rounded to 11 bits once, and so may be weights of an attention before it.
const F16: f64 = 3e-3;
/// As f16, with 8 bits.
const BF16: f64 = 2.4e-2;

/// The share of the exact value, and of the values' root mean square, that an element may be off.
fn bound(problem: &Problem, output: DType) -> f64 {
    let arithmetic = match problem.numeric.element {
        Arithmetic::Tf32 => TF32,
        Arithmetic::F16 => F16,
        Arithmetic::Bf16 => BF16,
        _ => F32,
    };
    let storage = match output {
        DType::F16 => F16,
        DType::BF16 => BF16,
        _ => F32,
    };
    arithmetic.max(storage)
}

/// The largest error as a share of its bound; an error names the first element beyond it. Integers and booleans
/// must be the same.
pub(crate) fn compare(problem: &Problem, got: &Tensor, want: &Tensor, slack: f64) -> Result<f64, String> {
    if got.shape() != want.shape() {
        return Err(format!("shape {:?}, not {:?}", got.shape(), want.shape()));
    }
    let is_real = matches!(got.dtype(), DType::F64 | DType::F32 | DType::F16 | DType::BF16);
    let (got_values, want_values) = (got.to_f64s(), want.to_f64s());
    let finite = || want_values.iter().copied().filter(|value| value.is_finite());
    let rms = (finite().map(|value| value * value).sum::<f64>() / finite().count().max(1) as f64).sqrt();
    let bound = slack * bound(problem, got.dtype());
    let most = match got.dtype() {
        DType::F16 => 65_504.0,
        DType::BF16 | DType::F32 => f64::from(f32::MAX),
        _ => f64::INFINITY,
    };
    let mut worst = 0.0f64;
    let mut wrong = Vec::new();
    for (idx, (&got, &want)) in got_values.iter().zip(&want_values).enumerate() {
        let same = got == want || (got.is_nan() && want.is_nan());
        // What is too large for the type is infinite there.
        let overflows =
            got.is_infinite() && want.abs() >= most * (1.0 - bound) && got.signum() == want.signum();
        if same || overflows {
            continue;
        }
        let error = (got - want).abs() / (bound * (want.abs() + rms));
        if !is_real || error.is_nan() || error > 1.0 {
            wrong.push(format!("[{idx}] is {got:e}, not {want:e}"));
        } else {
            worst = worst.max(error);
        }
    }
    if wrong.is_empty() {
        return Ok(worst);
    }
    let (n_wrong, first) = (wrong.len(), wrong[..wrong.len().min(3)].join("; "));
    Err(format!("{n_wrong} of {} elements are wrong: {first}", got_values.len()))
}
