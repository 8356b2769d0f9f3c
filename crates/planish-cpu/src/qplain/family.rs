//! Products of bytes that a run brings, as the backend sees them.

use planish_kernel::{Budget, Candidate, KernelError, Layout, Problem, Tactic, Want};

use super::{PANEL, Products};
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::price::expected_ns;

/// Operations that a product of two words and its sum count as: vectors of 32-bit products take four times as long as those
/// of floats.
const PRODUCT: f64 = 8.0;
/// Of an element of a panel, and of a sum that is stored: both are made one by one.
const FILLED: f64 = 40.0;
const STORED: f64 = 60.0;

/// See the module.
pub(crate) struct PlainQuantizedFamily;

impl Family for PlainQuantizedFamily {
    fn name(&self) -> &'static str {
        "qplain"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Some(plan) = Products::of(isa, problem) else { return Vec::new() };
        let columns = (plan.units.len() * plan.n_panels() * PANEL) as f64;
        let (m, k) = (plan.m as f64, plan.k as f64);
        let operations = columns * (k * (m * PRODUCT + FILLED) + m * STORED);
        vec![Candidate::new(
            Tactic::new(format!("qplain_{isa}"), 1),
            vec![Want::dense(Layout::Plain); problem.inputs.len()],
            vec![Want::dense(Layout::Plain)],
            expected_ns(isa, operations, problem.traffic_bytes() as f64, problem.threads),
        )]
    }

    fn prepare(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        match Products::of(isa, problem) {
            Some(plan) => Ok(Box::new(plan)),
            None => Err(KernelError::unsupported(format!("{tactic}: not a product of bytes that it takes"))),
        }
    }
}
