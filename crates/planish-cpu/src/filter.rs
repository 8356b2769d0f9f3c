//! Filters: convolutions of each channel by itself where there are few channels, over plain images.
//!
//! Vectors run along rows. With one channel, as in resampling and blurring, vectors along channels would have one lane
//! at work. A task takes some rows and columns of one output channel. It first takes the rows that it reads apart into
//! as many as a window's stride has steps, padding included; then every tap reads neighbouring elements of one of these
//! for neighbouring outputs. Taps are added in the order of the weight, whatever is cut.

#[cfg(test)]
mod tests;

use planish_kernel::pointwise::Epilogue;
use planish_kernel::{Budget, Candidate, KernelError, Layout, Operand, Problem, Ref, Tactic, Want};
use planish_op::Op;
use planish_op::window::PlacedAxis;
use planish_tensor::{DType, Dim};

use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::price::expected_ns;
use crate::shared::Shared;
use crate::simd::{Simd, SimdKernel, arrays};
use crate::spatial::{Windows, units_per_task};
use crate::team::{Task, Team};

/// Raised when the kernel changes.
const REVISION: u32 = 2;
/// With more output channels vectors along them are full.
const MOST_CHANNELS: usize = 8;
/// Columns of a task: with a stride of 8 what is taken apart is half of a first-level cache.
const COLUMNS: usize = 1024;
/// Elements that a task takes apart at most, unless one row of outputs needs more.
const SCRATCH: usize = 24 << 10;
/// The same where one row does: 4 MB.
const MOST_SCRATCH: usize = 1 << 20;
/// Multiply-adds that a task has at least: some 10 µs.
const TASK_MACS: usize = 1 << 17;
/// Vectors of outputs that are summed at once.
const VECTORS: usize = 4;
/// The widest vector.
const LANES: usize = 16;
/// Beyond this a stride leaves more out than it reads, and rows that are taken apart are mostly not looked at.
const MOST_STRIDE: usize = 64;

/// See the module.
pub(crate) struct FilterFamily;

/// One of them at given sizes.
#[derive(Debug)]
struct Filter {
    isa: Isa,
    windows: Windows,
    in_channels: usize,
    x: usize,
    weight: usize,
    constant_bias: Option<Vec<f32>>,
    bias: Option<usize>,
    clamp: (f32, f32),
    /// Output rows and columns of a task.
    rows: usize,
    columns: usize,
    /// Elements of one row of one step of the stride.
    pitch: usize,
}

