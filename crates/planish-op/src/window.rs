//! Where the windows of convolutions and pools lie: sizes, padding and rounding, written once.
//!
//! Sizes are `Dim`s, so inference asks with symbols and the reference with numbers, and both get the same
//! formula. [`WindowAxis`] is one axis of a sliding window, [`TransposedAxis`] of a transposed convolution;
//! [`PlacedAxis`] is either of them once every size is a number.

mod of_op;

use std::fmt;
use std::ops::Range;

use planish_tensor::Dim;

use crate::AutoPad;

/// The attributes that place windows, as operators carry them: an empty list stands for the default.
#[derive(Clone, Copy, Debug)]
pub struct WindowAttributes<'a> {
    pub kernel_shape: Option<&'a [i64]>,
    pub strides: &'a [i64],
    pub dilations: &'a [i64],
    /// All begins, then all ends. Ignored unless `auto_pad` is `NotSet`.
    pub pads: &'a [i64],
    pub auto_pad: AutoPad,
    /// Whether the number of windows is rounded up where padding is explicit.
    pub ceil_mode: bool,
}

impl<'a> WindowAttributes<'a> {
    /// Padded as `pads` says, with sizes rounded down.
    fn new(
        kernel_shape: Option<&'a [i64]>,
        strides: &'a [i64],
        dilations: &'a [i64],
        pads: &'a [i64],
    ) -> WindowAttributes<'a> {
        WindowAttributes {
            kernel_shape,
            strides,
            dilations,
            pads,
            auto_pad: AutoPad::NotSet,
            ceil_mode: false,
        }
    }
}

/// How one axis is padded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Padding {
    Explicit {
        begin: i64,
        end: i64,
    },
    /// As much as makes `ceil(input / stride)` windows, an odd rest at the end.
    SameUpper,
    /// The same, an odd rest at the beginning.
    SameLower,
}

/// One axis of a sliding window.
#[derive(Clone, PartialEq, Debug)]
pub struct WindowAxis {
    /// The number of taps.
    pub kernel: Dim,
    /// At least 1.
    pub stride: i64,
    /// At least 1.
    pub dilation: i64,
    pub padding: Padding,
    pub ceil_mode: bool,
}

/// One axis of a transposed convolution: `window` slides over the *output*, one step per input element.
#[derive(Clone, PartialEq, Debug)]
pub struct TransposedAxis {
    pub window: WindowAxis,
    /// Elements added at the end of the output.
    pub output_padding: i64,
    /// The output's size, if it is prescribed; the padding then follows from it.
    pub output_size: Option<i64>,
}

/// One axis of windows with every size known: tap `k` of window `o` looks at
/// `o * stride + k * dilation - pad_begin`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlacedAxis {
    /// The size of what the windows slide over.
    pub input: usize,
    /// The number of windows.
    pub output: usize,
    pub kernel: usize,
    pub stride: usize,
    pub dilation: usize,
    pub pad_begin: usize,
    pub pad_end: usize,
}

