//! The family of normalizations.

use planish_kernel::pointwise::Program;
use planish_kernel::{Candidate, KernelError, Layout, Operand, Problem, Ref, RegionNode, Tactic, Want};
use planish_op::Op;
use planish_tensor::{DType, normalize_axis};

use super::LpNorm;
use super::groups::{GroupNorm, Steps};
use super::rows::{RowKind, RowNorm, RowOperands};
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::lines::{Outside, merged};
use crate::pointwise::Pointwise;
use crate::pointwise::family::{layouts_for, want};
use crate::price::expected_ns;
use crate::shared::Shared;
use crate::team::Team;

/// Raised when a kernel changes.
const REVISION: u32 = 1;

/// Operations of f32 that an element is read and computed with.
const OPERATIONS: f64 = 12.0;

/// Layer, RMS, group, instance and Lp normalization, with what is pointwise behind them.
pub(crate) struct Norms;

/// A normalization with its operands settled.
#[derive(Debug)]
enum Norm {
    Rows { plan: RowNorm, x: usize, residual: Option<usize>, scale: usize, bias: Option<usize> },
    Groups { plan: GroupNorm, inputs: [usize; 3] },
    Lengths(LpNorm),
}

impl Family for Norms {
    fn name(&self) -> &'static str {
        "norm"
    }

    fn candidates(&self, isa: Isa, problem: &Problem) -> Vec<Candidate> {
        let mut list = Vec::new();
        for layout in layouts_for(&problem.outputs) {
            // Try it as it would be: what a plan needs of strides decides whether there is a candidate.
            let mut laid = problem.clone();
            let wants: Vec<Want> =
                problem.inputs.iter().map(|input| want(input, &problem.outputs[0].dims, layout)).collect();
            for (input, want) in laid.inputs.iter_mut().zip(&wants) {
                input.strides = want.layout.strides(&input.dims);
            }
            for output in &mut laid.outputs {
                output.strides = layout.strides(&output.dims);
            }
            let Ok(norm) = Norm::new(isa, &laid) else {
                continue;
            };
            let operations = OPERATIONS * problem.outputs[0].len() as f64;
            let bytes = problem.traffic_bytes() as f64;
            list.push(Candidate {
                tactic: Tactic::new(format!("norm_{}_{isa}", layout.name()), REVISION),
                inputs: wants,
                outputs: vec![Want::inside(layout); problem.outputs.len()],
                packed: vec![None; problem.inputs.len()],
                predicted_ns: expected_ns(isa, operations, bytes, problem.threads),
                in_place: norm.in_place(problem),
                slow: false,
            });
        }
        list
    }

    fn prepare(&self, isa: Isa, problem: &Problem, _tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        Ok(Box::new(Norm::new(isa, problem)?))
    }
}

/// Makes the epilogue for rows and columns of these axes, if there is one.
type MakeEpilogue<'a> = dyn Fn(&[usize], &[usize]) -> Result<Option<Pointwise>, KernelError> + 'a;

fn refuse<T>(reason: impl Into<String>) -> Result<T, KernelError> {
    Err(KernelError::unsupported(reason))
}

fn is_main(op: &Op) -> bool {
    matches!(
        op,
        Op::LayerNormalization(_)
            | Op::RMSNormalization(_)
            | Op::GroupNormalization(_)
            | Op::InstanceNormalization(_)
            | Op::LpNormalization(_)
    )
}

/// The operand that a node's input is, if it is an input of the region.
fn operand<'a>(
    problem: &'a Problem,
    node: &RegionNode,
    idx: usize,
) -> Result<Option<(usize, &'a Operand)>, KernelError> {
    match node.inputs.get(idx).copied().flatten() {
        None => Ok(None),
        Some(Ref::Input(input)) => match problem.inputs.get(input as usize) {
            Some(operand) if operand.dtype == DType::F32 && operand.packed.is_none() => {
                Ok(Some((input as usize, operand)))
            }
            _ => refuse("an operand that is not plain f32"),
        },
        Some(_) => refuse("an operand that is not an input of the region"),
    }
}

