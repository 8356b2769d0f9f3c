//! The results of windows put together: sums of what they say, each by its weight.

use std::ops::Range;

use planish_runtime::View;
use planish_tensor::Tensor;

use super::grid::Grid;
use super::read::floats;
use super::weights::{Factors, LEAST, add_row};
use super::{SlidingWindow, bad_option, for_axes};
use crate::{Error, ErrorKind};

/// One output, blended.
pub(super) struct Blended {
    n_images: usize,
    n_channels: usize,
    /// The axes of pixels. An output with a single one gets one of size 1 in front, so that there are always rows.
    axes: Vec<Factors>,
    /// The part of the result that images have, for each axis: what lies outside shows padding.
    kept: Vec<Range<usize>>,
    /// By image, channel and open row: all rows, or for labels as many as a window has, of one image.
    sums: Vec<f32>,
    labels: Option<Labels>,
    /// A window's output as floats, where it is of another type.
    scratch: Vec<f32>,
    /// Whether an axis was put in front.
    is_line: bool,
}

/// Labels as they become final, row by row.
struct Labels {
    numbers: Numbers,
    /// The image under way, and the first of its rows that is not final.
    image: usize,
    row: usize,
}

/// Bytes where these number the channels.
enum Numbers {
    U8(Vec<u8>),
    U16(Vec<u16>),
}

impl Blended {
    /// For an output like this one of a window.
    pub(super) fn new(
        name: &str,
        output: &View<'_>,
        n_images: usize,
        grid: &Grid,
        options: &SlidingWindow,
    ) -> Result<Blended, Error> {
        let n_axes = grid.axes.len();
        let wrong = |why: &str| {
            let (dtype, dims) = (output.dtype(), output.dims());
            let message = format!("output `{name}` of a window is {dtype} of {dims:?}: {why}");
            Error::new(ErrorKind::WrongType, message)
        };
        if output.dims().len() != n_axes + 1 || output.dims().contains(&0) {
            return Err(wrong("only channels of pixels can be put together"));
        }
        if !output.dtype().is_float() {
            return Err(wrong("only floats can be blended; leave the operator that makes integers out"));
        }
        let sigma_scale = for_axes(&options.sigma_scale, n_axes, "sigma_scale")?;
        if sigma_scale.iter().any(|sigma| !(sigma.is_finite() && *sigma > 0.0)) {
            return Err(bad_option("sigma_scale is a number above 0"));
        }
        let n_channels = output.dims()[0];
        let (mut axes, mut kept) = (Vec::new(), Vec::new());
        let is_line = n_axes == 1;
        if is_line {
            axes.push(Factors { size: 1, starts: vec![0], factors: vec![1.0] });
            kept.push(0..1);
        }
        for ((axis, &out), sigma) in grid.axes.iter().zip(&output.dims()[1..]).zip(sigma_scale) {
            let factors = Factors::new(axis, out, options.mode, sigma);
            // Rounded to even as Python does.
            let scaled = |at: usize| (at as f64 * (out as f64 / axis.roi as f64)).round_ties_even() as usize;
            kept.push(match axis.is_padded() {
                true => scaled(axis.before)..scaled(axis.before + axis.size),
                false => 0..factors.size,
            });
            axes.push(factors);
        }
        let labels = match options.argmax {
            false => None,
            true if n_channels < 2 => {
                return Err(bad_option(format!("output `{name}` has 1 channel; labels need at least 2")));
            }
            true => {
                let n = n_images * axes.iter().map(|axis| axis.size).product::<usize>();
                let numbers = match n_channels <= 1 << u8::BITS {
                    true => Numbers::U8(vec![0; n]),
                    false => Numbers::U16(vec![0; n]),
                };
                Some(Labels { numbers, image: 0, row: 0 })
            }
        };
        let n_held = if options.argmax { axes[0].factors.len() } else { n_images * axes[0].size };
        let factors = axes[1..].iter().map(|axis| axis.size).chain([n_channels, n_held]);
        let n_sums = factors.into_iter().try_fold(1usize, usize::checked_mul);
        let mut sums = Vec::new();
        if n_sums.is_none_or(|n_sums| sums.try_reserve_exact(n_sums).is_err()) {
            let message = format!("there is no memory for output `{name}`");
            return Err(Error::new(ErrorKind::OutOfMemory, message));
        }
        sums.resize(n_sums.unwrap_or(0), 0.0);
        Ok(Blended { n_images, n_channels, axes, kept, sums, labels, scratch: Vec::new(), is_line })
    }

