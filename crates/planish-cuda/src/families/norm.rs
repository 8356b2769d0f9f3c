//! The family of normalizations: layer and RMS by rows, group and instance by channels, each with the pointwise
//! nodes behind it, and rows with a sum of two values before.

use planish_kernel::{Candidate, KernelError, Layout, Operand, Problem, Ref, RegionNode, Tactic, Want};
use planish_op::{self as op, Op};
use planish_tensor::{DType, normalize_axis};

use crate::ending::Ending;
use crate::gpu::Gpu;
use crate::operands::{as_run, candidate, is_float, laid, layouts_for, refuse, storage, want};
use crate::samples::{Sample, input, node};
use crate::source::Source;
use crate::space::{blocks, divisor, int};
use crate::steps::{Arg, Plan, Planner, Slot, Step};

mod pixels;
#[cfg(test)]
mod tests;

const REVISION: u32 = 2;

/// The most elements of a row that a thread holds.
const MAX_HELD: usize = 32;
/// Axes that rows may have.
const MAX_ROW_AXES: usize = 4;
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

/// Layer, RMS, group and instance normalization.
pub(crate) struct Norm;

fn is_main(op: &Op) -> bool {
    matches!(
        op,
        Op::LayerNormalization(_)
            | Op::RMSNormalization(_)
            | Op::GroupNormalization(_)
            | Op::InstanceNormalization(_)
    )
}

/// The operand that a node's input is, if it is an input of the region.
fn operand<'a>(
    problem: &'a Problem,
    node: &RegionNode,
    idx: usize,
) -> Result<Option<(usize, &'a Operand)>, KernelError> {
    match node.inputs.get(idx).copied().flatten() {
        None => Ok(None),
        Some(Ref::Input(input)) => match problem.inputs.get(input as usize) {
            Some(operand) if is_float(operand.dtype) && operand.packed.is_none() => {
                Ok(Some((input as usize, operand)))
            }
            _ => refuse("an operand that is not plain floats"),
        },
        Some(_) => refuse("an operand that is not an input of the region"),
    }
}

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

/// What group and instance normalization ask for.
#[derive(Clone, Copy, Debug)]
struct Grouped {
    n_groups: usize,
    epsilon: f32,
}

