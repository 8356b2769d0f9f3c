//! How a command ends: its exit code and the one line that says why.
//!
//! 0 done, 1 the answer is "no", 2 bad usage or bad input, 3 the machine cannot do it, 4 a mistake of ours, 130
//! interrupted.

use std::fmt;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;

use crate::last_words;

pub(crate) const BAD_INPUT: u8 = 2;
pub(crate) const LACKING: u8 = 3;
pub(crate) const OUR_MISTAKE: u8 = 4;
pub(crate) const INTERRUPTED: u8 = 130;

/// What a command answers when it could do its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Yes,
    No,
}

/// An end that is not the fault of what was asked for.
#[derive(Debug)]
pub(crate) enum Ending {
    /// A mistake of ours.
    Ours(String),
    /// The user stopped it.
    Interrupted(String),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Ending::Ours(text) | Ending::Interrupted(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for Ending {}

/// Where and why a bug stopped us; the hook leaves it here for the one line that is printed.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// From now on a panic leaves its place for the last line, and prints no backtrace.
pub(crate) fn catch_panics() {
    panic::set_hook(Box::new(|info| {
        last_words::note_panic();
        if let Ok(mut place) = PANIC.lock() {
            place.get_or_insert_with(|| info.to_string());
        }
    }));
}

/// The exit code of a command and the one line that explains it. A bug ends here as well, and not in a
/// backtrace.
pub(crate) fn outcome(work: impl FnOnce() -> anyhow::Result<Answer>) -> (u8, Option<String>) {
    match panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(Answer::Yes)) => (0, None),
        Ok(Ok(Answer::No)) => (1, None),
        // Whoever read our output has seen enough.
        Ok(Err(error)) if is_broken_pipe(&error) => (0, None),
        Ok(Err(error)) => {
            let (code, text) = (code(&error), one_line(&format!("{error:#}")));
            (code, Some(if code == OUR_MISTAKE { report(&text) } else { text }))
        }
        Err(payload) => {
            let said = || match payload.downcast_ref::<String>() {
                Some(text) => text.clone(),
                None => payload.downcast_ref::<&str>().unwrap_or(&"").to_string(),
            };
            let place = PANIC.lock().ok().and_then(|mut place| place.take()).unwrap_or_else(said);
            (OUR_MISTAKE, Some(report(&one_line(&format!("internal error: {place}")))))
        }
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What is our mistake ends with what to do about it.
fn report(text: &str) -> String {
    match text.contains("please report") {
        true => text.to_string(),
        false => {
            format!("{text}; this is a mistake of ours, please report it with the command that you gave")
        }
    }
}

/// What an error means to whoever called us; the innermost cause that says it counts.
fn code(error: &anyhow::Error) -> u8 {
    error.chain().filter_map(code_of).last().unwrap_or(BAD_INPUT)
}

fn code_of(cause: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if let Some(ending) = cause.downcast_ref::<Ending>() {
        return Some(match ending {
            Ending::Ours(_) => OUR_MISTAKE,
            Ending::Interrupted(_) => INTERRUPTED,
        });
    }
    if let Some(error) = cause.downcast_ref::<planish::Error>() {
        return Some(code_of_kind(error.kind()));
    }
    if let Some(error) = cause.downcast_ref::<planish::record::PlanError>() {
        return Some(code_of_kind(planish::Error::from(error.clone()).kind()));
    }
    let error = cause.downcast_ref::<io::Error>()?;
    planish::files::is_out_of_room(error).then_some(LACKING)
}

fn code_of_kind(kind: &planish::ErrorKind) -> u8 {
    use planish::ErrorKind as Kind;
    match kind {
        Kind::Lacking | Kind::NoRoom | Kind::OutOfMemory | Kind::DeviceLost => LACKING,
        Kind::Failed | Kind::CheckFailed => OUR_MISTAKE,
        Kind::Cancelled => INTERRUPTED,
        _ => BAD_INPUT,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn every_end_has_its_code() {
        assert_eq!(outcome(|| Ok(Answer::Yes)), (0, None));
        assert_eq!(outcome(|| Ok(Answer::No)), (1, None));
        assert_eq!(outcome(|| anyhow::bail!("two\n lines")), (2, Some("two lines".into())));
        let lacking = || Err(planish::Error::new(planish::ErrorKind::Lacking, "no GPU").into());
        assert_eq!(outcome(lacking), (3, Some("no GPU".into())));
        let interrupted = || anyhow::bail!(Ending::Interrupted("interrupted".into()));
        assert_eq!(outcome(interrupted), (130, Some("interrupted".into())));
        let full = || Err(io::Error::from(io::ErrorKind::StorageFull)).context("cannot write x");
        assert_eq!(outcome(full).0, 3);
        let broken = || Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        assert_eq!(outcome(broken), (0, None));
        for (code, message) in [
            outcome(|| panic!("a bug")),
            outcome(|| anyhow::bail!(Ending::Ours("the answer is wrong".into()))),
        ] {
            let message = message.unwrap();
            assert_eq!(code, 4);
            assert!(message.contains("please report it"), "{message}");
            assert!(message.contains("a bug") || message.starts_with("the answer is wrong"), "{message}");
        }
    }
}
