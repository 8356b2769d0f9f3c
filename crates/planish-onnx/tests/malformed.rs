//! Files that are wrong in every way known to us: each ends in the right kind of error, says where, and
//! nothing panics. Broken tensor data and external files are in `tensors.rs`, functions in `inline.rs`.

mod common;

use std::time::{Duration, Instant};

use common::{Msg, everything, with_attribute, with_graph, with_node, with_tensor, with_type};
use planish_onnx::OnnxErrorKind::{self, *};
use planish_onnx::{
    AttributeValue, OnnxError, inline_functions, read, read_optional, read_sequence, read_tensor, write,
};

/// A file, the error that it must end in, and a piece of its text.
type Case = (&'static str, Vec<u8>, OnnxErrorKind, &'static str);

fn check(cases: Vec<Case>) {
    for (name, bytes, kind, fragment) in cases {
        // `cargo xtask malformed` sets a folder to have them all, for `planish build`.
        if let Some(folder) = std::env::var_os("PLANISH_MALFORMED_TO") {
            let plain: String =
                name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
            std::fs::write(std::path::Path::new(&folder).join(format!("read_{plain}.onnx")), &bytes).unwrap();
        }
        check_error(name, read(&bytes).err(), kind, fragment);
    }
}

fn check_error(name: &str, error: Option<OnnxError>, kind: OnnxErrorKind, fragment: &str) {
    let error = error.unwrap_or_else(|| panic!("{name} was accepted"));
    assert_eq!(error.kind(), kind, "{name}: {error}");
    let text = error.to_string();
    assert!(text.contains(fragment), "{name}: {text:?} lacks {fragment:?}");
    assert!(text.contains("; ") && text.len() < 500, "{name}: {text:?} gives no short advice");
}

#[test]
fn other_files_are_named() {
    let saved_model = Msg::new().int(1, 1).msg(2, &Msg::new().msg(1, &Msg::new().text(5, "serve")));
    let frozen = Msg::new().msg(1, &Msg::new().text(1, "input").text(2, "Placeholder"));
    check(vec![
        ("nothing", vec![], NotOnnx, "an empty file"),
        ("text", b"just some text\n".into(), NotOnnx, "a text file"),
        ("cut text", "Größe ".repeat(100).into(), NotOnnx, "a text file"),
        ("json", b"{\"model\": 1}".into(), NotOnnx, "a text file"),
        ("web page", b"\n<!doctype html><html>".into(), NotOnnx, "a web page"),
        ("git-lfs", b"version https://git-lfs.github.com/spec/v1\noid".into(), NotOnnx, "git lfs pull"),
        ("zip", b"PK\x03\x04\x14\0\0\0".into(), NotOnnx, "PyTorch .pt"),
        ("gzip", b"\x1f\x8b\x08\0".into(), NotOnnx, "unpack it"),
        ("pickle", b"\x80\x02}q\0".into(), NotOnnx, "torch.onnx.export"),
        ("hdf5", b"\x89HDF\r\n\x1a\n".into(), NotOnnx, "Keras"),
        ("npy", b"\x93NUMPY\x01\0".into(), NotOnnx, "NumPy"),
        ("plan", b"PLANISH\n\x06\0\0\0".into(), NotOnnx, "a plan of Planish"),
        ("gguf", b"GGUF\x03\0\0\0".into(), NotOnnx, "GGUF"),
        ("tflite", b"\x1c\0\0\0TFL3".into(), NotOnnx, "TensorFlow Lite"),
        ("ort", b"\x1c\0\0\0ORTM".into(), NotOnnx, ".ort file"),
        ("safetensors", b"\x10\0\0\0\0\0\0\0{\"w\":{}}".into(), NotOnnx, "safetensors"),
        ("frozen graph", frozen.0, NotOnnx, "frozen TensorFlow graph"),
        ("tensor", Msg::new().int(1, 2).int(2, 2).bytes(9, &[7, 8]).0, NotOnnx, "a single tensor"),
        ("saved model", saved_model.0, NotOnnx, "SavedModel"),
    ]);
}

