//! What follows the sums of quantized products: their scale, bias, residual and clamp, then bytes or f32 in memory.
//!
//! Everything is in units of the output's scale: scales and bias are divided by it for each vector of channels, not the
//! result for each vector of sums.

use planish_tensor::DType;

use super::region::{Quantized, Scales, Term};
use crate::simd::Simd;

/// What is added to the sums, with its own scale; that of f32 is 1 in the units of the output.
#[derive(Clone, Copy, Debug)]
enum Residual {
    None,
    F32 { at: *const f32, scale: f32 },
    U8 { at: *const u8, scale: f32, zero: i32 },
    I8 { at: *const i8, scale: f32, zero: i32 },
}

/// Where results go: as f32, or rounded to bytes from a zero point on.
#[derive(Clone, Copy, Debug)]
enum Stored {
    F32(*mut f32),
    Bytes { at: *mut u8, zero: i32 },
}

/// The addresses and numbers of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finish {
    /// Of the input and of one unit of a bias, in units of the output.
    input_scale: f32,
    bias_scale: f32,
    /// One of each output channel, or one for all (`scale_step` 0).
    scales: *const f32,
    scale_step: usize,
    /// One of each output channel, or null.
    bias: *const f32,
    residual: Residual,
    /// Bounds of the clamp and of the bytes, whichever are closer.
    lo: f32,
    hi: f32,
    output: Stored,
}

// SAFETY: tasks write disjoint parts of the output; the rest is read.
unsafe impl Sync for Finish {}
// SAFETY: as above: the addresses belong to no thread.
unsafe impl Send for Finish {}

/// What a loop over results knows when it is compiled.
pub(crate) mod kind {
    /// Nothing.
    pub(crate) const ANY: u8 = 0;
    /// Whole vectors, nothing is added, bytes are stored.
    pub(crate) const BYTES: u8 = 1;
    /// The same after unsigned bytes were added.
    pub(crate) const SUM: u8 = 2;
}

/// A vector of output channels with its scale and bias, and what is the same for all of them.
#[derive(Clone, Copy)]
pub(crate) struct Channels<S: Simd> {
    scale: S::F,
    bias: S::F,
    lo: S::F,
    hi: S::F,
    zero: S::I,
    residual_scale: S::F,
    residual_zero: S::I,
    /// At most the lanes of a vector.
    n: usize,
}

impl<S: Simd> Channels<S> {
    /// The same for sums that are `1 / factor` times as large.
    #[inline(always)]
    pub(super) fn times(self, s: S, factor: f32) -> Channels<S> {
        Channels { scale: s.mul(self.scale, s.splat(factor)), ..self }
    }
}

impl Finish {
    /// For one run of `quantized`, which must outlive it.
    ///
    /// # Safety
    /// The inputs must be what its operands say.
    pub(crate) unsafe fn new(quantized: &Quantized, inputs: &[*const u8], outputs: &[*mut u8]) -> Finish {
        let (scales, scale_step): (*const f32, usize) = match &quantized.scales {
            Scales::Input(idx) => (inputs[*idx].cast(), 1),
            Scales::One(scale) => (scale, 0),
        };
        let Term { dtype, scale: unit, zero, .. } = quantized.output;
        // Rounded once.
        let in_units = |scale: f32| (f64::from(scale) / f64::from(unit)) as f32;
        let residual = match quantized.residual {
            None => Residual::None,
            Some(Term { idx, dtype: DType::U8, scale, zero }) => {
                Residual::U8 { at: inputs[idx], scale: in_units(scale), zero }
            }
            Some(Term { idx, dtype: DType::I8, scale, zero }) => {
                Residual::I8 { at: inputs[idx].cast(), scale: in_units(scale), zero }
            }
            Some(Term { idx, .. }) => Residual::F32 { at: inputs[idx].cast(), scale: in_units(1.0) },
        };
        let (output, least, most) = match dtype {
            DType::U8 => (Stored::Bytes { at: outputs[0], zero }, -zero, 255 - zero),
            DType::I8 => (Stored::Bytes { at: outputs[0], zero }, -128 - zero, 127 - zero),
            _ => (Stored::F32(outputs[0].cast()), i32::MIN, i32::MAX),
        };
        let (mut lo, mut hi) = quantized.clamp();
        if let Stored::Bytes { .. } = output {
            (lo, hi) = (in_units(lo).max(least as f32), in_units(hi).min(most as f32));
        }
        // SAFETY: granted by the caller.
        let input_scale = unsafe { quantized.x_scale.of(inputs) };
        Finish {
            input_scale: in_units(input_scale),
            bias_scale: in_units(1.0),
            scales,
            scale_step,
            bias: quantized.bias(inputs),
            residual,
            lo,
            hi,
            output,
        }
    }

