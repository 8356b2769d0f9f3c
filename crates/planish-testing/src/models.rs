//! Small models, one for each family of kernels. Sizes leave tails in every dimension.

use std::fmt::Write;

use crate::Random;

/// Weights around zero, scaled so that a sum over `fan_in` terms has a variance of about 1.
pub fn weight(name: &str, shape: &[usize], fan_in: usize, seed: u64) -> String {
    let mut random = Random::new(seed);
    let scale = (3.0 / fan_in as f64).sqrt();
    let mut text = format!("const %{name}: f32{shape:?} = [");
    for idx in 0..shape.iter().product() {
        let value = f64::from(random.float()) * scale;
        let _ = write!(text, "{}{value:.6}", if idx == 0 { "" } else { ", " });
    }
    text + "]"
}

fn graph(body: &str) -> String {
    format!("graph \"g\" {{\n{body}\n}}")
}

/// A 3x3 convolution with bias and Relu, after a Neg so that its input is not an input of the model.
pub fn conv() -> String {
    graph(&format!(
        "input %x: f32[2,24,19,23]\n{}\n{}
         %n: f32[2,24,19,23] = Neg(%x)
         %c: f32[2,40,19,23] = Conv(%n, %w, %b) {{ pads = [1, 1, 1, 1] }}
         %y: f32[2,40,19,23] = Relu(%c)
         output %y",
        weight("w", &[40, 24, 3, 3], 216, 1),
        weight("b", &[40], 3, 2)
    ))
}

/// A 3x3 convolution that keeps its shape, without a bias or an activation.
pub fn plain_conv() -> String {
    graph(&format!(
        "input %x: f32[2,32,17,17]\n{}
         %n: f32[2,32,17,17] = Tanh(%x)
         %y: f32[2,32,17,17] = Conv(%n, %w) {{ pads = [1, 1, 1, 1] }}
         %z: f32[2,32,17,17] = Neg(%y)
         output %z",
        weight("w", &[32, 32, 3, 3], 288, 1)
    ))
}

/// A 1x1 convolution with a residual and a clipped activation.
pub fn residual() -> String {
    graph(&format!(
        "input %x: f32[1,20,15,15]\ninput %r: f32[1,36,15,15]\n{}\n{}
         const %lo: f32[] = 0.0
         const %hi: f32[] = 2.0
         %c: f32[1,36,15,15] = Conv(%x, %w, %b)
         %s: f32[1,36,15,15] = Add(%c, %r)
         %y: f32[1,36,15,15] = Clip(%s, %lo, %hi)
         output %y",
        weight("w", &[36, 20, 1, 1], 20, 1),
        weight("b", &[36], 3, 2)
    ))
}

/// A 3x3 convolution with stride 2 on a square.
pub fn strided() -> String {
    graph(&format!(
        "input %x: f32[1,16,25,25]\n{}\n{}
         %y: f32[1,24,13,13] = Conv(%x, %w, %b) {{ pads = [1, 1, 1, 1], strides = [2, 2] }}
         output %y",
        weight("w", &[24, 16, 3, 3], 144, 1),
        weight("b", &[24], 3, 2)
    ))
}

/// A first convolution: few channels, a large window.
pub fn stem() -> String {
    graph(&format!(
        "input %x: f32[1,3,41,43]\n{}\n{}
         %c: f32[1,40,21,22] = Conv(%x, %w, %b) {{ pads = [3, 3, 3, 3], strides = [2, 2] }}
         %y: f32[1,40,21,22] = Relu(%c)
         output %y",
        weight("w", &[40, 3, 7, 7], 147, 1),
        weight("b", &[40], 3, 2)
    ))
}

/// A depthwise 3x3 convolution with bias and Relu.
pub fn depthwise() -> String {
    graph(&format!(
        "input %x: f32[1,40,21,21]\n{}\n{}
         %c: f32[1,40,21,21] = Conv(%x, %w, %b) {{ pads = [1, 1, 1, 1], group = 40 }}
         %y: f32[1,40,21,21] = Relu(%c)
         output %y",
        weight("w", &[40, 1, 3, 3], 9, 1),
        weight("b", &[40], 3, 2)
    ))
}

/// A product with bias and Relu.
pub fn gemm() -> String {
    graph(&format!(
        "input %x: f32[37,71]\n{}\n{}
         %p: f32[37,53] = MatMul(%x, %w)
         %s: f32[37,53] = Add(%p, %b)
         %y: f32[37,53] = Relu(%s)
         output %y",
        weight("w", &[71, 53], 71, 1),
        weight("b", &[53], 3, 2)
    ))
}

