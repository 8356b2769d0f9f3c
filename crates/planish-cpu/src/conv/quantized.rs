//! Convolutions and matrix products of 8 bits: regions of DequantizeLinear, a product, what follows it and, mostly,
//! QuantizeLinear, as one integer kernel.
//!
//! Activations are unsigned bytes with channels innermost, weights signed bytes with one scale for each output channel
//! or one for all. The scale and zero point of activations may be values that the model computes; weights may have zero
//! points too. Sums are exact in i32; a scale, the bias, a residual and a clamp follow in f32, and the result is
//! stored as bytes again or as f32. The blocked driver is the one of f32 ([`super::igemm`]): four channels of a byte
//! each take the place of one f32; channels that are no multiple of four are filled up in a copy. A matrix product is a convolution of one tap over its rows.
//! Convolutions of 3x3 have Winograd's way too (`winograd`).

mod aligned;
#[cfg(target_arch = "x86_64")]
mod amx;
mod family;
mod finish;
mod pack;
mod region;
mod table;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod tile;
mod way;
#[cfg(target_arch = "x86_64")]
mod winograd;
mod words;

pub(crate) use family::{QuantizedFamily, image_wants};
pub(crate) use finish::{Channels, Finish, kind};
pub(crate) use pack::{Arrangement, Places, pack as pack_quads, packed_bytes, places as quad_places};
pub(crate) use region::{Form, Quantized, WeightZeros};
#[cfg(target_arch = "x86_64")]
pub(crate) use table::{Vnni256, Vnni512};
pub(crate) use tile::{Dot, Factors, sum_up};
pub(crate) use words::packed_len as words_len;

use crate::isa::Feature;

/// The feature that a tactic of these families needs beside its instruction set.
pub(crate) fn needed_feature(tactic: &str) -> Option<Feature> {
    tactic.starts_with('q').then(|| table::needed_feature(tactic)).flatten()
}

/// Channels of a dot product: those that share an element of four bytes.
const QUAD: usize = 4;
