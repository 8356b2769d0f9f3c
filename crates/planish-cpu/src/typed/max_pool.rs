//! MaxPool that also says where each largest element was, of all types that are ordered.

use std::ops::Range;

use planish_kernel::{KernelError, Layout, Problem, Ref};
use planish_op::Op;
use planish_op::window::PlacedAxis;
use planish_tensor::DType;

use super::args::Args;
use crate::family::Work;
use crate::isa::Isa;
use crate::shared::Shared;
use crate::simd::{Simd, SimdKernel};
use crate::spatial::{AXES, Windows, units_per_task};
use crate::team::Team;

/// Taps of a task: some 20 µs.
const TASK_TAPS: usize = 1 << 14;
/// Columns of a row that are compared tap by tap: their best and its places stay in the first-level cache.
const COLUMNS: usize = 64;

/// Elements that are compared: a larger one wins, and NaN over every number.
trait Ordered: Copy {
    fn beats(self, other: Self) -> bool;
    const LOWEST: Self;
}

macro_rules! ordered {
    ($($int:ty)*) => {
        $(impl Ordered for $int {
            const LOWEST: $int = <$int>::MIN;
            #[inline(always)]
            fn beats(self, other: $int) -> bool {
                self > other
            }
        })*
    };
}

macro_rules! ordered_floats {
    ($($float:ident)*) => {
        $(impl Ordered for $float {
            const LOWEST: $float = $float::NEG_INFINITY;
            #[inline(always)]
            fn beats(self, other: $float) -> bool {
                (self > other) | (self.is_nan() & !other.is_nan())
            }
        })*
    };
}

ordered! { i8 u8 }
ordered_floats! { f32 f64 }

/// The pool at given sizes, over dense operands.
#[derive(Debug)]
pub(super) struct MaxPool {
    isa: Isa,
    dtype: DType,
    n_planes: usize,
    input: [usize; AXES],
    output: [usize; AXES],
    /// Of each output place of the depth and the height: the first place of the input, and how many.
    taps: [Vec<(usize, usize)>; 2],
    /// Of each tap along the row: the columns of the output at which it lies in the image.
    columns: Vec<Range<usize>>,
    /// Of windows along the row, and what lies before the first column.
    stride: usize,
    pad: usize,
    dilations: [usize; AXES],
    /// Whether places are counted as elements lie, and not along columns first.
    is_in_order: bool,
    n_taps: usize,
    /// Which outputs there are: the values, the places.
    values: Option<usize>,
    places: Option<usize>,
}

pub(super) fn plan(isa: Isa, problem: &Problem, args: &Args) -> Option<MaxPool> {
    let [node] = &problem.region.nodes[..] else { return None };
    let Op::MaxPool(op) = &node.op else { return None };
    let x = args.operand(0)?;
    let place =
        |output: u32| problem.region.outputs.iter().position(|known| *known == Ref::Node { node: 0, output });
    let (values, places) = (place(0), place(1));
    let known = matches!(x.dtype, DType::F32 | DType::F64 | DType::I8 | DType::U8);
    let attributes = op.window();
    let axes = attributes.axes(&attributes.kernel()).ok()?;
    let placed: Vec<PlacedAxis> = axes
        .iter()
        .zip(x.dims.get(2..)?)
        .map(|(axis, size)| axis.place(*size).ok())
        .collect::<Option<_>>()?;
    let first = problem.outputs.first()?;
    let windows = Windows::new(&placed, x, first)?;
    let fits = known
        && matches!(op.storage_order, 0 | 1)
        && x.dims[1] == first.dims[1]
        && args.are_dense()
        && problem.outputs.iter().all(|y| y.is_dense(Layout::Plain) && y.dims == first.dims)
        && values.is_none_or(|idx| problem.outputs[idx].dtype == x.dtype)
        && places.is_none_or(|idx| problem.outputs[idx].dtype == DType::I64)
        && values.is_some() as usize + places.is_some() as usize == problem.outputs.len();
    let plane = x.dims.get(2..)?.iter().try_fold(1usize, |len, dim| len.checked_mul(*dim))?;
    if !fits || i32::try_from(plane).is_err() {
        return None;
    }
    let input = windows.axes.map(|axis| axis.input);
    let taps = |axis: &PlacedAxis, window: usize| {
        let Range { start, end } = axis.taps(window);
        (axis.position(window, start).unwrap_or(0), end - start)
    };
    let all = |axis: &PlacedAxis| (0..axis.output).map(|window| taps(axis, window)).collect();
    let width = &windows.axes[2];
    let columns = (0..width.kernel).map(|tap| {
        let is_inside = |window: &usize| width.taps(*window).contains(&tap);
        let start = (0..width.output).find(is_inside).unwrap_or(0);
        start..(start..width.output).find(|window| !is_inside(window)).unwrap_or(width.output)
    });
    Some(MaxPool {
        isa,
        dtype: x.dtype,
        n_planes: x.dims[0] * x.dims[1],
        input,
        output: windows.axes.map(|axis| axis.output),
        taps: [all(&windows.axes[0]), all(&windows.axes[1])],
        columns: columns.collect(),
        stride: width.stride,
        pad: width.pad_begin,
        dilations: windows.axes.map(|axis| axis.dilation),
        is_in_order: op.storage_order == 0,
        n_taps: windows.n_taps(),
        values,
        places,
    })
}

#[derive(Clone, Copy)]
struct Pointers {
    x: *const u8,
    values: *mut u8,
    places: *mut u8,
}

