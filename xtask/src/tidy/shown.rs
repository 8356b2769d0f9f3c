//! Every public item of the facade is shown in an example, or its documentation says where to look.

use std::fs;

use super::{relative, rust_files};

/// Where documentation may refer to, instead of an example of its own.
const REFERENCES: &[&str] = &["has an example", "has examples", "Given by [`", "gives them"];

/// A public function or type, with the lines of its documentation.
struct Item {
    place: String,
    name: String,
    is_function: bool,
    doc: String,
}

/// What the examples of these files say, and the public items that they declare.
fn read(files: &[(String, String)]) -> (String, Vec<Item>) {
    let (mut examples, mut items) = (String::new(), Vec::new());
    for (file, text) in files {
        let (mut doc, mut in_example) = (String::new(), false);
        for (idx, line) in text.lines().enumerate() {
            let line = line.trim_start();
            if let Some(said) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) {
                doc.push_str(said);
                if said.trim_start().starts_with("```") {
                    in_example = !in_example;
                } else if in_example {
                    examples.push_str(said);
                    examples.push('\n');
                }
                continue;
            }
            if line.starts_with("#[") {
                continue;
            }
            if let Some((is_function, name)) = declared(line) {
                let place = format!("{file}:{}", idx + 1);
                items.push(Item { place, name, is_function, doc: doc.clone() });
            }
            doc.clear();
        }
    }
    (examples, items)
}

/// The public function or type that a line declares.
fn declared(line: &str) -> Option<(bool, String)> {
    let rest = line.strip_prefix("pub ")?.trim_start_matches("const ").trim_start_matches("unsafe ");
    let kinds = [("fn ", true), ("struct ", false), ("enum ", false), ("trait ", false), ("type ", false)];
    let (rest, is_function) =
        kinds.iter().find_map(|&(kind, is_function)| Some((rest.strip_prefix(kind)?, is_function)))?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    Some((is_function, rest[..end].to_string()))
}

/// Whether an example calls the function or names the type.
fn is_shown(item: &Item, examples: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    examples.match_indices(item.name.as_str()).any(|(at, name)| {
        let rest = &examples[at + name.len()..];
        let ends = if item.is_function {
            rest.starts_with('(') || rest.starts_with("::<")
        } else {
            !rest.starts_with(is_part)
        };
        ends && !examples[..at].ends_with(is_part)
    })
}

/// Whether its documentation has an example, or says where one is.
fn refers(item: &Item) -> bool {
    item.doc.contains("```") || REFERENCES.iter().any(|reference| item.doc.contains(reference))
}

fn not_shown(files: &[(String, String)]) -> Vec<String> {
    let (examples, items) = read(files);
    let missing = items.iter().filter(|item| !is_shown(item, &examples) && !refers(item));
    missing.map(|item| format!("{} `{}`", item.place, item.name)).collect()
}

#[test]
fn every_item_of_the_facade_is_shown_in_an_example() {
    let of_facade = |path: &std::path::PathBuf| {
        let name = relative(path);
        name.starts_with("crates/planish/src/") && !name.ends_with("tests.rs")
    };
    let files: Vec<(String, String)> = rust_files()
        .iter()
        .filter(|path| of_facade(path))
        .map(|path| (relative(path), fs::read_to_string(path).expect("a listed file can be read")))
        .collect();
    assert!(files.len() > 20, "{} files are not the facade", files.len());
    let missing = not_shown(&files);
    assert!(missing.is_empty(), "in no example, and nothing says where to look:\n{}", missing.join("\n"));
}

#[test]
fn what_no_example_calls_is_found() {
    let text = "/// ```\n/// shown(1); Named::new();\n/// ```\npub fn shown(x: u8) {}\n\n/// Nothing.\npub fn hidden() {}\n\
                /// Nothing.\npub fn show() {}\npub struct Named;\n/// [`shown`] has an example.\npub enum Referred {}\n";
    let missing = not_shown(&[("a.rs".to_string(), text.to_string())]);
    assert_eq!(missing, ["a.rs:7 `hidden`", "a.rs:9 `show`"]);
}
