//! `planish timing`: timing caches shown, joined and compared.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use planish::{TimingCache, TimingEntry, TimingKey};
use serde_json::{Value, json};

use crate::args::{Timing, TimingDiff, TimingMerge, TimingShow};
use crate::ending::Answer;
use crate::print;

pub(crate) fn command(args: &Timing, out: &mut dyn Write) -> Result<Answer> {
    match args {
        Timing::Show(args) => show(args, out),
        Timing::Merge(args) => merge(args, out),
        Timing::Diff(args) => diff(args, out),
    }
}

fn show(args: &TimingShow, out: &mut dyn Write) -> Result<Answer> {
    let cache = TimingCache::load(&args.file)?;
    let wanted = |key: &TimingKey| {
        let texts = [&key.device, &key.problem, &key.tactic];
        args.filter.as_ref().is_none_or(|filter| texts.iter().any(|text| text.contains(filter)))
    };
    let mut problems: BTreeMap<(&str, &str), Vec<(&str, &TimingEntry)>> = BTreeMap::new();
    for (key, entry) in cache.iter().filter(|(key, _)| wanted(key)) {
        problems.entry((&key.device, &key.problem)).or_default().push((&key.tactic, entry));
    }
    for list in problems.values_mut() {
        list.sort_by_key(|(tactic, entry)| (entry.median_ns, *tactic));
    }
    if !args.json.replaces_tables() {
        let mut device = None;
        for ((of, problem), list) in &problems {
            if device.replace(of) != Some(of) {
                writeln!(out, "device  {of}")?;
            }
            writeln!(out, "\n{problem}")?;
            let row = |(tactic, entry): &(&str, &TimingEntry)| {
                vec![tactic.to_string(), time(entry.median_ns), spread(entry), samples(entry)]
            };
            print::table(out, &list.iter().map(row).collect::<Vec<_>>(), &[1, 2, 3])?;
        }
        let n_times: usize = problems.values().map(Vec::len).sum();
        let n_devices =
            problems.keys().map(|(device, _)| device).collect::<std::collections::BTreeSet<_>>().len();
        writeln!(out, "\n{n_times} times of {} problems on {n_devices} devices", problems.len())?;
    }
    let entry = |key: &TimingKey, entry: &TimingEntry| {
        json!({
            "device": key.device, "problem": key.problem, "tactic": key.tactic,
            "median_ns": entry.median_ns, "spread_ns": entry.spread_ns, "samples": entry.n_samples,
        })
    };
    let entries: Vec<Value> =
        cache.iter().filter(|(key, _)| wanted(key)).map(|(key, found)| entry(key, found)).collect();
    print::json(out, &args.json, &json!({ "entries": entries }))?;
    Ok(Answer::Yes)
}

