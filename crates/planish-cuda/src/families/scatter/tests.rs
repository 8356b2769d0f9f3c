//! Writes by index against the reference: places named several times, from either end, and not at all.

use ::planish_op as op;
use planish_kernel::{Budget, Fault, Problem, Ref};
use planish_op::ScatterReduction;
use planish_tensor::{DType, Tensor};
use planish_testing::{Random, Sample, Tolerance, constant, input, problems};

use super::ScatterFamily;
use crate::family::Family;
use crate::trial;

/// Sums and products of a dozen elements in f32, in f64 in the reference.
const FOLDS: Tolerance = Tolerance { relative: 1e-6, absolute: 1e-6 };

/// Random operands; indices within what they index, from either end.
fn inputs(problem: &Problem, numbers: &mut Random) -> Vec<Tensor> {
    let node = &problem.region.nodes[0];
    let data = &problem.inputs[0];
    let axis = match &node.op {
        op::Op::ScatterElements(op) => Some(planish_tensor::normalize_axis(op.axis, data.rank()).unwrap()),
        _ => None,
    };
    let is_index = |at: usize| node.inputs[1] == Some(Ref::Input(at as u32));
    let one = |(at, operand): (usize, &planish_kernel::Operand)| {
        if !is_index(at) {
            return numbers.tensor(operand.dtype, &operand.dims, 2.0);
        }
        let depth = operand.dims.last().copied().unwrap_or(1).max(1);
        let size = |flat: usize| data.dims[axis.unwrap_or(flat % depth)];
        let n: usize = operand.dims.iter().product();
        let values: Vec<f64> =
            (0..n).map(|flat| numbers.below(2 * size(flat)) as f64 - size(flat) as f64).collect();
        Tensor::from_f64s(operand.dtype, &operand.dims, &values).unwrap()
    };
    problem.inputs.iter().enumerate().map(one).collect()
}

#[test]
fn samples_are_scattered() {
    let mut numbers = Random::new(4);
    for problem in problems::scatter::samples() {
        let inputs = inputs(&problem, &mut numbers);
        trial::check_on(&ScatterFamily, &problem, &inputs, FOLDS);
    }
}

#[test]
fn the_last_of_many_stays() {
    let nd = op::ScatterND { reduction: ScatterReduction::None };
    let problem = Sample::op(nd, 3).f32(&[3, 2]).typed(DType::I64, &[600, 1]).f32(&[600, 2]).problem();
    let mut numbers = Random::new(4);
    let mut given = inputs(&problem, &mut numbers);
    // Everything at one place, and then all but the last few.
    given[1] = Tensor::new(&[600, 1], vec![1i64; 600]).unwrap();
    trial::check_on(&ScatterFamily, &problem, &given, Tolerance::EXACT);
    given[1] =
        Tensor::new(&[600, 1], (0i64..600).map(|at| if at < 590 { 2 } else { at % 2 }).collect()).unwrap();
    trial::check_on(&ScatterFamily, &problem, &given, Tolerance::EXACT);
}

#[test]
fn constant_tuples_are_part_of_the_code() {
    let nd = op::ScatterND { reduction: ScatterReduction::None };
    let problem = Sample::of(vec![(nd.into(), vec![input(0), constant(0), input(1)])])
        .constant(Tensor::new(&[3, 1], vec![1i64, -1, 1]).unwrap())
        .f32(&[4, 6])
        .f32(&[3, 6])
        .problem();
    let mut numbers = Random::new(4);
    let given = inputs(&problem, &mut numbers);
    trial::check_on(&ScatterFamily, &problem, &given, Tolerance::EXACT);
}

#[test]
fn nothing_to_write_leaves_the_data() {
    let mut numbers = Random::new(4);
    for reduction in [ScatterReduction::None, ScatterReduction::Add] {
        let op = op::ScatterElements { reduction, axis: 0 };
        let problem = Sample::op(op, 3).f32(&[5, 3]).typed(DType::I64, &[0, 3]).f32(&[0, 3]).problem();
        let given = inputs(&problem, &mut numbers);
        trial::check_on(&ScatterFamily, &problem, &given, Tolerance::EXACT);
    }
}

#[test]
fn sums_of_halves_are_left_to_others() {
    let gpu = crate::gpu::Gpu::known("h200").unwrap();
    let op = op::ScatterND { reduction: ScatterReduction::Add };
    let problem = Sample::op(op, 3)
        .typed(DType::F16, &[5])
        .typed(DType::I64, &[4, 1])
        .typed(DType::F16, &[4])
        .problem();
    assert!(ScatterFamily.candidates(&gpu, &problem, &Budget::USUAL).is_empty());
}

#[test]
fn an_index_outside_is_told_and_brought_inside() {
    let mut numbers = Random::new(4);
    let (data, updates) =
        (numbers.tensor(DType::F32, &[5, 3], 1.0), numbers.tensor(DType::F32, &[1, 3], 1.0));
    let given = |index: Tensor| [data.clone(), index, updates.clone()];
    for reduction in [ScatterReduction::None, ScatterReduction::Max] {
        let each = op::ScatterElements { reduction, axis: 0 };
        let each = Sample::op(each, 3).f32(&[5, 3]).typed(DType::I64, &[1, 3]).f32(&[1, 3]).problem();
        let slices = op::ScatterND { reduction };
        let slices = Sample::op(slices, 3).f32(&[5, 3]).typed(DType::I64, &[1, 1]).f32(&[1, 3]).problem();
        for (index, told) in [(-5i64, None), (4, None), (5, Some(5)), (-6, Some(-6))] {
            let told = told.map(|index| Fault { index, size: 5 });
            let all = Tensor::new(&[1, 3], vec![index; 3]).unwrap();
            assert_eq!(trial::fault(&ScatterFamily, &each, &given(all)).0, told, "{reduction:?} {index}");
            let one = Tensor::new(&[1, 1], vec![index]).unwrap();
            assert_eq!(trial::fault(&ScatterFamily, &slices, &given(one)).0, told, "{reduction:?} {index}");
        }
    }
}
