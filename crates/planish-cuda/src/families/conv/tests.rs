//! Convolutions as problems: what is offered, packing there and back, and the text of kernels.

use ::planish_op as op;
use planish_kernel::{Arithmetic, Budget, Layout, Ref, RegionNode, WeightUse};
use planish_tensor::{DType, Tensor};
use planish_testing::problems::conv::{conv as sample, samples};
use planish_testing::problems::quantized;

use super::*;
use crate::family::pack;

#[test]
fn every_sample_is_offered_on_every_architecture_that_has_its_type() {
    for gpu in Gpu::every_architecture() {
        for problem in samples() {
            let found = ConvFamily.candidates(&gpu, &problem, &Budget::USUAL);
            let bf16_before_ampere = gpu.sm < 80 && problem.inputs[0].dtype == DType::BF16;
            assert_eq!(found.is_empty(), bf16_before_ampere, "{} on {}", problem.key(), gpu.name);
            for candidate in found {
                let arranged = problem.for_candidate(&candidate);
                let sources = ConvFamily.sources(&gpu, &arranged, &candidate.tactic).unwrap();
                assert_eq!(sources.len(), 1);
                assert!(
                    sources[0].full_text().contains("conv(const void* x, const void* w, EPILOGUE_ARGUMENTS")
                );
            }
        }
    }
}

#[test]
fn packing_is_a_permutation_with_padding() {
    let gpu = Gpu::known("h200").unwrap();
    // 3 channels and 5 taps: rows of 15 elements in 16.
    let problem = sample(DType::F32, &[1, 3, 9], 2, &[5], |_| {});
    let tactic = ConvFamily.candidates(&gpu, &problem, &Budget::USUAL).remove(0).tactic;
    let weight = Tensor::new(&[2, 3, 5], (0..30).map(|idx| idx as f32).collect::<Vec<_>>()).unwrap();
    let packed = pack(&ConvFamily, WeightUse::new(&problem, &tactic, 1), &weight).unwrap();
    assert_eq!(packed.bytes.len(), 2 * 16 * 4);
    let at = |idx: usize| f32::from_ne_bytes(packed.bytes[4 * idx..4 * idx + 4].try_into().unwrap());
    // Row 1, tap 2, channel 0 is element (1, 0, 2).
    assert_eq!(at(16 + 2 * 3), 15.0 + 2.0);
    assert_eq!(at(15), 0.0);
    assert_eq!(crate::unpack(packed.form_of(&weight), &packed.bytes).unwrap(), weight);
    assert!(pack(&ConvFamily, WeightUse::new(&problem, &tactic, 2), &weight).is_err());
}

#[test]
fn few_channels_can_be_read_where_they_lie_outermost() {
    let gpu = Gpu::known("h200").unwrap();
    let problem = sample(DType::F16, &[1, 3, 32, 32], 64, &[7, 7], |conv| conv.strides = vec![2, 2]);
    let found = ConvFamily.candidates(&gpu, &problem, &Budget::USUAL);
    let plain = found.iter().find(|candidate| candidate.tactic.name.starts_with("conv_plain_")).unwrap();
    assert_eq!(plain.inputs[0], Want::inside(Layout::Plain));
    assert_eq!(plain.outputs[0], Want::inside(Layout::ChannelsLast));
}

#[test]
fn a_program_after_the_sum_becomes_part_of_the_text() {
    let gpu = Gpu::known("h200").unwrap();
    let mut problem = sample(DType::F16, &[1, 16, 8, 8], 16, &[3, 3], |_| {});
    // Swish in place of ReLU, then a gate for each channel of each image.
    problem.region.nodes[1].op = op::Swish { alpha: 1.0 }.into();
    problem.region.nodes.push(RegionNode {
        name: "gate".to_string(),
        op: op::Mul {}.into(),
        inputs: vec![Some(Ref::Node { node: 1, output: 0 }), Some(Ref::Input(3))],
        n_outputs: 1,
    });
    problem.region.n_inputs = 4;
    problem.region.outputs = vec![Ref::Node { node: 2, output: 0 }];
    problem.inputs.push(Operand::dense(DType::F16, &[1, 16, 1, 1], Layout::Plain));
    let candidate = ConvFamily.candidates(&gpu, &problem, &Budget::USUAL).remove(0);
    let arranged = problem.for_candidate(&candidate);
    let text = ConvFamily.sources(&gpu, &arranged, &candidate.tactic).unwrap()[0].full_text();
    assert!(text.contains("pl_sigmoid(v0)"), "{text}");
    assert!(text.contains("load8_float<f16>(e0, a.extra[0], f.extra[0], at, n, count);"));
    assert!(text.contains("#define EXTRA_ARGUMENTS const void* e0, \n"));
}

