//! The largest byte under each window, channels innermost: what stays quantized is compared as it is, since a larger
//! integer stands for a larger number.

use super::{Place, UnitsCall};
use crate::elements::Byte;
use crate::simd::{Simd, SimdKernel};

/// Channels that are folded at once: a vector of the widest instruction set.
const BLOCK: usize = 64;

pub(super) struct Rows<'a, T>(pub(super) &'a UnitsCall<'a>, pub(super) std::marker::PhantomData<T>);

impl<T: Byte> SimdKernel for Rows<'_, T> {
    type Output = ();

    /// Plain loops over blocks of channels, which the compiler makes vectors of.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (steps, channels) = (self.0.plan.steps(), self.0.plan.windows.channels);
        let (x, y) = (self.0.arguments.x.cast::<T>(), self.0.arguments.y.cast::<T>());
        self.0.for_each_pixel(
            #[inline(always)]
            |from, to, places| {
                for c in (0..channels).step_by(BLOCK) {
                    let len = BLOCK.min(channels - c);
                    let (from, to) = (x.wrapping_add(from + c), y.wrapping_add(to + c));
                    // SAFETY: the places lie in the image, and blocks end with the last channel; the caller of
                    // `Pool::run` grants the memory.
                    unsafe {
                        // A length that is known is a loop without a rest.
                        match len {
                            BLOCK => pixel(from, to, places, steps, BLOCK),
                            32 => pixel(from, to, places, steps, 32),
                            16 => pixel(from, to, places, steps, 16),
                            _ => pixel(from, to, places, steps, len),
                        }
                    }
                }
            },
        );
    }
}

/// `len` channels of one output pixel.
///
/// # Safety
/// The window's elements must be readable, the output pixel writable.
#[inline(always)]
unsafe fn pixel<T: Byte>(from: *const T, to: *mut T, places: [&Place; 3], steps: [usize; 3], len: usize) {
    let mut largest = [T::LOWEST; BLOCK];
    for d in 0..places[0].n {
        for h in 0..places[1].n {
            for w in 0..places[2].n {
                let tap = from.wrapping_add(d * steps[0] + h * steps[1] + w * steps[2]);
                for (i, largest) in largest.iter_mut().enumerate().take(len) {
                    // SAFETY: granted by the caller.
                    *largest = (*largest).max(unsafe { *tap.add(i) });
                }
            }
        }
    }
    // SAFETY: granted by the caller.
    unsafe { largest.as_ptr().copy_to_nonoverlapping(to, len) };
}
