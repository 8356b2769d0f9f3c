//! `planish doctor`: what this machine offers and what is missing: read from the file system, and asked of
//! NVIDIA's driver and libraries where they are.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use planish_cuda::{CudaErrorKind, Gpu, Report};
use serde_json::json;

use crate::args::Doctor;
use crate::ending::Answer;
use crate::print;

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

pub(crate) fn command(args: &Doctor, out: &mut dyn Write) -> Result<Answer> {
    let machine = Machine::look(Path::new("/"));
    let cuda = Report::look();
    if !args.json.replaces_tables() {
        machine.print(out)?;
        print_cuda(&cuda, out)?;
    }
    let mut report = machine.json();
    let libraries = cuda.libraries.iter().map(|library| {
        let about = match &library.found {
            Ok(found) => json!({ "path": found.path.display().to_string(), "version": found.version }),
            Err(missing) => json!({ "missing": missing.to_string(), "install": library.which.install() }),
        };
        (library.which.file().to_string(), about)
    });
    report["libraries"] = libraries.collect::<serde_json::Map<_, _>>().into();
    report["cuda"] = match &cuda.gpus {
        Ok(gpus) => gpus.iter().map(|(gpu, free)| gpu_json(gpu, *free)).collect(),
        Err(why) => json!({ "missing": why.to_string() }),
    };
    report["backends"] = backends(&cuda).into();
    print::json(out, &args.json, &report)?;
    Ok(Answer::Yes)
}

/// The backends that work here.
fn backends(cuda: &Report) -> Vec<&'static str> {
    let has_gpu = cuda.gpus.as_ref().is_ok_and(|gpus| !gpus.is_empty());
    if has_gpu { vec!["cpu", "cuda"] } else { vec!["cpu"] }
}

fn print_cuda(cuda: &Report, out: &mut dyn Write) -> Result<()> {
    match &cuda.gpus {
        Ok(gpus) => {
            for (index, (gpu, free)) in gpus.iter().enumerate() {
                writeln!(
                    out,
                    "cuda:{index}      {}, sm_{}, {} multiprocessors, {} ({} free)",
                    gpu.name,
                    gpu.sm,
                    gpu.n_sms,
                    print::bytes(gpu.memory_bytes as u64),
                    print::bytes(*free as u64)
                )?;
            }
        }
        Err(why) => writeln!(out, "cuda        {why}")?,
    }
    writeln!(out, "libraries")?;
    let rows: Vec<Vec<String>> = cuda
        .libraries
        .iter()
        .map(|library| {
            let which = library.which;
            let found = match &library.found {
                Ok(found) => format!("{} {}", found.version, found.path.display()),
                Err(missing) if missing.kind() == CudaErrorKind::WrongVersion => missing.to_string(),
                Err(_) => format!("missing ({}): {}", which.purpose(), which.install()),
            };
            vec![which.file().to_string(), found]
        })
        .collect();
    print::table(out, &rows, &[])?;
    writeln!(out, "backends    {}", backends(cuda).join(", "))?;
    Ok(())
}

fn gpu_json(gpu: &Gpu, free: usize) -> serde_json::Value {
    json!({
        "name": gpu.name,
        "sm": gpu.sm,
        "multiprocessors": gpu.n_sms,
        "memory_bytes": gpu.memory_bytes,
        "memory_free_bytes": free,
    })
}

/// Bytes of memory that this process can have at most, as far as the system says.
pub(crate) fn memory() -> Option<u64> {
    let machine = Machine::look(Path::new("/"));
    machine.memory_limit.into_iter().chain(machine.memory).min()
}

/// What a folder holds, in order; nothing if it cannot be read.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(list) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = list.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// What the file system says; `None` where it is silent.
#[derive(Debug, Default)]
struct Machine {
    cpu: Option<String>,
    features: Vec<String>,
    n_cpus: usize,
    allowed: Option<String>,
    quota: Option<f64>,
    n_threads: usize,
    memory: Option<u64>,
    available: Option<u64>,
    memory_limit: Option<u64>,
    driver: Option<String>,
    gpus: Vec<String>,
}

impl Machine {
    fn look(root: &Path) -> Machine {
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

    fn print(&self, out: &mut dyn Write) -> Result<()> {
        let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "not known".into());
        let size = |value: Option<u64>| value.map_or("not known".into(), print::bytes);
        writeln!(out, "cpu         {}", known(&self.cpu))?;
        let features =
            if self.features.is_empty() { "none of those used".into() } else { self.features.join(" ") };
        writeln!(out, "features    {features}")?;
        let quota = self.quota.map_or("no quota".into(), |cpus| format!("quota of {cpus} CPUs"));
        writeln!(
            out,
            "threads     {} usable: {} CPUs, allowed {}, {quota}",
            self.n_threads,
            self.n_cpus,
            known(&self.allowed)
        )?;
        let limit = self
            .memory_limit
            .map_or("no limit".into(), |limit| format!("limited to {}", print::bytes(limit)));
        writeln!(out, "memory      {}, {} available, {limit}", size(self.memory), size(self.available))?;
        match &self.driver {
            Some(version) => writeln!(out, "driver      NVIDIA {version}")?,
            None => writeln!(out, "driver      no NVIDIA driver is loaded")?,
        }
        if self.gpus.is_empty() {
            writeln!(out, "gpus        none found")?;
        } else {
            writeln!(out, "gpus        {}", self.gpus.join(", "))?;
        }
        Ok(())
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "cpu": self.cpu,
            "features": self.features,
            "cpus": self.n_cpus,
            "cpus_allowed": self.allowed,
            "cpu_quota": self.quota,
            "threads": self.n_threads,
            "memory_bytes": self.memory,
            "memory_available_bytes": self.available,
            "memory_limit_bytes": self.memory_limit,
            "nvidia_driver": self.driver,
            "gpus": self.gpus,
        })
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
        let machine = Machine::look(&root);
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
        let machine = Machine::look(&root);
        assert_eq!((machine.quota, machine.memory_limit), (None, None));
        fs::remove_dir_all(&root).unwrap();
        let nothing = Machine::look(&root);
        assert!(nothing.cpu.is_none() && nothing.gpus.is_empty());
    }
}
