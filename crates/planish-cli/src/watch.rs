//! What a GPU does while something is measured on it: load, clock, power and memory, asked ten times a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use planish::Device;
use planish::cuda::{Monitor, Sample};
use serde_json::{Value, json};

/// Seldom enough that the asking takes nothing from what is measured.
const PERIOD: Duration = Duration::from_millis(100);

/// A thread that asks.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Sample>>,
}

/// What was seen, on average; `None` where the device does not say.
pub(crate) struct Seen {
    utilisation: Option<f64>,
    clock_mhz: Option<f64>,
    power_w: Option<f64>,
    memory_used: Option<f64>,
}

impl Watch {
    /// From now on; nothing where the device is not a GPU, or its driver has no NVML.
    pub(crate) fn start(device: Device) -> Option<Watch> {
        let Device::Cuda(index) = device.settled() else { return None };
        let monitor = Monitor::of_device(index).ok()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut samples = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(PERIOD);
                samples.push(monitor.sample());
            }
            samples
        });
        Some(Watch { stop, thread })
    }

    pub(crate) fn finish(self) -> Option<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok().map(|samples| Seen::of(&samples))
    }
}

impl Seen {
    fn of(samples: &[Sample]) -> Seen {
        let mean = |of: fn(&Sample) -> Option<f64>| {
            let values: Vec<f64> = samples.iter().filter_map(of).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        Seen {
            utilisation: mean(|sample| sample.utilisation.map(f64::from)),
            clock_mhz: mean(|sample| sample.clock_mhz.map(f64::from)),
            power_w: mean(|sample| sample.power_w),
            memory_used: mean(|sample| sample.memory_used.map(|bytes| bytes as f64)),
        }
    }

    /// The share of time in which it computed, in percent.
    pub(crate) fn utilisation(&self) -> Option<f64> {
        self.utilisation
    }

    /// For runs at this rate.
    pub(crate) fn json(&self, qps: f64) -> Value {
        json!({
            "utilisation_percent": self.utilisation,
            "clock_mhz": self.clock_mhz,
            "power_w": self.power_w,
            "memory_used_bytes": self.memory_used,
            "joules_per_inference": self.power_w.map(|watts| watts / qps),
        })
    }

    /// One line, for runs at this rate: what is not known is left out.
    pub(crate) fn line(&self, qps: f64) -> String {
        let parts = [
            self.utilisation.map(|percent| format!("{percent:.0} % busy")),
            self.clock_mhz.map(|mhz| format!("{mhz:.0} MHz")),
            self.power_w.map(|watts| format!("{watts:.0} W ({:.4} J a run)", watts / qps)),
            self.memory_used.map(|bytes| format!("{} in use by all", crate::print::bytes(bytes as u64))),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_leave_out_what_is_not_told() {
        let one = Sample { utilisation: Some(90), clock_mhz: Some(1900), power_w: None, ..Sample::default() };
        let two = Sample { utilisation: None, clock_mhz: Some(1700), power_w: None, ..Sample::default() };
        let seen = Seen::of(&[one, two]);
        assert_eq!(seen.line(10.0), "90 % busy, 1800 MHz");
        assert_eq!(seen.json(10.0)["power_w"], Value::Null);
        assert_eq!(Seen::of(&[]).line(10.0), "");
    }

    #[test]
    fn power_makes_joules() {
        let one = Sample { power_w: Some(400.0), ..Sample::default() };
        assert_eq!(Seen::of(&[one]).line(800.0), "400 W (0.5000 J a run)");
        assert_eq!(Seen::of(&[one]).json(800.0)["joules_per_inference"], 0.5);
    }

    #[test]
    fn a_cpu_is_not_watched() {
        assert!(Watch::start(Device::Cpu).is_none());
    }
}
