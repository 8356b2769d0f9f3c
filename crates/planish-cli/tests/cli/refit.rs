//! `planish refit` and `planish check`: other weights in a plan, and what its certificate says then.

use std::fs;

use crate::{Folder, fails, linear, planish, succeeds};

#[test]
fn weights_are_replaced_and_checked_again() {
    let folder = Folder::new("refit");
    let path = |name: &str| folder.path(name).display().to_string();
    let (old, plan, newer) = (folder.put("old.onnx", &linear()), path("old.plan"), path("new.plan"));
    // The same model with 7 for 6 among its weights.
    let mut bytes = linear();
    let at = bytes.windows(4).position(|four| four == 6f32.to_le_bytes()).unwrap();
    bytes[at..at + 4].copy_from_slice(&7f32.to_le_bytes());
    let new = folder.put("new.onnx", &bytes);
    succeeds(&["build", &old, "-o", &plan, "--device", "cpu", "--tune-level", "0"]);
    let ended = succeeds(&["refit", &plan, &new, "-o", &newer]);
    assert!(
        ended.stdout.contains(" replaced in ")
            && ended.stdout.contains("certificate unchecked since refit\n")
    );
    let sum = |plan: &str| -> f64 {
        let ended = succeeds(&["run", plan, "--device", "cpu", "--random", "3", "--json"]);
        let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        report["outputs"][0]["mean"].as_f64().unwrap()
    };
    let built = path("built.plan");
    succeeds(&["build", &new, "-o", &built, "--device", "cpu", "--tune-level", "0"]);
    assert_eq!(sum(&newer), sum(&built));
    assert_ne!(sum(&newer), sum(&plan));
    let ended = planish(&["run", &newer, "--device", "cpu"]);
    assert!(ended.stderr.contains("note: this plan is unchecked since its refit;"), "{}", ended.stderr);
    assert!(succeeds(&["inspect", &newer]).stdout.contains("certificate unchecked since refit;"));
    let ended = planish(&["check", &newer, "--duration", "10ms"]);
    assert!(ended.stdout.contains(" 7  pass  accuracy validated"), "{}", ended.stdout);
    assert!(ended.stdout.starts_with("before      unchecked since refit\ncertificate "), "{}", ended.stdout);
    assert!(!planish(&["run", &newer, "--device", "cpu"]).stderr.contains("unchecked"));
    let ended = succeeds(&["refit", &plan, &new, "-o", &newer, "--check", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["certificate"], "checked");
}

#[test]
fn what_does_not_fit_is_one_line() {
    let folder = Folder::new("refit-refused");
    let path = |name: &str| folder.path(name).display().to_string();
    let (model, plan) = (folder.put("m.onnx", &linear()), path("m.plan"));
    succeeds(&["build", &model, "-o", &plan, "--device", "cpu", "--tune-level", "0"]);
    fails(
        &folder,
        &["refit", &plan, &model, "-o", &plan],
        2,
        "cannot write {}/m.plan: it is a file that this command reads; give another name",
    );
    let other = path("zoo.onnx");
    succeeds(&["zoo", "cifar_cnn", "-o", &other]);
    let before = fs::read(&plan).unwrap();
    let ended = planish(&["refit", &plan, &other, "-o", &path("out.plan")]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(2), 1), "{}", ended.stderr);
    assert!(ended.stderr.contains("the new model has other inputs"), "{}", ended.stderr);
    assert_eq!(fs::read(&plan).unwrap(), before);
    assert!(!folder.path("out.plan").exists());
}
