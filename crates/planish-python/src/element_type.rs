//! Element types as numpy, DLPack and Planish call them.

use planish::DType;

/// Planish's type, its name in numpy or `ml_dtypes`, numpy's letter for its kind, and DLPack's code for it. Types that
/// only `ml_dtypes` has are raw bytes (`V`) to numpy itself.
struct Row(DType, &'static str, u8, u8);

/// DLPack's codes: integers, unsigned, floats, bfloat16 and booleans; those of small floats came with version 1.1.
const TABLE: [Row; 23] = [
    Row(DType::F64, "float64", b'f', 2),
    Row(DType::F32, "float32", b'f', 2),
    Row(DType::F16, "float16", b'f', 2),
    Row(DType::BF16, "bfloat16", b'V', 4),
    Row(DType::I8, "int8", b'i', 0),
    Row(DType::I16, "int16", b'i', 0),
    Row(DType::I32, "int32", b'i', 0),
    Row(DType::I64, "int64", b'i', 0),
    Row(DType::U8, "uint8", b'u', 1),
    Row(DType::U16, "uint16", b'u', 1),
    Row(DType::U32, "uint32", b'u', 1),
    Row(DType::U64, "uint64", b'u', 1),
    Row(DType::Bool, "bool", b'b', 6),
    Row(DType::F8E4M3FN, "float8_e4m3fn", b'V', 10),
    Row(DType::F8E4M3FNUZ, "float8_e4m3fnuz", b'V', 11),
    Row(DType::F8E5M2, "float8_e5m2", b'V', 12),
    Row(DType::F8E5M2FNUZ, "float8_e5m2fnuz", b'V', 13),
    Row(DType::F8E8M0, "float8_e8m0fnu", b'V', 14),
    Row(DType::F4E2M1, "float4_e2m1fn", b'V', 17),
    Row(DType::I4, "int4", b'V', 0),
    Row(DType::U4, "uint4", b'V', 1),
    Row(DType::I2, "int2", b'V', 0),
    Row(DType::U2, "uint2", b'V', 1),
];

fn row(dtype: DType) -> &'static Row {
    TABLE.iter().find(|row| row.0 == dtype).expect("every element type has its row")
}

/// Its name in numpy, or in `ml_dtypes` where numpy has no such type.
pub(crate) fn name(dtype: DType) -> &'static str {
    row(dtype).1
}

/// The type of this name.
pub(crate) fn named(name: &str) -> Option<DType> {
    TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
}

/// The names of all types, in the order of their numbers.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|row| row.1)
}

/// The type's number in that order.
pub(crate) fn number(dtype: DType) -> usize {
    TABLE.iter().position(|row| row.0 == dtype).unwrap_or(0)
}

/// Whether numpy itself has the type.
pub(crate) fn is_numpys(dtype: DType) -> bool {
    row(dtype).2 != b'V'
}

/// Whether raw bytes of this kind and size, as numpy's files keep elements that only `ml_dtypes` has, can be of the type.
pub(crate) fn is_raw(dtype: DType, kind: u8, bytes: usize) -> bool {
    kind == b'V' && !is_numpys(dtype) && item_bytes(dtype) == bytes
}

/// Numpy's letter for its kind.
pub(crate) fn kind(dtype: DType) -> u8 {
    row(dtype).2
}

/// Bytes of one element in an array of numpy: those below a byte have one each there, and share it here.
pub(crate) fn item_bytes(dtype: DType) -> usize {
    dtype.bits().div_ceil(8)
}

/// The type that numpy itself knows by this kind and size.
pub(crate) fn of_kind(kind: u8, bytes: usize) -> Option<DType> {
    let is_it = |row: &&Row| row.2 == kind && kind != b'V' && item_bytes(row.0) == bytes;
    TABLE.iter().find(is_it).map(|row| row.0)
}

/// The type of DLPack's code and bits.
pub(crate) fn of_dlpack(code: u8, bits: u8) -> Option<DType> {
    TABLE.iter().find(|row| row.3 == code && row.0.bits() == usize::from(bits)).map(|row| row.0)
}

/// DLPack's code and bits of the type.
pub(crate) fn to_dlpack(dtype: DType) -> (u8, u8) {
    (row(dtype).3, dtype.bits() as u8)
}
