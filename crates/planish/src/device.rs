//! `Device`: where plans are built for and run. The one place where the library goes from names to backends.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use planish_cpu::isa::Isa;
use planish_kernel::{Backend, Target};
#[cfg(feature = "build")]
use planish_kernel::{Compiler, KernelError};
#[cfg(feature = "build")]
use planish_plan::Weight;
#[cfg(feature = "build")]
use planish_tensor::Tensor;

use crate::{Error, ErrorKind};

/// Where a plan is built for or runs.
///
/// ```
/// use planish::Device;
///
/// let device: Device = "cuda:1".parse()?;                              // as users write it
/// assert_eq!((device, device.to_string()), (Device::Cuda(1), "cuda:1".to_string()));
/// assert_ne!(Device::Auto.settled(), Device::Auto);                    // the GPU if there is one, else the CPU
/// assert!(!Device::Cpu.describe()?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Device {
    /// The best that this machine has: its first GPU, or its CPU.
    #[default]
    Auto,
    /// This process's CPU.
    Cpu,
    /// The NVIDIA GPU of this number; what it has no kernel for runs on the CPU.
    Cuda(usize),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Auto => f.write_str("auto"),
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl FromStr for Device {
    type Err = String;

    /// Reads `auto`, `cpu`, `cuda` or `cuda:1`.
    fn from_str(text: &str) -> Result<Device, String> {
        let wrong = || format!("`{text}` is not a device; give cpu, cuda, cuda:1 or auto");
        match text {
            "auto" => Ok(Device::Auto),
            "cpu" => Ok(Device::Cpu),
            "cuda" => Ok(Device::Cuda(0)),
            _ => {
                let index = text.strip_prefix("cuda:").ok_or_else(wrong)?;
                // A number may have a sign, a GPU's has none.
                let is_number = index.bytes().all(|byte| byte.is_ascii_digit());
                index.parse().ok().filter(|_| is_number).map(Device::Cuda).ok_or_else(wrong)
            }
        }
    }
}

/// Where tactics may come from, of all backends in this build: the names that `--tactic-sources` and
/// [`crate::Builder::tactic_sources`] take.
///
/// ```
/// assert!(planish::tactic_sources().contains(&"own"));
/// ```
pub fn tactic_sources() -> Vec<&'static str> {
    #[cfg(feature = "cuda")]
    let others = planish_cuda::SOURCES;
    #[cfg(not(feature = "cuda"))]
    let others: &[&str] = &[];
    let mut all: Vec<&str> = planish_cpu::SOURCES.to_vec();
    all.extend(others.iter().filter(|name| !planish_cpu::SOURCES.contains(name)));
    all
}

impl Device {
    /// This device, with `Auto` settled: the first GPU where there is one that works, else the CPU.
    pub fn settled(self) -> Device {
        match self {
            Device::Auto if gpu(0).is_ok() => Device::Cuda(0),
            Device::Auto => Device::Cpu,
            other => other,
        }
    }

    /// What the device is, in words.
    pub fn describe(self) -> Result<String, Error> {
        match self.settled() {
            Device::Cuda(index) => Ok(gpu(index)?.target().device),
            Device::Auto | Device::Cpu => Ok(planish_cpu::Cpu::new().target().device),
        }
    }

    /// The backend that a plan for this device has beside the CPU's; `None` where it needs none.
    pub(crate) fn accelerator(self) -> Option<&'static str> {
        match self {
            Device::Cuda(_) => Some("cuda"),
            Device::Auto | Device::Cpu => None,
        }
    }

    /// The backends that a build for it uses: the host's first. What is compiled for them is theirs alone, and goes
    /// with them.
    #[cfg(any(feature = "build", test))]
    pub(crate) fn backends(self) -> Result<Vec<Arc<dyn Backend>>, Error> {
        let mut backends: Vec<Arc<dyn Backend>> = vec![Arc::new(planish_cpu::Cpu::new())];
        let accelerator = match self.settled() {
            Device::Cuda(index) => gpu(index)?,
            Device::Auto | Device::Cpu => return Ok(backends),
        };
        let own = accelerator.with_code(&[]).map_err(Error::from)?;
        backends.push(own.unwrap_or(accelerator));
        Ok(backends)
    }

    /// The backend of a plan's target on this device; the CPU with the target's instruction set where this machine
    /// has it, so that a plan for a lesser machine runs.
    pub(crate) fn backend_for(self, target: &Target) -> Result<Arc<dyn Backend>, Error> {
        match (target.backend.as_str(), self) {
            ("cpu", _) => {
                let isa = target.needs.first().and_then(|name| Isa::named(name));
                let isa = isa.filter(|isa| isa.is_within(Isa::best())).unwrap_or(Isa::best());
                Ok(Arc::new(planish_cpu::Cpu::with_isa(isa)))
            }
            ("cuda", Device::Cuda(index)) => gpu(index),
            ("cuda", Device::Auto) => gpu(0),
            ("cuda", Device::Cpu) => {
                let message = "the plan runs on a GPU, the CPU was asked for";
                Err(other_device(message, "cpu"))
            }
            (target, _) => {
                let message =
                    format!("the plan runs on `{target}`, which this build of Planish does not have");
                Err(Error::new(ErrorKind::Lacking, message))
            }
        }
    }
}

