//! Where the pixels of a convolution are: sizes, strides, and which input pixel each tap of a window meets.
//!
//! One, two and three spatial axes are all written as three, the missing ones of size 1. A transposed
//! convolution is as many plain ones as its strides have residues: the outputs whose positions leave the same
//! rest meet the same taps, at a distance that does not depend on the position. A plain convolution is the
//! case of one such phase, so kernels see only phases.

use planish_op::window::PlacedAxis;

/// Spatial axes of every geometry; those a model does not have are 1 wide.
pub const AXES: usize = 3;

/// An axis of size 1 under a window of one tap.
pub const TRIVIAL_AXIS: PlacedAxis =
    PlacedAxis { input: 1, output: 1, kernel: 1, stride: 1, dilation: 1, pad_begin: 0, pad_end: 0 };

/// Strides of an activation, in elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pixels {
    pub image: usize,
    pub axes: [usize; AXES],
    /// 1 where channels are innermost.
    pub channel: usize,
}

/// A convolution's sizes and where its activations lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    pub n_images: usize,
    pub groups: usize,
    /// Input channels of a group.
    pub c: usize,
    /// Output channels of a group.
    pub k: usize,
    /// As [`PlacedAxis`] has it: for a transposed convolution the windows slide over the output, so `input` is
    /// the output's size.
    pub axes: [PlacedAxis; AXES],
    pub transposed: bool,
    pub input: Pixels,
    pub output: Pixels,
    /// What is added before the clamp, if anything.
    pub residual: Option<Pixels>,
}

/// The outputs along one axis that meet the same taps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AxisPhase {
    /// Output positions are `first + q * step` for `q < count`.
    pub first: usize,
    pub step: usize,
    pub count: usize,
    /// Tap `t` of position `q` meets the input at `q * in_step + taps[t]`.
    pub in_step: usize,
    /// How far each tap is from the window's origin.
    pub taps: Vec<isize>,
}

/// The outputs that meet the same taps, with the taps' place in the packed weights.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Phase {
    pub axes: [AxisPhase; AXES],
    /// Its class, and the taps of earlier ones in the packed weights; see [`tap_classes`].
    pub class: usize,
    pub first_tap: usize,
}

/// Kernel positions of one class, per axis: those that one phase of a transposed convolution meets. Weights are
/// packed class by class, so that a phase reads one run of them whatever its padding.
pub type TapClass = [Vec<usize>; AXES];

/// The classes in the order they are packed in; one for a plain convolution.
pub fn tap_classes(axes: &[PlacedAxis; AXES], transposed: bool) -> Vec<TapClass> {
    let along = |axis: &PlacedAxis| -> Vec<Vec<usize>> {
        if !transposed {
            return vec![(0..axis.kernel).collect()];
        }
        (0..axis.stride)
            .map(|rest| (0..axis.kernel).filter(|tap| tap * axis.dilation % axis.stride == rest).collect())
            .collect()
    };
    let [a, b, c] = [along(&axes[0]), along(&axes[1]), along(&axes[2])];
    let mut classes = Vec::with_capacity(a.len() * b.len() * c.len());
    for x in &a {
        for y in &b {
            for z in &c {
                classes.push([x.clone(), y.clone(), z.clone()]);
            }
        }
    }
    classes
}

impl Geometry {
    /// Size of the input along a spatial axis.
    pub fn in_size(&self, axis: usize) -> usize {
        if self.transposed { self.axes[axis].output } else { self.axes[axis].input }
    }

    /// Size of the output along a spatial axis.
    pub fn out_size(&self, axis: usize) -> usize {
        if self.transposed { self.axes[axis].input } else { self.axes[axis].output }
    }

    /// Output pixels of one image.
    pub fn out_pixels(&self) -> usize {
        (0..AXES).map(|axis| self.out_size(axis)).product()
    }

    /// Taps of the whole window.
    pub fn n_taps(&self) -> usize {
        self.axes.iter().map(|axis| axis.kernel).product()
    }

