//! DeformConv of f32 over images: taps that look between pixels.
//!
//! For some points at a time, where a tap looks is computed once for all channels that share it; what all taps see of all
//! channels is then multiplied with the weights as a matrix.

use planish_kernel::{KernelError, Layout, Problem};
use planish_op::{DeformConv, Op};
use planish_tensor::DType;

use super::args::Args;
use crate::family::Work;
use crate::isa::Isa;
use crate::shared::Shared;
use crate::simd::{Simd, SimdKernel};
use crate::team::{Task, Team};

/// Points that are computed at once.
const POINTS: usize = 64;
/// Output channels whose sums stay in registers.
const ROWS: usize = 4;
/// Pixels around a place.
const CORNERS: usize = 4;
/// Far outside all pixels are the same; this bound keeps the arithmetic on places small.
const BESIDE: f64 = 4.0;

/// Both axes of the images, the outer one first.
#[derive(Clone, Copy, Debug)]
struct Axis {
    input: usize,
    output: usize,
    kernel: usize,
    stride: usize,
    dilation: usize,
    pad: usize,
}

/// One with everything settled that its sizes settle. Operands are dense.
#[derive(Debug)]
pub(super) struct Deformed {
    isa: Isa,
    args: Args,
    batch: usize,
    /// Channels of the input and of the output.
    channels: [usize; 2],
    groups: usize,
    offset_groups: usize,
    axes: [Axis; 2],
}

pub(super) fn plan(isa: Isa, problem: &Problem, args: &Args) -> Option<Deformed> {
    let ([node], [y]) = (&problem.region.nodes[..], &problem.outputs[..]) else { return None };
    let Op::DeformConv(op) = &node.op else { return None };
    let (x, w, offset) = (args.operand(0)?, args.operand(1)?, args.operand(2)?);
    let &[batch, n_in, height, width] = &x.dims[..] else { return None };
    let &[n_out, per_group, rows, columns] = &w.dims[..] else { return None };
    let &[_, _, out_height, out_width] = &y.dims[..] else { return None };
    let axes = [axis(op, 0, [height, out_height, rows])?, axis(op, 1, [width, out_width, columns])?];
    let (groups, offset_groups) = (usize::try_from(op.group).ok()?, usize::try_from(op.offset_group).ok()?);
    let of_points =
        |per_tap: usize| vec![batch, per_tap * offset_groups * rows * columns, out_height, out_width];
    let is_float = |place: usize| args.operand(place).is_none_or(|operand| operand.dtype == DType::F32);
    let fits = groups > 0
        && offset_groups > 0
        && n_in == per_group * groups
        && n_out % groups == 0
        && n_in % offset_groups == 0
        && (0..5).all(is_float)
        && y.dtype == DType::F32
        && y.dims[..2] == [batch, n_out]
        && offset.dims == of_points(2)
        && args.operand(3).is_none_or(|bias| bias.dims == [n_out])
        && args.operand(4).is_none_or(|mask| mask.dims == of_points(1))
        && y.is_dense(Layout::Plain)
        && args.are_dense()
        && height > 0
        && width > 0
        // Places are words of 32 bits.
        && height.checked_mul(width).is_some_and(|n| n <= i32::MAX as usize);
    fits.then(|| Deformed {
        isa,
        args: args.clone(),
        batch,
        channels: [n_in, n_out],
        groups,
        offset_groups,
        axes,
    })
}

fn axis(op: &DeformConv, at: usize, [input, output, kernel]: [usize; 3]) -> Option<Axis> {
    let of = |list: &[i64], usual: i64| usize::try_from(list.get(at).copied().unwrap_or(usual)).ok();
    let (stride, dilation, pad) = (of(&op.strides, 1)?, of(&op.dilations, 1)?, of(&op.pads, 0)?);
    Some(Axis { input, output, kernel, stride, dilation, pad })
}

impl Deformed {
    fn n_taps(&self) -> usize {
        self.axes.iter().map(|axis| axis.kernel).product()
    }

    fn n_points(&self) -> usize {
        self.axes.iter().map(|axis| axis.output).product()
    }

    fn plane(&self) -> usize {
        self.axes.iter().map(|axis| axis.input).product()
    }

    /// Nanoseconds of an element of the output.
    pub(super) fn element_ns(&self) -> f64 {
        let terms = (self.channels[0] * self.n_taps()) as f64;
        terms * (0.05 / self.groups as f64 + 1.5 / self.channels[1].max(1) as f64)
    }
}

/// What a tap sees around its place, for some points: pixels and their shares.
struct Around {
    places: [[i32; POINTS]; CORNERS],
    shares: [[f32; POINTS]; CORNERS],
}

/// Some points of one image.
struct Part<'a> {
    plan: &'a Deformed,
    shared: Shared<'a>,
    task: Task,
}

impl SimdKernel for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let plan = self.plan;
        let n_parts = plan.n_points().div_ceil(POINTS);
        let (image, first) = (self.task.idx / n_parts, self.task.idx % n_parts * POINTS);
        let n = POINTS.min(plan.n_points() - first);
        let len = plan.channels[0] * plan.n_taps() * POINTS;
        // SAFETY: each slot has as much workspace as was asked for.
        let seen = unsafe {
            let start = self.shared.workspace.cast::<f32>().add(self.task.slot * len);
            std::ptr::write_bytes(start, 0, len);
            std::slice::from_raw_parts_mut(start, len)
        };
        // SAFETY: the caller of `Work::run` grants the operands; points are written by one task each.
        unsafe {
            self.look(image, first, n, seen);
            self.multiply(image, first, n, seen);
        }
    }
}

