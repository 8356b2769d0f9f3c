//! Every candidate against the reference, through the family as the backend sees it.

use planish_kernel::{Budget, PackedForm, Ref, Region};
use planish_op as op;
use planish_op::{AutoPad, Op};
use planish_tensor::DType;
use planish_testing::{Placement, Random, Tolerance, assert_close, input, node, region};

use super::*;

use crate::trial::Arranged;

/// Absolute error of sums of up to 360 terms below 1, whose sizes add up to about 90: Winograd's F(4x4) errs by
/// less than 1e-6 of that.
const TOLERANCE: Tolerance = Tolerance::absolute(9e-5);

struct Trial {
    region: Region,
    inputs: Vec<Tensor>,
    want: Tensor,
    problem: Problem,
}

/// `nodes` are operators with references to inputs; each also reads the node before it where it says `None`.
fn trial(seed: u64, dims: &[&[usize]], nodes: Vec<(Op, Vec<Option<Ref>>)>, constants: Vec<Tensor>) -> Trial {
    let mut random = Random::new(seed);
    over(dims.iter().map(|dims| random.floats(dims)).collect(), nodes, constants)
}

fn over(inputs: Vec<Tensor>, nodes: Vec<(Op, Vec<Option<Ref>>)>, constants: Vec<Tensor>) -> Trial {
    let region = region(inputs.len() as u32, constants, nodes);
    let (mut problem, mut want) = Placement::ALL[0].problem(&region, &inputs);
    problem.inputs[1].constant = true;
    Trial { region, inputs, want: want.remove(0), problem }
}

impl Trial {
    /// Runs all candidates and gives their names.
    fn check(&self) -> Vec<String> {
        let mut names = Vec::new();
        for isa in Isa::available() {
            let candidates = ConvFamily.candidates(isa, &self.problem, &Budget::USUAL);
            assert!(!candidates.is_empty(), "{}", self.problem.key());
            assert!(candidates.iter().any(|candidate| !candidate.tactic.name.contains("winograd")));
            for candidate in candidates {
                let outputs: Vec<Vec<u8>> = [(0, 1), (3, 1), (3, 4)]
                    .iter()
                    .map(|&(gap, threads)| self.run(isa, &candidate, gap, threads))
                    .collect();
                assert!(outputs.iter().all(|bits| *bits == outputs[0]), "{}", candidate.tactic);
                names.push(candidate.tactic.name);
            }
        }
        names
    }

    /// One run, compared with the reference; its bits.
    fn run(&self, isa: Isa, candidate: &Candidate, gap: usize, threads: usize) -> Vec<u8> {
        let tactic = &candidate.tactic;
        let check_packed = |packed: &PackedWeight, tensor: &Tensor| {
            if !tactic.name.contains("winograd") || tactic.name.contains("_live") {
                let again = crate::formats::unpack(packed.form_of(tensor), &packed.bytes).unwrap();
                assert_eq!(&again, tensor);
            }
        };
        let arranged = Arranged::new(&self.problem, candidate, gap);
        let got = arranged.run(&ConvFamily, isa, &self.inputs, threads, check_packed);
        assert_close(&got, &self.want, TOLERANCE, &format!("{tactic} {}", self.region.key()));
        got.bytes().to_vec()
    }
}

fn conv(pads: &[i64]) -> op::Conv {
    op::Conv {
        group: 1,
        pads: pads.to_vec(),
        auto_pad: AutoPad::NotSet,
        strides: Vec::new(),
        dilations: Vec::new(),
        kernel_shape: None,
    }
}

#[test]
fn bias_residual_and_relu() {
    let nodes = vec![
        (conv(&[1, 1, 1, 1]).into(), vec![input(0), input(1), input(2)]),
        (op::Add {}.into(), vec![input(3), node(0)]),
        (op::Relu {}.into(), vec![node(1)]),
    ];
    let dims: [&[usize]; 4] = [&[2, 5, 9, 7], &[34, 5, 3, 3], &[34], &[2, 34, 9, 7]];
    let names = trial(1, &dims, nodes, Vec::new()).check();
    for part in ["igemm", "winograd4", "avx2", "portable", "live", "fused"] {
        assert!(names.iter().any(|name| name.contains(part)), "{part}: {names:?}");
    }
}

