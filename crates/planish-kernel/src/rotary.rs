//! Rotary embeddings taken apart: the vectors of all heads, the tables of cosines and sines, and which row of them each
//! step reads.

use planish_op::Op;
use planish_tensor::DType;

use crate::attention::Heads;
use crate::movement::Source;
use crate::{KernelError, Layout, Operand, Problem, Ref};

/// A table of cosines or sines.
#[derive(Clone, Debug)]
pub struct AngleTable {
    pub source: Source,
    pub dtype: DType,
    /// From one batch to the next and from one step to the next. With positions the first is 0, the second that of a
    /// row.
    pub strides: [usize; 2],
}

/// Which row of the tables a step reads: dense, one for each step of each batch.
#[derive(Clone, Debug)]
pub struct Positions {
    pub source: Source,
    /// `I64` or `I32`.
    pub dtype: DType,
    /// Rows of the tables: a position is below it and not negative.
    pub n_rows: usize,
}

/// One rotary embedding: `cos·a - sin·b` and `sin·a + cos·b` for every pair `(a, b)` of a vector.
#[derive(Clone, Debug)]
pub struct Rotary {
    /// Which input is rotated.
    pub input: usize,
    pub dtype: DType,
    pub x: Heads,
    pub y: Heads,
    /// Pairs at the beginning of each vector; what is behind them stays as it is.
    pub n_pairs: usize,
    /// Whether the two of a pair are neighbours; otherwise the second is `n_pairs` behind the first.
    pub interleaved: bool,
    pub cos: AngleTable,
    pub sin: AngleTable,
    pub positions: Option<Positions>,
}

impl Rotary {
    /// What a problem that is one RotaryEmbedding asks for, its vectors and rows contiguous.
    pub fn of(problem: &Problem) -> Result<Rotary, KernelError> {
        Rotary::read(problem).ok_or_else(|| {
            KernelError::unsupported("no rotary embedding of contiguous vectors and rows of angles")
        })
    }

    fn read(problem: &Problem) -> Option<Rotary> {
        let ([node], [y]) = (&problem.region.nodes[..], &problem.outputs[..]) else { return None };
        let Op::RotaryEmbedding(op) = &node.op else { return None };
        let &Some(Some(Ref::Input(input))) = &node.inputs.first() else { return None };
        let x = problem.inputs.get(*input as usize)?;
        let fits = problem.region.outputs == [Ref::Node { node: 0, output: 0 }]
            && (x.dtype, &x.dims) == (y.dtype, &y.dims)
            && x.packed.is_none();
        let (from, to) = (Heads::of(x, op.num_heads)?, Heads::of(y, op.num_heads)?);
        let [batch, _, seq, size] = from.sizes;
        let rotated = match usize::try_from(op.rotary_embedding_dim).ok()? {
            0 => size,
            dim => dim,
        };
        if !fits || rotated > size || !rotated.is_multiple_of(2) {
            return None;
        }
        let n_pairs = rotated / 2;
        let has_positions = node.inputs.get(3).is_some_and(Option::is_some);
        let table = |idx: usize| {
            let (source, operand) = read(problem, node.inputs.get(idx).copied().flatten()?)?;
            let strides = match (&operand.dims[..], &operand.strides[..]) {
                (&[b, s, n], &[over_batch, over_seq, _]) if !has_positions => {
                    ([b, s, n] == [batch, seq, n_pairs]).then_some([over_batch, over_seq])?
                }
                (&[_, n], &[row, _]) if has_positions && n == n_pairs => [0, row],
                _ => return None,
            };
            let is_row = operand.packed.is_none() && operand.contiguous_along(operand.rank() - 1);
            is_row.then_some((AngleTable { source, dtype: operand.dtype, strides }, operand.dims[0]))
        };
        let ((cos, n_rows), (sin, n_sines)) = (table(1)?, table(2)?);
        let positions = match has_positions {
            false => None,
            true => {
                let (source, operand) = read(problem, node.inputs.get(3).copied().flatten()?)?;
                let fits = operand.dims == [batch, seq]
                    && operand.is_dense(Layout::Plain)
                    && matches!(operand.dtype, DType::I64 | DType::I32)
                    && n_rows == n_sines;
                fits.then_some(())?;
                Some(Positions { source, dtype: operand.dtype, n_rows })
            }
        };
        Some(Rotary {
            input: *input as usize,
            dtype: x.dtype,
            x: from,
            y: to,
            n_pairs,
            interleaved: op.interleaved,
            cos,
            sin,
            positions,
        })
    }
}

