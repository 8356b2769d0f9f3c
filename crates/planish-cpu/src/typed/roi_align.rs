//! RoiAlign of f32 by averages: regions of an image, each as a grid of bins.
//!
//! Samples of a bin that meet the same pixel become one weight, along each axis by itself; where a region lies is worked out
//! once for all its channels.

use std::ops::Range;

use planish_kernel::{KernelError, KernelErrorKind, Layout, Problem};
use planish_op::{Op, RoiAlign, RoiAlignCoordinates, RoiAlignMode};
use planish_tensor::DType;

use super::args::Args;
use crate::family::Work;
use crate::isa::Isa;
use crate::shared::Shared;
use crate::simd::{Simd, SimdKernel};
use crate::team::Team;

/// More samples in one bin come from corrupt coordinates, as the reference has it.
const MAX_SAMPLES: usize = 1 << 24;
/// Tasks for each region where regions are few.
const PARTS: usize = 8;
/// Regions that are no few.
const MANY_REGIONS: usize = 32;

/// One with everything settled that its sizes settle. Operands are dense.
#[derive(Debug)]
pub(super) struct Regions {
    isa: Isa,
    args: Args,
    op: RoiAlign,
    n_images: usize,
    n_channels: usize,
    /// Height and width of the images, and of the grids of bins.
    lens: [usize; 2],
    bins: [usize; 2],
    n_regions: usize,
    wide_index: bool,
}

pub(super) fn plan(isa: Isa, problem: &Problem, args: &Args) -> Option<Regions> {
    let ([node], [y]) = (&problem.region.nodes[..], &problem.outputs[..]) else { return None };
    let Op::RoiAlign(op) = &node.op else { return None };
    let (x, rois, images) = (args.operand(0)?, args.operand(1)?, args.operand(2)?);
    let &[n_images, n_channels, height, width] = &x.dims[..] else { return None };
    let bins = [usize::try_from(op.output_height).ok()?, usize::try_from(op.output_width).ok()?];
    let n_regions = *rois.dims.first()?;
    let fits = op.mode == RoiAlignMode::Avg
        && op.sampling_ratio >= 0
        && [x.dtype, rois.dtype, y.dtype] == [DType::F32; 3]
        && matches!(images.dtype, DType::I64 | DType::I32)
        && rois.dims == [n_regions, 4]
        && images.dims == [n_regions]
        && y.dims == [n_regions, n_channels, bins[0], bins[1]]
        && bins.iter().all(|n| *n > 0)
        && height > 0
        && width > 0
        && y.is_dense(Layout::Plain)
        && args.are_dense();
    fits.then(|| Regions {
        isa,
        args: args.clone(),
        op: op.clone(),
        n_images,
        n_channels,
        lens: [height, width],
        bins,
        n_regions,
        wide_index: images.dtype == DType::I64,
    })
}

/// Where a region is sampled along one axis, in the precision that every runtime has for it.
#[derive(Clone, Copy, Debug)]
struct Axis {
    start: f64,
    bin_len: f64,
    per_bin: usize,
}

/// Pixels that bins meet along one axis, with their weights.
#[derive(Debug, Default)]
struct Met {
    /// Where those of each bin end.
    ends: Vec<usize>,
    pixels: Vec<(usize, f32)>,
}

impl Met {
    fn of(axis: Axis, n_bins: usize, len: usize) -> Met {
        let mut met = Met::default();
        let step = axis.bin_len / axis.per_bin as f64;
        for bin in 0..n_bins {
            let first = met.pixels.len();
            let start = axis.start + bin as f64 * axis.bin_len;
            for sample in 0..axis.per_bin {
                let at = start + (sample as f64 + 0.5) * step;
                // Up to one pixel outside counts as the border.
                if !(at >= -1.0 && at <= len as f64) {
                    continue;
                }
                let at = at.max(0.0);
                let low = (at as usize).min(len - 1);
                let share = if low + 1 < len { at - low as f64 } else { 0.0 };
                for (pixel, weight) in [(low, 1.0 - share), (low + 1, share)] {
                    if weight == 0.0 {
                        continue;
                    }
                    let weight = (weight / axis.per_bin as f64) as f32;
                    match met.pixels[first..].iter_mut().find(|(known, _)| *known == pixel) {
                        Some((_, sum)) => *sum += weight,
                        None => met.pixels.push((pixel, weight)),
                    }
                }
            }
            met.ends.push(met.pixels.len());
        }
        met
    }

    #[inline(always)]
    fn of_bin(&self, bin: usize) -> &[(usize, f32)] {
        let start = if bin == 0 { 0 } else { self.ends[bin - 1] };
        &self.pixels[start..self.ends[bin]]
    }
}

impl Regions {
    /// Nanoseconds of an element of the output.
    pub(super) fn element_ns(&self) -> f64 {
        let per_bin = if self.op.sampling_ratio > 0 { self.op.sampling_ratio as f64 } else { 2.0 };
        (per_bin + 1.0) * (per_bin + 1.0)
    }

