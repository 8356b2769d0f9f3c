//! `planish.h` declares what the sources export, name by name and argument by argument, and the first header's programs still
//! mean the same by it. `cargo xtask capi header` writes it by cbindgen.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of arguments between the first parenthesis and the one that closes it.
fn arguments(text: &str, name_of: impl Fn(&str) -> String) -> Vec<String> {
    let inside = text.split_once('(').expect("a function has arguments").1;
    let inside = inside.split_once(')').expect("its arguments end").0;
    let parts = inside.split(',').map(str::trim).filter(|part| !part.is_empty() && *part != "void");
    parts.map(name_of).collect()
}

/// The functions of a header, with the names of their arguments.
fn declared(header: &str) -> BTreeMap<String, Vec<String>> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut all = BTreeMap::new();
    // What stands between comments.
    let code: String = header.split("*/").map(|part| part.split("/*").next().unwrap_or_default()).collect();
    for code in code.split(';') {
        let Some(at) = code.find("planish_").filter(|_| !code.contains("typedef")) else { continue };
        let name: String = code[at..].chars().take_while(|&c| is_name(c)).collect();
        let last_word = |part: &str| part.rsplit(|c| !is_name(c)).next().unwrap_or_default().to_string();
        all.insert(name, arguments(&code[at..], last_word));
    }
    all
}

/// The functions that the sources export, likewise.
fn exported() -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in fs::read_dir(folder).expect("the sources are there").flatten() {
        let text = fs::read_to_string(entry.path()).expect("a source can be read");
        for part in text.split("extern \"C\" fn planish_").skip(1) {
            let name = part.split('(').next().unwrap_or_default();
            let first_word = |part: &str| part.split(':').next().unwrap_or_default().trim().to_string();
            all.insert(format!("planish_{name}"), arguments(part, first_word));
        }
    }
    all
}

#[test]
fn the_header_declares_what_the_sources_export() {
    let (declared, exported) = (declared(&read("include/planish.h")), exported());
    assert!(exported.len() > 40, "only {} functions were found", exported.len());
    for (name, arguments) in &exported {
        let known = declared.get(name);
        assert_eq!(known, Some(arguments), "{name}: run `cargo xtask capi header`, and read the difference");
    }
    for name in declared.keys() {
        assert!(exported.contains_key(name), "{name} is declared, and nowhere defined");
    }
}

#[test]
fn what_the_first_header_declares_stays_as_it_is() {
    let (first, now) = (declared(&read("tests/first/planish.h")), declared(&read("include/planish.h")));
    for (name, arguments) in &first {
        assert_eq!(now.get(name), Some(arguments), "{name} was there in the first header");
    }
    // Fields keep their places: new ones come last.
    let fields = |header: &str| -> BTreeMap<String, Vec<String>> {
        let structure = |part: &str| {
            let (name, body) = part.split_once(" {")?;
            let body = body.split_once("\n}")?.0;
            let lines =
                body.lines().map(str::trim).filter(|line| line.ends_with(';') && !line.starts_with('*'));
            Some((name.to_string(), lines.map(str::to_string).collect()))
        };
        header.split("typedef struct ").skip(1).filter_map(structure).collect()
    };
    let (first, now) = (fields(&read("tests/first/planish.h")), fields(&read("include/planish.h")));
    assert!(first.len() >= 6, "{first:?}");
    for (name, lines) in first {
        let now = now.get(&name).unwrap_or_else(|| panic!("{name} is gone"));
        assert!(now.starts_with(&lines), "{name} was {lines:?}, is {now:?}");
        assert_eq!(lines[0], "size_t size;", "{name} begins with its size");
    }
}
