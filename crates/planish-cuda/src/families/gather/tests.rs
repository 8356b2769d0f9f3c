//! Lookups against the reference, bit by bit.

use planish_tensor::{DType, Tensor};

use super::Gather;
use crate::samples::Sample;
use crate::steps::Planner;
use crate::trial::{self, EXACT, Numbers};
use planish_op as op;

/// Indices within the axis, from either end.
fn indices(numbers: &mut Numbers, dtype: DType, dims: &[usize], size: usize) -> Tensor {
    let n: usize = dims.iter().product();
    let values: Vec<f64> = (0..n).map(|_| numbers.below(2 * size) as f64 - size as f64).collect();
    Tensor::from_f64s(dtype, dims, &values).unwrap()
}

/// Tuples within these sizes, from either end.
fn tuples(numbers: &mut Numbers, index: &planish_kernel::Operand, sizes: &[usize]) -> Tensor {
    let depth = *index.dims.last().unwrap();
    let value = |flat: usize| {
        let size = sizes[flat % depth];
        numbers.below(2 * size) as f64 - size as f64
    };
    let values: Vec<f64> = (0..index.len()).map(value).collect();
    Tensor::from_f64s(index.dtype, &index.dims, &values).unwrap()
}

#[test]
fn constant_tuples_are_part_of_the_code() {
    use crate::samples::{constant, input};
    let op = op::GatherND { batch_dims: 0 };
    let problem = Sample::of(vec![(op.into(), vec![input(0), constant(0)])])
        .constant(Tensor::new(&[3, 2], vec![0i64, 2, -1, 1, 3, -3]).unwrap())
        .f32(&[4, 3, 8])
        .problem();
    let mut numbers = Numbers::new(9);
    trial::check_on(&Gather, &problem, &[numbers.tensor(DType::F32, &[4, 3, 8], 1.0)], EXACT);
}

#[test]
fn samples_are_looked_up() {
    let mut numbers = Numbers::new(9);
    for problem in Gather.samples() {
        let (data, index) = (&problem.inputs[0], &problem.inputs[1]);
        let key = problem.region.key();
        let axis = usize::from(key.contains("axis=Int(1)"));
        let index = match key.starts_with("GatherND") {
            true => tuples(&mut numbers, index, &data.dims[usize::from(key.contains("batch_dims=Int(1)"))..]),
            false => indices(&mut numbers, index.dtype, &index.dims, data.dims[axis]),
        };
        let inputs = [numbers.tensor(data.dtype, &data.dims, 2.0), index];
        trial::check_on(&Gather, &problem, &inputs, EXACT);
    }
}

#[test]
fn one_index_and_none() {
    let one = Sample::op(op::Gather { axis: 0 }, 2).f32(&[5, 3]).typed(DType::I64, &[]).problem();
    let mut numbers = Numbers::new(9);
    let inputs = [numbers.tensor(DType::F32, &[5, 3], 1.0), Tensor::scalar(-2i64)];
    trial::check_on(&Gather, &one, &inputs, EXACT);
    let none = Sample::op(op::Gather { axis: 0 }, 2).f32(&[5, 3]).typed(DType::I64, &[0]).problem();
    let inputs = [numbers.tensor(DType::F32, &[5, 3], 1.0), indices(&mut numbers, DType::I64, &[0], 5)];
    trial::check_on(&Gather, &none, &inputs, EXACT);
}