fn merge(args: &TimingMerge, out: &mut dyn Write) -> Result<Answer> {
    let mut all = TimingCache::default();
    // From the shortest to the longest time that machines of one kind measured.
    let mut seen: BTreeMap<TimingKey, (u64, u64)> = BTreeMap::new();
    for path in &args.files {
        let other = TimingCache::load(path)?;
        for (key, entry) in other.iter() {
            let ends = seen.entry(key.clone()).or_insert((entry.median_ns, entry.median_ns));
            *ends = (ends.0.min(entry.median_ns), ends.1.max(entry.median_ns));
        }
        all.merge(&other);
    }
    seen.retain(|_, ends| apart(*ends) > args.threshold);
    let conflicts = seen;
    all.save(&args.output)?;
    let mut worst: Vec<(&TimingKey, (u64, u64))> = conflicts.iter().map(|(key, ends)| (key, *ends)).collect();
    worst.sort_by(|a, b| apart(b.1).total_cmp(&apart(a.1)).then_with(|| a.0.cmp(b.0)));
    let n_on = |device: &str| conflicts.keys().filter(|key| key.device == device).count();
    if !args.json.replaces_tables() {
        writeln!(out, "timings {} ({} times)", args.output.display(), print::count(all.len() as u64))?;
        for (device, n_times) in all.devices() {
            let said = match n_on(device) {
                0 => String::new(),
                n => format!(", {n} measured more than {} % apart", args.threshold),
            };
            writeln!(out, "device  {device}: {} times{said}", print::count(n_times as u64))?;
        }
        for (key, ends) in worst.iter().take(MAX_CONFLICTS) {
            let times = format!("{} to {}", time(ends.0), time(ends.1));
            let kept = all.get(key).map_or_else(String::new, |entry| time(entry.median_ns));
            writeln!(out, "apart   {times}, {kept} kept: {}  {}", key.tactic, key.problem)?;
        }
        if worst.len() > MAX_CONFLICTS {
            writeln!(out, "apart   {} more, in --json", worst.len() - MAX_CONFLICTS)?;
        }
    }
    let listed: Vec<Value> = worst
        .iter()
        .map(|(key, ends)| {
            json!({
                "device": key.device, "problem": key.problem, "tactic": key.tactic,
                "least_ns": ends.0, "most_ns": ends.1, "kept_ns": all.get(key).map(|entry| entry.median_ns),
            })
        })
        .collect();
    let report = json!({
        "output": args.output, "entries": all.len(), "devices": all.devices(), "conflicts": listed,
    });
    print::json(out, &args.json, &report)?;
    Ok(Answer::Yes)
}

/// Conflicts that a merge prints.
const MAX_CONFLICTS: usize = 8;

/// By how many percent the longer of two times is longer.
fn apart((least, most): (u64, u64)) -> f64 {
    (most as f64 / least.max(1) as f64 - 1.0) * 100.0
}

fn diff(args: &TimingDiff, out: &mut dyn Write) -> Result<Answer> {
    let (left, right) = (TimingCache::load(&args.left)?, TimingCache::load(&args.right)?);
    let diff = left.diff(&right);
    let percent = |left: &TimingEntry, right: &TimingEntry| {
        (right.median_ns as f64 / left.median_ns.max(1) as f64 - 1.0) * 100.0
    };
    let mut changed: Vec<_> = diff.changed.iter().map(|(key, a, b)| (percent(a, b), key, a, b)).collect();
    changed.retain(|(percent, ..)| percent.abs() > args.threshold);
    changed.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()).then_with(|| a.1.cmp(b.1)));
    let n_equal = diff.n_same + diff.changed.len() - changed.len();
    if !args.json.replaces_tables() {
        for (percent, key, a, b) in &changed {
            let times = format!("{} -> {}", time(a.median_ns), time(b.median_ns));
            writeln!(out, "{percent:+.0} %  {times}  {}  {}", key.tactic, key.problem)?;
        }
        let rows = [
            vec!["differ".to_string(), print::count(changed.len() as u64)],
            vec!["equal".to_string(), print::count(n_equal as u64)],
            vec![format!("only in {}", args.left.display()), print::count(diff.only_left.len() as u64)],
            vec![format!("only in {}", args.right.display()), print::count(diff.only_right.len() as u64)],
        ];
        print::table(out, &rows, &[1])?;
    }
    let listed: Vec<Value> = changed
        .iter()
        .map(|(percent, key, a, b)| {
            json!({
                "device": key.device, "problem": key.problem, "tactic": key.tactic,
                "left_ns": a.median_ns, "right_ns": b.median_ns, "percent": percent,
            })
        })
        .collect();
    let report = json!({
        "changed": listed, "equal": n_equal,
        "only_left": diff.only_left.len(), "only_right": diff.only_right.len(),
    });
    print::json(out, &args.json, &report)?;
    Ok(if changed.is_empty() { Answer::Yes } else { Answer::No })
}

/// Nanoseconds in the unit that suits them.
fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

fn spread(entry: &TimingEntry) -> String {
    format!("±{:.1} %", 50.0 * entry.spread_ns as f64 / entry.median_ns.max(1) as f64)
}

fn samples(entry: &TimingEntry) -> String {
    format!("{} samples", entry.n_samples)
}
