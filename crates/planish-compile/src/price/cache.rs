//! The timing cache: one entry per candidate that was ever measured, kept in a text file.
//!
//! The file has a line per entry, sorted: device, problem, tactic, median, spread and number of samples,
//! separated by tabs; so it can be read, searched and compared with everyday tools. Entries of other devices
//! and of older kernels do no harm: nothing asks for them.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{BuildError, BuildErrorKind};
use crate::text_file::{self, Format, bad_line, escape, unescape};

const FORMAT: Format = Format { name: "timings", version: 1 };
const FIELDS: &str = "device, problem, tactic@revision, median in ns, spread in ns, samples";

/// What a time belongs to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TimingKey {
    /// The device with its libraries, as [`planish_kernel::Target::device`] says.
    pub device: String,
    /// The problem with layouts, types and threads, as [`planish_kernel::Problem::key`] says.
    pub problem: String,
    /// The tactic with its revision, and what it needs besides: the version of a library.
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

impl TimingEntry {
    /// Which of two measurements is kept, whichever came first: the one of more samples, then the quieter.
    fn better(self, other: TimingEntry) -> TimingEntry {
        let order = |entry: &TimingEntry| (u32::MAX - entry.n_samples, entry.spread_ns, entry.median_ns);
        if order(&other) < order(&self) { other } else { self }
    }
}

/// Measured times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TimingCache {
    entries: BTreeMap<TimingKey, TimingEntry>,
}

/// What two caches have apart.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TimingDiff {
    pub only_left: Vec<(TimingKey, TimingEntry)>,
    pub only_right: Vec<(TimingKey, TimingEntry)>,
    /// In both, with different times.
    pub changed: Vec<(TimingKey, TimingEntry, TimingEntry)>,
    /// In both, with the same time.
    pub n_same: usize,
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

    /// All entries, by device, problem and tactic.
    pub fn iter(&self) -> impl Iterator<Item = (&TimingKey, &TimingEntry)> {
        self.entries.iter()
    }

    /// How many entries each device has.
    pub fn devices(&self) -> BTreeMap<&str, usize> {
        let mut devices = BTreeMap::new();
        for key in self.entries.keys() {
            *devices.entry(key.device.as_str()).or_default() += 1;
        }
        devices
    }

    /// A note on entries that were measured on other devices, which a build for these leaves alone.
    pub fn note_for(&self, own: &[&str]) -> Option<String> {
        let devices = self.devices();
        let others: Vec<_> = devices.into_iter().filter(|(other, _)| !own.contains(other)).collect();
        let n: usize = others.iter().map(|(_, n)| n).sum();
        let quoted = |name: &str| format!("`{name}`");
        let names: Vec<_> = others.iter().map(|(name, _)| quoted(name)).collect();
        let own: Vec<_> = own.iter().map(|name| quoted(name)).collect();
        let (names, own) = (names.join(" and "), own.join(" and "));
        (n > 0).then(|| format!("{n} timings are of {names} and are not used for {own}"))
    }

    /// Takes over the entries of another cache; where both have one, the better measurement stays. The result
    /// does not depend on which is merged into which.
    pub fn merge(&mut self, other: &TimingCache) {
        for (key, &entry) in &other.entries {
            let kept = self.entries.get(key).map_or(entry, |own| own.better(entry));
            self.entries.insert(key.clone(), kept);
        }
    }

    /// What this cache, the left, and another have apart.
    pub fn diff(&self, right: &TimingCache) -> TimingDiff {
        let mut diff = TimingDiff::default();
        for (key, &entry) in &self.entries {
            match right.get(key) {
                None => diff.only_left.push((key.clone(), entry)),
                Some(other) if other.median_ns == entry.median_ns => diff.n_same += 1,
                Some(other) => diff.changed.push((key.clone(), entry, other)),
            }
        }
        let only_right = right.entries.iter().filter(|(key, _)| !self.entries.contains_key(key));
        diff.only_right = only_right.map(|(key, &entry)| (key.clone(), entry)).collect();
        diff
    }

    /// Reads a cache file. One that is not there is an error of kind [`BuildErrorKind::Io`].
    pub fn load(path: &Path) -> Result<TimingCache, BuildError> {
        match TimingCache::load_if_any(path)? {
            Some(cache) => Ok(cache),
            None => {
                let message =
                    format!("there is no file {}; a build with --timing-cache makes it", path.display());
                Err(BuildError::new(BuildErrorKind::Io, message))
            }
        }
    }

    /// Reads a cache file; `None` if there is none yet.
    pub fn load_if_any(path: &Path) -> Result<Option<TimingCache>, BuildError> {
        let Some(text) = text_file::read(path)? else { return Ok(None) };
        let cache = TimingCache::from_text(&text).map_err(|error| error.within(path.display()))?;
        Ok(Some(cache))
    }

    /// Writes a cache file, in one piece. What another process wrote there meanwhile is kept, and taken over
    /// into this cache. A cache that would be too long to be read again is refused; the file stays as it is.
    pub fn save(&mut self, path: &Path) -> Result<(), BuildError> {
        let _lock = planish_files::Lock::beside(path);
        if let Some(there) = TimingCache::load_if_any(path)? {
            self.merge(&there);
        }
        let text = self.to_text();
        check_length(text.len() as u64).map_err(|error| error.within(path.display()))?;
        text_file::write(path, &text)
    }

    /// The file's text. Equal caches have equal texts.
    pub fn to_text(&self) -> String {
        let line = |(key, entry): (&TimingKey, &TimingEntry)| {
            let TimingEntry { median_ns, spread_ns, n_samples } = entry;
            let names = [&key.device, &key.problem, &key.tactic].map(|field| escape(field)).join("\t");
            format!("{names}\t{median_ns}\t{spread_ns}\t{n_samples}")
        };
        FORMAT.text(FIELDS, self.entries.iter().map(line))
    }

    /// Reads the text of a file.
    pub fn from_text(text: &str) -> Result<TimingCache, BuildError> {
        let mut cache = TimingCache::default();
        for (number, line) in text_file::lines(FORMAT, text)? {
            let (key, entry) = read_line(line).map_err(|what| bad_line(number, what))?;
            // A file that was joined by hand may hold an entry twice.
            let kept = cache.get(&key).map_or(entry, |own| own.better(entry));
            cache.insert(key, kept);
        }
        Ok(cache)
    }
}

