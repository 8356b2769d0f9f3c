//! Attention by hand.
