//! `cargo xtask malformed`: every malformed model of the readers' tests through `planish build`, as a user would meet it:
//! one line, the right exit code, no plan, soon, in little memory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// The folder that the tests of the readers write their files to.
const FOLDER: &str = "PLANISH_MALFORMED_TO";
/// For one file, on a slow and loaded machine.
const MAX_TIME: Duration = Duration::from_secs(30);
/// Address space of one build, which the shell limits. One of the models has an output of 160 MB, which the self-check
/// holds several times.
const MAX_MEMORY: u64 = 2 << 30;
/// Files cut and changed at every byte (the tests of the module `damaged`) are many and alike: so many of them are taken,
/// evenly.
const MAX_DAMAGED: usize = 1500;
/// Codes that a build may end with: built, and refused.
const EXPECTED: [i32; 2] = [0, 2];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The `planish` to try; built here in release mode if not given.
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// How one build ended.
struct Ended {
    name: String,
    code: Option<i32>,
    took: Duration,
    /// The most memory that was seen in use.
    peak: u64,
    /// What is wrong with it.
    wrong: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let binary = match &options.binary {
        Some(binary) => binary.canonicalize().with_context(|| format!("{}", binary.display()))?,
        None => crate::faults::release_binary()?,
    };
    let folder = crate::scratch().join("malformed");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let mut tests = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    tests.args(["test", "-q", "-p", "planish-onnx", "-p", "planish-import", "--test", "malformed"]);
    let status = tests.env(FOLDER, &folder).current_dir(crate::root()).stdout(Stdio::null()).status()?;
    ensure!(status.success(), "the readers' own tests fail");
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)?.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let n_written = files.len();
    let is_damaged = |file: &PathBuf| file.to_string_lossy().contains("damaged_");
    let (damaged, mut files): (Vec<PathBuf>, Vec<PathBuf>) = files.into_iter().partition(is_damaged);
    let every = damaged.len().div_ceil(MAX_DAMAGED).max(1);
    files.extend(damaged.into_iter().step_by(every));
    ensure!(!files.is_empty(), "the readers' tests wrote no files");

    let next = AtomicUsize::new(0);
    let all = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for worker in 0..thread::available_parallelism().map_or(2, usize::from) {
            let (binary, files, folder, next, all) = (&binary, &files, &folder, &next, &all);
            scope.spawn(move || {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let ended = build(binary, file, &folder.join(format!("{worker}.plan")));
                    all.lock().unwrap_or_else(PoisonError::into_inner).push(ended);
                }
            });
        }
    });
    let all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    let all = all.into_iter().collect::<Result<Vec<Ended>>>()?;
    for ended in all.iter().filter(|ended| ended.wrong.is_some()) {
        println!("{}: {}", ended.name, ended.wrong.as_deref().unwrap_or_default());
    }
    let n_wrong = all.iter().filter(|ended| ended.wrong.is_some()).count();
    let n_refused = all.iter().filter(|ended| ended.code == Some(2)).count();
    let slowest = all.iter().max_by_key(|ended| ended.took);
    let largest = all.iter().max_by_key(|ended| ended.peak);
    println!(
        "{} of {n_written} malformed files: {n_refused} refused in one line, {} built, {n_wrong} wrong; the slowest took \
         {:.2} s, the largest {} MB (limits {} s, {} MB)",
        all.len(),
        all.iter().filter(|ended| ended.code == Some(0)).count(),
        slowest.map_or(0.0, |ended| ended.took.as_secs_f64()),
        largest.map_or(0, |ended| ended.peak >> 20),
        MAX_TIME.as_secs(),
        MAX_MEMORY >> 20,
    );
    Ok(n_wrong == 0)
}

/// Builds one file, with limits.
fn build(binary: &Path, file: &Path, plan: &Path) -> Result<Ended> {
    let errors = plan.with_extension("stderr");
    let script = format!("ulimit -v {}; exec \"$0\" \"$@\"", MAX_MEMORY >> 10);
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(binary).arg("build").arg(file).arg("-o").arg(plan);
    command.args(["--device", "cpu", "--tune-level", "0"]).env("NO_COLOR", "1");
    let begun = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&errors)?).spawn()?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let code = loop {
        peak = peak.max(high_water(&status).unwrap_or(0));
        if let Some(ended) = child.try_wait()? {
            break ended.code();
        }
        if begun.elapsed() > MAX_TIME {
            child.kill()?;
            child.wait()?;
            break None;
        }
        thread::sleep(Duration::from_millis(2));
    };
    let took = begun.elapsed();
    let stderr = fs::read(&errors)?;
    let stderr = String::from_utf8_lossy(&stderr);
    let n_lines = stderr.lines().filter(|line| line.starts_with("error: ")).count();
    let wrong = match code {
        None if took > MAX_TIME => Some(format!("it did not end within {} s", MAX_TIME.as_secs())),
        Some(code) if !EXPECTED.contains(&code) => Some(format!("exit code {code}: {}", stderr.trim())),
        None => Some(format!("it was ended by a signal: {}", stderr.trim())),
        Some(2) if n_lines != 1 => Some(format!("{n_lines} lines of error: {}", stderr.trim())),
        Some(2) if plan.exists() => Some("refused, and yet there is a plan".to_string()),
        Some(0) if !plan.exists() => Some("built, and yet there is no plan".to_string()),
        Some(_) if stderr.contains('\u{1b}') => Some("an escape reached the terminal".to_string()),
        Some(_) => None,
    };
    let _ = fs::remove_file(plan);
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Ended { name, code, took, peak, wrong })
}

/// The most memory that a process has had in use so far.
fn high_water(status: &str) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}
