//! `cargo xtask conformance`: ONNX's own backend tests, from the data that the package `onnx` carries.

pub(crate) mod case;
mod device;
mod gaps;
mod quantized;
mod slow;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

use crate::python::unpacked_wheel;
use case::{Outcome, Stage};
use gaps::Gaps;

/// The last release whose wheels carry the node tests.
const PACKAGE: &str = "onnx==1.22.0";

/// Every so many tests are built by the program itself.
const COMMAND_SAMPLE: usize = 20;

const SUITES: [&str; 4] = ["node", "simple", "pytorch-operator", "pytorch-converted"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run plans on this device (cpu, cuda, cuda:1), in processes that a failing kernel may take with it; what the
    /// device has no kernel for runs on the CPU, and is counted.
    #[arg(long)]
    device: Option<planish::Device>,
    /// Processes of --device; as many as there are cores if not given.
    #[arg(long)]
    jobs: Option<usize>,
    /// What one of these processes is to run: its number, how many there are, and the first test.
    #[arg(long, hide = true, value_delimiter = '/')]
    part: Vec<usize>,
    /// The folder of the tests (with `node` in it), where the package cannot be fetched.
    #[arg(long)]
    data: Option<PathBuf>,
    /// How far the models are compiled before they run: as imported, after the passes, as a plan that was written
    /// and read back, as such a plan with the self-check, the same with open sizes, or by the program itself.
    #[arg(long, default_value = "raw")]
    stage: Stage,
    /// Only tests whose name contains this text.
    #[arg(long, default_value = "")]
    filter: String,
    /// Only this suite: node, simple, pytorch-operator or pytorch-converted.
    #[arg(long)]
    suite: Option<String>,
    /// Only tests of quantization (Q/DQ, QLinear and Integer operators), as plans, and a list of what of them runs on the
    /// reference or in floats.
    #[arg(long)]
    quantized: bool,
    /// Run the tests as plans, and list the steps that no kernel computes, by operator and types.
    #[arg(long)]
    reference: bool,
    /// Print one line per operator instead of the failing ones alone.
    #[arg(long)]
    per_op: bool,
    /// Print one line per failing test, expected gaps included.
    #[arg(long, short)]
    verbose: bool,
}

impl Options {
    /// All tests on the reference at a stage.
    pub(crate) fn at_stage(stage: Stage) -> Options {
        Options {
            stage,
            device: None,
            jobs: None,
            part: Vec::new(),
            data: None,
            filter: String::new(),
            suite: None,
            quantized: false,
            reference: false,
            per_op: false,
            verbose: false,
        }
    }
}

/// One test of the data.
struct Test {
    suite: &'static str,
    name: String,
    folder: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let data = match &options.data {
        Some(data) => data.clone(),
        None => unpacked_wheel(PACKAGE)?.join("onnx/backend/test/data"),
    };
    let mut tests = tests(&data, options)?;
    if options.stage == Stage::Command && options.filter.is_empty() {
        // A process each: the stages before have tried all of them.
        tests = tests.into_iter().step_by(COMMAND_SAMPLE).collect();
    }
    if tests.is_empty() {
        bail!("no test matches the filter `{}`", options.filter);
    }
    let stage = match options.stage {
        Stage::Raw | Stage::Optimized if options.quantized || options.reference => Stage::Plan,
        stage => stage,
    };
    let gaps = Gaps::load()?;
    match (options.device, &options.part[..]) {
        (Some(on), &[part, n_parts, first]) => return device::child(&tests, on, part, n_parts, first),
        (Some(on), _) => return device::run(&tests, on, &gaps, &data, options),
        (None, _) => {}
    }
    let outcomes = run_all(&tests, stage);
    let is_partial = options.quantized
        || !options.filter.is_empty()
        || options.suite.is_some()
        || options.stage == Stage::Command;
    let passes = report(&tests, &outcomes, &gaps, options, is_partial);
    if options.quantized {
        quantized::list(&tests, &outcomes);
    }
    if options.reference {
        slow::list(&tests, &outcomes);
    }
    Ok(passes)
}

