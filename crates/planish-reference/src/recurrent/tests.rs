//! Recurrent layers by hand.

use planish_op::{GRU, LSTM, RNN, RecurrentDirection};
use planish_tensor::{DType, Tensor};

use crate::EvalErrorKind;
use crate::testing::{assert_near, f32s, run_all};

/// An RNN that adds: `h = x + h`.
fn adder(direction: RecurrentDirection, layout: i64) -> RNN {
    RNN {
        clip: None,
        activation_beta: Vec::new(),
        activation_alpha: Vec::new(),
        hidden_size: Some(1),
        layout,
        direction,
        activations: vec![
            "Affine".into();
            if direction == RecurrentDirection::Bidirectional { 2 } else { 1 }
        ],
    }
}

fn gru() -> GRU {
    GRU {
        clip: None,
        activation_beta: Vec::new(),
        activation_alpha: Vec::new(),
        hidden_size: None,
        layout: 0,
        direction: RecurrentDirection::Forward,
        linear_before_reset: false,
        activations: Vec::new(),
    }
}

fn lstm() -> LSTM {
    LSTM {
        clip: None,
        activation_beta: Vec::new(),
        activation_alpha: Vec::new(),
        hidden_size: None,
        direction: RecurrentDirection::Forward,
        input_forget: false,
        layout: 0,
        activations: Vec::new(),
    }
}

#[test]
fn an_adding_rnn_in_every_direction() {
    let x = f32s(&[3, 1, 1], &[1.0, 2.0, 4.0]);
    let one = f32s(&[1, 1, 1], &[1.0]);
    let start = f32s(&[1, 1, 1], &[10.0]);
    let inputs = [Some(&x), Some(&one), Some(&one), None, None, Some(&start)];
    let outputs = run_all(adder(RecurrentDirection::Forward, 0), &inputs, 2).unwrap();
    assert_near(&outputs[0], &[11.0, 13.0, 17.0]);
    assert_near(&outputs[1], &[17.0]);
    let outputs = run_all(adder(RecurrentDirection::Reverse, 0), &inputs, 2).unwrap();
    assert_near(&outputs[0], &[17.0, 16.0, 14.0]);
    assert_near(&outputs[1], &[17.0]);
    let two = f32s(&[2, 1, 1], &[1.0, 1.0]);
    let starts = f32s(&[2, 1, 1], &[0.0, 10.0]);
    let inputs = [Some(&x), Some(&two), Some(&two), None, None, Some(&starts)];
    let outputs = run_all(adder(RecurrentDirection::Bidirectional, 0), &inputs, 2).unwrap();
    assert_eq!(outputs[0].shape(), [3, 2, 1, 1]);
    assert_near(&outputs[0], &[1.0, 17.0, 3.0, 16.0, 7.0, 14.0]);
    assert_near(&outputs[1], &[7.0, 17.0]);
}

#[test]
fn sequences_end_where_they_end() {
    // Two sequences of lengths 1 and 0 in two steps; what lies beyond does not matter.
    let x = f32s(&[2, 2, 1], &[1.0, 100.0, 100.0, 100.0]);
    let one = f32s(&[1, 1, 1], &[1.0]);
    let lengths = Tensor::vector(vec![1i32, 0]);
    let starts = f32s(&[1, 2, 1], &[5.0, 7.0]);
    let inputs = [Some(&x), Some(&one), Some(&one), None, Some(&lengths), Some(&starts)];
    for direction in [RecurrentDirection::Forward, RecurrentDirection::Reverse] {
        let outputs = run_all(adder(direction, 0), &inputs, 2).unwrap();
        assert_near(&outputs[0], &[6.0, 0.0, 0.0, 0.0]);
        assert_near(&outputs[1], &[6.0, 0.0]);
    }
    let too_long = Tensor::vector(vec![3i32, 0]);
    let inputs = [Some(&x), Some(&one), Some(&one), None, Some(&too_long)];
    assert_eq!(run_all(adder(RecurrentDirection::Forward, 0), &inputs, 2), Err(EvalErrorKind::BadValue));
}

