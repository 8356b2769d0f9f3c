//! Processes that are killed, or asked to stop, at random moments.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;
use planish::{TimingCache, TimingEntry, TimingKey};
use rustix::process::{Pid, Signal, kill_process};

use super::Row;
use super::place::{INTERRUPTED, Place, grown_times, spoiled_plan};

/// How long a build may go on after it was asked to stop: the longest step between two looks at the flag.
const MAX_STOPPING: Duration = Duration::from_secs(10);

/// Of the processes that a part starts, at least one in so many must still be there when it is to be killed.
const MAX_STARTED: usize = 4;

/// What is wrong where fewer were killed than asked for: the others had ended before.
fn too_few(n_killed: usize, n: usize) -> Option<String> {
    (n_killed < n).then(|| format!("only {n_killed} of {n} could be killed"))
}

/// Builds with a timing cache, killed while they read, tune, check or write.
pub(crate) fn build(place: &Place, n: usize) -> Result<Vec<Row>> {
    let model = fs::read(place.path("small.onnx"))?;
    let line = "build small.onnx -o small.plan --timing-cache times --device cpu";
    let most = place.succeeds(line)?;
    let most_again = place.succeeds(line)?;
    fs::remove_file(place.path("times"))?;
    fs::remove_file(place.path("small.plan"))?;
    let mut times = TimingCache::default();
    let (mut n_killed, mut n_finished, mut losses) = (0, 0, Vec::new());
    for turn in 0..n * MAX_STARTED {
        if n_killed == n {
            break;
        }
        // From nothing every other time, so that many of them do measure.
        let is_new = turn % 2 == 0;
        if is_new {
            let _ = fs::remove_file(place.path("times"));
            times = TimingCache::default();
        }
        let was_there = fs::read(place.path("small.plan")).ok();
        let most = if is_new { most } else { most_again };
        let (killed, _) = place.stopped(line, most, |child| Ok(child.kill()?))?;
        n_killed += usize::from(killed);
        n_finished += usize::from(!killed);
        losses.extend(spoiled_plan(&place.path("small.plan")));
        if was_there.is_some() && !place.path("small.plan").exists() {
            losses.push("a plan that was there is gone".into());
        }
        match grown_times(&place.path("times"), &times) {
            Ok(now) => times = now,
            Err(loss) => losses.push(loss),
        }
        if fs::read(place.path("small.onnx"))? != model {
            losses.push("the model changed".into());
        }
    }
    place.succeeds(line)?;
    losses.extend(place.unfinished("").into_iter().map(|name| format!("{name} is left")));
    losses.extend(too_few(n_killed, n));
    let seen = format!("{n_finished} more had ended before; plans whole or absent, no time lost");
    Ok(vec![Row { fault: "build with a timing cache, killed".into(), n: n_killed, seen, losses }])
}

/// Plans of 47 MB, killed around the moment at which they are written.
pub(crate) fn write(place: &Place, n: usize) -> Result<Vec<Row>> {
    let line = "build large.onnx -o large.plan --tune-level 0 --no-verify --device cpu";
    let most = place.succeeds(line)?;
    let whole = fs::read(place.path("large.plan"))?;
    let (mut n_killed, mut n_part, mut losses) = (0, 0, Vec::new());
    for _ in 0..n * MAX_STARTED {
        if n_killed == n {
            break;
        }
        let killed = place.killed_writing(line, most)?;
        n_killed += usize::from(killed);
        n_part += usize::from(!place.unfinished("").is_empty());
        if fs::read(place.path("large.plan")).ok().as_ref() != Some(&whole) {
            losses.push("the plan that was there changed".into());
        }
    }
    place.succeeds(line)?;
    losses.extend(place.unfinished("").into_iter().map(|name| format!("{name} is left")));
    losses.extend(too_few(n_killed, n));
    let seen = format!("{n_part} while the file was being written; the old plan stayed");
    Ok(vec![Row { fault: "plan of 47 MB over an older one, killed".into(), n: n_killed, seen, losses }])
}