/// Signed bytes of all sizes.
fn bytes(name: &str, shape: &[usize], seed: u64) -> String {
    let mut random = Random::new(seed);
    let list: Vec<String> =
        (0..shape.iter().product()).map(|_| (random.below(255) as i64 - 127).to_string()).collect();
    format!("const %{name}: i8{shape:?} = [{}]", list.join(", "))
}

/// Scales that differ by a factor of up to two, by which sums over `fan_in` bytes have a variance of about 1.
fn scales(name: &str, shape: &[usize], fan_in: usize) -> String {
    let usual = 1.0 / (74.0 * (fan_in as f64).sqrt());
    let list: Vec<String> = (0..shape.iter().product::<usize>())
        .map(|at| format!("{:.7}", usual * (1.0 + (at % 7) as f64 / 7.0)))
        .collect();
    format!("const %{name}: f32{shape:?} = [{}]", list.join(", "))
}

/// A product with a weight of bytes in blocks of 16 with a scale each.
pub fn few_bits() -> String {
    graph(&format!(
        "input %x: f32[19,48]\n{}\n{}
         %v: f32[48,37] = DequantizeLinear(%w, %s) {{ axis = 0, block_size = 16 }}
         %y: f32[19,37] = MatMul(%x, %v)
         output %y",
        bytes("w", &[48, 37], 1),
        scales("s", &[3, 37], 48)
    ))
}

/// An LSTM with weights of bytes and a scale for each row.
pub fn recurrent() -> String {
    graph(&format!(
        "input %x: f32[5,3,21]\n{}\n{}\n{}\n{}
         %v: f32[1,132,21] = DequantizeLinear(%w, %sw) {{ axis = 2, block_size = 21 }}
         %u: f32[1,132,33] = DequantizeLinear(%r, %sr) {{ axis = 2, block_size = 33 }}
         %y: f32[5,1,3,33] = LSTM(%x, %v, %u) {{ hidden_size = 33 }}
         output %y",
        bytes("w", &[1, 132, 21], 1),
        scales("sw", &[1, 132, 1], 21),
        bytes("r", &[1, 132, 33], 2),
        scales("sr", &[1, 132, 1], 33)
    ))
}

/// A square product, so that rows and columns can be confused.
pub fn square_gemm() -> String {
    graph(&format!(
        "input %x: f32[48,48]\n{}\n{}
         %p: f32[48,48] = MatMul(%x, %w)
         %y: f32[48,48] = Add(%p, %b)
         output %y",
        weight("w", &[48, 48], 48, 1),
        weight("b", &[48], 3, 2)
    ))
}

/// Element by element, with two operands that are broadcast.
pub fn pointwise() -> String {
    graph(&format!(
        "input %x: f32[3,21,45]\ninput %r: f32[21,1]\n{}
         %a: f32[3,21,45] = Mul(%x, %s)
         %b: f32[3,21,45] = Add(%a, %r)
         %y: f32[3,21,45] = Sigmoid(%b)
         output %y",
        weight("s", &[45], 3, 1)
    ))
}

/// Element by element, of `n` rows.
pub fn rows() -> String {
    graph(
        "input %x: f32[n,131]
         %y: f32[n,131] = Tanh(%x)
         output %y",
    )
}

/// A product of `n` rows.
pub fn product_of_rows() -> String {
    graph(&format!(
        "input %x: f32[n,71]\n{}
         %y: f32[n,53] = MatMul(%x, %w)
         output %y",
        weight("w", &[71, 53], 71, 1)
    ))
}

/// A Relu that stands alone.
pub fn relu() -> String {
    graph(
        "input %x: f32[5,131]
         %y: f32[5,131] = Relu(%x)
         output %y",
    )
}

/// Layer norm.
pub fn layer_norm() -> String {
    graph(&format!(
        "input %x: f32[13,70]\n{}\n{}
         %y: f32[13,70] = LayerNormalization(%x, %s, %b) {{ epsilon = 0.001 }}
         output %y",
        weight("s", &[70], 3, 1),
        weight("b", &[70], 3, 2)
    ))
}

/// Group norm.
pub fn group_norm() -> String {
    graph(&format!(
        "input %x: f32[2,24,9,11]\n{}\n{}
         %y: f32[2,24,9,11] = GroupNormalization(%x, %s, %b) {{ num_groups = 4 }}
         output %y",
        weight("s", &[24], 3, 1),
        weight("b", &[24], 3, 2)
    ))
}

/// Softmax.
pub fn softmax() -> String {
    graph(
        "input %x: f32[29,77]
         %y: f32[29,77] = Softmax(%x)
         output %y",
    )
}

/// Attention.
pub fn attention() -> String {
    graph(
        "input %q: f32[2,4,19,16]
         input %k: f32[2,4,23,16]
         input %v: f32[2,4,23,16]
         %y: f32[2,4,19,16] = Attention(%q, %k, %v)
         output %y",
    )
}

