//! Products on Hopper's own units: what is offered, names, packing, and where TMA has no way.

use planish_kernel::{Budget, Layout, Problem, Tactic, Want, WeightUse};
use planish_tensor::{DType, Tensor};
use planish_testing::problems::conv::conv;
use planish_testing::problems::matmul::matmul as gemm;

use super::super::wconv::WConvFamily;
use super::super::wgemm::WGemmFamily;
use super::*;
use crate::family::{Family, pack};

fn h200() -> Gpu {
    Gpu::known("h200").unwrap()
}

fn resnet() -> Problem {
    conv(DType::F16, &[1, 256, 14, 14], 256, &[3, 3], |_| {})
}

#[test]
fn names_of_tiles_can_be_read_back() {
    for tile in Tile::all(&h200(), 4096, 512, 9, 96) {
        assert_eq!(Tile::named(&tile.name()), Some(tile));
    }
    for wrong in ["64x32x64_s8_k3_b1", "64x33x64_s8_k1_b1", "64x32x64_s8_k1_b1_", "64x32x64_s08_k1_b1", ""] {
        assert_eq!(Tile::named(wrong), None, "{wrong}");
    }
    let tactic = Tactic::new("wconv_f32_64x32x64_s8_k1_b1", REVISION);
    assert!(way_of(&tactic, "wconv_").is_err());
}

#[test]
fn tiles_fit_a_block_and_are_few() {
    let gpu = h200();
    for (m, n, taps, c) in [(3136, 64, 9, 64), (49, 512, 9, 512), (1, 1000, 1, 512), (262_144, 16, 27, 16)] {
        let tiles = Tile::all(&gpu, m, n, taps, c);
        assert!(!tiles.is_empty(), "{m}x{n}");
        assert!(tiles.iter().all(|tile| tile.shared_bytes() <= gpu.smem_per_block));
    }
    let found = WConvFamily.candidates(&gpu, &resnet(), &Budget::USUAL);
    assert!((3..=Budget::USUAL.special).contains(&found.len()));
    // The measured best is 4.1 µs, with the sum of one tile split between the blocks of a cluster.
    assert!((2500.0..6000.0).contains(&found[0].predicted_ns), "{}", found[0].predicted_ns);
    assert!(found.iter().any(|candidate| candidate.tactic.name.contains("_k4_")), "{found:?}");
}

#[test]
fn only_hopper_has_them() {
    for gpu in Gpu::every_architecture() {
        assert_eq!(WConvFamily.candidates(&gpu, &resnet(), &Budget::USUAL).is_empty(), gpu.sm != 90);
    }
}

#[test]
fn what_tma_cannot_do_is_not_offered() {
    let gpu = h200();
    let offered = |problem: &Problem| !WConvFamily.candidates(&gpu, problem, &Budget::USUAL).is_empty();
    assert!(offered(&conv(DType::BF16, &[2, 24, 9, 9], 20, &[3, 3], |_| {})));
    assert!(offered(&conv(DType::F16, &[2, 8, 33], 10, &[5], |conv| conv.pads = vec![4, 0])));
    assert!(offered(&conv(DType::F16, &[1, 16, 6, 7, 8], 16, &[3, 3, 3], |_| {})));
    // Rows of 20 channels are no whole chunks, f32 has no such products, groups are apart.
    assert!(!offered(&conv(DType::F16, &[2, 20, 9, 9], 24, &[3, 3], |_| {})));
    assert!(!offered(&conv(DType::F32, &[2, 24, 9, 9], 24, &[3, 3], |_| {})));
    assert!(!offered(&conv(DType::F16, &[1, 32, 9, 9], 32, &[3, 3], |conv| conv.group = 2)));
    // Offsets in three dimensions have five bits, steps go up to eight.
    assert!(!offered(&conv(DType::F16, &[1, 16, 70, 70, 70], 16, &[3, 3, 3], |conv| {
        conv.dilations = vec![16, 16, 16];
    })));
    assert!(!offered(&conv(DType::F16, &[1, 16, 20, 20], 16, &[3, 3], |conv| conv.strides = vec![9, 9])));
}

#[test]
fn images_and_outputs_may_lie_inside() {
    let candidate = WConvFamily.candidates(&h200(), &resnet(), &Budget::USUAL).remove(0);
    assert_eq!(candidate.inputs[0], Want::inside_aligned(Layout::ChannelsLast));
    assert_eq!(candidate.outputs[0], Want::inside(Layout::ChannelsLast));
}

/// Where the map of an image has an element (channel, columns, rows, image), in elements.
fn mapped(sizes: &(Vec<u64>, Vec<u64>), at: [usize; 4]) -> usize {
    let bytes: usize = at[1..].iter().zip(&sizes.1).map(|(at, stride)| at * *stride as usize).sum();
    at[0] + bytes / 2
}