/// Refuses a text that would not be read again.
fn check_length(n_bytes: u64) -> Result<(), BuildError> {
    if n_bytes <= text_file::MAX_BYTES {
        return Ok(());
    }
    let message = format!(
        "the times would take {} MB, a file has {} at most; begin another file for the models to come",
        n_bytes >> 20,
        text_file::MAX_BYTES >> 20
    );
    Err(BuildError::new(BuildErrorKind::Refused, message))
}

fn read_line(line: &str) -> Result<(TimingKey, TimingEntry), &'static str> {
    let mut fields = line.split('\t');
    let mut next = || fields.next().ok_or("six fields separated by tabs belong here");
    let mut name =
        || next().and_then(|field| unescape(field).ok_or("a `\\` stands before a wrong character"));
    let key = TimingKey { device: name()?, problem: name()?, tactic: name()? };
    const NUMBERS: &str = "median, spread and samples are whole numbers";
    let mut number = || next()?.parse::<u64>().map_err(|_| NUMBERS);
    let (median_ns, spread_ns, n_samples) = (number()?, number()?, number()?);
    let n_samples = u32::try_from(n_samples).map_err(|_| NUMBERS)?;
    match fields.next() {
        Some(_) => Err("there are more than six fields"),
        None => Ok((key, TimingEntry { median_ns, spread_ns, n_samples })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(device: &str, problem: &str, tactic: &str) -> TimingKey {
        TimingKey { device: device.into(), problem: problem.into(), tactic: tactic.into() }
    }

    fn entry(median_ns: u64, spread_ns: u64, n_samples: u32) -> TimingEntry {
        TimingEntry { median_ns, spread_ns, n_samples }
    }

    fn cache(list: &[(TimingKey, TimingEntry)]) -> TimingCache {
        TimingCache { entries: list.iter().cloned().collect() }
    }

    fn sample() -> TimingCache {
        cache(&[
            (key("cpu a", "Conv(i0,i1);->n0.0 f32[1x3x8x8]c t2", "conv_f32_avx2@3"), entry(1200, 30, 7)),
            (key("cpu a", "Relu(i0);->n0.0 f32[4]p t1", "pointwise@1"), entry(90, 1, 3)),
            (key("#cpu b", "Odd\top\\", "x@1"), entry(1, 0, 1)),
        ])
    }

    #[test]
    fn texts_come_back_and_can_be_read() {
        let cache = sample();
        let text = cache.to_text();
        assert_eq!(TimingCache::from_text(&text).unwrap(), cache);
        assert_eq!(TimingCache::from_text(&text.replace('\n', "\r\n")).unwrap(), cache);
        let line = "\ncpu a\tRelu(i0);->n0.0 f32[4]p t1\tpointwise@1\t90\t1\t3\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn bad_lines_are_named() {
        let error = |line: &str| {
            let error = TimingCache::from_text(&format!("planish timings 1\n{line}\n")).unwrap_err();
            assert_eq!(*error.kind(), BuildErrorKind::BadFile);
            error.to_string()
        };
        assert!(error("a\tb\tc\t1\t2").starts_with("line 2: six fields"));
        assert!(error("a\tb\tc\t1\t2\tthree").starts_with("line 2: median, spread"));
        assert!(error("a\tb\tc\t-1\t2\t3").starts_with("line 2: median, spread"));
        assert!(error("a\tb\tc\t1\t2\t4294967296").starts_with("line 2: median, spread"));
        assert!(error("a\tb\tc\t1\t2\t3\t4").starts_with("line 2: there are more"));
        assert!(error("a\\q\tb\tc\t1\t2\t3").starts_with("line 2: a `\\`"));
    }

    #[test]
    fn merging_is_the_same_from_both_sides() {
        let k = key("cpu a", "p", "t@1");
        let few = cache(&[(k.clone(), entry(100, 1, 3)), (key("cpu a", "q", "t@1"), entry(5, 0, 1))]);
        let many = cache(&[(k.clone(), entry(120, 9, 11)), (key("cpu b", "p", "t@1"), entry(6, 0, 1))]);
        let (mut a, mut b) = (few.clone(), many.clone());
        a.merge(&many);
        b.merge(&few);
        assert_eq!(a, b);
        assert_eq!((a.len(), a.get(&k)), (3, Some(entry(120, 9, 11))));
        let diff = few.diff(&many);
        assert_eq!((diff.only_left.len(), diff.only_right.len(), diff.n_same), (1, 1, 0));
        assert_eq!(diff.changed, [(k, entry(100, 1, 3), entry(120, 9, 11))]);
        assert_eq!(few.diff(&few), TimingDiff { n_same: 2, ..TimingDiff::default() });
    }

    #[test]
    fn foreign_entries_are_kept_and_noted() {
        let cache = sample();
        assert_eq!(
            cache.note_for(&["cpu a"]).unwrap(),
            "1 timings are of `#cpu b` and are not used for `cpu a`"
        );
        assert_eq!(cache.note_for(&["cpu c"]).map(|note| note.starts_with("3 timings")), Some(true));
        assert_eq!(cache.note_for(&["cpu a", "#cpu b"]), None);
        assert_eq!(TimingCache::default().note_for(&["cpu a"]), None);
    }

    #[test]
    fn saving_keeps_what_others_wrote() {
        let folder = std::env::temp_dir().join(format!("planish-timings-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("timings");
        assert_eq!(TimingCache::load_if_any(&path).unwrap(), None);
        assert_eq!(*TimingCache::load(&path).unwrap_err().kind(), BuildErrorKind::Io);
        // Several writers at once, each with an entry of its own: nobody's is lost.
        std::thread::scope(|scope| {
            for idx in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    let own = (key("cpu", &format!("p{idx}"), "t@1"), entry(idx, 0, 1));
                    cache(&[own]).save(path).unwrap();
                });
            }
        });
        assert_eq!(TimingCache::load(&path).unwrap().len(), 8);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::write(&path, "planish timings 9\n").unwrap();
        let error = sample().save(&path).unwrap_err();
        assert!(error.to_string().contains("timings: the file has format 9"), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn nothing_is_written_that_is_too_long_to_be_read() {
        assert!(check_length(text_file::MAX_BYTES).is_ok());
        let error = check_length(text_file::MAX_BYTES + 1).unwrap_err();
        assert_eq!(*error.kind(), BuildErrorKind::Refused);
    }
}
