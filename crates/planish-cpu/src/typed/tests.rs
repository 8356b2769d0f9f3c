//! Against the reference: every type, sizes around a column, and what a run must refuse.

use planish_kernel::{Layout, Operand, Ref};
use planish_op as op;
use planish_op::{CastRounding, Op, RecurrentDirection, ScatterReduction};
use planish_tensor::{DType, Tensor};
use planish_testing::{Random, Tolerance, assert_close};

use super::TypedFamily;
use crate::isa::Isa;
use crate::trial::{Input, OpTrial};

const NUMBERS: [DType; 12] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
];

/// Numbers of a type up to its ends, zeros left out on demand.
fn drawn(random: &mut Random, dtype: DType, dims: &[usize], with_zero: bool) -> Tensor {
    let values = random.tensor(DType::F64, dims, 1.0).to_f64s();
    let spread = match dtype.int_range() {
        Some((low, high)) => ((high as f64 - low as f64) / 8.0, (low + high) as f64 / 2.0),
        None => (3.0, 0.0),
    };
    let value = |x: f64| {
        let value = (x * spread.0 + spread.1).trunc();
        let (low, high) = dtype.int_range().map_or((-1e9, 1e9), |(low, high)| (low as f64, high as f64));
        let value = value.clamp(low, high);
        if value == 0.0 && !with_zero { 1.0 } else { value }
    };
    Tensor::from_f64s(dtype, dims, &values.into_iter().map(value).collect::<Vec<_>>()).unwrap()
}

fn cast(to: DType) -> Op {
    op::Cast { round_mode: CastRounding::Up, saturate: true, to }.into()
}

#[test]
fn every_type_becomes_every_other() {
    let mut random = Random::new(1);
    for from in NUMBERS.into_iter().chain([DType::Bool]) {
        for to in NUMBERS.into_iter().chain([DType::Bool, DType::F8E4M3FN, DType::F8E5M2]) {
            for dims in [vec![3, 5, 7], vec![700], vec![]] {
                let x = match from {
                    DType::Bool => random.tensor(DType::Bool, &dims, 1.0),
                    _ => drawn(&mut random, from, &dims, true),
                };
                OpTrial::new(cast(to), &[Input::Data(x)], 1).check_exact(&TypedFamily, &mut random, None);
            }
        }
    }
}

#[test]
fn arithmetic_of_every_type() {
    let mut random = Random::new(2);
    let ops: [fn() -> Op; 12] = [
        || op::Add {}.into(),
        || op::Sub {}.into(),
        || op::Mul {}.into(),
        || op::Div {}.into(),
        || op::Min {}.into(),
        || op::Max {}.into(),
        || op::PRelu {}.into(),
        || op::Equal {}.into(),
        || op::Less {}.into(),
        || op::LessOrEqual {}.into(),
        || op::Greater {}.into(),
        || op::GreaterOrEqual {}.into(),
    ];
    let shapes = [(vec![2, 3, 5], vec![2, 3, 5]), (vec![4, 300], vec![1]), (vec![2, 3, 4], vec![3, 1])];
    for dtype in NUMBERS {
        for make in ops {
            for (a, b) in &shapes {
                let (a, b) = (drawn(&mut random, dtype, a, true), drawn(&mut random, dtype, b, false));
                OpTrial::new(make(), &[Input::Data(a), Input::Data(b)], 1).check_exact(
                    &TypedFamily,
                    &mut random,
                    None,
                );
            }
        }
        if dtype.is_int() {
            for fmod in [false, true] {
                let (a, b) =
                    (drawn(&mut random, dtype, &[5, 9], true), drawn(&mut random, dtype, &[5, 9], false));
                OpTrial::new(op::Mod { fmod }, &[Input::Data(a), Input::Data(b)], 1).check_exact(
                    &TypedFamily,
                    &mut random,
                    None,
                );
            }
        }
    }
}

#[test]
fn functions_of_one_number() {
    let mut random = Random::new(4);
    for dtype in NUMBERS {
        let ops: Vec<Op> = match (dtype.is_float(), dtype.is_signed_int()) {
            (true, _) => vec![
                op::Abs {}.into(),
                op::Neg {}.into(),
                op::Sign {}.into(),
                op::Relu {}.into(),
                op::Floor {}.into(),
                op::Sqrt {}.into(),
                op::IsNaN {}.into(),
                op::Clip {}.into(),
            ],
            (_, true) => vec![op::Abs {}.into(), op::Neg {}.into(), op::Sign {}.into(), op::Relu {}.into()],
            _ => vec![op::Abs {}.into(), op::Sign {}.into(), op::BitwiseNot {}.into()],
        };
        for op in ops {
            let x = drawn(&mut random, dtype, &[3, 4, 9], true);
            OpTrial::new(op, &[Input::Data(x)], 1).check_exact(&TypedFamily, &mut random, None);
        }
    }
}

