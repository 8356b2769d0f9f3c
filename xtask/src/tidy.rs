//! Tidy: the rules of the tree that a test can guard. Runs with `cargo test -p xtask`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::root;

/// Which crates of the workspace a crate may depend on (test dependencies apart). The arrows of
/// docs/architecture.md.
const ARROWS: &[(&str, &[&str])] = &[
    ("planish-files", &[]),
    ("planish-tensor", &["planish-files"]),
    ("planish-op", &["planish-tensor"]),
    ("planish-reference", &["planish-op", "planish-tensor"]),
    ("planish-onnx", &[]),
    ("planish-ir", &["planish-op", "planish-reference", "planish-tensor"]),
    ("planish-passes", &["planish-ir", "planish-op", "planish-reference", "planish-tensor"]),
    ("planish-import", &["planish-files", "planish-ir", "planish-onnx", "planish-op", "planish-tensor"]),
    ("planish-kernel", &["planish-op", "planish-tensor"]),
    ("planish-cpu", &["planish-kernel", "planish-op", "planish-reference", "planish-tensor"]),
    ("planish-cuda", &["planish-files", "planish-kernel", "planish-op", "planish-tensor"]),
    ("planish-plan", &["planish-files", "planish-kernel", "planish-op", "planish-tensor"]),
    ("planish-runtime", &["planish-kernel", "planish-op", "planish-plan", "planish-tensor"]),
    (
        "planish-compile",
        &[
            "planish-cpu",
            "planish-files",
            "planish-ir",
            "planish-kernel",
            "planish-op",
            "planish-passes",
            "planish-plan",
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
            "planish-op",
            "planish-plan",
            "planish-runtime",
            "planish-tensor",
        ],
    ),
    ("planish-zoo", &["planish-import", "planish-ir", "planish-op", "planish-tensor"]),
    (
        "planish-cli",
        &[
            "planish",
            "planish-cuda",
            "planish-files",
            "planish-plan",
            "planish-import",
            "planish-ir",
            "planish-onnx",
            "planish-op",
            "planish-reference",
            "planish-tensor",
            "planish-zoo",
        ],
    ),
];

/// The crates in which `unsafe` may stand, and single files of others.
const UNSAFE_CRATES: &[&str] = &[
    "planish-tensor",
    "planish-kernel",
    "planish-cpu",
    "planish-cuda",
    "planish-runtime",
    "planish-compile",
    "planish-cli/src/last_words.rs",
];

/// A file beyond this holds more than one idea.
const MAX_LINES: usize = 800;

/// Rust files of the workspace, relative to the root.
fn rust_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for top in ["crates", "xtask", "fuzz"] {
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

/// The workspace crates in the `[dependencies]` section of each manifest under `crates/`.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(root().join("crates")).expect("the folder crates exists").flatten() {
        let manifest =
            fs::read_to_string(entry.path().join("Cargo.toml")).expect("every crate has a manifest");
        let mut in_dependencies = false;
        let mut own = Vec::new();
        for line in manifest.lines() {
            if line.starts_with('[') {
                in_dependencies = line.trim() == "[dependencies]";
            } else if in_dependencies && line.starts_with("planish-") {
                own.push(line.split(['.', ' ', '=']).next().unwrap_or(line).to_string());
            }
        }
        all.insert(entry.file_name().to_string_lossy().into_owned(), own);
    }
    all
}

#[test]
fn crates_depend_along_the_arrows_only() {
    for (name, own) in dependencies() {
        let (_, allowed) = ARROWS.iter().find(|(known, _)| *known == name).unwrap_or_else(|| {
            panic!("crate {name} has no row in ARROWS; add it here and to docs/architecture.md")
        });
        for dependency in own {
            assert!(allowed.contains(&dependency.as_str()), "{name} must not depend on {dependency}");
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