    /// Multiplications and additions of the plain algorithm, padding included: what rates are given in.
    pub fn flops(&self) -> f64 {
        let pixels = if self.transposed {
            (0..AXES).map(|axis| self.in_size(axis)).product::<usize>()
        } else {
            self.out_pixels()
        };
        2.0 * (self.n_images * pixels * self.n_taps()) as f64 * (self.groups * self.c * self.k) as f64
    }

    /// What is computed together, in the order of [`tap_classes`] shifted by the padding. Phases without
    /// outputs are left out.
    pub fn phases(&self) -> Vec<Phase> {
        let classes = tap_classes(&self.axes, self.transposed);
        let mut first_tap = 0;
        let mut phases = Vec::with_capacity(classes.len());
        for (idx, class) in classes.iter().enumerate() {
            let n_taps: usize = class.iter().map(Vec::len).product();
            let mut rest = idx;
            let mut axes: [Option<AxisPhase>; AXES] = [None, None, None];
            for axis in (0..AXES).rev() {
                let placed = &self.axes[axis];
                let n_classes = if self.transposed { placed.stride } else { 1 };
                axes[axis] = Some(axis_phase(placed, self.transposed, rest % n_classes, &class[axis]));
                rest /= n_classes;
            }
            if let [Some(a), Some(b), Some(c)] = axes
                && [&a, &b, &c].iter().all(|axis| axis.count > 0)
            {
                phases.push(Phase { axes: [a, b, c], class: idx, first_tap });
            }
            first_tap += n_taps;
        }
        phases
    }
}

/// The phase of one axis that meets the taps of `class`, the taps `k` with `k · dilation ≡ class (mod stride)`.
fn axis_phase(axis: &PlacedAxis, transposed: bool, class: usize, taps: &[usize]) -> AxisPhase {
    if !transposed {
        return AxisPhase {
            first: 0,
            step: 1,
            count: axis.output,
            in_step: axis.stride,
            taps: taps.iter().map(|tap| (tap * axis.dilation) as isize - axis.pad_begin as isize).collect(),
        };
    }
    // Output `o` meets tap `k` of input `i` where `i · stride + k · dilation - pad = o`, so `o + pad` leaves the
    // class's rest; the first such output is below the stride.
    let stride = axis.stride;
    let first = (class + stride - axis.pad_begin % stride) % stride;
    let size = axis.input;
    AxisPhase {
        first,
        step: stride,
        count: size.saturating_sub(first).div_ceil(stride),
        in_step: 1,
        taps: taps
            .iter()
            .map(|tap| ((first + axis.pad_begin) as isize - (tap * axis.dilation) as isize) / stride as isize)
            .collect(),
    }
}

impl Phase {
    /// Output pixels of one image.
    pub fn n_pixels(&self) -> usize {
        self.axes.iter().map(|axis| axis.count).product()
    }

    pub fn n_taps(&self) -> usize {
        self.axes.iter().map(|axis| axis.taps.len()).product()
    }

    /// Offset of the first output.
    pub fn first(&self, pixels: &Pixels) -> usize {
        (0..AXES).map(|axis| self.axes[axis].first * pixels.axes[axis]).sum()
    }

    /// Whether the windows of both are the same: only outputs and weights differ.
    pub fn same_windows(&self, other: &Phase) -> bool {
        let same = |(a, b): (&AxisPhase, &AxisPhase)| {
            (a.step, a.count, a.in_step) == (b.step, b.count, b.in_step) && a.taps == b.taps
        };
        self.axes.iter().zip(&other.axes).all(same)
    }

    /// The most outputs in a row whose addresses are one distance apart, for these strides: all of them where
    /// images and rows follow each other without gaps.
    pub fn run(&self, n_images: usize, pixels: &[&Pixels]) -> usize {
        let mut run = self.axes[AXES - 1].count;
        let even = |outer: fn(&Pixels, &Phase) -> usize, run: usize| {
            pixels.iter().all(|p| outer(p, self) == run * self.axes[2].step * p.axes[2])
        };
        if self.axes[1].count > 1 {
            if !even(|p, phase| phase.axes[1].step * p.axes[1], run) {
                return run;
            }
            run *= self.axes[1].count;
        }
        if self.axes[0].count > 1 {
            if !even(|p, phase| phase.axes[0].step * p.axes[0], run) {
                return run;
            }
            run *= self.axes[0].count;
        }
        if n_images > 1 {
            if !even(|p, _| p.image, run) {
                return run;
            }
            run *= n_images;
        }
        run
    }
}

