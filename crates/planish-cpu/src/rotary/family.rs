//! Rotary embeddings as the backend sees them: candidates and prepared work.

use planish_kernel::movement::Source;
use planish_kernel::rotary::{Positions, Rotary};
use planish_kernel::{Budget, Candidate, KernelError, Layout, Problem, Tactic, Want};
use planish_tensor::DType;

use super::{RotaryArguments, RotaryPlan};
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::movement::start;
use crate::price::expected_ns;
use crate::shared::Shared;
use crate::team::Team;

/// Raised when the kernel changes.
const REVISION: u32 = 1;

/// Two multiplications and a multiply-add for each element of a pair, as the price counts them.
const OPERATIONS: f64 = 3.0;

/// RotaryEmbedding of f32.
#[derive(Debug)]
pub(crate) struct RotaryFamily;

fn wanted(problem: &Problem) -> Result<Rotary, KernelError> {
    let rotary = Rotary::of(problem)?;
    let dtypes = [rotary.dtype, rotary.cos.dtype, rotary.sin.dtype];
    match dtypes == [DType::F32; 3] {
        true => Ok(rotary),
        false => Err(KernelError::unsupported("a rotary embedding of other types than f32")),
    }
}

impl Family for RotaryFamily {
    fn name(&self) -> &'static str {
        "rotary"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let inputs = vec![Want::inside(Layout::Plain); problem.inputs.len()];
        let outputs = vec![Want::inside(Layout::Plain); problem.outputs.len()];
        let Ok(rotary) = wanted(&problem.with_layouts(&inputs, &outputs)) else { return Vec::new() };
        let operations = OPERATIONS * problem.outputs[0].len() as f64;
        let bytes = problem.traffic_bytes() as f64;
        let ns = expected_ns(isa, operations, bytes, problem.threads);
        let tactic = Tactic::new(format!("rotary_pairs_{isa}"), REVISION);
        let mut candidate = Candidate {
            in_place: self.in_place(isa, problem),
            ..Candidate::new(tactic, inputs, outputs, ns)
        };
        if let Some(Positions { source: Source::Input(positions), .. }) = rotary.positions {
            candidate.inputs[positions].inside = false;
        }
        vec![candidate]
    }

    /// Both elements of a pair are read before either is written.
    fn in_place(&self, _isa: Isa, problem: &Problem) -> Vec<(usize, usize)> {
        wanted(problem).map_or(Vec::new(), |rotary| vec![(0, rotary.input)])
    }

    fn prepare(&self, isa: Isa, problem: &Problem, _tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let rotary = wanted(problem)?;
        Ok(Box::new(RotaryWork { plan: RotaryPlan::new(isa, &rotary), rotary }))
    }
}

#[derive(Debug)]
struct RotaryWork {
    plan: RotaryPlan,
    rotary: Rotary,
}

impl Work for RotaryWork {
    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let Shared { inputs, outputs, .. } = shared;
        let Rotary { input, cos, sin, positions, .. } = &self.rotary;
        let arguments = RotaryArguments {
            x: inputs[*input].cast(),
            cos: start(&cos.source, inputs).cast(),
            sin: start(&sin.source, inputs).cast(),
            positions: positions.as_ref().map_or(std::ptr::null(), |at| start(&at.source, inputs)),
            y: outputs[0].cast(),
        };
        // SAFETY: the caller grants what the operands span.
        unsafe { self.plan.run(&arguments, team) }
    }
}
