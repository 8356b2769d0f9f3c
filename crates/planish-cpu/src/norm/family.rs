//! The family of normalizations.

use planish_kernel::norm::{self, Given, NormGroups, NormKind, NormRows};
use planish_kernel::pointwise::Program;
use planish_kernel::{Budget, Candidate, KernelError, Operand, Problem, Tactic, Want, layouts_for};
use planish_tensor::DType;

use super::LpNorm;
use super::groups::GroupNorm;
use super::rows::{RowKind, RowNorm, RowOperands};
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::lines::{LineKernel, Outside, merged};
use crate::pointwise::Pointwise;
use crate::price::expected_ns;
use crate::shared::Shared;
use crate::team::Team;

/// Raised when a kernel changes.
const REVISION: u32 = 1;

/// Operations of f32 that an element is read and computed with.
const OPERATIONS: f64 = 12.0;

/// Layer, RMS, group, instance and Lp normalization, with what is pointwise after them.
pub(crate) struct NormFamily;

/// A normalization with its operands settled.
#[derive(Debug)]
enum Norm {
    Rows { plan: RowNorm, x: usize, residual: Option<usize>, scale: usize, bias: Option<usize> },
    Groups { plan: GroupNorm, inputs: [usize; 3] },
    Lengths(LpNorm),
}

impl Family for NormFamily {
    fn name(&self) -> &'static str {
        "norm"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let mut list = Vec::new();
        for layout in layouts_for(&problem.outputs) {
            // Try it as it would be: what a plan needs of strides decides whether there is a candidate.
            let rank = problem.outputs[0].rank();
            let inputs: Vec<Want> =
                problem.inputs.iter().map(|input| Want::following(input, rank, layout)).collect();
            let outputs = vec![Want::inside(layout); problem.outputs.len()];
            let Ok(norm) = Norm::new(isa, &problem.with_layouts(&inputs, &outputs)) else {
                continue;
            };
            let operations = OPERATIONS * problem.outputs[0].len() as f64;
            let bytes = problem.traffic_bytes() as f64;
            list.push(Candidate {
                in_place: norm.in_place(problem),
                ..Candidate::new(
                    Tactic::new(format!("norm_{}_{isa}", layout.name()), REVISION),
                    inputs,
                    outputs,
                    expected_ns(isa, operations, bytes, problem.threads),
                )
            });
        }
        list
    }

    fn in_place(&self, isa: Isa, problem: &Problem) -> Vec<(usize, usize)> {
        Norm::new(isa, problem).map_or(Vec::new(), |norm| norm.in_place(problem))
    }

    fn prepare(&self, isa: Isa, problem: &Problem, _tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        Ok(Box::new(Norm::new(isa, problem)?))
    }
}

/// Makes the epilogue for rows and columns of these axes, if there is one.
type MakeEpilogue<'a> = dyn Fn(&[usize], &[usize]) -> Result<Option<Pointwise>, KernelError> + 'a;

/// What stands around a normalization.
struct Around<'a> {
    isa: Isa,
    output: &'a Operand,
    epilogue: &'a MakeEpilogue<'a>,
}

fn refuse<T>(reason: impl Into<String>) -> Result<T, KernelError> {
    Err(KernelError::unsupported(reason))
}

fn is_f32(operand: &Operand) -> bool {
    operand.dtype == DType::F32
}

impl Norm {
    fn new(isa: Isa, problem: &Problem) -> Result<Norm, KernelError> {
        let norm = norm::Norm::of(problem, is_f32)?;
        let output = &problem.outputs[0];
        let epilogue = |row_axes: &[usize], col_axes: &[usize]| -> Result<Option<Pointwise>, KernelError> {
            let program = Program::epilogue(problem, norm.main as u32)?;
            if program.dims != output.dims {
                return refuse("an epilogue of other sizes");
            }
            match program.is_identity() {
                true => Ok(None),
                false => Pointwise::for_blocks(isa, problem, &program, row_axes, col_axes).map(Some),
            }
        };
        let around = Around { isa, output, epilogue: &epilogue };
        match norm.kind {
            NormKind::Rows(rows) => around.rows(rows),
            NormKind::Groups(groups) => around.groups(groups),
            NormKind::Lengths { x: (_, x), axis, p } if problem.region.nodes.len() == 1 => {
                Ok(Norm::Lengths(LpNorm::new(isa, &x.dims, &x.strides, &output.strides, axis, p == 2)))
            }
            NormKind::Lengths { .. } => refuse("more than lengths"),
        }
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

impl Around<'_> {
    fn rows(&self, rows: NormRows<'_>) -> Result<Norm, KernelError> {
        let Around { isa, output, epilogue } = *self;
        let NormRows { x, added, scale, bias, axis, len, is_rms, epsilon } = rows;
        let dims = &output.dims;
        let outside = |from: &Operand| {
            let all = (0..axis).filter(|idx| dims[*idx] != 1);
            merged(
                all.map(|idx| Outside { dim: dims[idx], from: from.strides[idx], to: output.strides[idx] })
                    .collect(),
            )
        };
        let (row_axes, col_axes): (Vec<usize>, Vec<usize>) = (0..dims.len()).partition(|idx| *idx < axis);
        let plan = RowNorm {
            isa,
            kind: if is_rms { RowKind::Rms } else { RowKind::Layer },
            outside: outside(x.1),
            residual: added.map(|added| outside(added.1)),
            len,
            epsilon,
            epilogue: epilogue(&row_axes, &col_axes)?,
        };
        let place = |given: Option<Given<'_>>| given.map(|given| given.0);
        Ok(Norm::Rows { plan, x: x.0, residual: place(added), scale: scale.0, bias: place(bias) })
    }

    fn groups(&self, groups: NormGroups<'_>) -> Result<Norm, KernelError> {
        let Around { isa, output, epilogue } = *self;
        let NormGroups { x, scale, bias, n_groups, plane, from, to, epsilon } = groups;
        let dims = &output.dims;
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
        let (n_samples, n_channels) = (dims[0], dims[1]);
        let plan = GroupNorm { isa, n_samples, n_channels, n_groups, plane, from, to, epsilon, epilogue };
        Ok(Norm::Groups { plan, inputs: [x.0, scale.0, bias.0] })
    }
}

impl Work for Norm {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        match self {
            Norm::Rows { plan, .. } => n_slots * plan.workspace_bytes().next_multiple_of(64),
            Norm::Groups { plan, .. } => plan.workspace_bytes(n_slots),
            Norm::Lengths(_) => 0,
        }
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        match self {
            Norm::Rows { plan, x, residual, scale, bias } => {
                let per_slot = plan.workspace_bytes().next_multiple_of(64);
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
                    // SAFETY: the caller grants the operands and a workspace per slot; tasks write apart.
                    unsafe {
                        let workspace = shared.workspace.add(task.slot * per_slot);
                        plan.run_task(task.idx, operands, shared.inputs, workspace);
                    }
                });
            }
            // SAFETY: the caller grants operands and workspace.
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
