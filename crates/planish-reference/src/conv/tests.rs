//! Convolutions against their definitions as plain loops, and against values computed by hand.

use std::time::Instant;

use planish_op::Attribute;
use planish_tensor::{DType, Tensor};

use crate::EvalErrorKind::{BadAttribute, BadShape, BadType, BadValue, TooLarge};
use crate::nd;
use crate::testing::{counting, f32s, int_list, named, run, run_all, scattered};

/// One convolution: sizes, group and window attributes per axis.
struct Problem {
    x: Vec<usize>,
    w: Vec<usize>,
    group: usize,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    pads: Vec<i64>,
}

fn problems() -> Vec<Problem> {
    let problem =
        |x: &[usize], w: &[usize], group, strides: &[i64], dilations: &[i64], pads: &[i64]| Problem {
            x: x.to_vec(),
            w: w.to_vec(),
            group,
            strides: strides.to_vec(),
            dilations: dilations.to_vec(),
            pads: pads.to_vec(),
        };
    vec![
        problem(&[2, 3, 7], &[5, 3, 3], 1, &[2], &[1], &[1, 2]),
        problem(&[1, 1, 1], &[1, 1, 1], 1, &[1], &[1], &[0, 0]),
        problem(&[1, 6, 11], &[9, 2, 2], 3, &[3], &[4], &[5, 0]),
        problem(&[2, 4, 5, 6], &[6, 2, 3, 2], 2, &[1, 2], &[1, 2], &[0, 1, 2, 1]),
        problem(&[1, 4, 9, 17], &[4, 1, 3, 3], 4, &[1, 1], &[1, 1], &[1, 1, 1, 1]),
        problem(&[1, 2, 4, 5, 3], &[3, 2, 2, 3, 2], 1, &[1, 2, 1], &[2, 1, 1], &[1, 0, 1, 0, 2, 1]),
        problem(&[1, 3, 13, 13], &[2, 3, 1, 1], 1, &[1, 1], &[1, 1], &[0, 0, 0, 0]),
    ]
}

/// The definition: every output element is the sum over its group's channels and the taps inside the image.
fn convolve(problem: &Problem, x: &Tensor, w: &Tensor) -> Tensor {
    let n = problem.x.len() - 2;
    let out_size = |axis: usize| {
        let extent = (problem.w[axis + 2] as i64 - 1) * problem.dilations[axis] + 1;
        let room = problem.x[axis + 2] as i64 + problem.pads[axis] + problem.pads[n + axis] - extent;
        (room / problem.strides[axis] + 1) as usize
    };
    let shape: Vec<usize> = [problem.x[0], problem.w[0]].into_iter().chain((0..n).map(out_size)).collect();
    let (x, w) = (x.to_f64s(), w.to_f64s());
    let (out_per_group, in_per_group) = (problem.w[0] / problem.group, problem.w[1]);
    let element = |flat: usize| {
        let at = nd::unravel(flat, &shape);
        let group = at[1] / out_per_group;
        let mut sum = 0.0;
        for place in 0..nd::count(&problem.w[1..]) {
            let tap = nd::unravel(place, &problem.w[1..]);
            let mut source = vec![at[0], group * in_per_group + tap[0]];
            for axis in 0..n {
                let position = at[axis + 2] as i64 * problem.strides[axis] - problem.pads[axis]
                    + tap[axis + 1] as i64 * problem.dilations[axis];
                source.push(usize::try_from(position).unwrap_or(usize::MAX));
            }
            if source.iter().zip(&problem.x).all(|(at, size)| at < size) {
                sum += x[nd::ravel(&source, &problem.x)] * w[at[1] * nd::count(&problem.w[1..]) + place];
            }
        }
        sum
    };
    let values: Vec<f64> = (0..nd::count(&shape)).map(element).collect();
    Tensor::from_f64s(DType::F32, &shape, &values).unwrap()
}

fn attributes(problem: &Problem) -> Vec<(&'static str, Attribute)> {
    vec![
        ("group", Attribute::Int(problem.group as i64)),
        ("strides", int_list(&problem.strides)),
        ("dilations", int_list(&problem.dilations)),
        ("pads", int_list(&problem.pads)),
    ]
}

