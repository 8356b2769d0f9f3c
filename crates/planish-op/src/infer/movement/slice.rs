//! Slice: the length of each axis as an expression over the starts, ends and steps.

use planish_tensor::{Dim, Shape};

use super::{List, unranked};
use crate::infer::checks::checked_dim;
use crate::infer::known::{Known, with_known};
use crate::infer::{InferError, InferResult, Inference, Inferred};

/// Bounds from here on mean "to the end" (exporters write the largest 32- or 64-bit integer): no axis whose
/// size is not a number is taken to be this long.
const FAR: i64 = i32::MAX as i64;

pub(in crate::infer) fn slice(_op: &crate::Slice, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    let (starts, ends) = (List::of(cx, 1)?, List::of(cx, 2)?);
    let axes = if cx.has_input(3) { Some(List::of(cx, 3)?) } else { None };
    let steps = if cx.has_input(4) { Some(List::of(cx, 4)?) } else { None };
    let mut lens = [Some(&starts), Some(&ends), axes.as_ref(), steps.as_ref()]
        .into_iter()
        .filter_map(|list| list.and_then(List::len));
    let n_axes = lens.next();
    if lens.any(|len| Some(len) != n_axes) {
        return Err(cx.bad_shape("starts, ends, axes and steps differ in length"));
    }
    let Some(shape) = cx.shape(0)? else { return Ok(unranked(dtype)) };
    let axes = match (&axes, n_axes) {
        (Some(axes), _) => axes.numbers(),
        (None, Some(n_axes)) => Some((0..n_axes as i64).collect()),
        (None, None) => None,
    };
    let Some(axes) = axes else {
        // Any axis may be cut.
        let shape = cx.fresh_shape(shape.rank(), "slice");
        return Ok(vec![Inferred::tensor(dtype, shape)]);
    };
    let axes = cx.distinct_axes(&axes, shape.rank())?;
    let mut dims = shape.dims().to_vec();
    for (idx, &axis) in axes.iter().enumerate() {
        let step = steps.as_ref().map_or(Some(&Dim::ONE), |steps| steps.get(idx));
        if step.is_some_and(|step| *step == Dim::ZERO) {
            return Err(cx.bad_shape(format!("the step of axis {axis} is 0")));
        }
        let len = sliced_len(&dims[axis], starts.get(idx), ends.get(idx), step.and_then(Dim::as_const));
        dims[axis] = checked_dim(cx, len.unwrap_or(Dim::UNKNOWN), "slice")?;
    }
    let sliced = Shape::new(dims);
    let known = known_slice(cx, &sliced, &axes, &starts, steps.as_ref())?;
    Ok(vec![with_known(dtype, sliced, known)])
}

/// The elements that are taken, if starts and steps are numbers (the lengths are in `sliced`).
fn known_slice(
    cx: &Inference<'_>,
    sliced: &Shape,
    axes: &[usize],
    starts: &List,
    steps: Option<&List>,
) -> Result<Option<Known>, InferError> {
    let steps = steps.map_or_else(|| Some(vec![1; axes.len()]), List::numbers);
    let (Some(known), Some(fixed), Some(starts), Some(steps)) =
        (Known::of(cx, 0), sliced.as_fixed(), starts.numbers(), steps)
    else {
        return Ok(None);
    };
    let mut walks = vec![(0i128, 1i128); fixed.len()];
    for ((&axis, &start), &step) in axes.iter().zip(&starts).zip(&steps) {
        let dim = known.shape[axis] as i128;
        let from_front = i128::from(start) + if start < 0 { dim } else { 0 };
        let last = if step > 0 { dim } else { dim - 1 };
        walks[axis] = (from_front.clamp(0, last.max(0)), i128::from(step));
    }
    Ok(known.indexed(&fixed, |index| {
        let place =
            |(&idx, &(start, step)): (&usize, &(i128, i128))| usize::try_from(start + idx as i128 * step);
        index.iter().zip(&walks).map(|walk| place(walk).ok()).collect()
    }))
}

