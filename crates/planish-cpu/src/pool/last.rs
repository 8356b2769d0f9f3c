//! Pooling with channels innermost: vectors of channels, one output pixel after the other.

use super::{Place, UnitsCall};
use crate::simd::{Simd, SimdKernel};

/// Vectors of channels that are folded at once: enough chains to hide the latency of a fold.
const VECTORS: usize = 4;

pub(super) struct Rows<'a, const MAX: bool>(pub(super) &'a UnitsCall<'a>);

/// The window of one output pixel. Pointers are those of channel 0.
struct Window<'a> {
    x: *const f32,
    y: *mut f32,
    /// Depth, height, width.
    places: [&'a Place; 3],
    /// Elements from one tap to the next.
    steps: [usize; 3],
    divisor: f32,
}

impl<const MAX: bool> SimdKernel for Rows<'_, MAX> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (steps, channels) = (self.0.plan.steps(), self.0.plan.windows.channels);
        let arguments = self.0.arguments;
        self.0.for_each_pixel(
            #[inline(always)]
            |from, to, places| {
                let n_counted: usize = places.iter().map(|place| place.n_counted).product();
                let window = Window {
                    x: arguments.x.wrapping_add(from),
                    y: arguments.y.wrapping_add(to),
                    places,
                    steps,
                    divisor: n_counted.max(1) as f32,
                };
                // SAFETY: the places lie in the image, and vectors end with the last channel; the caller of
                // `Pool::run` grants the memory.
                unsafe { pixel::<S, MAX>(s, &window, channels) };
            },
        );
    }
}

/// All channels of one output pixel.
///
/// # Safety
/// The window's elements must be readable, the output pixel writable.
#[inline(always)]
unsafe fn pixel<S: Simd, const MAX: bool>(s: S, window: &Window<'_>, channels: usize) {
    let mut c = 0;
    // SAFETY: the caller grants the memory.
    unsafe {
        while c + VECTORS * S::LANES <= channels {
            fold::<S, MAX, VECTORS, false>(s, window, c, S::LANES);
            c += VECTORS * S::LANES;
        }
        while c + S::LANES <= channels {
            fold::<S, MAX, 1, false>(s, window, c, S::LANES);
            c += S::LANES;
        }
        if c < channels {
            fold::<S, MAX, 1, true>(s, window, c, channels - c);
        }
    }
}

/// `V` vectors of channels from `c` on, or the first `n` lanes of one.
///
/// # Safety
/// As for [`pixel`].
#[inline(always)]
unsafe fn fold<S: Simd, const MAX: bool, const V: usize, const PART: bool>(
    s: S,
    window: &Window<'_>,
    c: usize,
    n: usize,
) {
    let [depth, height, width] = window.places;
    let mut folded = [if MAX { s.splat(f32::NEG_INFINITY) } else { s.zero() }; V];
    let mut nan = [s.is_nan(s.zero()); V];
    for d in 0..depth.n {
        for h in 0..height.n {
            let row = window.x.wrapping_add(d * window.steps[0] + h * window.steps[1] + c);
            // Sums of rows first, then of rows' sums: the error grows with their lengths, not their product.
            let mut sums = [s.zero(); V];
            for w in 0..width.n {
                let from = row.wrapping_add(w * window.steps[2]);
                for v in 0..V {
                    // SAFETY: the caller grants the memory.
                    let x = unsafe {
                        let from = from.wrapping_add(v * S::LANES);
                        if PART { s.load_part(from, n) } else { s.load(from) }
                    };
                    if MAX {
                        nan[v] = s.mask_or(nan[v], s.is_nan(x));
                        folded[v] = s.max(x, folded[v]);
                    } else {
                        sums[v] = s.add(sums[v], x);
                    }
                }
            }
            if !MAX {
                for v in 0..V {
                    folded[v] = s.add(folded[v], sums[v]);
                }
            }
        }
    }
    for v in 0..V {
        let value = if MAX {
            s.select(nan[v], s.splat(f32::NAN), folded[v])
        } else {
            s.div(folded[v], s.splat(window.divisor))
        };
        // SAFETY: the caller grants the memory.
        unsafe {
            let to = window.y.wrapping_add(c + v * S::LANES);
            if PART { s.store_part(to, n, value) } else { s.store(to, value) }
        }
    }
}
