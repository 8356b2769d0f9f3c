//! `cargo xtask nvrtc`: every kernel that any family's samples ask for, compiled for every architecture.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use planish_cuda::{Gpu, Source, find, nvrtc, offline};
use planish_kernel::Budget;
use planish_testing::problems;

use crate::python;

/// Where libraries are looked for first.
const FOLDER: &str = "PLANISH_CUDA_PATH";

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Only this family.
    #[arg(long)]
    family: Option<String>,
    /// Only this architecture, as in `sm_90a`.
    #[arg(long)]
    arch: Option<String>,
}

/// Compiles; says what does not.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if let Some(again) = with_compiler()? {
        return Ok(again);
    }
    compile(&jobs(options)?)
}

/// Runs this command again as a process that finds NVRTC, unless it does already; gives whether that went well.
/// In a process of its own: the environment of one that runs is not ours to change.
pub(crate) fn with_compiler() -> Result<Option<bool>> {
    if std::env::var_os(FOLDER).is_some() {
        return Ok(None);
    }
    let mut again = Command::new(std::env::current_exe()?);
    let status = again.args(std::env::args_os().skip(1)).env(FOLDER, python::nvrtc_folder()?).status()?;
    Ok(Some(status.success()))
}

/// A tactic and a source that it asks for.
pub(crate) type Job = (String, Gpu, Source);

/// Compiles on all cores; prints what does not compile, and whether all did.
pub(crate) fn compile(jobs: &[Job]) -> Result<bool> {
    let found = find::find(find::Which::Nvrtc).context("cannot compile")?;
    println!("{found}");
    let start = Instant::now();
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..n_threads {
            scope.spawn(|| {
                while let Some((tactic, gpu, source)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = nvrtc::compile_cached(source, gpu) {
                        let message = format!("{tactic}: {error}");
                        failures.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(message);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap_or_default();
    for failure in &failures {
        println!("{failure}\n");
    }
    println!(
        "{} kernels, {} do not compile, {:.0} s",
        jobs.len(),
        failures.len(),
        start.elapsed().as_secs_f64()
    );
    Ok(failures.is_empty())
}

/// Each distinct source of each architecture, with a tactic that asks for it.
fn jobs(options: &Options) -> Result<Vec<Job>> {
    let mut jobs = BTreeMap::new();
    let mut left_out = BTreeSet::new();
    for family in offline::families() {
        if options.family.as_deref().is_some_and(|only| only != family) {
            continue;
        }
        for gpu in Gpu::every_architecture() {
            if options.arch.as_ref().is_some_and(|only| *only != gpu.architecture()) {
                continue;
            }
            if !nvrtc::knows(&gpu)? {
                left_out.insert(gpu.architecture());
                continue;
            }
            for problem in problems::of_family(family) {
                for candidate in offline::candidates(family, &gpu, &problem, &Budget::USUAL) {
                    let arranged = problem.for_candidate(&candidate);
                    let sources = offline::sources(&gpu, &arranged, &candidate.tactic)
                        .with_context(|| format!("{} on {}", candidate.tactic, problem.key()))?;
                    for source in sources {
                        let job = (candidate.tactic.to_string(), gpu.clone(), source.clone());
                        jobs.entry(source.key(&gpu)).or_insert(job);
                    }
                }
            }
        }
    }
    for architecture in left_out {
        println!("left out: {architecture} is not known to NVRTC {}", nvrtc::version()?);
    }
    Ok(jobs.into_values().collect())
}