fn plan(isa: Isa, problem: &Problem) -> Option<Filter> {
    let node = problem.region.nodes.first()?;
    let Op::Conv(conv) = &node.op else { return None };
    let input = |idx: usize| match node.inputs.get(idx).copied().flatten() {
        Some(Ref::Input(input)) => Some(input as usize),
        _ => None,
    };
    let (x_at, weight_at) = (input(0)?, input(1)?);
    let (x, w, [y]) = (problem.inputs.get(x_at)?, problem.inputs.get(weight_at)?, &problem.outputs[..])
    else {
        return None;
    };
    let innermost = |operand: &Operand| operand.strides.last() == Some(&1) || operand.dims.last() == Some(&1);
    let fits = [x, w, y].iter().all(|operand| operand.dtype == DType::F32 && operand.packed.is_none())
        && (3..=4).contains(&y.rank())
        && x.rank() == y.rank()
        && w.rank() == y.rank()
        && usize::try_from(conv.group).ok() == Some(x.dims[1])
        && x.dims[1] > 0
        && w.dims[1] == 1
        && w.dims[0] == y.dims[1]
        && y.dims[1].is_multiple_of(x.dims[1])
        && y.dims[1] <= MOST_CHANNELS
        && w.is_dense(Layout::Plain)
        && !w.is_empty()
        && innermost(x)
        && innermost(y);
    if !fits {
        return None;
    }
    let (epilogue, constant_bias) = Epilogue::of_conv(problem, Epilogue::of).ok()?;
    let constant_bias = match constant_bias {
        Some(bias) if bias.len() != y.dims[1] => return None,
        Some(bias) => Some(bias.elements::<f32>().ok()?.into_owned()),
        None => None,
    };
    let bias = epilogue.bias.map(|input| input as usize);
    let bias_fits = bias.is_none_or(|input| {
        problem.inputs.get(input).is_some_and(|bias| {
            bias.dtype == DType::F32 && bias.len() == y.dims[1] && bias.is_dense(Layout::Plain)
        })
    });
    if epilogue.residual.is_some() || epilogue.program.is_some() || !bias_fits {
        return None;
    }
    let kernel: Vec<Dim> = w.dims[2..].iter().copied().map(Dim::from).collect();
    let window = conv.window();
    let axes = window.kernel_of_weight(&kernel).and_then(|kernel| window.axes(&kernel)).ok()?;
    let placed = axes.iter().zip(&x.dims[2..]).map(|(axis, size)| axis.place(*size).ok());
    // Strides of the operands mean nothing where there is one element; `with_rows` would move such an axis.
    let windows = Windows::new(&placed.collect::<Option<Vec<_>>>()?, x, y)?;
    let [_, height, width] = &windows.axes;
    if width.stride > MOST_STRIDE || width.stride == 0 {
        return None;
    }
    // What a task reaches over must be little, whatever a file says of kernels and dilations.
    let reach = |axis: &PlacedAxis| (axis.kernel - 1).checked_mul(axis.dilation).filter(|n| *n <= SCRATCH);
    let (high, wide) = (reach(height)?, reach(width)?);
    if high.checked_mul(wide + COLUMNS * width.stride)? > MOST_SCRATCH {
        return None;
    }
    let columns = width.output.min(COLUMNS);
    let pitch = (columns + wide / width.stride).next_multiple_of(LANES) + VECTORS * LANES;
    let reads = |rows: usize| (rows - 1) * height.stride + high + 1;
    let per_row = columns * windows.n_taps();
    let mut rows = units_per_task(height.output.max(1), per_row, TASK_MACS);
    while rows > 1 && reads(rows) * width.stride * pitch > SCRATCH {
        rows = rows.div_ceil(2);
    }
    Some(Filter {
        isa,
        in_channels: x.dims[1],
        x: x_at,
        weight: weight_at,
        constant_bias,
        bias,
        clamp: (epilogue.lo, epilogue.hi),
        rows,
        columns,
        pitch,
        windows,
    })
}

impl Filter {
    /// Rows of the input that `rows` rows of the output reach over, those beside the image counted as well.
    fn reach(&self, rows: usize) -> usize {
        let height = &self.windows.axes[1];
        (rows.max(1) - 1) * height.stride + (height.kernel - 1) * height.dilation + 1
    }

    fn slot_len(&self) -> usize {
        (self.reach(self.rows) * self.windows.axes[2].stride * self.pitch).next_multiple_of(LANES)
    }
}

impl Family for FilterFamily {
    fn name(&self) -> &'static str {
        "filter"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        // With one channel a plain image inside of a larger one may be channels-last there, its columns apart.
        let wants = |operands: &[Operand]| vec![Want::dense(Layout::Plain); operands.len()];
        let (inputs, outputs) = (wants(&problem.inputs), wants(&problem.outputs));
        let Some(plan) = plan(isa, &problem.with_layouts(&inputs, &outputs)) else { return Vec::new() };
        let y = &problem.outputs[0];
        // A load for each multiplication.
        let operations = 4.0 * (y.len() * plan.windows.n_taps()) as f64;
        let bytes = (problem.inputs[plan.x].span_bytes() + y.span_bytes()) as f64;
        vec![Candidate::new(
            Tactic::new(format!("filter_f32_{isa}"), REVISION),
            inputs,
            outputs,
            expected_ns(isa, operations, 2.0 * bytes, problem.threads),
        )]
    }

    fn prepare(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        match plan(isa, problem) {
            Some(plan) => Ok(Box::new(plan)),
            None => Err(KernelError::unsupported(format!("{tactic}: not a filter of few plain channels"))),
        }
    }
}

