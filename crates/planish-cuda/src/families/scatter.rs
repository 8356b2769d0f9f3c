//! The family of writes by index: ScatterElements and ScatterND. The last of several at one place stays, and folds go
//! in the order of the updates, so that results do not depend on which thread comes first.

use planish_gpu::indices::Index;
use planish_gpu::kernel_args;
use planish_gpu::operands::{candidate, is_float, moved_type, refuse, size_of_element, storage};
use planish_gpu::plan::{Arg, KernelCode, Plan, Slot};
use planish_gpu::space::{Divisor, blocks, int};
use planish_kernel::{Budget, Candidate, KernelError, Layout, Operand, Problem, Ref, Tactic, Want};
use planish_op::{Op, ScatterReduction};
use planish_tensor::{DType, normalize_axis};

use crate::family::Family;
use crate::gpu::Gpu;

#[cfg(test)]
mod tests;

const REVISION: u32 = 2;
/// Nanoseconds of a launch after another one.
const LAUNCH_NS: f64 = 1_000.0;
/// Nanoseconds from one fold of a thread to the next: it reads what it may just have written.
const FOLD_NS: f64 = 600.0;
const THREADS: u32 = 256;

kernel_args! {
    /// What scatter.cu is given: by the stage some of it, the rest is zero.
    struct ScatterArgs {
        n_threads: i32,
        /// Of the data's indexed axis.
        axis_size: i32,
        axis_stride: i32,
        /// Updates that a thread folds in, and the distance of their indices.
        n_folds: i32,
        index_step: i32,
        /// Elements of a slice, and what takes a vector's place in one off its number.
        slice: i32,
        slice_vectors: Divisor,
        /// Axes of the index, innermost first, their strides in the data (of the indexed one 0) and in the index.
        axes: Vec<Divisor>,
        data_strides: Vec<i32>,
        index_strides: Vec<i32>,
        /// Axes of a tuple: sizes, and strides in slices.
        tuple_sizes: Vec<i32>,
        tuple_strides: Vec<i32>,
    }
}

/// What a thread does.
#[derive(Clone, Copy)]
enum Stage {
    Forget = 0,
    Mark = 1,
    Pick = 2,
    Copy = 3,
    Fold = 4,
}

/// ScatterElements and ScatterND.
pub(crate) struct ScatterFamily;

/// The operands of a scatter.
struct Parts<'a> {
    /// Which inputs these are.
    data_at: usize,
    updates_at: usize,
    data: &'a Operand,
    index: Index<'a>,
    reduction: ScatterReduction,
    /// The indexed axis, where each element has an index.
    axis: Option<usize>,
}

