//! Any text as a tactic lock: it ends in a typed error or in a lock that is written and read back the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use planish_compile::TacticLock;

fuzz_target!(|text: &str| {
    // The first line is fixed, so that the mutations go to the lines after it; and once as a whole file. Versions as a
    // build writes them are taken from one.
    let first = TacticLock::default().to_text();
    check(text);
    check(&format!("{first}{text}"));
});

fn check(text: &str) {
    let Ok(lock) = TacticLock::from_text(text) else { return };
    let written = lock.to_text();
    let back = TacticLock::from_text(&written).expect("a lock that was written");
    assert_eq!(back, lock);
    assert_eq!((back.to_text(), back.len()), (written, lock.len()));
}
