//! `planish sign` and `planish verify`: keys and detached signatures of plans, and which plans commands trust.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use planish::record::Plan;
use planish::{Bundle, CodeFrom, MAX_SIGNATURE_FILE, PrivateKey, PublicKey, Signature, SignatureError};
use serde_json::json;

use crate::args::{CodeSource, Opening, Sign, Verify};
use crate::ending::Answer;
use crate::{files, load, print, say_note};

/// What follows the name of a plan in the name of its signature.
const SIGNATURE: &str = "sig";
/// What follows the name of a private key in the name of its public one.
const PUBLIC: &str = "pub";

pub(crate) fn sign(args: &Sign, out: &mut dyn Write) -> Result<Answer> {
    if let Some(path) = &args.new_key {
        return new_key(path, out);
    }
    let (Some(path), Some(key)) = (&args.plan, &args.key) else {
        bail!("give a plan and --key FILE, or --new-key FILE");
    };
    let key = read(key, "key", PrivateKey::parse)?;
    let signature = key.sign(&fingerprint(path)?);
    let target = args.output.clone().unwrap_or_else(|| beside(path, SIGNATURE));
    files::write(&target, |file| file.write_all(signature.to_text().as_bytes()))?;
    writeln!(out, "{} is the signature of {} by {}", target.display(), path.display(), key.public())?;
    Ok(Answer::Yes)
}

pub(crate) fn verify(args: &Verify, out: &mut dyn Write) -> Result<Answer> {
    let keys = public_keys(&args.key)?;
    let signature = args.signature.clone().unwrap_or_else(|| beside(&args.plan, SIGNATURE));
    let signature = read(&signature, "signature", Signature::parse)?;
    let verdict = signature.verify(&fingerprint(&args.plan)?, &keys);
    if !args.json.replaces_tables() {
        match &verdict {
            Ok(()) => writeln!(out, "{} is signed by {}", args.plan.display(), signature.key())?,
            Err(why) => writeln!(out, "{} is not signed: {why}", args.plan.display())?,
        }
    }
    let why = verdict.as_ref().err().map(SignatureError::to_string);
    let report = json!({ "signed": verdict.is_ok(), "key": signature.key().to_string(), "why": why });
    print::json(out, &args.json, &report)?;
    Ok(if verdict.is_ok() { Answer::Yes } else { Answer::No })
}

/// What is signed of a file, which is verified whole, weights included: nobody signs what is damaged.
fn fingerprint(path: &Path) -> Result<[u8; 32]> {
    if !Bundle::is_one(path) {
        return Ok(Plan::open(path)?.fingerprint()?);
    }
    let bundle = Bundle::open(path)?;
    (0..bundle.members().len()).try_for_each(|idx| bundle.plan(idx).map(drop))?;
    Ok(bundle.fingerprint())
}

/// Makes a key: its private half in a file that only the user can read, its public half beside it.
fn new_key(path: &Path, out: &mut dyn Write) -> Result<Answer> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|error| anyhow!("the system gives no random numbers: {error}"))?;
    let key = PrivateKey::from_random(&random);
    let public = beside(path, PUBLIC);
    create(&public, &key.public().to_text(), 0o644)?;
    if let Err(error) = create(path, &key.to_text(), 0o600) {
        // A public key without its private one is of no use.
        let _ = fs::remove_file(&public);
        return Err(error);
    }
    writeln!(out, "{} signs plans: keep it to yourself", path.display())?;
    writeln!(out, "{} is for whoever opens them: {}", public.display(), key.public())?;
    Ok(Answer::Yes)
}

/// Writes a file that is not there yet: a key is never replaced.
fn create(path: &Path, text: &str, mode: u32) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    let written = options.open(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.with_context(|| format!("cannot make {}", path.display()))
}

/// Where the code of an engine's kernels is to come from, for the plan of this file.
pub(crate) fn code_from(path: &Path, opening: &Opening) -> Result<CodeFrom> {
    let is_signed = opening.code == CodeSource::Signed;
    if !is_signed && (!opening.trusted_key.is_empty() || opening.signature.is_some()) {
        bail!("--trusted-key and --signature are for --code signed");
    }
    Ok(match opening.code {
        CodeSource::Plan => CodeFrom::Plan,
        CodeSource::Compile => CodeFrom::CompileHere,
        CodeSource::Signed => {
            if opening.trusted_key.is_empty() {
                bail!("--code signed needs the public keys that are trusted; add --trusted-key FILE");
            }
            if !load::is_plan(path) {
                bail!("--code signed is for a plan, {} is none; its code would be made here", path.display());
            }
            let keys = public_keys(&opening.trusted_key)?;
            let signature = opening.signature.clone().unwrap_or_else(|| beside(path, SIGNATURE));
            let signature = Box::new(read(&signature, "signature", Signature::parse)?);
            CodeFrom::Signed { keys, signature }
        }
    })
}

fn public_keys(paths: &[PathBuf]) -> Result<Vec<PublicKey>> {
    paths.iter().map(|path| read(path, "key", PublicKey::parse)).collect()
}

/// The file of this name with something after it.
fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(".");
    name.push(extension);
    PathBuf::from(name)
}

/// Reads a small file of ours.
fn read<T>(path: &Path, what: &str, parse: fn(&[u8]) -> Result<T, SignatureError>) -> Result<T> {
    let mut text = Vec::new();
    let most = MAX_SIGNATURE_FILE as u64 + 1;
    let read = File::open(path).and_then(|file| file.take(most).read_to_end(&mut text));
    read.with_context(|| format!("cannot read the {what} {}", path.display()))?;
    warn_of_mode(path, what, &text);
    parse(&text).with_context(|| path.display().to_string())
}

/// Says so where others can read a private key.
fn warn_of_mode(path: &Path, what: &str, text: &[u8]) {
    #[cfg(unix)]
    if what == "key" && PrivateKey::parse(text).is_ok() {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(path).map_or(0, |about| about.permissions().mode());
        if mode & 0o077 != 0 {
            say_note(&format!("others can read the private key {0}: chmod 600 {0}", path.display()));
        }
    }
    #[cfg(not(unix))]
    let _ = (path, what, text);
}
