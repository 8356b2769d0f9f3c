//! Every command at once: each is known here, each refuses what is no model in one line, and each has tests of its own.

use std::path::Path;

use crate::{Folder, planish, succeeds};

/// Commands with input that is none: `BAD` is a file of nonsense, `OUT` a name that is free.
const REFUSED: &[&[&str]] = &[
    &["build", "BAD", "-o", "OUT.plan"],
    &["run", "BAD", "--random", "1"],
    &["bench", "BAD"],
    &["compare", "BAD", "BAD"],
    &["profile", "BAD"],
    &["inspect", "BAD"],
    &["sweep", "BAD", "-o", "OUT"],
    &["explore", "BAD", "-o", "OUT.html"],
    &["debug", "accuracy", "BAD"],
    &["debug", "reduce", "BAD", "--check", "true"],
    &["debug", "tactics", "BAD", "--check", "true"],
    &["debug", "replay", "BAD"],
    &["calibrate", "BAD", "--calib", "BAD", "-o", "OUT.txt"],
    &["quantize", "BAD", "--calib", "BAD", "-o", "OUT.onnx"],
    &["check", "BAD"],
    &["simplify", "BAD", "-o", "OUT.onnx"],
    &["extract", "BAD", "--inputs", "x", "--outputs", "y", "-o", "OUT.onnx"],
    &["surgeon", "prune", "BAD", "--outputs", "y", "-o", "OUT.onnx"],
    &["slide", "BAD", "BAD", "-o", "OUT.npy"],
    &["refit", "BAD", "BAD", "-o", "OUT.plan"],
    &["bundle", "BAD", "BAD", "-o", "OUT.plan"],
    &["strip", "BAD", "-o", "OUT.plan"],
    &["plugin", "list", "BAD"],
    &["plugin", "check", "BAD"],
    &["plugin", "match", "BAD", "--plugin", "BAD", "-o", "OUT.onnx"],
    &["sign", "BAD", "--key", "BAD"],
    &["verify", "BAD", "--key", "BAD"],
    &["timing", "show", "BAD"],
    &["timing", "merge", "BAD", "BAD", "-o", "OUT"],
    &["timing", "diff", "BAD", "BAD"],
    &["zoo", "no_such_network", "-o", "OUT.onnx"],
    &["demo", "--scenario", "resnet18", "BAD"],
    &["doctor", "--nonsense"],
    &["trtexec", "--onnx=BAD"],
    &["polygraphy", "run", "BAD", "--trt"],
    &["polygraphy", "convert", "BAD", "-o", "OUT.plan"],
    &["polygraphy", "inspect", "model", "BAD"],
    &["polygraphy", "inspect", "data", "BAD"],
    &["polygraphy", "surgeon", "extract", "BAD", "--outputs", "y:auto", "-o", "OUT.onnx"],
    &["polygraphy", "check", "lint", "BAD"],
    &["polygraphy", "debug", "reduce", "BAD", "-o", "OUT.onnx", "--check", "true"],
    &["completions", "no-shell"],
    &["man", "BAD"],
];

/// The commands that the help lists.
fn listed() -> Vec<String> {
    let help = succeeds(&["--help"]).stdout;
    let lines = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let names =
        lines.take_while(|line| line.starts_with("  ")).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_string).collect()
}

#[test]
fn every_command_refuses_nonsense_in_one_line_and_writes_nothing() {
    let folder = Folder::new("commands");
    let bad = folder.put("bad.onnx", b"this is nothing that any command reads\n");
    for arguments in REFUSED {
        let arguments: Vec<String> = arguments
            .iter()
            .map(|word| word.replace("BAD", &bad).replace("OUT", &folder.path("out").display().to_string()))
            .collect();
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let ended = planish(&words);
        let errors = ended.stderr.lines().filter(|line| line.starts_with("error: ")).count();
        // trtexec's users look for its last line.
        let is_said = errors == 1 || ended.stdout.contains("&&&& FAILED");
        assert!(
            ended.code == Some(2) && is_said && !ended.stderr.contains("panicked"),
            "{words:?}: {:?}\n{}\n{}",
            ended.code,
            ended.stderr,
            ended.stdout
        );
        let left: Vec<_> =
            std::fs::read_dir(&folder.0).unwrap().flatten().map(|entry| entry.file_name()).collect();
        let is_ours =
            |name: &std::ffi::OsString| name == "bad.onnx" || (words[0] == "sweep" && name == "out");
        assert!(left.iter().all(is_ours), "{words:?} left {left:?}");
    }
}

#[test]
fn every_command_is_in_the_list_and_has_a_test_that_it_works() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli");
    let mut tests = String::new();
    for entry in
        std::fs::read_dir(sources).unwrap().flatten().filter(|entry| entry.file_name() != "commands.rs")
    {
        tests += &std::fs::read_to_string(entry.path()).unwrap();
    }
    let commands = listed();
    assert!(commands.len() > 25, "{commands:?}");
    for command in commands {
        assert!(
            REFUSED.iter().any(|words| words[0] == command),
            "{command} is not among the commands that are given nonsense"
        );
        let says = [format!("[\"{command}\""), format!("\"{command}\",")];
        assert!(says.iter().any(|words| tests.contains(words.as_str())), "no test runs `planish {command}`");
    }
}