impl Norm {
    fn new(isa: Isa, problem: &Problem) -> Result<Norm, KernelError> {
        let nodes = &problem.region.nodes;
        let Some(main) = nodes.iter().position(|node| is_main(&node.op)) else {
            return refuse("no normalization");
        };
        let ([output], [Ref::Node { output: 0, .. }]) = (&*problem.outputs, &*problem.region.outputs) else {
            return refuse("a normalization has one output here");
        };
        if output.dtype != DType::F32 {
            return refuse("the output is not f32");
        }
        let node = &nodes[main];
        let rank = output.rank();
        let epilogue = |row_axes: &[usize], col_axes: &[usize]| -> Result<Option<Pointwise>, KernelError> {
            let program = Program::epilogue(problem, main as u32)?;
            if program.dims != output.dims {
                return refuse("an epilogue of other sizes");
            }
            match program.is_identity() {
                true => Ok(None),
                false => Pointwise::for_blocks(isa, problem, &program, row_axes, col_axes).map(Some),
            }
        };
        match &node.op {
            Op::LayerNormalization(op) => {
                let axis = axis_of(op.axis, rank)?;
                let (rows, cols): (Vec<usize>, Vec<usize>) = (0..rank).partition(|idx| *idx < axis);
                let epilogue = epilogue(&rows, &cols)?;
                Norm::rows(isa, problem, node, axis, RowKind::Layer, op.epsilon, epilogue)
            }
            Op::RMSNormalization(op) => {
                let axis = axis_of(op.axis, rank)?;
                let (rows, cols): (Vec<usize>, Vec<usize>) = (0..rank).partition(|idx| *idx < axis);
                let epilogue = epilogue(&rows, &cols)?;
                Norm::rows(isa, problem, node, axis, RowKind::Rms, op.epsilon, epilogue)
            }
            Op::GroupNormalization(op) => {
                let n_groups = usize::try_from(op.num_groups).unwrap_or(0);
                Norm::groups(isa, problem, node, n_groups, op.epsilon, &epilogue)
            }
            Op::InstanceNormalization(op) => {
                let n_channels = *output.dims.get(1).unwrap_or(&0);
                Norm::groups(isa, problem, node, n_channels, op.epsilon, &epilogue)
            }
            Op::LpNormalization(op) if nodes.len() == 1 && matches!(op.p, 1 | 2) => {
                let Some((_, x)) = operand(problem, node, 0)? else {
                    return refuse("no input");
                };
                let axis = axis_of(op.axis, rank)?;
                Ok(Norm::Lengths(LpNorm::new(isa, &x.dims, &x.strides, &output.strides, axis, op.p == 2)))
            }
            op => refuse(format!("{} in this form", op.name())),
        }
    }

    fn rows(
        isa: Isa,
        problem: &Problem,
        node: &RegionNode,
        axis: usize,
        kind: RowKind,
        epsilon: f32,
        epilogue: Option<Pointwise>,
    ) -> Result<Norm, KernelError> {
        let output = &problem.outputs[0];
        // What is normalized may be a sum that is made on the way.
        let (x, residual) = match node.inputs.first().copied().flatten() {
            Some(Ref::Node { node: sum, output: 0 }) => {
                let sum = &problem.region.nodes[sum as usize];
                match (&sum.op, operand(problem, sum, 0)?, operand(problem, sum, 1)?) {
                    (Op::Add(_), Some(a), Some(b)) => (a, Some(b)),
                    _ => return refuse("only a sum of two inputs is made before the rows are normalized"),
                }
            }
            _ => match operand(problem, node, 0)? {
                Some(x) => (x, None),
                None => return refuse("no input"),
            },
        };
        let dims = &output.dims;
        let len: usize = dims[axis..].iter().product();
        let along = |operand: &Operand| {
            operand.dims == *dims && is_run(&dims[axis..], &operand.strides[axis..]) == Some(1)
        };
        if !along(x.1) || !residual.is_none_or(|residual| along(residual.1)) || !along(output) {
            return refuse("rows with gaps");
        }
        let outside = |from: &Operand| {
            let all = (0..axis).filter(|idx| dims[*idx] != 1);
            merged(
                all.map(|idx| Outside { dim: dims[idx], from: from.strides[idx], to: output.strides[idx] })
                    .collect(),
            )
        };
        let parameter = |idx: usize| match operand(problem, node, idx)? {
            None => Ok(None),
            Some((input, operand)) => {
                let surplus = operand.rank().saturating_sub(dims.len() - axis);
                let whole = operand.len() == len && operand.dims[surplus..] == dims[axis..];
                match whole && operand.is_dense(Layout::Plain) {
                    true => Ok(Some(input)),
                    false => refuse("parameters that are not one for each element of a row"),
                }
            }
        };
        let Some(scale) = parameter(1)? else {
            return refuse("no scale");
        };
        let plan = RowNorm {
            isa,
            kind,
            outside: outside(x.1),
            residual: residual.map(|residual| outside(residual.1)),
            len,
            epsilon,
            epilogue,
        };
        let bias = if kind == RowKind::Layer { parameter(2)? } else { None };
        Ok(Norm::Rows { plan, x: x.0, residual: residual.map(|residual| residual.0), scale, bias })
    }