#[test]
fn integers_to_whole_powers() {
    let mut random = Random::new(5);
    for dtype in NUMBERS.into_iter().filter(|dtype| dtype.is_int()) {
        for (a, b) in [(vec![3, 300], vec![3, 300]), (vec![2, 3, 4], vec![3, 1]), (vec![7], vec![])] {
            let base = drawn(&mut random, dtype, &a, false);
            let low = if dtype.is_signed_int() { -2 } else { 0 };
            let exponent = random.whole(dtype, &b, low, 9);
            OpTrial::new(op::Pow {}, &[Input::Data(base), Input::Data(exponent)], 1).check_exact(
                &TypedFamily,
                &mut random,
                None,
            );
        }
    }
}

#[test]
fn random_numbers_are_those_of_the_reference() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for dims in [vec![1], vec![3, 700], vec![0, 2]] {
            for seed in [None, Some(7.5)] {
                let like = Tensor::from_f64s(dtype, &dims, &vec![0.0; dims.iter().product()]).unwrap();
                let ops: [Op; 4] = [
                    op::RandomNormalLike { dtype: None, seed, scale: 0.7, mean: 0.1 }.into(),
                    op::RandomUniformLike { dtype: None, seed, high: 3.0, low: -1.5 }.into(),
                    op::RandomNormal {
                        shape: dims.iter().map(|dim| *dim as i64).collect(),
                        dtype,
                        seed,
                        scale: 2.0,
                        mean: 0.0,
                    }
                    .into(),
                    op::RandomUniform {
                        shape: dims.iter().map(|dim| *dim as i64).collect(),
                        dtype,
                        seed,
                        high: 1.0,
                        low: 0.0,
                    }
                    .into(),
                ];
                for (idx, op) in ops.into_iter().enumerate() {
                    let inputs: &[Input] = if idx < 2 { &[Input::Data(like.clone())] } else { &[] };
                    check_dense(op, inputs, 1);
                }
            }
        }
    }
}

#[test]
fn elements_are_told_apart_where_only_that_is_wanted() {
    let mut random = Random::new(7);
    for dtype in [DType::I64, DType::I32, DType::U8] {
        for dims in [vec![5], vec![31, 17], vec![0]] {
            let x = random.whole(dtype, &dims, 0, 40);
            let mut trial =
                OpTrial::new(op::Unique { axis: None, sorted: true }, &[Input::Data(x.clone())], 3);
            trial.region.outputs = vec![Ref::Node { node: 0, output: 2 }];
            trial.want = vec![trial.want.remove(2)];
            let operand = |t: &Tensor| Operand::dense(t.dtype(), t.shape(), Layout::Plain);
            for isa in Isa::available() {
                let got = trial.run(&TypedFamily, isa, &[operand(&x)], &[operand(&trial.want[0])]).unwrap();
                assert!(got == trial.want, "{dtype:?} {dims:?} on {isa}");
            }
        }
    }
}

/// Sums of f64 in another order.
const DOUBLE_SUMS: Tolerance = Tolerance { relative: 1e-12, absolute: 1e-12 };

#[test]
fn matrices_of_doubles_are_multiplied() {
    let mut random = Random::new(24);
    let shapes = [
        (vec![1, 1], vec![1, 1]),
        (vec![3, 7], vec![7, 33]),
        (vec![65, 40], vec![40, 5]),
        (vec![2, 3, 4, 5], vec![2, 1, 5, 6]),
        (vec![4, 9], vec![3, 9, 31]),
        (vec![0, 4], vec![4, 3]),
        (vec![2, 0], vec![0, 3]),
    ];
    for (a, b) in &shapes {
        let [a, b] = [a, b].map(|dims| random.tensor(DType::F64, dims, 1.0));
        check_near(op::MatMul {}, &[Input::Data(a), Input::Data(b)], 1, DOUBLE_SUMS);
    }
    for (trans_a, trans_b) in [(false, false), (false, true), (true, false), (true, true)] {
        for (m, k, n) in [(5, 12, 35), (1, 3, 1), (70, 8, 32)] {
            let a = random.tensor(DType::F64, &if trans_a { [k, m] } else { [m, k] }, 1.0);
            let b = random.tensor(DType::F64, &if trans_b { [n, k] } else { [k, n] }, 1.0);
            for c in [None, Some(vec![]), Some(vec![n]), Some(vec![m, 1]), Some(vec![m, n]), Some(vec![1, n])]
            {
                let mut inputs = vec![Input::Data(a.clone()), Input::Data(b.clone())];
                inputs.extend(c.map(|dims| Input::Data(random.tensor(DType::F64, &dims, 1.0))));
                let op = op::Gemm { alpha: 0.5, beta: 1.5, trans_a, trans_b };
                check_near(op, &inputs, 1, DOUBLE_SUMS);
            }
        }
    }
}

