//! `Peaks`: what this machine can do at most, measured once and kept: the one meaning of "measured peak".

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use planish_cpu::peak;
use planish_kernel::Backend as _;

use crate::{Error, ErrorKind};

#[cfg(all(feature = "build", feature = "cuda"))]
mod gpu;

/// What a file of peaks begins with.
const MAGIC: &str = "planish peaks 1";
/// A file of peaks has some dozen lines.
const MAX_BYTES: u64 = 1 << 20;
/// How long each figure of a CPU takes.
const TIME: Duration = Duration::from_millis(500);

/// What a peak counts.
/// [`Peaks`] has an example.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PeakUnit {
    /// Floating-point operations; a multiply-add is two.
    Flop,
    /// Integer operations; a product and its addition are two.
    Op,
    /// Bytes.
    Byte,
}

impl PeakUnit {
    const ALL: [PeakUnit; 3] = [PeakUnit::Flop, PeakUnit::Op, PeakUnit::Byte];

    /// As files and reports name it.
    pub fn name(self) -> &'static str {
        match self {
            PeakUnit::Flop => "FLOP",
            PeakUnit::Op => "OP",
            PeakUnit::Byte => "B",
        }
    }
}

/// One figure of one device.
/// [`Peaks`] has an example.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Peak {
    /// The device in words, as plans and timing caches name it.
    pub device: String,
    /// What was measured: `fp32 fma, 1 thread`, `memory read, 2 threads`, `fp16 gemm`.
    pub name: String,
    /// How many of `unit` in a second.
    pub per_second: f64,
    /// What is counted.
    pub unit: PeakUnit,
}

/// What devices can do at most.
///
/// ```no_run
/// use planish::machine::Peaks;
///
/// let mut peaks = Peaks::kept().unwrap_or_default();                   // of the file `Peaks::path()`
/// if peaks.list.is_empty() {
///     peaks.merge(&Peaks::measure_cpu(&|_, _, _| {}));
///     println!("kept in {}", peaks.keep()?.display());
/// }
/// for peak in &peaks.list {
///     println!("{}: {:.1} G{}/s", peak.name, peak.per_second / 1e9, peak.unit.name());
/// }
/// # Ok::<(), planish::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Peaks {
    /// All figures, those of a device one after the other.
    pub list: Vec<Peak>,
}

impl Peaks {
    /// Measures this CPU: fused multiply-adds in f32, INT8 dot products by each unit that it has, and memory; on one
    /// thread and on all that this process may use. `progress` is told what is measured, and how many of how many.
    pub fn measure_cpu(progress: &dyn Fn(&str, usize, usize)) -> Peaks {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let found = peak::Peaks::measure(threads, TIME, &|idx, n| progress("measure the CPU", idx, n));
        let device = planish_cpu::Cpu::new().target().device;
        let mut list = Vec::new();
        let mut add = |name: &str, rate: peak::Rate, unit: PeakUnit| {
            for (threads, per_second) in [(1, rate.one), (found.threads, rate.all)] {
                let s = if threads == 1 { "" } else { "s" };
                let name = format!("{name}, {threads} thread{s}");
                list.push(Peak { device: device.clone(), name, per_second, unit });
            }
        };
        add("fp32 fma", found.fma, PeakUnit::Flop);
        for (unit, rate) in &found.int8 {
            add(&format!("int8 {}", unit.name()), *rate, PeakUnit::Op);
        }
        add("memory read", found.read, PeakUnit::Byte);
        add("memory copy", found.copy, PeakUnit::Byte);
        if found.threads == 1 {
            list.dedup_by(|a, b| a.name == b.name);
        }
        Peaks { list }
    }

    /// Measures a GPU: products of large matrices in FP32, TF32 and FP16 by the fastest kernel or library, and memory.
    /// Ends within a minute whatever the GPU does; the second list says, a line each, what was not measured and why.
    ///
    /// ```
    /// use planish::Device;
    /// use planish::machine::Peaks;
    ///
    /// let (peaks, missing) = Peaks::measure_gpu(Device::Cuda(0), &|_, _, _| {});
    /// assert!(!peaks.list.is_empty() || !missing.is_empty());         // the latter where there is no GPU
    /// ```
    #[cfg(all(feature = "build", feature = "cuda"))]
    pub fn measure_gpu(device: crate::Device, progress: &dyn Fn(&str, usize, usize)) -> (Peaks, Vec<String>) {
        gpu::measure(device, progress)
    }

