//! Typed operators as the backend sees them.

use planish_kernel::{Budget, Candidate, KernelError, Layout, Operand, Problem, Tactic, Want};

use super::args::Args;
use super::{
    deform_conv, elementwise, fourier, grid_sample, lines, max_pool, moves, product, quantize, random,
    recurrent, roi_align, scatter, unique,
};
use crate::family::{Family, Work};
use crate::isa::Isa;

/// Raised when a kernel changes.
const REVISION: u32 = 2;
/// Nanoseconds of a step beside its elements.
const STEP_NS: f64 = 300.0;
/// Nanoseconds of an element that is quantized or dequantized: three loads as words, a division, two roundings.
const QUANTIZED_NS: f64 = 6.0;
/// Nanoseconds of a random number: ten rounds of a cipher, a logarithm and a cosine.
const DRAWN_NS: f64 = 40.0;
/// Nanoseconds of an element that is looked up among those before it.
const LOOKED_UP_NS: f64 = 20.0;

/// See the module.
pub(crate) struct TypedFamily;

/// A kernel of this family.
struct Plan {
    work: Box<dyn Work>,
    /// Nanoseconds for an element of the outputs.
    element_ns: f64,
    /// Whether operands may lie inside larger ones.
    inside: bool,
}

fn plan(isa: Isa, problem: &Problem) -> Option<Plan> {
    let args = Args::of(problem)?;
    if let Some(plan) = elementwise::plan(isa, problem, &args) {
        return Some(Plan { element_ns: plan.element_ns(), work: Box::new(plan), inside: true });
    }
    let dense = |work: Box<dyn Work>, element_ns: f64| Some(Plan { work, element_ns, inside: false });
    let per_output: usize = problem.outputs.iter().map(Operand::len).sum();
    let n_inputs: usize = problem.inputs.iter().map(Operand::len).sum();
    let read = n_inputs as f64 / per_output.max(1) as f64;
    if let Some(plan) = lines::plan(isa, problem, &args) {
        return dense(Box::new(plan), 1.0 + read);
    }
    if let Some(plan) = scatter::plan(problem, &args) {
        return dense(Box::new(plan), 2.0 * read);
    }
    if let Some(plan) = max_pool::plan(isa, problem, &args) {
        return dense(Box::new(plan), 4.0 + 2.0 * read);
    }
    if let Some(plan) = moves::plan(isa, problem, &args) {
        return dense(Box::new(plan), 1.0);
    }
    if let Some(plan) = quantize::plan(isa, problem, &args) {
        return dense(Box::new(plan), QUANTIZED_NS);
    }
    if let Some(plan) = recurrent::plan(isa, problem, &args) {
        let ns = plan.operations() / (8.0 * per_output.max(1) as f64);
        return dense(Box::new(plan), 4.0 + ns);
    }
    if let Some(plan) = grid_sample::plan(isa, problem, &args) {
        let ns = plan.element_ns();
        return dense(Box::new(plan), ns);
    }
    if let Some(plan) = product::plan(isa, problem, &args) {
        let ns = plan.element_ns();
        return dense(Box::new(plan), ns);
    }
    if let Some(plan) = roi_align::plan(isa, problem, &args) {
        let ns = plan.element_ns();
        return dense(Box::new(plan), ns);
    }
    if let Some(plan) = deform_conv::plan(isa, problem, &args) {
        let ns = plan.element_ns();
        return dense(Box::new(plan), ns);
    }
    if let Some(plan) = random::plan(problem) {
        return dense(Box::new(plan), DRAWN_NS);
    }
    if let Some(plan) = unique::plan(problem, &args) {
        return dense(Box::new(plan), LOOKED_UP_NS);
    }
    if let Some(plan) = fourier::plan(isa, problem, &args) {
        let ns = plan.signal_ns() * plan.n_signals() as f64 / per_output.max(1) as f64;
        return dense(Box::new(plan), ns);
    }
    None
}

impl Family for TypedFamily {
    fn name(&self) -> &'static str {
        "typed"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Some(plan) = plan(isa, problem) else { return Vec::new() };
        let whole = |operand: &Operand| operand.dtype.is_sub_byte();
        let want = |operand: &Operand| match plan.inside && !whole(operand) {
            true => Want::inside(Layout::Plain),
            false => Want::dense(Layout::Plain),
        };
        let n_elements: usize = problem.outputs.iter().map(Operand::len).sum();
        vec![Candidate::new(
            Tactic::new(format!("typed_{isa}"), REVISION),
            problem.inputs.iter().map(want).collect(),
            problem.outputs.iter().map(want).collect(),
            STEP_NS + plan.element_ns * n_elements as f64,
        )]
    }

    fn prepare(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        match plan(isa, problem) {
            Some(plan) => Ok(plan.work),
            None => Err(KernelError::unsupported(format!("{tactic}: not this operator of these types"))),
        }
    }
}
