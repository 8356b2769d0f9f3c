//! Integer convolutions and matrix products against the reference, byte by byte.

use planish_kernel::Ref;
use planish_op as op;
use planish_op::Op;
use planish_tensor::{DType, Tensor};
use planish_testing::problems::convtranspose;
use planish_testing::{Placement, Random, constant, input, node, region};

use super::QuantizedFamily;
use super::testing::{Trial, conv, dequantize, quantize, quantized_conv, scales, weights, with_residual};
use crate::family::Family;
use crate::isa::{Feature, Isa};

const CONV: &dyn Family = &QuantizedFamily::Conv;

#[test]
fn convolutions_to_bytes_and_to_floats() {
    for to in [Some(Tensor::scalar(3u8)), Some(Tensor::scalar(-100i8)), None] {
        let names = quantized_conv(
            CONV,
            1,
            (&[2, 8, 9, 7], &[35, 8, 3, 3]),
            conv(&[1, 1, 1, 1], &[1, 1], 1),
            128,
            to.clone(),
            127,
        )
        .check();
        for isa in Isa::available() {
            let end = if isa.name() == "avx512" { "_avx512vnni".into() } else { format!("_{isa}") };
            let is_there = names.iter().any(|name| name.ends_with(&end));
            assert!(is_there || isa.name() == "avx512" && !Feature::Avx512Vnni.is_here(), "{end}: {names:?}");
        }
        quantized_conv(CONV, 2, (&[1, 4, 5, 6], &[17, 4, 1, 1]), conv(&[], &[], 1), 0, to.clone(), 63)
            .check();
        quantized_conv(CONV, 3, (&[1, 12, 11], &[9, 12, 4]), conv(&[2, 1], &[2], 1), 7, to.clone(), 127)
            .check();
        quantized_conv(
            CONV,
            4,
            (&[1, 4, 5, 6, 4], &[16, 4, 3, 3, 2]),
            conv(&[1; 6], &[], 1),
            255,
            to.clone(),
            127,
        )
        .check();
        quantized_conv(
            CONV,
            5,
            (&[3, 24, 6, 5], &[6, 8, 2, 3]),
            conv(&[0, 1, 1, 0], &[1, 2], 3),
            128,
            to,
            127,
        )
        .check();
    }
}

/// Weights that two neighbouring products of which leave 16 bits, and the largest activations.
#[test]
fn the_largest_sums_are_exact() {
    let mut trial = quantized_conv(
        CONV,
        6,
        (&[1, 32, 4, 4], &[33, 32, 3, 3]),
        conv(&[1, 1, 1, 1], &[1, 1], 1),
        0,
        None,
        127,
    );
    trial.inputs[0] = Tensor::from_i64s(DType::U8, &[1, 32, 4, 4], &[255; 512]).unwrap();
    trial.inputs[1] = Tensor::from_i64s(DType::I8, &[33, 32, 3, 3], &[-128; 33 * 32 * 9]).unwrap();
    let (mut problem, mut want) = Placement::ALL[0].problem(&trial.region, &trial.inputs);
    (1..4).for_each(|idx| problem.inputs[idx].constant = true);
    (trial.problem, trial.want) = (problem, want.remove(0));
    trial.check();
}

/// Some rows of a panel have large weights, most have not: whole and cut tiles, several taps and panels.
#[test]
fn small_and_large_weights_in_one_panel() {
    for (seed, x, w, pads, group) in [
        (21, [1, 48, 5, 5], [40, 48, 1, 1], [0; 4], 1),
        (22, [2, 24, 6, 5], [27, 24, 3, 2], [1, 0, 1, 1], 1),
        (23, [1, 32, 4, 4], [36, 16, 2, 2], [0; 4], 2),
    ] {
        let conv = conv(&pads, &[2, 1], group);
        let mut trial = quantized_conv(CONV, seed, (&x, &w), conv, 128, Some(Tensor::scalar(3u8)), 127);
        let mut random = Random::new(seed);
        let large = |random: &mut Random| if random.chance(2) { 127.0 } else { -128.0 };
        let weight = random.made(DType::I8, &w, |random| match random.chance(40) {
            true => large(random),
            false => random.below(121) as f64 - 60.0,
        });
        trial.inputs[1] = weight;
        let (mut problem, mut want) = Placement::ALL[0].problem(&trial.region, &trial.inputs);
        (1..4).for_each(|idx| problem.inputs[idx].constant = true);
        (trial.problem, trial.want) = (problem, want.remove(0));
        trial.check();
    }
}

