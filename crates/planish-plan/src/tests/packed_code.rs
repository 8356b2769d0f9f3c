//! Plans without weights, whose code is packed: nothing is believed of it, and everything else is as if it were not.

use planish_kernel::Code;
use planish_tensor::Bytes;
use planish_testing::Random;

use super::sample;
use crate::container::{FORMAT_VERSION, PACKED_VERSION, Section, u32_at};
use crate::packed::{MOST, Packed};
use crate::{Plan, PlanErrorKind, PlanMetadata, seal_packed, unseal};

/// A plan with code that can be packed: pieces that resemble each other, as instances of one kernel do.
fn with_code() -> Plan {
    let mut plan = sample::plan();
    let mut random = Random::new(7);
    let common: Vec<u8> = (0..400).map(|_| random.below(256) as u8).collect();
    plan.code = (0..6)
        .map(|idx| {
            let own = (0..40).map(|_| random.below(256) as u8);
            let bytes: Vec<u8> = common.iter().copied().chain(own).collect();
            Code { key: format!("key{idx}"), bytes: Bytes::from_vec(bytes) }
        })
        .collect();
    let checks = plan.certificate.checks.clone();
    plan.certify(checks).unwrap();
    plan
}

fn read(bytes: Vec<u8>) -> Result<Plan, crate::PlanError> {
    Plan::from_bytes(Bytes::from_vec(bytes))
}

#[test]
fn code_is_packed_where_weights_are_left_out_and_comes_back() {
    let plan = with_code();
    let (full, stripped) = (plan.to_bytes().unwrap(), plan.strip());
    let bytes = stripped.to_bytes().unwrap();
    assert_eq!((u32_at(&full, 8), u32_at(&bytes, 8)), (Some(FORMAT_VERSION), Some(PACKED_VERSION)));
    let code = |bytes: &[u8]| PlanMetadata::from_bytes(bytes).unwrap().code_bytes;
    assert!(3 * code(&bytes) < code(&full), "{} of {}", code(&bytes), code(&full));
    assert!(PlanMetadata::from_bytes(&bytes).unwrap().is_current);
    // It is the same plan, with the certificate that it had, and what is written of it again is the same file.
    let opened = read(bytes.clone()).unwrap();
    assert_eq!(opened, stripped);
    assert_eq!(opened.code, plan.code);
    assert!(opened.certificate_holds().unwrap());
    assert_eq!(opened.to_bytes().unwrap(), bytes);
    assert_eq!(opened.fingerprint().unwrap()[..], bytes[32..64]);
    let (filled, is_same) = opened.refill(plan.weights.clone());
    assert!(is_same && filled.certificate_holds().unwrap());
    assert_eq!(filled.to_bytes().unwrap(), full);
    // Code of another plan under its certificate is still told, packed or not.
    let mut other = stripped.clone();
    other.code[2].bytes = Bytes::from_vec(vec![1u8; 440]);
    let error = other.to_bytes().unwrap_err();
    assert_eq!(error.kind(), PlanErrorKind::OtherCertificate);
    assert!(error.to_string().contains("another code"), "{error}");
}

#[test]
fn a_stripped_plan_of_version_5_keeps_its_fingerprint() {
    // Its code is there as it is, as that of all stripped plans was.
    let mut stripped = with_code().strip();
    stripped.stripped.as_mut().unwrap().code = None;
    let bytes = stripped.to_bytes().unwrap();
    assert_eq!(u32_at(&bytes, 8), Some(FORMAT_VERSION));
    let opened = read(bytes.clone()).unwrap();
    assert_eq!(opened.fingerprint().unwrap()[..], bytes[32..64]);
    assert_eq!(opened.to_bytes().unwrap(), bytes);
    assert!(opened.certificate_holds().unwrap());
}

#[test]
fn every_changed_byte_and_every_cut_is_found() {
    let bytes = with_code().strip().to_bytes().unwrap();
    for idx in 0..bytes.len() {
        for mask in [0x01, 0xff] {
            let mut changed = bytes.clone();
            changed[idx] ^= mask;
            assert!(read(changed).is_err(), "byte {idx} of {} changed by {mask}", bytes.len());
        }
    }
    for len in 0..bytes.len() {
        assert!(read(bytes[..len].to_vec()).is_err(), "cut to {len} of {}", bytes.len());
    }
}

/// Files whose checksums are right and whose packed code is not.
#[test]
fn nothing_is_believed_of_packed_code() {
    let bytes = with_code().strip().to_bytes().unwrap();
    let (coded, _) = unseal(&bytes).unwrap();
    let sums = read(bytes.clone()).unwrap().stripped.unwrap().sums;
    let code = Section::Code as usize - 1;
    let len = read(bytes.clone()).unwrap().stripped.unwrap().code.unwrap().len;
    assert_eq!(seal_packed(&coded, &sums, len), bytes);
    let refused = |packed: Vec<u8>, len: u64, why: &str| {
        let mut coded = coded.clone();
        coded[code] = packed;
        let error = read(seal_packed(&coded, &sums, len)).unwrap_err();
        let said = error.to_string();
        assert_eq!((error.kind(), error.section()), (PlanErrorKind::Malformed, Some("code")), "{said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
    };
    let packed = || coded[code].clone();
    let n_packed = packed().len() as u64;
    let other_length = "does not unpack to the";
    // Lengths that no memory is taken for.
    for len in [0, 1, n_packed, MOST * n_packed + 1, 1 << 40, u64::MAX] {
        refused(packed(), len, "packed bytes are said to be");
    }
    refused(Vec::new(), len, "0 packed bytes are said to be");
    // Other lengths than it has, a stream that is cut, that goes on, that is none.
    for len in [len - 1, len + 1, MOST * n_packed] {
        refused(packed(), len, other_length);
    }
    for cut in 1..packed().len() {
        let said = if len > MOST * cut as u64 { "packed bytes are said to be" } else { other_length };
        refused(packed()[..cut].to_vec(), len.max(cut as u64 + 1), said);
    }
    refused([packed(), vec![0]].concat(), len, other_length);
    refused(vec![0xff; packed().len()], len, other_length);
    // Streams with changed bits end in an error or in code that the certificate was not made for.
    for at in 0..packed().len() {
        let mut changed = packed();
        changed[at] ^= 1 << (at % 8);
        let mut coded = coded.clone();
        coded[code] = changed;
        if let Ok(plan) = read(seal_packed(&coded, &sums, len)) {
            // Some bits of a stream mean nothing.
            assert_eq!(plan.code, with_code().code);
        }
    }
    // Packed code beside weights, which nobody writes.
    let mut beside = bytes;
    beside[28] = 0;
    let sum = blake3::Hasher::new().update(&beside[..32]).update(&beside[64..64 * 10]).finalize();
    beside[32..64].copy_from_slice(sum.as_bytes());
    assert!(read(beside).unwrap_err().to_string().contains("packed in a file that has its weights"));
}

#[test]
fn what_does_not_get_smaller_is_left_as_it_is() {
    let mut random = Random::new(3);
    let noise: Vec<u8> = (0..1000).map(|_| random.below(256) as u8).collect();
    assert_eq!(Packed::new(&noise), None);
    assert_eq!(Packed::new(&[]), None);
    // Readers would not believe it.
    assert_eq!(Packed::new(&vec![0; 1 << 20]), None);
    assert!(Packed::new(&[noise.clone(), noise].concat()).is_some());
}
