//! Random numbers: distributions as far as moments show, independence of everything but the seed, refusals.

use planish_op::Attribute;
use planish_tensor::{DType, Tensor};

use crate::EvalErrorKind::{BadShape, BadType, BadValue, TooLarge};
use crate::testing::{NO_INPUTS, counting, f32s, int_list, named, run, run_all};

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Draws per test, and how far their mean may be from the expected one: with a deviation of at most 1, six
/// standard errors. The numbers are the same in every run, so that the test passes always or never.
const N_DRAWS: usize = 100_000;
const SIX_ERRORS: f64 = 0.019;

#[test]
fn normal_numbers_have_their_moments() {
    let attributes = [
        ("shape", int_list(&[N_DRAWS as i64])),
        ("dtype", Attribute::DType(DType::F64)),
        ("mean", Attribute::Float(3.0)),
        ("scale", Attribute::Float(0.5)),
    ];
    let values = run(named("RandomNormal", &attributes), NO_INPUTS).unwrap().to_f64s();
    let standard: Vec<f64> = values.iter().map(|value| (value - 3.0) / 0.5).collect();
    assert!(mean(&standard).abs() < SIX_ERRORS);
    // The variance of squares is 2, of fourth powers 96; the mean of the latter is 3.
    let squares: Vec<f64> = standard.iter().map(|value| value * value).collect();
    assert!((mean(&squares) - 1.0).abs() < SIX_ERRORS * 2f64.sqrt());
    let fourths: Vec<f64> = squares.iter().map(|value| value * value).collect();
    assert!((mean(&fourths) - 3.0).abs() < SIX_ERRORS * 96f64.sqrt());
    // Neighbours are not correlated.
    let products: Vec<f64> = standard.windows(2).map(|pair| pair[0] * pair[1]).collect();
    assert!(mean(&products).abs() < SIX_ERRORS);
}

#[test]
fn uniform_numbers_stay_in_their_range() {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        let attributes = [
            ("dtype", Attribute::DType(dtype)),
            ("low", Attribute::Float(-1.0)),
            ("high", Attribute::Float(1.0)),
        ];
        let like = Tensor::zeros(DType::I32, &[N_DRAWS]).unwrap();
        let output = run(named("RandomUniformLike", &attributes), &[&like]).unwrap();
        assert_eq!(output.dtype(), dtype);
        let values = output.to_f64s();
        assert!(values.iter().all(|value| (-1.0..1.0).contains(value)), "{dtype}");
        // bf16 has 8 bits, so that the mean of multiples of 2^-8 in [0, 1) lies 2^-9 below a half.
        assert!(mean(&values).abs() < SIX_ERRORS + 2f64.powi(-8), "{dtype}");
    }
}

#[test]
fn numbers_depend_on_the_seed_alone() {
    let draw = |seed: Option<f32>, len: i64| {
        let mut attributes = vec![("shape", int_list(&[len]))];
        attributes.extend(seed.map(|seed| ("seed", Attribute::Float(seed))));
        run(named("RandomUniform", &attributes), NO_INPUTS).unwrap().to_f64s()
    };
    assert_eq!(draw(Some(5.0), 100), draw(Some(5.0), 100));
    assert_ne!(draw(Some(5.0), 100), draw(Some(6.0), 100));
    assert_eq!(draw(None, 100), draw(None, 100));
    // A longer output begins as a shorter one does: no number depends on how the work is shared out.
    assert_eq!(draw(Some(5.0), 300_000)[..100], draw(Some(5.0), 100));
    // Pinned, so that a change of the generator is a decision.
    let first: Vec<f32> = draw(Some(5.0), 3).into_iter().map(|value| value as f32).collect();
    assert_eq!(first, PINNED);
}

const PINNED: [f32; 3] = [0.516_262_23, 0.307_560_1, 0.291_056_22];

#[test]
fn coins_fall_as_often_as_asked() {
    let chances = f32s(&[3], &[0.0, 1.0, 0.25]);
    let wide = Tensor::new(&[N_DRAWS], vec![0.25f32; N_DRAWS]).unwrap();
    let as_bool = [("dtype", Attribute::DType(DType::Bool))];
    let output = run(named("Bernoulli", &as_bool), &[&wide]).unwrap();
    assert_eq!(output.dtype(), DType::Bool);
    assert!((mean(&output.to_f64s()) - 0.25).abs() < SIX_ERRORS);
    for seed in 0..20 {
        let seed = [("seed", Attribute::Float(seed as f32))];
        let output = run(named("Bernoulli", &seed), &[&chances]).unwrap();
        assert_eq!(output.dtype(), DType::F32);
        assert_eq!(output.to_f64s()[..2], [0.0, 1.0]);
    }
    assert_eq!(run(named("Bernoulli", &[]), &[&counting(DType::I32, &[2])]), Err(BadType));
}