#[test]
fn an_added_bias_and_a_clip() {
    let bounds = vec![Tensor::new(&[], vec![-0.5f32]).unwrap(), Tensor::new(&[], vec![0.25f32]).unwrap()];
    let nodes = vec![
        (conv(&[]).into(), vec![input(0), input(1)]),
        (op::Add {}.into(), vec![node(0), input(2)]),
        (op::Clip {}.into(), vec![node(1), Some(Ref::Constant(0)), Some(Ref::Constant(1))]),
    ];
    let names = trial(2, &[&[1, 8, 4, 6], &[20, 8, 1, 1], &[20, 1, 1]], nodes, bounds).check();
    assert!(names.iter().all(|name| name.starts_with("conv_1x1_f32_")), "{names:?}");
}

#[test]
fn one_and_three_axes_groups_and_rounding_up() {
    let nodes = |conv: op::Conv| vec![(conv.into(), vec![input(0), input(1)])];
    let same = op::Conv { auto_pad: AutoPad::SameUpper, strides: vec![2], ..conv(&[]) };
    trial(3, &[&[3, 6, 11], &[9, 6, 4]], nodes(same), Vec::new()).check();
    trial(4, &[&[1, 6, 13], &[9, 6, 3]], nodes(conv(&[1, 1])), Vec::new()).check();
    let grouped = op::Conv { group: 3, dilations: vec![2, 1], ..conv(&[]) };
    trial(5, &[&[1, 6, 9, 8], &[12, 2, 2, 3]], nodes(grouped), Vec::new()).check();
    trial(6, &[&[1, 4, 5, 6, 7], &[17, 4, 3, 3, 3]], nodes(conv(&[1; 6])), Vec::new()).check();
}

fn transposing(strides: &[i64]) -> op::ConvTranspose {
    op::ConvTranspose {
        group: 1,
        output_padding: Vec::new(),
        strides: strides.to_vec(),
        auto_pad: AutoPad::NotSet,
        pads: Vec::new(),
        dilations: Vec::new(),
        output_shape: None,
        kernel_shape: None,
    }
}

#[test]
fn transposed() {
    for (output_padding, group) in [(vec![], 1), (vec![1, 0], 2)] {
        let op = op::ConvTranspose { group, output_padding, ..transposing(&[2, 2]) };
        let nodes =
            vec![(op.into(), vec![input(0), input(1), input(2)]), (op::Relu {}.into(), vec![node(0)])];
        let k = 9 * group as usize;
        trial(7, &[&[2, 4, 5, 3], &[4, 9, 2, 2], &[k]], nodes, Vec::new()).check();
    }
}

#[test]
fn few_channels_in_both_layouts_and_few_outputs() {
    let nodes = || vec![(conv(&[1, 1, 1, 1]).into(), vec![input(0), input(1)])];
    let names = trial(11, &[&[2, 3, 9, 12], &[24, 3, 3, 3]], nodes(), Vec::new()).check();
    for part in ["band", "_plain", "_last"] {
        assert!(names.iter().any(|name| name.contains(part)), "{part}: {names:?}");
    }
    let names = trial(12, &[&[2, 40, 9, 12], &[2, 40, 3, 3]], nodes(), Vec::new()).check();
    assert!(names.iter().any(|name| name.contains("narrow")), "{names:?}");
}

#[test]
fn a_bias_that_is_part_of_the_region() {
    let bias = vec![Tensor::new(&[1], vec![0.75f32]).unwrap()];
    let nodes = vec![
        (conv(&[]).into(), vec![input(0), input(1), Some(Ref::Constant(0))]),
        (op::Relu {}.into(), vec![node(0)]),
    ];
    let names = trial(16, &[&[1, 20, 5, 6], &[1, 20, 1, 1]], nodes, bias).check();
    assert!(names.iter().any(|name| name.contains("narrow")), "{names:?}");
}

