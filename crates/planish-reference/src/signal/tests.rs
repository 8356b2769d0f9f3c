//! Transforms and windows: values that can be computed by hand, edge shapes, refusals.

use std::time::Instant;

use planish_op::Attribute;
use planish_tensor::{DType, Tensor};

use crate::EvalErrorKind::{self, BadAttribute, BadShape, BadType, BadValue, MissingInput, TooLarge};
use crate::testing::{assert_near, counting, f32s, named, run, scattered};

/// Results are rounded to f32 once, from sums of a few numbers of size 10.
const F32_ROUNDING: f64 = 1e-5;

fn dft(
    (inverse, onesided): (bool, bool),
    input: &Tensor,
    len: Option<i64>,
    axis: Option<i64>,
) -> Result<Tensor, EvalErrorKind> {
    let attributes = [("inverse", Attribute::Bool(inverse)), ("onesided", Attribute::Bool(onesided))];
    let (len, axis) = (len.map(Tensor::scalar), axis.map(Tensor::scalar));
    run(named("DFT", &attributes), &[Some(input), len.as_ref(), axis.as_ref()])
}

const FORWARD: (bool, bool) = (false, false);
const INVERSE: (bool, bool) = (true, false);
const REAL: (bool, bool) = (false, true);
const REAL_INVERSE: (bool, bool) = (true, true);

#[test]
fn four_points_by_hand() {
    // X = (1+2+3+4, (1-3) + i(4-2), 1-2+3-4, conjugate).
    let signal = f32s(&[1, 4, 1], &[1.0, 2.0, 3.0, 4.0]);
    let spectrum = dft(FORWARD, &signal, None, None).unwrap();
    assert_eq!(spectrum.shape(), [1, 4, 2]);
    assert_near(&spectrum, &[10.0, 0.0, -2.0, 2.0, -2.0, 0.0, -2.0, -2.0]);
    let half = dft(REAL, &signal, None, None).unwrap();
    assert_eq!(half.shape(), [1, 3, 2]);
    assert_near(&half, &[10.0, 0.0, -2.0, 2.0, -2.0, 0.0]);
    let back = dft(REAL_INVERSE, &half, None, None).unwrap();
    assert_eq!(back.shape(), [1, 4, 1]);
    assert_near(&back, &[1.0, 2.0, 3.0, 4.0]);
    let complex = dft(INVERSE, &spectrum, None, None).unwrap();
    assert_near(&complex, &[1.0, 0.0, 2.0, 0.0, 3.0, 0.0, 4.0, 0.0]);
}

#[test]
fn lengths_pad_and_cut() {
    let signal = f32s(&[1, 3, 1], &[1.0, 2.0, 5.0]);
    let cut = dft(FORWARD, &signal, Some(2), None).unwrap();
    assert_near(&cut, &[3.0, 0.0, -1.0, 0.0]);
    let padded = dft(REAL, &signal, Some(4), None).unwrap();
    assert_near(&padded, &[8.0, 0.0, -4.0, -2.0, 4.0, 0.0]);
    // An odd length has no middle bin of its own.
    let odd = dft(REAL, &signal, None, None).unwrap();
    assert_eq!(odd.shape(), [1, 2, 2]);
    assert_near(&dft(REAL_INVERSE, &odd, Some(3), None).unwrap(), &[1.0, 2.0, 5.0]);
    // The imaginary part of the first bin belongs to no real signal.
    let spectrum = f32s(&[1, 2, 2], &[4.0, 9.0, 0.0, 0.0]);
    assert_near(&dft(REAL_INVERSE, &spectrum, None, None).unwrap(), &[2.0, 2.0]);
}

