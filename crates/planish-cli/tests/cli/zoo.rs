//! `planish zoo`.

use std::fs;

use crate::{Folder, fails, planish, succeeds};

#[test]
fn lists_and_writes_models() {
    let listed = succeeds(&["zoo"]).stdout;
    assert!(listed.contains("resnet18_224           11,689,512  image classifier, residual\n"), "{listed}");
    let json: serde_json::Value = serde_json::from_str(&succeeds(&["zoo", "--json"]).stdout).unwrap();
    assert_eq!(json["models"].as_array().unwrap().len(), planish_zoo::ENTRIES.len());

    let folder = Folder::new("zoo");
    let path = folder.path("a.onnx").display().to_string();
    let said = succeeds(&["zoo", "seg_unet3d_64", "-o", &path]).stdout;
    assert_eq!(said, format!("{path}: 5.63 MB (seed 0)\n"));
    let first = fs::read(&path).unwrap();
    succeeds(&["zoo", "seg_unet3d_64", "-o", &path, "--seed", "1"]);
    assert_ne!(first, fs::read(&path).unwrap());
    assert!(succeeds(&["inspect", &path]).stdout.contains("ConvTranspose"));
}

#[test]
fn bad_names_and_places() {
    let folder = Folder::new("bad-zoo");
    let hint = "there is no model `resnet18` in the zoo; did you mean resnet18_224 or resnet18_256 or \
                resnet18_384 or resnet18_512?";
    fails(&folder, &["zoo", "resnet18"], 2, hint);
    let nowhere = folder.path("no/such/a.onnx").display().to_string();
    let line = "cannot write {}/no/such/a.onnx: there is no folder {}/no/such";
    fails(&folder, &["zoo", "cifar_cnn", "-o", &nowhere], 2, line);
    assert_eq!(planish(&["zoo", "-o", "x.onnx"]).code, Some(2));
}
