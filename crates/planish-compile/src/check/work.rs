//! How much a step is, counted from its sizes: what decides how it is checked. Never the clock.

use planish_kernel::{Operand, Problem, Ref};
use planish_op::Op;

use super::points::is_sum_of_products;

/// What the reference takes for an element of anything but sums of products, in multiplications and additions: it goes
/// through numbers of 64 bits, one function call each.
const PER_ELEMENT: u64 = 40;

/// What a region is on the reference, in multiplications and additions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Work {
    /// All of it.
    pub(super) all: u64,
    /// The nodes in front of the last one that is not element by element.
    pub(super) inner: u64,
    /// Sums of products, attention and recurrent layers: what kernels spend their time on.
    pub(super) heavy: u64,
}

/// Counts a region at the sizes of its problem; `None` where sizes hang on values.
pub(super) fn work_of(problem: &Problem) -> Option<Work> {
    let types = problem.inner_types().ok()?;
    let region = &problem.region;
    let len = |dims: &[usize]| dims.iter().product::<usize>() as u64;
    let dims = |reference: &Option<Ref>| -> Option<&[usize]> {
        match (*reference)? {
            Ref::Input(idx) => problem.inputs.get(idx as usize).map(|operand: &Operand| &operand.dims[..]),
            Ref::Constant(idx) => region.constants.get(idx as usize).map(|tensor| tensor.shape()),
            Ref::Node { node, output } => {
                types.get(node as usize)?.get(output as usize).map(|ty| &ty.dims[..])
            }
        }
    };
    let mut work = Work::default();
    let mut before_main = 0u64;
    for (node, made) in region.nodes.iter().zip(&types) {
        let input = |at: usize| node.inputs.get(at).and_then(dims).unwrap_or(&[]);
        let out: u64 = made.iter().map(|ty| len(&ty.dims)).sum();
        let largest = node.inputs.iter().filter_map(dims).map(len).max().unwrap_or(0).max(out);
        let heavy = match &node.op {
            Op::Conv(_) => 2 * out * len(input(1).get(1..).unwrap_or(&[])),
            Op::ConvTranspose(_) => 2 * len(input(0)) * len(input(1).get(1..).unwrap_or(&[])),
            op if is_sum_of_products(op) => 2 * out * input(0).last().copied().unwrap_or(1) as u64,
            Op::Attention(_) => {
                // Every query meets every key of its head.
                let keys = input(1).iter().rev().nth(1).copied().unwrap_or(1) as u64;
                4 * len(input(0)) * keys
            }
            Op::LSTM(_) | Op::GRU(_) | Op::RNN(_) => {
                let rows = input(0).iter().take(2).product::<usize>() as u64;
                2 * rows * (len(input(1)) + len(input(2)))
            }
            _ => 0,
        };
        let window = match &node.op {
            Op::MaxPool(pool) => pool.kernel_shape.iter().product::<i64>().max(1) as u64,
            Op::AveragePool(pool) => pool.kernel_shape.iter().product::<i64>().max(1) as u64,
            _ => 1,
        };
        let own = heavy + PER_ELEMENT * largest.max(out * window / 4);
        if !node.op.is_elementwise() {
            before_main = work.all;
        }
        work.all += own;
        work.heavy += heavy;
    }
    work.inner = before_main;
    Some(work)
}
