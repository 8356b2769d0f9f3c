//! `--io`, `--pre`, `--post` and `--state`: what plans take and give instead of what their models do, and what is refused.

use std::path::Path;

use planish_onnx::{DataType, Dimension, Graph, Node, ValueInfo};

use crate::{Folder, elements_f32, linear, model, npy, npy_f32, planish, succeeds};

fn floats(name: &'static str, dims: &[i64]) -> ValueInfo<'static> {
    ValueInfo::tensor(
        name,
        DataType::Float,
        dims.iter().map(|&size| Dimension::Value(size)).collect::<Vec<_>>(),
    )
}

/// `y`, the mean of each channel of a picture of 4 x 4.
fn mean() -> Vec<u8> {
    model(Graph {
        name: "mean".into(),
        nodes: vec![Node::new("GlobalAveragePool", &["x"], &["y"])],
        inputs: vec![floats("x", &[1, 3, 4, 4])],
        outputs: vec![floats("y", &[1, 3, 1, 1])],
        ..Graph::default()
    })
}

/// `after = before + x`, and `y` is twice that.
fn sum() -> Vec<u8> {
    model(Graph {
        name: "sum".into(),
        nodes: vec![
            Node::new("Add", &["before", "x"], &["after"]),
            Node::new("Add", &["after", "after"], &["y"]),
        ],
        inputs: vec![floats("before", &[2]), floats("x", &[2])],
        outputs: vec![floats("after", &[2]), floats("y", &[2])],
        ..Graph::default()
    })
}

/// A picture of bytes, channels last, all pixels the same.
fn picture(folder: &Folder) -> String {
    folder.put("x.npy", &npy("|u1", "(1, 4, 4, 3)", &[255u8, 0, 51].repeat(16)))
}

fn near(got: &[f32], want: &[f32]) -> bool {
    got.len() == want.len() && got.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-5)
}

/// Bytes with channels last go in, by the reference and by a plan; the plan's file says so.
#[test]
fn bytes_of_pictures_are_taken_and_prepared() {
    let folder = Folder::new("border-picture");
    let (model, x) = (folder.put("mean.onnx", &mean()), picture(&folder));
    let (out, plan) =
        (folder.path("out").display().to_string(), folder.path("mean.plan").display().to_string());
    let given = format!("x={x}");
    let y = || elements_f32(&Path::new(&out).join("y.npy"));
    for backend in [["--backend", "reference"], ["--device", "cpu"]] {
        let run = |more: &[&str]| {
            let first = ["run", &model, "--io", "x:u8:nhwc", "--input", &given, "-o", &out];
            succeeds(&[&first[..], &backend, more].concat());
            y()
        };
        // Converted, not scaled; scales are the steps'.
        assert!(near(&run(&[]), &[255.0, 0.0, 51.0]));
        assert!(near(&run(&["--pre", "x:div=255,mean=0.5,std=0.25"]), &[2.0, -2.0, -1.2]));
        assert!(near(&run(&["--pre", "x:bgr,mul=2,add=1"]), &[103.0, 1.0, 511.0]));
    }
    let border = ["--io", "x:u8:nhwc", "--io", "y:fp16", "--pre", "x:div=255"];
    let build = ["build", &model, "-o", &plan, "--device", "cpu", "--tune-level", "0"];
    succeeds(&[&build[..], &border].concat());
    let said = succeeds(&["inspect", &plan, "--metadata"]).stdout;
    assert!(said.contains("x u8[1,4,4,3]") && said.contains("y f16["), "{said}");
    let said = succeeds(&["run", &plan, "--device", "cpu", "--input", &given]).stdout;
    assert!(said.contains("f16[1,"), "{said}");
}

#[test]
fn classes_are_ranked_and_named() {
    let folder = Folder::new("border-classes");
    let model = folder.put("linear.onnx", &linear());
    let x = folder.put("x.npy", &npy_f32("(1, 3)", &[1.0, 0.0, -1.0]));
    let labels = folder.put("labels.txt", b"cat\ndog\n");
    let out = folder.path("out").display().to_string();
    let (given, post) = (format!("x={x}"), format!("y:softmax,topk=1,labels={labels}"));
    for backend in [["--backend", "reference"], ["--device", "cpu"]] {
        let first = ["run", &model, "--post", &post, "--input", &given, "-o", &out];
        let said = succeeds(&[&first[..], &backend].concat()).stdout;
        // Names are kept by plans.
        if backend[0] == "--device" {
            let line = said.lines().find(|line| line.contains("cat")).unwrap_or_default();
            assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["0", "cat", "0.7311"], "{said}");
        }
        assert!(!said.contains("dog"), "{said}");
        // The better of two classes that are one apart.
        assert!(near(&elements_f32(&folder.path("out/y.npy")), &[1.0 / (1.0 + (-1.0f32).exp())]));
    }
}

