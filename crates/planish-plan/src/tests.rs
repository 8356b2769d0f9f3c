//! Tests of the file as a whole: round trips, damage, and plans that contradict themselves.

mod bundle;
mod certificate;
mod consistency;
mod damage;
mod left_out;
mod packed_code;
mod round_trip;
pub(crate) mod sample;
mod text;