/// Numbers for each image and channel, or for each channel of all images, before the convolution.
#[test]
fn channels_are_multiplied_first() {
    let nodes = |scale_first: bool| {
        let operands = if scale_first { [input(2), input(0)] } else { [input(0), input(2)] };
        vec![
            (op::Mul {}.into(), operands.to_vec()),
            (conv(&[]).into(), vec![node(0), input(1), input(3)]),
            (op::Add {}.into(), vec![node(1), input(4)]),
            (op::Sigmoid {}.into(), vec![node(2)]),
            (op::Mul {}.into(), vec![node(2), node(3)]),
        ]
    };
    for (seed, images, scale_first) in [(21, 3, true), (22, 1, false)] {
        let scale = [images, 24, 1, 1];
        let dims: [&[usize]; 5] = [&[3, 24, 7, 9], &[40, 24, 1, 1], &scale, &[40], &[3, 40, 7, 9]];
        let names = trial(seed, &dims, nodes(scale_first), Vec::new()).check();
        assert!(names.iter().all(|name| name.starts_with("conv_1x1_f32_")), "{names:?}");
    }
    // Enough weights to be worth a fork.
    let dims: [&[usize]; 5] =
        [&[2, 300, 15, 16], &[230, 300, 1, 1], &[2, 300, 1, 1], &[230], &[1, 230, 1, 1]];
    trial(23, &dims, nodes(true)[..3].to_vec(), Vec::new()).check();
    // What is chosen for one size runs at others, where it would not be offered.
    let of_pixels = |pixels: usize| {
        let dims: [&[usize]; 4] = [&[1, 24, pixels, pixels], &[40, 24, 1, 1], &[1, 24, 1, 1], &[40]];
        trial(25, &dims, nodes(true)[..2].to_vec(), Vec::new())
    };
    let (large, small) = (of_pixels(9), of_pixels(1));
    for isa in Isa::available() {
        for candidate in ConvFamily.candidates(isa, &large.problem, &Budget::USUAL) {
            small.run(isa, &candidate, 0, 1);
        }
    }
    // More weights than pixels, a window, or a product that is read twice: left to others.
    for (pixels, taps, read_twice) in [(6, 1, false), (9, 3, false), (9, 1, true)] {
        let dims: [&[usize]; 3] = [&[1, 40, pixels, pixels], &[40, 40, taps, taps], &[1, 40, 1, 1]];
        let mut few = nodes(true)[..2].to_vec();
        few[1].1.truncate(2);
        if read_twice {
            few.push((op::Add {}.into(), vec![node(1), node(0)]));
        }
        let trial = trial(24, &dims, few, Vec::new());
        assert!(
            ConvFamily.candidates(Isa::best(), &trial.problem, &Budget::USUAL).is_empty(),
            "{}",
            trial.problem.key()
        );
    }
}

/// Programs over finished outputs: with a factor for each channel, and an operand of the output's sizes.
#[test]
fn programs_follow() {
    let nodes = || {
        vec![
            (conv(&[1, 1, 1, 1]).into(), vec![input(0), input(1), input(2)]),
            (op::Sigmoid {}.into(), vec![node(0)]),
            (op::Mul {}.into(), vec![node(0), node(1)]),
            (op::Mul {}.into(), vec![input(3), node(2)]),
            (op::Add {}.into(), vec![node(3), input(4)]),
        ]
    };
    let dims: [&[usize]; 5] = [&[2, 40, 17, 22], &[36, 40, 3, 3], &[36], &[36, 1, 1], &[2, 36, 17, 22]];
    let names = trial(13, &dims, nodes(), Vec::new()).check();
    for part in ["igemm", "winograd4", "phased", "live", "fused"] {
        assert!(names.iter().any(|name| name.contains(part)), "{part}: {names:?}");
    }
    let dims: [&[usize]; 5] = [&[1, 2, 9, 11], &[36, 2, 3, 3], &[36], &[36, 1, 1], &[1, 36, 9, 11]];
    let names = trial(14, &dims, nodes(), Vec::new()).check();
    assert!(names.iter().any(|name| name.contains("band")), "{names:?}");
    let groups = op::Conv { group: 2, ..conv(&[1, 1, 1, 1]) };
    let mut grouped = nodes();
    grouped[0].0 = groups.into();
    let dims: [&[usize]; 5] = [&[1, 8, 9, 11], &[36, 4, 3, 3], &[36], &[36, 1, 1], &[1, 36, 9, 11]];
    trial(15, &dims, grouped, Vec::new()).check();
}

