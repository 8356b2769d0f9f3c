//! Products of bf16 for convolutions and matrices of f32: windows are rounded to bf16 as they are copied together, once
//! for all panels that they meet; pairs are multiplied and summed in f32; bias, residual and clamp are f32.
//!
//! Weights are packed in pairs of neighbouring input channels, two bytes each, by the packing that all convolutions
//! share. `gather` rounds windows, `amx` and `dots` are the tiles, `table` lists them.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod dots;
#[cfg(target_arch = "x86_64")]
mod gather;
mod pack;
mod table;

pub(crate) use pack::{pack, packed_words, unpack};
pub(crate) use table::{Bf16Tile, is_here, needed_feature};

/// Input channels that stand together.
const PAIR: usize = 2;