impl Work for Filter {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        n_slots * self.slot_len() * size_of::<f32>()
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let [depth, height, width] = &self.windows.axes;
        debug_assert_eq!((depth.output, depth.kernel), (1, 1), "ranks 3 and 4 have no depth");
        let n_tasks = self.windows.batch
            * self.windows.channels
            * height.output.div_ceil(self.rows)
            * width.output.div_ceil(self.columns.max(1));
        team.for_each(n_tasks, &|task| self.isa.run(Part { plan: self, shared, task }));
        Ok(())
    }
}

/// One task.
struct Part<'a> {
    plan: &'a Filter,
    shared: Shared<'a>,
    task: Task,
}

impl SimdKernel for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: `Work::run` was granted operands and workspace; tasks write different outputs, slots have workspace of
        // their own.
        unsafe { self.compute(s) }
    }
}

impl Part<'_> {
    #[inline(always)]
    unsafe fn compute<S: Simd>(&self, s: S) {
        let plan = self.plan;
        let Windows { channels, from, to, axes: [_, height, width], .. } = &plan.windows;
        let (n_columns, n_rows) = (width.output.div_ceil(plan.columns), height.output.div_ceil(plan.rows));
        let (rest, column) = (self.task.idx / n_columns, self.task.idx % n_columns * plan.columns);
        let (rest, row) = (rest / n_rows, rest % n_rows * plan.rows);
        let (image, channel) = (rest / channels, rest % channels);
        let (rows, columns) = (plan.rows.min(height.output - row), plan.columns.min(width.output - column));
        let in_channel = channel / (channels / plan.in_channels);
        let n_taps = height.kernel * width.kernel;
        // Of the first row and column that the task's windows reach.
        let first_row = (row * height.stride) as isize - height.pad_begin as isize;
        let first_column = (column * width.stride) as isize - width.pad_begin as isize;
        let row_len = width.stride * plan.pitch;
        // SAFETY: as for `run`: rows of the image have its width, the slot holds all rows that the task reaches, each with
        // room for whole vectors behind its end.
        unsafe {
            let slot = self.shared.workspace.cast::<f32>().add(self.task.slot * plan.slot_len());
            let x = self.shared.inputs[plan.x].cast::<f32>();
            let x = x.wrapping_add(image * from.batch + in_channel * from.channel);
            for at in 0..plan.reach(rows) {
                let y = first_row + at as isize;
                if (0..height.input as isize).contains(&y) {
                    let line = x.wrapping_add(y as usize * from.axes[1]);
                    self.take_apart(s, line, first_column, slot.add(at * row_len));
                }
            }
            let weights = self.shared.inputs[plan.weight].cast::<f32>().add(channel * n_taps);
            let bias = match (&plan.constant_bias, plan.bias) {
                (Some(bias), _) => bias[channel],
                (None, Some(bias)) => *self.shared.inputs[bias].cast::<f32>().add(channel),
                (None, None) => 0.0,
            };
            let y = self.shared.outputs[0].cast::<f32>();
            let y = y.wrapping_add(image * to.batch + channel * to.channel);
            for at in 0..rows {
                let line = y.wrapping_add((row + at) * to.axes[1] + column);
                let taps = height.taps(row + at);
                let call = Row {
                    plan,
                    source: slot.add((at * height.stride + taps.start * height.dilation) * row_len),
                    step: height.dilation * row_len,
                    n_rows: taps.len(),
                    weights: weights.add(taps.start * width.kernel),
                    bias,
                };
                let mut from = 0;
                while columns - from > S::LANES {
                    call.vectors::<S, VECTORS>(s, from, line, columns - from);
                    from += (VECTORS * S::LANES).min(columns - from);
                }
                if from < columns {
                    call.vectors::<S, 1>(s, from, line, columns - from);
                }
            }
        }
    }

    /// A line of the image from a column on, which may lie before it, by steps of the stride.
    ///
    /// # Safety
    /// The line must have the image's width, and `to` room for as many rows of `pitch` as the stride has steps.
    #[inline(always)]
    unsafe fn take_apart<S: Simd>(&self, s: S, line: *const f32, first: isize, to: *mut f32) {
        let (pitch, width) = (self.plan.pitch, &self.plan.windows.axes[2]);
        let stride = width.stride;
        for step in 0..stride {
            // Places `at` with a column `first + at * stride + step` inside the image.
            let start = first + step as isize;
            let before = if start < 0 { start.unsigned_abs().div_ceil(stride) } else { 0 }.min(pitch);
            let left = width.input as isize - start;
            let end = if left <= 0 { 0 } else { (left as usize).div_ceil(stride) }.clamp(before, pitch);
            // SAFETY: the places lie inside the row and the line, as they were cut.
            unsafe {
                let to = to.add(step * pitch);
                std::ptr::write_bytes(to, 0, before);
                std::ptr::write_bytes(to.add(end), 0, pitch - end);
                let from = line.wrapping_offset(start);
                match stride {
                    1 => {
                        std::ptr::copy_nonoverlapping(from.wrapping_add(before), to.add(before), end - before)
                    }
                    2 => halves(s, from, to, before..end, width.input as isize - start),
                    _ => {
                        for at in before..end {
                            *to.add(at) = *from.wrapping_add(at * stride);
                        }
                    }
                }
            }
        }
    }
}

