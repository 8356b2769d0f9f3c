//! The Python package: its wheel, built and tested as a user meets it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::python::{environment, install};
use crate::{root, scratch};

/// What wheels are built with, and what links those for older systems.
const BUILD: &str = "requirements-wheel.txt";
const ZIG: &str = "requirements-zig.txt";
/// What the package's own tests need: numpy, and what runs them.
const TEST: &str = "requirements-python.txt";
/// The runtimes that facades are held against.
const OTHERS: &str = "requirements.txt";
/// PyTorch, with what exports its modules.
const TORCH: &str = "requirements-torch.txt";
/// TensorFlow with Keras, and what exports their models.
const TENSORFLOW: &str = "requirements-tensorflow.txt";
/// What runs notebooks.
const NOTEBOOKS: &str = "requirements-notebooks.txt";
/// MONAI and files of microscopes.
const IMAGING: &str = "requirements-imaging.txt";
/// Ray, with volumes in files.
const RAY: &str = "requirements-ray.txt";
/// What published scripts import.
const SCRIPTS: &str = "requirements-scripts.txt";
/// What makes pages of docstrings.
const DOCS: &str = "requirements-docs.txt";
/// Tests that the ordinary ones leave out.
const APART: [&str; 6] =
    ["others", "with_torch", "with_tensorflow", "with_imaging", "with_ray", "with_notebooks"];

/// Options of `cargo xtask python`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Hold the facades of other runtimes against those themselves, which pip fetches.
    #[arg(long)]
    others: bool,
    /// Test what needs PyTorch, which pip fetches (gigabytes): modules, exports, and the backend of torch.compile.
    #[arg(long, conflicts_with = "others")]
    torch: bool,
    /// Hold sliding windows against MONAI, and read and write TIFF (pip fetches gigabytes).
    #[arg(long, conflicts_with_all = ["others", "torch"])]
    imaging: bool,
    /// Run on a local Ray cluster of two nodes, with a worker killed in the middle.
    #[arg(long, conflicts_with_all = ["others", "torch", "imaging"])]
    ray: bool,
    /// Test what needs TensorFlow, which pip fetches (hundreds of megabytes): exports of Keras models and SavedModels.
    #[arg(long, conflicts_with_all = ["others", "torch", "imaging", "ray"])]
    tensorflow: bool,
    /// Run the notebooks of examples/notebooks, every cell.
    #[arg(long, conflicts_with_all = ["others", "torch", "imaging", "ray", "tensorflow"])]
    notebooks: bool,
    /// Passed on to pytest.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pytest: Vec<String>,
}

/// A kind of wheel.
enum Kind {
    /// For this machine, of the crates that `cargo test` compiles too.
    ForTests,
    /// Optimized, for every Linux with glibc 2.28 and later; zig links it.
    ForUsers,
}

impl Kind {
    /// What maturin is told.
    fn arguments(&self) -> &[&str] {
        match self {
            // Whatever the system: nothing is copied into the wheel, so nothing has to be patched.
            Kind::ForTests => &["--profile", "dev", "--compatibility", "linux"],
            Kind::ForUsers => &["--release", "--zig", "--compatibility", "manylinux_2_28"],
        }
    }

    fn folder(&self) -> PathBuf {
        scratch().join(match self {
            Kind::ForTests => "wheel-for-tests",
            Kind::ForUsers => "wheel",
        })
    }
}

/// Builds a wheel and gives its path.
fn build(kind: &Kind) -> Result<PathBuf> {
    let python = match kind {
        Kind::ForTests => environment("maturin", &[BUILD])?,
        Kind::ForUsers => environment("maturin-zig", &[BUILD, ZIG])?,
    };
    let binaries = python.parent().context("an interpreter has a folder")?;
    let folder = kind.folder();
    if folder.is_dir() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    // `python3 -m ziglang` is looked for on the path.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path =
        std::env::join_paths(std::iter::once(binaries.to_path_buf()).chain(std::env::split_paths(&path)))?;
    let mut maturin = Command::new(binaries.join("maturin"));
    maturin.arg("build").args(kind.arguments()).arg("--out").arg(&folder).env("PATH", path);
    if !succeeds(&mut maturin)? {
        anyhow::bail!("maturin could not build the wheel");
    }
    let made = fs::read_dir(&folder)?.next().context("maturin made no wheel")??.path();
    Ok(made)
}

