//! Matrix products as problems: how batches become rows, packing there and back.

use planish_kernel::WeightUse;
use planish_tensor::{DType, Tensor};
use planish_testing::problems::matmul::{matmul as sample, samples};

use super::*;
use crate::family::pack;

#[test]
fn every_sample_is_offered_on_every_architecture_that_has_its_type() {
    for gpu in Gpu::every_architecture() {
        for problem in samples() {
            let found = GemmFamily.candidates(&gpu, &problem, &Budget::USUAL);
            let bf16_before_ampere = gpu.sm < 80 && problem.inputs[0].dtype == DType::BF16;
            assert_eq!(found.is_empty(), bf16_before_ampere, "{} on {}", problem.key(), gpu.name);
            for candidate in found {
                let arranged = problem.for_candidate(&candidate);
                GemmFamily.sources(&gpu, &arranged, &candidate.tactic).unwrap();
            }
        }
    }
}

#[test]
fn batches_that_share_a_weight_are_rows() {
    let problem = sample(DType::F16, &[4, 128, 384], &[384, 1152], true, None);
    let product = Product::of(&problem).unwrap();
    let posed = product.pose(&problem, Math::F16).unwrap();
    assert_eq!((posed.m, posed.n, posed.k, posed.batch), (512, 1152, 384, [1; 3]));
    assert_eq!(posed.a.row, 384);
    // With one row each, the batches are the rows.
    let problem = sample(DType::F16, &[4, 1, 384], &[384, 1152], true, None);
    let posed = Product::of(&problem).unwrap().pose(&problem, Math::F16).unwrap();
    assert_eq!((posed.m, posed.a.row), (4, 384));
}

#[test]
fn batches_with_matrices_of_their_own_stay_apart() {
    let problem = sample(DType::F16, &[2, 3, 20, 32], &[3, 32, 24], false, None);
    let posed = Product::of(&problem).unwrap().pose(&problem, Math::F16).unwrap();
    assert_eq!((posed.m, posed.n, posed.k, posed.batch), (20, 24, 32, [1, 2, 3]));
    assert_eq!(posed.a.batch, [0, 3 * 640, 640]);
    assert_eq!(posed.b.batch, [0, 0, 768]);
    assert_eq!((posed.b.row, posed.b.k), (1, 24));
    let (a_wide, b_wide) = GemmFamily::wide(&posed, Math::F16);
    assert!(a_wide && !b_wide);
}

#[test]
fn packing_turns_and_pads() {
    let gpu = Gpu::known("h200").unwrap();
    let problem = sample(DType::F32, &[5, 6], &[6, 3], true, None);
    let tactic = GemmFamily.candidates(&gpu, &problem, &Budget::USUAL).remove(0).tactic;
    let weight = Tensor::new(&[6, 3], (0..18).map(|idx| idx as f32).collect::<Vec<_>>()).unwrap();
    let packed = pack(&GemmFamily, WeightUse::new(&problem, &tactic, 1), &weight).unwrap();
    // Three rows of six elements in eight.
    assert_eq!(packed.bytes.len(), 3 * 8 * 4);
    let at = |idx: usize| f32::from_ne_bytes(packed.bytes[4 * idx..4 * idx + 4].try_into().unwrap());
    assert_eq!((at(8 + 2), at(6)), (2.0 * 3.0 + 1.0, 0.0));
    assert_eq!(crate::unpack(packed.form_of(&weight), &packed.bytes).unwrap(), weight);
}