/// A start or end counted from the front, before clamping.
enum Bound {
    At(Dim),
    /// Before everything.
    Front,
    /// After everything.
    Back,
}

impl Bound {
    /// `None` if it is not known whether the bound counts from the front or from the back.
    fn new(bound: &Dim, dim: &Dim) -> Option<Bound> {
        if let Some(value) = bound.as_const() {
            return Some(match dim.as_const() {
                _ if value >= FAR && dim.as_const().is_none_or(|dim| dim <= value) => Bound::Back,
                _ if value <= -FAR && dim.as_const().is_none_or(|dim| dim <= -(value.max(-i64::MAX))) => {
                    Bound::Front
                }
                _ if value < 0 => Bound::At(dim + value),
                _ => Bound::At(value.into()),
            });
        }
        // `dim - 1` is negative only if there is nothing to take.
        if bound.is_nonnegative() || *bound == dim - 1 {
            return Some(Bound::At(bound.clone()));
        }
        (-bound - 1).is_nonnegative().then(|| Bound::At(dim + bound))
    }
}

/// The number of places that a slice takes of an axis; `None` if that is not known.
fn sliced_len(dim: &Dim, start: Option<&Dim>, end: Option<&Dim>, step: Option<i64>) -> Option<Dim> {
    if *dim == Dim::ZERO {
        return Some(Dim::ZERO);
    }
    let (start, end) = (Bound::new(start?, dim)?, Bound::new(end?, dim)?);
    let step = step?;
    let span = if step > 0 { forward_span(dim, start, end) } else { backward_span(dim, start, end) };
    // The smallest number has no positive twin; as a step it takes one place, like the largest.
    let step = Dim::from(step.checked_abs().unwrap_or(i64::MAX));
    Some(span.ceil_div(&step).max(&Dim::ZERO))
}

/// `clamp(end, 0, dim) - clamp(start, 0, dim)`, or something negative where that is negative.
///
/// It is `min(end, dim) - max(start, 0)`, written as the least of the four differences so that `dim`
/// cancels where it can: the last three of an axis are `min(3, dim)`.
fn forward_span(dim: &Dim, start: Bound, end: Bound) -> Dim {
    let end = match end {
        Bound::Front => return Dim::ZERO,
        Bound::Back => vec![dim.clone()],
        Bound::At(end) => vec![end, dim.clone()],
    };
    let spans: Vec<Dim> = match start {
        Bound::Back => return Dim::ZERO,
        Bound::Front => end,
        Bound::At(start) if start.is_nonnegative() => end.iter().map(|end| end - &start).collect(),
        Bound::At(start) => end.iter().map(|end| end - &start).chain(end.iter().cloned()).collect(),
    };
    spans.into_iter().reduce(|least, span| least.min(&span)).unwrap_or(Dim::ZERO)
}

