//! Ends that no error can be made of: no memory left, a mapped file cut short, a panic in a panic. Each gets its line and
//! its exit code all the same.
//!
//! Rust ends a process whose memory is used up with SIGABRT and a line of its own (`memory allocation of N bytes failed`);
//! what is added here is the code, and what to do. Everything done in the handlers is safe there: atomics, `write`,
//! `_exit`.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGABRT, SIGBUS, SIGXFSZ};
use signal_hook::low_level;

use crate::ending::{BAD_INPUT, LACKING, OUR_MISTAKE};

/// Whether memory was refused, and whether anything panicked.
static REFUSED: AtomicBool = AtomicBool::new(false);
static PANICKED: AtomicBool = AtomicBool::new(false);

/// The system's memory; remembers that some was refused.
struct Remembering;

#[global_allocator]
static MEMORY: Remembering = Remembering;

fn remembered(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        REFUSED.store(true, Ordering::Relaxed);
    }
    memory
}

// SAFETY: every call goes to the system's allocator as it is, and comes back as it is.
unsafe impl GlobalAlloc for Remembering {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        remembered(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        remembered(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        remembered(unsafe { System.realloc(memory, layout, len) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

pub(crate) fn note_panic() {
    PANICKED.store(true, Ordering::Relaxed);
}

/// From now on such ends have their line and their code.
pub(crate) fn install() -> io::Result<()> {
    // A file beyond the limit on sizes is then an error of `write`, and not the end.
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    // SAFETY: the handlers load atomics, write to standard error and end the process; all of it may be done there.
    unsafe {
        low_level::register(SIGABRT, || {
            if REFUSED.load(Ordering::Relaxed) && !PANICKED.load(Ordering::Relaxed) {
                end(
                    "not enough memory; close other programs, raise the limit, or take smaller sizes",
                    LACKING,
                )
            }
            end(
                "internal error: the program had to end itself; please report it with the command",
                OUR_MISTAKE,
            )
        })?;
        low_level::register(SIGBUS, || {
            end(
                "a file in use was cut short, or its disk failed; replace files by renaming, never in place (--copy \
                 reads a plan into memory first)",
                BAD_INPUT,
            )
        })?;
    }
    Ok(())
}

fn end(line: &str, code: u8) -> ! {
    for part in ["error: ", line, "\n"] {
        let _ = rustix::io::write(rustix::stdio::stderr(), part.as_bytes());
    }
    low_level::exit(code.into())
}
