//! Instruction sets as values: having one proves that this CPU and operating system can run it.

use std::fmt;
use std::sync::OnceLock;

use crate::simd::{Simd, SimdKernel};

/// The environment variable by which a process takes itself for a lesser machine: `portable`, `avx2` or
/// `avx512`. Read once; a name that this machine does not run is left alone.
pub const ISA_VARIABLE: &str = "PLANISH_ISA";

/// Plain Rust that every target runs; vectors are arrays of eight.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Portable;

/// Proof that AVX2 and FMA may run here. [`Avx2::detect`] is the only constructor.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Avx2(());

/// Proof that AVX-512 F, BW, DQ and VL (with AVX2 and FMA) may run here.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Avx512(());

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    /// For code that was reached through a proof that cannot be handed on, as behind a plain function pointer.
    ///
    /// # Safety
    /// [`Avx2::detect`] must have said yes.
    #[inline(always)]
    pub(crate) unsafe fn assume() -> Avx2 {
        Avx2(())
    }

    pub fn detect() -> Option<Avx2> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Avx2(()))
    }
}

#[cfg(target_arch = "x86_64")]
impl Avx512 {
    /// For code that was reached through a proof that cannot be handed on, as behind a plain function pointer.
    ///
    /// # Safety
    /// [`Avx512::detect`] must have said yes.
    #[inline(always)]
    pub(crate) unsafe fn assume() -> Avx512 {
        Avx512(())
    }

    pub fn detect() -> Option<Avx512> {
        let wide = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        (wide && Avx2::detect().is_some()).then_some(Avx512(()))
    }
}

/// Instructions that some machines have beside one of the instruction sets. A tactic that needs one says so in plans.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Feature {
    /// Dot products of bytes on 256 bits.
    AvxVnni,
    /// Dot products of bytes on 512 bits.
    Avx512Vnni,
    /// Products of tiles of bytes.
    AmxInt8,
    /// Dot products of bf16 on 512 bits, and conversions to it.
    Avx512Bf16,
    /// Products of tiles of bf16.
    AmxBf16,
}

impl Feature {
    pub const ALL: [Feature; 5] =
        [Feature::AvxVnni, Feature::Avx512Vnni, Feature::AmxInt8, Feature::Avx512Bf16, Feature::AmxBf16];

    /// As it stands in the needs of a plan.
    pub fn name(self) -> &'static str {
        match self {
            Feature::AvxVnni => "avxvnni",
            Feature::Avx512Vnni => "avx512vnni",
            Feature::AmxInt8 => "amxint8",
            Feature::Avx512Bf16 => "avx512bf16",
            Feature::AmxBf16 => "amxbf16",
        }
    }

    /// Whether this machine has it, and the process may use it ([`ISA_VARIABLE`]).
    #[cfg(target_arch = "x86_64")]
    pub fn is_here(self) -> bool {
        let is_wide = matches!(Isa::best(), Isa::Avx512(_));
        let takes_itself_for = std::env::var_os(ISA_VARIABLE);
        match self {
            // A process that takes itself for one with AVX2 means the machines that have no more than that.
            Feature::AvxVnni => {
                is_x86_feature_detected!("avxvnni") && (takes_itself_for.is_none() || is_wide)
            }
            Feature::Avx512Vnni => is_x86_feature_detected!("avx512vnni") && is_wide,
            // Nor does one with AVX-512 mean those with AMX.
            Feature::AmxInt8 => takes_itself_for.is_none() && is_wide && crate::amx::has_int8(),
            Feature::Avx512Bf16 => is_x86_feature_detected!("avx512bf16") && is_wide,
            Feature::AmxBf16 => takes_itself_for.is_none() && is_wide && crate::amx::has_bf16(),
        }
    }

    /// Whether this machine has it: no other has.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_here(self) -> bool {
        false
    }
}

/// One of the instruction sets that kernels are written for, present on this machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Isa {
    Portable(Portable),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl Isa {
    /// Every instruction set that this machine runs, slowest first.
    pub fn available() -> Vec<Isa> {
        let mut list = vec![Isa::Portable(Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            list.extend(Avx2::detect().map(Isa::Avx2));
            list.extend(Avx512::detect().map(Isa::Avx512));
        }
        list
    }

    /// The widest instruction set that this machine runs, or the one that the environment variable
    /// [`ISA_VARIABLE`] names, where this machine runs it.
    pub fn best() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        let asked = || std::env::var(ISA_VARIABLE).ok().and_then(|name| Isa::named(&name));
        let widest = || Isa::available().pop().unwrap_or(Isa::Portable(Portable));
        *BEST.get_or_init(|| asked().unwrap_or_else(widest))
    }

    /// As it stands in kernel names: `portable`, `avx2`, `avx512`.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable(_) => "portable",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) => "avx512",
        }
    }

    /// The instruction set of this name, if this machine runs it.
    pub fn named(name: &str) -> Option<Isa> {
        Isa::available().into_iter().find(|isa| isa.name() == name)
    }

    /// Whether whoever may use `other` may use this one: the same or a lesser one.
    pub fn is_within(self, other: Isa) -> bool {
        let rank = |isa: Isa| Isa::available().iter().position(|known| *known == isa);
        rank(self) <= rank(other)
    }

    /// f32 lanes of a vector.
    pub fn lanes(self) -> usize {
        match self {
            Isa::Portable(_) => Portable::LANES,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => Avx2::LANES,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) => Avx512::LANES,
        }
    }

    /// Runs `kernel` compiled for this instruction set. The kernel's `run`, and what it calls per element,
    /// must be `#[inline(always)]`, or they are compiled without the instruction set.
    pub fn run<K: SimdKernel>(self, kernel: K) -> K::Output {
        match self {
            Isa::Portable(proof) => kernel.run(proof),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the proof exists, so `detect` saw the features.
            Isa::Avx2(proof) => unsafe { run_avx2(proof, kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the proof exists, so `detect` saw the features.
            Isa::Avx512(proof) => unsafe { run_avx512(proof, kernel) },
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<K: SimdKernel>(proof: Avx2, kernel: K) -> K::Output {
    kernel.run(proof)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn run_avx512<K: SimdKernel>(proof: Avx512, kernel: K) -> K::Output {
    kernel.run(proof)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_the_last_available_and_found_by_name() {
        let all = Isa::available();
        if std::env::var_os(ISA_VARIABLE).is_none() {
            assert_eq!(all.last(), Some(&Isa::best()));
        }
        for isa in all {
            assert_eq!(Isa::named(isa.name()), Some(isa));
        }
        assert_eq!(Isa::named("sse2"), None);
    }
}
