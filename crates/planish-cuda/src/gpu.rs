//! `Gpu`: what is known of a device without asking it, so that candidates, sources and prices are pure.

use planish_kernel::Arithmetic;

/// A GPU as plain data.
#[derive(Clone, PartialEq, Debug)]
pub struct Gpu {
    /// As the driver names it, as in `NVIDIA H200`.
    pub name: String,
    /// Compute capability times ten, as in 90.
    pub sm: u32,
    pub n_sms: u32,
    /// Shared memory that one block can have when it asks for it.
    pub smem_per_block: usize,
    /// Shared memory of one multiprocessor.
    pub smem_per_sm: usize,
    pub l2_bytes: usize,
    pub memory_bytes: usize,
    /// The highest clock of the multiprocessors.
    pub clock_hz: f64,
    /// Device memory, bytes a second.
    pub bandwidth: f64,
}

/// Nanoseconds from one launch to the next in a replayed graph when the kernels do nothing.
const LAUNCH_NS: f64 = 1_500.0;

/// What kernels reach of the peak of arithmetic and of memory, so that prices are not too rosy.
const USUAL_SHARE: f64 = 0.6;

/// Short name, name, capability, multiprocessors, shared memory of a block and of a multiprocessor, L2, memory,
/// clock, bandwidth.
type Known = (&'static str, &'static str, u32, u32, usize, usize, usize, usize, f64, f64);

/// The architectures that every kernel must compile for: capability and the devices that stand for them.
const KNOWN: [Known; 8] = [
    ("t4", "Tesla T4", 75, 40, 64 << 10, 64 << 10, 4 << 20, 15 << 30, 1.59e9, 320e9),
    ("a100", "NVIDIA A100-SXM4-40GB", 80, 108, 163 << 10, 164 << 10, 40 << 20, 40 << 30, 1.41e9, 1555e9),
    ("a10", "NVIDIA A10", 86, 72, 99 << 10, 100 << 10, 6 << 20, 22 << 30, 1.695e9, 600e9),
    ("l4", "NVIDIA L4", 89, 58, 99 << 10, 100 << 10, 48 << 20, 22 << 30, 2.04e9, 300e9),
    ("h100", "NVIDIA H100 80GB HBM3", 90, 132, 227 << 10, 228 << 10, 50 << 20, 80 << 30, 1.98e9, 3350e9),
    ("h200", "NVIDIA H200", 90, 132, 227 << 10, 228 << 10, 60 << 20, 140 << 30, 1.98e9, 4800e9),
    ("b200", "NVIDIA B200", 100, 148, 227 << 10, 228 << 10, 126 << 20, 180 << 30, 1.965e9, 8000e9),
    ("rtx5090", "NVIDIA GeForce RTX 5090", 120, 170, 99 << 10, 100 << 10, 96 << 20, 32 << 30, 2.41e9, 1792e9),
];

impl Gpu {
    /// A GPU by its short name, for tests and for asking what would be done there: `t4`, `a100`, `a10`, `l4`,
    /// `h100`, `h200`, `b200`, `rtx5090`.
    pub fn known(short: &str) -> Option<Gpu> {
        KNOWN.iter().find(|known| known.0 == short).map(|known| Gpu {
            name: known.1.to_string(),
            sm: known.2,
            n_sms: known.3,
            smem_per_block: known.4,
            smem_per_sm: known.5,
            l2_bytes: known.6,
            memory_bytes: known.7,
            clock_hz: known.8,
            bandwidth: known.9,
        })
    }

    /// One device for each architecture that kernels must compile for: 75, 80, 86, 89, 90, 100, 120.
    pub fn every_architecture() -> Vec<Gpu> {
        ["t4", "a100", "a10", "l4", "h200", "b200", "rtx5090"].into_iter().filter_map(Gpu::known).collect()
    }

    /// What NVRTC is told: `sm_86`; `sm_90a` on Hopper, whose wgmma and setmaxnreg exist only there.
    pub fn architecture(&self) -> String {
        match self.sm {
            90 => "sm_90a".to_string(),
            sm => format!("sm_{sm}"),
        }
    }

    /// Whether its tensor cores multiply floats of 8 bits: Ada, Hopper and what came after.
    pub fn has_f8(&self) -> bool {
        self.sm >= 89
    }

    /// Operations a second, multiply-adds counted twice: tensor cores for half types and tf32, the plain units else.
    /// Per multiprocessor and clock: dense f16 1024 on Volta to Ada's data-centre parts, 4096 on Hopper.
    pub fn flops(&self, element: Arithmetic) -> f64 {
        let half = match self.sm {
            ..80 => 1024.0,
            80 => 2048.0,
            81..90 => 1024.0,
            90 => 4096.0,
            91..110 => 8192.0,
            _ => 1024.0,
        };
        let per_clock = match element {
            Arithmetic::I8 | Arithmetic::F8 => half * 2.0,
            Arithmetic::F16 | Arithmetic::Bf16 => half,
            Arithmetic::Tf32 if self.sm >= 80 => half / 2.0,
            _ => match self.sm {
                ..80 => 128.0,
                80 => 128.0,
                _ => 256.0,
            },
        };
        per_clock * f64::from(self.n_sms) * self.clock_hz
    }

    /// Expected nanoseconds of a kernel that does `flops` and moves `bytes`: the larger
    /// of arithmetic and memory at their usual shares of the peak, and a launch.
    pub fn roofline_ns(&self, flops: f64, peak: f64, bytes: f64) -> f64 {
        let arithmetic = flops / (peak * USUAL_SHARE);
        // What fits the second-level cache is mostly there already, at about three times the speed.
        let speed = if bytes < self.l2_bytes as f64 / 2.0 { 3.0 } else { 1.0 };
        let memory = bytes / (self.bandwidth * speed * USUAL_SHARE);
        LAUNCH_NS + arithmetic.max(memory) * 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_architecture_has_a_device() {
        let names: Vec<String> = Gpu::every_architecture().iter().map(Gpu::architecture).collect();
        assert_eq!(names, ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"]);
    }

    #[test]
    fn an_h200_has_about_its_rated_speed() {
        let gpu = Gpu::known("h200").unwrap();
        // The datasheet says 989 and 67 TFLOP/s at 1.83 GHz; this is at the highest clock.
        let half = gpu.flops(Arithmetic::F16);
        assert!((0.9e15..1.2e15).contains(&half), "{half:e}");
        let single = gpu.flops(Arithmetic::F32);
        assert!((60e12..80e12).contains(&single), "{single:e}");
    }
}
