//! ONNX's element types, by the numbers that the format gives them.

use crate::error::{OnnxError, OnnxErrorKind, Result};

macro_rules! data_types {
    ($($variant:ident = $number:literal, $name:literal, $bits:expr;)*) => {
        /// An element type, as `TensorProto.DataType` counts them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum DataType {
            $($variant = $number,)*
        }

        impl DataType {
            /// Every element type, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The type that the format numbers so.
            pub fn from_i32(number: i32) -> Result<Self> {
                match number {
                    $($number => Ok(Self::$variant),)*
                    _ => Err(OnnxError::new(
                        OnnxErrorKind::UnknownDataType,
                        format!("{number} is not an element type of ONNX"),
                    )),
                }
            }

            /// The name in lower case, as ONNX spells it: `float`, `float8e4m3fn`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Bits of one element in packed form; `None` for `Undefined` and `String`.
            pub fn bits(self) -> Option<usize> {
                match self { $(Self::$variant => $bits,)* }
            }
        }
    };
}

data_types! {
    Undefined = 0, "undefined", None;
    Float = 1, "float", Some(32);
    Uint8 = 2, "uint8", Some(8);
    Int8 = 3, "int8", Some(8);
    Uint16 = 4, "uint16", Some(16);
    Int16 = 5, "int16", Some(16);
    Int32 = 6, "int32", Some(32);
    Int64 = 7, "int64", Some(64);
    String = 8, "string", None;
    Bool = 9, "bool", Some(8);
    Float16 = 10, "float16", Some(16);
    Double = 11, "double", Some(64);
    Uint32 = 12, "uint32", Some(32);
    Uint64 = 13, "uint64", Some(64);
    Complex64 = 14, "complex64", Some(64);
    Complex128 = 15, "complex128", Some(128);
    Bfloat16 = 16, "bfloat16", Some(16);
    Float8E4M3FN = 17, "float8e4m3fn", Some(8);
    Float8E4M3FNUZ = 18, "float8e4m3fnuz", Some(8);
    Float8E5M2 = 19, "float8e5m2", Some(8);
    Float8E5M2FNUZ = 20, "float8e5m2fnuz", Some(8);
    Uint4 = 21, "uint4", Some(4);
    Int4 = 22, "int4", Some(4);
    Float4E2M1 = 23, "float4e2m1", Some(4);
    Float8E8M0 = 24, "float8e8m0", Some(8);
    Uint2 = 25, "uint2", Some(2);
    Int2 = 26, "int2", Some(2);
}

impl Default for DataType {
    /// What a missing field means.
    fn default() -> Self {
        Self::Undefined
    }
}

impl DataType {
    /// The number that the format gives the type.
    pub fn to_i32(self) -> i32 {
        self as i32
    }
}
