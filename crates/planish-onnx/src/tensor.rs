//! Dense tensors: how their data is stored in the file, and the one canonical form that others use.

use std::borrow::Cow;

use crate::error::{OnnxError, OnnxErrorKind, Result, shorten};
use crate::{DataType, External, Metadata};

/// A tensor: `TensorProto`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tensor<'a> {
    /// Name.
    pub name: Cow<'a, str>,
    /// Element type; never `Undefined` in a tensor that was read.
    pub data_type: DataType,
    /// Dimensions as the file has them; see [`Tensor::element_count`]. None for a scalar.
    pub dims: Vec<i64>,
    /// The elements.
    pub data: TensorData<'a>,
    /// Description.
    pub doc_string: Cow<'a, str>,
    /// Free key and value pairs.
    pub metadata: Metadata<'a>,
}

/// The field that a tensor's elements are stored in.
///
/// `float_data` of float tensors and `double_data` of double tensors are read as [`TensorData::Raw`]: their
/// bytes in the file are the same.
#[derive(Debug, Clone, PartialEq)]
pub enum TensorData<'a> {
    /// Packed little-endian elements.
    Raw(Cow<'a, [u8]>),
    /// `float_data`.
    Floats(Vec<f32>),
    /// `int32_data`: all types of up to 32 bits but float and uint32; 4- and 2-bit types a byte at a time.
    Int32s(Vec<i32>),
    /// `int64_data`.
    Int64s(Vec<i64>),
    /// `double_data`.
    Doubles(Vec<f64>),
    /// `uint64_data`: uint32 and uint64.
    Uint64s(Vec<u64>),
    /// `string_data`.
    Strings(Vec<Cow<'a, [u8]>>),
    /// In another file.
    External(External<'a>),
}

impl Default for TensorData<'_> {
    fn default() -> Self {
        Self::Raw(Cow::Borrowed(&[]))
    }
}

impl<'a> Tensor<'a> {
    /// A tensor of packed little-endian elements.
    pub fn raw(
        name: impl Into<Cow<'a, str>>,
        data_type: DataType,
        dims: Vec<i64>,
        bytes: impl Into<Cow<'a, [u8]>>,
    ) -> Self {
        Self { name: name.into(), data_type, dims, data: TensorData::Raw(bytes.into()), ..Self::default() }
    }

    /// The number of elements; a negative dimension or a product beyond `usize` is an error.
    pub fn element_count(&self) -> Result<usize> {
        element_count(&self.dims).map_err(|error| self.locate(error))
    }

    /// The number of bytes of the packed elements: what `raw_data` or an external file must hold.
    /// Strings, which have no fixed size, and complex numbers are refused by name.
    pub fn byte_len(&self) -> Result<usize> {
        packed_len(self.element_count()?, self.data_type).map_err(|error| self.locate(error))
    }

    /// The elements packed little-endian as `raw_data` has them, whatever field holds them: 4-bit types two
    /// to a byte and 2-bit types four to a byte, the first in the low bits. Borrowed where the file has
    /// them so already. The length is checked against the dimensions.
    pub fn to_le_bytes(&self) -> Result<Cow<'_, [u8]>> {
        let expected = self.byte_len()?;
        let bytes = self.encode().map_err(|error| self.locate(error))?;
        if bytes.len() != expected {
            let what = format!(
                "{} bytes of data where {} elements of {} are {expected} bytes",
                bytes.len(),
                self.element_count()?,
                self.data_type.name(),
            );
            return Err(self.locate(OnnxError::new(OnnxErrorKind::DataLength, what)));
        }
        Ok(bytes)
    }

    fn encode(&self) -> Result<Cow<'_, [u8]>> {
        use DataType::{Double, Float, Int64, Uint32, Uint64};
        Ok(match (&self.data, self.data_type) {
            (TensorData::Raw(bytes), _) => Cow::Borrowed(bytes.as_ref()),
            (TensorData::External(external), _) => {
                let what = format!("the data is in the file {:?}", shorten(&external.location));
                return Err(OnnxError::new(OnnxErrorKind::NeedsExternal, what));
            }
            (TensorData::Floats(values), Float) => Cow::Owned(concat(values, |v| v.to_le_bytes())),
            (TensorData::Doubles(values), Double) => Cow::Owned(concat(values, |v| v.to_le_bytes())),
            (TensorData::Int64s(values), Int64) => Cow::Owned(concat(values, |v| v.to_le_bytes())),
            (TensorData::Uint64s(values), Uint64) => Cow::Owned(concat(values, |v| v.to_le_bytes())),
            (TensorData::Uint64s(values), Uint32) => {
                let mut bytes = Vec::with_capacity(values.len().saturating_mul(4));
                for &value in values {
                    let value = u32::try_from(value).map_err(|_| misfit(&value, self.data_type))?;
                    bytes.extend_from_slice(&value.to_le_bytes());
                }
                Cow::Owned(bytes)
            }
            (TensorData::Int32s(values), data_type) => Cow::Owned(narrow(values, data_type)?),
            (data, data_type) => {
                let what = format!("{} cannot hold elements of {}", data.field(), data_type.name());
                return Err(OnnxError::new(OnnxErrorKind::BadEncoding, what));
            }
        })
    }

    fn locate(&self, error: OnnxError) -> OnnxError {
        if self.name.is_empty() {
            error.inside("tensor")
        } else {
            error.inside(&format!("tensor {:?}", shorten(&self.name)))
        }
    }
}

