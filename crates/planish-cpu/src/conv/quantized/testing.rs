//! Every candidate of a family of quantized products against the reference, byte by byte: scales are powers of two, so
//! that f32 and integers agree exactly and ties are ties in both.

use planish_kernel::{Budget, Candidate, PackedForm, PackedWeight, Problem, Region};
use planish_op as op;
use planish_op::{AutoPad, Op};
use planish_tensor::{DType, Tensor};
use planish_testing::{Placement, Random, Tolerance, assert_close, constant, input, node, region};

use crate::family::Family;
use crate::isa::Isa;
use crate::trial::Arranged;

/// Sums are exact and scales are powers of two.
const EXACT: Tolerance = Tolerance::absolute(0.0);

/// Slow tiles too.
const EVERY: Budget = Budget { host_ratio: f64::INFINITY, ..Budget::USUAL };

/// A region with what it reads, and what the reference makes of it.
pub(crate) struct Trial {
    pub(crate) family: &'static dyn Family,
    pub(crate) region: Region,
    pub(crate) inputs: Vec<Tensor>,
    pub(crate) want: Tensor,
    pub(crate) problem: Problem,
}

impl Trial {
    /// The inputs that `constants` numbers are weights, scales and biases.
    pub(crate) fn new(
        family: &'static dyn Family,
        region: Region,
        inputs: Vec<Tensor>,
        constants: &[usize],
    ) -> Trial {
        let (mut problem, mut want) = Placement::ALL[0].problem(&region, &inputs);
        constants.iter().for_each(|&idx| problem.inputs[idx].constant = true);
        Trial { family, region, inputs, want: want.remove(0), problem }
    }

    /// Runs every candidate on every instruction set, and names them.
    pub(crate) fn check(&self) -> Vec<String> {
        let mut names = Vec::new();
        for isa in Isa::available() {
            let candidates = self.family.candidates(isa, &self.problem, &EVERY);
            assert!(!candidates.is_empty(), "{isa}: {}", self.problem.key());
            for candidate in candidates {
                for (gap, threads) in [(0, 1), (4, 1), (8, 4)] {
                    self.run(isa, &candidate, gap, threads);
                }
                // Pixels that begin anywhere are copied.
                if candidate.tactic.name.starts_with("qconv_igemm_") {
                    self.run(isa, &candidate, 3, 2);
                }
                names.push(candidate.tactic.name);
            }
        }
        names
    }

    /// How many candidates there are.
    pub(crate) fn n_offered(&self) -> usize {
        self.family.candidates(Isa::best(), &self.problem, &Budget::USUAL).len()
    }

    fn run(&self, isa: Isa, candidate: &Candidate, gap: usize, threads: usize) {
        let check_packed = |packed: &PackedWeight, tensor: &Tensor| {
            let form = PackedForm { dtype: DType::I8, ..packed.form_of(tensor) };
            assert_eq!(crate::formats::packed_bytes(form), Some(packed.bytes.len()));
        };
        let arranged = Arranged::new(&self.problem, candidate, gap);
        let got = arranged.run(self.family, isa, &self.inputs, threads, check_packed);
        let tactic = &candidate.tactic;
        assert_close(&got, &self.want, EXACT, &format!("{tactic} {}", self.region.key()));
    }
}

pub(crate) fn dequantize(axis: i64) -> Op {
    op::DequantizeLinear { output_dtype: None, block_size: 0, axis }.into()
}

pub(crate) fn quantize() -> Op {
    op::QuantizeLinear { precision: None, output_dtype: None, block_size: 0, saturate: true, axis: 1 }.into()
}

pub(crate) fn conv(pads: &[i64], strides: &[i64], group: i64) -> op::Conv {
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
pub(crate) fn scales(random: &mut Random, n: usize) -> Tensor {
    Tensor::vector((0..n).map(|_| 2f32.powi(-(random.below(3) as i32) - 6)).collect())
}

/// Weights up to `most`, with the extreme one among them.
pub(crate) fn weights(random: &mut Random, dims: &[usize], most: i64) -> Tensor {
    random.whole(DType::I8, dims, -most - 1, most)
}

/// A convolution of quantized operands to `to`, or to f32.
pub(crate) fn quantized_conv(
    family: &'static dyn Family,
    seed: u64,
    (x, w): (&[usize], &[usize]),
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
    Trial::new(family, region(4, constants, nodes), inputs, &[1, 2, 3])
}

/// A 3x3 convolution of an image of 6 by 7 pixels with a residual of `dtype`.
pub(crate) fn with_residual(
    family: &'static dyn Family,
    (channels, w): (usize, &[usize]),
    group: i64,
    dtype: DType,
) -> Trial {
    let mut random = Random::new(7);
    let (x, out) = ([1, channels, 6, 7], [1, w[0], 6, 7]);
    let residual = match dtype {
        DType::F32 => random.made(DType::F32, &out, |random| random.below(64) as f64 * 0.25 - 8.0),
        DType::U8 => random.whole(dtype, &out, 0, 255),
        _ => random.whole(dtype, &out, -128, 127),
    };
    let zero = Tensor::from_i64s(if dtype == DType::F32 { DType::U8 } else { dtype }, &[], &[11]).unwrap();
    let inputs = vec![
        random.whole(DType::U8, &x, 0, 255),
        weights(&mut random, w, 127),
        scales(&mut random, w[0]),
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
        (conv(&[1, 1, 1, 1], &[], group).into(), vec![node(0), node(1)]),
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
    Trial::new(family, region(4, constants, nodes), inputs, &[1, 2])
}
