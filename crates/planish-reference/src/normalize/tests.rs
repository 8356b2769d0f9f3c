//! Normalizations by hand.