/// A run begins with zeros, or with what it is given.
#[test]
fn a_state_is_no_input_that_must_be_given() {
    let folder = Folder::new("border-state");
    let (model, plan) = (folder.put("sum.onnx", &sum()), folder.path("sum.plan").display().to_string());
    succeeds(&[
        "build",
        &model,
        "-o",
        &plan,
        "--device",
        "cpu",
        "--tune-level",
        "0",
        "--state",
        "before=after",
    ]);
    let x = folder.put("x.npy", &npy_f32("(2,)", &[1.0, 2.0]));
    let before = folder.put("before.npy", &npy_f32("(2,)", &[10.0, 20.0]));
    let out = folder.path("out").display().to_string();
    let (x, before) = (format!("x={x}"), format!("before={before}"));
    let ended = succeeds(&["run", &plan, "--device", "cpu", "--input", &x, "-o", &out]);
    assert!(!ended.stderr.contains("random"), "{}", ended.stderr);
    assert_eq!(elements_f32(&folder.path("out/y.npy")), [2.0, 4.0]);
    succeeds(&["run", &plan, "--device", "cpu", "--input", &x, "--input", &before, "-o", &out]);
    assert_eq!(elements_f32(&folder.path("out/y.npy")), [22.0, 44.0]);
}

/// One line that names what is wrong, and code 2, before anything is built.
#[test]
fn borders_that_cannot_be_are_refused() {
    let folder = Folder::new("border-bad");
    let (mean, linear) = (folder.put("mean.onnx", &mean()), folder.put("linear.onnx", &linear()));
    let sum = folder.put("sum.onnx", &sum());
    let plan = folder.path("never.plan").display().to_string();
    let missing = format!("y:argmax,labels={}", folder.path("none.txt").display());
    let mut wrong = Vec::new();
    for (model, flag, value, named) in [
        (&mean, "--io", "z:u8", "z"),
        (&mean, "--io", "x:u9", "u9"),
        (&mean, "--io", "x:ndhwc", "ndhwc"),
        (&mean, "--io", "x", "x"),
        (&mean, "--pre", "x:blur=3", "blur"),
        (&mean, "--pre", "x:resize=0", "resize"),
        (&mean, "--pre", "x:mean=1/2", "2 numbers"),
        (&mean, "--pre", "y:div=255", "y"),
        (&linear, "--pre", "x:crop=2", "pictures are"),
        (&linear, "--post", "y:topk=0", "topk"),
        (&linear, "--post", "y:topk=3", "3"),
        (&linear, "--post", "y:nms=0.45", "nms"),
        (&linear, "--post", "y:sorted", "sorted"),
        (&linear, "--post", missing.as_str(), "none.txt"),
        (&linear, "--state", "x=y", "x"),
        (&sum, "--state", "before=nothing", "nothing"),
        (&sum, "--state", "nothing=after", "nothing"),
        (&sum, "--state", "before", "before"),
        (&sum, "--state", "before=after:3", "before"),
    ] {
        let ended =
            planish(&["build", model, "-o", &plan, "--device", "cpu", "--tune-level", "0", flag, value]);
        let is_one_line = ended.stderr.starts_with("error: ") && ended.stderr.lines().count() == 1;
        let is_refused = ended.code == Some(2) && is_one_line && !Path::new(&plan).exists();
        if !is_refused || !ended.stderr.contains(named) {
            wrong.push(format!("{flag} {value}: {:?} {}", ended.code, ended.stderr));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
    succeeds(&["build", &linear, "-o", &plan, "--device", "cpu", "--tune-level", "0"]);
    let ended = planish(&["run", &plan, "--device", "cpu", "--io", "y:fp16"]);
    let line =
        "error: --io, --pre, --post and --state are for models: a plan has its own; give the .onnx file\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), line));
}
