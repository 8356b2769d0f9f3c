//! Developer commands: `cargo xtask COMMAND`.

mod accuracy;
mod capi;
mod compare;
mod conformance;
mod differential;
mod dynamic;
mod everyday;
mod extend;
mod faults;
mod figure;
mod gpu_plan;
mod import_figures;
mod library_plan;
mod long_tasks;
mod malformed;
mod models;
mod monai;
mod nvrtc;
mod passes;
mod pipeline;
mod python;
mod runtime;
mod sanitize;
mod sharing;
mod test;
#[cfg(test)]
mod tidy;
mod transfers;
mod wheel;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer commands of Planish")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The C library: install it with its headers, write planish.h, compile and run C and C++ programs over it.
    Capi(capi::Options),
    /// Formatting, lints and documentation, warnings being errors.
    Check,
    /// All that must pass before a change lands: check, tests, conformance.
    Test,
    /// Run ONNX's own backend tests on a backend and hold them against the list of expected gaps.
    Conformance(conformance::Options),
    /// Draw seeded random cases of each operator and compare them with ONNX Runtime.
    Differential(differential::Options),
    /// Time one plan for a range of sizes against plans for each size.
    Dynamic(dynamic::Options),
    /// Time lists in batches and sliding windows against the runs that they are made of; build with --release.
    Everyday(everyday::Options),
    /// Measure refits under running threads, and the worked example of a plugin; build with --release.
    Extend(extend::Options),
    /// Kill, fill up, starve and damage what a user runs, and count what is lost; prints a table.
    Faults(faults::Options),
    /// Plan models for a GPU that is not here: steps, kernels, what stays on the CPU.
    GpuPlan(gpu_plan::Options),
    /// Import generated models and print time, growth with the nodes, and peak memory.
    ImportFigures(import_figures::Options),
    /// Build a plan whose convolutions are cuDNN's, to see what opening it costs.
    LibraryPlan(library_plan::Options),
    /// Build every malformed model of the readers' tests through the binary, within limits of time and memory.
    Malformed(malformed::Options),
    /// Fetch real trained models and compare every one with ONNX Runtime.
    Models(models::Options),
    /// Compare sliding windows with MONAI's on random settings, where a Python has it.
    Monai(monai::Options),
    /// Compile every CUDA kernel that any family asks for, for every architecture.
    Nvrtc(nvrtc::Options),
    /// Run models before and after the passes over the reference, and print which pass did what.
    Passes(passes::Options),
    /// Chain an image generator's three engines in device memory: rate, distance to FP32, equality of all results.
    Pipeline(pipeline::Options),
    /// Plant every fault that the self-check must see, and count those that it does by kind: some minutes.
    PlantedFaults,
    /// Hold plans of models against the reference, with and without Winograd.
    Accuracy(accuracy::Options),
    /// Print what a call of the smallest engine costs; build with --release to measure.
    Overhead,
    /// Let 64 threads lease 3 contexts, or have 3 each, and count results that differ from those of a context alone.
    Contexts(runtime::ContextsOptions),
    /// Look at the licences, sources and bans of all dependencies (`cargo install cargo-deny --locked`).
    Deny,
    /// Run the tests of the crates with unsafe code under AddressSanitizer or ThreadSanitizer (nightly).
    Sanitize(sanitize::Options),
    /// Measure what sharing costs: two contexts, engines in turn, busy processes beside; build with --release.
    Sharing(sharing::Options),
    /// Build the Python wheel, install it where nothing but numpy is, and run its tests there.
    Python(wheel::Options),
    /// Run a plan from pinned buffers on two contexts, against the device's rate and the link's; memory of contexts.
    Transfers(transfers::Options),
    /// Make the reference of the Python package from its docstrings, as HTML.
    PythonDocs,
    /// Run published scripts for TensorRT and ONNX Runtime with nothing but the import line changed.
    Published(wheel::Published),
    /// Build the Python wheel that users get: optimized, for every Linux with glibc 2.28 and later.
    Wheel,
    /// Meet many distinct shapes in a row on a transformer; print resolve times and memory.
    Shapes(runtime::ShapesOptions),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Capi(options) => capi::run(&options),
        Command::Check => test::check(),
        Command::Deny => test::deny(),
        Command::Sanitize(options) => sanitize::run(&options),
        Command::Test => test::test(),
        Command::Conformance(options) => conformance::run(&options),
        Command::Differential(options) => differential::run(&options),
        Command::Dynamic(options) => dynamic::run(&options),
        Command::Everyday(options) => everyday::run(&options),
        Command::Extend(options) => extend::run(&options),
        Command::Faults(options) => faults::run(&options),
        Command::GpuPlan(options) => gpu_plan::run(&options),
        Command::ImportFigures(options) => import_figures::run(&options),
        Command::LibraryPlan(options) => library_plan::run(&options),
        Command::Malformed(options) => malformed::run(&options),
        Command::Models(options) => models::run(&options),
        Command::Monai(options) => monai::run(&options),
        Command::Nvrtc(options) => nvrtc::run(&options),
        Command::Passes(options) => passes::run(&options),
        Command::Pipeline(options) => pipeline::run(&options),
        Command::PlantedFaults => test::planted_faults(),
        Command::Accuracy(options) => accuracy::run(&options),
        Command::Overhead => runtime::overhead(),
        Command::Contexts(options) => runtime::contexts(&options),
        Command::Sharing(options) => sharing::run(&options),
        Command::Transfers(options) => transfers::run(&options),
        Command::Python(options) => wheel::test(&options),
        Command::PythonDocs => wheel::docs(),
        Command::Published(options) => wheel::published(&options),
        Command::Wheel => wheel::wheel(),
        Command::Shapes(options) => runtime::shapes(&options),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The repository's root folder.
pub(crate) fn root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().map(PathBuf::from).unwrap_or(manifest)
}

/// Where downloads and other scratch data go: kept between runs, ignored by git.
pub(crate) fn scratch() -> PathBuf {
    root().join("target").join("xtask")
}