#[test]
fn residuals_of_every_type() {
    for dtype in [DType::U8, DType::I8, DType::F32] {
        with_residual(CONV, (8, &[20, 8, 3, 3]), 1, dtype).check();
    }
}

#[test]
fn matrix_products() {
    for (x, w, transposed) in [
        (vec![7usize, 12], [12usize, 33], false),
        (vec![2, 3, 8], [8, 16], false),
        (vec![5, 16], [10, 16], true),
    ] {
        let mut random = Random::new(8);
        let n = if transposed { w[0] } else { w[1] };
        let inputs = vec![
            random.whole(DType::U8, &x, 0, 255),
            weights(&mut random, &w, 127),
            scales(&mut random, n),
            Tensor::vector((0..n).map(|_| random.below(64) as f32 * 0.125 - 4.0).collect()),
        ];
        let constants =
            vec![Tensor::scalar(0.25f32), Tensor::scalar(100u8), Tensor::scalar(4f32), Tensor::scalar(128u8)];
        let (main, bias): (Op, Vec<Option<Ref>>) = match transposed {
            true => {
                let gemm = op::Gemm { alpha: 1.0, beta: 1.0, trans_a: false, trans_b: true };
                (gemm.into(), vec![node(0), node(1), input(3)])
            }
            false => (op::MatMul {}.into(), vec![node(0), node(1)]),
        };
        let mut nodes = vec![
            (dequantize(1), vec![input(0), constant(0), constant(1)]),
            (dequantize(if transposed { 0 } else { 1 }), vec![input(1), input(2)]),
            (main, bias),
        ];
        if !transposed {
            nodes.push((op::Add {}.into(), vec![node(2), input(3)]));
        }
        let last = node(nodes.len() as u32 - 1);
        nodes.push((quantize(), vec![last, constant(2), constant(3)]));
        let names =
            Trial::new(&QuantizedFamily::Matrix, region(4, constants, nodes), inputs, &[1, 2, 3]).check();
        assert!(names.iter().all(|name| name.starts_with("qgemm_u8_")), "{names:?}");
    }
}

/// Winograd's way is exact: whole and cut tiles, any padding, residuals, the largest sums.
#[test]
#[cfg(target_arch = "x86_64")]
fn winograd_is_exact() {
    let has_avx2 = Isa::available().iter().any(|isa| isa.name() == "avx2");
    let n_winograd =
        |names: &[String]| names.iter().filter(|name| name.starts_with("qconv_winograd2_")).count();
    for (x, w, pads) in [
        ([2, 16, 9, 7], [35, 16, 3, 3], [1, 1, 1, 1]),
        ([1, 48, 4, 4], [16, 48, 3, 3], [0, 0, 0, 0]),
        ([1, 32, 1, 1], [3, 32, 3, 3], [1, 1, 1, 1]),
        ([3, 16, 5, 13], [50, 16, 3, 3], [2, 0, 1, 3]),
    ] {
        for (zero, to) in [(0, Some(Tensor::scalar(3u8))), (131, None), (255, Some(Tensor::scalar(-100i8)))] {
            let names = quantized_conv(CONV, 16, (&x, &w), conv(&pads, &[1, 1], 1), zero, to, 127).check();
            assert_eq!(n_winograd(&names) > 0, has_avx2, "{names:?}");
        }
    }
    for dtype in [DType::U8, DType::I8, DType::F32] {
        let names = with_residual(CONV, (16, &[20, 16, 3, 3]), 1, dtype).check();
        assert_eq!(n_winograd(&names) > 0, has_avx2, "{names:?}");
    }
    // What it does not compute, it does not offer.
    for (x, w, strides, group) in [
        ([1, 16, 6, 6], [8, 16, 3, 3], [2, 1], 1),
        ([1, 32, 6, 6], [8, 16, 3, 3], [1, 1], 2),
        ([1, 20, 6, 6], [8, 20, 3, 3], [1, 1], 1),
        ([1, 16, 6, 6], [8, 16, 3, 1], [1, 1], 1),
    ] {
        let names = quantized_conv(CONV, 17, (&x, &w), conv(&[1; 4], &strides, group), 9, None, 127).check();
        assert_eq!(n_winograd(&names), 0, "{names:?}");
    }
}

