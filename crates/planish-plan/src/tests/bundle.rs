//! Files of several plans.

use planish_tensor::Bytes;

use super::sample;
use crate::{Bundle, CertificateState, Plan, PlanErrorKind};

/// The sample, and the same for another machine with one weight of its own.
fn plans() -> Vec<Plan> {
    let mut other = sample::plan();
    other.header.targets[0].needs = vec!["portable".to_string()];
    other.weights[0].bytes = Bytes::from_vec(vec![7u8; 300]);
    let mut plans = vec![sample::plan(), other];
    for plan in &mut plans {
        let checks = plan.certificate.checks.clone();
        plan.certify(checks).unwrap();
    }
    plans
}

fn open(bytes: Vec<u8>) -> Result<Vec<Plan>, crate::PlanError> {
    let bundle = Bundle::from_bytes(Bytes::from_vec(bytes))?;
    (0..bundle.members().len()).map(|idx| bundle.plan(idx)).collect()
}

#[test]
fn plans_come_back_as_they_were() {
    let plans = plans();
    let bytes = Bundle::to_bytes(&plans).unwrap();
    assert!(crate::is_bundle(&bytes) && !crate::is_plan(&bytes));
    let bundle = Bundle::from_bytes(Bytes::from_vec(bytes.clone())).unwrap();
    let needs: Vec<_> =
        bundle.members().iter().map(|member| member.header.targets[0].needs.join(" ")).collect();
    assert_eq!(needs, ["avx2 fma", "portable"]);
    assert!(bundle.members().iter().all(|member| !member.is_stripped));
    for (plan, again) in plans.iter().zip(open(bytes.clone()).unwrap()) {
        assert_eq!(again.to_bytes().unwrap(), plan.to_bytes().unwrap());
        assert_eq!(again.certificate.state(), CertificateState::Checked);
        assert!(again.weights.iter().all(|weight| (weight.bytes.as_ptr() as usize).is_multiple_of(16)));
    }
    // What both have stands there once: 500, 16 and 300 bytes, not 500, 16, 300 and 16.
    let heads: usize = plans.iter().map(|plan| plan.strip().to_bytes().unwrap().len()).sum();
    assert!(bytes.len() < heads + 500 + 16 + 300 + 64 * 10, "{} of {heads}", bytes.len());
    assert_eq!(Bundle::to_bytes(&plans).unwrap(), bytes);
}

#[test]
fn every_changed_byte_that_matters_is_found() {
    let bytes = Bundle::to_bytes(&plans()).unwrap();
    let whole = open(bytes.clone()).unwrap();
    let mut n_harmless = 0;
    for idx in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[idx] ^= 1;
        match open(changed) {
            Err(_) => {}
            // Nothing but the zeros between parts.
            Ok(plans) => {
                n_harmless += 1;
                assert!(bytes[idx] == 0 && plans == whole, "byte {idx} of {}", bytes.len());
            }
        }
    }
    assert!(n_harmless < 64 * 8, "{n_harmless}");
    for len in 0..bytes.len() {
        assert!(open(bytes[..len].to_vec()).is_err(), "cut to {len} of {}", bytes.len());
    }
}

/// A file whose table and list of places are in order, whatever they say.
fn sealed(mut bytes: Vec<u8>, n_plans: usize) -> Vec<u8> {
    for idx in 0..=n_plans {
        let at = 64 + 64 * idx;
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        let (start, len) = (number(at), number(at + 8));
        if let Some(part) = start.checked_add(len).and_then(|end| bytes.get(start..end)) {
            let sum = blake3::hash(part);
            bytes[at + 32..at + 64].copy_from_slice(sum.as_bytes());
        }
    }
    let sum = blake3::Hasher::new().update(&bytes[..32]).update(&bytes[64..64 * (n_plans + 2)]).finalize();
    bytes[32..64].copy_from_slice(sum.as_bytes());
    bytes
}

#[test]
fn what_is_made_up_is_refused() {
    let bytes = Bundle::to_bytes(&plans()).unwrap();
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let places = number(64 + 128);
    let with = |at: usize, value: u64| {
        let mut forged = bytes.clone();
        forged[at..at + 8].copy_from_slice(&value.to_le_bytes());
        open(sealed(forged, 2)).unwrap_err().to_string()
    };
    // A part outside of the file, or with a length that wraps around.
    for value in [bytes.len() as u64 + 64, u64::MAX - 63] {
        assert!(with(64, value).contains("outside of the file"));
    }
    assert!(with(72, u64::MAX).contains("outside of the file"));
    // The first weight of the first plan: outside, at an odd place, or another one's.
    let first = places + 2;
    for value in [bytes.len() as u64, u64::MAX, 65] {
        assert!(with(first, value).contains("a weight lies outside of the file"), "{value}");
    }
    assert!(with(first, 64).contains("checksum of its weights does not fit"));
    // More or fewer places than weights or plans.
    let mut fewer = bytes.clone();
    fewer[places] = 1;
    assert!(open(sealed(fewer, 2)).is_err());
    // A plan with weights of its own.
    let mut none = bytes.clone();
    none[12] = 0;
    assert!(open(sealed(none, 2)).unwrap_err().to_string().contains("1 to 256 plans"));
    let mut newer = bytes.clone();
    newer[8] = 9;
    assert_eq!(open(newer).unwrap_err().kind(), PlanErrorKind::NewerFormat);
    assert!(Bundle::to_bytes(&[]).is_err() && Bundle::to_bytes(&[sample::plan().strip()]).is_err());
}
