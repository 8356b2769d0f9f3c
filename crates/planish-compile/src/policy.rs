//! The policy of the tuner: how much is searched and measured at which tune level.

use planish_kernel::Budget;

/// What families of kernels may offer at a tune level. The highest one takes all the time that it needs; below it a
/// build measures what the cost models put close to the best.
pub(crate) fn budget(tune_level: u32) -> Budget {
    if tune_level >= 5 { Budget::WIDE } else { Budget::USUAL }
}