impl TensorData<'_> {
    fn field(&self) -> &'static str {
        match self {
            Self::Raw(_) => "raw_data",
            Self::Floats(_) => "float_data",
            Self::Int32s(_) => "int32_data",
            Self::Int64s(_) => "int64_data",
            Self::Doubles(_) => "double_data",
            Self::Uint64s(_) => "uint64_data",
            Self::Strings(_) => "string_data",
            Self::External(_) => "external_data",
        }
    }
}

pub(crate) fn element_count(dims: &[i64]) -> Result<usize> {
    let bad = |what: String| OnnxError::new(OnnxErrorKind::BadDims, what);
    let mut count = Some(1usize);
    let mut has_zero = false;
    for (axis, &dim) in dims.iter().enumerate() {
        let Ok(dim) = u64::try_from(dim) else {
            return Err(bad(format!("dimension {axis} is {dim}")));
        };
        has_zero |= dim == 0;
        count = usize::try_from(dim).ok().and_then(|dim| count?.checked_mul(dim));
    }
    // A zero makes the product zero, however large the others are.
    if has_zero {
        return Ok(0);
    }
    count.ok_or_else(|| bad("the dimensions multiply to more than this machine can address".to_owned()))
}

pub(crate) fn packed_len(count: usize, data_type: DataType) -> Result<usize> {
    use DataType::{Complex64, Complex128, String, Undefined};
    let bits = match (data_type, data_type.bits()) {
        (Complex64 | Complex128 | String | Undefined, _) | (_, None) => {
            let what = format!("tensors of {} are not supported", data_type.name());
            return Err(OnnxError::new(OnnxErrorKind::Unsupported, what));
        }
        (_, Some(bits)) => bits,
    };
    let bytes = if bits >= 8 { count.checked_mul(bits / 8) } else { Some(count.div_ceil(8 / bits)) };
    bytes.filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or_else(|| {
        let what = format!("{count} elements of {} are more than this machine can address", data_type.name());
        OnnxError::new(OnnxErrorKind::BadDims, what)
    })
}

fn concat<T, const N: usize>(values: &[T], bytes: impl Fn(&T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(bytes).collect()
}

/// The bytes of `int32_data`. A value may be written signed or as its unsigned bit pattern, whatever the
/// type; one that fits neither way is an error rather than cut to size.
fn narrow(values: &[i32], data_type: DataType) -> Result<Vec<u8>> {
    use DataType::{Bool, Complex64, Complex128, Double, Float, Int64, String, Uint32, Uint64, Undefined};
    let bits = match (data_type, data_type.bits()) {
        (Float | Uint32 | Int64 | Uint64 | Double | Complex64 | Complex128 | String | Undefined, _)
        | (_, None) => {
            let what = format!("int32_data cannot hold elements of {}", data_type.name());
            return Err(OnnxError::new(OnnxErrorKind::BadEncoding, what));
        }
        // Elements below a byte come packed, one byte to each value.
        (_, Some(bits)) => bits.max(8),
    };
    let width = bits / 8;
    let mut bytes = Vec::with_capacity(values.len().saturating_mul(width));
    let range = match bits {
        8 | 16 => -(1i64 << (bits - 1))..1i64 << bits,
        _ => i64::MIN..i64::MAX,
    };
    for &value in values {
        if !range.contains(&i64::from(value)) {
            return Err(misfit(&value, data_type));
        }
        let value = if data_type == Bool { i32::from(value != 0) } else { value };
        bytes.extend_from_slice(&value.to_le_bytes()[..width]);
    }
    Ok(bytes)
}

fn misfit(value: &dyn std::fmt::Display, data_type: DataType) -> OnnxError {
    let what = format!("the value {value} does not fit {}", data_type.name());
    OnnxError::new(OnnxErrorKind::BadEncoding, what)
}
