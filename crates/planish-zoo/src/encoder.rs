//! Transformer encoders that normalize after each sublayer (Devlin and others, 2019): over text, and over the
//! patches of a volume.

use planish_ir::ValueId;
use planish_op::{Add, Div, Gather, MatMul, Shape, Slice, Softmax};
use planish_tensor::{DType, Dim, Tensor};

use crate::error::{ZooError, ZooErrorKind};
use crate::layers::{Window, gain};
use crate::net::{Made, Net};
use crate::weights::Spread;

const VOCABULARY: usize = 30_522;
const PLACES: usize = 512;
const TOKENS: usize = 128;
const EPSILON: f32 = 1e-5;

/// The sizes of an encoder.
#[derive(Clone, Copy)]
struct Sizes {
    hidden: usize,
    n_heads: usize,
    inner: usize,
    n_layers: usize,
}

const MINILM: Sizes = Sizes { hidden: 384, n_heads: 12, inner: 1536, n_layers: 6 };

pub(crate) fn bert_base(net: &mut Net) -> Made {
    text(net, Sizes { hidden: 768, n_heads: 12, inner: 3072, n_layers: 12 }, Some(TOKENS))
}

pub(crate) fn minilm(net: &mut Net) -> Made {
    text(net, MINILM, Some(TOKENS))
}

/// The same for any number of tokens up to [`PLACES`].
pub(crate) fn minilm_any(net: &mut Net) -> Made {
    text(net, MINILM, None)
}

/// Over so many tokens, or any number.
fn text(net: &mut Net, sizes: Sizes, length: Option<usize>) -> Made {
    let hidden = sizes.hidden;
    let ids = match length {
        Some(length) => net.input("ids", DType::I64, &[length])?,
        None => net.input_of("ids", DType::I64, &[Dim::symbol("seq")])?,
    };
    let words = net.parameter("words", &[VOCABULARY, hidden], Spread::around(0.0, 1.0))?;
    let places = net.parameter("places", &[PLACES, hidden], Spread::around(0.0, 0.5))?;
    let n_places = length.unwrap_or(PLACES);
    let order = Tensor::new(&[1, n_places], (0..n_places as i64).collect());
    let order = order.map_err(|error| ZooError::new(ZooErrorKind::Weight(error), "order"))?;
    let mut order = net.shared("order", || order)?;
    if length.is_none() {
        // The exporter cuts what is stored to the length of the input.
        let n_tokens = net.op("ids.length", Shape { start: 1, end: Some(2) }, &[ids])?;
        let (first, axis) = (net.ints(&[0])?, net.ints(&[1])?);
        order = net.op("order.cut", Slice {}, &[order, first, n_tokens, axis])?;
    }
    let x = net.op("words.gather", Gather { axis: 0 }, &[words, ids])?;
    let y = net.op("places.gather", Gather { axis: 0 }, &[places, order])?;
    let x = net.op("embedding", Add {}, &[x, y])?;
    let x = net.layer_norm("norm", x, hidden, EPSILON)?;
    layers(net, x, length, sizes, "out")
}

/// Patches of 8x8x8 voxels, the encoder, and the voxels of each patch again.
pub(crate) fn mae3d(net: &mut Net) -> Made {
    let sizes = Sizes { hidden: 384, n_heads: 6, inner: 1536, n_layers: 6 };
    let (patch, n_patches) = (8, 512);
    let x = net.input("x", DType::F32, &[1, 64, 64, 64])?;
    let window = Window::patches(1, sizes.hidden, patch).dims(3).gain(gain::LINEAR).with_bias();
    let x = net.conv("patches", x, window)?;
    let x = net.reshape("patches.flat", x, &[-1, sizes.hidden as i64, n_patches as i64])?;
    let x = net.transpose("patches.tokens", x, &[0, 2, 1])?;
    let places = net.parameter("places", &[1, n_patches, sizes.hidden], Spread::around(0.0, 0.02))?;
    let x = net.op("embedding", Add {}, &[x, places])?;
    let x = layers(net, x, Some(n_patches), sizes, "encoded")?;
    net.linear("out", x, sizes.hidden, patch.pow(3), gain::LINEAR)
}

/// The layers; the last value is called `last`.
fn layers(net: &mut Net, mut x: ValueId, length: Option<usize>, sizes: Sizes, last: &str) -> Made {
    let Sizes { hidden, inner, n_layers, .. } = sizes;
    for idx in 0..n_layers {
        let name = format!("layer{idx}");
        let part = |part: &str| format!("{name}.{part}");
        let y = attention(net, &part("attention"), x, length, sizes)?;
        let y = net.op(&part("add1"), Add {}, &[x, y])?;
        let y = net.layer_norm(&part("norm1"), y, hidden, EPSILON)?;
        let z = net.linear(&part("inner"), y, hidden, inner, gain::LINEAR)?;
        let z = net.gelu(&part("gelu"), z)?;
        let z = net.linear(&part("outer"), z, inner, hidden, gain::GELU)?;
        let z = net.op(&part("add2"), Add {}, &[y, z])?;
        let norm = if idx + 1 == n_layers { last.to_string() } else { part("norm2") };
        x = net.layer_norm(&norm, z, hidden, EPSILON)?;
    }
    Ok(x)
}

/// Softmax(Q K' / sqrt d) V over heads, and a linear layer.
fn attention(net: &mut Net, name: &str, x: ValueId, length: Option<usize>, sizes: Sizes) -> Made {
    let Sizes { hidden, n_heads, .. } = sizes;
    let size = hidden / n_heads;
    let tokens = |net: &mut Net, name: &str, y: ValueId, rest: &[i64]| match length {
        Some(length) => net.reshape(name, y, &[&[-1, length as i64], rest].concat()),
        None => net.reshape_rest(name, y, &[&[0, 0], rest].concat()),
    };
    let head = |net: &mut Net, part: &str, perm: &[i64]| {
        let y = net.linear(&format!("{name}.{part}"), x, hidden, hidden, gain::LINEAR)?;
        let y = tokens(net, &format!("{name}.{part}.split"), y, &[n_heads as i64, size as i64])?;
        net.transpose(&format!("{name}.{part}.heads"), y, perm)
    };
    let q = head(net, "q", &[0, 2, 1, 3])?;
    // The exporter has turned K's two transposes into one.
    let k = head(net, "k", &[0, 2, 3, 1])?;
    let v = head(net, "v", &[0, 2, 1, 3])?;
    let part = |part: &str| format!("{name}.{part}");
    let scores = net.op(&part("scores"), MatMul {}, &[q, k])?;
    let root = net.number((size as f32).sqrt())?;
    let scores = net.op(&part("scaled"), Div {}, &[scores, root])?;
    let weights = net.op(&part("softmax"), Softmax { axis: -1 }, &[scores])?;
    let mixed = net.op(&part("mixed"), MatMul {}, &[weights, v])?;
    let mixed = net.transpose(&part("mixed.tokens"), mixed, &[0, 2, 1, 3])?;
    let mixed = tokens(net, &part("mixed.joined"), mixed, &[hidden as i64])?;
    net.linear(&part("o"), mixed, hidden, hidden, gain::LINEAR)
}
