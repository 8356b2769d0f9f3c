//! Plugins from outside: the worked example as a C library, what a plan says of it, and what happens where it is missing,
//! changed, wrong or crashes.

use std::fs;
use std::path::Path;
use std::process::Command;

use planish_onnx::{DataType, Dimension, Graph, Model, Node, OpsetImport, ValueInfo};

use crate::{Folder, elements_f32, planish, succeeds};

/// The text of the worked example.
fn rope() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plugins/rope/rope.c");
    fs::read_to_string(path).unwrap()
}

/// Compiles a plugin against the header of a folder of `planish-capi`.
pub(crate) fn compiled(folder: &Folder, name: &str, text: &str, header: &str) -> String {
    let source = folder.put(&format!("{name}.c"), text.as_bytes());
    let library = folder.path(&format!("lib{name}.so")).display().to_string();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../planish-capi").join(header);
    let compiler = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(include)
        .args([&source, "-o", &library, "-lm"])
        .output()
        .unwrap();
    assert!(compiler.status.success(), "{}", String::from_utf8_lossy(&compiler.stderr));
    library
}

/// `y = Sigmoid(rope(x))` with open sizes, by this operator.
fn model(domain: &str, op: &str) -> Vec<u8> {
    let dims = |names: &[&str]| {
        let dim = |name: &&str| match name.parse() {
            Ok(size) => Dimension::Value(size),
            Err(_) => Dimension::Param(name.to_string().into()),
        };
        names.iter().map(dim).collect::<Vec<_>>()
    };
    let mut turned = Node::new(op, &["x", "cos", "sin"], &["t"]);
    turned.domain = domain.to_string().into();
    let float = |name: &'static str, names: &[&str]| ValueInfo::tensor(name, DataType::Float, dims(names));
    let graph = Graph {
        name: "rope".into(),
        nodes: vec![turned, Node::new("Sigmoid", &["t"], &["y"])],
        inputs: vec![
            float("x", &["b", "4", "s", "32"]),
            float("cos", &["b", "s", "16"]),
            float("sin", &["b", "s", "16"]),
        ],
        outputs: vec![float("y", &["b", "4", "s", "32"])],
        ..Graph::default()
    };
    let mut opset_imports = vec![OpsetImport { domain: "".into(), version: 23 }];
    if !domain.is_empty() {
        opset_imports.push(OpsetImport { domain: domain.to_string().into(), version: 1 });
    }
    planish_onnx::write(&Model { ir_version: 10, opset_imports, graph, ..Model::default() })
}

/// `y = RotaryEmbedding(x, cos, sin)` by itself, its first input with this name.
fn pattern(first: &'static str) -> Vec<u8> {
    let float = |name: &'static str, rank: usize| {
        ValueInfo::tensor(name, DataType::Float, vec![Dimension::Unknown; rank])
    };
    let graph = Graph {
        name: "part".into(),
        nodes: vec![Node::new("RotaryEmbedding", &[first, "cos", "sin"], &["turned"])],
        inputs: vec![float(first, 4), float("cos", 3), float("sin", 3)],
        outputs: vec![float("turned", 4)],
        ..Graph::default()
    };
    let opset_imports = vec![OpsetImport { domain: "".into(), version: 23 }];
    planish_onnx::write(&Model { ir_version: 10, opset_imports, graph, ..Model::default() })
}

