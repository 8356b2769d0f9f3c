//! Convolution as a family of the backend: candidates by name, packing, and plans as work.
//!
//! Names: `conv_igemm_f32_<tile>_<isa>`, `conv_1x1_…` (the same kernel, one tap), and
//! `conv_winograd{2,4,row}_f32_<tile>_<isa>_{fused,phased}<tiles>`.

use planish_kernel::{Candidate, KernelError, KernelErrorKind, Layout, PackedWeight, Problem, Tactic, Want};
use planish_tensor::Tensor;

use super::geometry::Geometry;
use super::igemm::Igemm;
use super::region::Convolution;
use super::winograd::{Cut, Kind, Winograd};
use super::{ConvCall, cost, pack, winograd};
use crate::family::{Family, Work};
use crate::gemm::table::Tile;
use crate::isa::Isa;
use crate::team::Team;

/// Raised when kernels change.
const REVISION: u32 = 1;

/// Candidates that are expected to take this many times as long as the best are not offered.
const HOPELESS: f64 = 2.5;

/// All convolutions but depthwise ones.
pub(crate) struct ConvFamily;

/// One way to convolve.
#[derive(Clone, Copy, Debug)]
struct Way {
    algorithm: Algorithm,
    tile: Tile,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Algorithm {
    Igemm,
    Winograd(Kind, Cut),
}

/// A plan of any algorithm.
#[derive(Debug)]
enum Plan {
    Igemm(Igemm),
    Winograd(Winograd),
}

impl Way {
    /// Every way for an instruction set.
    fn all(isa: Isa) -> impl Iterator<Item = Way> {
        let ways = Tile::of(isa).flat_map(|tile| {
            let mr = tile.mr();
            // Blocks of whole tiles; small ones for few rows.
            let small = 12usize.div_ceil(mr).max(1) * mr;
            let cuts =
                [Cut::Fused(small), Cut::Fused(2 * small), Cut::Fused(4 * small), Cut::Phased(16 * small)];
            let kinds = [Kind::Two, Kind::Four, Kind::Row];
            let winograds = kinds
                .into_iter()
                .flat_map(move |kind| cuts.into_iter().map(move |cut| Algorithm::Winograd(kind, cut)));
            std::iter::once(Algorithm::Igemm).chain(winograds).map(move |algorithm| Way { algorithm, tile })
        });
        ways.collect::<Vec<_>>().into_iter()
    }

    /// What stands in plans.
    fn name(self, isa: Isa, one_tap: bool) -> String {
        let tile = format!("f32_{}x{}_{}", self.tile.mr(), self.tile.nr(), isa.name());
        match self.algorithm {
            Algorithm::Igemm if one_tap => format!("conv_1x1_{tile}"),
            Algorithm::Igemm => format!("conv_igemm_{tile}"),
            Algorithm::Winograd(kind, cut) => {
                let kind = match kind {
                    Kind::Two => "2",
                    Kind::Four => "4",
                    Kind::Row => "row",
                };
                let cut = match cut {
                    Cut::Fused(rows) => format!("fused{rows}"),
                    Cut::Phased(rows) => format!("phased{rows}"),
                };
                format!("conv_winograd{kind}_{tile}_{cut}")
            }
        }
    }

    fn named(isa: Isa, one_tap: bool, name: &str) -> Option<Way> {
        Way::all(isa).find(|way| way.name(isa, one_tap) == name)
    }

    /// Names the arrangement of weights.
    fn format(self, convolution: &Convolution) -> String {
        let panels = format!("panels{}v{}", self.tile.nr(), self.tile.lanes());
        match self.algorithm {
            Algorithm::Igemm if convolution.transposed => {
                let steps = convolution.axes.map(|axis| format!("{}d{}", axis.stride, axis.dilation));
                format!("conv_{panels}_g{}_t{}", convolution.groups, steps.join("x"))
            }
            Algorithm::Igemm => format!("conv_{panels}_g{}", convolution.groups),
            Algorithm::Winograd(kind, _) => format!("conv_winograd_{kind:?}_{panels}").to_lowercase(),
        }
    }

