//! Models that ask for more than any machine has, and plans that were not checked.

use std::process::Command;
use std::time::{Duration, Instant};

use planish_ir::Graph;

use crate::{Folder, linear, planish, succeeds};

/// For one build, in an unoptimized binary on a loaded machine; a release build takes a tenth of a second.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Address space of such a build, threads and libraries included.
const MEMORY_LIMIT_KB: u64 = 3 << 20;

/// Small files that would take all time or all memory.
fn amplifiers() -> Vec<(&'static str, String)> {
    let endless = |output: &str| {
        format!(
            "graph \"endless\" {{ input %x: f32[256] const %m: i64[] = 4611686018427387904 const %t: bool[] = true
             %last: f32[256], %all: f32[trips,256] = Loop(%m, %t, %x) \"loop\" [ graph \"body\" {{
                 input %i: i64[] input %c: bool[] input %v: f32[256]
                 %c2: bool[] = Identity(%c) %v2: f32[256] = Sin(%v) %each: f32[256] = Identity(%v2)
                 output %c2, %v2, %each }} ]
             output {output} }}"
        )
    };
    let wide = |node: &str| {
        format!(
            "graph \"wide\" {{ input %x: f32[1,1] const %s: i64[2] = [1048576, 1048576]
             {node} %z: f32[1048576,1048576] = Relu(%y) \"r\" output %z }}"
        )
    };
    vec![
        ("endless", endless("%last")),
        ("endless and read", endless("%last, %all")),
        ("expand", wide("%y: f32[1048576,1048576] = Expand(%x, %s) \"e\"")),
        ("tile", wide("%y: f32[1048576,1048576] = Tile(%x, %s) \"t\"")),
        (
            "shape of constants",
            "graph \"g\" { input %x: f32[1] const %s: i64[2] = [1048576, 1048576]
             %y: f32[1048576,1048576] = ConstantOfShape(%s) \"c\"
             %z: f32[1048576,1048576] = Add(%x, %y) \"a\" output %z }"
                .to_string(),
        ),
        (
            "pad",
            "graph \"g\" { input %x: f32[2] const %p: i64[2] = [0, 1099511627774]
             %y: f32[1099511627776] = Pad(%x, %p) \"p\" output %y }"
                .to_string(),
        ),
        (
            "product",
            "graph \"g\" { input %x: f32[1,1] const %s: i64[2] = [20000, 20000]
             %y: f32[20000,20000] = Expand(%x, %s) \"e\"
             %z: f32[20000,20000] = MatMul(%y, %y) \"m\" output %z }"
                .to_string(),
        ),
        (
            "doubling",
            "graph \"g\" { input %x: f32[1] const %m: i64[] = 60 const %t: bool[] = true
             %y: f32[*] = Loop(%m, %t, %x) \"loop\" [ graph \"body\" {
                 input %i: i64[] input %c: bool[] input %v: f32[*]
                 %c2: bool[] = Identity(%c) %v2: f32[*] = Concat(%v, %v) {axis=0}
                 output %c2, %v2 } ]
             output %y }"
                .to_string(),
        ),
    ]
}

/// Each ends soon and within memory, in a plan with a note of what was not checked, or in one line that says why not.
#[test]
fn models_that_ask_for_everything_end_soon() {
    let folder = Folder::new("amplifiers");
    for (name, text) in amplifiers() {
        let graph: Graph = text.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        let model = folder.put("model.onnx", &planish_import::export(&graph).unwrap());
        let plan = folder.path("model.plan").display().to_string();
        let limited = format!("ulimit -v {MEMORY_LIMIT_KB}; exec \"$@\"");
        let binary = env!("CARGO_BIN_EXE_planish");
        let start = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", &limited, "sh", binary, "build", &model, "-o", &plan]);
        let ended = command.args(["--device", "cpu", "--tune-level", "1"]).output().unwrap();
        let (took, said) = (start.elapsed(), String::from_utf8(ended.stderr).unwrap());
        assert!(took < TIME_LIMIT, "{name} took {took:?}: {said}");
        match ended.status.code() {
            Some(0) => assert!(said.contains("were not checked, wires and memory were:"), "{name}: {said}"),
            Some(2 | 3) => assert_eq!(said.matches("error: ").count(), 1, "{name}: {said}"),
            other => panic!("{name} ended with {other:?}: {said}"),
        }
    }
}