#[test]
fn regions_of_images_are_averaged() {
    use planish_op::{RoiAlign, RoiAlignCoordinates as Coordinates, RoiAlignMode};
    let mut random = Random::new(21);
    // Corners in f32 as the reference has them; sums of some dozens of products.
    let near = Tolerance { relative: 1e-5, absolute: 2e-6 };
    for (image, bins) in [([2, 3, 17, 11], [7, 7]), ([1, 1, 1, 1], [1, 2]), ([1, 9, 30, 40], [2, 3])] {
        let x = random.floats(&image);
        let usual = [1.5f32, 2.0, 9.7, 14.2, 0.0, 0.0, 60.0, 60.0, -8.0, -3.0, 4.0, 5.0];
        let odd = [5.0f32, 5.0, 5.0, 5.0, 9.0, 9.0, 3.0, 2.0, f32::NAN, 1.0, 2.0, 3.0];
        let corners: Vec<f32> = usual.into_iter().chain(odd).collect();
        for n in [0, 1, 6, 40] {
            let rois: Vec<f32> = (0..n * 4).map(|at| corners[at % corners.len()]).collect();
            let rois = Tensor::new(&[n, 4], rois).unwrap();
            let images = random.whole(DType::I64, &[n], 0, image[0] as i64 - 1);
            for (coordinate_transformation_mode, sampling_ratio) in [
                (Coordinates::HalfPixel, 0),
                (Coordinates::HalfPixel, 2),
                (Coordinates::OutputHalfPixel, 0),
                (Coordinates::OutputHalfPixel, 3),
            ] {
                let op = RoiAlign {
                    coordinate_transformation_mode,
                    mode: RoiAlignMode::Avg,
                    output_height: bins[0],
                    output_width: bins[1],
                    sampling_ratio,
                    spatial_scale: 0.7,
                };
                let inputs = [x.clone(), rois.clone(), images.clone()].map(Input::Data);
                check_near(op, &inputs, 1, near);
            }
        }
    }
}

#[test]
fn regions_of_no_image_are_refused() {
    use planish_op::{RoiAlign, RoiAlignCoordinates, RoiAlignMode};
    let mut random = Random::new(22);
    let op = RoiAlign {
        coordinate_transformation_mode: RoiAlignCoordinates::HalfPixel,
        mode: RoiAlignMode::Avg,
        output_height: 2,
        output_width: 2,
        sampling_ratio: 0,
        spatial_scale: 1.0,
    };
    let rois = Tensor::new(&[1, 4], vec![0f32, 0.0, 3.0, 3.0]).unwrap();
    let inputs = [random.floats(&[1, 2, 5, 5]), rois, Tensor::vector(vec![0i64])];
    let mut sample = OpTrial::new(op, &inputs.map(Input::Data), 1);
    let dense = |tensor: &Tensor| Operand::dense(tensor.dtype(), tensor.shape(), Layout::Plain);
    sample.data[2] = Tensor::vector(vec![1i64]);
    let operands: Vec<Operand> = sample.data.iter().map(dense).collect();
    let error = sample.run(&TypedFamily, Isa::best(), &operands, &[dense(&sample.want[0])]).unwrap_err();
    assert!(error.to_string().contains("there is no image 1, the batch has 1"), "{error}");
}

#[test]
fn taps_look_between_pixels() {
    let mut random = Random::new(23);
    // Sums of up to some hundred products.
    let near = Tolerance { relative: 1e-5, absolute: 1e-5 };
    let forms = [
        ([2, 4, 9, 7], 6, [3, 3], 1, 1, 1),
        ([1, 6, 13, 11], 4, [3, 2], 2, 3, 2),
        ([1, 1, 1, 1], 1, [1, 1], 1, 1, 1),
        ([1, 5, 8, 70], 9, [1, 3], 1, 5, 1),
        ([1, 2, 6, 6], 4, [3, 3], 2, 1, 3),
    ];
    for (image, n_out, kernel, group, offset_group, step) in forms {
        for pads in [[0i64; 4], [1, 2, 2, 1]] {
            let length = |axis: usize| {
                let padded = image[2 + axis] as i64 + pads[axis] + pads[axis + 2] - kernel[axis] as i64;
                (padded.max(0) as usize) / step + 1
            };
            let points = [length(0), length(1)];
            let n_taps = kernel[0] * kernel[1];
            let x = random.floats(&image);
            let w = random.floats(&[n_out, image[1] / group, kernel[0], kernel[1]]);
            let offset =
                random.tensor(DType::F32, &[image[0], 2 * offset_group * n_taps, points[0], points[1]], 3.0);
            let mask = random.floats(&[image[0], offset_group * n_taps, points[0], points[1]]);
            let bias = random.floats(&[n_out]);
            for with_more in [false, true] {
                let op = op::DeformConv {
                    strides: vec![step as i64; 2],
                    pads: pads.to_vec(),
                    offset_group: offset_group as i64,
                    kernel_shape: None,
                    group: group as i64,
                    dilations: Vec::new(),
                };
                let mut inputs = vec![x.clone(), w.clone(), offset.clone()];
                if with_more {
                    inputs.extend([bias.clone(), mask.clone()]);
                }
                let inputs: Vec<Input> = inputs.into_iter().map(Input::Data).collect();
                check_near(op, &inputs, 1, near);
            }
        }
    }
}

