//! Reference: pooling and regions of interest.

mod region;
#[cfg(test)]
mod tests;
mod unpool;

pub(crate) use region::{max_roi_pool, roi_align};
pub(crate) use unpool::max_unpool;

use planish_op::window::{PlacedAxis, WindowAttributes};
use planish_op::{AveragePool, GlobalAveragePool, GlobalLpPool, GlobalMaxPool, LpPool, MaxPool};
use planish_tensor::{DType, Tensor};

use crate::conv::image_shape;
use crate::{EvalError, EvalResult, Evaluation, nd};

/// A window without any element averages to zero.
pub(crate) fn average_pool(op: &AveragePool, cx: &Evaluation<'_>) -> EvalResult {
    let x = float_input(cx)?;
    let pooling = Pooling::new(cx, x.shape(), &op.window())?;
    let out = pooling.map(&x.to_f64s(), |plane, window| {
        let mut sum = 0.0;
        for_each_under(&pooling.axes, window, 0, &mut |place| sum += plane[place]);
        let along = pooling.axes.iter().zip(window);
        let count: usize = match op.count_include_pad {
            true => along.map(|(axis, window)| axis.n_padded_taps(*window)).product(),
            false => along.map(|(axis, window)| axis.taps(*window).len()).product(),
        };
        sum / count.max(1) as f64
    });
    Ok(vec![Tensor::from_f64s(x.dtype(), &pooling.shape, &out)?.into()])
}

/// NaN wins over every number. A window without any element gives minus infinity (the smallest integer) and
/// the index -1.
pub(crate) fn max_pool(op: &MaxPool, cx: &Evaluation<'_>) -> EvalResult {
    let x = ordered_input(cx)?;
    let is_column_major = match op.storage_order {
        0 => false,
        1 => true,
        other => return Err(cx.bad_attribute(format!("storage_order is 0 or 1, found {other}"))),
    };
    let pooling = Pooling::new(cx, x.shape(), &op.window())?;
    let values = x.to_f64s();
    let best = |plane: &[f64], window: &[usize]| {
        let mut best: Option<usize> = None;
        for_each_under(&pooling.axes, window, 0, &mut |place| {
            let is_better = |other: usize| {
                plane[place] > plane[other] || (plane[place].is_nan() && !plane[other].is_nan())
            };
            if best.is_none_or(is_better) {
                best = Some(place);
            }
        });
        best
    };
    let out = pooling
        .map(&values, |plane, window| best(plane, window).map_or(f64::NEG_INFINITY, |place| plane[place]));
    let mut outputs = vec![Tensor::from_f64s(x.dtype(), &pooling.shape, &out)?.into()];
    if cx.n_outputs() > 1 {
        let sizes = &x.shape()[2..];
        let index = |place: usize| match is_column_major {
            false => place,
            true => {
                let reversed: Vec<usize> = sizes.iter().rev().copied().collect();
                let mut at = nd::unravel(place, sizes);
                at.reverse();
                nd::ravel(&at, &reversed)
            }
        };
        let plane_len = nd::count(sizes);
        let found =
            pooling.map(&values, |plane, window| best(plane, window).map_or(-1, |place| index(place) as i64));
        let n_windows = nd::count(&pooling.shape[2..]).max(1);
        let whole = |(idx, place): (usize, i64)| match place {
            -1 => -1,
            place => (idx / n_windows * plane_len) as i64 + place,
        };
        let indices: Vec<i64> = found.into_iter().enumerate().map(whole).collect();
        outputs.push(Tensor::new(&pooling.shape, indices)?.into());
    }
    Ok(outputs)
}

pub(crate) fn lp_pool(op: &LpPool, cx: &Evaluation<'_>) -> EvalResult {
    let x = float_input(cx)?;
    let p = power(cx, op.p)?;
    let pooling = Pooling::new(cx, x.shape(), &op.window())?;
    let out = pooling.map(&x.to_f64s(), |plane, window| {
        let mut sum = 0.0;
        for_each_under(&pooling.axes, window, 0, &mut |place| sum += plane[place].abs().powf(p));
        sum.powf(1.0 / p)
    });
    Ok(vec![Tensor::from_f64s(x.dtype(), &pooling.shape, &out)?.into()])
}

pub(crate) fn global_average_pool(_op: &GlobalAveragePool, cx: &Evaluation<'_>) -> EvalResult {
    let x = float_input(cx)?;
    pool_globally(cx, x, |plane| plane.iter().fold(0.0, |sum, value| sum + value) / plane.len().max(1) as f64)
}

/// NaN wins over every number.
pub(crate) fn global_max_pool(_op: &GlobalMaxPool, cx: &Evaluation<'_>) -> EvalResult {
    let x = ordered_input(cx)?;
    let larger = |a: f64, b: f64| if b > a || b.is_nan() { b } else { a };
    pool_globally(cx, x, |plane| plane.iter().copied().fold(f64::NEG_INFINITY, larger))
}

