//! Certificates belong to one plan.

use planish_tensor::Bytes;

use super::sample;
use crate::container::Section;
use crate::{CertificateState, Check, Plan, PlanErrorKind, seal, unseal};

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
fn a_plan_says_whether_it_was_checked() {
    assert_eq!(sample::plan().certificate.state(), CertificateState::NotChecked);
    let plan = certified();
    assert_eq!(plan.certificate.state(), CertificateState::Checked);
    let opened = read(plan.to_bytes().unwrap()).unwrap();
    assert_eq!(opened.certificate.state(), CertificateState::Checked);
    assert_eq!(opened, plan);
    let mut none = sample::plan();
    none.certify(Vec::new()).unwrap();
    assert_eq!(none.certificate.state(), CertificateState::NotChecked);
}

#[test]
fn a_certificate_of_another_plan_is_refused() {
    let plan = certified();
    let mut other = sample::plan();
    other.header.threads += 1;
    // It cannot be written,
    other.certificate = plan.certificate.clone();
    let error = other.to_bytes().unwrap_err();
    assert_eq!(error.kind(), PlanErrorKind::OtherCertificate);
    assert!(error.to_string().contains("made for a plan with another header"), "{error}");
    // and where somebody else writes it, it cannot be opened.
    let (mut coded, data) = unseal(&sample::plan().to_bytes().unwrap()).unwrap();
    let (of_other, _) = unseal(&certified_with_more_threads().to_bytes().unwrap()).unwrap();
    let at = Section::Certificate as usize - 1;
    coded[at] = of_other[at].clone();
    assert_eq!(read(seal(&coded, &data)).unwrap_err().kind(), PlanErrorKind::OtherCertificate);
}

fn certified_with_more_threads() -> Plan {
    let mut plan = sample::plan();
    plan.header.threads += 1;
    let checks = plan.certificate.checks.clone();
    plan.certify(checks).unwrap();
    plan
}

/// Each section taken from another plan, with all checksums of the file in order: the certificate notices.
#[test]
fn every_section_that_was_exchanged_is_noticed() {
    let plan = certified();
    let (coded, data) = unseal(&plan.to_bytes().unwrap()).unwrap();
    let mut other = sample::plan();
    other.header.name.push('x');
    other.graph.push('\n');
    other.program.steps[0].name.push('x');
    other.weights[0].name.push('x');
    other.evidence[0].why.push('x');
    other.code[0].bytes = Bytes::from_vec(vec![9u8]);
    let (others, _) = unseal(&other.to_bytes().unwrap()).unwrap();
    for section in Section::ALL.into_iter().take(Section::N_CODED).filter(|one| *one != Section::Certificate)
    {
        let at = section as usize - 1;
        assert_ne!(coded[at], others[at], "{}", section.name());
        let mut mixed = coded.clone();
        mixed[at] = others[at].clone();
        let error = read(seal(&mixed, &data)).unwrap_err();
        assert_eq!(error.kind(), PlanErrorKind::OtherCertificate, "{error}");
        assert!(error.to_string().contains(section.name()), "{error}");
    }
    for place in [0, data.len() / 2, data.len() - 1] {
        let mut changed = data.clone();
        changed[place] ^= 1;
        let error = read(seal(&coded, &changed)).unwrap_err();
        assert_eq!(error.kind(), PlanErrorKind::OtherCertificate, "{error}");
    }
}

#[test]
fn findings_can_be_changed_by_nobody_but_the_check_itself() {
    // The certificate's own bytes are under the file's checksum, which a signature covers; a list of findings that
    // says nothing is not a check.
    let mut plan = certified();
    plan.certificate.checks = vec![Check {
        subject: "step 0".into(),
        n_points: 1,
        worst: 2.0,
        outcome: crate::Outcome::Failed("0 instead of 1".into()),
    }];
    assert_eq!(plan.certificate.state(), CertificateState::NotChecked);
}