    /// Elements of a row: everything behind the first axis.
    fn row_len(&self) -> usize {
        self.axes[1..].iter().map(|axis| axis.size).product()
    }

    /// Adds what a window says, which is number `places` along each axis.
    pub(super) fn add(&mut self, image: usize, places: &[usize], output: &View<'_>) -> Result<(), Error> {
        let mut starts: Vec<usize> = if self.is_line { vec![0] } else { Vec::new() };
        let axes = &self.axes[usize::from(self.is_line)..];
        starts.extend(axes.iter().zip(places).map(|(axis, &place)| axis.starts[place]));
        self.close_rows(image, starts[0]);
        let mut scratch = std::mem::take(&mut self.scratch);
        let values = match output.as_slice::<f32>() {
            Some(values) => values,
            None => {
                scratch.resize(output.dims().iter().product(), 0.0);
                floats(output.dtype(), output.bytes(), &mut scratch)?;
                &scratch[..]
            }
        };
        self.add_values(image, &starts, values);
        self.scratch = scratch;
        Ok(())
    }

    fn add_values(&mut self, image: usize, starts: &[usize], values: &[f32]) {
        let Some((last, leading)) = self.axes.split_last() else { return };
        let width = last.factors.len();
        let n_lines: usize = leading.iter().map(|axis| axis.factors.len()).product();
        // Where sums of images and rows begin.
        let (image, first_row, n_held) = match &self.labels {
            Some(labels) => (0, labels.row, self.axes[0].factors.len()),
            None => (image, 0, self.axes[0].size),
        };
        let plane = n_held * self.row_len();
        for line in 0..n_lines {
            let (mut weight, mut at, mut left, mut n_left) = (1f32, 0, line, n_lines);
            for (axis, start) in leading.iter().zip(starts) {
                n_left /= axis.factors.len();
                let within = left / n_left;
                left %= n_left;
                weight *= axis.factors[within];
                at = at * axis.size + start + within;
            }
            let to = at * last.size + starts[starts.len() - 1] - first_row * self.row_len();
            for channel in 0..self.n_channels {
                let to = (image * self.n_channels + channel) * plane + to;
                let from = (channel * n_lines + line) * width;
                let (to, from) = (&mut self.sums[to..to + width], &values[from..from + width]);
                for ((sum, value), factor) in to.iter_mut().zip(from).zip(&last.factors) {
                    *sum += value * (weight * factor).max(LEAST);
                }
            }
        }
    }

    /// Makes labels of the rows that no window adds to any more, now that one begins at this row of this image.
    fn close_rows(&mut self, image: usize, row: usize) {
        let Some(labels) = &self.labels else { return };
        let (n_rows, mut at) = (self.axes[0].size, (labels.image, labels.row));
        while at.0 < image {
            self.label_rows(n_rows);
            at = (at.0 + 1, 0);
            if let Some(labels) = &mut self.labels {
                (labels.image, labels.row) = at;
            }
            self.sums.fill(0.0);
        }
        if at.1 < row {
            self.label_rows(row);
            let row_len = self.row_len();
            let (n_held, n_closed) = (self.axes[0].factors.len(), row - at.1);
            for channel in self.sums.chunks_exact_mut(n_held * row_len) {
                let n_closed = n_closed.min(n_held);
                channel.copy_within(n_closed * row_len.., 0);
                channel[(n_held - n_closed) * row_len..].fill(0.0);
            }
            if let Some(labels) = &mut self.labels {
                labels.row = row;
            }
        }
    }

