//! GridSample of f32: an image read at given points.
//!
//! Where a point lies among the pixels is computed once for all channels, some points at a time: places and weights of its
//! taps. Every channel is then a sum of pixels that are picked up, over neighbouring points.

use planish_kernel::{KernelError, Layout, Problem};
use planish_op::{GridSample, GridSampleMode, GridSamplePadding, Op};
use planish_tensor::DType;

use super::args::Args;
use crate::family::Work;
use crate::isa::Isa;
use crate::shared::Shared;
use crate::simd::{Simd, SimdKernel};
use crate::spatial::units_per_task;
use crate::team::{Task, Team};

/// Points that are computed at once.
const POINTS: usize = 64;
/// The most pixels of a point: a cubic filter over two axes.
const MOST_TAPS: usize = 16;
/// Pixels along one axis.
const MOST_ALONG: usize = 4;
/// Pixels of a task, over all channels: some 20 µs.
const TASK_PIXELS: usize = 1 << 14;
/// The coefficient of the cubic convolution, which GridSample does not let choose.
const CUBIC: f64 = -0.75;
/// Far outside all pixels are the same; these bounds keep the arithmetic on places small.
const BESIDE: f64 = 4.0;

/// One with everything settled that its sizes settle. Operands are dense.
#[derive(Debug)]
pub(super) struct Sampling {
    isa: Isa,
    args: Args,
    op: GridSample,
    /// Sizes of the image's axes, two or three.
    lens: Vec<usize>,
    n_channels: usize,
    n_points: usize,
    batch: usize,
    /// Points of a task.
    per_task: usize,
}

pub(super) fn plan(isa: Isa, problem: &Problem, args: &Args) -> Option<Sampling> {
    let ([node], [y]) = (&problem.region.nodes[..], &problem.outputs[..]) else { return None };
    let Op::GridSample(op) = &node.op else { return None };
    let (image, grid) = (args.operand(0)?, args.operand(1)?);
    let &[batch, n_channels, ref lens @ ..] = &image.dims[..] else { return None };
    let made = args.inferred(problem, 0)?;
    let [_, points @ .., n_axes] = &grid.dims[..] else { return None };
    let is_float = |dtype: DType| dtype == DType::F32;
    let fits = is_float(image.dtype)
        && is_float(grid.dtype)
        && is_float(y.dtype)
        && grid.rank() == image.rank()
        && grid.dims[0] == batch
        && *n_axes == lens.len()
        && made.dims == y.dims
        && y.dims == [&[batch, n_channels], points].concat()
        && y.is_dense(Layout::Plain)
        && args.are_dense()
        && lens.iter().all(|len| *len > 0)
        // Places are words of 32 bits.
        && lens.iter().try_fold(1usize, |n, len| n.checked_mul(*len)).is_some_and(|n| n <= i32::MAX as usize);
    let n_taps = along(op.mode).checked_pow(u32::try_from(lens.len()).ok()?)?;
    if !fits || !(2..=3).contains(&lens.len()) || n_taps > MOST_TAPS {
        return None;
    }
    let n_points: usize = points.iter().product();
    let per_task = units_per_task(n_points, n_channels.max(1) * n_taps, TASK_PIXELS).next_multiple_of(POINTS);
    let (args, op, lens) = (args.clone(), op.clone(), lens.to_vec());
    Some(Sampling { isa, args, op, lens, n_channels, n_points, batch, per_task })
}

/// Pixels along one axis that make a value.
fn along(mode: GridSampleMode) -> usize {
    match mode {
        GridSampleMode::Nearest => 1,
        GridSampleMode::Linear => 2,
        GridSampleMode::Cubic => MOST_ALONG,
    }
}

/// Pixels of one axis with their weights; those with weight 0 count for nothing.
#[derive(Clone, Copy)]
struct Axis {
    places: [usize; MOST_ALONG],
    weights: [f64; MOST_ALONG],
}

