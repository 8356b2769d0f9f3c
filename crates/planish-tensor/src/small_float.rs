//! The 8-bit and 4-bit floating-point kinds: what each code means, and the nearest code of a number.

use std::sync::OnceLock;

use crate::DType;

/// How a kind spells infinity and NaN, and its exponent and mantissa widths.
struct Format {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    specials: Specials,
}

enum Specials {
    /// Infinity and NaN as IEEE 754 has them: the top exponent is theirs.
    Ieee,
    /// No infinity; NaN is all ones (either sign).
    NanAllOnes,
    /// No infinity, no negative zero; the code of negative zero is NaN.
    NanNegativeZero,
    /// Every code is a finite number.
    None,
}

fn format(dtype: DType) -> Option<Format> {
    let (exponent_bits, mantissa_bits, bias, specials) = match dtype {
        DType::F8E4M3FN => (4, 3, 7, Specials::NanAllOnes),
        DType::F8E4M3FNUZ => (4, 3, 8, Specials::NanNegativeZero),
        DType::F8E5M2 => (5, 2, 15, Specials::Ieee),
        DType::F8E5M2FNUZ => (5, 2, 16, Specials::NanNegativeZero),
        DType::F4E2M1 => (2, 1, 1, Specials::None),
        _ => return None,
    };
    Some(Format { exponent_bits, mantissa_bits, bias, specials })
}

/// The number that `code` stands for. `dtype` must be a small float kind; others give NaN.
pub fn decode(dtype: DType, code: u8) -> f32 {
    if dtype == DType::F8E8M0 {
        return if code == 0xff { f32::NAN } else { 2f64.powi(i32::from(code) - 127) as f32 };
    }
    let Some(format) = format(dtype) else { return f32::NAN };
    let width = 1 + format.exponent_bits + format.mantissa_bits;
    let sign_bit = 1u8 << (width - 1);
    let negative = code & sign_bit != 0;
    let magnitude = code & (sign_bit - 1);
    let exponent = i32::from(magnitude >> format.mantissa_bits);
    let mantissa = f64::from(magnitude & ((1 << format.mantissa_bits) - 1));
    let top_exponent = (1 << format.exponent_bits) - 1;
    match format.specials {
        Specials::Ieee if exponent == top_exponent => {
            return match (mantissa == 0.0, negative) {
                (true, false) => f32::INFINITY,
                (true, true) => f32::NEG_INFINITY,
                (false, _) => f32::NAN,
            };
        }
        Specials::NanAllOnes if magnitude == sign_bit - 1 => return f32::NAN,
        Specials::NanNegativeZero if code == sign_bit => return f32::NAN,
        _ => {}
    }
    let fraction = mantissa / f64::from(1u32 << format.mantissa_bits);
    let value = if exponent == 0 {
        fraction * 2f64.powi(1 - format.bias)
    } else {
        (1.0 + fraction) * 2f64.powi(exponent - format.bias)
    };
    (if negative { -value } else { value }) as f32
}

/// The finite, non-negative numbers of a kind in the order of their codes (which is ascending).
fn finite_values(dtype: DType) -> &'static [f64] {
    static TABLES: OnceLock<Vec<(DType, Vec<f64>)>> = OnceLock::new();
    let tables = TABLES.get_or_init(|| {
        DType::ALL
            .into_iter()
            .filter(|dtype| format(*dtype).is_some())
            .map(|dtype| {
                let sign_bit = 1u8 << (dtype.bits() - 1);
                let values = (0..sign_bit).map(|code| f64::from(decode(dtype, code)));
                (dtype, values.take_while(|value| value.is_finite()).collect())
            })
            .collect()
    });
    tables.iter().find(|(entry, _)| *entry == dtype).map_or(&[], |(_, values)| values)
}

