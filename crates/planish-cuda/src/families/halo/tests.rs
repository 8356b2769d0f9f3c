//! Shapes and texts of the patch kernel.

use planish_testing::problems::conv::{conv, patches};

use super::*;

#[test]
fn every_problem_of_patches_is_offered_where_its_type_is() {
    for gpu in Gpu::every_architecture() {
        for problem in patches() {
            let found = HaloFamily.candidates(&gpu, &problem, &Budget::USUAL);
            let bf16_before_ampere = gpu.sm < 80 && problem.inputs[0].dtype == DType::BF16;
            // Weights of 100 columns and patches of 64 channels are more than a T4's 64 KiB.
            let too_large = gpu.smem_per_block < 99 << 10;
            assert!(
                !found.is_empty() || bf16_before_ampere || too_large,
                "{} on {}",
                problem.key(),
                gpu.name
            );
            for candidate in found {
                assert!(candidate.predicted_ns.is_finite() && candidate.predicted_ns > 0.0);
                let arranged = problem.for_candidate(&candidate);
                let sources = HaloFamily.sources(&gpu, &arranged, &candidate.tactic).unwrap();
                assert!(
                    sources[0].full_text().contains("halo(const void* x, const void* w, EPILOGUE_ARGUMENTS")
                );
            }
        }
    }
}

#[test]
fn names_can_be_read_back() {
    let gpu = Gpu::known("h200").unwrap();
    let problem = conv(DType::F16, &[1, 16, 64, 64, 64], 16, &[3, 3, 3], |_| {});
    let convolution = Convolution::of(&problem).unwrap();
    let work = amount(&convolution, &problem, Reading::Wide);
    let shapes = Shape::all(&gpu, &work);
    assert!(shapes.len() > 10, "{}", shapes.len());
    for shape in shapes {
        assert_eq!(Shape::named(&shape.name()), Some(shape));
        assert!(shape.shared_bytes(&work) <= gpu.smem_per_block);
    }
    for wrong in ["", "8x2x16", "8x2x17_w1x1x4x1_b2", "8x2x16_w1x1x4x1_b3", "9x2x16_w1x1x4x1_b2"] {
        assert_eq!(Shape::named(wrong), None, "{wrong}");
    }
}

#[test]
fn groups_long_windows_and_other_types_are_left_alone() {
    let gpu = Gpu::known("h200").unwrap();
    let refused = [
        conv(DType::F16, &[1, 32, 12, 12], 32, &[3, 3], |conv| conv.group = 2),
        conv(DType::F16, &[1, 16, 40, 40], 16, &[9, 9], |_| {}),
        conv(DType::F32, &[1, 16, 40, 40], 16, &[3, 3], |_| {}),
    ];
    for problem in refused {
        assert!(HaloFamily.candidates(&gpu, &problem, &Budget::USUAL).is_empty(), "{}", problem.key());
    }
}