impl Sampling {
    /// Nanoseconds of an element of the output.
    pub(super) fn element_ns(&self) -> f64 {
        let n_taps = along(self.op.mode).pow(self.lens.len() as u32) as f64;
        let point = match (self.op.mode, self.op.padding_mode) {
            (GridSampleMode::Linear, GridSamplePadding::Zeros | GridSamplePadding::Border) => 4.0,
            _ => 20.0,
        };
        0.4 * n_taps + point / self.n_channels.max(1) as f64
    }

    fn borders(&self, len: f64) -> (f64, f64) {
        if self.op.align_corners { (0.0, len - 1.0) } else { (-0.5, len - 0.5) }
    }

    /// Where a coordinate (-1 to 1 over the image) lies along an axis, in pixels, as far inside as the padding brings it before
    /// pixels are read; `None` where nothing is.
    fn coordinate(&self, len: usize, normalized: f64) -> Option<f64> {
        let len = len as f64;
        let mut at = match self.op.align_corners {
            true => (normalized + 1.0) / 2.0 * (len - 1.0),
            false => ((normalized + 1.0) * len - 1.0) / 2.0,
        };
        if self.op.mode == GridSampleMode::Nearest {
            // Through f32, so that a half that was meant is one although the coordinate was rounded.
            at = f64::from(at as f32).round_ties_even();
        }
        let (low, high) = self.borders(len);
        match self.op.padding_mode {
            GridSamplePadding::Zeros => (!at.is_nan()).then(|| at.clamp(-BESIDE, len + BESIDE)),
            _ if at >= low && at <= high => Some(at),
            _ if at.is_nan() => Some(0.0),
            GridSamplePadding::Border if self.op.mode == GridSampleMode::Cubic => {
                Some(at.clamp(-BESIDE, len + BESIDE))
            }
            GridSamplePadding::Border => Some(at.clamp(0.0, len - 1.0)),
            GridSamplePadding::Reflection => Some(reflected(at, low, high)),
        }
    }

    /// The pixel that stands for a place, which may be outside; `None` for a zero.
    fn pixel(&self, len: usize, at: f64) -> Option<usize> {
        let last = len as f64 - 1.0;
        if at >= 0.0 && at <= last {
            return Some(at as usize);
        }
        let (low, high) = self.borders(len as f64);
        match self.op.padding_mode {
            GridSamplePadding::Zeros => None,
            GridSamplePadding::Border => Some(at.clamp(0.0, last) as usize),
            GridSamplePadding::Reflection => Some(reflected(at, low, high).clamp(0.0, last) as usize),
        }
    }

    /// The pixels of an axis for a coordinate.
    fn axis(&self, len: usize, normalized: f64) -> Axis {
        let mut found = Axis { places: [0; MOST_ALONG], weights: [0.0; MOST_ALONG] };
        let Some(at) = self.coordinate(len, normalized) else { return found };
        let n = along(self.op.mode);
        let (first, weight): (f64, fn(f64) -> f64) = match self.op.mode {
            GridSampleMode::Nearest => (at, |_| 1.0),
            GridSampleMode::Linear => (at.floor(), |distance| 1.0 - distance),
            GridSampleMode::Cubic => (at.floor() - 1.0, cubic),
        };
        for tap in 0..n {
            let place = first + tap as f64;
            if let Some(pixel) = self.pixel(len, place) {
                found.places[tap] = pixel;
                found.weights[tap] = weight((place - at).abs());
            }
        }
        found
    }
}

/// The cubic convolution's weight of a pixel at this distance.
fn cubic(x: f64) -> f64 {
    match x {
        _ if x <= 1.0 => ((CUBIC + 2.0) * x - (CUBIC + 3.0)) * x * x + 1.0,
        _ if x < 2.0 => ((CUBIC * x - 5.0 * CUBIC) * x + 8.0 * CUBIC) * x - 4.0 * CUBIC,
        _ => 0.0,
    }
}

/// Folded back into `low..=high` at both ends, as often as needed.
fn reflected(at: f64, low: f64, high: f64) -> f64 {
    let range = high - low;
    if !at.is_finite() || range <= 0.0 {
        return low.max(0.0);
    }
    if at >= low && at <= high {
        return at;
    }
    let (distance, is_below) = if at < low { (low - at, true) } else { (at - high, false) };
    let n_folds = (distance / range).floor();
    let rest = distance - n_folds * range;
    if is_below == (n_folds % 2.0 == 0.0) { low + rest } else { high - rest }
}

