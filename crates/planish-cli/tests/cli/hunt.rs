//! `planish debug reduce`, `tactics` and `replay`, `run --capture` and `--dump-tensors`, the checklist of plans, `-v`,
//! completions and manual pages.

use std::fs;

use planish_onnx::{DataType, Dimension, Graph, Model, Node, OpsetImport, ValueInfo};
use serde_json::Value;

use crate::plugin::compiled;
use crate::{Folder, fails, linear, model, planish, succeeds};

/// A chain of nodes, one of them an Erf.
fn chain(n: usize, erf_at: usize) -> Vec<u8> {
    let names: Vec<String> = (0..=n).map(|idx| format!("v{idx}")).collect();
    let node = |idx: usize| {
        let op = if idx == erf_at { "Erf" } else { ["Relu", "Neg", "Sigmoid", "Tanh"][idx % 4] };
        Node::new(op, &[names[idx].as_str()], &[names[idx + 1].as_str()])
    };
    let dims = || vec![Dimension::Param("n".into()), Dimension::Value(4)];
    let graph = Graph {
        name: "chain".into(),
        nodes: (0..n).map(node).collect(),
        inputs: vec![ValueInfo::tensor("v0", DataType::Float, dims())],
        outputs: vec![ValueInfo::tensor(names[n].as_str(), DataType::Float, dims())],
        ..Graph::default()
    };
    model(graph)
}

#[test]
fn a_failing_model_is_reduced_to_the_node_that_fails() {
    let folder = Folder::new("reduce");
    let path = |name: &str| folder.path(name).display().to_string();
    let (long, part) = (folder.put("long.onnx", &chain(60, 41)), path("part.onnx"));
    // The name of an operator stands in the file as it is.
    let check = "! grep -q Erf {}";
    let ended = succeeds(&["debug", "reduce", &long, "--check", check, "-o", &part, "--json"]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&report["nodes"], &report["operators"]), (&Value::from(1), &serde_json::json!(["Erf"])));
    assert!(report["checks"].as_u64().unwrap() < 30, "{report}");
    succeeds(&["run", &part]);
    fails(
        &folder,
        &["debug", "reduce", &long, "--check", "true", "-o", &part],
        2,
        "the command does not fail on the whole model: there is nothing to find",
    );
    assert_eq!(planish(&["debug", "reduce", &long]).code, Some(2));
    // A bound on the checks leaves the smallest part so far.
    let ended = succeeds(&["debug", "reduce", &long, "--check", check, "-o", &part, "--max-checks", "5"]);
    assert!(ended.stderr.contains("--max-checks allows more"), "{}", ended.stderr);
}

#[test]
fn the_tactic_that_fails_is_named() {
    let folder = Folder::new("tactics");
    let path = |name: &str| folder.path(name).display().to_string();
    let (linear, plan, good) =
        (folder.put("linear.onnx", &linear()), path("linear.plan"), path("good.tactics"));
    let usual = ["--device", "cpu", "--threads", "1", "--tune-level", "0"];
    succeeds(&[&["build", &linear, "-o", &plan], &usual[..]].concat());
    let report: Value = serde_json::from_str(&succeeds(&["inspect", &plan, "--json"]).stdout).unwrap();
    let product = report["steps"].as_array().unwrap().iter().find(|step| step["ops"] == "Gemm");
    let kernel = product.unwrap()["kernel"].as_str().unwrap().to_string();
    let check = format!("! {} inspect {{}} --text | grep -q {kernel}", env!("CARGO_BIN_EXE_planish"));
    let arguments = ["debug", "tactics", &linear, "--check", &check, "-o", &good, "--json"];
    let ended = succeeds(&[&arguments, &usual[..]].concat());
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let guilty = report["guilty"].as_array().unwrap();
    assert_eq!((guilty.len(), guilty[0]["tactic"].as_str()), (1, Some(kernel.as_str())), "{report}");
    // So small a product has no other kernel.
    assert_eq!(guilty[0]["instead"], serde_json::json!(["the slow reference"]));
    assert!(report["tactics"].is_null() && !folder.path("good.tactics").exists());
    let never = planish(&[&["debug", "tactics", &linear, "--check", "true"], &usual[..]].concat());
    assert_eq!(never.code, Some(2), "{}", never.stderr);
    let always = planish(
        &[&["debug", "tactics", &linear, "--check", "false", "-o", &path("x.tactics")], &usual[..]].concat(),
    );
    assert_eq!(always.code, Some(1), "{}", always.stderr);
    assert!(always.stderr.contains("no tactic can be named"), "{}", always.stderr);
}

