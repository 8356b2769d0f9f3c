//! `planish run`: inputs from everywhere, outputs to files.

use std::fs;

use planish_onnx::{Attribute, AttributeValue, DataType, Dimension, Graph, Node, ValueInfo};

use crate::{Folder, elements_f32, fails, linear, model, npy_f32, succeeds};

const X: [f32; 3] = [1.0, 0.0, -1.0];
/// `X` times the weights, plus the bias.
const Y: [f32; 2] = [-3.5, -4.5];

#[test]
fn an_array_in_and_a_folder_out() {
    let folder = Folder::new("run");
    let model = folder.put("linear.onnx", &linear());
    let x = folder.put("x.npy", &npy_f32("(1, 3)", &X));
    let out = folder.path("out").display().to_string();
    let ended = succeeds(&["run", &model, "--input", &format!("x={x}"), "-o", &out]);
    assert_eq!(ended.stderr, "");
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines[0], "  output  type       min   max  mean");
    assert_eq!(lines[1], "  y       f32[1,2]  -4.5  -3.5    -4");
    assert_eq!(lines[2], "  top     i64[1]       0     0     0");
    assert!(lines[3].starts_with("time    ") && lines[3].ends_with(" on the reference"), "{}", lines[3]);
    assert_eq!(lines[4], format!("saved   2 file(s) in {out}"));
    assert_eq!(elements_f32(&folder.path("out/y.npy")), Y);
    let mut names: Vec<_> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["top.npy", "y.npy"]);
}

#[test]
fn archives_random_numbers_and_sizes() {
    let folder = Folder::new("random");
    let model = folder.put("linear.onnx", &linear());
    let archive = |name: &str| folder.path(name).display().to_string();
    let ended = succeeds(&["run", &model, "-o", &archive("a.npz")]);
    assert_eq!(
        ended.stderr,
        "note: random numbers for `x`, as with --random 0\nnote: sizes chosen, as with --shapes x:1x3\n"
    );
    let arguments = ["run", &model, "--random", "0", "--shapes", "x:1x3", "-o", &archive("b.npz")];
    assert_eq!(succeeds(&arguments).stderr, "note: random numbers for `x`, as with --random 0\n");
    succeeds(&["run", &model, "--random", "1", "-o", &archive("c.npz")]);
    let bytes = |name: &str| fs::read(folder.path(name)).unwrap();
    assert_eq!(bytes("a.npz"), bytes("b.npz"));
    assert_ne!(bytes("a.npz"), bytes("c.npz"));
    let shown = succeeds(&["run", &model, "--shapes", "x:7x3"]).stdout;
    assert!(shown.contains("f32[7,2]"), "{shown}");
    // Nothing but the three archives and the model: temporary names are gone.
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 4);
}

/// Rows of a table by numbers of a run, by nodes that have no names.
#[test]
fn steps_without_a_name_are_told_by_what_they_make() {
    let folder = Folder::new("run-nameless");
    let floats: Vec<u8> = (0..40).flat_map(|value| (value as f32).to_le_bytes()).collect();
    let graph = Graph {
        name: "rows".into(),
        nodes: vec![Node::new("Gather", &["table", "ids"], &["rows"]), Node::new("Relu", &["rows"], &["y"])],
        initializers: vec![planish_onnx::Tensor::raw("table", DataType::Float, vec![10, 4], floats)],
        inputs: vec![ValueInfo::tensor("ids", DataType::Int64, vec![Dimension::Value(3)])],
        outputs: vec![ValueInfo::tensor(
            "y",
            DataType::Float,
            vec![Dimension::Value(3), Dimension::Value(4)],
        )],
        ..Graph::default()
    };
    let model = folder.put("rows.onnx", &model(graph));
    let ids: Vec<u8> = [1i64, 50, 2].iter().flat_map(|id| id.to_le_bytes()).collect();
    let ids = folder.put("ids.npy", &crate::npy("<i8", "(3,)", &ids));
    let ended = crate::planish(&["run", &model, "--input", &format!("ids={ids}"), "--backend", "cpu"]);
    let line = "error: step `Gather making rows`: index 50 is outside an axis of size 10";
    assert_eq!((ended.code, ended.stderr.lines().last()), (Some(2), Some(line)), "{}", ended.stderr);
}

