//! Programs against the reference: broadcasting in both layouts, every type, sizes around the lanes and tiles.

use ::planish_op as op;
use planish_kernel::Problem;
use planish_op::Op;
use planish_tensor::{DType, Tensor};
use planish_testing::problems::pointwise::plain;
use planish_testing::{Sample, Tolerance, constant, input, node, problems};

use super::PointwiseFamily;
use crate::trial;

/// A few functions of CUDA's library one after another, each within a few units in the last place.
const FUSED: Tolerance = Tolerance { relative: 4e-6, absolute: 1e-6 };

fn cast(to: DType) -> Op {
    op::Cast { round_mode: op::CastRounding::Up, saturate: true, to }.into()
}

fn check(problem: &Problem, tolerance: Tolerance) {
    trial::check(&PointwiseFamily, problem, 7, tolerance);
}

#[test]
fn samples_are_computed() {
    for problem in problems::pointwise::samples() {
        check(&problem, FUSED);
    }
}

#[test]
fn broadcasting_in_every_direction() {
    let add = || Sample::op(op::Mul {}, 2);
    for (a, b) in [
        (&[2usize, 24, 5, 7][..], &[24usize, 1, 1][..]),
        (&[2, 24, 5, 7], &[2, 1, 5, 7]),
        (&[2, 24, 1, 1], &[2, 24, 5, 7]),
        (&[3, 1, 16], &[1, 5, 16]),
        (&[1], &[17]),
        (&[], &[3, 3]),
        (&[4, 65], &[4, 1]),
        (&[0, 3], &[3]),
        (&[1, 1, 1], &[1]),
    ] {
        check(&add().typed(DType::F16, a).typed(DType::F16, b).problem(), Tolerance::EXACT);
    }
}

#[test]
fn casts_between_all_types_on_the_way_to_the_other_layout() {
    use DType::{BF16, Bool, F16, F32, I32, I64};
    for (from, to) in
        [(F32, F16), (F16, F32), (BF16, F16), (F32, BF16), (I64, F32), (F32, I32), (F16, Bool), (Bool, F32)]
    {
        check(
            &Sample::of(vec![(cast(to), vec![input(0)])]).typed(from, &[2, 17, 9, 8]).problem(),
            Tolerance::EXACT,
        );
    }
    check(&Sample::of(vec![(cast(F16), vec![input(0)])]).f32(&[1, 3, 5, 6]).problem(), Tolerance::EXACT);
}

#[test]
fn one_operator_at_a_time() {
    // All in one region with an output each: one kernel computes every function.
    let all: Vec<(Op, Vec<_>)> = Op::unary_of(DType::F32).map(|op| (op, vec![input(0)])).collect();
    check(&Sample::of(all).all_outputs().f32(&[37]).problem(), FUSED);
    let binary = ["Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu", "Equal", "Less", "GreaterOrEqual"];
    let two = |names: &[&str]| {
        Sample::of(names.iter().map(|name| (plain(name), vec![input(0), input(1)])).collect()).all_outputs()
    };
    check(&two(&binary).f32(&[3, 10]).f32(&[10]).problem(), FUSED);
    let ints = ["Add", "Sub", "Mul", "Max", "Min", "PRelu", "Equal", "Less", "GreaterOrEqual"];
    check(&two(&ints).typed(DType::I32, &[3, 10]).typed(DType::I32, &[3, 1]).problem(), Tolerance::EXACT);
    let logic = ["And", "Or", "Xor"];
    check(&two(&logic).typed(DType::Bool, &[5, 9]).typed(DType::Bool, &[9]).problem(), Tolerance::EXACT);
}

#[test]
fn constants_and_special_values_go_through() {
    let region =
        vec![(Op::from(op::Add {}), vec![input(0), constant(0)]), (op::Relu {}.into(), vec![node(0)])];
    let three = Tensor::vector(vec![1f32, f32::NAN, -3.0]);
    let problem = Sample::of(region).constant(three).f32(&[2, 3]).problem();
    let specials = [f32::INFINITY, 1.0, f32::NEG_INFINITY, f32::NAN, -0.0, 1e30];
    let inputs = Tensor::from_f64s(DType::F32, &[2, 3], &specials.map(f64::from)).unwrap();
    trial::check_on(&PointwiseFamily, &problem, &[inputs], Tolerance::EXACT);
}

#[test]
fn long_rows_and_odd_ends() {
    for n in [1usize, 7, 8, 9, 2049] {
        let sample = Sample::op(op::Sub {}, 2).typed(DType::F16, &[n]).typed(DType::F16, &[n]);
        check(&sample.problem(), Tolerance::EXACT);
    }
}