#[test]
fn the_wire_format_is_checked() {
    let node = Msg::new().text(4, "Relu");
    check(vec![
        ("cut tag", Msg::new().int(1, 10).raw(&[0x80]).0, Truncated, "cut off"),
        ("cut number", Msg::new().raw(&[0x08, 0xff]).0, Truncated, "cut off"),
        ("cut length", Msg::new().int(1, 10).raw(&[0x3a, 0x80]).0, Truncated, "byte 3"),
        (
            "long text",
            Msg::new().int(1, 10).tag(2, 2).varint(9).raw(b"abc").0,
            Truncated,
            "claims 9 bytes where 3",
        ),
        (
            "endless field",
            Msg::new().int(1, 9).tag(7, 2).varint(u64::MAX).0,
            Truncated,
            "18446744073709551615",
        ),
        ("2 GiB field", Msg::new().int(1, 9).tag(7, 2).varint(1 << 31).0, Truncated, "2147483648"),
        ("cut fixed32", Msg::new().int(1, 9).tag(90, 5).raw(&[0; 3]).0, Truncated, "claims 4 bytes where 3"),
        ("cut fixed64", Msg::new().int(1, 9).tag(90, 1).raw(&[0; 7]).0, Truncated, "claims 8 bytes where 7"),
        (
            "node beyond its graph",
            Msg::new().int(1, 9).msg(7, &Msg::new().tag(1, 2).varint(7).raw(&node.0)).int(5, 1).0,
            Truncated,
            "graph (byte 6)",
        ),
        ("group", with_graph(&Msg::new().tag(1, 3).tag(1, 4)), WrongWireType, "field 1 is a group"),
        (
            "unknown group",
            with_graph(&Msg::new().tag(99, 3).tag(99, 4)),
            WrongWireType,
            "field 99 is a group",
        ),
        ("group end", with_graph(&Msg::new().tag(99, 4)), WrongWireType, "group"),
        ("wire type 6", with_graph(&Msg::new().tag(1, 6)), WrongWireType, "unknown wire type 6"),
        ("wire type 7", with_graph(&Msg::new().tag(1, 7)), WrongWireType, "unknown wire type 7"),
        ("field 0", with_graph(&Msg::new().tag(0, 0).varint(1)), WrongWireType, "0 is not a field number"),
        (
            "field 2^40",
            with_graph(&Msg::new().tag(1 << 40, 0).varint(1)),
            WrongWireType,
            "not a field number",
        ),
        ("11-byte number", with_graph(&Msg::new().tag(50, 0).raw(&[0x80; 11])), BadVarint, "graph (byte 6)"),
        ("65-bit number", with_graph(&Msg::new().tag(50, 0).raw(&[0xff; 9]).raw(&[2])), BadVarint, "64 bits"),
        ("11-byte length", with_graph(&Msg::new().tag(50, 2).raw(&[0x80; 11])), BadVarint, "ten bytes"),
        ("11-byte packed", with_tensor(&Msg::new().int(2, 1).bytes(1, &[0x80; 11])), BadVarint, "dims[0]"),
        (
            "cut packed",
            with_tensor(&Msg::new().int(2, 1).bytes(1, &[3, 0x80])),
            Truncated,
            "initializer[0].dims[1]",
        ),
    ]);
}

#[test]
fn wrong_wire_types_of_known_fields_are_refused() {
    let float = |field| Msg::new().tag(field, 5).raw(&[0; 4]);
    let attribute = |value: Msg| with_attribute(&Msg::new().text(1, "a").raw(&value.0));
    check(vec![
        ("ir_version", Msg::new().text(1, "x").0, WrongWireType, "ir_version"),
        ("producer", Msg::new().int(2, 1).0, WrongWireType, "producer_name"),
        (
            "graph",
            Msg::new().int(1, 9).int(7, 1).0,
            WrongWireType,
            "field 7 (graph) is a varint where a message",
        ),
        ("opset", Msg::new().msg(8, &Msg::new().text(2, "1")).0, WrongWireType, "opset_import[0].version"),
        ("node", with_graph(&float(1)), WrongWireType, "graph.node[0]"),
        ("initializer", with_graph(&Msg::new().int(5, 0)), WrongWireType, "graph.initializer[0]"),
        ("input", with_graph(&Msg::new().tag(11, 1).raw(&[0; 8])), WrongWireType, "8 fixed bytes"),
        ("node name", with_node(&Msg::new().int(3, 1)), WrongWireType, "graph.node[0].name"),
        ("dims", with_tensor(&float(1)), WrongWireType, "integers belongs"),
        ("float_data", with_tensor(&Msg::new().int(4, 1)), WrongWireType, "floats belongs"),
        ("double_data", with_tensor(&float(10)), WrongWireType, "doubles belongs"),
        ("raw_data", with_tensor(&Msg::new().int(9, 1)), WrongWireType, "bytes belongs"),
        ("odd float_data", with_tensor(&Msg::new().bytes(4, &[0; 7])), Truncated, "whole number of 4-byte"),
        (
            "odd double_data",
            with_tensor(&Msg::new().bytes(10, &[0; 12])),
            Truncated,
            "whole number of 8-byte",
        ),
        ("attribute float", attribute(Msg::new().int(2, 1)), WrongWireType, "a float belongs"),
        ("attribute int", attribute(float(3)), WrongWireType, "(node \"act\", byte"),
        ("attribute string", attribute(Msg::new().int(4, 1)), WrongWireType, "attribute[0].s "),
        ("attribute type", attribute(Msg::new().text(20, "INT")), WrongWireType, "attribute[0].type"),
        ("dim_value", dimension(&Msg::new().text(1, "3")), WrongWireType, "shape.dim[0].dim_value"),
        ("elem_type", with_type(&Msg::new().msg(1, &float(1))), WrongWireType, "tensor_type.elem_type"),
    ]);
}

