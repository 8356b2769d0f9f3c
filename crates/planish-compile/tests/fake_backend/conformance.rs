//! The conformance suite of backends on the fake device: its streams, its memory and its packed weights.

use planish_testing::conformance::{Conduct, Gap, cases, run};

use crate::device::Fake;

const REASON: &str =
    "it knows sums, products, Relu and casts of f32 and f16, and rows of f32 looked up by i64";

/// All that it does not know.
const UNKNOWN: [&str; 54] = [
    "attention/*",
    "conv*",
    "depthwise/*",
    "dynquant/*",
    "movement/*",
    "nbits/*",
    "norm/*",
    "pool/*",
    "quantized/*",
    "recurrent/*",
    "reduce/*",
    "resize/*",
    "rotary/*",
    "scan/*",
    "scatter/*",
    "softmax/*",
    "sparse/*bf16*",
    "sparse/*Gelu*",
    "sparse/*Tanh*",
    "sparse/Gemm*",
    "topk/*",
    "gather/Gather f16*",
    "gather/Gather f32[30x64] i32*",
    "gather/Gather f32[3x7x5]*",
    "gather/GatherElements*",
    "gather/GatherND*",
    "matmul/*bf16*",
    "matmul/*Gelu*",
    "matmul/*Tanh*",
    "pointwise/*bf16*",
    "pointwise/*Sigmoid*",
    "pointwise/Cast f32[33]",
    "pointwise/Add i*",
    "pointwise/Mul i*",
    "pointwise/Quantize*",
    "pointwise/Dequantize*",
    "pointwise/Abs*",
    "pointwise/And*",
    "pointwise/Div*",
    "pointwise/Equal*",
    "pointwise/Erf*",
    "pointwise/Exp*",
    "pointwise/Floor*",
    "pointwise/Less*",
    "pointwise/Max*",
    "pointwise/Min*",
    "pointwise/Neg*",
    "pointwise/Or*",
    "pointwise/Reciprocal*",
    "pointwise/Softplus*",
    "pointwise/Sqrt*",
    "pointwise/Sub*",
    "pointwise/Tanh*",
    "pointwise/Xor*",
];

#[test]
fn the_fake_device_computes_what_the_reference_does() {
    let fake = Fake::default();
    let gaps = UNKNOWN.map(|cases| Gap { cases, reason: REASON });
    match run(&fake, &cases(), Conduct::with_gaps(&gaps)) {
        Ok(report) => println!("{report}"),
        Err(wrong) => panic!("{wrong}"),
    }
    assert_eq!(fake.n_blocks(), 0, "device memory was not given back");
}
