//! Recurrent layers by hand.