#[test]
fn a_divisor_of_zero_is_refused() {
    let (a, b) = (Tensor::vector(vec![1i64, 2]), Tensor::vector(vec![1i64, 0]));
    let trial = OpTrial {
        want: vec![Tensor::vector(vec![0i64; 2])],
        ..OpTrial::new(op::Add {}, &[Input::Data(a.clone()), Input::Data(b.clone())], 1)
    };
    let mut trial = trial;
    trial.region.nodes[0].op = op::Div {}.into();
    let operand = |t: &Tensor| Operand::dense(t.dtype(), t.shape(), Layout::Plain);
    let error =
        trial.run(&TypedFamily, Isa::best(), &[operand(&a), operand(&b)], &[operand(&a)]).unwrap_err();
    assert!(error.to_string().contains("division by zero"), "{error}");
}

/// On dense operands, on every instruction set, to the last bit.
#[track_caller]
fn check_dense(op: impl Into<Op>, inputs: &[Input], n_outputs: usize) {
    check_near(op, inputs, n_outputs, Tolerance { relative: 0.0, absolute: 0.0 });
}

#[track_caller]
fn check_near(op: impl Into<Op>, inputs: &[Input], n_outputs: usize, tolerance: Tolerance) {
    let trial = OpTrial::new(op, inputs, n_outputs);
    let operand = |t: &Tensor| Operand::dense(t.dtype(), t.shape(), Layout::Plain);
    let from: Vec<Operand> = trial.data.iter().map(operand).collect();
    let to: Vec<Operand> = trial.want.iter().map(operand).collect();
    for isa in Isa::available() {
        let got = trial.run(&TypedFamily, isa, &from, &to).unwrap();
        for (got, want) in got.iter().zip(&trial.want) {
            let name = format!("{:?} on {isa}", trial.region.nodes[0].op);
            assert_close(got, want, tolerance, &name);
        }
    }
}

#[test]
fn reductions_and_running_sums_of_every_type() {
    let mut random = Random::new(5);
    let axes = |list: &[i64]| Input::Parameter(Tensor::vector(list.to_vec()));
    for dtype in NUMBERS {
        for dims in [vec![3, 5, 7], vec![2, 700], vec![600, 3], vec![1]] {
            // Small numbers: sums and products of floats are then exact whatever their order.
            let x = random.tensor(DType::F64, &dims, 2.0).to_f64s();
            let x: Vec<f64> = x.into_iter().map(|x| x.trunc().abs()).collect();
            let x = Input::Data(Tensor::from_f64s(dtype, &dims, &x).unwrap());
            let last = dims.len() as i64 - 1;
            for list in [vec![0], vec![last], (0..=last).collect(), vec![]] {
                let keep = (true, false);
                let inputs = [x.clone(), axes(&list)];
                check_dense(op::ReduceSum { keepdims: keep.0, noop_with_empty_axes: false }, &inputs, 1);
                check_dense(op::ReduceMax { keepdims: keep.1, noop_with_empty_axes: false }, &inputs, 1);
                check_dense(op::ReduceMin { keepdims: keep.0, noop_with_empty_axes: false }, &inputs, 1);
                if dtype.is_int() {
                    check_dense(op::ReduceProd { keepdims: keep.0, noop_with_empty_axes: false }, &inputs, 1);
                } else {
                    let l1 = op::ReduceL1 { keepdims: keep.1, noop_with_empty_axes: false };
                    check_dense(l1, &inputs, 1);
                }
            }
            for axis in [0, last] {
                for (reverse, exclusive) in [(false, false), (true, false), (false, true), (true, true)] {
                    let inputs = [x.clone(), Input::Parameter(Tensor::scalar(axis))];
                    check_dense(op::CumSum { reverse, exclusive }, &inputs, 1);
                    if dtype.is_int() {
                        check_dense(op::CumProd { reverse, exclusive }, &inputs, 1);
                    }
                }
            }
        }
    }
}