#[test]
fn convolution_is_its_definition() {
    for (seed, problem) in problems().iter().enumerate() {
        let x = scattered(DType::F32, &problem.x, seed as u64);
        let w = scattered(DType::F32, &problem.w, 100 + seed as u64);
        let expected = convolve(problem, &x, &w);
        assert_eq!(run(named("Conv", &attributes(problem)), &[&x, &w]).unwrap(), expected, "{:?}", problem.x);
    }
}

#[test]
fn transposed_convolution_is_the_adjoint() {
    // <conv(x), y> = <x, conv_transpose(y)> holds exactly for whole numbers, and determines the result.
    for (seed, problem) in problems().iter().enumerate() {
        let x = scattered(DType::F32, &problem.x, seed as u64);
        let w = scattered(DType::F32, &problem.w, 100 + seed as u64);
        let forward = convolve(problem, &x, &w);
        let y = scattered(DType::F32, forward.shape(), 200 + seed as u64);
        let mut attributes = attributes(problem);
        // Windows that do not reach the end of the image leave a rest that output_padding names.
        let n = problem.x.len() - 2;
        let rest: Vec<i64> = (0..n)
            .map(|axis| {
                let extent = (problem.w[axis + 2] as i64 - 1) * problem.dilations[axis] + 1;
                let covered = (forward.shape()[axis + 2] as i64 - 1) * problem.strides[axis] + extent;
                problem.x[axis + 2] as i64 + problem.pads[axis] + problem.pads[n + axis] - covered
            })
            .collect();
        attributes.push(("output_padding", int_list(&rest)));
        // The weight of the adjoint: [out, in/g, k] seen as [C, M/g, k] is the same memory.
        let back = run(named("ConvTranspose", &attributes), &[&y, &w]).unwrap();
        assert_eq!(back.shape(), x.shape());
        let dot =
            |a: &Tensor, b: &Tensor| a.to_f64s().iter().zip(b.to_f64s()).map(|(a, b)| a * b).sum::<f64>();
        assert_eq!(dot(&forward, &y), dot(&x, &back), "{:?}", problem.x);
        // One unit vector more for every element of the first image.
        for place in 0..nd::count(&problem.x[1..]).min(40) {
            let mut unit = vec![0.0; x.len()];
            unit[place] = 1.0;
            let unit = f32s(&problem.x, &unit);
            assert_eq!(dot(&convolve(problem, &unit, &w), &y), back.to_f64s()[place]);
        }
    }
}

#[test]
fn convolution_pads_biases_and_rounds() {
    let x = f32s(&[1, 1, 3], &[1.0, 2.0, 3.0]);
    let w = f32s(&[2, 1, 2], &[1.0, 10.0, 0.0, 1.0]);
    let bias = f32s(&[2], &[0.5, 100.0]);
    let upper = [("auto_pad", Attribute::Str("SAME_UPPER".into()))];
    let expected = f32s(&[1, 2, 3], &[21.5, 32.5, 3.5, 102.0, 103.0, 100.0]);
    assert_eq!(run(named("Conv", &upper), &[&x, &w, &bias]).unwrap(), expected);
    let lower = [("auto_pad", Attribute::Str("SAME_LOWER".into()))];
    assert_eq!(
        run(named("Conv", &lower), &[&x, &w]).unwrap(),
        f32s(&[1, 2, 3], &[10.0, 21.0, 32.0, 1.0, 2.0, 3.0])
    );
    // In f16 arithmetic 2048 + 1 stays 2048; the exact sum with the bias is 2050.
    let half = |shape: &[usize], values: &[f64]| Tensor::from_f64s(DType::F16, shape, values).unwrap();
    let out = run(
        named("Conv", &[]),
        &[&half(&[1, 1, 2], &[2048.0, 1.0]), &half(&[1, 1, 2], &[1.0, 1.0]), &half(&[1], &[1.0])],
    );
    assert_eq!(out.unwrap().to_f64s(), [2050.0]);
}