fn ways(problem: &Problem) -> &'static [(Way, &'static str)] {
    let main = problem.region.nodes.iter().find(|node| is_main(&node.op));
    match main.map(|node| &node.op) {
        Some(Op::LayerNormalization(_) | Op::RMSNormalization(_)) => &[(Way::Rows, "norm_rows")],
        Some(_) => &[
            (Way::Groups, "norm_groups"),
            (Way::Clusters, "norm_clusters"),
            (Way::Parts, "norm_parts"),
            (Way::Pixels, "norm_pixels"),
        ],
        None => &[],
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
    let nodes = &problem.region.nodes;
    let Some(main) = nodes.iter().position(|node| is_main(&node.op)) else {
        return refuse("no normalization");
    };
    let ([output], [Ref::Node { output: 0, .. }]) = (&*problem.outputs, &*problem.region.outputs) else {
        return refuse("a normalization has one output here");
    };
    if nodes[main].n_outputs != 1 || !is_float(output.dtype) {
        return refuse("the output is not of floats, or not the only one");
    }
    if output.is_empty() {
        return Ok(Plan::default());
    }
    let rank = output.rank();
    match (&nodes[main].op, way) {
        (Op::LayerNormalization(op), Way::Rows) => {
            rows(gpu, problem, main, axis_of(op.axis, rank)?, false, op.epsilon)
        }
        (Op::RMSNormalization(op), Way::Rows) => {
            rows(gpu, problem, main, axis_of(op.axis, rank)?, true, op.epsilon)
        }
        (Op::GroupNormalization(op), _) => {
            let n_groups = usize::try_from(op.num_groups).unwrap_or(0);
            groups(gpu, problem, main, Grouped { n_groups, epsilon: op.epsilon }, way)
        }
        (Op::InstanceNormalization(op), _) => {
            let n_groups = output.dims.get(1).copied().unwrap_or(0);
            groups(gpu, problem, main, Grouped { n_groups, epsilon: op.epsilon }, way)
        }
        (op, _) => refuse(format!("{} in this form", op.name())),
    }
}

fn axis_of(axis: i64, rank: usize) -> Result<usize, KernelError> {
    normalize_axis(axis, rank).map_err(|error| KernelError::unsupported(error.to_string()))
}

fn rows(
    gpu: &Gpu,
    problem: &Problem,
    main: usize,
    axis: usize,
    is_rms: bool,
    epsilon: f32,
) -> Result<Plan, KernelError> {
    let node = &problem.region.nodes[main];
    let output = &problem.outputs[0];
    // What is normalized may be a sum that is made on the way.
    let (x, added) = match node.inputs.first().copied().flatten() {
        Some(Ref::Node { node: sum, output: 0 }) => {
            let sum = &problem.region.nodes[sum as usize];
            match (&sum.op, operand(problem, sum, 0)?, operand(problem, sum, 1)?) {
                (Op::Add(_), Some(a), Some(b)) => (a, Some(b)),
                _ => return refuse("only a sum of two inputs is made before the rows are normalized"),
            }
        }
        _ => match operand(problem, node, 0)? {
            Some(x) => (x, None),
            None => return refuse("no input"),
        },
    };
    let dims = &output.dims;
    let len: usize = dims[axis..].iter().product();
    let follows = |operand: &Operand| {
        operand.dims == *dims && as_run(&dims[axis..], &operand.strides[axis..]) == Some(1)
    };
    if !follows(x.1) || !added.is_none_or(|added| follows(added.1)) || !follows(output) {
        return refuse("rows with gaps");
    }
    if axis > MAX_ROW_AXES {
        return refuse("rows along too many axes");
    }
    let parameter = |idx: usize| match operand(problem, node, idx)? {
        None => Ok(None),
        Some((input, operand)) => {
            let surplus = operand.rank().saturating_sub(dims.len() - axis);
            let whole = operand.len() == len && operand.dims[surplus..] == dims[axis..];
            match whole && operand.is_dense(Layout::Plain) {
                true => Ok(Some((input, operand))),
                false => refuse("parameters that are not one for each element of a row"),
            }
        }
    };
    let Some(scale) = parameter(1)? else {
        return refuse("no scale");
    };
    let bias = if is_rms { None } else { parameter(2)? };
    let streams = [Some(x), added, Some((0, output))];
    let mut lanes = 8;
    let aligned = |lanes: usize| {
        len >= lanes
            && streams
                .iter()
                .flatten()
                .all(|(_, operand)| (0..axis).all(|idx| dims[idx] == 1 || operand.strides[idx] % lanes == 0))
    };
    while lanes > 1 && !aligned(lanes) {
        lanes /= 2;
    }
    let n_rows: usize = dims[..axis].iter().product();
    let n_vectors = len.div_ceil(lanes);
    // Short rows have a warp each; longer ones as many threads as there are vectors, up to a block.
    let sharers = if n_vectors <= 64 { 32 } else { n_vectors.div_ceil(2).next_power_of_two().clamp(64, 256) };
    let per_block = if sharers == 32 { (n_rows / gpu.n_sms as usize).clamp(1, 8) } else { 1 };
    let held = n_vectors.div_ceil(sharers).next_power_of_two() * lanes;
    let held = if held <= MAX_HELD { held } else { 0 };
    let mut ints = vec![int(n_rows)?, int(len)?, epsilon.to_bits() as i32];
    for idx in (0..axis).rev() {
        ints.extend(divisor(dims[idx]));
    }
    for stream in streams {
        for idx in (0..axis).rev() {
            ints.push(stream.map_or(Ok(0), |(_, operand)| int(operand.strides[idx]))?);
        }
    }
    let row_axes: Vec<[usize; 1]> = (0..axis).map(|idx| [idx]).collect();
    let mut coordinates: [&[usize]; 4] = [&[]; 4];
    for (to, from) in coordinates.iter_mut().zip(&row_axes) {
        *to = from;
    }
    let cols: Vec<usize> = (axis..dims.len()).collect();
    let ending = Ending::behind(problem, main as u32, coordinates, &cols, lanes, ints.len())?;
    ints.extend(&ending.ints);
    let optional = |operand: Option<(usize, &Operand)>| -> Result<&'static str, KernelError> {
        operand.map_or(Ok("float"), |(_, operand)| storage(operand))
    };
    let address = |operand: Option<(usize, &Operand)>| match operand {
        Some((idx, _)) => Arg::Address(Slot::Input(idx), 0),
        None => Arg::Nothing,
    };
    let source = ending
        .code("norm_rows.cu", include_str!("../../kernels/norm_rows.cu"), "norm_rows", ints.len())
        .define("X_T", storage(x.1)?)
        .define("R_T", optional(added)?)
        .define("S_T", storage(scale.1)?)
        .define("B_T", optional(bias)?)
        .define("Y_T", storage(output)?)
        .define("HAS_SUM", u8::from(added.is_some()))
        .define("HAS_BIAS", u8::from(bias.is_some()))
        .define("IS_RMS", u8::from(is_rms))
        .define("SHARERS", sharers)
        .define("ROWS", per_block)
        .define("HELD", held)
        .define("V", lanes)
        .define("N_OUT", axis)
        .source();
    let mut args = vec![
        address(Some(x)),
        address(added),
        address(Some(scale)),
        address(bias),
        Arg::Address(Slot::Output(0), 0),
        Arg::Ints(ints),
    ];
    args.extend(ending.args);
    Ok(Plan::one(source, [blocks(n_rows, per_block)?, 1, 1], (sharers * per_block) as u32, args))
}