/// A kernel that is wrong, always or now and then, as a library.
fn planted(folder: &Folder, is_flaky: bool) -> String {
    let text = include_str!("../data/planted.c");
    compiled(folder, "planted", &format!("#define FLAKY {}\n{text}", u8::from(is_flaky)), "include")
}

/// A chain of nodes that hand on what they read but for signs, with the planted kernel at one place.
fn planted_chain(n: usize, planted_at: usize) -> Vec<u8> {
    let names: Vec<String> = (0..=n).map(|idx| format!("v{idx}")).collect();
    let node = |idx: usize| {
        let op = if idx == planted_at { "Softmax" } else { ["Neg", "Abs"][idx % 2] };
        let mut node = Node::new(op, &[names[idx].as_str()], &[names[idx + 1].as_str()]);
        if idx == planted_at {
            node.domain = "planted".into();
        }
        node
    };
    let dims = || vec![Dimension::Value(3), Dimension::Value(25)];
    let graph = Graph {
        name: "chain".into(),
        nodes: (0..n).map(node).collect(),
        inputs: vec![ValueInfo::tensor("v0", DataType::Float, dims())],
        outputs: vec![ValueInfo::tensor(names[n].as_str(), DataType::Float, dims())],
        ..Graph::default()
    };
    let import = |domain: &'static str, version| OpsetImport { domain: domain.into(), version };
    let opset_imports = vec![import("", 21), import("planted", 1)];
    planish_onnx::write(&Model { ir_version: 10, opset_imports, graph, ..Model::default() })
}

#[test]
fn a_model_is_reduced_to_the_kernel_that_is_wrong() {
    let folder = Folder::new("reduce-planted");
    let path = |name: &str| folder.path(name).display().to_string();
    let (library, long) = (planted(&folder, false), folder.put("long.onnx", &planted_chain(60, 41)));
    let (plan, part) = (path("part.plan"), path("part.onnx"));
    let binary = env!("CARGO_BIN_EXE_planish");
    // A part that cannot be built ends with 2, one whose results are others with 1.
    let check = format!(
        "{binary} build {{}} -o {plan} --device cpu --tune-level 0 --no-verify --plugin {library} && {binary} compare \
         {{}}@reference {plan} --samples 1 --max-error 'rel<=1e-3' --plugin {library}"
    );
    let arguments =
        ["debug", "reduce", &long, "--check", &check, "-o", &part, "--plugin", &library, "--json"];
    let report: Value = serde_json::from_str(&succeeds(&arguments).stdout).unwrap();
    assert_eq!((&report["exit_code"], &report["nodes"]), (&Value::from(1), &Value::from(1)), "{report}");
    assert_eq!(report["operators"], serde_json::json!(["Softmax"]));
}

#[test]
fn a_tactic_that_is_wrong_now_and_then_is_named() {
    let folder = Folder::new("tactics-planted");
    let path = |name: &str| folder.path(name).display().to_string();
    let (library, chain) = (planted(&folder, true), folder.put("chain.onnx", &planted_chain(5, 2)));
    let good = path("good.tactics");
    let check = format!(
        "{} compare {chain}@reference {{}} --samples 1 --max-error 'rel<=1e-3' --plugin {library}",
        env!("CARGO_BIN_EXE_planish")
    );
    // Half of the runs fail: 16 that pass by chance are one of 65,536.
    let asked = ["debug", "tactics", &chain, "--check", &check, "--tries", "16", "-o", &good, "--json"];
    let usual = ["--device", "cpu", "--threads", "1", "--tune-level", "0", "--plugin", &library];
    let report: Value = serde_json::from_str(&succeeds(&[&asked[..], &usual].concat()).stdout).unwrap();
    let guilty = report["guilty"].as_array().unwrap();
    let ends_with = |name: &Value, end: &str| name.as_str().unwrap().ends_with(end);
    assert!(guilty.len() == 1 && ends_with(&guilty[0]["tactic"], "_quick"), "{report}");
    assert!(
        ends_with(&guilty[0]["instead"][0], "_steady") && folder.path("good.tactics").is_file(),
        "{report}"
    );
}

