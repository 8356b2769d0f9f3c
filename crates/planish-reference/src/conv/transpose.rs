//! Reference: transposed convolution and `Col2Im`, both of which add columns into the image under windows.

use planish_op::window::PlacedAxis;
use planish_op::{Col2Im, ConvTranspose};
use planish_tensor::{DType, Dim, Tensor};

use crate::product::{Strips, multiply};
use crate::scalar::{Computation, Scalar, in_own_arithmetic};
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

use super::{add_bias, check_group, image_shape};

/// Taps whose products are computed at once.
const TAPS: usize = 4;

pub(crate) fn conv_transpose(op: &ConvTranspose, cx: &Evaluation<'_>) -> EvalResult {
    let (x, w, bias) = (cx.tensor(0)?, cx.tensor(1)?, cx.optional_tensor(2)?);
    let inputs: Vec<&Tensor> = [Some(x), Some(w), bias].into_iter().flatten().collect();
    let dtype = cx.common_float(&inputs)?;
    let groups = check_group(cx, "group", op.group)?;
    let (batch, channels, spatial) = image_shape(cx, x.shape())?;
    let (w_channels, out_per_group, kernel) = image_shape(cx, w.shape())?;
    if kernel.len() != spatial.len() || w_channels != channels || !channels.is_multiple_of(groups) {
        return Err(cx.bad_shape(format!(
            "a weight of shape {:?} in {groups} groups does not fit an input of shape {:?}",
            w.shape(),
            x.shape()
        )));
    }
    let attributes = op.window();
    let kernel: Vec<Dim> = kernel.iter().copied().map(Dim::from).collect();
    let axes: Vec<PlacedAxis> = attributes
        .kernel_of_weight(&kernel)
        .and_then(|kernel| {
            attributes.transposed_axes(&kernel, &op.output_padding, op.output_shape.as_deref())
        })
        .and_then(|axes| axes.iter().zip(spatial).map(|(axis, size)| axis.place(*size)).collect())
        .map_err(|error| cx.bad_window(error))?;
    let out_channels = out_per_group.checked_mul(groups);
    let out_channels = out_channels.ok_or_else(|| cx.error(EvalErrorKind::TooLarge, "too many channels"))?;
    let shape: Vec<usize> =
        [batch, out_channels].into_iter().chain(axes.iter().map(|axis| axis.input)).collect();
    let out_len = nd::result_len(cx, &shape)?;
    let mut out = if out_len == 0 || x.is_empty() {
        vec![0.0; out_len]
    } else {
        let sizes = Sizes { batch, groups, in_per_group: channels / groups, out_per_group };
        transposed(&sizes, &axes, &x.to_f64s(), &w.to_f64s())
    };
    add_bias(cx, bias, &shape, &mut out)?;
    Ok(vec![Tensor::from_f64s(dtype, &shape, &out)?.into()])
}

struct Sizes {
    batch: usize,
    groups: usize,
    in_per_group: usize,
    out_per_group: usize,
}

/// One output plane at a time: the products of all input positions with each tap, added where the tap looks.
fn transposed(sizes: &Sizes, axes: &[PlacedAxis], x: &[f64], w: &[f64]) -> Vec<f64> {
    let Sizes { batch, groups, in_per_group, out_per_group } = *sizes;
    let n_positions: usize = axes.iter().map(|axis| axis.output).product();
    let kernel: Vec<usize> = axes.iter().map(|axis| axis.kernel).collect();
    let (n_taps, plane) = (nd::count(&kernel), axes.iter().map(|axis| axis.input).product());
    let inputs: Vec<Strips<f64>> = (0..batch * groups)
        .map(|idx| {
            let start = idx * in_per_group * n_positions;
            Strips::strided(&x[start..], n_positions, in_per_group, 1, n_positions)
        })
        .collect();
    let steps = n_positions.saturating_mul(n_taps).saturating_mul(in_per_group);
    nd::fill_blocks(batch * groups * out_per_group, plane, steps, |idx, out| {
        let (image, channel) = (idx / out_per_group, idx % out_per_group);
        let start = image % groups * in_per_group * out_per_group + channel;
        let taps = Strips::from_fn(n_taps, in_per_group, |tap, input| {
            w[(start + input * out_per_group) * n_taps + tap]
        });
        let mut columns = vec![0.0; TAPS * n_positions];
        for first in (0..n_taps).step_by(TAPS) {
            let chunk = first..(first + TAPS).min(n_taps);
            multiply(&taps, &inputs[image], chunk.clone(), &mut columns);
            for (tap, column) in chunk.zip(columns.chunks_exact(n_positions)) {
                add_column(axes, &nd::unravel(tap, &kernel), column, out);
            }
        }
    })
}

