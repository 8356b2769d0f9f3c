//! Says what a file is that is not ONNX, from its first bytes.

use crate::error::{OnnxError, OnnxErrorKind};

/// First bytes of files that are handed in as models by mistake: offset, bytes, what it is, what to do.
const MAGICS: &[(usize, &[u8], &str, &str)] = &[
    (
        0,
        b"version https://git-lfs",
        "a git-lfs pointer, not the model itself",
        "run `git lfs pull` in the repository that it comes from",
    ),
    (
        0,
        b"PK\x03\x04",
        "a zip archive (a PyTorch .pt, a Keras model or a package)",
        "export the model to ONNX, or unpack the archive and give the .onnx file inside",
    ),
    (0, b"\x1f\x8b", "a gzip archive", "unpack it and give the .onnx file inside"),
    (0, b"\x80\x02", "a Python pickle (an old PyTorch file)", "export the model with torch.onnx.export"),
    (0, b"\x89HDF", "an HDF5 file (a Keras model)", "export the model to ONNX with tf2onnx"),
    (0, b"\x93NUMPY", "a NumPy array", "give a model; arrays are its inputs"),
    (0, b"PLANISH", "a plan of Planish", "give the .onnx file that it was built from"),
    (0, b"GGUF", "a GGUF file", "export the original model to ONNX"),
    (4, b"TFL3", "a TensorFlow Lite model", "convert it with tf2onnx --tflite"),
    (4, b"ORTM", "an ONNX Runtime .ort file", "give the .onnx file that it was made from"),
    (8, b"{\"", "a safetensors file, weights without a graph", "export the model to ONNX"),
];

/// What the file is, if it is evidently something else than ONNX.
pub(super) fn other_file(bytes: &[u8]) -> Option<OnnxError> {
    let not_onnx = |what: &str| OnnxError::new(OnnxErrorKind::NotOnnx, format!("this is {what}"));
    if bytes.is_empty() {
        return Some(not_onnx("an empty file").hint("the download or export may have failed: do it again"));
    }
    for (offset, magic, what, hint) in MAGICS {
        if bytes.get(*offset..).is_some_and(|rest| rest.starts_with(magic)) {
            return Some(not_onnx(what).hint(hint));
        }
    }
    let head = &bytes[..bytes.len().min(512)];
    if is_text(head) {
        let is_html = head.trim_ascii_start().starts_with(b"<");
        let what = if is_html { "a web page or XML file" } else { "a text file" };
        return Some(not_onnx(what).hint("give the path of a .onnx file; a download may have failed"));
    }
    // A GraphDef starts with its first node (field 1, a message, that opens with its own name); ModelProto's
    // field 1 is a number.
    if let [0x0a, rest @ ..] = bytes {
        let length = rest.iter().position(|byte| byte & 0x80 == 0).map_or(rest.len(), |last| last + 1);
        if rest.get(length) == Some(&0x0a) {
            return Some(
                not_onnx("another protobuf file, probably a frozen TensorFlow graph")
                    .hint("convert it to ONNX with tf2onnx"),
            );
        }
    }
    // A SavedModel is a schema version of 1, then a graph message where ModelProto has its producer's name.
    if let [0x08, 0x01, 0x12, rest @ ..] = bytes {
        let length = rest.iter().position(|byte| byte & 0x80 == 0).map_or(rest.len(), |last| last + 1);
        if rest.get(length) == Some(&0x0a) {
            return Some(not_onnx("a TensorFlow SavedModel").hint("convert it to ONNX with tf2onnx"));
        }
    }
    // A tensor of the conformance data: checked to the last byte, as many things look like one at first.
    if super::read_tensor(bytes).is_ok_and(|tensor| tensor.to_le_bytes().is_ok()) {
        return Some(not_onnx("a single tensor, not a model").hint("give a model; tensors are its inputs"));
    }
    None
}

/// Whether the start of a file is text. A cut-off last character is allowed for.
fn is_text(head: &[u8]) -> bool {
    let valid = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !valid.is_empty() && valid.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t'))
}
