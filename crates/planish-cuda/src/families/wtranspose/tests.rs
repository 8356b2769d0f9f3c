//! Transposed convolutions on Hopper's own units: what is offered, and where taps begin.

use planish_kernel::Numeric;
use planish_testing::problems::{convtranspose, quantized};

use super::*;

fn h200() -> Gpu {
    Gpu::known("h200").unwrap()
}

#[test]
fn windows_side_by_side_are_offered_on_hopper_alone() {
    for problem in [convtranspose::patches(), quantized::patches()].concat() {
        for gpu in Gpu::every_architecture() {
            let found = WTransposeFamily.candidates(&gpu, &problem, &Budget::USUAL);
            assert_eq!(found.is_empty(), gpu.sm != 90, "{} on {}", problem.key(), gpu.name);
            assert!(found.iter().all(|candidate| candidate.tactic.name.contains("_k1_")));
        }
    }
    let overlapping = Problem { numeric: Numeric::F16, ..convtranspose::samples().remove(1) };
    assert!(WTransposeFamily.candidates(&h200(), &overlapping, &Budget::USUAL).is_empty());
}

#[test]
fn taps_begin_where_their_pixels_do() {
    let problem = convtranspose::patches().remove(0);
    let candidate = WTransposeFamily.candidates(&h200(), &problem, &Budget::USUAL).remove(0);
    let posed = Posed::of(&problem.for_candidate(&candidate), Math::F16).unwrap();
    // 16 by 16 pixels of 32 channels: the next column, the next row, both.
    assert_eq!(posed.places, [0, 32, 16 * 32, 17 * 32]);
    assert_eq!(posed.tap.outputs[0].dims, [1, 32, 8, 8]);
    assert_eq!(posed.tap.outputs[0].strides[2..], [2 * 16 * 32, 2 * 32]);
}

#[test]
fn bytes_leave_sixteen_at_once_where_a_tap_has_as_many() {
    let texts = |n_columns: usize| {
        let all = quantized::patches();
        let is_wanted = |problem: &&Problem| {
            problem.outputs[0].dims[1] == n_columns && problem.outputs[0].dtype == planish_tensor::DType::I8
        };
        let problem = all.iter().find(is_wanted).unwrap();
        assert_eq!(problem.numeric, Numeric::I8);
        let candidates = WTransposeFamily.candidates(&h200(), problem, &Budget::USUAL);
        let of = |candidate: &Candidate| {
            let arranged = problem.for_candidate(candidate);
            WTransposeFamily.sources(&h200(), &arranged, &candidate.tactic).unwrap()[0].full_text()
        };
        candidates.iter().map(of).collect::<Vec<String>>()
    };
    assert!(texts(32).iter().any(|text| text.contains("#define RUN 16\n")));
}
