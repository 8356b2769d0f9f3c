//! Where the drill takes place: a folder with models and what commands left, how commands are started, and what must hold
//! after every fault.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use planish::TimingCache;
use planish_testing::Random;

/// Exit codes that commands may end with when something outside of them goes wrong.
pub(crate) const LACKING: i32 = 3;
pub(crate) const INTERRUPTED: i32 = 130;

/// How long it may take to write 47 MB and sync them, on a disk that is not slow.
const MAX_WRITING_US: u64 = 60_000;

pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    binary: PathBuf,
    random: RefCell<Random>,
}

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn of(output: Output) -> Ended {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Ended { code: output.status.code(), stderr }
    }

    /// What is wrong with this end, if it should have had one of these codes: another code, or not exactly one line that
    /// says why.
    pub(crate) fn unlike(&self, codes: &[i32]) -> Option<String> {
        let last = self.stderr.lines().last().unwrap_or_default();
        if !self.code.is_some_and(|code| codes.contains(&code)) {
            return Some(format!("exit code {:?} instead of {codes:?}: {last}", self.code));
        }
        let n_lines = self.stderr.lines().filter(|line| line.starts_with("error: ")).count();
        let n_wanted = usize::from(self.code != Some(0));
        (n_lines != n_wanted)
            .then(|| format!("{n_lines} lines of error with code {:?}: {}", self.code, self.stderr.trim()))
    }
}

impl Place {
    pub(crate) fn new(binary: PathBuf, seed: u64) -> Result<Place> {
        let folder = crate::scratch().join("faults");
        if folder.exists() {
            fs::remove_dir_all(&folder).context("the folder of an earlier drill")?;
        }
        fs::create_dir_all(&folder)?;
        let place = Place { folder, binary, random: RefCell::new(Random::new(seed)) };
        for (name, model) in [("small.onnx", "cifar_cnn"), ("large.onnx", "resnet18_224")] {
            place.succeeds(&format!("zoo {model} -o {name}"))?;
        }
        Ok(place)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A number below `end`.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.random.borrow_mut().below(end.max(1) as usize) as u64
    }

    /// A command in the folder, with a cache of its own, that prints to us. All lines of arguments are words between
    /// spaces: no name in the folder has one.
    pub(crate) fn command(&self, line: &str) -> Command {
        self.started(Command::new(&self.binary), line)
    }

    /// The same under limits of the shell's `ulimit`.
    pub(crate) fn limited(&self, limit: &str, line: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("ulimit {limit}; exec \"$0\" \"$@\"")).arg(&self.binary);
        self.started(command, line)
    }

    fn started(&self, mut command: Command, line: &str) -> Command {
        command.args(line.split(' ')).current_dir(&self.folder).env("XDG_CACHE_HOME", self.path("cache"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn runs(&self, line: &str) -> Result<Ended> {
        Ok(Ended::of(self.command(line).output()?))
    }

    pub(crate) fn succeeds(&self, line: &str) -> Result<Duration> {
        let begun = Instant::now();
        let ended = self.runs(line)?;
        ensure!(ended.code == Some(0), "`planish {line}` failed: {}", ended.stderr);
        Ok(begun.elapsed())
    }

    /// Starts a command, waits for a random time below `most`, and has `stop` end it; `None` where it was faster.
    pub(crate) fn stopped(
        &self,
        line: &str,
        most: Duration,
        stop: impl FnOnce(&mut Child) -> Result<()>,
    ) -> Result<(bool, Ended)> {
        let mut child = self.command(line).spawn()?;
        std::thread::sleep(Duration::from_micros(self.below(most.as_micros() as u64)));
        let was_there = child.try_wait()?.is_none();
        if was_there {
            stop(&mut child)?;
        }
        Ok((was_there, Ended::of(child.wait_with_output()?)))
    }

    /// Starts a command that writes into the folder and kills it a random moment after the file that it writes has
    /// appeared under its temporary name; gives whether it was still there.
    pub(crate) fn killed_writing(&self, line: &str, most: Duration) -> Result<bool> {
        let left: BTreeSet<String> = self.unfinished("").into_iter().collect();
        let mut child = self.command(line).spawn()?;
        let begun = Instant::now();
        while begun.elapsed() < 4 * most && child.try_wait()?.is_none() {
            if self.unfinished("").iter().any(|name| name.contains(".plan.") && !left.contains(name)) {
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(Duration::from_micros(self.below(MAX_WRITING_US)));
        let was_there = child.try_wait()?.is_none();
        child.kill()?;
        child.wait_with_output()?;
        Ok(was_there)
    }

    /// What is in a folder that a command has left half-done.
    pub(crate) fn unfinished(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(folder)) else { return Vec::new() };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with('.')).collect()
    }
}

/// Why a plan's file is not what it should be; one that is not there is.
pub(crate) fn spoiled_plan(path: &Path) -> Option<String> {
    if !path.exists() {
        return None;
    }
    planish_plan::Plan::open(path).err().map(|error| error.to_string())
}

/// The times of a cache; what was there before must still be.
pub(crate) fn grown_times(path: &Path, before: &TimingCache) -> Result<TimingCache, String> {
    let now = TimingCache::load_if_any(path).map_err(|error| error.to_string())?.unwrap_or_default();
    let n_gone = before.diff(&now).only_left.len();
    if n_gone > 0 { Err(format!("{n_gone} of {} times are gone", before.len())) } else { Ok(now) }
}