/// Where the pixels of some points go, by tap, and the points.
struct Taps<'a> {
    grid: *const f32,
    n: usize,
    places: &'a mut [[i32; POINTS]; MOST_TAPS],
    weights: &'a mut [[f32; POINTS]; MOST_TAPS],
}

impl Taps<'_> {
    /// The coordinate of a point along an axis; they begin with the innermost.
    ///
    /// # Safety
    /// The grid must have `n_axes` of them for each point.
    #[inline(always)]
    unsafe fn coordinate(&self, point: usize, axis: usize, n_axes: usize) -> f64 {
        // SAFETY: granted by the caller.
        unsafe { self.grid.add(point * n_axes + n_axes - 1 - axis).read_unaligned().into() }
    }
}

/// Two pixels along one axis for some points, with their weights.
struct Pairs {
    places: [[i32; POINTS]; 2],
    weights: [[f64; POINTS]; 2],
}

impl Sampling {
    /// The taps of points that are computed one by one, in every mode.
    ///
    /// # Safety
    /// The grid must have as many points.
    #[inline(always)]
    unsafe fn one_by_one(&self, taps: Taps<'_>) {
        let n_axes = self.lens.len();
        let n_along = along(self.op.mode);
        for point in 0..taps.n {
            let mut axes = [Axis { places: [0; MOST_ALONG], weights: [0.0; MOST_ALONG] }; 3];
            for (axis, len) in self.lens.iter().enumerate() {
                // SAFETY: granted by the caller.
                axes[axis] = self.axis(*len, unsafe { taps.coordinate(point, axis, n_axes) });
            }
            for tap in 0..n_along.pow(n_axes as u32) {
                let (mut place, mut weight, mut rest, mut step) = (0, 1.0, tap, 1);
                for axis in (0..n_axes).rev() {
                    let own = rest % n_along;
                    rest /= n_along;
                    place += axes[axis].places[own] * step;
                    weight *= axes[axis].weights[own];
                    step *= self.lens[axis];
                }
                taps.places[tap][point] = place as i32;
                taps.weights[tap][point] = weight as f32;
            }
        }
    }

    /// The same between two pixels along each axis where nothing is reflected: without a branch, so that points fill vectors.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn linear(&self, taps: Taps<'_>) {
        let n_axes = self.lens.len();
        let mut pairs = [const { Pairs { places: [[0; POINTS]; 2], weights: [[0.0; POINTS]; 2] } }; 3];
        for (axis, (pairs, len)) in pairs.iter_mut().zip(&self.lens).enumerate() {
            let mut at = [0f64; POINTS];
            for (point, at) in at.iter_mut().enumerate().take(taps.n) {
                // SAFETY: granted by the caller.
                *at = unsafe { taps.coordinate(point, axis, n_axes) };
            }
            self.pairs(*len, &at, pairs);
        }
        for tap in 0..1usize << n_axes {
            let (mut places, mut weights) = ([0i32; POINTS], [1f64; POINTS]);
            let mut step = 1;
            for axis in (0..n_axes).rev() {
                let own = tap >> (n_axes - 1 - axis) & 1;
                for point in 0..POINTS {
                    places[point] += pairs[axis].places[own][point] * step;
                    weights[point] *= pairs[axis].weights[own][point];
                }
                step *= self.lens[axis] as i32;
            }
            taps.places[tap] = places;
            for (to, weight) in taps.weights[tap].iter_mut().zip(&weights) {
                *to = *weight as f32;
            }
        }
    }

    /// Pixels of one axis for coordinates. Those outside count for nothing, which the border's padding has none of.
    #[inline(always)]
    fn pairs(&self, len: usize, normalized: &[f64; POINTS], pairs: &mut Pairs) {
        let last = len as f64 - 1.0;
        let (factor, less) = if self.op.align_corners { (last, 0.0) } else { (len as f64, 1.0) };
        let (low, high) = match self.op.padding_mode {
            GridSamplePadding::Zeros => (-BESIDE, len as f64 + BESIDE),
            GridSamplePadding::Border | GridSamplePadding::Reflection => (0.0, last),
        };
        for (point, normalized) in normalized.iter().enumerate() {
            let at = ((normalized + 1.0) * factor - less) / 2.0;
            // No number is no more than `low`.
            let at = if at > low { at } else { low };
            let at = if at < high { at } else { high };
            let first = at.floor();
            for tap in 0..2 {
                let place = first + tap as f64;
                let weight = 1.0 - (place - at).abs();
                let is_inside = place >= 0.0 && place <= last;
                pairs.weights[tap][point] = if is_inside { weight } else { 0.0 };
                let place = if is_inside { place } else { 0.0 };
                // SAFETY: it is a place in the image, whose pixels an i32 can count.
                pairs.places[tap][point] = unsafe { place.to_int_unchecked() };
            }
        }
    }
}

