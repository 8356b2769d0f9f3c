//! Where windows lie: along every axis at multiples of an interval, the last one moved back to end with the image.

use super::Padding;
use crate::{Error, ErrorKind};

/// One axis of pixels.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Axis {
    /// Of the image.
    pub(super) size: usize,
    /// Of a window.
    pub(super) roi: usize,
    /// Pixels before the image, where it is smaller than a window.
    pub(super) before: usize,
    /// Where windows begin, in the padded image.
    pub(super) starts: Vec<usize>,
    /// For every pixel of the padded image the one of the image that it shows; `None` for constant padding.
    pub(super) sources: Vec<Option<usize>>,
}

impl Axis {
    pub(super) fn new(size: usize, roi: usize, overlap: f64, padding: Padding) -> Result<Axis, Error> {
        let missing = roi.saturating_sub(size);
        let (before, padded) = (missing / 2, size.max(roi));
        let after = missing - before;
        let most = match padding {
            Padding::Reflect => size - 1,
            Padding::Circular => size,
            Padding::Constant | Padding::Replicate => usize::MAX,
        };
        if after > most {
            let message = format!(
                "an axis of {size} pixels cannot be continued by {after} to fill a window of {roi}; pad with a constant \
                 or replicate"
            );
            return Err(Error::new(ErrorKind::BadOption, message));
        }
        let source = |at: usize| {
            let at = at as isize - before as isize;
            let (end, inside) = (size as isize, (0..size as isize).contains(&at));
            let shown = match padding {
                _ if inside => at,
                Padding::Constant => return None,
                Padding::Replicate => at.clamp(0, end - 1),
                Padding::Circular => at.rem_euclid(end),
                Padding::Reflect if at < 0 => -at,
                Padding::Reflect => 2 * (end - 1) - at,
            };
            Some(shown as usize)
        };
        let sources = (0..padded).map(source).collect();
        Ok(Axis { size, roi, before, starts: starts(padded, roi, overlap), sources })
    }

    pub(super) fn is_padded(&self) -> bool {
        self.roi > self.size
    }

    /// The size of the padded image.
    pub(super) fn padded(&self) -> usize {
        self.sources.len()
    }
}

/// Where windows of `roi` begin along an axis.
fn starts(size: usize, roi: usize, overlap: f64) -> Vec<usize> {
    if roi == size {
        return vec![0];
    }
    // Rounded down as MONAI does.
    let interval = ((roi as f64 * (1.0 - overlap)) as usize).max(1);
    let n = (size - roi).div_ceil(interval) + 1;
    (0..n).map(|idx| (idx * interval).min(size - roi)).collect()
}

/// All windows of an image, the last axis running fastest.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Grid {
    pub(super) axes: Vec<Axis>,
}

impl Grid {
    pub(super) fn roi(&self) -> Vec<usize> {
        self.axes.iter().map(|axis| axis.roi).collect()
    }

    pub(super) fn n_windows(&self) -> usize {
        self.axes.iter().map(|axis| axis.starts.len()).product()
    }

    /// The number of window `idx` along each axis.
    pub(super) fn places(&self, idx: usize) -> Vec<usize> {
        let mut places = vec![0; self.axes.len()];
        let mut left = idx;
        for (place, axis) in places.iter_mut().zip(&self.axes).rev() {
            (*place, left) = (left % axis.starts.len(), left / axis.starts.len());
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_lie_where_monai_puts_them() {
        // By hand from the definition: intervals of int(roi * (1 - overlap)), the last window moved back.
        assert_eq!(starts(10, 4, 0.5), [0, 2, 4, 6]);
        assert_eq!(starts(11, 4, 0.5), [0, 2, 4, 6, 7]);
        assert_eq!(starts(10, 4, 0.25), [0, 3, 6]);
        assert_eq!(starts(10, 4, 0.0), [0, 4, 6]);
        assert_eq!(starts(10, 10, 0.9), [0]);
        assert_eq!(starts(4, 3, 0.99), [0, 1]);
        assert_eq!(starts(4096, 256, 0.5).len(), 31);
        let grid = Grid {
            axes: vec![
                Axis::new(5, 4, 0.0, Padding::Constant).unwrap(),
                Axis::new(9, 4, 0.5, Padding::Constant).unwrap(),
            ],
        };
        assert_eq!(grid.n_windows(), 8);
        assert_eq!((grid.places(3), grid.places(4)), (vec![0, 3], vec![1, 0]));
    }

    #[test]
    fn small_images_stand_in_the_middle() {
        let sources = |size, roi, padding| {
            let axis = Axis::new(size, roi, 0.5, padding).unwrap();
            axis.sources.iter().map(|source| source.map_or(9, |idx| idx)).collect::<Vec<_>>()
        };
        assert_eq!(sources(3, 8, Padding::Constant), [9, 9, 0, 1, 2, 9, 9, 9]);
        assert_eq!(sources(4, 9, Padding::Reflect), [2, 1, 0, 1, 2, 3, 2, 1, 0]);
        assert_eq!(sources(3, 8, Padding::Replicate), [0, 0, 0, 1, 2, 2, 2, 2]);
        assert_eq!(sources(3, 8, Padding::Circular), [1, 2, 0, 1, 2, 0, 1, 2]);
        assert!(Axis::new(3, 8, 0.5, Padding::Reflect).is_err());
        assert!(Axis::new(3, 11, 0.5, Padding::Circular).is_err());
    }
}
