//! Group and instance normalization by groups: one block for each, a cluster, or many blocks in two launches.

use planish_gpu::epilogue::{EpilogueArgs, EpilogueCode};
use planish_gpu::kernel_args;
use planish_gpu::operands::refuse;
use planish_gpu::plan::{Arg, KernelCode, Plan, Slot, Step};
use planish_gpu::space::{Divisor, blocks, int};
use planish_kernel::KernelError;
use planish_kernel::norm::NormGroups;

use super::{Around, Way, group_args};

/// Threads that work on a group, and the least elements of a part of one.
const GROUP_THREADS: usize = 256;
const LEAST_PART: usize = 4096;
/// Vectors of a group that a thread keeps in registers, alone and in a cluster.
const MAX_VECTORS: usize = 4;
const MAX_CLUSTER_VECTORS: usize = 8;
/// Blocks of a cluster that every GPU with clusters has room for.
const MAX_CLUSTER: usize = 8;
/// A lane of a warp for each.
const MAX_PARTS: usize = 32;

kernel_args! {
    /// Of an image by its samples, channels and pixels.
    struct GroupStrides {
        sample: i32,
        channel: i32,
        pixel: i32,
    }

    /// What norm_groups.cu is given.
    struct NormGroupsArgs {
        /// Groups of a sample, channels of a group, pixels.
        n_groups: i32,
        per_group: i32,
        n_pixels: i32,
        epsilon: f32,
        /// Parts of a group, vectors of a part, vectors of a group.
        n_parts: i32,
        per_part: i32,
        n_vectors: i32,
        /// Takes the inner axis off a vector's number.
        inner: Divisor,
        x: GroupStrides,
        y: GroupStrides,
        epilogue: EpilogueArgs,
    }
}

pub(super) fn plan(around: &Around<'_>, wanted: NormGroups<'_>, way: &Way) -> Result<Plan, KernelError> {
    let Around { gpu, problem, main } = *around;
    let NormGroups { n_groups, plane, from, to, epsilon, .. } = wanted;
    let dims = &around.output().dims;
    let per_group = dims[1] / n_groups;
    let last = from.channel == 1 && to.channel == 1;
    if !last && plane > 1 && (from.pixel, to.pixel) != (1, 1) {
        return refuse("neither channels nor pixels lie side by side");
    }
    // Vectors go along channels or pixels and never reach beyond the group.
    let (inner, steps_beside) = match last {
        true => (per_group, [from.sample, to.sample, from.pixel, to.pixel]),
        false => (plane, [from.sample, to.sample, from.channel, to.channel]),
    };
    // A cluster holds a group in every arrangement of its operands or in none, so vectors do not depend on it.
    let apart = |lanes: usize| {
        !matches!(way, Way::Clusters) && steps_beside.iter().any(|step| !step.is_multiple_of(lanes))
    };
    let mut lanes = 8;
    while lanes > 1 && (!inner.is_multiple_of(lanes) || apart(lanes)) {
        lanes /= 2;
    }
    let n_vectors = per_group * plane / lanes;
    let n_blocks = dims[0] * n_groups;
    let n_parts = match way {
        Way::Parts => {
            let wanted = (4 * gpu.n_sms as usize).div_ceil(n_blocks);
            wanted.min(per_group * plane / LEAST_PART).clamp(1, MAX_PARTS)
        }
        _ => 1,
    };
    if matches!(way, Way::Parts) && n_parts == 1 {
        return refuse("groups too small to be taken in parts");
    }
    // So many blocks for a group that the GPU is full, and more where registers would not hold it.
    let cluster = match way {
        Way::Clusters => {
            let filling = (gpu.n_sms as usize / n_blocks).next_power_of_two();
            let holding = n_vectors.div_ceil(GROUP_THREADS * MAX_CLUSTER_VECTORS).next_power_of_two();
            let useful = n_vectors.div_ceil(GROUP_THREADS).next_power_of_two();
            filling.max(holding).min(useful)
        }
        _ => 1,
    };
    if matches!(way, Way::Clusters) && (gpu.sm < 90 || !(2..=MAX_CLUSTER).contains(&cluster)) {
        return refuse("groups too small or too large for a cluster");
    }
    let per_part = n_vectors.div_ceil(n_parts);
    let n_parts = n_vectors.div_ceil(per_part);
    let spatial: Vec<usize> = (2..dims.len()).collect();
    let epilogue = match last {
        true => EpilogueCode::after(problem, main, [&[0], &[], &[], &spatial], &[1], lanes)?,
        false => EpilogueCode::after(problem, main, [&[0], &[1], &[], &[]], &spatial, lanes)?,
    };
    let group_strides = |steps: planish_kernel::norm::NormSteps| -> Result<GroupStrides, KernelError> {
        Ok(GroupStrides {
            sample: int(steps.sample)?,
            channel: int(steps.channel)?,
            pixel: int(steps.pixel)?,
        })
    };
    let numbers = NormGroupsArgs {
        n_groups: int(n_groups)?,
        per_group: int(per_group)?,
        n_pixels: int(plane)?,
        epsilon,
        n_parts: int(n_parts)?,
        per_part: int(per_part)?,
        n_vectors: int(n_vectors)?,
        inner: Divisor::of(inner / lanes),
        x: group_strides(from)?,
        y: group_strides(to)?,
        epilogue: epilogue.args.clone(),
    };
    let held = match cluster {
        1 if n_vectors > GROUP_THREADS * MAX_VECTORS => 0,
        _ => n_vectors.div_ceil(GROUP_THREADS * cluster),
    };
    let code = |stage: usize| -> Result<KernelCode, KernelError> {
        let text = include_str!("../../../kernels/norm_groups.cu");
        let code = epilogue.code("norm_groups.cu", text, "norm_groups", &numbers);
        Ok(around
            .typed(code, &wanted)?
            .define("STAGE", stage)
            .define("THREADS", GROUP_THREADS)
            .define("HELD", held)
            .define("CLUSTER", cluster)
            .define("V", lanes)
            .define("LAST", u8::from(last)))
    };
    let parts = if n_parts > 1 { Arg::Address(Slot::Workspace, 0) } else { Arg::Nothing };
    let args = group_args(&wanted, parts, Arg::of(&numbers), &epilogue);
    let grid = [n_parts as u32, blocks(n_blocks, 1)?, 1];
    // The second dimension of a grid has 16 bits.
    if grid[1] > 65_535 {
        return refuse("too many groups");
    }
    let threads = GROUP_THREADS as u32;
    if n_parts == 1 {
        let mut plan = Plan::one(code(0)?, [cluster as u32, grid[1], 1], threads, args);
        plan.steps[0].cluster = cluster as u32;
        return Ok(plan);
    }
    let step = |source| Step { source, grid, threads, shared: 0, cluster: 1, args: args.clone() };
    Ok(Plan {
        sources: vec![code(1)?, code(2)?],
        steps: vec![step(0), step(1)],
        // A sum and a sum of squares, in f32.
        workspace: n_blocks * n_parts * 8,
    })
}
