//! Where the driver and the libraries are looked for, and which versions are taken.
//!
//! Each file is opened by its full path and asked for its version before anything else is called; a major
//! version that this program was not written for is refused and listed. CUDA 12 and 13 are taken, as far as the driver
//! runs them. Looked at, in this order: the folders of `PLANISH_CUDA_PATH` and `LD_LIBRARY_PATH`, the `nvidia-*` wheels of the Python that we are part of and of an
//! active Python environment, CUDA toolkits, and the folders that the system's loader knows.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::error::{CudaError, CudaErrorKind};

mod places;
mod versions;

pub use places::look_in_packages;
pub use versions::Toolkit;

/// A shared library of NVIDIA's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Which {
    /// Comes with the kernel module; all that a plan of our own kernels needs.
    Driver,
    /// Compiles kernels; needed to build plans.
    Nvrtc,
    CublasLt,
    Cudnn,
    /// Clocks, power and utilisation.
    Nvml,
}

impl Which {
    pub const ALL: [Which; 5] = [Which::Driver, Which::Nvrtc, Which::CublasLt, Which::Cudnn, Which::Nvml];

    pub fn name(self) -> &'static str {
        match self {
            Which::Driver => "driver",
            Which::Nvrtc => "NVRTC",
            Which::CublasLt => "cuBLASLt",
            Which::Cudnn => "cuDNN",
            Which::Nvml => "NVML",
        }
    }

    /// The name of its file for a CUDA; the driver, NVML and cuDNN have one name for all.
    pub(crate) fn file_for(self, cuda: Toolkit) -> &'static str {
        match (self, cuda) {
            (Which::Driver, _) => "libcuda.so.1",
            (Which::Nvrtc, Toolkit::Thirteen) => "libnvrtc.so.13",
            (Which::Nvrtc, Toolkit::Twelve) => "libnvrtc.so.12",
            (Which::CublasLt, Toolkit::Thirteen) => "libcublasLt.so.13",
            (Which::CublasLt, Toolkit::Twelve) => "libcublasLt.so.12",
            (Which::Cudnn, _) => "libcudnn.so.9",
            (Which::Nvml, _) => "libnvidia-ml.so.1",
        }
    }

    /// The name of its file in the newest version that this machine's driver runs.
    pub fn file(self) -> &'static str {
        self.file_for(self.newest())
    }

    /// The newest CUDA whose libraries may be taken: what the driver runs, or any where none is here.
    fn newest(self) -> Toolkit {
        match self {
            Which::Driver | Which::Nvml => Toolkit::Thirteen,
            Which::Nvrtc | Which::CublasLt | Which::Cudnn => {
                let driver = find(Which::Driver).ok();
                driver.and_then(|driver| Toolkit::newest_on(&driver.version)).unwrap_or(Toolkit::Thirteen)
            }
        }
    }

    /// How its files begin, whatever the version.
    fn stem(self) -> &'static str {
        match self {
            Which::Driver => "libcuda.so",
            Which::Nvrtc => "libnvrtc.so",
            Which::CublasLt => "libcublasLt.so",
            Which::Cudnn => "libcudnn.so",
            Which::Nvml => "libnvidia-ml.so",
        }
    }

    /// How plans name it among their needs, the version after.
    pub(crate) fn need(self) -> &'static str {
        match self {
            Which::Driver => "driver-",
            Which::Nvrtc => "nvrtc-",
            Which::CublasLt => "cublaslt-",
            Which::Cudnn => "cudnn-",
            Which::Nvml => "nvml-",
        }
    }

    /// What installs it, in the newest version that this machine's driver runs.
    pub fn install(self) -> &'static str {
        match (self, self.newest()) {
            (Which::Driver | Which::Nvml, _) => {
                "install NVIDIA's driver, 525 or newer (https://www.nvidia.com/drivers)"
            }
            (Which::Nvrtc, Toolkit::Thirteen) => "pip install 'nvidia-cuda-nvrtc==13.0.*'",
            (Which::Nvrtc, Toolkit::Twelve) => "pip install 'nvidia-cuda-nvrtc-cu12>=12.6'",
            (Which::CublasLt, Toolkit::Thirteen) => "pip install 'nvidia-cublas==13.*'",
            (Which::CublasLt, Toolkit::Twelve) => "pip install 'nvidia-cublas-cu12==12.*'",
            (Which::Cudnn, Toolkit::Thirteen) => "pip install 'nvidia-cudnn-cu13==9.*'",
            (Which::Cudnn, Toolkit::Twelve) => "pip install 'nvidia-cudnn-cu12==9.*'",
        }
    }

    /// What is not there without it.
    pub fn cost(self) -> &'static str {
        match self {
            Which::Driver => "no plan runs on a GPU",
            Which::Nvrtc => "plans for GPUs are run but not built, unless of the libraries' kernels alone",
            Which::CublasLt => {
                "matrix products by our own kernels alone; plans that name cuBLASLt do not open"
            }
            Which::Cudnn => "convolutions by our own kernels alone; plans that name cuDNN do not open",
            Which::Nvml => "`bench` says nothing of clock, power and utilisation",
        }
    }

    fn slot(self) -> &'static OnceLock<Result<Found, CudaError>> {
        static SLOTS: [OnceLock<Result<Found, CudaError>>; 5] = [const { OnceLock::new() }; 5];
        &SLOTS[self as usize]
    }
}

