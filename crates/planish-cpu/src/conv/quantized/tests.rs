//! Every candidate against the reference, byte by byte: scales are powers of two, so that f32 and integers agree exactly
//! and ties are ties in both.

use planish_kernel::{Budget, Candidate, PackedForm, Problem, Ref, Region, WeightUse};
use planish_op as op;
use planish_op::{AutoPad, Op};
use planish_tensor::{DType, Tensor};
use planish_testing::operand::wanted;
use planish_testing::{
    Fenced, Placed, Placement, Random, Tolerance, assert_close, constant, input, node, region,
};

use super::QuantizedFamily;
use crate::family::Family;
use crate::isa::{Feature, Isa};
use crate::team::Team;
use crate::trial::run_on;

/// Sums are exact and scales are powers of two.
const EXACT: Tolerance = Tolerance::absolute(0.0);

/// Slow tiles too.
const EVERY: Budget = Budget { host_ratio: f64::INFINITY, ..Budget::USUAL };

struct Trial {
    family: QuantizedFamily,
    region: Region,
    inputs: Vec<Tensor>,
    want: Tensor,
    problem: Problem,
}

impl Trial {
    /// `constants` are the inputs that are weights, scales and biases.
    fn new(family: QuantizedFamily, region: Region, inputs: Vec<Tensor>, constants: &[usize]) -> Trial {
        let (mut problem, mut want) = Placement::ALL[0].problem(&region, &inputs);
        constants.iter().for_each(|&idx| problem.inputs[idx].constant = true);
        Trial { family, region, inputs, want: want.remove(0), problem }
    }

    fn check(&self) -> Vec<String> {
        let mut names = Vec::new();
        for isa in Isa::available() {
            let candidates = self.family.candidates(isa, &self.problem, &EVERY);
            assert!(!candidates.is_empty(), "{isa}: {}", self.problem.key());
            for candidate in candidates {
                for (gap, threads) in [(0, 1), (4, 1), (8, 4)] {
                    self.run(isa, &candidate, gap, threads);
                }
                names.push(candidate.tactic.name);
            }
        }
        names
    }

    fn run(&self, isa: Isa, candidate: &Candidate, gap: usize, threads: usize) {
        let mut problem = self.problem.clone();
        for (operand, want) in problem.inputs.iter_mut().zip(&candidate.inputs) {
            *operand = wanted(operand, *want, gap);
        }
        problem.outputs[0] = wanted(&problem.outputs[0], candidate.outputs[0], gap);
        let tactic = &candidate.tactic;
        let mut placed: Vec<Placed> = Vec::new();
        let mut weight = Vec::new();
        for (idx, tensor) in self.inputs.iter().enumerate() {
            placed.push(Placed::new(tensor, &problem.inputs[idx]));
            if let Some(format) = &candidate.packed[idx] {
                let packed = self.family.pack(isa, WeightUse::new(&problem, tactic, idx), tensor).unwrap();
                assert_eq!(&packed.format, format);
                let bytes = crate::formats::packed_bytes(PackedForm {
                    format,
                    dtype: DType::I8,
                    dims: tensor.shape(),
                });
                assert_eq!(bytes, Some(packed.bytes.len()));
                problem.inputs[idx].packed = Some(format.clone());
                weight = packed.bytes;
            }
        }
        let work = self.family.prepare(isa, &problem, tactic).unwrap();
        let weight = Fenced::of(&weight);
        let mut from: Vec<*const u8> = placed.iter().map(Placed::ptr).collect();
        for (pointer, _) in from.iter_mut().zip(&candidate.packed).filter(|(_, packed)| packed.is_some()) {
            *pointer = weight.ptr();
        }
        let got = run_on(&*work, &problem, &from, &Team::new(threads)).unwrap().remove(0);
        assert_close(&got, &self.want, EXACT, &format!("{tactic} {}", self.region.key()));
    }
}

fn dequantize(axis: i64) -> Op {
    op::DequantizeLinear { output_dtype: None, block_size: 0, axis }.into()
}

fn quantize() -> Op {
    op::QuantizeLinear { precision: None, output_dtype: None, block_size: 0, saturate: true, axis: 1 }.into()
}

fn conv(pads: &[i64], strides: &[i64], group: i64) -> op::Conv {
    op::Conv {
        group,
        pads: pads.to_vec(),
        auto_pad: AutoPad::NotSet,
        strides: strides.to_vec(),
        dilations: Vec::new(),
        kernel_shape: None,
    }
}

