//! Operators over all their types, alone and in plain order: what the families with vectors of f32 do not take.
//!
//! Nothing here is tuned to the last cycle. Loops are over plain memory and short of branches, so that compilers make vectors of
//! them, and everything that a run brings is checked where it is used.

mod args;
mod arithmetic;
mod casts;
mod column;
mod deform_conv;
mod elementwise;
mod family;
mod fourier;
mod grid_sample;
mod lines;
mod max_pool;
mod moves;
mod product;
mod quantize;
mod random;
mod recurrent;
mod roi_align;
mod scatter;
#[cfg(test)]
mod tests;
mod unique;

pub(crate) use family::TypedFamily;
