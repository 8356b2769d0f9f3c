//! DFT and STFT: fast transforms of mixed radix, eight signals at a time.
//!
//! Signals lie side by side, so every inner loop is over neighbours in memory. Everything is computed in f64 and rounded once.

use std::f64::consts::TAU;

use planish_kernel::{KernelError, Layout, Problem};
use planish_op::Op;
use planish_tensor::{DType, normalize_axis};

use super::args::Args;
use crate::family::Work;
use crate::isa::Isa;
use crate::shared::Shared;
use crate::simd::{Simd, SimdKernel};
use crate::team::Team;

/// Signals that are transformed together.
const BATCH: usize = 8;
/// The longest transform: tables are as long.
const MAX_LEN: usize = 1 << 22;

/// Where signals and spectra lie, in points.
#[derive(Clone, Copy, Debug)]
struct Places {
    n_signals: usize,
    /// Signals come in groups; a signal's first point is `group * per_group + member * per_member`.
    group: usize,
    per_group: usize,
    per_member: usize,
    /// From one point to the next.
    step: usize,
    /// Points that are read; zeros follow up to the length.
    n_points: usize,
    /// Numbers of a point: real, or both parts.
    parts: usize,
}

impl Places {
    fn first(&self, signal: usize) -> usize {
        signal / self.group * self.per_group + signal % self.group * self.per_member
    }
}

/// One pass of the transform: `radix` interleaved transforms of `rest` points become one.
#[derive(Debug)]
struct Pass {
    radix: usize,
    rest: usize,
    /// Of point `p` and output `k`: `twiddles[p * radix + k]`.
    twiddles: Vec<(f64, f64)>,
    /// `roots[j * k % radix]`
    roots: Vec<(f64, f64)>,
}

/// Transforms at given sizes, over dense operands.
#[derive(Debug)]
pub(super) struct Fourier {
    isa: Isa,
    args: Args,
    dtype: DType,
    window: Option<DType>,
    len: usize,
    inverse: bool,
    /// The upper half of the spectrum is the mirrored lower one.
    mirrored: bool,
    from: Places,
    to: Places,
    passes: Vec<Pass>,
}

fn root(at: usize, of: usize) -> (f64, f64) {
    let angle = -TAU * (at % of) as f64 / of as f64;
    (angle.cos(), angle.sin())
}

fn passes(len: usize) -> Vec<Pass> {
    let mut factors = Vec::new();
    let mut rest = len;
    for factor in [4, 2, 3, 5] {
        while rest.is_multiple_of(factor) {
            factors.push(factor);
            rest /= factor;
        }
    }
    let mut odd = 7;
    while rest > 1 {
        while rest.is_multiple_of(odd) {
            factors.push(odd);
            rest /= odd;
        }
        odd = if odd * odd > rest { rest.max(odd + 2) } else { odd + 2 };
    }
    let mut n = len;
    let pass = |radix: usize| {
        let rest = n / radix;
        let twiddles = (0..rest).flat_map(|p| (0..radix).map(move |k| root(p * k, rest * radix))).collect();
        n = rest;
        Pass { radix, rest, twiddles, roots: (0..radix).map(|k| root(k, radix)).collect() }
    };
    factors.into_iter().map(pass).collect()
}

