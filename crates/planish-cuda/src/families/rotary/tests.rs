//! Rotary embeddings against the reference.

use planish_kernel::{Fault, Problem};
use planish_op::RotaryEmbedding;
use planish_tensor::{DType, Tensor};
use planish_testing::{Random, Sample, Tolerance, problems};

use super::RotaryFamily;
use crate::trial;

/// Two products of at most 4 and their sum, in f32.
const TURNED: Tolerance = Tolerance { relative: 1e-7, absolute: 1e-6 };
/// The same rounded to f16 and bf16: half a unit in the last place of numbers up to 8.
const TURNED_F16: Tolerance = Tolerance { relative: 1.0 / 2048.0, absolute: 1e-6 };
const TURNED_BF16: Tolerance = Tolerance { relative: 1.0 / 256.0, absolute: 1e-6 };

/// Values for a problem, positions within the tables.
fn drawn(problem: &Problem, numbers: &mut Random) -> Vec<Tensor> {
    let n_rows = problem.inputs[1].dims[0];
    let inputs = problem.inputs.iter().enumerate();
    let one = |(idx, operand): (usize, &planish_kernel::Operand)| match idx {
        3 => {
            let positions: Vec<f64> = (0..operand.len()).map(|_| numbers.below(n_rows) as f64).collect();
            Tensor::from_f64s(operand.dtype, &operand.dims, &positions).unwrap()
        }
        _ => numbers.tensor(operand.dtype, &operand.dims, 2.0),
    };
    inputs.map(one).collect()
}

#[test]
fn samples_are_turned() {
    let mut numbers = Random::new(41);
    for problem in problems::rotary::samples() {
        let tolerance = match problem.outputs[0].dtype {
            DType::F16 => TURNED_F16,
            DType::BF16 => TURNED_BF16,
            _ => TURNED,
        };
        trial::check_on(&RotaryFamily, &problem, &drawn(&problem, &mut numbers), tolerance);
    }
}

#[test]
fn a_position_outside_is_told_and_brought_inside() {
    let mut numbers = Random::new(42);
    let op = RotaryEmbedding { num_heads: None, rotary_embedding_dim: 0, interleaved: false };
    let sample = Sample::op(op, 4).f32(&[1, 1, 1, 4]).f32(&[5, 2]).f32(&[5, 2]);
    let problem = sample.typed(DType::I64, &[1, 1]).problem();
    let mut inputs = drawn(&problem, &mut numbers);
    let mut at = |position: i64| {
        inputs[3] = Tensor::new(&[1, 1], vec![position]).unwrap();
        trial::fault(&RotaryFamily, &problem, &inputs)
    };
    let right: Vec<Tensor> = (0..5)
        .map(|position| {
            let (fault, output) = at(position);
            assert_eq!(fault, None, "position {position}");
            output
        })
        .collect();
    // A position does not count from the end.
    let cases =
        [(-1, -1, 0), (5, 5, 4), (i64::MAX, i32::MAX, 4), (i64::MIN, i32::MIN, 0), (1 << 32, i32::MAX, 4)];
    for (position, told, row) in cases {
        let (fault, output) = at(position);
        assert_eq!(fault, Some(Fault { index: told, size: 5 }), "position {position}");
        assert!(output == right[row], "position {position} is brought inside");
    }
}
