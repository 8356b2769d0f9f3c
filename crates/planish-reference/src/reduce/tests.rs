//! Reductions by hand.