/// Windows that tiles of AMX read where they lie, those that are copied together, and both around whole blocks.
#[test]
fn whole_and_broken_blocks() {
    for (x, w) in [
        ([1, 64, 8, 8], [40, 64, 1, 1]),
        ([1, 128, 4, 4], [16, 128, 1, 1]),
        ([2, 64, 7, 7], [33, 64, 1, 1]),
        ([1, 68, 6, 6], [31, 68, 1, 1]),
        ([1, 60, 5, 7], [65, 60, 1, 1]),
        ([1, 64, 6, 9], [32, 64, 3, 3]),
        ([1, 4, 1, 1], [1, 4, 1, 1]),
    ] {
        for zero in [0, 131] {
            let pad = if w[2] == 3 { 1 } else { 0 };
            let to = Some(Tensor::scalar(3u8));
            quantized_conv(CONV, 10, (&x, &w), conv(&[pad; 4], &[], 1), zero, to, 127).check();
        }
    }
}

/// Channels that are no multiple of four, and rows of so many numbers.
#[test]
fn channels_that_are_no_quads() {
    for (x, w, conv) in [
        (vec![1usize, 3, 9, 7], vec![16usize, 3, 3, 3], conv(&[1; 4], &[2, 2], 1)),
        (vec![2, 1, 6, 5], vec![5, 1, 5, 5], conv(&[2; 4], &[], 1)),
        (vec![1, 5, 4, 4], vec![33, 5, 1, 1], conv(&[], &[], 1)),
        (vec![3, 14, 5, 6], vec![8, 7, 3, 2], conv(&[0, 1, 1, 0], &[1, 2], 2)),
        (vec![1, 37, 11], vec![9, 37, 4], conv(&[2, 1], &[2], 1)),
        (vec![1, 6, 3, 4, 5], vec![17, 6, 3, 3, 2], conv(&[1; 6], &[], 1)),
        (vec![1, 67, 90, 90], vec![7, 67, 1, 1], conv(&[], &[], 1)),
    ] {
        for (zero, to) in [(0, Some(Tensor::scalar(3u8))), (131, None)] {
            let names = quantized_conv(CONV, 18, (&x, &w), conv.clone(), zero, to, 127).check();
            assert!(names.iter().all(|name| name.starts_with("qconv_igemm_")), "{names:?}");
        }
    }
    let mut random = Random::new(19);
    let zeros = random.whole(DType::I8, &[35], -128, 127);
    found_at_run_time(CONV, (&[2, 13, 9, 7], &[35, 13, 3, 3]), conv(&[1; 4], &[], 1), 131, zeros).check();
}

/// Each phase of a transposed convolution sums its own taps; a stride beyond the kernel leaves some without any.
#[test]
fn transposed_convolutions() {
    let plain = |strides: &[i64], pads: &[i64], group: i64| convtranspose::plain(group, pads, strides);
    let cases: Vec<(Vec<usize>, Vec<usize>, op::ConvTranspose)> = vec![
        (vec![1, 8, 5, 6], vec![8, 20, 2, 2], plain(&[2, 2], &[], 1)),
        (vec![2, 12, 4, 3], vec![12, 33, 3, 3], plain(&[2, 2], &[1, 1, 1, 1], 1)),
        (vec![1, 4, 3, 4], vec![4, 5, 2, 2], plain(&[3, 3], &[], 1)),
        (vec![1, 16, 7], vec![16, 9, 4], plain(&[2], &[1, 2], 1)),
        (vec![1, 4, 2, 3, 4], vec![4, 17, 2, 2, 2], plain(&[2, 2, 2], &[], 1)),
        (vec![1, 16, 4, 4], vec![16, 3, 3, 3], plain(&[2, 1], &[], 2)),
        (vec![2, 7, 4, 3], vec![7, 5, 3, 3], plain(&[2, 2], &[1, 1, 1, 1], 1)),
    ];
    for (x, w, conv) in cases {
        let mut random = Random::new(11);
        let (groups, n) = (conv.group as usize, conv.group as usize * w[1]);
        let inputs = vec![
            random.whole(DType::U8, &x, 0, 255),
            weights(&mut random, &w, 127),
            scales(&mut random, n),
            Tensor::vector((0..n).map(|_| random.below(64) as f32 * 0.125 - 4.0).collect()),
        ];
        let constants = vec![
            Tensor::scalar(0.25f32),
            Tensor::scalar(77u8),
            Tensor::scalar(2f32),
            Tensor::scalar(3u8),
            Tensor::scalar(0.0078125f32),
        ];
        // A scale for each channel follows the output channels of one group only.
        let scale = if groups == 1 { input(2) } else { constant(4) };
        let nodes = vec![
            (dequantize(1), vec![input(0), constant(0), constant(1)]),
            (dequantize(1), vec![input(1), scale]),
            (conv.into(), vec![node(0), node(1), input(3)]),
            (op::Relu {}.into(), vec![node(2)]),
            (quantize(), vec![node(3), constant(2), constant(3)]),
        ];
        let names = Trial::new(CONV, region(4, constants, nodes), inputs, &[1, 2, 3]).check();
        assert!(names.iter().all(|name| name.starts_with("qconv_igemm_u8_")), "{names:?}");
    }
}