// SAFETY: tasks write apart.
unsafe impl Sync for Pointers {}

impl MaxPool {
    /// # Safety
    /// As for `Work::run`.
    unsafe fn pool<T: Ordered>(&self, at: Pointers, team: &Team) {
        let n_rows = self.n_planes * self.output[0] * self.output[1];
        let per_task = units_per_task(n_rows, self.output[2] * self.n_taps, TASK_TAPS);
        let all = at;
        team.for_each(n_rows.div_ceil(per_task), &|task| {
            let at = &all;
            let rows = task.idx * per_task..((task.idx + 1) * per_task).min(n_rows);
            self.isa.run(Rows::<T> { plan: self, at: *at, rows, element: std::marker::PhantomData });
        });
    }

    /// One row of both outputs, some columns at a time.
    ///
    /// # Safety
    /// As for `Work::run`.
    #[inline(always)]
    unsafe fn row<T: Ordered>(&self, at: Pointers, row: usize) {
        let (rest, height) = (row / self.output[1], row % self.output[1]);
        let (plane, depth) = (rest / self.output[0], rest % self.output[0]);
        let base = plane * self.plane_len();
        for first in (0..self.output[2]).step_by(COLUMNS) {
            let n = (self.output[2] - first).min(COLUMNS);
            let (mut best, mut found) = ([T::LOWEST; COLUMNS], [-1i32; COLUMNS]);
            // Taps outermost, as the first of equal ones wins; columns innermost, so that loops become vectors.
            for d in self.positions(0, depth) {
                for h in self.positions(1, height) {
                    let line = (d * self.input[1] + h) * self.input[2];
                    for (tap, columns) in self.columns.iter().enumerate() {
                        let (start, end) = (columns.start.max(first), columns.end.min(first + n));
                        if start >= end {
                            continue;
                        }
                        let place = line + start * self.stride + tap * self.dilations[2] - self.pad;
                        let mut values = [T::LOWEST; COLUMNS];
                        for (col, value) in values[..end - start].iter_mut().enumerate() {
                            let from = at.x.cast::<T>().wrapping_add(base + place + col * self.stride);
                            // SAFETY: the columns of a tap are those at which it lies in the image.
                            *value = unsafe { from.read_unaligned() };
                        }
                        // Slices of one length, which the compiler makes vectors of.
                        let columns = start - first..end - first;
                        let (best, found) = (&mut best[columns.clone()], &mut found[columns]);
                        let (values, found) = (&values[..best.len()], &mut found[..best.len()]);
                        let (place, stride) = (place as i32, self.stride as i32);
                        for col in 0..best.len() {
                            let (value, known, at) = (values[col], best[col], found[col]);
                            let wins = value.beats(known) | (at < 0);
                            best[col] = if wins { value } else { known };
                            found[col] = if wins { place.wrapping_add(col as i32 * stride) } else { at };
                        }
                    }
                }
            }
            let out = row * self.output[2] + first;
            // SAFETY: granted by the caller.
            unsafe {
                if self.values.is_some() {
                    let to = at.values.cast::<T>().add(out);
                    best[..n].iter().enumerate().for_each(|(col, best)| to.add(col).write_unaligned(*best));
                }
                if self.places.is_some() {
                    let to = at.places.cast::<i64>().add(out);
                    for (col, found) in found[..n].iter().enumerate() {
                        to.add(col).write_unaligned(self.index(base, *found));
                    }
                }
            }
        }
    }

    /// What is told of a place in a plane that begins at `base`; -1 of none.
    #[inline(always)]
    fn index(&self, base: usize, place: i32) -> i64 {
        match usize::try_from(place) {
            Err(_) => -1,
            Ok(place) if self.is_in_order => (base + place) as i64,
            Ok(place) => {
                let (rest, w) = (place / self.input[2], place % self.input[2]);
                let (d, h) = (rest / self.input[1], rest % self.input[1]);
                (base + d + (h + w * self.input[1]) * self.input[0]) as i64
            }
        }
    }

    fn plane_len(&self) -> usize {
        self.input.iter().product()
    }

    /// The places of the input under a window of the depth or the height.
    #[inline(always)]
    fn positions(&self, axis: usize, window: usize) -> impl Iterator<Item = usize> {
        let ((first, n), step) = (self.taps[axis][window], self.dilations[axis]);
        (0..n).map(move |tap| first + tap * step)
    }
}

/// Some rows of both outputs.
struct Rows<'a, T> {
    plan: &'a MaxPool,
    at: Pointers,
    rows: Range<usize>,
    element: std::marker::PhantomData<T>,
}

impl<T: Ordered> SimdKernel for Rows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for row in self.rows {
            // SAFETY: granted by the caller of `MaxPool::pool`; rows are written by one task each.
            unsafe { self.plan.row::<T>(self.at, row) };
        }
    }
}

impl Work for MaxPool {
    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let output = |place: Option<usize>| place.map_or(std::ptr::null_mut(), |idx| shared.outputs[idx]);
        let at = Pointers { x: shared.inputs[0], values: output(self.values), places: output(self.places) };
        // SAFETY: the caller grants what the operands span.
        unsafe {
            match self.dtype {
                DType::F32 => self.pool::<f32>(at, team),
                DType::F64 => self.pool::<f64>(at, team),
                DType::I8 => self.pool::<i8>(at, team),
                _ => self.pool::<u8>(at, team),
            }
        }
        Ok(())
    }
}