    fn plan(self, isa: Isa, geometry: Geometry) -> Option<Plan> {
        let innermost = |pixels: &super::geometry::Pixels| pixels.channel == 1;
        if ![Some(geometry.output), geometry.residual].iter().flatten().all(innermost) {
            return None;
        }
        match self.algorithm {
            Algorithm::Igemm => {
                innermost(&geometry.input).then(|| Plan::Igemm(Igemm::new(geometry, self.tile)))
            }
            Algorithm::Winograd(kind, cut) => {
                Winograd::new(kind, cut, geometry, isa, self.tile).map(Plan::Winograd)
            }
        }
    }

    /// Whether the tile's width suits the number of output channels.
    fn suits(self, convolution: &Convolution) -> bool {
        let (k, nr, lanes) = (convolution.k, self.tile.nr(), self.tile.lanes());
        // A wide tile needs a panel to fill; one of a single vector is for few channels, or all there is.
        if nr > lanes { k > nr - lanes } else { k <= nr || lanes == 8 && self.tile.mr() <= 4 }
    }

    fn cost(self, isa: Isa, geometry: &Geometry, plan: &Plan, threads: usize) -> f64 {
        match (self.algorithm, plan) {
            (Algorithm::Winograd(kind, cut), Plan::Winograd(plan)) => {
                cost::winograd(geometry, isa, self.tile, kind, cut, plan.n_tasks(), threads)
            }
            (_, Plan::Igemm(plan)) => cost::igemm(geometry, isa, self.tile, plan.n_tasks(), threads),
            _ => f64::INFINITY,
        }
    }
}

impl Family for ConvFamily {
    fn name(&self) -> &'static str {
        "conv"
    }

    fn candidates(&self, isa: Isa, problem: &Problem) -> Vec<Candidate> {
        let Some(convolution) = Convolution::of(problem) else { return Vec::new() };
        if !problem.inputs[convolution.weight].constant {
            return Vec::new();
        }
        let laid = in_layouts(&convolution, problem);
        let geometry = convolution.geometry(&laid);
        let one_tap = convolution.filter().n_taps() == 1;
        let mut candidates: Vec<Candidate> = Way::all(isa)
            .filter(|way| way.suits(&convolution))
            .filter_map(|way| {
                let plan = way.plan(isa, geometry.clone())?;
                let mut inputs = vec![Want::dense(Layout::Plain); problem.inputs.len()];
                inputs[convolution.x] = Want::inside(Layout::ChannelsLast);
                if let Some(residual) = convolution.residual {
                    inputs[residual] = Want::inside(Layout::ChannelsLast);
                }
                let mut packed = vec![None; problem.inputs.len()];
                packed[convolution.weight] = Some(way.format(&convolution));
                Some(Candidate {
                    tactic: Tactic::new(way.name(isa, one_tap), REVISION),
                    inputs,
                    outputs: vec![Want::inside(Layout::ChannelsLast)],
                    packed,
                    predicted_ns: way.cost(isa, &geometry, &plan, problem.threads),
                    in_place: Vec::new(),
                    slow: false,
                })
            })
            .collect();
        candidates.sort_by(|a, b| a.predicted_ns.total_cmp(&b.predicted_ns));
        let most = candidates.first().map_or(0.0, |best| best.predicted_ns * HOPELESS);
        candidates.retain(|candidate| candidate.predicted_ns <= most);
        candidates
    }

    fn pack(
        &self,
        isa: Isa,
        problem: &Problem,
        tactic: &Tactic,
        input: usize,
        weight: &Tensor,
    ) -> Result<PackedWeight, KernelError> {
        let (convolution, way) = self.found(isa, problem, tactic)?;
        if input != convolution.weight {
            return Err(KernelError::unsupported(format!("{tactic} packs its weight, not input {input}")));
        }
        let filter = convolution.filter();
        let weight = weight.elements::<f32>().map_err(|error| KernelError::unsupported(error.to_string()))?;
        if weight.len() != filter.len() {
            return Err(KernelError::unsupported(format!(
                "{tactic}: a weight of {} elements, expected {}",
                weight.len(),
                filter.len()
            )));
        }
        let packed = match way.algorithm {
            Algorithm::Igemm => pack::pack(&filter, way.tile, &weight),
            Algorithm::Winograd(kind, _) => winograd::pack::pack(kind, &filter, way.tile, &weight),
        };
        let bytes = packed.iter().flat_map(|value| value.to_ne_bytes()).collect();
        Ok(PackedWeight { format: way.format(&convolution), bytes })
    }

