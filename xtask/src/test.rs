//! `cargo xtask test`: all that must pass before a change lands; `cargo xtask check`: its quick part.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::conformance::case::Stage;
use crate::python::nvrtc_folder;
use crate::{conformance, root, wheel};

/// Formatting, lints and documentation, warnings being errors.
pub(crate) fn check() -> Result<bool> {
    Ok(cargo(&["fmt", "--all", "--check"])?
        && cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"])?
        && cargo(&["doc", "--workspace", "--no-deps", "--quiet"])?)
}

/// What the facade must compile with: each of its features alone, and none.
const FEATURES: [&[&str]; 4] =
    [&[], &["--features", "build"], &["--features", "cuda"], &["--features", "io"]];

/// The facade with each of its features alone, and without any.
fn features() -> Result<bool> {
    for features in FEATURES {
        let mut arguments = vec!["check", "--quiet", "-p", "planish", "--no-default-features"];
        arguments.extend(features);
        if !cargo(&arguments)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Licences, sources and bans of all dependencies. Advisories have to be fetched: the CI of code hosts does that.
pub(crate) fn deny() -> Result<bool> {
    cargo(&["deny", "--offline", "--all-features", "check", "bans", "licenses", "sources"])
}

/// The check, all tests, those of the Python package, and the conformance suite: as imported, after the passes, as plans with their self-check (of
/// the models as they are and with open sizes), and by the command line.
pub(crate) fn test() -> Result<bool> {
    if !check()? || !features()? || !cargo(&["test", "--workspace", "--quiet"])? || !wheel::ordinary_test()? {
        return Ok(false);
    }
    for stage in [Stage::Raw, Stage::Optimized, Stage::Checked, Stage::Open, Stage::Command] {
        println!("== conformance, {stage}");
        if !conformance::run(&conformance::Options::at_stage(stage))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Every planted fault, those too that the ordinary tests leave out.
pub(crate) fn planted_faults() -> Result<bool> {
    let all = [("PLANISH_PLANT_ALL", "1")];
    let test = ["test", "--package", "planish-compile", "--test", "planted_faults"];
    let shown = ["planted_faults_are_caught", "--", "--nocapture"];
    let of_precision = ["test", "--package", "planish", "--test", "accuracy", "faults", "--", "--nocapture"];
    Ok(cargo_with(&[&test[..], &shown].concat(), &all)? && cargo_with(&of_precision, &all)?)
}

fn cargo(arguments: &[&str]) -> Result<bool> {
    cargo_with(arguments, &[])
}

fn cargo_with(arguments: &[&str], environment: &[(&str, &str)]) -> Result<bool> {
    println!("== cargo {}", arguments.join(" "));
    let start = Instant::now();
    // CUDA kernels are compiled in the tests wherever NVRTC can be had, with a GPU or without.
    let nvrtc = nvrtc_folder().context("cannot fetch NVRTC")?;
    let status = Command::new(env!("CARGO"))
        .args(arguments)
        .env("PLANISH_CUDA_PATH", nvrtc)
        .env("RUSTDOCFLAGS", "--deny warnings")
        .envs(environment.iter().copied())
        .current_dir(root())
        .status()
        .context("cannot start cargo")?;
    println!(
        "   {} after {:.0} s",
        if status.success() { "ok" } else { "FAILED" },
        start.elapsed().as_secs_f64()
    );
    Ok(status.success())
}
