//! What cores and memory can do at most, measured: fused multiply-adds in f32, INT8 dot products, bytes read and
//! copied. This is what "measured peak" means wherever Planish says it.
//!
//! Arithmetic runs on registers alone, in as many independent chains as hide its latency, so that no kernel can be
//! faster. Each figure is the best of several turns: other load only makes them smaller.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::isa::Isa;
use crate::simd::{Simd, SimdKernel};

/// Turns of which the best counts.
const TURNS: usize = 5;
/// Bytes that all threads together walk through, far beyond any cache.
const MEMORY_BYTES: usize = 512 << 20;

/// Fused multiply-adds on registers alone, in 12 chains (24 where there are 32 registers).
struct Fma {
    rounds: usize,
}

#[inline(always)]
fn chains<S: Simd, const N: usize>(s: S, rounds: usize) -> f32 {
    let mut acc = [s.zero(); N];
    let (a, b) = (s.splat(black_box(0.999)), s.splat(black_box(0.001)));
    for _ in 0..rounds {
        for x in &mut acc {
            *x = s.mul_add(a, *x, b);
        }
    }
    s.sum(acc.into_iter().fold(s.zero(), |sum, x| s.add(sum, x)))
}

impl SimdKernel for Fma {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f64 {
        let (n, sum) = match S::REGISTERS {
            32 => (24, chains::<S, 24>(s, self.rounds)),
            16 => (12, chains::<S, 12>(s, self.rounds)),
            _ => (4, chains::<S, 4>(s, self.rounds)),
        };
        black_box(sum);
        (2 * n * S::LANES * self.rounds) as f64
    }
}

/// Runs rounds of fused multiply-adds on this thread; gives the floating-point operations, two for each.
pub fn fma(isa: Isa, rounds: usize) -> f64 {
    isa.run(Fma { rounds })
}

/// Units that multiply bytes and add the products up in 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Int8Unit {
    /// `vpdpbusd` on vectors of 32 bytes (AVX-VNNI).
    AvxVnni,
    /// `vpdpbusd` on vectors of 64 bytes (AVX-512 VNNI).
    Avx512Vnni,
    /// `tdpbssd` on tiles of 16 rows of 64 bytes (AMX).
    Amx,
}

impl Int8Unit {
    /// The units of this machine, slowest first.
    pub fn available() -> Vec<Int8Unit> {
        #[cfg(target_arch = "x86_64")]
        return x86::available();
        #[cfg(not(target_arch = "x86_64"))]
        return Vec::new();
    }

    /// As reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Int8Unit::AvxVnni => "avx_vnni",
            Int8Unit::Avx512Vnni => "avx512_vnni",
            Int8Unit::Amx => "amx_int8",
        }
    }

    /// Runs rounds of dot products on this thread, if this machine has the unit; gives the operations, two for each
    /// product.
    fn run(self, rounds: usize) -> f64 {
        #[cfg(target_arch = "x86_64")]
        return x86::run(self, rounds);
        #[cfg(not(target_arch = "x86_64"))]
        return rounds as f64 * 0.0;
    }
}

/// Operations or bytes per second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    /// Of one thread.
    pub one: f64,
    /// Of all threads together.
    pub all: f64,
}

/// What was measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Peaks {
    /// How many threads `all` stands for.
    pub threads: usize,
    /// Floating-point operations in f32 per second, a multiply-add counted as two.
    pub fma: Rate,
    /// INT8 operations per second by unit, a product and its addition counted as two.
    pub int8: Vec<(Int8Unit, Rate)>,
    /// Bytes read from memory per second.
    pub read: Rate,
    /// Bytes read and written per second by a copy in memory, as STREAM counts them.
    pub copy: Rate,
}

impl Peaks {
    /// Measures with this many threads, each figure for about this long. `done` is told how many of how many are.
    pub fn measure(threads: usize, time: Duration, done: &dyn Fn(usize, usize)) -> Peaks {
        let units = Int8Unit::available();
        let (n, turn) = (3 + units.len(), time / (2 * TURNS as u32));
        let rate = |idx: usize, work: &(dyn Fn() -> f64 + Sync)| {
            done(idx, n);
            Rate { one: best(1, turn, work), all: best(threads, turn, work) }
        };
        let isa = Isa::best();
        let fma = rate(0, &|| fma(isa, 20_000));
        let int8 = units.iter().enumerate();
        let int8 = int8.map(|(idx, unit)| (*unit, rate(1 + idx, &|| unit.run(20_000)))).collect();
        done(n - 2, n);
        let read = memory(threads, turn, read);
        done(n - 1, n);
        let copy = memory(threads, turn, copy);
        done(n, n);
        Peaks { threads, fma, int8, read, copy }
    }
}

