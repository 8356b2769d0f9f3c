//! The C library: installed with what finds it, and its header written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{root, scratch};

/// Programs look for `libplanish.so` with this number when they start: `PLANISH_ABI_VERSION`.
const ABI: &str = "1";

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Write planish.h by cbindgen, which cargo fetches.
    Header,
    /// Build the shared and the static library, and put them, the headers and what pkg-config and CMake read into a folder.
    Install {
        /// Gets the folders `lib` and `include`.
        #[arg(long)]
        prefix: PathBuf,
        /// The profile of cargo.
        #[arg(long, default_value = "release")]
        profile: String,
    },
    /// Compile and run the C and C++ programs of the tests, under valgrind too.
    Test,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    match &options.what {
        What::Header => header(),
        What::Install { prefix, profile } => install(prefix, profile),
        What::Test => {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["test", "--package", "planish-capi"]).env("PLANISH_VALGRIND", "1");
            Ok(cargo.current_dir(root()).status().context("cannot start cargo")?.success())
        }
    }
}

fn folder() -> PathBuf {
    root().join("crates/planish-capi")
}

fn header() -> Result<bool> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "--manifest-path"]).arg(root().join("xtask/header/Cargo.toml"));
    cargo.arg("--target-dir").arg(scratch().join("header")).arg("--").arg(folder());
    let made = cargo.output().context("cannot start cargo")?;
    if !made.status.success() {
        bail!("cbindgen wrote no header:\n{}", String::from_utf8_lossy(&made.stderr));
    }
    let path = folder().join("include/planish.h");
    fs::write(&path, made.stdout).with_context(|| path.display().to_string())?;
    println!("wrote {}", path.display());
    Ok(true)
}

fn install(prefix: &Path, profile: &str) -> Result<bool> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["rustc", "--package", "planish-capi", "--lib", "--crate-type", "cdylib,staticlib"]);
    cargo.args(["--profile", profile]).current_dir(root());
    if !cargo.status().context("cannot start cargo")?.success() {
        return Ok(false);
    }
    let built = root().join("target").join(if profile == "dev" { "debug" } else { profile });
    let library = prefix.join("lib");
    fs::create_dir_all(&library).with_context(|| format!("cannot make {}", library.display()))?;
    let shared = library.join(format!("libplanish.so.{ABI}"));
    replace(&built.join("libplanish_capi.so"), &shared)?;
    replace(&built.join("libplanish_capi.a"), &library.join("libplanish.a"))?;
    let link = library.join("libplanish.so");
    if link.symlink_metadata().is_ok() {
        fs::remove_file(&link)?;
    }
    std::os::unix::fs::symlink(format!("libplanish.so.{ABI}"), &link)?;
    copy_tree(&folder().join("include"), &prefix.join("include"))?;
    for (name, to) in [
        ("planish.pc", "lib/pkgconfig"),
        ("planish-tensorrt.pc", "lib/pkgconfig"),
        ("planishConfig.cmake", "lib/cmake/planish"),
        ("planishConfigVersion.cmake", "lib/cmake/planish"),
    ] {
        let from = folder().join("packaging").join(format!("{name}.in"));
        let text = fs::read_to_string(&from).with_context(|| from.display().to_string())?;
        let text = text.replace("@VERSION@", env!("CARGO_PKG_VERSION")).replace("@ABI@", ABI);
        fs::create_dir_all(prefix.join(to))?;
        fs::write(prefix.join(to).join(name), text)?;
    }
    let megabytes = |path: &Path| fs::metadata(path).map_or(0.0, |file| file.len() as f64 / 1e6);
    println!(
        "{}: {:.1} MB shared, {:.1} MB static; PKG_CONFIG_PATH={}",
        prefix.display(),
        megabytes(&shared),
        megabytes(&library.join("libplanish.a")),
        library.join("pkgconfig").display()
    );
    Ok(true)
}

/// Copies a file in one piece: programs that run have the old one mapped.
fn replace(from: &Path, to: &Path) -> Result<()> {
    let partial = to.with_extension(format!("{}.partial", std::process::id()));
    fs::copy(from, &partial).with_context(|| format!("cannot copy {}", from.display()))?;
    fs::rename(&partial, to).with_context(|| format!("cannot make {}", to.display()))
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let path = entry?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        match path.is_dir() {
            true => copy_tree(&path, &target)?,
            false => replace(&path, &target)?,
        }
    }
    Ok(())
}
