//! Charts as pixels: lines, discs, convex shapes and letters with smooth edges, written as PNG.
//!
//! Coverage is taken from distances: a pixel is covered as far as its middle lies inside the edge, up to one pixel. A line is
//! covered as its nearest piece is, so that joints are not painted twice.

use std::io::{self, Write};

use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};

use super::canvas::{Anchor, Canvas, Colour, Pen, Place, Words};
use super::letters;

/// Pixels for one unit of the chart: sharp on paper and on dense screens.
const SCALE: f64 = 2.0;

/// An image of bytes, red, green and blue.
pub(super) struct Bitmap {
    width: usize,
    height: usize,
    bytes: Vec<u8>,
}

impl Bitmap {
    pub(super) fn new(size: [f64; 2]) -> Bitmap {
        let [width, height] = size.map(|side| (side * SCALE).ceil() as usize);
        Bitmap { width, height, bytes: vec![255; 3 * width * height] }
    }

    pub(super) fn write_png(&self, out: &mut dyn Write) -> io::Result<()> {
        let (width, height) = (self.width as u32, self.height as u32);
        let written = PngEncoder::new(out).write_image(&self.bytes, width, height, ExtendedColorType::Rgb8);
        written.map_err(io::Error::other)
    }

    /// Paints what `distance` says is inside (below zero, in pixels), between two corners.
    fn paint(&mut self, low: Place, high: Place, colour: Colour, distance: &dyn Fn(Place) -> f64) {
        let rgb = rgb(colour);
        let ends = |low: f64, high: f64, size: usize| {
            let end = |at: f64| at.clamp(0.0, size as f64) as usize;
            end((low - 1.0).floor())..end((high + 2.0).ceil())
        };
        for y in ends(low[1], high[1], self.height) {
            for x in ends(low[0], high[0], self.width) {
                let covered = (0.5 - distance([x as f64 + 0.5, y as f64 + 0.5])).clamp(0.0, 1.0);
                if covered > 0.0 {
                    let at = 3 * (y * self.width + x);
                    for (byte, colour) in self.bytes[at..at + 3].iter_mut().zip(rgb) {
                        *byte = (f64::from(*byte) * (1.0 - covered) + colour * covered).round() as u8;
                    }
                }
            }
        }
    }

    /// A line through places that are pixels already.
    fn stroke(&mut self, points: &[Place], width: f64, colour: Colour) {
        let pieces: Vec<[Place; 2]> = match points {
            [only] => vec![[*only, *only]],
            points => points.windows(2).map(|pair| [pair[0], pair[1]]).collect(),
        };
        // Piece by piece over its own pixels, each pixel once: the nearest piece decides, the first among equals.
        for (number, piece) in pieces.iter().enumerate() {
            let (low, high) = corners(piece, width);
            let others: Vec<(usize, [Place; 2])> = pieces
                .iter()
                .enumerate()
                .filter(|(other, piece)| {
                    *other != number && overlaps(corners(*piece, width + 2.0), (low, high))
                })
                .map(|(other, piece)| (other, *piece))
                .collect();
            self.paint(low, high, colour, &|at| {
                let own = to_piece(at, piece);
                let is_nearer = |(other, piece): &(usize, [Place; 2])| {
                    let there = to_piece(at, piece);
                    there < own || (there == own && *other < number)
                };
                if others.iter().any(is_nearer) { f64::INFINITY } else { own - width / 2.0 }
            });
        }
    }
}

impl Canvas for Bitmap {
    fn line(&mut self, points: &[Place], pen: Pen) {
        let points: Vec<Place> = points.iter().map(|point| point.map(|side| side * SCALE)).collect();
        let width = pen.width * SCALE;
        if pen.dash.is_empty() {
            return self.stroke(&points, width, pen.colour);
        }
        let dash: Vec<f64> = pen.dash.iter().map(|length| length * SCALE).collect();
        for part in dashed(&points, &dash) {
            self.stroke(&part, width, pen.colour);
        }
    }

    fn disc(&mut self, middle: Place, radius: f64, colour: Colour) {
        let (middle, radius) = (middle.map(|side| side * SCALE), radius * SCALE);
        let [low, high] = [-radius, radius].map(|by| middle.map(|side| side + by));
        self.paint(low, high, colour, &|[x, y]| (x - middle[0]).hypot(y - middle[1]) - radius);
    }