#[test]
fn a_run_is_captured_and_replayed() {
    let folder = Folder::new("capture");
    let path = |name: &str| folder.path(name).display().to_string();
    let (linear, file) = (folder.put("linear.onnx", &linear()), path("run.capture"));
    succeeds(&["run", &linear, "--random", "5", "--shapes", "x:4x3", "--capture", &file]);
    let shown = succeeds(&["debug", "replay", &file]).stdout;
    assert!(shown.contains("reproduced: the same outputs to the last bit"), "{shown}");
    // A run that fails, fails again in the same way; without the model's file.
    let bad = folder.put("bad.npz", b"PK nothing");
    let ended = planish(&["run", &linear, "--inputs", &bad, "--capture", &file, "--without-weights"]);
    assert_eq!(ended.code, Some(2));
    fs::remove_file(&linear).unwrap();
    let shown = succeeds(&["debug", "replay", &file]).stdout;
    assert!(shown.contains("reproduced: the same error"), "{shown}");
    let unpacked = path("unpacked");
    succeeds(&["debug", "replay", &file, "--unpack", &unpacked]);
    assert!(folder.path("unpacked").join("model.onnx").is_file());
    let wrong = folder.put("wrong.npz", &fs::read(&bad).unwrap());
    assert_eq!(planish(&["debug", "replay", &wrong]).code, Some(2));
}

#[test]
fn what_is_done_at_the_border_is_captured() {
    let folder = Folder::new("capture_border");
    let path = |name: &str| folder.path(name).display().to_string();
    let (linear, file) = (folder.put("linear.onnx", &linear()), path("run.capture"));
    let labels = folder.put("labels.txt", b"cat\ndog\n");
    let post = format!("y:softmax,topk=1,labels={labels}");
    let border = ["--io", "x:fp16", "--post", &post, "--shapes", "x:4x3", "--random", "5"];
    succeeds(&[&["run", &linear, "--capture", &file][..], &border].concat());
    fs::remove_file(&labels).unwrap();
    let shown = succeeds(&["debug", "replay", &file]).stdout;
    assert!(shown.contains("reproduced: the same outputs to the last bit"), "{shown}");
}

#[test]
fn a_capture_from_elsewhere_does_nothing_but_run() {
    let folder = Folder::new("capture_forged");
    let path = |name: &str| folder.path(name).display().to_string();
    let (linear, file, taken) = (linear(), path("run.capture"), path("taken.npz"));
    let forge = |arguments: Value| {
        let about = serde_json::json!({ "arguments": arguments, "weights": null, "ended": null });
        let array = |bytes: &[u8]| planish::Tensor::vector(bytes.to_vec());
        let arrays = [
            ("capture.json".to_string(), array(about.to_string().as_bytes())),
            ("model.onnx".to_string(), array(&linear)),
        ];
        planish::io::npy::save_archive(&folder.path("run.capture"), &arrays).unwrap();
    };
    let refused = |arguments: Value, why: &str| {
        forge(arguments);
        fails(&folder, &["debug", "replay", &file], 2, why);
        assert!(!folder.path("taken.npz").exists());
    };
    let written = serde_json::json!(["@model.onnx", "-o", &taken]);
    refused(written, "a captured run has no argument `-o`");
    let report = format!("--json={taken}");
    refused(
        serde_json::json!(["@model.onnx", &report]),
        &format!("a captured run has no argument `{report}`"),
    );
    let hidden = serde_json::json!(["@model.onnx", "--random", "1", "--capture", &taken]);
    refused(hidden, "a captured run has no argument `--capture`");
    for outside in ["@../secret.npz", "/etc/hostname", "@/etc/hostname"] {
        let name = outside.trim_start_matches('@');
        let why = format!("the capture names a file that it does not hold: `{name}`");
        refused(serde_json::json!(["@model.onnx", "--inputs", outside]), &why);
        refused(serde_json::json!([outside]), &why);
    }
    refused(serde_json::json!(["@model.onnx", "--random"]), "the captured --random has no value");
    refused(serde_json::json!([3]), "an argument of the capture is no text");
    refused(serde_json::json!([]), "the capture names no model");
}