/// What the kernels do not compute is not offered.
#[test]
fn others_are_refused() {
    let mut odd = quantized_conv(CONV, 9, (&[1, 6, 5, 5], &[6, 1, 3, 3]), conv(&[], &[], 6), 0, None, 127);
    assert_eq!(odd.n_offered(), 0, "depthwise has kernels of its own");
    odd = quantized_conv(CONV, 9, (&[1, 8, 5, 5], &[8, 8, 3, 3]), conv(&[], &[], 1), 0, None, 127);
    assert!(odd.n_offered() > 0);
    odd.problem.inputs[1].constant = false;
    assert_eq!(odd.n_offered(), 0, "weights that are not known");
    odd = quantized_conv(CONV, 9, (&[1, 8, 5, 5], &[8, 8, 3, 3]), conv(&[], &[], 1), 0, None, 127);
    odd.problem.inputs[0].dtype = DType::I8;
    assert_eq!(odd.n_offered(), 0, "signed activations");
}

/// A convolution whose image has a scale and zero point that a run brings, and whose weight has zero points.
fn found_at_run_time(
    family: &'static dyn Family,
    (x, w): (&[usize], &[usize]),
    conv: op::Conv,
    zero: u8,
    weight_zeros: Tensor,
) -> Trial {
    let mut random = Random::new(11);
    let n = w[0];
    let inputs = vec![
        random.whole(DType::U8, x, 0, 255),
        weights(&mut random, w, 127),
        scales(&mut random, n),
        Tensor::scalar(0.25f32),
        Tensor::scalar(zero),
        Tensor::vector((0..n).map(|_| random.below(64) as f32 * 0.125 - 4.0).collect()),
        match weight_zeros.len() {
            1 => Tensor::vector(vec![weight_zeros.to_i64s()[0] as i8; n]),
            _ => weight_zeros,
        },
    ];
    let nodes = vec![
        (dequantize(1), vec![input(0), input(3), input(4)]),
        (dequantize(0), vec![input(1), input(2), input(6)]),
        (conv.into(), vec![node(0), node(1), input(5)]),
        (op::Relu {}.into(), vec![node(2)]),
    ];
    // The bias is computed too.
    Trial::new(family, region(7, Vec::new(), nodes), inputs, &[1, 2, 6])
}

#[test]
fn scales_and_zero_points_that_a_run_brings() {
    let mut random = Random::new(12);
    let each = |random: &mut Random, n: usize| random.whole(DType::I8, &[n], -128, 127);
    for zero in [0, 131, 255] {
        let zeros = each(&mut random, 35);
        let padded = conv(&[1, 1, 1, 1], &[1, 1], 1);
        found_at_run_time(CONV, (&[2, 8, 9, 7], &[35, 8, 3, 3]), padded, zero, zeros).check();
        let zeros = Tensor::vector(vec![-7i8]);
        found_at_run_time(CONV, (&[1, 20, 33], &[9, 20, 4]), conv(&[2, 1], &[2], 1), zero, zeros).check();
        let zeros = each(&mut random, 6);
        let grouped = conv(&[0, 1, 1, 0], &[1, 2], 3);
        found_at_run_time(CONV, (&[3, 24, 6, 5], &[6, 8, 2, 3]), grouped, zero, zeros).check();
    }
}