/// Adds one element per window to where tap `tap` of the window looks.
fn add_column<T: Scalar>(axes: &[PlacedAxis], tap: &[usize], column: &[T], image: &mut [T]) {
    let ([axis, axes @ ..], [tap, taps @ ..]) = (axes, tap) else {
        image[0] = image[0].plus(column[0]);
        return;
    };
    let place = |window: usize| window * axis.stride + tap * axis.dilation - axis.pad_begin;
    if axes.is_empty() {
        for window in axis.windows(*tap) {
            image[place(window)] = image[place(window)].plus(column[window]);
        }
        return;
    }
    let (image_step, column_step) = (image.len() / axis.input, column.len() / axis.output);
    for window in axis.windows(*tap) {
        let column = &column[window * column_step..][..column_step];
        add_column(axes, taps, column, &mut image[place(window) * image_step..][..image_step]);
    }
}

pub(crate) fn col2im(op: &Col2Im, cx: &Evaluation<'_>) -> EvalResult {
    let x = cx.tensor(0)?;
    let sizes = |idx: usize| -> Result<Vec<usize>, EvalError> {
        let tensor = cx.tensor(idx)?;
        let values: Option<Vec<usize>> = cx.ints(idx)?.iter().map(|v| usize::try_from(*v).ok()).collect();
        values.filter(|values| tensor.rank() == 1 && !values.is_empty()).ok_or_else(|| {
            cx.error(EvalErrorKind::BadValue, format!("input {idx} must be a vector of sizes"))
        })
    };
    let (image, block) = (sizes(1)?, sizes(2)?);
    let &[batch, rows, n_blocks] = x.shape() else {
        return Err(cx.bad_shape(format!("columns have rank 3, the input has shape {:?}", x.shape())));
    };
    if image.len() != block.len() {
        return Err(cx.bad_shape(format!("an image of {image:?} has no blocks of {block:?}")));
    }
    let kernel: Vec<Dim> = block.iter().copied().map(Dim::from).collect();
    let axes: Vec<PlacedAxis> = op
        .window()
        .axes(&kernel)
        .and_then(|axes| axes.iter().zip(&image).map(|(axis, size)| axis.place(*size)).collect())
        .map_err(|error| cx.bad_window(error))?;
    let counts: Vec<usize> = axes.iter().map(|axis| axis.output).collect();
    let n_taps = nd::count(&block);
    if nd::count(&counts) != n_blocks || !rows.is_multiple_of(n_taps) {
        return Err(cx.bad_shape(format!(
            "columns of shape {:?} are not {counts:?} blocks of {block:?} elements",
            x.shape()
        )));
    }
    let shape: Vec<usize> = [batch, rows / n_taps].into_iter().chain(image).collect();
    nd::result_len(cx, &shape)?;
    let fold = Fold { axes, block, shape };
    if x.dtype() == DType::Bool {
        let (shape, sums) = fold.compute(&[x.to_i64s()])?;
        let any: Vec<bool> = sums.into_iter().map(|sum| sum != 0).collect();
        return Ok(vec![Tensor::new(&shape, any)?.into()]);
    }
    Ok(vec![in_own_arithmetic(cx, &[x], &fold)?.into()])
}

struct Fold {
    axes: Vec<PlacedAxis>,
    block: Vec<usize>,
    shape: Vec<usize>,
}

impl Computation for Fold {
    fn compute<T: Scalar>(&self, inputs: &[Vec<T>]) -> Result<(Vec<usize>, Vec<T>), EvalError> {
        let (columns, n_out) = (&inputs[0], nd::count(&self.shape));
        if n_out == 0 || columns.is_empty() {
            return Ok((self.shape.clone(), vec![T::default(); n_out]));
        }
        let n_blocks: usize = self.axes.iter().map(|axis| axis.output).product();
        let (n_taps, plane) = (nd::count(&self.block), nd::count(&self.shape[2..]));
        let out = nd::fill_blocks(n_out / plane, plane, n_taps * n_blocks, |idx, out| {
            let rows = columns[idx * n_taps * n_blocks..].chunks_exact(n_blocks);
            for (tap, column) in rows.take(n_taps).enumerate() {
                add_column(&self.axes, &nd::unravel(tap, &self.block), column, out);
            }
        });
        Ok((self.shape.clone(), out))
    }
}
