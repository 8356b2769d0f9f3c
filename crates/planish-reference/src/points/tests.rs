//! Every specially handled operator, on problems of many shapes: each point alone is what the whole has
//! there, to the last bit.

use planish_op::*;
use planish_tensor::{DType, Tensor};
use planish_testing::Random;

use super::{cut, evaluate_at};
use crate::testing::{int_list, named};
use crate::{EvalErrorKind, Evaluation, evaluate, nd};

/// Numbers in no order between -3 and 3, fractions among them so that the order of sums shows.
fn scattered(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    Random::new(seed).made(dtype, shape, |random| random.unit() * 6.0 - 3.0)
}

fn f32s(shape: &[usize], seed: u64) -> Option<Tensor> {
    Some(scattered(DType::F32, shape, seed))
}

fn ints(values: &[i64]) -> Option<Tensor> {
    Some(Tensor::vector(values.to_vec()))
}

/// Compares every point of every output, and asks that `n_cut` of the outputs are found by cutting.
#[track_caller]
fn check(op: impl Into<Op>, inputs: &[Option<Tensor>], n_outputs: usize, n_cut: usize) {
    let op = op.into();
    let values: Vec<Option<Value>> = inputs.iter().map(|input| input.clone().map(Value::Tensor)).collect();
    let inputs: Vec<Option<&Value>> = values.iter().map(Option::as_ref).collect();
    let whole = evaluate(&op, &inputs, n_outputs).unwrap();
    assert_eq!(whole.len(), n_outputs);
    for (output, value) in whole.iter().enumerate() {
        let tensor = value.as_tensor().unwrap();
        let points: Vec<Vec<usize>> =
            (0..tensor.len()).map(|flat| nd::unravel(flat, tensor.shape())).collect();
        let found = evaluate_at(&op, &inputs, n_outputs, output, &points).unwrap();
        for (point, (found, expected)) in points.iter().zip(found.iter().zip(tensor.to_f64s())) {
            let same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
            assert!(same, "{op:?} output {output} at {point:?}: {found:?} alone, {expected:?} in the whole");
        }
        let cx = Evaluation::new(op.name(), &inputs, n_outputs);
        let is_cut = points.iter().all(|point| cut(&op, &cx, output, point).is_some());
        assert_eq!(is_cut, output < n_cut || points.is_empty(), "{op:?} output {output}");
    }
}

/// Like [`check`] with one output, which is found by cutting.
#[track_caller]
fn check_cut(op: impl Into<Op>, inputs: &[Option<Tensor>]) {
    check(op, inputs, 1, 1);
}

fn int(value: i64) -> Attribute {
    Attribute::Int(value)
}

#[test]
fn elementwise_operators() {
    for name in
        ["Abs", "Neg", "Sigmoid", "Relu", "Gelu", "Erf", "Softplus", "Round", "IsNaN", "Identity", "Selu"]
    {
        for shape in [&[][..], &[3, 1, 5], &[0, 2]] {
            check_cut(named(name, &[]), &[f32s(shape, 1)]);
        }
    }
    for name in ["Add", "Sub", "Mul", "Div", "Pow", "Less", "Equal", "PRelu"] {
        check_cut(named(name, &[]), &[f32s(&[2, 3, 4], 1), f32s(&[3, 1], 2)]);
        check_cut(named(name, &[]), &[f32s(&[4], 1), f32s(&[], 2)]);
    }
    for name in ["Min", "Max", "Sum", "Mean"] {
        check_cut(named(name, &[]), &[f32s(&[2, 1, 4], 1), f32s(&[3, 1], 2), f32s(&[1], 3)]);
    }
    let condition = Some(scattered(DType::Bool, &[3, 1], 1));
    for dtype in [DType::F32, DType::I4, DType::U2, DType::I64] {
        let (x, y) = (scattered(dtype, &[2, 1, 4], 2), scattered(dtype, &[4], 3));
        check_cut(Where {}, &[condition.clone(), Some(x), Some(y)]);
    }
    check_cut(Clip {}, &[f32s(&[3, 4], 1), Some(Tensor::scalar(-1f32)), None]);
    check_cut(Clip {}, &[f32s(&[3, 4], 1), None, Some(Tensor::scalar(1f32))]);
    check_cut(named("Mod", &[("fmod", Attribute::Bool(true))]), &[f32s(&[3, 4], 1), f32s(&[3, 1], 2)]);
    check_cut(named("Cast", &[("to", Attribute::DType(DType::I8))]), &[f32s(&[3, 4], 1)]);
}

