//! Tests of the file as a whole: round trips, damage, and plans that contradict themselves.

mod certificate;
mod consistency;
mod damage;
mod round_trip;
pub(crate) mod sample;
mod text;