/// Two to the power of 60 elements are no mistake of ours.
#[test]
fn sizes_beyond_any_memory_are_refused() {
    let folder = Folder::new("beyond");
    let doubled = |at: usize| {
        let (before, size) = (if at == 0 { "%x".to_string() } else { format!("%v{}", at - 1) }, 4i64 << at);
        format!("%v{at}: f32[1,{},2] = Concat({before}, {before}) {{axis=1}}\n", 2 * size)
    };
    let nodes: String = (0..57).map(doubled).collect();
    let graph: Graph =
        format!("graph \"g\" {{ input %x: f32[1,4,2]\n{nodes} output %v56 }}").parse().unwrap();
    let model = folder.put("model.onnx", &planish_import::export(&graph).unwrap());
    let plan = folder.path("model.plan").display().to_string();
    let ended = planish(&["build", &model, "-o", &plan, "--device", "cpu", "--tune-level", "0"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    // The model has no open sizes, so there are no smaller --shapes to give.
    assert!(ended.stderr.contains("], more than any memory\n"), "{}", ended.stderr);
}

#[test]
fn a_run_ends_at_its_limits() {
    let folder = Folder::new("run-limits");
    let graph: Graph = amplifiers()[1].1.parse().unwrap();
    let model = folder.put("model.onnx", &planish_import::export(&graph).unwrap());
    let plan = folder.path("model.plan").display().to_string();
    succeeds(&["build", &model, "-o", &plan, "--device", "cpu", "--tune-level", "0"]);
    for (limit, said) in [
        (["--max-trips", "500"], "its loops make more than 500 trips"),
        (["--max-memory", "1M"], "it needs more than 1048576 bytes"),
    ] {
        for subject in [vec![plan.as_str(), "--device", "cpu"], vec![&model, "--backend", "reference"]] {
            let arguments = [vec!["run"], subject, limit.to_vec()].concat();
            let ended = planish(&arguments);
            assert_eq!(ended.code, Some(2), "{}", ended.stderr);
            let line = ended.stderr.lines().last().unwrap_or_default();
            assert!(line.starts_with("error: ") && line.contains(said), "{line}");
        }
    }
}

#[test]
fn a_plan_that_was_not_checked_is_said_to_be_none() {
    let folder = Folder::new("unchecked");
    let model = folder.put("linear.onnx", &linear());
    let plan = folder.path("linear.plan").display().to_string();
    let building = ["--device", "cpu", "--tune-level", "0"];
    let build = |more: &[&str]| {
        succeeds(&[&["build", &model, "-o", &plan][..], &building, more].concat());
    };
    let commands: [&[&str]; 3] = [
        &["run", &plan, "--device", "cpu"],
        &["bench", &plan, "--iterations", "1", "--warmup", "0ms"],
        &["inspect", &plan],
    ];
    build(&["--no-verify"]);
    for command in commands {
        let said = succeeds(command).stderr;
        assert!(said.contains("note: this plan was not checked"), "{command:?}: {said}");
    }
    build(&[]);
    for command in commands {
        let said = succeeds(command).stderr;
        assert!(!said.contains("not checked"), "{command:?}: {said}");
    }
}

#[test]
fn a_benchmark_tells_the_build_from_the_opening() {
    let folder = Folder::new("bench-json");
    let model = folder.put("linear.onnx", &linear());
    let plan = folder.path("linear.plan").display().to_string();
    succeeds(&["build", &model, "-o", &plan, "--device", "cpu", "--tune-level", "0"]);
    let report = |subject: &str| -> serde_json::Value {
        let arguments =
            ["bench", subject, "--device", "cpu", "--tune-level", "0", "--iterations", "2", "--json"];
        serde_json::from_str(&succeeds(&arguments).stdout).unwrap()
    };
    let (opened, built) = (report(&plan), report(&model));
    assert_eq!(opened["build_ms"], serde_json::Value::Null);
    assert!(built["build_ms"].as_f64().unwrap() > 0.0);
    assert!(opened["open_ms"].as_f64().unwrap() > 0.0 && built["open_ms"].as_f64().unwrap() > 0.0);
    let length = std::fs::metadata(&plan).unwrap().len();
    assert_eq!((opened["plan_bytes"].as_u64(), built["plan_bytes"].as_u64()), (Some(length), Some(length)));
}
