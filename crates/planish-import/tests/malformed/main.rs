//! Model files that are wrong in every way known to us. Each ends in the right kind of error, in one line that
//! says what, where and what to try, soon; nothing panics, and nothing takes memory that the file does not
//! justify.

#[path = "../common/mod.rs"]
mod common;

mod attributes;
mod bodies;
mod bombs;
mod damaged;
mod external;
mod files;
mod inputs;
mod names;
mod sizes;

use std::time::{Duration, Instant};

use common::{Kind, import, kind};
use planish_import::ImportError;

/// A file, the error that it must end in, and a piece of its text.
type Case = (&'static str, Vec<u8>, Kind, &'static str);

/// For one file, in an unoptimized build on a loaded machine.
const TIME_LIMIT: Duration = Duration::from_secs(5);

fn check(cases: Vec<Case>) {
    for (name, bytes, expected, fragment) in cases {
        let start = Instant::now();
        let result = import(bytes);
        assert!(start.elapsed() < TIME_LIMIT, "{name} took {:?}", start.elapsed());
        let error = result.err().unwrap_or_else(|| panic!("{name} was accepted"));
        check_error(name, &error, expected, fragment);
    }
}

fn check_error(name: &str, error: &ImportError, expected: Kind, fragment: &str) {
    let text = error.to_string();
    assert_eq!(kind(error), expected, "{name}: {text}");
    assert!(text.contains(fragment), "{name}: {text:?} lacks {fragment:?}");
    assert!(!text.contains(['\n', '\r', '\u{1b}']), "{name}: {text:?} is more than one plain line");
    assert!(text.contains("; ") && text.chars().count() < 800, "{name}: {text:?} gives no short advice");
}
