//! `DType`: the element types that tensors hold.

use std::fmt;
use std::str::FromStr;

use crate::element_count;

/// The type of one element of a tensor.
///
/// The kinds below a byte (`F4E2M1`, `I4`, `U4`, `I2`, `U2`) are stored packed, first element in the low
/// bits, as ONNX stores them; arithmetic happens after a `Cast` or `DequantizeLinear`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum DType {
    F64,
    F32,
    F16,
    BF16,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F8E8M0,
    F4E2M1,
    I4,
    U4,
    I2,
    U2,
}

impl DType {
    /// Every element type, in declaration order.
    pub const ALL: [DType; 23] = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::Bool,
        DType::F8E4M3FN,
        DType::F8E4M3FNUZ,
        DType::F8E5M2,
        DType::F8E5M2FNUZ,
        DType::F8E8M0,
        DType::F4E2M1,
        DType::I4,
        DType::U4,
        DType::I2,
        DType::U2,
    ];

    /// The short lower-case name used in the text form and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::Bool => "bool",
            DType::F8E4M3FN => "f8e4m3fn",
            DType::F8E4M3FNUZ => "f8e4m3fnuz",
            DType::F8E5M2 => "f8e5m2",
            DType::F8E5M2FNUZ => "f8e5m2fnuz",
            DType::F8E8M0 => "f8e8m0",
            DType::F4E2M1 => "f4e2m1",
            DType::I4 => "i4",
            DType::U4 => "u4",
            DType::I2 => "i2",
            DType::U2 => "u2",
        }
    }

    /// Bits that one element occupies.
    pub fn bits(self) -> usize {
        match self {
            DType::F64 | DType::I64 | DType::U64 => 64,
            DType::F32 | DType::I32 | DType::U32 => 32,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 16,
            DType::I8 | DType::U8 | DType::Bool => 8,
            DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ | DType::F8E8M0 => 8,
            DType::F4E2M1 | DType::I4 | DType::U4 => 4,
            DType::I2 | DType::U2 => 2,
        }
    }

    /// Bytes that `n` elements occupy, packed; `None` on overflow.
    pub fn bytes_for(self, n: usize) -> Option<usize> {
        match self.bits() {
            bits @ (8 | 16 | 32 | 64) => n.checked_mul(bits / 8),
            bits => Some(n.div_ceil(8 / bits)),
        }
    }

    /// Bytes of a tensor of these sizes, packed; `None` on overflow.
    pub fn bytes_of(self, dims: &[usize]) -> Option<usize> {
        element_count(dims).and_then(|n| self.bytes_for(n))
    }

    /// Whether several elements share one byte.
    pub fn is_sub_byte(self) -> bool {
        self.bits() < 8
    }

    /// Any floating-point kind, the 8-bit and 4-bit ones included.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16) || self.is_small_float()
    }

    /// The 8-bit and 4-bit floating-point kinds, which only storage, Cast and Q/DQ know.
    pub fn is_small_float(self) -> bool {
        matches!(
            self,
            DType::F8E4M3FN
                | DType::F8E4M3FNUZ
                | DType::F8E5M2
                | DType::F8E5M2FNUZ
                | DType::F8E8M0
                | DType::F4E2M1
        )
    }

    /// The floating-point kinds of 16 bits and more, which arithmetic is defined on.
    pub fn is_wide_float(self) -> bool {
        self.is_float() && !self.is_small_float()
    }

    /// Any integer kind (`Bool` is not one).
    pub fn is_int(self) -> bool {
        !self.is_float() && self != DType::Bool
    }

    /// The integer kinds of whole bytes, which arithmetic is defined on.
    pub fn is_whole_int(self) -> bool {
        self.is_int() && !self.is_sub_byte()
    }

    /// Integer kinds with a sign.
    pub fn is_signed_int(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::I4 | DType::I2)
    }

    /// Smallest and largest value of an integer kind.
    pub fn int_range(self) -> Option<(i128, i128)> {
        if !self.is_int() {
            return None;
        }
        let bits = self.bits() as u32;
        Some(if self.is_signed_int() {
            (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
        } else {
            (0, (1i128 << bits) - 1)
        })
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text named no element type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownDType(pub String);

impl fmt::Display for UnknownDType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown element type `{}`; known are", self.0)?;
        for dtype in DType::ALL {
            write!(f, " {dtype}")?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownDType {}

impl FromStr for DType {
    type Err = UnknownDType;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        DType::ALL
            .into_iter()
            .find(|dtype| dtype.name() == text)
            .ok_or_else(|| UnknownDType(text.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse::<DType>(), Ok(dtype));
        }
        assert!("float".parse::<DType>().is_err());
    }

    #[test]
    fn packed_sizes() {
        assert_eq!(DType::I4.bytes_for(3), Some(2));
        assert_eq!(DType::U2.bytes_for(5), Some(2));
        assert_eq!(DType::U2.bytes_for(0), Some(0));
        assert_eq!(DType::F64.bytes_for(usize::MAX / 4), None);
        assert_eq!(DType::I4.int_range(), Some((-8, 7)));
        assert_eq!(DType::U64.int_range(), Some((0, u64::MAX as i128)));
    }
}
