//! Weights in other files: locations that escape, files that are missing or short.

use std::fs;
use std::path::{Path, PathBuf};

use planish_import::{import_bytes, import_file};
use planish_onnx::{External, OnnxErrorKind, Tensor, TensorData};
use planish_tensor::Bytes;

use crate::common::*;
use crate::{check, check_error};

/// A folder of its own, gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("planish-import-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, bytes).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A model whose weight of eight bytes lies at `location`.
fn with_weights_at(location: &str, offset: u64, length: Option<u64>) -> Vec<u8> {
    let external = External { location: location.to_string().into(), offset, length, checksum: None };
    let data = TensorData::External(external);
    let weight = Tensor { name: "w".into(), data_type: F32, dims: vec![2, 1], data, ..Tensor::default() };
    bytes(through_with(vec![weight], vec![node("Add", &["x", "w"], &["y"])]))
}

#[test]
fn locations() {
    let folder = Folder::new("locations");
    folder.write("weights.bin", &[0; 16]);
    folder.write("short.bin", &[0; 7]);
    folder.write("folder/file", &[0; 8]);
    let secret = Folder::new("secret");
    let outside = secret.write("secret.bin", &[0; 8]);
    let absolute = outside.display().to_string();
    #[cfg(unix)]
    std::os::unix::fs::symlink(&outside, folder.path("link.bin")).expect("a link");
    let import = |location: &str, offset, length| {
        let model = folder.write("model.onnx", &with_weights_at(location, offset, length));
        import_file(&model)
    };
    for (location, offset, length) in
        [("weights.bin", 0, None), ("./weights.bin", 8, Some(8)), ("folder/file", 0, Some(8))]
    {
        import(location, offset, length).unwrap_or_else(|error| panic!("{location}: {error}"));
    }
    let cases = [
        ("/etc/passwd", 0, None, OnnxErrorKind::ExternalEscape, "is absolute"),
        (absolute.as_str(), 0, None, OnnxErrorKind::ExternalEscape, "is absolute"),
        ("C:\\weights.bin", 0, None, OnnxErrorKind::ExternalEscape, "is absolute"),
        ("\\\\server\\share", 0, None, OnnxErrorKind::ExternalEscape, "is absolute"),
        ("../secret.bin", 0, None, OnnxErrorKind::ExternalEscape, "leaves the model's folder"),
        ("folder/../../x", 0, None, OnnxErrorKind::ExternalEscape, "leaves the model's folder"),
        ("folder\\..\\..\\x", 0, None, OnnxErrorKind::ExternalEscape, "leaves the model's folder"),
        #[cfg(unix)]
        ("link.bin", 0, None, OnnxErrorKind::ExternalEscape, "a link that leads out"),
        ("missing.bin", 0, None, OnnxErrorKind::ExternalMissing, "does not exist; put the data file beside"),
        ("folder", 0, None, OnnxErrorKind::ExternalMissing, "is not a file"),
        ("short.bin", 0, None, OnnxErrorKind::ExternalShort, "takes 8 bytes from byte 0"),
        ("weights.bin", 9, None, OnnxErrorKind::ExternalShort, "which has 16"),
        ("weights.bin", u64::MAX, None, OnnxErrorKind::ExternalShort, "which has 16"),
        ("weights.bin", 0, Some(16), OnnxErrorKind::DataLength, "claims 16 bytes"),
        ("weights.bin", 0, Some(u64::MAX), OnnxErrorKind::DataLength, "claims"),
    ];
    for (location, offset, length, expected, fragment) in cases {
        let error = import(location, offset, length).err();
        let error = error.unwrap_or_else(|| panic!("{location} was accepted"));
        check_error(location, &error, Kind::Onnx(expected), fragment);
        assert!(error.to_string().starts_with("initializer `w`: "), "{error}");
    }
}

#[test]
fn without_a_folder() {
    check(vec![(
        "no folder",
        with_weights_at("weights.bin", 0, None),
        Kind::Invalid,
        "was not read from a folder; give the path of the model's file",
    )]);
    let model = Bytes::from_vec(with_weights_at("weights.bin", 0, None));
    let error =
        import_bytes(&model, Some(Path::new("/no/such/folder"))).expect_err("there is no such folder");
    check_error(
        "a folder that is not there",
        &error,
        Kind::Onnx(OnnxErrorKind::ExternalMissing),
        "/no/such/folder",
    );
    let error = import_file(Path::new("/no/such/model.onnx")).expect_err("there is no such file");
    check_error("a model that is not there", &error, Kind::Io, "cannot read /no/such/model.onnx");
    let error = import_file(&std::env::temp_dir()).expect_err("a folder is not a model");
    check_error("a folder", &error, Kind::Io, "not a regular file");
}

/// Download caches keep files under their hashes in one folder and link to them from another.
#[cfg(unix)]
#[test]
fn links_of_a_download_cache() {
    use std::os::unix::fs::symlink;
    let cache = Folder::new("cache");
    cache.write("blobs/1111", &with_weights_at("model.onnx_data", 0, None));
    cache.write("blobs/2222", &[0; 8]);
    cache.write("elsewhere/3333", &[0; 8]);
    fs::create_dir_all(cache.path("snapshots/abc/onnx")).expect("a folder");
    let link = |to: &str, name: &str| symlink(to, cache.path(name)).expect("a link");
    link("../../../blobs/1111", "snapshots/abc/onnx/model.onnx");
    link("../../../blobs/2222", "snapshots/abc/onnx/model.onnx_data");
    import_file(&cache.path("snapshots/abc/onnx/model.onnx")).expect("links into one folder are followed");

    // The same links, but the model is a file: then nothing outside its folder is its own.
    cache.write("copied/model.onnx", &with_weights_at("model.onnx_data", 0, None));
    link("../blobs/2222", "copied/model.onnx_data");
    let error = import_file(&cache.path("copied/model.onnx")).expect_err("the data lies outside");
    check_error("a copied model", &error, Kind::Onnx(OnnxErrorKind::ExternalEscape), "leads out");

    // The model is a link, but the data lies in a third folder.
    fs::create_dir_all(cache.path("snapshots/def")).expect("a folder");
    link("../../blobs/1111", "snapshots/def/model.onnx");
    link("../../elsewhere/3333", "snapshots/def/model.onnx_data");
    let error = import_file(&cache.path("snapshots/def/model.onnx")).expect_err("the data lies elsewhere");
    check_error("another folder", &error, Kind::Onnx(OnnxErrorKind::ExternalEscape), "leads out");

    // Below the folder of the model's file is not beside it.
    cache.write("blobs/below/4444", &[0; 8]);
    fs::create_dir_all(cache.path("snapshots/ghi")).expect("a folder");
    link("../../blobs/1111", "snapshots/ghi/model.onnx");
    link("../../blobs/below/4444", "snapshots/ghi/model.onnx_data");
    let error = import_file(&cache.path("snapshots/ghi/model.onnx")).expect_err("the data lies below");
    check_error("a folder below", &error, Kind::Onnx(OnnxErrorKind::ExternalEscape), "leads out");
}