#[test]
fn the_batch_may_come_first() {
    // Sequences 1, 2 and 10, 20.
    let x = f32s(&[2, 2, 1], &[1.0, 2.0, 10.0, 20.0]);
    let weights = f32s(&[2, 1, 1], &[1.0, 1.0]);
    let starts = f32s(&[2, 2, 1], &[0.0, 100.0, 0.0, 200.0]);
    let inputs = [Some(&x), Some(&weights), Some(&weights), None, None, Some(&starts)];
    let outputs = run_all(adder(RecurrentDirection::Bidirectional, 1), &inputs, 2).unwrap();
    // [batch, sequence, direction]
    assert_near(&outputs[0], &[1.0, 103.0, 3.0, 102.0, 10.0, 230.0, 30.0, 220.0]);
    assert_near(&outputs[1], &[3.0, 103.0, 30.0, 230.0]);
}

#[test]
fn every_activation_has_its_formula() {
    let zero = f32s(&[1, 1, 1], &[0.0]);
    let one = f32s(&[1, 1, 1], &[1.0]);
    let of = |name: &str, x: f32, clip: Option<f32>| {
        let op = RNN {
            activations: vec![name.into()],
            activation_alpha: vec![0.5],
            activation_beta: vec![0.25],
            clip,
            ..adder(RecurrentDirection::Forward, 0)
        };
        run_all(op, &[Some(&f32s(&[1, 1, 1], &[x.into()])), Some(&one), Some(&zero)], 1).unwrap().remove(0)
    };
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    for (name, positive, negative) in [
        ("Relu", 2.0, 0.0),
        ("Tanh", 2f64.tanh(), -2f64.tanh()),
        ("Sigmoid", sigmoid(2.0), sigmoid(-2.0)),
        ("Affine", 1.25, -0.75),
        ("LeakyRelu", 2.0, -1.0),
        ("ThresholdedRelu", 2.0, 0.0),
        ("ScaledTanh", 0.5 * 0.5f64.tanh(), -0.5 * 0.5f64.tanh()),
        ("HardSigmoid", 1.0, 0.0),
        ("Elu", 2.0, 0.5 * ((-2f64).exp() - 1.0)),
        ("Softsign", 2.0 / 3.0, -2.0 / 3.0),
        ("Softplus", (1.0 + 2f64.exp()).ln(), (1.0 + (-2f64).exp()).ln()),
    ] {
        assert_near(&of(name, 2.0, None), &[positive]);
        assert_near(&of(name, -2.0, None), &[negative]);
    }
    assert_near(&of("ThresholdedRelu", 0.25, None), &[0.0]);
    assert_near(&of("HardSigmoid", 0.5, None), &[0.5]);
    assert_near(&of("Softplus", 1000.0, None), &[1000.0]);
    // The argument is clipped, not the result.
    assert_near(&of("Affine", 9.0, Some(3.0)), &[1.75]);
    assert_near(&of("Affine", -9.0, Some(3.0)), &[-1.25]);
}

#[test]
fn one_step_of_a_gru_in_both_forms() {
    let x = f32s(&[1, 1, 1], &[1.0]);
    let w = f32s(&[1, 3, 1], &[0.5, -0.3, 0.8]);
    let r = f32s(&[1, 3, 1], &[0.2, 0.4, -0.6]);
    let b = f32s(&[1, 6], &[0.1, 0.2, 0.3, 0.01, 0.02, 0.03]);
    let h = f32s(&[1, 1, 1], &[2.0]);
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let update = sigmoid(0.5 + 0.4 + 0.11);
    let reset = sigmoid(-0.3 + 0.8 + 0.22);
    for (linear_before_reset, candidate) in [
        (false, (0.8 + reset * 2.0 * -0.6 + 0.33).tanh()),
        (true, (0.8 + reset * (-1.2 + 0.03) + 0.3).tanh()),
    ] {
        let op = GRU { linear_before_reset, ..gru() };
        let outputs = run_all(op, &[Some(&x), Some(&w), Some(&r), Some(&b), None, Some(&h)], 2).unwrap();
        let expected = (1.0 - update) * candidate + update * 2.0;
        assert_near(&outputs[0], &[expected]);
        assert_near(&outputs[1], &[expected]);
    }
}

