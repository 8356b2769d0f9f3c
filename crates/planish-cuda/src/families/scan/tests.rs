//! Running sums against the reference.

use super::Scan;
use crate::steps::Planner;
use crate::trial::{self, Tolerance};

/// Sums of a dozen elements in f32.
const SUMS: Tolerance = Tolerance { relative: 1e-6, absolute: 1e-6 };

#[test]
fn samples_are_summed() {
    for problem in Scan.samples() {
        trial::check(&Scan, &problem, 5, SUMS);
    }
}