/// A matrix product of the same kind, with one zero point of the weight that is part of the region.
#[test]
fn matrix_products_with_numbers_that_a_run_brings() {
    for (m, k, n, zero, weight_zero) in [
        (1, 64, 5, 3u8, 0i8),
        (7, 132, 33, 128, -128),
        (33, 256, 70, 255, 127),
        (40, 4, 1, 17, 5),
        (7, 30, 9, 128, -3),
    ] {
        let mut random = Random::new(m as u64);
        let inputs = vec![
            random.whole(DType::U8, &[m, k], 0, 255),
            weights(&mut random, &[k, n], 127),
            Tensor::scalar(0.5f32),
            Tensor::scalar(zero),
        ];
        let constants = vec![Tensor::scalar(0.125f32), Tensor::scalar(weight_zero)];
        let nodes = vec![
            (dequantize(1), vec![input(0), input(2), input(3)]),
            (dequantize(1), vec![input(1), constant(0), constant(1)]),
            (op::MatMul {}.into(), vec![node(0), node(1)]),
        ];
        Trial::new(&QuantizedFamily::Matrix, region(4, constants, nodes), inputs, &[1]).check();
    }
}

/// Bytes that are added to a single row or pixel have the sizes of a bias, which kernels read as f32.
#[test]
fn bytes_added_to_one_row_are_no_bias() {
    for (x, w, out) in [
        (vec![1usize, 1, 32], vec![32usize, 20], vec![1usize, 1, 20]),
        (vec![1, 8], vec![8, 33], vec![1, 33]),
        (vec![1, 8, 1, 1], vec![20, 8, 1, 1], vec![1, 20, 1, 1]),
    ] {
        for dtype in [DType::U8, DType::I8] {
            // With a term of f32 before or after the bytes, or without one.
            for floats_at in [None, Some(0), Some(1)] {
                one_row((&x, &w, &out), dtype, floats_at).check();
            }
        }
    }
}

fn one_row((x, w, out): (&[usize], &[usize], &[usize]), dtype: DType, floats_at: Option<usize>) -> Trial {
    let mut random = Random::new(5);
    let is_conv = w.len() == 4;
    let least = if dtype == DType::U8 { 0 } else { -128 };
    let n = if is_conv { w[0] } else { w[1] };
    let inputs = vec![
        random.whole(DType::U8, x, 0, 255),
        weights(&mut random, w, 127),
        scales(&mut random, n),
        random.whole(dtype, out, least, least + 255),
        random.made(DType::F32, out, |random| random.below(64) as f64 * 0.25 - 8.0),
    ];
    let constants = vec![
        Tensor::scalar(0.25f32),
        Tensor::scalar(128u8),
        Tensor::scalar(0.5f32),
        Tensor::from_i64s(dtype, &[], &[11]).unwrap(),
    ];
    let main: Op = if is_conv { conv(&[], &[], 1).into() } else { op::MatMul {}.into() };
    let mut nodes = vec![
        (dequantize(1), vec![input(0), constant(0), constant(1)]),
        (dequantize(if is_conv { 0 } else { 1 }), vec![input(1), input(2)]),
        (dequantize(1), vec![input(3), constant(2), constant(3)]),
        (main, vec![node(0), node(1)]),
    ];
    let terms = match floats_at {
        None => vec![node(2)],
        Some(0) => vec![input(4), node(2)],
        Some(_) => vec![node(2), input(4)],
    };
    for term in terms {
        let sum = node(nodes.len() as u32 - 1);
        nodes.push((op::Add {}.into(), vec![sum, term]));
    }
    let family: &dyn Family = if is_conv { CONV } else { &QuantizedFamily::Matrix };
    Trial::new(family, region(5, constants, nodes), inputs, &[1, 2])
}

/// A residual whose scale a run brings is not a term of the epilogue.
#[test]
fn residuals_have_known_scales() {
    let mut random = Random::new(3);
    let dims = [1, 8, 4, 4];
    let inputs = vec![
        random.whole(DType::U8, &dims, 0, 255),
        weights(&mut random, &[8, 8, 1, 1], 127),
        scales(&mut random, 8),
        random.whole(DType::U8, &dims, 0, 255),
        Tensor::scalar(0.5f32),
    ];
    let nodes = vec![
        (dequantize(1), vec![input(0), constant(0)]),
        (dequantize(0), vec![input(1), input(2)]),
        (conv(&[], &[], 1).into(), vec![node(0), node(1)]),
        (dequantize(1), vec![input(3), input(4)]),
        (op::Add {}.into(), vec![node(2), node(3)]),
    ];
    let trial = Trial::new(CONV, region(5, vec![Tensor::scalar(0.25f32)], nodes), inputs, &[1, 2]);
    assert_eq!(trial.n_offered(), 0);
}
