//! NonMaxSuppression of f32: a box is compared with those that were kept, a vector of them at a time.
//!
//! The arithmetic is the reference's, in the same order, so that a box whose overlap is the threshold itself is kept or not
//! kept by both.

use std::cmp::Ordering;

use planish_op::NonMaxSuppression;
use planish_tensor::{DType, Tensor};

use crate::isa::Isa;
use crate::simd::{Simd, SimdKernel};

/// Lanes of the widest vector: kept boxes are filled up to a multiple of it.
const LANES: usize = 16;

/// Which boxes are kept; `None` for what the reference is to compute, or to refuse.
pub(super) fn suppressed(
    isa: Isa,
    op: &NonMaxSuppression,
    inputs: &[Option<&Tensor>],
    max_bytes: usize,
) -> Option<Tensor> {
    let at = |place: usize| inputs.get(place).copied().flatten();
    let (boxes, scores) = (at(0)?, at(1)?);
    let (&[n_batches, n_boxes, 4], &[batches, n_classes, scored]) = (boxes.shape(), scores.shape()) else {
        return None;
    };
    let of_f32 = |tensor: Option<&Tensor>| tensor.is_none_or(|tensor| tensor.dtype() == DType::F32);
    let fits = n_batches == batches
        && n_boxes == scored
        && [Some(boxes), Some(scores), at(3), at(4)].into_iter().all(of_f32)
        && at(2).is_none_or(|limit| limit.dtype() == DType::I64);
    if !fits {
        return None;
    }
    let first = |place: usize| -> Option<Option<f32>> {
        let Some(tensor) = at(place) else { return Some(None) };
        Some(tensor.elements::<f32>().ok()?.first().copied())
    };
    let limit = at(2).and_then(|limit| limit.to_i64s().first().copied()).unwrap_or(0);
    let limit = usize::try_from(limit).unwrap_or(0);
    let threshold = first(3)?.unwrap_or(0.0);
    let least = first(4)?;
    if !(0.0..=1.0).contains(&threshold) {
        return None;
    }
    let corners = boxes.elements::<f32>().ok()?;
    // Minima and maxima of vectors pass on what is no number, those of the reference do not.
    if corners.iter().any(|corner| corner.is_nan()) {
        return None;
    }
    let areas: Vec<Area> = corners
        .chunks_exact(4)
        .map(|corners| Area::new([0, 1, 2, 3].map(|at| corners[at]), op.center_point_box))
        .collect();
    let scores = scores.elements::<f32>().ok()?;
    let mut selected: Vec<i64> = Vec::new();
    for class in 0..n_batches * n_classes {
        let scores = &scores[class * n_boxes..][..n_boxes];
        let batch = class / n_classes;
        let areas = &areas[batch * n_boxes..][..n_boxes];
        // What is no number has no order that a sort would keep to.
        if scores.iter().any(|score| score.is_nan()) {
            return None;
        }
        let mut candidates: Vec<usize> =
            (0..n_boxes).filter(|at| least.is_none_or(|least| scores[*at] > least)).collect();
        // Best score first; equal scores in the order of the boxes.
        candidates.sort_by(|&a, &b| scores[b].partial_cmp(&scores[a]).unwrap_or(Ordering::Equal));
        let mut kept = Kept::default();
        for candidate in candidates {
            if kept.n >= limit {
                break;
            }
            if !isa.run(Overlap { area: areas[candidate], kept: &kept, threshold }) {
                kept.push(areas[candidate]);
                selected.extend([batch as i64, (class % n_classes) as i64, candidate as i64]);
            }
        }
        if selected.len().saturating_mul(size_of::<i64>()) > max_bytes {
            return None;
        }
    }
    Tensor::new(&[selected.len() / 3, 3], selected).ok()
}

/// A box by its edges.
#[derive(Clone, Copy, Debug)]
struct Area {
    x: (f32, f32),
    y: (f32, f32),
}

impl Area {
    /// From two opposite corners `[y1, x1, y2, x2]`, or `[x, y, width, height]` around a centre.
    fn new([a, b, c, d]: [f32; 4], is_centered: bool) -> Area {
        if is_centered {
            let (half_width, half_height) = (c / 2.0, d / 2.0);
            return Area { x: (a - half_width, a + half_width), y: (b - half_height, b + half_height) };
        }
        let ordered = |from: f32, to: f32| if from <= to { (from, to) } else { (to, from) };
        Area { x: ordered(b, d), y: ordered(a, c) }
    }

    fn size(&self) -> f32 {
        (self.x.1 - self.x.0) * (self.y.1 - self.y.0)
    }
}

/// Boxes that are kept: low and high edges along x and y, and sizes, filled up with boxes that overlap nothing.
#[derive(Debug, Default)]
struct Kept {
    n: usize,
    numbers: [Vec<f32>; 5],
}

impl Kept {
    fn push(&mut self, area: Area) {
        if self.n.is_multiple_of(LANES) {
            self.numbers.iter_mut().for_each(|list| list.resize(self.n + LANES, 0.0));
        }
        let numbers = [area.x.0, area.x.1, area.y.0, area.y.1, area.size()];
        self.numbers.iter_mut().zip(numbers).for_each(|(list, number)| list[self.n] = number);
        self.n += 1;
    }
}

/// Whether a box overlaps one of those that are kept by more than the threshold.
struct Overlap<'a> {
    area: Area,
    kept: &'a Kept,
    threshold: f32,
}

impl SimdKernel for Overlap<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> bool {
        let Overlap { area, kept, threshold } = self;
        let size = area.size();
        if size.is_nan() || size <= 0.0 {
            return false;
        }
        let [left, right, top, bottom, sizes] = &kept.numbers;
        let own = [area.x.0, area.x.1, area.y.0, area.y.1, size].map(|number| s.splat(number));
        let (zero, threshold) = (s.zero(), s.splat(threshold));
        let n = kept.n.next_multiple_of(LANES).min(left.len());
        for at in (0..n).step_by(S::LANES) {
            // SAFETY: all lists have a multiple of the widest vector's lanes.
            let other =
                unsafe { [left, right, top, bottom, sizes].map(|list| s.load(list.as_ptr().add(at))) };
            let width = s.sub(s.min(own[1], other[1]), s.max(own[0], other[0]));
            let height = s.sub(s.min(own[3], other[3]), s.max(own[2], other[2]));
            let intersection = s.mul(width, height);
            let union = s.sub(s.add(own[4], other[4]), intersection);
            let mut meets = s.mask_and(s.lt(zero, width), s.lt(zero, height));
            for positive in [intersection, other[4], union] {
                meets = s.mask_and(meets, s.lt(zero, positive));
            }
            if s.any(s.mask_and(meets, s.lt(threshold, s.div(intersection, union)))) {
                return true;
            }
        }
        false
    }
}
