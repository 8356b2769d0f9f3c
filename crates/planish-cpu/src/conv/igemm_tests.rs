//! Implicit GEMM against the definition, on every instruction set and tile.

use super::igemm::Igemm;
use super::pack::pack;
use super::testing::{Case, SUM_TOLERANCE, axis, transposed_axis};
use crate::gemm::table::Tile;
use crate::isa::Isa;

fn check(case: &Case) {
    for isa in Isa::available() {
        for tile in Tile::of(isa) {
            let plan = Igemm::new(case.geometry.clone(), tile);
            let weights = pack(&case.filter, tile, &case.weight);
            assert_eq!(weights.len(), plan.weights_len());
            // SAFETY: the case owns what the call names.
            let got =
                case.run(&weights, plan.workspace_bytes(1), |call, team| unsafe { plan.run(call, team) });
            case.check(&got, SUM_TOLERANCE, 0.0, tile.name());
        }
    }
}

#[test]
fn one_tap_is_a_product_over_pixels() {
    for (n, c, k, h, w) in
        [(1, 1, 1, 1, 1), (1, 16, 32, 7, 7), (2, 5, 33, 3, 13), (1, 64, 17, 5, 3), (3, 31, 70, 1, 29)]
    {
        for gap in [0, 3] {
            check(&Case::new(n, 1, c, k, &[axis(h, 1, 1, 1, (0, 0)), axis(w, 1, 1, 1, (0, 0))], false, gap));
        }
    }
    check(&Case::new(2, 1, 20, 24, &[axis(9, 1, 2, 1, (0, 0)), axis(8, 1, 3, 1, (0, 0))], false, 0));
}

#[test]
fn windows_of_one_to_three_axes() {
    for stride in 1..4 {
        for dilation in 1..3 {
            for pads in [(0, 0), (1, 1), (2, 0), (0, 3)] {
                let x = axis(11, 3, stride, dilation, pads);
                let y = axis(7, 2, 1, dilation, (pads.1, pads.0));
                check(&Case::new(2, 1, 5, 19, &[x], false, 1));
                check(&Case::new(1, 1, 3, 33, &[y, x], false, 0));
                check(&Case::new(1, 1, 4, 17, &[axis(4, 3, 2, 1, pads), y, x], false, 0));
            }
        }
    }
    // Windows that lie in the padding alone.
    check(&Case::new(1, 1, 4, 8, &[axis(2, 2, 1, 1, (4, 4)), axis(3, 1, 2, 1, (2, 2))], false, 0));
}

#[test]
fn residual_and_clamp_follow_the_sum() {
    let axes = [axis(6, 3, 1, 1, (1, 1)), axis(9, 3, 1, 1, (1, 1))];
    for gap in [0, 5] {
        check(&Case::new(2, 1, 12, 40, &axes, false, 0).with_residual(gap).clamped(0.0, f32::INFINITY));
        check(&Case::new(2, 1, 12, 40, &axes, false, gap).with_residual(0).clamped(-0.5, 0.5));
    }
    let mut bare = Case::new(1, 1, 3, 5, &axes, false, 0);
    bare.bias = None;
    check(&bare);
}

#[test]
fn groups_read_their_own_channels() {
    let axes = [axis(5, 3, 1, 1, (1, 1)), axis(8, 3, 2, 1, (1, 0))];
    for (groups, c, k) in [(2, 3, 5), (4, 4, 4), (3, 8, 33), (5, 1, 2), (8, 1, 1)] {
        check(&Case::new(2, groups, c, k, &axes, false, 2).with_residual(1));
    }
}

/// Long sums are cut in blocks of taps, and of channels where there is one tap.
#[test]
fn long_sums_are_cut_and_joined() {
    let one = axis(1, 1, 1, 1, (0, 0));
    check(&Case::new(1, 1, 7001, 40, &[one, axis(3, 1, 1, 1, (0, 0))], false, 0).with_residual(0));
    check(&Case::new(1, 1, 1500, 40, &[axis(3, 3, 1, 1, (1, 1)), axis(3, 3, 1, 1, (1, 1))], false, 0));
}

#[test]
fn transposed_windows_of_any_stride() {
    for (kernel, stride) in [(2, 2), (3, 2), (4, 2), (1, 1), (3, 1), (2, 3), (5, 3), (1, 2)] {
        for dilation in 1..3 {
            for (pads, extra) in [((0, 0), 0), ((1, 1), 0), ((0, 1), 1), ((1, 0), 0)] {
                let x = transposed_axis(5, kernel, stride, dilation, pads, extra);
                let y = transposed_axis(4, 2, 2, 1, (0, 0), 0);
                check(&Case::new(2, 1, 5, 17, &[x], true, 0));
                check(&Case::new(1, 2, 3, 4, &[y, x], true, 1).with_residual(2).clamped(0.0, 6.0));
            }
        }
    }
    let x = transposed_axis(3, 2, 2, 1, (0, 0), 0);
    check(&Case::new(2, 1, 9, 33, &[x, x, x], true, 0));
}

#[test]
fn nothing_to_compute_is_no_error() {
    let x = axis(4, 3, 1, 1, (1, 1));
    check(&Case::new(0, 1, 3, 5, &[x, x], false, 0));
    check(&Case::new(1, 1, 0, 5, &[x, x], false, 0));
    check(&Case::new(1, 1, 3, 0, &[x, x], false, 0));
    check(&Case::new(1, 1, 3, 5, &[x, axis(0, 1, 1, 1, (0, 0))], false, 0));
}

/// A NaN or an infinity of one pixel reaches the windows that hold it, and nothing else.
#[test]
fn not_a_number_stays_in_its_windows() {
    let axes = [axis(6, 3, 1, 1, (1, 1)), axis(7, 3, 2, 1, (1, 1))];
    let mut case = Case::new(2, 2, 4, 19, &axes, false, 0);
    case.input[3] = f32::NAN;
    case.input[100] = f32::INFINITY;
    check(&case.clamped(0.0, f32::INFINITY));
}
