//! Detached signatures of plans: keys and signatures as short text files, and what is signed.
//!
//! What is signed is a plan's fingerprint ([`Plan::fingerprint`]): the checksum of the table of sections, which holds the
//! checksum of each section and so speaks for every byte of the file. Signatures are Ed25519 (RFC 8032) over
//! [`CONTEXT`] and the 32 bytes of the fingerprint, so that a signature of something else is never one of a plan.
//!
//! The files have one spelling each:
//!
//! ```text
//! planish private key 1           planish public key 1            planish signature 1
//! ed25519 <64 hex digits>         ed25519 <64 hex digits>         plan <64 hex digits>
//!                                                                 key ed25519 <64 hex digits>
//!                                                                 signature <128 hex digits>
//! ```

use std::fmt;

use ed25519_dalek::{Signer, SigningKey, VerifyingKey};

use crate::error::Result;
use crate::record::Plan;

/// Stands in front of what is signed.
const CONTEXT: &[u8] = b"planish plan signature 1\0";

/// No key and no signature is longer than this.
pub const MAX_SIGNATURE_FILE: usize = 4096;

/// What is wrong with a file of a key or signature, or why a signature does not hold.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct SignatureError(String);

fn wrong<T>(what: impl Into<String>) -> std::result::Result<T, SignatureError> {
    Err(SignatureError(what.into()))
}

impl Plan {
    /// The checksum of the plan's table of sections, bytes 32 to 64 of its file, computed from what is in memory: every
    /// weight is read. It stands for the whole plan; this is what is signed.
    pub fn fingerprint(&self) -> Result<[u8; 32]> {
        self.table_sum()
    }
}

/// A key that signs.
#[derive(Clone)]
pub struct PrivateKey(SigningKey);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never its bytes: they would end in a log.
        write!(f, "PrivateKey(of {})", self.public())
    }
}

/// A key that signatures are checked with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ed25519 {}", hex(self.0.as_bytes()))
    }
}

/// A signature of one plan by one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signature {
    /// The fingerprint that was signed.
    plan: [u8; 32],
    key: PublicKey,
    bytes: [u8; 64],
}

fn message(fingerprint: &[u8; 32]) -> Vec<u8> {
    [CONTEXT, fingerprint].concat()
}

impl PrivateKey {
    /// The key of 32 bytes that nobody can guess.
    pub fn from_random(bytes: &[u8; 32]) -> PrivateKey {
        PrivateKey(SigningKey::from_bytes(bytes))
    }

    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// Signs the plan of this fingerprint.
    pub fn sign(&self, fingerprint: &[u8; 32]) -> Signature {
        let bytes = self.0.sign(&message(fingerprint)).to_bytes();
        Signature { plan: *fingerprint, key: self.public(), bytes }
    }

    /// Reads the text of a key's file.
    pub fn parse(text: &[u8]) -> std::result::Result<PrivateKey, SignatureError> {
        let [key] = lines(text, "private key")?;
        Ok(PrivateKey(SigningKey::from_bytes(&digits(key, "ed25519 ")?)))
    }

    pub fn to_text(&self) -> String {
        format!("planish private key 1\ned25519 {}\n", hex(self.0.as_bytes()))
    }
}

impl PublicKey {
    /// Reads the text of a key's file.
    pub fn parse(text: &[u8]) -> std::result::Result<PublicKey, SignatureError> {
        let [key] = lines(text, "public key")?;
        PublicKey::of(&digits(key, "ed25519 ")?)
    }

    fn of(bytes: &[u8; 32]) -> std::result::Result<PublicKey, SignatureError> {
        match VerifyingKey::from_bytes(bytes) {
            // A weak key is one under which anybody can sign.
            Ok(key) if !key.is_weak() => Ok(PublicKey(key)),
            _ => wrong("this is not an Ed25519 key"),
        }
    }

    pub fn to_text(&self) -> String {
        format!("planish public key 1\n{self}\n")
    }
}

impl Signature {
    /// Reads the text of a signature's file.
    pub fn parse(text: &[u8]) -> std::result::Result<Signature, SignatureError> {
        let [plan, key, signature] = lines(text, "signature")?;
        Ok(Signature {
            plan: digits(plan, "plan ")?,
            key: PublicKey::of(&digits(key, "key ed25519 ")?)?,
            bytes: digits(signature, "signature ")?,
        })
    }

    pub fn to_text(&self) -> String {
        let Signature { plan, key, bytes } = self;
        format!("planish signature 1\nplan {}\nkey {key}\nsignature {}\n", hex(plan), hex(bytes))
    }

    /// The key that it says it is by.
    pub fn key(&self) -> PublicKey {
        self.key
    }

    /// Whether it is a signature of the plan with this fingerprint by one of these keys; the error says why not.
    pub fn verify(
        &self,
        fingerprint: &[u8; 32],
        keys: &[PublicKey],
    ) -> std::result::Result<(), SignatureError> {
        if !keys.contains(&self.key) {
            return wrong(format!("it is signed by the key `{}`, which is not trusted", self.key));
        }
        if self.plan != *fingerprint {
            let (signed, is) = (hex(&self.plan[..8]), hex(&fingerprint[..8]));
            return wrong(format!("the signature is of another plan ({signed}…), this one is {is}…"));
        }
        let signature = ed25519_dalek::Signature::from_bytes(&self.bytes);
        // Strict: one signature has one spelling, and is by one key.
        match self.key.0.verify_strict(&message(fingerprint), &signature) {
            Ok(()) => Ok(()),
            Err(_) => wrong("the signature is not valid"),
        }
    }
}

