//! GridSample and AffineGrid: reading an image at given points, and the points of an affine map.

use planish_op::{AffineGrid, GridSample, GridSampleMode, GridSamplePadding};
use planish_tensor::Tensor;

use super::taps::cubic_weight;
use crate::cells::{NOWHERE, pick_runs};
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

/// The coefficient of the cubic convolution, which GridSample does not let choose.
const CUBIC_COEFFICIENT: f64 = -0.75;

pub(crate) fn grid_sample(op: &GridSample, cx: &Evaluation<'_>) -> EvalResult {
    let (input, grid) = (cx.tensor(0)?, cx.tensor(1)?);
    let rank = input.rank();
    if !grid.dtype().is_float() {
        return Err(cx.bad_type(grid.dtype()));
    }
    let fits = rank >= 3
        && grid.rank() == rank
        && grid.shape()[0] == input.shape()[0]
        && grid.shape()[rank - 1] == rank - 2;
    if !fits {
        let (image, grid) = (input.shape(), grid.shape());
        return Err(cx.bad_shape(format!("an image {image:?} cannot be sampled at the grid {grid:?}")));
    }
    let lens = &input.shape()[2..];
    let mut shape = input.shape()[..2].to_vec();
    shape.extend_from_slice(&grid.shape()[1..rank - 1]);
    if nd::result_len(cx, &shape)? == 0 {
        return Ok(vec![Tensor::zeros(input.dtype(), &shape)?.into()]);
    }
    if lens.contains(&0) {
        return Err(cx.bad_shape(format!("the image {:?} has no pixels to sample", input.shape())));
    }
    let sampler =
        Sampler { op, lens, grid: &grid.to_f64s(), n_points: nd::count(&shape[2..]), n_channels: shape[1] };
    let output = match op.mode {
        GridSampleMode::Nearest => sampler.pick(cx, input, &shape)?,
        GridSampleMode::Linear | GridSampleMode::Cubic => sampler.interpolate(input, &shape)?,
    };
    Ok(vec![output.into()])
}

struct Sampler<'a> {
    op: &'a GridSample,
    /// The spatial lengths of the image.
    lens: &'a [usize],
    grid: &'a [f64],
    /// Points per image.
    n_points: usize,
    n_channels: usize,
}

impl Sampler<'_> {
    /// The grid's coordinates of one output point, innermost axis first.
    fn point(&self, plane: usize, point: usize) -> &[f64] {
        let n_axes = self.lens.len();
        &self.grid[(plane / self.n_channels * self.n_points + point) * n_axes..][..n_axes]
    }

    /// Where coordinate `normalized` (-1 to 1 over the image) lies along `axis`, in pixels, brought into the
    /// image as far as the padding mode does that before interpolation. `None` where nothing is read.
    fn coordinate(&self, axis: usize, normalized: f64) -> Option<f64> {
        let len = self.lens[axis] as f64;
        let mut at = if self.op.align_corners {
            (normalized + 1.0) / 2.0 * (len - 1.0)
        } else {
            ((normalized + 1.0) * len - 1.0) / 2.0
        };
        if self.op.mode == GridSampleMode::Nearest {
            // Through f32, so that a half that was meant is one although its grid value was rounded to f32.
            at = f64::from(at as f32).round_ties_even();
        }
        let (low, high) = self.borders(axis);
        match self.op.padding_mode {
            // Far outside all pixels read are zero; the bounds keep the arithmetic on indices small.
            GridSamplePadding::Zeros => (!at.is_nan()).then(|| at.clamp(-4.0, len + 4.0)),
            _ if at >= low && at <= high => Some(at),
            // A number that is not one is put on the first pixel.
            _ if at.is_nan() => Some(0.0),
            // The cubic filter goes on where it is and reads border pixels, as PyTorch and ONNX Runtime do.
            // A few pixels outside it reads nothing else.
            GridSamplePadding::Border if self.op.mode == GridSampleMode::Cubic => {
                Some(at.clamp(-4.0, len + 4.0))
            }
            GridSamplePadding::Border => Some(at.clamp(0.0, len - 1.0)),
            GridSamplePadding::Reflection => Some(reflected(at, low, high)),
        }
    }

    /// The ends of the image along an axis: centres of the corner pixels or their outer edges.
    fn borders(&self, axis: usize) -> (f64, f64) {
        let len = self.lens[axis] as f64;
        if self.op.align_corners { (0.0, len - 1.0) } else { (-0.5, len - 0.5) }
    }

    /// The pixel that stands for index `idx`, which may be outside; `None` for a zero.
    fn pixel(&self, axis: usize, idx: f64) -> Option<usize> {
        let last = self.lens[axis] as f64 - 1.0;
        if idx >= 0.0 && idx <= last {
            return Some(idx as usize);
        }
        let (low, high) = self.borders(axis);
        match self.op.padding_mode {
            GridSamplePadding::Zeros => None,
            GridSamplePadding::Border => Some(idx.clamp(0.0, last) as usize),
            GridSamplePadding::Reflection => Some(reflected(idx, low, high).clamp(0.0, last) as usize),
        }
    }

    fn pick(&self, cx: &Evaluation<'_>, input: &Tensor, shape: &[usize]) -> Result<Tensor, EvalError> {
        let n_axes = self.lens.len();
        pick_runs(cx, input, shape, 1, |idx| {
            let (plane, point) = (idx / self.n_points, self.point(idx / self.n_points, idx % self.n_points));
            let place = (0..n_axes).try_fold(plane, |place, axis| {
                let at = self.coordinate(axis, point[n_axes - 1 - axis])?;
                Some(place * self.lens[axis] + self.pixel(axis, at)?)
            });
            place.unwrap_or(NOWHERE)
        })
    }

    fn interpolate(&self, input: &Tensor, shape: &[usize]) -> Result<Tensor, EvalError> {
        let data = input.to_f64s();
        let n_planes = shape[0] * shape[1];
        let plane_len = nd::count(self.lens);
        let steps = self.n_points.saturating_mul(64);
        let mut values = nd::fill_blocks(n_planes, self.n_points, steps, |plane, out| {
            let pixels = &data[plane * plane_len..][..plane_len];
            for (point, out) in out.iter_mut().enumerate() {
                *out = self.value(pixels, self.point(plane, point));
            }
        });
        if !input.dtype().is_float() {
            // ONNX casts to the integer type at the end, and a cast drops the fraction.
            values.iter_mut().for_each(|value| *value = value.trunc());
        }
        Ok(Tensor::from_f64s(input.dtype(), shape, &values)?)
    }

    /// The interpolated value of one plane at one point.
    fn value(&self, pixels: &[f64], point: &[f64]) -> f64 {
        let n_axes = self.lens.len();
        let taps = (0..n_axes)
            .map(|axis| self.coordinate(axis, point[n_axes - 1 - axis]).map(|at| self.taps(axis, at)));
        match taps.collect::<Option<Vec<_>>>() {
            Some(taps) => weighted_sum(pixels, self.lens, &taps, 0),
            None => 0.0,
        }
    }

    /// The pixels around a coordinate of one axis and their weights.
    fn taps(&self, axis: usize, at: f64) -> Vec<(usize, f64)> {
        let below = at.floor();
        let offsets = if self.op.mode == GridSampleMode::Cubic { -1..=2 } else { 0..=1 };
        offsets
            .filter_map(|offset| {
                let idx = below + f64::from(offset);
                let distance = (idx - at).abs();
                let weight = match self.op.mode {
                    GridSampleMode::Cubic => cubic_weight(CUBIC_COEFFICIENT, distance),
                    GridSampleMode::Linear | GridSampleMode::Nearest => 1.0 - distance,
                };
                Some((self.pixel(axis, idx)?, weight)).filter(|_| weight != 0.0)
            })
            .collect()
    }
}

