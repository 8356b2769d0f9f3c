//! `cargo xtask sanitize`: the tests of the crates that hold `unsafe` memory code under AddressSanitizer, those of the
//! thread pool and of contexts under ThreadSanitizer. Both need a nightly toolchain.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::root;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Which one.
    #[arg(value_enum, default_value_t = Sanitizer::Address)]
    sanitizer: Sanitizer,
    /// Only tests whose names hold this.
    #[arg(long)]
    filter: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Sanitizer {
    /// Memory that is used after its end, before its beginning or after it was freed.
    Address,
    /// Accesses of two threads that nothing orders. Needs the sources of std (rustup component rust-src).
    Thread,
}

/// The only target that both are known to work on here.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Parts of the names of tests with several threads.
const THREADED: [&str; 5] = ["team_tests::", "buffers::", "determinism::", "leases::", "panics::"];

pub(crate) fn run(options: &Options) -> Result<bool> {
    let (flag, packages): (&str, &[&str]) = match options.sanitizer {
        Sanitizer::Address => ("address", &["planish-tensor", "planish-cpu", "planish-runtime"]),
        Sanitizer::Thread => ("thread", &["planish-cpu", "planish-runtime"]),
    };
    let mut command = Command::new("cargo");
    command.args(["+nightly", "test", "--tests", "--target", TARGET]);
    command.args(packages.iter().flat_map(|package| ["-p", package]));
    if options.sanitizer == Sanitizer::Thread {
        // A std without the sanitizer orders things in ways that it cannot see.
        command.args(["-Z", "build-std"]);
    }
    // Apart from the ordinary builds, which have other flags.
    command.env("CARGO_TARGET_DIR", root().join("target/sanitize").join(flag));
    command.env("RUSTFLAGS", format!("-Zsanitizer={flag}"));
    // The pool's workers and what the process keeps for its life are no leaks; tests ask for memory that nobody has, and
    // are to get none.
    command.env("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1");
    command.env("TSAN_OPTIONS", "halt_on_error=1");
    command.arg("--");
    match (options.sanitizer, &options.filter) {
        (_, Some(filter)) => drop(command.arg(filter)),
        // Kernels have no threads of their own: those that fork and join, and contexts on many threads.
        (Sanitizer::Thread, None) => drop(command.args(THREADED)),
        (Sanitizer::Address, None) => {}
    }
    // The model-checked tests are coroutines, which change stacks without telling the sanitizers.
    command.args(["--skip", "thread_pool::", "--skip", "run_beside::", "--skip", "lent_contexts::"]);
    let start = Instant::now();
    let status = command.current_dir(root()).status().context("cannot start cargo +nightly")?;
    println!(
        "{flag} sanitizer over {}: {} after {:.0} s",
        packages.join(", "),
        if status.success() { "ok" } else { "FAILED" },
        start.elapsed().as_secs_f64()
    );
    if status.code().is_none() {
        bail!("cargo was stopped");
    }
    Ok(status.success())
}
