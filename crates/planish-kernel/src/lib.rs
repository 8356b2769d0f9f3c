//! What a backend computes and how: regions, problems, tactics and the `Backend` trait.
