//! A bar on a terminal for work that takes longer than a second: what is done, how far it is, how long it may take.
//! Nothing is drawn where standard error is not a terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shorter work shows no bar.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a bar is drawn anew while nothing is told.
const TICK: Duration = Duration::from_millis(200);

/// The bar that is drawn, if one is.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Told how far some work is; it draws once that takes longer than a second. `None` where nobody watches.
pub(crate) fn bar() -> Option<planish::Progress> {
    if !io::stderr().is_terminal() {
        return None;
    }
    let state = Mutex::new(Bar { since: Instant::now(), stage: String::new(), bar: None });
    Some(Arc::new(move |stage: &str, done: usize, of: usize| {
        state.lock().unwrap_or_else(PoisonError::into_inner).tell(stage, done, of);
    }))
}

struct Bar {
    since: Instant,
    stage: String,
    bar: Option<ProgressBar>,
}

impl Bar {
    fn tell(&mut self, stage: &str, done: usize, of: usize) {
        if self.since.elapsed() < PATIENCE {
            return;
        }
        if self.stage != stage || self.bar.is_none() {
            self.stage = stage.to_string();
            let bar = ProgressBar::with_draw_target(Some(of as u64), ProgressDrawTarget::stderr());
            let bar = bar.with_elapsed(self.since.elapsed());
            bar.set_style(style(of > 0));
            bar.set_message(stage.to_string());
            bar.enable_steady_tick(TICK);
            if let Some(old) = shown().replace(bar.clone()) {
                old.finish_and_clear();
            }
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_length(of as u64);
            bar.set_position(done as u64);
        }
    }
}

/// Colours are left out where `NO_COLOR` says so (no-color.org).
fn style(is_counted: bool) -> ProgressStyle {
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let template = match (is_counted, is_plain) {
        (false, _) => "{spinner} {msg}, {elapsed}",
        (true, true) => "{msg} [{bar:30}] {pos} of {len}, {elapsed}, {eta} left",
        (true, false) => "{msg} [{bar:30.cyan}] {pos} of {len}, {elapsed}, {eta} left",
    };
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

fn shown() -> std::sync::MutexGuard<'static, Option<ProgressBar>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the bar, where there is one.
pub(crate) fn clear() {
    if let Some(bar) = shown().take() {
        bar.finish_and_clear();
    }
}

/// Writes a line on standard error, above the bar where there is one.
pub(crate) fn line(text: &str) {
    let write = || _ = writeln!(io::stderr(), "{text}");
    match shown().as_ref() {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}
