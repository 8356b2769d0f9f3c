//! A convolution by definition, in f64, and random cases: what every kernel is compared with.

use std::cell::OnceCell;

use planish_op::window::PlacedAxis;
use planish_testing::Random;

use super::ConvCall;
use super::geometry::{AXES, Geometry, Pixels, TRIVIAL_AXIS};
use super::pack::Filter;
use crate::team::Team;

/// Rounding of a sum in f32, as a part of the sum of its terms' sizes: half a unit in the last place (6e-8) for
/// each term in the worst order; for random signs and a few thousand terms some ten of them stay far below.
pub(super) const SUM_TOLERANCE: f64 = 1e-6;

/// What stands where nothing may be written.
const UNTOUCHED: f32 = 12345.0;

/// An axis whose number of windows follows from the rest.
pub(super) fn axis(
    input: usize,
    kernel: usize,
    stride: usize,
    dilation: usize,
    pads: (usize, usize),
) -> PlacedAxis {
    let extent = (kernel - 1) * dilation + 1;
    let output = (input + pads.0 + pads.1 + stride).saturating_sub(extent) / stride;
    PlacedAxis { input, output, kernel, stride, dilation, pad_begin: pads.0, pad_end: pads.1 }
}

/// The same of a transposed convolution over `input` elements.
pub(super) fn transposed_axis(
    input: usize,
    kernel: usize,
    stride: usize,
    dilation: usize,
    pads: (usize, usize),
    extra: usize,
) -> PlacedAxis {
    let covered = (input.max(1) - 1) * stride + extra + (kernel - 1) * dilation + 1;
    let size = covered.saturating_sub(pads.0 + pads.1);
    PlacedAxis { input: size, output: input, kernel, stride, dilation, pad_begin: pads.0, pad_end: pads.1 }
}

/// A convolution with its data.
pub(super) struct Case {
    pub(super) geometry: Geometry,
    pub(super) filter: Filter,
    pub(super) input: Vec<f32>,
    pub(super) weight: Vec<f32>,
    pub(super) bias: Option<Vec<f32>>,
    pub(super) residual: Vec<f32>,
    pub(super) lo: f32,
    pub(super) hi: f32,
    /// What [`Case::expected`] found.
    answers: OnceCell<Vec<(usize, f64, f64)>>,
}

impl Case {
    /// A dense case with random data; `gap` elements lie between pixels on both sides.
    pub(super) fn new(
        n: usize,
        groups: usize,
        c: usize,
        k: usize,
        axes: &[PlacedAxis],
        transposed: bool,
        gap: usize,
    ) -> Case {
        let mut all = [TRIVIAL_AXIS; AXES];
        all[AXES - axes.len()..].copy_from_slice(axes);
        let mut geometry = Geometry {
            n_images: n,
            groups,
            c,
            k,
            axes: all,
            transposed,
            input: Pixels::channels_last([1; AXES], 1),
            output: Pixels::channels_last([1; AXES], 1),
            residual: None,
        };
        let ins: [usize; AXES] = std::array::from_fn(|axis| geometry.in_size(axis));
        let outs: [usize; AXES] = std::array::from_fn(|axis| geometry.out_size(axis));
        geometry.input = Pixels::channels_last(ins, groups * c + gap);
        geometry.output = Pixels::channels_last(outs, groups * k + gap);
        let filter = Filter::new(groups, c, k, &all, transposed);
        let len = n * geometry.input.image.max(ins.iter().product::<usize>());
        Case {
            input: Random::new(len as u64 + 1).list(len + 64),
            weight: Random::new(filter.len() as u64 + 2).list(filter.len()),
            bias: Some(Random::new(3).list(groups * k)),
            residual: Vec::new(),
            geometry,
            filter,
            lo: f32::NEG_INFINITY,
            hi: f32::INFINITY,
            answers: OnceCell::new(),
        }
    }

    /// The same with something to add, whose pixels are `gap` further apart.
    pub(super) fn with_residual(mut self, gap: usize) -> Case {
        let outs: [usize; AXES] = std::array::from_fn(|axis| self.geometry.out_size(axis));
        let pixels = Pixels::channels_last(outs, self.geometry.groups * self.geometry.k + gap);
        self.residual = Random::new(77).list(self.geometry.n_images * pixels.image + 64);
        self.geometry.residual = Some(pixels);
        self
    }

    pub(super) fn clamped(mut self, lo: f32, hi: f32) -> Case {
        (self.lo, self.hi) = (lo, hi);
        self
    }

    /// The same with the input's channels outermost.
    pub(super) fn with_plain_input(mut self) -> Case {
        let g = &mut self.geometry;
        let ins: [usize; AXES] = std::array::from_fn(|axis| g.in_size(axis));
        g.input = Pixels::plain(ins, g.groups * g.c);
        self
    }

