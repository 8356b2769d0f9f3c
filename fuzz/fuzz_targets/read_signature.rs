//! Any bytes as a key or a signature file: refused in words, or written back as they were read; and never a signature of
//! a plan that nobody signed.

#![no_main]

use libfuzzer_sys::fuzz_target;
use planish_plan::{PrivateKey, PublicKey, Signature};

/// Line ends may be those of other systems, and the last may be missing; all else has one spelling.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    text.split('\n').map(|line| format!("{}\n", line.trim_end_matches('\r'))).collect()
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(key) = PrivateKey::parse(bytes) {
        assert_eq!(key.to_text(), plain(bytes));
        let signature = key.sign(&[1; 32]);
        assert!(signature.verify(&[1; 32], &[key.public()]).is_ok());
        assert!(signature.verify(&[2; 32], &[key.public()]).is_err());
    }
    if let Ok(key) = PublicKey::parse(bytes) {
        assert_eq!(key.to_text(), plain(bytes));
    }
    if let Ok(signature) = Signature::parse(bytes) {
        assert_eq!(signature.to_text(), plain(bytes));
        // Nobody has signed this, whatever key the file names.
        let fingerprint = *b"a plan that nobody ever has sign";
        assert!(signature.verify(&fingerprint, &[signature.key()]).is_err());
    }
});
