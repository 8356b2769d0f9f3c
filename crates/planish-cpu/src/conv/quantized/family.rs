//! Quantized products as families of the backend: candidates, packing, and plans as work.

use planish_kernel::{
    Budget, Candidate, KernelError, KernelErrorKind, Layout, PackedWeight, Problem, Tactic, Want, WeightUse,
};
use planish_tensor::{Bytes, Tensor};

use super::region::{Form, Quantized};
use super::way::Way;
use crate::family::{Family, Work};
use crate::isa::Isa;

/// Raised when kernels change.
const REVISION: u32 = 1;

/// Quantized convolutions, or matrix products.
pub(crate) enum QuantizedFamily {
    Conv,
    Matrix,
}

impl Family for QuantizedFamily {
    fn name(&self) -> &'static str {
        match self {
            QuantizedFamily::Conv => "qconv",
            QuantizedFamily::Matrix => "qgemm",
        }
    }

    fn candidates(&self, isa: Isa, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        let Some(quantized) = self.of(problem) else { return Vec::new() };
        if !problem.inputs[quantized.weight].constant {
            return Vec::new();
        }
        let (inputs, outputs) = wants(&quantized, problem);
        let Some(placed) = quantized.placed(&problem.with_layouts(&inputs, &outputs)) else {
            return Vec::new();
        };
        let candidate = |way: Way| {
            let predicted_ns = way.cost(isa, &quantized, &placed, problem.threads)?;
            let mut packed = vec![None; problem.inputs.len()];
            packed[quantized.weight] = Some(way.format(&quantized));
            let tactic = Tactic::new(way.name(), REVISION);
            Some(Candidate {
                packed,
                ..Candidate::new(tactic, inputs.clone(), outputs.clone(), predicted_ns)
            })
        };
        let mut all: Vec<Candidate> = Way::all(isa, &quantized).into_iter().filter_map(candidate).collect();
        all.sort_by(|a, b| a.predicted_ns.total_cmp(&b.predicted_ns));
        let most = all.first().map_or(0.0, |best| best.predicted_ns * budget.host_ratio);
        all.retain(|candidate| candidate.predicted_ns <= most);
        all
    }

    fn pack(&self, isa: Isa, used: WeightUse<'_>, weight: &Tensor) -> Result<PackedWeight, KernelError> {
        let WeightUse { problem, tactic, input } = used;
        let (quantized, way) = self.found(isa, problem, tactic)?;
        if input != quantized.weight {
            return Err(KernelError::unsupported(format!("{tactic} packs its weight, not input {input}")));
        }
        let elements =
            weight.elements::<i8>().map_err(|error| KernelError::unsupported(error.to_string()))?;
        let bytes = way
            .pack(&quantized, weight.shape(), &elements)
            .ok_or_else(|| KernelError::unsupported(format!("{tactic} does not pack such a weight")))?;
        Ok(PackedWeight { format: way.format(&quantized), bytes: Bytes::from_vec(bytes) })
    }

    fn format(&self, isa: Isa, used: WeightUse<'_>) -> Result<Option<String>, KernelError> {
        let (quantized, way) = self.found(isa, used.problem, used.tactic)?;
        Ok((used.input == quantized.weight).then(|| way.format(&quantized)))
    }

    fn prepare(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let (quantized, way) = self.found(isa, problem, tactic)?;
        let weight = &problem.inputs[quantized.weight];
        if weight.packed.as_deref() != Some(&*way.format(&quantized)) {
            return Err(KernelError::unsupported(format!("{tactic} needs its weight packed")));
        }
        let refuse = || KernelError::unsupported(format!("{tactic} does not take these operands"));
        let placed = quantized.placed(problem).ok_or_else(refuse)?;
        let dims = weight.dims.clone();
        way.work(isa, quantized, placed, &dims).ok_or_else(refuse)
    }
}

impl QuantizedFamily {
    fn of(&self, problem: &Problem) -> Option<Quantized> {
        let quantized = Quantized::of(problem)?;
        let is_own = match self {
            QuantizedFamily::Conv => matches!(quantized.form, Form::Conv(_)),
            QuantizedFamily::Matrix => matches!(quantized.form, Form::Matrix { .. }),
        };
        is_own.then_some(quantized)
    }

    fn found(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<(Quantized, Way), KernelError> {
        let quantized = self.of(problem).ok_or_else(|| {
            let ops = problem.region.ops();
            KernelError::unsupported(format!("{tactic}: {ops} is not a quantized product of its kind"))
        })?;
        let ways = Way::all(isa, &quantized);
        let way = ways.into_iter().find(|way| way.name() == tactic.name).ok_or_else(|| {
            KernelError::new(
                KernelErrorKind::NoSuchTactic,
                format!("no quantized product is called `{}` here; rebuild the plan", tactic.name),
            )
        })?;
        Ok((quantized, way))
    }
}

/// Images channels-last, matrices row by row, the rest dense.
fn wants(quantized: &Quantized, problem: &Problem) -> (Vec<Want>, Vec<Want>) {
    match quantized.form {
        Form::Conv(_) => image_wants(quantized, problem),
        Form::Matrix { .. } => {
            (vec![Want::dense(Layout::Plain); problem.inputs.len()], vec![Want::dense(Layout::Plain)])
        }
    }
}

/// Images channels-last, the rest dense.
pub(crate) fn image_wants(quantized: &Quantized, problem: &Problem) -> (Vec<Want>, Vec<Want>) {
    let mut inputs = Want::beside_image(problem);
    inputs[quantized.x] = Want::inside(Layout::ChannelsLast);
    (inputs, vec![Want::inside(Layout::ChannelsLast)])
}
