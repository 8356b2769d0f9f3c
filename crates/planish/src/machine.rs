//! `Machine`: what the file system says of this machine: CPU, memory, limits, drivers; `Peaks`: what it can do at most.

use std::fs;
use std::path::{Path, PathBuf};

#[doc(inline)]
pub use planish_tensor::heap::share_one_heap;

pub use crate::peaks::{Peak, PeakUnit, Peaks};

/// CPU features that kernels will ask for, as `/proc/cpuinfo` spells them.
const FEATURES: [&str; 15] = [
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
];

/// Bytes of memory that this process can have at most, as far as the system says.
///
/// ```
/// assert!(planish::machine::memory().is_none_or(|bytes| bytes > 1 << 20));
/// ```
pub fn memory() -> Option<u64> {
    let machine = Machine::look();
    machine.memory_limit.into_iter().chain(machine.memory).min()
}

/// The most memory that this process has had so far, in bytes; `None` where the system does not say.
///
/// ```
/// assert!(planish::machine::peak_memory().is_none_or(|bytes| bytes > 1 << 16));
/// ```
pub fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// What a folder holds, in order; nothing if it cannot be read.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(list) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = list.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// What the file system says; `None` where it is silent.
///
/// ```
/// use planish::machine::Machine;
///
/// let machine = Machine::look();
/// assert!(machine.n_threads >= 1);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Machine {
    /// The CPU's name.
    pub cpu: Option<String>,
    /// What it has of the instructions that kernels ask for, as `/proc/cpuinfo` spells them.
    pub features: Vec<String>,
    /// CPUs of the machine.
    pub n_cpus: usize,
    /// Those that this process may run on, as a list of numbers.
    pub allowed: Option<String>,
    /// CPUs that the control group grants.
    pub quota: Option<f64>,
    /// Threads that this process can use at the same time.
    pub n_threads: usize,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Bytes of it that are available now.
    pub available: Option<u64>,
    /// Bytes that the control group grants.
    pub memory_limit: Option<u64>,
    /// The version of NVIDIA's driver.
    pub driver: Option<String>,
    /// Names of the GPUs that the driver lists.
    pub gpus: Vec<String>,
}

impl Machine {
    /// This machine.
    pub fn look() -> Machine {
        Machine::at(Path::new("/"))
    }

    fn at(root: &Path) -> Machine {
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let cpuinfo = read("proc/cpuinfo");
        let field = |text: &str, name: &str| -> Option<String> {
            let line = text.lines().find(|line| line.split(':').next().unwrap_or("").trim() == name)?;
            Some(line.split_once(':')?.1.trim().to_string())
        };
        let flags = field(&cpuinfo, "flags").or_else(|| field(&cpuinfo, "Features")).unwrap_or_default();
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let meminfo = read("proc/meminfo");
        let kilobytes = |name: &str| {
            let text = field(&meminfo, name)?;
            text.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
        };
        let gpus = entries(&root.join("proc/driver/nvidia/gpus")).into_iter().filter_map(|folder| {
            let text = fs::read_to_string(folder.join("information")).ok()?;
            field(&text, "Model")
        });
        Machine {
            cpu: field(&cpuinfo, "model name").or_else(|| field(&cpuinfo, "Processor")),
            features: FEATURES
                .iter()
                .filter(|name| flags.contains(name))
                .map(|name| name.to_string())
                .collect(),
            n_cpus: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
            allowed: field(&read("proc/self/status"), "Cpus_allowed_list"),
            quota: cpu_quota(root),
            n_threads: std::thread::available_parallelism().map_or(1, usize::from),
            memory: kilobytes("MemTotal"),
            available: kilobytes("MemAvailable"),
            memory_limit: memory_limit(root),
            driver: read("proc/driver/nvidia/version").lines().next().map(driver_version),
            gpus: gpus.collect(),
        }
    }
}

/// The version in the driver's first line, which ends in a date.
fn driver_version(line: &str) -> String {
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    line.split_whitespace().find(is_version).unwrap_or("of unknown version").to_string()
}

/// The process's control groups, the unified one (version 2) first: the folders that may hold limits.
fn control_groups(root: &Path, controller: &str) -> Vec<PathBuf> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut folders = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let path = path.trim_start_matches('/');
        if controllers.is_empty() {
            folders.push(root.join("sys/fs/cgroup").join(path));
            // Inside a container the own group is mounted as the root.
            folders.push(root.join("sys/fs/cgroup"));
        } else if controllers.split(',').any(|name| name == controller) {
            folders.push(root.join("sys/fs/cgroup").join(controllers).join(path));
            folders.push(root.join("sys/fs/cgroup").join(controller));
        }
    }
    folders
}

/// CPUs that the control group grants, as a fraction.
fn cpu_quota(root: &Path) -> Option<f64> {
    control_groups(root, "cpu").iter().find_map(|folder| {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let (quota, period) = match read("cpu.max") {
            Some(text) => {
                let (quota, period) = text.trim().split_once(' ')?;
                (quota.to_string(), period.to_string())
            }
            None => (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
        };
        let (quota, period): (f64, f64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
        (quota > 0.0 && period > 0.0).then(|| quota / period)
    })
}

/// Bytes that the control group grants.
fn memory_limit(root: &Path) -> Option<u64> {
    /// Version 1 says "no limit" with a number near the top.
    const NO_LIMIT: u64 = 1 << 60;
    control_groups(root, "memory").iter().find_map(|folder| {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let text = read("memory.max").or_else(|| read("memory.limit_in_bytes"))?;
        text.trim().parse::<u64>().ok().filter(|&limit| limit < NO_LIMIT)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_read_from_its_files() {
        let root = std::env::temp_dir().join(format!("planish-doctor-{}", std::process::id()));
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(
            "proc/cpuinfo",
            "processor\t: 0\nmodel name\t: A CPU\nflags\t\t: fpu avx2 fma amx_tile\n\nprocessor\t: 1\n",
        );
        put("proc/meminfo", "MemTotal:       1000 kB\nMemAvailable:    500 kB\n");
        put("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-1\n");
        put("proc/self/cgroup", "0::/group\n");
        put("sys/fs/cgroup/group/cpu.max", "150000 100000\n");
        put("sys/fs/cgroup/group/memory.max", "max\n");
        put("sys/fs/cgroup/memory.max", "4096\n");
        put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Module  580.65.06  Sun Jul 27\n");
        put("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA H200\nIRQ: 1\n");
        let machine = Machine::at(&root);
        assert_eq!(machine.cpu.as_deref(), Some("A CPU"));
        assert_eq!(machine.features, ["avx2", "fma", "amx_tile"]);
        assert_eq!((machine.n_cpus, machine.allowed.as_deref()), (2, Some("0-1")));
        assert_eq!((machine.quota, machine.memory_limit), (Some(1.5), Some(4096)));
        assert_eq!((machine.memory, machine.available), (Some(1_024_000), Some(512_000)));
        assert_eq!(machine.driver.as_deref(), Some("580.65.06"));
        assert_eq!(machine.gpus, ["NVIDIA H200"]);
        put("proc/self/cgroup", "4:cpu,cpuacct:/\n3:memory:/\n");
        put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
        put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
        put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        let machine = Machine::at(&root);
        assert_eq!((machine.quota, machine.memory_limit), (None, None));
        fs::remove_dir_all(&root).unwrap();
        let nothing = Machine::at(&root);
        assert!(nothing.cpu.is_none() && nothing.gpus.is_empty());
    }
}
