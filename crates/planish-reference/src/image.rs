//! Reference: resampling and detection.

mod boxes;
mod grid;
mod resize;
mod taps;

pub(crate) use boxes::{crop_and_resize, non_max_suppression};
pub(crate) use grid::{affine_grid, grid_sample};
pub(crate) use resize::resize;

#[cfg(test)]
mod tests;