    fn shape(&mut self, shape: &[Place], colour: Colour) {
        let shape: Vec<Place> = shape.iter().map(|point| point.map(|side| side * SCALE)).collect();
        let (low, high) = corners(&shape, 0.0);
        let n = shape.len();
        let side = |at: Place, from: Place, to: Place| {
            let along = [to[0] - from[0], to[1] - from[1]];
            let length = along[0].hypot(along[1]).max(f64::MIN_POSITIVE);
            ((at[0] - from[0]) * along[1] - (at[1] - from[1]) * along[0]) / length
        };
        let area: f64 = (0..n)
            .map(|idx| {
                let (a, b) = (shape[idx], shape[(idx + 1) % n]);
                a[0] * b[1] - b[0] * a[1]
            })
            .sum();
        let turn = if area < 0.0 { -1.0 } else { 1.0 };
        self.paint(low, high, colour, &|at| {
            (0..n)
                .map(|idx| turn * side(at, shape[idx], shape[(idx + 1) % n]))
                .fold(f64::NEG_INFINITY, f64::max)
        });
    }

    fn text(&mut self, text: &str, [x, y]: Place, words: Words) {
        let unit = words.size * letters::UNIT;
        let width = letters::width(text) * unit;
        let mut x = x - match words.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => width / 2.0,
            Anchor::End => width,
        };
        let pen = words.size * if words.is_bold { letters::BOLD } else { letters::PEN };
        for letter in text.chars() {
            for stroke in letters::strokes(letter) {
                let points: Vec<Place> = stroke
                    .iter()
                    .map(|point| [(x + point[0] * unit) * SCALE, (y - point[1] * unit) * SCALE])
                    .collect();
                self.stroke(&points, pen * SCALE, words.colour);
            }
            x += letters::advance(letter) * unit;
        }
    }
}

fn rgb(colour: Colour) -> [f64; 3] {
    let digits: Vec<u32> = colour.chars().filter_map(|digit| digit.to_digit(16)).collect();
    let pair = |idx: usize| match digits.len() {
        3 => 17 * digits[idx],
        6 => 16 * digits[2 * idx] + digits[2 * idx + 1],
        _ => 0,
    };
    [0, 1, 2].map(|idx| f64::from(pair(idx)))
}

/// The corners of what holds these places, with a margin of half this width.
fn corners(points: &[Place], width: f64) -> (Place, Place) {
    let (mut low, mut high) = ([f64::INFINITY; 2], [f64::NEG_INFINITY; 2]);
    for point in points {
        for axis in 0..2 {
            low[axis] = low[axis].min(point[axis] - width / 2.0);
            high[axis] = high[axis].max(point[axis] + width / 2.0);
        }
    }
    (low, high)
}

fn overlaps(a: (Place, Place), b: (Place, Place)) -> bool {
    (0..2).all(|axis| a.0[axis] <= b.1[axis] && b.0[axis] <= a.1[axis])
}

/// How far a place is from a piece of a line.
fn to_piece([x, y]: Place, [from, to]: &[Place; 2]) -> f64 {
    let along = [to[0] - from[0], to[1] - from[1]];
    let length = along[0] * along[0] + along[1] * along[1];
    let part = match length > 0.0 {
        true => (((x - from[0]) * along[0] + (y - from[1]) * along[1]) / length).clamp(0.0, 1.0),
        false => 0.0,
    };
    (x - from[0] - part * along[0]).hypot(y - from[1] - part * along[1])
}

