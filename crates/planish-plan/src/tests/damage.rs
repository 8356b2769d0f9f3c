//! Files that were changed after they were written, and files that are none.

use planish_tensor::Bytes;

use super::sample;
use crate::container::{PACKED_VERSION, Section};
use crate::{Plan, PlanErrorKind, Recipe};

fn read(bytes: Vec<u8>) -> Result<Plan, crate::PlanError> {
    Plan::from_bytes(Bytes::from_vec(bytes))
}

#[test]
fn every_changed_byte_is_found() {
    let bytes = sample::plan().to_bytes().unwrap();
    let mut kinds = std::collections::HashSet::new();
    for idx in 0..bytes.len() {
        for mask in [0x01, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[idx] ^= mask;
            let error = read(changed).expect_err(&format!("byte {idx} of {} changed by {mask}", bytes.len()));
            kinds.insert(error.kind());
        }
    }
    for kind in [PlanErrorKind::NotAPlan, PlanErrorKind::NewerFormat, PlanErrorKind::Damaged] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
}

#[test]
fn every_cut_and_every_addition_is_found() {
    let bytes = sample::plan().to_bytes().unwrap();
    for len in 0..bytes.len() {
        assert!(read(bytes[..len].to_vec()).is_err(), "cut to {len} of {}", bytes.len());
    }
    for n in [1, 63, 64, 65] {
        let mut longer = bytes.clone();
        longer.resize(bytes.len() + n, 0);
        assert_eq!(read(longer).unwrap_err().kind(), PlanErrorKind::Truncated);
    }
}

#[test]
fn errors_say_what_where_and_what_next() {
    let bytes = sample::plan().to_bytes().unwrap();
    let text = |bytes: Vec<u8>| read(bytes).unwrap_err().to_string();
    assert_eq!(
        text(b"\x08\x07onnx".to_vec()),
        "this is not a plan file; give the path of a plan, made with `planish build MODEL.onnx`"
    );
    assert!(text(Vec::new()).starts_with("the file is empty; "));
    let mut newer = bytes.clone();
    newer[8] = PACKED_VERSION as u8 + 1;
    let read_version = format!("this Planish reads version {PACKED_VERSION}");
    assert_eq!(
        text(newer),
        format!(
            "byte 8: the plan has format version {}, {read_version}; update Planish, or rebuild the plan with this \
             `planish build`",
            PACKED_VERSION + 1
        )
    );
    let mut older = bytes.clone();
    older[8] = 1;
    assert_eq!(
        text(older),
        format!(
            "byte 8: the plan has format version 1, {read_version}; build the plan again from its model with \
             `planish build MODEL.onnx`"
        )
    );
    let mut changed = bytes.clone();
    let last = changed.len() - 1;
    changed[last] ^= 1;
    let error = read(changed).unwrap_err();
    assert_eq!(error.section(), Some(Section::Data.name()));
    assert!(error.to_string().contains("`conv1.weight`, `conv1.bias` changed"), "{error}");
    assert!(
        error.to_string().ends_with("copy the plan again, or rebuild it with `planish build`"),
        "{error}"
    );
}

/// A plan of which only the program's version differs, its checksums in order.
fn with_program_version(version: u32) -> Vec<u8> {
    let mut bytes = sample::plan().to_bytes().unwrap();
    bytes[24..28].copy_from_slice(&version.to_le_bytes());
    let table = 64..64 + 64 * Section::ALL.len();
    let sum = blake3::Hasher::new().update(&bytes[..32]).update(&bytes[table]).finalize();
    bytes[32..64].copy_from_slice(sum.as_bytes());
    bytes
}

#[test]
fn a_program_of_another_version_leaves_the_recipe_readable() {
    let bytes = with_program_version(9);
    let error = read(bytes.clone()).unwrap_err();
    assert_eq!(error.kind(), PlanErrorKind::OtherProgram);
    assert!(
        error.to_string().contains("the program is of version 9, built by Planish planish 0.1.0"),
        "{error}"
    );
    // NaN among the weights: compared as text.
    let recipe = Recipe::from_bytes(Bytes::from_vec(bytes.clone())).unwrap();
    assert_eq!(format!("{recipe:?}"), format!("{:?}", sample::plan().recipe()));
    let mut damaged = bytes;
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let error = Recipe::from_bytes(Bytes::from_vec(damaged)).unwrap_err();
    assert_eq!(error.kind(), PlanErrorKind::Damaged);
}

#[test]
fn trusted_files_are_opened_without_reading_weights() {
    let folder = std::env::temp_dir().join(format!("planish-trusted-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("small.plan");
    let mut bytes = sample::plan().to_bytes().unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let error = Plan::open(&path).unwrap_err();
    assert_eq!(error.kind(), PlanErrorKind::Damaged);
    assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
    Plan::open_trusted(&path).unwrap();
    // The structure is never trusted.
    bytes[600] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(Plan::open_trusted(&path).unwrap_err().kind(), PlanErrorKind::Damaged);
    let absent = Plan::open(&folder.join("absent.plan")).unwrap_err();
    assert_eq!(absent.kind(), PlanErrorKind::Io);
    std::fs::remove_dir_all(folder).unwrap();
}
