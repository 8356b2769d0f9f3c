//! Depthwise convolutions of 8 bits: regions of DequantizeLinear, the convolution, what follows it and, mostly,
//! QuantizeLinear, as one kernel.
//!
//! There is one product for each tap and output, too few for dot products of bytes to pay: bytes become f32 as they are
//! loaded, and the kernels are those of f32. Their sums are exact all the same, being whole numbers below 2^24.

#[cfg(test)]
mod tests;

use planish_kernel::{
    Budget, Candidate, KernelError, KernelErrorKind, PackedWeight, Problem, Tactic, WeightUse,
};
use planish_tensor::Tensor;

use super::plan::RowPlan;
use super::rows::{self, Lanes, RowElements};
use super::{TILE, pack};
use crate::conv::quantized::{Channels, Finish, Form, Quantized, WeightZeros, image_wants, kind};
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::price::expected_ns;
use crate::shared::Shared;
use crate::simd::Simd;
use crate::spatial::{AXES, ImageStrides, Windows};
use crate::team::Team;

/// Signed bytes as f32, taps outermost, channels innermost and rounded up to sixteen.
pub(crate) const FORMAT: &str = "bytes_taps_by_channels16";
/// Stands before a zero point that was taken off them.
pub(crate) const LESS: &str = "_less";

/// The name of the format with a zero point taken off.
pub(crate) fn format(zero: i8) -> String {
    if zero == 0 { FORMAT.to_string() } else { format!("{FORMAT}{LESS}{zero}") }
}

/// Raised when kernels change.
const REVISION: u32 = 1;

/// Sums of so many products stay below 2^24, where f32 has every whole number: 500 · 255 · 128.
const MAX_TAPS: usize = 500;
/// The same where weights have a zero point, which takes them to 255: 250 · 255 · 255.
const MAX_TAPS_LESS: usize = 250;

/// Quantized `Conv` with as many groups as input channels, and what follows it.
#[derive(Debug)]
pub(crate) struct QuantizedDepthwiseFamily;

impl Family for QuantizedDepthwiseFamily {
    fn name(&self) -> &'static str {
        "qdepthwise"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Some(quantized) = of(problem) else { return Vec::new() };
        let (inputs, outputs) = image_wants(&quantized, problem);
        let laid = problem.with_layouts(&inputs, &outputs);
        let Some((plan, _)) = plan(isa, &quantized, &laid) else { return Vec::new() };
        // Repeated channels are put together element by element.
        let slower = if plan.multiplier == 1 { 1.0 } else { isa.lanes() as f64 };
        let bytes = laid.inputs[quantized.x].span_bytes() + laid.outputs[0].span_bytes();
        let ns = expected_ns(isa, 2.0 * slower * plan.macs() as f64, bytes as f64, problem.threads);
        let mut packed = vec![None; problem.inputs.len()];
        packed[quantized.weight] = Some(format(weight_zero(&quantized)));
        vec![Candidate { packed, ..Candidate::new(tactic_of(isa), inputs, outputs, ns) }]
    }

    fn pack(&self, _isa: Isa, used: WeightUse<'_>, weight: &Tensor) -> Result<PackedWeight, KernelError> {
        let quantized = found(used.problem, used.tactic)?;
        let refuse = || KernelError::unsupported(format!("{} does not pack such a weight", used.tactic));
        let [channels, 1, taps @ ..] = weight.shape() else { return Err(refuse()) };
        if used.input != quantized.weight {
            return Err(refuse());
        }
        let bytes = weight.elements::<i8>().map_err(|_| refuse())?;
        let zero = weight_zero(&quantized);
        let floats: Vec<f32> = bytes.iter().map(|&weight| f32::from(weight) - f32::from(zero)).collect();
        let packed = pack(&floats, *channels, taps.iter().product());
        Ok(PackedWeight { format: format(zero), bytes: planish_tensor::Bytes::from_vec(packed) })
    }

    fn format(&self, _isa: Isa, used: WeightUse<'_>) -> Result<Option<String>, KernelError> {
        let quantized = found(used.problem, used.tactic)?;
        Ok((used.input == quantized.weight).then(|| format(weight_zero(&quantized))))
    }

    fn prepare(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let quantized = found(problem, tactic)?;
        let own = Isa::available().into_iter().find(|own| tactic_of(*own).name == tactic.name);
        let Some(own) = own.filter(|own| own.is_within(isa)) else {
            let message = format!(
                "no quantized depthwise convolution is called `{}` here; rebuild the plan",
                tactic.name
            );
            return Err(KernelError::new(KernelErrorKind::NoSuchTactic, message));
        };
        let packed = problem.inputs[quantized.weight].packed.as_deref();
        if packed != Some(&*format(weight_zero(&quantized))) {
            return Err(KernelError::unsupported(format!("{tactic} needs its weight packed")));
        }
        let (plan, residual) = plan(own, &quantized, problem)
            .ok_or_else(|| KernelError::unsupported(format!("{tactic} does not take these operands")))?;
        Ok(Box::new(QuantizedDepthwiseWork { plan, quantized, residual }))
    }
}

