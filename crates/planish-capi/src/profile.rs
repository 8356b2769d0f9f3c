//! A run, timed step by step.

use std::ffi::c_void;

use planish::{Error, ErrorKind};

use crate::context::{PlanishContext, with};
use crate::status::PlanishStatus;
use crate::steps::PlanishStep;

/// Is told the time of a step. Must not throw.
pub type PlanishStepTime = Option<unsafe extern "C" fn(user: *mut c_void, step: *const PlanishStep)>;

/// Runs once on what is bound in host memory, and tells a function the time of every step, in the order of the run.
///
/// # Safety
/// As for `planish_context_run`; `tell` may be called with `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_context_profile(
    context: *mut PlanishContext,
    tell: PlanishStepTime,
    user: *mut c_void,
) -> PlanishStatus {
    let run = |inner: &mut crate::context::Inner| {
        if inner.bound.is_on_device() {
            let message = "only runs on host memory are timed step by step; bind host memory";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let profiled = inner.bound.profile_host()?;
        let Some(tell) = tell else { return Ok(()) };
        for time in profiled.steps {
            let step = inner.bound.opened.steps.step(time.step, time.ns)?;
            // SAFETY: the caller gave the function for this.
            unsafe { tell(user, &raw const step) };
        }
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { with(context, run) }
}
