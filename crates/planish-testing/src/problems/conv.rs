//! Convolutions: edges of tiles, tails of channels, strides and paddings, every epilogue, and some by chance.

use planish_kernel::{Numeric, Problem, Ref, RegionNode};
use planish_op as op;
use planish_tensor::{DType, Tensor};

use super::{numeric, with, with_image};
use crate::{Random, Sample, input, node};

/// One window a pixel, padded by half of the window.
pub fn padded(kernel: &[usize]) -> op::Conv {
    op::Conv {
        auto_pad: op::AutoPad::NotSet,
        dilations: vec![1; kernel.len()],
        group: 1,
        kernel_shape: None,
        pads: kernel.iter().chain(kernel).map(|size| (*size / 2) as i64).collect(),
        strides: vec![1; kernel.len()],
    }
}

/// A convolution with bias and ReLU: image sizes, output channels, kernel, and the rest.
pub fn conv(
    dtype: DType,
    x: &[usize],
    n: usize,
    kernel: &[usize],
    change: impl FnOnce(&mut op::Conv),
) -> Problem {
    let mut conv = padded(kernel);
    change(&mut conv);
    let weight = [&[n, x[1] / conv.group as usize], kernel].concat();
    let nodes = vec![(conv.into(), vec![input(0), input(1), input(2)]), (op::Relu {}.into(), vec![node(0)])];
    let sample = Sample::of(nodes).typed(dtype, x).weight(dtype, &weight).weight(dtype, &[n]);
    Problem { numeric: numeric(dtype), ..sample.problem() }
}

/// A convolution to one channel, whose bias is a single number and so a constant of the region.
pub fn to_one_channel(dtype: DType, x: &[usize], kernel: &[usize]) -> Problem {
    const BIAS: f64 = -0.375;
    let mut problem = conv(dtype, x, 1, kernel, |_| {});
    problem.inputs.truncate(2);
    problem.region.n_inputs = 2;
    problem.region.constants = Tensor::from_f64s(dtype, &[1], &[BIAS]).into_iter().collect();
    problem.region.nodes[0].inputs[2] = Some(Ref::Constant(0));
    problem
}

/// Problems that between them ask for each loader, type and way to add up.
pub fn samples() -> Vec<Problem> {
    vec![
        to_one_channel(DType::F16, &[1, 32, 12, 40], &[3, 3]),
        to_one_channel(DType::F16, &[1, 64, 9, 10], &[1, 1]),
        conv(DType::F16, &[1, 64, 14, 14], 64, &[3, 3], |_| {}),
        conv(DType::F16, &[2, 3, 20, 20], 16, &[7, 7], |conv| conv.strides = vec![2, 2]),
        conv(DType::F16, &[1, 20, 9, 9], 24, &[3, 3], |conv| conv.dilations = vec![2, 2]),
        conv(DType::F16, &[1, 16, 6, 7, 8], 16, &[3, 3, 3], |_| {}),
        conv(DType::F16, &[1, 32, 12, 12], 32, &[3, 3], |conv| conv.group = 2),
        conv(DType::BF16, &[1, 64, 14, 14], 40, &[1, 1], |_| {}),
        conv(DType::F32, &[1, 12, 14, 14], 40, &[3, 3], |_| {}),
        conv(DType::F32, &[1, 6, 33], 10, &[5], |conv| conv.pads = vec![4, 0]),
    ]
}

/// Without the last node.
fn without_relu(mut problem: Problem) -> Problem {
    problem.region.nodes.pop();
    problem.region.outputs = vec![Ref::Node { node: problem.region.nodes.len() as u32 - 1, output: 0 }];
    problem
}

/// All the ways in which accumulators are finished, of a convolution with bias and ReLU.
fn finished(problem: &Problem) -> Vec<Problem> {
    let bare = without_relu(problem.clone());
    let images = problem.outputs[0].dims[0];
    let n = problem.outputs[0].dims[1];
    let mut gate = vec![images, n];
    gate.resize(problem.outputs[0].rank(), 1);
    let mut no_bias = bare.clone();
    no_bias.region.nodes[0].inputs.truncate(2);
    no_bias.inputs.truncate(2);
    no_bias.region.n_inputs = 2;
    vec![
        with(with_image(bare.clone(), op::Add {}), op::Relu {}, None),
        with_image(problem.clone(), op::Add {}),
        with(with(bare.clone(), op::Swish { alpha: 1.0 }, None), op::Mul {}, Some(&gate)),
        with(with_image(bare, op::Mul {}), op::Gelu { approximate: op::GeluApproximation::None }, None),
        with(no_bias, op::Sigmoid {}, None),
    ]
}