#[test]
fn updates_are_folded_in_order() {
    let mut random = Random::new(6);
    let types = [DType::F32, DType::F64, DType::I32, DType::I64, DType::U8, DType::I16];
    for (count, dtype) in types.into_iter().enumerate() {
        for reduction in
            [ScatterReduction::Add, ScatterReduction::Mul, ScatterReduction::Max, ScatterReduction::Min]
        {
            // Powers of two and small sums are exact in every float.
            let mut small = |dims: &[usize]| {
                let values = random.tensor(DType::F64, dims, 3.0).to_f64s();
                let values: Vec<f64> = values.into_iter().map(|x| x.trunc().abs().clamp(1.0, 2.0)).collect();
                Input::Data(Tensor::from_f64s(dtype, dims, &values).unwrap())
            };
            for (data, picked, axis) in [
                (vec![6, 5], vec![4, 5], 0),
                (vec![6, 5], vec![6, 9], 1),
                (vec![3, 4, 5], vec![2, 8, 3], 1),
                (vec![7], vec![40], -1),
            ] {
                let (x, updates) = (small(&data), small(&picked));
                let at = if axis < 0 { data.len() - 1 } else { axis as usize };
                let n: usize = picked.iter().product();
                let size = data[at] as i64;
                let index = |idx: usize| (idx as i64 * 7 + count as i64) % (2 * size) - size;
                let indices: Vec<i64> = (0..n).map(index).collect();
                let indices = Input::Data(Tensor::new(&picked, indices).unwrap());
                check_dense(op::ScatterElements { reduction, axis }, &[x, indices, updates], 1);
            }
            // As graph networks have it: a node for each row, repeated for every feature, but for one of the last.
            for odd in [0, 1] {
                let index = |at: usize| (at as i64 / 40 * 5) % 6 - 3 + (at as i64 + odd) / (9 * 40);
                let indices = Tensor::new(&[9, 40], (0..9 * 40).map(index).collect()).unwrap();
                let inputs = [small(&[6, 40]), Input::Data(indices), small(&[9, 40])];
                check_dense(op::ScatterElements { reduction, axis: 0 }, &inputs, 1);
            }
            let indices = Tensor::new(&[5, 1], vec![0i64, 2, -1, 2, 1]).unwrap();
            let inputs = [small(&[4, 30]), Input::Data(indices), small(&[5, 30])];
            check_dense(op::ScatterND { reduction }, &inputs, 1);
            let indices = Tensor::new(&[3, 2], vec![0i64, 2, -1, 2, 0, 2]).unwrap();
            let inputs = [small(&[4, 3]), Input::Data(indices), small(&[3])];
            check_dense(op::ScatterND { reduction }, &inputs, 1);
        }
    }
}