    /// Labels the open rows before this one. The weights' sum is the same for all channels, so that it need not be
    /// divided by.
    fn label_rows(&mut self, before: usize) {
        let (n_rows, row_len, n_held) = (self.axes[0].size, self.row_len(), self.axes[0].factors.len());
        let (sums, n_channels) = (&self.sums, self.n_channels);
        let Some(labels) = &mut self.labels else { return };
        let n_pixels = (before - labels.row).min(n_held) * row_len;
        let first = (labels.image * n_rows + labels.row) * row_len;
        let best = |pixel: usize| {
            let value = |channel: usize| sums[channel * n_held * row_len + pixel];
            (1..n_channels).fold(0, |best, channel| if value(channel) > value(best) { channel } else { best })
        };
        match &mut labels.numbers {
            Numbers::U8(numbers) => {
                (0..n_pixels).for_each(|pixel| numbers[first + pixel] = best(pixel) as u8)
            }
            Numbers::U16(numbers) => {
                (0..n_pixels).for_each(|pixel| numbers[first + pixel] = best(pixel) as u16)
            }
        }
    }

    /// Divides sums by the weights of all windows, row by row.
    fn divide(&mut self) {
        let Some((last, leading)) = self.axes.split_last() else { return };
        let n_lines: usize = leading.iter().map(|axis| axis.size).product();
        let mut weights = vec![0f32; last.size];
        let mut places = vec![0; leading.len()];
        for line in 0..n_lines {
            let mut left = line;
            for (place, axis) in places.iter_mut().zip(leading).rev() {
                (*place, left) = (left % axis.size, left / axis.size);
            }
            weights.fill(0.0);
            add_row(leading, &places, last, &mut weights);
            for plane in self.sums.chunks_exact_mut(n_lines * last.size) {
                let sums = &mut plane[line * last.size..(line + 1) * last.size];
                sums.iter_mut().zip(&weights).for_each(|(sum, weight)| *sum /= weight);
            }
        }
    }

    /// The result, when all windows are added.
    pub(super) fn finish(mut self) -> Result<Tensor, Error> {
        match self.labels.is_some() {
            true => self.close_rows(self.n_images, 0),
            false => self.divide(),
        }
        let added = usize::from(self.is_line);
        let outer = self.n_images * if self.labels.is_some() { 1 } else { self.n_channels };
        let sizes: Vec<usize> = self.axes.iter().map(|axis| axis.size).collect();
        let mut shape = vec![self.n_images];
        if self.labels.is_none() {
            shape.push(self.n_channels);
        }
        shape.extend(self.kept[added..].iter().map(|kept| kept.len()));
        let kept = &self.kept;
        Ok(match self.labels.map(|labels| labels.numbers) {
            None => Tensor::new(&shape, cut(self.sums, outer, &sizes, kept))?,
            Some(Numbers::U8(numbers)) => Tensor::new(&shape, cut(numbers, outer, &sizes, kept))?,
            Some(Numbers::U16(numbers)) => Tensor::new(&shape, cut(numbers, outer, &sizes, kept))?,
        })
    }
}

/// The kept part of each of `n_outer` planes of these sizes: without a copy where that is all of it.
fn cut<T: Copy>(values: Vec<T>, n_outer: usize, sizes: &[usize], kept: &[Range<usize>]) -> Vec<T> {
    if kept.iter().zip(sizes).all(|(kept, &size)| *kept == (0..size)) {
        return values;
    }
    let mut places: Vec<usize> = (0..n_outer).collect();
    for (kept, &size) in kept.iter().zip(sizes) {
        places = places.iter().flat_map(|place| kept.clone().map(move |at| place * size + at)).collect();
    }
    places.into_iter().map(|place| values[place]).collect()
}