#[test]
fn products() {
    let shapes: [(&[usize], &[usize]); 8] = [
        (&[3, 5], &[5, 4]),
        (&[5], &[5]),
        (&[5], &[2, 5, 3]),
        (&[2, 3, 5], &[5]),
        (&[2, 1, 3, 5], &[4, 5, 2]),
        (&[1, 3, 5], &[4, 5, 2]),
        (&[3, 0], &[0, 2]),
        (&[2, 3, 37], &[2, 37, 1]),
    ];
    for (a, b) in shapes {
        for dtype in [DType::F32, DType::F16, DType::I32] {
            check_cut(MatMul {}, &[Some(scattered(dtype, a, 1)), Some(scattered(dtype, b, 2))]);
        }
        let (a8, b8) = (scattered(DType::U8, a, 1), scattered(DType::I8, b, 2));
        let (a_zero, b_zero) = (Tensor::scalar(2u8), Tensor::scalar(-1i8));
        check_cut(MatMulInteger {}, &[Some(a8), Some(b8), Some(a_zero), Some(b_zero)]);
    }
    for (trans_a, trans_b) in [(false, false), (true, false), (false, true), (true, true)] {
        let gemm = Gemm { alpha: 0.7, beta: 1.3, trans_a, trans_b };
        let a = f32s(if trans_a { &[6, 3] } else { &[3, 6] }, 1);
        let b = f32s(if trans_b { &[5, 6] } else { &[6, 5] }, 2);
        check_cut(gemm.clone(), &[a.clone(), b.clone()]);
        for c in [&[][..], &[5], &[3, 1], &[1, 5], &[3, 5]] {
            check_cut(gemm.clone(), &[a.clone(), b.clone(), f32s(c, 3)]);
        }
    }
}

#[test]
fn quantized_products() {
    let positive = |shape: &[usize], seed| {
        let values: Vec<f64> =
            scattered(DType::F64, shape, seed).to_f64s().iter().map(|v| v.abs() + 0.1).collect();
        Some(Tensor::from_f64s(DType::F32, shape, &values).unwrap())
    };
    let u8s = |shape: &[usize], seed| Some(scattered(DType::U8, shape, seed));
    let i8s = |shape: &[usize], seed| Some(scattered(DType::I8, shape, seed));
    let (a, b) = (i8s(&[2, 3, 6], 1), i8s(&[2, 6, 4], 2));
    let y = [positive(&[], 7), u8s(&[], 8)];
    for (left, right) in [(&[][..], &[][..]), (&[3], &[4]), (&[2, 3, 1], &[2, 1, 4]), (&[1], &[1, 1, 4])] {
        let inputs = [
            a.clone(),
            positive(left, 3),
            i8s(left, 4),
            b.clone(),
            positive(right, 5),
            i8s(right, 6),
            y[0].clone(),
            y[1].clone(),
        ];
        check_cut(QLinearMatMul {}, &inputs);
        check_cut(MatMulInteger {}, &[a.clone(), b.clone(), i8s(left, 4), i8s(right, 6)]);
    }
    // Per channel of a convolution in two groups.
    let (x, w) = (u8s(&[2, 4, 5, 6], 1), i8s(&[6, 2, 3, 2], 2));
    let attributes = [("group", int(2)), ("pads", int_list(&[1, 0, 1, 2])), ("strides", int_list(&[2, 1]))];
    for channels in [&[][..], &[6]] {
        let inputs = [
            x.clone(),
            positive(&[], 3),
            u8s(&[], 4),
            w.clone(),
            positive(channels, 5),
            i8s(channels, 6),
            positive(&[], 7),
            u8s(&[], 8),
            Some(scattered(DType::I32, &[6], 9)),
        ];
        check_cut(named("QLinearConv", &attributes), &inputs);
        let inputs = [x.clone(), w.clone(), u8s(&[], 4), i8s(channels, 6)];
        check_cut(named("ConvInteger", &attributes), &inputs);
    }
}