/// Every second element: `to[at] = from[2 * at]` for places of the range; there are `n` elements from `from` on.
///
/// # Safety
/// Those elements must be readable and places writable; before `2 * places.start` nothing is read.
#[inline(always)]
unsafe fn halves<S: Simd>(s: S, from: *const f32, to: *mut f32, places: std::ops::Range<usize>, n: isize) {
    let mut at = places.start;
    // SAFETY: pairs of vectors lie inside the elements, single elements by the caller's word.
    unsafe {
        while at + S::LANES <= places.end && 2 * (at + S::LANES) as isize <= n {
            let pair = from.wrapping_add(2 * at);
            let (even, _) = s.unzip(s.load(pair), s.load(pair.wrapping_add(S::LANES)));
            s.store(to.add(at), even);
            at += S::LANES;
        }
        for at in at..places.end {
            *to.add(at) = *from.wrapping_add(2 * at);
        }
    }
}

/// An output row.
struct Row<'a> {
    plan: &'a Filter,
    /// The first row of taps inside the image, taken apart.
    source: *const f32,
    /// From one row of taps to the next.
    step: usize,
    n_rows: usize,
    /// Of that first row of taps.
    weights: *const f32,
    bias: f32,
}

impl Row<'_> {
    /// `V` vectors of outputs from column `from` on, of which `n` are there.
    ///
    /// # Safety
    /// The source must hold all rows, with room for whole vectors; `n` outputs must be writable.
    #[inline(always)]
    unsafe fn vectors<S: Simd, const V: usize>(&self, s: S, from: usize, line: *mut f32, n: usize) {
        let width = &self.plan.windows.axes[2];
        let mut acc = [s.splat(self.bias); V];
        // SAFETY: as the caller grants.
        unsafe {
            for row in 0..self.n_rows {
                let source = self.source.add(row * self.step + from);
                let weights = self.weights.add(row * width.kernel);
                let (mut step, mut place) = (0, 0);
                for tap in 0..width.kernel {
                    let weight = s.splat(*weights.add(tap));
                    let source = source.add(step * self.plan.pitch + place);
                    let x: [S::F; V] = arrays::from_fn(|v| s.load(source.add(v * S::LANES)));
                    for v in 0..V {
                        acc[v] = s.mul_add(x[v], weight, acc[v]);
                    }
                    step += width.dilation;
                    while step >= width.stride {
                        step -= width.stride;
                        place += 1;
                    }
                }
            }
            let (lo, hi) = (s.splat(self.plan.clamp.0), s.splat(self.plan.clamp.1));
            for (v, sum) in acc.into_iter().enumerate() {
                let at = v * S::LANES;
                if at < n {
                    // `min` and `max` give their second operand when one is NaN: it passes.
                    let value = s.min(hi, s.max(lo, sum));
                    s.store_part(line.add(from + at), (n - at).min(S::LANES), value);
                }
            }
        }
    }
}
