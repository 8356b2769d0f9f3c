//! Products and convolutions of 8 bits on a GPU, by family: our own kernels beside cuBLASLt and cuDNN. Microseconds in a
//! replayed graph, weights rotating among copies that no cache holds.
//!
//! `cargo bench -p planish-cuda --bench bytes -- [--only TEXT,…] [--type e4m3|i8]`: for each layer of BERT-base (batch 32, 128
//! tokens) and ResNet-50 (batch 64) the fastest tactic of each family. Results are not looked at: the conformance suite
//! compares them.

#![allow(unsafe_code)]

mod replayed;

use std::error::Error;

use planish_cuda::Cuda;
use planish_kernel::{Budget, Device, Problem, QueueOptions, Ref, RegionNode};
use planish_op::{self as op};
use planish_tensor::DType;
use planish_testing::problems::quantized::{To, quantized};
use planish_testing::problems::{conv, matmul};

use self::replayed::{compile_all, time};

/// Families that multiply bytes.
const FAMILIES: [&str; 7] = ["wgemm", "wconv", "whalo", "gemm", "conv", "cublaslt", "cudnn"];

/// Names, columns and depth of BERT-base's products, and whether GELU follows and the result becomes bytes.
const PRODUCTS: [(&str, usize, usize, bool); 4] = [
    ("queries", 2304, 768, false),
    ("projection", 768, 768, false),
    ("inner", 3072, 768, true),
    ("outer", 768, 3072, false),
];

/// Channels, size, output channels and window of ResNet-50's convolutions.
const CONVOLUTIONS: [[usize; 4]; 12] = [
    [64, 56, 64, 1],
    [64, 56, 64, 3],
    [64, 56, 256, 1],
    [256, 56, 64, 1],
    [128, 28, 128, 3],
    [128, 28, 512, 1],
    [512, 28, 128, 1],
    [256, 14, 256, 3],
    [256, 14, 1024, 1],
    [1024, 14, 256, 1],
    [512, 7, 512, 3],
    [512, 7, 2048, 1],
];

/// The same with GELU in front of the rounding.
fn with_gelu(mut problem: Problem) -> Option<Problem> {
    let last = problem.region.nodes.pop()?;
    let gelu = op::Gelu { approximate: op::GeluApproximation::None }.into();
    let made = Some(Ref::Node { node: problem.region.nodes.len() as u32, output: 0 });
    let inputs = last.inputs[..1].to_vec();
    problem.region.nodes.push(RegionNode { name: "gelu".into(), op: gelu, inputs, n_outputs: 1 });
    let inputs = [&[made], &last.inputs[1..]].concat();
    problem.region.nodes.push(RegionNode { inputs, ..last });
    problem.region.outputs = vec![Ref::Node { node: problem.region.nodes.len() as u32 - 1, output: 0 }];
    Some(problem)
}

fn layers(dtype: DType) -> Vec<(String, Problem)> {
    let mut all = Vec::new();
    for (name, n, k, gelu) in PRODUCTS {
        let wide = matmul::matmul(DType::F16, &[4096, k], &[k, n], true, None);
        let to = if gelu { To::Bytes(0) } else { To::F16 };
        let bytes = quantized(&wide, dtype, 0, to);
        let bytes = if gelu { bytes.and_then(with_gelu) } else { bytes };
        all.extend(bytes.map(|problem| (format!("bert {name}"), problem)));
    }
    for [channels, size, outputs, window] in CONVOLUTIONS {
        let kernel = [window, window];
        let wide = conv::conv(DType::F16, &[64, channels, size, size], outputs, &kernel, |_| {});
        let bytes = quantized(&wide, dtype, 0, To::Bytes(0));
        all.extend(
            bytes
                .map(|problem| (format!("resnet {channels}x{size} to {outputs} {window}x{window}"), problem)),
        );
    }
    all
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut only, mut dtype) = (None, DType::I8);
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or("an argument without a value")?;
        match argument.as_str() {
            "--only" => only = Some(value),
            "--type" => dtype = if value == "e4m3" { DType::F8E4M3FN } else { DType::I8 },
            other => return Err(format!("unknown argument `{other}`").into()),
        }
    }
    let cuda = Cuda::open(0)?;
    let mut queue = cuda.queue(QueueOptions::new(1))?;
    println!("{}: {}, us: best of each family", cuda.gpu().name, dtype.name());
    for (name, problem) in layers(dtype) {
        if !only.as_ref().is_none_or(|only| only.split(',').any(|text| name.contains(text))) {
            continue;
        }
        let mut line = Vec::new();
        for family in FAMILIES {
            let candidates = cuda.candidates_of(family, &problem, &Budget::USUAL);
            compile_all(&cuda, &problem, &candidates);
            let mut times = Vec::new();
            for candidate in &candidates {
                match time(&cuda, &mut *queue, &problem, candidate) {
                    Ok(us) => times.push((us, &candidate.tactic.name)),
                    Err(error) => println!("{}: {error}", candidate.tactic),
                }
            }
            times.sort_by(|a, b| a.0.total_cmp(&b.0));
            line.extend(times.first().map(|(us, tactic)| {
                let tactic = if tactic.len() > 40 { family } else { tactic };
                format!("{us:.2} {tactic}")
            }));
        }
        println!("{name}: {}", line.join(", "));
    }
    Ok(())
}