#[test]
fn what_is_no_convolution_of_its_kind_has_no_candidates() {
    let refused = |trial: Trial| {
        assert!(
            ConvFamily.candidates(Isa::best(), &trial.problem, &Budget::USUAL).is_empty(),
            "{}",
            trial.problem.key()
        )
    };
    let dims: [&[usize]; 3] = [&[1, 3, 4, 4], &[3, 3, 1, 1], &[1, 3, 4, 4]];
    let add =
        || vec![(conv(&[]).into(), vec![input(0), input(1)]), (op::Add {}.into(), vec![node(0), node(0)])];
    let mut late = add();
    late[1] = (op::Relu {}.into(), vec![node(0)]);
    late.push((op::Add {}.into(), vec![node(1), input(2)]));
    refused(trial(9, &dims, late, Vec::new()));
    let mut loose = trial(10, &dims[..2], vec![(conv(&[]).into(), vec![input(0), input(1)])], Vec::new());
    loose.problem.inputs[1].constant = false;
    refused(loose);
    // One pixel in, one window out, whatever the stride: nobody may count its steps.
    let strides = transposing(&[1 << 40, 1 << 40]);
    let nodes = vec![(strides.into(), vec![input(0), input(1)])];
    let wide = trial(16, &[&[1, 2, 1, 1], &[2, 3, 3, 3]], nodes, Vec::new());
    for way in Way::all(Isa::best()) {
        let tactic = Tactic::new(way.name(Isa::best(), false), REVISION);
        let used = WeightUse::new(&wide.problem, &tactic, 1);
        ConvFamily.pack(Isa::best(), used, &wide.inputs[1]).unwrap_err();
    }
    refused(wide);
}

#[test]
fn every_way_packs_any_weight_or_refuses_it() {
    let plain = |pads: &[i64]| (conv(pads).into(), vec![input(0), input(1)]);
    let grouped = (op::Conv { group: 2, ..conv(&[]) }.into(), vec![input(0), input(1)]);
    let transposed = (transposing(&[2, 2]).into(), vec![input(0), input(1)]);
    let cases: [(_, &[usize]); 7] = [
        (plain(&[]), &[34, 4, 1, 1]),
        (plain(&[]), &[34, 4, 3, 3]),
        (plain(&[]), &[34, 4, 1, 3]),
        (plain(&[]), &[34, 4, 5, 2]),
        (grouped, &[34, 2, 3, 3]),
        (transposed, &[4, 34, 3, 3]),
        (plain(&[]), &[1, 4, 2, 2]),
    ];
    let (mut n_packed, mut n_refused) = (0, 0);
    for (node, weight) in cases {
        let Trial { problem, inputs, .. } = trial(17, &[&[1, 4, 6, 6], weight], vec![node], Vec::new());
        for isa in Isa::available() {
            for way in Way::all(isa) {
                let tactic = Tactic::new(way.name(isa, weight[2..] == [1, 1]), REVISION);
                match ConvFamily.pack(isa, WeightUse::new(&problem, &tactic, 1), &inputs[1]) {
                    Ok(PackedWeight { format, bytes }) => {
                        n_packed += 1;
                        let form = PackedForm { format: &format, dtype: DType::F32, dims: weight };
                        let n_bytes = crate::formats::packed_bytes(form);
                        assert_eq!(Some(bytes.len()), n_bytes, "{tactic}: {weight:?} as {format}");
                    }
                    Err(error) => {
                        n_refused += 1;
                        assert!(error.to_string().contains("does not pack weights of such"), "{error}");
                    }
                }
            }
        }
    }
    assert!(n_packed > 0 && n_refused > 0, "{n_packed} packed, {n_refused} refused");
}

