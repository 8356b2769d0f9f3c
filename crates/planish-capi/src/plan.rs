//! `PlanishPlan`: a built model, in memory or in its file; `PlanishBytes`: memory that the library gives out.

use std::ffi::c_char;

use planish::{Bytes, CertificateState, Plan};

use crate::given::{end, give, list, path, shared};
use crate::model::PlanishModel;
use crate::status::{PlanishStatus, answered, guarded};

/// A model that was built. It does not change: any number of threads may use it at once.
#[derive(Debug)]
pub struct PlanishPlan {
    pub(crate) plan: Plan,
}

/// Memory that the library gives out.
#[derive(Debug)]
pub struct PlanishBytes {
    pub(crate) bytes: Vec<u8>,
}

/// Opens a plan's file and checks every byte of it. The file is mapped: it may be replaced while the plan lives, not changed
/// in place.
///
/// # Safety
/// `path` ends in a NUL; `*plan` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_plan_open(
    path: *const c_char,
    plan: *mut *mut PlanishPlan,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        let path = self::path(path);
        give(plan, || Ok(PlanishPlan { plan: Plan::open(path?)? }))
    })
}

/// Opens a plan from the bytes of its file, which are copied and checked.
///
/// # Safety
/// `bytes` are `n_bytes`; `*plan` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_plan_from_bytes(
    bytes: *const u8,
    n_bytes: usize,
    plan: *mut *mut PlanishPlan,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        let bytes = list("the plan's memory", bytes, n_bytes);
        give(plan, || {
            let record = planish::record::Plan::from_bytes(Bytes::from_vec(bytes?.to_vec()))?;
            Ok(PlanishPlan { plan: record.into() })
        })
    })
}

/// Writes the plan's file, in one piece.
///
/// # Safety
/// `plan` is one; `path` ends in a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_plan_save(plan: *const PlanishPlan, path: *const c_char) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { shared("the plan", plan)?.plan.save(self::path(path)?).map(drop) })
}

/// The bytes of the plan's file.
///
/// # Safety
/// `plan` is one; `*bytes` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_plan_bytes(
    plan: *const PlanishPlan,
    bytes: *mut *mut PlanishBytes,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        let plan = shared("the plan", plan);
        give(bytes, || Ok(PlanishBytes { bytes: plan?.plan.record().to_bytes()? }))
    })
}

/// Whether this very plan passed its self-check: 1 or 0.
///
/// # Safety
/// `plan` is one, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_plan_is_checked(plan: *const PlanishPlan) -> i32 {
    // SAFETY: the caller's promise.
    answered(0, || unsafe {
        let state = shared("the plan", plan)?.plan.certificate().state();
        Ok(i32::from(state == CertificateState::Checked))
    })
}

/// The same plan with the weights of another model of the same graph, not built again; it counts as unchecked.
///
/// # Safety
/// `plan` and `model` are such; `*refitted` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_plan_refit(
    plan: *const PlanishPlan,
    model: *const PlanishModel,
    refitted: *mut *mut PlanishPlan,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        let (plan, model) = (shared("the plan", plan), shared("the model", model));
        give(refitted, || Ok(PlanishPlan { plan: plan?.plan.refit(&model?.model)? }))
    })
}

/// The same plan without its weights, as large as its program; `planish_plan_refit` with the model that it was built from
/// gives it back. It cannot run until then.
///
/// # Safety
/// `plan` is one; `*stripped` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_plan_strip(
    plan: *const PlanishPlan,
    stripped: *mut *mut PlanishPlan,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        let plan = shared("the plan", plan);
        give(stripped, || Ok(PlanishPlan { plan: plan?.plan.strip()? }))
    })
}

/// Ends a plan. Engines of it live on.
///
/// # Safety
/// `plan` is one that nobody uses any more, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_plan_free(plan: *mut PlanishPlan) {
    // SAFETY: the caller's promise.
    unsafe { end(plan) }
}

/// Where the memory begins.
///
/// # Safety
/// `bytes` is such, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_bytes_data(bytes: *const PlanishBytes) -> *const u8 {
    // SAFETY: the caller's promise.
    answered(std::ptr::null(), || unsafe { Ok(shared("the memory", bytes)?.bytes.as_ptr()) })
}

/// How many bytes there are.
///
/// # Safety
/// `bytes` is such, or NULL, which has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_bytes_size(bytes: *const PlanishBytes) -> usize {
    // SAFETY: the caller's promise.
    answered(0, || unsafe { Ok(shared("the memory", bytes)?.bytes.len()) })
}

/// Gives the memory back.
///
/// # Safety
/// `bytes` is such, and nobody uses it any more, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_bytes_free(bytes: *mut PlanishBytes) {
    // SAFETY: the caller's promise.
    unsafe { end(bytes) }
}
