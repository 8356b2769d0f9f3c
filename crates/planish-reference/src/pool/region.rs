//! Reference: pooling over regions of interest.
//!
//! The corners of regions are computed in single precision (double for `f64` inputs), as every runtime does:
//! the number of samples and bins hangs on their rounding.

use planish_op::{MaxRoiPool, RoiAlign, RoiAlignCoordinates, RoiAlignMode};
use planish_tensor::{DType, Tensor};

use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

/// More samples in one bin than this come from corrupt coordinates: a bin of 4096 x 4096 pixels has as many.
const MAX_SAMPLES: usize = 1 << 24;

/// Regions end at most here, in pixels; farther corners are moved, which no image notices.
const MAX_CORNER: f64 = 1e12;

/// Sizes of the images and of the result.
struct Regions {
    channels: usize,
    height: usize,
    width: usize,
    out_height: usize,
    out_width: usize,
    shape: Vec<usize>,
}

impl Regions {
    fn new(
        cx: &Evaluation<'_>,
        x: &Tensor,
        rois: &Tensor,
        n_numbers: usize,
        size: [i64; 2],
    ) -> Result<Regions, EvalError> {
        let &[_, channels, height, width] = x.shape() else {
            return Err(cx.bad_shape(format!("images have rank 4, the input has shape {:?}", x.shape())));
        };
        let &[n_regions, found] = rois.shape() else {
            return Err(cx.bad_shape(format!("regions have rank 2, their shape is {:?}", rois.shape())));
        };
        if found != n_numbers {
            return Err(cx.bad_shape(format!("a region is given by {n_numbers} numbers, found {found}")));
        }
        let [Some(out_height), Some(out_width)] =
            size.map(|size| usize::try_from(size).ok().filter(|size| *size >= 1))
        else {
            return Err(cx.bad_attribute(format!("the output's size must be at least 1x1, found {size:?}")));
        };
        let shape = vec![n_regions, channels, out_height, out_width];
        nd::result_len(cx, &shape)?;
        Ok(Regions { channels, height, width, out_height, out_width, shape })
    }

    /// `pool(region, plane, out)` for every channel of every region; `images` says which image a region is in.
    fn map(
        &self,
        x: &[f64],
        images: &[usize],
        steps: usize,
        pool: impl Fn(usize, &[f64], &mut [f64]) + Sync,
    ) -> Vec<f64> {
        if nd::count(&self.shape) == 0 {
            return Vec::new();
        }
        let (plane, block) = (self.height * self.width, self.out_height * self.out_width);
        nd::fill_blocks(images.len() * self.channels, block, block.saturating_mul(steps), |idx, out| {
            let (region, channel) = (idx / self.channels, idx % self.channels);
            let start = (images[region] * self.channels + channel) * plane;
            pool(region, &x[start..][..plane], out);
        })
    }
}

/// Which image each region is in.
fn image_indices(
    cx: &Evaluation<'_>,
    indices: impl Iterator<Item = i64>,
    n_images: usize,
) -> Result<Vec<usize>, EvalError> {
    let check = |index: i64| {
        usize::try_from(index).ok().filter(|index| *index < n_images).ok_or_else(|| {
            cx.error(EvalErrorKind::BadValue, format!("there is no image {index}, the batch has {n_images}"))
        })
    };
    indices.map(check).collect()
}

/// Rounds to the precision in which corners are computed.
fn rounding(dtype: DType) -> impl Fn(f64) -> f64 + Sync {
    move |value| if dtype == DType::F64 { value } else { f64::from(value as f32) }
}

