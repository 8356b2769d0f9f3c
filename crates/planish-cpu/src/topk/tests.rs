//! Against the reference, bit by bit: ties, zeros of both signs, NaN, any axis, operands inside larger ones.

use planish_op::TopK;
use planish_tensor::{DType, Tensor};
use planish_testing::Random;

use super::TopKFamily;
use crate::trial::{Input, OpTrial};

#[test]
fn selections_agree() {
    let mut random = Random::new(1);
    for round in 0..300 {
        let rank = random.between(1, 4);
        let dims: Vec<usize> = (0..rank).map(|_| random.between(1, 12)).collect();
        let axis = random.below(rank);
        let n: usize = dims.iter().product();
        // Few different values, so that there are ties.
        let x = match round % 3 {
            0 => {
                let choices = [f32::NAN, 0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, 1e-40];
                let values: Vec<f32> = (0..n).map(|_| choices[random.below(8)]).collect();
                Tensor::new(&dims, values).unwrap()
            }
            1 => {
                let dtypes = [
                    DType::I8,
                    DType::I16,
                    DType::I32,
                    DType::I64,
                    DType::U8,
                    DType::U16,
                    DType::U32,
                    DType::U64,
                ];
                let dtype = dtypes[random.below(8)];
                random.raw(dtype, &dims)
            }
            _ => {
                let dtypes = [DType::F32, DType::F64, DType::F16, DType::BF16];
                let dtype = dtypes[random.below(4)];
                random.tensor(dtype, &dims, 2.0)
            }
        };
        let k = random.below(dims[axis] + 1) as i64;
        let op =
            TopK { sorted: random.chance(2), largest: random.chance(2), axis: axis as i64 - rank as i64 };
        let sample = OpTrial::new(op, &[Input::Data(x), Input::Parameter(Tensor::vector(vec![k]))], 2);
        sample.check_exact(&TopKFamily, &mut random, None);
    }
}