/// Some points of one image.
struct Part<'a> {
    plan: &'a Sampling,
    shared: Shared<'a>,
    task: Task,
}

impl SimdKernel for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let plan = self.plan;
        let n_parts = plan.n_points.div_ceil(plan.per_task);
        let (image, first) = (self.task.idx / n_parts, self.task.idx % n_parts * plan.per_task);
        let last = (first + plan.per_task).min(plan.n_points);
        for first in (first..last).step_by(POINTS) {
            // SAFETY: `Work::run` was granted the operands; points are written by one task each.
            unsafe { self.points(image, first, POINTS.min(last - first)) };
        }
    }
}

impl Part<'_> {
    /// # Safety
    /// As for `Work::run`; there must be such points.
    #[inline(always)]
    unsafe fn points(&self, image: usize, first: usize, n: usize) {
        let plan = self.plan;
        let n_axes = plan.lens.len();
        let n_taps = along(plan.op.mode).pow(n_axes as u32);
        let plane_len: usize = plan.lens.iter().product();
        let mut places = [[0i32; POINTS]; MOST_TAPS];
        let mut weights = [[0f32; POINTS]; MOST_TAPS];
        let from = (image * plan.n_points + first) * n_axes;
        let grid = plan.args.at(&self.shared, 1).cast::<f32>().wrapping_add(from);
        let taps = Taps { grid, n, places: &mut places, weights: &mut weights };
        // SAFETY: the grid has a coordinate along every axis for each of the points.
        unsafe {
            match (plan.op.mode, plan.op.padding_mode) {
                (GridSampleMode::Linear, GridSamplePadding::Zeros | GridSamplePadding::Border) => {
                    plan.linear(taps)
                }
                _ => plan.one_by_one(taps),
            }
        }
        for channel in 0..plan.n_channels {
            let plane = image * plan.n_channels + channel;
            let x = plan.args.at(&self.shared, 0).cast::<f32>().wrapping_add(plane * plane_len);
            let to = self.shared.outputs[0].cast::<f32>().wrapping_add(plane * plan.n_points + first);
            let mut sums = [0f32; POINTS];
            for (places, weights) in places.iter().zip(&weights).take(n_taps) {
                for ((sum, place), weight) in sums.iter_mut().zip(places).zip(weights) {
                    // SAFETY: places are within the plane; beyond the last point they are 0, which it has.
                    let pixel = unsafe { x.add(*place as usize).read_unaligned() };
                    // What counts for nothing may be infinite.
                    *sum += if *weight == 0.0 { 0.0 } else { *weight * pixel };
                }
            }
            // SAFETY: the output has these points.
            unsafe { std::ptr::copy_nonoverlapping(sums.as_ptr(), to, n) };
        }
    }
}

impl Work for Sampling {
    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let n_tasks = self.batch * self.n_points.div_ceil(self.per_task.max(1));
        team.for_each(n_tasks, &|task| self.isa.run(Part { plan: self, shared, task }));
        Ok(())
    }
}