#[test]
fn empty_convolutions() {
    let none = |shape: &[usize]| Tensor::zeros(DType::F32, shape).unwrap();
    let bias = f32s(&[1], &[7.0]);
    assert_eq!(run(named("Conv", &[]), &[&none(&[0, 2, 5]), &none(&[3, 2, 3])]).unwrap().shape(), [0, 3, 3]);
    assert_eq!(run(named("Conv", &[]), &[&none(&[1, 2, 2]), &none(&[3, 2, 3])]).unwrap().shape(), [1, 3, 0]);
    assert_eq!(
        run(named("Conv", &[]), &[&none(&[1, 0, 3]), &none(&[1, 0, 2]), &bias]).unwrap(),
        f32s(&[1, 1, 2], &[7.0; 2])
    );
    let hollow = none(&[1, 0, 1 << 40]);
    assert_eq!(
        run(named("Conv", &[]), &[&none(&[1, 0, 1 << 40]), &hollow, &bias]).unwrap(),
        f32s(&[1, 1, 1], &[7.0])
    );
    let out = run(named("ConvTranspose", &[]), &[&none(&[1, 0, 3]), &none(&[0, 1, 2]), &bias]).unwrap();
    assert_eq!(out, f32s(&[1, 1, 4], &[7.0; 4]));
}

#[test]
fn bad_convolutions_are_refused() {
    let (x, w) = (f32s(&[1, 2, 5], &[0.0; 10]), f32s(&[3, 2, 3], &[0.0; 18]));
    for op in ["Conv", "ConvTranspose"] {
        for (name, value) in [
            ("group", Attribute::Int(0)),
            ("group", Attribute::Int(i64::MIN)),
            ("strides", int_list(&[0])),
            ("dilations", int_list(&[-1])),
            ("pads", int_list(&[1])),
            ("pads", int_list(&[-1, 0])),
            ("kernel_shape", int_list(&[4])),
        ] {
            let w = if op == "Conv" { w.clone() } else { f32s(&[2, 3, 3], &[0.0; 18]) };
            assert_eq!(
                run(named(op, &[(name, value.clone())]), &[&x, &w]),
                Err(BadAttribute),
                "{op} {name} {value:?}"
            );
        }
        assert_eq!(run(named(op, &[]), &[&x, &f32s(&[4, 4, 3], &[0.0; 48])]), Err(BadShape));
        assert_eq!(run(named(op, &[]), &[&f32s(&[2], &[0.0; 2]), &w]), Err(BadShape));
        let (wide, narrow) = (counting(DType::F64, &[3, 2, 3]), counting(DType::I32, &[3, 2, 3]));
        assert_eq!(run(named(op, &[]), &[&x, &wide]), Err(BadType));
        assert_eq!(run(named(op, &[]), &[&narrow, &narrow]), Err(BadType));
    }
    assert_eq!(run(named("Conv", &[]), &[&x, &w, &f32s(&[2], &[0.0; 2])]), Err(BadShape));
    assert_eq!(run(named("Conv", &[("pads", int_list(&[1 << 50, 0]))]), &[&x, &w]), Err(TooLarge));
    assert_eq!(run(named("Conv", &[("dilations", int_list(&[9]))]), &[&x, &w]), Err(BadShape));
}

#[test]
fn transposed_convolution_by_hand() {
    let x = f32s(&[1, 1, 2], &[1.0, 2.0]);
    let w = f32s(&[1, 2, 3], &[1.0, 10.0, 100.0, 0.0, 0.0, 1.0]);
    let strided = ("strides", int_list(&[2]));
    let out = run(named("ConvTranspose", std::slice::from_ref(&strided)), &[&x, &w]).unwrap();
    assert_eq!(out, f32s(&[1, 2, 5], &[1.0, 10.0, 102.0, 20.0, 200.0, 0.0, 0.0, 1.0, 0.0, 2.0]));
    // Five are covered; four wanted, so one is cut off at the beginning (at the end for SAME_UPPER).
    let sized = [strided.clone(), ("output_shape", int_list(&[4]))];
    let out = run(named("ConvTranspose", &sized), &[&x, &w]).unwrap();
    assert_eq!(out, f32s(&[1, 2, 4], &[10.0, 102.0, 20.0, 200.0, 0.0, 1.0, 0.0, 2.0]));
    let same = [strided.clone(), ("auto_pad", Attribute::Str("SAME_UPPER".into()))];
    let out = run(named("ConvTranspose", &same), &[&x, &w]).unwrap();
    assert_eq!(out, f32s(&[1, 2, 4], &[1.0, 10.0, 102.0, 20.0, 0.0, 0.0, 1.0, 0.0]));
    // An infinite weight meets only the elements that its tap reaches.
    let sharp = f32s(&[1, 1, 2], &[1.0, f64::INFINITY]);
    let out = run(named("ConvTranspose", &[strided]), &[&x, &sharp]).unwrap();
    assert_eq!(out, f32s(&[1, 1, 4], &[1.0, f64::INFINITY, 2.0, f64::INFINITY]));
}