#[test]
fn classes_are_drawn_by_their_weights() {
    let size = [("sample_size", Attribute::Int(N_DRAWS as i64)), ("dtype", Attribute::DType(DType::I64))];
    // Weights 1, 3 and 0, and a row that leaves no choice.
    let logits = f32s(&[2, 3], &[0.0, 3f64.ln(), f64::NEG_INFINITY, f64::NEG_INFINITY, 1000.0, 0.0]);
    let output = run(named("Multinomial", &size), &[&logits]).unwrap();
    assert_eq!(output.shape(), [2, N_DRAWS]);
    let values = output.to_f64s();
    assert!(values[..N_DRAWS].iter().all(|&class| class < 2.0));
    assert!((mean(&values[..N_DRAWS]) - 0.75).abs() < SIX_ERRORS);
    assert!(values[N_DRAWS..].iter().all(|&class| class == 1.0));
    assert_eq!(run(named("Multinomial", &[]), &[&f32s(&[1, 2], &[f64::NAN, 0.0])]), Err(BadValue));
    assert_eq!(run(named("Multinomial", &[]), &[&f32s(&[1, 1], &[f64::NEG_INFINITY])]), Err(BadValue));
    assert_eq!(run(named("Multinomial", &[]), &[&f32s(&[1, 0], &[])]), Err(BadShape));
    assert_eq!(run(named("Multinomial", &[]), &[&f32s(&[2], &[0.0, 0.0])]), Err(BadShape));
    let negative = [("sample_size", Attribute::Int(-1))];
    assert_eq!(run(named("Multinomial", &negative), &[&logits]), Err(BadValue));
}

#[test]
fn dropout_drops_only_in_training() {
    let data = Tensor::new(&[N_DRAWS], vec![2.0f32; N_DRAWS]).unwrap();
    let dropout = |ratio: Option<f32>, training: bool, seed: i64| {
        let (ratio, training) = (ratio.map(Tensor::scalar), Tensor::scalar(training));
        let inputs = [Some(&data), ratio.as_ref(), Some(&training)];
        run_all(named("Dropout", &[("seed", Attribute::Int(seed))]), &inputs, 2)
    };
    let [output, mask] = <[Tensor; 2]>::try_from(dropout(Some(0.75), true, 1).unwrap()).unwrap();
    assert_eq!(mask.dtype(), DType::Bool);
    assert!((mean(&mask.to_f64s()) - 0.25).abs() < SIX_ERRORS);
    // What is kept is scaled by 1 / (1 - 0.75).
    let kept: Vec<f64> = mask.to_f64s().iter().map(|kept| kept * 8.0).collect();
    assert_eq!(output.to_f64s(), kept);
    assert_ne!(dropout(Some(0.75), true, 2).unwrap()[1], mask);
    for (ratio, training) in [(Some(0.75), false), (None, false), (Some(0.0), true)] {
        let outputs = dropout(ratio, training, 1).unwrap();
        assert_eq!(outputs[0], data);
        assert!(outputs[1].to_i64s().iter().all(|&kept| kept == 1));
    }
    for ratio in [1.0, -0.5, f32::NAN] {
        assert_eq!(dropout(Some(ratio), true, 1), Err(BadValue));
    }
    assert_eq!(run_all(named("Dropout", &[]), &[&data], 1), Ok(vec![data]));
}

#[test]
fn shapes_and_types_are_checked() {
    let normal = |shape: &[i64], dtype| {
        run(
            named("RandomNormal", &[("shape", int_list(shape)), ("dtype", Attribute::DType(dtype))]),
            NO_INPUTS,
        )
    };
    assert_eq!(normal(&[2, 0], DType::F16).unwrap().shape(), [2, 0]);
    assert_eq!(normal(&[], DType::F32).unwrap().shape(), [0usize; 0]);
    assert_eq!(normal(&[i64::MAX, 2], DType::F32), Err(TooLarge));
    assert_eq!(normal(&[-1], DType::F32), Err(BadValue));
    assert_eq!(normal(&[2], DType::I32), Err(BadType));
    assert_eq!(run(named("RandomNormalLike", &[]), &[&counting(DType::I32, &[2])]), Err(BadType));
}
