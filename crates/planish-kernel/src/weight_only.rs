//! Products whose weight alone is stored as integers, taken apart for every backend: the same region over floats, and how
//! the weight is stored.
//!
//! Such a region is `DequantizeLinear` of a constant matrix, in blocks along the sum or with one scale a column, the
//! product with a factor of floats, and what follows it.

use planish_op::Op;
use planish_tensor::{DType, Tensor};

use crate::{Problem, Ref, RegionNode};

/// A product with a weight of small integers.
#[derive(Clone, PartialEq, Debug)]
pub struct WeightOnly {
    /// The region over floats, in which the weight is an input as it would be without integers.
    pub problem: Problem,
    /// Inputs of the region: the weight, and a scale for each block and column, laid out as the weight is; of one block
    /// the columns alone.
    pub weight: usize,
    pub scales: usize,
    pub zeros: WeightZeros,
    /// What the weight is stored in.
    pub dtype: DType,
    /// Elements along the sum with one scale.
    pub block: usize,
    /// Rows and columns of the matrix.
    pub k: usize,
    pub n: usize,
    /// Whether it is stored as `n x k`.
    pub transposed: bool,
}

/// Zero points of a weight, of its own type and with as many elements as there are scales.
#[derive(Clone, PartialEq, Debug)]
pub enum WeightZeros {
    /// All are 0.
    None,
    /// An input of the region.
    Input(usize),
    Known(Tensor),
}

impl WeightOnly {
    /// Takes a region apart; `None` where it is something else.
    pub fn of(problem: &Problem) -> Option<WeightOnly> {
        let region = &problem.region;
        let mut dequantized = region.nodes.iter().enumerate().filter_map(|(at, node)| match &node.op {
            Op::DequantizeLinear(op) => Some((at, node, op)),
            _ => None,
        });
        let (Some((at, node, op)), None) = (dequantized.next(), dequantized.next()) else { return None };
        let made = Some(Ref::Node { node: at as u32, output: 0 });
        let mut readers = region.nodes.iter().filter(|reader| reader.inputs.contains(&made));
        let (Some(product), None) = (readers.next(), readers.next()) else { return None };
        let transposed = match &product.op {
            Op::MatMul(_) => false,
            Op::Gemm(gemm) => gemm.trans_b,
            _ => return None,
        };
        let is_factor = product.inputs.get(1) == Some(&made)
            && product.inputs.iter().filter(|input| **input == made).count() == 1
            && !region.outputs.contains(&made?);
        let (weight, scales) = (constant_input(problem, node, 0)?, constant_input(problem, node, 1)?);
        let dims = &problem.inputs[weight].dims;
        let &[rows, columns] = &dims[..] else { return None };
        let (k, n, along) = if transposed { (columns, rows, 1) } else { (rows, columns, 0) };
        let axis = if op.axis < 0 { op.axis + 2 } else { op.axis };
        let scale = &problem.inputs[scales];
        let block = match usize::try_from(op.block_size).ok()? {
            0 if scale.dims == [n] && axis == 1 - along => k,
            0 => return None,
            block if axis == along => block,
            _ => return None,
        };
        let zeros = match node.inputs.get(2).copied().flatten() {
            None => WeightZeros::None,
            Some(Ref::Input(_)) => WeightZeros::Input(constant_input(problem, node, 2)?),
            Some(zeros) => WeightZeros::Known(region.constant(Some(zeros))?.clone()),
        };
        let dtype = problem.inputs[weight].dtype;
        let known_type = matches!(dtype, DType::I4 | DType::U4 | DType::I8 | DType::U8);
        if !is_factor || !known_type || k == 0 {
            return None;
        }
        let mut plain = problem.clone();
        plain.inputs[weight].dtype = op.output_dtype.unwrap_or(scale.dtype);
        plain.region.nodes.remove(at);
        let moved = |reference: &mut Ref| match reference {
            Ref::Node { node, .. } if *node == at as u32 => *reference = Ref::Input(weight as u32),
            Ref::Node { node, .. } if *node > at as u32 => *node -= 1,
            _ => {}
        };
        let inputs = plain.region.nodes.iter_mut().flat_map(|node| node.inputs.iter_mut().flatten());
        inputs.chain(&mut plain.region.outputs).for_each(moved);
        Some(WeightOnly { problem: plain, weight, scales, zeros, dtype, block, k, n, transposed })
    }

    /// Blocks of a column.
    pub fn n_blocks(&self) -> usize {
        self.k.div_ceil(self.block)
    }
}

/// A constant of the model that is an input of the region.
fn constant_input(problem: &Problem, node: &RegionNode, place: usize) -> Option<usize> {
    let Some(Ref::Input(input)) = node.inputs.get(place).copied().flatten() else { return None };
    problem.inputs.get(input as usize).filter(|operand| operand.constant).map(|_| input as usize)
}
