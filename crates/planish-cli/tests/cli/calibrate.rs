//! `planish calibrate`: what it reads, writes and refuses.

use std::fs;

use crate::{Folder, fails, linear, npy, npy_f32, planish, succeeds};

/// Twenty rows of x for `linear`: 0.1 to 2.0, so that y goes up to 2·(1 + 3 + 5) + 0.5 and 2·(2 + 4 + 6) - 0.5.
fn samples(folder: &Folder) -> String {
    let values: Vec<f32> = (1..=20).flat_map(|n| [0.1 * n as f32; 3]).collect();
    folder.put("x.npy", &npy_f32("(20, 3)", &values))
}

#[test]
fn ranges_are_found_and_written() {
    let folder = Folder::new("calibrate");
    let (model, data) = (folder.put("linear.onnx", &linear()), samples(&folder));
    let ended =
        succeeds(&["calibrate", &model, "--data", &data, "--calibrator", "minmax", "--device", "cpu"]);
    let path = folder.path("linear.calib");
    let shown = format!("calibration  {} (2 tensors, minmax, 20 samples)\n", path.display());
    assert_eq!(ended.stdout, shown);
    assert!(ended.stderr.contains("20 samples are too few to tell"), "{}", ended.stderr);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("planish calibration 1\n# tensor"), "{text}");
    assert!(text.contains("\ncalibrator\tminmax\nsamples\t20\ntensor\tx\t0.1\t2.0\t2.0\n"), "{text}");
    assert!(text.contains("\ntensor\ty\t0.7\t23.5\t23.5\n"), "{text}");
    // Again over the same file, by other words; JSON instead of the line.
    let output = path.display().to_string();
    let ended = succeeds(&[
        "calibrate",
        &model,
        "--calib",
        &data,
        "--calib-samples",
        "10",
        "--calibrator",
        "percentile",
        "--percentile",
        "50",
        "--device",
        "cpu",
        "-o",
        &output,
        "--json",
    ]);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["samples"], 10);
    assert_eq!(report["calibrator"], "percentile 50");
    assert_eq!(report["tensors"][0]["name"], "x");
    assert!(report["tensors"][1]["threshold"].as_f64().unwrap() < 15.0);
}

#[test]
fn tensorrt_caches_go_both_ways() {
    let folder = Folder::new("calibrate-trt");
    let (model, data) = (folder.put("linear.onnx", &linear()), samples(&folder));
    let path = |name: &str| folder.path(name).display().to_string();
    let (ours, cache) = (path("a.calib"), path("a.cache"));
    let arguments =
        ["calibrate", &model, "--data", &data, "--device", "cpu", "-o", &ours, "--tensorrt", &cache];
    let ended = succeeds(&arguments);
    assert!(ended.stdout.ends_with(&format!("tensorrt     {cache}\n")), "{}", ended.stdout);
    let text = fs::read_to_string(&cache).unwrap();
    assert!(text.starts_with("TRT-8600-EntropyCalibration2\nx: "), "{text}");
    assert_eq!(text.lines().count(), 3);
    let (taken, again) = (path("b.calib"), path("b.cache"));
    succeeds(&["calibrate", &model, "--from", &cache, "-o", &taken, "--tensorrt", &again]);
    assert_eq!(fs::read_to_string(&again).unwrap(), text);
    // Bound to the model now: another one refuses it.
    let mut bytes = linear();
    let at = bytes.windows(6).position(|window| window == b"linear").unwrap();
    bytes[at..at + 6].copy_from_slice(b"second");
    let second = folder.put("second.onnx", &bytes);
    let refused = planish(&["calibrate", &second, "--from", &taken, "-o", &path("c.calib")]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(
        refused.stderr.starts_with("error: the calibration is of another model (`linear`, "),
        "{}",
        refused.stderr
    );
    assert!(!folder.path("c.calib").exists());
    let unknown = folder.put("d.cache", b"TRT-8600-EntropyCalibration2\nx: 3f800000\nz: 3f800000\n");
    let ended = succeeds(&["calibrate", &model, "--from", &unknown, "-o", &path("d.calib")]);
    assert!(ended.stderr.contains("1 of 2 tensors are not in the model, as `z`"), "{}", ended.stderr);
}

#[test]
fn what_cannot_be_calibrated_is_refused_in_one_line() {
    let folder = Folder::new("calibrate-bad");
    let (model, data) = (folder.put("linear.onnx", &linear()), samples(&folder));
    let calibrate = |more: &[&str], line: &str| {
        let mut arguments = vec!["calibrate", &model, "--device", "cpu"];
        arguments.extend(more);
        fails(&folder, &arguments, 2, line);
        assert!(!folder.path("linear.calib").exists(), "{more:?}");
    };
    let no_number = folder.put("nan.npy", &npy_f32("(2, 3)", &[1.0, 2.0, 3.0, 4.0, f32::NAN, 6.0]));
    calibrate(
        &["--data", &no_number],
        "`x` has 1 NaN value in sample 2, which have no range; look at that sample and at its preprocessing",
    );
    let wide = folder.put("wide.npy", &npy_f32("(2, 4)", &[1.0; 8]));
    calibrate(
        &["--data", &wide],
        "{}/wide.npy: 2x4 is no number of samples for input `x` of type f32[batch,3]",
    );
    let bytes = folder.put("bytes.npy", &npy("|u1", "(1, 3)", &[1, 2, 3]));
    calibrate(
        &["--data", &bytes],
        "{}/bytes.npy has elements of u8, input `x` is f32[batch,3]; say what 255 becomes: --scale 1, or --scale 255 to \
         keep values as they are",
    );
    calibrate(
        &["--data", &folder.path("gone").display().to_string()],
        "cannot read {}/gone: No such file or directory (os error 2)",
    );
    let words = folder.put("words.txt", b"words");
    calibrate(
        &["--data", &words],
        "{}/words.txt has no samples; images (png, jpg, bmp), .npy, .npz, TIFF (tif) and CSV files are taken, alone or in \
         a folder",
    );
    calibrate(&["--data", &data, "--samples", "0"], "0 samples calibrate nothing; 100 to 500 are usual");
    calibrate(
        &["--data", &data, "--percentile", "99"],
        "--percentile is for --calibrator percentile, auto has none",
    );
    calibrate(
        &["--data", &data, "--calibrator", "percentile", "--percentile", "101"],
        "a percentile lies above 0 and up to 100, 101 does not; 99.99 is usual",
    );
    calibrate(
        &["--data", &data, "-o", &data],
        "cannot write {}/x.npy: it is a file that this command reads; give another name",
    );
    calibrate(
        &["--data", &data, "-o", &words],
        "cannot write {}/words.txt: the file that is there is not a calibration; give another name, or remove it first",
    );
    let cache = folder.put("bad.cache", b"TRT-8600-EntropyCalibration2\nx: 3f8\n");
    calibrate(
        &["--from", &cache],
        "{}/bad.cache: line 2: a scale is eight hexadecimal digits; correct the line or delete it",
    );
    for usage in [
        &["calibrate", &model][..],
        &["calibrate", &model, "--data", &data, "--from", &data],
        &["calibrate", &model, "--data", &data, "--calibrator", "kl"],
        &["calibrate", &model, "--data", &data, "--crop", "0x3"],
        &["calibrate", &model, "--data", &data, "--mean", "a"],
    ] {
        assert_eq!(planish(usage).code, Some(2), "{usage:?}");
    }
}
