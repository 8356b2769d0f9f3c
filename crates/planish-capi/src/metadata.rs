//! `PlanishMetadata`: what a plan's file says of itself, read without the rest of it.

use std::ffi::{CString, c_char};

use planish::{Plan, PlanMetadata};

use crate::given::{c_text, end, give, path, shared, text};
use crate::status::{PlanishStatus, answered, guarded};

/// What a plan's file says of itself: pairs of texts, its own (`planish.…`) first. It does not change: any number of threads
/// may use it at once.
#[derive(Debug)]
pub struct PlanishMetadata {
    pairs: Vec<(CString, CString)>,
}

impl PlanishMetadata {
    fn new(found: &PlanMetadata) -> PlanishMetadata {
        let header = &found.header;
        let certificate = found.certificate.map_or("unknown".to_string(), |state| format!("{state:?}"));
        let mut pairs = vec![
            ("planish.name".to_string(), header.name.clone()),
            ("planish.producer".to_string(), header.producer.clone()),
            ("planish.format".to_string(), found.format_version.to_string()),
            ("planish.is_current".to_string(), i32::from(found.is_current).to_string()),
            ("planish.precision".to_string(), found.precision().to_string()),
            ("planish.threads".to_string(), header.threads.to_string()),
            ("planish.certificate".to_string(), certificate),
            ("planish.is_stripped".to_string(), i32::from(found.is_stripped).to_string()),
            ("planish.weight_bytes".to_string(), found.weight_bytes.to_string()),
        ];
        for (idx, target) in header.targets.iter().enumerate() {
            let needs = target.needs.join(" ");
            pairs.push((
                format!("planish.target.{idx}"),
                format!("{} [{needs}] {}", target.backend, target.device),
            ));
        }
        for (kind, list) in [("input", &found.inputs), ("output", &found.outputs)] {
            let port = |(idx, port): (usize, &planish::Port)| {
                (format!("planish.{kind}.{idx}"), format!("{} {}", port.name, port.ty))
            };
            pairs.extend(list.iter().enumerate().map(port));
        }
        pairs.extend(header.metadata.iter().cloned());
        PlanishMetadata { pairs: pairs.iter().map(|(key, value)| (c_text(key), c_text(value))).collect() }
    }
}

/// Reads what a plan's file says of itself: `planish.name`, `.producer`, `.format`, `.is_current` (0 if it is built again
/// before it runs), `.precision`, `.threads`, `.certificate`, `.is_stripped`, `.weight_bytes`, `.target.0`, `.input.0`,
/// `.output.0` and on, and the pairs of whoever built it. The rest of the file is not read, nor said to be whole.
///
/// # Safety
/// `path` ends in a NUL; `*metadata` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_metadata_open(
    path: *const c_char,
    metadata: *mut *mut PlanishMetadata,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        let path = self::path(path);
        give(metadata, || Ok(PlanishMetadata::new(&Plan::metadata(path?)?)))
    })
}

/// How many pairs there are.
///
/// # Safety
/// `metadata` is such, or NULL, which has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_metadata_count(metadata: *const PlanishMetadata) -> usize {
    // SAFETY: the caller's promise.
    answered(0, || unsafe { Ok(shared("the metadata", metadata)?.pairs.len()) })
}

/// The key of a pair, by its number; NULL if there is none. It lives as long as the metadata.
///
/// # Safety
/// `metadata` is such, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_metadata_key(
    metadata: *const PlanishMetadata,
    index: usize,
) -> *const c_char {
    // SAFETY: the caller's promise.
    answered(std::ptr::null(), || unsafe {
        let pair = shared("the metadata", metadata)?.pairs.get(index);
        Ok(pair.map_or(std::ptr::null(), |(key, _)| key.as_ptr()))
    })
}

/// The value of a key; NULL if there is no such key. It lives as long as the metadata.
///
/// # Safety
/// `metadata` is such, or NULL; `key` ends in a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_metadata_value(
    metadata: *const PlanishMetadata,
    key: *const c_char,
) -> *const c_char {
    // SAFETY: the caller's promise.
    answered(std::ptr::null(), || unsafe {
        let key = text("the key", key)?;
        let mut pairs = shared("the metadata", metadata)?.pairs.iter();
        let found = pairs.find(|(known, _)| known.as_bytes() == key.as_bytes());
        Ok(found.map_or(std::ptr::null(), |(_, value)| value.as_ptr()))
    })
}

/// Ends it.
///
/// # Safety
/// `metadata` is such, and nobody uses it any more, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_metadata_free(metadata: *mut PlanishMetadata) {
    // SAFETY: the caller's promise.
    unsafe { end(metadata) }
}