/// Benchmarks of models, killed while they build, fill the cache of plans, or run.
pub(crate) fn bench(place: &Place, n: usize) -> Result<Vec<Row>> {
    let line = "bench large.onnx --tune-level 0 --duration 100ms --warmup 1ms --device cpu";
    let most = place.succeeds(line)?;
    let plans = place.path("cache/planish/plans");
    let (mut n_killed, mut n_kept, mut losses) = (0, 0, Vec::new());
    for turn in 0..n * MAX_STARTED {
        if n_killed == n {
            break;
        }
        if turn % 3 == 0 {
            let _ = fs::remove_dir_all(&plans);
        }
        let (killed, _) = place.stopped(line, most, |child| Ok(child.kill()?))?;
        n_killed += usize::from(killed);
        for entry in fs::read_dir(&plans).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "plan") {
                n_kept += 1;
                losses.extend(spoiled_plan(&entry.path()));
            }
        }
    }
    let _ = fs::remove_dir_all(&plans);
    place.succeeds(line)?;
    losses.extend(place.unfinished("cache/planish/plans").into_iter().map(|name| format!("{name} is left")));
    losses.extend(too_few(n_killed, n));
    let seen = format!("{n_kept} cached plans met after them, all whole");
    Ok(vec![Row { fault: "bench that fills the cache of plans, killed".into(), n: n_killed, seen, losses }])
}

/// Timing caches of some megabytes, killed while they are joined.
pub(crate) fn timings(place: &Place, n: usize) -> Result<Vec<Row>> {
    for (name, device) in [("first", "cpu a"), ("second", "cpu b")] {
        let mut cache = TimingCache::default();
        for idx in 0..20_000 {
            let key =
                TimingKey { device: device.into(), problem: format!("problem {idx}"), tactic: "t@1".into() };
            cache.insert(key, TimingEntry { median_ns: idx, spread_ns: 0, n_samples: 3 });
        }
        cache.save(&place.path(name))?;
    }
    let before = TimingCache::load(&place.path("first"))?;
    let line = "timing merge second -o joined";
    fs::copy(place.path("first"), place.path("joined"))?;
    let most = place.succeeds(line)?;
    let (mut n_killed, mut n_joined, mut losses) = (0, 0, Vec::new());
    for _ in 0..n * MAX_STARTED {
        if n_killed == n {
            break;
        }
        fs::copy(place.path("first"), place.path("joined"))?;
        let (killed, _) = place.stopped(line, most, |child| Ok(child.kill()?))?;
        n_killed += usize::from(killed);
        match grown_times(&place.path("joined"), &before) {
            Ok(now) if now.len() == 40_000 => n_joined += 1,
            Ok(now) if now.len() == 20_000 => {}
            Ok(now) => losses.push(format!("{} times are there", now.len())),
            Err(loss) => losses.push(loss),
        }
    }
    place.succeeds(line)?;
    losses.extend(place.unfinished("").into_iter().map(|name| format!("{name} is left")));
    losses.extend(too_few(n_killed, n));
    let seen = format!("{n_joined} files joined by then; each old or new, never between");
    Ok(vec![Row { fault: "timing caches being joined, killed".into(), n: n_killed, seen, losses }])
}

/// Builds that are asked to stop, as Ctrl-C does.
pub(crate) fn interrupt(place: &Place, n: usize) -> Result<Vec<Row>> {
    let line = "build small.onnx -o asked.plan --timing-cache asked --device cpu";
    let most = place.succeeds(line)?;
    let (mut n_asked, mut longest, mut times, mut losses) =
        (0, Duration::ZERO, TimingCache::default(), Vec::new());
    for turn in 0..n {
        if turn % 4 == 0 {
            let _ = fs::remove_file(place.path("asked"));
            times = TimingCache::default();
        }
        let mut asked_at = None;
        let (asked, ended) = place.stopped(line, most, |child| {
            // A process that has not come to listen yet ends as any other does, by the signal itself.
            kill_process(Pid::from_child(child), Signal::INT)?;
            asked_at = Some(Instant::now());
            Ok(())
        })?;
        n_asked += usize::from(asked);
        longest = longest.max(asked_at.map_or(Duration::ZERO, |at| at.elapsed()));
        if ended.code.is_some() {
            losses.extend(ended.unlike(&[0, INTERRUPTED]));
        }
        losses.extend(place.unfinished("").into_iter().map(|name| format!("{name} is left")));
        losses.extend(spoiled_plan(&place.path("asked.plan")));
        match grown_times(&place.path("asked"), &times) {
            Ok(now) => times = now,
            Err(loss) => losses.push(loss),
        }
    }
    if longest > MAX_STOPPING {
        losses.push(format!("stopping took {:.1} s", longest.as_secs_f64()));
    }
    place.succeeds(line)?;
    let seen = format!(
        "{n_asked} asked, the slowest ended {:.2} s later; times kept, code 130",
        longest.as_secs_f64()
    );
    Ok(vec![Row { fault: "build, interrupted (Ctrl-C)".into(), n, seen, losses }])
}
