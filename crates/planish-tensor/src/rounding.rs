//! Rounding once: from `f64` and from wide integers to the narrower kinds, without a second rounding on the way.
//!
//! A conversion in two steps (f64 to f32 to f16, say) can land on a tie that the first step made, and then
//! goes the wrong way. Rounding *to odd* first (truncate, and set the last bit if anything was cut off)
//! keeps the memory of what was cut off; with two spare bits the second rounding is then exact.

use half::{bf16, f16};

/// `value` truncated to `f32`, the last bit set if anything was cut off. Overflow stays a finite number.
fn f32_to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) == value || value.is_nan() {
        return nearest;
    }
    let towards_zero =
        if f64::from(nearest).abs() > value.abs() { f32::from_bits(nearest.to_bits() - 1) } else { nearest };
    f32::from_bits(towards_zero.to_bits() | 1)
}

/// The `f16` nearest to `value`, ties to even. (`f16::from_f64` rounds through `f32` where the CPU has F16C.)
pub fn f16_from_f64(value: f64) -> f16 {
    f16::from_f32(f32_to_odd(value))
}

/// The `bf16` nearest to `value`, ties to even.
pub fn bf16_from_f64(value: f64) -> bf16 {
    bf16::from_f32(f32_to_odd(value))
}

/// An integer of at most 65 bits as `f64`, rounded to odd: a further rounding to a float of at most 51 bits
/// of precision is that of the integer itself. It is *not* the nearest `f64`.
pub fn f64_to_odd(value: i128) -> f64 {
    let nearest = value as f64;
    let rounded = nearest as i128;
    if rounded == value {
        return nearest;
    }
    let away_from_zero = rounded.unsigned_abs() > value.unsigned_abs();
    let towards_zero = if away_from_zero { f64::from_bits(nearest.to_bits() - 1) } else { nearest };
    f64::from_bits(towards_zero.to_bits() | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_once() {
        // Just above the midpoint of two neighbours: rounding through f32 would land on the tie.
        for sign in [1.0, -1.0] {
            let above = sign * (1.0 + 2f64.powi(-8) + 2f64.powi(-40));
            assert_eq!(bf16_from_f64(above).to_f64(), sign * (1.0 + 2f64.powi(-7)));
            let above = sign * (1.0 + 2f64.powi(-11) + 2f64.powi(-40));
            assert_eq!(f16_from_f64(above).to_f64(), sign * (1.0 + 2f64.powi(-10)));
            // Just below the midpoint of 1 + ulp and 1 + 2 ulp: the tie would go up to even.
            let below = sign * (1.0 + 3.0 * 2f64.powi(-11) - 2f64.powi(-40));
            assert_eq!(f16_from_f64(below).to_f64(), sign * (1.0 + 2f64.powi(-10)));
        }
        assert_eq!(bf16_from_f64(1.0 + 2f64.powi(-8)).to_f64(), 1.0);
        assert_eq!(f16_from_f64(1.0 + 2f64.powi(-11)).to_f64(), 1.0);
    }

    #[test]
    fn every_f16_is_found_from_both_sides_of_its_midpoints() {
        for code in 0..0x7bffu16 {
            let (low, high) = (f16::from_bits(code), f16::from_bits(code + 1));
            let middle = (low.to_f64() + high.to_f64()) / 2.0;
            let even = if code % 2 == 0 { low } else { high };
            assert_eq!(f16_from_f64(middle), even);
            assert_eq!(f16_from_f64(f64::from_bits(middle.to_bits() + 1)), high);
            assert_eq!(f16_from_f64(f64::from_bits(middle.to_bits() - 1)), low);
        }
    }

    #[test]
    fn the_ends_of_the_range() {
        assert_eq!(f16_from_f64(65519.999), f16::MAX);
        assert_eq!(f16_from_f64(65520.0), f16::INFINITY);
        assert_eq!(f16_from_f64(-1e300), f16::NEG_INFINITY);
        assert_eq!(bf16_from_f64(f64::MAX), bf16::INFINITY);
        assert_eq!(bf16_from_f64(f64::NEG_INFINITY), bf16::NEG_INFINITY);
        assert!(bf16_from_f64(f64::NAN).is_nan() && f16_from_f64(f64::NAN).is_nan());
        assert_eq!(f16_from_f64(-1e-300).to_bits(), 0x8000);
        assert_eq!(bf16_from_f64(1e-300).to_bits(), 0);
    }

    #[test]
    fn integers_round_to_odd() {
        assert_eq!(f64_to_odd(1 << 53), 2f64.powi(53));
        // 2^60 + 1 lies between 2^60 and 2^60 + 256; the odd neighbour is the upper one.
        assert_eq!(f64_to_odd((1 << 60) + 1), 2f64.powi(60) + 256.0);
        assert_eq!(f64_to_odd(-(1 << 60) - 1), -2f64.powi(60) - 256.0);
        // u64::MAX rounds up to 2^64; its odd neighbour is the one below.
        assert_eq!(f64_to_odd(i128::from(u64::MAX)), 2f64.powi(64) - 2048.0);
    }
}