#[test]
fn values_between_nodes_are_dumped() {
    let folder = Folder::new("dump");
    let linear = folder.put("linear.onnx", &linear());
    for backend in ["reference", "cpu"] {
        let ended = succeeds(&["run", &linear, "--backend", backend, "--dump-tensors", "x*", "--json"]);
        let report: Value = serde_json::from_str(&ended.stdout).unwrap();
        let names: Vec<&str> = report["outputs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|output| output["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["y", "top", "xw"]);
    }
    fails(
        &folder,
        &["run", &linear, "--dump-tensors", "nothing*"],
        2,
        "--dump-tensors nothing*: no value of the model has such a name; `planish inspect --graph` lists them",
    );
}

#[test]
fn a_plan_goes_through_the_checklist() {
    let folder = Folder::new("checklist");
    let path = |name: &str| folder.path(name).display().to_string();
    let (linear, plan) = (folder.put("linear.onnx", &linear()), path("linear.plan"));
    succeeds(&[
        "build",
        &linear,
        "-o",
        &plan,
        "--device",
        "cpu",
        "--tune-level",
        "1",
        "--max-shapes",
        "x:8x3",
    ]);
    let usual = ["check", &plan, "--duration", "20ms", "--min-utilisation", "0"];
    let generous = ["--max-latency", "10s", "--max-memory", "1G", "--shapes", "x:8x3"];
    let ended = planish(&[&usual[..], &generous, &["--json"]].concat());
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let verdicts: Vec<&str> =
        report["points"].as_array().unwrap().iter().map(|point| point["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts.len(), 12);
    // Under load a busy machine may lose anything; all others are as they are.
    let others: Vec<&str> =
        verdicts.iter().enumerate().filter(|(idx, _)| *idx != 5).map(|(_, verdict)| *verdict).collect();
    assert_eq!(others, ["pass"; 11], "{report}");
    let strict = planish(
        &[&usual[..], &["--max-latency", "1ms", "--max-memory", "100", "--shapes", "x:9x3"]].concat(),
    );
    assert_eq!(strict.code, Some(1), "{}", strict.stdout);
    for text in [" 3  FAIL  profiles match shapes", "10  FAIL  memory within bound", "certificate "] {
        assert!(strict.stdout.contains(text), "{text} is not in\n{}", strict.stdout);
    }
}

#[test]
fn builds_tell_what_they_decide() {
    let folder = Folder::new("verbose");
    let linear = folder.put("linear.onnx", &linear());
    let plan = folder.path("linear.plan").display().to_string();
    let build = ["build", &linear, "-o", &plan, "--device", "cpu", "--tune-level", "0"];
    assert!(!succeeds(&build).stderr.contains("[V]"));
    let told = succeeds(&[&build[..], &["-v"]].concat()).stderr;
    assert!(told.contains("[V] layer 0 ") && told.contains("f32 on cpu) by gemm_"), "{told}");
    let more = succeeds(&[&build[..], &["-vv"]].concat()).stderr;
    assert!(more.contains("by the cost model") && more.lines().count() > told.lines().count(), "{more}");
}

#[test]
fn shells_and_manuals_know_the_commands() {
    let folder = Folder::new("words");
    for shell in ["bash", "zsh", "fish"] {
        assert!(succeeds(&["completions", shell]).stdout.contains("trtexec"), "{shell}");
    }
    assert_eq!(planish(&["completions", "cmd"]).code, Some(2));
    let pages = folder.path("man").display().to_string();
    succeeds(&["man", &pages]);
    let page = fs::read_to_string(folder.path("man").join("planish-build.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("tune"), "{page}");
    let file = folder.put("file", b"");
    assert_eq!(planish(&["man", &file]).code, Some(2));
}
