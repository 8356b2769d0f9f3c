//! Where along one axis an output point reads the input, and with which weights.

use planish_op::resize::{LengthRatio, ResizeScale};
use planish_op::{Resize, ResizeCoordinates, ResizeMode, ResizeNearest};

/// One axis of a Resize.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) from_len: usize,
    pub(super) to_len: usize,
    pub(super) scale: ResizeScale,
    /// Start and end of the region of interest, in lengths of the input.
    pub(super) roi: (f64, f64),
}

impl Axis {
    /// Whether the axis is left alone whatever the mode.
    pub(super) fn is_identity(&self, op: &Resize) -> bool {
        let is_one = match self.scale {
            ResizeScale::Ratio(LengthRatio { to, from }) => to == from,
            ResizeScale::Factor(_) => false,
        };
        let is_whole =
            self.roi == (0.0, 1.0) || op.coordinate_transformation_mode != ResizeCoordinates::TfCropAndResize;
        is_one && is_whole && self.from_len == self.to_len
    }

    /// The input coordinate that output point `x` is at.
    ///
    /// A scale that is a quotient of lengths divides once, as integers, so that a coordinate that should be
    /// an integer or a half is exactly that, and nearest pixels are never chosen by rounding noise.
    fn coordinate(&self, mode: ResizeCoordinates, x: usize) -> f64 {
        let (x, from_len, to_len) = (x as f64, self.from_len as f64, self.to_len as f64);
        match mode {
            ResizeCoordinates::HalfPixel => self.half_pixel(x),
            ResizeCoordinates::HalfPixelSymmetric => {
                let exact_len = match self.scale {
                    ResizeScale::Ratio(ratio) => from_len * ratio.to as f64 / ratio.from as f64,
                    ResizeScale::Factor(factor) => from_len * f64::from(factor),
                };
                from_len / 2.0 * (1.0 - to_len / exact_len) + self.half_pixel(x)
            }
            ResizeCoordinates::PytorchHalfPixel if self.to_len > 1 => self.half_pixel(x),
            ResizeCoordinates::PytorchHalfPixel => 0.0,
            ResizeCoordinates::AlignCorners if self.to_len > 1 => x * (from_len - 1.0) / (to_len - 1.0),
            ResizeCoordinates::AlignCorners => 0.0,
            ResizeCoordinates::Asymmetric => self.unscaled(x),
            ResizeCoordinates::TfHalfPixelForNn => self.unscaled(x + 0.5),
            ResizeCoordinates::TfCropAndResize => cropped_coordinate(x, self.to_len, self.from_len, self.roi),
        }
    }

    fn unscaled(&self, x: f64) -> f64 {
        match self.scale {
            ResizeScale::Ratio(ratio) => x * ratio.from as f64 / ratio.to as f64,
            ResizeScale::Factor(factor) => x / f64::from(factor),
        }
    }

    /// `(x + 1/2) / scale - 1/2`.
    fn half_pixel(&self, x: f64) -> f64 {
        match self.scale {
            ResizeScale::Ratio(ratio) => {
                let (from, to) = (ratio.from as f64, ratio.to as f64);
                ((2.0 * x + 1.0) * from - to) / (2.0 * to)
            }
            ResizeScale::Factor(factor) => (x + 0.5) / f64::from(factor) - 0.5,
        }
    }

    fn is_outside(&self, mode: ResizeCoordinates, coordinate: f64) -> bool {
        mode == ResizeCoordinates::TfCropAndResize
            && !(coordinate >= 0.0 && coordinate <= self.from_len as f64 - 1.0)
    }

    /// For each output point the input index, `None` outside of what is defined. Indices are in range if the
    /// input axis is not empty.
    pub(super) fn nearest(&self, op: &Resize) -> Vec<Option<usize>> {
        let mode = op.coordinate_transformation_mode;
        let shrinks = match self.scale {
            ResizeScale::Ratio(ratio) => ratio.to < ratio.from,
            ResizeScale::Factor(factor) => factor < 1.0,
        };
        (0..self.to_len)
            .map(|x| {
                let at = self.coordinate(mode, x);
                let pixel = match op.nearest_mode {
                    ResizeNearest::RoundPreferFloor => (at - 0.5).ceil(),
                    ResizeNearest::RoundPreferCeil => (at + 0.5).floor(),
                    ResizeNearest::Floor => at.floor(),
                    ResizeNearest::Ceil => at.ceil(),
                    ResizeNearest::Simple => {
                        if shrinks {
                            at.ceil()
                        } else {
                            at.floor()
                        }
                    }
                };
                // The conversion to `usize` takes negative numbers to 0.
                (!self.is_outside(mode, at)).then(|| (pixel as usize).min(self.from_len.saturating_sub(1)))
            })
            .collect()
    }

