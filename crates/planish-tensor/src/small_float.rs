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

/// The code nearest to `value`, ties to even, as the tables of ONNX's Cast have it.
///
/// Beyond the largest finite number (infinity included): with `saturate` that number; without it infinity
/// where the kind has one and NaN where it has not. `F4E2M1` has neither and always saturates; for want of
/// a NaN it gives negative zero, as ONNX's test data do. A kind that is not a small float gives 0.
pub fn encode(dtype: DType, value: f64, saturate: bool) -> u8 {
    if dtype == DType::F8E8M0 {
        return encode_e8m0(value, saturate, E8M0Rounding::Nearest);
    }
    let Some(format) = format(dtype) else { return 0 };
    let values = finite_values(dtype);
    let sign_bit = 1u8 << (dtype.bits() - 1);
    let sign = if value.is_sign_negative() { sign_bit } else { 0 };
    let nan = match format.specials {
        Specials::Ieee | Specials::NanAllOnes => (sign_bit - 1) | sign,
        Specials::NanNegativeZero | Specials::None => sign_bit,
    };
    if value.is_nan() {
        return nan;
    }
    let max_code = (values.len() - 1) as u8;
    let code = match nearest_idx(values, value.abs()) {
        Some(idx) => idx as u8,
        None if saturate => max_code,
        None => match format.specials {
            Specials::Ieee => max_code + 1,
            Specials::NanAllOnes | Specials::NanNegativeZero => return nan,
            Specials::None => max_code,
        },
    };
    match format.specials {
        Specials::NanNegativeZero if code == 0 => 0,
        _ => code | sign,
    }
}

/// The place of the number nearest to `magnitude` in an ascending table, a tie going to the even place;
/// `None` if it would round to a number past the end.
fn nearest_idx(values: &[f64], magnitude: f64) -> Option<usize> {
    let above = values.partition_point(|&candidate| candidate < magnitude);
    if above == 0 {
        return Some(0);
    }
    let below = values[above - 1];
    // Past the end the grid goes on with the last step, to a number that only overflow sees.
    let next = values.get(above).copied().unwrap_or_else(|| 2.0 * below - values[above - 2]);
    let (to_below, to_next) = (magnitude - below, next - magnitude);
    let goes_up = to_next < to_below || (to_next == to_below && above % 2 == 0);
    let idx = if goes_up { above } else { above - 1 };
    (idx < values.len()).then_some(idx)
}

/// Which power of two `F8E8M0` takes for a number between two of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum E8M0Rounding {
    Up,
    Down,
    Nearest,
}

