//! How long a plan takes from its file to its first result, and which libraries of CUDA the process has by then.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use planish::Device;
use serde_json::{Value, json};

/// Beginnings of the names of CUDA's libraries, the driver's own included.
const CUDA_LIBRARIES: [&str; 9] = [
    "libcuda",
    "libnv",
    "libcublas",
    "libcudnn",
    "libcufft",
    "libcurand",
    "libcusparse",
    "libcusolver",
    "libnccl",
];

/// The parts of a start.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Start {
    /// Beginning the driver and making its context, which every program on the device pays; nothing where the device
    /// is the CPU, or is left to the plan and so is part of opening it.
    pub(crate) device: Option<Duration>,
    /// From the file to an engine with its weights in place.
    pub(crate) open: Duration,
    /// From the engine to the first result, a context and the loading of code included.
    pub(crate) first: Duration,
}

impl Start {
    /// Opens a GPU that was asked for, apart from what follows.
    pub(crate) fn at(device: Device) -> Result<Start, planish::Error> {
        let began = Instant::now();
        let device = match device {
            Device::Cuda(_) => device.describe().map(|_| Some(began.elapsed()))?,
            _ => None,
        };
        Ok(Start { device, ..Start::default() })
    }

    pub(crate) fn json(&self) -> Value {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        json!({
            "device_ms": self.device.map(ms), "open_ms": ms(self.open), "first_run_ms": ms(self.first),
            "first_result_ms": ms(self.open + self.first), "libraries": libraries(),
        })
    }

    pub(crate) fn line(&self) -> String {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let mapped = libraries();
        let mapped = if mapped.is_empty() { "none".to_string() } else { mapped.join(" ") };
        let device = self
            .device
            .map_or(String::new(), |time| format!(" (the driver's context {:.1} before)", ms(time)));
        format!(
            "open {:.1} ms, then first result {:.1}{device}; libraries of CUDA: {mapped}",
            ms(self.open),
            ms(self.first)
        )
    }
}

/// The libraries of CUDA that this process has mapped, by file name.
pub(crate) fn libraries() -> Vec<String> {
    among(&std::fs::read_to_string("/proc/self/maps").unwrap_or_default())
}

fn among(maps: &str) -> Vec<String> {
    let name = |line: &str| Some(line.get(line.find('/')?..)?.rsplit('/').next()?.to_string());
    let is_cuda = |name: &String| CUDA_LIBRARIES.iter().any(|library| name.starts_with(library));
    maps.lines().filter_map(name).filter(is_cuda).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_among_mappings() {
        let maps = "7f00-7f01 r-xp 00000000 08:01 77  /usr/lib/libcuda.so.580.1\n\
                    7f01-7f02 rw-p 00000000 08:01 77  /usr/lib/libcuda.so.580.1\n\
                    7f02-7f03 r-xp 00000000 08:01 78  /opt/site packages/cudnn/libcudnn_graph.so.9\n\
                    7f03-7f04 r-xp 00000000 08:01 79  /usr/lib/libc.so.6\n\
                    7f04-7f05 rw-p 00000000 00:00 0\n";
        assert_eq!(among(maps), ["libcuda.so.580.1", "libcudnn_graph.so.9"]);
    }
}
