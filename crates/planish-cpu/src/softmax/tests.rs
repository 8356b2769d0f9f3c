//! Softmax against the reference, over any axis, in any placement.

use planish_op as op;
use planish_op::Op;
use planish_tensor::{DType, Tensor};
use planish_testing::{Random, Tolerance, input, region};

use super::family::SoftmaxFamily;
use crate::trial;

/// An exponential, a sum and a product: some 8 ULPs.
const CLOSE: Tolerance = Tolerance { relative: 1e-6, absolute: 1e-37 };
/// Logarithms near zero are differences of numbers of the size of the input.
const CLOSE_LOG: Tolerance = Tolerance { relative: 1e-6, absolute: 3e-6 };

#[test]
fn every_axis_of_many_shapes() {
    let mut numbers = Random::new(11);
    let shapes: &[&[usize]] = &[
        &[1],
        &[7],
        &[3, 16],
        &[3, 17],
        &[2, 31, 5],
        &[2, 3, 64],
        &[1, 12, 7, 65],
        &[2, 21, 9, 4],
        &[0, 4],
        &[4, 0],
        &[5, 4099],
        &[300, 3],
        &[2, 100, 33],
    ];
    for dims in shapes {
        let x = [numbers.tensor(DType::F32, dims, 8.0)];
        for axis in 0..dims.len() as i64 {
            let of = |op: Op| region(1, vec![], vec![(op, vec![input(0)])]);
            trial::check(&SoftmaxFamily, &of(op::Softmax { axis }.into()), &x, CLOSE);
            trial::check(&SoftmaxFamily, &of(op::LogSoftmax { axis }.into()), &x, CLOSE_LOG);
        }
    }
}

#[test]
fn infinities_and_nan_spread_as_in_the_reference() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let lines = [
        [-inf, 0.0, 1.0, -inf, 2.0],
        [-inf, -inf, -inf, -inf, -inf],
        [inf, 0.0, 1.0, 2.0, 3.0],
        [0.0, nan, 1.0, 2.0, 3.0],
        [1e30, 1e30, -1e30, 0.0, 1.0],
        [-300.0, -301.0, -302.0, -300.0, -299.0],
    ];
    let rows = Tensor::new(&[6, 5], lines.concat()).unwrap();
    let columns: Vec<f32> = (0..5).flat_map(|idx| lines.map(|line| line[idx])).collect();
    let columns = Tensor::new(&[5, 6], columns).unwrap();
    for (x, axis) in [(rows, 1), (columns, 0)] {
        let of = |op: Op| region(1, vec![], vec![(op, vec![input(0)])]);
        trial::check(&SoftmaxFamily, &of(op::Softmax { axis }.into()), std::slice::from_ref(&x), CLOSE);
        trial::check(&SoftmaxFamily, &of(op::LogSoftmax { axis }.into()), &[x], CLOSE_LOG);
    }
}
