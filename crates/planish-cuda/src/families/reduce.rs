//! The family of reductions over any axes, pools over whole images, and searches for extremes.

use planish_gpu::kernel_args;
use planish_gpu::operands::{candidate, is_float, refuse, storage};
use planish_gpu::plan::{Arg, KernelCode, Plan, Slot, Step};
use planish_gpu::space::{self, Axis, Divisor, blocks, divisors, int, strides_along};
use planish_kernel::{
    Budget, Candidate, KernelError, Layout, Operand, Problem, Ref, Tactic, Want, layouts_for,
};
use planish_op::Op;
use planish_tensor::{DType, normalize_axis};

use crate::family::Family;
use crate::gpu::Gpu;

#[cfg(test)]
mod tests;

const REVISION: u32 = 2;

/// Results for each multiprocessor below which they are few, and how many a block then makes beside each other.
const FEW_RESULTS: usize = 64;
const FEW_BESIDE: usize = 8;

const THREADS: usize = 256;
/// Blocks under which results are shared by several, and the least elements of one part.
const FEW_BLOCKS: usize = 128;
const LEAST_PART: usize = 4096;
const MAX_PARTS: usize = 64;
/// The largest part of a result: a value and a place.
const PART_BYTES: usize = 16;

kernel_args! {
    /// What reduce.cu is given.
    struct ReduceArgs {
        /// Results; vectors of them unless neighbours are reduced.
        n_results: i32,
        /// Elements of each; vectors if neighbours are reduced.
        n_elements: i32,
        /// The size of the axis that vectors go along.
        n_inner: i32,
        /// Elements of each result.
        n_gone: i32,
        /// Elements, or vectors, of one part.
        per_part: i32,
        /// Axes that stay and axes that go, innermost first, and their strides.
        kept: Vec<Divisor>,
        gone: Vec<Divisor>,
        x_kept: Vec<i32>,
        y_kept: Vec<i32>,
        x_gone: Vec<i32>,
    }
}

/// `Reduce*`, ArgMax and ArgMin, GlobalAveragePool and GlobalMaxPool.
pub(crate) struct ReduceFamily;

/// What the problem asks for.
struct Wanted {
    op: &'static str,
    is_reduced: Vec<bool>,
    keepdims: bool,
    last_wins: bool,
}

/// The name in the kernel, whether no axes mean none, whether axes stay.
fn reduction_of(op: &Op) -> Option<(&'static str, bool, bool)> {
    Some(match op {
        Op::ReduceL1(op) => ("L1", op.noop_with_empty_axes, op.keepdims),
        Op::ReduceL2(op) => ("L2", op.noop_with_empty_axes, op.keepdims),
        Op::ReduceLogSum(op) => ("LOG_SUM", op.noop_with_empty_axes, op.keepdims),
        Op::ReduceLogSumExp(op) => ("LOG_SUM_EXP", op.noop_with_empty_axes, op.keepdims),
        Op::ReduceMax(op) => ("MAX", op.noop_with_empty_axes, op.keepdims),
        Op::ReduceMean(op) => ("MEAN", op.noop_with_empty_axes, op.keepdims),
        Op::ReduceMin(op) => ("MIN", op.noop_with_empty_axes, op.keepdims),
        Op::ReduceProd(op) => ("PROD", op.noop_with_empty_axes, op.keepdims),
        Op::ReduceSum(op) => ("SUM", op.noop_with_empty_axes, op.keepdims),
        Op::ReduceSumSquare(op) => ("SQUARES", op.noop_with_empty_axes, op.keepdims),
        Op::GlobalAveragePool(_) => ("MEAN", false, true),
        Op::GlobalMaxPool(_) => ("MAX", false, true),
        _ => return None,
    })
}

