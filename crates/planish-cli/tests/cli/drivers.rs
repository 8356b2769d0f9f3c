//! Drivers of other versions, made of C: which are taken, and what is said of them.

use std::process::Command;

use crate::{Ended, Folder, ended};

/// `planish doctor` where the only driver is one that offers this version of CUDA and sees no GPU.
fn doctor(folder: &Folder, version: i32, arguments: &[&str]) -> Ended {
    let text = format!("unsigned cuDriverGetVersion(int* version) {{ *version = {version}; return 0; }}\n");
    let source = folder.put("driver.c", text.as_bytes());
    let library = folder.path("libcuda.so.1");
    let compiler = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(compiler.expect("what links Rust compiles C").success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_planish"));
    command.env("PLANISH_CUDA_PATH", &folder.0).env_remove("LD_LIBRARY_PATH");
    ended(command, arguments)
}

#[test]
fn a_driver_of_cuda_12_is_taken_and_libraries_of_12_are_asked_for() {
    let folder = Folder::new("driver12");
    let shown = doctor(&folder, 12_020, &["doctor"]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    let driver = format!("12.2, {}", folder.path("libcuda.so.1").canonicalize().unwrap().display());
    assert!(shown.stdout.contains(&driver), "{}", shown.stdout);
    // It lacks every function, and the first is named.
    assert!(shown.stdout.contains("lacks cuInit"), "{}", shown.stdout);
    let json: serde_json::Value =
        serde_json::from_str(&doctor(&folder, 12_020, &["doctor", "--json"]).stdout).unwrap();
    // Here it is not (a driver of 12 takes no library of 13), or it was found in the version that fits.
    let nvrtc = &json["libraries"]["libnvrtc.so.12"];
    assert!(
        nvrtc["install"].as_str().is_some_and(|how| how.contains("-cu12")) || nvrtc["cuda"] == 12,
        "{json}"
    );
    assert!(json["libraries"].get("libnvrtc.so.13").is_none(), "{json}");
}

#[test]
fn a_driver_of_cuda_11_is_refused_with_what_to_do() {
    let folder = Folder::new("driver11");
    let shown = doctor(&folder, 11_080, &["doctor"]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    let line = shown.stdout.lines().find(|line| line.starts_with("cuda ")).unwrap_or_default();
    assert!(line.contains("it offers CUDA 11.8, 12.0 (driver 525) is the oldest that works"), "{line}");
    assert!(line.contains("install NVIDIA's driver, 525 or newer"), "{line}");
}