fn dimension(dim: &Msg) -> Vec<u8> {
    with_type(&Msg::new().msg(1, &Msg::new().int(1, 1).msg(2, &Msg::new().msg(1, dim))))
}

#[test]
fn text_must_be_utf8() {
    let bad = |field| Msg::new().bytes(field, b"ok\xff\xfe");
    let model = |field| Msg::new().int(1, 9).raw(&bad(field).0).0;
    let metadata = Msg::new().msg(7, &Msg::new()).msg(14, &Msg::new().text(1, "k").raw(&bad(2).0));
    let function = |field| Msg::new().msg(7, &Msg::new()).msg(25, &bad(field)).0;
    let tensor = |message: Msg| with_tensor(&Msg::new().int(2, 1).raw(&message.0));
    check(vec![
        ("producer", model(2), InvalidUtf8, "producer_name (byte 6)"),
        ("producer version", model(3), InvalidUtf8, "producer_version"),
        ("domain", model(4), InvalidUtf8, "domain"),
        ("doc", model(6), InvalidUtf8, "doc_string"),
        ("opset", Msg::new().msg(8, &bad(1)).0, InvalidUtf8, "opset_import[0].domain"),
        ("metadata", metadata.0, InvalidUtf8, "metadata_props[0].value"),
        ("graph name", with_graph(&bad(2)), InvalidUtf8, "graph.name"),
        ("node input", with_node(&bad(1)), InvalidUtf8, "graph.node[0].input"),
        ("node output", with_node(&bad(2)), InvalidUtf8, "graph.node[0].output"),
        ("node name", with_node(&bad(3)), InvalidUtf8, "graph.node[0].name"),
        ("op_type", with_node(&bad(4)), InvalidUtf8, "graph.node[0].op_type"),
        ("node domain", with_node(&bad(7)), InvalidUtf8, "graph.node[0].domain"),
        ("overload", with_node(&bad(8)), InvalidUtf8, "graph.node[0].overload"),
        ("attribute", with_attribute(&bad(1)), InvalidUtf8, "attribute[0].name (node \"act\""),
        ("reference", with_attribute(&bad(21)), InvalidUtf8, "ref_attr_name"),
        ("input", with_graph(&Msg::new().msg(11, &bad(1))), InvalidUtf8, "graph.input[0].name"),
        ("dim_param", dimension(&bad(2)), InvalidUtf8, "dim[0].dim_param"),
        ("tensor name", tensor(bad(8)), InvalidUtf8, "initializer[0].name"),
        ("external", tensor(Msg::new().msg(13, &bad(2))), InvalidUtf8, "external_data[0].value"),
        ("annotation", with_graph(&Msg::new().msg(14, &bad(1))), InvalidUtf8, "tensor_name"),
        ("function", function(1), InvalidUtf8, "functions[0].name"),
        ("function input", function(4), InvalidUtf8, "functions[0].input"),
        ("function attribute", function(6), InvalidUtf8, "functions[0].attribute"),
    ]);
}

