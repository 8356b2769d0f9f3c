//! Where a convolution's kernel lies on its input: one axis at a time.

use planish_op::{AutoPad, ConvInteger, QLinearConv};

use crate::{EvalError, Evaluation};

/// The attributes that all convolutions share.
pub(super) struct WindowAttributes<'a> {
    pub group: i64,
    pads: &'a [i64],
    strides: &'a [i64],
    dilations: &'a [i64],
    kernel_shape: Option<&'a [i64]>,
    auto_pad: AutoPad,
}

macro_rules! from_ops {
    ($($op:ty),*) => {
        $(impl<'a> From<&'a $op> for WindowAttributes<'a> {
            fn from(op: &'a $op) -> Self {
                WindowAttributes {
                    group: op.group,
                    pads: &op.pads,
                    strides: &op.strides,
                    dilations: &op.dilations,
                    kernel_shape: op.kernel_shape.as_deref(),
                    auto_pad: op.auto_pad,
                }
            }
        })*
    };
}

from_ops! { ConvInteger, QLinearConv }

/// One spatial axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Axis {
    pub input: usize,
    pub kernel: usize,
    pub output: usize,
    stride: usize,
    dilation: usize,
    pad_begin: usize,
}

impl Axis {
    /// The input index under kernel index `tap` at output index `place`; `None` in the padding.
    pub(super) fn input_at(&self, place: usize, tap: usize) -> Option<usize> {
        let padded = place * self.stride + tap * self.dilation;
        padded.checked_sub(self.pad_begin).filter(|&idx| idx < self.input)
    }
}

impl WindowAttributes<'_> {
    /// The axes of an input and a kernel with these spatial sizes.
    pub(super) fn axes(
        &self,
        cx: &Evaluation<'_>,
        input: &[usize],
        kernel: &[usize],
    ) -> Result<Vec<Axis>, EvalError> {
        let n = input.len();
        if let Some(kernel_shape) = self.kernel_shape.filter(|shape| !shape.is_empty())
            && !kernel_shape.iter().map(|&dim| usize::try_from(dim).ok()).eq(kernel.iter().copied().map(Some))
        {
            let reason = format!("`kernel_shape` is {kernel_shape:?}, the weights have {kernel:?}");
            return Err(cx.bad_attribute(reason));
        }
        let steps = |name: &str, values: &[i64]| -> Result<Vec<usize>, EvalError> {
            if values.is_empty() {
                return Ok(vec![1; n]);
            }
            let positive = |&value: &i64| usize::try_from(value).ok().filter(|&step| step > 0);
            let steps: Option<Vec<usize>> = values.iter().map(positive).collect();
            steps.filter(|steps| steps.len() == n).ok_or_else(|| {
                cx.bad_attribute(format!("`{name}` is {values:?}; it needs {n} positive numbers"))
            })
        };
        let (strides, dilations) = (steps("strides", self.strides)?, steps("dilations", self.dilations)?);
        let pads: Vec<usize> = match self.pads {
            [] => vec![0; 2 * n],
            pads => {
                let sizes: Option<Vec<usize>> = pads.iter().map(|&pad| usize::try_from(pad).ok()).collect();
                sizes.filter(|sizes| sizes.len() == 2 * n).ok_or_else(|| {
                    cx.bad_attribute(format!("`pads` is {pads:?}; it needs {} sizes", 2 * n))
                })?
            }
        };
        (0..n)
            .map(|axis| {
                let (stride, dilation) = (strides[axis], dilations[axis]);
                let place = Placement { input: input[axis], kernel: kernel[axis], stride, dilation };
                place.axis(self.auto_pad, (pads[axis], pads[n + axis])).ok_or_else(|| {
                    cx.bad_shape(format!(
                        "a kernel of {} (dilation {dilation}) does not fit an input of {} on spatial axis {axis}",
                        kernel[axis], input[axis]
                    ))
                })
            })
            .collect()
    }
}

/// What is known of an axis before its padding.
struct Placement {
    input: usize,
    kernel: usize,
    stride: usize,
    dilation: usize,
}

impl Placement {
    /// `None` if the kernel is empty, does not fit, or sizes overflow.
    fn axis(&self, auto_pad: AutoPad, pads: (usize, usize)) -> Option<Axis> {
        let &Placement { input, kernel, stride, dilation } = self;
        let span = kernel.checked_sub(1)?.checked_mul(dilation)?.checked_add(1)?;
        let (pad_begin, output) = match auto_pad {
            AutoPad::NotSet | AutoPad::Valid => {
                let (begin, end) = if auto_pad == AutoPad::Valid { (0, 0) } else { pads };
                let padded = input.checked_add(begin)?.checked_add(end)?;
                (begin, padded.checked_sub(span)? / stride + 1)
            }
            AutoPad::SameUpper | AutoPad::SameLower => {
                let output = input.div_ceil(stride);
                let covered = output.saturating_sub(1).checked_mul(stride)?.checked_add(span)?;
                let total = covered.saturating_sub(input);
                // The odd one goes to the end for SAME_UPPER and to the beginning for SAME_LOWER.
                let begin = if auto_pad == AutoPad::SameUpper { total / 2 } else { total.div_ceil(2) };
                (begin, output)
            }
        };
        Some(Axis { input, kernel, output, stride, dilation, pad_begin })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(input: usize, kernel: usize, stride: usize, dilation: usize) -> Placement {
        Placement { input, kernel, stride, dilation }
    }

    #[test]
    fn explicit_pads_give_the_usual_size() {
        let placed = axis(7, 3, 2, 1).axis(AutoPad::NotSet, (1, 1)).unwrap();
        assert_eq!((placed.output, placed.input_at(0, 0), placed.input_at(3, 1)), (4, None, Some(6)));
        let dilated = axis(7, 3, 1, 3).axis(AutoPad::Valid, (5, 5)).unwrap();
        assert_eq!((dilated.output, dilated.input_at(0, 2)), (1, Some(6)));
    }

    #[test]
    fn same_padding_puts_the_odd_one_where_it_says() {
        let upper = axis(5, 2, 1, 1).axis(AutoPad::SameUpper, (0, 0)).unwrap();
        assert_eq!((upper.output, upper.pad_begin), (5, 0));
        let lower = axis(5, 2, 1, 1).axis(AutoPad::SameLower, (0, 0)).unwrap();
        assert_eq!((lower.output, lower.pad_begin), (5, 1));
        let strided = axis(5, 3, 2, 1).axis(AutoPad::SameUpper, (0, 0)).unwrap();
        assert_eq!((strided.output, strided.pad_begin), (3, 1));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(axis(2, 3, 1, 1).axis(AutoPad::NotSet, (0, 0)), None);
        assert_eq!(axis(2, 0, 1, 1).axis(AutoPad::NotSet, (0, 0)), None);
        assert_eq!(axis(2, 3, 1, usize::MAX).axis(AutoPad::SameUpper, (0, 0)), None);
        assert_eq!(axis(2, 1, 1, 1).axis(AutoPad::NotSet, (usize::MAX, 0)), None);
        assert_eq!(axis(0, 3, 1, 1).axis(AutoPad::SameUpper, (0, 0)).unwrap().output, 0);
    }
}