/// The best rate over some turns of threads that work at the same time.
fn best(threads: usize, turn: Duration, work: &(dyn Fn() -> f64 + Sync)) -> f64 {
    let one = |barrier: &Barrier| {
        barrier.wait();
        let start = Instant::now();
        let mut sum = 0.0;
        while start.elapsed() < turn {
            sum += work();
        }
        sum / start.elapsed().as_secs_f64()
    };
    (0..TURNS).map(|_| together(threads, &one)).fold(0.0, f64::max)
}

/// The sum of what threads give that begin together.
fn together(threads: usize, one: &(dyn Fn(&Barrier) -> f64 + Sync)) -> f64 {
    let barrier = Barrier::new(threads);
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(|| one(&barrier))).collect();
        let own = one(&barrier);
        own + others.into_iter().map(|other| other.join().unwrap_or(0.0)).sum::<f64>()
    })
}

/// The rate of work on memory of each thread's own.
fn memory(threads: usize, turn: Duration, work: fn(&mut [u64]) -> usize) -> Rate {
    let rate = |threads: usize| {
        let len = MEMORY_BYTES / threads.max(1) / size_of::<u64>();
        let one = |barrier: &Barrier| {
            // Written once, so that the pages are there.
            let mut data: Vec<u64> = (0..len as u64).collect();
            barrier.wait();
            let mut best = 0f64;
            for _ in 0..TURNS {
                let (start, mut bytes) = (Instant::now(), 0);
                while start.elapsed() < turn {
                    bytes += work(&mut data);
                }
                best = best.max(bytes as f64 / start.elapsed().as_secs_f64());
            }
            best
        };
        together(threads, &one)
    };
    Rate { one: rate(1), all: rate(threads) }
}

/// Reads all of it, in eight sums that do not wait for each other.
fn read(data: &mut [u64]) -> usize {
    let mut sums = [0u64; 8];
    for chunk in data.chunks_exact(8) {
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum ^= *word;
        }
    }
    black_box(sums);
    size_of_val(data)
}

