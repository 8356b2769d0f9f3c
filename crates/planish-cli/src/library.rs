//! Where shared libraries lie: a search of the file system along the loader's paths, without loading any.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders that loaders look into when nothing else is said.
const STANDARD: [&str; 8] = [
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/wsl/lib",
];

/// The folders to search, in the loader's order, those of CUDA and of Python environments behind.
pub(crate) fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(paths) = env::var_os("LD_LIBRARY_PATH") {
        folders.extend(env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty()));
    }
    folders.extend(configured(Path::new("/etc/ld.so.conf"), 0));
    folders.extend(STANDARD.map(PathBuf::from));
    folders.extend(toolkits(Path::new("/usr/local")));
    for variable in ["CUDA_HOME", "CUDA_PATH", "CUDNN_PATH"] {
        if let Some(root) = env::var_os(variable) {
            folders.extend(["lib64", "lib"].map(|name| Path::new(&root).join(name)));
        }
    }
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        if let Some(root) = env::var_os(variable) {
            folders.push(Path::new(&root).join("lib"));
            folders.extend(python_packages(Path::new(&root)));
        }
    }
    let mut seen = BTreeSet::new();
    folders.retain(|folder| folder.is_dir() && seen.insert(folder.clone()));
    folders
}

/// The folders that `ld.so.conf` names, with the files that it includes (`include /etc/ld.so.conf.d/*.conf`).
fn configured(path: &Path, depth: usize) -> Vec<PathBuf> {
    let Ok(text) = fs::read_to_string(path) else { return Vec::new() };
    let mut folders = Vec::new();
    for line in text.lines().map(|line| line.split('#').next().unwrap_or("").trim()) {
        match line.strip_prefix("include ") {
            // Two levels of files are what distributions have.
            Some(pattern) if depth < 2 => {
                let pattern = Path::new(pattern.trim());
                let extension = pattern.extension();
                let mut files: Vec<PathBuf> = pattern.parent().map(entries).unwrap_or_default();
                files.retain(|file| file.extension() == extension);
                folders.extend(files.iter().flat_map(|file| configured(file, depth + 1)));
            }
            Some(_) => {}
            None if line.starts_with('/') => folders.push(PathBuf::from(line)),
            None => {}
        }
    }
    folders
}

/// The library folders of CUDA toolkits, which come as `cuda` or `cuda-13.0`.
fn toolkits(root: &Path) -> Vec<PathBuf> {
    let is_toolkit = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        name == "cuda" || name.starts_with("cuda-")
    };
    let toolkits = entries(root).into_iter().filter(is_toolkit);
    let inside = ["lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"];
    toolkits.flat_map(|toolkit| inside.map(|folder| toolkit.join(folder))).collect()
}

/// The library folders of NVIDIA's Python packages in an environment.
fn python_packages(root: &Path) -> Vec<PathBuf> {
    let pythons = entries(&root.join("lib"));
    let packages = pythons.iter().map(|python| python.join("site-packages/nvidia"));
    packages.flat_map(|folder| entries(&folder)).map(|package| package.join("lib")).collect()
}

/// What a folder holds, in order; nothing if it cannot be read.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(list) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = list.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// The first file called `stem` or `stem.…` in the folders, the plainest name first.
pub(crate) fn find(folders: &[PathBuf], stem: &str) -> Option<PathBuf> {
    let is_it = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        name.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    folders.iter().find_map(|folder| entries(folder).into_iter().find(|path| is_it(path) && path.exists()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_by_name_and_version() {
        let root = env::temp_dir().join(format!("planish-library-{}", std::process::id()));
        let (a, b) = (root.join("a"), root.join("b"));
        fs::create_dir_all(&a).unwrap();
        fs::create_dir_all(&b).unwrap();
        fs::write(b.join("libx.so.1.2"), "").unwrap();
        fs::write(b.join("libxy.so"), "").unwrap();
        fs::write(
            root.join("ld.so.conf"),
            format!("# c\ninclude {}/d/*.conf\n{}\n", root.display(), a.display()),
        )
        .unwrap();
        fs::create_dir_all(root.join("d")).unwrap();
        fs::write(root.join("d/b.conf"), format!("{}\n", b.display())).unwrap();
        fs::write(root.join("d/c.txt"), "/nowhere\n").unwrap();
        let folders = configured(&root.join("ld.so.conf"), 0);
        assert_eq!(folders, [b.clone(), a.clone()]);
        assert_eq!(find(&folders, "libx.so"), Some(b.join("libx.so.1.2")));
        assert_eq!(find(&folders, "libx.so.1"), Some(b.join("libx.so.1.2")));
        assert_eq!(find(&folders, "libz.so"), None);
        fs::create_dir_all(root.join("cuda-13.0")).unwrap();
        assert_eq!(toolkits(&root)[0], root.join("cuda-13.0/lib64"));
        fs::remove_dir_all(root).unwrap();
    }
}