/// The `F8E8M0` code (a bare exponent) of `value`: its magnitude rounded to a power of two.
///
/// The kind has no zero, no sign and no infinity. Below the smallest power (zero included) and beyond the
/// largest (infinity included), `saturate` gives that power; without it the result is NaN. ONNX leaves
/// negative numbers undefined; here the sign is dropped.
pub fn encode_e8m0(value: f64, saturate: bool, rounding: E8M0Rounding) -> u8 {
    const NAN: u8 = 0xff;
    const LARGEST: u8 = 0xfe;
    const F64_BIAS: i32 = 1023;
    const E8M0_BIAS: i32 = 127;
    if value.is_nan() {
        return NAN;
    }
    // Infinity and the subnormal numbers of f64 have exponents far outside, which is all that is asked.
    let bits = value.abs().to_bits();
    let exponent = (bits >> 52) as i32 - F64_BIAS;
    let fraction = bits & ((1 << 52) - 1);
    let up = match rounding {
        E8M0Rounding::Up => fraction != 0,
        E8M0Rounding::Down => false,
        E8M0Rounding::Nearest => fraction >= 1 << 51,
    };
    let code = exponent + i32::from(up) + E8M0_BIAS;
    match u8::try_from(code) {
        Ok(code) if code != NAN => code,
        _ if !saturate => NAN,
        _ if code < 0 => 0,
        _ => LARGEST,
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
    fn numbers_between_two_codes_take_the_nearer_and_ties_the_even_one() {
        let rounded = DType::ALL.into_iter().filter(|dtype| format(*dtype).is_some());
        for dtype in rounded {
            let sign_bit = 1u8 << (dtype.bits() - 1);
            for (code, pair) in finite_values(dtype).windows(2).enumerate() {
                let middle = (pair[0] + pair[1]) / 2.0;
                let code = code as u8;
                let even = code + code % 2;
                let cases = [(middle, even), (middle.next_down(), code), (middle.next_up(), code + 1)];
                for (value, expected) in cases {
                    assert_eq!(encode(dtype, value, false), expected, "{dtype} {value}");
                    let negative = match format(dtype).unwrap().specials {
                        Specials::NanNegativeZero if expected == 0 => 0,
                        _ => expected | sign_bit,
                    };
                    assert_eq!(encode(dtype, -value, true), negative, "{dtype} -{value}");
                }
            }
        }
    }

    #[test]
    fn infinity_and_nan_follow_the_tables_of_cast() {
        let inf = f64::INFINITY;
        for (dtype, max, beyond, beyond_negative, nan, negative_nan) in [
            (DType::F8E4M3FN, 0x7e, 0x7f, 0xff, 0x7f, 0xff),
            (DType::F8E4M3FNUZ, 0x7f, 0x80, 0x80, 0x80, 0x80),
            (DType::F8E5M2, 0x7b, 0x7c, 0xfc, 0x7f, 0xff),
            (DType::F8E5M2FNUZ, 0x7f, 0x80, 0x80, 0x80, 0x80),
        ] {
            for value in [inf, 1e6] {
                assert_eq!(encode(dtype, value, true), max, "{dtype} {value}");
                assert_eq!(encode(dtype, -value, true), max | 0x80, "{dtype} -{value}");
                assert_eq!(encode(dtype, value, false), beyond, "{dtype} {value}");
                assert_eq!(encode(dtype, -value, false), beyond_negative, "{dtype} -{value}");
            }
            let (plus, minus) = (f64::NAN.copysign(1.0), f64::NAN.copysign(-1.0));
            assert_eq!((encode(dtype, plus, true), encode(dtype, plus, false)), (nan, nan));
            assert_eq!(encode(dtype, minus, false), negative_nan);
        }
        assert_eq!(encode(DType::F4E2M1, -inf, false), 0xf);
        assert_eq!(encode(DType::F4E2M1, f64::NAN, false), 0x8);
        assert_eq!(encode(DType::F8E4M3FNUZ, -0.0, true), 0);
        assert_eq!(encode(DType::F8E4M3FN, -0.0, true), 0x80);
    }

    #[test]
    fn overflow_saturates_or_leaves_the_range() {
        assert_eq!(decode(DType::F8E4M3FN, encode(DType::F8E4M3FN, 1e6, true)), 448.0);
        assert!(decode(DType::F8E4M3FN, encode(DType::F8E4M3FN, 1e6, false)).is_nan());
        assert_eq!(decode(DType::F8E5M2, encode(DType::F8E5M2, -1e6, false)), f32::NEG_INFINITY);
        assert_eq!(decode(DType::F4E2M1, encode(DType::F4E2M1, -100.0, true)), -6.0);
        assert_eq!(decode(DType::F8E4M3FN, encode(DType::F8E4M3FN, 460.0, false)), 448.0);
        // The midpoint of 448 and what would be 480 is a tie, and 448 has the even code.
        assert_eq!(decode(DType::F8E4M3FN, encode(DType::F8E4M3FN, 464.0, false)), 448.0);
        assert!(decode(DType::F8E4M3FN, encode(DType::F8E4M3FN, 464.1, false)).is_nan());
        // 240 has an odd code, so the midpoint to 256 leaves the range.
        assert!(decode(DType::F8E4M3FNUZ, encode(DType::F8E4M3FNUZ, 248.0, false)).is_nan());
    }

    #[test]
    fn e8m0_rounds_as_told() {
        assert_eq!(encode_e8m0(1.0, true, E8M0Rounding::Up), 127);
        assert_eq!(encode_e8m0(1.1, true, E8M0Rounding::Up), 128);
        assert_eq!(encode_e8m0(1.9, true, E8M0Rounding::Down), 127);
        assert_eq!(encode_e8m0(1.5, true, E8M0Rounding::Nearest), 128);
        assert_eq!(encode_e8m0(1.4999, true, E8M0Rounding::Nearest), 127);
        assert_eq!(encode_e8m0(-4.0, true, E8M0Rounding::Down), 129);
    }

    #[test]
    fn e8m0_saturates_at_both_ends_or_gives_nan() {
        let huge = 1.6 * 2f64.powi(127);
        for (value, end) in [(0.0, 0), (1e-300, 0), (f64::INFINITY, 0xfe), (1e300, 0xfe), (huge, 0xfe)] {
            assert_eq!(encode_e8m0(value, true, E8M0Rounding::Up), end, "{value}");
            assert_eq!(encode_e8m0(value, false, E8M0Rounding::Nearest), 0xff, "{value}");
        }
        assert_eq!(encode_e8m0(f64::NAN, true, E8M0Rounding::Up), 0xff);
        assert_eq!(encode_e8m0(1.4 * 2f64.powi(127), false, E8M0Rounding::Nearest), 0xfe);
        assert_eq!(encode_e8m0(0.8 * 2f64.powi(-127), false, E8M0Rounding::Nearest), 0);
        assert_eq!(encode_e8m0(2f64.powi(-127), false, E8M0Rounding::Up), 0);
    }
}