/// A library that was found, checked and loaded; it stays so until the process ends.
#[derive(Clone, Debug)]
pub struct Found {
    pub which: Which,
    pub path: PathBuf,
    /// As in `13.0` or `9.13.0`.
    pub version: String,
    /// The CUDA that it is made for; none of the driver and NVML.
    pub toolkit: Option<Toolkit>,
    pub(crate) library: &'static libloading::Library,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.which.name(), self.version, self.path.display())
    }
}

/// The library, looked for once in the process.
pub fn find(which: Which) -> Result<&'static Found, CudaError> {
    which.slot().get_or_init(|| look(which, &places::places(which))).as_ref().map_err(Clone::clone)
}

/// A library that is loaded already; nothing is looked for. What a process maps can be told by it.
pub fn loaded(which: Which) -> Option<&'static Found> {
    which.slot().get()?.as_ref().ok()
}

fn look(which: Which, places: &[PathBuf]) -> Result<Found, CudaError> {
    look_up_to(which.newest(), which, places)
}

fn look_up_to(newest: Toolkit, which: Which, places: &[PathBuf]) -> Result<Found, CudaError> {
    let mut files: Vec<&str> = Toolkit::up_to(newest).map(|cuda| which.file_for(cuda)).collect();
    files.dedup();
    let mut refused = Vec::new();
    for path in places.iter().flat_map(|folder| files.iter().map(|file| folder.join(file))) {
        if !path.exists() {
            continue;
        }
        match open(which, &path, newest) {
            Ok(found) => return Ok(found),
            Err(why) => refused.push(format!("{}: {why}", path.display())),
        }
    }
    let others: BTreeSet<String> = places.iter().flat_map(|folder| other_versions(which, folder)).collect();
    let missing = match which {
        Which::Driver | Which::Nvml => CudaErrorKind::NoDriver,
        _ => CudaErrorKind::MissingLibrary,
    };
    let (kind, detail) = if !refused.is_empty() {
        (CudaErrorKind::WrongVersion, format!("not usable: {}", refused.join("; ")))
    } else if !others.is_empty() {
        let list = others.into_iter().collect::<Vec<_>>().join(", ");
        (CudaErrorKind::WrongVersion, format!("only other versions are here: {list}"))
    } else {
        (missing, "not found".to_string())
    };
    let kind = if which == Which::Driver { CudaErrorKind::NoDriver } else { kind };
    let message = format!("{} ({}) {detail}; {}", which.name(), files.join(", "), which.install());
    Err(CudaError::new(kind, message))
}

