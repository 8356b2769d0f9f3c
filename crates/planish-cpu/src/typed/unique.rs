//! Unique where nothing is wanted but to which of the different elements each belongs, so that sizes are known.

use planish_kernel::{KernelError, KernelErrorKind, Layout, Problem, Ref};
use planish_op::Op;
use planish_tensor::{Bytes, DType, Tensor, normalize_axis};

use super::args::Args;
use crate::family::Work;
use crate::groups::Groups;
use crate::shared::Shared;
use crate::team::Team;

/// The number of the output that says it.
const INVERSE: u32 = 2;

/// Elements that are told apart.
#[derive(Debug)]
pub(super) struct Unique {
    args: Args,
    dtype: DType,
    dims: Vec<usize>,
    sorted: bool,
}

pub(super) fn plan(problem: &Problem, args: &Args) -> Option<Unique> {
    let ([node], [y]) = (&problem.region.nodes[..], &problem.outputs[..]) else { return None };
    let Op::Unique(op) = &node.op else { return None };
    let x = args.operand(0)?;
    let is_whole = op.axis.is_none_or(|axis| x.rank() == 1 && normalize_axis(axis, 1).is_ok());
    let fits = problem.region.outputs == [Ref::Node { node: 0, output: INVERSE }]
        && is_whole
        && Groups::takes(x.dtype)
        // What is no number is the reference's to order.
        && !x.dtype.is_float()
        && y.dtype == DType::I64
        && y.len() == x.len()
        && y.is_dense(Layout::Plain)
        && args.are_dense();
    fits.then(|| Unique { args: args.clone(), dtype: x.dtype, dims: x.dims.clone(), sorted: op.sorted })
}

impl Work for Unique {
    unsafe fn run(&self, shared: Shared<'_>, _team: &Team) -> Result<(), KernelError> {
        let failed =
            |error: planish_tensor::TensorError| KernelError::new(KernelErrorKind::Failed, error.to_string());
        let n: usize = self.dims.iter().product();
        // SAFETY: the caller grants the dense operand.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.args.pointer(&shared, 0), n * self.dtype.bits() / 8) };
        let x = Tensor::from_bytes(self.dtype, &self.dims, Bytes::aligned(bytes)).map_err(failed)?;
        let groups = Groups::of(&x, self.sorted)
            .ok_or_else(|| KernelError::new(KernelErrorKind::Failed, "elements that have no order"))?;
        for (at, group) in groups.inverse.into_iter().enumerate() {
            // SAFETY: the output has as many elements.
            unsafe { shared.outputs[0].cast::<i64>().add(at).write_unaligned(group) };
        }
        Ok(())
    }
}
