//! MaxPool that also says where each largest element was, of all types that are ordered.

use std::ops::Range;

use planish_kernel::{KernelError, Layout, Problem, Ref};
use planish_op::Op;
use planish_op::window::PlacedAxis;
use planish_tensor::DType;

use super::args::Args;
use crate::family::Work;
use crate::shared::Shared;
use crate::spatial::{AXES, Windows, units_per_task};
use crate::team::Team;

/// Taps of a task: some 20 µs.
const TASK_TAPS: usize = 1 << 14;

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
                self > other || (self.is_nan() && !other.is_nan())
            }
        })*
    };
}

ordered! { i8 u8 }
ordered_floats! { f32 f64 }

/// The pool at given sizes, over dense operands.
#[derive(Debug)]
pub(super) struct MaxPool {
    dtype: DType,
    n_planes: usize,
    input: [usize; AXES],
    output: [usize; AXES],
    /// Of each output place of an axis: the first place of the input, and how many.
    taps: [Vec<(usize, usize)>; AXES],
    dilations: [usize; AXES],
    /// What one step along an axis adds to an index.
    index_strides: [usize; AXES],
    n_taps: usize,
    /// Which outputs there are: the values, the places.
    values: Option<usize>,
    places: Option<usize>,
}

pub(super) fn plan(problem: &Problem, args: &Args) -> Option<MaxPool> {
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
    if !fits {
        return None;
    }
    let input = windows.axes.map(|axis| axis.input);
    let taps = |axis: &PlacedAxis, window: usize| {
        let Range { start, end } = axis.taps(window);
        (axis.position(window, start).unwrap_or(0), end - start)
    };
    let all = |axis: &PlacedAxis| (0..axis.output).map(|window| taps(axis, window)).collect();
    let index_strides = match op.storage_order {
        0 => [input[1] * input[2], input[2], 1],
        _ => [1, input[0], input[0] * input[1]],
    };
    Some(MaxPool {
        dtype: x.dtype,
        n_planes: x.dims[0] * x.dims[1],
        input,
        output: windows.axes.map(|axis| axis.output),
        taps: [all(&windows.axes[0]), all(&windows.axes[1]), all(&windows.axes[2])],
        dilations: windows.axes.map(|axis| axis.dilation),
        index_strides,
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
            for row in task.idx * per_task..((task.idx + 1) * per_task).min(n_rows) {
                // SAFETY: granted by the caller; rows are written by one task each.
                unsafe { self.row::<T>(*at, row) };
            }
        });
    }

    /// One row of both outputs.
    ///
    /// # Safety
    /// As for `Work::run`.
    unsafe fn row<T: Ordered>(&self, at: Pointers, row: usize) {
        let (rest, height) = (row / self.output[1], row % self.output[1]);
        let (plane, depth) = (rest / self.output[0], rest % self.output[0]);
        let plane_len: usize = self.input.iter().product();
        let (d_first, n_d) = self.taps[0][depth];
        let (h_first, n_h) = self.taps[1][height];
        let [d_step, h_step, w_step] = self.dilations;
        let base = plane * plane_len;
        for (col, &(w_first, n_w)) in self.taps[2].iter().enumerate() {
            let mut best = T::LOWEST;
            let mut found: Option<[usize; AXES]> = None;
            for d in (0..n_d).map(|tap| d_first + tap * d_step) {
                for h in (0..n_h).map(|tap| h_first + tap * h_step) {
                    let line = base + (d * self.input[1] + h) * self.input[2];
                    for w in (0..n_w).map(|tap| w_first + tap * w_step) {
                        // SAFETY: the windows were placed in the image.
                        let value = unsafe { at.x.cast::<T>().add(line + w).read_unaligned() };
                        if value.beats(best) || found.is_none() {
                            best = value;
                            found = Some([d, h, w]);
                        }
                    }
                }
            }
            let out = row * self.output[2] + col;
            // SAFETY: granted by the caller.
            unsafe {
                if self.values.is_some() {
                    at.values.cast::<T>().add(out).write_unaligned(best);
                }
                if self.places.is_some() {
                    let index = found.map_or(-1, |[d, h, w]| {
                        let [by_d, by_h, by_w] = self.index_strides;
                        (base + d * by_d + h * by_h + w * by_w) as i64
                    });
                    at.places.cast::<i64>().add(out).write_unaligned(index);
                }
            }
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