fn wanted(problem: &Problem) -> Result<Wanted, KernelError> {
    let ([node], [y]) = (&*problem.region.nodes, &*problem.outputs) else {
        return refuse("one reduction with one output");
    };
    let x = match (node.inputs.first(), &*problem.inputs) {
        (Some(Some(Ref::Input(0))), [x]) => x,
        _ => return refuse("one input, with axes that are constants"),
    };
    let rank = x.rank();
    let axis_of =
        |axis: i64| normalize_axis(axis, rank).map_err(|error| KernelError::unsupported(error.to_string()));
    let arg = match &node.op {
        Op::ArgMax(op) => Some(("ARG_MAX", op.axis, op.keepdims, op.select_last_index)),
        Op::ArgMin(op) => Some(("ARG_MIN", op.axis, op.keepdims, op.select_last_index)),
        _ => None,
    };
    if let Some((op, axis, keepdims, last_wins)) = arg {
        let axis = axis_of(axis)?;
        if y.dtype != DType::I64 || x.dims[axis] == 0 {
            return refuse("a search of nothing");
        }
        return Ok(Wanted {
            op,
            is_reduced: (0..rank).map(|idx| idx == axis).collect(),
            keepdims,
            last_wins,
        });
    }
    let Some((op, noop, keepdims)) = reduction_of(&node.op) else {
        return refuse(format!("{} is not a reduction", node.op.name()));
    };
    if x.dtype != y.dtype {
        return refuse("a result of another type");
    }
    let whole_numbers = matches!(op, "SUM" | "PROD" | "MAX" | "MIN" | "L1" | "SQUARES");
    if !(is_float(x.dtype) || matches!(x.dtype, DType::I32 | DType::I64) && whole_numbers && !x.is_empty()) {
        return refuse(format!("{op} of {}", x.dtype));
    }
    let is_reduced = match &node.op {
        Op::GlobalAveragePool(_) | Op::GlobalMaxPool(_) => {
            if x.is_empty() {
                return refuse("a pool of nothing");
            }
            (0..rank).map(|axis| axis >= 2).collect()
        }
        _ => {
            let axes = match node.inputs.get(1).copied().flatten() {
                None => Vec::new(),
                reference => match problem.region.constant(reference) {
                    Some(tensor) => tensor.to_i64s(),
                    None => return refuse("axes that are not constants"),
                },
            };
            let mut mask = vec![axes.is_empty() && !noop; rank];
            // A scalar is taken as one element along axis 0.
            for axis in axes.into_iter().filter(|_| rank > 0) {
                mask[axis_of(axis)?] = true;
            }
            mask
        }
    };
    Ok(Wanted { op, is_reduced, keepdims, last_wins: false })
}

/// The strides of the output for every axis of the input: 0 where an axis is gone.
fn strides_for(output: &Operand, wanted: &Wanted) -> Option<Vec<isize>> {
    let mut own = output.strides.iter().map(|stride| *stride as isize);
    let strides: Vec<isize> = wanted
        .is_reduced
        .iter()
        .map(|reduced| match (*reduced, wanted.keepdims) {
            (true, false) => Some(0),
            (true, true) => own.next().map(|_| 0),
            (false, _) => own.next(),
        })
        .collect::<Option<_>>()?;
    own.next().is_none().then_some(strides)
}

