//! How a value lies in memory: type, sizes in the order the operator sees them, and strides.

use std::slice::SliceIndex;

use planish_tensor::{DType, Shape};

/// The order in which the dimensions of a value lie in memory. Sizes are always given as the operator sees
/// them (`N, C, spatial…`); the layout decides only where elements are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Layout {
    /// The last dimension is innermost.
    Plain,
    /// The second dimension is innermost: `N, spatial…, C`.
    ChannelsLast,
}

impl Layout {
    /// As it stands in plans and timing caches.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Plain => "plain",
            Layout::ChannelsLast => "channels_last",
        }
    }

    pub fn named(name: &str) -> Option<Layout> {
        [Layout::Plain, Layout::ChannelsLast].into_iter().find(|layout| layout.name() == name)
    }

    /// Axes from outermost to innermost.
    pub fn order(self, rank: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..rank).collect();
        if self == Layout::ChannelsLast && rank > 2 {
            order.remove(1);
            order.push(1);
        }
        order
    }

    /// Strides in elements of a dense value with these sizes.
    pub fn strides(self, dims: &[usize]) -> Vec<usize> {
        let mut strides = vec![0; dims.len()];
        let mut step = 1usize;
        for axis in self.order(dims.len()).into_iter().rev() {
            strides[axis] = step;
            // Sizes come from values that were allocated, so their product is below usize::MAX.
            step = step.saturating_mul(dims[axis].max(1));
        }
        strides
    }

    /// Whether both layouts put every element of this shape at the same place, whatever the symbols are.
    pub fn same_for_all(self, other: Layout, shape: &Shape) -> bool {
        let held = |layout: Layout| -> Vec<usize> {
            let counts = |axis: &usize| shape.dims()[*axis].as_const() != Some(1);
            layout.order(shape.rank()).into_iter().filter(counts).collect()
        };
        self == other || held(self) == held(other)
    }

    /// Whether both layouts put every element of these sizes at the same place.
    pub fn same_for(self, other: Layout, dims: &[usize]) -> bool {
        let (a, b) = (self.strides(dims), other.strides(dims));
        (0..dims.len()).all(|axis| dims[axis] <= 1 || a[axis] == b[axis])
    }
}

/// The layouts in which these operands differ: one, or both.
pub fn layouts_for(operands: &[Operand]) -> impl Iterator<Item = Layout> + use<> {
    let both = operands.iter().any(|operand| !Layout::Plain.same_for(Layout::ChannelsLast, &operand.dims));
    [Layout::Plain, Layout::ChannelsLast].into_iter().take(if both { 2 } else { 1 })
}

/// One input or output of a problem: where its elements are, relative to its address.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Operand {
    pub dtype: DType,
    pub dims: Vec<usize>,
    /// In elements, one per dimension. An operand inside a larger one (a slice, a part of a concatenation)
    /// has the strides of the larger.
    pub strides: Vec<usize>,
    /// Known at build time: a weight, which may be packed.
    pub constant: bool,
    /// A weight that a product of the region reads, whose elements are 2:4 sparse along the sum
    /// ([`planish_op::two_of_four`]): tactics may count on it.
    pub two_of_four: bool,
    /// The format that a weight was packed in (see [`crate::PackedWeight`]); its memory is then what the
    /// tactic's `pack` made, and strides mean nothing.
    pub packed: Option<String>,
}

impl Operand {
    /// A dense operand.
    pub fn dense(dtype: DType, dims: &[usize], layout: Layout) -> Operand {
        Operand {
            dtype,
            strides: layout.strides(dims),
            dims: dims.to_vec(),
            constant: false,
            two_of_four: false,
            packed: None,
        }
    }

    /// The same, known at build time.
    pub fn weight(dtype: DType, dims: &[usize]) -> Operand {
        Operand { constant: true, ..Operand::dense(dtype, dims, Layout::Plain) }
    }

    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    pub fn is_empty(&self) -> bool {
        self.dims.contains(&0)
    }

    /// Whether the elements lie in this layout without gaps (dimensions of size 1 do not matter).
    pub fn is_dense(&self, layout: Layout) -> bool {
        let dense = layout.strides(&self.dims);
        (0..self.rank()).all(|axis| self.dims[axis] <= 1 || self.strides[axis] == dense[axis])
    }

    /// The stride of some neighbouring dimensions as one, if they go on with one stride; 1 where they have one element.
    pub fn run(&self, axes: impl SliceIndex<[usize], Output = [usize]> + Clone) -> Option<usize> {
        let mut run: Option<(usize, usize)> = None;
        let inner = self.dims[axes.clone()].iter().zip(&self.strides[axes]);
        for (dim, stride) in inner.rev().filter(|(dim, _)| **dim != 1) {
            match &mut run {
                None => run = Some((*stride, stride * dim)),
                Some((_, next)) if *stride == *next => *next = stride * dim,
                Some(_) => return None,
            }
        }
        Some(run.map_or(1, |(first, _)| first))
    }

    /// Whether rows along `axis` are contiguous.
    pub fn contiguous_along(&self, axis: usize) -> bool {
        self.dims[axis] <= 1 || self.strides[axis] == 1
    }

    /// Bytes from the first to after the last element; `usize::MAX` where no memory has as many.
    pub fn span_bytes(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        let reach =
            |last: usize, (dim, stride): (&usize, &usize)| last.checked_add((dim - 1).checked_mul(*stride)?);
        let last = self.dims.iter().zip(&self.strides).try_fold(0usize, reach);
        let len = last.and_then(|last| last.checked_add(1));
        len.and_then(|len| self.dtype.bytes_for(len)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_last_puts_the_second_dimension_innermost() {
        assert_eq!(Layout::ChannelsLast.strides(&[2, 3, 4, 5]), [60, 1, 15, 3]);
        assert_eq!(Layout::Plain.strides(&[2, 3, 4, 5]), [60, 20, 5, 1]);
        assert_eq!(Layout::ChannelsLast.strides(&[2, 3]), [3, 1]);
        assert_eq!(Layout::Plain.strides(&[]), [0usize; 0]);
    }

    #[test]
    fn layouts_agree_where_only_one_dimension_counts() {
        assert!(Layout::Plain.same_for(Layout::ChannelsLast, &[8, 512, 1, 1]));
        assert!(Layout::Plain.same_for(Layout::ChannelsLast, &[8, 1, 7, 7]));
        assert!(!Layout::Plain.same_for(Layout::ChannelsLast, &[1, 2, 2, 1]));
    }

    #[test]
    fn sizes_beyond_all_memory_do_not_wrap() {
        for dims in [vec![1 << 40, 1 << 40], vec![usize::MAX, 2], vec![1 << 32, 1 << 32, 1 << 32]] {
            assert_eq!(Operand::dense(DType::F32, &dims, Layout::Plain).span_bytes(), usize::MAX);
        }
        assert_eq!(Operand::dense(DType::F32, &[1 << 40, 0, 1 << 40], Layout::Plain).span_bytes(), 0);
    }

    #[test]
    fn a_part_of_a_larger_value_is_not_dense() {
        let mut part = Operand::dense(DType::F32, &[1, 3, 4, 4], Layout::ChannelsLast);
        assert!(part.is_dense(Layout::ChannelsLast));
        assert_eq!(part.span_bytes(), 48 * 4);
        part.strides = Layout::ChannelsLast.strides(&[1, 8, 4, 4]);
        assert!(!part.is_dense(Layout::ChannelsLast));
        assert_eq!(part.span_bytes(), (15 * 8 + 3) * 4);
    }
}
