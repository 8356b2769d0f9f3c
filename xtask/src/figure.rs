//! Lines that say what was asked for, what was seen, and whether that is enough: the same for every program that
//! measures, so that `bench/acceptance/gpu_all.py` gathers them into one table.

use std::fmt::Display;

/// Whether all figures so far are what was asked for.
#[derive(Debug)]
pub(crate) struct Figures {
    good: bool,
}

impl Figures {
    pub(crate) fn new() -> Figures {
        Figures { good: true }
    }

    /// Prints one figure at once: a program that is stopped has then said what it knew.
    pub(crate) fn say(&mut self, name: &str, asked: impl Display, seen: impl Display, ok: bool) {
        self.good &= ok;
        println!("figure: {name} | {asked} | {seen} | {}", if ok { "yes" } else { "NO" });
    }

    pub(crate) fn all_good(&self) -> bool {
        self.good
    }
}
