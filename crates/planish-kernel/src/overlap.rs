//! Whether two operands in one memory share bytes.
//!
//! Parts of one value interleave (two halves of the channels of a channels-last image lie within each other's
//! spans), so spans alone do not tell. Strides do: where both step alike, only the steps that bring the two close
//! are looked at, stride by stride from the largest.

use crate::Operand;

/// An operand in a memory, and how many bytes into it it begins.
#[derive(Clone, Copy, Debug)]
pub struct Within<'a> {
    pub operand: &'a Operand,
    pub offset: usize,
}

/// Places that are looked at one by one where strides differ; beyond, operands count as sharing bytes.
const MOST_STEPS: usize = 1 << 12;

impl Within<'_> {
    /// Whether some byte belongs to both. Never false where one does; may be true where strides have nothing in
    /// common and nobody can tell quickly.
    pub fn shares_bytes(&self, other: &Within<'_>) -> bool {
        if self.operand.is_empty() || other.operand.is_empty() {
            return false;
        }
        let (a, b) = (Runs::of(self), Runs::of(other));
        let mut budget = MOST_STEPS;
        meet((a.at, &a.steps), a.run, (b.at, &b.steps), b.run, &mut budget)
    }

    /// Whether both are the same elements of the same type at the same places.
    pub fn is_same_place(&self, other: &Within<'_>) -> bool {
        let (a, b) = (self.operand, other.operand);
        self.offset == other.offset
            && a.dtype == b.dtype
            && a.dims == b.dims
            && (0..a.rank()).all(|axis| a.dims[axis] <= 1 || a.strides[axis] == b.strides[axis])
    }
}

/// Runs of bytes, repeated along strides. Wider than any product of sizes, so that nothing wraps.
struct Runs {
    at: i128,
    /// Bytes of one run.
    run: i128,
    /// Counts and strides in bytes, the largest stride first.
    steps: Vec<(i128, i128)>,
}

impl Runs {
    fn of(within: &Within<'_>) -> Runs {
        let operand = within.operand;
        let at = within.offset as i128;
        // Elements that share bytes lie side by side; a packed weight is one piece.
        let Some(size) = operand.dtype.bytes_for(1).filter(|_| !operand.dtype.is_sub_byte()) else {
            return Runs { at, run: operand.span_bytes() as i128, steps: Vec::new() };
        };
        let mut dims: Vec<(i128, i128)> = operand
            .dims
            .iter()
            .zip(&operand.strides)
            .filter(|(dim, _)| **dim > 1)
            .map(|(dim, stride)| (*dim as i128, *stride as i128 * size as i128))
            .collect();
        dims.sort_by_key(|(_, stride)| *stride);
        let mut run = size as i128;
        let mut steps: Vec<(i128, i128)> = Vec::new();
        for (dim, stride) in dims {
            match steps.last_mut() {
                None if stride == run => run *= dim,
                Some((count, inner)) if stride == *count * *inner => *count *= dim,
                _ => steps.push((dim, stride)),
            }
        }
        steps.reverse();
        Runs { at, run, steps }
    }
}

/// Bytes from the first to after the last.
fn span(steps: &[(i128, i128)], run: i128) -> i128 {
    steps.iter().map(|(count, stride)| (count - 1) * stride).sum::<i128>() + run
}

type Steps<'a> = (i128, &'a [(i128, i128)]);

fn meet(a: Steps<'_>, a_run: i128, b: Steps<'_>, b_run: i128, budget: &mut usize) -> bool {
    let (a_span, b_span) = (span(a.1, a_run), span(b.1, b_run));
    if a.0 + a_span <= b.0 || b.0 + b_span <= a.0 {
        return false;
    }
    if *budget == 0 {
        return true;
    }
    *budget -= 1;
    match (a.1.split_first(), b.1.split_first()) {
        (None, None) => true,
        (Some((&(a_count, stride), a_rest)), Some((&(b_count, b_stride), b_rest)))
            if stride == b_stride && span(a_rest, a_run) <= stride && span(b_rest, b_run) <= stride =>
        {
            // Step `i` of one and `i + shift` of the other meet alike for all `i`, and only at the two shifts that
            // bring them nearer to each other than a stride.
            let nearest = (a.0 - b.0).div_euclid(stride);
            [nearest, nearest + 1].into_iter().any(|shift| {
                (-(a_count - 1)..b_count).contains(&shift)
                    && meet((a.0, a_rest), a_run, (b.0 + shift * stride, b_rest), b_run, budget)
            })
        }
        (Some((&(_, stride), _)), Some((&(_, b_stride), _))) if stride < b_stride => {
            meet(b, b_run, a, a_run, budget)
        }
        (None, Some(_)) => meet(b, b_run, a, a_run, budget),
        // One after the other, those that come near.
        (Some((&(count, stride), rest)), _) => {
            let inner = span(rest, a_run);
            let first = (b.0 - a.0 - inner).div_euclid(stride.max(1)).clamp(0, count - 1);
            let last = (b.0 + b_span - a.0).div_euclid(stride.max(1)).clamp(0, count - 1);
            (first..=last).any(|step| meet((a.0 + step * stride, rest), a_run, b, b_run, budget))
        }
    }
}