fn groups(
    gpu: &Gpu,
    problem: &Problem,
    main: usize,
    grouped: Grouped,
    way: &Way,
) -> Result<Plan, KernelError> {
    if matches!(way, Way::Pixels) {
        return pixels::plan(gpu, problem, main, grouped);
    }
    let Grouped { n_groups, epsilon } = grouped;
    let node = &problem.region.nodes[main];
    let output = &problem.outputs[0];
    let (Some((x, from)), Some((scale, scales)), Some((bias, biases))) =
        (operand(problem, node, 0)?, operand(problem, node, 1)?, operand(problem, node, 2)?)
    else {
        return refuse("a parameter is missing");
    };
    let dims = &output.dims;
    if dims.len() < 2 || from.dims != *dims || n_groups == 0 || !dims[1].is_multiple_of(n_groups) {
        return refuse("channels that do not divide into groups");
    }
    if [scales, biases].iter().any(|p| p.dims != [dims[1]] || !p.is_dense(Layout::Plain)) {
        return refuse("parameters that are not one for each channel");
    }
    let steps = |operand: &Operand| {
        let pixel = as_run(&dims[2..], &operand.strides[2..])?;
        Some([operand.strides[0], operand.strides[1], pixel])
    };
    let (Some(from_steps), Some(to_steps)) = (steps(from), steps(output)) else {
        return refuse("pixels with gaps");
    };
    let plane: usize = dims[2..].iter().product();
    let per_group = dims[1] / n_groups;
    let last = from_steps[1] == 1 && to_steps[1] == 1;
    if !last && plane > 1 && (from_steps[2], to_steps[2]) != (1, 1) {
        return refuse("neither channels nor pixels lie side by side");
    }
    // Vectors go along channels or pixels and never reach beyond the group.
    let (inner, steps_beside) = match last {
        true => (per_group, [from_steps[0], to_steps[0], from_steps[2], to_steps[2]]),
        false => (plane, [from_steps[0], to_steps[0], from_steps[1], to_steps[1]]),
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
    let mut ints = vec![
        int(n_groups)?,
        int(per_group)?,
        int(plane)?,
        epsilon.to_bits() as i32,
        int(n_parts)?,
        int(per_part)?,
        int(n_vectors)?,
    ];
    ints.extend(divisor(inner / lanes));
    for step in from_steps.into_iter().chain(to_steps) {
        ints.push(int(step)?);
    }
    let spatial: Vec<usize> = (2..dims.len()).collect();
    let ending = match last {
        true => Ending::behind(problem, main as u32, [&[0], &[], &[], &spatial], &[1], lanes, ints.len())?,
        false => Ending::behind(problem, main as u32, [&[0], &[1], &[], &[]], &spatial, lanes, ints.len())?,
    };
    ints.extend(&ending.ints);
    let held = match cluster {
        1 if n_vectors > GROUP_THREADS * MAX_VECTORS => 0,
        _ => n_vectors.div_ceil(GROUP_THREADS * cluster),
    };
    let code = |stage: usize| -> Result<Source, KernelError> {
        Ok(ending
            .code("norm_groups.cu", include_str!("../../kernels/norm_groups.cu"), "norm_groups", ints.len())
            .define("X_T", storage(from)?)
            .define("S_T", storage(scales)?)
            .define("B_T", storage(biases)?)
            .define("Y_T", storage(output)?)
            .define("STAGE", stage)
            .define("THREADS", GROUP_THREADS)
            .define("HELD", held)
            .define("CLUSTER", cluster)
            .define("V", lanes)
            .define("LAST", u8::from(last))
            .source())
    };
    let mut args = vec![
        Arg::Address(Slot::Input(x), 0),
        Arg::Address(Slot::Input(scale), 0),
        Arg::Address(Slot::Input(bias), 0),
        Arg::Address(Slot::Output(0), 0),
        if n_parts > 1 { Arg::Address(Slot::Workspace, 0) } else { Arg::Nothing },
        Arg::Ints(ints.clone()),
    ];
    args.extend(ending.args.clone());
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

impl Planner for Norm {
    fn name(&self) -> &'static str {
        "norm"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem) -> Vec<Candidate> {
        let [output] = &*problem.outputs else { return Vec::new() };
        let mut list = Vec::new();
        for layout in layouts_for(&problem.outputs) {
            // What is normalized together must go on with one stride; gaps are fine between pixels of
            // channels, and between rows along one axis.
            let inside = match layout {
                Layout::ChannelsLast => true,
                _ => is_along_last(problem),
            };
            let wants = |want: Want| Want { inside: want.inside && inside, ..want };
            let inputs: Vec<Want> =
                problem.inputs.iter().map(|input| wants(want(input, output.rank(), layout))).collect();
            let outputs = vec![wants(Want::inside(layout))];
            for (way, name) in ways(problem) {
                let Ok(plan) = plan(gpu, &laid(problem, &inputs, &outputs), way) else { continue };
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

    fn samples(&self) -> Vec<Problem> {
        let layer = || Op::from(op::LayerNormalization { stash_type: 1, epsilon: 1e-5, axis: -1 });
        let group =
            |num_groups| Op::from(op::GroupNormalization { num_groups, epsilon: 1e-5, stash_type: 1 });
        let half = DType::F16;
        let summed = vec![
            (Op::from(op::Add {}), vec![input(0), input(1)]),
            (layer(), vec![node(0), input(2), input(3)]),
            (op::Relu {}.into(), vec![node(1)]),
        ];
        let gated = vec![
            (group(4), vec![input(0), input(1), input(2)]),
            (Op::from(op::Sigmoid {}), vec![node(0)]),
            (op::Mul {}.into(), vec![node(0), node(1)]),
            (op::Add {}.into(), vec![node(2), input(3)]),
        ];
        let swish = vec![
            (group(32), vec![input(0), input(1), input(2)]),
            (Op::from(op::Swish { alpha: 1.0 }), vec![node(0)]),
        ];
        let image = [2usize, 32, 12, 11];
        vec![
            Sample::of(summed.clone())
                .typed(half, &[3, 5, 384])
                .typed(half, &[3, 5, 384])
                .typed(half, &[384])
                .typed(half, &[384])
                .problem(),
            Sample::of(vec![(layer(), vec![input(0), input(1), input(2)])])
                .f32(&[4, 77])
                .f32(&[77])
                .f32(&[77])
                .problem(),
            Sample::of(vec![(layer(), vec![input(0), input(1)])])
                .typed(DType::BF16, &[3, 9000])
                .f32(&[9000])
                .problem(),
            Sample::of(gated)
                .typed(half, &image)
                .typed(half, &[32])
                .typed(half, &[32])
                .typed(half, &image)
                .problem(),
            Sample::of(vec![(group(2), vec![input(0), input(1), input(2)])])
                .f32(&[1, 4, 60, 50])
                .f32(&[4])
                .f32(&[4])
                .problem(),
            Sample::of(vec![(group(32), vec![input(0), input(1), input(2)])])
                .typed(half, &[1, 128, 9, 12])
                .typed(half, &[128])
                .typed(half, &[128])
                .problem(),
            Sample::of(swish).typed(half, &[1, 64, 40, 33]).typed(half, &[64]).typed(half, &[64]).problem(),
            Sample::op(op::InstanceNormalization { epsilon: 1e-5 }, 3)
                .f32(&[2, 6, 5, 7])
                .f32(&[6])
                .f32(&[6])
                .problem(),
        ]
    }
}
