//! The average of the bytes under each window, channels innermost: sums of integers, which are exact, become numbers once.

use super::{Place, UnitsCall};
use crate::elements::{Byte, Bytes, Elements};
use crate::simd::{Simd, SimdKernel};

/// Channels that are summed at once: a whole number of vectors.
const BLOCK: usize = 64;

pub(super) struct Rows<'a, T> {
    pub(super) call: &'a UnitsCall<'a>,
    pub(super) elements: Bytes<T>,
}

impl<T: Byte> SimdKernel for Rows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (steps, channels) = (self.call.plan.steps(), self.call.plan.windows.channels);
        let x = self.call.arguments.x.cast::<T>();
        self.call.for_each_pixel(
            #[inline(always)]
            |from, to, places| {
                let n: usize = places.iter().map(|place| place.n).product();
                let n_counted: usize = places.iter().map(|place| place.n_counted).product();
                let offset = s.splat_int((n as i32).wrapping_mul(self.elements.zero()));
                let count = s.splat(n_counted.max(1) as f32);
                for c in (0..channels).step_by(BLOCK) {
                    let len = BLOCK.min(channels - c);
                    // SAFETY: the places lie in the image, and blocks end with the last channel; the caller of
                    // `Pool::run` grants the memory.
                    unsafe {
                        let from = x.wrapping_add(from + c);
                        // A length that is known is a loop without a rest.
                        let sums = match len {
                            BLOCK => summed(from, places, steps, BLOCK),
                            _ => summed(from, places, steps, len),
                        };
                        for at in (0..len).step_by(S::LANES) {
                            let sum = s.sub_int(s.load_int(sums.as_ptr().add(at)), offset);
                            let average = s.div(s.to_float(sum), count);
                            let (y, to) = (self.call.arguments.y.cast(), to + c + at);
                            self.elements.store::<S, true>(s, y, to, len - at, average);
                        }
                    }
                }
            },
        );
    }
}

/// The sums of `len` channels of one window.
///
/// # Safety
/// The window's elements must be readable.
#[inline(always)]
unsafe fn summed<T: Byte>(
    from: *const T,
    places: [&Place; 3],
    steps: [usize; 3],
    len: usize,
) -> [i32; BLOCK] {
    let mut sums = [0i32; BLOCK];
    for d in 0..places[0].n {
        for h in 0..places[1].n {
            for w in 0..places[2].n {
                let tap = from.wrapping_add(d * steps[0] + h * steps[1] + w * steps[2]);
                for (i, sum) in sums.iter_mut().enumerate().take(len) {
                    // SAFETY: granted by the caller. Sums of `MAX_TAPS` bytes fit.
                    *sum = sum.wrapping_add(unsafe { *tap.add(i) }.widened());
                }
            }
        }
    }
    sums
}