    /// Output channels `channel..channel + n`, at most a vector.
    ///
    /// # Safety
    /// There must be so many of them.
    #[inline(always)]
    pub(crate) unsafe fn channels<S: Simd>(&self, s: S, channel: usize, n: usize) -> Channels<S> {
        // SAFETY: the caller grants scales and bias for these channels.
        let (scale, bias) = unsafe {
            let scale = match self.scale_step {
                0 => s.splat(*self.scales),
                _ => s.load_part(self.scales.add(channel), n),
            };
            let bias = match self.bias.is_null() {
                true => s.zero(),
                false => s.mul(s.load_part(self.bias.add(channel), n), s.splat(self.bias_scale)),
            };
            (scale, bias)
        };
        let scale = s.mul(scale, s.splat(self.input_scale));
        let zero = match self.output {
            Stored::F32(_) => 0,
            Stored::Bytes { zero, .. } => zero,
        };
        let (residual_scale, residual_zero) = match self.residual {
            Residual::None => (0.0, 0),
            Residual::F32 { scale, .. } => (scale, 0),
            Residual::U8 { scale, zero, .. } | Residual::I8 { scale, zero, .. } => (scale, zero),
        };
        Channels {
            scale,
            bias,
            lo: s.splat(self.lo),
            hi: s.splat(self.hi),
            zero: s.splat_int(zero),
            residual_scale: s.splat(residual_scale),
            residual_zero: s.splat_int(residual_zero),
            n,
        }
    }

    /// What a loop over vectors that are whole, or not, can be told about results.
    #[inline(always)]
    pub(crate) fn kind(&self, is_whole: bool) -> u8 {
        match (self.output, self.residual) {
            (Stored::Bytes { .. }, Residual::None) if is_whole => kind::BYTES,
            (Stored::Bytes { .. }, Residual::U8 { .. }) if is_whole => kind::SUM,
            _ => kind::ANY,
        }
    }

    /// Scales sums, adds bias and residual, clamps and stores. `residual` and `to` are where the first channel lies,
    /// in elements.
    ///
    /// # Safety
    /// Residual and output must have the channels there; `KIND` must be the [kind](Finish::kind) of the results, or any.
    #[inline(always)]
    pub(crate) unsafe fn store<S: Simd, const KIND: u8>(
        &self,
        s: S,
        channels: &Channels<S>,
        sums: S::F,
        residual: usize,
        to: usize,
    ) {
        // SAFETY: granted by the caller.
        unsafe {
            let v = self.value::<S, KIND>(s, channels, sums, residual);
            match self.output {
                Stored::F32(at) if KIND == kind::ANY => s.store_part(at.add(to), channels.n, v),
                Stored::F32(_) => {}
                Stored::Bytes { at, .. } => {
                    let n = if KIND == kind::ANY { channels.n } else { S::LANES };
                    s.store_bytes(at.add(to), n, s.add_int(s.to_int(v), channels.zero));
                }
            }
        }
    }

    /// The same for two neighbouring vectors of channels, both whole, that are stored as bytes.
    ///
    /// # Safety
    /// As for [`Finish::store`]; `KIND` is not any.
    #[inline(always)]
    pub(crate) unsafe fn store_two<S: Simd, const KIND: u8>(
        &self,
        s: S,
        channels: [&Channels<S>; 2],
        sums: [S::F; 2],
        residual: usize,
        to: usize,
    ) {
        let Stored::Bytes { at, .. } = self.output else { return };
        // SAFETY: granted by the caller.
        unsafe {
            let first = self.value::<S, KIND>(s, channels[0], sums[0], residual);
            let second = self.value::<S, KIND>(s, channels[1], sums[1], residual + S::LANES);
            let first = s.add_int(s.to_int(first), channels[0].zero);
            let second = s.add_int(s.to_int(second), channels[1].zero);
            s.store_two_bytes(at.add(to), first, second);
        }
    }

    /// Scales sums, adds bias and residual, and clamps.
    ///
    /// # Safety
    /// As for [`Finish::store`].
    #[inline(always)]
    unsafe fn value<S: Simd, const KIND: u8>(
        &self,
        s: S,
        channels: &Channels<S>,
        sums: S::F,
        residual: usize,
    ) -> S::F {
        let n = if KIND == kind::ANY { channels.n } else { S::LANES };
        let mut v = s.mul_add(sums, channels.scale, channels.bias);
        // SAFETY: the caller grants the residual for these channels.
        unsafe {
            match self.residual {
                _ if KIND == kind::BYTES => {}
                Residual::U8 { at, .. } => {
                    v = plus_dequantized(s, s.load_bytes(at.add(residual), n), channels, v);
                }
                _ if KIND == kind::SUM => {}
                Residual::None => {}
                Residual::F32 { at, .. } => {
                    v = s.mul_add(s.load_part(at.add(residual), n), channels.residual_scale, v);
                }
                Residual::I8 { at, .. } => {
                    v = plus_dequantized(s, s.load_signed_bytes(at.add(residual), n), channels, v);
                }
            }
        }
        s.min(channels.hi, s.max(channels.lo, v))
    }
}

/// `v + (whole - zero) · scale`. No closure: these are not always inlined, and then compiled without the instruction
/// set.
#[inline(always)]
fn plus_dequantized<S: Simd>(s: S, whole: S::I, channels: &Channels<S>, v: S::F) -> S::F {
    let whole = s.to_float(s.sub_int(whole, channels.residual_zero));
    s.mul_add(whole, channels.residual_scale, v)
}
