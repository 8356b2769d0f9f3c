//! Attention, linear attention and rotary embedding by hand.

use planish_op::{Attention, LinearAttention, LinearAttentionRule, RotaryEmbedding};
use planish_tensor::{DType, Tensor};

use crate::EvalErrorKind;
use crate::testing::{assert_near, f32s, run_all};

fn attention() -> Attention {
    Attention {
        qk_matmul_output_mode: 0,
        softcap: 0.0,
        softmax_precision: None,
        kv_num_heads: None,
        q_num_heads: None,
        scale: Some(1.0),
        is_causal: false,
    }
}

/// One head of size 1: the queries are 0, so that every visible key weighs the same.
fn uniform(n_queries: usize, n_keys: usize) -> [Tensor; 3] {
    let values: Vec<f64> = (0..n_keys).map(|idx| (1 << idx) as f64).collect();
    [
        Tensor::zeros(DType::F32, &[1, 1, n_queries, 1]).unwrap(),
        Tensor::zeros(DType::F32, &[1, 1, n_keys, 1]).unwrap(),
        f32s(&[1, 1, n_keys, 1], &values),
    ]
}

#[test]
fn weights_are_the_softmax_of_scaled_products() {
    // Scores 0 and ln 3, once through the scale given and once through that of the head size (4).
    let q = f32s(&[1, 1, 1, 4], &[1.0, 1.0, 0.0, 0.0]);
    let score = 3f64.ln();
    let k = f32s(&[1, 1, 2, 4], &[0.0, 0.0, 9.0, 9.0, score, score, 9.0, 9.0]);
    let v = f32s(&[1, 1, 2, 2], &[0.0, 1.0, 4.0, 5.0]);
    for scale in [Some(0.5), None] {
        let op = Attention { scale, qk_matmul_output_mode: 3, ..attention() };
        let outputs = run_all(op, &[Some(&q), Some(&k), Some(&v)], 4).unwrap();
        assert_near(&outputs[0], &[3.0, 4.0]);
        assert_eq!((&outputs[1], &outputs[2]), (&k, &v));
        assert_near(&outputs[3], &[0.25, 0.75]);
    }
}

#[test]
fn masks_add_or_exclude_and_broadcast() {
    let [q, k, v] = uniform(2, 3);
    let with = |mask: &Tensor| run_all(attention(), &[Some(&q), Some(&k), Some(&v), Some(mask)], 1);
    let rows = Tensor::new(&[2, 3], vec![true, true, false, false, false, true]).unwrap();
    assert_near(&with(&rows).unwrap()[0], &[1.5, 4.0]);
    assert_near(&with(&f32s(&[1, 1, 1, 3], &[0.0, 3f64.ln(), f64::NEG_INFINITY])).unwrap()[0], &[1.75, 1.75]);
    // A shorter mask hides the keys that it does not reach.
    assert_near(&with(&f32s(&[2, 2], &[0.0; 4])).unwrap()[0], &[1.5, 1.5]);
    assert_near(&with(&f32s(&[1], &[0.0])).unwrap()[0], &[1.0, 1.0]);
    assert_near(&with(&Tensor::scalar(5f32)).unwrap()[0], &[7.0 / 3.0, 7.0 / 3.0]);
    // Nothing visible, no weights.
    let none = Tensor::new(&[2, 1], vec![true, false]).unwrap();
    assert_near(&with(&none).unwrap()[0], &[1.0, f64::NAN]);
    assert_eq!(with(&f32s(&[2, 4], &[0.0; 8])), Err(EvalErrorKind::BadShape));
    assert_eq!(with(&f32s(&[3, 3], &[0.0; 9])), Err(EvalErrorKind::BadShape));
    assert_eq!(with(&f32s(&[1, 1, 1, 1, 3], &[0.0; 3])), Err(EvalErrorKind::BadShape));
}

