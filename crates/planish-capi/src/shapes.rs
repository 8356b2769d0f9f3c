//! Sizes on their way out: those of an engine's optimization profiles.

use planish::{Error, ErrorKind, PortInfo};

use crate::engine::{Opened, PlanishEngine, opened};
use crate::given::{exclusive, wrong};
use crate::status::{PlanishStatus, answered, guarded};

/// Writes sizes to the caller's memory; `None` is a tensor whose number of dimensions is open.
///
/// # Safety
/// `dims` is NULL or has room for `capacity` sizes; `rank` is NULL or may be written.
pub(crate) unsafe fn write_sizes(
    what: &str,
    list: Option<Vec<i64>>,
    capacity: usize,
    dims: *mut i64,
    rank: *mut i32,
) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    let rank = unsafe { exclusive("the pointer to the rank", rank)? };
    let Some(list) = list else {
        *rank = -1;
        return Ok(());
    };
    if list.len() > capacity || dims.is_null() && !list.is_empty() {
        return wrong(format!("{what} has {} sizes, {capacity} have room", list.len()));
    }
    if !list.is_empty() {
        // SAFETY: there is room for as many.
        unsafe { std::ptr::copy_nonoverlapping(list.as_ptr(), dims, list.len()) };
    }
    *rank = list.len() as i32;
    Ok(())
}

/// The sizes of a tensor in a profile, -1 where they do not follow from it.
fn profile_sizes(
    opened: &Opened,
    profile: usize,
    index: usize,
    which: i32,
) -> Result<Option<Vec<i64>>, Error> {
    let profiles = &opened.engine.record().header.profiles;
    let Some(profile) = profiles.get(profile) else {
        let message =
            format!("there is no profile {profile}; the plan has {}, counted from 0", profiles.len());
        return Err(Error::new(ErrorKind::BadOption, message));
    };
    let size = |symbol: &str| {
        let range = profile.ranges.iter().find(|range| range.symbol == symbol)?;
        match which {
            0 => Some(range.min),
            1 => Some(range.opt),
            _ => Some(range.max),
        }
    };
    opened.ports.at(index)?;
    let (inputs, outputs) = (opened.engine.inputs(), opened.engine.outputs());
    let port: Option<&PortInfo> = inputs.iter().chain(&outputs).nth(index);
    let shape = port.and_then(|port| port.ty.as_tensor()).and_then(|tensor| tensor.shape.as_ref());
    Ok(shape.map(|shape| shape.iter().map(|dim| dim.eval(&size).unwrap_or(-1)).collect()))
}

/// How many optimization profiles the plan has; 0 for one that runs at any sizes.
///
/// # Safety
/// `engine` is one, or NULL, which has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_engine_profile_count(engine: *const PlanishEngine) -> usize {
    // SAFETY: the caller's promise.
    answered(0, || unsafe { Ok(opened(engine)?.engine.record().header.profiles.len()) })
}

/// The sizes of an input or an output in an optimization profile: the smallest (`which` is 0), those that it is tuned for (1)
/// or the largest (2). Written as by `planish_context_shape`.
///
/// # Safety
/// `engine` is one; `dims` has room for `capacity` sizes; `*rank` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_engine_profile_shape(
    engine: *const PlanishEngine,
    profile: usize,
    index: usize,
    which: i32,
    capacity: usize,
    dims: *mut i64,
    rank: *mut i32,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        if !(0..=2).contains(&which) {
            return wrong(format!("a profile has sizes 0, 1 and 2, not {which}"));
        }
        let sizes = profile_sizes(opened(engine)?, profile, index, which)?;
        write_sizes("the tensor", sizes, capacity, dims, rank)
    })
}
