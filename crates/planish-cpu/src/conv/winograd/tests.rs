//! Winograd's convolution against the definition, on every instruction set and tile.

use super::super::testing::{Case, axis};
use super::*;

/// Error of one output as a part of the largest sum of terms' sizes: the outputs of a tile share their rounding
/// errors, which the transforms of F(4x4) multiply by some 20.
const POINT_TOLERANCE: f64 = 2e-6;

/// Relative L2 error of one layer, from the measurement in [`algebra`] with some room for other data.
const LAYER_TOLERANCE: f64 = 3e-6;

fn check(case: &Case, kinds: &[Kind]) {
    for isa in Isa::available() {
        for tile in Tile::of(isa) {
            for &kind in kinds {
                let transformed = pack::pack(kind, &case.filter, tile, &case.weight);
                assert_eq!(transformed.len(), pack::packed_len(kind, &case.filter, tile));
                let plain = super::super::pack::pack(&case.filter, tile, &case.weight);
                let cuts = [
                    Cut::Fused(1),
                    Cut::Fused(28),
                    Cut::Split(1),
                    Cut::Split(28),
                    Cut::Phased(5),
                    Cut::Phased(256),
                    Cut::Live(40),
                ];
                for cut in cuts {
                    let weights = if matches!(cut, Cut::Live(_)) { &plain } else { &transformed };
                    let plan = Winograd::new(kind, cut, case.geometry.clone(), isa, tile);
                    let plan = plan.expect("the transform fits");
                    let workspace = plan.workspace_bytes(1);
                    // SAFETY: the case owns what the call names.
                    let got = case.run(weights, workspace, |call, team| unsafe { plan.run(call, team) });
                    let what = format!("{kind:?} {cut:?} {}", tile.name());
                    let error = case.check(&got, 0.0, POINT_TOLERANCE, &what);
                    assert!(error < LAYER_TOLERANCE, "{what}: {error:e}");
                }
            }
        }
    }
}

#[test]
fn two_axes_with_any_padding() {
    for pads in [(0, 0), (1, 1), (2, 0), (0, 3)] {
        let x = axis(11, 3, 1, 1, pads);
        let y = axis(6, 3, 1, 1, (pads.1, pads.0));
        check(&Case::new(1, 1, 5, 19, &[y, x], false, 0), &[Kind::Two, Kind::Four]);
    }
    let one = |size| axis(size, 3, 1, 1, (1, 1));
    for (h, w) in [(1, 1), (4, 4), (5, 3), (8, 13), (3, 17)] {
        check(&Case::new(2, 1, 17, 33, &[one(h), one(w)], false, 3), &[Kind::Two, Kind::Four]);
    }
    check(&Case::new(1, 1, 16, 70, &[one(14), one(14)], false, 0), &[Kind::Two, Kind::Four]);
}

/// Weights at points that the second cache does not keep: the next panel is asked for meanwhile.
#[test]
fn many_weights() {
    let one = |size| axis(size, 3, 1, 1, (1, 1));
    let case = Case::new(1, 1, 81, 75, &[one(9), one(7)], false, 1);
    let plan = |kind| {
        Winograd::new(kind, Cut::Fused(14), case.geometry.clone(), Isa::best(), Tile::usual(Isa::best()))
    };
    assert!(plan(Kind::Four).is_some_and(|plan| plan.fetches_weights));
    assert!(plan(Kind::Two).is_some_and(|plan| !plan.fetches_weights));
    check(&case, &[Kind::Four]);
}

/// A single block of tiles, or two, are shared out by their channels; many blocks are not, and run as if fused: a plan may
/// meet them at other sizes.
#[test]
fn few_blocks_are_split() {
    let one = |size| axis(size, 3, 1, 1, (1, 1));
    let tile = Tile::usual(Isa::best());
    let tasks = |size, k, cut| {
        let case = Case::new(1, 1, 16, k, &[one(size), one(size)], false, 1);
        Winograd::new(Kind::Two, cut, case.geometry, Isa::best(), tile).map(|plan| plan.n_tasks())
    };
    let wide = 8 * tile.nr();
    assert_eq!(tasks(7, wide, Cut::Split(16)), Some(4));
    assert_eq!(tasks(10, wide, Cut::Split(16)), Some(4));
    assert_eq!(tasks(7, 2 * tile.nr(), Cut::Split(16)), Some(2));
    assert_eq!(tasks(7, tile.nr(), Cut::Split(16)), Some(1));
    assert_eq!(tasks(28, wide, Cut::Split(16)), tasks(28, wide, Cut::Fused(16)));
    assert_eq!(tasks(7, wide, Cut::Fused(16)), Some(1));
    let case = Case::new(1, 1, 16, wide - 3, &[one(7), one(7)], false, 1).with_residual(3).clamped(-0.5, 0.5);
    check(&case, &[Kind::Two, Kind::Four]);
}

