//! Where the driver and the libraries are looked for, and which versions are taken.
//!
//! Each file is opened by its full path and asked for its version before anything else is called; a major
//! version that this program was not written for is refused and listed. Looked at, in this order: the folders
//! of `PLANISH_CUDA_PATH` and `LD_LIBRARY_PATH`, the `nvidia-*` wheels of the Python that we are part of and of an
//! active Python environment, CUDA toolkits, and the folders that the system's loader knows.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::error::{CudaError, CudaErrorKind};

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

/// The oldest driver, 580: machine code of NVRTC 13 needs a driver of that major version or newer.
const OLDEST_DRIVER: i32 = 13_000;

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

    /// The file's name with the major version that we were written for.
    pub fn file(self) -> &'static str {
        match self {
            Which::Driver => "libcuda.so.1",
            Which::Nvrtc => "libnvrtc.so.13",
            Which::CublasLt => "libcublasLt.so.13",
            Which::Cudnn => "libcudnn.so.9",
            Which::Nvml => "libnvidia-ml.so.1",
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

    /// What installs it.
    pub fn install(self) -> &'static str {
        match self {
            Which::Driver | Which::Nvml => {
                "install NVIDIA's driver, 580 or newer (https://www.nvidia.com/drivers)"
            }
            Which::Nvrtc => "pip install 'nvidia-cuda-nvrtc==13.0.*'",
            Which::CublasLt => "pip install 'nvidia-cublas==13.*'",
            Which::Cudnn => "pip install 'nvidia-cudnn-cu13==9.*'",
        }
    }

    /// What it is for.
    pub fn purpose(self) -> &'static str {
        match self {
            Which::Driver => "everything on a GPU",
            Which::Nvrtc => "building plans with our own kernels",
            Which::CublasLt => "matrix products by cuBLASLt",
            Which::Cudnn => "convolutions by cuDNN",
            Which::Nvml => "clocks, power and utilisation in `bench`",
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
    pub(crate) library: &'static libloading::Library,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.which.name(), self.version, self.path.display())
    }
}

/// The library, looked for once in the process.
pub fn find(which: Which) -> Result<&'static Found, CudaError> {
    which.slot().get_or_init(|| look(which, &places(which))).as_ref().map_err(Clone::clone)
}

/// A library that is loaded already; nothing is looked for. What a process maps can be told by it.
pub fn loaded(which: Which) -> Option<&'static Found> {
    which.slot().get()?.as_ref().ok()
}

