//! The family of rotary embeddings.

use planish_gpu::indices::Index;
use planish_gpu::kernel_args;
use planish_gpu::operands::{candidate, is_float, refuse, size_of_element, storage};
use planish_gpu::plan::{Arg, KernelCode, Plan, Slot};
use planish_gpu::space::{Divisor, blocks, int};
use planish_kernel::movement::Source;
use planish_kernel::rotary::{AngleTable, Positions, Rotary};
use planish_kernel::{Budget, Candidate, KernelError, Layout, Problem, Tactic, Want};

use crate::family::Family;
use crate::gpu::Gpu;

#[cfg(test)]
mod tests;

const REVISION: u32 = 1;

/// Bytes that a thread reads at once.
const ACCESS_BYTES: usize = 16;

kernel_args! {
    /// What rotary.cu is given.
    struct RotaryArgs {
        n_threads: i32,
        /// Of a vector: threads that turn pairs, and all.
        n_turned: i32,
        groups: Divisor,
        n_pairs: i32,
        /// Elements of a vector.
        size: i32,
        /// Rows of the tables, and from one to the next; 0 without positions.
        n_rows: i32,
        cos_row: i32,
        sin_row: i32,
        /// Batches, heads and steps as the input lies, innermost first, and their strides.
        axes: Vec<Divisor>,
        x_strides: Vec<i32>,
        y_strides: Vec<i32>,
        cos_strides: Vec<i32>,
        sin_strides: Vec<i32>,
        position_strides: Vec<i32>,
    }
}

/// RotaryEmbedding of floats.
pub(crate) struct RotaryFamily;

/// Batches, heads or steps: how many, and strides in x, y, cos, sin and positions.
type Axis = (usize, [usize; 5]);

fn axes(rotary: &Rotary) -> [Axis; 3] {
    let [batch, heads, seq, _] = rotary.x.sizes;
    let (x, y) = (rotary.x.strides, rotary.y.strides);
    let (cos, sin) = (rotary.cos.strides, rotary.sin.strides);
    let mut axes = match rotary.positions {
        Some(_) => [(batch, [x[0], y[0], 0, 0, seq]), (seq, [x[2], y[2], 0, 0, 1])],
        None => [(batch, [x[0], y[0], cos[0], sin[0], 0]), (seq, [x[2], y[2], cos[1], sin[1], 0])],
    }
    .to_vec();
    axes.push((heads, [x[1], y[1], 0, 0, 0]));
    axes.sort_by_key(|(_, strides)| strides[0]);
    [axes[0], axes[1], axes[2]]
}

/// Pairs of a thread.
fn lanes(rotary: &Rotary) -> usize {
    let at_once = ACCESS_BYTES / size_of_element(rotary.dtype);
    let mut lanes = if rotary.interleaved { at_once / 2 } else { at_once };
    while lanes > 1 && lanes > rotary.n_pairs {
        lanes /= 2;
    }
    lanes
}

fn plan(problem: &Problem) -> Result<Plan, KernelError> {
    let rotary = Rotary::of(problem)?;
    let Rotary { n_pairs, cos, sin, positions, .. } = &rotary;
    if ![rotary.dtype, cos.dtype, sin.dtype].into_iter().all(is_float) || cos.dtype != sin.dtype {
        return refuse("a rotary embedding of other types than floats of up to 32 bits");
    }
    let table = |table: &AngleTable| match table.source {
        Source::Input(input) => Ok((Arg::Address(Slot::Input(input), 0), storage(&problem.inputs[input])?)),
        Source::Constant(_) => refuse("angles that are a constant of the region"),
    };
    let ((cos_arg, table_type), (sin_arg, _)) = (table(cos)?, table(sin)?);
    let n_vectors: usize = rotary.x.sizes[..3].iter().product();
    let size = rotary.x.sizes[3];
    if n_vectors * size == 0 {
        return Ok(Plan::default());
    }
    if positions.as_ref().is_some_and(|positions| positions.n_rows == 0) {
        return refuse("positions in tables of nothing");
    }
    let lanes = lanes(&rotary);
    let n_turned = n_pairs.div_ceil(lanes);
    let n_groups = n_turned + (size - 2 * n_pairs).div_ceil(lanes);
    let axes = axes(&rotary);
    let strides = |operand: usize| {
        let one = |(_, strides): &Axis| int(strides[operand]);
        axes.iter().map(one).collect::<Result<Vec<i32>, _>>()
    };
    let row = |table: &AngleTable| int(if positions.is_some() { table.strides[1] } else { 0 });
    let n_threads = n_vectors * n_groups;
    let numbers = RotaryArgs {
        n_threads: int(n_threads)?,
        n_turned: int(n_turned)?,
        groups: Divisor::of(n_groups),
        n_pairs: int(*n_pairs)?,
        size: int(size)?,
        n_rows: int(positions.as_ref().map_or(0, |positions| positions.n_rows))?,
        cos_row: row(cos)?,
        sin_row: row(sin)?,
        axes: axes.iter().map(|(len, _)| Divisor::of(*len)).collect(),
        x_strides: strides(0)?,
        y_strides: strides(1)?,
        cos_strides: strides(2)?,
        sin_strides: strides(3)?,
        position_strides: strides(4)?,
    };
    let code = KernelCode::new("rotary.cu", include_str!("../../kernels/rotary.cu"), "rotary", &numbers)
        .define("T", storage(&problem.inputs[rotary.input])?)
        .define("C", table_type)
        .define("V", lanes)
        .define("INTERLEAVED", u8::from(rotary.interleaved))
        .define("POSITIONS", u8::from(positions.is_some()));
    let (code, index_arg) = match positions {
        None => (code.define("I_T", "i32"), Arg::Nothing),
        Some(_) => {
            let index = Index::of(problem, problem.region.nodes[0].inputs[3])?;
            (index.told(code)?, index.arg)
        }
    };
    let args = vec![
        Arg::Address(Slot::Input(rotary.input), 0),
        cos_arg,
        sin_arg,
        index_arg,
        Arg::Address(Slot::Output(0), 0),
        if positions.is_some() { Arg::Address(Slot::Fault, 0) } else { Arg::Nothing },
        Arg::of(&numbers),
    ];
    Ok(Plan::one(code, [blocks(n_threads, 256)?, 1, 1], 256, args))
}

impl Family for RotaryFamily {
    fn name(&self) -> &'static str {
        "rotary"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let mut inputs = vec![Want::inside(Layout::Plain); problem.inputs.len()];
        let outputs = vec![Want::inside(Layout::Plain); problem.outputs.len()];
        let laid = problem.with_layouts(&inputs, &outputs);
        let (Ok(_), Ok(rotary)) = (plan(&laid), Rotary::of(&laid)) else { return Vec::new() };
        if let Some(Positions { source: Source::Input(positions), .. }) = rotary.positions {
            inputs[positions].inside = false;
        }
        let ns = gpu.roofline_ns(0.0, 1.0, problem.traffic_bytes() as f64);
        let offered = candidate("rotary_pairs".to_string(), REVISION, inputs, outputs, ns);
        let in_place = Family::in_place(self, &laid, &offered.tactic);
        vec![Candidate { in_place, ..offered }]
    }

    /// Both of a pair are read before either is written.
    fn in_place(&self, problem: &Problem, _tactic: &Tactic) -> Vec<(usize, usize)> {
        Rotary::of(problem).map_or(Vec::new(), |rotary| vec![(0, rotary.input)])
    }

    fn plan(&self, _gpu: &Gpu, problem: &Problem, _tactic: &Tactic) -> Result<Plan, KernelError> {
        plan(problem)
    }
}
