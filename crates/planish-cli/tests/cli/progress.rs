//! Bars: on a terminal, for work of more than a second, and nowhere else.

use std::process::Command;

use crate::{Folder, succeeds};

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
    // Gigaflops on the reference: seconds on any machine.
    let run = ["run", &model, "--backend", "reference", "--random", "1"];
    let shown = on_a_terminal(&run, false);
    for part in ["run [", " of ", " left"] {
        assert!(shown.contains(part), "{part} is not in {shown:?}");
    }
    assert!(shown.contains("on the reference"), "{shown:?}");
    let cyan = "\u{1b}[36m";
    assert!(shown.contains(cyan), "{shown:?}");
    let plain = on_a_terminal(&run, true);
    assert!(plain.contains("run [") && !plain.contains(cyan), "{plain:?}");
    let piped = succeeds(&run).stderr;
    assert!(piped.lines().all(|line| line.starts_with("note: ")), "{piped:?}");
}
