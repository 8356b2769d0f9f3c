//! The largest byte under each window, channels innermost: what stays quantized is compared as it is, since a larger
//! integer stands for a larger number.

use super::{Place, UnitsCall};
use crate::simd::{Simd, SimdKernel};

/// Channels that are folded at once: a vector of the widest instruction set.
const BLOCK: usize = 64;

/// Signed or unsigned bytes.
pub(super) trait Byte: Copy + Ord {
    const LOWEST: Self;
}

impl Byte for u8 {
    const LOWEST: u8 = u8::MIN;
}

impl Byte for i8 {
    const LOWEST: i8 = i8::MIN;
}

pub(super) struct Rows<'a, T>(pub(super) &'a UnitsCall<'a>, pub(super) std::marker::PhantomData<T>);

impl<T: Byte> SimdKernel for Rows<'_, T> {
    type Output = ();

    /// Plain loops over blocks of channels, which the compiler makes vectors of.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let call = self.0;
        let windows = &call.plan.windows;
        let steps: [usize; 3] =
            std::array::from_fn(|axis| windows.axes[axis].dilation * windows.from.axes[axis]);
        let (x, y) = (call.arguments.x.cast::<T>(), call.arguments.y.cast::<T>());
        for unit in call.units.clone() {
            let [n, d, h] = windows.row(unit);
            let (depth, height) = (&call.plan.places[0][d], &call.plan.places[1][h]);
            let in_row = n * windows.from.batch
                + depth.first * windows.from.axes[0]
                + height.first * windows.from.axes[1];
            let out_row = n * windows.to.batch + d * windows.to.axes[0] + h * windows.to.axes[1];
            for (w, width) in call.plan.places[2].iter().enumerate() {
                let from = x.wrapping_add(in_row + width.first * windows.from.axes[2]);
                let to = y.wrapping_add(out_row + w * windows.to.axes[2]);
                for c in (0..windows.channels).step_by(BLOCK) {
                    let len = BLOCK.min(windows.channels - c);
                    let (from, to) = (from.wrapping_add(c), to.wrapping_add(c));
                    // SAFETY: the places lie in the image, and blocks end with the last channel; the caller of
                    // `Pool::run` grants the memory.
                    unsafe {
                        // A length that is known is a loop without a rest.
                        match len {
                            BLOCK => pixel(from, to, [depth, height, width], steps, BLOCK),
                            _ => pixel(from, to, [depth, height, width], steps, len),
                        }
                    }
                }
            }
        }
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
