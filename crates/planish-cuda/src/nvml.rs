//! NVML: what the device does while something else is measured: load, clocks, power, memory.

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};

use crate::driver::Context;
use crate::error::{CudaError, CudaErrorKind};
use crate::find::{self, Which};

/// A device under watch.
#[derive(Debug)]
pub struct Monitor {
    nvml: Nvml,
    bus_id: String,
}

/// The device at one moment; `None` where it does not say.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Sample {
    /// Percent of the last moments in which a kernel ran.
    pub utilisation: Option<u32>,
    /// Clock of the multiprocessors, MHz.
    pub clock_mhz: Option<u32>,
    pub memory_clock_mhz: Option<u32>,
    pub power_w: Option<f64>,
    pub temperature_c: Option<u32>,
    /// Bytes in use, by every process.
    pub memory_used: Option<u64>,
}

impl Monitor {
    pub fn new(context: &Context) -> Result<Monitor, CudaError> {
        let found = find::find(Which::Nvml)?;
        let failed = |error: nvml_wrapper::error::NvmlError| {
            CudaError::new(CudaErrorKind::Failed, format!("NVML: {error}"))
        };
        let nvml = Nvml::builder().lib_path(found.path.as_os_str()).init().map_err(failed)?;
        let bus_id = context.pci_bus_id()?;
        nvml.device_by_pci_bus_id(bus_id.as_str()).map_err(failed)?;
        Ok(Monitor { nvml, bus_id })
    }

    /// The device `cuda:index`.
    pub fn of_device(index: usize) -> Result<Monitor, CudaError> {
        Monitor::new(&*Context::open(index)?)
    }

    pub fn sample(&self) -> Sample {
        let Ok(device) = self.nvml.device_by_pci_bus_id(self.bus_id.as_str()) else {
            return Sample::default();
        };
        Sample {
            utilisation: device.utilization_rates().ok().map(|rates| rates.gpu),
            clock_mhz: device.clock_info(Clock::SM).ok(),
            memory_clock_mhz: device.clock_info(Clock::Memory).ok(),
            power_w: device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1e3),
            temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
            memory_used: device.memory_info().ok().map(|info| info.used),
        }
    }
}
