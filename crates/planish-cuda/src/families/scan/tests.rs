//! Running sums against the reference.

use planish_testing::{Tolerance, problems};

use super::ScanFamily;
use crate::trial;

/// Sums of a dozen elements in f32.
const SUMS: Tolerance = Tolerance { relative: 1e-6, absolute: 1e-6 };

#[test]
fn samples_are_summed() {
    for problem in problems::scan::samples() {
        trial::check(&ScanFamily, &problem, 5, SUMS);
    }
}