#[cfg(test)]
mod tests {
    use planish_tensor::DType;

    use super::*;
    use crate::Layout;

    fn operand(dims: &[usize], strides: &[usize]) -> Operand {
        Operand { strides: strides.to_vec(), ..Operand::dense(DType::F32, dims, Layout::Plain) }
    }

    fn bytes(within: &Within<'_>) -> Vec<usize> {
        let Operand { dims, strides, .. } = within.operand;
        let mut bytes = Vec::new();
        for flat in 0..within.operand.len() {
            let mut rest = flat;
            let mut at = 0;
            for axis in (0..dims.len()).rev() {
                at += rest % dims[axis] * strides[axis];
                rest /= dims[axis];
            }
            bytes.extend((0..4).map(|byte| within.offset + 4 * at + byte));
        }
        bytes
    }

    #[test]
    fn parts_of_channels_interleave_without_meeting() {
        let strides = Layout::ChannelsLast.strides(&[2, 8, 5, 5]);
        let (left, right) = (operand(&[2, 3, 5, 5], &strides), operand(&[2, 5, 5, 5], &strides));
        let at = |operand, offset| Within { operand, offset };
        assert!(!at(&left, 0).shares_bytes(&at(&right, 12)));
        assert!(at(&left, 0).shares_bytes(&at(&right, 8)));
        assert!(at(&left, 0).is_same_place(&at(&left, 0)));
        assert!(!at(&left, 0).is_same_place(&at(&right, 0)));
    }

    /// Random boxes of random memories against byte by byte: never false where bytes are shared, and exact where
    /// both have the strides of one memory.
    #[test]
    fn agrees_with_counting_bytes() {
        let mut random = planish_testing::Random::new(11);
        let mut next = |n: usize| random.below(n);
        let (mut n_apart, mut n_shared) = (0, 0);
        for _ in 0..4000 {
            let whole = [1 + next(3), 1 + next(4), 1 + next(4), 1 + next(3)];
            let mut part = |layout: Layout| {
                let strides = layout.strides(&whole);
                let mut first = 0;
                let mut dims = Vec::new();
                for axis in 0..4 {
                    let start = next(whole[axis]);
                    first += start * strides[axis];
                    dims.push(1 + next(whole[axis] - start));
                }
                (operand(&dims, &strides), 4 * first)
            };
            let layouts = [Layout::Plain, Layout::ChannelsLast];
            let (one, two) = (layouts[usize::from(whole[0] == 2)], layouts[usize::from(whole[1] == 3)]);
            let ((a, a_at), (b, b_at)) = (part(one), part(two));
            let (a, b) = (Within { operand: &a, offset: a_at }, Within { operand: &b, offset: b_at });
            let (in_a, in_b) = (bytes(&a), bytes(&b));
            let truth = in_a.iter().any(|byte| in_b.contains(byte));
            let said = a.shares_bytes(&b);
            assert_eq!(said, b.shares_bytes(&a));
            assert!(said || !truth, "{a:?} {b:?}");
            if one == two {
                assert_eq!(said, truth, "{a:?} {b:?}");
            }
            *(if truth { &mut n_shared } else { &mut n_apart }) += 1;
        }
        assert!(n_apart > 500 && n_shared > 500, "{n_apart} apart, {n_shared} shared");
    }

    #[test]
    fn sizes_beyond_memory_do_not_wrap() {
        let huge = operand(&[1 << 62, 3], &[1 << 62, 1]);
        let at = |offset| Within { operand: &huge, offset };
        assert!(at(0).shares_bytes(&at(4)));
        assert!(!at(0).shares_bytes(&at(12)));
    }
}