fn look(which: Which, places: &[PathBuf]) -> Result<Found, CudaError> {
    let mut refused = Vec::new();
    for folder in places {
        let path = folder.join(which.file());
        if !path.exists() {
            continue;
        }
        match open(which, &path) {
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
    let message = format!("{} ({}) {detail}; {}", which.name(), which.file(), which.install());
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

fn open(which: Which, path: &Path) -> Result<Found, String> {
    // What a library itself opens by bare name must be what stands beside it.
    for beside in companions(which, path) {
        let _ = load(&beside);
    }
    let library = load(path)?;
    let version = version_of(which, library)?;
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    Ok(Found { which, path, version, library })
}

/// Libraries that NVRTC and cuDNN open by bare name when they are used.
fn companions(which: Which, path: &Path) -> Vec<PathBuf> {
    match which {
        Which::Nvrtc => {
            let Some(entries) = path.parent().and_then(|folder| std::fs::read_dir(folder).ok()) else {
                return Vec::new();
            };
            let builtins = |path: &PathBuf| {
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                name.starts_with("libnvrtc-builtins.so.13")
            };
            entries.flatten().map(|entry| entry.path()).filter(builtins).collect()
        }
        Which::Cudnn => {
            let needed = [Which::CublasLt, Which::Nvrtc];
            needed.into_iter().filter_map(|which| find(which).ok()).map(|found| found.path.clone()).collect()
        }
        Which::Driver | Which::CublasLt | Which::Nvml => Vec::new(),
    }
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

/// The version that the library itself says, if it is one that we were written for.
fn version_of(which: Which, library: &'static libloading::Library) -> Result<String, String> {
    let refused = |version: &str| Err(format!("version {version} is not one that this program knows"));
    let symbol = |error: libloading::Error| error.to_string();
    match which {
        Which::Driver => {
            let mut version: c_int = 0;
            // SAFETY: this signature is the driver's since its first version; it may be called before cuInit.
            let code = unsafe {
                let ask: libloading::Symbol<'_, unsafe extern "C" fn(*mut c_int) -> u32> =
                    library.get(b"cuDriverGetVersion").map_err(symbol)?;
                ask(&raw mut version)
            };
            let text = format!("{}.{}", version / 1000, version % 1000 / 10);
            // A newer driver keeps the interface of the older, so only the oldest is bounded.
            match code {
                0 if version >= OLDEST_DRIVER => Ok(text),
                0 => Err(format!("it offers CUDA {text}, 13.0 (driver 580) is the oldest that works")),
                code => Err(format!("it fails with code {code} when asked for its version")),
            }
        }
        Which::Nvrtc => {
            let (mut major, mut minor): (c_int, c_int) = (0, 0);
            // SAFETY: this signature is NVRTC's since its first version.
            let code = unsafe {
                let ask: libloading::Symbol<'_, unsafe extern "C" fn(*mut c_int, *mut c_int) -> u32> =
                    library.get(b"nvrtcVersion").map_err(symbol)?;
                ask(&raw mut major, &raw mut minor)
            };
            let text = format!("{major}.{minor}");
            if code == 0 && major == 13 { Ok(text) } else { refused(&text) }
        }
        Which::CublasLt | Which::Cudnn => {
            let name: &[u8] = if which == Which::Cudnn { b"cudnnGetVersion" } else { b"cublasLtGetVersion" };
            // SAFETY: both take nothing and return a size_t since their first versions.
            let number = unsafe {
                let ask: libloading::Symbol<'_, unsafe extern "C" fn() -> usize> =
                    library.get(name).map_err(symbol)?;
                ask()
            };
            let text = format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100);
            let bound = if which == Which::Cudnn { 9 } else { 13 };
            if number / 10_000 == bound { Ok(text) } else { refused(&text) }
        }
        Which::Nvml => {
            let mut text = [0 as c_char; 96];
            // SAFETY: nvmlSystemGetDriverVersion writes at most `length` bytes; it needs nvmlInit_v2 before.
            let code = unsafe {
                let init: libloading::Symbol<'_, unsafe extern "C" fn() -> u32> =
                    library.get(b"nvmlInit_v2").map_err(symbol)?;
                let ask: libloading::Symbol<'_, unsafe extern "C" fn(*mut c_char, u32) -> u32> =
                    library.get(b"nvmlSystemGetDriverVersion").map_err(symbol)?;
                match init() {
                    0 => ask(text.as_mut_ptr(), text.len() as u32),
                    code => code,
                }
            };
            let bytes: Vec<u8> = text.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
            match code {
                0 => Ok(String::from_utf8_lossy(&bytes).into_owned()),
                code => Err(format!("it fails with code {code} when asked for the driver's version")),
            }
        }
    }
}

/// Folders of Python packages that the process itself knows of.
static PACKAGES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Has the `nvidia-*` wheels in these folders of Python packages looked at too, before those of other Pythons. What was
/// looked for before stays as it was found.
///
/// ```
/// planish_cuda::find::look_in_packages(["/opt/app/lib/python3.12/site-packages".into()]);
/// ```
pub fn look_in_packages(folders: impl IntoIterator<Item = PathBuf>) {
    PACKAGES.lock().unwrap_or_else(PoisonError::into_inner).extend(folders);
}

/// The folders to look in, each once.
fn places(which: Which) -> Vec<PathBuf> {
    let mut places = Vec::new();
    places.extend(variable("PLANISH_CUDA_PATH"));
    places.extend(variable("LD_LIBRARY_PATH"));
    match which {
        Which::Driver | Which::Nvml => {}
        Which::Nvrtc | Which::CublasLt | Which::Cudnn => {
            let packages = PACKAGES.lock().unwrap_or_else(PoisonError::into_inner);
            places.extend(packages.iter().flat_map(|packages| libraries_in(packages)));
            drop(packages);
            places.extend(wheels());
            places.extend(toolkits());
        }
    }
    places.extend(loader());
    let mut seen = BTreeSet::new();
    places.retain(|place| place.is_dir() && seen.insert(place.clone()));
    places
}

/// The folders of a variable like `PATH`.
fn variable(name: &str) -> Vec<PathBuf> {
    let Some(value) = std::env::var_os(name) else {
        return Vec::new();
    };
    std::env::split_paths(&value).filter(|path| path.is_absolute()).collect()
}

/// `nvidia/*/lib` in the packages of the active Python: `VIRTUAL_ENV`, `CONDA_PREFIX`, the `python3` on the path.
fn wheels() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = Vec::new();
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        roots.extend(std::env::var_os(name).map(PathBuf::from));
    }
    for folder in variable("PATH") {
        let python = folder.join("python3");
        if python.exists() {
            roots.extend(folder.parent().map(Path::to_path_buf));
            let real = python.canonicalize().ok();
            roots
                .extend(real.as_deref().and_then(Path::parent).and_then(Path::parent).map(Path::to_path_buf));
        }
    }
    roots.iter().flat_map(|root| wheels_under(root)).collect()
}

/// The same in one environment.
fn wheels_under(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for lib in ["lib", "lib64"] {
        for python in children(&root.join(lib)) {
            let is_python =
                python.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3"));
            if !is_python {
                continue;
            }
            for packages in ["site-packages", "dist-packages"] {
                found.extend(libraries_in(&python.join(packages)));
            }
        }
    }
    // Conda puts libraries beside Python's.
    found.push(root.join("lib"));
    found
}

/// `nvidia/*/lib` in a folder of Python packages.
fn libraries_in(packages: &Path) -> Vec<PathBuf> {
    children(&packages.join("nvidia")).iter().map(|package| package.join("lib")).collect()
}

fn toolkits() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = Vec::new();
    for name in ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDNN_PATH"] {
        roots.extend(std::env::var_os(name).map(PathBuf::from));
    }
    let mut installed: Vec<PathBuf> = children(Path::new("/usr/local"))
        .into_iter()
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("cuda")))
        .collect();
    // The plain `cuda` first: it is what the administrator chose.
    installed.sort();
    roots.extend(installed);
    roots.push(PathBuf::from("/opt/cuda"));
    // NVIDIA calls 64-bit ARM servers `sbsa`.
    let arch = if cfg!(target_arch = "aarch64") { "sbsa" } else { std::env::consts::ARCH };
    let target = format!("targets/{arch}-linux/lib");
    let inside = |root: &PathBuf| ["lib64", &target, "lib"].map(|lib| root.join(lib));
    roots.iter().flat_map(inside).collect()
}

