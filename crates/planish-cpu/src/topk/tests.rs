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

/// A few of long lines, which are read once; ties, rising and falling lines, strides.
#[test]
fn a_few_of_many_agree() {
    let mut random = Random::new(2);
    for round in 0..80 {
        let (len, k) = ([128, 129, 400, 1000][round % 4], [1, 2, 5, 15, 16, 17][round % 6]);
        let dims = [3, len, 2];
        let axis = [1, 2][round / 4 % 2];
        let dims = if axis == 2 { vec![3, len] } else { dims.to_vec() };
        let n: usize = dims.iter().product();
        let value = |random: &mut Random, at: usize| match round % 5 {
            0 => at as f32,
            1 => -(at as f32),
            2 => [f32::NAN, 0.0, -0.0, 1.0, f32::NEG_INFINITY][random.below(5)],
            _ => random.below(1 << 20) as f32,
        };
        let values: Vec<f32> = (0..n).map(|at| value(&mut random, at)).collect();
        let x = Tensor::new(&dims, values).unwrap();
        let x = match round % 3 {
            0 => Tensor::from_f64s(DType::F64, &dims, &x.to_f64s()).unwrap(),
            _ => x,
        };
        let op = TopK { sorted: true, largest: random.chance(2), axis: 1 };
        let sample = OpTrial::new(op, &[Input::Data(x), Input::Parameter(Tensor::vector(vec![k as i64]))], 2);
        sample.check_exact(&TopKFamily, &mut random, None);
    }
}
