//! The worked example for CUDA against its reference: both types, every tactic, edge sizes, with and without an epilogue.

use std::path::Path;

use planish_op as op;
use planish_op::Custom;
use planish_tensor::DType;
use planish_testing::{Sample, Tolerance, input, node};

use super::*;
use crate::trial;

/// Two products of at most 4 and their sum, in f32; f16 rounds once more; a sigmoid after it.
const TURNED: Tolerance = Tolerance { relative: 1e-6, absolute: 2e-6 };
const TURNED_F16: Tolerance = Tolerance { relative: 1.0 / 1024.0, absolute: 1e-3 };

fn rope() -> Op {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plugins/rope/rope.cu");
    planish_plugin::load(&path).unwrap();
    Op::Custom(Custom {
        domain: "example.rope".into(),
        name: "Rope".into(),
        version: 1,
        attributes: Vec::new(),
    })
}

#[test]
fn the_example_turns_vectors_with_and_without_what_follows() {
    let inputs = || (0..3).map(input).collect::<Vec<_>>();
    for (dtype, tolerance) in [(DType::F32, TURNED), (DType::F16, TURNED_F16)] {
        for [b, h, s, d] in [[2, 3, 5, 8], [1, 1, 1, 2], [2, 2, 3, 26]] {
            let posed = |sample: Sample| {
                let sample = sample.typed(dtype, &[b, h, s, d]);
                sample.typed(dtype, &[b, s, d / 2]).typed(dtype, &[b, s, d / 2])
            };
            let alone = posed(Sample::of(vec![(rope(), inputs())])).problem();
            trial::check(&PluginFamily, &alone, 7, tolerance);
            let followed = vec![
                (rope(), inputs()),
                (op::Add {}.into(), vec![node(0), input(3)]),
                (op::Sigmoid {}.into(), vec![node(1)]),
            ];
            let followed = posed(Sample::of(followed)).typed(dtype, &[b, h, s, d]).problem();
            trial::check(&PluginFamily, &followed, 8, tolerance);
        }
    }
}

#[test]
fn a_tactic_of_a_plugin_that_is_not_loaded_says_so() {
    let sample = Sample::of(vec![(rope(), (0..3).map(input).collect())]);
    let problem = sample.f32(&[1, 1, 1, 2]).f32(&[1, 1, 1]).f32(&[1, 1, 1]).problem();
    let gpu = Gpu::known("h200").unwrap();
    let unknown = PluginFamily.plan(&gpu, &problem, &Tactic::new("plugin_0123456789abcdef_wide", 1));
    assert!(unknown.unwrap_err().to_string().contains("--plugin"));
    assert_eq!(PluginFamily.candidates(&gpu, &problem, &Budget::USUAL).len(), 3);
}