pub(super) fn plan(isa: Isa, problem: &Problem, args: &Args) -> Option<Fourier> {
    let ([node], [y]) = (&problem.region.nodes[..], &problem.outputs[..]) else { return None };
    let x = args.operand(0)?;
    let single = |place: usize| match args.get(place) {
        None => Some(None),
        Some(_) => args.constant(place)?.to_i64s().first().copied().map(Some),
    };
    let expected = args.inferred(problem, 0)?;
    let fits = matches!(x.dtype, DType::F32 | DType::F64)
        && y.dtype == x.dtype
        && expected.dtype == y.dtype
        && expected.dims == y.dims
        && y.is_dense(Layout::Plain)
        && args.are_dense()
        && !x.is_empty();
    let parts = x.dims.last().copied().filter(|parts| matches!(parts, 1 | 2) && fits)?;
    let (len, inverse, mirrored, window, from, to) = match &node.op {
        Op::STFT(op) => {
            let &[_, signal_len, _] = &x.dims[..] else { return None };
            let step = usize::try_from(single(1)??).ok().filter(|step| *step > 0)?;
            let window = args.operand(2);
            let len = match (single(3)?, window) {
                (Some(len), _) => usize::try_from(len).ok()?,
                (None, Some(window)) => window.len(),
                (None, None) => signal_len,
            };
            let known = |window: &planish_kernel::Operand| {
                window.dims == [len] && matches!(window.dtype, DType::F32 | DType::F64)
            };
            if len == 0 || len > signal_len || !window.is_none_or(known) {
                return None;
            }
            let n_frames = (signal_len - len) / step + 1;
            let n_bins = if op.onesided { len / 2 + 1 } else { len };
            if y.dims != [x.dims[0], n_frames, n_bins, 2] {
                return None;
            }
            let n_signals = x.dims[0] * n_frames;
            let from = Places {
                n_signals,
                group: n_frames,
                per_group: signal_len,
                per_member: step,
                step: 1,
                n_points: len,
                parts,
            };
            let to = Places {
                n_signals,
                group: 1,
                per_group: n_bins,
                per_member: 0,
                step: 1,
                n_points: n_bins,
                parts: 2,
            };
            (len, false, false, window.map(|window| window.dtype), from, to)
        }
        Op::DFT(op) => {
            let rank = x.rank();
            let axis = normalize_axis(single(2)?.unwrap_or(-2), rank).ok().filter(|axis| *axis + 1 < rank)?;
            let mirrored = op.inverse && op.onesided;
            let natural = if mirrored { 2 * x.dims[axis].saturating_sub(1) } else { x.dims[axis] };
            let len = single(1)?.map_or(Some(natural), |len| usize::try_from(len).ok())?;
            let n_out = if op.onesided && !op.inverse { len / 2 + 1 } else { len };
            let out_parts = if mirrored { 1 } else { 2 };
            let mut dims = x.dims.clone();
            (dims[axis], dims[rank - 1]) = (n_out, out_parts);
            let one_half_of_real = !op.onesided || (parts == 2) == op.inverse;
            if len == 0 || y.dims != dims || !one_half_of_real {
                return None;
            }
            let inner: usize = x.dims[axis + 1..rank - 1].iter().product();
            let n_signals = x.dims[..axis].iter().product::<usize>() * inner;
            let side = |n_points: usize, parts: usize, n_read: usize| Places {
                n_signals,
                group: inner,
                per_group: n_points * inner,
                per_member: 1,
                step: inner,
                n_points: n_read,
                parts,
            };
            let from = side(x.dims[axis], parts, x.dims[axis].min(len));
            (len, op.inverse, mirrored, None, from, side(n_out, out_parts, n_out))
        }
        _ => return None,
    };
    if len > MAX_LEN {
        return None;
    }
    let (args, dtype) = (args.clone(), x.dtype);
    Some(Fourier { isa, args, dtype, window, len, inverse, mirrored, from, to, passes: passes(len) })
}

impl Fourier {
    /// Multiplications of one signal.
    pub(super) fn signal_ns(&self) -> f64 {
        let work: usize = self.passes.iter().map(|pass| pass.radix + 2).sum();
        0.5 * (self.len * work.max(1)) as f64
    }

    pub(super) fn n_signals(&self) -> usize {
        self.from.n_signals
    }

    fn is_wide(&self, dtype: DType) -> bool {
        dtype == DType::F64
    }

    /// Reads up to `BATCH` signals side by side into real and imaginary parts.
    ///
    /// # Safety
    /// The operands must be readable.
    unsafe fn read(&self, shared: &Shared<'_>, first: usize, re: &mut [f64], im: &mut [f64]) {
        let (x, window) = (self.args.at(shared, 0), self.args.at(shared, 2));
        let get = |from: *const u8, dtype: DType, at: usize| {
            // SAFETY: granted by the caller.
            unsafe {
                match self.is_wide(dtype) {
                    true => from.cast::<f64>().add(at).read_unaligned(),
                    false => f64::from(from.cast::<f32>().add(at).read_unaligned()),
                }
            }
        };
        re.fill(0.0);
        im.fill(0.0);
        let sign = if self.inverse { -1.0 } else { 1.0 };
        for lane in 0..BATCH.min(self.from.n_signals - first) {
            let start = self.from.first(first + lane);
            for point in 0..self.from.n_points {
                let weight = self.window.map_or(1.0, |dtype| get(window, dtype, point));
                let at = (start + point * self.from.step) * self.from.parts;
                re[point * BATCH + lane] = weight * get(x, self.dtype, at);
                if self.from.parts == 2 {
                    // The inverse is the conjugate of the transform of the conjugate.
                    im[point * BATCH + lane] = sign * weight * get(x, self.dtype, at + 1);
                }
            }
            if self.mirrored {
                for k in 1..self.len.div_ceil(2) {
                    re[(self.len - k) * BATCH + lane] = re[k * BATCH + lane];
                    im[(self.len - k) * BATCH + lane] = -im[k * BATCH + lane];
                }
            }
        }
    }