#[test]
fn residual_and_clamp_follow_the_sum() {
    let one = |size| axis(size, 3, 1, 1, (1, 1));
    let case = Case::new(2, 1, 12, 40, &[one(6), one(9)], false, 0).with_residual(5);
    check(&case.clamped(0.0, f32::INFINITY), &[Kind::Two, Kind::Four]);
    let mut bare = Case::new(1, 1, 32, 5, &[one(6), one(9)], false, 2).with_residual(0).clamped(-0.5, 0.5);
    bare.bias = None;
    check(&bare, &[Kind::Two, Kind::Four]);
}

#[test]
fn depth_lengthens_the_sums() {
    let one = |size| axis(size, 3, 1, 1, (1, 1));
    for (d, pads) in [(1, (1, 1)), (5, (1, 1)), (11, (0, 0)), (4, (2, 0)), (3, (0, 3)), (1, (3, 3))] {
        let z = axis(d, 3, 1, 1, pads);
        check(
            &Case::new(2, 1, 6, 17, &[z, one(5), one(6)], false, 1).with_residual(0),
            &[Kind::Two, Kind::Four],
        );
    }
    let z = axis(20, 2, 1, 1, (1, 0));
    check(&Case::new(1, 1, 3, 9, &[z, one(9), one(4)], false, 0), &[Kind::Four]);
}

#[test]
fn rows_of_a_single_axis() {
    for (len, pads) in [(1, (1, 1)), (50, (1, 1)), (17, (0, 0)), (23, (2, 5))] {
        check(&Case::new(3, 1, 9, 21, &[axis(len, 3, 1, 1, pads)], false, 1), &[Kind::Row]);
    }
    check(
        &Case::new(1, 1, 9, 21, &[axis(7, 1, 1, 1, (0, 0)), axis(9, 3, 1, 1, (1, 1))], false, 1),
        &[Kind::Row],
    );
}

#[test]
fn nothing_to_compute_is_no_error() {
    let x = axis(4, 3, 1, 1, (1, 1));
    for (n, c, k) in [(0, 3, 5), (1, 0, 5), (1, 3, 0)] {
        check(&Case::new(n, 1, c, k, &[x, x], false, 0), &[Kind::Two, Kind::Four]);
    }
    check(&Case::new(1, 1, 3, 5, &[x, axis(2, 3, 1, 1, (0, 0))], false, 0), &[Kind::Four]);
}

#[test]
fn other_windows_are_refused() {
    let x = axis(9, 3, 1, 1, (1, 1));
    let refused = |case: Case| {
        for kind in [Kind::Two, Kind::Four, Kind::Row] {
            let isa = Isa::best();
            let tile = Tile::usual(isa);
            assert!(Winograd::new(kind, Cut::Fused(28), case.geometry.clone(), isa, tile).is_none());
        }
    };
    refused(Case::new(1, 1, 3, 5, &[x, axis(9, 3, 2, 1, (1, 1))], false, 0));
    refused(Case::new(1, 1, 3, 5, &[x, axis(9, 3, 1, 2, (1, 1))], false, 0));
    refused(Case::new(1, 1, 3, 5, &[x, axis(9, 5, 1, 1, (1, 1))], false, 0));
    refused(Case::new(1, 2, 3, 5, &[x, x], false, 0));
}

/// The error of a whole layer with as many channels as models have.
#[test]
fn layers_stay_within_the_stated_error() {
    let one = axis(12, 3, 1, 1, (1, 1));
    let isa = Isa::best();
    let tile = Tile::usual(isa);
    let case = Case::new(1, 1, 256, 32, &[one, one], false, 0);
    let ways = [(Kind::Two, Cut::Fused(28), 1e-6), (Kind::Four, Cut::Fused(28), LAYER_TOLERANCE)];
    for (kind, cut, bound) in ways.into_iter().chain([(Kind::Four, Cut::Live(28), LAYER_TOLERANCE)]) {
        let plan = Winograd::new(kind, cut, case.geometry.clone(), isa, tile).expect("fits");
        let weights = match cut {
            Cut::Live(_) => super::super::pack::pack(&case.filter, tile, &case.weight),
            _ => pack::pack(kind, &case.filter, tile, &case.weight),
        };
        // SAFETY: the case owns what the call names.
        let got = case.run(&weights, plan.workspace_bytes(1), |call, team| unsafe { plan.run(call, team) });
        let error = case.check(&got, 0.0, POINT_TOLERANCE, "layer");
        assert!(error < bound, "{kind:?}: {error:e}");
    }
}