#[test]
fn deformable_convolution_without_offsets_is_convolution() {
    for (seed, problem) in problems().iter().enumerate() {
        let x = scattered(DType::F32, &problem.x, seed as u64);
        let w = scattered(DType::F32, &problem.w, 100 + seed as u64);
        let expected = convolve(problem, &x, &w);
        let taps = nd::count(&problem.w[2..]);
        let n_axes = problem.x.len() - 2;
        let mut shape = expected.shape().to_vec();
        shape[1] = taps * n_axes;
        let offset = Tensor::zeros(DType::F32, &shape).unwrap();
        assert_eq!(run(named("DeformConv", &attributes(problem)), &[&x, &w, &offset]).unwrap(), expected);
    }
}

#[test]
fn deformable_convolution_interpolates_and_masks() {
    // Two channels with an offset group each, one tap; the first looks 0.25 to the right, the second 1.5 left.
    let x = f32s(&[1, 2, 3], &[0.0, 4.0, 8.0, 10.0, 20.0, 40.0]);
    let w = f32s(&[1, 2, 1], &[1.0, 1.0]);
    let offset = f32s(&[1, 2, 3], &[0.25, 0.25, 0.25, -1.5, -1.5, -1.5]);
    let mask = f32s(&[1, 2, 3], &[1.0, 1.0, 1.0, 1.0, 1.0, 0.5]);
    let bias = f32s(&[1], &[100.0]);
    let groups = [("offset_group", Attribute::Int(2))];
    let inputs = [Some(&x), Some(&w), Some(&offset), Some(&bias), Some(&mask)];
    let out = run(named("DeformConv", &groups), &inputs).unwrap();
    // Channel 0: 1, 5, 6 (the missing neighbour is zero); channel 1: 0, 5, 15/2.
    assert_eq!(out, f32s(&[1, 1, 3], &[101.0, 110.0, 113.5]));
    let lost = f32s(&[1, 2, 3], &[f64::NAN, f64::INFINITY, -1e30, 0.0, 0.0, 0.0]);
    let out = run(named("DeformConv", &groups), &[&x, &w, &lost]).unwrap();
    assert_eq!(out, f32s(&[1, 1, 3], &[10.0, 20.0, 40.0]));
    assert_eq!(run(named("DeformConv", &[]), &[&x, &w, &offset]), Err(BadShape));
    assert_eq!(
        run(named("DeformConv", &[("offset_group", Attribute::Int(3))]), &[&x, &w, &offset]),
        Err(BadShape)
    );
    assert_eq!(
        run(named("DeformConv", &[("offset_group", Attribute::Int(-1))]), &[&x, &w, &offset]),
        Err(BadAttribute)
    );
    let inputs = [Some(&x), Some(&w), Some(&offset), None, Some(&bias)];
    assert_eq!(run(named("DeformConv", &groups), &inputs), Err(BadShape));
}