fn tests(data: &Path, options: &Options) -> Result<Vec<Test>> {
    let mut tests = Vec::new();
    if let Some(suite) = &options.suite
        && !SUITES.contains(&suite.as_str())
    {
        bail!("no suite is called `{suite}`; there are {}", SUITES.join(", "));
    }
    for suite in
        SUITES.into_iter().filter(|suite| options.suite.as_ref().is_none_or(|wanted| wanted == suite))
    {
        let folder = data.join(suite);
        let entries =
            std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let folder = entry?.path();
            let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let is_wanted = name.contains(&options.filter) && folder.join("model.onnx").is_file();
            if is_wanted && (!options.quantized || quantized::is_quantized(&folder)) {
                tests.push(Test { suite, name, folder });
            }
        }
    }
    tests.sort_by(|a, b| (a.suite, &a.name).cmp(&(b.suite, &b.name)));
    Ok(tests)
}

/// The outcome of each test, in order; spread over all cores.
fn run_all(tests: &[Test], stage: Stage) -> Vec<case::Report> {
    let next = AtomicUsize::new(0);
    let reports: Mutex<Vec<Option<case::Report>>> = Mutex::new(tests.iter().map(|_| None).collect());
    let n_threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let bar = bar(tests.len(), stage);
    std::thread::scope(|scope| {
        for _ in 0..n_threads {
            scope.spawn(|| {
                while let Some((idx, test)) = {
                    let idx = next.fetch_add(1, Ordering::Relaxed);
                    tests.get(idx).map(|test| (idx, test))
                } {
                    let report = case::run(&test.folder, stage, planish::Device::Cpu);
                    reports.lock().expect("no test thread panics while it holds the lock")[idx] =
                        Some(report);
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let reports = reports.into_inner().expect("all threads have ended");
    reports.into_iter().map(|report| report.expect("every index was taken")).collect()
}

/// How far the tests are, where standard error is a terminal.
fn bar(n_tests: usize, stage: Stage) -> ProgressBar {
    let template = "{msg} [{bar:30}] {pos} of {len}, {elapsed}, {eta} left";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(n_tests as u64)
        .with_style(style.progress_chars("=> "))
        .with_message(format!("conformance, {stage}"))
}

#[derive(Default)]
struct Count {
    passed: usize,
    failed: usize,
    unsupported: usize,
}

impl Count {
    fn add(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed(_) => self.failed += 1,
            Outcome::Unsupported(_) => self.unsupported += 1,
        }
    }

    fn line(&self, name: &str) -> String {
        let total = self.passed + self.failed + self.unsupported;
        format!("{name:<28} {:>6} {:>6} {:>6} {total:>6}", self.passed, self.failed, self.unsupported)
    }
}

/// Prints the tables; whether outcomes and expected gaps agree.
fn report(
    tests: &[Test],
    reports: &[case::Report],
    gaps: &Gaps,
    options: &Options,
    is_partial: bool,
) -> bool {
    let mut by_op: BTreeMap<&str, Count> = BTreeMap::new();
    let mut by_suite: BTreeMap<&str, Count> = BTreeMap::new();
    let mut surprises = Vec::new();
    let mut n_expected = 0;
    for (test, report) in tests.iter().zip(reports) {
        by_op.entry(&report.op).or_default().add(&report.outcome);
        by_suite.entry(test.suite).or_default().add(&report.outcome);
        let why = match &report.outcome {
            Outcome::Passed => None,
            Outcome::Failed(why) => Some(format!("failed: {why}")),
            Outcome::Unsupported(why) => Some(format!("unsupported: {why}")),
        };
        match (why, gaps.reason(&test.name)) {
            (None, None) => {}
            (None, Some(_)) => surprises.push(format!("{}: passes, but is listed as a gap", test.name)),
            (Some(why), None) => surprises.push(format!("{}: {why}", test.name)),
            (Some(why), Some(reason)) => {
                n_expected += 1;
                if options.verbose {
                    println!("gap {}: {why} [{reason}]", test.name);
                }
            }
        }
    }
    if !is_partial {
        let names: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
        surprises.extend(
            gaps.stale(&names).map(|name| format!("{name}: listed as a gap, but there is no such test")),
        );
    }
    println!("{:<28} {:>6} {:>6} {:>6} {:>6}", "operator", "passed", "failed", "unsup.", "total");
    for (op, count) in &by_op {
        if options.per_op || count.failed + count.unsupported > 0 {
            println!("{}", count.line(op));
        }
    }
    println!();
    for (suite, count) in &by_suite {
        println!("{}", count.line(suite));
    }
    println!("\n{n_expected} expected gaps, {} surprises ({})", surprises.len(), options.stage);
    for surprise in &surprises {
        println!("  {surprise}");
    }
    surprises.is_empty()
}