/// The folders of the system's loader.
fn loader() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut files = vec![PathBuf::from("/etc/ld.so.conf")];
    let mut more = children(Path::new("/etc/ld.so.conf.d"));
    more.sort();
    files.extend(more);
    for file in files {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        found.extend(text.lines().map(str::trim).filter(|line| line.starts_with('/')).map(PathBuf::from));
    }
    let arch = std::env::consts::ARCH;
    found.extend(
        [
            format!("/usr/lib/{arch}-linux-gnu"),
            format!("/lib/{arch}-linux-gnu"),
            "/usr/lib64".to_string(),
            "/lib64".to_string(),
            "/usr/lib".to_string(),
            "/usr/local/lib".to_string(),
            "/usr/local/nvidia/lib64".to_string(),
            "/usr/local/nvidia/lib".to_string(),
            "/usr/lib/wsl/lib".to_string(),
        ]
        .map(PathBuf::from),
    );
    found
}

fn children(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder)
        .map(|list| list.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_named_with_the_command_that_installs_it() {
        let error = look(Which::Nvrtc, &[]).unwrap_err();
        assert_eq!(error.kind(), CudaErrorKind::MissingLibrary);
        let message = error.to_string();
        assert!(message.contains("libnvrtc.so.13") && message.contains("pip install"), "{message}");
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

    #[test]
    fn wheels_of_the_process_itself_are_looked_at() {
        let packages = std::env::temp_dir().join(format!("planish-packages-{}", std::process::id()));
        let libraries = packages.join("nvidia/cu13/lib");
        std::fs::create_dir_all(&libraries).unwrap();
        look_in_packages([packages.clone()]);
        let (nvrtc, driver) = (places(Which::Nvrtc), places(Which::Driver));
        std::fs::remove_dir_all(&packages).unwrap();
        assert!(nvrtc.contains(&libraries), "{nvrtc:?}");
        assert!(!driver.contains(&libraries), "drivers come in no wheel: {driver:?}");
    }

    #[test]
    fn wheels_of_an_environment_are_found() {
        let root = std::env::temp_dir().join(format!("planish-wheels-{}", std::process::id()));
        let lib = root.join("lib/python3.11/site-packages/nvidia/cu13/lib");
        std::fs::create_dir_all(&lib).unwrap();
        let found = wheels_under(&root);
        std::fs::remove_dir_all(&root).unwrap();
        assert!(found.contains(&lib), "{found:?}");
    }
}