fn tactic_of(isa: Isa) -> Tactic {
    Tactic::new(format!("qdepthwise_u8_{isa}"), REVISION)
}

/// The region's quantized product, where it is a depthwise convolution with a constant weight.
fn of(problem: &Problem) -> Option<Quantized> {
    let quantized = Quantized::of(problem)?;
    let Form::Conv(convolution) = &quantized.form else { return None };
    let n_taps: usize = convolution.axes.iter().map(|axis| axis.kernel).product();
    let fits = convolution.c == 1
        && !convolution.transposed
        && convolution.k > 0
        // One group of one channel is a convolution like any other.
        && (convolution.groups > 1 || convolution.k == 1)
        && match quantized.weight_zeros {
            WeightZeros::None => n_taps <= MAX_TAPS,
            WeightZeros::One(_) => n_taps <= MAX_TAPS_LESS,
            WeightZeros::Input(_) => false,
        }
        && problem.inputs[quantized.weight].constant;
    fits.then_some(quantized)
}

/// The zero point of all weights.
fn weight_zero(quantized: &Quantized) -> i8 {
    match quantized.weight_zeros {
        WeightZeros::One(zero) => zero,
        _ => 0,
    }
}

fn found(problem: &Problem, tactic: &Tactic) -> Result<Quantized, KernelError> {
    of(problem).ok_or_else(|| {
        let ops = problem.region.ops();
        KernelError::unsupported(format!("{tactic}: {ops} is not a quantized depthwise convolution"))
    })
}

/// The plan for a problem's operands, and where the residual lies.
fn plan(isa: Isa, quantized: &Quantized, problem: &Problem) -> Option<(RowPlan, Option<ImageStrides>)> {
    let Form::Conv(convolution) = &quantized.form else { return None };
    let (x, y) = (&problem.inputs[quantized.x], &problem.outputs[0]);
    let axes = &convolution.axes[AXES.checked_sub(x.rank().checked_sub(2)?)?..];
    let plan = RowPlan::new(isa, Windows::new(axes, x, y)?.with_rows(), x.dims[1], size_of::<u8>())?;
    let Some(term) = quantized.residual else { return Some((plan, None)) };
    let operand = &problem.inputs[term.idx];
    let strides = ImageStrides::of(operand)?;
    let fits = operand.dims == y.dims && (strides.channel == 1 || y.dims[1] == 1);
    fits.then_some((plan, Some(strides)))
}

#[derive(Debug)]
struct QuantizedDepthwiseWork {
    plan: RowPlan,
    quantized: Quantized,
    residual: Option<ImageStrides>,
}

impl Work for QuantizedDepthwiseWork {
    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let Shared { inputs, outputs, .. } = shared;
        // SAFETY: the caller grants what the operands span; packed weights have the length that `pack` gave them.
        unsafe {
            match self.quantized.x_zero.of(inputs) {
                0 if self.plan.windows.axes[2].kernel <= WIDEST_WITHOUT_ZERO => {
                    self.plan.run(&self.bytes::<false>(inputs, outputs, 0), team)
                }
                zero => self.plan.run(&self.bytes::<true>(inputs, outputs, zero), team),
            }
        }
        Ok(())
    }
}

impl QuantizedDepthwiseWork {
    /// # Safety
    /// The inputs must be what the operands say.
    unsafe fn bytes<const HAS_ZERO: bool>(
        &self,
        inputs: &[*const u8],
        outputs: &[*mut u8],
        zero: u8,
    ) -> Bytes<HAS_ZERO> {
        Bytes {
            x: inputs[self.quantized.x],
            weights: inputs[self.quantized.weight].cast(),
            zero,
            residual: self.residual,
            // SAFETY: granted by the caller.
            finish: unsafe { Finish::new(&self.quantized, inputs, outputs) },
        }
    }
}

/// The widest kernel for which taking off a zero point of 0 is worth code without it: the fewer taps a pixel meets, the more
/// it weighs.
const WIDEST_WITHOUT_ZERO: usize = 3;