#[test]
fn any_axis_but_the_last() {
    let signal = scattered(DType::F64, &[2, 3, 4, 1], 7);
    let last = dft(FORWARD, &signal, None, None).unwrap();
    assert_eq!(dft(FORWARD, &signal, None, Some(2)).unwrap(), last);
    assert_eq!(dft(FORWARD, &signal, None, Some(-2)).unwrap(), last);
    for axis in 0..3 {
        let spectrum = dft(FORWARD, &signal, None, Some(axis)).unwrap();
        assert_eq!(spectrum.shape(), [2, 3, 4, 2]);
        let back = dft(INVERSE, &spectrum, None, Some(axis)).unwrap().to_f64s();
        let real: Vec<f64> = back.iter().step_by(2).copied().collect();
        assert_near(&Tensor::new(&[24], real).unwrap(), &signal.to_f64s());
    }
    // Along the first axis of two points: sum and difference.
    let pair = f32s(&[2, 3, 1], &[1.0, 2.0, 3.0, 10.0, 20.0, 30.0]);
    let spectrum = dft(FORWARD, &pair, None, Some(0)).unwrap();
    assert_near(&spectrum, &[11.0, 0.0, 22.0, 0.0, 33.0, 0.0, -9.0, 0.0, -18.0, 0.0, -27.0, 0.0]);
}

#[test]
fn transforms_refuse_and_pass_edges() {
    let (real, complex) = (counting(DType::F32, &[1, 4, 1]), counting(DType::F32, &[1, 4, 2]));
    assert_eq!(dft(REAL, &complex, None, None), Err(BadShape));
    assert_eq!(dft(REAL_INVERSE, &real, None, None), Err(BadShape));
    assert_eq!(dft(FORWARD, &counting(DType::F32, &[1, 4, 3]), None, None), Err(BadShape));
    assert_eq!(dft(FORWARD, &counting(DType::I32, &[1, 4, 1]), None, None), Err(BadType));
    assert_eq!(dft(FORWARD, &counting(DType::F32, &[]), None, None), Err(BadAttribute));
    for axis in [2, -1, 3, i64::MIN] {
        assert_eq!(dft(FORWARD, &real, None, Some(axis)), Err(BadAttribute));
    }
    for len in [0, -3, i64::MIN] {
        assert_eq!(dft(FORWARD, &real, Some(len), None), Err(BadValue));
    }
    assert_eq!(dft(FORWARD, &real, Some(i64::MAX), None), Err(TooLarge));
    assert_eq!(dft(REAL_INVERSE, &counting(DType::F32, &[1, 1, 2]), None, None), Err(BadValue));
    let empty = Tensor::zeros(DType::F32, &[0, 4, 1]).unwrap();
    assert_eq!(dft(FORWARD, &empty, None, None).unwrap().shape(), [0, 4, 2]);
    let one = dft(FORWARD, &f32s(&[1, 1], &[3.0]), None, None).unwrap();
    assert_eq!(one.to_f64s(), [3.0, 0.0]);
}

#[test]
fn thousands_of_points_are_quick() {
    // A power of two, and a prime that is not summed directly.
    for len in [4096, 4099] {
        let signal = scattered(DType::F32, &[8, len, 1], 3);
        let start = Instant::now();
        let spectrum = dft(FORWARD, &signal, None, None).unwrap();
        // The first bin is the sum.
        let sum: f64 = signal.to_f64s()[..len].iter().sum();
        assert!((spectrum.to_f64s()[0] - sum).abs() < F32_ROUNDING * sum.abs().max(1.0));
        let seconds = start.elapsed().as_secs_f64();
        assert!(seconds < 2.0, "8 transforms of {len} points took {seconds} s");
    }
}

fn stft(
    onesided: bool,
    signal: &Tensor,
    step: i64,
    window: Option<&Tensor>,
    len: Option<i64>,
) -> Result<Tensor, EvalErrorKind> {
    let (step, len) = (Tensor::scalar(step), len.map(Tensor::scalar));
    let inputs = [Some(signal), Some(&step), window, len.as_ref()];
    run(named("STFT", &[("onesided", Attribute::Bool(onesided))]), &inputs)
}