/// The shapes of an input and a weight, and attributes.
type Case = (&'static [usize], &'static [usize], Vec<(&'static str, Attribute)>);

#[test]
fn convolutions() {
    let auto = |word: &str| Attribute::Str(word.into());
    let cases: [Case; 8] = [
        (&[2, 3, 7], &[4, 3, 3], vec![]),
        (&[2, 4, 6, 5], &[6, 2, 3, 2], vec![("group", int(2)), ("pads", int_list(&[2, 1, 0, 3]))]),
        (&[1, 4, 6, 6], &[4, 1, 3, 3], vec![("group", int(4)), ("auto_pad", auto("SAME_UPPER"))]),
        (
            &[1, 2, 9, 8],
            &[3, 2, 2, 3],
            vec![("dilations", int_list(&[3, 2])), ("strides", int_list(&[2, 3]))],
        ),
        (
            &[1, 2, 8, 8],
            &[3, 2, 3, 3],
            vec![("auto_pad", auto("SAME_LOWER")), ("strides", int_list(&[2, 2]))],
        ),
        (&[1, 2, 3, 4, 5], &[2, 2, 2, 2, 2], vec![("pads", int_list(&[1, 1, 1, 1, 1, 1]))]),
        // Windows in nothing but padding.
        (&[1, 2, 2], &[3, 2, 2], vec![("pads", int_list(&[4, 5]))]),
        (&[0, 2, 5], &[3, 2, 2], vec![]),
    ];
    for (x, w, attributes) in cases {
        for dtype in [DType::F32, DType::BF16] {
            let (x, n_out) = (Some(scattered(dtype, x, 1)), w[0]);
            let (w, bias) = (Some(scattered(dtype, w, 2)), Some(scattered(dtype, &[n_out], 3)));
            check_cut(named("Conv", &attributes), &[x.clone(), w.clone()]);
            check_cut(named("Conv", &attributes), &[x, w, bias]);
        }
    }
}

#[test]
fn transposed_convolutions() {
    let cases: [Case; 5] = [
        (&[2, 3, 4], &[3, 2, 3], vec![]),
        (
            &[2, 4, 3, 4],
            &[4, 3, 3, 3],
            vec![("group", int(2)), ("strides", int_list(&[2, 2])), ("pads", int_list(&[1, 1, 1, 1]))],
        ),
        (
            &[1, 2, 5, 3],
            &[2, 2, 3, 4],
            vec![
                ("strides", int_list(&[2, 1])),
                ("dilations", int_list(&[1, 2])),
                ("pads", int_list(&[2, 0, 1, 3])),
                ("output_padding", int_list(&[1, 0])),
            ],
        ),
        (
            &[1, 2, 3, 3],
            &[2, 2, 3, 3],
            vec![("strides", int_list(&[3, 2])), ("output_shape", int_list(&[8, 6]))],
        ),
        (&[1, 2, 2, 3, 2], &[2, 1, 2, 2, 3], vec![("pads", int_list(&[1, 0, 1, 0, 1, 1]))]),
    ];
    for (x, w, attributes) in cases {
        let n_out = w[1] * if x[1] == 4 { 2 } else { 1 };
        check_cut(named("ConvTranspose", &attributes), &[f32s(x, 1), f32s(w, 2)]);
        check_cut(named("ConvTranspose", &attributes), &[f32s(x, 1), f32s(w, 2), f32s(&[n_out], 3)]);
    }
    // A stride that must not become memory.
    let far = named("ConvTranspose", &[("strides", int_list(&[1 << 50]))]);
    check_cut(far, &[f32s(&[1, 1, 1], 1), f32s(&[1, 1, 2], 2)]);
    // Strides beyond the kernel leave places that no input reaches; those come from the whole.
    let sparse = named("ConvTranspose", &[("strides", int_list(&[4])), ("output_padding", int_list(&[3]))]);
    check(sparse, &[f32s(&[1, 1, 3], 1), f32s(&[1, 1, 2], 2), f32s(&[1], 3)], 1, 0);
}

#[test]
fn pools() {
    let attributes = [
        ("kernel_shape", int_list(&[3, 2])),
        ("strides", int_list(&[2, 1])),
        ("pads", int_list(&[1, 0, 1, 1])),
        ("ceil_mode", Attribute::Bool(true)),
    ];
    let x = f32s(&[2, 3, 6, 5], 1);
    for name in ["AveragePool", "LpPool"] {
        check_cut(named(name, &attributes), std::slice::from_ref(&x));
    }
    check(named("MaxPool", &attributes), std::slice::from_ref(&x), 2, 1);
    for name in ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"] {
        check_cut(named(name, &[]), std::slice::from_ref(&x));
        check_cut(named(name, &[]), &[f32s(&[2, 3, 7], 2)]);
    }
}

#[test]
fn reductions() {
    let names = [
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
    ];
    for name in names {
        for keepdims in [true, false] {
            let reduce = |noop| {
                named(
                    name,
                    &[
                        ("keepdims", Attribute::Bool(keepdims)),
                        ("noop_with_empty_axes", Attribute::Bool(noop)),
                    ],
                )
            };
            let x = f32s(&[3, 4, 5], 1);
            for axes in [&[1][..], &[-1, 0], &[0, 1, 2]] {
                check_cut(reduce(false), &[x.clone(), ints(axes)]);
            }
            check_cut(reduce(false), std::slice::from_ref(&x));
            check_cut(reduce(true), std::slice::from_ref(&x));
            check_cut(reduce(false), &[f32s(&[], 1)]);
            check_cut(reduce(false), &[Some(scattered(DType::I64, &[3, 4], 2)), ints(&[0])]);
            check_cut(reduce(false), &[f32s(&[3, 0], 1), ints(&[1])]);
        }
    }
    for name in ["ArgMax", "ArgMin"] {
        for keepdims in [true, false] {
            let arg = named(name, &[("axis", int(-2)), ("keepdims", Attribute::Bool(keepdims))]);
            check_cut(arg, &[f32s(&[3, 4, 5], 1)]);
        }
    }
}

#[test]
fn lines() {
    let x = f32s(&[3, 4, 5], 1);
    for axis in [-1, 0, 1] {
        for name in ["Softmax", "LogSoftmax", "Hardmax", "LpNormalization"] {
            check_cut(named(name, &[("axis", int(axis))]), std::slice::from_ref(&x));
        }
        for name in ["CumSum", "CumProd"] {
            for reverse in [true, false] {
                let scan = named(name, &[("reverse", Attribute::Bool(reverse))]);
                check_cut(scan, &[x.clone(), Some(Tensor::scalar(axis))]);
            }
        }
    }
    check_cut(named("LRN", &[("size", int(3))]), &[f32s(&[2, 6, 3, 2], 1)]);
    for axes in [&[0, 2, 3][..], &[1], &[]] {
        check_cut(named("MeanVarianceNormalization", &[("axes", int_list(axes))]), &[f32s(&[2, 3, 4, 2], 1)]);
    }
}

#[test]
fn normalizations() {
    let x = f32s(&[2, 4, 3, 5], 1);
    for (axis, scale) in [(-1, &[5][..]), (1, &[4, 3, 5]), (2, &[4, 3, 1]), (-2, &[2, 1, 1, 5]), (0, &[])] {
        let attributes = [("axis", int(axis))];
        let inputs = [x.clone(), f32s(scale, 2), f32s(&[5], 3)];
        check(named("LayerNormalization", &attributes), &inputs, 3, 3);
        check_cut(named("LayerNormalization", &attributes), &inputs[..2]);
        check_cut(named("RMSNormalization", &attributes), &inputs[..2]);
    }
    let channel = |seed| f32s(&[4], seed);
    let variance = scattered(DType::F64, &[4], 5).to_f64s().iter().map(|v| v * v).collect::<Vec<_>>();
    let variance = Some(Tensor::from_f64s(DType::F32, &[4], &variance).unwrap());
    let batch = [x.clone(), channel(2), channel(3), channel(4), variance];
    check_cut(named("BatchNormalization", &[]), &batch);
    let training = named("BatchNormalization", &[("training_mode", Attribute::Bool(true))]);
    check(training, &batch, 3, 0);
    let one = |seed| f32s(&[1], seed);
    let vector = [f32s(&[6], 1), one(2), one(3), one(4), Some(Tensor::vector(vec![0.5f32]))];
    check_cut(named("BatchNormalization", &[]), &vector);
    check_cut(named("InstanceNormalization", &[]), &batch[..3]);
    for num_groups in [1, 2, 4] {
        check_cut(named("GroupNormalization", &[("num_groups", int(num_groups))]), &batch[..3]);
    }
}

#[test]
fn the_rest_is_picked_from_the_whole() {
    let x = f32s(&[3, 4], 1);
    check(named("Transpose", &[]), std::slice::from_ref(&x), 1, 0);
    check(
        named("Einsum", &[("equation", Attribute::Str("ij,kj->ik".into()))]),
        &[x.clone(), f32s(&[2, 4], 2)],
        1,
        0,
    );
    let k = Some(Tensor::vector(vec![2i64]));
    check(named("TopK", &[]), &[x, k], 2, 0);
}

#[test]
fn bad_points_and_inputs_are_refused() {
    let (a, b) =
        (Value::from(scattered(DType::F32, &[3, 5], 1)), Value::from(scattered(DType::F32, &[5, 4], 2)));
    let at = |op: Op, inputs: &[&Value], output: usize, point: &[usize]| {
        let inputs: Vec<Option<&Value>> = inputs.iter().copied().map(Some).collect();
        evaluate_at(&op, &inputs, 1, output, &[point.to_vec()]).map_err(|error| error.kind())
    };
    let bad = Err(EvalErrorKind::BadValue);
    for point in [&[3, 0][..], &[0, 4], &[0], &[0, 0, 0], &[usize::MAX, 0]] {
        assert_eq!(at(MatMul {}.into(), &[&a, &b], 0, point), bad);
    }
    for point in [&[5, 0][..], &[0, 3], &[0]] {
        assert_eq!(at(named("Transpose", &[]), &[&a], 0, point), bad);
    }
    for point in [&[3, 0][..], &[0, 5], &[], &[usize::MAX, 0]] {
        assert_eq!(at(Relu {}.into(), &[&a], 0, point), bad);
        assert_eq!(at(named("Softmax", &[]), &[&a], 0, point), bad);
    }
    assert_eq!(at(named("ReduceSum", &[]), &[&a], 0, &[0, 1]), bad);
    assert_eq!(at(named("ReduceSum", &[]), &[&a], 0, &[0]), bad);
    assert_eq!(at(Relu {}.into(), &[&a], 1, &[0, 0]), bad);
    assert_eq!(at(Add {}.into(), &[&a, &b], 0, &[0, 0]), Err(EvalErrorKind::BadShape));
    assert_eq!(at(MatMul {}.into(), &[&a, &a], 0, &[0, 0]), Err(EvalErrorKind::BadShape));
    assert_eq!(at(named("Conv", &[]), &[&a, &b], 0, &[0, 0]), Err(EvalErrorKind::BadShape));
    assert_eq!(
        at(named("MaxPool", &[("kernel_shape", int_list(&[2]))]), &[&a], 0, &[0, 0]),
        Err(EvalErrorKind::BadShape)
    );
    assert_eq!(at(Add {}.into(), &[&a], 0, &[0, 0]), Err(EvalErrorKind::MissingInput));
    // What does not fit the whole is refused even where a cut of it would fit.
    let tensor = |shape: &[usize]| Value::from(scattered(DType::F32, shape, 3));
    type Misfit = (Op, &'static [&'static [usize]], &'static [usize]);
    let refused: [Misfit; 6] = [
        (MatMul {}.into(), &[&[3, 5], &[6, 4]], &[0, 0]),
        (named("Gemm", &[]), &[&[3, 5], &[6, 4]], &[0, 0]),
        (named("Gemm", &[]), &[&[3, 5], &[5, 4], &[6]], &[0, 0]),
        (named("Conv", &[]), &[&[1, 2, 5], &[3, 2, 2], &[4]], &[0, 0, 0]),
        (named("ConvTranspose", &[]), &[&[1, 2, 5], &[3, 2, 2]], &[0, 0, 0]),
        (named("LayerNormalization", &[]), &[&[2, 5], &[6]], &[0, 0]),
    ];
    for (op, shapes, point) in refused {
        let inputs: Vec<Value> = shapes.iter().map(|shape| tensor(shape)).collect();
        let inputs: Vec<&Value> = inputs.iter().collect();
        assert_eq!(at(op.clone(), &inputs, 0, point), Err(EvalErrorKind::BadShape), "{op:?}");
    }
    let image = Value::from(scattered(DType::F32, &[1, 2, 6], 1));
    let pool = || named("MaxPool", &[("kernel_shape", int_list(&[2]))]);
    assert!(at(pool(), &[&image], 0, &[0, 1, 4]).is_ok());
    for point in [[0, 1, 5], [0, 2, 0], [1, 0, 0]] {
        assert_eq!(at(pool(), &[&image], 0, &point), bad);
    }
    let sequence = Value::Sequence(vec![a.clone()]);
    assert_eq!(at(Identity {}.into(), &[&sequence], 0, &[0, 0]), bad);
    assert_eq!(evaluate_at(&Relu {}.into(), &[Some(&a)], 1, 0, &[]), Ok(vec![]));
}
