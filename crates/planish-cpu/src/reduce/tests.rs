//! Reductions against the reference.

use planish_op::{self as op, Op};
use planish_tensor::{DType, Tensor};
use planish_testing::{Placement, Random, Tolerance, constant, input, region};

use super::family::ReduceFamily;
use crate::trial;

/// Sums in f32 over short blocks: the error is that of a few roundings of the sum of magnitudes, which for
/// these numbers (within 2 of zero) is below this.
const CLOSE: Tolerance = Tolerance { relative: 1e-6, absolute: 2e-5 };

/// Nothing is rounded.
const EXACT: Tolerance = Tolerance { relative: 0.0, absolute: 0.0 };

const SHAPES: &[&[usize]] = &[
    &[],
    &[1],
    &[7],
    &[100],
    &[5000],
    &[3, 17],
    &[17, 3],
    &[2, 3, 4, 5],
    &[2, 33, 7, 7],
    &[1, 64, 9, 1],
    &[70, 1, 40],
    &[3, 0, 2],
    &[2, 200, 3],
    &[3, 37, 2],
    &[16, 2],
];

macro_rules! all_reductions {
    ($noop:expr, $keepdims:expr) => {{
        let (noop_with_empty_axes, keepdims) = ($noop, $keepdims);
        let list: Vec<Op> = vec![
            op::ReduceL1 { noop_with_empty_axes, keepdims }.into(),
            op::ReduceL2 { noop_with_empty_axes, keepdims }.into(),
            op::ReduceLogSumExp { noop_with_empty_axes, keepdims }.into(),
            op::ReduceMax { noop_with_empty_axes, keepdims }.into(),
            op::ReduceMean { noop_with_empty_axes, keepdims }.into(),
            op::ReduceMin { noop_with_empty_axes, keepdims }.into(),
            op::ReduceProd { noop_with_empty_axes, keepdims }.into(),
            op::ReduceSum { noop_with_empty_axes, keepdims }.into(),
            op::ReduceSumSquare { noop_with_empty_axes, keepdims }.into(),
        ];
        list
    }};
}

#[test]
fn every_reduction_over_every_set_of_axes() {
    let mut numbers = Random::new(31);
    for dims in SHAPES {
        let x = [numbers.tensor(DType::F32, dims, 2.0)];
        for set in 1u32..1 << dims.len() {
            let axes: Vec<i64> = (0..dims.len() as i64).filter(|axis| set >> axis & 1 == 1).collect();
            for op in all_reductions!(false, set % 2 == 0) {
                let axes = Tensor::vector(axes.clone());
                let one = region(1, vec![axes], vec![(op, vec![input(0), constant(0)])]);
                trial::check(&ReduceFamily, &one, &x, CLOSE);
            }
        }
        for noop in [false, true] {
            for op in all_reductions!(noop, true) {
                trial::check(&ReduceFamily, &region(1, vec![], vec![(op, vec![input(0)])]), &x, CLOSE);
            }
        }
    }
}

#[test]
fn logarithms_of_sums() {
    let mut numbers = Random::new(32);
    let positive: Vec<f32> = (0..600).map(|_| 1.1 + numbers.real(1.0)).collect();
    let x = [Tensor::new(&[3, 40, 5], positive).unwrap()];
    for axes in [vec![0i64], vec![1], vec![2], vec![0, 1, 2]] {
        let op: Op = op::ReduceLogSum { noop_with_empty_axes: false, keepdims: true }.into();
        let one = region(1, vec![Tensor::vector(axes)], vec![(op, vec![input(0), constant(0)])]);
        trial::check(&ReduceFamily, &one, &x, CLOSE);
    }
}

#[test]
fn infinities_and_nan() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let rows =
        [[1.0, nan, 3.0, inf], [inf, 1.0, 2.0, 3.0], [-inf, -inf, -inf, -inf], [-inf, 0.0, 1e30, 1e30]];
    let x = [Tensor::new(&[4, 4], rows.concat()).unwrap()];
    for axis in [0i64, 1] {
        for op in all_reductions!(false, false) {
            let axes = Tensor::vector(vec![axis]);
            trial::check(
                &ReduceFamily,
                &region(1, vec![axes], vec![(op, vec![input(0), constant(0)])]),
                &x,
                CLOSE,
            );
        }
    }
}