impl WindowAttributes<'_> {
    /// The kernel's sizes: `kernel_shape` where given, which must agree with the weight's dimensions.
    pub fn kernel_of_weight(&self, weight: &[Dim]) -> Result<Vec<Dim>, WindowError> {
        let Some(given) = self.kernel_shape else { return Ok(weight.to_vec()) };
        if given.len() != weight.len() {
            return Err(WindowError::attribute(format!(
                "kernel_shape has {} entries for {} spatial axes",
                given.len(),
                weight.len()
            )));
        }
        let agree = |(&size, dim): (&i64, &Dim)| match dim.as_const() {
            Some(found) if found != size => Err(WindowError::attribute(format!(
                "kernel_shape {given:?} is not the weight's kernel, which has {found} where it says {size}"
            ))),
            _ => Ok(Dim::from(size)),
        };
        given.iter().zip(weight).map(agree).collect()
    }

    /// The kernel's sizes where no weight has them.
    pub fn kernel(&self) -> Vec<Dim> {
        self.kernel_shape.unwrap_or_default().iter().copied().map(Dim::from).collect()
    }

    /// One axis per entry of `kernel`.
    pub fn axes(&self, kernel: &[Dim]) -> Result<Vec<WindowAxis>, WindowError> {
        let rank = kernel.len();
        for (name, list) in [("strides", self.strides), ("dilations", self.dilations)] {
            check_len(name, list, rank)?;
            if let Some(bad) = list.iter().find(|value| **value < 1) {
                return Err(WindowError::attribute(format!("{name} must be at least 1, found {bad}")));
            }
        }
        if let Some(bad) = kernel.iter().filter_map(Dim::as_const).find(|size| *size < 1) {
            return Err(WindowError::attribute(format!("the kernel has {bad} taps along one axis")));
        }
        if self.auto_pad == AutoPad::NotSet {
            check_len("pads", self.pads, 2 * rank)?;
            if let Some(bad) = self.pads.iter().find(|pad| **pad < 0) {
                return Err(WindowError::attribute(format!("pads must not be negative, found {bad}")));
            }
        }
        let entry = |list: &[i64], idx: usize, default| list.get(idx).copied().unwrap_or(default);
        let axis = |(axis, kernel): (usize, &Dim)| WindowAxis {
            kernel: kernel.clone(),
            stride: entry(self.strides, axis, 1),
            dilation: entry(self.dilations, axis, 1),
            padding: match self.auto_pad {
                AutoPad::NotSet => Padding::Explicit {
                    begin: entry(self.pads, axis, 0),
                    end: entry(self.pads, rank + axis, 0),
                },
                AutoPad::Valid => Padding::Explicit { begin: 0, end: 0 },
                AutoPad::SameUpper => Padding::SameUpper,
                AutoPad::SameLower => Padding::SameLower,
            },
            ceil_mode: self.ceil_mode,
        };
        Ok(kernel.iter().enumerate().map(axis).collect())
    }

    /// One axis per entry of `kernel`, of a transposed convolution.
    pub fn transposed_axes(
        &self,
        kernel: &[Dim],
        output_padding: &[i64],
        output_shape: Option<&[i64]>,
    ) -> Result<Vec<TransposedAxis>, WindowError> {
        let rank = kernel.len();
        check_len("output_padding", output_padding, rank)?;
        if let Some(bad) = output_padding.iter().find(|pad| **pad < 0) {
            return Err(WindowError::attribute(format!("output_padding must not be negative, found {bad}")));
        }
        let output_shape = match output_shape {
            // Some exporters write the batch and the channels too.
            Some(shape) if shape.len() == rank + 2 => Some(&shape[2..]),
            Some(shape) if shape.len() == rank => Some(shape),
            Some([]) | None => None,
            Some(shape) => {
                return Err(WindowError::attribute(format!(
                    "output_shape has {} entries for {rank} spatial axes",
                    shape.len()
                )));
            }
        };
        if let Some(bad) = output_shape.unwrap_or_default().iter().find(|size| **size < 0) {
            return Err(WindowError::attribute(format!("output_shape must not be negative, found {bad}")));
        }
        let axes = self.axes(kernel)?.into_iter().enumerate().map(|(axis, window)| TransposedAxis {
            window,
            output_padding: output_padding.get(axis).copied().unwrap_or(0),
            output_size: output_shape.and_then(|shape| shape.get(axis).copied()),
        });
        Ok(axes.collect())
    }
}

impl WindowAxis {
    /// The elements between the first and the last tap, both included.
    pub fn extent(&self) -> Dim {
        (&self.kernel - 1) * self.dilation + 1
    }

    /// The number of windows over `input` elements. Refused where it is known to be negative: the window is
    /// larger than the padded input.
    pub fn output(&self, input: &Dim) -> Result<Dim, WindowError> {
        let output = self.n_windows(input);
        match output.as_const() {
            Some(count) if count < 0 => Err(WindowError::shape(format!(
                "a window of extent {} does not fit an input of size {input} with its padding",
                self.extent()
            ))),
            None if output.is_unknown() && !input.is_unknown() && !self.kernel.is_unknown() => {
                Err(WindowError::attribute("the window's sizes overflow".to_string()))
            }
            _ => Ok(output),
        }
    }

    fn n_windows(&self, input: &Dim) -> Dim {
        let stride = Dim::from(self.stride);
        let Padding::Explicit { begin, end } = self.padding else { return input.ceil_div(&stride) };
        let extent = self.extent();
        let room = input + begin + end - &extent;
        if !self.ceil_mode {
            return room.floor_div(&stride) + 1;
        }
        let rounded_up = room.ceil_div(&stride) + 1;
        // Windows that would start in the padding at the end are dropped; where `end + stride <= extent`
        // there are none.
        if (extent - end - self.stride).is_nonnegative() {
            return rounded_up;
        }
        rounded_up.min(&(input + begin).ceil_div(&stride))
    }

    /// The padding at the beginning and the end of `input` elements.
    pub fn pads(&self, input: &Dim) -> (Dim, Dim) {
        let lower = match self.padding {
            Padding::Explicit { begin, end } => return (begin.into(), end.into()),
            Padding::SameUpper => false,
            Padding::SameLower => true,
        };
        let last_start = (self.n_windows(input) - 1) * self.stride;
        distribute((last_start + self.extent() - input).max(&Dim::ZERO), lower)
    }

    /// The axis over an input of known size.
    pub fn place(&self, input: usize) -> Result<PlacedAxis, WindowError> {
        let size = Dim::from(input);
        self.placed(&size, &self.output(&size)?, &self.pads(&size))
    }

    fn placed(&self, input: &Dim, output: &Dim, pads: &(Dim, Dim)) -> Result<PlacedAxis, WindowError> {
        let number = |what: &str, dim: &Dim| {
            dim.as_usize().ok_or_else(|| WindowError::shape(format!("the {what} of a window is {dim}")))
        };
        Ok(PlacedAxis {
            input: number("range", input)?,
            output: number("count", output)?,
            kernel: number("kernel", &self.kernel)?,
            stride: number("stride", &self.stride.into())?,
            dilation: number("dilation", &self.dilation.into())?,
            pad_begin: number("padding", &pads.0)?,
            pad_end: number("padding", &pads.1)?,
        })
    }
}

