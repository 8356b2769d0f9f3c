//! Disks that fill up, limits on files, and limits on memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Row;
use super::place::{Ended, LACKING, Place};

/// A small disk, while it lives.
struct Disk(PathBuf);

impl Disk {
    /// `None` where this user may mount nothing.
    fn mount(at: PathBuf, kilobytes: u64) -> Result<Option<Disk>> {
        fs::create_dir_all(&at)?;
        let size = format!("size={kilobytes}k");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&at).output();
        Ok(mounted.is_ok_and(|output| output.status.success()).then_some(Disk(at)))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// What is in a folder, by name.
fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    Ok(entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

/// Files that do not fit: on a disk of a few kilobytes where one can be mounted, and by a limit on files.
pub(crate) fn disk(place: &Place, n: usize) -> Result<Vec<Row>> {
    let lines = [
        "build small.onnx -o disk/x.plan --tune-level 0 --no-verify --device cpu",
        "zoo cifar_cnn -o disk/x.onnx",
        "run small.onnx --no-cache --device cpu --shapes x:512x32x32x3 -o disk/x.npz",
        "run small.onnx --no-cache --device cpu --shapes x:512x32x32x3 -o disk/out",
        "timing merge wide -o disk/times",
    ];
    let mut text = String::from("planish timings 1\n");
    (0..4000).for_each(|idx| text.push_str(&format!("cpu a\tproblem {idx}\tt@1\t{idx}\t0\t3\n")));
    fs::write(place.path("wide"), text)?;
    let mut rows = Vec::new();
    for way in ["full disk", "limit on the size of files"] {
        let (mut n_refused, mut n_tried, mut losses) = (0, 0, Vec::new());
        for turn in 0..n {
            // From 4 kB to 16 MB: outputs take 20 kB, times 100 kB, plans and models 13 MB.
            let kilobytes = 4u64 << place.below(13);
            let is_disk = way == "full disk";
            let disk = match is_disk {
                true => Disk::mount(place.path("disk"), kilobytes)?,
                false => None,
            };
            if is_disk && disk.is_none() {
                break;
            }
            fs::create_dir_all(place.path("disk"))?;
            let line = lines[turn % lines.len()];
            let mut command = match is_disk {
                true => place.command(line),
                // In blocks of 512 bytes, as POSIX has it.
                false => place.limited(&format!("-f {}", 2 * kilobytes), line),
            };
            let ended = Ended::of(command.output()?);
            n_tried += 1;
            n_refused += usize::from(ended.code == Some(LACKING));
            losses.extend(ended.unlike(&[0, LACKING]).map(|loss| format!("{line}: {loss}")));
            let mut left = names(&place.path("disk"))?;
            if ended.code == Some(LACKING) {
                // The folder for outputs may have been made; nothing may be in it.
                let is_empty =
                    |name: &String| names(&place.path("disk").join(name)).is_ok_and(|list| list.is_empty());
                left.retain(|name| !is_empty(name));
                losses.extend(left.into_iter().map(|name| format!("{line}: {name} is left")));
            }
            drop(disk);
            fs::remove_dir_all(place.path("disk"))?;
        }
        let seen = match n_tried {
            0 => "not tried: this user may mount nothing".to_string(),
            _ => format!("{n_refused} refused with code 3, the rest fitted; nothing left after"),
        };
        rows.push(Row { fault: way.into(), n: n_tried, seen, losses });
    }
    rows.push(full_cache(place)?);
    Ok(rows)
}

/// A cache that cannot be written costs time, nothing else.
fn full_cache(place: &Place) -> Result<Row> {
    let line = "run small.onnx --tune-level 0 --device cpu --random 1 -o full.npz";
    place.succeeds(line)?;
    let wanted = fs::read(place.path("full.npz"))?;
    let mut losses = Vec::new();
    let Some(_disk) = Disk::mount(place.path("small_cache"), 64)? else {
        let seen = "not tried: this user may mount nothing".to_string();
        return Ok(Row { fault: "full disk under the cache of plans".into(), n: 0, seen, losses });
    };
    let mut command = place.command(line);
    let ended = Ended::of(command.env("XDG_CACHE_HOME", place.path("small_cache")).output()?);
    losses.extend(ended.unlike(&[0]));
    if !ended.stderr.contains("the plan is not cached") {
        losses.push(format!("nothing is said: {}", ended.stderr));
    }
    if fs::read(place.path("full.npz"))? != wanted {
        losses.push("the outputs changed".into());
    }
    let left = names(&place.path("small_cache/planish/plans"))?;
    losses.extend(left.into_iter().map(|name| format!("{name} is left")));
    let seen = "the run ends well and says that nothing is cached".to_string();
    Ok(Row { fault: "full disk under the cache of plans".into(), n: 1, seen, losses })
}

/// The peak of a command's address space in kilobytes, found by halving.
fn enough_memory(place: &Place, line: &str) -> Result<u64> {
    let fits = |kilobytes: u64| -> Result<bool> {
        let output = place.limited(&format!("-v {kilobytes}"), line).output()?;
        Ok(output.status.code() == Some(0))
    };
    let (mut low, mut high) = (8 << 10, 16 << 20);
    ensure!(fits(high)?, "`planish {line}` does not fit into 16 GB");
    while high - low > 16 << 10 {
        let middle = (low + high) / 2;
        if fits(middle)? { high = middle } else { low = middle }
    }
    Ok(high)
}

/// Address space that ends at a random point of a build or a run.
pub(crate) fn memory(place: &Place, n: usize) -> Result<Vec<Row>> {
    let lines = [
        "build small.onnx -o m.plan --tune-level 1 --device cpu",
        "build large.onnx -o m.plan --tune-level 0 --no-verify --device cpu",
        "run large.onnx --no-cache --tune-level 0 --device cpu --random 1",
    ];
    let (mut n_refused, mut losses) = (0, Vec::new());
    for line in lines {
        let most = enough_memory(place, line)?;
        for _ in 0..n / lines.len() {
            // A program needs some 20 MB to start at all.
            let kilobytes = (20 << 10) + place.below(most - (20 << 10));
            let output = place.limited(&format!("-v {kilobytes}"), line).output()?;
            let ended = Ended::of(output);
            n_refused += usize::from(ended.code == Some(LACKING));
            let at = |loss: String| format!("{line} at {} MB: {loss}", kilobytes >> 10);
            losses.extend(ended.unlike(&[0, LACKING]).map(at));
            losses.extend(super::place::spoiled_plan(&place.path("m.plan")));
        }
        place.succeeds(line)?;
    }
    losses.extend(place.unfinished("").into_iter().map(|name| format!("{name} is left")));
    let seen = format!("{n_refused} refused with code 3 and one line, the rest fitted");
    Ok(vec![Row { fault: "limit on memory at a random point".into(), n: n / 3 * 3, seen, losses }])
}