/// Short sums with a residual and a ReLU after them: one tile, some and a part of one, and more than a GPU holds at once.
pub fn with_residual() -> Vec<Problem> {
    [([2, 64, 8, 8], 64), ([1, 48, 27, 29], 192), ([2, 16, 96, 97], 256)]
        .iter()
        .flat_map(|(x, n)| finished(&conv(DType::F16, x, *n, &[1, 1], |_| {})).into_iter().take(1))
        .collect()
}

/// Convolutions of any stride.
pub fn convolutions() -> Vec<Problem> {
    let half = DType::F16;
    let mut all = vec![
        conv(half, &[1, 64, 14, 14], 64, &[3, 3], |_| {}),
        conv(half, &[3, 128, 9, 7], 72, &[3, 3], |conv| conv.strides = vec![2, 2]),
        conv(DType::BF16, &[2, 24, 9, 9], 20, &[3, 3], |conv| conv.dilations = vec![2, 2]),
        conv(half, &[1, 16, 6, 7, 8], 16, &[3, 3, 3], |_| {}),
        conv(half, &[2, 40, 5, 9, 6], 24, &[3, 1, 2], |conv| {
            conv.strides = vec![2, 1, 2];
            conv.pads = vec![1, 0, 1, 0, 0, 0];
        }),
        conv(half, &[2, 8, 33], 10, &[5], |conv| conv.pads = vec![4, 0]),
        conv(half, &[1, 96, 70], 100, &[3], |conv| conv.strides = vec![3]),
        conv(DType::BF16, &[2, 64, 10, 11], 40, &[1, 1], |_| {}),
        conv(half, &[1, 72, 12, 13], 136, &[1, 1], |conv| conv.strides = vec![2, 2]),
        conv(half, &[1, 512, 7, 7], 512, &[3, 3], |_| {}),
        conv(half, &[1, 8, 30, 31], 3, &[7, 7], |conv| conv.pads = vec![3, 2, 1, 4]),
        to_one_channel(half, &[2, 64, 9, 14], &[3, 3]),
        to_one_channel(half, &[1, 32, 20, 30], &[1, 1]),
    ];
    all.extend(finished(&conv(half, &[2, 32, 11, 12], 48, &[3, 3], |_| {})));
    all.extend(finished(&conv(DType::BF16, &[1, 64, 9, 9], 20, &[3, 3], |conv| conv.strides = vec![2, 2])));
    all.extend(finished(&conv(half, &[1, 80, 31, 30], 128, &[1, 1], |_| {})));
    all.extend(with_residual());
    let mut random = Random::new(1);
    for _ in 0..8 {
        let spatial = random.between(1, 3);
        let (c, n) = (8 * random.between(1, 24), random.between(1, 150));
        let kernel: Vec<usize> = (0..spatial).map(|_| random.between(1, 4)).collect();
        let mut x = vec![random.between(1, 3), c];
        x.extend(kernel.iter().map(|taps| taps * 2 + random.between(0, if spatial == 3 { 5 } else { 20 })));
        let strides: Vec<i64> = (0..spatial).map(|_| random.between(1, 3) as i64).collect();
        let pads: Vec<i64> =
            (0..2 * spatial).map(|axis| random.below(kernel[axis % spatial]) as i64).collect();
        all.push(conv(half, &x, n, &kernel, |conv| {
            conv.strides = strides;
            conv.pads = pads;
        }));
    }
    all
}

/// Convolutions whose windows overlap.
pub fn overlapping() -> Vec<Problem> {
    let half = DType::F16;
    let mut all = vec![
        conv(half, &[1, 64, 16, 16], 64, &[3, 3], |_| {}),
        conv(half, &[2, 64, 56, 56], 64, &[3, 3], |_| {}),
        conv(half, &[1, 16, 9, 18, 17], 16, &[3, 3, 3], |_| {}),
        conv(DType::BF16, &[2, 24, 9, 30], 20, &[3, 3], |_| {}),
        conv(half, &[1, 32, 40, 24], 32, &[5, 5], |conv| conv.pads = vec![2, 0, 1, 4]),
        conv(half, &[3, 256, 14, 14], 256, &[3, 3], |_| {}),
        conv(half, &[1, 8, 20, 20], 10, &[1, 7], |_| {}),
        conv(half, &[1, 160, 7, 7], 136, &[3, 3], |_| {}),
        conv(half, &[2, 40, 4, 12, 12], 24, &[3, 2, 3], |_| {}),
    ];
    all.extend(finished(&conv(half, &[2, 32, 11, 12], 48, &[3, 3], |_| {})));
    all.extend(finished(&conv(DType::BF16, &[1, 128, 19, 9], 136, &[3, 3], |_| {})));
    let mut random = Random::new(2);
    for _ in 0..8 {
        let spatial = random.between(2, 3);
        let (c, n) = (8 * random.between(1, 24), random.between(1, 150));
        let kernel: Vec<usize> = (0..spatial).map(|_| random.between(2, 4)).collect();
        let mut x = vec![random.between(1, 3), c];
        x.extend(kernel.iter().map(|taps| taps * 2 + random.between(0, if spatial == 3 { 6 } else { 30 })));
        let pads: Vec<i64> =
            (0..2 * spatial).map(|axis| random.below(kernel[axis % spatial]) as i64).collect();
        all.push(conv(half, &x, n, &kernel, |conv| conv.pads = pads));
    }
    all
}

