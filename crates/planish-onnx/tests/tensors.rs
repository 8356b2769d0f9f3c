//! Tensor data in every encoding, right and wrong: dense, sparse and in files beside the model.

mod common;

use std::borrow::Cow;
use std::fs;
use std::path::PathBuf;

use common::{Msg, with_tensor};
use planish_onnx::OnnxErrorKind::{self, *};
use planish_onnx::{DataType, External, OnnxError, SparseTensor, Tensor, TensorData, external_path, read};

fn tensor(data_type: DataType, dims: &[i64], data: TensorData<'static>) -> Tensor<'static> {
    Tensor { name: "w".into(), data_type, dims: dims.to_vec(), data, ..Tensor::default() }
}

fn raw(data_type: DataType, dims: &[i64], length: usize) -> Tensor<'static> {
    tensor(data_type, dims, TensorData::Raw(vec![1; length].into()))
}

fn check_error(name: &str, error: OnnxError, kind: OnnxErrorKind, fragment: &str) {
    assert_eq!(error.kind(), kind, "{name}: {error}");
    let text = error.to_string();
    assert!(text.contains(fragment), "{name}: {text:?} lacks {fragment:?}");
}

#[test]
fn every_encoding_becomes_packed_bytes() {
    use DataType::*;
    let int32s = |values: &[i32]| TensorData::Int32s(values.to_vec());
    let cases = [
        (Float, vec![2], TensorData::Floats(vec![1.0, -2.0]), vec![0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]),
        (Double, vec![1], TensorData::Doubles(vec![1.0]), vec![0, 0, 0, 0, 0, 0, 0xf0, 0x3f]),
        (Int64, vec![1], TensorData::Int64s(vec![-2]), vec![0xfe, 255, 255, 255, 255, 255, 255, 255]),
        (
            Uint64,
            vec![1],
            TensorData::Uint64s(vec![u64::MAX - 1]),
            vec![0xfe, 255, 255, 255, 255, 255, 255, 255],
        ),
        (Uint32, vec![1], TensorData::Uint64s(vec![0xdead_beef]), vec![0xef, 0xbe, 0xad, 0xde]),
        (Int32, vec![1], int32s(&[i32::MIN]), vec![0, 0, 0, 0x80]),
        (Int16, vec![2], int32s(&[-1, 258]), vec![255, 255, 2, 1]),
        (Uint16, vec![1], int32s(&[65535]), vec![255, 255]),
        (Float16, vec![1], int32s(&[0x3c00]), vec![0, 0x3c]),
        (Bfloat16, vec![1], int32s(&[0xbf80]), vec![0x80, 0xbf]),
        (Int8, vec![3], int32s(&[-128, -1, 255]), vec![0x80, 255, 255]),
        (Uint8, vec![2], int32s(&[0, 255]), vec![0, 255]),
        (Bool, vec![3], int32s(&[0, 1, 7]), vec![0, 1, 1]),
        (Float8E4M3FN, vec![1], int32s(&[0x7e]), vec![0x7e]),
        (Float8E4M3FNUZ, vec![1], int32s(&[0x80]), vec![0x80]),
        (Float8E5M2, vec![1], int32s(&[0x7c]), vec![0x7c]),
        (Float8E5M2FNUZ, vec![1], int32s(&[0x80]), vec![0x80]),
        (Float8E8M0, vec![1], int32s(&[0xff]), vec![0xff]),
        (Uint4, vec![3], int32s(&[0x21, 0x03]), vec![0x21, 0x03]),
        (Int4, vec![2], int32s(&[0xf8]), vec![0xf8]),
        (Float4E2M1, vec![1, 1], int32s(&[0x07]), vec![0x07]),
        (Uint2, vec![5], int32s(&[0xe4, 1]), vec![0xe4, 1]),
        (Int2, vec![4], int32s(&[-28]), vec![0xe4]),
        // A scalar has no dimensions, and a zero dimension leaves no elements whatever the others are.
        (Uint8, vec![], int32s(&[9]), vec![9]),
        (Float, vec![i64::MAX, 0, i64::MAX], TensorData::default(), vec![]),
        (Int64, vec![0], TensorData::Int64s(vec![]), vec![]),
    ];
    for (data_type, dims, data, expected) in cases {
        let tensor = tensor(data_type, &dims, data);
        assert_eq!(tensor.byte_len().unwrap(), expected.len(), "{tensor:?}");
        assert_eq!(*tensor.to_le_bytes().unwrap(), *expected, "{tensor:?}");
        // The same bytes as raw_data are handed through, not copied.
        let raw = Tensor { data: TensorData::Raw(expected.into()), ..tensor };
        assert!(matches!(raw.to_le_bytes().unwrap(), Cow::Borrowed(_)));
    }
}

