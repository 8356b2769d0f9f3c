//! `planish debug accuracy`, `--pins`, `--precision auto` and 16 bits on a CPU: what they print, write and refuse.

use crate::{Folder, linear, npy_f32, planish, succeeds};

/// Rows of x for `linear`.
fn samples(folder: &Folder) -> String {
    let values: Vec<f32> =
        (1..=20).flat_map(|n| [0.1 * n as f32, -0.05 * n as f32, 0.02 * n as f32]).collect();
    folder.put("x.npy", &npy_f32("(20, 3)", &values))
}

/// The only layer is a last one, which is taken in by name.
const TAKEN_IN: [&str; 6] = ["--layer-precision", "*:int8", "--calibrator", "minmax", "--device", "cpu"];

#[test]
fn a_plan_in_int8_is_held_against_its_model() {
    let folder = Folder::new("accuracy");
    let (model, data) = (folder.put("linear.onnx", &linear()), samples(&folder));
    let path = |name: &str| folder.path(name).display().to_string();
    let (plan, pins) = (path("linear.plan"), path("linear.pins"));
    let build = ["build", &model, "--precision", "int8", "--calib", &data, "-o", &plan];
    succeeds(&[&build[..], &TAKEN_IN].concat());
    let ended = planish(&["debug", "accuracy", &plan, "--data", &data]);
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(ended.code == Some(2) && last.contains("--against"), "{}", ended.stderr);
    let ended = succeeds(&["debug", "accuracy", &plan, "--against", &model, "--data", &data]);
    assert!(
        ended.stdout.contains("own error") && ended.stdout.contains("no layer stands out"),
        "{}",
        ended.stdout
    );
    assert!(!folder.path("linear.pins").exists());
    // Pins of a file keep layers in fp32, as those on the command line do.
    folder.put("linear.pins", b"planish pins 1\n# all of it\n*:fp32\n");
    let pinned =
        planish(&["build", &model, "--precision", "int8", "--calib", &data, "--pins", &pins, "-o", &plan]);
    assert!(pinned.stderr.contains("--layer-precision keeps it in fp32"), "{}", pinned.stderr);
    let wrong = planish(&["build", &model, "--pins", &data, "-o", &plan]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("--pins"), "{}", wrong.stderr);
}

#[test]
fn a_contract_is_kept_or_nothing_is_written() {
    let folder = Folder::new("contract");
    let (model, data) = (folder.put("linear.onnx", &linear()), samples(&folder));
    let path = |name: &str| folder.path(name).display().to_string();
    let (plan, csv, svg) = (path("auto.plan"), path("auto.csv"), path("auto.svg"));
    let build = ["build", &model, "--precision", "auto", "--calib", &data, "--tune-level", "0", "-o", &plan];
    let asked = |more: &[&str]| planish(&[&build[..], &TAKEN_IN, more].concat());

    let ended = asked(&["--max-error", "0.5", "--pareto", &csv, "--plot", &svg]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("contract rel<=0.5, on 10 samples held out"), "{}", ended.stdout);
    assert!(std::fs::read_to_string(&csv).unwrap().starts_with("candidate,"));
    assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg "));
    std::fs::remove_file(&plan).unwrap();

    let ended = asked(&["--max-error", "0.5", "--max-latency", "0.000001ms"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("nothing keeps to it") && ended.stdout.contains("closest"),
        "{}",
        ended.stdout
    );
    assert!(!folder.path("auto.plan").exists());

    let refused = |more: &[&str], part: &str| {
        let ended = asked(more);
        assert!(ended.code == Some(2) && ended.stderr.contains(part), "{}", ended.stderr);
    };
    refused(&[], "--precision auto needs a contract");
    refused(&["--max-error", "tiny"], "is not a contract");
    let labels = folder.put("labels.txt", b"0\n1\n");
    refused(&["--metric", "top1", "--labels", &labels], "2 labels are given for 20 samples");
    let ended = planish(&["build", &model, "--max-error", "0.1", "-o", &plan]);
    assert!(ended.stderr.contains("are for --precision auto"), "{}", ended.stderr);
}

#[test]
fn sixteen_bits_on_a_cpu_say_what_they_compute_in() {
    let folder = Folder::new("sixteen");
    let model = folder.put("linear.onnx", &linear());
    let plan = folder.path("linear.plan").display().to_string();
    for precision in ["fp16", "bf16"] {
        let arguments = ["build", &model, "-o", &plan, "--device", "cpu", "--tune-level", "0", "--precision"];
        let said = succeeds(&[&arguments[..], &[precision]].concat()).stderr;
        let computes = said.contains(&format!("note: --precision {precision}: cpu computes in fp32; "))
            || precision == "bf16"
                && said.contains(": cpu multiplies in bf16 where that is faster, all else is fp32; ");
        assert!(computes, "{said}");
        let stored = format!("weights are rounded to {precision} and stored in half the bytes");
        assert!(said.contains(&stored), "{said}");
        succeeds(&["run", &plan, "--device", "cpu"]);
    }
}