#[test]
fn causal_queries_see_the_past_and_themselves() {
    let [q, k, v] = uniform(2, 3);
    let causal = Attention { is_causal: true, ..attention() };
    assert_near(&run_all(causal.clone(), &[Some(&q), Some(&k), Some(&v)], 1).unwrap()[0], &[1.0, 1.5]);
    let past_key = Tensor::zeros(DType::F32, &[1, 1, 1, 1]).unwrap();
    let past_value = f32s(&[1, 1, 1, 1], &[100.0]);
    let inputs = [Some(&q), Some(&k), Some(&v), None, Some(&past_key), Some(&past_value)];
    let op = Attention { qk_matmul_output_mode: 2, ..causal };
    let outputs = run_all(op, &inputs, 4).unwrap();
    assert_near(&outputs[0], &[50.5, 103.0 / 3.0]);
    assert_near(&outputs[2], &[100.0, 1.0, 2.0, 4.0]);
    let hidden = f64::NEG_INFINITY;
    assert_near(&outputs[3], &[0.0, 0.0, hidden, hidden, 0.0, 0.0, 0.0, hidden]);
    assert_eq!(run_all(attention(), &inputs[..5], 1), Err(EvalErrorKind::BadShape));
}

#[test]
fn padding_is_not_seen() {
    let [q, k, v] = uniform(1, 3);
    let with = |lengths: Vec<i64>| {
        let lengths = Tensor::vector(lengths);
        run_all(attention(), &[Some(&q), Some(&k), Some(&v), None, None, None, Some(&lengths)], 1)
    };
    assert_near(&with(vec![2]).unwrap()[0], &[1.5]);
    assert_near(&with(vec![0]).unwrap()[0], &[f64::NAN]);
    assert_eq!(with(vec![4]), Err(EvalErrorKind::BadValue));
    assert_eq!(with(vec![-1]), Err(EvalErrorKind::BadValue));
    assert_eq!(with(vec![1, 1]), Err(EvalErrorKind::BadShape));
}

#[test]
fn the_cap_comes_before_the_mask() {
    let (q, k) = (f32s(&[1, 1, 1, 1], &[2.0]), f32s(&[1, 1, 2, 1], &[1.0, 3.0]));
    let mask = f32s(&[1, 2], &[0.5, f64::NEG_INFINITY]);
    let stage = |mode| {
        let op = Attention { softcap: 2.0, qk_matmul_output_mode: mode, ..attention() };
        run_all(op, &[Some(&q), Some(&k), Some(&k), Some(&mask)], 4).map(|mut outputs| outputs.remove(3))
    };
    let capped = [2.0 * 1f64.tanh(), 2.0 * 3f64.tanh()];
    assert_near(&stage(0).unwrap(), &[2.0, 6.0]);
    assert_near(&stage(1).unwrap(), &capped);
    assert_near(&stage(2).unwrap(), &[capped[0] + 0.5, f64::NEG_INFINITY]);
    assert_near(&stage(3).unwrap(), &[1.0, 0.0]);
    assert_eq!(stage(4), Err(EvalErrorKind::BadAttribute));
}

#[test]
fn heads_share_keys_and_may_be_packed() {
    // Four query heads over two value heads, each of one element and one step: values pass through.
    let q = f32s(&[1, 1, 4], &[0.0; 4]);
    let k = f32s(&[1, 1, 2], &[0.0; 2]);
    let v = f32s(&[1, 1, 4], &[1.0, 2.0, 3.0, 4.0]);
    let op = Attention { q_num_heads: Some(4), kv_num_heads: Some(2), ..attention() };
    let outputs = run_all(op.clone(), &[Some(&q), Some(&k), Some(&v)], 3).unwrap();
    assert_eq!(outputs[0].shape(), [1, 1, 8]);
    assert_near(&outputs[0], &[1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0]);
    // What is kept for the next step always has its heads outside.
    assert_eq!(outputs[2].shape(), [1, 2, 1, 2]);
    assert_eq!(run_all(attention(), &[Some(&q), Some(&k), Some(&v)], 1), Err(EvalErrorKind::BadAttribute));
    let uneven = Attention { q_num_heads: Some(4), kv_num_heads: Some(3), ..attention() };
    let three = f32s(&[1, 1, 3], &[0.0; 3]);
    assert_eq!(run_all(uneven, &[Some(&q), Some(&three), Some(&three)], 1), Err(EvalErrorKind::BadShape));
    let mixed = Tensor::zeros(DType::F32, &[1, 2, 1, 1]).unwrap();
    assert_eq!(run_all(op, &[Some(&q), Some(&mixed), Some(&mixed)], 1), Err(EvalErrorKind::BadShape));
}