#[test]
fn every_data_type_knows_its_number() {
    for (number, &data_type) in DataType::ALL.iter().enumerate() {
        assert_eq!(data_type.to_i32(), number as i32);
        assert_eq!(DataType::from_i32(number as i32).unwrap(), data_type);
    }
    assert_eq!(DataType::ALL.len(), 27);
    check_error("27", DataType::from_i32(27).unwrap_err(), UnknownDataType, "27 is not an element type");
}

#[test]
fn bad_tensors_are_refused() {
    use DataType::*;
    let int32s = |values: &[i32]| TensorData::Int32s(values.to_vec());
    let away = External { location: "w.bin".into(), ..External::default() };
    let huge = i64::MAX;
    let cases = [
        ("short", raw(Float, &[2], 7), DataLength, "7 bytes of data where 2 elements of float are 8"),
        ("long", raw(Float, &[2], 9), DataLength, "tensor \"w\": 9 bytes"),
        ("long nibbles", raw(Int4, &[3], 3), DataLength, "3 bytes of data where 3 elements of int4 are 2"),
        ("nibbles as bytes", raw(Uint2, &[5], 5), DataLength, "are 2 bytes"),
        ("nothing", raw(Int8, &[1], 0), DataLength, "0 bytes"),
        ("scalar", raw(Int8, &[], 2), DataLength, "2 bytes of data where 1 elements"),
        ("few floats", tensor(Float, &[3], TensorData::Floats(vec![1.0])), DataLength, "4 bytes"),
        ("few nibbles", tensor(Uint4, &[5], int32s(&[1, 2])), DataLength, "are 3 bytes"),
        ("negative", raw(Float, &[2, -1], 8), BadDims, "dimension 1 is -1"),
        ("negative with zero", raw(Float, &[0, -1], 0), BadDims, "dimension 1 is -1"),
        ("least", raw(Float, &[i64::MIN], 8), BadDims, "-9223372036854775808"),
        ("elements", raw(Float, &[huge, huge], 8), BadDims, "multiply to more"),
        ("elements to zero", raw(Float, &[1 << 32, 1 << 32], 0), BadDims, "multiply to more"),
        ("bytes", raw(Float, &[huge], 8), BadDims, "elements of float are more"),
        ("address space", raw(Uint8, &[2, huge], 8), BadDims, "more than this machine"),
        ("string", tensor(String, &[1], TensorData::Strings(vec![])), Unsupported, "tensors of string"),
        ("complex64", raw(Complex64, &[1], 8), Unsupported, "tensors of complex64"),
        ("complex128", raw(Complex128, &[1], 16), Unsupported, "tensors of complex128"),
        ("undefined", raw(Undefined, &[1], 1), Unsupported, "tensors of undefined"),
        (
            "misplaced floats",
            tensor(Int32, &[1], TensorData::Floats(vec![1.0])),
            BadEncoding,
            "float_data cannot",
        ),
        (
            "misplaced doubles",
            tensor(Float, &[1], TensorData::Doubles(vec![1.0])),
            BadEncoding,
            "double_data",
        ),
        ("misplaced int64s", tensor(Int32, &[1], TensorData::Int64s(vec![1])), BadEncoding, "int64_data"),
        ("misplaced uint64s", tensor(Int64, &[1], TensorData::Uint64s(vec![1])), BadEncoding, "uint64_data"),
        ("misplaced int32s", tensor(Float, &[1], int32s(&[1])), BadEncoding, "int32_data cannot"),
        ("misplaced strings", tensor(Float, &[1], TensorData::Strings(vec![])), BadEncoding, "string_data"),
        ("wide uint8", tensor(Uint8, &[1], int32s(&[256])), BadEncoding, "the value 256 does not fit uint8"),
        ("wide int8", tensor(Int8, &[1], int32s(&[-129])), BadEncoding, "-129 does not fit int8"),
        ("wide float16", tensor(Float16, &[1], int32s(&[65536])), BadEncoding, "does not fit float16"),
        ("wide int4", tensor(Int4, &[1], int32s(&[999])), BadEncoding, "does not fit int4"),
        ("wide uint32", tensor(Uint32, &[1], TensorData::Uint64s(vec![1 << 32])), BadEncoding, "4294967296"),
        ("external", tensor(Float, &[1], TensorData::External(away)), NeedsExternal, "\"w.bin\""),
    ];
    for (name, tensor, kind, fragment) in cases {
        check_error(name, tensor.to_le_bytes().expect_err(name), kind, fragment);
    }
}

fn sparse(dims: &[i64], index_dims: &[i64], indices: &[i64], values: &[u8]) -> SparseTensor<'static> {
    SparseTensor {
        values: Tensor::raw("s", DataType::Uint8, vec![values.len() as i64], values.to_vec()),
        indices: tensor(DataType::Int64, index_dims, TensorData::Int64s(indices.to_vec())),
        dims: dims.to_vec(),
    }
}

