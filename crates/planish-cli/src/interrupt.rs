//! Ctrl-C (and SIGTERM, as schedulers and containers send it): a build is asked to stop and keeps what it measured;
//! anything else ends at once, and so does a build that is asked twice. Files that were being written are removed.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use anyhow::{Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::ending::{Ending, INTERRUPTED};
use crate::progress;

/// Set once the user has asked to stop.
static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
/// How many pieces of work are under way that look at it.
static N_LOOKING: AtomicUsize = AtomicUsize::new(0);

/// Listens from now on.
pub(crate) fn install() -> io::Result<()> {
    let ignored = ignored();
    let mut signals = Signals::new([SIGINT, SIGTERM].into_iter().filter(|signal| !ignored(*signal)))?;
    std::thread::Builder::new().name("interrupt".into()).spawn(move || {
        for _ in signals.forever() {
            let is_first = !ASKED.swap(true, Ordering::SeqCst);
            progress::clear();
            if is_first && N_LOOKING.load(Ordering::SeqCst) > 0 {
                if io::stderr().is_terminal() {
                    crate::say_note("stopping; Ctrl-C again ends at once");
                }
                continue;
            }
            planish::files::remove_unfinished();
            let _ = writeln!(io::stderr(), "error: interrupted");
            signal_hook::low_level::exit(INTERRUPTED.into());
        }
    })?;
    Ok(())
}

/// Which signals whoever started us wants ignored (`nohup`, jobs in the background of a script).
fn ignored() -> impl Fn(i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    move |signal| mask >> (signal - 1) & 1 == 1
}

/// Work that looks at its flag and stops by itself, while this lives.
pub(crate) struct Stoppable;

impl Stoppable {
    pub(crate) fn begin() -> Stoppable {
        N_LOOKING.fetch_add(1, Ordering::SeqCst);
        Stoppable
    }

    /// The flag that is set once it is to stop.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&ASKED)
    }

    /// The end of the work: an error if it was to stop, even if it was faster than that.
    pub(crate) fn end(self) -> Result<()> {
        drop(self);
        if ASKED.load(Ordering::SeqCst) {
            bail!(Ending::Interrupted("interrupted".into()));
        }
        Ok(())
    }
}

impl Drop for Stoppable {
    fn drop(&mut self) {
        N_LOOKING.fetch_sub(1, Ordering::SeqCst);
    }
}
