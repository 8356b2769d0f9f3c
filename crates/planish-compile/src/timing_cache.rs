//! The timing cache: one entry per candidate that was ever measured.

use std::collections::BTreeMap;

/// What a time belongs to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TimingKey {
    /// The device with its libraries, as [`planish_kernel::Target::device`] says.
    pub device: String,
    /// The problem with layouts, types and threads, as [`planish_kernel::Problem::key`] says.
    pub problem: String,
    /// The tactic with its revision.
    pub tactic: String,
}

/// A measured time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimingEntry {
    pub median_ns: u64,
    /// From the lower to the upper quartile.
    pub spread_ns: u64,
    pub n_samples: u32,
}

/// Measured times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TimingCache {
    entries: BTreeMap<TimingKey, TimingEntry>,
}

impl TimingCache {
    pub fn get(&self, key: &TimingKey) -> Option<TimingEntry> {
        self.entries.get(key).copied()
    }

    pub fn insert(&mut self, key: TimingKey, entry: TimingEntry) {
        self.entries.insert(key, entry);
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&TimingKey, &TimingEntry)> {
        self.entries.iter()
    }
}
