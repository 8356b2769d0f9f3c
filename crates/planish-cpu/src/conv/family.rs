//! Convolution as a family of the backend: candidates, packing, and plans as work.

use std::ops::Range;

use planish_kernel::{
    Budget, Candidate, KernelError, KernelErrorKind, Layout, Numeric, PackedWeight, Problem, Tactic, Want,
    WeightUse,
};
use planish_tensor::Tensor;

use super::geometry::Geometry;
use super::region::Convolution;
use super::scale::Scaled;
use super::stored_bytes::StoredBytes;
use super::way::{Plan, Way};
use super::{After, ConvCall, Finished, LINE};
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::pointwise::Pointwise;
use crate::pointwise::cost::cost_per_element;
use crate::shared::Shared;
use crate::team::Team;

/// Raised when kernels change.
const REVISION: u32 = 6;

/// All convolutions but depthwise ones.
pub(crate) struct ConvFamily;

impl Family for ConvFamily {
    fn name(&self) -> &'static str {
        "conv"
    }

    fn error_growth(&self, isa: Isa, tactic: &Tactic) -> f64 {
        // One tap is never transformed.
        Way::named(isa, false, &tactic.name).map_or(1.0, Way::error_growth)
    }

    fn candidates(&self, isa: Isa, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        let Some(convolution) = Convolution::of(problem) else { return Vec::new() };
        if !problem.inputs[convolution.weight].constant || convolution.scales_too_much() {
            return Vec::new();
        }
        let one_tap = convolution.filter().n_taps() == 1;
        let after = match &convolution.epilogue.program {
            None => 0.0,
            Some(_) if self.program(isa, problem, &convolution).is_err() => return Vec::new(),
            Some(program) => {
                cost_per_element(program) * problem.outputs[0].len() as f64 / problem.threads.max(1) as f64
            }
        };
        let candidate = |way: Way| {
            let (inputs, outputs) = wants(&convolution, problem, way);
            let geometry = convolution.geometry(&problem.with_layouts(&inputs, &outputs));
            let plan = plan_of(isa, way, &convolution, problem, geometry.clone())?;
            // At other sizes of the same plan it may be so.
            if matches!(&plan, Plan::Winograd(winograd) if winograd.splits_nothing()) {
                return None;
            }
            let mut packed = vec![None; problem.inputs.len()];
            packed[convolution.weight] = Some(way.format(&convolution));
            Some(Candidate {
                packed,
                ..Candidate::new(
                    Tactic::new(way.name(isa, one_tap), REVISION),
                    inputs,
                    outputs,
                    way.cost(isa, &geometry, &plan, problem.threads) + after,
                )
            })
        };
        let may_round = problem.numeric == Numeric::BF16;
        let ways = Way::all(isa).into_iter().filter(|way| way.suits(&convolution));
        let ways = ways.filter(|way| may_round || !way.rounds());
        let mut all: Vec<(Way, Candidate)> = ways.filter_map(|way| Some((way, candidate(way)?))).collect();
        all.sort_by(|(_, a), (_, b)| a.predicted_ns.total_cmp(&b.predicted_ns));
        let most = all.first().map_or(0.0, |(_, best)| best.predicted_ns * budget.host_ratio);
        // What `--no-winograd` and a channels-last network go by.
        let is_exact = |way: Way| !way.is_winograd() && !way.rounds();
        let exact =
            all.iter().position(|(way, _)| is_exact(*way) && way.input_layout() == Layout::ChannelsLast);
        let mut kept: Vec<(Way, Candidate)> = Vec::new();
        for (idx, (way, candidate)) in all.into_iter().enumerate() {
            let alike = kept.iter().filter(|(other, _)| other.is_like(way)).count();
            let worth = kept.len() < budget.special && alike < budget.alike && candidate.predicted_ns <= most;
            if worth || Some(idx) == exact {
                kept.push((way, candidate));
            }
        }
        kept.into_iter().map(|(_, candidate)| candidate).collect()
    }

    fn pack(&self, isa: Isa, used: WeightUse<'_>, weight: &Tensor) -> Result<PackedWeight, KernelError> {
        let WeightUse { problem, tactic, input } = used;
        let (convolution, way) = self.found(isa, problem, tactic)?;
        if input != convolution.weight {
            return Err(KernelError::unsupported(format!("{tactic} packs its weight, not input {input}")));
        }
        let filter = convolution.filter();
        if !way.packs(&filter) {
            return Err(KernelError::unsupported(format!(
                "{tactic} does not pack weights of such a convolution"
            )));
        }
        let weight = weight.elements::<f32>().map_err(|error| KernelError::unsupported(error.to_string()))?;
        if weight.len() != filter.len() {
            return Err(KernelError::unsupported(format!(
                "{tactic}: a weight of {} elements, expected {}",
                weight.len(),
                filter.len()
            )));
        }
        Ok(PackedWeight { format: way.format(&convolution), bytes: way.pack(&filter, &weight) })
    }

    fn format(&self, isa: Isa, used: WeightUse<'_>) -> Result<Option<String>, KernelError> {
        let (convolution, way) = self.found(isa, used.problem, used.tactic)?;
        Ok((used.input == convolution.weight).then(|| way.format(&convolution)))
    }

    fn prepare(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let (convolution, way) = self.found(isa, problem, tactic)?;
        if problem.inputs[convolution.weight].packed.as_deref() != Some(&*way.format(&convolution)) {
            return Err(KernelError::unsupported(format!("{tactic} needs its weight packed")));
        }
        let plan = plan_of(isa, way, &convolution, problem, convolution.geometry(problem))
            .filter(|_| way.suits(&convolution))
            .ok_or_else(|| KernelError::unsupported(format!("{tactic} does not take these operands")))?;
        let program = match &convolution.epilogue.program {
            Some(_) => Some(self.program(isa, problem, &convolution)?),
            None => None,
        };
        let bytes =
            convolution.bytes.as_ref().map(|bytes| StoredBytes::new(isa, bytes.by, &convolution, problem));
        let staged = bytes.as_ref().map_or(0, |_| plan.tile_rows() * convolution.groups * convolution.k);
        Ok(Box::new(ConvWork { plan, convolution, program, bytes, staging: staged.next_multiple_of(LINE) }))
    }
}