#[test]
fn sparse_tensors_become_dense() {
    let linear = sparse(&[2, 3], &[2], &[1, 5], &[7, 8]);
    assert_eq!(linear.to_dense_le_bytes().unwrap(), [0, 7, 0, 0, 0, 8]);
    let coordinates = sparse(&[2, 3], &[2, 2], &[0, 1, 1, 2], &[7, 8]);
    assert_eq!(coordinates.to_dense_le_bytes().unwrap(), [0, 7, 0, 0, 0, 8]);
    assert_eq!(sparse(&[2], &[0], &[], &[]).to_dense_le_bytes().unwrap(), [0, 0]);
    assert_eq!(sparse(&[], &[1], &[0], &[9]).to_dense_le_bytes().unwrap(), [9]);
    assert_eq!(sparse(&[0, 4], &[0, 2], &[], &[]).to_dense_le_bytes().unwrap(), []);

    let mut wide = linear.clone();
    wide.values = Tensor::raw("s", DataType::Int16, vec![2], vec![1, 2, 3, 4]);
    wide.indices = tensor(DataType::Int32, &[2], TensorData::Int32s(vec![0, 3]));
    assert_eq!(wide.to_dense_le_bytes().unwrap(), [1, 2, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0]);
    let mut narrow = linear;
    narrow.values = Tensor::raw("s", DataType::Uint4, vec![2], vec![0xba]);
    narrow.indices = tensor(DataType::Int8, &[2], TensorData::Int32s(vec![1, 4]));
    assert_eq!(narrow.to_dense_le_bytes().unwrap(), [0xa0, 0, 0x0b]);
}

#[test]
fn bad_sparse_tensors_are_refused() {
    let mut square = sparse(&[2, 2], &[4], &[0, 1, 2, 3], &[1; 4]);
    square.values.dims = vec![2, 2];
    let mut floats = sparse(&[4], &[1], &[0], &[1]);
    floats.indices = Tensor::raw("i", DataType::Float, vec![1], vec![0; 4]);
    let mut texts = sparse(&[4], &[0], &[], &[]);
    texts.values.data_type = DataType::String;
    let cases = [
        ("beyond", sparse(&[2, 3], &[1], &[6], &[1]), BadSparse, "index 6 of value 0 is outside"),
        ("negative", sparse(&[2, 3], &[1], &[-1], &[1]), BadSparse, "index -1"),
        ("beyond an axis", sparse(&[2, 3], &[1, 2], &[0, 3], &[1]), BadSparse, "outside dimension 1, of 3"),
        ("unsorted", sparse(&[6], &[2], &[3, 1], &[1, 2]), BadSparse, "not above the one before"),
        ("twice", sparse(&[6], &[2], &[3, 3], &[1, 2]), BadSparse, "value 1 is not above"),
        ("unsorted rows", sparse(&[2, 2], &[2, 2], &[1, 0, 0, 1], &[1, 2]), BadSparse, "not above"),
        ("few indices", sparse(&[6], &[1], &[3], &[1, 2]), BadSparse, "for 2 values"),
        ("wrong rank", sparse(&[6], &[1, 2], &[0, 3], &[1]), BadSparse, "shape [1, 2]"),
        ("rank 3", sparse(&[6], &[1, 1, 1], &[0], &[1]), BadSparse, "3 dimensions"),
        ("square values", square, BadSparse, "2 dimensions instead of one"),
        ("float indices", floats, BadSparse, "type float instead of int64"),
        ("strings", texts, Unsupported, "string"),
        ("cut indices", sparse(&[6], &[2], &[3], &[1, 2]), DataLength, "8 bytes of data"),
        ("negative dim", sparse(&[-6], &[1], &[3], &[1]), BadDims, "dimension 0 is -6"),
        ("overflow", sparse(&[i64::MAX, 3], &[1], &[3], &[1]), BadDims, "multiply"),
        ("a terabyte", sparse(&[1 << 40], &[1], &[3], &[1]), BadDims, "1099511627776 bytes"),
        ("2 GiB and a byte", sparse(&[(2 << 30) + 1], &[1], &[3], &[1]), BadDims, "too many"),
    ];
    for (name, sparse, kind, fragment) in cases {
        check_error(name, sparse.to_dense_le_bytes().expect_err(name), kind, fragment);
    }
}