    /// The rows and columns of a region, or why it has none.
    fn axes(&self, roi: [f32; 4]) -> Result<[Axis; 2], KernelError> {
        let is_half_pixel = self.op.coordinate_transformation_mode == RoiAlignCoordinates::HalfPixel;
        let shift = if is_half_pixel { 0.5 } else { 0.0 };
        let corner = |idx: usize| roi[idx] * self.op.spatial_scale - shift;
        let axis = |start: f32, end: f32, n_bins: usize| {
            let length = if is_half_pixel { end - start } else { (end - start).max(1.0) };
            let bin_len = length / n_bins as f32;
            let ratio = self.op.sampling_ratio;
            let per_bin = if ratio > 0 { ratio as usize } else { bin_len.ceil() as usize };
            Axis { start: start.into(), bin_len: bin_len.into(), per_bin }
        };
        let (rows, columns) =
            (axis(corner(1), corner(3), self.bins[0]), axis(corner(0), corner(2), self.bins[1]));
        match rows.per_bin.max(1).saturating_mul(columns.per_bin.max(1)) > MAX_SAMPLES {
            true => Err(KernelError::new(
                KernelErrorKind::BadValues,
                format!("region {roi:?} takes {} by {} samples in a bin", rows.per_bin, columns.per_bin),
            )),
            false => Ok([rows, columns]),
        }
    }
}

/// Some channels of a region.
struct Part<'a> {
    plan: &'a Regions,
    /// The image's first channel, and the region's first bin of it.
    x: *const f32,
    y: *mut f32,
    channels: Range<usize>,
    rows: Met,
    columns: Met,
}

impl SimdKernel for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let [height, width] = self.plan.lens;
        let [n_rows, n_columns] = self.plan.bins;
        for channel in self.channels.clone() {
            let plane = self.x.wrapping_add(channel * height * width);
            let mut to = self.y.wrapping_add(channel * n_rows * n_columns);
            for row in 0..n_rows {
                for column in 0..n_columns {
                    let mut sum = 0.0;
                    for (y, by) in self.rows.of_bin(row) {
                        let line = plane.wrapping_add(y * width);
                        let mut along = 0.0;
                        for (x, by) in self.columns.of_bin(column) {
                            // SAFETY: bins meet pixels of the image only.
                            along += by * unsafe { line.add(*x).read_unaligned() };
                        }
                        sum += by * along;
                    }
                    // SAFETY: the output has these bins, and no other task writes them.
                    unsafe { to.write_unaligned(sum) };
                    to = to.wrapping_add(1);
                }
            }
        }
    }
}

/// Where images and results begin.
#[derive(Clone, Copy)]
struct Ends(*const f32, *mut f32);

// SAFETY: tasks write apart.
unsafe impl Sync for Ends {}

impl Ends {
    fn pointers(&self) -> (*const f32, *mut f32) {
        (self.0, self.1)
    }
}

impl Work for Regions {
    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let (rois, images) = (self.args.at(&shared, 1).cast::<f32>(), self.args.at(&shared, 2));
        let mut regions = Vec::with_capacity(self.n_regions);
        for region in 0..self.n_regions {
            // SAFETY: the caller grants the operands.
            let (roi, image) = unsafe {
                let image = match self.wide_index {
                    true => images.cast::<i64>().add(region).read_unaligned(),
                    false => images.cast::<i32>().add(region).read_unaligned().into(),
                };
                ([0, 1, 2, 3].map(|at| rois.add(region * 4 + at).read_unaligned()), image)
            };
            let image =
                usize::try_from(image).ok().filter(|image| *image < self.n_images).ok_or_else(|| {
                    let what = format!("there is no image {image}, the batch has {}", self.n_images);
                    KernelError::new(KernelErrorKind::BadValues, what)
                })?;
            regions.push((image, self.axes(roi)?));
        }
        let ends = Ends(self.args.at(&shared, 0).cast(), shared.outputs[0].cast());
        let n_parts = if self.n_regions < MANY_REGIONS { PARTS.min(self.n_channels.max(1)) } else { 1 };
        let per_part = self.n_channels.div_ceil(n_parts);
        let (plane, grid) = (self.lens.iter().product::<usize>(), self.bins.iter().product::<usize>());
        team.for_each(self.n_regions * n_parts, &|task| {
            let (region, part) = (task.idx / n_parts, task.idx % n_parts);
            let (image, [rows, columns]) = regions[region];
            let (x, y) = ends.pointers();
            let last = ((part + 1) * per_part).min(self.n_channels);
            self.isa.run(Part {
                plan: self,
                x: x.wrapping_add(image * self.n_channels * plane),
                y: y.wrapping_add(region * self.n_channels * grid),
                channels: (part * per_part).min(last)..last,
                rows: Met::of(rows, self.bins[0], self.lens[0]),
                columns: Met::of(columns, self.bins[1], self.lens[1]),
            });
        });
        Ok(())
    }
}