/// The lines of a file after the first, which says what it is.
fn lines<'a, const N: usize>(
    text: &'a [u8],
    what: &str,
) -> std::result::Result<[&'a str; N], SignatureError> {
    if text.len() > MAX_SIGNATURE_FILE {
        return wrong(format!(
            "this is not a {what} of Planish: it is longer than {MAX_SIGNATURE_FILE} bytes"
        ));
    }
    let text = std::str::from_utf8(text).unwrap_or_default();
    let mut lines =
        text.strip_suffix('\n').unwrap_or(text).split('\n').map(|line| line.trim_end_matches('\r'));
    let first = lines.next().unwrap_or_default();
    let Some(version) = first.strip_prefix("planish ").and_then(|rest| rest.strip_prefix(what)) else {
        return wrong(match first.strip_prefix("planish ") {
            Some(_) => format!("this is not a {what}: it begins with `{}`", first.escape_debug()),
            None => format!("this is not a {what} of Planish; its first line is not `planish {what} 1`"),
        });
    };
    if version != " 1" {
        return wrong(format!("this {what} is of another version; update Planish"));
    }
    let rest: Vec<&str> = lines.collect();
    match rest.try_into() {
        Ok(rest) => Ok(rest),
        Err(rest) => {
            wrong(format!("a {what} has {N} lines after its first, this one has {}", Vec::len(&rest)))
        }
    }
}

/// The bytes of a line of hexadecimal digits after `prefix`.
fn digits<const N: usize>(line: &str, prefix: &str) -> std::result::Result<[u8; N], SignatureError> {
    let refuse = || {
        let wanted = format!("{prefix}<{} hexadecimal digits>", 2 * N);
        SignatureError(format!("a line is not as it must be: `{wanted}`"))
    };
    let digits = line.strip_prefix(prefix).ok_or_else(refuse)?.as_bytes();
    if digits.len() != 2 * N {
        return Err(refuse());
    }
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(refuse()),
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> PrivateKey {
        PrivateKey::from_random(&[seed; 32])
    }

    #[test]
    fn a_signature_is_of_one_plan_by_one_key() {
        let (plan, other) = ([7; 32], [8; 32]);
        let signature = key(1).sign(&plan);
        let (trusted, stranger) = (key(1).public(), key(2).public());
        assert_eq!(signature.verify(&plan, &[stranger, trusted]), Ok(()));
        let why = |result: std::result::Result<(), SignatureError>| result.unwrap_err().to_string();
        assert!(why(signature.verify(&plan, &[stranger])).contains("not trusted"));
        assert!(why(signature.verify(&plan, &[])).contains("not trusted"));
        assert!(why(signature.verify(&other, &[trusted])).contains("another plan"));
        // What it says of itself is not believed.
        let moved = Signature { plan: other, ..signature };
        assert!(why(moved.verify(&other, &[trusted])).contains("not valid"));
        let claimed = Signature { key: trusted, ..key(2).sign(&plan) };
        assert!(why(claimed.verify(&plan, &[trusted])).contains("not valid"));
        for at in 0..64 {
            let mut changed = signature;
            changed.bytes[at] ^= 1;
            assert!(changed.verify(&plan, &[trusted]).is_err(), "byte {at}");
        }
    }

    #[test]
    fn the_context_is_part_of_what_is_signed() {
        let plan = [7; 32];
        let bare = key(1).0.sign(&plan).to_bytes();
        let signature = Signature { plan, key: key(1).public(), bytes: bare };
        assert!(signature.verify(&plan, &[key(1).public()]).is_err());
    }

    #[test]
    fn files_come_back_and_others_are_refused() {
        let private = key(3);
        assert_eq!(PrivateKey::parse(private.to_text().as_bytes()).unwrap().public(), private.public());
        assert_eq!(PublicKey::parse(private.public().to_text().as_bytes()), Ok(private.public()));
        let signature = private.sign(&[9; 32]);
        assert_eq!(Signature::parse(signature.to_text().as_bytes()), Ok(signature));
        let crossed = signature.to_text().replace('\n', "\r\n");
        assert_eq!(Signature::parse(crossed.as_bytes()), Ok(signature));
        // One kind of file is not another.
        assert!(
            PublicKey::parse(private.to_text().as_bytes()).unwrap_err().to_string().contains("private key")
        );
        let text = signature.to_text();
        let refused = [
            String::new(),
            "planish signature 2\n".to_string(),
            text.replace("plan ", "plam "),
            text.replace("signature ", "signature  "),
            text.to_uppercase(),
            format!("{text}more\n"),
            format!("{text}\n"),
            text[..text.len() - 2].to_string(),
            "x".repeat(MAX_SIGNATURE_FILE + 1),
            text.replace(&hex(private.public().0.as_bytes()), &"00".repeat(32)),
        ];
        for text in refused {
            assert!(Signature::parse(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(Signature::parse(b"\xff\xfe").is_err());
    }

    #[test]
    fn debugging_shows_no_private_key() {
        let secret = hex(&[3; 32]);
        assert!(!format!("{:?}", key(3)).contains(&secret));
    }

    #[test]
    fn the_fingerprint_is_the_checksum_in_the_file() {
        let plan = crate::tests::sample::plan();
        let bytes = plan.to_bytes().unwrap();
        assert_eq!(plan.fingerprint().unwrap(), bytes[32..64]);
        let mut other = plan.clone();
        other.header.name.push('x');
        assert_ne!(plan.fingerprint().unwrap(), other.fingerprint().unwrap());
        if let Some(code) = other.code.first_mut() {
            other.header.name = plan.header.name.clone();
            code.bytes = planish_tensor::Bytes::from_vec(b"other code".to_vec());
            assert_ne!(plan.fingerprint().unwrap(), other.fingerprint().unwrap());
        }
    }
}