/// The result of a convolution, and of a Relu after it, rounded to bytes.
fn to_bytes(seed: u64, dims: &[&[usize]; 3], conv: op::Conv, [scale, zero]: [Tensor; 2]) -> Trial {
    let mut random = Random::new(seed);
    // Small multiples of a quarter: sums are exact, and so is the middle between two bytes.
    let quarters =
        |dims: &&[usize]| random.made(DType::F32, dims, |random| random.below(17) as f64 / 4.0 - 2.0);
    let by =
        op::QuantizeLinear { precision: None, output_dtype: None, block_size: 0, saturate: true, axis: 1 };
    let mut nodes =
        vec![(conv.into(), vec![input(0), input(1), input(2)]), (op::Relu {}.into(), vec![node(0)])];
    nodes.push((by.into(), vec![node(1), Some(Ref::Constant(0)), Some(Ref::Constant(1))]));
    over(dims.iter().map(quarters).collect(), nodes, vec![scale, zero])
}

#[test]
fn results_are_stored_as_bytes() {
    let half = || Tensor::scalar(0.5f32);
    let strided = op::Conv { strides: vec![2, 2], ..conv(&[3, 3, 2, 2]) };
    let first: [&[usize]; 3] = [&[2, 3, 19, 23], &[24, 3, 7, 7], &[24]];
    let names = to_bytes(41, &first, strided, [half(), Tensor::scalar(0u8)]).check();
    for part in ["igemm", "band", "_plain", "_last", "avx2", "portable"] {
        assert!(names.iter().any(|name| name.contains(part)), "{part}: {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("winograd") || name.contains("narrow")), "{names:?}");
    // Several panels, a last one that is not whole, zero points of both kinds.
    let wide: [&[usize]; 3] = [&[1, 20, 5, 7], &[83, 20, 1, 1], &[83]];
    to_bytes(42, &wide, conv(&[]), [Tensor::scalar(1f32), Tensor::scalar(-100i8)]).check();
    let grouped = op::Conv { group: 3, ..conv(&[1, 1, 0, 2]) };
    to_bytes(43, &[&[2, 6, 4, 9], &[15, 2, 3, 3], &[15]], grouped, [half(), Tensor::scalar(7u8)]).check();
    let deep: [&[usize]; 3] = [&[2, 4, 3, 4, 5], &[9, 4, 3, 3, 3], &[9]];
    to_bytes(44, &deep, conv(&[1; 6]), [half(), Tensor::scalar(0u8)]).check();
    // Rows that the kernel without a table takes: whole, and in two parts of 50 and 51 pixels.
    let strided = op::Conv { strides: vec![2, 2], ..conv(&[1; 4]) };
    to_bytes(47, &[&[2, 3, 7, 89], &[24, 3, 3, 3], &[24]], strided, [half(), Tensor::scalar(9u8)]).check();
    let long: [&[usize]; 3] = [&[1, 3, 5, 101], &[83, 3, 3, 3], &[83]];
    to_bytes(48, &long, conv(&[1; 4]), [half(), Tensor::scalar(-3i8)]).check();
}

#[test]
fn bytes_need_one_scale_and_sums_in_one_go() {
    let scales = Tensor::vector(vec![0.5f32; 24]);
    let zeros = Tensor::vector(vec![0u8; 24]);
    let dims: [&[usize]; 3] = [&[1, 3, 9, 9], &[24, 3, 3, 3], &[24]];
    let each = to_bytes(45, &dims, conv(&[1; 4]), [scales, zeros]);
    assert!(ConvFamily.candidates(Isa::best(), &each.problem, &Budget::USUAL).is_empty());
    // A sum of 18,432 products is cut into parts, which the output would have to keep.
    let long: [&[usize]; 3] = [&[1, 2048, 2, 2], &[512, 2048, 3, 3], &[512]];
    let long = to_bytes(46, &long, conv(&[1; 4]), [Tensor::scalar(0.5f32), Tensor::scalar(0u8)]);
    assert!(ConvFamily.candidates(Isa::best(), &long.problem, &Budget::USUAL).is_empty());
}
