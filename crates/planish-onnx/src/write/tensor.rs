//! Tensors, dense and sparse.

use std::borrow::Cow;

use super::entries;
use super::sink::Sink;
use crate::{SparseTensor, Tensor, TensorData};

pub(super) fn tensor(sink: &mut Sink, tensor: &Tensor<'_>) {
    for &dim in &tensor.dims {
        sink.int(1, dim);
    }
    sink.int(2, tensor.data_type.to_i32().into());
    match &tensor.data {
        TensorData::Floats(values) => sink.fixed(4, values, |value| value.to_le_bytes()),
        TensorData::Int32s(values) => sink.varints(5, values, |value| i64::from(*value) as u64),
        TensorData::Strings(values) => values.iter().for_each(|value| sink.bytes(6, value)),
        TensorData::Int64s(values) => sink.varints(7, values, |value| *value as u64),
        TensorData::Doubles(values) => sink.fixed(10, values, |value| value.to_le_bytes()),
        TensorData::Uint64s(values) => sink.varints(11, values, |value| *value),
        TensorData::Raw(_) | TensorData::External(_) => {}
    }
    sink.text(8, &tensor.name);
    if let TensorData::Raw(bytes) = &tensor.data {
        sink.bytes(9, bytes);
    }
    sink.text(12, &tensor.doc_string);
    if let TensorData::External(external) = &tensor.data {
        let mut list = vec![(Cow::Borrowed("location"), external.location.clone())];
        if external.offset != 0 {
            list.push((Cow::Borrowed("offset"), Cow::Owned(external.offset.to_string())));
        }
        if let Some(length) = external.length {
            list.push((Cow::Borrowed("length"), Cow::Owned(length.to_string())));
        }
        if let Some(checksum) = &external.checksum {
            list.push((Cow::Borrowed("checksum"), checksum.clone()));
        }
        entries(sink, 13, &list);
        sink.int(14, 1);
    }
    entries(sink, 16, &tensor.metadata);
}

pub(super) fn sparse_tensor(sink: &mut Sink, sparse: &SparseTensor<'_>) {
    sink.message(1, |sink| tensor(sink, &sparse.values));
    sink.message(2, |sink| tensor(sink, &sparse.indices));
    for &dim in &sparse.dims {
        sink.int(3, dim);
    }
}
