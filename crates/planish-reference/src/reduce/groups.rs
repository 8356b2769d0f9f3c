//! Groups: the elements that a reduction brings together, one group per element of the result.

use planish_tensor::DType;

use crate::{EvalError, Evaluation, nd};

/// How the elements of a row-major tensor fall into groups along the reduced axes.
pub(crate) struct Groups {
    /// The shape of the results with reduced axes kept as 1.
    keepdims_shape: Vec<usize>,
    /// The shape of the results without the reduced axes.
    kept_shape: Vec<usize>,
    kept_strides: Vec<usize>,
    n_groups: usize,
    /// Where the members of a group lie, counted from its first.
    offsets: Vec<usize>,
}

/// The members of one group.
#[derive(Clone, Copy)]
pub(crate) struct Group<'a, T> {
    values: &'a [T],
    base: usize,
    offsets: &'a [usize],
}

impl<'a, T: Copy> Group<'a, T> {
    pub(crate) fn iter(self) -> impl Iterator<Item = T> + Clone + 'a {
        self.offsets.iter().map(move |offset| self.values[self.base + offset])
    }

    pub(crate) fn len(self) -> usize {
        self.offsets.len()
    }
}

impl Groups {
    /// The groups of a tensor of this shape; `reduced` says for each axis whether it is reduced. `dtype` is
    /// the type of the results, whose size is checked.
    pub(crate) fn new(
        cx: &Evaluation<'_>,
        shape: &[usize],
        reduced: &[bool],
        dtype: DType,
    ) -> Result<Groups, EvalError> {
        let pick = |values: &[usize], wanted: bool| -> Vec<usize> {
            values.iter().zip(reduced).filter(|(_, r)| **r == wanted).map(|(value, _)| *value).collect()
        };
        let keepdims_shape = shape.iter().zip(reduced).map(|(&dim, &r)| if r { 1 } else { dim }).collect();
        let kept_shape = pick(shape, false);
        let n_groups = nd::output_len(cx, dtype, &kept_shape)?;
        // Strides of an empty tensor may overflow, and nothing is read through them.
        if shape.contains(&0) {
            let kept_strides = vec![0; kept_shape.len()];
            return Ok(Groups { keepdims_shape, kept_shape, kept_strides, n_groups, offsets: Vec::new() });
        }
        let strides = nd::strides(shape);
        let reduced_shape = pick(shape, true);
        let mut offsets = vec![0; nd::count(&reduced_shape)];
        let all = 0..offsets.len();
        nd::for_each_offset(&reduced_shape, &pick(&strides, true), all, |idx, offset| offsets[idx] = offset);
        let kept_strides = pick(&strides, false);
        Ok(Groups { keepdims_shape, kept_shape, kept_strides, n_groups, offsets })
    }

    /// The shape of the results.
    pub(crate) fn result_shape(&self, keepdims: bool) -> &[usize] {
        if keepdims { &self.keepdims_shape } else { &self.kept_shape }
    }

    /// One result per group, in row-major order, in parallel.
    pub(crate) fn fold<T, R>(&self, values: &[T], fold: impl Fn(Group<'_, T>) -> R + Sync) -> Vec<R>
    where
        T: Copy + Sync,
        R: Copy + Default + Send,
    {
        nd::fill_blocks(self.n_groups, 1, self.offsets.len(), |idx, out| {
            out[0] = fold(Group { values, base: self.base(idx), offsets: &self.offsets });
        })
    }

    /// Where group `idx` starts.
    fn base(&self, mut idx: usize) -> usize {
        let mut base = 0;
        for (dim, stride) in self.kept_shape.iter().zip(&self.kept_strides).rev() {
            base += idx % dim * stride;
            idx /= dim;
        }
        base
    }
}
