//! Vision transformer ViT-B/16 (Dosovitskiy and others, 2021), which normalizes before each sublayer. Attention is
//! what the exporter makes of PyTorch's own layer: one product for Q, K and V, tokens before the batch, and K
//! transposed between reshapes whose shapes are computed.

use planish_ir::ValueId;
use planish_op::{
    Add, Concat, Expand, Gather, MatMul, Mul, Reshape, Shape, Slice, Softmax, Squeeze, Unsqueeze,
};
use planish_tensor::DType;

use crate::layers::{Window, gain};
use crate::net::{Made, Net};
use crate::weights::Spread;

const HIDDEN: usize = 768;
const N_HEADS: usize = 12;
const HEAD: usize = HIDDEN / N_HEADS;
const INNER: usize = 3072;
const N_LAYERS: usize = 12;
const PATCH: usize = 16;
const N_PATCHES: usize = (224 / PATCH) * (224 / PATCH);
/// The patches and the token for the class.
const TOKENS: usize = N_PATCHES + 1;
const EPSILON: f32 = 1e-6;

pub(crate) fn vit_b_16(net: &mut Net) -> Made {
    let x = net.input("x", DType::F32, &[3, 224, 224])?;
    let batch = net.op("batch", Shape { start: 0, end: Some(1) }, &[x])?;
    let y = net.conv("patches", x, Window::patches(3, HIDDEN, PATCH).gain(gain::LINEAR).with_bias())?;
    let y = net.reshape("patches.flat", y, &[-1, HIDDEN as i64, N_PATCHES as i64])?;
    let y = net.transpose("patches.tokens", y, &[0, 2, 1])?;
    let class = net.parameter("class_token", &[1, 1, HIDDEN], Spread::around(0.0, 1.0))?;
    let one = net.ints(&[1])?;
    let many = net.op("class.shape", Concat { axis: 0 }, &[batch, one, one])?;
    let class = net.op("class.tokens", Expand {}, &[class, many])?;
    let y = net.op("tokens", Concat { axis: 1 }, &[class, y])?;
    let places = net.parameter("places", &[1, TOKENS, HIDDEN], Spread::around(0.0, 0.02))?;
    let mut y = net.op("embedding", Add {}, &[y, places])?;
    for idx in 0..N_LAYERS {
        y = layer(net, &format!("layer{idx}"), y)?;
    }
    let y = net.layer_norm("norm", y, HIDDEN, EPSILON)?;
    let zero = net.int(0)?;
    let class = net.op("class", Gather { axis: 1 }, &[y, zero])?;
    net.gemm("out", class, HIDDEN, 1000, gain::LINEAR)
}

fn layer(net: &mut Net, name: &str, x: ValueId) -> Made {
    let part = |part: &str| format!("{name}.{part}");
    let y = net.layer_norm(&part("norm1"), x, HIDDEN, EPSILON)?;
    let y = attention(net, &part("attention"), y)?;
    let x = net.op(&part("add1"), Add {}, &[y, x])?;
    let y = net.layer_norm(&part("norm2"), x, HIDDEN, EPSILON)?;
    let y = net.linear(&part("inner"), y, HIDDEN, INNER, gain::LINEAR)?;
    let y = net.gelu(&part("gelu"), y)?;
    let y = net.linear(&part("outer"), y, INNER, HIDDEN, gain::GELU)?;
    net.op(&part("add2"), Add {}, &[x, y])
}

fn attention(net: &mut Net, name: &str, x: ValueId) -> Made {
    let part = |part: &str| format!("{name}.{part}");
    let (tokens, hidden, head) = (TOKENS as i64, HIDDEN as i64, HEAD as i64);
    let y = net.transpose(&part("tokens_first"), x, &[1, 0, 2])?;
    let y = net.linear(&part("qkv"), y, HIDDEN, 3 * HIDDEN, gain::LINEAR)?;
    let y = net.reshape(&part("qkv.split"), y, &[tokens, -1, 3, hidden])?;
    let (front, after) = (net.ints(&[0])?, net.ints(&[-2])?);
    let y = net.op(&part("qkv.unsqueezed"), Unsqueeze {}, &[y, front])?;
    let y = net.transpose(&part("qkv.first"), y, &[3, 1, 2, 0, 4])?;
    let y = net.op(&part("qkv.squeezed"), Squeeze {}, &[y, after])?;
    let heads = |net: &mut Net, which: &str, idx: i64| {
        let part = |part: &str| format!("{name}.{which}{part}");
        let idx = net.int(idx)?;
        let y = net.op(&part(""), Gather { axis: 0 }, &[y, idx])?;
        let y = net.reshape(&part(".split"), y, &[tokens, -1, head])?;
        let y = net.transpose(&part(".heads"), y, &[1, 0, 2])?;
        net.reshape(&part(".batch"), y, &[-1, N_HEADS as i64, tokens, head])
    };
    let q = heads(net, "q", 0)?;
    let k = heads(net, "k", 1)?;
    let v = heads(net, "v", 2)?;
    let k = last_two_swapped(net, &part("k"), k)?;
    // The root of 1 / sqrt d on both sides of the product.
    let scale = net.number((HEAD as f32).powf(-0.25))?;
    let q = net.op(&part("q.scaled"), Mul {}, &[q, scale])?;
    let k = net.op(&part("k.scaled"), Mul {}, &[k, scale])?;
    let scores = net.op(&part("scores"), MatMul {}, &[q, k])?;
    let weights = net.op(&part("softmax"), Softmax { axis: -1 }, &[scores])?;
    let y = net.op(&part("mixed"), MatMul {}, &[weights, v])?;
    let y = net.transpose(&part("mixed.tokens_first"), y, &[2, 0, 1, 3])?;
    let y = net.reshape(&part("mixed.rows"), y, &[-1, hidden])?;
    let y = net.gemm(&part("o"), y, HIDDEN, HIDDEN, gain::LINEAR)?;
    let y = net.reshape(&part("o.split"), y, &[tokens, -1, hidden])?;
    net.transpose(&part("o.batch_first"), y, &[1, 0, 2])
}

/// The transpose of the last two axes, by way of rank 3.
fn last_two_swapped(net: &mut Net, name: &str, x: ValueId) -> Made {
    let part = |part: &str| format!("{name}.{part}");
    let shape = net.op(&part("shape"), Shape { start: 0, end: None }, &[x])?;
    let (first, minus_two, minus_one) = (net.ints(&[i64::MIN])?, net.ints(&[-2])?, net.ints(&[-1])?);
    let end = net.ints(&[i64::MAX])?;
    let last = net.op(&part("shape.last"), Slice {}, &[shape, minus_one, end])?;
    let before = net.op(&part("shape.before"), Slice {}, &[shape, minus_two, minus_one])?;
    let rest = net.op(&part("shape.rest"), Slice {}, &[shape, first, minus_two])?;
    let flat = net.op(&part("shape.flat"), Concat { axis: 0 }, &[minus_one, before, last])?;
    let y = net.op(&part("flat"), Reshape { allowzero: false }, &[x, flat])?;
    let y = net.transpose(&part("swapped"), y, &[0, 2, 1])?;
    let full = net.op(&part("shape.full"), Concat { axis: 0 }, &[rest, last, before])?;
    net.op(&part("full"), Reshape { allowzero: false }, &[y, full])
}
