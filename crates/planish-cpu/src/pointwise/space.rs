//! The space that a program runs over, seen as rows of columns, and how each operand lies in it.

use planish_kernel::axes::join;

/// Rows and columns; each may be several dimensions, outermost first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Space {
    pub(crate) row_dims: Vec<usize>,
    pub(crate) col_dims: Vec<usize>,
    pub(crate) n_rows: usize,
    pub(crate) n_cols: usize,
}

/// How an operand lies in the space: strides in elements for each dimension, 0 where it repeats.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stream {
    pub(crate) row_strides: Vec<usize>,
    pub(crate) col_strides: Vec<usize>,
    /// The distance of neighbours in a row, if it is the same along the whole row.
    pub(crate) col_step: Option<usize>,
    /// All elements in the order of the space, without gaps.
    pub(crate) dense: bool,
    /// Every row reads the same.
    pub(crate) same_rows: bool,
}

/// One axis: its size, and each operand's stride along it.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) dim: usize,
    pub(crate) strides: Vec<usize>,
}

impl Space {
    /// The space of given row and column axes, each list outermost first, and a stream per operand.
    pub(crate) fn new(rows: Vec<Axis>, cols: Vec<Axis>, n_streams: usize) -> (Space, Vec<Stream>) {
        let (rows, cols) = (merged(rows), merged(cols));
        let dims = |axes: &[Axis]| axes.iter().map(|axis| axis.dim).collect::<Vec<_>>();
        let (row_dims, col_dims) = (dims(&rows), dims(&cols));
        let (n_rows, n_cols) = (row_dims.iter().product(), col_dims.iter().product());
        let streams = (0..n_streams)
            .map(|idx| {
                let strides = |axes: &[Axis]| axes.iter().map(|axis| axis.strides[idx]).collect::<Vec<_>>();
                Stream::new(strides(&rows), strides(&cols), &row_dims, &col_dims)
            })
            .collect();
        (Space { row_dims, col_dims, n_rows, n_cols }, streams)
    }

    /// The space of all axes: the innermost of the first operand is the row, as long as all operands let it
    /// be, and everything else counts rows.
    pub(crate) fn of_all(mut axes: Vec<Axis>, order_by: usize, n_streams: usize) -> (Space, Vec<Stream>) {
        axes.sort_by_key(|axis| std::cmp::Reverse(axis.strides[order_by]));
        let mut axes = merged(axes);
        let cols = axes.pop().into_iter().collect();
        Space::new(axes, cols, n_streams)
    }
}

/// Joins neighbouring axes along which every operand goes on with the same stride; drops those of size 1.
pub(crate) fn merged(axes: Vec<Axis>) -> Vec<Axis> {
    let stride = |axis: &Axis, operand: usize| axis.strides.get(operand).map(|stride| *stride as isize);
    join(axes.into_iter().filter(|axis| axis.dim != 1), |axis| &mut axis.dim, stride)
}

impl Stream {
    fn new(row_strides: Vec<usize>, col_strides: Vec<usize>, rows: &[usize], cols: &[usize]) -> Stream {
        let col_step = match (col_strides.split_last(), cols.split_first()) {
            (Some((&inner, outer)), Some((_, inner_dims))) => {
                let mut step = inner;
                let even = outer.iter().rev().zip(inner_dims.iter().rev()).all(|(stride, dim)| {
                    step *= dim;
                    *stride == step
                });
                even.then_some(inner)
            }
            _ => Some(1),
        };
        let mut step = 1;
        let dims = rows.iter().chain(cols).rev();
        let dense = row_strides.iter().chain(&col_strides).rev().zip(dims).all(|(stride, dim)| {
            let fits = *stride == step;
            step *= dim;
            fits
        });
        let same_rows = row_strides.iter().all(|stride| *stride == 0);
        Stream { row_strides, col_strides, col_step, dense, same_rows }
    }

    /// Whether it is one element for the whole space.
    pub(crate) fn is_single(&self, space: &Space) -> bool {
        self.same_rows && (self.col_step == Some(0) || space.n_cols <= 1)
    }

    pub(crate) fn row_offset(&self, space: &Space, row: usize) -> usize {
        offset(&space.row_dims, &self.row_strides, row)
    }

    pub(crate) fn col_offset(&self, space: &Space, col: usize) -> usize {
        match self.col_step {
            Some(step) => step * col,
            None => offset(&space.col_dims, &self.col_strides, col),
        }
    }
}