/// What a node reads there: an input, or a constant of the region.
fn read(problem: &Problem, reference: Ref) -> Option<(Source, Operand)> {
    match reference {
        Ref::Input(input) => {
            let operand = problem.inputs.get(input as usize)?;
            Some((Source::Input(input as usize), operand.clone()))
        }
        Ref::Constant(_) => {
            let tensor = problem.region.constant(Some(reference))?;
            let operand = Operand::dense(tensor.dtype(), tensor.shape(), Layout::Plain);
            Some((Source::Constant(tensor.bytes().clone()), operand))
        }
        Ref::Node { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use planish_op::RotaryEmbedding;

    use super::*;
    use crate::{Numeric, Region, RegionNode};

    fn problem(num_heads: Option<i64>, rotary_embedding_dim: i64, dims: &[&[usize]]) -> Problem {
        let dtype = |idx: usize| if idx == 3 { DType::I64 } else { DType::F32 };
        let operand = |(idx, dims): (usize, &&[usize])| Operand::dense(dtype(idx), dims, Layout::Plain);
        let op = RotaryEmbedding { num_heads, rotary_embedding_dim, interleaved: false };
        let inputs = (0..dims.len() as u32).map(|idx| Some(Ref::Input(idx))).collect();
        let node = RegionNode { name: "rotary".to_string(), op: op.into(), inputs, n_outputs: 1 };
        Problem {
            region: Region {
                n_inputs: dims.len() as u32,
                constants: Vec::new(),
                nodes: vec![node],
                outputs: vec![Ref::Node { node: 0, output: 0 }],
            },
            inputs: dims.iter().enumerate().map(operand).collect(),
            outputs: vec![Operand::dense(DType::F32, dims[0], Layout::Plain)],
            numeric: Numeric::F32,
            threads: 1,
        }
    }

    #[test]
    fn rows_are_of_steps_or_of_positions() {
        let steps = Rotary::of(&problem(None, 0, &[&[2, 3, 5, 8], &[2, 5, 4], &[2, 5, 4]])).unwrap();
        assert_eq!((steps.n_pairs, steps.cos.strides, steps.positions.is_none()), (4, [20, 4], true));
        let rows = Rotary::of(&problem(Some(3), 6, &[&[2, 5, 24], &[9, 3], &[9, 3], &[2, 5]])).unwrap();
        assert_eq!((rows.n_pairs, rows.sin.strides, rows.x.sizes), (3, [0, 3], [2, 3, 5, 8]));
        assert_eq!(rows.positions.unwrap().n_rows, 9);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |num_heads, dim, dims: &[&[usize]]| Rotary::of(&problem(num_heads, dim, dims)).is_err();
        // An odd number of elements, more than there are, no heads.
        assert!(refused(None, 3, &[&[2, 3, 5, 8], &[2, 5, 1], &[2, 5, 1]]));
        assert!(refused(None, 10, &[&[2, 3, 5, 8], &[2, 5, 5], &[2, 5, 5]]));
        assert!(refused(None, 0, &[&[2, 5, 24], &[2, 5, 4], &[2, 5, 4]]));
        // Tables of other sizes than the vectors ask for, and of different ones.
        assert!(refused(None, 0, &[&[2, 3, 5, 8], &[2, 5, 3], &[2, 5, 3]]));
        assert!(refused(None, 0, &[&[2, 3, 5, 8], &[1, 5, 4], &[1, 5, 4]]));
        assert!(refused(None, 0, &[&[2, 3, 5, 8], &[9, 4], &[8, 4], &[2, 5]]));
        assert!(refused(None, 0, &[&[2, 3, 5, 8], &[9, 4], &[9, 4], &[2, 4]]));
    }
}
