//! Host memory asked for with care: what a model's sizes ask for is refused by an error instead of ending the process.
//!
//! An allocator that overcommits promises anything and has the process killed when the pages are touched, so large
//! pieces are compared with what the system says to be available before they are taken.

use std::path::Path;
use std::{fmt, fs};

/// Pieces below this are taken without asking the system, which costs some 30 µs.
const LEAST_ASKED_FOR: usize = 64 << 20;

/// Memory that could not be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfMemory {
    pub bytes: usize,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of memory could not be had", self.bytes)?;
        match available() {
            Some(available) if available < self.bytes as u64 => write!(f, ", {available} are available"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for OutOfMemory {}

/// Whether a piece of this size can be had, as far as the system tells.
pub fn fits(bytes: usize) -> Result<(), OutOfMemory> {
    let is_there = || {
        Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
            && available().is_none_or(|available| bytes as u64 <= available)
    };
    if bytes < LEAST_ASKED_FOR || is_there() { Ok(()) } else { Err(OutOfMemory { bytes }) }
}

/// Zeros.
pub fn zeroed(bytes: usize) -> Result<Vec<u8>, OutOfMemory> {
    filled(bytes, 0)
}

/// Bytes of one value.
pub fn filled(bytes: usize, value: u8) -> Result<Vec<u8>, OutOfMemory> {
    fits(bytes)?;
    if bytes >= LEAST_ASKED_FOR {
        // Zeros of the system's own are not touched before somebody writes them.
        return Ok(vec![value; bytes]);
    }
    let mut list = Vec::new();
    list.try_reserve_exact(bytes).map_err(|_| OutOfMemory { bytes })?;
    list.resize(bytes, value);
    Ok(list)
}

/// Bytes that this process can still take before the system runs short or the limit of its control group is met;
/// `None` where the system does not say.
pub fn available() -> Option<u64> {
    available_under(Path::new("/"))
}

fn available_under(root: &Path) -> Option<u64> {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let meminfo = read(&root.join("proc/meminfo"))?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let of_system = line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)?;
    let groups = read(&root.join("proc/self/cgroup")).unwrap_or_default();
    let of_groups = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let mount = root.join("sys/fs/cgroup");
        let mount = match controllers {
            "" => mount,
            _ if controllers.split(',').any(|name| name == "memory") => mount.join("memory"),
            _ => return Vec::new(),
        };
        // Inside a container the own group is mounted as the root.
        vec![left_in(&mount.join(path.trim_start_matches('/'))), left_in(&mount)]
    });
    Some(of_groups.flatten().fold(of_system, u64::min))
}

/// What a control group's limit leaves; pages of files that were not used lately do not count as taken.
fn left_in(folder: &Path) -> Option<u64> {
    let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let (limit, used, stale) = match number("memory.max") {
        Some(limit) => (limit, number("memory.current")?, "inactive_file "),
        None => (number("memory.limit_in_bytes")?, number("memory.usage_in_bytes")?, "total_inactive_file "),
    };
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let stale = stat.lines().find_map(|line| line.strip_prefix(stale)?.trim().parse::<u64>().ok());
    Some(limit.saturating_sub(used.saturating_sub(stale.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_no_machine_has_is_refused() {
        assert_eq!(zeroed(usize::MAX / 4).unwrap_err().bytes, usize::MAX / 4);
        // More than is available, though an allocator that overcommits may promise it.
        if let Some(available) = available() {
            let error = fits(available as usize + (1 << 30)).unwrap_err();
            assert!(error.to_string().contains("could not be had"), "{error}");
        }
        assert_eq!(filled(3, 7).unwrap(), [7, 7, 7]);
    }

    #[test]
    fn the_smallest_of_system_and_control_groups_counts() {
        let root = std::env::temp_dir().join(format!("planish-memory-{}", std::process::id()));
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(available_under(&root), None);
        put("proc/meminfo", "MemTotal:       2000 kB\nMemAvailable:    500 kB\n");
        assert_eq!(available_under(&root), Some(500 << 10));
        put("proc/self/cgroup", "0::/group\n");
        put("sys/fs/cgroup/group/memory.max", "max\n");
        put("sys/fs/cgroup/memory.max", "100000\n");
        put("sys/fs/cgroup/memory.current", "90000\n");
        assert_eq!(available_under(&root), Some(10_000));
        put("sys/fs/cgroup/memory.stat", "anon 80000\ninactive_file 7000\n");
        assert_eq!(available_under(&root), Some(17_000));
        put("proc/self/cgroup", "4:cpu,cpuacct:/\n3:memory:/\n");
        assert_eq!(available_under(&root), Some(500 << 10));
        put("sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n");
        put("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n");
        assert_eq!(available_under(&root), Some(0));
        fs::remove_dir_all(root).unwrap();
    }
}
