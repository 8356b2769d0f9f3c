//! The mode of floating-point arithmetic: whatever a caller has set, results are those of the default mode.
//!
//! Audio hosts and game engines run their threads with subnormal numbers flushed to zero, interval libraries with
//! another rounding, debuggers with traps; a thread starts with the mode of the one that started it. Kernels, and
//! Rust itself, are written for the default: round to nearest even, subnormals kept, no traps.

#![allow(unsafe_code)]

/// The default mode on this thread until it is dropped; then the mode that was there before.
///
/// Takes some nanoseconds where the mode is the default already. On other processors than x86-64 it does nothing.
#[derive(Debug)]
#[must_use = "the mode goes back when it is dropped"]
pub struct DefaultFloatMode {
    before: Option<u32>,
    /// The mode belongs to the thread.
    not_send: std::marker::PhantomData<*const ()>,
}

impl DefaultFloatMode {
    #[inline]
    pub fn enter() -> DefaultFloatMode {
        let mode = control();
        let is_default = mode & !FLAGS == DEFAULT;
        if !is_default {
            set_control(DEFAULT);
        }
        DefaultFloatMode { before: (!is_default).then_some(mode), not_send: std::marker::PhantomData }
    }
}

impl Drop for DefaultFloatMode {
    #[inline]
    fn drop(&mut self) {
        if let Some(mode) = self.before {
            set_control(mode);
        }
    }
}

/// All exceptions masked, round to nearest, neither flush-to-zero nor denormals-are-zero.
const DEFAULT: u32 = 0x1F80;
/// What happened so far, which is not a mode.
const FLAGS: u32 = 0x3F;

#[cfg(target_arch = "x86_64")]
fn control() -> u32 {
    let mut mode = 0u32;
    // SAFETY: SSE is part of x86-64; the register is stored to a variable of its size.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut mode, options(nostack, preserves_flags)) };
    mode
}

#[cfg(target_arch = "x86_64")]
fn set_control(mode: u32) {
    // SAFETY: as above; only values that were read from the register, or its default, are loaded.
    unsafe {
        std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const mode, options(nostack, preserves_flags, readonly));
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn control() -> u32 {
    DEFAULT
}

#[cfg(not(target_arch = "x86_64"))]
fn set_control(_mode: u32) {}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_default_holds_inside_and_the_callers_mode_behind() {
        const FLUSH_AND_ROUND_DOWN: u32 = 0x1F80 | 0x8000 | 0x0040 | 0x2000;
        let tiny = std::hint::black_box(f32::MIN_POSITIVE);
        let third = || std::hint::black_box(1.0f32) / std::hint::black_box(3.0f32);
        let (halved, nearest) = (tiny * std::hint::black_box(0.5), third());
        assert!(halved > 0.0);
        set_control(FLUSH_AND_ROUND_DOWN);
        let flushed = tiny * std::hint::black_box(0.5);
        let down = third();
        let inside = {
            let _mode = DefaultFloatMode::enter();
            (tiny * std::hint::black_box(0.5), third())
        };
        let after = control() & !FLAGS;
        set_control(DEFAULT);
        assert_eq!((flushed, after), (0.0, FLUSH_AND_ROUND_DOWN));
        assert!(down < nearest);
        assert_eq!(inside, (halved, nearest));
        // A thread starts in the mode of the one that starts it.
        set_control(FLUSH_AND_ROUND_DOWN);
        let started = std::thread::spawn(|| control() & !FLAGS).join();
        set_control(DEFAULT);
        assert_eq!(started.unwrap(), FLUSH_AND_ROUND_DOWN);
    }
}