    /// # Safety
    /// The output must be writable.
    unsafe fn write(&self, shared: &Shared<'_>, first: usize, re: &[f64], im: &[f64]) {
        let y = shared.outputs[0];
        let put = |at: usize, value: f64| {
            // SAFETY: granted by the caller.
            unsafe {
                match self.is_wide(self.dtype) {
                    true => y.cast::<f64>().add(at).write_unaligned(value),
                    false => y.cast::<f32>().add(at).write_unaligned(value as f32),
                }
            }
        };
        let (by, sign) = if self.inverse { (1.0 / self.len as f64, -1.0) } else { (1.0, 1.0) };
        for lane in 0..BATCH.min(self.to.n_signals - first) {
            let start = self.to.first(first + lane);
            for point in 0..self.to.n_points {
                let at = (start + point * self.to.step) * self.to.parts;
                put(at, by * re[point * BATCH + lane]);
                if self.to.parts == 2 {
                    put(at + 1, sign * by * im[point * BATCH + lane]);
                }
            }
        }
    }
}

/// Real and imaginary parts of `BATCH` signals.
type Both<'a> = (&'a mut [f64], &'a mut [f64]);

/// All passes over one batch; gives whether the result lies in the second buffers.
struct Transform<'a, 'b> {
    passes: &'a [Pass],
    x: Both<'b>,
    y: Both<'b>,
}

impl SimdKernel for Transform<'_, '_> {
    type Output = bool;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> bool {
        let (mut x, mut y) = (self.x, self.y);
        let mut stride = BATCH;
        let mut turned = false;
        for pass in self.passes {
            match pass.radix {
                2 => radix_2(pass, stride, (&*x.0, &*x.1), (&mut *y.0, &mut *y.1)),
                4 => radix_4(pass, stride, (&*x.0, &*x.1), (&mut *y.0, &mut *y.1)),
                _ => radix_any(pass, stride, (&*x.0, &*x.1), (&mut *y.0, &mut *y.1)),
            }
            std::mem::swap(&mut x, &mut y);
            turned = !turned;
            stride *= pass.radix;
        }
        turned
    }
}

#[inline(always)]
fn radix_2(pass: &Pass, s: usize, x: (&[f64], &[f64]), y: (&mut [f64], &mut [f64])) {
    for p in 0..pass.rest {
        let (wr, wi) = pass.twiddles[2 * p + 1];
        let (a, b) = (s * p..s * (p + 1), s * (p + pass.rest)..s * (p + pass.rest + 1));
        let (ar, ai, br, bi) = (&x.0[a.clone()], &x.1[a], &x.0[b.clone()], &x.1[b]);
        let (yr0, yr1) = y.0[2 * s * p..2 * s * (p + 1)].split_at_mut(s);
        let (yi0, yi1) = y.1[2 * s * p..2 * s * (p + 1)].split_at_mut(s);
        for q in 0..s {
            yr0[q] = ar[q] + br[q];
            yi0[q] = ai[q] + bi[q];
            let (dr, di) = (ar[q] - br[q], ai[q] - bi[q]);
            yr1[q] = dr * wr - di * wi;
            yi1[q] = dr * wi + di * wr;
        }
    }
}

