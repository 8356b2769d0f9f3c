//! `--precision int8` and `planish quantize`: what they read, write and refuse.

use crate::{Folder, linear, npy_f32, planish, succeeds};

/// Rows of x for `linear`, all of one sign.
fn samples(folder: &Folder) -> String {
    let values: Vec<f32> = (1..=20).flat_map(|n| [0.1 * n as f32; 3]).collect();
    folder.put("x.npy", &npy_f32("(20, 3)", &values))
}

/// The only layer is a last one, which is taken in by name.
const TAKEN_IN: [&str; 4] = ["--layer-precision", "*:int8", "--calibrator", "minmax"];

#[test]
fn plans_and_models_are_quantized_by_a_calibration_or_samples() {
    let folder = Folder::new("quantize");
    let (model, data) = (folder.put("linear.onnx", &linear()), samples(&folder));
    let path = |name: &str| folder.path(name).display().to_string();
    let calib = path("linear.calib");
    succeeds(&[
        "calibrate",
        &model,
        "--data",
        &data,
        "--calibrator",
        "minmax",
        "--device",
        "cpu",
        "-o",
        &calib,
    ]);
    for ranges in [&calib, &data] {
        let plan = path("linear.plan");
        let build =
            ["build", &model, "--device", "cpu", "--precision", "int8", "--calib", ranges, "-o", &plan];
        let ended = succeeds(&[&build[..], &TAKEN_IN].concat());
        let said = "--precision int8: 1 of 1 layers are of integers, 100.0 % of the multiplications";
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
    }
    let ended = succeeds(&[&["quantize", &model, "--calib", &calib][..], &TAKEN_IN].concat());
    let quantized = path("linear_qdq.onnx");
    assert_eq!(ended.stdout, format!("model   {quantized}\n"));
    let shown = succeeds(&["inspect", &quantized]).stdout;
    assert!(shown.contains("QuantizeLinear") && shown.contains("DequantizeLinear"), "{shown}");
    succeeds(&["run", &quantized, "--input", &format!("x={data}"), "--device", "cpu"]);
}

#[test]
fn products_are_quantized_without_data() {
    let folder = Folder::new("quantize-dynamic");
    let (model, data) = (folder.put("linear.onnx", &linear()), samples(&folder));
    let path = |name: &str| folder.path(name).display().to_string();
    let plan = path("linear.plan");
    let said = "--precision int8: 1 of 1 layers are of integers, 100.0 % of the multiplications";
    let int8 = ["--precision", "int8", "--obey-precision", "--dynamic", "-o", &plan];
    let ended = succeeds(&[&["build", &model, "--device", "cpu"][..], &int8].concat());
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    let quantized = path("linear_qdq.onnx");
    for (dynamic, operator) in [("--dynamic", "ReduceMax"), ("--dynamic=tensor", "DynamicQuantizeLinear")] {
        succeeds(&["quantize", &model, dynamic]);
        let shown = succeeds(&["inspect", &quantized]).stdout;
        assert!(shown.contains(operator), "{shown}");
        succeeds(&["run", &quantized, "--input", &format!("x={data}"), "--device", "cpu"]);
    }
    succeeds(&["run", &plan, "--input", &format!("x={data}"), "--device", "cpu"]);
}

/// That a command ends with bad input, and this in its last line.
#[track_caller]
fn refused(arguments: &[&str], part: &str) {
    let ended = planish(arguments);
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(ended.code == Some(2) && last.starts_with("error: ") && last.contains(part), "{}", ended.stderr);
}

#[test]
fn what_cannot_be_quantized_is_refused_in_one_line() {
    let folder = Folder::new("quantize-bad");
    let (model, data) = (folder.put("linear.onnx", &linear()), samples(&folder));
    let output = folder.path("out.onnx").display().to_string();
    let plan = folder.path("out.plan").display().to_string();
    let needs = "--precision int8 needs the ranges of the model's values";
    refused(&["build", &model, "--device", "cpu", "--precision", "int8", "-o", &plan], needs);
    refused(&["quantize", &model, "-o", &output], needs);
    let last = "no layer comes after it: last layers stay wide; --layer-precision 'NAMES:int8'";
    refused(&["quantize", &model, "--calib", &data, "-o", &output], last);
    let unasked = "--calib is for layers of 8 bits and for what leaves the range of fp16; fp32 has the range of fp32 and needs none";
    refused(&["build", &model, "--device", "cpu", "--calib", &data, "-o", &plan], unasked);
    refused(&["quantize", &model, "--calib", &data, "-o", &model], "it is a file that this command reads");
    let small = "--weights int4:32: the model has no matrix product to store so: ";
    refused(&["build", &model, "--device", "cpu", "--weights", "int4", "-o", &plan], small);
    refused(&["quantize", &model, "--weights", "int4", "-o", &output], small);
    let both = "--weights stores weights alone as integers";
    let int8 = ["--precision", "int8", "--weights", "int8", "-o", &plan];
    refused(&[&["build", &model, "--device", "cpu"][..], &int8].concat(), both);
    let asks = "--dynamic is for layers of integers; build with --precision int8";
    refused(&["build", &model, "--device", "cpu", "--dynamic", "-o", &plan], asks);
    for other in [["--precision", "fp16"], ["--weights", "int4"], ["--layer-precision", "*:fp32"]] {
        let build = ["build", &model, "--device", "cpu", "--strongly-typed", "-o", &plan];
        assert_eq!(planish(&[&build[..], &other].concat()).code, Some(2), "{other:?}");
    }
    let group = planish(&["build", &model, "--weights", "int4:12", "-o", &plan]);
    assert!(group.code == Some(2) && group.stderr.contains("a multiple of 8; not 12"), "{}", group.stderr);
    let wrong = planish(&["quantize", &model, "--layer-precision", "*:fp16", "-o", &output]);
    assert!(wrong.stderr.contains("give NAMES:fp32, NAMES:int8 or NAMES:fp8"), "{}", wrong.stderr);
    assert!(!folder.path("out.onnx").exists() && !folder.path("out.plan").exists());
}
