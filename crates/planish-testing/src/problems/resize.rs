//! Resizes of every mode.

use planish_kernel::Problem;
use planish_op::{self as op, ResizeAspectPolicy, ResizeCoordinates, ResizeMode, ResizeNearest};
use planish_tensor::{DType, Tensor};

use crate::{Sample, constant, input};

/// Problems that between them ask for each kernel of a family.
pub fn samples() -> Vec<Problem> {
    let resize = |mode, coordinates, scales: &[f32], dtype, dims: &[usize]| {
        let op = op::Resize {
            keep_aspect_ratio_policy: ResizeAspectPolicy::Stretch,
            axes: None,
            antialias: false,
            extrapolation_value: 0.0,
            exclude_outside: mode == ResizeMode::Cubic,
            nearest_mode: ResizeNearest::Floor,
            coordinate_transformation_mode: coordinates,
            cubic_coeff_a: -0.75,
            mode,
        };
        let sample = Sample::of(vec![(op.into(), vec![input(0), None, constant(0)])]);
        sample.constant(Tensor::vector(scales.to_vec())).typed(dtype, dims).problem()
    };
    let twice = [1.0, 1.0, 2.0, 2.0];
    vec![
        resize(ResizeMode::Nearest, ResizeCoordinates::Asymmetric, &twice, DType::F16, &[1, 24, 5, 6]),
        resize(ResizeMode::Linear, ResizeCoordinates::HalfPixel, &twice, DType::F16, &[2, 8, 5, 6]),
        resize(
            ResizeMode::Linear,
            ResizeCoordinates::AlignCorners,
            &[1.0, 1.0, 2.0, 2.0, 1.5],
            DType::F32,
            &[1, 3, 4, 3, 6],
        ),
        resize(
            ResizeMode::Cubic,
            ResizeCoordinates::HalfPixel,
            &[1.0, 1.0, 0.6, 1.7],
            DType::F32,
            &[1, 5, 9, 8],
        ),
    ]
}