    /// Runs a plan and gives the output with everything around it.
    ///
    /// `run` gets the call and the team; `workspace` bytes are poisoned with NaN before.
    pub(super) fn run(
        &self,
        weights: &[f32],
        workspace: usize,
        run: impl FnOnce(&ConvCall<'_>, &Team),
    ) -> Vec<f32> {
        let len = self.geometry.n_images * self.geometry.output.image + 64;
        let mut output = vec![UNTOUCHED; len];
        let mut workspace = Aligned::new(workspace.div_ceil(4));
        workspace.0.fill(f32::NAN);
        let mut aligned = Aligned::new(weights.len());
        aligned.slice(weights.len()).copy_from_slice(weights);
        let call = ConvCall {
            input: self.input.as_ptr(),
            weights: aligned.slice(weights.len()).as_ptr(),
            bias: self.bias.as_ref().map_or(std::ptr::null(), |bias| bias.as_ptr()),
            residual: self.residual.as_ptr(),
            output: output.as_mut_ptr(),
            workspace: workspace.slice(1).as_mut_ptr().cast(),
            lo: self.lo,
            hi: self.hi,
            after: None,
            staging: 0,
        };
        run(&call, &Team::alone());
        output
    }

    /// Place in the output, value and sum of the terms' sizes of every output element.
    fn expected(&self) -> Vec<(usize, f64, f64)> {
        let g = &self.geometry;
        let outs: Vec<usize> = (0..AXES).map(|axis| g.out_size(axis)).collect();
        let ins: Vec<usize> = (0..AXES).map(|axis| g.in_size(axis)).collect();
        let kernel = self.filter.kernel;
        let mut all = Vec::new();
        let dot = |p: &Pixels, n: usize, at: [usize; AXES]| {
            n * p.image + (0..AXES).map(|axis| at[axis] * p.axes[axis]).sum::<usize>()
        };
        for n in 0..g.n_images {
            for flat in 0..outs.iter().product() {
                let out = [flat / (outs[1] * outs[2]), flat / outs[2] % outs[1], flat % outs[2]];
                // The input positions that each tap meets.
                let mut met = Vec::new();
                for tap in 0..g.n_taps() {
                    let taps = [tap / (kernel[1] * kernel[2]), tap / kernel[2] % kernel[1], tap % kernel[2]];
                    let along = |axis: usize| {
                        let placed = &g.axes[axis];
                        if !g.transposed {
                            return placed.position(out[axis], taps[axis]);
                        }
                        (0..ins[axis]).find(|i| placed.position(*i, taps[axis]) == Some(out[axis]))
                    };
                    if let (Some(a), Some(b), Some(c)) = (along(0), along(1), along(2)) {
                        met.push((tap, dot(&g.input, n, [a, b, c])));
                    }
                }
                for group in 0..g.groups {
                    for k in 0..g.k {
                        let channel = group * g.k + k;
                        let (mut sum, mut size) = (0.0, 0.0);
                        let mut add = |term: f64| {
                            sum += term;
                            size += term.abs();
                        };
                        for (tap, pixel) in &met {
                            for c in 0..g.c {
                                let x = self.input[pixel + (group * g.c + c) * g.input.channel];
                                let w = self.weight[self.filter.place(group, c, k, *tap)];
                                add(f64::from(x) * f64::from(w));
                            }
                        }
                        add(self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[channel])));
                        if let Some(pixels) = &g.residual {
                            add(f64::from(self.residual[dot(pixels, n, out) + channel]));
                        }
                        let clamped = if sum.is_nan() {
                            sum
                        } else {
                            sum.max(f64::from(self.lo)).min(f64::from(self.hi))
                        };
                        all.push((dot(&g.output, n, out) + channel, clamped, size));
                    }
                }
            }
        }
        all
    }

    /// Compares element by element and asks that nothing else was written; gives the relative L2 error. An error
    /// may be `tolerance` of the sum of its terms' sizes, and `mixed` of the largest such sum anywhere, for
    /// algorithms in which neighbours' errors mix.
    pub(super) fn check(&self, got: &[f32], tolerance: f64, mixed: f64, what: &str) -> f64 {
        let expected = self.answers.get_or_init(|| self.expected());
        let largest =
            expected.iter().map(|(_, _, size)| *size).filter(|size| size.is_finite()).fold(0.0, f64::max);
        let mut around = vec![true; got.len()];
        let (mut error, mut norm) = (0.0, 0.0);
        for &(place, want, size) in expected {
            around[place] = false;
            let value = f64::from(got[place]);
            let same = (value.is_nan() && want.is_nan())
                || value == want
                || (value - want).abs() <= tolerance * size + mixed * largest;
            assert!(same, "{what}: at {place} {value} instead of {want} in {:?}", self.geometry);
            if want.is_finite() {
                error += (value - want).powi(2);
                norm += want.powi(2);
            }
        }
        for (place, free) in around.iter().enumerate() {
            assert!(!free || got[place] == UNTOUCHED, "{what}: wrote at {place} in {:?}", self.geometry);
        }
        if norm > 0.0 { (error / norm).sqrt() } else { 0.0 }
    }
}

/// f32 with room to begin at a multiple of 64 bytes.
pub(super) struct Aligned(Vec<f32>);

impl Aligned {
    pub(super) fn new(len: usize) -> Aligned {
        Aligned(vec![0.0; len + 32])
    }

    pub(super) fn slice(&mut self, len: usize) -> &mut [f32] {
        let skip = self.0.as_ptr().align_offset(64);
        &mut self.0[skip..skip + len]
    }
}
