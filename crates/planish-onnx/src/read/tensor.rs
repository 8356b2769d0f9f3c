//! Tensors, dense and sparse, in every encoding that the format has.

use std::borrow::Cow;

use super::types::data_type;
use super::{metadata_entry, missing};
use crate::error::{OnnxError, OnnxErrorKind, Result, shorten};
use crate::wire::{Field, Message};
use crate::{DataType, External, Metadata, SparseTensor, Tensor, TensorData};

/// The data fields of a tensor as they come, before it is known which of them counts.
#[derive(Default)]
struct Fields<'a> {
    raw: Option<&'a [u8]>,
    floats: Cow<'a, [u8]>,
    int32s: Vec<i32>,
    strings: Vec<Cow<'a, [u8]>>,
    int64s: Vec<i64>,
    doubles: Cow<'a, [u8]>,
    uint64s: Vec<u64>,
    external: Metadata<'a>,
    is_external: bool,
}

pub(super) fn tensor<'a>(mut message: Message<'a, '_>) -> Result<Tensor<'a>> {
    let mut tensor = Tensor::default();
    let mut fields = Fields::default();
    while let Some(field) = message.next()? {
        match field.number {
            1 => field.varints("dims", &message, &mut tensor.dims, |value| value as i64)?,
            2 => tensor.data_type = data_type(&field, "data_type")?,
            3 => return Err(segmented(&field)),
            4 => field.reals("float_data", &message, &mut fields.floats, 4)?,
            5 => field.varints("int32_data", &message, &mut fields.int32s, |value| value as i32)?,
            6 => message.push(&mut fields.strings, Cow::Borrowed(field.bytes("string_data")?))?,
            7 => field.varints("int64_data", &message, &mut fields.int64s, |value| value as i64)?,
            8 => tensor.name = field.text("name")?,
            9 => fields.raw = Some(field.bytes("raw_data")?),
            10 => field.reals("double_data", &message, &mut fields.doubles, 8)?,
            11 => field.varints("uint64_data", &message, &mut fields.uint64s, |value| value)?,
            12 => tensor.doc_string = field.text("doc_string")?,
            13 => metadata_entry(&message, &field, "external_data", &mut fields.external)?,
            14 => fields.is_external = data_location(&field)?,
            16 => metadata_entry(&message, &field, "metadata_props", &mut tensor.metadata)?,
            _ => {}
        }
    }
    let what =
        || if tensor.name.is_empty() { String::new() } else { format!(" {:?}", shorten(&tensor.name)) };
    if tensor.data_type == DataType::Undefined {
        let text = format!("the tensor{} has no element type", what());
        return Err(missing("data_type", &text, message.start()));
    }
    tensor.data = if fields.is_external {
        let external = external(&fields.external).map_err(|error| error.at(message.start()))?;
        TensorData::External(external)
    } else {
        fields.choose(tensor.data_type)
    };
    Ok(tensor)
}

fn segmented(field: &Field<'_>) -> OnnxError {
    OnnxError::new(OnnxErrorKind::Unsupported, "the tensor is one segment of a larger one")
        .at(field.at())
        .inside("segment")
}

fn data_location(field: &Field<'_>) -> Result<bool> {
    match field.int32("data_location")? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(OnnxError::new(OnnxErrorKind::BadExternal, format!("{other} is not a data location"))
            .at(field.at())
            .inside("data_location")),
    }
}

impl<'a> Fields<'a> {
    /// The field that holds the data: `raw_data` if it says anything, otherwise the one that is filled.
    fn choose(self, data_type: DataType) -> TensorData<'a> {
        if let Some(raw) = self.raw.filter(|raw| !raw.is_empty()) {
            return TensorData::Raw(Cow::Borrowed(raw));
        }
        // Floats and doubles lie in the file as raw_data has them, so they need no copy of their own.
        if !self.floats.is_empty() {
            return match data_type {
                DataType::Float | DataType::Complex64 => TensorData::Raw(self.floats),
                _ => TensorData::Floats(to_f32s(&self.floats)),
            };
        }
        if !self.doubles.is_empty() {
            return match data_type {
                DataType::Double | DataType::Complex128 => TensorData::Raw(self.doubles),
                _ => TensorData::Doubles(to_f64s(&self.doubles)),
            };
        }
        if !self.int32s.is_empty() {
            TensorData::Int32s(self.int32s)
        } else if !self.int64s.is_empty() {
            TensorData::Int64s(self.int64s)
        } else if !self.uint64s.is_empty() {
            TensorData::Uint64s(self.uint64s)
        } else if !self.strings.is_empty() || data_type == DataType::String {
            TensorData::Strings(self.strings)
        } else {
            TensorData::Raw(Cow::Borrowed(&[]))
        }
    }
}

/// Values of little-endian bytes that a whole number of them fills.
pub(super) fn to_f32s(bytes: &[u8]) -> Vec<f32> {
    let (values, _) = bytes.as_chunks::<4>();
    values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn to_f64s(bytes: &[u8]) -> Vec<f64> {
    let (values, _) = bytes.as_chunks::<8>();
    values.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
}

/// The last entry of a key counts, as with any repeated scalar; keys that ONNX does not define are ignored.
fn external<'a>(entries: &Metadata<'a>) -> Result<External<'a>> {
    let mut external = External::default();
    for (key, value) in entries {
        match key.as_ref() {
            "location" => external.location = value.clone(),
            "offset" => external.offset = number("offset", value)?,
            "length" => external.length = Some(number("length", value)?),
            "checksum" => external.checksum = Some(value.clone()),
            _ => {}
        }
    }
    if external.location.is_empty() {
        let error = OnnxError::new(OnnxErrorKind::BadExternal, "the tensor does not say which file holds it");
        return Err(error.inside("external_data"));
    }
    Ok(external)
}

fn number(key: &str, text: &str) -> Result<u64> {
    text.trim().parse().map_err(|_| {
        let what = format!("the {key} {:?} is not a byte count", shorten(text));
        OnnxError::new(OnnxErrorKind::BadExternal, what).inside("external_data")
    })
}

pub(super) fn sparse_tensor<'a>(mut message: Message<'a, '_>) -> Result<SparseTensor<'a>> {
    let (mut values, mut indices, mut dims) = (None, None, Vec::new());
    while let Some(field) = message.next()? {
        match field.number {
            1 => values = Some(message.one(&field, "values", tensor)?),
            2 => indices = Some(message.one(&field, "indices", tensor)?),
            3 => field.varints("dims", &message, &mut dims, |value| value as i64)?,
            _ => {}
        }
    }
    let values =
        values.ok_or_else(|| missing("values", "the sparse tensor has no values", message.start()))?;
    let indices =
        indices.ok_or_else(|| missing("indices", "the sparse tensor has no indices", message.start()))?;
    Ok(SparseTensor { values, indices, dims })
}
