//! Pooling as the backend sees it: candidates and prepared work.

use planish_kernel::quantized::Dequantized;
use planish_kernel::{Budget, Candidate, KernelError, Layout, Operand, Problem, Ref, Tactic};
use planish_op::Op;
use planish_op::window::{PlacedAxis, WindowAttributes};
use planish_tensor::DType;

use super::{Element, Fold, Pool, PoolArguments};
use crate::elements::Requantized;
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::price::expected_ns;
use crate::shared::Shared;
use crate::spatial::{Windows, image_candidates, image_work};
use crate::team::Team;

/// Nanoseconds of folding one element along a row of the plain layout; measured by the example `movement`.
const COLUMN_FOLD_NS: f64 = 1.0;

/// Pools over windows or over whole images, of f32 or bytes.
#[derive(Debug)]
pub(crate) struct PoolFamily;

/// The pool that a problem asks for, with these operands.
fn plan(isa: Isa, problem: &Problem, x: &Operand, y: &Operand) -> Option<Pool> {
    let dequantized = Dequantized::of(problem).ok()?;
    let region = dequantized.as_ref().map_or(&problem.region, |inner| &inner.problem.region);
    let [node] = &region.nodes[..] else { return None };
    let averaged = match &dequantized {
        Some(inner) => Some(Requantized::of(inner)?),
        None => None,
    };
    let fits = node.inputs == [Some(Ref::Input(0))]
        && region.outputs == [Ref::Node { node: 0, output: 0 }]
        && (3..=5).contains(&x.rank())
        && x.rank() == y.rank()
        && x.dims[..2] == y.dims[..2]
        && (x.dtype == y.dtype || averaged.is_some());
    let element = element(x.dtype).filter(|_| fits)?;
    let windowed = |attributes: &WindowAttributes<'_>| {
        let axes = attributes.axes(&attributes.kernel()).ok()?;
        let placed = axes.iter().zip(&x.dims[2..]).map(|(axis, size)| axis.place(*size).ok());
        placed.collect::<Option<Vec<_>>>().filter(|placed| placed.len() == x.rank() - 2)
    };
    let whole = || {
        let axis = |&size: &usize| PlacedAxis {
            input: size,
            output: 1,
            kernel: size,
            stride: 1,
            dilation: 1,
            pad_begin: 0,
            pad_end: 0,
        };
        Some(x.dims[2..].iter().map(axis).collect())
    };
    let (axes, fold) = match &node.op {
        Op::MaxPool(op) => (windowed(&op.window())?, Fold::Max),
        Op::AveragePool(op) => (windowed(&op.window())?, Fold::Average { include_pad: op.count_include_pad }),
        Op::GlobalMaxPool(_) => (whole()?, Fold::Max),
        Op::GlobalAveragePool(_) => (whole()?, Fold::Average { include_pad: false }),
        _ => return None,
    };
    Pool::plan(isa, Windows::new(&axes, x, y)?.with_rows(), fold, element, averaged)
}

fn element(dtype: DType) -> Option<Element> {
    match dtype {
        DType::F32 => Some(Element::F32),
        DType::U8 => Some(Element::U8),
        DType::I8 => Some(Element::I8),
        _ => None,
    }
}

impl Family for PoolFamily {
    fn name(&self) -> &'static str {
        "pool"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let ns = |plan: &Pool, layout: Layout| {
            let bytes = problem.traffic_bytes() as f64;
            let ns = expected_ns(isa, plan.n_reads() as f64, bytes, problem.threads);
            match layout {
                // Along rows windows far apart are folded one by one.
                Layout::Plain => {
                    ns + COLUMN_FOLD_NS * plan.n_column_folds() as f64 / problem.threads.max(1) as f64
                }
                _ => ns,
            }
        };
        let dtype = problem.inputs.first().map_or("f32", |x| x.dtype.name());
        image_candidates(problem, &format!("pool_{dtype}_{isa}"), |x, y| plan(isa, problem, x, y), ns)
    }

    fn prepare(&self, isa: Isa, problem: &Problem, _tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let refusal = "not a pool of images of f32 or bytes with one output";
        image_work(problem, |x, y| plan(isa, problem, x, y), refusal)
    }
}

impl Work for Pool {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        n_slots * self.workspace_len() * size_of::<f32>()
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let Shared { inputs, outputs, workspace } = shared;
        let arguments =
            PoolArguments { x: inputs[0].cast(), y: outputs[0].cast(), workspace: workspace.cast() };
        // SAFETY: the caller grants what the operands span and the workspace that was asked for.
        unsafe { Pool::run(self, &arguments, team) };
        Ok(())
    }
}
