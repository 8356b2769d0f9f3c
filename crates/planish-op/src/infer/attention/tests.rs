//! Inference of attention and position embedding, written as text.

use super::super::InferErrorKind::{self, BadAttribute, BadShape, BadType};
use super::super::testing::check;
use crate::Attribute;

fn int(name: &'static str, value: i64) -> (&'static str, Attribute) {
    (name, Attribute::Int(value))
}

fn attention(inputs: &[&str], n_outputs: usize) -> Result<Vec<String>, InferErrorKind> {
    check("Attention", &[], inputs, n_outputs)
}

#[test]
fn attention_on_heads() {
    let outputs = attention(&["f16[b,8,s,64]", "f16[b,2,t,64]", "f32[b,2,t,32]"], 4).unwrap();
    assert_eq!(outputs, ["f16[b,8,s,32]", "f16[b,2,t,64]", "f32[b,2,t,32]", "f16[b,8,s,t]"]);
    let past = ["f32[b,8,1,64]", "f32[b,2,1,64]", "f32[b,2,1,32]", "", "f32[b,2,p,64]", "f32[b,2,p,32]"];
    let outputs = attention(&past, 3).unwrap();
    assert_eq!(outputs, ["f32[b,8,1,32]", "f32[b,2,p+1,64]", "f32[b,2,p+1,32]"]);
    assert_eq!(
        attention(&["f32[*]", "f16[1,1,1,1]", "bf16[*]"], 3).unwrap(),
        ["f32[*]", "f16[*]", "bf16[*]"]
    );
}

#[test]
fn attention_on_packed_heads() {
    let heads = [int("q_num_heads", 8), int("kv_num_heads", 2)];
    let inputs = ["f32[b,s,512]", "f32[b,t,128]", "f32[b,t,64]"];
    let outputs = check("Attention", &heads, &inputs, 4).unwrap();
    assert_eq!(outputs, ["f32[b,s,256]", "f32[b,2,t,64]", "f32[b,2,t,32]", "f32[b,8,s,t]"]);
    assert_eq!(attention(&inputs, 1), Err(BadAttribute));
    let wrong = [int("q_num_heads", 7), int("kv_num_heads", 2)];
    assert_eq!(check("Attention", &wrong, &inputs, 1), Err(BadShape));
    let hostile = [int("q_num_heads", i64::MIN), int("kv_num_heads", 0)];
    assert_eq!(check("Attention", &hostile, &inputs, 1), Err(BadAttribute));
}

#[test]
fn masks_fit_the_scores() {
    let with = |mask| attention(&["f32[b,8,4,64]", "f32[b,2,6,64]", "f32[b,2,6,64]", mask], 1).map(drop);
    for mask in ["bool[4,6]", "f32[1,1,4,6]", "f32[b,8,1,6]", "f32[4,5]", "f32[]", "i64[6]"] {
        assert_eq!(with(mask), Ok(()), "{mask}");
    }
    for mask in ["bool[4,7]", "f32[3,6]", "f32[2,4,6]", "f32[1,1,1,4,6]"] {
        assert_eq!(with(mask), Err(BadShape), "{mask}");
    }
    assert_eq!(with("i4[4,6]"), Err(BadType));
}

#[test]
fn attention_refuses() {
    let q = "f32[b,8,s,64]";
    assert_eq!(attention(&[q, q, "i32[b,8,s,64]"], 1), Err(BadType));
    assert_eq!(attention(&[q, "f32[b,3,t,64]", "f32[b,3,t,64]"], 1), Err(BadShape));
    assert_eq!(attention(&[q, "f32[b,2,t,32]", "f32[b,2,t,64]"], 1), Err(BadShape));
    assert_eq!(attention(&["f32[2,8,s,64]", "f32[3,8,s,64]", q], 1), Err(BadShape));
    assert_eq!(attention(&["f32[b,64]", q, q], 1), Err(BadShape));
    assert_eq!(attention(&[q, q, q, "", "f32[b,8,p,64]"], 1), Err(BadShape));
    let both = [q, q, q, "", "f32[b,8,p,64]", "f32[b,8,p,64]", "i64[b]"];
    assert_eq!(attention(&both, 1), Err(BadShape));
    assert_eq!(attention(&[q, q, q, "", "", "", "i64[b,1]"], 1), Err(BadShape));
    assert_eq!(attention(&[q, q, q, "", "f32[b,8,2,64]", "f32[b,8,3,64]"], 1), Err(BadShape));
    assert_eq!(check("Attention", &[int("qk_matmul_output_mode", 4)], &[q, q, q], 1), Err(BadAttribute));
    let precision = [("softmax_precision", Attribute::DType(planish_tensor::DType::I32))];
    assert_eq!(check("Attention", &precision, &[q, q, q], 1), Err(BadAttribute));
}

