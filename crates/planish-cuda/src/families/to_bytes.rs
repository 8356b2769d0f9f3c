//! Results that become numbers of 8 bits, of kernels without a program after them: beside the floats that others read, or in
//! their place.

use std::borrow::Cow;

use planish_gpu::codegen::storage_type;
use planish_gpu::operands::refuse;
use planish_gpu::plan::KernelCode;
use planish_kernel::{KernelError, Layout, Operand, Problem, Ref, RegionNode};
use planish_op::Op;
use planish_tensor::{DType, Tensor};

/// How results are rounded to 8 bits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct ToBytes<'a> {
    pub(super) scale: f32,
    pub(super) zero: i32,
    /// Which output they are, and the operand.
    pub(super) output: (usize, &'a Operand),
}

/// What kernels are given of it beside definitions: the scale, and one over it.
pub(super) fn scales(bytes: Option<ToBytes<'_>>) -> [f32; 2] {
    bytes.map_or([1.0; 2], |bytes| [bytes.scale, bytes.scale.recip()])
}

/// As `Bytes` in ops.cuh is set up: the type in memory, and the zero point.
pub(super) fn define(code: KernelCode, bytes: Option<ToBytes<'_>>) -> KernelCode {
    let storage = bytes.and_then(|bytes| storage_type(bytes.output.1.dtype)).unwrap_or("u8");
    code.define("HAS_BYTES", u8::from(bytes.is_some()))
        .define("Q_T", storage)
        .define("ZERO", bytes.map_or(0, |bytes| bytes.zero))
}

/// A problem without the nodes that lead to 8 bits, and how they are led there.
#[derive(Debug)]
pub(super) struct Apart<'a> {
    /// Its one output is of floats, which are stored only where `stores`.
    pub(super) problem: Cow<'a, Problem>,
    pub(super) bytes: Option<ToBytes<'a>>,
    pub(super) stores: bool,
}

impl<'a> Apart<'a> {
    /// Takes QuantizeLinear off the end, with the cast before it. Where there is none the problem is as it was.
    pub(super) fn of(problem: &'a Problem) -> Result<Apart<'a>, KernelError> {
        let nodes = &problem.region.nodes;
        let Some((last, RegionNode { op: Op::QuantizeLinear(op), inputs, .. })) =
            nodes.len().checked_sub(1).map(|last| (last, &nodes[last]))
        else {
            return Ok(Apart { problem: Cow::Borrowed(problem), bytes: None, stores: true });
        };
        let constant = |place: usize| problem.region.constant(inputs.get(place).copied().flatten());
        let single = |tensor: &Tensor| (tensor.len() == 1).then(|| tensor.to_f64s()[0]);
        let zero = match inputs.get(2).copied().flatten() {
            None => Some(0.0),
            Some(_) => constant(2).and_then(single),
        };
        let (Some(scale), Some(zero)) = (constant(1).and_then(single), zero) else {
            return refuse("scales that are not one known number");
        };
        let plain = op.block_size == 0 && op.saturate && op.precision.is_none_or(|dtype| dtype == DType::F32);
        let Some(Some(Ref::Node { node: before, output: 0 })) = inputs.first().filter(|_| plain).copied()
        else {
            return refuse("numbers of 8 bits of something else");
        };
        // The floats that are rounded: those before a cast to f32.
        let (from, n_kept) = match &nodes[before as usize] {
            RegionNode { op: Op::Cast(cast), inputs, .. } if cast.to == DType::F32 => match inputs.first() {
                Some(&Some(Ref::Node { node, output: 0 })) => (node, before as usize),
                _ => return refuse("a cast of an input"),
            },
            _ => (before, last),
        };
        let (result, bytes) =
            (Ref::Node { node: from, output: 0 }, Ref::Node { node: last as u32, output: 0 });
        let stores = problem.region.outputs == [result, bytes];
        if from as usize + 1 != n_kept || !(stores || problem.region.outputs == [bytes]) {
            return refuse("other nodes beside the rounding to 8 bits");
        }
        let output = (problem.outputs.len() - 1, &problem.outputs[problem.outputs.len() - 1]);
        let is_byte = matches!(output.1.dtype, DType::I8 | DType::U8)
            || (output.1.dtype == DType::F8E4M3FN && zero == 0.0);
        if !is_byte || scale <= 0.0 {
            return refuse("integers of other than 8 bits");
        }
        let types = problem.inner_types()?;
        let made = &types[from as usize][0];
        let mut floats = problem.clone();
        floats.region.nodes.truncate(n_kept);
        floats.region.outputs = vec![result];
        floats.outputs = match stores {
            true => vec![problem.outputs[0].clone()],
            false => vec![Operand {
                strides: output.1.strides.clone(),
                ..Operand::dense(made.dtype, &made.dims, Layout::Plain)
            }],
        };
        let bytes = ToBytes { scale: scale as f32, zero: zero as i32, output };
        Ok(Apart { problem: Cow::Owned(floats), bytes: Some(bytes), stores })
    }
}