impl TransposedAxis {
    /// What the taps of all input elements cover, before padding is cut off.
    fn covered(&self, input: &Dim) -> Dim {
        (input - 1) * self.window.stride + self.output_padding + self.window.extent()
    }

    /// The size of the output for `input` elements.
    pub fn output(&self, input: &Dim) -> Result<Dim, WindowError> {
        let output = match (self.output_size, self.window.padding) {
            (Some(size), _) => Dim::from(size),
            (None, Padding::Explicit { begin, end }) => self.covered(input) - begin - end,
            (None, Padding::SameUpper | Padding::SameLower) => input * self.window.stride,
        };
        match output.as_const() {
            Some(size) if size < 0 => Err(WindowError::shape(format!(
                "the padding is larger than the {} elements that the transposed windows cover",
                self.covered(input)
            ))),
            None if output.is_unknown() && !input.is_unknown() && !self.window.kernel.is_unknown() => {
                Err(WindowError::attribute("the window's sizes overflow".to_string()))
            }
            _ => Ok(output),
        }
    }

    /// What is cut off at the beginning and the end.
    pub fn pads(&self, input: &Dim) -> Result<(Dim, Dim), WindowError> {
        match (self.output_size, self.window.padding) {
            (None, Padding::Explicit { begin, end }) => Ok((begin.into(), end.into())),
            (_, padding) => {
                let total = (self.covered(input) - self.output(input)?).max(&Dim::ZERO);
                Ok(distribute(total, padding != Padding::SameUpper))
            }
        }
    }

    /// The axis for an input of known size: the windows slide over the output, so `input` of the result is
    /// the output's size and `output` the given number of elements.
    pub fn place(&self, input: usize) -> Result<PlacedAxis, WindowError> {
        let size = Dim::from(input);
        self.window.placed(&self.output(&size)?, &size, &self.pads(&size)?)
    }
}

impl PlacedAxis {
    /// Where tap `tap` of window `window` looks, `None` in the padding.
    pub fn position(&self, window: usize, tap: usize) -> Option<usize> {
        (window * self.stride + tap * self.dilation)
            .checked_sub(self.pad_begin)
            .filter(|place| *place < self.input)
    }

    /// The taps of window `window` that look at the input, not the padding.
    pub fn taps(&self, window: usize) -> Range<usize> {
        self.taps_between(window, self.pad_begin, self.pad_begin + self.input)
    }

    /// The number of taps of window `window` that look at the input or the padding; rounding up lets the last
    /// window reach past both.
    pub fn n_padded_taps(&self, window: usize) -> usize {
        self.taps_between(window, 0, self.pad_begin + self.input + self.pad_end).len()
    }

    /// The windows whose tap `tap` looks at the input, not the padding.
    pub fn windows(&self, tap: usize) -> Range<usize> {
        let place = tap * self.dilation;
        let until = |to: usize| to.saturating_sub(place).div_ceil(self.stride).min(self.output);
        until(self.pad_begin)..until(self.pad_begin + self.input)
    }

    /// The taps that look at `from..to`, counted from where the padding begins.
    fn taps_between(&self, window: usize, from: usize, to: usize) -> Range<usize> {
        let start = window * self.stride;
        let first = from.saturating_sub(start).div_ceil(self.dilation).min(self.kernel);
        let past = to.saturating_sub(start).div_ceil(self.dilation).min(self.kernel);
        first..past.max(first)
    }
}

/// Both sides of a total, an odd rest at the beginning (`lower`) or the end.
fn distribute(total: Dim, lower: bool) -> (Dim, Dim) {
    let half = total.floor_div(&Dim::from(2i64));
    let rest = total - &half;
    if lower { (rest, half) } else { (half, rest) }
}

fn check_len(name: &str, list: &[i64], expected: usize) -> Result<(), WindowError> {
    if list.is_empty() || list.len() == expected {
        return Ok(());
    }
    Err(WindowError::attribute(format!("{name} has {} entries, expected {expected}", list.len())))
}

/// Whether attributes are wrong in themselves or do not fit the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WindowErrorKind {
    Attribute,
    Shape,
}

/// Windows that cannot be placed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WindowError {
    kind: WindowErrorKind,
    detail: String,
}

impl WindowError {
    fn attribute(detail: String) -> WindowError {
        WindowError { kind: WindowErrorKind::Attribute, detail }
    }

    fn shape(detail: String) -> WindowError {
        WindowError { kind: WindowErrorKind::Shape, detail }
    }

    pub fn kind(&self) -> WindowErrorKind {
        self.kind
    }
}

impl fmt::Display for WindowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for WindowError {}

#[cfg(test)]
mod tests;