/// Files of the library with another major version.
fn other_versions(which: Which, folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            // `libcuda.so.1`, not the linker's `libcuda.so` and not a full `libcuda.so.580.1` beside it.
            name.strip_prefix(which.stem())
                .and_then(|rest| rest.strip_prefix('.'))
                .is_some_and(|version| !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()))
        })
        .map(|name| folder.join(name).display().to_string())
        .collect()
}

fn open(which: Which, path: &Path, newest: Toolkit) -> Result<Found, String> {
    // What a library itself opens by bare name must be what stands beside it.
    for beside in companions(which, path) {
        let _ = load(&beside);
    }
    let library = load(path)?;
    let said = versions::said_by(which, library, newest)?;
    if let (Which::Cudnn, Some(cuda)) = (which, said.toolkit) {
        for beside in beside_cudnn(cuda) {
            let _ = load(&beside);
        }
    }
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    Ok(Found { which, path, version: said.version, toolkit: said.toolkit, library })
}

/// Libraries that NVRTC opens by bare name when it is used.
fn companions(which: Which, path: &Path) -> Vec<PathBuf> {
    let Some(entries) = path.parent().and_then(|folder| std::fs::read_dir(folder).ok()) else {
        return Vec::new();
    };
    if which != Which::Nvrtc {
        return Vec::new();
    }
    // `libnvrtc.so.12` has `libnvrtc-builtins.so.12.6` beside it.
    let major = path.extension().unwrap_or_default().to_string_lossy();
    let start = format!("libnvrtc-builtins.so.{major}");
    let builtins = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start.as_str()))
    };
    entries.flatten().map(|entry| entry.path()).filter(builtins).collect()
}

/// cuBLASLt and NVRTC of the CUDA that cuDNN is made for, which it opens by bare name when it is used.
fn beside_cudnn(cuda: Toolkit) -> Vec<PathBuf> {
    let of_this = |which: Which| match find(which) {
        Ok(found) if found.toolkit == Some(cuda) => Some(found.path.clone()),
        // Another CUDA's is taken for everything else.
        _ => places::places(which)
            .iter()
            .map(|folder| folder.join(which.file_for(cuda)))
            .find(|path| path.exists()),
    };
    [Which::CublasLt, Which::Nvrtc].into_iter().filter_map(of_this).collect()
}

fn load(path: &Path) -> Result<&'static libloading::Library, String> {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY};
    // SAFETY: NVIDIA's libraries have initializers that may run in any process; they are never unloaded. Global,
    // because they look for each other by name.
    let library = unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_GLOBAL) };
    match library {
        Ok(library) => Ok(Box::leak(Box::new(libloading::Library::from(library)))),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_named_with_the_command_that_installs_it() {
        let error = look(Which::Nvrtc, &[]).unwrap_err();
        assert_eq!(error.kind(), CudaErrorKind::MissingLibrary);
        let message = error.to_string();
        assert!(
            message.contains("libnvrtc.so.13, libnvrtc.so.12") && message.contains("pip install"),
            "{message}"
        );
        assert_eq!(look(Which::Driver, &[]).unwrap_err().kind(), CudaErrorKind::NoDriver);
    }

    #[test]
    fn another_major_and_a_file_that_is_no_library_are_refused() {
        let folder = std::env::temp_dir().join(format!("planish-find-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("libcudnn.so.8"), b"").unwrap();
        std::fs::write(folder.join("libnvrtc.so.13"), b"not a library").unwrap();
        let places = [folder.clone()];
        let other = look(Which::Cudnn, &places).unwrap_err();
        let broken = look(Which::Nvrtc, &places).unwrap_err();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(other.kind(), CudaErrorKind::WrongVersion);
        assert!(other.to_string().contains("libcudnn.so.8"), "{other}");
        assert_eq!(broken.kind(), CudaErrorKind::WrongVersion);
        assert!(broken.to_string().contains("not usable"), "{broken}");
    }
}
