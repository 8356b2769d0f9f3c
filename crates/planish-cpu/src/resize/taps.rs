//! Where along one axis each output point reads the input, and with which weights, as ONNX's Resize defines it.
//!
//! Coordinates are computed in f64 from quotients of whole numbers where the scale is one, so that points that
//! should lie on a pixel or half-way between two do so exactly.

use planish_kernel::resize::ResizedAxis;
use planish_op::resize::ResizeScale;
use planish_op::{Resize, ResizeCoordinates, ResizeMode, ResizeNearest};

/// The reads of all output points along one axis.
#[derive(Clone, Debug)]
pub struct Taps {
    /// Point `x` has the entries `starts[x]..starts[x + 1]`.
    starts: Vec<usize>,
    /// Input places and their weights.
    entries: Vec<(usize, f32)>,
}

impl Taps {
    /// Every point reads its own place.
    pub fn identity(len: usize) -> Taps {
        Taps { starts: (0..=len).collect(), entries: (0..len).map(|at| (at, 1.0)).collect() }
    }

    /// The reads of all output points along an axis; `None` for modes that read a region of interest, and for an input
    /// without places.
    pub fn along(axis: &ResizedAxis, op: &Resize) -> Option<Taps> {
        if axis.is_identity() {
            return Some(Taps::identity(axis.to));
        }
        if axis.from == 0 {
            return None;
        }
        let mut taps = Taps { starts: vec![0], entries: Vec::new() };
        let mut around = Vec::new();
        for x in 0..axis.to {
            let at = coordinate(axis, op.coordinate_transformation_mode, x)?;
            match op.mode {
                ResizeMode::Nearest => taps.entries.push((nearest(axis, op.nearest_mode, at), 1.0)),
                ResizeMode::Linear | ResizeMode::Cubic => {
                    around.clear();
                    weigh(axis, op, at, &mut around);
                    taps.entries.extend(around.iter().map(|&(place, weight)| (place, weight as f32)));
                }
            }
            taps.starts.push(taps.entries.len());
        }
        Some(taps)
    }

    /// The number of output points.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The input places that point `at` reads, with their weights.
    #[inline(always)]
    pub fn of(&self, at: usize) -> &[(usize, f32)] {
        &self.entries[self.starts[at]..self.starts[at + 1]]
    }

    /// The same with as many reads for every point, where none has more than `N`. What lacks is made by halving the last
    /// weight of a point: a weight of zero would make a number of an infinity.
    pub(super) fn padded<const N: usize>(&self) -> Option<Vec<[(u32, f32); N]>> {
        let padded = |at: usize| {
            let own = self.of(at);
            let mut entries = [(0, 0.0); N];
            for (to, (place, weight)) in entries.get_mut(..own.len())?.iter_mut().zip(own) {
                *to = (u32::try_from(*place).ok()?, *weight);
            }
            for lacking in own.len().max(1)..N {
                entries[lacking - 1].1 *= 0.5;
                entries[lacking] = entries[lacking - 1];
            }
            Some(entries)
        };
        (0..self.len()).map(padded).collect()
    }

    pub fn n_entries(&self) -> usize {
        self.entries.len()
    }

    /// Whether every point reads exactly one place.
    pub fn is_single(&self) -> bool {
        self.entries.len() == self.len() && self.starts.windows(2).all(|pair| pair[1] == pair[0] + 1)
    }

    /// The places, where each point reads one.
    pub(super) fn singles(&self) -> impl Iterator<Item = usize> {
        self.entries.iter().map(|entry| entry.0)
    }
}

/// The input coordinate of output point `x`; `None` for modes that read a region of interest.
fn coordinate(axis: &ResizedAxis, mode: ResizeCoordinates, x: usize) -> Option<f64> {
    let (up, down) = axis.quotient();
    let x = x as f64;
    let centred = || match axis.scale {
        // One division, of numbers that are exact.
        ResizeScale::Ratio(_) => ((2.0 * x + 1.0) * down - up) / (2.0 * up),
        ResizeScale::Factor(_) => (x + 0.5) / up - 0.5,
    };
    Some(match mode {
        ResizeCoordinates::HalfPixel => centred(),
        ResizeCoordinates::HalfPixelSymmetric => {
            let (from, exact) = (axis.from as f64, axis.from as f64 * up / down);
            from / 2.0 * (1.0 - axis.to as f64 / exact) + centred()
        }
        ResizeCoordinates::PytorchHalfPixel if axis.to > 1 => centred(),
        ResizeCoordinates::AlignCorners if axis.to > 1 => {
            x * (axis.from as f64 - 1.0) / (axis.to as f64 - 1.0)
        }
        ResizeCoordinates::PytorchHalfPixel | ResizeCoordinates::AlignCorners => 0.0,
        ResizeCoordinates::Asymmetric => x * down / up,
        ResizeCoordinates::TfHalfPixelForNn => (x + 0.5) * down / up,
        ResizeCoordinates::TfCropAndResize => return None,
    })
}

fn nearest(axis: &ResizedAxis, mode: ResizeNearest, at: f64) -> usize {
    let (up, down) = axis.quotient();
    let pixel = match mode {
        ResizeNearest::RoundPreferFloor => (at - 0.5).ceil(),
        ResizeNearest::RoundPreferCeil => (at + 0.5).floor(),
        ResizeNearest::Floor => at.floor(),
        ResizeNearest::Ceil => at.ceil(),
        ResizeNearest::Simple if up < down => at.ceil(),
        ResizeNearest::Simple => at.floor(),
    };
    // Negative numbers become 0.
    (pixel as usize).min(axis.from - 1)
}

/// The places around a coordinate with their weights.
fn weigh(axis: &ResizedAxis, op: &Resize, at: f64, entries: &mut Vec<(usize, f64)>) {
    let (up, down) = axis.quotient();
    // An antialiased filter takes in all pixels that shrink into one.
    let span = if op.antialias { (down / up).max(1.0) } else { 1.0 };
    let cubic = op.mode == ResizeMode::Cubic;
    let radius = if cubic { 2.0 * span } else { span };
    let last = axis.from as f64 - 1.0;
    let mut pixel = (at - radius).ceil();
    while pixel <= at + radius {
        let distance = ((pixel - at) / span).abs();
        let weight = if cubic { keys(op.cubic_coeff_a.into(), distance) } else { (1.0 - distance).max(0.0) };
        let is_outside = pixel < 0.0 || pixel > last;
        // Outside, the border is read, or nothing if so asked.
        if weight != 0.0 && !(is_outside && op.exclude_outside) {
            entries.push((pixel.clamp(0.0, last) as usize, weight));
        }
        pixel += 1.0;
    }
    if op.exclude_outside || span != 1.0 {
        let total: f64 = entries.iter().map(|entry| entry.1).sum();
        if total != 0.0 {
            entries.iter_mut().for_each(|entry| entry.1 /= total);
        }
    }
}

/// Keys' cubic convolution with coefficient `a`, at a distance that is not negative.
fn keys(a: f64, distance: f64) -> f64 {
    let x = distance;
    match x {
        ..=1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
        1.0..2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
        _ => 0.0,
    }
}