/// Copies one half to the other.
fn copy(data: &mut [u64]) -> usize {
    let (to, from) = data.split_at_mut(data.len() / 2);
    to.copy_from_slice(&from[..to.len()]);
    black_box(&to[to.len() / 3]);
    2 * size_of_val(to)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! The INT8 units of x86.

    use std::arch::asm;
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use super::Int8Unit;

    /// Chains of dot products that hide their latency.
    const CHAINS: usize = 12;

    pub(super) fn available() -> Vec<Int8Unit> {
        let mut units = Vec::new();
        units.extend(is_x86_feature_detected!("avxvnni").then_some(Int8Unit::AvxVnni));
        let wide = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni");
        units.extend(wide.then_some(Int8Unit::Avx512Vnni));
        units.extend(has_amx().then_some(Int8Unit::Amx));
        units
    }

    pub(super) fn run(unit: Int8Unit, rounds: usize) -> f64 {
        match unit {
            Int8Unit::AvxVnni if is_x86_feature_detected!("avxvnni") => {
                // SAFETY: the feature was just seen.
                unsafe { avx_vnni(rounds) }
                (CHAINS * 32 * 2 * rounds) as f64
            }
            Int8Unit::Avx512Vnni
                if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") =>
            {
                // SAFETY: the features were just seen.
                unsafe { avx512_vnni(rounds) }
                (CHAINS * 64 * 2 * rounds) as f64
            }
            Int8Unit::Amx if has_amx() => {
                // A product of tiles takes sixteen cycles, a vector's less than one.
                let rounds = rounds / 16;
                // SAFETY: the CPU has the unit and the system lets this process use it.
                unsafe { amx(rounds) }
                (4 * 16 * 16 * 64 * 2 * rounds) as f64
            }
            _ => 0.0,
        }
    }

    #[target_feature(enable = "avx2,avxvnni")]
    fn avx_vnni(rounds: usize) {
        let mut acc = [_mm256_setzero_si256(); CHAINS];
        let (a, b) = (_mm256_set1_epi8(black_box(3)), _mm256_set1_epi8(black_box(5)));
        for _ in 0..rounds {
            for x in &mut acc {
                *x = _mm256_dpbusd_avx_epi32(*x, a, b);
            }
        }
        black_box(acc);
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    fn avx512_vnni(rounds: usize) {
        let mut acc = [_mm512_setzero_si512(); CHAINS];
        let (a, b) = (_mm512_set1_epi8(black_box(3)), _mm512_set1_epi8(black_box(5)));
        for _ in 0..rounds {
            for x in &mut acc {
                *x = _mm512_dpbusd_epi32(*x, a, b);
            }
        }
        black_box(acc);
    }

    /// Whether the CPU has tiles of bytes and the system grants them to this process.
    fn has_amx() -> bool {
        const AMX_TILE_AND_INT8: u32 = 1 << 24 | 1 << 25;
        if __cpuid(0).eax < 7 || __cpuid_count(7, 0).edx & AMX_TILE_AND_INT8 != AMX_TILE_AND_INT8 {
            return false;
        }
        granted()
    }

    /// Asks Linux for the tiles' registers, which a process gets on request only.
    #[cfg(target_os = "linux")]
    fn granted() -> bool {
        const ARCH_PRCTL: u64 = 158;
        const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
        const TILE_DATA: u64 = 18;
        let answer: u64;
        // SAFETY: this call reads and writes no memory of ours; the kernel changes `rax`, `rcx` and `r11`.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") ARCH_PRCTL => answer,
                in("rdi") ARCH_REQ_XCOMP_PERM,
                in("rsi") TILE_DATA,
                out("rcx") _,
                out("r11") _,
                options(nostack),
            );
        }
        answer == 0
    }

    #[cfg(not(target_os = "linux"))]
    fn granted() -> bool {
        false
    }

    /// The shape of tiles as `ldtilecfg` reads it.
    #[repr(C, align(64))]
    struct TileShapes {
        palette: u8,
        first_row: u8,
        reserved: [u8; 14],
        row_bytes: [u16; 16],
        rows: [u8; 16],
    }

    /// Products of tiles in four chains.
    ///
    /// # Safety
    /// The CPU must have AMX-TILE and AMX-INT8, and the system must have granted the registers.
    unsafe fn amx(rounds: usize) {
        let mut shapes =
            TileShapes { palette: 1, first_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        shapes.row_bytes[..8].fill(64);
        shapes.rows[..8].fill(16);
        if rounds == 0 {
            return;
        }
        // SAFETY: the caller vouches for the instructions; the shapes are aligned and whole, and the tiles are given
        // back at the end.
        unsafe {
            asm!(
                "ldtilecfg [{shapes}]",
                "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                "tilezero tmm4", "tilezero tmm5", "tilezero tmm6", "tilezero tmm7",
                "2:",
                "tdpbssd tmm0, tmm4, tmm6",
                "tdpbssd tmm1, tmm5, tmm6",
                "tdpbssd tmm2, tmm4, tmm7",
                "tdpbssd tmm3, tmm5, tmm7",
                "dec {rounds}",
                "jnz 2b",
                "tilerelease",
                shapes = in(reg) &shapes,
                rounds = inout(reg) rounds => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, readonly),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_measured() {
        let steps = std::sync::Mutex::new(Vec::new());
        let peaks =
            Peaks::measure(1, Duration::from_millis(20), &|idx, n| steps.lock().unwrap().push((idx, n)));
        let rates = peaks.int8.iter().map(|(_, rate)| *rate).chain([peaks.fma, peaks.read, peaks.copy]);
        for rate in rates {
            assert!(rate.one > 1e6 && rate.all > 1e6, "{peaks:?}");
        }
        let steps = steps.into_inner().unwrap();
        assert_eq!(steps.last().map(|(idx, n)| idx == n), Some(true));
        // Vectors of bytes hold four times as many as those of floats.
        if let Some((_, wide)) = peaks.int8.iter().find(|(unit, _)| *unit == Int8Unit::Avx512Vnni) {
            assert!(wide.one > peaks.fma.one, "{peaks:?}");
        }
    }
}
