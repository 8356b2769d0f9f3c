//! Floats of 8 bits (E4M3, no infinities, NaN where all bits of the magnitude are set) to f32 and back. Without branches,
//! so that loops become vectors.

/// Below it numbers are multiples of [`SMALLEST`]: their exponent is zero.
const LEAST_NORMAL: f32 = 0.015625;
/// The step of those.
const SMALLEST: f32 = 0.001953125;
/// Added to a small number it leaves multiples of [`SMALLEST`] in the lowest bits, rounded to even: `1.5 · 2^23 · 2^-9`.
const ROUNDER: f32 = 24576.0;
/// What the exponents of both types differ by, at the place of an exponent of 8 bits.
const BIAS: u32 = (127 - 7) << 3;
const NAN: u32 = 0x7f;

/// The nearest number, ties to even; beyond 448 it is 448, and NaN stays.
#[inline(always)]
pub(super) fn rounded(x: f32) -> u8 {
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    // Half a step, less one where the even number is the lower one.
    let normal = ((magnitude.wrapping_add(0x7_ffff + (magnitude >> 20 & 1))) >> 20).wrapping_sub(BIAS);
    let small = (f32::from_bits(magnitude) + ROUNDER).to_bits().wrapping_sub(ROUNDER.to_bits());
    let code = if f32::from_bits(magnitude) < LEAST_NORMAL { small } else { normal };
    let code = if magnitude > 0x7f80_0000 { NAN } else { code.min(NAN - 1) };
    (bits >> 24 & 0x80 | code) as u8
}

/// The number that a code stands for.
#[inline(always)]
pub(super) fn widened(code: u8) -> f32 {
    let magnitude = u32::from(code & 0x7f);
    let normal = f32::from_bits((magnitude + BIAS) << 20);
    let number = if magnitude < 8 { magnitude as f32 * SMALLEST } else { normal };
    let number = if magnitude == NAN { f32::NAN } else { number };
    if code & 0x80 == 0 { number } else { -number }
}

#[cfg(test)]
mod tests {
    use planish_tensor::{DType, small_float};

    use super::*;

    #[test]
    fn codes_and_numbers_are_those_of_the_type() {
        let check = |x: f32| {
            let want = small_float::encode(DType::F8E4M3FN, x.into(), true);
            let is_same = rounded(x) == want || (x.is_nan() && widened(rounded(x)).is_nan());
            assert!(is_same, "{x}: {:#x} instead of {want:#x}", rounded(x));
        };
        for code in 0..=u8::MAX {
            let want = small_float::decode(DType::F8E4M3FN, code);
            let is_same = widened(code).to_bits() == want.to_bits();
            assert!(is_same || (want.is_nan() && widened(code).is_nan()), "{code:#x}");
            // The number itself, the middle to the next one, and their neighbours.
            let next = small_float::decode(DType::F8E4M3FN, code.wrapping_add(1));
            for x in [want, (want + next) / 2.0] {
                [x, x.next_up(), x.next_down()].into_iter().for_each(check);
            }
        }
        for x in [448.0, 464.0, 464.1, 1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, 0.0, -0.0] {
            check(x);
        }
    }
}
