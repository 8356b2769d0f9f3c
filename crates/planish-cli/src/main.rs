//! `planish`: the command line. Parses, calls the libraries, prints; exit codes are part of the interface.
//!
//! 0 done, 1 the answer is "no", 2 bad usage or bad input, 3 the machine cannot do it.

mod args;
mod bench;
mod build;
mod demo;
mod doctor;
mod feed;
mod files;
mod inspect;
mod inspect_plan;
mod load;
mod memory;
mod npy;
mod picture;
mod print;
mod profile;
mod random;
mod run;
mod shapes;
mod sign;
mod start;
mod stats;
mod timing;
mod watch;
mod zoo;

use std::fmt;
use std::io::{self, Write};
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::Mutex;

use clap::Parser;

use args::{Args, Command};

/// What a command answers when it could do its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Yes,
    No,
}

/// Something that this machine lacks.
#[derive(Debug)]
struct Lacking(String);

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Lacking {}

/// Where and why a bug stopped us; the hook leaves it here for the one line that is printed.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version go to standard output, and nobody may be listening there.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    panic::set_hook(Box::new(|info| {
        if let Ok(mut place) = PANIC.lock() {
            place.get_or_insert_with(|| info.to_string());
        }
    }));
    let (code, message) = outcome(|| {
        let mut out = io::BufWriter::new(io::stdout().lock());
        let answer = command(args, &mut out)?;
        out.flush()?;
        Ok(answer)
    });
    if let Some(message) = message {
        let _ = writeln!(io::stderr(), "error: {message}");
    }
    ExitCode::from(code)
}

/// The exit code of a command and the one line that explains it. A bug ends here as well, and not in a
/// backtrace.
fn outcome(work: impl FnOnce() -> anyhow::Result<Answer>) -> (u8, Option<String>) {
    let one_line = |text: String| Some(text.split_whitespace().collect::<Vec<_>>().join(" "));
    match panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(Answer::Yes)) => (0, None),
        Ok(Ok(Answer::No)) => (1, None),
        // Whoever read our output has seen enough.
        Ok(Err(error)) if is_broken_pipe(&error) => (0, None),
        Ok(Err(error)) => (if is_lacking(&error) { 3 } else { 2 }, one_line(format!("{error:#}"))),
        Err(payload) => {
            let said = || match payload.downcast_ref::<String>() {
                Some(text) => text.clone(),
                None => payload.downcast_ref::<&str>().unwrap_or(&"").to_string(),
            };
            let place = PANIC.lock().ok().and_then(|mut place| place.take()).unwrap_or_else(said);
            (2, one_line(format!("internal error, please report it with the command that you gave: {place}")))
        }
    }
}

fn command(args: Args, out: &mut dyn Write) -> anyhow::Result<Answer> {
    match args.command {
        Command::Inspect(args) => inspect::command(&args, out),
        Command::Build(args) => build::command(&args, out),
        Command::Run(args) => run::command(&args, out),
        Command::Bench(args) => bench::command(&args, out),
        Command::Profile(args) => profile::command(&args, out),
        Command::Timing(args) => timing::command(&args, out),
        Command::Sign(args) => sign::sign(&args, out),
        Command::Verify(args) => sign::verify(&args, out),
        Command::Zoo(args) => zoo::command(&args, out),
        Command::Demo(args) => demo::command(&args, out),
        Command::Doctor(args) => doctor::command(&args, out),
    }
}

/// Whether the machine cannot do it, as we or the library say.
fn is_lacking(error: &anyhow::Error) -> bool {
    use planish::{ErrorKind, RunErrorKind};
    let lacks = |kind: ErrorKind| matches!(kind, ErrorKind::Lacking | ErrorKind::DeviceLost);
    let lacks_in_run =
        |kind: &RunErrorKind| matches!(kind, RunErrorKind::OutOfMemory | RunErrorKind::DeviceLost);
    error.is::<Lacking>()
        || error.chain().any(|cause| {
            cause.downcast_ref::<planish::Error>().is_some_and(|error| lacks(error.kind()))
                || cause.downcast_ref::<planish::RunError>().is_some_and(|error| lacks_in_run(error.kind()))
        })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// One line on standard error that is no error.
fn say_note(message: &str) {
    let _ = writeln!(io::stderr(), "note: {message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_its_code() {
        assert_eq!(outcome(|| Ok(Answer::Yes)), (0, None));
        assert_eq!(outcome(|| Ok(Answer::No)), (1, None));
        assert_eq!(outcome(|| anyhow::bail!("two\n lines")), (2, Some("two lines".into())));
        assert_eq!(outcome(|| anyhow::bail!(Lacking("no GPU".into()))), (3, Some("no GPU".into())));
        let broken = || Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        assert_eq!(outcome(broken), (0, None));
        let (code, message) = outcome(|| panic!("a bug"));
        let message = message.unwrap();
        assert_eq!(code, 2);
        assert!(message.starts_with("internal error, please report it"), "{message}");
        assert!(message.ends_with("a bug"), "{message}");
    }
}