#[test]
fn maps_find_the_pixels_of_parts() {
    let dims = [2, 16, 5, 7];
    for larger in [[2, 16, 5, 7], [2, 40, 5, 7], [2, 16, 5, 9], [2, 16, 8, 7]] {
        let strides = Layout::ChannelsLast.strides(&larger);
        let image =
            Operand { strides: strides.clone(), ..Operand::dense(DType::F16, &dims, Layout::ChannelsLast) };
        let sizes = image_sizes(&image, Math::F16).unwrap();
        assert_eq!(sizes.0, [16, 7, 5, 2]);
        for [n, c, h, w] in [[0, 0, 0, 0], [1, 3, 4, 6], [0, 15, 1, 2], [1, 8, 0, 5]] {
            let at = [n, c, h, w].iter().zip(&strides).map(|(at, stride)| at * stride).sum::<usize>();
            assert_eq!(mapped(&sizes, [c, w, h, n]), at, "{larger:?}");
        }
        // Pixels of whole rows and images, one after the other, are the rows of one product.
        let is_even = larger[2..] == dims[2..];
        assert_eq!(pixel_pitch(&image, Math::F16), is_even.then_some(2 * larger[1] as u64), "{larger:?}");
    }
    // The stride of an axis of one element says nothing.
    let dot =
        Operand { strides: vec![16, 1, 1, 1], ..Operand::dense(DType::F16, &[3, 16, 1, 1], Layout::Plain) };
    assert_eq!(image_sizes(&dot, Math::F16), Some((vec![16, 1, 1, 3], vec![32, 32, 32])));
    assert_eq!(pixel_pitch(&dot, Math::F16), Some(32));
    // Two bytes are one place.
    let bytes = Operand::dense(DType::I8, &[1, 32, 3, 4], Layout::ChannelsLast);
    assert_eq!(image_sizes(&bytes, Math::I8), Some((vec![16, 4, 3, 1], vec![32, 128, 384])));
    // Rows of 20 bytes, and channels apart.
    let odd = Operand { strides: Layout::ChannelsLast.strides(&[2, 20, 5, 7]), ..bytes.clone() };
    assert_eq!(image_sizes(&odd, Math::I8), None);
    assert_eq!(image_sizes(&Operand::dense(DType::F16, &dims, Layout::Plain), Math::F16), None);
}

#[test]
fn packing_goes_there_and_back() {
    let gpu = h200();
    let problem = conv(DType::F16, &[1, 8, 9], 2, &[5], |_| {});
    let tactic = WConvFamily.candidates(&gpu, &problem, &Budget::USUAL).remove(0).tactic;
    let values: Vec<half::f16> = (0..80).map(|idx| half::f16::from_f32(idx as f32)).collect();
    let weight = Tensor::new(&[2, 8, 5], values.clone()).unwrap();
    let packed = pack(&WConvFamily, WeightUse::new(&problem, &tactic, 1), &weight).unwrap();
    assert_eq!(packed.bytes.len(), 160);
    // Output channel 1, tap 2, channel 3 is element (1, 3, 2).
    let at = 2 * (40 + 2 * 8 + 3);
    assert_eq!(packed.bytes[at..at + 2], half::f16::from_f32((40 + 3 * 5 + 2) as f32).to_le_bytes());
    assert_eq!(crate::unpack(packed.form_of(&weight), &packed.bytes).unwrap(), weight);
    assert!(pack(&WConvFamily, WeightUse::new(&problem, &tactic, 2), &weight).is_err());

    let problem = gemm(DType::F16, &[3, 8], &[8, 10], true, None);
    let tactic = WGemmFamily.candidates(&gpu, &problem, &Budget::USUAL).remove(0).tactic;
    let weight = Tensor::new(&[8, 10], values).unwrap();
    let packed = pack(&WGemmFamily, WeightUse::new(&problem, &tactic, 1), &weight).unwrap();
    assert_eq!(crate::unpack(packed.form_of(&weight), &packed.bytes).unwrap(), weight);
}

#[test]
fn products_are_offered_where_rows_are_whole_chunks() {
    let gpu = h200();
    let offered = |problem: &Problem| !WGemmFamily.candidates(&gpu, problem, &Budget::USUAL).is_empty();
    assert!(offered(&gemm(DType::F16, &[2, 60, 96], &[96, 72], true, None)));
    assert!(offered(&gemm(DType::BF16, &[1, 512], &[512, 1000], true, None)));
    assert!(!offered(&gemm(DType::F16, &[2, 60, 100], &[100, 72], true, None)));
    assert!(!offered(&gemm(DType::F16, &[2, 3, 20, 32], &[2, 3, 32, 20], false, None)));
}

#[test]
fn texts_name_their_settings() {
    let gpu = h200();
    let problem = resnet();
    let candidate = WConvFamily.candidates(&gpu, &problem, &Budget::USUAL).remove(0);
    let arranged = problem.for_candidate(&candidate);
    let text = WConvFamily.sources(&gpu, &arranged, &candidate.tactic).unwrap()[0].full_text();
    for part in
        ["#define KIND 2\n", "#define EPILOGUE_BIAS 1\n", "#define EPILOGUE_RESIDUAL 0\n", "wgmma.mma_async"]
    {
        assert!(text.contains(part), "{part}");
    }
    // A convolution of single pixels is a product as they lie.
    let problem = conv(DType::F16, &[1, 64, 14, 14], 40, &[1, 1], |_| {});
    let candidate = WConvFamily.candidates(&gpu, &problem, &Budget::USUAL).remove(0);
    let arranged = problem.for_candidate(&candidate);
    let text = WConvFamily.sources(&gpu, &arranged, &candidate.tactic).unwrap()[0].full_text();
    assert!(text.contains("#define KIND 0\n"));
}
