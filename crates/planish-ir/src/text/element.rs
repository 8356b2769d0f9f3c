//! One element of a tensor as text: decimal where that keeps the bits, the bits themselves where not.

use planish_tensor::{DType, Tensor, bf16, f16, small_float};

/// The text of the element with these bits.
pub(super) fn to_text(dtype: DType, bits: u64) -> String {
    if dtype == DType::Bool {
        return if bits == 0 { "false" } else { "true" }.to_string();
    }
    if dtype.is_int() {
        return if dtype.is_signed_int() { sign_extend(dtype, bits).to_string() } else { bits.to_string() };
    }
    let decimal = match dtype {
        DType::F64 => shortest(&format!("{:?}", f64::from_bits(bits))),
        // All other kinds are a subset of f32, whose shortest text is near enough to round back to them.
        _ => f32_to_text(as_f32(dtype, bits)),
    };
    if from_text(dtype, &decimal) == Some(bits) { decimal } else { format!("{bits:#x}") }
}

/// The bits of the element; `None` if the word is none of this type.
pub(super) fn from_text(dtype: DType, word: &str) -> Option<u64> {
    if let Some(digits) = word.strip_prefix("0x") {
        let bits = u64::from_str_radix(digits, 16).ok()?;
        let fits = dtype.bits() == 64 || bits >> dtype.bits() == 0;
        return (fits && !(dtype == DType::Bool && bits > 1)).then_some(bits);
    }
    if dtype == DType::Bool {
        return match word {
            "false" | "0" => Some(0),
            "true" | "1" => Some(1),
            _ => None,
        };
    }
    if let Some((low, high)) = dtype.int_range() {
        let value: i128 = word.parse().ok()?;
        let mask = u64::MAX >> (64 - dtype.bits());
        return (low..=high).contains(&value).then_some(value as u64 & mask);
    }
    match dtype {
        DType::F64 => word.parse().ok().map(f64::to_bits),
        DType::F32 => word.parse().ok().map(|value: f32| u64::from(value.to_bits())),
        _ => {
            let tensor = Tensor::from_f64s(dtype, &[], &[word.parse().ok()?]).ok()?;
            bits_of(&tensor).first().copied()
        }
    }
}

/// A single-precision number: an attribute, or an element.
pub(super) fn f32_to_text(value: f32) -> String {
    let decimal = shortest(&format!("{value:?}"));
    match decimal.parse::<f32>() {
        Ok(back) if back.to_bits() == value.to_bits() => decimal,
        _ => format!("{:#x}", value.to_bits()),
    }
}

/// Without a trailing `.0` and with `nan` in small letters.
fn shortest(debug: &str) -> String {
    debug.strip_suffix(".0").unwrap_or(debug).to_lowercase()
}

fn as_f32(dtype: DType, bits: u64) -> f32 {
    match dtype {
        DType::F32 => f32::from_bits(bits as u32),
        DType::F16 => f16::from_bits(bits as u16).to_f32(),
        DType::BF16 => bf16::from_bits(bits as u16).to_f32(),
        _ => small_float::decode(dtype, bits as u8),
    }
}

fn sign_extend(dtype: DType, bits: u64) -> i64 {
    let shift = 64 - dtype.bits();
    ((bits << shift) as i64) >> shift
}

/// The bits of every element.
pub(super) fn bits_of(tensor: &Tensor) -> Vec<u64> {
    if tensor.dtype().is_sub_byte() {
        // `codes` refuses only wider kinds.
        return tensor.codes().unwrap_or_default().iter().map(|&code| u64::from(code)).collect();
    }
    let width = tensor.dtype().bits() / 8;
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
    tensor.bytes().chunks_exact(width).map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_narrow_kinds_comes_back() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.bits() <= 16) {
            let n_codes = if dtype == DType::Bool { 2 } else { 1u64 << dtype.bits() };
            for bits in 0..n_codes {
                let text = to_text(dtype, bits);
                assert_eq!(from_text(dtype, &text), Some(bits), "{dtype} {bits:#x} as {text}");
            }
        }
    }

    #[test]
    fn wide_kinds_at_their_edges() {
        let f32_bits =
            [0, 1 << 31, 1, 0x7f7f_ffff, 0x7f80_0000, 0xff80_0000, 0x7fc0_0000, 0x7fc0_0001, 0x7f80_0001];
        for bits in f32_bits {
            assert_eq!(from_text(DType::F32, &to_text(DType::F32, bits)), Some(bits), "{bits:#x}");
            let wide = f64::from(f32::from_bits(bits as u32)).to_bits() | 1;
            assert_eq!(from_text(DType::F64, &to_text(DType::F64, wide)), Some(wide), "{wide:#x}");
        }
        assert_eq!(to_text(DType::I64, 1 << 63), i64::MIN.to_string());
        assert_eq!(to_text(DType::U64, u64::MAX), u64::MAX.to_string());
        assert_eq!(from_text(DType::I64, "-9223372036854775808"), Some(1 << 63));
        assert_eq!(from_text(DType::I64, "9223372036854775808"), None);
        assert_eq!(from_text(DType::U64, "18446744073709551615"), Some(u64::MAX));
    }

    #[test]
    fn readable_where_it_can_be() {
        let f32_text = |value: f32| to_text(DType::F32, u64::from(value.to_bits()));
        assert_eq!(f32_text(1.0), "1");
        assert_eq!(f32_text(-0.0), "-0");
        assert_eq!(f32_text(0.1), "0.1");
        assert_eq!(f32_text(1e-30), "1e-30");
        assert_eq!(f32_text(f32::NEG_INFINITY), "-inf");
        assert_eq!(f32_text(f32::NAN), "nan");
        assert_eq!(to_text(DType::F32, 0x7fc0_0001), "0x7fc00001");
        assert_eq!(to_text(DType::BF16, 0x3f80), "1");
        assert_eq!(to_text(DType::I4, 0xf), "-1");
    }

    #[test]
    fn words_that_are_no_element() {
        for (dtype, word) in [
            (DType::U8, "256"),
            (DType::U8, "-1"),
            (DType::I2, "2"),
            (DType::U8, "1.0"),
            (DType::F32, "one"),
            (DType::F16, "0x10000"),
            (DType::Bool, "0x2"),
            (DType::Bool, "yes"),
            (DType::F32, "0x"),
            (DType::F64, ""),
        ] {
            assert_eq!(from_text(dtype, word), None, "{dtype} {word}");
        }
    }
}
