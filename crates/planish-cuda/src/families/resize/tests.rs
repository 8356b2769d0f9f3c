//! Resizes against the reference: modes, coordinates and roundings.

use planish_op::{self as op, ResizeAspectPolicy, ResizeCoordinates, ResizeMode, ResizeNearest};
use planish_tensor::{DType, Tensor};
use planish_testing::{Sample, Tolerance, constant, input, problems};

use super::ResizeFamily;
use crate::trial;

/// Weights are f32 here and f64 in the reference.
const WEIGHED: Tolerance = Tolerance { relative: 2e-6, absolute: 2e-6 };

#[test]
fn samples_are_resized() {
    for problem in problems::resize::samples() {
        trial::check(&ResizeFamily, &problem, 5, WEIGHED);
    }
}

#[test]
fn nearest_pixels_of_every_rounding() {
    for nearest_mode in [ResizeNearest::RoundPreferFloor, ResizeNearest::RoundPreferCeil, ResizeNearest::Ceil]
    {
        for coordinates in [ResizeCoordinates::HalfPixel, ResizeCoordinates::TfHalfPixelForNn] {
            let op = op::Resize {
                keep_aspect_ratio_policy: ResizeAspectPolicy::Stretch,
                axes: Some(vec![2, 3]),
                antialias: false,
                extrapolation_value: 0.0,
                exclude_outside: false,
                nearest_mode,
                coordinate_transformation_mode: coordinates,
                cubic_coeff_a: -0.75,
                mode: ResizeMode::Nearest,
            };
            let sample = Sample::of(vec![(op.into(), vec![input(0), None, None, constant(0)])]);
            let sample = sample.constant(Tensor::vector(vec![7i64, 3])).typed(DType::Bool, &[2, 3, 4, 5]);
            trial::check(
                &ResizeFamily,
                &sample.output(DType::Bool, &[2, 3, 7, 3]).problem(),
                5,
                Tolerance::EXACT,
            );
        }
    }
}
