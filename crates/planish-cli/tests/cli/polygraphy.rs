//! `planish polygraphy run`: what users of Polygraphy type, and how it ends.

use std::fs;

use crate::{Folder, fails, linear, npy_f32, planish, succeeds};

#[test]
fn backends_are_compared() {
    let folder = Folder::new("polygraphy");
    let path = |name: &str| folder.path(name).display().to_string();
    let model = folder.put("linear.onnx", &linear());
    let usual =
        ["polygraphy", "run", &model, "--trt", "--device", "cpu", "--builder-optimization-level", "0"];
    let with = |more: &[&str]| planish(&[&usual[..], more].concat());
    let (inputs, outputs, plan, tactics) =
        (path("in.npz"), path("out.npz"), path("m.plan"), path("m.tactics"));
    let ended = with(&[
        "--reference",
        "--input-shapes",
        "x:[4,3]",
        "--val-range",
        "[-1,1]",
        "--iterations",
        "2",
        "--validate",
        "--save-inputs",
        &inputs,
        "--save-outputs",
        &outputs,
        "--save-engine",
        &plan,
        "--tactic-replay",
        &tactics,
        "--warm-up",
        "3",
    ]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(ended.stdout.matches("PASSED | Output: 'y'").count(), 2, "{}", ended.stdout);
    assert!(ended.stdout.lines().last().unwrap().starts_with("[I] PASSED | Runtime: "));
    assert_eq!(ended.stderr.matches("--warm-up has no effect here").count(), 1, "{}", ended.stderr);
    assert!(folder.path("in_1.npz").is_file() && folder.path("m.tactics").is_file());
    // The plan on the same inputs gives the same outputs.
    let again = [
        "polygraphy",
        "run",
        &plan,
        "--trt",
        "--device",
        "cpu",
        "--load-inputs",
        &inputs,
        "--load-outputs",
        &outputs,
    ];
    succeeds(&[&again[..], &["--atol", "0", "--rtol", "0"]].concat());
    // Other outputs are not.
    let y = npy_f32("(4, 2)", &[0.0; 8]);
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    zip.start_file("y.npy", zip::write::SimpleFileOptions::default()).unwrap();
    std::io::Write::write_all(&mut zip, &y).unwrap();
    fs::write(folder.path("golden.npz"), zip.finish().unwrap().into_inner()).unwrap();
    let ended = with(&["--load-inputs", &inputs, "--load-outputs", &path("golden.npz"), "--fail-fast"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("FAILED | Output: 'y'") && ended.stdout.contains("[E] FAILED | Runtime: "));
    // Saved tactics are taken again, values between nodes are compared.
    let marked =
        with(&["--reference", "--onnx-outputs", "mark", "all", "--tactic-replay", &path("marked.tactics")]);
    assert_eq!(marked.code, Some(0), "{}{}", marked.stdout, marked.stderr);
    assert!(marked.stdout.contains("PASSED | Output: 'xw'"), "{}", marked.stdout);
}

#[test]
fn what_is_wrong_is_one_line() {
    let folder = Folder::new("polygraphy-wrong");
    let model = folder.put("linear.onnx", &linear());
    for (arguments, line) in [
        (&[][..], "no runner is given; give --trt, --onnxrt or --reference"),
        (&["--trt", "--atol", "much"], "--atol much: give 1e-4 or NAME:1e-4"),
        (&["--trt", "--model-type", "engine"], "{}/linear.onnx is no plan"),
        (&["--reference", "--val-range", "x"], "--val-range x: give [LOW,HIGH] or NAME:[LOW,HIGH]"),
        (&["--reference", "--input-shapes", "x"], "`x` gives no shape; give NAME:[1,3,224,224]"),
        (
            &["--reference", "--save-outputs", "out.json"],
            "out.json: arrays are saved as .npz, which numpy.load opens; give such a name",
        ),
    ] {
        fails(&folder, &[&["polygraphy", "run", &model], arguments].concat(), 2, line);
    }
    // Where there is no ONNX Runtime, that is what is told.
    let ended = planish(&["polygraphy", "run", &model, "--onnxrt", "--python", "no-such-python"]);
    assert_eq!(ended.code, Some(3));
    assert!(ended.stderr.contains("no-such-python does not start"), "{}", ended.stderr);
}

#[test]
fn the_other_tools_are_there_in_polygraphy_s_words() {
    let folder = Folder::new("polygraphy-tools");
    let path = |name: &str| folder.path(name).display().to_string();
    let model = folder.put("linear.onnx", &linear());
    let tool = |words: &[&str]| succeeds(&[&["polygraphy"], words].concat()).stdout;
    // convert, and inspect what comes of it.
    let plan = path("linear.engine");
    let shapes =
        ["--trt-min-shapes", "x:[1,3]", "--trt-opt-shapes", "x:[2,3]", "--trt-max-shapes", "x:[4,3]"];
    let usual = ["convert", &model, "-o", &plan, "--device", "cpu", "--builder-optimization-level", "0"];
    let said = tool(&[&usual[..], &shapes, &["--convert-to", "trt"]].concat());
    assert!(said.contains(&format!("[I] Saving engine to {plan}")), "{said}");
    assert!(tool(&["inspect", "model", &plan, "--show", "layers"]).contains("Gemm"));
    let said = tool(&["inspect", "model", &model, "--mode=full"]);
    assert!(said.contains("MatMul(%x, %w)") || said.contains("MatMul("), "{said}");
    tool(&[
        "run",
        &plan,
        "--trt",
        "--device",
        "cpu",
        "--input-shapes",
        "x:[4,3]",
        "--save-outputs",
        &path("o.npz"),
    ]);
    let said = tool(&["inspect", "data", &path("o.npz"), "-s"]);
    assert!(said.contains("y [dtype=f32, shape=[4, 2]] | min="), "{said}");
    tool(&["inspect", "capability", &model]);
    tool(&["check", "lint", &model]);
    // surgeon
    let part = path("part.onnx");
    tool(&["surgeon", "extract", &model, "--inputs", "xw:[2,2]:float32", "--outputs", "y:auto", "-o", &part]);
    let said = tool(&["run", &part, "--reference", "--save-inputs", &path("i.npz")]);
    assert!(said.contains("PASSED"), "{said}");
    let clean = path("clean.onnx");
    let words = [
        "surgeon",
        "sanitize",
        &model,
        "--fold-constants",
        "--override-input-shapes",
        "x:[5,3]",
        "-o",
        &clean,
    ];
    tool(&words);
    assert!(tool(&["inspect", "model", &clean]).contains("5,3"));
    let more = path("more.onnx");
    tool(&[
        "surgeon",
        "insert",
        &model,
        "--op",
        "Relu",
        "--inputs",
        "xw",
        "--outputs",
        "y",
        "--name",
        "r",
        "-o",
        &more,
    ]);
    let few = "sparsity: no layer of the model can be pruned: `xw`: it adds up few products";
    fails(&folder, &["polygraphy", "surgeon", "prune", &model, "-o", &path("sparse.onnx")], 2, few);
    // debug reduce: a check that fails where there is a MatMul.
    let reduced = path("reduced.onnx");
    let check = ["--check", "sh", "-c", "! grep -q MatMul $0", "polygraphy_debug.onnx"];
    tool(&[&["debug", "reduce", &model, "-o", &reduced, "--mode=bisect"], &check[..]].concat());
    assert!(tool(&["inspect", "model", &reduced]).contains("MatMul"));
    // What is not there is told, and what is no plan.
    fails(
        &folder,
        &["polygraphy", "convert", &model, "-o", &plan, "--convert-to", "onnx"],
        2,
        "--convert-to onnx: models become plans (trt); `planish simplify` and `planish surgeon` write .onnx",
    );
    fails(
        &folder,
        &["polygraphy", "run", &path("no.engine"), "--trt"],
        2,
        "cannot read {}/no.engine: No such file or directory (os error 2)",
    );
    fails(
        &folder,
        &["polygraphy", "inspect", "model", &model, "--show", "colours"],
        2,
        "`colours` is nothing that could be shown; give layers, attrs or weights",
    );
}
