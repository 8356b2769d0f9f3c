//! What follows the sums of quantized products: their scale, bias, residual and clamp, then bytes or f32 in memory.

use planish_tensor::DType;

use super::region::{Quantized, Scales, Term};
use crate::simd::Simd;

/// What is added to the sums, with its own scale.
#[derive(Clone, Copy, Debug)]
enum Residual {
    None,
    F32(*const f32),
    U8 { at: *const u8, scale: f32, zero: i32 },
    I8 { at: *const i8, scale: f32, zero: i32 },
}

/// Where results go: in f32, or by `round(v · inverse) + zero`, saturated.
#[derive(Clone, Copy, Debug)]
enum Stored {
    F32(*mut f32),
    U8 { at: *mut u8, inverse: f32, zero: i32 },
    I8 { at: *mut i8, inverse: f32, zero: i32 },
}

/// The addresses and numbers of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finish {
    input_scale: f32,
    /// One of each output channel, or one for all (`scale_step` 0).
    scales: *const f32,
    scale_step: usize,
    /// One of each output channel, or null.
    bias: *const f32,
    residual: Residual,
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
    pub(crate) fn new(quantized: &Quantized, inputs: &[*const u8], outputs: &[*mut u8]) -> Finish {
        let (scales, scale_step): (*const f32, usize) = match &quantized.scales {
            Scales::Input(idx) => (inputs[*idx].cast(), 1),
            Scales::One(scale) => (scale, 0),
        };
        let residual = match quantized.residual {
            None => Residual::None,
            Some(Term { idx, dtype: DType::U8, scale, zero }) => {
                Residual::U8 { at: inputs[idx], scale, zero }
            }
            Some(Term { idx, dtype: DType::I8, scale, zero }) => {
                Residual::I8 { at: inputs[idx].cast(), scale, zero }
            }
            Some(Term { idx, .. }) => Residual::F32(inputs[idx].cast()),
        };
        let Term { dtype, scale, zero, .. } = quantized.output;
        let output = match dtype {
            DType::U8 => Stored::U8 { at: outputs[0], inverse: 1.0 / scale, zero },
            DType::I8 => Stored::I8 { at: outputs[0].cast(), inverse: 1.0 / scale, zero },
            _ => Stored::F32(outputs[0].cast()),
        };
        let (lo, hi) = quantized.clamp();
        let (input_scale, bias) = (quantized.x_scale, quantized.bias(inputs));
        Finish { input_scale, scales, scale_step, bias, residual, lo, hi, output }
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
                false => s.load_part(self.bias.add(channel), n),
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
        let dequantized = |whole: S::I, scale: f32, zero: i32, v: S::F| {
            let whole = s.to_float(s.sub_int(whole, s.splat_int(zero)));
            s.mul_add(whole, s.splat(scale), v)
        };
        // SAFETY: the caller grants residual and output for these channels.
        unsafe {
            match self.residual {
                Residual::None => {}
                Residual::F32(at) => v = s.add(v, s.load_part(at.add(residual), n)),
                Residual::U8 { at, scale, zero } => {
                    v = dequantized(s.load_bytes(at.add(residual), n), scale, zero, v);
                }
                Residual::I8 { at, scale, zero } => {
                    v = dequantized(s.load_signed_bytes(at.add(residual), n), scale, zero, v);
                }
            }
            v = s.min(channels.hi, s.max(channels.lo, v));
            match self.output {
                Stored::F32(at) => s.store_part(at.add(to), n, v),
                Stored::U8 { at, inverse, zero } => {
                    s.store_bytes(at.add(to), n, quantized(s, v, inverse, zero, (0, 255)));
                }
                Stored::I8 { at, inverse, zero } => {
                    s.store_bytes(at.add(to).cast(), n, quantized(s, v, inverse, zero, (-128, 127)));
                }
            }
        }
    }
}

/// `round(v · inverse) + zero` between two bounds. Clamped in f32, where nothing is out of range.
#[inline(always)]
fn quantized<S: Simd>(s: S, v: S::F, inverse: f32, zero: i32, (lo, hi): (i32, i32)) -> S::I {
    let (lo, hi) = (s.splat((lo - zero) as f32), s.splat((hi - zero) as f32));
    let whole = s.min(hi, s.max(lo, s.mul(v, s.splat(inverse))));
    s.add_int(s.to_int(whole), s.splat_int(zero))
}