#[inline(always)]
fn radix_4(pass: &Pass, s: usize, x: (&[f64], &[f64]), y: (&mut [f64], &mut [f64])) {
    let m = pass.rest;
    for p in 0..m {
        let w = &pass.twiddles[4 * p..4 * p + 4];
        let part = |j: usize| s * (p + m * j)..s * (p + m * j + 1);
        let (r0, r1, r2, r3) = (&x.0[part(0)], &x.0[part(1)], &x.0[part(2)], &x.0[part(3)]);
        let (i0, i1, i2, i3) = (&x.1[part(0)], &x.1[part(1)], &x.1[part(2)], &x.1[part(3)]);
        let (yr01, yr23) = y.0[4 * s * p..4 * s * (p + 1)].split_at_mut(2 * s);
        let (yi01, yi23) = y.1[4 * s * p..4 * s * (p + 1)].split_at_mut(2 * s);
        let ((yr0, yr1), (yr2, yr3)) = (yr01.split_at_mut(s), yr23.split_at_mut(s));
        let ((yi0, yi1), (yi2, yi3)) = (yi01.split_at_mut(s), yi23.split_at_mut(s));
        for q in 0..s {
            let (ar, ai) = (r0[q] + r2[q], i0[q] + i2[q]);
            let (br, bi) = (r0[q] - r2[q], i0[q] - i2[q]);
            let (cr, ci) = (r1[q] + r3[q], i1[q] + i3[q]);
            // Times -i.
            let (dr, di) = (i1[q] - i3[q], r3[q] - r1[q]);
            yr0[q] = ar + cr;
            yi0[q] = ai + ci;
            let (er, ei) = (br + dr, bi + di);
            yr1[q] = er * w[1].0 - ei * w[1].1;
            yi1[q] = er * w[1].1 + ei * w[1].0;
            let (fr, fi) = (ar - cr, ai - ci);
            yr2[q] = fr * w[2].0 - fi * w[2].1;
            yi2[q] = fr * w[2].1 + fi * w[2].0;
            let (gr, gi) = (br - dr, bi - di);
            yr3[q] = gr * w[3].0 - gi * w[3].1;
            yi3[q] = gr * w[3].1 + gi * w[3].0;
        }
    }
}

#[inline(always)]
fn radix_any(pass: &Pass, s: usize, x: (&[f64], &[f64]), y: (&mut [f64], &mut [f64])) {
    let (r, m) = (pass.radix, pass.rest);
    for p in 0..m {
        for k in 0..r {
            let to = s * (r * p + k)..s * (r * p + k + 1);
            let (yr, yi) = (&mut y.0[to.clone()], &mut y.1[to]);
            let first = s * p..s * (p + 1);
            yr.copy_from_slice(&x.0[first.clone()]);
            yi.copy_from_slice(&x.1[first]);
            for j in 1..r {
                let (wr, wi) = pass.roots[j * k % r];
                let from = s * (p + m * j)..s * (p + m * j + 1);
                let (xr, xi) = (&x.0[from.clone()], &x.1[from]);
                for q in 0..s {
                    yr[q] += xr[q] * wr - xi[q] * wi;
                    yi[q] += xr[q] * wi + xi[q] * wr;
                }
            }
            let (wr, wi) = pass.twiddles[p * r + k];
            for q in 0..s {
                let (re, im) = (yr[q], yi[q]);
                yr[q] = re * wr - im * wi;
                yi[q] = re * wi + im * wr;
            }
        }
    }
}

impl Work for Fourier {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        n_slots * 4 * self.len * BATCH * size_of::<f64>()
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let per_slot = 4 * self.len * BATCH;
        team.for_each(self.from.n_signals.div_ceil(BATCH), &|task| {
            let shared = &shared;
            let start = shared.workspace.cast::<f64>().wrapping_add(task.slot * per_slot);
            // SAFETY: the workspace has so many numbers for each slot, aligned, and whatever they are they are numbers.
            let buffers = unsafe { std::slice::from_raw_parts_mut(start, per_slot) };
            let (x, y) = buffers.split_at_mut(per_slot / 2);
            let ((xr, xi), (yr, yi)) = (x.split_at_mut(per_slot / 4), y.split_at_mut(per_slot / 4));
            let first = task.idx * BATCH;
            // SAFETY: the caller grants the operands; tasks write signals of their own.
            unsafe {
                self.read(shared, first, xr, xi);
                let passes = &self.passes[..];
                let turned =
                    self.isa.run(Transform { passes, x: (&mut *xr, &mut *xi), y: (&mut *yr, &mut *yi) });
                match turned {
                    true => self.write(shared, first, yr, yi),
                    false => self.write(shared, first, xr, xi),
                }
            }
        });
        Ok(())
    }
}
