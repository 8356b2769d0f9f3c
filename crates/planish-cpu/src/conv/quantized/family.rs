//! Quantized products as families of the backend: candidates, packing, and plans as work.

use planish_kernel::{
    Budget, Candidate, KernelError, KernelErrorKind, Layout, PackedWeight, Problem, Tactic, Want, WeightUse,
};
use planish_tensor::Tensor;

use super::super::cost;
use super::super::igemm::{Igemm, TileKernel};
use super::QUAD;
use super::finish::Finish;
use super::pack::{self, Places};
use super::region::{Form, Number, Quantized, WeightZeros};
use super::table::QuantizedTile;
use super::tile::{QuantizedCall, Zeros};
use crate::family::{Family, Work};
use crate::formats::Format;
use crate::isa::Isa;
use crate::shared::Shared;
use crate::team::Team;

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
        let Some(geometry) = quantized.geometry(&problem.with_layouts(&inputs, &outputs)) else {
            return Vec::new();
        };
        let candidate = |tile: QuantizedTile| {
            let plan = Igemm::new(geometry.clone(), tile);
            let mut packed = vec![None; problem.inputs.len()];
            packed[quantized.weight] = Some(format(&quantized, tile));
            let predicted_ns = cost::quantized(
                &geometry,
                isa,
                (tile.mr(), tile.panels(), tile.speed()),
                plan.n_tasks(),
                problem.threads,
            );
            let tactic = Tactic::new(self.tactic(tile), REVISION);
            Candidate { packed, ..Candidate::new(tactic, inputs.clone(), outputs.clone(), predicted_ns) }
        };
        let mut all: Vec<Candidate> = QuantizedTile::all(isa, quantized.padding()).map(candidate).collect();
        all.sort_by(|a, b| a.predicted_ns.total_cmp(&b.predicted_ns));
        let most = all.first().map_or(0.0, |best| best.predicted_ns * budget.host_ratio);
        all.retain(|candidate| candidate.predicted_ns <= most);
        all
    }

    fn pack(&self, isa: Isa, used: WeightUse<'_>, weight: &Tensor) -> Result<PackedWeight, KernelError> {
        let WeightUse { problem, tactic, input } = used;
        let (quantized, tile) = self.found(isa, problem, tactic)?;
        if input != quantized.weight {
            return Err(KernelError::unsupported(format!("{tactic} packs its weight, not input {input}")));
        }
        let elements =
            weight.elements::<i8>().map_err(|error| KernelError::unsupported(error.to_string()))?;
        let bytes = pack::pack(quantized.arrangement(), tile.panels(), weight.shape(), &elements)
            .ok_or_else(|| KernelError::unsupported(format!("{tactic} does not pack such a weight")))?;
        Ok(PackedWeight { format: format(&quantized, tile), bytes })
    }

    fn format(&self, isa: Isa, used: WeightUse<'_>) -> Result<Option<String>, KernelError> {
        let (quantized, tile) = self.found(isa, used.problem, used.tactic)?;
        Ok((used.input == quantized.weight).then(|| format(&quantized, tile)))
    }

    fn prepare(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let (quantized, tile) = self.found(isa, problem, tactic)?;
        let weight = &problem.inputs[quantized.weight];
        if weight.packed.as_deref() != Some(&*format(&quantized, tile)) {
            return Err(KernelError::unsupported(format!("{tactic} needs its weight packed")));
        }
        let refuse = || KernelError::unsupported(format!("{tactic} does not take these operands"));
        let geometry = quantized.geometry(problem).ok_or_else(refuse)?;
        let places = pack::places(quantized.arrangement(), tile.panels(), &weight.dims).ok_or_else(refuse)?;
        Ok(Box::new(QuantizedWork { plan: Igemm::new(geometry, tile), quantized, places }))
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

    fn tactic(&self, tile: QuantizedTile) -> String {
        match self {
            QuantizedFamily::Conv => format!("qconv_igemm_{}", tile.name()),
            QuantizedFamily::Matrix => format!("qgemm_{}", tile.name()),
        }
    }

    fn found(
        &self,
        isa: Isa,
        problem: &Problem,
        tactic: &Tactic,
    ) -> Result<(Quantized, QuantizedTile), KernelError> {
        let quantized = self.of(problem).ok_or_else(|| {
            let ops = problem.region.ops();
            KernelError::unsupported(format!("{tactic}: {ops} is not a quantized product of its kind"))
        })?;
        let tile = QuantizedTile::all(isa, quantized.padding())
            .find(|tile| self.tactic(*tile) == tactic.name)
            .ok_or_else(|| {
                KernelError::new(
                    KernelErrorKind::NoSuchTactic,
                    format!("no quantized product is called `{}` here; rebuild the plan", tactic.name),
                )
            })?;
        Ok((quantized, tile))
    }
}

fn format(quantized: &Quantized, tile: QuantizedTile) -> String {
    Format::Quantized { panels: tile.panels(), arrangement: quantized.arrangement() }.name()
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

#[derive(Debug)]
struct QuantizedWork {
    plan: Igemm<QuantizedTile>,
    quantized: Quantized,
    places: Places,
}

impl QuantizedWork {
    /// Bytes of a pixel of padding, where the run alone knows what it holds.
    fn padding_bytes(&self) -> usize {
        match (&self.quantized.form, self.quantized.x_zero) {
            (Form::Conv(_), Number::Input(_)) => (self.plan.channels() * QUAD).next_multiple_of(64),
            _ => 0,
        }
    }
}

impl Work for QuantizedWork {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        self.padding_bytes() + self.plan.workspace_bytes(n_slots)
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let Shared { inputs, outputs, workspace } = shared;
        let q = &self.quantized;
        let weights = inputs[q.weight];
        let n_padding = self.padding_bytes();
        let weight_zeros = match q.weight_zeros {
            WeightZeros::None => Zeros::None,
            WeightZeros::One(zero) => Zeros::One(zero.into()),
            WeightZeros::Input(idx) => Zeros::Each(inputs[idx].cast()),
        };
        // SAFETY: the caller grants the operands for what they span, and the workspace.
        unsafe {
            let input_zero = q.x_zero.of(inputs);
            workspace.write_bytes(input_zero, n_padding);
            let call = QuantizedCall {
                input: inputs[q.x],
                weights: weights.cast(),
                weight_sums: weights.wrapping_add(self.places.sums).cast(),
                panel_flags: weights.wrapping_add(self.places.flags).cast(),
                input_zero: input_zero.into(),
                padding: if n_padding > 0 { workspace } else { std::ptr::null() },
                weight_zeros,
                finish: Finish::new(q, inputs, outputs),
                workspace: workspace.add(n_padding),
            };
            self.plan.run(&call, team);
        }
        Ok(())
    }
}