    /// For each output point the input indices with their weights.
    pub(super) fn taps(&self, op: &Resize) -> Taps {
        let mode = op.coordinate_transformation_mode;
        let filter = Filter::new(op, self.scale);
        let mut taps =
            Taps { starts: vec![0], entries: Vec::new(), outside: Vec::with_capacity(self.to_len) };
        for x in 0..self.to_len {
            let at = self.coordinate(mode, x);
            let outside = self.is_outside(mode, at);
            taps.outside.push(outside);
            if !outside {
                let start = taps.entries.len();
                filter.push_taps(at, self.from_len, &mut taps.entries);
                let total: f64 = taps.entries[start..].iter().map(|(_, weight)| weight).sum();
                // A total of zero means that everything was excluded.
                if filter.normalizes && total != 0.0 {
                    taps.entries[start..].iter_mut().for_each(|(_, weight)| *weight /= total);
                }
            }
            taps.starts.push(taps.entries.len());
        }
        taps
    }
}

/// The coordinate of point `x` of `to_len` that are spread evenly over `roi`, the corners on its ends.
pub(super) fn cropped_coordinate(x: f64, to_len: usize, from_len: usize, roi: (f64, f64)) -> f64 {
    let (start, end) = roi;
    let last_pixel = from_len as f64 - 1.0;
    if to_len <= 1 {
        return 0.5 * (start + end) * last_pixel;
    }
    // As a weighted sum of the ends, the last point is at `end` exactly and not a rounding error outside.
    let last = to_len as f64 - 1.0;
    (start * (last - x) + end * x) * last_pixel / last
}

/// The reads of all output points along one axis.
#[derive(Debug)]
pub(super) struct Taps {
    /// Point `x` has the entries `starts[x]..starts[x + 1]`.
    starts: Vec<usize>,
    entries: Vec<(usize, f64)>,
    /// Points that lie outside of what is defined; they have no entries.
    pub(super) outside: Vec<bool>,
}

impl Taps {
    pub(super) fn len(&self) -> usize {
        self.outside.len()
    }

    pub(super) fn of(&self, x: usize) -> &[(usize, f64)] {
        &self.entries[self.starts[x]..self.starts[x + 1]]
    }

    /// Reads per output point, rounded up.
    pub(super) fn mean_count(&self) -> usize {
        self.entries.len().div_ceil(self.len().max(1))
    }
}

/// A filter around a coordinate.
#[derive(Debug)]
struct Filter {
    kind: Kind,
    /// By how much the filter is stretched to take in all pixels that shrink into one: at least 1.
    stretch: f64,
    exclude_outside: bool,
    /// Whether the weights are divided by their sum. The sum is 1 already unless some are left out or the
    /// filter is stretched.
    normalizes: bool,
}

#[derive(Debug)]
enum Kind {
    Linear,
    /// Keys' cubic convolution with this coefficient.
    Cubic(f64),
}

impl Filter {
    fn new(op: &Resize, scale: ResizeScale) -> Filter {
        let kind = match op.mode {
            ResizeMode::Cubic => Kind::Cubic(f64::from(op.cubic_coeff_a)),
            ResizeMode::Linear | ResizeMode::Nearest => Kind::Linear,
        };
        let shrink = match scale {
            ResizeScale::Ratio(ratio) => ratio.from as f64 / ratio.to as f64,
            ResizeScale::Factor(factor) => 1.0 / f64::from(factor),
        };
        let stretch = if op.antialias { shrink.max(1.0) } else { 1.0 };
        let normalizes = op.exclude_outside || stretch != 1.0;
        Filter { kind, stretch, exclude_outside: op.exclude_outside, normalizes }
    }

    /// The weight at this distance from the coordinate.
    fn weight(&self, distance: f64) -> f64 {
        let x = (distance / self.stretch).abs();
        match self.kind {
            Kind::Linear => (1.0 - x).max(0.0),
            Kind::Cubic(a) => cubic_weight(a, x),
        }
    }

    /// Appends the pixels around `at` whose weight is not zero. A pixel outside is read at the border, or
    /// left out if so asked.
    fn push_taps(&self, at: f64, len: usize, entries: &mut Vec<(usize, f64)>) {
        let radius = match self.kind {
            Kind::Linear => self.stretch,
            Kind::Cubic(_) => 2.0 * self.stretch,
        };
        let last = len as f64 - 1.0;
        let mut pixel = (at - radius).ceil();
        while pixel <= at + radius {
            let weight = self.weight(pixel - at);
            let is_outside = pixel < 0.0 || pixel > last;
            if weight != 0.0 && !(is_outside && self.exclude_outside) {
                entries.push((pixel.clamp(0.0, last.max(0.0)) as usize, weight));
            }
            pixel += 1.0;
        }
    }
}

/// Keys' cubic convolution kernel at distance `x >= 0`.
pub(super) fn cubic_weight(a: f64, x: f64) -> f64 {
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    } else {
        0.0
    }
}