impl Part<'_> {
    /// What all taps see of all channels, by channel and tap.
    ///
    /// # Safety
    /// As for `Work::run`; there must be such points.
    #[inline(always)]
    unsafe fn look(&self, image: usize, first: usize, n: usize, seen: &mut [f32]) {
        let plan = self.plan;
        let (n_taps, plane) = (plan.n_taps(), plan.plane());
        let per_group = plan.channels[0] / plan.offset_groups;
        let x =
            self.plan.args.at(&self.shared, 0).cast::<f32>().wrapping_add(image * plan.channels[0] * plane);
        for group in 0..plan.offset_groups {
            for tap in 0..n_taps {
                // SAFETY: granted by the caller.
                let around = unsafe {
                    self.around((image * plan.offset_groups + group) * n_taps + tap, tap, first, n)
                };
                for channel in group * per_group..(group + 1) * per_group {
                    let from = x.wrapping_add(channel * plane);
                    let to = &mut seen[(channel * n_taps + tap) * POINTS..][..POINTS];
                    for (places, shares) in around.places.iter().zip(&around.shares) {
                        for ((to, place), share) in to.iter_mut().zip(places).zip(shares) {
                            // SAFETY: places are within the plane; what is not one is 0, which it has.
                            let pixel = unsafe { from.add(*place as usize).read_unaligned() };
                            // What counts for nothing may be infinite.
                            *to += if *share == 0.0 { 0.0 } else { *share * pixel };
                        }
                    }
                }
            }
        }
    }

    /// Where a tap of a row of offsets looks.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn around(&self, row: usize, tap: usize, first: usize, n: usize) -> Around {
        let plan = self.plan;
        let n_points = plan.n_points();
        let [height, width] = plan.axes;
        let offsets = plan.args.at(&self.shared, 2).cast::<f32>().wrapping_add(row * 2 * n_points + first);
        let mask = plan.args.at(&self.shared, 4).cast::<f32>();
        let mut around = Around { places: [[0; POINTS]; CORNERS], shares: [[0.0; POINTS]; CORNERS] };
        for point in 0..n {
            let at = first + point;
            let windows = [at / width.output, at % width.output];
            let taps = [tap / width.kernel, tap % width.kernel];
            // SAFETY: granted by the caller.
            let (offset, by) = unsafe {
                let offset =
                    [0, 1].map(|axis| f64::from(offsets.add(axis * n_points + point).read_unaligned()));
                let by = match mask.is_null() {
                    true => 1.0,
                    false => f64::from(mask.add(row * n_points + at).read_unaligned()),
                };
                (offset, by)
            };
            let pairs = [0, 1].map(|idx| {
                let axis = plan.axes[idx];
                let fixed = (windows[idx] * axis.stride + taps[idx] * axis.dilation) as f64 - axis.pad as f64;
                let place = fixed + offset[idx];
                let is_near = place > -1.0 && place < axis.input as f64;
                // No number is not near.
                let place = if is_near { place } else { -BESIDE };
                let below = place.floor();
                [(below, 1.0 - (place - below)), (below + 1.0, place - below)]
            });
            for corner in 0..CORNERS {
                let ((y, of_y), (x, of_x)) = (pairs[0][corner / 2], pairs[1][corner % 2]);
                let is_inside = y >= 0.0 && y < height.input as f64 && x >= 0.0 && x < width.input as f64;
                if is_inside {
                    around.places[corner][point] = (y as usize * width.input + x as usize) as i32;
                    around.shares[corner][point] = (of_y * of_x * by) as f32;
                }
            }
        }
        around
    }

    /// The weights times what was seen, and the bias.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn multiply(&self, image: usize, first: usize, n: usize, seen: &[f32]) {
        let plan = self.plan;
        let [n_in, n_out] = plan.channels;
        let (per_group, made) = (n_in / plan.groups, n_out / plan.groups);
        let n_terms = per_group * plan.n_taps();
        let w = plan.args.at(&self.shared, 1).cast::<f32>();
        let bias = plan.args.at(&self.shared, 3).cast::<f32>();
        let y = self.shared.outputs[0].cast::<f32>();
        for group in 0..plan.groups {
            let seen = &seen[group * n_terms * POINTS..][..n_terms * POINTS];
            for row in (0..made).step_by(ROWS) {
                let n_rows = ROWS.min(made - row);
                let channel = |at: usize| group * made + row + at.min(n_rows - 1);
                // SAFETY: granted by the caller; those that are too many are the last one again.
                unsafe {
                    let mut sums = [[0f32; POINTS]; ROWS];
                    if !bias.is_null() {
                        for (at, sums) in sums.iter_mut().enumerate() {
                            *sums = [bias.add(channel(at)).read_unaligned(); POINTS];
                        }
                    }
                    let rows: [*const f32; ROWS] = std::array::from_fn(|at| w.add(channel(at) * n_terms));
                    for (term, seen) in seen.chunks_exact(POINTS).enumerate() {
                        for (sums, row) in sums.iter_mut().zip(rows) {
                            let by = row.add(term).read_unaligned();
                            sums.iter_mut().zip(seen).for_each(|(sum, seen)| *sum += by * seen);
                        }
                    }
                    for (at, sums) in sums.iter().enumerate().take(n_rows) {
                        let to = y.add((image * n_out + channel(at)) * plan.n_points() + first);
                        std::ptr::copy_nonoverlapping(sums.as_ptr(), to, n);
                    }
                }
            }
        }
    }
}

impl Work for Deformed {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        n_slots * self.channels[0] * self.n_taps() * POINTS * size_of::<f32>()
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let n_tasks = self.batch * self.n_points().div_ceil(POINTS);
        team.for_each(n_tasks, &|task| self.isa.run(Part { plan: self, shared, task }));
        Ok(())
    }
}
