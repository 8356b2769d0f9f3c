//! `planish trtexec` and the words of exporters: what scripts for TensorRT type, and what they look for.

use std::fs;

use serde_json::Value;

use crate::{Folder, linear, planish, succeeds};

fn json(folder: &Folder, name: &str) -> Value {
    serde_json::from_slice(&fs::read(folder.path(name)).unwrap()).unwrap()
}

#[test]
fn a_script_builds_saves_loads_and_reads_reports() {
    let folder = Folder::new("trtexec");
    let path = |name: &str| folder.path(name).display().to_string();
    let model = folder.put("linear.onnx", &linear());
    let ended = succeeds(&[
        "trtexec",
        &format!("--onnx={model}"),
        "--saveEngine",
        &path("linear.plan"),
        "--minShapes=x:1x3",
        "--optShapes=x:2x3",
        "--maxShapes=x:8x3",
        "--cpuOnly",
        "--builderOptimizationLevel=0",
        "--useCudaGraph",
        "--workspace=64",
        "--skipInference",
    ]);
    let first = ended.stdout.lines().next().unwrap();
    assert!(first.starts_with("&&&& RUNNING TensorRT.trtexec [Planish v"), "{first}");
    let last = ended.stdout.lines().last().unwrap();
    assert!(
        last.starts_with("&&&& PASSED TensorRT.trtexec [Planish v") && last.contains("--saveEngine"),
        "{last}"
    );
    assert_eq!(ended.stderr.matches("--useCudaGraph has no effect here").count(), 1, "{}", ended.stderr);
    let values: Vec<u8> = [1f32, 2., 3., 4., 5., 6.].iter().flat_map(|value| value.to_le_bytes()).collect();
    let input = folder.put("x.bin", &values);
    let ended = succeeds(&[
        "trtexec",
        &format!("--loadEngine={}", path("linear.plan")),
        "--cpuOnly",
        "--shapes=x:2x3",
        &format!("--loadInputs=x:{input}"),
        "--duration=0",
        "--warmUp=0",
        "--iterations=12",
        "--avgRuns=5",
        "--percentile=50,99",
        "--dumpProfile",
        "--dumpLayerInfo",
        "--dumpOutput",
        "--profilingVerbosity=detailed",
        &format!("--exportTimes={}", path("times.json")),
        &format!("--exportProfile={}", path("profile.json")),
        &format!("--exportOutput={}", path("output.json")),
        &format!("--exportLayerInfo={}", path("layers.json")),
    ]);
    for text in [
        "] [I] Throughput: ",
        " qps\n",
        "] [I] Latency: min = ",
        "percentile(99%) = ",
        "Average on 5 runs",
        "=== Profile (",
    ] {
        assert!(ended.stdout.contains(text), "{text} is not in\n{}", ended.stdout);
    }
    let times = json(&folder, "times.json");
    assert!(times.as_array().unwrap().len() >= 12);
    assert!(times[0]["latencyMs"].as_f64().unwrap() > 0.0 && times[1]["startH2dMs"].as_f64().unwrap() > 0.0);
    let profile = json(&folder, "profile.json");
    assert!(profile[0]["count"].as_u64().unwrap() > 0 && profile[1]["medianMs"].is_f64());
    let output = json(&folder, "output.json");
    assert_eq!((&output[0]["name"], &output[0]["dimensions"]), (&Value::from("y"), &Value::from("2x2")));
    // 1·1 + 2·3 + 3·5 + 0.5
    assert_eq!(output[0]["values"][0].as_f64(), Some(22.5));
    let layers = json(&folder, "layers.json");
    assert_eq!(layers["Bindings"], serde_json::json!(["x", "y", "top"]));
    assert!(layers["Layers"][0]["TacticName"].is_string());
    // Outputs that should be others: no.
    let wrong = folder.put("y.bin", &[0u8; 16]);
    let ended = planish(&[
        "trtexec",
        &format!("--loadEngine={}", path("linear.plan")),
        "--cpuOnly",
        "--shapes=x:2x3",
        &format!("--loadInputs=x:{input}"),
        &format!("--loadRefOutputs=y:{wrong}"),
        "--duration=0",
        "--warmUp=0",
    ]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stdout.lines().last().unwrap().starts_with("&&&& FAILED TensorRT.trtexec"));
}

#[test]
fn what_is_wrong_fails_with_one_line() {
    let folder = Folder::new("trtexec-wrong");
    let model = folder.put("linear.onnx", &linear());
    let onnx = format!("--onnx={model}");
    for (arguments, line) in [
        (&["--onnx=nothing.onnx", "--cpuOnly"][..], "cannot read nothing.onnx: "),
        (&["--cpuOnly"], "no model is given; give --onnx=MODEL.onnx or --loadEngine=MODEL.plan"),
        (&[&onnx, "--nonsense"], "--nonsense is no flag of trtexec; `planish trtexec --help` lists them"),
        (&[&onnx, "--shapes=z:1", "--cpuOnly"], "--shapes names `z`, which is not an input of the model"),
        (&["--loadEngine", &model, "--cpuOnly"], "this is no plan; --onnx takes models"),
    ] {
        let ended = planish(&[&["trtexec"], arguments].concat());
        assert_eq!(ended.code, Some(2), "{arguments:?}");
        assert!(
            ended.stdout.lines().last().unwrap().starts_with("&&&& FAILED TensorRT.trtexec"),
            "{}",
            ended.stdout
        );
        let errors: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        assert!(errors.len() == 1 && errors[0].contains(line), "{arguments:?}: {}", ended.stderr);
    }
    assert!(succeeds(&["trtexec", "--help"]).stdout.contains("--builderOptimizationLevel=0..5"));
}

#[test]
fn exporters_spell_shapes_and_batches() {
    let folder = Folder::new("exporter");
    let model = folder.put("linear.onnx", &linear());
    let plan = folder.path("out.plan").display().to_string();
    let usual = ["build", &model, "--device", "cpu", "--tune-level", "0", "--output", &plan];
    let with = |more: &[&str]| succeeds(&[&usual[..], more].concat());
    with(&[
        "--dynamic-shapes",
        "--min-batch",
        "1",
        "--opt-batch",
        "2",
        "--max-batch",
        "4",
        "--workspace-size",
        "1",
    ]);
    let shown = succeeds(&["inspect", &plan]).stdout;
    assert!(shown.contains("batch 1..4 (tuned at 2)"), "{shown}");
    let timed = with(&["--input-shape", "3", "3", "--benchmark", "--benchmark-iterations", "5"]).stdout;
    assert!(timed.contains("at batch 3") && timed.contains("Throughput: "), "{timed}");
    let wrong =
        planish(&[&usual[..], &["--dynamic-shapes", "--min-batch", "8", "--max-batch", "4"]].concat());
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
}