#[test]
fn packed_steps_and_heads_are_kept_apart() {
    // Two steps of two heads; each query sees only its own step.
    let q = f32s(&[1, 2, 2], &[0.0; 4]);
    let v = f32s(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let mask = Tensor::new(&[2, 2], vec![true, false, false, true]).unwrap();
    let op = Attention { q_num_heads: Some(2), kv_num_heads: Some(2), ..attention() };
    let outputs = run_all(op, &[Some(&q), Some(&q), Some(&v), Some(&mask)], 3).unwrap();
    assert_near(&outputs[0], &[1.0, 2.0, 3.0, 4.0]);
    assert_near(&outputs[2], &[1.0, 3.0, 2.0, 4.0]);
}

#[test]
fn attention_over_nothing() {
    let [q, _, _] = uniform(2, 1);
    let none = Tensor::zeros(DType::F32, &[1, 1, 0, 1]).unwrap();
    assert_near(&run_all(attention(), &[Some(&q), Some(&none), Some(&none)], 1).unwrap()[0], &[0.0, 0.0]);
    let no_queries = Tensor::zeros(DType::F32, &[1, 1, 0, 1]).unwrap();
    let outputs = run_all(attention(), &[Some(&no_queries), Some(&q), Some(&q)], 4).unwrap();
    assert_eq!(outputs[3].shape(), [1, 1, 0, 2]);
    let hollow = Tensor::zeros(DType::F32, &[1, 1, 1 << 50, 0]).unwrap();
    let sizeless = Tensor::zeros(DType::F32, &[1, 1, 1 << 30, 0]).unwrap();
    let inputs = [Some(&sizeless), Some(&hollow), Some(&hollow)];
    assert_eq!(run_all(attention(), &inputs, 4), Err(EvalErrorKind::TooLarge));
    assert!(run_all(attention(), &inputs, 3).is_ok());
}

#[test]
fn embeddings_turn_pairs() {
    // A quarter turn: (a, b) becomes (-b, a).
    let x = f32s(&[1, 1, 1, 4], &[1.0, 2.0, 3.0, 4.0]);
    let cos = f32s(&[2, 2], &[1.0, 1.0, 0.0, 0.0]);
    let sin = f32s(&[2, 2], &[0.0, 0.0, 1.0, 1.0]);
    let op = |interleaved, rotary_embedding_dim| RotaryEmbedding {
        num_heads: None,
        rotary_embedding_dim,
        interleaved,
    };
    let at = |op: RotaryEmbedding, position: i64| {
        let positions = Tensor::new(&[1, 1], vec![position]).unwrap();
        run_all(op, &[Some(&x), Some(&cos), Some(&sin), Some(&positions)], 1)
            .map(|mut outputs| outputs.remove(0))
    };
    assert_near(&at(op(false, 0), 0).unwrap(), &[1.0, 2.0, 3.0, 4.0]);
    assert_near(&at(op(false, 0), 1).unwrap(), &[-3.0, -4.0, 1.0, 2.0]);
    assert_near(&at(op(true, 0), 1).unwrap(), &[-2.0, 1.0, -4.0, 3.0]);
    assert_eq!(at(op(false, 0), 2), Err(EvalErrorKind::BadValue));
    assert_eq!(at(op(false, 0), -1), Err(EvalErrorKind::BadValue));
    assert_eq!(at(op(false, 3), 0), Err(EvalErrorKind::BadAttribute));
    assert_eq!(at(op(false, 6), 0), Err(EvalErrorKind::BadAttribute));
    assert_eq!(at(op(false, i64::MIN), 0), Err(EvalErrorKind::BadAttribute));
    assert_eq!(at(op(false, 2), 0), Err(EvalErrorKind::BadShape));
}

#[test]
fn embeddings_without_positions_and_partly() {
    // Two heads of size 3 in one packed step, the first two elements of each turned.
    let x = f32s(&[1, 1, 6], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let (cos, sin) = (f32s(&[1, 1, 1], &[0.0]), f32s(&[1, 1, 1], &[1.0]));
    let op = RotaryEmbedding { num_heads: Some(2), rotary_embedding_dim: 2, interleaved: false };
    let outputs = run_all(op.clone(), &[Some(&x), Some(&cos), Some(&sin)], 1).unwrap();
    assert_near(&outputs[0], &[-2.0, 1.0, 3.0, -5.0, 4.0, 6.0]);
    let headless = RotaryEmbedding { num_heads: None, ..op.clone() };
    assert_eq!(run_all(headless, &[Some(&x), Some(&cos), Some(&sin)], 1), Err(EvalErrorKind::BadAttribute));
    let flat = f32s(&[1, 1], &[0.0]);
    assert_eq!(run_all(op, &[Some(&x), Some(&flat), Some(&flat)], 1), Err(EvalErrorKind::BadShape));
}

fn linear(update_rule: LinearAttentionRule, q_num_heads: i64) -> LinearAttention {
    LinearAttention { chunk_size: 64, kv_num_heads: 1, q_num_heads, scale: 1.0, update_rule }
}

#[test]
fn linear_attention_by_each_rule() {
    // Two steps, key and value of size 1: key 2, values 3 and 5, query 1, decay ln ½, rate ½.
    let q = f32s(&[1, 2, 1], &[1.0, 1.0]);
    let k = f32s(&[1, 2, 1], &[2.0, 2.0]);
    let v = f32s(&[1, 2, 1], &[3.0, 5.0]);
    let state = f32s(&[1, 1, 1, 1], &[4.0]);
    let decay = f32s(&[1, 2, 1], &[0.5f64.ln(), 0.5f64.ln()]);
    let rate = f32s(&[1, 2, 1], &[0.5, 0.5]);
    // Each rule's states: S = 4, then twice (S or S/2) + 2 * (v or ½(v - 2S)).
    for (rule, expected) in [
        (LinearAttentionRule::Linear, [10.0, 20.0]),
        (LinearAttentionRule::Gated, [8.0, 14.0]),
        (LinearAttentionRule::Delta, [-1.0, 6.0]),
        (LinearAttentionRule::GatedDelta, [1.0, 4.5]),
    ] {
        let (decays, corrects) = match rule {
            LinearAttentionRule::Linear => (false, false),
            LinearAttentionRule::Gated => (true, false),
            LinearAttentionRule::Delta => (false, true),
            LinearAttentionRule::GatedDelta => (true, true),
        };
        let inputs =
            [Some(&q), Some(&k), Some(&v), Some(&state), decays.then_some(&decay), corrects.then_some(&rate)];
        let outputs = run_all(linear(rule, 1), &inputs, 2).unwrap();
        assert_near(&outputs[0], &expected);
        assert_near(&outputs[1], &expected[1..]);
        let swapped = [inputs[0], inputs[1], inputs[2], None, (!decays).then_some(&decay), inputs[5]];
        assert_eq!(run_all(linear(rule, 1), &swapped, 2), Err(EvalErrorKind::BadAttribute));
    }
}

#[test]
fn linear_attention_shares_states_and_decays_by_key() {
    // Two query heads read one state of two keys and one value; the second key is forgotten at once.
    let q = f32s(&[1, 1, 4], &[1.0, 0.0, 0.0, 1.0]);
    let k = f32s(&[1, 1, 2], &[1.0, 1.0]);
    let v = f32s(&[1, 1, 1], &[1.0]);
    let state = Tensor::from_f64s(DType::F16, &[1, 1, 2, 1], &[10.0, 20.0]).unwrap();
    let decay = f32s(&[1, 1, 2], &[0.0, f64::NEG_INFINITY]);
    let inputs = [Some(&q), Some(&k), Some(&v), Some(&state), Some(&decay)];
    let outputs = run_all(linear(LinearAttentionRule::Gated, 2), &inputs, 2).unwrap();
    assert_near(&outputs[0], &[11.0, 1.0]);
    assert_eq!(outputs[1], Tensor::from_f64s(DType::F16, &[1, 1, 2, 1], &[11.0, 1.0]).unwrap());
    // Scale 0 stands for 1/sqrt of the key size.
    let op = LinearAttention { scale: 0.0, ..linear(LinearAttentionRule::Gated, 2) };
    assert_near(&run_all(op, &inputs, 1).unwrap()[0], &[11.0 / 2f64.sqrt(), 1.0 / 2f64.sqrt()]);
    let wrong = f32s(&[1, 1, 3], &[0.0; 3]);
    let bad = [Some(&q), Some(&k), Some(&v), Some(&state), Some(&wrong)];
    assert_eq!(run_all(linear(LinearAttentionRule::Gated, 2), &bad, 2), Err(EvalErrorKind::BadShape));
    assert_eq!(run_all(linear(LinearAttentionRule::Gated, 0), &inputs, 2), Err(EvalErrorKind::BadAttribute));
    assert_eq!(
        run_all(linear(LinearAttentionRule::Linear, 2), &inputs[..2], 2),
        Err(EvalErrorKind::MissingInput)
    );
}