#[test]
fn causal_convolution_carries_its_state() {
    let x = f32s(&[1, 2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let w = f32s(&[2, 1, 3], &[100.0, 10.0, 1.0, 0.0, 1.0, -1.0]);
    let bias = f32s(&[2], &[0.0, 0.5]);
    let out = run_all(named("CausalConvWithState", &[]), &[Some(&x), Some(&w), Some(&bias)], 2).unwrap();
    assert_eq!(out[0], f32s(&[1, 2, 3], &[1.0, 12.0, 123.0, -3.5, -0.5, -0.5]));
    assert_eq!(out[1], f32s(&[1, 2, 2], &[2.0, 3.0, 5.0, 6.0]));
    // One more step continues where the state left off, with an input shorter than the state.
    let next = f32s(&[1, 2, 1], &[4.0, 7.0]);
    let out =
        run_all(named("CausalConvWithState", &[]), &[Some(&next), Some(&w), None, Some(&out[1])], 2).unwrap();
    assert_eq!(out[0], f32s(&[1, 2, 1], &[234.0, -1.0]));
    assert_eq!(out[1], f32s(&[1, 2, 2], &[3.0, 4.0, 6.0, 7.0]));
    let silu = [("activation", Attribute::Str("silu".into()))];
    let one = f32s(&[2, 1, 1], &[0.0, 1.0]);
    let out = run(named("CausalConvWithState", &silu), &[&next, &one]).unwrap();
    assert_eq!(out, f32s(&[1, 2, 1], &[0.0, 7.0 / (1.0 + (-7f64).exp())]));
    let empty = Tensor::zeros(DType::F32, &[1, 2, 0]).unwrap();
    let out = run_all(named("CausalConvWithState", &[]), &[Some(&empty), Some(&w)], 2).unwrap();
    assert_eq!(out[1], f32s(&[1, 2, 2], &[0.0; 4]));
    assert_eq!(run(named("CausalConvWithState", &[]), &[&x, &f32s(&[2, 2, 1], &[0.0; 4])]), Err(BadShape));
    assert_eq!(run(named("CausalConvWithState", &[]), &[&x, &f32s(&[2, 1, 0], &[])]), Err(BadShape));
    assert_eq!(run(named("CausalConvWithState", &[]), &[&x, &w, &f32s(&[3], &[0.0; 3])]), Err(BadShape));
}

#[test]
fn columns_fold_into_images() {
    // Blocks of two, one apart, over an image of three: the middle is covered twice.
    let x = Tensor::new(&[1, 2, 2], vec![200u8, 2, 100, 4]).unwrap();
    let vector = |values: &[i64]| Tensor::vector(values.to_vec());
    let out = run(named("Col2Im", &[]), &[&x, &vector(&[3]), &vector(&[2])]).unwrap();
    assert_eq!(out, Tensor::new(&[1, 1, 3], vec![200u8, 102, 4]).unwrap());
    let wide = Tensor::new(&[1, 1, 4], vec![200u8; 4]).unwrap();
    let padded = [("pads", int_list(&[0, 1, 0, 0])), ("strides", int_list(&[1, 2]))];
    let out = run(named("Col2Im", &padded), &[&wide, &vector(&[2, 2]), &vector(&[1, 1])]).unwrap();
    assert_eq!(out, Tensor::new(&[1, 1, 2, 2], vec![0u8, 200, 0, 200]).unwrap());
    // Ones fold to the number of windows over each place.
    let ones = Tensor::new(&[1, 2 * 4, 4], vec![1i64; 32]).unwrap();
    let out = run(named("Col2Im", &[]), &[&ones, &vector(&[3, 3]), &vector(&[2, 2])]).unwrap();
    assert_eq!(out.to_i64s(), [1, 2, 1, 2, 4, 2, 1, 2, 1].repeat(2));
    let flags = Tensor::new(&[1, 2, 2], vec![true, false, true, false]).unwrap();
    let out = run(named("Col2Im", &[]), &[&flags, &vector(&[3]), &vector(&[2])]).unwrap();
    assert_eq!(out, Tensor::new(&[1, 1, 3], vec![true, true, false]).unwrap());
    let hollow = Tensor::zeros(DType::F32, &[1, 1 << 40, 0]).unwrap();
    let out = run(named("Col2Im", &[]), &[&hollow, &vector(&[(1 << 40) - 1]), &vector(&[1 << 40])]);
    assert_eq!(out, Err(TooLarge));
    assert_eq!(run(named("Col2Im", &[]), &[&x, &vector(&[4]), &vector(&[2])]), Err(BadShape));
    assert_eq!(run(named("Col2Im", &[]), &[&x, &vector(&[3]), &vector(&[-2])]), Err(BadValue));
    assert_eq!(run(named("Col2Im", &[]), &[&x, &vector(&[3]), &vector(&[0])]), Err(BadAttribute));
    assert_eq!(run(named("Col2Im", &[]), &[&x, &vector(&[3, 1]), &vector(&[2])]), Err(BadShape));
}

/// A guard against an accidental scalar inner loop, far above what a loaded machine needs (0.05 s idle).
const MAX_CONV_SECONDS: f64 = 5.0;

#[test]
fn a_large_convolution_is_quick() {
    let x = scattered(DType::F32, &[1, 64, 56, 56], 1);
    let w = scattered(DType::F32, &[64, 64, 3, 3], 2);
    let start = Instant::now();
    let out = run(named("Conv", &[("pads", int_list(&[1, 1, 1, 1]))]), &[&x, &w]).unwrap();
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(out.shape(), [1, 64, 56, 56]);
    assert!(seconds < MAX_CONV_SECONDS, "{seconds} s");
}
