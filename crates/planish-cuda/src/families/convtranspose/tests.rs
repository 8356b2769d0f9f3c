//! Transposed convolutions against the reference, on tensor cores and on the plain units.

use planish_testing::{Tolerance, problems};

use super::ConvTransposeFamily;
use crate::trial;

/// Sums of up to a few hundred products in f32.
const SUMS: Tolerance = Tolerance { relative: 3e-5, absolute: 3e-5 };

#[test]
fn samples_are_convolved() {
    for problem in problems::convtranspose::samples() {
        trial::check(&ConvTransposeFamily, &problem, 5, SUMS);
    }
}
