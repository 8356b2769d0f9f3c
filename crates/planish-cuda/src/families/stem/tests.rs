//! First layers: what is offered, names, packing, and casts in front.

use planish_kernel::{Budget, Layout, Problem, Want, WeightUse};
use planish_tensor::{DType, Tensor};
use planish_testing::problems::conv::{conv, with_cast};

use super::*;
use crate::family::pack;

fn h200() -> Gpu {
    Gpu::known("h200").unwrap()
}

fn resnet(images: usize) -> Problem {
    conv(DType::F16, &[images, 3, 224, 224], 64, &[7, 7], |conv| conv.strides = vec![2, 2])
}

#[test]
fn names_of_tiles_can_be_read_back() {
    let problem = conv(DType::F16, &[1, 1, 64, 64, 64], 16, &[3, 3, 3], |_| {});
    let first = First::of(&problem).unwrap();
    for ahead in [false, true] {
        let tiles = Tile::all(&h200(), &first.convolution, first.row, ahead);
        assert!(tiles.len() > 10);
        for tile in tiles {
            assert_eq!(Tile::named(&tile.name()), Some(tile));
        }
    }
    for wrong in
        ["1x8x16_n64", "1x8x17_n64_plain", "1x8x16_n24_plain", "1x08x16_n64_plain", "0x8x16_n64_last"]
    {
        assert_eq!(Tile::named(wrong), None, "{wrong}");
    }
}

#[test]
fn images_of_f32_come_ahead_where_blocks_have_several_tiles() {
    let offers = |problem: &Problem, gpu: &str| {
        let found = StemFamily.candidates(&Gpu::known(gpu).unwrap(), problem, &Budget::USUAL);
        found.iter().any(|candidate| candidate.tactic.name.ends_with("_ahead"))
    };
    assert!(offers(&with_cast(resnet(16)), "h200"));
    let small = conv(DType::F16, &[1, 3, 60, 60], 64, &[7, 7], |conv| conv.strides = vec![2, 2]);
    assert!(!offers(&with_cast(small), "h200"));
    assert!(!offers(&resnet(16), "h200"));
}

#[test]
fn first_layers_are_offered_and_others_not() {
    let gpu = h200();
    let found = StemFamily.candidates(&gpu, &resnet(16), &Budget::USUAL);
    assert!((4..=2 * Budget::USUAL.per_group).contains(&found.len()));
    assert!((10e3..40e3).contains(&found[0].predicted_ns), "{}", found[0].predicted_ns);
    assert_eq!(found[0].inputs[0], Want::inside(Layout::Plain));
    assert_eq!(found[0].outputs[0], Want::inside(Layout::ChannelsLast));
    assert!(
        StemFamily
            .candidates(&gpu, &conv(DType::F16, &[1, 8, 9, 9], 8, &[3, 3], |_| {}), &Budget::USUAL)
            .is_empty()
    );
    assert!(
        StemFamily
            .candidates(&gpu, &conv(DType::F32, &[1, 3, 9, 9], 8, &[3, 3], |_| {}), &Budget::USUAL)
            .is_empty()
    );
    let dilated = conv(DType::F16, &[1, 3, 9, 9], 8, &[3, 3], |conv| conv.dilations = vec![2, 2]);
    assert!(StemFamily.candidates(&gpu, &dilated, &Budget::USUAL).is_empty());
}

#[test]
fn a_cast_in_front_is_part_of_the_loader() {
    let problem = with_cast(resnet(1));
    assert_eq!(problem.inputs[0].dtype, DType::F32);
    let candidate = StemFamily.candidates(&h200(), &problem, &Budget::USUAL).remove(0);
    let arranged = problem.for_candidate(&candidate);
    let source = StemFamily.sources(&h200(), &arranged, &candidate.tactic).unwrap().remove(0);
    let defined = |name: &str| source.defines.iter().find(|(own, _)| own == name).map(|(_, value)| &**value);
    assert_eq!((defined("X_T"), defined("TIN")), (Some("float"), Some("f16")));
}

#[test]
fn packing_goes_there_and_back() {
    let problem = conv(DType::F16, &[1, 3, 9, 9], 2, &[3, 3], |_| {});
    let tactic = StemFamily.candidates(&h200(), &problem, &Budget::USUAL).remove(0).tactic;
    let values: Vec<half::f16> = (0..54).map(|idx| half::f16::from_f32(idx as f32)).collect();
    let weight = Tensor::new(&[2, 3, 3, 3], values).unwrap();
    let packed = pack(&StemFamily, WeightUse::new(&problem, &tactic, 1), &weight).unwrap();
    // Three rows of nine, padded to ten each, and the whole to 32.
    assert_eq!(packed.bytes.len(), 2 * 32 * 2);
    // Output channel 1, window row 2, column 1, channel 2 is element (1, 2, 2, 1).
    let at = 2 * (32 + 2 * 10 + 3 + 2);
    assert_eq!(packed.bytes[at..at + 2], half::f16::from_f32((27 + 18 + 6 + 1) as f32).to_le_bytes());
    assert_eq!(crate::unpack(packed.form_of(&weight), &packed.bytes).unwrap(), weight);
    assert!(pack(&StemFamily, WeightUse::new(&problem, &tactic, 2), &weight).is_err());
}