pub(crate) fn global_lp_pool(op: &GlobalLpPool, cx: &Evaluation<'_>) -> EvalResult {
    let x = float_input(cx)?;
    let p = power(cx, op.p)?;
    pool_globally(cx, x, |plane| plane.iter().fold(0.0, |sum, value| sum + value.abs().powf(p)).powf(1.0 / p))
}

/// One number from each plane.
fn pool_globally(cx: &Evaluation<'_>, x: &Tensor, pool: impl Fn(&[f64]) -> f64 + Sync) -> EvalResult {
    let &[batch, channels, ref spatial @ ..] = x.shape() else {
        return Err(cx.bad_shape(format!("batch and channels are needed, the shape is {:?}", x.shape())));
    };
    let shape: Vec<usize> = [batch, channels].into_iter().chain(spatial.iter().map(|_| 1)).collect();
    let n_planes = nd::result_len(cx, &shape)?;
    let plane = if n_planes == 0 { 0 } else { nd::count(spatial) };
    let values = x.to_f64s();
    let out = nd::fill_blocks(n_planes, 1, plane, |idx, out| out[0] = pool(&values[idx * plane..][..plane]));
    Ok(vec![Tensor::from_f64s(x.dtype(), &shape, &out)?.into()])
}

/// Windows over every plane of an image.
struct Pooling {
    axes: Vec<PlacedAxis>,
    /// The result's shape.
    shape: Vec<usize>,
}

impl Pooling {
    fn new(
        cx: &Evaluation<'_>,
        x: &[usize],
        attributes: &WindowAttributes<'_>,
    ) -> Result<Pooling, EvalError> {
        let (batch, channels, spatial) = image_shape(cx, x)?;
        let kernel = attributes.kernel();
        if kernel.len() != spatial.len() {
            return Err(cx.bad_attribute(format!(
                "kernel_shape has {} entries for an input of shape {x:?}",
                kernel.len()
            )));
        }
        let axes: Vec<PlacedAxis> = attributes
            .axes(&kernel)
            .and_then(|axes| axes.iter().zip(spatial).map(|(axis, size)| axis.place(*size)).collect())
            .map_err(|error| cx.bad_window(error))?;
        let shape: Vec<usize> =
            [batch, channels].into_iter().chain(axes.iter().map(|axis| axis.output)).collect();
        nd::result_len(cx, &shape)?;
        Ok(Pooling { axes, shape })
    }

    /// `pool(plane, window)` for every window of every plane.
    fn map<T: Copy + Default + Send>(
        &self,
        x: &[f64],
        pool: impl Fn(&[f64], &[usize]) -> T + Sync,
    ) -> Vec<T> {
        let (n_out, sizes) = (nd::count(&self.shape), &self.shape[2..]);
        if n_out == 0 {
            return Vec::new();
        }
        let n_windows = nd::count(sizes);
        let plane: usize = self.axes.iter().map(|axis| axis.input).product();
        nd::fill_blocks(n_out / n_windows, n_windows, plane.max(n_windows), |idx, out| {
            let plane = &x[idx * plane..][..plane];
            let mut window = vec![0; sizes.len()];
            for value in out {
                *value = pool(plane, &window);
                for (at, size) in window.iter_mut().zip(sizes).rev() {
                    *at += 1;
                    if *at < *size {
                        break;
                    }
                    *at = 0;
                }
            }
        })
    }
}

/// Visits the place of every element under a window, in row-major order.
fn for_each_under(axes: &[PlacedAxis], window: &[usize], base: usize, visit: &mut impl FnMut(usize)) {
    let ([axis, axes @ ..], [at, window @ ..]) = (axes, window) else { return visit(base) };
    let start = at * axis.stride;
    for tap in axis.taps(*at) {
        let place = start + tap * axis.dilation - axis.pad_begin;
        for_each_under(axes, window, base * axis.input + place, visit);
    }
}

fn float_input<'a>(cx: &Evaluation<'a>) -> Result<&'a Tensor, EvalError> {
    let x = cx.tensor(0)?;
    cx.common_float(&[x])?;
    Ok(x)
}

/// Input 0, of a type whose elements `f64` holds exactly.
fn ordered_input<'a>(cx: &Evaluation<'a>) -> Result<&'a Tensor, EvalError> {
    let x = cx.tensor(0)?;
    match x.dtype() {
        DType::I8 | DType::I16 | DType::I32 | DType::U8 | DType::U16 | DType::U32 => Ok(x),
        _ => float_input(cx),
    }
}

fn power(cx: &Evaluation<'_>, p: i64) -> Result<f64, EvalError> {
    if p < 1 { Err(cx.bad_attribute(format!("p must be at least 1, found {p}"))) } else { Ok(p as f64) }
}