#[test]
fn what_onnx_requires_must_be_there() {
    let attribute = |message: Msg| with_attribute(&Msg::new().text(1, "a").raw(&message.0));
    let sparse = |message: Msg| with_graph(&Msg::new().msg(15, &message));
    let tensor = Msg::new().int(2, 7);
    check(vec![
        ("no graph", Msg::new().int(1, 10).text(2, "tool").0, MissingField, "no graph"),
        ("no operator", with_node(&Msg::new().text(3, "n1")), MissingField, "op_type (node \"n1\""),
        ("attribute name", with_attribute(&Msg::new().int(3, 1)), MissingField, "attribute[0].name"),
        ("attribute value", attribute(Msg::new()), MissingField, "the attribute \"a\" has no value"),
        ("kind only", attribute(Msg::new().int(20, 4)), MissingField, "has no value"),
        ("graph missing", attribute(Msg::new().int(3, 1).int(20, 5)), MissingField, "has no value"),
        ("empty type", attribute(Msg::new().msg(14, &Msg::new())), MissingField, "attribute[0].tp"),
        ("input name", with_graph(&Msg::new().msg(11, &Msg::new())), MissingField, "graph.input[0].name"),
        ("output name", with_graph(&Msg::new().msg(12, &Msg::new())), MissingField, "graph.output[0].name"),
        (
            "tensor type",
            with_tensor(&Msg::new().text(8, "w")),
            MissingField,
            "the tensor \"w\" has no element",
        ),
        ("opset version", Msg::new().msg(8, &Msg::new().text(1, "d")).0, MissingField, "[0].version"),
        ("sparse values", sparse(Msg::new().msg(2, &tensor)), MissingField, "sparse_initializer[0].values"),
        ("sparse indices", sparse(Msg::new().msg(1, &tensor)), MissingField, "sparse_initializer[0].indices"),
        ("annotation", with_graph(&Msg::new().msg(14, &Msg::new())), MissingField, "names no tensor"),
        ("function", Msg::new().msg(25, &Msg::new()).0, MissingField, "functions[0].name"),
    ]);
}

#[test]
fn unknown_numbers_are_named() {
    let attribute = |kind| with_attribute(&Msg::new().text(1, "a").int(20, kind));
    let elem = |number| with_type(&Msg::new().msg(1, &Msg::new().int(1, number)));
    let segment = Msg::new().int(2, 1).msg(3, &Msg::new());
    check(vec![
        ("data type 99", with_tensor(&Msg::new().int(2, 99)), UnknownDataType, "99 is not an element type"),
        ("data type -1", with_tensor(&Msg::new().int(2, -1)), UnknownDataType, "-1 is not an element type"),
        ("elem_type 27", elem(27), UnknownDataType, "tensor_type.elem_type"),
        ("attribute kind 77", attribute(77), UnknownAttributeType, "77 is not an attribute kind"),
        ("attribute kind -2", attribute(-2), UnknownAttributeType, "-2 is not an attribute kind"),
        (
            "data location",
            with_tensor(&Msg::new().int(2, 1).int(14, 7)),
            BadExternal,
            "7 is not a data location",
        ),
        ("segment", with_tensor(&segment), Unsupported, "initializer[0].segment"),
        ("IR version 2", Msg::new().int(1, 2).msg(7, &Msg::new()).0, Unsupported, "IR version 2"),
        ("IR version -1", Msg::new().int(1, -1).msg(7, &Msg::new()).0, Unsupported, "IR version -1"),
    ]);
}

#[test]
fn depth_is_bounded() {
    const LEVELS: usize = 5_000;
    let wrap = |start: Msg, level: &dyn Fn(&Msg) -> Msg| (0..LEVELS).fold(start, |inner, _| level(&inner));
    let graphs = wrap(Msg::new(), &|graph| {
        let attribute = Msg::new().text(1, "body").int(20, 5).msg(6, graph);
        Msg::new().msg(1, &Msg::new().text(4, "Loop").msg(5, &attribute))
    });
    let sequence_types = wrap(Msg::new(), &|ty| Msg::new().msg(4, &Msg::new().msg(1, ty)));
    let map_types = wrap(Msg::new(), &|ty| Msg::new().msg(5, &Msg::new().msg(2, ty)));
    check(vec![
        ("subgraphs", with_graph(&graphs), TooDeep, "deeper than 100"),
        ("sequence types", with_type(&sequence_types), TooDeep, "sequence_type.elem_type"),
        ("map types", with_type(&map_types), TooDeep, "map_type.value_type"),
    ]);

    let sequences = wrap(Msg::new(), &|inner| Msg::new().msg(5, inner));
    assert_eq!(read_sequence(&sequences.0).unwrap_err().kind(), TooDeep);
    let optionals = wrap(Msg::new(), &|inner| Msg::new().msg(7, inner));
    assert_eq!(read_optional(&optionals.0).unwrap_err().kind(), TooDeep);
}

#[test]
fn maps_are_refused_by_name() {
    let map = Msg::new().msg(6, &Msg::new());
    check_error("sequence", read_sequence(&map.0).err(), Unsupported, "map_values");
    check_error("optional", read_optional(&map.0).err(), Unsupported, "map_value");
    check_error("tensor", read_tensor(b"\x08").err(), Truncated, "cut off");
}

