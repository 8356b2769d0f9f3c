//! A command of the user's that says by its exit code whether a file is wrong.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::args::Asking;

/// How a run of it ended: exit codes as shells have them, and one of ours for runs that took too long.
pub(super) type Code = i32;

/// What a run that took too long counts as; `timeout` of coreutils says the same.
pub(super) const TOO_LONG: Code = 124;

/// What sh ends with where it does not find a command, and where it may not run it.
const NOT_FOUND: Code = 127;
const NOT_RUNNABLE: Code = 126;

/// How often a running command is looked at.
const PERIOD: Duration = Duration::from_millis(5);

/// Runs the command on a file.
pub(super) fn ask(asking: &Asking, file: &Path) -> Result<Code> {
    let text = command_text(&asking.check, &file.display().to_string());
    let mut command = Command::new("sh");
    // Its own group, so that what it started ends with it.
    command.arg("-c").arg(&text).env("PLANISH_FILE", file).stdin(Stdio::null()).process_group(0);
    if !asking.show {
        command.stdout(Stdio::null()).stderr(Stdio::null());
    }
    let mut child = command.spawn().context("cannot start sh for --check")?;
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for --check")? {
            // A command that never ran says nothing of the file.
            let why = match status.code() {
                Some(NOT_FOUND) => "there is no such command",
                Some(NOT_RUNNABLE) => "it cannot be executed",
                _ => "",
            };
            ensure!(why.is_empty(), "--check: {why}: `{text}`; --show shows what sh says");
            return Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
        }
        if begun.elapsed() > asking.timeout {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            child.wait().context("cannot wait for --check")?;
            return Ok(TOO_LONG);
        }
        std::thread::sleep(PERIOD);
    }
}

/// The command with the file in its place, quoted for the shell.
fn command_text(check: &str, file: &str) -> String {
    let quoted = format!("'{}'", file.replace('\'', "'\\''"));
    match check.contains("{}") {
        true => check.replace("{}", &quoted),
        false => format!("{check} {quoted}"),
    }
}

/// An exit code in words.
pub(super) fn code_text(code: Code) -> String {
    match code {
        TOO_LONG => "taking too long".to_string(),
        code if code > 128 => format!("signal {}", code - 128),
        code => format!("exit code {code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_get_their_file() {
        assert_eq!(command_text("check {} --fast", "a b"), "check 'a b' --fast");
        assert_eq!(command_text("check", "it's"), "check 'it'\\''s'");
        let asking = |check: &str| Asking {
            check: check.to_string(),
            timeout: Duration::from_millis(300),
            show: false,
        };
        let run = |check: &str| ask(&asking(check), Path::new("/")).unwrap();
        let error = ask(&asking("/nonexistent/command"), Path::new("/")).unwrap_err().to_string();
        assert!(
            error.starts_with("--check: there is no such command: `/nonexistent/command '/'`"),
            "{error}"
        );
        assert!(ask(&asking("/etc/passwd"), Path::new("/")).is_err());
        assert_eq!((run("test -d {}"), run("test -f {}"), run("exit 7;")), (0, 1, 7));
        assert_eq!((run("kill -9 $$ #"), run("sleep 20 #")), (137, TOO_LONG));
    }
}
