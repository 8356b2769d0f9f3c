//! Every mode, coordinate transformation and layout against the reference.

use planish_kernel::{Layout, Operand};
use planish_op::*;
use planish_tensor::{DType, Tensor};
use planish_testing::{Placement, Random, Tolerance, assert_close};

use super::ResizeFamily;
use crate::isa::Isa;
use crate::trial::{Input, OpTrial, check_placed, of_bytes};

/// Sums of at most 8x8x8 products of numbers below 1 with weights whose magnitudes sum to at most 1.5 cubed:
/// each step rounds by half a unit of a partial sum below 4, weights by half a unit of one.
const TOLERANCE: Tolerance = Tolerance::absolute(4.0 * 24.0 * f32::EPSILON as f64);

/// The same of numbers up to 10.
const BYTES_TOLERANCE: Tolerance = Tolerance::absolute(10.0 * 4.0 * 24.0 * f32::EPSILON as f64);

fn resize() -> Resize {
    match Op::from_attributes("Resize", &[]).unwrap() {
        Op::Resize(op) => op,
        other => panic!("{other:?}"),
    }
}

fn check(sample: &OpTrial, random: &mut Random, tolerance: Tolerance) {
    for isa in Isa::available() {
        for layout in [Layout::ChannelsLast, Layout::Plain] {
            let mut operand = |tensor: &Tensor| random.operand(tensor.dtype(), tensor.shape(), layout);
            let (from, to) = (operand(&sample.data[0]), operand(&sample.want[0]));
            let got = sample.run(&ResizeFamily, isa, &[from], &[to]).unwrap().remove(0);
            let what =
                format!("{isa} {layout:?} {:?} {:?}", sample.region.nodes[0].op, sample.data[0].shape());
            assert_close(&got, &sample.want[0], tolerance, &what);
        }
    }
}

fn random_form(random: &mut Random) -> (Vec<usize>, Vec<Input>) {
    let n_axes = random.between(1, 3);
    let mut dims = vec![random.between(1, 2), random.between(1, 70)];
    dims.extend((0..n_axes).map(|_| random.between(1, 9)));
    let input = match random.chance(2) {
        true => {
            let mut scales = vec![1.0f32; 2];
            let choices = [0.5, 2.0, 1.0, 3.0, 1.5, 0.7, 2.2];
            scales.extend((0..n_axes).map(|axis| {
                // Nothing may vanish.
                let scale = choices[random.below(7)];
                if (dims[axis + 2] as f32 * scale) < 1.0 { 2.0 } else { scale }
            }));
            vec![Input::Absent, Input::Parameter(Tensor::vector(scales))]
        }
        false => {
            let mut sizes: Vec<i64> = dims[..2].iter().map(|dim| *dim as i64).collect();
            sizes.extend((0..n_axes).map(|_| random.between(1, 14) as i64));
            vec![Input::Absent, Input::Absent, Input::Parameter(Tensor::vector(sizes))]
        }
    };
    (dims, input)
}

const COORDINATES: [ResizeCoordinates; 6] = [
    ResizeCoordinates::HalfPixel,
    ResizeCoordinates::HalfPixelSymmetric,
    ResizeCoordinates::PytorchHalfPixel,
    ResizeCoordinates::AlignCorners,
    ResizeCoordinates::Asymmetric,
    ResizeCoordinates::TfHalfPixelForNn,
];

#[test]
fn nearest_pixels_are_exact_for_every_type() {
    let mut random = Random::new(1);
    for _ in 0..150 {
        let (dims, parameters) = random_form(&mut random);
        let nearest = [
            ResizeNearest::RoundPreferFloor,
            ResizeNearest::RoundPreferCeil,
            ResizeNearest::Floor,
            ResizeNearest::Ceil,
        ];
        let op = Resize {
            nearest_mode: nearest[random.below(4)],
            coordinate_transformation_mode: COORDINATES[random.below(6)],
            ..resize()
        };
        let dtype = [DType::U8, DType::F16, DType::F32, DType::I64][random.below(4)];
        let inputs = [vec![Input::Data(random.raw(dtype, &dims))], parameters].concat();
        check(&OpTrial::new(op, &inputs, 1), &mut random, Tolerance::EXACT);
    }
}

#[test]
fn weighted_sums_agree() {
    let mut random = Random::new(2);
    for _ in 0..200 {
        let (dims, parameters) = random_form(&mut random);
        let op = Resize {
            mode: if random.chance(2) { ResizeMode::Linear } else { ResizeMode::Cubic },
            coordinate_transformation_mode: COORDINATES[random.below(6)],
            antialias: random.chance(4),
            exclude_outside: random.chance(4),
            ..resize()
        };
        let inputs = [vec![Input::Data(random.floats(&dims))], parameters].concat();
        check(&OpTrial::new(op, &inputs, 1), &mut random, TOLERANCE);
    }
}

#[test]
fn what_is_not_the_spatial_axes_of_an_image_is_left_alone() {
    let x = Random::new(3).floats(&[1, 2, 4, 4]);
    let scales = Tensor::vector(vec![1.0f32, 2.0, 1.0, 1.0]);
    let inputs = [Input::Data(x), Input::Absent, Input::Parameter(scales)];
    let sample = OpTrial::new(resize(), &inputs, 1);
    let plain = |tensor: &Tensor| Operand::dense(DType::F32, tensor.shape(), Layout::Plain);
    let (from, to) = (plain(&sample.data[0]), plain(&sample.want[0]));
    assert!(sample.run(&ResizeFamily, Isa::best(), &[from], &[to]).is_err());
}

/// Weighted sums of bytes, as bytes of either type and as numbers; of nearest pixels there is nothing to sum.
#[test]
fn bytes_are_weighed_in_registers() {
    let mut random = Random::new(4);
    let last = [2, 3].map(|at| Placement::ALL[at]);
    for (dtype, to) in [(DType::U8, Some(DType::U8)), (DType::I8, Some(DType::U8)), (DType::U8, None)] {
        for channels in [1, 15, 64, 83] {
            for (mode, factors) in [(ResizeMode::Linear, [2.0, 2.0]), (ResizeMode::Cubic, [1.5, 0.5])] {
                let op = Resize { mode, ..resize() };
                let scales = Tensor::vector(vec![1.0f32, 1.0, factors[0], factors[1]]);
                let region = of_bytes(op.into(), &[None, Some(scales)], dtype, to);
                let x = random.raw(dtype, &[2, channels, 4, 6]);
                let tolerance = if to.is_some() { Tolerance::EXACT } else { BYTES_TOLERANCE };
                check_placed(&ResizeFamily, &region, &[x], tolerance, &last);
            }
        }
    }
}