impl ConvFamily {
    fn found(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<(Convolution, Way), KernelError> {
        let convolution = Convolution::of(problem).ok_or_else(|| {
            let ops = problem.region.ops();
            KernelError::unsupported(format!("{tactic}: {ops} is not a convolution of its kind"))
        })?;
        let one_tap = convolution.filter().n_taps() == 1;
        let way = Way::named(isa, one_tap, &tactic.name).ok_or_else(|| {
            KernelError::new(
                KernelErrorKind::NoSuchTactic,
                format!("no convolution is called `{}`; rebuild the plan", tactic.name),
            )
        })?;
        Ok((convolution, way))
    }

    /// What follows, over pixels as rows and channels as columns.
    fn program(
        &self,
        isa: Isa,
        problem: &Problem,
        convolution: &Convolution,
    ) -> Result<Pointwise, KernelError> {
        let problem = convolution.bytes.as_ref().map_or(problem, |bytes| &bytes.in_floats);
        let program = convolution.epilogue.program.as_ref();
        let program = program.ok_or_else(|| KernelError::unsupported("nothing follows the convolution"))?;
        let pixels: Vec<usize> = (0..program.dims.len()).filter(|axis| *axis != 1).collect();
        Pointwise::for_blocks(isa, problem, program, &pixels, &[1])
    }
}

/// The plan of a way, the multiplied channels included.
fn plan_of(
    isa: Isa,
    way: Way,
    convolution: &Convolution,
    problem: &Problem,
    geometry: Geometry,
) -> Option<Plan> {
    let (scale, tile) = match (convolution.scale, way) {
        (None, _) => {
            let plan = way.plan(isa, geometry)?;
            return (convolution.bytes.is_none() || plan.is_one_pass()).then_some(plan);
        }
        (Some(scale), Way::Igemm(tile)) => (&problem.inputs[scale], tile),
        (Some(_), _) => return None,
    };
    let images = [Some(geometry.input), Some(geometry.output), geometry.residual];
    let innermost =
        images.iter().flatten().all(|pixels| pixels.channel == 1) && scale.is_dense(Layout::Plain);
    let step = if scale.dims[0] == 1 { 0 } else { scale.dims[1] };
    innermost.then(|| Plan::Scaled(Scaled::new(isa, geometry, tile, step)))
}

/// How a way wants its operands: images channels-last but for the input of a plain band, the rest dense.
fn wants(convolution: &Convolution, problem: &Problem, way: Way) -> (Vec<Want>, Vec<Want>) {
    let mut inputs = Want::beside_image(problem);
    if let Some(residual) = convolution.residual() {
        inputs[residual] = Want::inside(Layout::ChannelsLast);
    }
    inputs[convolution.x] = Want::inside(way.input_layout());
    (inputs, vec![Want::inside(Layout::ChannelsLast)])
}

#[derive(Debug)]
struct ConvWork {
    plan: Plan,
    convolution: Convolution,
    program: Option<Pointwise>,
    bytes: Option<StoredBytes>,
    /// Elements of a slot's tile that is to become bytes.
    staging: usize,
}

impl ConvWork {
    /// Where in the workspace tiles lie that are to become bytes.
    fn staging_bytes(&self, n_slots: usize) -> Range<usize> {
        let own = self.plan.workspace_bytes(n_slots).next_multiple_of(64);
        own..own + n_slots * self.staging * size_of::<f32>()
    }
}

impl Work for ConvWork {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        Pointwise::bytes_behind(self.program.as_ref(), self.staging_bytes(n_slots).end, n_slots)
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let Shared { inputs, outputs, workspace } = shared;
        let input = |idx: Option<usize>| idx.map_or(std::ptr::null(), |idx| inputs[idx].cast::<f32>());
        let staging = self.staging_bytes(team.n_slots());
        let behind = shared.behind(staging.end);
        let staging = workspace.wrapping_add(staging.start);
        let follow = move |finished: &Finished| {
            let behind = &behind;
            // SAFETY: the caller grants the operands; slots have different workspace.
            unsafe {
                if let Some(program) = &self.program {
                    finished.follow(program, behind);
                }
                if let Some(bytes) = &self.bytes {
                    bytes.store(finished, behind.outputs[0]);
                }
            }
        };
        let is_followed = self.program.is_some() || self.bytes.is_some();
        let call = ConvCall {
            input: input(Some(self.convolution.x)),
            weights: input(Some(self.convolution.weight)),
            bias: self.convolution.bias(inputs),
            residual: input(self.convolution.residual()),
            output: if self.bytes.is_some() { staging.cast() } else { outputs[0].cast() },
            workspace,
            lo: self.convolution.epilogue.lo,
            hi: self.convolution.epilogue.hi,
            after: is_followed.then_some(&follow as &After<'_>),
            staging: self.staging,
        };
        // SAFETY: the caller grants the operands for what they span, and the workspace.
        unsafe { self.plan.run(&call, input(self.convolution.scale), team) };
        Ok(())
    }
}

#[cfg(test)]
mod tests;