/// The same on an image of f32 that is cast first.
pub fn with_cast(mut problem: Problem) -> Problem {
    let to = std::mem::replace(&mut problem.inputs[0].dtype, DType::F32);
    let after = |reference: &mut Ref| {
        if let Ref::Node { node, .. } = reference {
            *node += 1;
        }
    };
    for node in &mut problem.region.nodes {
        node.inputs.iter_mut().flatten().for_each(after);
    }
    problem.region.outputs.iter_mut().for_each(after);
    problem.region.nodes[0].inputs[0] = Some(Ref::Node { node: 0, output: 0 });
    let cast = op::Cast { round_mode: op::CastRounding::Up, saturate: true, to };
    let cast = RegionNode {
        name: "cast".to_string(),
        op: cast.into(),
        inputs: vec![Some(Ref::Input(0))],
        n_outputs: 1,
    };
    problem.region.nodes.insert(0, cast);
    problem
}

/// First layers: few channels, odd sizes, and images of another type.
pub fn few_channels() -> Vec<Problem> {
    let half = DType::F16;
    let mut all = vec![
        conv(half, &[2, 3, 60, 60], 64, &[7, 7], |conv| conv.strides = vec![2, 2]),
        conv(half, &[1, 1, 33, 47], 32, &[3, 3], |_| {}),
        conv(half, &[1, 1, 13, 18, 21], 16, &[3, 3, 3], |_| {}),
        conv(half, &[3, 3, 32, 32], 64, &[3, 3], |_| {}),
        conv(half, &[1, 3, 40, 40], 32, &[3, 3], |conv| conv.strides = vec![2, 2]),
        conv(half, &[2, 4, 16, 16], 130, &[3, 3], |_| {}),
        conv(half, &[1, 1, 16, 16, 16], 40, &[8, 8, 8], |conv| {
            conv.strides = vec![8, 8, 8];
            conv.pads = vec![0; 6];
        }),
        conv(DType::BF16, &[2, 5, 19, 23], 20, &[5, 2], |conv| conv.pads = vec![4, 0, 1, 1]),
        // Rows of whole quads with a rim above and below, and rows that end inside of one.
        conv(half, &[2, 1, 18, 72], 24, &[4, 4], |conv| {
            conv.strides = vec![4, 4];
            conv.pads = vec![1, 0, 1, 0];
        }),
        conv(half, &[1, 1, 16, 23], 24, &[4, 4], |conv| {
            conv.strides = vec![4, 4];
            conv.pads = vec![0; 4];
        }),
        conv(half, &[2, 2, 301], 10, &[9], |conv| {
            conv.strides = vec![3];
            conv.pads = vec![4, 0];
        }),
        conv(half, &[1, 7, 9, 9], 3, &[1, 1], |_| {}),
    ];
    all.extend(finished(&conv(half, &[2, 3, 15, 13], 48, &[3, 3], |_| {})));
    // More tiles than a GPU has multiprocessors, whose windows begin at even elements or at all.
    let many = [
        conv(half, &[5, 3, 131, 130], 64, &[7, 7], |conv| conv.strides = vec![2, 2]),
        conv(half, &[2, 3, 97, 95], 32, &[3, 3], |_| {}),
        conv(half, &[2, 1, 121, 110], 24, &[3, 3], |_| {}),
    ];
    for problem in [&all[0], &all[2], &all[3], &all[6], &all[7], &all[8]]
        .into_iter()
        .chain(&many)
        .cloned()
        .collect::<Vec<_>>()
    {
        all.push(with_cast(problem));
    }
    all
}