#[test]
fn images_are_read_at_points() {
    use planish_op::{GridSample, GridSampleMode as Mode, GridSamplePadding as Padding};
    let mut random = Random::new(19);
    let shapes = [
        (vec![2, 3, 7, 9], vec![2, 4, 5]),
        (vec![1, 1, 1, 1], vec![1, 3, 1]),
        (vec![1, 5, 2, 70], vec![1, 13, 11]),
        (vec![2, 2, 3, 4, 5], vec![2, 2, 3, 4]),
        (vec![1, 3, 6, 6], vec![1, 0, 4]),
    ];
    for (image, points) in &shapes {
        let n_axes = image.len() - 2;
        let x = random.floats(image);
        // Inside, at the borders exactly, and far outside.
        let mut grid = random.tensor(DType::F32, &[points.clone(), vec![n_axes]].concat(), 1.6);
        if !grid.is_empty() {
            let mut values = grid.elements::<f32>().unwrap().to_vec();
            let odd = [1.0, -1.0, 0.0, 7.3, -33.0, f32::NAN];
            values.iter_mut().step_by(3).zip(odd).for_each(|(to, odd)| *to = odd);
            grid = Tensor::new(grid.shape(), values).unwrap();
        }
        for mode in [Mode::Nearest, Mode::Linear, Mode::Cubic] {
            if mode == Mode::Cubic && n_axes == 3 {
                continue;
            }
            for padding_mode in [Padding::Zeros, Padding::Border, Padding::Reflection] {
                for align_corners in [false, true] {
                    let sample = OpTrial::new(
                        GridSample { align_corners, padding_mode, mode },
                        &[Input::Data(x.clone()), Input::Data(grid.clone())],
                        1,
                    );
                    let dense =
                        |tensor: &Tensor| Operand::dense(tensor.dtype(), tensor.shape(), Layout::Plain);
                    let inputs: Vec<Operand> = sample.data.iter().map(dense).collect();
                    for isa in Isa::available() {
                        let got = sample.run(&TypedFamily, isa, &inputs, &[dense(&sample.want[0])]).unwrap();
                        let what = format!("{isa} {mode:?} {padding_mode:?} {align_corners} {image:?}");
                        let near = Tolerance { relative: 1e-6, absolute: 2e-6 };
                        assert_close(&got[0], &sample.want[0], near, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn the_largest_and_where_it_was() {
    let mut random = Random::new(8);
    for (dims, kernel, strides, pads, dilations) in [
        (vec![2, 3, 9, 8], vec![2, 2], vec![2, 2], vec![], vec![]),
        (vec![1, 2, 7, 7], vec![3, 3], vec![2, 1], vec![1, 1, 1, 1], vec![]),
        (vec![1, 1, 9, 9], vec![3, 2], vec![], vec![1, 0, 1, 1], vec![2, 3]),
        (vec![1, 2, 11], vec![3], vec![2], vec![1, 1], vec![]),
        (vec![1, 1, 4, 5, 6], vec![2, 2, 2], vec![], vec![], vec![]),
        (vec![1, 1, 3, 150], vec![2, 3], vec![1, 1], vec![0, 1, 0, 1], vec![]),
        (vec![1, 1, 2, 140], vec![1, 90], vec![1, 1], vec![0, 45, 0, 45], vec![]),
    ] {
        for dtype in [DType::F32, DType::F64, DType::I8, DType::U8] {
            for storage_order in [0, 1] {
                let op = op::MaxPool {
                    storage_order,
                    dilations: dilations.clone(),
                    ceil_mode: false,
                    pads: pads.clone(),
                    auto_pad: op::AutoPad::NotSet,
                    strides: strides.clone(),
                    kernel_shape: kernel.clone(),
                };
                check_dense(op, &[Input::Data(random.tensor(dtype, &dims, 5.0))], 2);
            }
        }
    }
}

#[test]
fn triangles_reversed_sequences_and_one_hot() {
    let mut random = Random::new(9);
    for dtype in [DType::F32, DType::I64, DType::U8, DType::F16, DType::Bool] {
        for upper in [false, true] {
            for k in [-100, -2, 0, 1, 3, 100i64] {
                let x = Input::Data(random.tensor(dtype, &[2, 4, 5], 3.0));
                check_dense(op::Trilu { upper }, &[x.clone(), Input::Data(Tensor::scalar(k))], 1);
                check_dense(op::Trilu { upper }, &[x], 1);
            }
        }
        let x = Input::Data(random.tensor(dtype, &[4, 3, 2], 3.0));
        let lens = |list: Vec<i64>| Input::Data(Tensor::vector(list));
        let over_time = op::ReverseSequence { batch_axis: 1, time_axis: 0 };
        check_dense(over_time, &[x.clone(), lens(vec![4, 0, 3])], 1);
        let over_rows = op::ReverseSequence { batch_axis: 0, time_axis: 1 };
        check_dense(over_rows, &[x, lens(vec![3, 1, 2, 0])], 1);
    }
    for axis in [-1, 0, 1] {
        let indices = Input::Data(Tensor::new(&[2, 3], vec![0i64, 4, -1, 9, -5, 2]).unwrap());
        let depth = Input::Parameter(Tensor::scalar(5i64));
        let values = Input::Data(Tensor::vector(vec![0.5f32, 2.0]));
        check_dense(op::OneHot { axis }, &[indices, depth, values], 1);
    }
}

/// Sums of a transform in another order than the reference's, rounded to f32 once.
const SPECTRUM: Tolerance = Tolerance { relative: 1e-6, absolute: 1e-5 };

#[test]
fn transforms_of_any_length() {
    let mut random = Random::new(10);
    for len in [1, 2, 3, 4, 5, 7, 8, 12, 16, 30, 49, 64, 77, 101, 400] {
        for (inverse, onesided, parts) in
            [(false, false, 1), (false, false, 2), (true, false, 2), (false, true, 1)]
        {
            let x = Input::Data(random.tensor(DType::F32, &[2, len, 3, parts], 1.0));
            let axis = Input::Parameter(Tensor::scalar(1i64));
            check_near(op::DFT { inverse, onesided }, &[x, Input::Absent, axis], 1, SPECTRUM);
        }
        if len > 1 {
            let half = Input::Data(random.tensor(DType::F32, &[3, len / 2 + 1, 2], 1.0));
            let length = Input::Parameter(Tensor::scalar(len as i64));
            check_near(op::DFT { inverse: true, onesided: true }, &[half, length], 1, SPECTRUM);
        }
    }
    for (len, step) in [(16, 5), (25, 10), (64, 16)] {
        let signal = Input::Data(random.tensor(DType::F32, &[2, 200, 1], 1.0));
        let window = Input::Data(random.tensor(DType::F32, &[len], 1.0));
        let (by, of) = (Tensor::scalar(step as i64), Tensor::scalar(len as i64));
        for onesided in [true, false] {
            let inputs =
                [signal.clone(), Input::Parameter(by.clone()), window.clone(), Input::Parameter(of.clone())];
            check_near(op::STFT { onesided }, &inputs, 1, SPECTRUM);
        }
    }
}

/// Products and functions in f32, over some steps.
const RECURRENT: Tolerance = Tolerance { relative: 1e-4, absolute: 1e-5 };

#[test]
fn recurrent_layers_in_every_form() {
    let mut random = Random::new(11);
    let names = |list: &[&str], n: usize| {
        (0..n).flat_map(|_| list.iter().map(|name| name.to_string())).collect::<Vec<_>>()
    };
    for (round, direction) in
        [RecurrentDirection::Forward, RecurrentDirection::Reverse, RecurrentDirection::Bidirectional]
            .into_iter()
            .cycle()
            .take(12)
            .enumerate()
    {
        let dirs = if direction == RecurrentDirection::Bidirectional { 2 } else { 1 };
        let (seq, batch, input, hidden) = (5, 3, 4, [1, 7, 20][round % 3]);
        let layout = (round / 3 % 2) as i64;
        let clip = (round % 4 == 1).then_some(0.4);
        let lengths = match round % 3 {
            0 => Input::Data(Tensor::vector(vec![5i32, 0, 3])),
            _ => Input::Absent,
        };
        let mut of = |dims: &[usize]| Input::Data(random.tensor(DType::F32, dims, 0.5));
        let state = if layout == 1 { [batch, dirs, hidden] } else { [dirs, batch, hidden] };
        let x = of(&if layout == 1 { [batch, seq, input] } else { [seq, batch, input] });
        for n_gates in [1, 3, 4] {
            let width = n_gates * hidden;
            let (w, r, b) = (of(&[dirs, width, input]), of(&[dirs, width, hidden]), of(&[dirs, 2 * width]));
            let (h, c, p) = (of(&state), of(&state), of(&[dirs, 3 * hidden]));
            let (alpha, beta) = (Vec::new(), Vec::new());
            let op: Op = match n_gates {
                1 => op::RNN {
                    clip,
                    activation_beta: beta,
                    activation_alpha: alpha,
                    hidden_size: Some(hidden as i64),
                    layout,
                    direction,
                    activations: if round % 2 == 0 { Vec::new() } else { vec!["Relu".into(); dirs] },
                }
                .into(),
                3 => op::GRU {
                    clip,
                    activation_beta: beta,
                    activation_alpha: alpha,
                    hidden_size: Some(hidden as i64),
                    layout,
                    direction,
                    linear_before_reset: round % 2 == 0,
                    activations: Vec::new(),
                }
                .into(),
                _ => op::LSTM {
                    clip,
                    activation_beta: beta,
                    activation_alpha: alpha,
                    hidden_size: Some(hidden as i64),
                    direction,
                    input_forget: round % 4 == 3,
                    layout,
                    activations: match round % 2 {
                        0 => Vec::new(),
                        _ => names(&["HardSigmoid", "Softsign", "Tanh"], dirs),
                    },
                }
                .into(),
            };
            let mut inputs = vec![x.clone(), w, r, b, lengths.clone(), h];
            if n_gates == 4 {
                inputs.extend([c, p]);
            }
            check_near(op, &inputs, if n_gates == 4 { 3 } else { 2 }, RECURRENT);
        }
    }
}

/// Scales and zero points of a granularity: as many as `shape` says, of the quantized type.
fn grid(random: &mut Random, scale: DType, small: DType, shape: &[usize]) -> (Tensor, Tensor) {
    let n: usize = shape.iter().product();
    // Powers of two and others; E8M0 holds the former alone.
    let scales: Vec<f64> = (0..n).map(|_| 0.25 + (random.unit() * 8.0).floor() / 8.0).collect();
    let scales = match scale {
        DType::F8E8M0 => {
            Tensor::from_codes(scale, shape, (0..n).map(|at| 125 + at as u8 % 5).collect()).unwrap()
        }
        _ => Tensor::from_f64s(scale, shape, &scales).unwrap(),
    };
    let zeros: Vec<f64> = match small.int_range() {
        Some((low, high)) => {
            let (low, high) = (low.max(-30_000) as f64, high.min(30_000) as f64);
            (0..n).map(|_| (low + random.unit() * (high - low)).round()).collect()
        }
        None => vec![0.0; n],
    };
    (scales, Tensor::from_f64s(small, shape, &zeros).unwrap())
}

#[test]
fn every_type_is_quantized_and_dequantized_on_every_grid() {
    let mut random = Random::new(11);
    const SMALL: [DType; 13] = [
        DType::U8,
        DType::I8,
        DType::U16,
        DType::I16,
        DType::U4,
        DType::I4,
        DType::U2,
        DType::I2,
        DType::F8E4M3FN,
        DType::F8E4M3FNUZ,
        DType::F8E5M2,
        DType::F8E5M2FNUZ,
        DType::F4E2M1,
    ];
    // Sizes, the grid's sizes, axis and block: around a column of 256, primes, one element, none.
    let forms: [(&[usize], &[usize], i64, i64); 10] = [
        (&[], &[], 1, 0),
        (&[257], &[1], 0, 0),
        (&[0, 3], &[], 1, 0),
        (&[3, 7, 5], &[7], 1, 0),
        (&[5, 300], &[300], -1, 0),
        (&[4, 3, 67], &[4], 0, 0),
        (&[3, 10, 5], &[3, 4, 5], 1, 3),
        (&[7, 65], &[7, 5], 1, 16),
        (&[2, 1, 3], &[2, 1, 3], 1, 2),
        (&[13, 31], &[2, 31], 0, 7),
    ];
    for small in SMALL {
        for (dims, shape, axis, block_size) in forms {
            for wide in [DType::F32, DType::F16, DType::BF16, DType::I32] {
                let scale = if wide == DType::I32 { DType::F32 } else { wide };
                let (scales, zeros) = grid(&mut random, scale, small, shape);
                let mut x = random.tensor(DType::F64, dims, 40.0).to_f64s();
                // Beyond the range at either end, halves, and what is no number.
                let ends = [1e9, -1e9, 0.5, -1.5, f64::NAN, f64::INFINITY];
                let n_ends = if wide == DType::I32 { 2 } else { ends.len() };
                x.iter_mut()
                    .step_by(5)
                    .zip(ends.iter().cycle().take(n_ends * 3))
                    .for_each(|(x, end)| *x = *end);
                if wide == DType::I32 {
                    x.iter_mut().for_each(|x| *x = if x.is_finite() { x.round() } else { 7.0 });
                }
                let x = Input::Data(Tensor::from_f64s(wide, dims, &x).unwrap());
                let (scales, zeros) = (Input::Data(scales), Input::Parameter(zeros));
                for saturate in [true, false] {
                    let quantize = op::QuantizeLinear {
                        axis,
                        saturate,
                        block_size,
                        output_dtype: None,
                        precision: None,
                    };
                    check_same_bits(quantize, &[x.clone(), scales.clone(), zeros.clone()]);
                }
                let precision = Some(DType::F32);
                let output_dtype = Some(small);
                let alone = op::QuantizeLinear { axis, saturate: true, block_size, output_dtype, precision };
                check_same_bits(alone, &[x, scales, Input::Absent]);
            }
            for wide in [DType::F32, DType::F16, DType::BF16, DType::F8E8M0] {
                let (scales, zeros) = grid(&mut random, wide, small, shape);
                let x = random.tensor(DType::F64, dims, 2.0).to_f64s();
                let x = Input::Data(Tensor::from_f64s(small, dims, &x).unwrap());
                let output_dtype = (wide == DType::F8E8M0).then_some(DType::BF16);
                let dequantize = op::DequantizeLinear { axis, block_size, output_dtype };
                check_same_bits(dequantize, &[x, Input::Parameter(scales), Input::Data(zeros)]);
            }
        }
    }
    // Sums of integer products as numbers.
    let sums = Input::Data(Tensor::vector(vec![i32::MIN, -7, 0, 1 << 24, i32::MAX]));
    let dequantize = op::DequantizeLinear { axis: 0, block_size: 0, output_dtype: None };
    check_same_bits(dequantize, &[sums, Input::Parameter(Tensor::scalar(0.003f32))]);
}

/// As `check_dense`, bytes and all: NaN is the same NaN.
#[track_caller]
fn check_same_bits(op: impl Into<Op>, inputs: &[Input]) {
    let trial = OpTrial::new(op, inputs, 1);
    let operand = |t: &Tensor| Operand::dense(t.dtype(), t.shape(), Layout::Plain);
    let from: Vec<Operand> = trial.data.iter().map(operand).collect();
    let to = [operand(&trial.want[0])];
    for isa in Isa::available() {
        let got = trial.run(&TypedFamily, isa, &from, &to).unwrap();
        let same = got[0].bytes()[..] == trial.want[0].bytes()[..];
        assert!(
            same,
            "{isa} {:?} from {from:?}: {:?}, not {:?}",
            trial.region.nodes[0].op, got[0], trial.want[0]
        );
    }
}