    fn unpack(
        &self,
        isa: Isa,
        problem: &Problem,
        tactic: &Tactic,
        input: usize,
        packed: &PackedWeight,
    ) -> Result<Tensor, KernelError> {
        let (convolution, way) = self.found(isa, problem, tactic)?;
        let filter = convolution.filter();
        let elements: Vec<f32> =
            packed.bytes.chunks_exact(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect();
        let fits = way.algorithm == Algorithm::Igemm
            && input == convolution.weight
            && packed.format == way.format(&convolution)
            && elements.len() == pack::packed_len(&filter, way.tile);
        if !fits {
            return Err(KernelError::unsupported(format!(
                "{tactic} has no way back from `{}`",
                packed.format
            )));
        }
        let weight = pack::unpack(&filter, way.tile, &elements);
        Tensor::new(&problem.inputs[input].dims, weight)
            .map_err(|error| KernelError::unsupported(error.to_string()))
    }

    fn prepare(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let (convolution, way) = self.found(isa, problem, tactic)?;
        if problem.inputs[convolution.weight].packed.as_deref() != Some(&*way.format(&convolution)) {
            return Err(KernelError::unsupported(format!("{tactic} needs its weight packed")));
        }
        let plan = way
            .plan(isa, convolution.geometry(problem))
            .ok_or_else(|| KernelError::unsupported(format!("{tactic} does not take these operands")))?;
        Ok(Box::new(ConvWork { plan, convolution }))
    }
}

impl ConvFamily {
    fn found(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<(Convolution, Way), KernelError> {
        let convolution = Convolution::of(problem).ok_or_else(|| {
            KernelError::unsupported(format!(
                "{tactic}: {} is no convolution of its kind",
                problem.region.ops()
            ))
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
}

/// The problem with its operands in the layouts that candidates want.
fn in_layouts(convolution: &Convolution, problem: &Problem) -> Problem {
    let mut laid = problem.clone();
    let inputs = [Some(convolution.x), convolution.residual];
    for idx in inputs.into_iter().flatten() {
        laid.inputs[idx].strides = Layout::ChannelsLast.strides(&laid.inputs[idx].dims);
    }
    laid.outputs[0].strides = Layout::ChannelsLast.strides(&laid.outputs[0].dims);
    laid
}

#[derive(Debug)]
struct ConvWork {
    plan: Plan,
    convolution: Convolution,
}

impl Work for ConvWork {
    fn scratch_bytes(&self, n_slots: usize) -> usize {
        match &self.plan {
            Plan::Igemm(plan) => plan.scratch_bytes(n_slots),
            Plan::Winograd(plan) => plan.scratch_bytes(n_slots),
        }
    }

    unsafe fn run(
        &self,
        inputs: &[*const u8],
        outputs: &[*mut u8],
        scratch: *mut u8,
        team: &Team,
    ) -> Result<(), KernelError> {
        let input = |idx: Option<usize>| idx.map_or(std::ptr::null(), |idx| inputs[idx].cast::<f32>());
        let call = ConvCall {
            input: input(Some(self.convolution.x)),
            weights: input(Some(self.convolution.weight)),
            bias: input(self.convolution.bias),
            residual: input(self.convolution.residual),
            output: outputs[0].cast(),
            scratch,
            lo: self.convolution.lo,
            hi: self.convolution.hi,
        };
        // SAFETY: the caller grants the operands for what they span, and the scratch.
        unsafe {
            match &self.plan {
                Plan::Igemm(plan) => plan.run(&call, team),
                Plan::Winograd(plan) => plan.run(&call, team),
            }
        }
        Ok(())
    }
}
