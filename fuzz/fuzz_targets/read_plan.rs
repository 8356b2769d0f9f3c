//! Any bytes as a plan file: they end in a typed error or in a plan that is written and read back the same.
//!
//! Checksums would stop almost every change at the door, so the bytes are taken as the contents of sections,
//! each after its length, and put into a file whose checksums are right; and once as a whole file too. Seeds
//! are small plans in that form: `cargo run -p planish-plan --example seeds -- fuzz/corpus/read_plan PLAN…`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use planish_plan::{Plan, seal, seal_packed};
use planish_tensor::Bytes;

fuzz_target!(|bytes: &[u8]| {
    check(bytes.to_vec());
    let mut rest = bytes;
    let coded = std::array::from_fn(|_| {
        let Some((len, after)) = rest.split_first_chunk::<2>() else { return Vec::new() };
        let (section, after) = after.split_at(after.len().min(u16::from_le_bytes(*len).into()));
        rest = after;
        section.to_vec()
    });
    check(seal(&coded, rest));
    // As a plan without weights, whose code is packed; what it unpacks to is the first number of the weights.
    if let Some((len, sums)) = rest.split_first_chunk::<4>() {
        check(seal_packed(&coded, sums, u32::from_le_bytes(*len).into()));
    }
});

fn check(bytes: Vec<u8>) {
    let Ok(plan) = Plan::from_bytes(Bytes::from_vec(bytes)) else { return };
    let written = plan.to_bytes().expect("a plan that was read");
    let again = Plan::from_bytes(Bytes::from_vec(written.clone())).expect("a plan that was written");
    assert_eq!(again.to_bytes().expect("the same plan"), written);
}
