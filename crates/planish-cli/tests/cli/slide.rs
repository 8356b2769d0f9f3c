//! `planish slide`: images and volumes in, blended results out, and what is refused.

use std::path::Path;

use planish::io::{npy, stack};
use planish::{DType, Tensor};
use planish_onnx::{DataType, Dimension, Graph, Node, ValueInfo};

use crate::{Folder, fails, model, planish, succeeds};

/// `y = x · x` over these sizes, words being open ones; with several inputs and outputs `z = w + w` beside it.
fn squares(sizes: &str, with_second: bool) -> Vec<u8> {
    let dims: Vec<Dimension> = sizes
        .split(',')
        .map(|size| size.parse().map_or_else(|_| Dimension::Param(size.to_string().into()), Dimension::Value))
        .collect();
    let port = |name: &'static str| ValueInfo::tensor(name, DataType::Float, dims.clone());
    let mut graph = Graph {
        name: "squares".into(),
        nodes: vec![Node::new("Mul", &["x", "x"], &["y"])],
        inputs: vec![port("x")],
        outputs: vec![port("y")],
        ..Graph::default()
    };
    if with_second {
        graph.nodes.push(Node::new("Add", &["w", "w"], &["z"]));
        graph.inputs.push(port("w"));
        graph.outputs.push(port("z"));
    }
    model(graph)
}

fn slide(arguments: &[&str]) -> Vec<String> {
    let fixed = ["slide", "--device", "cpu", "--tune-level", "0", "--no-cache"];
    fixed.iter().chain(arguments).map(ToString::to_string).collect()
}

#[track_caller]
fn slides(arguments: &[&str]) -> crate::Ended {
    succeeds(&slide(arguments).iter().map(String::as_str).collect::<Vec<_>>())
}

#[track_caller]
fn refused(folder: &Folder, arguments: &[&str], line: &str) {
    fails(folder, &slide(arguments).iter().map(String::as_str).collect::<Vec<_>>(), 2, line);
}

fn assert_squares(path: &Path, image: &Tensor, scale: f64) {
    let result = npy::read(path, &npy::accept_all).unwrap();
    assert_eq!((result.dtype(), result.len()), (DType::F32, image.len()));
    for (y, x) in result.to_f64s().iter().zip(image.to_f64s()) {
        let wanted = (x * scale).powi(2);
        assert!((y - wanted).abs() <= 1e-5 * wanted.max(1.0), "{y} for {wanted}");
    }
}

