//! The tests as plans on a device, in processes of their own: a kernel that reads where it must not takes its process's
//! device with it, and is to fail one test.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use planish::{Device, NetworkBuilder};

use super::case::{self, Outcome, Placed, Stage};
use super::gaps::Gaps;
use super::{Options, Test};

/// A test that says nothing for so long hangs: the slowest compile one kernel for some seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Mismatches that are printed.
const MAX_LINES: usize = 20;
/// Operators that stay on the host are listed up to this many.
const MAX_OPS: usize = 30;

/// Begins the line that says that a test begins, that it ended, that all have.
const BEGIN: &str = "@";
const END: &str = "=";
const DONE: &str = "@done";

/// How one test ended, as a line tells it.
#[derive(Clone, PartialEq, Debug, Default)]
struct Line {
    status: String,
    why: String,
    placed: Placed,
}

impl Line {
    fn text(&self) -> String {
        let Placed { n_device, on_host, code } = &self.placed;
        let why = self.why.replace(['\t', '\n', '\r'], " ");
        format!("{}\t{n_device}\t{}\t{}\t{why}", self.status, on_host.join(","), code.join(","))
    }

    fn read(text: &str) -> Option<Line> {
        let list = |text: &str| text.split(',').filter(|one| !one.is_empty()).map(str::to_string).collect();
        let mut fields = text.split('\t');
        let status = fields.next()?.to_string();
        let n_device = fields.next()?.parse().ok()?;
        let placed = Placed { n_device, on_host: list(fields.next()?), code: list(fields.next()?) };
        Some(Line { status, placed, why: fields.next()?.to_string() })
    }
}

/// What one process does: every `n_parts`-th test from its own on, but none before `first`.
pub(super) fn child(
    tests: &[Test],
    device: Device,
    part: usize,
    n_parts: usize,
    first: usize,
) -> Result<bool> {
    for (idx, test) in tests.iter().enumerate().skip(first) {
        if idx % n_parts != part {
            continue;
        }
        println!("{BEGIN}\t{idx}");
        let report = case::run(&test.folder, Stage::Plan, device);
        let (status, why) = match report.outcome {
            Outcome::Passed => ("passed", String::new()),
            Outcome::Failed(why) => ("failed", why),
            Outcome::Unsupported(why) => ("unsupported", why),
        };
        let placed = report.placed.unwrap_or_default();
        println!("{END}\t{}", Line { status: status.to_string(), why, placed }.text());
        // Whatever failed, this process's device may be of no use any more.
        if status == "failed" && !works(device) {
            return Ok(false);
        }
    }
    println!("{DONE}");
    Ok(true)
}

/// Whether the device still computes one sum.
fn works(device: Device) -> bool {
    let add = || -> Result<bool> {
        let mut net = NetworkBuilder::new("works");
        let x = net.input("x", planish::DType::F32, "4")?;
        let y = net.add(x, x)?;
        net.output("y", y)?;
        let mut builder = planish::Builder::from_network(net)?.tune_level(0).threads(1).device(device);
        builder.options_mut().verify = false;
        let engine = planish::Engine::new(builder.build()?, device)?;
        let x = planish_tensor::Tensor::new(&[4], vec![1.0f32, 2.0, 3.0, 4.0])?;
        let outputs = engine.context()?.run_values(&[planish_op::Value::Tensor(x)])?;
        let y = outputs.first().and_then(planish_op::Value::as_tensor).context("no output")?;
        Ok(y.to_f64s() == [2.0, 4.0, 6.0, 8.0])
    };
    add().unwrap_or(false)
}

/// Runs all tests in processes side by side, prints what came of it, and gives whether nothing failed that should not.
pub(super) fn run(
    tests: &[Test],
    device: Device,
    gaps: &Gaps,
    data: &Path,
    options: &Options,
) -> Result<bool> {
    // Says what is missing once, and not for every test.
    let described = device.describe()?;
    let n_cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let n_parts = options.jobs.unwrap_or(n_cores).clamp(1, tests.len());
    let began = Instant::now();
    let mut lines: Vec<Line> = vec![Line::default(); tests.len()];
    let ended = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..n_parts)
            .map(|part| scope.spawn(move || part_of(tests, device, data, options, part, n_parts)))
            .collect();
        let joined = parts.into_iter().map(|part| part.join().unwrap_or_else(|_| Ok(Vec::new())));
        joined.collect::<Result<Vec<_>>>()
    })?;
    for (idx, line) in ended.into_iter().flatten() {
        lines[idx] = line;
    }
    Ok(report(tests, &lines, gaps, &format!("{device} ({described})"), began.elapsed()))
}

