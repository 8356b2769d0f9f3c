//! The binary from outside: what it prints, what it writes, how it ends.

mod accuracy;
mod bad_input;
mod bench;
mod border;
mod cache;
mod calibrate;
mod commands;
mod compare;
mod declared;
mod drivers;
mod edit;
mod explore;
mod files;
mod hunt;
mod inspect;
mod limits;
mod peaks;
mod plan_life;
mod plugin;
mod polygraphy;
mod progress;
mod quantize;
mod refit;
mod run;
mod scenario;
mod signing;
mod slide;
mod sweep;
mod timing;
mod trtexec;
mod zoo;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use planish_onnx::{
    Attribute, AttributeValue, DataType, Dimension, Graph, Model, Node, OpsetImport, Tensor, ValueInfo,
};

/// A folder of its own for each test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("planish-cli-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file and gives its path as an argument.
    fn put(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs the command. Models run on the reference unless a test says otherwise: its answers are exact.
fn planish(arguments: &[&str]) -> Ended {
    ended(Command::new(env!("CARGO_BIN_EXE_planish")), arguments)
}

/// On a machine without GPUs, or where NVIDIA's driver is told to show none.
fn without_gpus(arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_planish"));
    command.env("CUDA_VISIBLE_DEVICES", "");
    ended(command, arguments)
}

fn ended(mut command: Command, arguments: &[&str]) -> Ended {
    command.args(arguments);
    // The user's cache of plans is left alone.
    if matches!(arguments.first(), Some(&("run" | "bench" | "profile" | "compare" | "explore" | "sweep"))) {
        command.arg("--no-cache");
    }
    let says_where = arguments.contains(&"--backend") || arguments.contains(&"--device");
    if arguments.first() == Some(&"run") && !says_where {
        command.args(["--backend", "reference"]);
    }
    let Output { status, stdout, stderr } = command.output().unwrap();
    Ended {
        code: status.code(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

/// Runs and expects success; gives standard output.
#[track_caller]
fn succeeds(arguments: &[&str]) -> Ended {
    let ended = planish(arguments);
    assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.stderr);
    ended
}

/// Runs and expects this code and exactly this line on standard error, with `{}` for the folder.
#[track_caller]
fn fails(folder: &Folder, arguments: &[&str], code: i32, line: &str) {
    let ended = planish(arguments);
    let line = format!("error: {}\n", line.replace("{}", &folder.0.display().to_string()));
    assert_eq!((ended.code, ended.stderr), (Some(code), line), "{arguments:?}");
}

/// `y = x[batch,3] · w[3,2] + b[2]`, and `top`, the place of the largest of each row.
fn linear() -> Vec<u8> {
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let mut top = Node::new("ArgMax", &["y"], &["top"]);
    top.name = "largest".into();
    top.attributes = vec![
        Attribute::new("axis", AttributeValue::Int(1)),
        Attribute::new("keepdims", AttributeValue::Int(0)),
    ];
    let batch = |rest: &[i64]| {
        let rest = rest.iter().map(|&size| Dimension::Value(size));
        std::iter::once(Dimension::Param("batch".into())).chain(rest).collect::<Vec<_>>()
    };
    let graph = Graph {
        name: "linear".into(),
        nodes: vec![Node::new("MatMul", &["x", "w"], &["xw"]), Node::new("Add", &["xw", "b"], &["y"]), top],
        initializers: vec![
            Tensor::raw("w", DataType::Float, vec![3, 2], floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
            Tensor::raw("b", DataType::Float, vec![2], floats(&[0.5, -0.5])),
        ],
        inputs: vec![ValueInfo::tensor("x", DataType::Float, batch(&[3]))],
        outputs: vec![
            ValueInfo::tensor("y", DataType::Float, batch(&[2])),
            ValueInfo::tensor("top", DataType::Int64, batch(&[])),
        ],
        ..Graph::default()
    };
    model(graph)
}

fn model(graph: Graph<'_>) -> Vec<u8> {
    let opset_imports = vec![OpsetImport { domain: "".into(), version: 21 }];
    planish_onnx::write(&Model {
        ir_version: 10,
        opset_imports,
        producer_name: "test".into(),
        graph,
        ..Model::default()
    })
}

/// A `.npy` file.
fn npy(descr: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(elements);
    bytes
}

fn npy_f32(shape: &str, values: &[f32]) -> Vec<u8> {
    npy("<f4", shape, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
}

/// The elements of a `.npy` file of floats, after its header.
fn elements_f32(path: &Path) -> Vec<f32> {
    let bytes = fs::read(path).unwrap();
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[start..].chunks_exact(4).map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap())).collect()
}

#[test]
fn help_and_version() {
    let help = succeeds(&["--help"]).stdout;
    for word in ["inspect", "run", "demo", "doctor", "Exit codes"] {
        assert!(help.contains(word), "{help}");
    }
    for command in ["inspect", "run", "demo", "doctor"] {
        assert!(succeeds(&[command, "--help"]).stdout.contains("Usage: planish"));
    }
    assert!(succeeds(&["--version"]).stdout.starts_with("planish 0."));
    assert_eq!(planish(&[]).code, Some(2));
    assert_eq!(planish(&["inspect"]).code, Some(2));
    assert_eq!(planish(&["run", "m.onnx", "--backend", "tpu"]).code, Some(2));
    assert_eq!(planish(&["inspect", "m.onnx", "--nonsense"]).code, Some(2));
}

#[test]
fn the_demo_can_be_repeated_by_hand() {
    let folder = Folder::new("demo");
    let target = folder.path("made here").display().to_string();
    let shown = succeeds(&["demo", &target]).stdout;
    for text in [
        "Conv                20",
        "parameters  11,699,116",
        "3.64 GFLOP",
        "times as fast",
        "checks passed",
        "FP32",
        "FP16",
        "INT8",
        "demo.html",
    ] {
        assert!(shown.contains(text), "{text} is not in\n{shown}");
    }
    let file = |name: &str| folder.path("made here").join(name).display().to_string();
    let again = folder.path("again.npz").display().to_string();
    assert!(shown.contains(&format!("--inputs '{}'", file("input.npz"))), "{shown}");
    succeeds(&["run", &file("demo.onnx"), "--inputs", &file("input.npz"), "-o", &again]);
    assert_eq!(fs::read(file("output.npz")).unwrap(), fs::read(again).unwrap());
}

#[test]
fn a_plan_is_built_inspected_run_and_timed() {
    let folder = Folder::new("plan");
    let model = folder.put("linear.onnx", &linear());
    let plan = folder.path("linear.plan").display().to_string();
    succeeds(&["build", &model, "-o", &plan, "--threads", "1"]);
    assert!(succeeds(&["inspect", &plan]).stdout.contains("0 failed"));
    let (exact, fast) = (folder.path("exact.npz"), folder.path("fast.npz"));
    let path = |path: &std::path::Path| path.display().to_string();
    succeeds(&["run", &model, "--random", "3", "--shapes", "x:5x3", "-o", &path(&exact)]);
    succeeds(&["run", &plan, "--backend", "cpu", "--random", "3", "--shapes", "x:5x3", "-o", &path(&fast)]);
    // Three products a sum, all exact to the last bit or one beside it; the places of the largest are equal.
    assert_eq!(fs::read(&exact).unwrap().len(), fs::read(&fast).unwrap().len());
    let timed = succeeds(&["bench", &plan, "--duration", "10ms", "--warmup", "1ms", "--json"]).stdout;
    let timed: serde_json::Value = serde_json::from_str(&timed).unwrap();
    assert!(timed["median_ms"].as_f64().unwrap() > 0.0);
    assert!(succeeds(&["profile", &plan]).stdout.contains("layers"));
}

#[test]
fn a_build_shows_its_stages() {
    let folder = Folder::new("stages");
    let model = folder.put("linear.onnx", &linear());
    let shown = succeeds(&["build", &model, "--device", "cpu", "--stop-after", "lowered"]);
    assert!(shown.stdout.starts_with("lowered: "), "{}", shown.stdout);
    let path = folder.path("chosen.txt").display().to_string();
    for stage in ["priced", "chosen"] {
        let file = folder.path(&format!("{stage}.txt")).display().to_string();
        succeeds(&[
            "build",
            &model,
            "--device",
            "cpu",
            "--tune-level",
            "1",
            "--stop-after",
            stage,
            "-o",
            &file,
        ]);
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with(&format!("{stage}: ")) && text.contains("gemm_"), "{text}");
    }
    // What is there is replaced by another stage, and no plan was written.
    succeeds(&["build", &model, "--device", "cpu", "--stop-after", "lowered", "-o", &path]);
    assert!(!folder.path("linear.plan").exists());
    let refused = planish(&["bench", &model, "--device", "cpu", "--stop-after", "chosen"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("shown by `planish build`"), "{}", refused.stderr);
}

#[test]
fn the_doctor_finds_a_machine() {
    let shown = succeeds(&["doctor"]).stdout;
    for heading in
        ["cpu ", "features ", "threads ", "memory ", "gpus ", "libraries", "libcuda.so.1", "backends "]
    {
        assert!(shown.contains(heading), "{heading} is not in\n{shown}");
    }
    let json: serde_json::Value = serde_json::from_str(&succeeds(&["doctor", "--json"]).stdout).unwrap();
    assert!(json["threads"].as_u64().unwrap() >= 1);
    assert_eq!(json["backends"][0], "cpu");
    // Each library has a version and a path, or the command that installs it.
    for name in ["libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13", "libcudnn.so.9"] {
        let library = &json["libraries"][name];
        let (found, missing) = (library["path"].is_string(), library["install"].is_string());
        assert!(found != missing, "{name}: {library}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_fault() {
    use std::process::Stdio;
    let folder = Folder::new("pipe");
    let model = folder.put("linear.onnx", &linear());
    for arguments in [&["inspect", &model][..], &["inspect", &model, "--graph"], &["--help"], &["doctor"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_planish"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{arguments:?}");
    }
}