#[test]
fn the_example_is_built_checked_and_run_like_the_built_in_operator() {
    let folder = Folder::new("plugin");
    let path = |name: &str| folder.path(name).display().to_string();
    let library = compiled(&folder, "rope", &rope(), "include");
    assert!(succeeds(&["plugin", "list", &library]).stdout.starts_with("example.rope::Rope@1  hash "));
    let checked = succeeds(&["plugin", "check", &library, "--device", "cpu"]).stdout;
    for dtype in ["T = f32", "T = f16"] {
        let line = checked.lines().find(|line| line.contains(dtype)).unwrap();
        assert!(line.contains("passed") && line.contains("default on cpu"), "{checked}");
    }
    let own = folder.put("own.onnx", &model("example.rope", "Rope"));
    let built_in = folder.put("built_in.onnx", &model("", "RotaryEmbedding"));
    // Without it, the error says what to give.
    let ended = planish(&["build", &own, "-o", &path("none.plan"), "--device", "cpu"]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains("example.rope.Rope") && ended.stderr.contains("--plugin FILE"),
        "{}",
        ended.stderr
    );
    let shapes = "x:2x4x9x32,cos:2x9x16,sin:2x9x16";
    let build = |model: &str, plan: &str| {
        succeeds(&["build", model, "-o", plan, "--device", "cpu", "--tune-level", "0", "--plugin", &library]);
    };
    let (plan, other) = (path("own.plan"), path("built_in.plan"));
    build(&own, &plan);
    build(&built_in, &other);
    let certificate = succeeds(&["inspect", &plan, "--certificate"]).stdout;
    assert!(certificate.contains("plugin example.rope::Rope@1 by default on cpu, T = f16"), "{certificate}");
    // One step: what follows is computed by it.
    let layers = succeeds(&["inspect", &plan, "--layers"]).stdout;
    assert!(layers.contains("plugin_") && layers.contains("Rope+Sigmoid"), "{layers}");
    let run = |plan: &str, out: &str, sizes: &str| {
        let out = path(out);
        let arguments = [
            "run", plan, "--device", "cpu", "--random", "3", "--shapes", sizes, "-o", &out, "--plugin",
            &library,
        ];
        succeeds(&arguments);
        elements_f32(&Path::new(&out).join("y.npy"))
    };
    for (idx, sizes) in
        [shapes, "x:1x4x1x32,cos:1x1x16,sin:1x1x16", "x:3x4x70x32,cos:3x70x16,sin:3x70x16"].iter().enumerate()
    {
        let (got, want) = (run(&plan, &format!("a{idx}"), sizes), run(&other, &format!("b{idx}"), sizes));
        assert_eq!(got.len(), want.len());
        // Both round two products and a sum, one of them with multiply-adds.
        assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-6), "{sizes}");
    }
    // A pattern of the model becomes the operator.
    let matched = path("matched.onnx");
    let said = succeeds(&["plugin", "match", &built_in, "-o", &matched, "--plugin", &library]).stdout;
    assert!(said.contains("example.rope::Rope@1 once"), "{said}");
    build(&matched, &path("matched.plan"));
    assert_eq!(run(&path("matched.plan"), "c", shapes), run(&plan, "d", shapes));
    // So does one that is a small model; one with other names is refused.
    let by_model = |pattern: &str| {
        planish(&["plugin", "match", &built_in, "-o", &matched, "--plugin", &library, "--pattern", pattern])
    };
    let ended = by_model(&folder.put("part.onnx", &pattern("x")));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.contains("example.rope::Rope@1 once"), "{}", ended.stdout);
    build(&matched, &path("by_model.plan"));
    assert_eq!(run(&path("by_model.plan"), "e", shapes), run(&plan, "f", shapes));
    let ended = by_model(&folder.put("other.onnx", &pattern("z")));
    let line = "error: the pattern has an input `z`; name its inputs as those of example.rope::Rope@1: x, cos, sin\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), line));
    // The whole model is more than the operator, and is looked for as such.
    let ended = by_model(&own);
    assert!(ended.code == Some(2) && ended.stderr.contains("nothing in "), "{}", ended.stderr);
}

