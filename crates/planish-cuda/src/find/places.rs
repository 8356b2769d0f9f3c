//! The folders that libraries are looked for in.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::Which;

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
pub(super) fn places(which: Which) -> Vec<PathBuf> {
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
