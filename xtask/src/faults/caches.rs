//! Caches that are cut, flipped or somebody else's, and caches that eight processes use at once.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;

use anyhow::{Context, Result};
use planish::TimingCache;

use super::Row;
use super::place::{Ended, Place};

/// Nobody's number on most systems: only the administrator can give files away to it.
const SOMEBODY: u32 = 65534;

/// The one plan in the cache.
fn cached_plan(place: &Place) -> Result<PathBuf> {
    let entries = fs::read_dir(place.path("cache/planish/plans"))?.flatten();
    let mut plans =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "plan"));
    plans.next().context("the cache of plans is empty")
}

/// Caches that are not what was written there.
pub(crate) fn damaged(place: &Place, n: usize) -> Result<Vec<Row>> {
    let line = "run small.onnx --tune-level 0 --device cpu --random 1 -o y.npz";
    let _ = fs::remove_dir_all(place.path("cache"));
    place.succeeds(line)?;
    let wanted = fs::read(place.path("y.npz"))?;
    let mut rows = Vec::new();
    let (mut n_said, mut losses) = (0, Vec::new());
    for turn in 0..n {
        let path = cached_plan(place)?;
        let mut bytes = fs::read(&path)?;
        let at = place.below(bytes.len() as u64) as usize;
        match turn % 2 {
            0 => bytes.truncate(at),
            _ => bytes[at] ^= 1 << place.below(8),
        }
        fs::write(&path, bytes)?;
        let ended = place.runs(line)?;
        losses.extend(ended.unlike(&[0]));
        n_said += usize::from(ended.stderr.contains("a cached plan cannot be used and is removed"));
        if fs::read(place.path("y.npz"))? != wanted {
            losses.push(format!("other outputs from a plan that was changed at byte {at}"));
        }
    }
    if n_said != n {
        losses.push(format!("{n_said} of {n} were said to be unusable"));
    }
    let seen = format!("{n_said} seen, said and built again; the same outputs");
    rows.push(Row { fault: "cached plan cut or a bit flipped".into(), n, seen, losses });
    rows.push(timings(place, n)?);
    rows.push(somebody_elses(place, line, &wanted)?);
    Ok(rows)
}

/// Timing caches are text: what cannot be read is named by its line, and the file stays as it is.
fn timings(place: &Place, n: usize) -> Result<Row> {
    let line = "build small.onnx -o t.plan --timing-cache t --tune-level 1 --device cpu";
    let _ = fs::remove_file(place.path("t"));
    place.succeeds(line)?;
    let whole = fs::read(place.path("t"))?;
    let (mut n_refused, mut losses) = (0, Vec::new());
    for turn in 0..n {
        let mut bytes = whole.clone();
        let at = place.below(bytes.len() as u64) as usize;
        match turn % 2 {
            0 => bytes.truncate(at),
            _ => bytes[at] ^= 1 << place.below(8),
        }
        fs::write(place.path("t"), &bytes)?;
        let ended = place.runs(line)?;
        losses.extend(ended.unlike(&[0, 2]));
        n_refused += usize::from(ended.code == Some(2));
        if ended.code == Some(2) && fs::read(place.path("t"))? != bytes {
            losses.push("a file that could not be read was changed".into());
        }
    }
    fs::write(place.path("t"), whole)?;
    place.succeeds(line)?;
    let seen = format!("{n_refused} named by their line with code 2, the others could be read");
    Ok(Row { fault: "timing cache cut or a bit flipped".into(), n, seen, losses })
}

/// Folders and files that somebody else could have written.
fn somebody_elses(place: &Place, line: &str, wanted: &[u8]) -> Result<Row> {
    let _ = fs::remove_dir_all(place.path("cache"));
    place.succeeds(line)?;
    let folder = place.path("cache/planish/plans");
    let plan = cached_plan(place)?;
    let allow = |path: &PathBuf, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    let (mut n, mut losses) = (0, Vec::new());
    let mut tried = |what: &str| -> Result<()> {
        n += 1;
        let before = fs::read(&plan)?;
        let ended = place.runs(line)?;
        losses.extend(ended.unlike(&[0]).map(|loss| format!("{what}: {loss}")));
        if !ended.stderr.contains("the cache of plans is not used: ") {
            losses.push(format!("{what}: nothing is said: {}", ended.stderr));
        }
        if fs::read(place.path("y.npz"))? != wanted || fs::read(&plan)? != before {
            losses.push(format!("{what}: outputs or the cache changed"));
        }
        Ok(())
    };
    allow(&folder, 0o777)?;
    tried("folder that all may write")?;
    allow(&folder, 0o700)?;
    allow(&plan, 0o666)?;
    tried("plan that all may write")?;
    allow(&plan, 0o644)?;
    if chown(&plan, Some(SOMEBODY), None).is_ok() {
        tried("plan of somebody else")?;
        chown(&folder, Some(SOMEBODY), None)?;
        tried("folder of somebody else")?;
        // Back to whoever owns the folder above.
        use std::os::unix::fs::MetadataExt;
        let own = fs::metadata(place.path("cache"))?.uid();
        chown(&folder, Some(own), None)?;
        chown(&plan, Some(own), None)?;
    }
    let ended = place.runs(line)?;
    if !ended.stderr.contains("taken from the cache") {
        losses.push(format!("the cache is not used again: {}", ended.stderr));
    }
    let seen = "left alone, said, and used again once mended".to_string();
    Ok(Row { fault: "cache of plans that somebody else owns or may write".into(), n, seen, losses })
}

/// Several processes on one cache of plans and one of times.
pub(crate) fn shared(place: &Place, n: usize) -> Result<Vec<Row>> {
    let _ = fs::remove_dir_all(place.path("cache"));
    let _ = fs::remove_file(place.path("together"));
    // Other sizes, so that each has times of its own to add.
    let together = |idx: usize, more: &str| {
        let shapes = format!("x:{}x32x32x3", idx + 1);
        format!(
            "build small.onnx --timing-cache together --tune-level 1 --device cpu --shapes {shapes} {more}"
        )
    };
    let mut losses = Vec::new();
    let mut children = Vec::new();
    for idx in 0..n {
        children.push(place.command(&together(idx, &format!("-o p{idx}.plan"))).spawn()?);
        let run = format!("run small.onnx --tune-level 0 --device cpu --random 1 -o p{idx}.npz");
        children.push(place.command(&run).spawn()?);
    }
    for child in children {
        losses.extend(Ended::of(child.wait_with_output()?).unlike(&[0]));
    }
    let outputs: Vec<_> = (0..n).map(|idx| fs::read(place.path(&format!("p{idx}.npz"))).ok()).collect();
    if outputs.iter().any(|output| output.is_none() || *output != outputs[0]) {
        losses.push("outputs differ".into());
    }
    // Every build's times are there: each finds all of its own.
    for idx in 0..n {
        losses.extend(super::place::spoiled_plan(&place.path(&format!("p{idx}.plan"))));
        losses.extend(place.runs(&together(idx, "-o again.plan --timing-cache-only"))?.unlike(&[0]));
    }
    let n_times = TimingCache::load(&place.path("together"))?.len();
    for folder in ["", "cache/planish/plans"] {
        losses.extend(place.unfinished(folder).into_iter().map(|name| format!("{name} is left")));
    }
    let seen = format!("all end well, equal outputs, {n_times} times of all builds in one file");
    let fault = format!("{n} builds and {n} runs at once on one cache");
    Ok(vec![Row { fault, n: 2 * n, seen, losses }])
}