#[test]
fn other_regions_are_left_alone() {
    let gpu = Gpu::known("h200").unwrap();
    let mut problem = sample(DType::F16, &[1, 16, 8, 8], 16, &[3, 3], |_| {});
    problem.inputs[1].constant = false;
    assert!(ConvFamily.candidates(&gpu, &problem, &Budget::USUAL).is_empty());
    problem.region.nodes.remove(0);
    assert!(ConvFamily.candidates(&gpu, &problem, &Budget::USUAL).is_empty());
}

#[test]
fn products_of_bytes_are_offered_where_tensor_cores_have_them() {
    for gpu in Gpu::every_architecture() {
        for problem in quantized::convolutions() {
            let found = ConvFamily.candidates(&gpu, &problem, &Budget::USUAL);
            let (name, is_there) = match problem.numeric.element {
                Arithmetic::F8 => ("_f8_", gpu.sm >= 89),
                _ => ("_i8_", true),
            };
            assert_eq!(!found.is_empty(), is_there, "{} on {}", problem.key(), gpu.name);
            assert!(found.iter().all(|candidate| candidate.tactic.name.contains(name)));
        }
    }
}

#[test]
fn bytes_that_tensor_cores_do_not_multiply_are_refused() {
    let gpu = Gpu::known("h200").unwrap();
    let floats = sample(DType::F16, &[1, 16, 8, 8], 16, &[3, 3], |_| {});
    let offered = |activations: DType, zero: i64| {
        let problem = quantized::quantized(&floats, activations, zero, quantized::To::F32).unwrap();
        ConvFamily.candidates(&gpu, &problem, &Budget::USUAL).len()
    };
    assert!(offered(DType::I8, 0) > 0);
    assert!(offered(DType::F8E4M3FN, 0) > 0);
    assert_eq!((offered(DType::I8, 3), offered(DType::U8, 0), offered(DType::F8E4M3FN, 3)), (0, 0, 0));
}

#[test]
fn scales_and_rounding_become_part_of_the_text() {
    let gpu = Gpu::known("h200").unwrap();
    let floats = sample(DType::F16, &[1, 16, 8, 8], 16, &[3, 3], |_| {});
    let text = |dtype: DType, to: quantized::To| {
        let problem = quantized::quantized(&floats, dtype, 0, to).unwrap();
        let candidate = ConvFamily.candidates(&gpu, &problem, &Budget::USUAL).remove(0);
        let arranged = problem.for_candidate(&candidate);
        ConvFamily.sources(&gpu, &arranged, &candidate.tactic).unwrap()[0].full_text()
    };
    let bytes = text(DType::I8, quantized::To::Bytes(-5));
    for line in ["EPILOGUE_SCALE 2", "OUT_T i8", "OUT_BYTES 1", "OUT_ZERO -5", "ACC i32", "MATH i8"] {
        assert!(bytes.contains(&format!("#define {line}\n")), "{line}");
    }
    let floats = text(DType::I8, quantized::To::F16);
    for line in ["OUT_T f16", "OUT_BYTES 0"] {
        assert!(floats.contains(&format!("#define {line}\n")), "{line}");
    }
    let small = text(DType::F8E4M3FN, quantized::To::Bytes(0));
    for line in ["EPILOGUE_SCALE 2", "OUT_T e4m3", "OUT_BYTES 1", "OUT_F8 1", "ACC float", "MATH e4m3"] {
        assert!(small.contains(&format!("#define {line}\n")), "{line}");
    }
}
