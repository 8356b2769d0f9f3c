//! Measured peaks, and the shares of them that `bench` and `profile` show.

use std::process::Command;

use serde_json::Value;

use super::{Folder, ended, linear};

/// Peaks are kept with four decimals.
const KEPT: f64 = 1e-3;

/// Runs the command with a cache folder of the test's own and without GPUs; gives standard output and error.
#[track_caller]
fn with_cache(folder: &Folder, arguments: &[&str]) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_planish"));
    command.env("XDG_CACHE_HOME", folder.path("cache")).env("CUDA_VISIBLE_DEVICES", "");
    let ended = ended(command, arguments);
    assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.stderr);
    (ended.stdout, ended.stderr)
}

#[track_caller]
fn json(folder: &Folder, arguments: &[&str]) -> Value {
    serde_json::from_str(&with_cache(folder, &[arguments, &["--json"]].concat()).0).unwrap()
}

#[test]
fn shares_of_the_peaks_are_shown_once_they_are_measured() {
    let folder = Folder::new("peaks");
    let model = folder.put("linear.onnx", &linear());
    let common = ["--device", "cpu", "--tune-level", "0", "--threads", "1", "--shapes", "x:5x3"];
    let bench = [&["bench", &model, "--duration", "20ms", "--warmup", "1ms"][..], &common].concat();
    let profile = [&["profile", &model][..], &common].concat();

    // Nothing is kept: rates alone, and how to get the rest.
    for command in [&bench, &profile] {
        let shown = with_cache(&folder, command).0;
        assert!(shown.contains("planish doctor --measure") && !shown.contains("of the peak"), "{shown}");
    }
    let report = json(&folder, &bench);
    // 5 x 2 sums of three products, 10 biases, and a comparison for each of the 10 in ArgMax.
    assert_eq!(report["gflop"].as_f64().unwrap(), (60.0 + 10.0 + 10.0) / 1e9);
    assert_eq!(report["uncounted_steps"], 0);
    assert!(report["compute_peak_share"].is_null() && report["memory_peak_share"].is_null(), "{report}");
    let layers = json(&folder, &profile)["layers"].as_array().unwrap().clone();
    assert!(layers.iter().all(|layer| layer["roof_share"].is_null()), "{layers:?}");

    let measured = json(&folder, &["doctor", "--measure"]);
    let peak = |name: &str| {
        let mut peaks = measured["peaks"].as_array().unwrap().iter();
        let found = peaks.find(|peak| peak["name"] == name).unwrap_or_else(|| panic!("{name}: {measured}"));
        found["per_second"].as_f64().unwrap()
    };
    let fma = peak("fp32 fma, 1 thread");
    let memory = peak("memory read, 1 thread").max(peak("memory copy, 1 thread"));
    let shown = with_cache(&folder, &bench).0;
    assert!(shown.matches(" % of the peak").count() == 2 && !shown.contains("--measure"), "{shown}");
    let report = json(&folder, &bench);
    for (rate, peak, share) in
        [("gflop_per_second", fma, "compute_peak_share"), ("gb_per_second", memory, "memory_peak_share")]
    {
        let (rate, share) = (report[rate].as_f64().unwrap(), report[share].as_f64().unwrap());
        let expected = rate * 1e9 / peak;
        assert!(share > 0.0 && (share / expected - 1.0).abs() < KEPT, "{share} is not {expected}");
    }
    for layer in json(&folder, &profile)["layers"].as_array().unwrap() {
        let of = |name: &str| layer[name].as_f64().unwrap_or_else(|| panic!("{name}: {layer}"));
        let expected = (of("gflop_per_second") * 1e9 / fma).max(of("gb_per_second") * 1e9 / memory);
        assert!((of("roof_share") / expected - 1.0).abs() < KEPT, "{layer}");
    }
}
