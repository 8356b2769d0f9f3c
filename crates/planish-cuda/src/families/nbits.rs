//! Products with weights of 4 or 8 bits in blocks (MatMulNBits, and blocked DequantizeLinear in front of MatMul or Gemm):
//! few rows by kernels that read the integers as they are stored, many by the ordinary products after the weight became
//! numbers in the workspace.
//!
//! Both read one packing, so that a plan for several sizes takes either.

mod expand;
mod posed;
#[cfg(test)]
mod tests;

use planish_gpu::operands::refuse;
use planish_gpu::plan::Plan;
use planish_kernel::{Budget, Candidate, KernelError, Layout, Problem, Tactic, Want};

use self::expand::Expanded;
use self::posed::Posed;
use super::few_rows::{FewRows, Way};
use super::product::{Offer, best_of};
use crate::family::{Family, Ready, Work};
use crate::formats::Packing;
use crate::formats::codes::chunk_depth;
use crate::gpu::Gpu;
use crate::planned;
use crate::source::Source;

/// Raised when kernels or packings change.
const REVISION: u32 = 1;

const PREFIX: &str = "nbits_";

/// What chunks of tiles hold.
const CONTENT: &str =
    concat!(include_str!("../../kernels/nbits.cuh"), include_str!("../../kernels/nbits_tile.cuh"));

/// Products with weights of few bits.
pub(crate) struct NBitsFamily;

/// How a tactic computes.
enum Form {
    /// By tiles as they are stored.
    Direct(Way),
    /// By this tactic for numbers.
    Expanded(Tactic),
}

impl Form {
    fn of(tactic: &Tactic) -> Result<Form, KernelError> {
        let own = tactic.name.strip_prefix(PREFIX).unwrap_or_default();
        if let Some(inner) = own.strip_prefix(expand::PREFIX) {
            return Ok(Form::Expanded(Tactic::new(inner.to_string(), tactic.revision)));
        }
        match Way::named(own) {
            Some(way) => Ok(Form::Direct(way)),
            None => refuse(format!("no tactic is called `{}`; rebuild the plan", tactic.name)),
        }
    }
}

/// The launches of a way.
fn direct(posed: &Posed, problem: &Problem, way: Way) -> Result<Plan, KernelError> {
    let Some(reads) = posed.reads() else { return refuse("nbits: blocks that are no multiple of 16") };
    if way.scaled && !posed.scales_first() {
        return refuse("nbits: scales of another type than products");
    }
    let [n_tiles, n_chunks] = posed.tiles();
    let product = FewRows {
        problem,
        plain: &posed.weight.problem,
        x: posed.x,
        n: posed.n,
        k: posed.k,
        n_tiles,
        n_chunks,
        n_blocks: posed.weight.n_blocks(),
        addresses: posed.addresses(),
        slot_bytes: posed.slot_bytes(),
        depth: chunk_depth(posed.bits()),
        share: reads.group / 4,
        shares_rows: false,
        content: CONTENT,
    };
    product.plan(way, |code| Ok(posed.told(code, reads)?.define("H", posed.multiplied_in())))
}

impl Family for NBitsFamily {
    fn name(&self) -> &'static str {
        "nbits"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        let Ok(posed) = Posed::of(problem) else { return Vec::new() };
        if problem.outputs[0].is_empty() {
            return Vec::new();
        }
        let packed = Packing::of_inputs(posed.packings(), problem);
        let inputs = vec![Want::dense(Layout::Plain); problem.inputs.len()];
        let offer = Offer { inputs, outputs: vec![Want::inside(Layout::Plain)], packed };
        let amount = posed.amount(problem);
        let ways = if posed.has_units(gpu) { Way::all(gpu, &amount) } else { Vec::new() };
        let mut candidates: Vec<Candidate> = ways
            .into_iter()
            .filter(|way| direct(&posed, problem, *way).is_ok())
            .map(|way| {
                offer.candidate(format!("{PREFIX}{}", way.name()), REVISION, amount.price_ns(gpu, &way))
            })
            .collect();
        for (inner, ns) in Expanded::candidates(gpu, &posed, problem, budget) {
            candidates.push(offer.candidate(format!("{PREFIX}{}{inner}", expand::PREFIX), REVISION, ns));
        }
        best_of(candidates, budget.tiles, budget)
    }

    fn packings(&self, problem: &Problem, _tactic: &Tactic) -> Result<Vec<Packing>, KernelError> {
        Ok(Posed::of(problem)?.packings())
    }

    fn plan(&self, _gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Plan, KernelError> {
        let posed = Posed::of(problem)?;
        match Form::of(tactic)? {
            Form::Direct(way) => direct(&posed, problem, way),
            Form::Expanded(_) => refuse(format!("{tactic} is no plan of launches")),
        }
    }

    fn sources(&self, gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Vec<Source>, KernelError> {
        match Form::of(tactic)? {
            Form::Direct(_) => Ok(planned::sources(&self.plan(gpu, problem, tactic)?)),
            Form::Expanded(inner) => Expanded::of(&Posed::of(problem)?, inner)?.sources(gpu),
        }
    }

    fn prepare(&self, ready: &Ready<'_>) -> Result<Box<dyn Work>, KernelError> {
        match Form::of(ready.tactic)? {
            Form::Direct(_) => {
                planned::prepare(&self.plan(ready.cuda.gpu(), ready.problem, ready.tactic)?, ready)
            }
            Form::Expanded(inner) => Expanded::of(&Posed::of(ready.problem)?, inner)?.prepare(ready),
        }
    }
}