/// `clamp(start, 0, dim-1) - clamp(end, -1, dim-1)`.
fn backward_span(dim: &Dim, start: Bound, end: Bound) -> Dim {
    let last = dim - 1;
    let start = match start {
        Bound::Back => last.clone(),
        Bound::At(start) if (&start - &last).is_nonnegative() => last.clone(),
        Bound::At(start) => start.max(&Dim::ZERO).min(&last),
        Bound::Front => Dim::ZERO.min(&last),
    };
    let end = match end {
        Bound::Back => last,
        Bound::At(end) => end.min(&last).max(&Dim::from(-1)),
        Bound::Front => Dim::from(-1),
    };
    start - end
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition on numbers.
    fn counted(dim: i64, start: i64, end: i64, step: i64) -> i64 {
        if dim == 0 {
            return 0;
        }
        let front = |place: i64| if place < 0 { place + dim } else { place };
        let (mut place, end) = if step > 0 {
            (front(start).clamp(0, dim), front(end).clamp(0, dim))
        } else {
            (front(start).clamp(0, dim - 1), front(end).clamp(-1, dim - 1))
        };
        let mut count = 0;
        while if step > 0 { place < end } else { place > end } {
            place += step;
            count += 1;
        }
        count
    }

    /// Every bound as an expression that has the value of the number when the symbols are bound.
    #[test]
    fn lengths_have_the_value_of_the_definition() {
        let (d, s, e) = (Dim::symbol("d"), Dim::symbol("s"), Dim::symbol("e"));
        for (dim, start, end, step) in
            (0..5 * 13 * 13 * 6).map(|n| (n % 5, n / 5 % 13 - 6, n / 65 % 13 - 6, n / 845))
        {
            let step = [1, 2, 3, -1, -2, -4][step as usize];
            let expected = counted(dim, start, end, step);
            let values = |name: &str| match name {
                "d" => Some(dim),
                "s" => Some(if start < 0 { -start - 1 } else { start }),
                _ => Some(if end < 0 { -end - 1 } else { end }),
            };
            // Negative bounds are written as `-s - 1`, which is negative whatever `s` is.
            let start_symbol = if start < 0 { -&s - 1 } else { s.clone() };
            let end_symbol = if end < 0 { -&e - 1 } else { e.clone() };
            for dim in [d.clone(), Dim::from(dim)] {
                for start in [Dim::from(start), start_symbol.clone()] {
                    for end in [Dim::from(end), end_symbol.clone()] {
                        let len = sliced_len(&dim, Some(&start), Some(&end), Some(step)).unwrap();
                        let text = format!("{dim}[{start}:{end}:{step}] -> {len}");
                        assert_eq!(len.eval(&values), Some(expected), "{text}");
                    }
                }
            }
        }
    }

    #[test]
    fn common_slices_are_short_expressions() {
        let len = |dim: &str, start: &str, end: &str, step: i64| {
            let parse = |text: &str| text.parse::<Dim>().unwrap();
            let len = sliced_len(&parse(dim), Some(&parse(start)), Some(&parse(end)), Some(step));
            len.map_or("?".to_string(), |len| len.to_string())
        };
        let max = "9223372036854775807";
        assert_eq!(len("n", "0", max, 1), "n");
        assert_eq!(len("n", "0", "2147483647", 1), "n");
        assert_eq!(len("n", "-3", max, 1), "min(3,n)");
        assert_eq!(len("n", "0", "1", 1), "min(1,n)");
        assert_eq!(len("n", "1", max, 1), "max(0,n-1)");
        assert_eq!(len("n", "0", "-1", 1), "max(0,n-1)");
        assert_eq!(len("n", "0", "n-1", 1), "max(0,n-1)");
        assert_eq!(len("n+1", "1", max, 1), "n");
        assert_eq!(len("n", "0", max, 2), "floordiv(n+1,2)");
        assert_eq!(len("n", "-1", "-9223372036854775808", -1), "n");
        assert_eq!(len("n", max, "-2147483648", -1), "n");
        assert_eq!(len("past+seq", "past", "past+seq", 1), "seq");
        assert_eq!(len("past+seq", "past", max, 1), "seq");
        assert_eq!(len("512", "0", "seq", 1), "min(512,seq)");
        // It may count from either side.
        assert_eq!(len("n", "a-b", max, 1), "?");
        assert_eq!(len("n", "n-4", max, 1), "?");
    }

    #[test]
    fn extreme_bounds_do_not_overflow() {
        for dim in [Dim::symbol("n"), Dim::from(5), Dim::from(i64::MAX)] {
            for bound in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX] {
                for step in [i64::MIN, -1, 1, i64::MAX] {
                    let bound = Dim::from(bound);
                    let len = sliced_len(&dim, Some(&bound), Some(&bound), Some(step));
                    assert!(len.is_some_and(|len| len.as_const().is_none_or(|len| len >= 0)));
                }
            }
        }
    }
}
