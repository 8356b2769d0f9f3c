//! How fast kernels are on problems as models have them: a table, on a machine with a GPU. Nothing is judged here.

use planish_kernel::{Operand, Problem};
use planish_op::{self as op, Op, ResizeCoordinates, ResizeMode};
use planish_tensor::{DType, Tensor};

use super::device::{cuda, microseconds};
use crate::families::{
    attention, convtranspose, depthwise, movement, norm, pointwise, pool, reduce, resize, softmax,
};
use crate::samples::{Sample, constant, input, node};
use crate::steps::Planner;

const HALF: DType = DType::F16;

fn problems() -> Vec<(&'static dyn Planner, Problem)> {
    let mut list: Vec<(&'static dyn Planner, Problem)> = Vec::new();
    let add_relu =
        || vec![(Op::from(op::Add {}), vec![input(0), input(1)]), (op::Relu {}.into(), vec![node(0)])];
    for image in [[1usize, 64, 56, 56], [16, 64, 56, 56], [16, 256, 56, 56]] {
        list.push((
            &pointwise::Pointwise,
            Sample::of(add_relu()).typed(HALF, &image).typed(HALF, &image).problem(),
        ));
    }
    for image in [[1usize, 3, 224, 224], [16, 3, 224, 224], [1, 64, 128, 128]] {
        let cast = op::Cast { round_mode: op::CastRounding::Up, saturate: true, to: HALF };
        list.push((&pointwise::Pointwise, Sample::op(cast, 1).f32(&image).problem()));
        list.push((&movement::Movement, Sample::op(op::Identity {}, 1).typed(HALF, &image).problem()));
    }
    let pooled = op::MaxPool {
        kernel_shape: vec![3, 3],
        strides: vec![2, 2],
        pads: vec![1; 4],
        storage_order: 0,
        dilations: Vec::new(),
        ceil_mode: false,
        auto_pad: op::AutoPad::NotSet,
    };
    list.push((&pool::Pool, Sample::op(pooled.clone(), 1).typed(HALF, &[1, 64, 112, 112]).problem()));
    for image in [vec![1usize, 32, 256, 256], vec![1, 16, 64, 64, 64]] {
        let axes = image.len() - 2;
        let halved = op::MaxPool {
            kernel_shape: vec![2; axes],
            strides: vec![2; axes],
            pads: vec![0; 2 * axes],
            ..pooled.clone()
        };
        list.push((&pool::Pool, Sample::op(halved, 1).typed(HALF, &image).problem()));
    }
    for image in [[1usize, 512, 7, 7], [16, 512, 7, 7], [1, 96, 112, 112], [1, 240, 28, 28]] {
        list.push((&reduce::Reduce, Sample::op(op::GlobalAveragePool {}, 1).typed(HALF, &image).problem()));
    }
    for dims in [[1usize, 128, 384], [8, 197, 768]] {
        let layer = op::LayerNormalization { stash_type: 1, epsilon: 1e-5, axis: -1 };
        let nodes = vec![
            (op::Add {}.into(), vec![input(0), input(1)]),
            (layer.into(), vec![node(0), input(2), input(3)]),
        ];
        let sample = Sample::of(nodes).typed(HALF, &dims).typed(HALF, &dims);
        list.push((&norm::Norm, sample.typed(HALF, &dims[2..]).typed(HALF, &dims[2..]).problem()));
        list.push((&softmax::Softmax, Sample::op(op::Softmax { axis: -1 }, 1).typed(HALF, &dims).problem()));
    }
    for image in
        [[1usize, 512, 8, 8], [1, 256, 16, 16], [1, 128, 32, 32], [1, 256, 64, 64], [1, 64, 256, 256]]
    {
        let group = op::GroupNormalization { num_groups: 32, epsilon: 1e-5, stash_type: 1 };
        let nodes = vec![
            (Op::from(group), vec![input(0), input(1), input(2)]),
            (op::Sigmoid {}.into(), vec![node(0)]),
            (op::Mul {}.into(), vec![node(0), node(1)]),
        ];
        let channels = [image[1]];
        let sample = Sample::of(nodes).typed(HALF, &image).typed(HALF, &channels).typed(HALF, &channels);
        list.push((&norm::Norm, sample.problem()));
    }
    for (heads, steps, size) in [
        (12usize, 128usize, 32usize),
        (12, 128, 64),
        (6, 512, 64),
        (8, 1024, 40),
        (1, 64, 512),
        (1, 256, 256),
        (1, 1024, 256),
    ] {
        let attention = op::Attention {
            qk_matmul_output_mode: 0,
            softcap: 0.0,
            softmax_precision: None,
            kv_num_heads: Some(heads as i64),
            q_num_heads: Some(heads as i64),
            scale: None,
            is_causal: false,
        };
        let dims = [1, steps, heads * size];
        let sample = Sample::op(attention, 3).typed(HALF, &dims).typed(HALF, &dims).typed(HALF, &dims);
        list.push((&attention::Attention, sample.problem()));
    }
    for (mode, coordinates) in [
        (ResizeMode::Nearest, ResizeCoordinates::Asymmetric),
        (ResizeMode::Linear, ResizeCoordinates::HalfPixel),
    ] {
        let twice = op::Resize {
            keep_aspect_ratio_policy: op::ResizeAspectPolicy::Stretch,
            axes: None,
            antialias: false,
            extrapolation_value: 0.0,
            exclude_outside: false,
            nearest_mode: op::ResizeNearest::Floor,
            coordinate_transformation_mode: coordinates,
            cubic_coeff_a: -0.75,
            mode,
        };
        let sample = Sample::of(vec![(twice.into(), vec![input(0), None, constant(0)])]);
        let sample = sample.constant(Tensor::vector(vec![1.0f32, 1.0, 2.0, 2.0]));
        list.push((&resize::Resize, sample.typed(HALF, &[1, 256, 64, 64]).problem()));
    }
    for (channels, size, kernel, stride) in [
        (32usize, 112usize, 3usize, 1i64),
        (96, 112, 3, 2),
        (144, 56, 3, 1),
        (384, 14, 3, 1),
        (960, 7, 3, 1),
        (240, 28, 5, 1),
        (672, 14, 5, 1),
        (96, 56, 7, 1),
        (384, 14, 7, 1),
        (768, 7, 7, 1),
    ] {
        let pad = kernel as i64 / 2;
        let conv = op::Conv {
            group: channels as i64,
            pads: vec![pad; 4],
            auto_pad: op::AutoPad::NotSet,
            strides: vec![stride; 2],
            dilations: Vec::new(),
            kernel_shape: None,
        };
        let nodes =
            vec![(Op::from(conv), vec![input(0), input(1), input(2)]), (op::Relu {}.into(), vec![node(0)])];
        let sample = Sample::of(nodes).typed(HALF, &[1, channels, size, size]);
        let sample = sample.weight(HALF, &[channels, 1, kernel, kernel]).weight(HALF, &[channels]);
        list.push((&depthwise::Depthwise, sample.problem()));
    }
    for (image, outputs) in [
        (vec![1usize, 512, 16, 16], 256usize),
        (vec![1, 128, 64, 64], 64),
        (vec![1, 64, 128, 128], 32),
        (vec![1, 32, 32, 32, 32], 16),
    ] {
        let axes = image.len() - 2;
        let conv = op::ConvTranspose {
            group: 1,
            auto_pad: op::AutoPad::NotSet,
            strides: vec![2; axes],
            pads: Vec::new(),
            output_padding: Vec::new(),
            dilations: Vec::new(),
            output_shape: None,
            kernel_shape: None,
        };
        let mut weight = vec![image[1], outputs];
        weight.extend(vec![2; axes]);
        let sample = Sample::op(conv, 3).typed(HALF, &image).weight(HALF, &weight).weight(HALF, &[outputs]);
        list.push((&convtranspose::ConvTranspose, sample.problem()));
    }
    list
}

#[test]
fn speeds() {
    let Some(cuda) = cuda() else {
        println!("skipped: no GPU to time kernels on");
        return;
    };
    for (family, problem) in problems() {
        let operands = || problem.inputs.iter().chain(&problem.outputs);
        let bytes: usize = operands().map(Operand::span_bytes).sum();
        let sizes: Vec<String> =
            problem.inputs[..1].iter().map(|operand| format!("{:?}", operand.dims)).collect();
        for candidate in family.candidates(cuda.gpu(), &problem) {
            let time = microseconds(cuda, family, &problem, &candidate);
            println!(
                "{:<44} {:<28} {:<24} {time:8.2} us {:8.0} GB/s",
                candidate.tactic.name,
                problem.region.ops().chars().take(27).collect::<String>(),
                sizes.join(" "),
                bytes as f64 / time / 1e3
            );
        }
    }
}
