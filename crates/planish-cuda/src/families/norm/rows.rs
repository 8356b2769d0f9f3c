//! Layer and RMS normalization: a warp or a block for each row.

use planish_gpu::epilogue::{EpilogueArgs, EpilogueCode};
use planish_gpu::kernel_args;
use planish_gpu::operands::{refuse, storage};
use planish_gpu::plan::{Arg, Plan, Slot};
use planish_gpu::space::{Divisor, blocks, int};
use planish_kernel::norm::NormRows;
use planish_kernel::{KernelError, Operand};

use super::Around;
use crate::families::to_bytes::{self, Apart};

/// The most elements of a row that a thread holds.
const MAX_HELD: usize = 32;
/// Axes that rows may have.
const MAX_ROW_AXES: usize = 4;

kernel_args! {
    /// What norm_rows.cu is given.
    struct NormRowsArgs {
        n_rows: i32,
        len: i32,
        epsilon: f32,
        /// The rows' axes, innermost first, and their strides.
        axes: Vec<Divisor>,
        x_strides: Vec<i32>,
        added_strides: Vec<i32>,
        y_strides: Vec<i32>,
        q_strides: Vec<i32>,
        /// Of numbers of 8 bits, and one over it.
        scales: [f32; 2],
        epilogue: EpilogueArgs,
    }
}

pub(super) fn plan(
    around: &Around<'_>,
    wanted: NormRows<'_>,
    apart: &Apart<'_>,
) -> Result<Plan, KernelError> {
    let Around { gpu, problem, main } = *around;
    let NormRows { x, added, scale, bias, axis, len, is_rms, epsilon } = wanted;
    let output = around.output();
    let dims = &output.dims;
    if axis > MAX_ROW_AXES {
        return refuse("rows along too many axes");
    }
    let bytes = apart.bytes;
    let stored = bytes.map(|bytes| bytes.output);
    if stored.is_some_and(|(_, operand)| operand.dims != *dims || operand.run(axis..) != Some(1)) {
        return refuse("rows with gaps");
    }
    let streams = [Some(x), added, Some((0, output)), stored];
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
    // Rows that a warp holds have one each; longer ones as many threads as there are vectors, up to a block.
    let sharers = if n_vectors * lanes <= 32 * MAX_HELD {
        32
    } else {
        n_vectors.div_ceil(2).next_power_of_two().clamp(64, 256)
    };
    let per_block = if sharers == 32 { (n_rows / gpu.n_sms as usize).clamp(1, 8) } else { 1 };
    let held = n_vectors.div_ceil(sharers).next_power_of_two() * lanes;
    let held = if held <= MAX_HELD { held } else { 0 };
    let row_axes: Vec<[usize; 1]> = (0..axis).map(|idx| [idx]).collect();
    let mut coordinates: [&[usize]; 4] = [&[]; 4];
    for (to, from) in coordinates.iter_mut().zip(&row_axes) {
        *to = from;
    }
    let cols: Vec<usize> = (axis..dims.len()).collect();
    let epilogue = EpilogueCode::after(problem, main, coordinates, &cols, lanes)?;
    let strides = |operand: Option<(usize, &Operand)>| -> Result<Vec<i32>, KernelError> {
        let along = |idx: usize| operand.map_or(Ok(0), |(_, operand)| int(operand.strides[idx]));
        (0..axis).rev().map(along).collect()
    };
    let numbers = NormRowsArgs {
        n_rows: int(n_rows)?,
        len: int(len)?,
        epsilon,
        axes: dims[..axis].iter().rev().map(|dim| Divisor::of(*dim)).collect(),
        x_strides: strides(Some(x))?,
        added_strides: strides(added)?,
        y_strides: strides(Some((0, output)))?,
        q_strides: strides(stored)?,
        scales: to_bytes::scales(bytes),
        epilogue: epilogue.args.clone(),
    };
    let optional = |operand: Option<(usize, &Operand)>| -> Result<&'static str, KernelError> {
        operand.map_or(Ok("float"), |(_, operand)| storage(operand))
    };
    let address = |operand: Option<(usize, &Operand)>| match operand {
        Some((idx, _)) => Arg::Address(Slot::Input(idx), 0),
        None => Arg::Nothing,
    };
    let source = epilogue
        .code("norm_rows.cu", include_str!("../../../kernels/norm_rows.cu"), "norm_rows", &numbers)
        .define("X_T", storage(x.1)?)
        .define("R_T", optional(added)?)
        .define("S_T", storage(scale.1)?)
        .define("B_T", optional(bias)?)
        .define("Y_T", storage(output)?)
        .define("HAS_FLOATS", u8::from(apart.stores))
        .define("HAS_SUM", u8::from(added.is_some()))
        .define("HAS_BIAS", u8::from(bias.is_some()))
        .define("IS_RMS", u8::from(is_rms))
        .define("SHARERS", sharers)
        .define("ROWS", per_block)
        .define("HELD", held)
        .define("V", lanes)
        .define("N_OUT", axis);
    let source = to_bytes::define(source, bytes);
    let mut args = vec![
        address(Some(x)),
        address(added),
        address(Some(scale)),
        address(bias),
        Arg::Address(Slot::Output(0), 0),
        stored.map_or(Arg::Nothing, |(idx, _)| Arg::Address(Slot::Output(idx), 0)),
        Arg::of(&numbers),
    ];
    args.extend(epilogue.addresses);
    Ok(Plan::one(source, [blocks(n_rows, per_block)?, 1, 1], (sharers * per_block) as u32, args))
}