#[test]
fn frames_are_transformed_one_by_one() {
    let signal = f32s(&[1, 5, 1], &[1.0, 2.0, 3.0, 4.0, 5.0]);
    let frames = stft(true, &signal, 2, None, Some(2)).unwrap();
    assert_eq!(frames.shape(), [1, 2, 2, 2]);
    assert_near(&frames, &[3.0, 0.0, -1.0, 0.0, 7.0, 0.0, -1.0, 0.0]);
    let window = f32s(&[2], &[1.0, 0.5]);
    let weighted = stft(false, &signal, 3, Some(&window), None).unwrap();
    assert_near(&weighted, &[2.0, 0.0, 0.0, 0.0, 6.5, 0.0, 1.5, 0.0]);
    // Without length or window the whole signal is one frame.
    assert_eq!(stft(true, &signal, 1, None, None).unwrap().shape(), [1, 1, 3, 2]);
    let complex = counting(DType::F32, &[2, 4, 2]);
    assert_eq!(stft(false, &complex, 1, None, Some(3)).unwrap().shape(), [2, 2, 3, 2]);
    assert_eq!(stft(true, &signal, 0, None, Some(2)), Err(BadValue));
    assert_eq!(stft(true, &signal, 1, None, Some(6)), Err(BadShape));
    assert_eq!(stft(true, &signal, 1, None, Some(-1)), Err(BadValue));
    assert_eq!(stft(true, &signal, 1, Some(&window), Some(3)), Err(BadShape));
    assert_eq!(stft(true, &signal, 1, Some(&counting(DType::F32, &[2, 1])), None), Err(BadShape));
    assert_eq!(stft(true, &counting(DType::F32, &[5, 1]), 1, None, None), Err(BadShape));
    assert_eq!(run(named("STFT", &[]), &[&signal]), Err(MissingInput));
}

#[test]
fn windows_by_hand() {
    let window = |name: &str, periodic: bool, size: i64| {
        run(named(name, &[("periodic", Attribute::Bool(periodic))]), &[&Tensor::scalar(size)])
    };
    assert_near(&window("HannWindow", true, 4).unwrap(), &[0.0, 0.5, 1.0, 0.5]);
    assert_near(&window("HannWindow", false, 5).unwrap(), &[0.0, 0.5, 1.0, 0.5, 0.0]);
    let edge = 25.0 / 46.0 - 21.0 / 46.0;
    assert_near(&window("HammingWindow", false, 3).unwrap(), &[edge, 1.0, edge]);
    assert_near(&window("BlackmanWindow", false, 3).unwrap(), &[0.0, 1.0, 0.0]);
    assert_near(&window("BlackmanWindow", true, 4).unwrap(), &[0.0, 0.34, 1.0, 0.34]);
    assert_eq!(window("HannWindow", true, 0).unwrap().shape(), [0]);
    assert!(window("HannWindow", false, 1).unwrap().to_f64s()[0].is_nan());
    assert_eq!(window("HannWindow", true, -1), Err(BadValue));
    assert_eq!(window("HannWindow", true, i64::MAX), Err(TooLarge));
    let whole = [("output_datatype", Attribute::DType(DType::I32))];
    let whole = run(named("HannWindow", &whole), &[&Tensor::scalar(8i64)]).unwrap();
    assert_eq!(whole.to_i64s(), [0, 0, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn mel_bands_are_triangles() {
    let weights = |bands: i64, len: i64, rate: i64, lower: f32, upper: f32| {
        let numbers = [bands, len, rate].map(Tensor::scalar);
        let [lower, upper] = [lower, upper].map(Tensor::scalar);
        run(named("MelWeightMatrix", &[]), &[&numbers[0], &numbers[1], &numbers[2], &lower, &upper])
    };
    let matrix = weights(8, 16, 8192, 0.0, 4096.0).unwrap();
    assert_eq!(matrix.shape(), [9, 8]);
    let values = matrix.to_f64s();
    for band in 0..8 {
        let column: Vec<f64> = values.iter().skip(band).step_by(8).copied().collect();
        let peak = column.iter().copied().fold(0.0, f64::max);
        assert_eq!(peak, 1.0, "band {band}: {column:?}");
    }
    assert_eq!(weights(0, 16, 8192, 0.0, 4096.0).unwrap().shape(), [9, 0]);
    assert_eq!(weights(4, 8, 100, 0.0, 120.0), Err(BadValue));
    assert_eq!(weights(4, 8, 100, -800.0, 40.0), Err(BadValue));
    assert_eq!(weights(4, 0, 100, 0.0, 40.0), Err(BadValue));
    assert_eq!(weights(-4, 8, 100, 0.0, 40.0), Err(BadValue));
    assert_eq!(weights(i64::MAX, 8, 100, 0.0, 40.0), Err(TooLarge));
}
