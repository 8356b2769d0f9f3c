//! Plans without the bytes of their weights, and what is read of a plan without the rest.

use planish_tensor::Bytes;

use super::sample;
use crate::{CertificateState, Plan, PlanErrorKind, PlanMetadata, Port, Recipe, seal, unseal};

fn certified() -> Plan {
    let mut plan = sample::plan();
    let checks = plan.certificate.checks.clone();
    plan.certify(checks).unwrap();
    plan
}

fn read(bytes: Vec<u8>) -> Result<Plan, crate::PlanError> {
    Plan::from_bytes(Bytes::from_vec(bytes))
}

#[test]
fn a_stripped_plan_comes_back_and_can_be_filled_again() {
    // Without code, which would be packed: all else is left as it is.
    let mut plan = certified();
    plan.code.clear();
    plan.certify(plan.certificate.checks.clone()).unwrap();
    let stripped = plan.strip();
    assert_eq!(stripped.strip(), stripped);
    let bytes = stripped.to_bytes().unwrap();
    let full = plan.to_bytes().unwrap();
    // All but the flag, the table and the weights is the same.
    let (start, n_data) = (full.len() - bytes.len(), 512 + 16);
    assert_eq!(start, n_data);
    assert_eq!(bytes[64 + 64 * 9..], full[64 + 64 * 9..bytes.len()]);
    let opened = read(bytes).unwrap();
    assert_eq!(opened, stripped);
    assert_eq!(opened.certificate.state(), CertificateState::Checked);
    assert_eq!(opened.stripped.as_ref().unwrap().n_bytes(), 516);
    assert_ne!(opened.fingerprint().unwrap(), plan.fingerprint().unwrap());
    // With the weights that it had it is the plan that it was,
    let (filled, is_same) = opened.refill(plan.weights.clone());
    assert!(is_same && filled.certificate_holds().unwrap());
    assert_eq!(filled.to_bytes().unwrap(), full);
    assert_eq!(filled.fingerprint().unwrap(), plan.fingerprint().unwrap());
    // with others another one, whose certificate is none.
    let mut others = plan.weights.clone();
    others[1].bytes = Bytes::from_vec(vec![1.0f32; 4]);
    let (filled, is_same) = opened.refill(others);
    assert!(!is_same && !filled.certificate_holds().unwrap());
    assert_eq!(filled.to_bytes().unwrap_err().kind(), PlanErrorKind::OtherCertificate);
}

#[test]
fn every_changed_byte_of_a_stripped_plan_is_found() {
    let bytes = certified().strip().to_bytes().unwrap();
    for idx in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[idx] ^= 1;
        assert!(read(changed).is_err(), "byte {idx} of {} changed", bytes.len());
    }
    for len in 0..bytes.len() {
        assert!(read(bytes[..len].to_vec()).is_err(), "cut to {len} of {}", bytes.len());
    }
}

/// A file with these first bytes, its checksum of the table in order.
fn sealed(mut bytes: Vec<u8>, flags: u32) -> Vec<u8> {
    bytes[28..32].copy_from_slice(&flags.to_le_bytes());
    let sum = blake3::Hasher::new().update(&bytes[..32]).update(&bytes[64..64 * 10]).finalize();
    bytes[32..64].copy_from_slice(sum.as_bytes());
    bytes
}