/// Causal.
pub fn causal() -> String {
    graph(
        "input %q: f32[1,4,19,16]
         input %k: f32[1,4,19,16]
         input %v: f32[1,4,19,16]
         %y: f32[1,4,19,16] = Attention(%q, %k, %v) { is_causal = true }
         output %y",
    )
}

/// Max pool.
pub fn max_pool() -> String {
    graph(
        "input %x: f32[1,20,17,19]
         %n: f32[1,20,17,19] = Tanh(%x)
         %y: f32[1,20,17,19] = MaxPool(%n) { kernel_shape = [3, 3], pads = [1, 1, 1, 1] }
         %z: f32[1,20,17,19] = Neg(%y)
         output %z",
    )
}

/// Average pool.
pub fn average_pool() -> String {
    graph(
        "input %x: f32[1,20,17,19]
         %y: f32[1,20,17,19] = AveragePool(%x) { kernel_shape = [3, 3], pads = [1, 1, 1, 1] }
         output %y",
    )
}

/// Transpose.
pub fn transpose() -> String {
    graph(
        "input %x: f32[23,23,5]
         %n: f32[23,23,5] = Tanh(%x)
         %t: f32[23,23,5] = Transpose(%n) { perm = [1, 0, 2] }
         %y: f32[23,23,5] = Neg(%t)
         output %y",
    )
}

/// Concat.
pub fn concat() -> String {
    graph(
        "input %x: f32[3,17,5]
         input %z: f32[3,9,5]
         %y: f32[3,26,5] = Concat(%x, %z) { axis = 1 }
         output %y",
    )
}

/// Pad.
pub fn pad() -> String {
    graph(
        "input %x: f32[4,13,15]
         const %p: i64[6] = [0, 2, 1, 0, 1, 3]
         const %v: f32[] = 0.5
         %y: f32[4,16,19] = Pad(%x, %p, %v)
         output %y",
    )
}

