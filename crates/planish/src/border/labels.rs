//! Names of classes: read from a file or from the model's own, kept in the plan, found again by whoever shows a result.

use std::path::Path;

use crate::{Engine, Error, ErrorKind};

/// Files of names beyond this are something else.
const MAX_BYTES: u64 = 1 << 24;

/// The names of the classes whose numbers an output holds.
/// Given by [`labels_of`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Labelled {
    /// The output with the numbers.
    pub output: String,
    /// By number.
    pub names: Vec<String>,
}

/// A name a line.
pub(super) fn read(path: &str) -> Result<Vec<String>, Error> {
    let path = Path::new(path);
    let file = planish_files::open(path).map_err(|error| Error::io("read", path, &error))?;
    let mut text = String::new();
    let read = std::io::Read::read_to_string(&mut std::io::Read::take(file, MAX_BYTES), &mut text);
    read.map_err(|error| Error::io("read", path, &error))?;
    let names: Vec<String> = text.lines().map(|line| line.trim().replace('\t', " ")).collect();
    if names.iter().all(String::is_empty) {
        let message = format!("{} has no names of classes; give one a line", path.display());
        return Err(Error::new(ErrorKind::BadFile, message));
    }
    Ok(names)
}

/// Names as exporters of YOLO write them into a model's file: `{0: 'person', 1: 'bicycle'}`.
pub(crate) fn of_metadata(text: &str) -> Vec<String> {
    let inner = text.trim().trim_start_matches('{').trim_end_matches('}');
    let mut names = Vec::new();
    let mut rest = inner;
    while let Some((number, tail)) = rest.split_once(':') {
        let tail = tail.trim_start();
        let Some(quote) = tail.chars().next().filter(|c| ['\'', '"'].contains(c)) else { return Vec::new() };
        let Some((name, tail)) = tail[1..].split_once(quote) else { return Vec::new() };
        if number.trim_matches([' ', ',']).parse() != Ok(names.len()) {
            return Vec::new();
        }
        names.push(name.replace(['\t', '\n'], " "));
        rest = tail;
    }
    names
}

/// As a plan's options keep them.
pub(crate) fn label_line(labels: &Labelled) -> String {
    format!("labels={}\t{}", labels.output, labels.names.join("\t"))
}

/// The names of classes that an engine's plan was built with (`--post y:topk=5,labels=FILE`).
///
/// ```
/// # #[cfg(feature = "build")] {
/// use planish::{Builder, Device, Engine, labels_of};
///
/// # let graph = r#"graph "g" { input %x: f32[4] %y: f32[4] = Relu(%x) output %y }"#;
/// let engine = Engine::new(Builder::from_graph(graph.parse()?).tune_level(0).build()?, Device::Auto)?;
/// assert!(labels_of(&engine).is_empty());
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn labels_of(engine: &Engine) -> Vec<Labelled> {
    let lines = engine.record().header.options.lines();
    let labels = lines.filter_map(|line| line.strip_prefix("labels="));
    let of = |line: &str| {
        let mut parts = line.split('\t').map(str::to_string);
        Labelled { output: parts.next().unwrap_or_default(), names: parts.collect() }
    };
    labels.map(of).collect()
}