#[test]
fn a_missing_or_changed_plugin_is_one_line_that_says_what_to_do() {
    let folder = Folder::new("plugin-changed");
    let path = |name: &str| folder.path(name).display().to_string();
    let library = compiled(&folder, "rope", &rope(), "include");
    let (own, plan) = (folder.put("own.onnx", &model("example.rope", "Rope")), path("own.plan"));
    let shapes = "x:1x4x3x32,cos:1x3x16,sin:1x3x16";
    succeeds(&[
        "build",
        &own,
        "-o",
        &plan,
        "--device",
        "cpu",
        "--tune-level",
        "0",
        "--shapes",
        shapes,
        "--plugin",
        &library,
    ]);
    let refused = |more: &[&str], words: &[&str]| {
        let ended = planish(
            &[&["run", &plan, "--device", "cpu", "--random", "1", "--shapes", shapes], more].concat(),
        );
        assert_eq!((ended.code, ended.stderr.lines().count()), (Some(3), 1), "{}", ended.stderr);
        assert!(words.iter().all(|word| ended.stderr.contains(word)), "{}", ended.stderr);
    };
    refused(&[], &["needs the plugin example.rope::Rope@1 (hash ", "not loaded", "--plugin FILE"]);
    let changed = compiled(&folder, "changed", &rope().replace("1 << 15", "1 << 14"), "include");
    refused(&["--plugin", &changed], &["another one of this name", "build the plan again"]);
    // The loader's reason is told: of a library that is cut off, or one for another machine.
    let cut = folder.put("cut.so", b"\x7fELF");
    let ended = planish(&["plugin", "list", &cut]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(2), 1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("dlopen failed: ") && ended.stderr.contains("too short"),
        "{}",
        ended.stderr
    );
    let newer = compiled(&folder, "newer", &rope().replace("version: 1", "version: 2"), "include");
    refused(&["--plugin", &newer], &["is version 2", "build the plan again"]);
}

#[test]
fn a_plugin_that_is_wrong_fails_or_crashes_is_caught_at_build() {
    let folder = Folder::new("plugin-faults");
    let path = |name: &str| folder.path(name).display().to_string();
    let own = folder.put("own.onnx", &model("example.rope", "Rope"));
    for (name, from, to, words) in [
        ("sign", "c * a - s * b", "c * a + s * b", "does not compute what its reference does"),
        ("tail", "i < n; i++", "i < n - (n > 16); i++", "does not compute what its reference does"),
        (
            "fails",
            "const state *own = made;\n",
            "const state *own = made;\n  if (own) return call->problem->fail(call->problem, \"no luck\");\n",
            "no luck",
        ),
        (
            "crashes",
            "const state *own = made;\n",
            "const state *own = made;\n  if (own) abort();\n",
            "crashed while it was tried",
        ),
    ] {
        let text = rope().replace(from, to);
        assert_ne!(text, rope());
        let library = compiled(&folder, name, &text, "include");
        let plan = path("never.plan");
        let ended = planish(&[
            "build",
            &own,
            "-o",
            &plan,
            "--device",
            "cpu",
            "--tune-level",
            "0",
            "--plugin",
            &library,
        ]);
        assert_eq!((ended.code, ended.stderr.lines().count()), (Some(2), 1), "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains(words) && ended.stderr.contains(name), "{name}: {}", ended.stderr);
        assert!(!Path::new(&plan).exists());
    }
}

#[test]
fn a_plugin_of_the_first_header_still_works() {
    let folder = Folder::new("plugin-first");
    let library = compiled(&folder, "first", &rope(), "tests/first");
    assert!(succeeds(&["plugin", "check", &library, "--device", "cpu"]).stdout.contains("passed"));
    // What is no plugin says so.
    for (name, text, words) in [
        ("none", "int nothing;\n", "does not export `planish_plugin_get`"),
        ("later", &*rope().replace("PLANISH_PLUGIN_ABI,", "7,"), "version 7 of the plugin interface"),
        (
            "short",
            &*rope().replace(".size = sizeof(planish_plugin)", ".size = 16"),
            "its structure has 16 bytes",
        ),
    ] {
        let library = compiled(&folder, name, text, "include");
        let ended = planish(&["plugin", "list", &library]);
        assert_eq!(ended.code, Some(2));
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
    let text = folder.put("text.so", b"not a library");
    assert!(planish(&["plugin", "list", &text]).stderr.contains("neither a .cu file nor a shared library"));
}

#[test]
fn a_cuda_text_is_listed_and_needs_a_gpu_to_be_tried() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/plugins/rope/rope.cu")
        .display()
        .to_string();
    let listed = succeeds(&["plugin", "list", &path]).stdout;
    assert!(listed.contains("devices: cuda; tactics: single, wide, wider"), "{listed}");
    assert!(
        succeeds(&["plugin", "check", &path, "--device", "cpu"])
            .stdout
            .contains("nothing to run on this device")
    );
}
