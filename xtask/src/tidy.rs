//! Tidy: the rules of the tree that a test can guard. Runs with `cargo test -p xtask`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::root;

mod shown;

/// Which crates of the workspace a crate depends on (test dependencies apart). The arrows of docs/architecture.md.
const ARROWS: &[(&str, &[&str])] = &[
    ("planish-files", &[]),
    ("planish-tensor", &["planish-files"]),
    ("planish-op", &["planish-tensor"]),
    ("planish-reference", &["planish-op", "planish-tensor"]),
    ("planish-onnx", &[]),
    ("planish-ir", &["planish-op", "planish-reference", "planish-tensor"]),
    (
        "planish-passes",
        &[
            "planish-ir",
            "planish-op",
            "planish-plugin",
            "planish-quantize",
            "planish-reference",
            "planish-tensor",
        ],
    ),
    ("planish-import", &["planish-files", "planish-ir", "planish-onnx", "planish-op", "planish-tensor"]),
    ("planish-quantize", &["planish-files", "planish-ir", "planish-op", "planish-tensor"]),
    ("planish-kernel", &["planish-op", "planish-tensor"]),
    (
        "planish-plugin",
        &["planish-files", "planish-kernel", "planish-op", "planish-reference", "planish-tensor"],
    ),
    ("planish-testing", &["planish-kernel", "planish-op", "planish-reference", "planish-tensor"]),
    (
        "planish-cpu",
        &["planish-kernel", "planish-op", "planish-plugin", "planish-reference", "planish-tensor"],
    ),
    ("planish-gpu", &["planish-kernel", "planish-op", "planish-tensor"]),
    (
        "planish-cuda",
        &["planish-files", "planish-gpu", "planish-kernel", "planish-op", "planish-plugin", "planish-tensor"],
    ),
    ("planish-plan", &["planish-files", "planish-kernel", "planish-op", "planish-tensor"]),
    ("planish-runtime", &["planish-files", "planish-kernel", "planish-op", "planish-plan", "planish-tensor"]),
    (
        "planish-compile",
        &[
            "planish-files",
            "planish-ir",
            "planish-kernel",
            "planish-op",
            "planish-passes",
            "planish-plan",
            "planish-plugin",
            "planish-reference",
            "planish-runtime",
            "planish-tensor",
        ],
    ),
    (
        "planish",
        &[
            "planish-compile",
            "planish-cpu",
            "planish-cuda",
            "planish-files",
            "planish-import",
            "planish-ir",
            "planish-kernel",
            "planish-onnx",
            "planish-op",
            "planish-plan",
            "planish-plugin",
            "planish-quantize",
            "planish-runtime",
            "planish-tensor",
        ],
    ),
    ("planish-zoo", &["planish-import", "planish-ir", "planish-op", "planish-tensor"]),
    // The zoo is for developers, not for users of the library.
    ("planish-cli", &["planish", "planish-zoo"]),
    ("planish-python", &["planish", "planish-cli"]),
    ("planish-capi", &["planish"]),
];

/// The crates in which `unsafe` may stand, and single files of others.
const UNSAFE_CRATES: &[&str] = &[
    "planish-tensor",
    "planish-kernel",
    "planish-plugin",
    "planish-cpu",
    "planish-cuda",
    "planish-runtime",
    "planish-compile",
    "planish-testing",
    "planish-python",
    "planish-capi",
    "planish-cli/src/last_words.rs",
];

/// A file beyond this holds more than one idea.
const MAX_LINES: usize = 800;

/// Rust files of the workspace, relative to the root.
fn rust_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for top in ["crates", "examples", "xtask", "fuzz"] {
        collect(&root().join(top), &mut files);
    }
    assert!(files.len() > 20, "tidy found only {} Rust files", files.len());
    files
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// A crate that another one depends on.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Dependency {
    name: String,
    /// Whether a feature brings it.
    is_optional: bool,
}

/// The workspace crates that each crate under `crates/` depends on, as cargo reads the manifests: for any target, to be
/// built with or linked; test dependencies apart.
fn dependencies() -> BTreeMap<String, Vec<Dependency>> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let output = Command::new(cargo).args(arguments).current_dir(root()).output().expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo describes the workspace");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let mut all = BTreeMap::new();
    for package in metadata["packages"].as_array().expect("there are packages") {
        let name = text(&package["name"]);
        let is_ours = |name: &str| name == "planish" || name.starts_with("planish-");
        if !is_ours(&name) {
            continue;
        }
        let listed = package["dependencies"].as_array().map_or(&[][..], Vec::as_slice);
        let linked = listed.iter().filter(|dependency| dependency["kind"] != "dev");
        let mut own: Vec<Dependency> = linked
            .map(|dependency| Dependency {
                name: text(&dependency["name"]),
                is_optional: dependency["optional"] == true,
            })
            .filter(|dependency| is_ours(&dependency.name))
            .collect();
        own.sort_by(|a, b| a.name.cmp(&b.name));
        all.insert(name, own);
    }
    assert!(all.len() > 10, "tidy found only {} crates", all.len());
    all
}