#[test]
fn bad_external_entries_are_refused() {
    let entry = |key, value| Msg::new().text(1, key).text(2, value);
    let tensor = |entries: &[Msg]| {
        let start = Msg::new().int(2, 1).int(14, 1);
        with_tensor(&entries.iter().fold(start, |message, entry| message.msg(13, entry)))
    };
    let location = entry("location", "w.bin");
    let cases = [
        ("no location", tensor(&[]), "does not say which file"),
        ("empty location", tensor(&[entry("location", "")]), "does not say which file"),
        (
            "offset",
            tensor(&[location.clone(), entry("offset", "ten")]),
            "the offset \"ten\" is not a byte count",
        ),
        ("negative", tensor(&[location.clone(), entry("offset", "-1")]), "the offset \"-1\""),
        ("length", tensor(&[location, entry("length", "99999999999999999999")]), "the length"),
    ];
    for (name, bytes, fragment) in cases {
        check_error(name, read(&bytes).expect_err(name), BadExternal, fragment);
    }
}

/// A folder of this test's own, holding a model folder with a data file in it and a secret beside it.
fn folder(name: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(root.join("model/inner")).unwrap();
    fs::write(root.join("model/w.bin"), [0; 16]).unwrap();
    fs::write(root.join("model/inner/v.bin"), [0; 16]).unwrap();
    fs::write(root.join("secret"), "secret").unwrap();
    root
}

fn at(location: &str) -> External<'_> {
    External { location: location.into(), ..External::default() }
}

#[test]
fn external_files_are_found_inside_the_folder_only() {
    let root = folder("external");
    let model = root.join("model");
    let found = external_path(&model, &at("w.bin")).unwrap();
    assert_eq!(found, model.canonicalize().unwrap().join("w.bin"));
    assert!(external_path(&model, &at("./inner/v.bin")).unwrap().ends_with("inner/v.bin"));
    let secret = root.join("secret");
    let cases = [
        ("absolute", secret.to_str().unwrap(), ExternalEscape, "is absolute"),
        ("drive", "C:\\secret", ExternalEscape, "is absolute"),
        ("share", "\\\\host\\secret", ExternalEscape, "is absolute"),
        ("parent", "../secret", ExternalEscape, "leaves the model's folder"),
        ("hidden parent", "inner/../../secret", ExternalEscape, "leaves the model's folder"),
        ("parent and back", "inner/../w.bin", ExternalEscape, "leaves the model's folder"),
        ("backslashes", "inner\\..\\..\\secret", ExternalEscape, "leaves the model's folder"),
        ("missing", "gone.bin", ExternalMissing, "gone.bin does not exist"),
        ("folder", "inner", ExternalMissing, "is not a file"),
        ("below a file", "w.bin/x", ExternalMissing, "cannot be opened"),
        ("zero byte", "w\0.bin", ExternalMissing, "cannot be opened"),
    ];
    for (name, location, kind, fragment) in cases {
        check_error(name, external_path(&model, &at(location)).expect_err(name), kind, fragment);
    }
    let error = external_path(&root.join("nowhere"), &at("w.bin")).unwrap_err();
    check_error("no folder", error, ExternalMissing, "nowhere does not exist");
}

#[cfg(unix)]
#[test]
fn links_may_not_lead_out() {
    use std::os::unix::fs::symlink;
    let root = folder("links");
    let model = root.join("model");
    symlink(root.join("secret"), model.join("leak")).unwrap();
    symlink(&root, model.join("up")).unwrap();
    symlink("w.bin", model.join("alias")).unwrap();
    for location in ["leak", "up/secret"] {
        let error = external_path(&model, &at(location)).expect_err(location);
        check_error(location, error, ExternalEscape, "leads out of the model's folder");
    }
    assert!(external_path(&model, &at("alias")).unwrap().ends_with("w.bin"));
}

#[test]
fn external_ranges_are_checked() {
    let tensor = raw(DataType::Float, &[2], 0);
    let external = |offset, length| External { offset, length, ..at("w.bin") };
    assert_eq!(external(8, None).range(&tensor, 16).unwrap(), 8..16);
    assert_eq!(external(0, Some(8)).range(&tensor, 8).unwrap(), 0..8);
    let cases = [
        (
            "short file",
            external(0, Some(8)),
            ExternalShort,
            "takes 8 bytes from byte 0 of \"w.bin\", which has 7",
        ),
        ("offset", external(1 << 40, None), ExternalShort, "from byte 1099511627776"),
        ("overflow", external(u64::MAX, None), ExternalShort, "which has 7"),
        ("length", external(0, Some(4)), DataLength, "claims 4 bytes"),
        ("long length", external(0, Some(u64::MAX)), DataLength, "take 8"),
    ];
    for (name, external, kind, fragment) in cases {
        check_error(name, external.range(&tensor, 7).expect_err(name), kind, fragment);
    }
    let negative = raw(DataType::Float, &[-2], 0);
    check_error("dims", external(0, None).range(&negative, 7).unwrap_err(), BadDims, "-2");
}