/// The strokes of a line with gaps.
fn dashed(points: &[Place], dash: &[f64]) -> Vec<Vec<Place>> {
    let (mut parts, mut part): (Vec<Vec<Place>>, Vec<Place>) = (Vec::new(), Vec::new());
    let (mut number, mut left) = (0, dash[0]);
    for pair in points.windows(2) {
        let length = (pair[1][0] - pair[0][0]).hypot(pair[1][1] - pair[0][1]);
        let at = |along: f64| {
            let part = along / length.max(f64::MIN_POSITIVE);
            [pair[0][0] + part * (pair[1][0] - pair[0][0]), pair[0][1] + part * (pair[1][1] - pair[0][1])]
        };
        let mut along = 0.0;
        if number % 2 == 0 && part.is_empty() {
            part.push(pair[0]);
        }
        while length - along > left {
            along += left;
            part.push(at(along));
            if number % 2 == 0 {
                parts.push(std::mem::take(&mut part));
            } else {
                part = vec![at(along)];
            }
            number += 1;
            left = dash[number % dash.len()];
        }
        left -= length - along;
        if number % 2 == 0 {
            part.push(pair[1]);
        } else {
            part.clear();
        }
    }
    parts.extend((part.len() > 1).then_some(part));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(bitmap: &Bitmap, x: usize, y: usize) -> [u8; 3] {
        let at = 3 * (y * bitmap.width + x);
        [bitmap.bytes[at], bitmap.bytes[at + 1], bitmap.bytes[at + 2]]
    }

    #[test]
    fn what_is_drawn_covers_its_pixels_and_no_others() {
        let mut bitmap = Bitmap::new([20.0, 20.0]);
        bitmap.line(&[[2.0, 5.0], [18.0, 5.0]], Pen { colour: "#f00", width: 2.0, dash: &[] });
        assert_eq!(
            (at(&bitmap, 20, 10), at(&bitmap, 20, 14), at(&bitmap, 0, 10)),
            ([255, 0, 0], [255; 3], [255; 3])
        );
        bitmap.disc([10.0, 14.0], 3.0, "#0000ff");
        assert_eq!((at(&bitmap, 20, 28), at(&bitmap, 28, 28)), ([0, 0, 255], [255; 3]));
        // Both ways around.
        for corners in [
            [[1.0, 9.0], [5.0, 9.0], [5.0, 13.0], [1.0, 13.0]],
            [[1.0, 13.0], [5.0, 13.0], [5.0, 9.0], [1.0, 9.0]],
        ] {
            let mut bitmap = Bitmap::new([20.0, 20.0]);
            bitmap.shape(&corners, "#0f0");
            assert_eq!((at(&bitmap, 6, 22), at(&bitmap, 14, 22)), ([0, 255, 0], [255; 3]));
        }
        let mut png = Vec::new();
        bitmap.write_png(&mut png).unwrap();
        let read = image::load_from_memory(&png).unwrap().to_rgb8();
        assert_eq!((read.width(), read.height(), read.into_raw()), (40, 40, bitmap.bytes));
    }

    #[test]
    fn gaps_stay_open() {
        let parts = dashed(&[[0.0, 0.0], [5.0, 0.0], [20.0, 0.0]], &[6.0, 3.0]);
        assert_eq!(
            parts,
            [
                vec![[0.0, 0.0], [5.0, 0.0], [6.0, 0.0]],
                vec![[9.0, 0.0], [15.0, 0.0]],
                vec![[18.0, 0.0], [20.0, 0.0]]
            ]
        );
    }

    #[test]
    fn joints_are_painted_once() {
        // Half-covered pixels at a joint would be darker if both pieces painted them.
        let mut bent = Bitmap::new([20.0, 20.0]);
        bent.line(&[[2.0, 5.25], [10.0, 5.25], [18.0, 5.25]], Pen::thin("#000"));
        let mut straight = Bitmap::new([20.0, 20.0]);
        straight.line(&[[2.0, 5.25], [18.0, 5.25]], Pen::thin("#000"));
        assert_eq!(bent.bytes, straight.bytes);
    }

    #[test]
    fn words_stand_where_they_should() {
        for (anchor, ink) in [(Anchor::Start, 19..50), (Anchor::End, 0..22), (Anchor::Middle, 5..35)] {
            let mut bitmap = Bitmap::new([30.0, 20.0]);
            bitmap.text("ab", [10.0, 15.0], Words::small(anchor, "#000"));
            let columns: Vec<usize> =
                (0..60).filter(|&x| (0..40).any(|y| at(&bitmap, x, y)[0] < 128)).collect();
            assert!(columns.len() > 5 && columns.iter().all(|x| ink.contains(x)), "{anchor:?}: {columns:?}");
        }
    }
}