    /// Those of another list besides, its figures in the place of equal ones.
    pub fn merge(&mut self, other: &Peaks) {
        for new in &other.list {
            match self.list.iter_mut().find(|old| old.device == new.device && old.name == new.name) {
                Some(old) => *old = new.clone(),
                None => self.list.push(new.clone()),
            }
        }
    }

    /// The file in which the user's are kept; nothing where there is no cache folder.
    pub fn path() -> Option<PathBuf> {
        Some(planish_files::user_cache()?.join("peaks"))
    }

    /// What was measured and kept before; nothing where there is nothing, or somebody else could have written it.
    pub fn kept() -> Option<Peaks> {
        use std::io::Read;
        let path = Peaks::path()?;
        let file = planish_files::open(&path).ok()?;
        if planish_files::distrust_file(&path, &file).is_some() {
            return None;
        }
        let mut text = String::new();
        file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
        Peaks::parse(&text)
    }

    /// Keeps these beside what is kept already; gives the file.
    pub fn keep(&self) -> Result<PathBuf, Error> {
        let path = Peaks::path()
            .ok_or_else(|| Error::new(ErrorKind::Lacking, "there is no cache folder to keep the peaks in"))?;
        let folder = path.parent().unwrap_or(&path);
        planish_files::private_folder(folder)
            .map_err(|error| Error::io("make the folder", folder, &error))?;
        if let Some(why) = planish_files::distrust(folder) {
            return Err(Error::new(ErrorKind::Io, why));
        }
        let mut all = Peaks::kept().unwrap_or_default();
        all.merge(self);
        let text = all.text();
        let written = planish_files::write(&path, |file| std::io::Write::write_all(file, text.as_bytes()));
        written.map_err(|error| Error::io("write", &path, &error))?;
        Ok(path)
    }

    fn text(&self) -> String {
        let mut text = format!("{MAGIC}\n");
        for peak in &self.list {
            let Peak { device, name, per_second, unit } = peak;
            let _ = writeln!(text, "{device}\t{name}\t{per_second:.4e}\t{}", unit.name());
        }
        text
    }

    fn parse(text: &str) -> Option<Peaks> {
        let mut lines = text.lines();
        if lines.next() != Some(MAGIC) {
            return None;
        }
        let peak = |line: &str| {
            let mut fields = line.split('\t');
            let (device, name) = (fields.next()?.to_string(), fields.next()?.to_string());
            let per_second =
                fields.next()?.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0)?;
            let unit = fields.next()?;
            let unit = PeakUnit::ALL.into_iter().find(|known| known.name() == unit)?;
            Some(Peak { device, name, per_second, unit })
        };
        Some(Peaks { list: lines.filter_map(peak).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peak(device: &str, name: &str, per_second: f64) -> Peak {
        Peak { device: device.to_string(), name: name.to_string(), per_second, unit: PeakUnit::Flop }
    }

    #[test]
    fn peaks_come_back_from_their_file() {
        let mut peaks = Peaks { list: vec![peak("a CPU", "fp32 fma, 1 thread", 1.5e11)] };
        peaks.merge(&Peaks { list: vec![peak("a GPU", "fp16 gemm", 7e14)] });
        assert_eq!(Peaks::parse(&peaks.text()), Some(peaks.clone()));
        peaks.merge(&Peaks { list: vec![peak("a CPU", "fp32 fma, 1 thread", 2e11)] });
        assert_eq!((peaks.list.len(), peaks.list[0].per_second), (2, 2e11));
        assert_eq!(Peaks::parse("something else\n"), None);
        let odd = format!("{MAGIC}\na\tb\tmuch\tFLOP\na\tb\t1e9\tmiles\na\tb\t1e9\tB\n");
        assert_eq!(Peaks::parse(&odd).map(|peaks| peaks.list.len()), Some(1));
    }
}