/// Images of bytes, finished as all quantized products are. After a Relu their zero point is mostly 0, and need not be taken
/// off each of them.
struct Bytes<const HAS_ZERO: bool> {
    x: *const u8,
    weights: *const f32,
    zero: u8,
    residual: Option<ImageStrides>,
    finish: Finish,
}

// SAFETY: tasks write disjoint parts of the output; the rest is read.
unsafe impl<const HAS_ZERO: bool> Sync for Bytes<HAS_ZERO> {}

/// The sums of a tile, in memory.
#[repr(align(64))]
struct Sums([std::mem::MaybeUninit<f32>; TILE * super::CHANNEL_BLOCK]);

impl<const HAS_ZERO: bool> RowElements for Bytes<HAS_ZERO> {
    type X = u8;

    const WIDEST_SLIDING: usize = if HAS_ZERO { 7 } else { WIDEST_WITHOUT_ZERO };

    fn x(&self) -> *const u8 {
        self.x
    }

    fn weights(&self) -> *const f32 {
        self.weights
    }

    #[inline(always)]
    fn number(&self, x: u8) -> f32 {
        f32::from(x) - f32::from(self.zero)
    }

    #[inline(always)]
    unsafe fn load<S: Simd, const PART: bool>(&self, s: S, from: *const u8, n: usize) -> S::F {
        // SAFETY: the caller says so.
        let bytes = unsafe { s.load_bytes(from, if PART { n } else { S::LANES }) };
        s.to_float(if HAS_ZERO { s.sub_int(bytes, s.splat_int(self.zero.into())) } else { bytes })
    }

    #[inline(always)]
    unsafe fn begin<S: Simd, const PART: bool>(&self, s: S, _c: usize, _n: usize) -> S::F {
        s.zero()
    }

    #[inline(always)]
    unsafe fn finish<S: Simd, const PART: bool>(&self, s: S, at: Lanes<'_, Self>, sums: rows::Sums<S>) {
        let Lanes { tile: t, c, n } = at;
        // What follows is a loop over vectors in memory, not over the sums: these would live there at every tap.
        let mut memory = Sums([std::mem::MaybeUninit::uninit(); TILE * super::CHANNEL_BLOCK]);
        let memory = memory.0.as_mut_ptr().cast::<f32>();
        for (pixel, sum) in sums.into_iter().enumerate() {
            // SAFETY: there is room for `TILE` vectors of the widest instruction set.
            unsafe { s.store(memory.add(pixel * S::LANES), sum) };
        }
        let (mut residual, mut residual_pixel) = (c, 0);
        if let Some(strides) = &self.residual {
            let [n, d, h] = t.row;
            residual_pixel = strides.axes[2];
            residual += n * strides.batch + d * strides.axes[0] + h * strides.axes[1];
            residual += t.tile.start * residual_pixel;
        }
        let pixels = FinishedPixels { n: t.tile.n, sums: memory, residual, residual_pixel, to: t.to + c };
        // SAFETY: the caller grants the channels of the tile's pixels; all of the sums are there.
        unsafe {
            let channels = self.finish.channels(s, c, if PART { n } else { S::LANES });
            match self.finish.kind(!PART) {
                kind::BYTES => pixels.store::<S, { kind::BYTES }>(s, &self.finish, &channels, t.out_pixel),
                kind::SUM => pixels.store::<S, { kind::SUM }>(s, &self.finish, &channels, t.out_pixel),
                _ => pixels.store::<S, { kind::ANY }>(s, &self.finish, &channels, t.out_pixel),
            }
        }
    }
}

/// Sums of neighbouring pixels, a vector of channels each, and where they go.
struct FinishedPixels {
    n: usize,
    sums: *const f32,
    residual: usize,
    residual_pixel: usize,
    to: usize,
}

impl FinishedPixels {
    /// # Safety
    /// The sums must be there, and residual and output have the channels of the pixels; see [`Finish::store`].
    #[inline(always)]
    unsafe fn store<S: Simd, const KIND: u8>(
        &self,
        s: S,
        finish: &Finish,
        channels: &Channels<S>,
        out_pixel: usize,
    ) {
        for pixel in 0..self.n {
            let (residual, to) = (self.residual + pixel * self.residual_pixel, self.to + pixel * out_pixel);
            // SAFETY: granted by the caller.
            unsafe {
                let sum = s.load(self.sums.add(pixel * S::LANES));
                finish.store::<S, KIND>(s, channels, sum, residual, to);
            }
        }
    }
}