impl Pixels {
    /// Strides of a dense activation with `c` channels innermost, `pitch` elements from pixel to pixel.
    pub fn channels_last(sizes: [usize; AXES], pitch: usize) -> Pixels {
        let [d, h, w] = sizes;
        Pixels { image: d * h * w * pitch, axes: [h * w * pitch, w * pitch, pitch], channel: 1 }
    }

    /// Strides of a dense activation with `c` channels outermost.
    pub fn plain(sizes: [usize; AXES], c: usize) -> Pixels {
        let [d, h, w] = sizes;
        Pixels { image: c * d * h * w, axes: [h * w, w, 1], channel: d * h * w }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(input: usize, output: usize, kernel: usize, stride: usize, pad: usize) -> PlacedAxis {
        PlacedAxis { input, output, kernel, stride, dilation: 1, pad_begin: pad, pad_end: pad }
    }

    fn transposed(axis: PlacedAxis) -> Geometry {
        Geometry {
            n_images: 1,
            groups: 1,
            c: 1,
            k: 1,
            axes: [TRIVIAL_AXIS, TRIVIAL_AXIS, axis],
            transposed: true,
            input: Pixels::channels_last([1, 1, axis.output], 1),
            output: Pixels::channels_last([1, 1, axis.input], 1),
            residual: None,
        }
    }

    #[test]
    fn phases_of_a_transposed_axis_meet_what_the_windows_say() {
        for kernel in 1..6 {
            for stride in 1..4 {
                for pad in 0..kernel {
                    for dilation in 1..4 {
                        let mut placed = axis(11, 7, kernel, stride, pad);
                        placed.dilation = dilation;
                        let geometry = transposed(placed);
                        let classes = tap_classes(&geometry.axes, true);
                        let mut met = Vec::new();
                        for phase in geometry.phases() {
                            let mut seen = 0;
                            let class = classes
                                .iter()
                                .find(|class| {
                                    let here = seen == phase.first_tap && class[2].len() == phase.n_taps();
                                    seen += class.iter().map(Vec::len).product::<usize>();
                                    here
                                })
                                .expect("a phase has a class");
                            let x = &phase.axes[2];
                            for q in 0..x.count {
                                for (tap, offset) in class[2].iter().zip(&x.taps) {
                                    let place = (q * x.in_step) as isize + offset;
                                    if (0..7).contains(&place) {
                                        met.push((x.first + q * x.step, *tap, place as usize));
                                    }
                                }
                            }
                        }
                        let mut want = Vec::new();
                        for i in 0..7 {
                            for tap in 0..kernel {
                                if let Some(o) = placed.position(i, tap) {
                                    want.push((o, tap, i));
                                }
                            }
                        }
                        met.sort();
                        want.sort();
                        assert_eq!(
                            met, want,
                            "kernel {kernel} stride {stride} pad {pad} dilation {dilation}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn runs_end_where_strides_break() {
        let mut geometry = transposed(axis(8, 8, 1, 1, 0));
        geometry.transposed = false;
        geometry.axes[1] = axis(4, 4, 1, 1, 0);
        geometry.n_images = 3;
        let phase = geometry.phases().remove(0);
        let dense = Pixels::channels_last([1, 4, 8], 5);
        assert_eq!(phase.run(3, &[&dense]), 96);
        let mut gap = dense;
        gap.image += 5;
        assert_eq!(phase.run(3, &[&dense, &gap]), 32);
        gap.axes[1] += 5;
        assert_eq!(phase.run(3, &[&dense, &gap]), 8);
    }
}