/// The code nearest to `value`, ties to even.
///
/// Beyond the largest finite number: with `saturate` that number; without it infinity where the kind has
/// one and NaN where it has not. `F4E2M1` has neither and always saturates. Infinite input follows the
/// ONNX table for Cast: saturating kinds with a NaN at negative zero give NaN.
pub fn encode(dtype: DType, value: f64, saturate: bool) -> u8 {
    if dtype == DType::F8E8M0 {
        return encode_e8m0(value, saturate, E8M0Rounding::Nearest);
    }
    let Some(format) = format(dtype) else { return 0 };
    let values = finite_values(dtype);
    let sign_bit = 1u8 << (dtype.bits() - 1);
    let sign = if value.is_sign_negative() { sign_bit } else { 0 };
    let max_code = (values.len() - 1) as u8;
    let nan = match format.specials {
        Specials::Ieee | Specials::NanAllOnes => sign_bit - 1,
        Specials::NanNegativeZero => sign_bit,
        // There is no NaN to give; ONNX's conversion yields the largest magnitude.
        Specials::None => max_code,
    };
    if value.is_nan() {
        return match format.specials {
            Specials::Ieee | Specials::NanAllOnes => nan | sign,
            Specials::NanNegativeZero | Specials::None => nan,
        };
    }
    let magnitude = value.abs();
    // The first code above; the neighbours are `above - 1` and `above`.
    let above = values.partition_point(|&candidate| candidate < magnitude);
    let code = if above == values.len() {
        let max = values[values.len() - 1];
        // Half an ulp beyond the largest number still rounds to it (ties go to even, which is past it
        // only when its code is odd).
        let half_ulp = (max - values[values.len() - 2]) / 2.0;
        let rounds_to_max =
            magnitude < max + half_ulp || (magnitude == max + half_ulp && max_code.is_multiple_of(2));
        match format.specials {
            _ if magnitude.is_finite() && (rounds_to_max || saturate) => max_code,
            Specials::None => max_code,
            Specials::Ieee if saturate => max_code,
            Specials::Ieee => max_code + 1,
            Specials::NanAllOnes if saturate => max_code,
            Specials::NanAllOnes => nan,
            Specials::NanNegativeZero => return nan,
        }
    } else if above == 0 {
        0
    } else {
        let (below, over) = (magnitude - values[above - 1], values[above] - magnitude);
        let up = over < below || (over == below && above.is_multiple_of(2));
        (if up { above } else { above - 1 }) as u8
    };
    match format.specials {
        Specials::NanNegativeZero if code == 0 => 0,
        _ => code | sign,
    }
}

/// Which power of two `F8E8M0` takes for a number between two of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum E8M0Rounding {
    Up,
    Down,
    Nearest,
}

/// The `F8E8M0` code (a bare exponent) of `value`: its magnitude rounded to a power of two. Zero gives the
/// smallest power, NaN and infinity give NaN unless saturated.
pub fn encode_e8m0(value: f64, saturate: bool, rounding: E8M0Rounding) -> u8 {
    const NAN: u8 = 0xff;
    if value.is_nan() {
        return NAN;
    }
    let magnitude = value.abs();
    let overflow = if saturate { 0xfe } else { NAN };
    if magnitude.is_infinite() {
        return overflow;
    }
    if magnitude == 0.0 {
        return 0;
    }
    let exponent = magnitude.log2().floor() as i32;
    // log2 may be off by one ulp at exact powers; settle it with the exact comparison.
    let exponent = match () {
        () if 2f64.powi(exponent + 1) <= magnitude => exponent + 1,
        () if 2f64.powi(exponent) > magnitude => exponent - 1,
        () => exponent,
    };
    let ratio = magnitude / 2f64.powi(exponent);
    let up = match rounding {
        E8M0Rounding::Up => ratio > 1.0,
        E8M0Rounding::Down => false,
        E8M0Rounding::Nearest => ratio >= 1.5,
    };
    match exponent + i32::from(up) + 127 {
        code if code < 0 => 0,
        code if code > 0xfe => overflow,
        code => code as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_numbers_are_those_of_the_standards() {
        for (dtype, largest) in [
            (DType::F8E4M3FN, 448.0),
            (DType::F8E4M3FNUZ, 240.0),
            (DType::F8E5M2, 57344.0),
            (DType::F8E5M2FNUZ, 57344.0),
            (DType::F4E2M1, 6.0),
        ] {
            assert_eq!(finite_values(dtype).last(), Some(&largest), "{dtype}");
        }
    }

    #[test]
    fn every_finite_code_encodes_to_itself() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_small_float()) {
            for code in 0..=u8::MAX >> (8 - dtype.bits()) {
                let value = f64::from(decode(dtype, code));
                if value.is_finite() {
                    assert_eq!(encode(dtype, value, true), code, "{dtype} {value}");
                } else if value.is_nan() {
                    assert!(decode(dtype, encode(dtype, value, true)).is_nan(), "{dtype}");
                }
            }
        }
    }

    #[test]
    fn overflow_saturates_or_leaves_the_range() {
        assert_eq!(decode(DType::F8E4M3FN, encode(DType::F8E4M3FN, 1e6, true)), 448.0);
        assert!(decode(DType::F8E4M3FN, encode(DType::F8E4M3FN, 1e6, false)).is_nan());
        assert_eq!(decode(DType::F8E5M2, encode(DType::F8E5M2, -1e6, false)), f32::NEG_INFINITY);
        assert_eq!(decode(DType::F4E2M1, encode(DType::F4E2M1, -100.0, true)), -6.0);
        assert_eq!(decode(DType::F8E4M3FN, encode(DType::F8E4M3FN, 460.0, false)), 448.0);
    }

    #[test]
    fn e8m0_rounds_as_told() {
        assert_eq!(encode_e8m0(1.0, true, E8M0Rounding::Up), 127);
        assert_eq!(encode_e8m0(1.1, true, E8M0Rounding::Up), 128);
        assert_eq!(encode_e8m0(1.9, true, E8M0Rounding::Down), 127);
        assert_eq!(encode_e8m0(1.5, true, E8M0Rounding::Nearest), 128);
    }
}