impl<'a> Parts<'a> {
    fn of(problem: &'a Problem) -> Result<Parts<'a>, KernelError> {
        let ([node], [y]) = (&problem.region.nodes[..], &problem.outputs[..]) else {
            return refuse("one scatter");
        };
        let &[Some(Ref::Input(data_at)), index, Some(Ref::Input(updates_at))] = &node.inputs[..] else {
            return refuse("a scatter of updates into data");
        };
        let (data_at, updates_at) = (data_at as usize, updates_at as usize);
        let (data, updates) = (&problem.inputs[data_at], &problem.inputs[updates_at]);
        let is_dense = |operand: &Operand| operand.packed.is_none() && operand.is_dense(Layout::Plain);
        let fits =
            [data, updates, y].into_iter().all(|operand| is_dense(operand) && operand.dtype == y.dtype);
        if !fits || data.dims != y.dims || y.dtype.is_sub_byte() {
            return refuse("dense values of one type");
        }
        let index = Index::of(problem, index)?;
        let (reduction, axis) = match &node.op {
            Op::ScatterElements(op) => {
                let axis = normalize_axis(op.axis, data.rank());
                let axis = axis.map_err(|error| KernelError::unsupported(error.to_string()))?;
                let within = |at: usize| at == axis || index.dims[at] <= data.dims[at] || index.is_empty();
                if index.dims.len() != data.rank()
                    || updates.dims != index.dims
                    || !(0..data.rank()).all(within)
                {
                    return refuse("an index of other sizes than the updates");
                }
                (op.reduction, Some(axis))
            }
            Op::ScatterND(op) => {
                let Some((&depth, tuples)) = index.dims.split_last() else {
                    return refuse("an index without tuples");
                };
                if !(1..=data.rank()).contains(&depth)
                    || updates.dims != [tuples, &data.dims[depth..]].concat()
                {
                    return refuse("updates of other sizes than data and index make");
                }
                (op.reduction, None)
            }
            _ => return refuse("no scatter"),
        };
        Ok(Parts { data_at, updates_at, data, index, reduction, axis })
    }

    /// Axes of a tuple; 0 where each element has an index.
    fn depth(&self) -> usize {
        if self.axis.is_some() { 0 } else { self.index.dims.last().copied().unwrap_or(0) }
    }

    /// Elements that one index or tuple names.
    fn run(&self) -> usize {
        if self.axis.is_some() { 1 } else { self.data.dims[self.depth()..].iter().product() }
    }

    /// Indices or tuples.
    fn n_places(&self) -> usize {
        self.index.len() / self.depth().max(1)
    }

    /// How many folds a thread does.
    fn fold_len(&self) -> usize {
        self.axis.map_or(self.n_places(), |axis| self.index.dims[axis])
    }

    fn launch(
        &self,
        stage: Stage,
        n_threads: usize,
        (element, lanes): (&str, usize),
        n: usize,
        numbers: ScatterArgs,
    ) -> Result<Plan, KernelError> {
        let numbers = ScatterArgs { n_threads: int(n_threads)?, ..numbers };
        let fold = match self.reduction {
            ScatterReduction::Add => "pl_add",
            ScatterReduction::Mul => "pl_mul",
            ScatterReduction::Max => "pl_max",
            ScatterReduction::Min | ScatterReduction::None => "pl_min",
        };
        let reads_index = matches!(stage, Stage::Mark | Stage::Fold);
        let code =
            KernelCode::new("scatter.cu", include_str!("../../kernels/scatter.cu"), "scatter", &numbers)
                .define("STAGE", stage as u8)
                .define("T", element)
                .define("V", lanes)
                .define("EACH", u8::from(self.axis.is_some()))
                .define("N", n)
                .define("FOLD", fold);
        let code = if reads_index { self.index.told(code)? } else { code.define("I_T", "i64") };
        let args = vec![
            Arg::Address(Slot::Input(self.data_at), 0),
            if reads_index { self.index.arg.clone() } else { Arg::Nothing },
            Arg::Address(Slot::Input(self.updates_at), 0),
            Arg::Address(Slot::Output(0), 0),
            if matches!(stage, Stage::Forget | Stage::Mark | Stage::Pick) {
                Arg::Address(Slot::Workspace, 0)
            } else {
                Arg::Nothing
            },
            if reads_index { Arg::Address(Slot::Fault, 0) } else { Arg::Nothing },
            Arg::of(&numbers),
        ];
        let grid = [blocks(n_threads, THREADS as usize)?, 1, 1];
        Ok(Plan::one(code, grid, THREADS, args))
    }

    /// What places by tuples ask for.
    fn tuple_args(&self) -> Result<ScatterArgs, KernelError> {
        let depth = self.depth();
        let dims = &self.data.dims[..depth];
        let step = |at: usize| int(dims[at + 1..].iter().product());
        Ok(ScatterArgs {
            tuple_sizes: dims.iter().map(|dim| int(*dim)).collect::<Result<_, _>>()?,
            tuple_strides: (0..depth).map(step).collect::<Result<_, _>>()?,
            ..ScatterArgs::default()
        })
    }

    /// What places along the indexed axis ask for, and others along these axes.
    fn axis_args(&self, axis: usize, others: &[usize]) -> Result<ScatterArgs, KernelError> {
        let stride = |at: &usize| if *at == axis { Ok(0) } else { int(self.data.strides[*at]) };
        Ok(ScatterArgs {
            axis_size: int(self.data.dims[axis])?,
            axis_stride: int(self.data.strides[axis])?,
            axes: others.iter().map(|at| Divisor::of(self.index.dims[*at])).collect(),
            data_strides: others.iter().map(stride).collect::<Result<_, _>>()?,
            ..ScatterArgs::default()
        })
    }

    /// The last update of every place, or what was there.
    fn last(&self) -> Result<Plan, KernelError> {
        let size = size_of_element(self.data.dtype);
        let run = self.run();
        let lanes = lanes(run, size);
        let n_slices = self.data.len() / run;
        let element = moved_type(size)?;
        let (n, mark) = match self.axis {
            Some(axis) => {
                let all: Vec<usize> = (0..self.data.rank()).rev().collect();
                (self.data.rank(), self.axis_args(axis, &all)?)
            }
            None => (self.depth(), self.tuple_args()?),
        };
        let pick = ScatterArgs {
            slice_vectors: Divisor::of(run / lanes),
            slice: int(run)?,
            ..ScatterArgs::default()
        };
        let mut plan = self
            .launch(Stage::Forget, n_slices, (element, 1), 0, ScatterArgs::default())?
            .then(self.launch(Stage::Mark, self.n_places(), (element, 1), n, mark)?)
            .then(self.launch(Stage::Pick, self.data.len() / lanes, (element, lanes), 0, pick)?);
        plan.workspace = 4 * n_slices;
        Ok(plan)
    }

    /// The data, and the updates folded in.
    fn folded(&self) -> Result<Plan, KernelError> {
        let size = size_of_element(self.data.dtype);
        let element = storage(self.data)?;
        let moves_only = self.index.is_empty();
        let is_exact = matches!(self.reduction, ScatterReduction::Max | ScatterReduction::Min);
        let takes = match self.data.dtype {
            DType::F32 | DType::I32 | DType::I64 => true,
            // Sums would be rounded at every step.
            dtype if is_float(dtype) => is_exact,
            _ => false,
        };
        if !takes && !moves_only {
            return refuse(format!("folds of {}", self.data.dtype));
        }
        let lanes = lanes(self.data.len(), size);
        let copy =
            self.launch(Stage::Copy, self.data.len() / lanes, (element, lanes), 0, ScatterArgs::default())?;
        if moves_only {
            return Ok(copy);
        }
        let fold = match self.axis {
            Some(axis) => {
                let index_strides = Layout::Plain.strides(self.index.dims);
                let others: Vec<usize> = (0..self.data.rank()).rev().filter(|&at| at != axis).collect();
                let fold = ScatterArgs {
                    n_folds: int(self.index.dims[axis])?,
                    index_step: int(index_strides[axis])?,
                    index_strides: others
                        .iter()
                        .map(|at| int(index_strides[*at]))
                        .collect::<Result<_, _>>()?,
                    ..self.axis_args(axis, &others)?
                };
                let n_lines = self.index.len() / self.index.dims[axis];
                self.launch(Stage::Fold, n_lines, (element, 1), others.len(), fold)?
            }
            None => {
                let (n_folds, slice) = (int(self.n_places())?, int(self.run())?);
                let fold = ScatterArgs { n_folds, slice, ..self.tuple_args()? };
                self.launch(Stage::Fold, self.run(), (element, 1), self.depth(), fold)?
            }
        };
        Ok(copy.then(fold))
    }
}

/// Neighbours that are moved at once, of a run of so many.
fn lanes(run: usize, size: usize) -> usize {
    let mut lanes = 16 / size;
    while !run.is_multiple_of(lanes) {
        lanes /= 2;
    }
    lanes
}

fn plan(problem: &Problem) -> Result<Plan, KernelError> {
    let parts = Parts::of(problem)?;
    if parts.data.is_empty() {
        return Ok(Plan::default());
    }
    match parts.reduction {
        ScatterReduction::None if !parts.index.is_empty() => parts.last(),
        _ => parts.folded(),
    }
}

impl Family for ScatterFamily {
    fn name(&self) -> &'static str {
        "scatter"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let inputs = vec![Want::dense(Layout::Plain); problem.inputs.len()];
        let outputs = vec![Want::dense(Layout::Plain); problem.outputs.len()];
        let arranged = problem.with_layouts(&inputs, &outputs);
        let (Ok(parts), Ok(plan)) = (Parts::of(&arranged), plan(&arranged)) else { return Vec::new() };
        let is_fold = parts.reduction != ScatterReduction::None;
        let mut ns = gpu.roofline_ns(0.0, 1.0, (problem.traffic_bytes() + 3 * plan.workspace) as f64);
        ns += LAUNCH_NS * plan.steps.len().saturating_sub(1) as f64;
        if is_fold {
            ns += FOLD_NS * parts.fold_len() as f64;
        }
        let name = if is_fold { "scatter_fold" } else { "scatter_last" };
        let mut offered = candidate(name.to_string(), REVISION, inputs, outputs, ns);
        offered.in_place = Family::in_place(self, &arranged, &offered.tactic);
        vec![offered]
    }

    /// Every thread reads its own place before it writes there.
    fn in_place(&self, problem: &Problem, _tactic: &Tactic) -> Vec<(usize, usize)> {
        match Parts::of(problem) {
            Ok(parts) if parts.data_at != parts.updates_at => vec![(0, parts.data_at)],
            _ => Vec::new(),
        }
    }

    fn plan(&self, _gpu: &Gpu, problem: &Problem, _tactic: &Tactic) -> Result<Plan, KernelError> {
        plan(problem)
    }
}