/// A power of two for each channel.
fn scales(random: &mut Random, n: usize) -> Tensor {
    Tensor::vector((0..n).map(|_| 2f32.powi(-(random.below(3) as i32) - 6)).collect())
}

/// Weights up to `most`, with the extreme one among them.
fn weights(random: &mut Random, dims: &[usize], most: i64) -> Tensor {
    random.whole(DType::I8, dims, -most - 1, most)
}

/// A convolution of quantized operands to `to`, or to f32.
fn quantized_conv(
    seed: u64,
    x: &[usize],
    w: &[usize],
    conv: op::Conv,
    zero: u8,
    to: Option<Tensor>,
    most: i64,
) -> Trial {
    let mut random = Random::new(seed);
    let inputs = vec![
        random.whole(DType::U8, x, 0, 255),
        weights(&mut random, w, most),
        scales(&mut random, w[0]),
        Tensor::vector((0..w[0]).map(|_| random.below(64) as f32 * 0.125 - 4.0).collect()),
    ];
    let constants = vec![
        Tensor::scalar(0.25f32),
        Tensor::scalar(zero),
        Tensor::scalar(2f32),
        to.clone().unwrap_or(Tensor::scalar(0u8)),
    ];
    let mut nodes = vec![
        (dequantize(1), vec![input(0), constant(0), constant(1)]),
        (dequantize(0), vec![input(1), input(2)]),
        (conv.into(), vec![node(0), node(1), input(3)]),
        (op::Relu {}.into(), vec![node(2)]),
    ];
    if to.is_some() {
        nodes.push((quantize(), vec![node(3), constant(2), constant(3)]));
    }
    Trial::new(QuantizedFamily::Conv, region(4, constants, nodes), inputs, &[1, 2, 3])
}

#[test]
fn convolutions_to_bytes_and_to_floats() {
    for to in [Some(Tensor::scalar(3u8)), Some(Tensor::scalar(-100i8)), None] {
        let names = quantized_conv(
            1,
            &[2, 8, 9, 7],
            &[35, 8, 3, 3],
            conv(&[1, 1, 1, 1], &[1, 1], 1),
            128,
            to.clone(),
            127,
        )
        .check();
        for isa in Isa::available() {
            let end = if isa.name() == "avx512" { "_avx512vnni".into() } else { format!("_{isa}") };
            let is_there = names.iter().any(|name| name.ends_with(&end));
            assert!(is_there || isa.name() == "avx512" && !Feature::Avx512Vnni.is_here(), "{end}: {names:?}");
        }
        quantized_conv(2, &[1, 4, 5, 6], &[17, 4, 1, 1], conv(&[], &[], 1), 0, to.clone(), 63).check();
        quantized_conv(3, &[1, 12, 11], &[9, 12, 4], conv(&[2, 1], &[2], 1), 7, to.clone(), 127).check();
        quantized_conv(4, &[1, 4, 5, 6, 4], &[16, 4, 3, 3, 2], conv(&[1; 6], &[], 1), 255, to.clone(), 127)
            .check();
        quantized_conv(5, &[3, 24, 6, 5], &[6, 8, 2, 3], conv(&[0, 1, 1, 0], &[1, 2], 3), 128, to, 127)
            .check();
    }
}

/// Weights that two neighbouring products of which leave 16 bits, and the largest activations.
#[test]
fn the_largest_sums_are_exact() {
    let mut trial =
        quantized_conv(6, &[1, 32, 4, 4], &[33, 32, 3, 3], conv(&[1, 1, 1, 1], &[1, 1], 1), 0, None, 127);
    trial.inputs[0] = Tensor::from_i64s(DType::U8, &[1, 32, 4, 4], &[255; 512]).unwrap();
    trial.inputs[1] = Tensor::from_i64s(DType::I8, &[33, 32, 3, 3], &[-128; 33 * 32 * 9]).unwrap();
    let (mut problem, mut want) = Placement::ALL[0].problem(&trial.region, &trial.inputs);
    (1..4).for_each(|idx| problem.inputs[idx].constant = true);
    (trial.problem, trial.want) = (problem, want.remove(0));
    trial.check();
}