    fn groups(
        isa: Isa,
        problem: &Problem,
        node: &RegionNode,
        n_groups: usize,
        epsilon: f32,
        epilogue: &MakeEpilogue<'_>,
    ) -> Result<Norm, KernelError> {
        let output = &problem.outputs[0];
        let (Some((x, from)), Some((scale, scales)), Some((bias, biases))) =
            (operand(problem, node, 0)?, operand(problem, node, 1)?, operand(problem, node, 2)?)
        else {
            return refuse("a parameter is missing");
        };
        let dims = &output.dims;
        if dims.len() < 2 || from.dims != *dims || n_groups == 0 || !dims[1].is_multiple_of(n_groups) {
            return refuse("channels that do not divide into groups");
        }
        if [scales, biases].iter().any(|p| p.dims != [dims[1]] || !p.is_dense(Layout::Plain)) {
            return refuse("parameters that are not one for each channel");
        }
        let steps = |operand: &Operand| {
            let pixel = is_run(&dims[2..], &operand.strides[2..])?;
            Some(Steps { sample: operand.strides[0], channel: operand.strides[1], pixel })
        };
        let (Some(from), Some(to)) = (steps(from), steps(output)) else {
            return refuse("pixels with gaps");
        };
        let plane = dims[2..].iter().product();
        let last = (from.channel == 1 && to.channel == 1) || dims[1] == 1 && plane == 1;
        if !last && plane > 1 && (from.pixel, to.pixel) != (1, 1) {
            return refuse("neither channels nor pixels lie side by side");
        }
        // What is at 1 decides; where both could be, channels are.
        let spatial: Vec<usize> = (2..dims.len()).collect();
        let epilogue = if last {
            let rows: Vec<usize> = [0].into_iter().chain(spatial).collect();
            epilogue(&rows, &[1])?
        } else {
            epilogue(&[0, 1], &spatial)?
        };
        let plan = GroupNorm {
            isa,
            n_samples: dims[0],
            n_channels: dims[1],
            n_groups,
            plane,
            from,
            to,
            epsilon,
            epilogue,
        };
        Ok(Norm::Groups { plan, inputs: [x, scale, bias] })
    }

    /// The output may lie upon the normalized input, unless the epilogue reads that again.
    fn in_place(&self, problem: &Problem) -> Vec<(usize, usize)> {
        let (x, has_epilogue) = match self {
            Norm::Rows { plan, x, .. } => (*x, plan.epilogue.is_some()),
            Norm::Groups { plan, inputs } => (inputs[0], plan.epilogue.is_some()),
            Norm::Lengths(_) => (0, false),
        };
        match has_epilogue || problem.inputs[x].constant {
            true => Vec::new(),
            false => vec![(0, x)],
        }
    }
}

fn axis_of(axis: i64, rank: usize) -> Result<usize, KernelError> {
    normalize_axis(axis, rank).map_err(|error| KernelError::unsupported(error.to_string()))
}

/// The stride of these dimensions as one, if they go on with one stride; 1 if there is but one element.
fn is_run(dims: &[usize], strides: &[usize]) -> Option<usize> {
    let mut run: Option<(usize, usize)> = None;
    for (dim, stride) in dims.iter().zip(strides).rev().filter(|(dim, _)| **dim != 1) {
        match &mut run {
            None => run = Some((*stride, stride * dim)),
            Some((_, next)) if *stride == *next => *next = stride * dim,
            Some(_) => return None,
        }
    }
    Some(run.map_or(1, |(first, _)| first))
}

impl Work for Norm {
    fn scratch_bytes(&self, n_slots: usize) -> usize {
        match self {
            Norm::Rows { plan, .. } => n_slots * plan.scratch_bytes().next_multiple_of(64),
            Norm::Groups { plan, .. } => plan.scratch_bytes(n_slots),
            Norm::Lengths(_) => 0,
        }
    }

    unsafe fn run(
        &self,
        inputs: &[*const u8],
        outputs: &[*mut u8],
        scratch: *mut u8,
        team: &Team,
    ) -> Result<(), KernelError> {
        let shared = Shared { inputs, outputs, scratch };
        match self {
            Norm::Rows { plan, x, residual, scale, bias } => {
                let per_slot = plan.scratch_bytes().next_multiple_of(64);
                team.for_each(plan.n_tasks(), &|task| {
                    let shared = &shared;
                    let of = |input: Option<usize>| {
                        input.map_or(std::ptr::null(), |input| shared.inputs[input].cast::<f32>())
                    };
                    let operands = RowOperands {
                        x: of(Some(*x)),
                        residual: of(*residual),
                        scale: of(Some(*scale)),
                        bias: of(*bias),
                        y: shared.outputs[0].cast(),
                    };
                    // SAFETY: the caller grants the operands and a scratch per slot; tasks write apart.
                    unsafe {
                        let scratch = shared.scratch.add(task.slot * per_slot);
                        plan.run_task(task.idx, operands, shared.inputs, scratch);
                    }
                });
            }
            // SAFETY: the caller grants operands and scratch memory.
            Norm::Groups { plan, inputs } => unsafe { plan.run(&shared, *inputs, team) },
            Norm::Lengths(plan) => team.for_each(plan.n_tasks(), &|task| {
                let shared = &shared;
                // SAFETY: the caller grants the operands; tasks write apart.
                unsafe { plan.run_task(task.idx, shared.inputs[0].cast(), shared.outputs[0].cast()) };
            }),
        }
        Ok(())
    }
}
