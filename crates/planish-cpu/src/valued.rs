//! Operators whose sizes are known when a plan is built and whose parameters only a run brings: where a Slice begins, how far a
//! Resize reaches.
//!
//! The kernel for known parameters is prepared when a run brings others than the run before did.

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use planish_kernel::{
    Budget, Candidate, KernelError, KernelErrorKind, Layout, Operand, Problem, Ref, RegionNode, Tactic, Want,
};
use planish_op::Op;
use planish_tensor::{Bytes, DType, Tensor};

use crate::evaluate::ReferenceFamily;
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::plainly::Plainly;
use crate::price::expected_ns;
use crate::shared::Shared;
use crate::team::Team;

/// Raised when what is done with the parameters changes.
const REVISION: u32 = 1;
/// More elements than this are no parameters: an axis each for eight axes, from both sides.
const MOST_PARAMETERS: usize = 32;
/// What preparing takes.
const PREPARE_NS: f64 = 20_000.0;

/// See the module.
pub(crate) struct ValuedFamily;

/// One of them at given sizes.
struct Valued {
    isa: Isa,
    problem: Problem,
    /// Inputs of the problem that are parameters.
    parameters: Vec<usize>,
    reference: Box<dyn Work>,
    /// The kernel of the last run, with the bytes of its parameters; none where only the reference takes these.
    last: Mutex<Option<Last>>,
}

#[derive(Clone)]
struct Last {
    parameters: Vec<u8>,
    kernel: Option<Arc<Plainly>>,
}

impl std::fmt::Debug for Valued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} with parameters of the run", self.problem.region.title())
    }
}

/// The node, and the inputs of the problem that are its parameters; `None` where there are none that a run brings.
fn parameters(problem: &Problem) -> Option<(&RegionNode, Vec<usize>)> {
    let [node] = &problem.region.nodes[..] else { return None };
    let first = match &node.op {
        Op::Slice(_) | Op::Resize(_) | Op::Pad(_) | Op::Tile(_) | Op::Expand(_) | Op::Split(_) => 1,
        Op::CumSum(_) => 1,
        _ => return None,
    };
    let mut parameters = Vec::new();
    for reference in node.inputs.iter().skip(first).flatten() {
        match reference {
            Ref::Input(idx) => parameters.push(*idx as usize),
            Ref::Constant(_) => {}
            Ref::Node { .. } => return None,
        }
    }
    parameters.sort_unstable();
    parameters.dedup();
    let is_small = |idx: &usize| {
        let operand = &problem.inputs[*idx];
        operand.len() <= MOST_PARAMETERS && !operand.dtype.is_sub_byte()
    };
    // What is read as data cannot be a parameter as well.
    let data = node.inputs.iter().take(first).flatten();
    let is_data = |idx: &usize| data.clone().any(|from| *from == Ref::Input(*idx as u32));
    let is_plain = |operand: &Operand| operand.packed.is_none() && operand.is_dense(Layout::Plain);
    let fits = !parameters.is_empty()
        && parameters.iter().all(|idx| is_small(idx) && !is_data(idx))
        && problem.inputs.iter().chain(&problem.outputs).all(is_plain);
    fits.then_some((node, parameters))
}

impl Valued {
    fn new(isa: Isa, problem: &Problem) -> Option<Valued> {
        let (_, parameters) = parameters(problem)?;
        let reference = ReferenceFamily.prepare(isa, problem, &Tactic::new("reference", 1)).ok()?;
        Some(Valued { isa, problem: problem.clone(), parameters, reference, last: Mutex::new(None) })
    }

    /// The problem with these parameters as constants.
    fn with(&self, values: &[Tensor]) -> Problem {
        let mut problem = self.problem.clone();
        let first = problem.region.constants.len() as u32;
        problem.region.constants.extend_from_slice(values);
        let place = |idx: u32| self.parameters.iter().position(|at| *at == idx as usize);
        let parameters = &self.parameters;
        for reference in problem.region.nodes[0].inputs.iter_mut().flatten() {
            if let Ref::Input(idx) = *reference {
                *reference = match place(idx) {
                    Some(at) => Ref::Constant(first + at as u32),
                    None => {
                        Ref::Input(idx - parameters.iter().filter(|at| **at < idx as usize).count() as u32)
                    }
                };
            }
        }
        let mut at = 0;
        problem.inputs.retain(|_| {
            at += 1;
            !parameters.contains(&(at - 1))
        });
        problem.region.n_inputs = problem.inputs.len() as u32;
        problem
    }

    /// Whether the node makes of these parameters what the plan says that it makes.
    fn makes_the_same(problem: &Problem) -> bool {
        let Ok(types) = problem.inner_types() else { return false };
        let made = |reference: &Ref| match reference {
            Ref::Node { node, output } => types.get(*node as usize)?.get(*output as usize),
            Ref::Input(_) | Ref::Constant(_) => None,
        };
        problem.region.outputs.iter().zip(&problem.outputs).all(|(reference, to)| {
            made(reference).is_some_and(|made| made.dims == to.dims && made.dtype == to.dtype)
        })
    }
}

impl Family for ValuedFamily {
    fn name(&self) -> &'static str {
        "valued"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        if Valued::new(isa, problem).is_none() {
            return Vec::new();
        }
        vec![Candidate::new(
            Tactic::new(format!("valued_{isa}"), REVISION),
            vec![Want::dense(Layout::Plain); problem.inputs.len()],
            vec![Want::dense(Layout::Plain); problem.outputs.len()],
            PREPARE_NS + expected_ns(isa, 0.0, 2.0 * problem.traffic_bytes() as f64, problem.threads),
        )]
    }

    fn prepare(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        match Valued::new(isa, problem) {
            Some(plan) => Ok(Box::new(plan)),
            None => Err(KernelError::unsupported(format!("{tactic}: not an operator with small parameters"))),
        }
    }
}

impl Work for Valued {
    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let mut now = Vec::new();
        let mut values = Vec::with_capacity(self.parameters.len());
        for &idx in &self.parameters {
            let operand = &self.problem.inputs[idx];
            // SAFETY: the caller grants what the operand spans.
            let bytes = unsafe { std::slice::from_raw_parts(shared.inputs[idx], operand.span_bytes()) };
            now.extend_from_slice(bytes);
            if operand.dtype == DType::Bool && bytes.iter().any(|byte| *byte > 1) {
                return Err(KernelError::new(KernelErrorKind::BadValues, "a boolean is neither 0 nor 1"));
            }
            let tensor = Tensor::from_bytes(operand.dtype, &operand.dims, Bytes::from_vec(bytes.to_vec()));
            values
                .push(tensor.map_err(|error| KernelError::new(KernelErrorKind::Failed, error.to_string()))?);
        }
        let known = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let kernel = match known.filter(|last| last.parameters == now) {
            Some(last) => last.kernel,
            None => {
                let problem = self.with(&values);
                let same = Valued::makes_the_same(&problem);
                let kernel = same.then(|| Plainly::new(self.isa, &problem)).flatten().map(Arc::new);
                let last = Last { parameters: now, kernel: kernel.clone() };
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
                kernel
            }
        };
        match kernel {
            // SAFETY: as the caller grants.
            None => unsafe { self.reference.run(shared, team) },
            Some(kernel) => {
                let data = |(idx, _): &(usize, &*const u8)| !self.parameters.contains(idx);
                let inputs: Vec<*const u8> =
                    shared.inputs.iter().enumerate().filter(data).map(|(_, from)| *from).collect();
                // SAFETY: as the caller grants.
                unsafe { kernel.run(&inputs, shared.outputs, team) }
            }
        }
    }
}