/// The sum over all combinations of taps, one axis after the other.
fn weighted_sum(pixels: &[f64], lens: &[usize], taps: &[Vec<(usize, f64)>], place: usize) -> f64 {
    match (taps.split_first(), lens.split_first()) {
        (Some((own, rest)), Some((len, rest_lens))) => own
            .iter()
            .map(|&(idx, weight)| weight * weighted_sum(pixels, rest_lens, rest, place * len + idx))
            .sum(),
        _ => pixels[place],
    }
}

/// `at` folded back into `low..=high` at both ends, as often as needed.
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

pub(crate) fn affine_grid(op: &AffineGrid, cx: &Evaluation<'_>) -> EvalResult {
    let theta = cx.tensor(0)?;
    if !theta.dtype().is_float() {
        return Err(cx.bad_type(theta.dtype()));
    }
    let sizes = cx
        .ints(1)?
        .into_iter()
        .map(usize::try_from)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| cx.error(EvalErrorKind::BadValue, "a size cannot be negative"))?;
    let n_axes = sizes.len().wrapping_sub(2);
    if n_axes != 2 && n_axes != 3 {
        return Err(cx.bad_shape(format!("sizes are (N, C, H, W) or (N, C, D, H, W), not {sizes:?}")));
    }
    if theta.shape() != [sizes[0], n_axes, n_axes + 1] {
        return Err(cx.bad_shape(format!("matrices {:?} do not fit the sizes {sizes:?}", theta.shape())));
    }
    let lens = &sizes[2..];
    let mut shape = vec![sizes[0]];
    shape.extend_from_slice(lens);
    shape.push(n_axes);
    if nd::result_len(cx, &shape)? == 0 {
        return Ok(vec![Tensor::zeros(theta.dtype(), &shape)?.into()]);
    }
    let matrices = theta.to_f64s();
    let n_points = nd::count(lens);
    // A point's coordinate along an axis: -1 to 1 over the pixels' centres or over their outer edges.
    let normalized = |place: usize, len: usize| {
        let (place, len) = (place as f64, len as f64);
        if !op.align_corners {
            (2.0 * place + 1.0) / len - 1.0
        } else if len > 1.0 {
            2.0 * place / (len - 1.0) - 1.0
        } else {
            // One pixel alone is where the range starts, as in ONNX's reference.
            -1.0
        }
    };
    let values = nd::fill_blocks(sizes[0] * n_points, n_axes, 8 * n_axes, |idx, out| {
        let matrix = &matrices[idx / n_points * n_axes * (n_axes + 1)..][..n_axes * (n_axes + 1)];
        let places = nd::unravel(idx % n_points, lens);
        for (row, out) in matrix.chunks(n_axes + 1).zip(out) {
            // Columns are x, y(, z), innermost axis first, then the translation.
            let products =
                places.iter().zip(lens).rev().zip(row).map(|((&p, &len), m)| normalized(p, len) * m);
            *out = products.sum::<f64>() + row[n_axes];
        }
    });
    Ok(vec![Tensor::from_f64s(theta.dtype(), &shape, &values)?.into()])
}
