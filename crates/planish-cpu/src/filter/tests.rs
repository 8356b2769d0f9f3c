//! Against the reference on every instruction set: strides, dilations, borders, cuts of rows and columns.

use planish_kernel::{Layout, Operand};
use planish_op::{Conv, Op};
use planish_tensor::DType;
use planish_testing::{Placement, Random, Tolerance, input, node, region};

use super::FilterFamily;
use crate::trial::check_placed;

/// Sums of at most 600 products of numbers below 1 and a bias, each addition rounded by half a unit of a partial sum.
const TOLERANCE: Tolerance = Tolerance::absolute(601.0 * 40.0 * f32::EPSILON as f64);

struct Case {
    x: Vec<usize>,
    multiplier: usize,
    kernel: Vec<usize>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    pads: Vec<i64>,
    bias: bool,
    clamp: bool,
}

impl Case {
    fn check(&self, random: &mut Random) {
        let channels = self.x[1] * self.multiplier;
        let conv = match Op::from_attributes("Conv", &[]).unwrap() {
            Op::Conv(conv) => conv,
            other => panic!("{other:?}"),
        };
        let conv = Conv {
            group: self.x[1] as i64,
            pads: self.pads.clone(),
            strides: self.strides.clone(),
            dilations: self.dilations.clone(),
            ..conv
        };
        let mut tensors =
            vec![random.floats(&self.x), random.floats(&[&[channels, 1], &self.kernel[..]].concat())];
        let mut read = vec![input(0), input(1)];
        if self.bias {
            tensors.push(random.floats(&[channels]));
            read.push(input(2));
        }
        let mut nodes = vec![(Op::Conv(conv), read)];
        if self.clamp {
            nodes.push((planish_op::Relu {}.into(), vec![node(0)]));
        }
        let region = region(tensors.len() as u32, Vec::new(), nodes);
        let plain = Placement { layout: Layout::Plain, gap: 0 };
        check_placed(&FilterFamily, &region, &tensors, TOLERANCE, &[plain]);
    }
}

#[test]
fn filters_of_one_channel() {
    let mut random = Random::new(1);
    for (n, kernel, stride, pads) in [
        (96, 41, 3, [19, 22]),
        (1, 1, 1, [0, 0]),
        (17, 17, 1, [0, 0]),
        (5, 9, 2, [4, 4]),
        (3000, 33, 1, [16, 16]),
        (2500, 20, 2, [3, 40]),
        (1100, 7, 64, [0, 100]),
    ] {
        for (bias, clamp) in [(false, false), (true, true)] {
            let case = Case {
                x: vec![2, 1, n],
                multiplier: 1,
                kernel: vec![kernel],
                strides: vec![stride],
                dilations: vec![1],
                pads: pads.to_vec(),
                bias,
                clamp,
            };
            case.check(&mut random);
        }
    }
}

#[test]
fn any_windows_of_few_channels() {
    let mut random = Random::new(2);
    for _ in 0..120 {
        let pick = |random: &mut Random, list: &[usize]| list[random.below(list.len())];
        let axis = |random: &mut Random| {
            let kernel = pick(random, &[1, 2, 3, 5, 8, 11]);
            let dilation = pick(random, &[1, 1, 2, 3]);
            let stride = pick(random, &[1, 1, 2, 3, 5]);
            let pads = [random.below(kernel + 2), random.below(kernel + 2)];
            let reach = (kernel - 1) * dilation + 1;
            let size = reach.saturating_sub(pads[0] + pads[1]).max(1) + random.below(70);
            (kernel, dilation as i64, stride as i64, pads, size)
        };
        let (a, b) = (axis(&mut random), axis(&mut random));
        Case {
            x: vec![1 + random.below(2), 1 + random.below(4), a.4, b.4],
            multiplier: 1 + random.below(2),
            kernel: vec![a.0, b.0],
            strides: vec![a.2, b.2],
            dilations: vec![a.1, b.1],
            pads: vec![a.3[0] as i64, b.3[0] as i64, a.3[1] as i64, b.3[1] as i64],
            bias: random.below(2) == 0,
            clamp: random.below(2) == 0,
        }
        .check(&mut random);
    }
}

#[test]
fn what_reaches_over_too_much_is_refused() {
    let conv = match Op::from_attributes("Conv", &[]).unwrap() {
        Op::Conv(conv) => Conv { dilations: vec![1 << 40], pads: vec![1 << 39, 1 << 39], ..conv },
        other => panic!("{other:?}"),
    };
    let region = region(2, Vec::new(), vec![(Op::Conv(conv), vec![input(0), input(1)])]);
    let operand = |dims: &[usize]| Operand::dense(DType::F32, dims, Layout::Plain);
    let problem = planish_kernel::Problem {
        region,
        inputs: vec![operand(&[1, 1, 8]), operand(&[1, 1, 2])],
        outputs: vec![operand(&[1, 1, 8])],
        numeric: planish_kernel::Numeric::F32,
        threads: 1,
    };
    assert!(super::plan(crate::isa::Isa::best(), &problem).is_none());
}