#[test]
fn what_is_said_of_weights_must_be_so() {
    let plan = sample::plan();
    // Weights that are there and said to be left out, and the other way round.
    let error = read(sealed(plan.to_bytes().unwrap(), 1)).unwrap_err();
    assert!(error.to_string().contains("said to be left out"), "{error}");
    let error = read(sealed(plan.strip().to_bytes().unwrap(), 0)).unwrap_err();
    assert_eq!(error.kind(), PlanErrorKind::Malformed, "{error}");
    // A flag that nobody knows.
    let error = read(sealed(plan.to_bytes().unwrap(), 2)).unwrap_err();
    assert!(error.to_string().contains("not as they must be"), "{error}");
    // Lengths that need more checksums than there are.
    let mut longer = plan.strip();
    longer.stripped.as_mut().unwrap().lengths[0] = 5 << 20;
    let error = read(longer.to_bytes().unwrap()).unwrap_err();
    assert!(error.to_string().contains("one for each MiB"), "{error}");
    longer.stripped.as_mut().unwrap().lengths[0] = u64::MAX;
    let error = read(longer.to_bytes().unwrap()).unwrap_err();
    assert!(error.to_string().contains("larger than any file"), "{error}");
    // Bytes where there must be none, and lengths that do not fit the type.
    let mut partly = plan.strip();
    partly.weights[1].bytes = plan.weights[1].bytes.clone();
    assert!(partly.to_bytes().unwrap_err().to_string().contains("left out, and are there"));
    let mut short = plan.strip();
    short.stripped.as_mut().unwrap().lengths[1] = 12;
    assert!(short.to_bytes().unwrap_err().to_string().contains("needs 16 bytes, it has 12"));
}

#[test]
fn metadata_is_read_without_the_rest() {
    let plan = certified();
    let mut bytes = plan.to_bytes().unwrap();
    let metadata = PlanMetadata::from_bytes(&bytes).unwrap();
    assert_eq!(metadata.header, plan.header);
    assert_eq!((metadata.precision(), metadata.is_stripped, metadata.is_current), ("fp32", false, true));
    assert_eq!(metadata.certificate, Some(CertificateState::Checked));
    assert_eq!((metadata.file_bytes, metadata.weight_bytes), (bytes.len() as u64, 512 + 16));
    let name = |ports: &[Port]| ports.iter().map(|port| port.name.clone()).collect::<Vec<_>>();
    assert_eq!(name(&metadata.inputs), ["x", "cond"]);
    assert_eq!(metadata.outputs[1].ty.to_string(), "seq(optional(i64[*]))");
    let stripped = PlanMetadata::from_bytes(&plan.strip().to_bytes().unwrap()).unwrap();
    assert!(stripped.is_stripped && stripped.weight_bytes == 0);
    // Nothing of weights or program is looked at; what is looked at must be whole.
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    assert_eq!(PlanMetadata::from_bytes(&bytes).unwrap(), metadata);
    let header = 64 * 10 + 3;
    bytes[header] ^= 1;
    assert_eq!(PlanMetadata::from_bytes(&bytes).unwrap_err().kind(), PlanErrorKind::Damaged);
    // Files of any size end in an error where they are no plan.
    for bytes in [&b""[..], b"PLANISH\n", &[0x50; 700]] {
        assert!(PlanMetadata::from_bytes(bytes).is_err());
    }
}

#[test]
fn keys_stand_once_in_their_order() {
    let mut plan = sample::plan();
    plan.header.metadata.reverse();
    assert!(plan.to_bytes().unwrap_err().to_string().contains("metadata `author` stands twice or out of"));
    plan.header.metadata[1] = plan.header.metadata[0].clone();
    assert!(plan.to_bytes().is_err());
}

/// Inputs and outputs of the header that are not the program's, all checksums in order.
#[test]
fn ports_of_another_plan_are_refused() {
    let plan = sample::plan();
    let mut other = plan.clone();
    other.program.values[0].name = "z".to_string();
    let (mut coded, data) = unseal(&plan.to_bytes().unwrap()).unwrap();
    let (of_other, _) = unseal(&other.to_bytes().unwrap()).unwrap();
    coded[0] = of_other[0].clone();
    let error = read(seal(&coded, &data)).unwrap_err();
    assert!(error.to_string().contains("are not those of the program"), "{error}");
    // The recipe has no program to compare with, and needs none.
    assert!(Recipe::from_bytes(Bytes::from_vec(seal(&coded, &data))).is_ok());
}