/// `cargo xtask wheel`: the wheel that users get.
pub(crate) fn wheel() -> Result<bool> {
    let path = build(&Kind::ForUsers)?;
    println!("{}: {:.1} MB", path.display(), fs::metadata(&path)?.len() as f64 / 1e6);
    Ok(true)
}

/// `cargo xtask python`: builds the wheel, installs it where nothing but numpy is, and runs its tests there.
pub(crate) fn test(options: &Options) -> Result<bool> {
    let wheel = build(&Kind::ForTests)?;
    let (name, requirements, tests) = match options {
        Options { others: true, .. } => ("python-others", &[TEST, OTHERS][..], "tests/others"),
        Options { torch: true, .. } => ("python-torch", &[TEST, TORCH][..], "tests/with_torch"),
        Options { imaging: true, .. } => {
            ("python-imaging", &[TEST, TORCH, IMAGING][..], "tests/with_imaging")
        }
        Options { ray: true, .. } => ("python-ray", &[TEST, RAY][..], "tests/with_ray"),
        Options { tensorflow: true, .. } => {
            ("python-tensorflow", &[TEST, TENSORFLOW][..], "tests/with_tensorflow")
        }
        Options { notebooks: true, .. } => {
            ("python-notebooks", &[TEST, NOTEBOOKS][..], "tests/with_notebooks")
        }
        _ => ("python", &[TEST][..], "tests"),
    };
    let python = environment(name, requirements)?;
    install(&python, &[OsStr::new("--force-reinstall"), OsStr::new("--no-deps"), wheel.as_os_str()])?;
    let mut pytest = Command::new(&python);
    pytest.args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider"]);
    if tests == "tests" {
        for folder in APART {
            pytest.arg("--ignore").arg(Path::new("crates/planish-python/tests").join(folder));
        }
    }
    pytest.args(&options.pytest).arg(Path::new("crates/planish-python").join(tests));
    succeeds(&mut pytest)
}

/// Options of `cargo xtask published`.
#[derive(clap::Args)]
pub(crate) struct Published {
    /// The repositories' files by commit, as `git archive COMMIT` writes them: FOLDER/COMMIT/samples/python/….
    folder: PathBuf,
    /// Names of the manifest; all of it if not given.
    names: Vec<String>,
}

/// `cargo xtask published`: runs scripts of others with nothing but the import line changed.
pub(crate) fn published(options: &Published) -> Result<bool> {
    let folder = fs::canonicalize(&options.folder).with_context(|| options.folder.display().to_string())?;
    let wheel = build(&Kind::ForTests)?;
    let python = environment("python-published", &[TEST, TORCH, SCRIPTS])?;
    install(&python, &[OsStr::new("--force-reinstall"), OsStr::new("--no-deps"), wheel.as_os_str()])?;
    let mut run = Command::new(&python);
    run.arg(root().join("xtask/python/published/__main__.py")).arg(folder).args(&options.names);
    succeeds(&mut run)
}

/// `cargo xtask python-docs`: the reference of the Python package, of its docstrings, as HTML.
pub(crate) fn docs() -> Result<bool> {
    let wheel = build(&Kind::ForTests)?;
    let python = environment("python-docs", &[TEST, DOCS])?;
    install(&python, &[OsStr::new("--force-reinstall"), OsStr::new("--no-deps"), wheel.as_os_str()])?;
    let to = scratch().join("python-docs");
    let mut pdoc = Command::new(&python);
    pdoc.args(["-m", "pdoc", "--docformat", "markdown", "--output-directory"]).arg(&to);
    pdoc.args(["planish", "planish.imaging", "planish.ray", "planish.testing"]);
    pdoc.args(["planish.onnxruntime", "planish.tensorrt"]);
    let is_made = succeeds(&mut pdoc)?;
    if is_made {
        println!("{}", to.join("planish.html").display());
    }
    Ok(is_made)
}

/// As the ordinary tests run it.
pub(crate) fn ordinary_test() -> Result<bool> {
    test(&Options {
        others: false,
        torch: false,
        imaging: false,
        ray: false,
        tensorflow: false,
        notebooks: false,
        pytest: Vec::new(),
    })
}

/// Runs a command in the root folder and says how it went.
fn succeeds(command: &mut Command) -> Result<bool> {
    let name =
        Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let arguments: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
    println!("== {name} {}", arguments.join(" "));
    let start = Instant::now();
    let status = command.current_dir(root()).status().with_context(|| format!("cannot start {name}"))?;
    let result = if status.success() { "ok" } else { "FAILED" };
    println!("   {result} after {:.0} s", start.elapsed().as_secs_f64());
    Ok(status.success())
}