#[test]
fn pools_of_whole_planes() {
    let mut numbers = Random::new(33);
    for dims in [&[2, 3, 4, 5][..], &[1, 70, 7, 7], &[2, 5, 9], &[1, 1, 1, 1], &[3, 4], &[1, 2, 0, 3]] {
        let x = [numbers.tensor(DType::F32, dims, 2.0)];
        let average: Op = op::GlobalAveragePool {}.into();
        trial::check(&ReduceFamily, &region(1, vec![], vec![(average, vec![input(0)])]), &x, CLOSE);
        let max: Op = op::GlobalMaxPool {}.into();
        trial::check(&ReduceFamily, &region(1, vec![], vec![(max, vec![input(0)])]), &x, EXACT);
    }
}

/// The sum of 2^22 numbers near 1 is known to six digits and more.
#[test]
fn long_sums_keep_their_digits() {
    let mut numbers = Random::new(34);
    let values: Vec<f32> = (0..1 << 22).map(|_| 1.0 + numbers.real(0.5)).collect();
    let exact: f64 = values.iter().map(|v| f64::from(*v)).sum();
    for dims in [[1, 1 << 22], [1 << 20, 4]] {
        let x = Tensor::new(&dims, values.clone()).unwrap();
        let op: Op = op::ReduceSum { noop_with_empty_axes: false, keepdims: false }.into();
        let axis = Tensor::vector(vec![if dims[0] == 1 { 1i64 } else { 0 }]);
        let one = region(1, vec![axis], vec![(op, vec![input(0), constant(0)])]);
        let (problem, _) = Placement::ALL[0].problem(&one, std::slice::from_ref(&x));
        for isa in crate::isa::Isa::available() {
            let got: f64 =
                trial::run(&ReduceFamily, isa, &problem, std::slice::from_ref(&x))[0].to_f64s().iter().sum();
            assert!((got / exact - 1.0).abs() < 1e-7, "{isa}: {got} against {exact}");
        }
    }
}

#[test]
fn extremes_are_found_first_or_last() {
    let mut numbers = Random::new(35);
    for dims in [&[1][..], &[5], &[16], &[100], &[3, 50], &[50, 3], &[2, 17, 20], &[4, 1000], &[0, 4]] {
        // Few values, so that there are many equal ones; some are NaN.
        let mut tensor = |nan: bool| {
            let n = dims.iter().product();
            let values = (0..n).map(|_| match numbers.below(9) {
                8 if nan => f32::NAN,
                v => v as f32,
            });
            Tensor::new(dims, values.collect()).unwrap()
        };
        for x in [[tensor(false)], [tensor(true)]] {
            for axis in 0..dims.len() as i64 {
                if dims[axis as usize] == 0 {
                    continue;
                }
                for (select_last_index, keepdims) in [(false, true), (true, false)] {
                    for op in [
                        Op::from(op::ArgMax { select_last_index, keepdims, axis }),
                        Op::from(op::ArgMin { select_last_index, keepdims, axis }),
                    ] {
                        let one = region(1, vec![], vec![(op, vec![input(0)])]);
                        trial::check(&ReduceFamily, &one, &x, EXACT);
                    }
                }
            }
        }
    }
}

#[test]
fn running_sums_in_four_forms() {
    let mut numbers = Random::new(36);
    for dims in [&[1][..], &[40], &[3, 50], &[50, 3], &[2, 17, 20], &[0, 4]] {
        let x = [numbers.tensor(DType::F32, dims, 2.0)];
        for axis in 0..dims.len() as i64 {
            for (reverse, exclusive) in [(false, false), (false, true), (true, false), (true, true)] {
                let op: Op = op::CumSum { reverse, exclusive }.into();
                let one = region(1, vec![Tensor::scalar(axis)], vec![(op, vec![input(0), constant(0)])]);
                // Rounded once from a sum in f64, as the reference's is.
                trial::check(&ReduceFamily, &one, &x, Tolerance { relative: 0.0, absolute: 1e-12 });
            }
        }
    }
}
