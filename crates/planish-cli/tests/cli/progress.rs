//! Bars: on a terminal, for work of more than a second, and nowhere else.

use std::process::Command;
use std::time::Instant;

use crate::{Folder, succeeds};

/// How long the watched run takes at least: bars appear after one.
const SECONDS: f64 = 4.0;

/// What the command writes on a terminal of its own (`script` makes one), with `NO_COLOR` or without.
fn on_a_terminal(arguments: &[&str], no_color: bool) -> String {
    let program = env!("CARGO_BIN_EXE_planish");
    let line: Vec<String> =
        [&[program][..], arguments].concat().iter().map(|word| format!("'{word}'")).collect();
    let mut command = Command::new("script");
    command.args(["-qec", &line.join(" "), "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR");
    if no_color {
        command.env("NO_COLOR", "1");
    }
    let output = command.output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{shown}");
    shown
}

#[test]
fn a_bar_is_drawn_on_terminals_alone() {
    let folder = Folder::new("bar");
    let model = folder.path("model.onnx").display().to_string();
    succeeds(&["zoo", "resnet18_224", "-o", &model]);
    let run = ["run", &model, "--backend", "reference", "--random", "1"];
    let started = Instant::now();
    let piped = succeeds(&run).stderr;
    assert!(piped.lines().all(|line| line.starts_with("note: ")), "{piped:?}");
    // Some seconds on any machine, by what one image took here.
    let batch = (SECONDS / started.elapsed().as_secs_f64()).ceil() as usize;
    let shapes = format!("x:{batch}x3x224x224");
    let run = [&run[..], &["--shapes", &shapes]].concat();
    let shown = on_a_terminal(&run, false);
    for part in ["run [", " of ", " left"] {
        assert!(shown.contains(part), "{part} is not in {shown:?}");
    }
    assert!(shown.contains("on the reference"), "{shown:?}");
    let cyan = "\u{1b}[36m";
    assert!(shown.contains(cyan), "{shown:?}");
    let plain = on_a_terminal(&run, true);
    assert!(plain.contains("run [") && !plain.contains(cyan), "{plain:?}");
}
