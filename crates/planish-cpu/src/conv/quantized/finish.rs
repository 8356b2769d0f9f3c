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

/// A vector of output channels with its scale and bias.
#[derive(Clone, Copy)]
pub(crate) struct Channels<S: Simd> {
    scale: S::F,
    bias: S::F,
    lo: S::F,
    hi: S::F,
    /// At most the lanes of a vector.
    n: usize,
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
        Channels { scale, bias, lo: s.splat(self.lo), hi: s.splat(self.hi), n }
    }

    /// Scales sums, adds bias and residual, clamps and stores. `residual` and `to` are where the first channel lies,
    /// in elements.
    ///
    /// # Safety
    /// Residual and output must have the channels there.
    #[inline(always)]
    pub(crate) unsafe fn store<S: Simd>(
        &self,
        s: S,
        channels: &Channels<S>,
        sums: S::F,
        residual: usize,
        to: usize,
    ) {
        let n = channels.n;
        let mut v = s.mul_add(sums, channels.scale, channels.bias);
        // SAFETY: the caller grants residual and output for these channels.
        unsafe {
            match self.residual {
                Residual::None => {}
                Residual::F32 { at, scale } => {
                    v = s.mul_add(s.load_part(at.add(residual), n), s.splat(scale), v);
                }
                Residual::U8 { at, scale, zero } => {
                    v = plus_dequantized(s, s.load_bytes(at.add(residual), n), scale, zero, v);
                }
                Residual::I8 { at, scale, zero } => {
                    v = plus_dequantized(s, s.load_signed_bytes(at.add(residual), n), scale, zero, v);
                }
            }
            v = s.min(channels.hi, s.max(channels.lo, v));
            match self.output {
                Stored::F32(at) => s.store_part(at.add(to), n, v),
                Stored::Bytes { at, zero } => {
                    s.store_bytes(at.add(to), n, s.add_int(s.to_int(v), s.splat_int(zero)));
                }
            }
        }
    }
}

/// `v + (whole - zero) · scale`. No closure: these are not always inlined, and then compiled without the instruction
/// set.
#[inline(always)]
fn plus_dequantized<S: Simd>(s: S, whole: S::I, scale: f32, zero: i32, v: S::F) -> S::F {
    let whole = s.to_float(s.sub_int(whole, s.splat_int(zero)));
    s.mul_add(whole, s.splat(scale), v)
}
