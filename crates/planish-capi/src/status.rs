//! How calls end: a status, a text for the thread that called, and nothing that unwinds into C.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use planish::{Error, ErrorKind};

use crate::given::c_text;

/// How a call ended: what a program decides by. `planish_error` has the words.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlanishStatus {
    /// All is well.
    Ok = 0,
    /// The model is not usable.
    BadModel = 1,
    /// A plan, a timing cache or a calibration does not follow its format, or is damaged.
    BadFile = 2,
    /// A file cannot be read or written.
    Io = 3,
    /// The disk is full, or a limit on files is reached.
    NoRoom = 4,
    /// An argument or an option does not say what it may, or contradicts another one.
    BadOption = 5,
    /// The model asks for what nothing here can compute.
    Unsupported = 6,
    /// A strict build refuses what was found.
    Refused = 7,
    /// An input is missing or unknown.
    WrongInputs = 8,
    /// An input has another element type than the model takes.
    WrongType = 9,
    /// Sizes that the model or its profiles do not accept, or memory that is too small for them.
    WrongShape = 10,
    /// The inputs' values are outside of what an operator defines.
    BadValues = 11,
    /// The plan was built for another machine or by another version.
    NeedsRebuild = 12,
    /// The plan is not signed by a key that is trusted.
    Untrusted = 13,
    /// There is not enough memory.
    OutOfMemory = 14,
    /// A run would go beyond the engine's limits.
    Limit = 15,
    /// A callback asked to stop.
    Cancelled = 16,
    /// This machine lacks what is needed: a GPU, a driver, a library.
    Lacking = 17,
    /// The device failed in a way that ends every use of it in this process.
    DeviceLost = 18,
    /// The self-check of a build found a wrong answer that could not be repaired.
    CheckFailed = 19,
    /// A mistake of ours.
    Failed = 20,
    /// The context is in use by another thread.
    Busy = 21,
}

impl From<&ErrorKind> for PlanishStatus {
    fn from(kind: &ErrorKind) -> PlanishStatus {
        match kind {
            ErrorKind::BadModel => PlanishStatus::BadModel,
            ErrorKind::BadFile => PlanishStatus::BadFile,
            ErrorKind::Io => PlanishStatus::Io,
            ErrorKind::NoRoom => PlanishStatus::NoRoom,
            ErrorKind::BadOption => PlanishStatus::BadOption,
            ErrorKind::Unsupported => PlanishStatus::Unsupported,
            ErrorKind::Refused => PlanishStatus::Refused,
            ErrorKind::WrongInputs => PlanishStatus::WrongInputs,
            ErrorKind::WrongType => PlanishStatus::WrongType,
            ErrorKind::WrongShape => PlanishStatus::WrongShape,
            ErrorKind::BadValues => PlanishStatus::BadValues,
            ErrorKind::NeedsRebuild { .. } => PlanishStatus::NeedsRebuild,
            ErrorKind::Untrusted => PlanishStatus::Untrusted,
            ErrorKind::OutOfMemory => PlanishStatus::OutOfMemory,
            ErrorKind::Limit => PlanishStatus::Limit,
            ErrorKind::Cancelled => PlanishStatus::Cancelled,
            ErrorKind::Lacking => PlanishStatus::Lacking,
            ErrorKind::DeviceLost => PlanishStatus::DeviceLost,
            ErrorKind::CheckFailed => PlanishStatus::CheckFailed,
            // `Failed`, and what a newer library may add.
            _ => PlanishStatus::Failed,
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps the text of an error for the thread that called.
pub(crate) fn refuse(status: PlanishStatus, message: &str) -> PlanishStatus {
    LAST.with_borrow_mut(|last| *last = c_text(message));
    status
}

/// Does what a call asks for. An error, or a panic, becomes its status and the thread's text.
pub(crate) fn guarded(work: impl FnOnce() -> Result<(), Error>) -> PlanishStatus {
    // What a panic leaves half done is the object that was called, whose documentation says so.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => PlanishStatus::Ok,
        Ok(Err(error)) => refuse(error.kind().into(), &error.to_string()),
        Err(payload) => {
            let said = payload.downcast_ref::<String>().map(String::as_str);
            let said = said.or(payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
            refuse(PlanishStatus::Failed, &format!("a mistake of Planish's own, please report it: {said}"))
        }
    }
}

/// The same for what gives an answer instead of a status; `otherwise` where there is none.
pub(crate) fn answered<T>(otherwise: T, work: impl FnOnce() -> Result<T, Error>) -> T {
    let mut answer = otherwise;
    let _ = guarded(|| {
        answer = work()?;
        Ok(())
    });
    answer
}

/// What went wrong in the last call of this thread that failed, where, and what to try. The text is this thread's until its
/// next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn planish_error() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

/// The name of a status, `wrong shape` say. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn planish_status_name(status: i32) -> *const c_char {
    let name = match status {
        0 => c"ok",
        1 => c"bad model",
        2 => c"bad file",
        3 => c"input or output",
        4 => c"no room",
        5 => c"bad option",
        6 => c"unsupported",
        7 => c"refused",
        8 => c"wrong inputs",
        9 => c"wrong type",
        10 => c"wrong shape",
        11 => c"bad values",
        12 => c"needs rebuild",
        13 => c"untrusted",
        14 => c"out of memory",
        15 => c"limit",
        16 => c"cancelled",
        17 => c"lacking",
        18 => c"device lost",
        19 => c"check failed",
        20 => c"failed",
        21 => c"busy",
        _ => c"unknown status",
    };
    name.as_ptr()
}

/// The version of the library, `0.1.0` say.
#[unsafe(no_mangle)]
pub extern "C" fn planish_version() -> *const c_char {
    const VERSION: &[u8] = concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes();
    VERSION.as_ptr().cast()
}

/// The `PLANISH_ABI_VERSION` that the library was compiled with.
#[unsafe(no_mangle)]
pub extern "C" fn planish_abi_version() -> u32 {
    crate::PLANISH_ABI_VERSION
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last() -> String {
        // SAFETY: the text is this thread's.
        unsafe { CStr::from_ptr(planish_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn panics_and_errors_become_statuses() {
        let status = guarded(|| Err(Error::new(ErrorKind::WrongShape, "no\0pe")));
        assert_eq!((status, last().as_str()), (PlanishStatus::WrongShape, "no?pe"));
        assert_eq!(guarded(|| panic!("at {}", 7)), PlanishStatus::Failed);
        assert!(last().ends_with(": at 7"), "{}", last());
        assert_eq!(guarded(|| Ok(())), PlanishStatus::Ok);
        assert!(last().ends_with(": at 7"), "a call that went well says nothing");
        assert_eq!(std::thread::spawn(last).join().unwrap(), "", "another thread's text");
    }

    #[test]
    fn every_status_has_a_name() {
        let name = |status| {
            // SAFETY: the names are the program's.
            unsafe { CStr::from_ptr(planish_status_name(status)) }.to_str().unwrap()
        };
        assert_eq!(name(PlanishStatus::Busy as i32), "busy");
        assert_eq!(name(PlanishStatus::NeedsRebuild as i32), "needs rebuild");
        assert_eq!(name(PlanishStatus::Busy as i32 + 1), "unknown status");
        assert_eq!(name(-1), "unknown status");
    }
}