#[test]
fn crates_depend_along_the_arrows_only() {
    for (name, own) in dependencies() {
        let (_, arrows) = ARROWS.iter().find(|(known, _)| *known == name).unwrap_or_else(|| {
            panic!("crate {name} has no row in ARROWS; add it here and to docs/architecture.md")
        });
        let own: Vec<&str> = own.iter().map(|dependency| dependency.name.as_str()).collect();
        for dependency in &own {
            assert!(arrows.contains(dependency), "{name} must not depend on {dependency}");
        }
        for arrow in *arrows {
            assert!(own.contains(arrow), "{name} does not depend on {arrow}, so no arrow should say so");
        }
    }
}

/// What a process that only runs plans links: no parser of models and no compiler. The facade without its feature `build`
/// is such a process.
#[test]
fn running_plans_links_no_compiler() {
    const COMPILER: [&str; 6] = [
        "planish-compile",
        "planish-import",
        "planish-ir",
        "planish-onnx",
        "planish-passes",
        "planish-quantize",
    ];
    let all = dependencies();
    for root in ["planish", "planish-runtime", "planish-cpu", "planish-cuda"] {
        let mut open = vec![root.to_string()];
        let mut met = Vec::new();
        while let Some(name) = open.pop() {
            assert!(!COMPILER.contains(&name.as_str()), "{root} links {name} to run plans");
            if !met.contains(&name) {
                let needed = all[&name].iter().filter(|dependency| !dependency.is_optional);
                open.extend(needed.map(|dependency| dependency.name.clone()));
                met.push(name);
            }
        }
    }
}

#[test]
fn every_crate_shares_the_lints() {
    for name in dependencies().keys().map(|name| format!("crates/{name}")).chain(["xtask".to_string()]) {
        let manifest =
            fs::read_to_string(root().join(&name).join("Cargo.toml")).expect("the manifest exists");
        assert!(manifest.contains("[lints]\nworkspace = true"), "{name} does not take the workspace's lints");
    }
}

#[test]
fn files_open_with_their_idea_and_stay_short() {
    for path in rust_files() {
        let text = fs::read_to_string(&path).expect("a listed file can be read");
        assert!(text.starts_with("//! "), "{} does not open with `//!`", relative(&path));
        let n_lines = text.lines().count();
        assert!(
            n_lines <= MAX_LINES,
            "{} has {n_lines} lines, at most {MAX_LINES} fit one idea",
            relative(&path)
        );
    }
}

#[test]
fn unsafe_code_stays_in_its_crates() {
    for path in rust_files() {
        let name = relative(&path);
        let is_in = |allowed: &&str| {
            let rest = name.strip_prefix("crates/").and_then(|name| name.strip_prefix(*allowed));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if UNSAFE_CRATES.iter().any(is_in) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a listed file can be read");
        for (idx, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or(line);
            let has_unsafe = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe trait", "allow(unsafe"]
                .iter()
                .any(|form| code.contains(form) && !code.contains('"'));
            assert!(!has_unsafe, "{name}:{}: `unsafe` outside its crates", idx + 1);
        }
    }
}

#[test]
fn no_stubs_and_no_skipped_tests() {
    let banned = ["todo", "unimplemented"].map(|name| format!("{name}!("));
    let ignored = format!("#[{}", "ignore");
    // What cannot run here is ignored by libtest-mimic at run time: printing so and returning counts as passed.
    let said_only = format!("println!(\"{}", "skipped");
    for path in rust_files() {
        let text = fs::read_to_string(&path).expect("a listed file can be read");
        for (idx, line) in text.lines().enumerate() {
            let found = banned.iter().find(|word| line.contains(*word));
            let place = format!("{}:{}", relative(&path), idx + 1);
            assert!(found.is_none() && !line.contains(&ignored), "{place}: stub or skipped test: {line}");
            let only_says = relative(&path).contains("/tests/") && line.contains(&said_only);
            assert!(!only_says, "{place}: a test that did not run counts as passed: {line}");
        }
    }
}

#[test]
fn architecture_page_names_every_crate() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).expect("docs/architecture.md exists");
    for name in dependencies().keys() {
        assert!(page.contains(&format!("`{name}`")), "docs/architecture.md does not mention {name}");
    }
}