/// Whether any of a plan's targets is beside the CPU.
pub(crate) fn is_accelerated(targets: &[Target]) -> bool {
    targets.iter().any(|target| target.backend != "cpu")
}

/// Unpacks a weight as the target's backend packs; that takes no such device.
#[cfg(feature = "build")]
pub(crate) fn unpack(target: &Target, weight: &Weight) -> Result<Tensor, KernelError> {
    let form = weight.packed_form(weight.format.as_deref().unwrap_or_default());
    let bytes = weight.widened();
    match target.backend.as_str() {
        "cpu" => planish_cpu::Cpu::new().unpack(form, &bytes),
        #[cfg(feature = "cuda")]
        "cuda" => planish_cuda::unpack(form, &bytes),
        other => {
            let message = format!("it was packed by `{other}`, which this build of Planish does not have");
            Err(KernelError::unsupported(message))
        }
    }
}

/// A plan that was built for another device than it is asked to run on.
pub(crate) fn other_device(why: &str, device: &str) -> Error {
    let command = format!("planish build --device {device}");
    let message = format!("{why}; rebuild it with `{command}`");
    Error::new(ErrorKind::NeedsRebuild { why: why.to_string(), command }, message)
}

#[cfg(feature = "build")]
impl Device {
    /// This device for a plan: where nothing else is asked for, a plan for a GPU stays on one if there is one.
    pub(crate) fn settled_for(self, targets: &[Target]) -> Device {
        match self {
            Device::Auto if is_accelerated(targets) => self.settled(),
            Device::Auto => Device::Cpu,
            other => other,
        }
    }
}

/// A GPU, opened once in a process: its context and its libraries are shared by all that use it, code is not.
#[cfg(feature = "cuda")]
fn gpu(index: usize) -> Result<Arc<dyn Backend>, Error> {
    use std::collections::BTreeMap;
    use std::sync::{Mutex, PoisonError};

    static OPENED: Mutex<BTreeMap<usize, Arc<planish_cuda::Cuda>>> = Mutex::new(BTreeMap::new());
    // Opening leaves the map whole whatever happens.
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(gpu) = opened.get(&index) {
        return Ok(gpu.clone());
    }
    let gpu = planish_cuda::Cuda::open(index).map_err(|error| {
        let kind = if error.is_missing() { ErrorKind::Lacking } else { ErrorKind::Failed };
        Error::new(kind, format!("cuda:{index} cannot be used: {error}"))
    })?;
    let gpu = Arc::new(gpu);
    opened.insert(index, gpu.clone());
    Ok(gpu)
}

#[cfg(not(feature = "cuda"))]
fn gpu(index: usize) -> Result<Arc<dyn Backend>, Error> {
    let message = format!("cuda:{index} cannot be used: this build of Planish has no CUDA backend");
    Err(Error::new(ErrorKind::Lacking, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_names() {
        for (text, device) in [
            ("auto", Device::Auto),
            ("cpu", Device::Cpu),
            ("cuda", Device::Cuda(0)),
            ("cuda:0", Device::Cuda(0)),
            ("cuda:3", Device::Cuda(3)),
        ] {
            assert_eq!(text.parse(), Ok(device));
        }
        assert_eq!(Device::Cuda(3).to_string().parse(), Ok(Device::Cuda(3)));
        for text in [
            "",
            "gpu",
            "CUDA",
            "cuda0",
            "cuda:",
            "cuda:x",
            "cuda:-1",
            "cuda:+1",
            "cuda: 1",
            "cuda:1,2",
            "cuda:99999999999999999999",
        ] {
            assert!(text.parse::<Device>().unwrap_err().contains("is not a device"), "{text}");
        }
    }

    #[test]
    fn a_gpu_that_is_not_there_is_lacking() {
        // No machine has this many.
        let error = Device::Cuda(9999).backends().unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Lacking, "{error}");
        assert!(error.to_string().starts_with("cuda:9999 cannot be used: "), "{error}");
    }
}