#[test]
fn one_step_of_an_lstm_with_peepholes() {
    let x = f32s(&[1, 1, 1], &[1.0]);
    let w = f32s(&[1, 4, 1], &[0.5, -0.3, 0.8, 0.7]);
    let r = f32s(&[1, 4, 1], &[0.2, 0.4, -0.6, 0.1]);
    let b = f32s(&[1, 8], &[0.1, 0.2, 0.3, 0.4, 0.01, 0.02, 0.03, 0.04]);
    let (h0, c0) = (f32s(&[1, 1, 1], &[2.0]), f32s(&[1, 1, 1], &[-1.0]));
    let p = f32s(&[1, 3], &[0.5, 0.6, 0.7]);
    let inputs = [Some(&x), Some(&w), Some(&r), Some(&b), None, Some(&h0), Some(&c0), Some(&p)];
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let input = sigmoid(0.5 + 0.4 + 0.11 - 0.5);
    let candidate = (0.7 + 0.2 + 0.44f64).tanh();
    for (input_forget, forget) in [(false, sigmoid(0.8 - 1.2 + 0.33 - 0.7)), (true, 1.0 - input)] {
        let c = -forget + input * candidate;
        let output = sigmoid(-0.3 + 0.8 + 0.22 + 0.6 * c);
        let outputs = run_all(LSTM { input_forget, ..lstm() }, &inputs, 3).unwrap();
        assert_near(&outputs[0], &[output * c.tanh()]);
        assert_near(&outputs[1], &[output * c.tanh()]);
        assert_near(&outputs[2], &[c]);
    }
    // Without optional inputs everything absent is zero.
    let outputs = run_all(lstm(), &[Some(&x), Some(&w), Some(&r)], 1).unwrap();
    let c = sigmoid(0.5) * 0.7f64.tanh();
    assert_near(&outputs[0], &[sigmoid(-0.3) * c.tanh()]);
}

#[test]
fn empty_sequences_and_halves() {
    let x = Tensor::zeros(DType::F16, &[0, 2, 3]).unwrap();
    let (w, r) =
        (Tensor::zeros(DType::F16, &[1, 8, 3]).unwrap(), Tensor::zeros(DType::F16, &[1, 8, 2]).unwrap());
    let outputs = run_all(lstm(), &[Some(&x), Some(&w), Some(&r)], 3).unwrap();
    assert_eq!(outputs[0].shape(), [0, 1, 2, 2]);
    assert_eq!(outputs[2], Tensor::zeros(DType::F16, &[1, 2, 2]).unwrap());
}

#[test]
fn refusals() {
    let x = f32s(&[1, 1, 1], &[1.0]);
    let one = f32s(&[1, 1, 1], &[1.0]);
    let inputs = [Some(&x), Some(&one), Some(&one)];
    let base = || adder(RecurrentDirection::Forward, 0);
    let bad_attribute = |op: RNN| assert_eq!(run_all(op, &inputs, 1), Err(EvalErrorKind::BadAttribute));
    bad_attribute(RNN { layout: 2, ..base() });
    bad_attribute(RNN { clip: Some(-1.0), ..base() });
    bad_attribute(RNN { clip: Some(f32::NAN), ..base() });
    bad_attribute(RNN { hidden_size: Some(i64::MIN), ..base() });
    bad_attribute(RNN { activations: vec!["Gelu".into()], ..base() });
    assert_eq!(run_all(base(), &inputs, 3), Err(EvalErrorKind::BadAttribute));
    let bidirectional = adder(RecurrentDirection::Bidirectional, 0);
    assert_eq!(run_all(bidirectional, &inputs, 1), Err(EvalErrorKind::BadShape));
    assert_eq!(run_all(base(), &[Some(&x), Some(&one)], 1), Err(EvalErrorKind::MissingInput));
    let flat = f32s(&[1], &[1.0]);
    assert_eq!(run_all(base(), &[Some(&flat), Some(&one), Some(&one)], 1), Err(EvalErrorKind::BadShape));
    let bias = f32s(&[1, 3], &[0.0; 3]);
    assert_eq!(
        run_all(base(), &[Some(&x), Some(&one), Some(&one), Some(&bias)], 1),
        Err(EvalErrorKind::BadShape)
    );
    let hollow = Tensor::zeros(DType::F32, &[1 << 40, 1 << 20, 0]).unwrap();
    let no_input = Tensor::zeros(DType::F32, &[1, 1, 0]).unwrap();
    assert_eq!(
        run_all(base(), &[Some(&hollow), Some(&no_input), Some(&one)], 1),
        Err(EvalErrorKind::TooLarge)
    );
}
