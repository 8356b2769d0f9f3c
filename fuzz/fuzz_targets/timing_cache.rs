//! Any text as a timing cache: it ends in a typed error or in a cache that is written and read back the same, and that
//! merges with itself into itself.

#![no_main]

use libfuzzer_sys::fuzz_target;
use planish_compile::TimingCache;

fuzz_target!(|text: &str| {
    // The first line is fixed, so that the mutations go to the lines after it; and once as a whole file.
    check(text);
    check(&format!("planish timings 1\n{text}"));
});

fn check(text: &str) {
    let Ok(cache) = TimingCache::from_text(text) else { return };
    let written = cache.to_text();
    let back = TimingCache::from_text(&written).expect("a cache that was written");
    assert_eq!(back, cache);
    assert_eq!(back.to_text(), written);
    let mut merged = cache.clone();
    merged.merge(&back);
    assert_eq!(merged, cache);
    let diff = cache.diff(&back);
    assert!(diff.changed.is_empty() && diff.only_left.is_empty() && diff.only_right.is_empty());
}