#[test]
fn linear_attention_keeps_a_state() {
    let rule = |word: &str| ("update_rule", Attribute::Str(word.into()));
    let heads = |q, kv| [int("q_num_heads", q), int("kv_num_heads", kv), rule("gated")];
    let inputs = ["f16[b,s,256]", "f16[b,s,128]", "f16[b,s,64]", "f32[b,2,64,32]", "f16[b,s,2]"];
    let run = |q, kv, inputs: &[&str]| check("LinearAttention", &heads(q, kv), inputs, 2);
    assert_eq!(run(4, 2, &inputs).unwrap(), ["f16[b,s,128]", "f32[b,2,64,32]"]);
    let unknown = ["f16[*]", "f16[b,s,128]", "f16[*]", "", "f16[b,s,128]"];
    assert_eq!(run(4, 2, &unknown).unwrap(), ["f16[b,s,4*value_size2]", "f16[b,2,64,value_size2]"]);
    assert_eq!(run(4, 2, &inputs[..4]), Err(BadAttribute));
    assert_eq!(run(3, 2, &inputs), Err(BadAttribute));
    assert_eq!(run(i64::MIN, -1, &inputs), Err(BadAttribute));
    let swap = |idx: usize, input: &'static str| {
        let mut changed = inputs;
        changed[idx] = input;
        run(4, 2, &changed)
    };
    assert_eq!(swap(1, "f16[b,s,64]"), Err(BadShape));
    assert_eq!(swap(2, "f16[b,s,65]"), Err(BadShape));
    assert_eq!(swap(3, "f32[b,2,64,33]"), Err(BadShape));
    assert_eq!(swap(4, "f16[b,s,3]"), Err(BadShape));
}

#[test]
fn rotary_caches_fit() {
    let rotary = |attributes: &[(&str, Attribute)], inputs: &[&str]| {
        check("RotaryEmbedding", attributes, inputs, 1).map(|mut outputs| outputs.remove(0))
    };
    let x = "f16[b,8,s,64]";
    assert_eq!(rotary(&[], &[x, "f16[p,32]", "f16[p,32]", "i64[b,s]"]).unwrap(), x);
    assert_eq!(rotary(&[], &[x, "f16[b,s,32]", "f16[b,s,32]"]).unwrap(), x);
    assert_eq!(rotary(&[int("num_heads", 8)], &["f16[b,s,h]", "f16[*]", "f16[*]"]).unwrap(), "f16[b,s,h]");
    let part = [int("rotary_embedding_dim", 16)];
    assert_eq!(rotary(&part, &[x, "f16[b,s,8]", "f16[b,s,8]"]).unwrap(), x);
    assert_eq!(rotary(&part, &[x, "f16[b,s,32]", "f16[b,s,32]"]), Err(BadShape));
    assert_eq!(rotary(&[], &[x, "f16[p,32]", "f16[p,32]"]), Err(BadShape));
    assert_eq!(rotary(&[], &[x, "f16[p,32]", "f16[p,32]", "f32[b,s]"]), Err(BadType));
    assert_eq!(rotary(&[], &["f16[b,s,64]", "f16[b,s,32]", "f16[b,s,32]"]), Err(BadAttribute));
    for dim in [3, 66, -2, i64::MIN] {
        assert_eq!(rotary(&[int("rotary_embedding_dim", dim)], &[x, "f16[*]", "f16[*]"]), Err(BadAttribute));
    }
}