/// Bins are cut at whole pixels, outwards; a bin without pixels gives zero.
pub(crate) fn max_roi_pool(op: &MaxRoiPool, cx: &Evaluation<'_>) -> EvalResult {
    let (x, rois) = (cx.tensor(0)?, cx.tensor(1)?);
    let dtype = cx.common_float(&[x, rois])?;
    let &[out_height, out_width] = op.pooled_shape.as_slice() else {
        return Err(cx.bad_attribute(format!("pooled_shape is {:?}, not height and width", op.pooled_shape)));
    };
    let regions = Regions::new(cx, x, rois, 5, [out_height, out_width])?;
    let corners = rois.to_f64s();
    let images = image_indices(cx, corners.chunks_exact(5).map(|roi| roi[0] as i64), x.shape()[0])?;
    let round = rounding(dtype);
    let corner = |region: usize, idx: usize| {
        let scaled = round(corners[region * 5 + idx] * f64::from(op.spatial_scale));
        scaled.round().clamp(-MAX_CORNER, MAX_CORNER) as i128
    };
    // The pixels of bin `bin` of `n_bins` between two corners, within `size` pixels.
    let bin = |low: i128, high: i128, bin: usize, n_bins: usize, size: usize| {
        let (length, n_bins) = ((high - low + 1).max(1), n_bins as i128);
        let start = low + (bin as i128 * length).div_euclid(n_bins);
        let end = low - (-(bin as i128 + 1) * length).div_euclid(n_bins);
        let inside = |place: i128| place.clamp(0, size as i128) as usize;
        inside(start)..inside(end)
    };
    let steps = regions.height.saturating_mul(regions.width);
    let out = regions.map(&x.to_f64s(), &images, steps, |region, plane, out| {
        let [left, top, right, bottom] = [1, 2, 3, 4].map(|idx| corner(region, idx));
        for (place, value) in out.iter_mut().enumerate() {
            let rows = bin(top, bottom, place / regions.out_width, regions.out_height, regions.height);
            let columns = bin(left, right, place % regions.out_width, regions.out_width, regions.width);
            let pixels = rows.flat_map(|row| &plane[row * regions.width..][columns.clone()]);
            let larger = |a: f64, b: f64| if b > a || b.is_nan() { b } else { a };
            *value = pixels.copied().reduce(larger).unwrap_or(0.0);
        }
    });
    Ok(vec![Tensor::from_f64s(dtype, &regions.shape, &out)?.into()])
}

pub(crate) fn roi_align(op: &RoiAlign, cx: &Evaluation<'_>) -> EvalResult {
    let (x, rois, batches) = (cx.tensor(0)?, cx.tensor(1)?, cx.tensor(2)?);
    let dtype = cx.common_float(&[x, rois])?;
    if !batches.dtype().is_int() {
        return Err(cx.bad_type(batches.dtype()));
    }
    let regions = Regions::new(cx, x, rois, 4, [op.output_height, op.output_width])?;
    if batches.shape() != &regions.shape[..1] {
        return Err(cx.bad_shape(format!(
            "batch indices of shape {:?} are not one for each of {} regions",
            batches.shape(),
            regions.shape[0]
        )));
    }
    if op.sampling_ratio < 0 {
        return Err(
            cx.bad_attribute(format!("sampling_ratio must not be negative, found {}", op.sampling_ratio))
        );
    }
    let images = image_indices(cx, batches.to_i64s().into_iter(), x.shape()[0])?;
    let corners = rois.to_f64s();
    let grids = corners.chunks_exact(4).map(|roi| Grid::new(cx, op, &regions, dtype, roi));
    let grids: Vec<Grid> = grids.collect::<Result<_, _>>()?;
    let steps = grids.iter().map(|grid| grid.rows.per_bin * grid.columns.per_bin).max().unwrap_or(1);
    let out = regions.map(&x.to_f64s(), &images, steps, |region, plane, out| {
        for (place, value) in out.iter_mut().enumerate() {
            let bin = (place / regions.out_width, place % regions.out_width);
            *value = grids[region].pool(op.mode, plane, regions.width, bin);
        }
    });
    Ok(vec![Tensor::from_f64s(dtype, &regions.shape, &out)?.into()])
}

/// Where a region is sampled.
struct Grid {
    rows: GridAxis,
    columns: GridAxis,
}

/// Bins along one axis, each with its samples at equal distances.
struct GridAxis {
    /// Where the first bin begins.
    start: f64,
    bin_len: f64,
    per_bin: usize,
    /// Pixels of the image.
    size: usize,
}

