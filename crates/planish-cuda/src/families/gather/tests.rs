//! Lookups against the reference, bit by bit.

use ::planish_op as op;
use planish_kernel::Fault;
use planish_tensor::{DType, Tensor};
use planish_testing::{Random, Sample, Tolerance, constant, input, problems};

use super::GatherFamily;
use crate::trial;

/// Indices within the axis, from either end.
fn indices(numbers: &mut Random, dtype: DType, dims: &[usize], size: usize) -> Tensor {
    let n: usize = dims.iter().product();
    let values: Vec<f64> = (0..n).map(|_| numbers.below(2 * size) as f64 - size as f64).collect();
    Tensor::from_f64s(dtype, dims, &values).unwrap()
}

/// Tuples within these sizes, from either end.
fn tuples(numbers: &mut Random, index: &planish_kernel::Operand, sizes: &[usize]) -> Tensor {
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
    let op = op::GatherND { batch_dims: 0 };
    let problem = Sample::of(vec![(op.into(), vec![input(0), constant(0)])])
        .constant(Tensor::new(&[3, 2], vec![0i64, 2, -1, 1, 3, -3]).unwrap())
        .f32(&[4, 3, 8])
        .problem();
    let mut numbers = Random::new(9);
    trial::check_on(
        &GatherFamily,
        &problem,
        &[numbers.tensor(DType::F32, &[4, 3, 8], 1.0)],
        Tolerance::EXACT,
    );
}

#[test]
fn samples_are_looked_up() {
    let mut numbers = Random::new(9);
    for problem in problems::gather::samples() {
        let (data, index) = (&problem.inputs[0], &problem.inputs[1]);
        let key = problem.region.key();
        let axis = usize::from(key.contains("axis=Int(1)"));
        let index = match key.starts_with("GatherND") {
            true => tuples(&mut numbers, index, &data.dims[usize::from(key.contains("batch_dims=Int(1)"))..]),
            false => indices(&mut numbers, index.dtype, &index.dims, data.dims[axis]),
        };
        let inputs = [numbers.tensor(data.dtype, &data.dims, 2.0), index];
        trial::check_on(&GatherFamily, &problem, &inputs, Tolerance::EXACT);
    }
}

#[test]
fn one_index_and_none() {
    let one = Sample::op(op::Gather { axis: 0 }, 2).f32(&[5, 3]).typed(DType::I64, &[]).problem();
    let mut numbers = Random::new(9);
    let inputs = [numbers.tensor(DType::F32, &[5, 3], 1.0), Tensor::scalar(-2i64)];
    trial::check_on(&GatherFamily, &one, &inputs, Tolerance::EXACT);
    let none = Sample::op(op::Gather { axis: 0 }, 2).f32(&[5, 3]).typed(DType::I64, &[0]).problem();
    let inputs = [numbers.tensor(DType::F32, &[5, 3], 1.0), indices(&mut numbers, DType::I64, &[0], 5)];
    trial::check_on(&GatherFamily, &none, &inputs, Tolerance::EXACT);
}

#[test]
fn an_index_outside_is_told_and_brought_inside() {
    let mut numbers = Random::new(9);
    let table = numbers.tensor(DType::F32, &[5, 8], 1.0);
    let row = |at: usize| table.to_f64s()[8 * at..8 * at + 8].to_vec();
    let one = |op: op::Op, dims: &[usize], index: Vec<i64>| {
        let problem = Sample::op(op, 2).f32(&[5, 8]).typed(DType::I64, dims).problem();
        trial::fault(&GatherFamily, &problem, &[table.clone(), Tensor::new(dims, index).unwrap()])
    };
    // The lowest and the highest that are right, then one further on either side, and far outside.
    let told = |index: i32| Some(Fault { index, size: 5 });
    let cases = [
        (-5, None, 0),
        (4, None, 4),
        (-6, told(-6), 0),
        (5, told(5), 4),
        (i64::MAX, told(i32::MAX), 4),
        (i64::MIN, told(i32::MIN), 0),
        (1 << 32, told(i32::MAX), 4),
    ];
    for (index, fault, at) in cases {
        let (got, output) = one(op::Gather { axis: 0 }.into(), &[1], vec![index]);
        assert_eq!((got, output.to_f64s()), (fault, row(at)), "Gather {index}");
        let (got, output) = one(op::GatherND { batch_dims: 0 }.into(), &[1, 1], vec![index]);
        assert_eq!((got, output.to_f64s()), (fault, row(at)), "GatherND {index}");
        let (got, output) = one(op::GatherElements { axis: 0 }.into(), &[1, 8], vec![index; 8]);
        assert_eq!((got, output.to_f64s()), (fault, row(at)), "GatherElements {index}");
    }
}