/// Problems for kernels that read patches: rims, several tiles along each axis and tails of them, steps and gaps
/// between taps, few channels, few and many columns.
pub fn patches() -> Vec<Problem> {
    let mut all = vec![
        conv(DType::F16, &[1, 16, 9, 20, 50], 16, &[3, 3, 3], |_| {}),
        conv(DType::F16, &[2, 32, 5, 11, 33], 16, &[3, 3, 3], |_| {}),
        conv(DType::F16, &[2, 32, 37, 50], 32, &[3, 3], |_| {}),
        conv(DType::F16, &[3, 16, 1, 1], 24, &[3, 3], |_| {}),
        conv(DType::F16, &[1, 16, 2, 70], 16, &[3, 3], |_| {}),
        conv(DType::BF16, &[1, 48, 21, 40], 24, &[3, 3], |_| {}),
        conv(DType::F16, &[1, 64, 20, 34], 3, &[3, 3], |_| {}),
        conv(DType::F16, &[1, 64, 33, 35], 100, &[3, 3], |_| {}),
        conv(DType::F16, &[1, 16, 40, 41], 16, &[5, 5], |conv| conv.pads = vec![0, 1, 3, 2]),
        conv(DType::F16, &[1, 16, 40, 41], 16, &[3, 3], |conv| conv.strides = vec![2, 2]),
        conv(DType::F16, &[1, 24, 41, 40], 32, &[3, 2], |conv| {
            conv.strides = vec![1, 3];
            conv.dilations = vec![2, 2];
        }),
        conv(DType::F16, &[1, 8, 24, 50], 8, &[1, 3], |_| {}),
        conv(DType::F16, &[1, 32, 20, 30], 1, &[1, 1], |_| {}),
        to_one_channel(DType::F16, &[1, 16, 21, 50], &[3, 3]),
        to_one_channel(DType::BF16, &[1, 8, 5, 11, 33], &[3, 3, 3]),
        to_one_channel(DType::F16, &[1, 3, 20, 34], &[3, 3]),
        conv(DType::F16, &[3, 3, 50, 46], 64, &[7, 7], |conv| conv.strides = vec![2, 2]),
        conv(DType::BF16, &[2, 3, 33, 32], 64, &[3, 3], |_| {}),
        conv(DType::F16, &[1, 1, 9, 17, 40], 16, &[3, 3, 3], |_| {}),
        conv(DType::F16, &[1, 5, 19, 40], 20, &[3, 3], |conv| conv.dilations = vec![1, 3]),
    ];
    all.extend(finished(&conv(DType::F16, &[2, 16, 11, 30], 24, &[3, 3], |_| {})));
    all.extend(finished(&conv(DType::F16, &[1, 3, 22, 20], 20, &[3, 3], |_| {})));
    all
}

/// Convolutions that tensor copies do not take: odd numbers of channels, groups, f32 and tf32, windows of many taps,
/// and sums so long that they are split.
pub fn gathered() -> Vec<Problem> {
    let half = DType::F16;
    let mut all = vec![
        conv(half, &[2, 7, 13, 11], 30, &[3, 3], |_| {}),
        conv(half, &[1, 30, 12, 13], 17, &[3, 3], |conv| conv.strides = vec![2, 1]),
        conv(half, &[2, 64, 10, 9], 96, &[3, 3], |conv| conv.group = 4),
        conv(half, &[1, 18, 9, 9], 12, &[3, 3], |conv| conv.group = 6),
        conv(half, &[1, 24, 20, 21], 40, &[7, 7], |_| {}),
        conv(half, &[1, 256, 8, 8], 40, &[3, 3], |_| {}),
        conv(half, &[1, 1, 24, 24, 24], 32, &[8, 8, 8], |conv| {
            conv.strides = vec![8, 8, 8];
            conv.pads = vec![0; 6];
        }),
        conv(DType::F32, &[2, 16, 13, 11], 30, &[3, 3], |conv| conv.dilations = vec![1, 2]),
        conv(DType::F32, &[1, 5, 9, 10], 24, &[3, 3], |_| {}),
        to_one_channel(half, &[1, 7, 9, 10], &[3, 3]),
        to_one_channel(DType::F32, &[1, 16, 9, 10], &[3, 3]),
        conv(DType::F32, &[1, 64, 9, 10], 64, &[3, 3], |conv| conv.group = 2),
    ];
    let mut tensor_float = conv(DType::F32, &[1, 64, 14, 14], 48, &[3, 3], |_| {});
    tensor_float.numeric = Numeric::TF32;
    all.push(tensor_float);
    all.extend(finished(&conv(half, &[2, 9, 7, 8], 20, &[3, 3], |_| {})));
    all.extend(finished(&conv(DType::F32, &[2, 8, 7, 8], 12, &[3, 3], |_| {})));
    all
}