#[test]
fn arrays_and_stacks_of_two_and_three_axes() {
    let folder = Folder::new("slide");
    let path = |name: &str| folder.path(name).display().to_string();
    let (flat, deep) = (
        folder.put("flat.onnx", &squares("n,1,h,w", false)),
        folder.put("deep.onnx", &squares("n,1,d,h,w", false)),
    );
    let image = Tensor::new(&[1, 20, 30], (0..600).map(|idx| idx as f32 * 0.01).collect()).unwrap();
    npy::save(&folder.path("x.npy"), &image).unwrap();
    let (x, y) = (path("x.npy"), path("y.npy"));
    let windows = ["--roi", "8x8", "--overlap", "0.5", "--mode", "gaussian", "--batch", "4"];
    let ended = slides(&[&[flat.as_str(), &x, "-o", &y][..], &windows].concat());
    assert!(ended.stdout.contains("output  y: f32 of 1x20x30\n"), "{}", ended.stdout);
    assert!(ended.stdout.contains(", 28 windows, ") && ended.stdout.ends_with(&format!("saved   {y}\n")));
    assert_squares(&folder.path("y.npy"), &image, 1.0);
    // Bytes of a stack become 0 to 1, or what --scale says; its pages are the depth.
    let volume = Tensor::new(&[6, 5, 7], (0..210).map(|idx| idx as u8).collect()).unwrap();
    stack::save(&folder.path("v.tif"), &volume).unwrap();
    let (v, out) = (path("v.tif"), path("v.npy"));
    let ended = slides(&[&deep, &v, "-o", &out, "--roi", "4x4x4"]);
    assert!(ended.stderr.contains("pixels from 0 to 255 become 0 to 1;"), "{}", ended.stderr);
    assert_squares(&folder.path("v.npy"), &volume, 1.0 / 255.0);
    // As pages again, by a plan, with JSON.
    let (plan, out) = (path("deep.plan"), path("out.tif"));
    succeeds(&[
        "build",
        &deep,
        "-o",
        &plan,
        "--device",
        "cpu",
        "--tune-level",
        "0",
        "--shapes",
        "x:2x1x4x4x4",
    ]);
    let ended = slides(&[&plan, &v, "-o", &out, "--scale", "255", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        (&report["windows"], &report["outputs"][0]["shape"]),
        (&8.into(), &serde_json::json!([1, 6, 5, 7]))
    );
    let pages = stack::read(&folder.path("out.tif")).unwrap();
    assert_eq!((pages.shape(), pages.to_f64s()[209]), (&[6, 1, 5, 7][..], 209.0 * 209.0));
}

#[test]
fn several_inputs_come_from_an_archive_and_labels_are_bytes() {
    let folder = Folder::new("slide-several");
    let path = |name: &str| folder.path(name).display().to_string();
    let model = folder.put("two.onnx", &squares("2,3,4,4", true));
    let image = |factor: f32| {
        Tensor::new(&[3, 9, 6], (0..162).map(|idx| (idx % 7) as f32 * factor).collect()).unwrap()
    };
    let archive = [("w".to_string(), image(-1.0)), ("x".to_string(), image(1.0))];
    npy::save_archive(&folder.path("in.npz"), &archive).unwrap();
    let (input, out) = (path("in.npz"), path("out.npz"));
    slides(&[&model, &input, "-o", &out]);
    let results = npy::read_archive(&folder.path("out.npz"), &npy::accept_all).unwrap();
    let shape = |at: usize| (results[at].0.as_str(), results[at].1.shape());
    assert_eq!((shape(0), shape(1)), (("y", &[3, 9, 6][..]), ("z", &[3, 9, 6][..])));
    slides(&[&model, &input, "-o", &out, "--argmax"]);
    let labels = npy::read_archive(&folder.path("out.npz"), &npy::accept_all).unwrap().remove(0).1;
    assert_eq!((labels.dtype(), labels.shape()), (DType::U8, &[9, 6][..]));
    let values = image(1.0).to_f64s();
    let best = |at: usize| {
        (0..3).fold(0, |best, c| if values[c * 54 + at] > values[best * 54 + at] { c } else { best })
    };
    assert_eq!(labels.to_i64s(), (0..54).map(|at| best(at) as i64).collect::<Vec<_>>());
    refused(
        &folder,
        &[&model, &input, "-o", &path("out.npy")],
        "the model has 2 outputs (y, z); give -o OUT.npz, which takes all",
    );
}

#[test]
fn what_cannot_be_is_one_line() {
    let folder = Folder::new("slide-refused");
    let path = |name: &str| folder.path(name).display().to_string();
    let model = folder.put("flat.onnx", &squares("n,1,h,w", false));
    let fixed = folder.put("fixed.onnx", &squares("1,1,8,8", false));
    npy::save(&folder.path("x.npy"), &Tensor::zeros(DType::F32, &[10, 10]).unwrap()).unwrap();
    let (x, y) = (path("x.npy"), path("y.npy"));
    refused(
        &folder,
        &[&model, &x, "-o", &path("y.jpg")],
        "cannot write {}/y.jpg: give a name that ends in .npy, .tif or .npz",
    );
    refused(
        &folder,
        &[&model, &x, "-o", &x],
        "cannot write {}/x.npy: it is a file that this command reads; give another name",
    );
    refused(
        &folder,
        &[&model, &x, "-o", &y],
        "the model leaves the sizes of windows open; give --roi, as in --roi 256x256",
    );
    refused(
        &folder,
        &[&model, &path("no.npy"), "-o", &y, "--roi", "4"],
        "cannot read {}/no.npy: No such file or directory (os error 2)",
    );
    let text = folder.put("x.txt", b"words");
    refused(
        &folder,
        &[&model, &text, "-o", &y, "--roi", "4"],
        "{}/x.txt is no image; give .npy, .tif, .png, .jpg or .bmp",
    );
    let ended = planish(&["slide", &fixed, &x, "-o", &y, "--roi", "4by4"]);
    assert_eq!(ended.code, Some(2));
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("4by4") && ended.stderr.contains("--roi"), "{}", ended.stderr);
    let ended = planish(
        &slide(&[&fixed, &x, "-o", &y, "--overlap", "1"]).iter().map(String::as_str).collect::<Vec<_>>(),
    );
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.ends_with("error: an overlap of 1 is none; give 0 up to less than 1\n"),
        "{}",
        ended.stderr
    );
    assert!(!folder.path("y.npy").exists());
}
