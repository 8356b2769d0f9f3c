//! Depthwise convolutions against the reference, and their packing there and back.

use planish_kernel::{Budget, WeightUse};
use planish_tensor::{DType, Tensor};
use planish_testing::{Random, Tolerance, problems};

use super::{DepthwiseFamily, PACKED};
use crate::family::Family;
use crate::family::pack;
use crate::gpu::Gpu;
use crate::trial;

/// Sums of up to fifty products in f32.
const SUMS: Tolerance = Tolerance { relative: 2e-5, absolute: 1e-5 };

#[test]
fn samples_are_convolved() {
    for problem in problems::depthwise::samples() {
        trial::check(&DepthwiseFamily, &problem, 5, SUMS);
    }
}

#[test]
fn packed_weights_come_back() {
    let small = Tensor::new(&[2, 1, 3], vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let turned = [1.0f32, 4.0, 2.0, 5.0, 3.0, 6.0].map(f32::to_ne_bytes).concat();
    assert_eq!(*PACKED.pack(&small).unwrap().bytes, turned);
    let gpu = Gpu::known("h200").unwrap();
    let problem = &problems::depthwise::samples()[0];
    let tactic = &DepthwiseFamily.candidates(&gpu, problem, &Budget::USUAL)[0].tactic;
    let weight = Random::new(3).tensor(DType::F16, &problem.inputs[1].dims, 1.0);
    let packed = pack(&DepthwiseFamily, WeightUse::new(problem, tactic, 1), &weight).unwrap();
    assert_eq!(packed.format, PACKED.name());
    let back = crate::unpack(packed.form_of(&weight), &packed.bytes);
    assert_eq!(back.unwrap(), weight);
    assert!(pack(&DepthwiseFamily, WeightUse::new(problem, tactic, 0), &weight).is_err());
}