#[test]
fn residuals_of_every_type() {
    let dims = ([1usize, 8, 6, 7], [20usize, 8, 3, 3]);
    for dtype in [DType::U8, DType::I8, DType::F32] {
        let mut random = Random::new(7);
        let out = [1usize, 20, 6, 7];
        let residual = match dtype {
            DType::F32 => random.made(DType::F32, &out, |random| random.below(64) as f64 * 0.25 - 8.0),
            DType::U8 => random.whole(dtype, &out, 0, 255),
            _ => random.whole(dtype, &out, -128, 127),
        };
        let zero =
            Tensor::from_i64s(if dtype == DType::F32 { DType::U8 } else { dtype }, &[], &[11]).unwrap();
        let inputs = vec![
            random.whole(DType::U8, &dims.0, 0, 255),
            weights(&mut random, &dims.1, 127),
            scales(&mut random, 20),
            residual,
        ];
        let constants = vec![
            Tensor::scalar(0.25f32),
            Tensor::scalar(128u8),
            Tensor::scalar(0.5f32),
            zero,
            Tensor::scalar(1f32),
            Tensor::scalar(0u8),
        ];
        let mut nodes = vec![
            (dequantize(1), vec![input(0), constant(0), constant(1)]),
            (dequantize(0), vec![input(1), input(2)]),
            (conv(&[1, 1, 1, 1], &[], 1).into(), vec![node(0), node(1)]),
        ];
        let added = if dtype == DType::F32 {
            input(3)
        } else {
            nodes.push((dequantize(1), vec![input(3), constant(2), constant(3)]));
            node(3)
        };
        let at = nodes.len() as u32;
        nodes.push((op::Add {}.into(), vec![node(2), added]));
        nodes.push((op::Relu {}.into(), vec![node(at)]));
        nodes.push((quantize(), vec![node(at + 1), constant(4), constant(5)]));
        Trial::new(QuantizedFamily::Conv, region(4, constants, nodes), inputs, &[1, 2]).check();
    }
}

#[test]
fn matrix_products() {
    for (x, w, transposed) in [
        (vec![7usize, 12], [12usize, 33], false),
        (vec![2, 3, 8], [8, 16], false),
        (vec![5, 16], [10, 16], true),
    ] {
        let mut random = Random::new(8);
        let n = if transposed { w[0] } else { w[1] };
        let inputs = vec![
            random.whole(DType::U8, &x, 0, 255),
            weights(&mut random, &w, 127),
            scales(&mut random, n),
            Tensor::vector((0..n).map(|_| random.below(64) as f32 * 0.125 - 4.0).collect()),
        ];
        let constants =
            vec![Tensor::scalar(0.25f32), Tensor::scalar(100u8), Tensor::scalar(4f32), Tensor::scalar(128u8)];
        let (main, bias): (Op, Vec<Option<Ref>>) = match transposed {
            true => {
                let gemm = op::Gemm { alpha: 1.0, beta: 1.0, trans_a: false, trans_b: true };
                (gemm.into(), vec![node(0), node(1), input(3)])
            }
            false => (op::MatMul {}.into(), vec![node(0), node(1)]),
        };
        let mut nodes = vec![
            (dequantize(1), vec![input(0), constant(0), constant(1)]),
            (dequantize(if transposed { 0 } else { 1 }), vec![input(1), input(2)]),
            (main, bias),
        ];
        if !transposed {
            nodes.push((op::Add {}.into(), vec![node(2), input(3)]));
        }
        let last = node(nodes.len() as u32 - 1);
        nodes.push((quantize(), vec![last, constant(2), constant(3)]));
        let names =
            Trial::new(QuantizedFamily::Matrix, region(4, constants, nodes), inputs, &[1, 2, 3]).check();
        assert!(names.iter().all(|name| name.starts_with("qgemm_u8_")), "{names:?}");
    }
}

/// What the kernels do not compute is not offered.
#[test]
fn others_are_refused() {
    let offered = |trial: &Trial| trial.family.candidates(Isa::best(), &trial.problem, &Budget::USUAL).len();
    let mut odd = quantized_conv(9, &[1, 6, 5, 5], &[8, 6, 3, 3], conv(&[], &[], 1), 0, None, 127);
    assert_eq!(offered(&odd), 0, "six channels are no quads");
    odd = quantized_conv(9, &[1, 8, 5, 5], &[8, 8, 3, 3], conv(&[], &[], 1), 0, None, 127);
    assert!(offered(&odd) > 0);
    odd.problem.inputs[1].constant = false;
    assert_eq!(offered(&odd), 0, "weights that are not known");
    odd = quantized_conv(9, &[1, 8, 5, 5], &[8, 8, 3, 3], conv(&[], &[], 1), 0, None, 127);
    odd.problem.inputs[0].dtype = DType::I8;
    assert_eq!(offered(&odd), 0, "signed activations");
}