/// Far beyond what these files take (about a second in all, without optimization, on a busy machine), far
/// below what a reader that is not linear would take.
const BOMB_TIME: Duration = Duration::from_secs(120);

#[test]
fn bombs_are_refused_quickly() {
    let repeat = |field, message: &Msg| {
        let one = Msg::new().msg(field, message).0;
        Msg(one.repeat((4 << 20) / one.len()))
    };
    let empty = Msg::new();
    let in_function = Msg::new().msg(7, &empty).msg(25, &Msg::new().text(1, "f").raw(&repeat(4, &empty).0));
    let start = Instant::now();
    check(vec![
        ("empty nodes", with_graph(&repeat(1, &empty)), MissingField, "graph.node[0].op_type"),
        ("empty attributes", with_node(&repeat(5, &empty)), MissingField, "attribute[0].name"),
        ("empty inputs", with_graph(&repeat(11, &empty)), MissingField, "graph.input[0].name"),
        ("empty initializers", with_graph(&repeat(5, &empty)), MissingField, "initializer[0].data_type"),
        ("empty annotations", with_graph(&repeat(14, &empty)), MissingField, "tensor_name"),
        ("empty sparse tensors", with_graph(&repeat(15, &empty)), MissingField, "values"),
        ("empty opsets", repeat(8, &empty).0, MissingField, "opset_import[0].version"),
        ("empty functions", repeat(25, &empty).0, MissingField, "functions[0].name"),
        (
            "empty subgraphs",
            with_attribute(&Msg::new().text(1, "a").raw(&repeat(11, &empty).0)),
            TooDense,
            "MiB",
        ),
        ("least nodes", with_graph(&repeat(1, &Msg::new().text(4, "a"))), TooDense, "more than 96 MiB"),
        ("least tensors", with_graph(&repeat(5, &Msg::new().int(2, 1))), TooDense, "initializer["),
    ]);
    // Eighteen bytes of memory to one of file: not refused at this size.
    assert_eq!(read(&in_function.0).unwrap().functions[0].inputs.len(), 2 << 20);
    // A million runs of one integer each take no longer than one run of a million.
    let runs = Msg(Msg::new().bytes(8, &[1]).0.repeat(1 << 20));
    let bytes = with_attribute(&Msg::new().text(1, "a").int(20, 7).raw(&runs.0));
    let model = read(&bytes).unwrap();
    assert_eq!(model.graph.nodes[0].attributes[0].value, AttributeValue::Ints(vec![1; 1 << 20]));
    assert!(start.elapsed() < BOMB_TIME, "{:?}", start.elapsed());
}

#[test]
fn empty_messages_that_mean_nothing_cost_nothing() {
    let repeat = |field| Msg(Msg::new().msg(field, &Msg::new()).0.repeat(2 << 20));
    let bytes = with_graph(&repeat(13).raw(&repeat(16).0));
    let model = read(&bytes).unwrap();
    assert!(model.graph.value_infos.is_empty() && model.graph.metadata.is_empty());
}

/// Reads the bytes and does with the model all that can be done; only whether it panics matters.
fn exercise(bytes: &[u8]) {
    let Ok(mut model) = read(bytes) else { return };
    for tensor in &model.graph.initializers {
        let _ = tensor.to_le_bytes();
    }
    for sparse in &model.graph.sparse_initializers {
        if sparse.dense_byte_len().is_ok_and(|length| length < 1 << 20) {
            let _ = sparse.to_dense_le_bytes();
        }
    }
    let again = write(&model);
    assert_eq!(write(&read(&again).expect("what is written can be read")), again);
    let _ = inline_functions(&mut model);
}

#[test]
fn a_file_cut_anywhere_never_panics() {
    let bytes = write(&everything());
    let mut n_refused = 0;
    for end in 0..bytes.len() {
        exercise(&bytes[..end]);
        n_refused += usize::from(read(&bytes[..end]).is_err());
    }
    // Only a cut between two fields of the model itself leaves a valid file: after the graph come two
    // operator sets, one metadata entry and one function.
    assert_eq!(n_refused, bytes.len() - 4);
}

#[test]
fn a_file_with_any_byte_changed_never_panics() {
    let mut bytes = write(&everything());
    for at in 0..bytes.len() {
        let right = bytes[at];
        for wrong in [0, 0x7f, 0x80, 0xff, right ^ 1, right.wrapping_add(8)] {
            bytes[at] = wrong;
            exercise(&bytes);
        }
        bytes[at] = right;
    }
}