/// A place between two pixels.
#[derive(Clone, Copy)]
struct Sample {
    low: usize,
    high: usize,
    /// The share of `high`.
    share: f64,
}

impl Grid {
    fn new(
        cx: &Evaluation<'_>,
        op: &RoiAlign,
        regions: &Regions,
        dtype: DType,
        roi: &[f64],
    ) -> Result<Grid, EvalError> {
        let round = rounding(dtype);
        let is_half_pixel = op.coordinate_transformation_mode == RoiAlignCoordinates::HalfPixel;
        let shift = if is_half_pixel { 0.5 } else { 0.0 };
        let corner = |idx: usize| round(round(roi[idx] * f64::from(op.spatial_scale)) - shift);
        let axis = |start: f64, end: f64, n_bins: usize, size: usize| {
            let length = round(end - start);
            // Without the shift, regions are at least one pixel long.
            let length = if is_half_pixel { length } else { length.max(1.0) };
            let bin_len = round(length / n_bins as f64);
            let per_bin = if op.sampling_ratio > 0 { op.sampling_ratio as f64 } else { bin_len.ceil() };
            // Empty, inverted and NaN regions have no samples; the cast saturates.
            GridAxis { start, bin_len, per_bin: per_bin as usize, size }
        };
        let rows = axis(corner(1), corner(3), regions.out_height, regions.height);
        let columns = axis(corner(0), corner(2), regions.out_width, regions.width);
        if rows.per_bin.max(1).saturating_mul(columns.per_bin.max(1)) > MAX_SAMPLES {
            return Err(cx.error(
                EvalErrorKind::BadValue,
                format!("region {roi:?} takes {} by {} samples in a bin", rows.per_bin, columns.per_bin),
            ));
        }
        Ok(Grid { rows, columns })
    }

    /// One bin: the average of its samples, or their maximum. ONNX's maximum is over the four weighted pixels
    /// of every sample, not over the interpolated values.
    fn pool(&self, mode: RoiAlignMode, plane: &[f64], width: usize, bin: (usize, usize)) -> f64 {
        let (rows, columns) = (self.rows.samples(bin.0), self.columns.samples(bin.1));
        let pairs = rows.iter().flat_map(|row| columns.iter().map(move |column| row.zip(*column)));
        let weighted = |(row, column): (Sample, Sample)| {
            let pixel = |row: usize, column: usize| plane[row * width + column];
            [
                (1.0 - row.share) * (1.0 - column.share) * pixel(row.low, column.low),
                (1.0 - row.share) * column.share * pixel(row.low, column.high),
                row.share * (1.0 - column.share) * pixel(row.high, column.low),
                row.share * column.share * pixel(row.high, column.high),
            ]
        };
        let pixels = pairs.map(|pair| pair.map_or([0.0; 4], weighted));
        match mode {
            RoiAlignMode::Avg => {
                pixels.flatten().fold(0.0, |sum, value| sum + value)
                    / (rows.len() * columns.len()).max(1) as f64
            }
            RoiAlignMode::Max => pixels.flatten().reduce(f64::max).unwrap_or(0.0),
        }
    }
}

impl GridAxis {
    /// The samples of one bin, `None` outside the image.
    fn samples(&self, bin: usize) -> Vec<Option<Sample>> {
        let start = self.start + bin as f64 * self.bin_len;
        let step = self.bin_len / self.per_bin as f64;
        (0..self.per_bin).map(|idx| Sample::at(start + (idx as f64 + 0.5) * step, self.size)).collect()
    }
}

impl Sample {
    /// The place `place` among `size` pixels; up to one pixel outside counts as the border.
    fn at(place: f64, size: usize) -> Option<Sample> {
        let last = size.checked_sub(1)?;
        if !(place >= -1.0 && place <= size as f64) {
            return None;
        }
        let place = place.max(0.0);
        let low = place as usize;
        if low >= last {
            return Some(Sample { low: last, high: last, share: 0.0 });
        }
        Some(Sample { low, high: low + 1, share: place - low as f64 })
    }
}