/// Starts a process for a part of the tests, and another one after a test that took it away.
fn part_of(
    tests: &[Test],
    device: Device,
    data: &Path,
    options: &Options,
    part: usize,
    n_parts: usize,
) -> Result<Vec<(usize, Line)>> {
    let mut ended = Vec::new();
    let mut first = 0;
    while first < tests.len() {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["conformance", "--device", &device.to_string(), "--filter", &options.filter, "--data"]);
        command.arg(data).args(["--part", &format!("{part}/{n_parts}/{first}")]);
        if let Some(suite) = &options.suite {
            command.args(["--suite", suite]);
        }
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let (at, is_done) = follow(&mut process, &mut ended)?;
        if is_done {
            break;
        }
        first = at.map_or(tests.len(), |at| at + 1);
    }
    Ok(ended)
}

/// Reads what a process says until it is done, gone or silent: the last test that it began, and whether all ended.
fn follow(process: &mut Child, ended: &mut Vec<(usize, Line)>) -> Result<(Option<usize>, bool)> {
    let output = process.stdout.take().context("the process has no output")?;
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    let (mut at, mut open, mut is_done) = (None, false, false);
    let why = loop {
        match receive.recv_timeout(PATIENCE) {
            Ok(line) if line == DONE => is_done = true,
            Ok(line) => match line.split_once('\t') {
                Some((BEGIN, idx)) => (at, open) = (idx.parse::<usize>().ok(), true),
                Some((END, text)) => {
                    if let (Some(at), Some(line)) = (at, Line::read(text)) {
                        ended.push((at, line));
                    }
                    open = false;
                }
                _ => {}
            },
            Err(RecvTimeoutError::Timeout) => {
                process.kill()?;
                break "hangs";
            }
            Err(RecvTimeoutError::Disconnected) => break "ends its process",
        }
    };
    process.wait()?;
    if let (true, Some(at)) = (open, at) {
        let line = Line { status: "failed".to_string(), why: why.to_string(), placed: Placed::default() };
        ended.push((at, line));
    }
    Ok((at, is_done))
}

/// Where the steps of a test's plan run.
fn place(placed: &Placed) -> &'static str {
    match (placed.n_device, placed.on_host.len()) {
        (0, 0) => "nothing to run",
        (0, _) => "on the CPU",
        (_, 0) => "on the device",
        _ => "on both",
    }
}

fn report(tests: &[Test], lines: &[Line], gaps: &Gaps, device: &str, took: Duration) -> bool {
    let mut table: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    let mut on_host: BTreeMap<&str, usize> = BTreeMap::new();
    let mut code: BTreeSet<&str> = BTreeSet::new();
    let (mut wrong, mut n_gaps) = (Vec::new(), 0);
    for (test, line) in tests.iter().zip(lines) {
        let status = if line.status.is_empty() { "not run" } else { line.status.as_str() };
        if status != "passed" && gaps.reason(&test.name).is_some() {
            n_gaps += 1;
            continue;
        }
        *table.entry(place(&line.placed)).or_default().entry(status).or_default() += 1;
        let ops: BTreeSet<&str> = line.placed.on_host.iter().map(String::as_str).collect();
        ops.into_iter().for_each(|op| *on_host.entry(op).or_default() += 1);
        code.extend(line.placed.code.iter().map(String::as_str));
        if status != "passed" {
            wrong.push(format!("{}: {status}: {}", test.name, line.why));
        }
    }
    println!("{:<16} {:>8} {:>8} {:>8}", "steps", "passed", "failed", "other");
    for (place, counts) in &table {
        let count = |status: &str| counts.get(status).copied().unwrap_or(0);
        let all: usize = counts.values().sum();
        let (passed, failed) = (count("passed"), count("failed"));
        println!("{place:<16} {passed:>8} {failed:>8} {:>8}", all - passed - failed);
    }
    let mut kept: Vec<(&str, usize)> = on_host.into_iter().collect();
    kept.sort_by_key(|&(op, n)| (std::cmp::Reverse(n), op));
    let listed: Vec<String> = kept.iter().take(MAX_OPS).map(|(op, n)| format!("{op} {n}")).collect();
    println!("on the CPU, by tests: {}{}", listed.join(", "), if kept.len() > MAX_OPS { ", …" } else { "" });
    println!(
        "{} tests, {n_gaps} expected gaps, {} surprises; {} pieces of code; {:.0} s on {device}",
        tests.len(),
        wrong.len(),
        code.len(),
        took.as_secs_f64()
    );
    for line in wrong.iter().take(MAX_LINES) {
        println!("  {}", line.chars().take(300).collect::<String>());
    }
    if wrong.len() > MAX_LINES {
        println!("  and {} more", wrong.len() - MAX_LINES);
    }
    wrong.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back() {
        let placed = Placed {
            n_device: 3,
            on_host: vec!["NonZero".into(), "Conv Relu".into()],
            code: vec!["ab".into(), "cd".into()],
        };
        let line = Line { status: "failed".into(), why: "output 0\tis\nanother".into(), placed };
        let back = Line::read(&line.text()).unwrap();
        assert_eq!((back.placed.clone(), back.why.as_str()), (line.placed, "output 0 is another"));
        let passed = Line { status: "passed".into(), ..Line::default() };
        assert_eq!(Line::read(&passed.text()), Some(passed));
        assert_eq!(Line::read("passed"), None);
    }
}
