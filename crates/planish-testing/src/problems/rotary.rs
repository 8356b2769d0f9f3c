//! Rotary embeddings: both kinds of pairs, heads as an axis and inside the last one, with positions and without.

use planish_kernel::Problem;
use planish_op::RotaryEmbedding;
use planish_tensor::{DType, Tensor};

use crate::{Sample, constant, input};

/// Heads as an axis, a row of angles for each step.
fn by_step(dtype: DType, dims: [usize; 4], rotated: usize, interleaved: bool) -> Problem {
    let op = RotaryEmbedding { num_heads: None, rotary_embedding_dim: rotated as i64, interleaved };
    let [batch, _, seq, _] = dims;
    let table = [batch, seq, rotated / 2];
    Sample::op(op, 3).typed(dtype, &dims).typed(dtype, &table).typed(dtype, &table).problem()
}

/// Problems that between them ask for each kernel of a family.
pub fn samples() -> Vec<Problem> {
    // So many heads inside the last axis, rows by position.
    let by_position = |dtype, index, dims: [usize; 3], heads: i64, rotated: usize, interleaved| {
        let op =
            RotaryEmbedding { num_heads: Some(heads), rotary_embedding_dim: rotated as i64, interleaved };
        let sample = Sample::op(op, 4).typed(dtype, &dims);
        let table = [11, rotated / 2];
        sample.typed(dtype, &table).typed(dtype, &table).typed(index, &dims[..2]).problem()
    };
    let op = RotaryEmbedding { num_heads: None, rotary_embedding_dim: 0, interleaved: false };
    let read = vec![input(0), input(1), input(2), constant(0)];
    let positions = Tensor::new(&[1, 3], vec![4i64, 0, 2]).expect("three positions");
    let constant_positions =
        Sample::of(vec![(op.into(), read)]).constant(positions).f32(&[1, 2, 3, 8]).f32(&[5, 4]).f32(&[5, 4]);
    let mut all = vec![constant_positions.problem()];
    for interleaved in [false, true] {
        all.extend([
            by_step(DType::F32, [2, 3, 7, 64], 64, interleaved),
            by_step(DType::F16, [1, 2, 5, 32], 32, interleaved),
            by_step(DType::BF16, [2, 2, 3, 16], 16, interleaved),
            by_step(DType::F32, [1, 2, 3, 22], 14, interleaved),
            by_position(DType::F32, DType::I64, [2, 5, 96], 3, 32, interleaved),
            by_position(DType::F16, DType::I32, [1, 9, 40], 2, 12, interleaved),
            by_position(DType::BF16, DType::I64, [2, 3, 48], 3, 16, interleaved),
        ]);
    }
    all
}

/// Vectors of all lengths.
pub fn of_all_sizes(sizes: &[usize], dtypes: &[DType]) -> Vec<Problem> {
    let mut all = Vec::new();
    for &dtype in dtypes {
        for &pairs in sizes.iter().filter(|pairs| **pairs > 0) {
            for interleaved in [false, true] {
                all.push(by_step(dtype, [1, 2, 3, 2 * pairs + 1], 2 * pairs, interleaved));
            }
        }
        all.extend([by_step(dtype, [2, 0, 3, 8], 8, false), by_step(dtype, [2, 3, 0, 8], 8, true)]);
    }
    all
}