fn plan(gpu: &Gpu, problem: &Problem) -> Result<Plan, KernelError> {
    let wanted = wanted(problem)?;
    let (x, y) = (&problem.inputs[0], &problem.outputs[0]);
    if y.is_empty() {
        return Ok(Plan::default());
    }
    let Some(to) = strides_for(y, &wanted) else {
        return refuse("an output of another rank");
    };
    let mut order: Vec<usize> = (0..x.rank()).filter(|axis| x.dims[*axis] != 1).collect();
    order.sort_by_key(|axis| std::cmp::Reverse(x.strides[*axis]));
    let pick = |reduced: bool| {
        let all = order.iter().filter(|axis| wanted.is_reduced[**axis] == reduced);
        space::merged(
            all.map(|&axis| Axis { dim: x.dims[axis], strides: vec![x.strides[axis] as isize, to[axis]] })
                .collect(),
        )
    };
    // Strides of reduced axes in the output are 0 and join like any other.
    let (kept, mut gone) = (pick(false), pick(true));
    let n_gone: usize = gone.iter().map(|axis| axis.dim).product();
    if gone.is_empty() {
        gone.push(Axis { dim: 1, strides: vec![1, 0] });
    }
    let is_arg = wanted.op.starts_with("ARG");
    let inner_kept = kept.last().filter(|axis| axis.strides[0] == 1);
    let along = inner_kept.is_none();
    let size = x.dtype.bits() / 8;
    let (inner, others): (&Axis, Vec<&Axis>) = match (along, inner_kept) {
        (false, Some(inner)) => (inner, kept.iter().rev().skip(1).chain(&gone).collect()),
        _ => {
            let inner = gone.last().ok_or_else(|| KernelError::unsupported("nothing to reduce"))?;
            (inner, gone.iter().rev().skip(1).chain(&kept).collect())
        }
    };
    let mut lanes = match along {
        true if inner.strides[0] == 1 => 16 / size,
        true => 1,
        // Each result of a thread has registers of its own.
        false => (16 / size).min(if is_arg { 2 } else { 8 }),
    };
    let fits =
        |lanes: usize| inner.dim >= lanes && others.iter().all(|axis| axis.strides[0] % lanes as isize == 0);
    while lanes > 1 && !fits(lanes) {
        lanes /= 2;
    }
    let n_inner = inner.dim;
    let n_kept: usize = kept.iter().map(|axis| axis.dim).product();
    // Few results: more threads with fewer of them each, so that more multiprocessors have some.
    let is_few = !along && n_kept < FEW_RESULTS * gpu.n_sms as usize;
    while is_few && lanes > 2 {
        lanes /= 2;
    }
    let n_results: usize = match along {
        true => kept.iter().map(|axis| axis.dim).product(),
        false => kept.iter().map(|axis| axis.dim).product::<usize>() / n_inner * n_inner.div_ceil(lanes),
    };
    let n_elements = match along {
        true => n_gone / n_inner.max(1) * n_inner.div_ceil(lanes),
        false => n_gone,
    };
    let mut sharers = n_elements.clamp(1, THREADS).next_power_of_two().min(THREADS);
    if !along {
        // Neighbouring results fill at least the lanes of a warp, or a sector of memory where they are few.
        sharers = sharers.clamp(1, if is_few { THREADS / FEW_BESIDE } else { THREADS / 32 });
    }
    let n_blocks = n_results.div_ceil(THREADS / sharers);
    let few = (FEW_BLOCKS.min(gpu.n_sms as usize)).div_ceil(n_blocks.max(1));
    let n_parts = few.min(n_gone / LEAST_PART).clamp(1, MAX_PARTS);
    let n_parts = if is_arg { 1 } else { n_parts };
    let per_part = n_elements.div_ceil(n_parts);
    let n_parts = n_elements.div_ceil(per_part.max(1)).max(1);
    let dividing = |axes: &[Axis], vectors: bool| {
        let mut all = divisors(axes);
        if vectors {
            all[0] = Divisor::of(n_inner.div_ceil(lanes));
        }
        all
    };
    let numbers = ReduceArgs {
        n_results: int(n_results)?,
        n_elements: int(n_elements)?,
        n_inner: int(n_inner)?,
        n_gone: int(n_gone)?,
        per_part: int(per_part)?,
        kept: dividing(&kept, !along),
        gone: dividing(&gone, along),
        x_kept: strides_along(&kept, 0)?,
        y_kept: strides_along(&kept, 1)?,
        x_gone: strides_along(&gone, 0)?,
    };
    int(x.span_bytes() / size)?;
    let code = |entry: &'static str| -> Result<KernelCode, KernelError> {
        Ok(KernelCode::new("reduce.cu", include_str!("../../kernels/reduce.cu"), entry, &numbers)
            .define("T", storage(x)?)
            .define("U", storage(y)?)
            .define("OP", wanted.op)
            .define("LAST_WINS", u8::from(wanted.last_wins))
            .define("SHARERS", sharers)
            .define("ALONG", u8::from(along))
            .define("V", lanes)
            .define("N_KEPT", kept.len())
            .define("N_GONE", gone.len())
            .define("PARTS", n_parts))
    };
    let args = vec![
        Arg::Address(Slot::Input(0), 0),
        Arg::Address(Slot::Output(0), 0),
        if n_parts > 1 { Arg::Address(Slot::Workspace, 0) } else { Arg::Nothing },
        Arg::of(&numbers),
    ];
    let grid = [blocks(n_results, THREADS / sharers)?, n_parts as u32, 1];
    let mut plan = Plan::one(code("reduce")?, grid, THREADS as u32, args);
    if n_parts > 1 {
        let n_slots = n_results * if along { 1 } else { lanes };
        plan.workspace = n_parts * n_slots * PART_BYTES;
        plan.sources.push(code("reduce_finish")?.define("FINISH", 1));
        plan.steps.push(Step {
            source: 1,
            grid: [blocks(n_slots, THREADS)?, 1, 1],
            threads: THREADS as u32,
            cluster: 1,
            shared: 0,
            args: vec![Arg::Address(Slot::Output(0), 0), Arg::Address(Slot::Workspace, 0), Arg::of(&numbers)],
        });
    }
    Ok(plan)
}

impl Family for ReduceFamily {
    fn name(&self) -> &'static str {
        "reduce"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        if wanted(problem).is_err() {
            return Vec::new();
        }
        let (x, y) = (&problem.inputs[0], &problem.outputs[0]);
        let ns = gpu.roofline_ns(0.0, 1.0, problem.traffic_bytes() as f64);
        let offer = |layout: Layout| {
            let inputs = vec![Want::inside(layout)];
            let to = if y.rank() == x.rank() { layout } else { Layout::Plain };
            let outputs = vec![Want::inside(to)];
            plan(gpu, &problem.with_layouts(&inputs, &outputs)).ok()?;
            Some(candidate(format!("reduce_{}", layout.name()), REVISION, inputs, outputs, ns))
        };
        layouts_for(&problem.inputs).filter_map(offer).collect()
    }

    fn plan(&self, gpu: &Gpu, problem: &Problem, _tactic: &Tactic) -> Result<Plan, KernelError> {
        plan(gpu, problem)
    }
}
