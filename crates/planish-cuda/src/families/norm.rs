//! The family of normalizations: layer and RMS by rows, group and instance by channels, each with the pointwise
//! nodes after it, and rows with a sum of two values before and numbers of 8 bits beside their results.

use planish_gpu::epilogue::EpilogueCode;
use planish_gpu::operands::{candidate, is_float, refuse, storage};
use planish_gpu::plan::{Arg, KernelCode, Plan, Slot};
use planish_kernel::norm::{self, NormGroups, NormKind};
use planish_kernel::{Budget, Candidate, KernelError, Layout, Operand, Problem, Tactic, Want, layouts_for};
use planish_op::Op;
use planish_tensor::normalize_axis;

use super::to_bytes::Apart;
use crate::family::Family;
use crate::gpu::Gpu;

mod groups;
mod pixels;
mod rows;
#[cfg(test)]
mod tests;

const REVISION: u32 = 3;

/// Layer, RMS, group and instance normalization.
pub(crate) struct NormFamily;

/// What the problem asks for, in the layouts that it has.
enum Way {
    Rows,
    /// By whole groups.
    Groups,
    /// A group by a cluster of blocks, whose registers hold all of it.
    Clusters,
    /// Sums first, then the rest, each by many blocks.
    Parts,
    /// The same by pixels with all their channels, which are innermost.
    Pixels,
}

fn ways(problem: &Problem) -> &'static [(Way, &'static str)] {
    let main = norm::Norm::main_of(&problem.region).map(|main| &problem.region.nodes[main].op);
    match main {
        Some(Op::LayerNormalization(_) | Op::RMSNormalization(_)) => &[(Way::Rows, "norm_rows")],
        Some(Op::GroupNormalization(_) | Op::InstanceNormalization(_)) => &[
            (Way::Groups, "norm_groups"),
            (Way::Clusters, "norm_clusters"),
            (Way::Parts, "norm_parts"),
            (Way::Pixels, "norm_pixels"),
        ],
        _ => &[],
    }
}

/// Whether rows go along the last axis alone.
fn is_along_last(problem: &Problem) -> bool {
    let rank = problem.outputs.first().map_or(0, Operand::rank);
    problem.region.nodes.iter().any(|node| match &node.op {
        Op::LayerNormalization(op) => normalize_axis(op.axis, rank).is_ok_and(|axis| axis + 1 == rank),
        Op::RMSNormalization(op) => normalize_axis(op.axis, rank).is_ok_and(|axis| axis + 1 == rank),
        _ => false,
    })
}

fn plan(gpu: &Gpu, problem: &Problem, way: &Way) -> Result<Plan, KernelError> {
    let apart = Apart::of(problem)?;
    let problem = &*apart.problem;
    // What has no elements needs no launch, however it lies.
    if let ([output], Some(_)) = (&problem.outputs[..], norm::Norm::main_of(&problem.region))
        && output.is_empty()
        && is_float(output.dtype)
    {
        return Ok(Plan::default());
    }
    let norm::Norm { main, kind } = norm::Norm::of(problem, |operand| is_float(operand.dtype))?;
    if problem.region.nodes[main].n_outputs != 1 {
        return refuse("the output is not the only one");
    }
    let around = Around { gpu, problem, main: main as u32 };
    match (kind, way) {
        (NormKind::Rows(wanted), Way::Rows) => rows::plan(&around, wanted, &apart),
        _ if apart.bytes.is_some() => refuse("numbers of 8 bits of groups"),
        (NormKind::Groups(wanted), Way::Pixels) => pixels::plan(&around, wanted),
        (NormKind::Groups(wanted), Way::Groups | Way::Clusters | Way::Parts) => {
            groups::plan(&around, wanted, way)
        }
        _ => refuse("a normalization in another form"),
    }
}

/// What stands around a normalization.
struct Around<'a> {
    gpu: &'a Gpu,
    problem: &'a Problem,
    /// The normalization's node.
    main: u32,
}

impl Around<'_> {
    fn output(&self) -> &Operand {
        &self.problem.outputs[0]
    }

    /// Defines the types of the operands of a normalization by groups.
    fn typed(&self, code: KernelCode, wanted: &NormGroups<'_>) -> Result<KernelCode, KernelError> {
        Ok(code
            .define("X_T", storage(wanted.x.1)?)
            .define("S_T", storage(wanted.scale.1)?)
            .define("B_T", storage(wanted.bias.1)?)
            .define("Y_T", storage(self.output())?))
    }
}

/// The arguments of a kernel that normalizes by groups: operands, the parts of the sums, numbers, and the epilogue's.
fn group_args(wanted: &NormGroups<'_>, parts: Arg, numbers: Arg, epilogue: &EpilogueCode) -> Vec<Arg> {
    let operands = [wanted.x.0, wanted.scale.0, wanted.bias.0].map(|idx| Arg::Address(Slot::Input(idx), 0));
    let after = [Arg::Address(Slot::Output(0), 0), parts, numbers];
    operands.into_iter().chain(after).chain(epilogue.addresses.iter().cloned()).collect()
}

impl Family for NormFamily {
    fn name(&self) -> &'static str {
        "norm"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Some(output) = problem.outputs.first() else { return Vec::new() };
        let mut list = Vec::new();
        for layout in layouts_for(&problem.outputs) {
            // What is normalized together must go on with one stride; gaps are fine between pixels of
            // channels, and between rows along one axis.
            let inside = match layout {
                Layout::ChannelsLast => true,
                _ => is_along_last(problem),
            };
            let wants = |want: Want| Want { inside: want.inside && inside, ..want };
            let inputs: Vec<Want> = problem
                .inputs
                .iter()
                .map(|input| wants(Want::following(input, output.rank(), layout)))
                .collect();
            let outputs = vec![wants(Want::inside(layout)); problem.outputs.len()];
            for (way, name) in ways(problem) {
                let Ok(plan) = plan(gpu, &problem.with_layouts(&inputs, &outputs), way) else { continue };
                let bytes = problem.traffic_bytes() as f64;
                // Groups are few: a block each does not fill the GPU.
                let ns = match (way, plan.steps.first()) {
                    (Way::Groups, Some(step)) => {
                        let blocks = f64::from(step.grid[1]);
                        gpu.roofline_ns(0.0, 1.0, bytes * (f64::from(gpu.n_sms) / blocks).max(1.0))
                    }
                    // Blocks begin together and meet once; the sectors that they read may have other groups' too.
                    (Way::Clusters, Some(step)) => {
                        let blocks = f64::from(step.grid[0] * step.grid[1]);
                        gpu.roofline_ns(0.0, 1.0, bytes * (f64::from(gpu.n_sms) / blocks).max(1.0)) + 800.0
                    }
                    (Way::Pixels, _) => {
                        gpu.roofline_ns(0.0, 1.0, bytes) + 0.8 * gpu.roofline_ns(0.0, 1.0, bytes / 2.0)
                    }
                    (Way::Parts, _) => {
                        gpu.roofline_ns(0.0, 1.0, bytes) + gpu.roofline_ns(0.0, 1.0, bytes / 2.0)
                    }
                    _ => gpu.roofline_ns(0.0, 1.0, bytes),
                };
                let name = format!("{name}_{}", layout.name());
                list.push(candidate(name, REVISION, inputs.clone(), outputs.clone(), ns));
            }
        }
        list
    }

    fn plan(&self, gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Plan, KernelError> {
        let way = ways(problem).iter().find(|(_, name)| tactic.name.starts_with(name));
        match way {
            Some((way, _)) => plan(gpu, problem, way),
            None => refuse(format!("{tactic} is not for this problem")),
        }
    }
}