fn offset(dims: &[usize], strides: &[usize], mut idx: usize) -> usize {
    // Most spaces have one dimension of rows, where no division is needed.
    if let ([_], [stride]) = (dims, strides) {
        return idx * stride;
    }
    let mut sum = 0;
    for (dim, stride) in dims.iter().zip(strides).rev() {
        sum += idx % dim * stride;
        idx /= dim;
    }
    sum
}

/// Copies `n` elements of `size` bytes that lie `step` apart.
///
/// # Safety
/// `from` must be readable for them and `to` writable for `n` elements without gaps; the two are apart.
pub(crate) unsafe fn gather(size: usize, from: *const u8, step: usize, to: *mut u8, n: usize) {
    // SAFETY: the caller grants both.
    unsafe {
        match (step, size) {
            (1, _) => std::ptr::copy_nonoverlapping(from, to, n * size),
            (0, 4) => repeat(from, to, n),
            (_, 4) => strided::<u32>(from, step, to, 1, n),
            (_, 8) => strided::<u64>(from, step, to, 1, n),
            _ => strided::<u8>(from, step, to, 1, n),
        }
    }
}

/// One element of four bytes, `n` times.
///
/// # Safety
/// As for [`gather`]; `to` is aligned for them.
unsafe fn repeat(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: the caller grants both.
    unsafe {
        let element = from.cast::<u32>().read_unaligned();
        std::slice::from_raw_parts_mut(to.cast::<u32>(), n).fill(element);
    }
}

/// The way back.
///
/// # Safety
/// As for [`gather`], with the gaps on the other side.
pub(crate) unsafe fn scatter(size: usize, from: *const u8, to: *mut u8, step: usize, n: usize) {
    // SAFETY: the caller grants both.
    unsafe {
        match (step, size) {
            (1, _) => std::ptr::copy_nonoverlapping(from, to, n * size),
            (_, 4) => strided::<u32>(from, 1, to, step, n),
            (_, 8) => strided::<u64>(from, 1, to, step, n),
            _ => strided::<u8>(from, 1, to, step, n),
        }
    }
}

/// # Safety
/// Both must be good for `n` elements at their steps.
unsafe fn strided<T: Copy>(from: *const u8, from_step: usize, to: *mut u8, to_step: usize, n: usize) {
    let (from, to) = (from.cast::<T>(), to.cast::<T>());
    for idx in 0..n {
        // SAFETY: the caller grants it; elements may be unaligned inside packed buffers of others.
        unsafe { to.add(idx * to_step).write_unaligned(from.add(idx * from_step).read_unaligned()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(dims: &[usize], strides: &[&[usize]]) -> Vec<Axis> {
        let axis = |idx: usize| Axis { dim: dims[idx], strides: strides.iter().map(|s| s[idx]).collect() };
        (0..dims.len()).map(axis).collect()
    }

    #[test]
    fn dense_operands_become_one_row() {
        let all = axes(&[2, 3, 4], &[&[12, 4, 1], &[12, 4, 1]]);
        let (space, streams) = Space::of_all(all, 0, 2);
        assert_eq!((space.n_rows, space.n_cols), (1, 24));
        assert!(streams.iter().all(|stream| stream.dense && stream.col_step == Some(1)));
    }

    #[test]
    fn channels_last_with_a_vector_has_rows_of_channels() {
        // Output 2x3x4x5 with channels innermost, and a vector along the channels.
        let all = axes(&[2, 3, 4, 5], &[&[60, 1, 15, 3], &[0, 1, 0, 0]]);
        let (space, streams) = Space::of_all(all, 0, 2);
        assert_eq!((space.n_rows, space.n_cols), (40, 3));
        assert!(streams[0].dense && !streams[1].dense && streams[1].same_rows);
        // Plain: the vector is one element per row.
        let all = axes(&[2, 3, 4, 5], &[&[60, 20, 5, 1], &[0, 1, 0, 0]]);
        let (space, streams) = Space::of_all(all, 0, 2);
        assert_eq!((space.row_dims.as_slice(), space.n_cols), (&[2, 3][..], 20));
        assert_eq!((streams[1].col_step, streams[1].row_offset(&space, 4)), (Some(0), 1));
    }

    #[test]
    fn columns_that_do_not_join_are_found_by_their_index() {
        // Columns 4x5, the operand repeats along the last.
        let (space, streams) = Space::new(axes(&[3], &[&[20], &[4]]), axes(&[4, 5], &[&[5, 1], &[1, 0]]), 2);
        assert_eq!((streams[0].col_step, streams[1].col_step), (Some(1), None));
        assert_eq!(streams[1].col_offset(&space, 13), 2);
    }
}