/// Resize.
pub fn resize() -> String {
    graph(
        "input %x: f32[1,6,11,13]
         const %s: f32[4] = [1.0, 1.0, 2.0, 2.0]
         %y: f32[1,6,22,26] = Resize(%x, _, %s) { mode = \"linear\" }
         output %y",
    )
}

/// Reduce.
pub fn reduce() -> String {
    graph(
        "input %x: f32[19,67]
         const %a: i64[1] = [1]
         %y: f32[19,1] = ReduceMean(%x, %a) { keepdims = true }
         output %y",
    )
}

/// A convolution that is too large for the reference: every element is compared with other kernels instead.
pub fn large_conv() -> String {
    graph(&format!(
        "input %x: f32[1,64,44,44]\n{}
         %c: f32[1,64,44,44] = Conv(%x, %w) {{ pads = [1, 1, 1, 1] }}
         %y: f32[1,64,44,44] = Relu(%c)
         output %y",
        weight("w", &[64, 64, 3, 3], 576, 1)
    ))
}

/// A product that is too large for the reference.
pub fn large_gemm() -> String {
    graph(&format!(
        "input %x: f32[700,257]\n{}
         %y: f32[700,253] = MatMul(%x, %w)
         output %y",
        weight("w", &[257, 253], 257, 1)
    ))
}

/// Widened, depthwise and narrowed again, in one step.
pub fn bottleneck() -> String {
    graph(&format!(
        "input %x: f32[1,16,46,46]\n{}\n{}\n{}
         const %lo: f32[] = 0.0
         const %hi: f32[] = 6.0
         %a: f32[1,96,46,46] = Conv(%x, %u)
         %b: f32[1,96,46,46] = Clip(%a, %lo, %hi)
         %c: f32[1,96,46,46] = Conv(%b, %v) {{ pads = [1, 1, 1, 1], group = 96 }}
         %d: f32[1,96,46,46] = Clip(%c, %lo, %hi)
         %y: f32[1,24,46,46] = Conv(%d, %w)
         output %y",
        weight("u", &[96, 16, 1, 1], 16, 1),
        weight("v", &[96, 1, 3, 3], 9, 2),
        weight("w", &[24, 96, 1, 1], 96, 3)
    ))
}

/// Rows of a table by number.
pub fn gather() -> String {
    graph(&format!(
        "input %i: i64[19]\n{}
         %y: f32[19,24] = Gather(%t, %i)
         output %y",
        weight("t", &[50, 24], 3, 1)
    ))
}

/// Pairs of 19 with a tail, and elements behind them, by position.
pub fn rotary() -> String {
    graph(&format!(
        "input %x: f32[2,3,11,44]\ninput %i: i64[2,11]\n{}\n{}
         %y: f32[2,3,11,44] = RotaryEmbedding(%x, %cos, %sin, %i) {{ rotary_embedding_dim = 38 }}
         output %y",
        weight("cos", &[13, 19], 3, 1),
        weight("sin", &[13, 19], 3, 2)
    ))
}

/// Integers that become floats.
pub fn cast() -> String {
    graph(
        "input %i: i32[7,131]
         const %s: f32[] = 0.5
         %x: f32[7,131] = Cast(%i) { to = f32 }
         %y: f32[7,131] = Mul(%x, %s)
         output %y",
    )
}

/// Attention with a mask that is added.
pub fn masked() -> String {
    graph(
        "input %q: f32[1,4,19,16]
         input %k: f32[1,4,23,16]
         input %v: f32[1,4,23,16]
         input %m: f32[19,23]
         %y: f32[1,4,19,16] = Attention(%q, %k, %v, %m)
         output %y",
    )
}

/// The positive elements of `x`, doubled, and where they are: sizes that only a run can tell.
pub fn positive_elements() -> String {
    graph(
        "input %x: f32[4,5]
         %r: f32[4,5] = Relu(%x)
         %n: i64[2,\"n'0\"] = NonZero(%r)
         %t: i64[\"n'0\",2] = Transpose(%n) { perm = [1, 0] }
         %g: f32[\"n'0\"] = GatherND(%r, %t)
         %e: f32[\"n'0\"] = Add(%g, %g)
         output %e, %t, %r",
    )
}

/// A loop that carries `activation(x · w)` of `rows` by `columns` elements and collects the products; `w` is given as
/// the numbers of its text.
pub fn loop_of_products(rows: usize, columns: usize, w: &str, activation: &str) -> String {
    let (x, square) = (format!("f32[{rows},{columns}]"), format!("f32[{columns},{columns}]"));
    let all = format!("f32[\"k'0\",{rows},{columns}]");
    graph(&format!(
        "input %n: i64[]
         input %x: {x}
         const %w: {square} = [{w}]
         %last: {x}, %all: {all} = Loop(%n, _, %x; %w) [
             graph \"step\" {{
                 input %i: i64[]
                 input %go: bool[]
                 input %v: {x}
                 input %w: {square}
                 %p: {x} = MatMul(%v, %w)
                 %t: {x} = {activation}(%p)
                 output %go, %t, %p
             }}
         ]
         %y: {all} = Relu(%all)
         output %last, %y"
    ))
}

/// A product in the body of a loop.
pub fn loop_body() -> String {
    graph(&format!(
        "input %n: i64[]
         input %x: f32[9,21]\n{}
         %last: f32[9,21] = Loop(%n, _, %x; %w) [
             graph \"step\" {{
                 input %i: i64[]
                 input %go: bool[]
                 input %v: f32[9,21]
                 input %u: f32[21,21]
                 %p: f32[9,21] = MatMul(%v, %u)
                 %r: f32[9,21] = Tanh(%p)
                 output %go, %r
             }}
         ]
         output %last",
        weight("w", &[21, 21], 21, 1)
    ))
}

/// A product in the body of a scan.
pub fn scan_body() -> String {
    graph(&format!(
        "input %h: f32[3,21]
         input %x: f32[5,3,21]\n{}
         %last: f32[3,21], %all: f32[5,3,21] = Scan(%h, %x; %w) {{ num_scan_inputs = 1 }} [
             graph \"step\" {{
                 input %s: f32[3,21]
                 input %e: f32[3,21]
                 input %u: f32[21,21]
                 %a: f32[3,21] = Add(%s, %e)
                 %p: f32[3,21] = MatMul(%a, %u)
                 %r: f32[3,21] = Tanh(%p)
                 %o: f32[3,21] = Neg(%r)
                 output %r, %o
             }}
         ]
         output %last, %all",
        weight("w", &[21, 21], 21, 1)
    ))
}

/// Softmax in one branch, a norm in the other.
pub fn branches() -> String {
    graph(&format!(
        "input %c: bool[]
         input %x: f32[13,70]\n{}
         %y: f32[13,70] = If(%c; %x, %s) [
             graph \"then\" {{
                 input %a: f32[13,70]
                 input %sa: f32[70]
                 %p: f32[13,70] = Softmax(%a)
                 output %p
             }},
             graph \"else\" {{
                 input %b: f32[13,70]
                 input %sb: f32[70]
                 %q: f32[13,70] = LayerNormalization(%b, %sb)
                 output %q
             }}
         ]
         output %y",
        weight("s", &[70], 3, 1)
    ))
}

/// A product of any number of rows, without a profile.
pub fn open_rows() -> String {
    product_of_rows().replace("[n,", "[k,")
}

/// A product of rows with two profiles.
pub fn two_profiles() -> String {
    product_of_rows().replace("[n,", "[m,")
}