#[test]
fn json() {
    let folder = Folder::new("run-json");
    let model = folder.put("linear.onnx", &linear());
    let x = folder.put("x.npy", &npy_f32("(1, 3)", &X));
    let ended = succeeds(&["run", &model, "--input", &format!("x={x}"), "--json"]);
    let json: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(json["outputs"][0]["min"], -4.5);
    assert_eq!(json["outputs"][1]["dtype"], "i64");
    assert_eq!(json["inputs"][0]["shape"], serde_json::json!([1, 3]));
}

#[test]
fn images_are_resized_and_scaled() {
    let folder = Folder::new("image");
    let dims = |list: &[i64]| list.iter().map(|&size| Dimension::Value(size)).collect::<Vec<_>>();
    let graph = Graph {
        name: "mean".into(),
        nodes: vec![Node::new("GlobalAveragePool", &["picture"], &["y"])],
        inputs: vec![ValueInfo::tensor("picture", DataType::Float, dims(&[1, 3, 4, 4]))],
        outputs: vec![ValueInfo::tensor("y", DataType::Float, dims(&[1, 3, 1, 1]))],
        ..Graph::default()
    };
    let path = folder.put("mean.onnx", &model(graph));
    let picture = folder.path("red.png");
    image::RgbImage::from_pixel(8, 2, image::Rgb([255, 0, 51])).save(&picture).unwrap();
    let picture = picture.display().to_string();
    let out = folder.path("out").display().to_string();
    let ended = succeeds(&["run", &path, "--input", &format!("picture={picture}"), "-o", &out]);
    assert_eq!(
        ended.stderr,
        format!(
            "note: picture: {picture} 8x2 resized to 4x4 (bilinear), RGB, channels first, scaled to 0..1, \
             no mean or deviation taken out\n"
        )
    );
    assert_eq!(elements_f32(&folder.path("out/y.npy")), [1.0, 0.0, 0.2]);
}

#[test]
fn one_name_for_two_sizes_is_noted_and_run() {
    let folder = Folder::new("conflict");
    let open = || vec![Dimension::Param("n".into())];
    let mut join = Node::new("Concat", &["a", "b"], &["y"]);
    join.attributes = vec![Attribute::new("axis", AttributeValue::Int(0))];
    let graph = Graph {
        name: "join".into(),
        nodes: vec![join],
        inputs: ["a", "b"].map(|name| ValueInfo::tensor(name, DataType::Float, open())).to_vec(),
        outputs: vec![ValueInfo::tensor("y", DataType::Float, vec![Dimension::Unknown])],
        ..Graph::default()
    };
    let path = folder.put("join.onnx", &model(graph));
    let ended = succeeds(&["run", &path, "--shapes", "a:2,b:3"]);
    let notes = "note: `n` stands for several sizes: each input gets its own\n\
                 note: random numbers for `a`, `b`, as with --random 0\n";
    assert_eq!(ended.stderr, notes);
    assert!(ended.stdout.contains("f32[5]"), "{}", ended.stdout);
}

#[test]
fn more_threads_than_plans_take_are_refused() {
    let folder = Folder::new("threads");
    let linear = folder.put("linear.onnx", &linear());
    let says = "invalid value '4097' for '--threads <N>': at most 4096 threads can be; try --help";
    for command in ["run", "bench", "build"] {
        fails(&folder, &[command, &linear, "--threads", "4097"], 2, says);
    }
}

#[test]
fn an_archive_without_arrays_is_no_input() {
    let folder = Folder::new("no_arrays");
    let linear = folder.put("linear.onnx", &linear());
    planish::io::npy::save_archive(&folder.path("none.npz"), &[]).unwrap();
    let none = folder.path("none.npz").display().to_string();
    let says = format!("{none} has no arrays; numpy.savez({none:?}, NAME=array) puts some in");
    fails(&folder, &["run", &linear, "--inputs", &none], 2, &says);
}
