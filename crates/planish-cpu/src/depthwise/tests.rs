//! Every instruction set against the reference: borders, strides, dilations, multipliers, edges of vectors
//! and tiles, operands inside larger ones.

use planish_kernel::{Budget, Layout, Numeric, Operand, Problem, Ref, Region, RegionNode, WeightUse};
use planish_op::{Conv, Op};
use planish_tensor::{DType, Tensor};
use planish_testing::{Fenced, Placed, Random, Tolerance, assert_close, evaluate_op};

use super::{Depthwise, DepthwiseArguments, DepthwiseFamily, OutputRow, pack};
use crate::family::Family;
use crate::isa::Isa;
use crate::shared::Shared;
use crate::spatial::Windows;
use crate::team::Team;

/// A sum of at most 125 products of numbers below 1 and a bias: each addition rounds by at most half a unit of
/// a partial sum below 126, the reference sums in f64.
const TOLERANCE: Tolerance = Tolerance::absolute(126.0 * 126.0 * f32::EPSILON as f64 / 2.0);

fn conv() -> Conv {
    match Op::from_attributes("Conv", &[]).unwrap() {
        Op::Conv(conv) => conv,
        other => panic!("{other:?}"),
    }
}

struct Case {
    x: Vec<usize>,
    multiplier: usize,
    kernel: Vec<i64>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    pads: Vec<i64>,
    bias: bool,
    clamp: Option<(f32, f32)>,
}

impl Case {
    fn same(x: &[usize], kernel: i64, stride: i64) -> Case {
        let n = x.len() - 2;
        Case {
            x: x.to_vec(),
            multiplier: 1,
            kernel: vec![kernel; n],
            strides: vec![stride; n],
            dilations: vec![1; n],
            pads: vec![kernel / 2; 2 * n],
            bias: true,
            clamp: None,
        }
    }

    fn check(&self, random: &mut Random) {
        let channels = self.x[1] * self.multiplier;
        let x = random.floats(&self.x);
        let kernel: Vec<usize> = self.kernel.iter().map(|k| *k as usize).collect();
        let w = random.floats(&[&[channels, 1], &kernel[..]].concat());
        let bias = self.bias.then(|| random.floats(&[channels]));
        let op = Conv {
            group: self.x[1] as i64,
            pads: self.pads.clone(),
            strides: self.strides.clone(),
            dilations: self.dilations.clone(),
            ..conv()
        };
        let [mut want] = <[Tensor; 1]>::try_from(evaluate_op(
            &Op::Conv(op.clone()),
            &[Some(&x), Some(&w), bias.as_ref()],
            1,
        ))
        .unwrap();
        if let Some((lo, hi)) = self.clamp {
            let clamped = want.elements::<f32>().unwrap().iter().map(|v| v.clamp(lo, hi)).collect();
            want = Tensor::new(want.shape(), clamped).unwrap();
        }
        let axes: Vec<_> = op
            .window()
            .axes(&kernel.iter().map(|k| (*k).into()).collect::<Vec<_>>())
            .unwrap()
            .iter()
            .zip(&self.x[2..])
            .map(|(axis, size)| axis.place(*size).unwrap())
            .collect();
        let from = random.operand(DType::F32, x.shape(), Layout::ChannelsLast);
        let to = random.operand(DType::F32, want.shape(), Layout::ChannelsLast);
        let placed = Placed::new(&x, &from);
        let packed = pack(&w.elements::<f32>().unwrap(), channels, kernel.iter().product());
        let bias = bias.map(|bias| bias.elements::<f32>().unwrap().to_vec());
        let mut first: Option<Tensor> = None;
        for isa in Isa::available() {
            let windows = Windows::new(&axes, &from, &to).unwrap();
            let clamp = self.clamp.unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
            let plan = Depthwise::plan(isa, windows, self.x[1], clamp).unwrap();
            let mut y = Placed::blank(&to);
            let arguments = DepthwiseArguments {
                x: placed.ptr().cast(),
                weights: packed.as_ptr(),
                bias: bias.as_ref().map_or(std::ptr::null(), |bias| bias.as_ptr()),
                y: y.mut_ptr().cast(),
                hook: None,
            };
            // SAFETY: the operands describe the memory.
            unsafe { plan.run(&arguments, &Team::alone()) };
            let got = y.tensor();
            assert_close(&got, &want, TOLERANCE, &format!("{isa} {:?} {:?}", self.x, self.kernel));
            // AVX2 and AVX-512 add in the same order with the same rounding.
            if isa != Isa::available()[0] {
                assert!(first.as_ref().is_none_or(|first| *first == got), "{isa}");
                first = Some(got);
            }
        }
    }
}

#[test]
fn windows_of_usual_networks() {
    let mut random = Random::new(1);
    for kernel in [3, 5, 7] {
        for stride in [1, 2] {
            for size in [1, 2, 7, 8, 9, 14, 17] {
                for channels in [1, 7, 8, 15, 16, 17, 24, 33] {
                    Case::same(&[1, channels, size, size + 1], kernel, stride).check(&mut random);
                }
            }
        }
    }
}

#[test]
fn empty_batches_and_missing_biases() {
    let mut random = Random::new(2);
    Case::same(&[0, 8, 5, 5], 3, 1).check(&mut random);
    Case { bias: false, ..Case::same(&[2, 20, 5, 5], 3, 1) }.check(&mut random);
    Case { clamp: Some((0.0, 0.5)), ..Case::same(&[2, 20, 5, 5], 3, 1) }.check(&mut random);
}

#[test]
fn any_windows() {
    let mut random = Random::new(3);
    for _ in 0..150 {
        let n_axes = random.between(1, 3);
        let mut case = Case::same(&vec![1; n_axes + 2], 1, 1);
        case.x[0] = random.between(1, 2);
        case.x[1] = random.between(1, 40);
        case.multiplier = if random.chance(4) { random.between(2, 4) } else { 1 };
        case.bias = random.chance(2);
        case.clamp = random.chance(3).then_some((-0.25, 0.5));
        for axis in 0..n_axes {
            case.kernel[axis] = random.between(1, if n_axes == 3 { 5 } else { 9 }) as i64;
            case.strides[axis] = random.between(1, 3) as i64;
            case.dilations[axis] = if random.chance(3) { random.between(2, 3) as i64 } else { 1 };
            case.pads[axis] = random.below(4) as i64;
            case.pads[n_axes + axis] = random.below(4) as i64;
            let extent = (case.kernel[axis] - 1) * case.dilations[axis] + 1;
            case.x[axis + 2] = extent as usize + random.below(12);
        }
        case.check(&mut random);
    }
}

/// Not a number passes through the clamp, as it does through Relu and Clip.
#[test]
fn nan_passes_the_clamp() {
    let dims = [1, 16, 1, 3];
    let operand = Operand::dense(DType::F32, &dims, Layout::ChannelsLast);
    let axis = conv().window().axes(&[1usize.into(), 1usize.into()]).unwrap();
    let axes = [axis[0].place(1).unwrap(), axis[1].place(3).unwrap()];
    for isa in Isa::available() {
        let windows = Windows::new(&axes, &operand, &operand).unwrap();
        let plan = Depthwise::plan(isa, windows, 16, (0.0, 6.0)).unwrap();
        let x = [f32::NAN; 48];
        let (weights, mut y) = ([1.0; 16], [0.0; 48]);
        let arguments = DepthwiseArguments {
            x: x.as_ptr(),
            weights: weights.as_ptr(),
            bias: std::ptr::null(),
            y: y.as_mut_ptr(),
            hook: None,
        };
        // SAFETY: all arrays have the sizes of the operands.
        unsafe { plan.run(&arguments, &Team::alone()) };
        assert!(y.iter().all(|value| value.is_nan()));
    }
}

#[test]
fn the_hook_sees_every_row_once_after_it_is_stored() {
    let dims = [2, 20, 3, 4, 9];
    let operand = Operand::dense(DType::F32, &dims, Layout::ChannelsLast);
    let op = Conv { pads: vec![1; 6], ..conv() };
    let axes: Vec<_> = op
        .window()
        .axes(&[3usize.into(), 3usize.into(), 3usize.into()])
        .unwrap()
        .iter()
        .zip(&dims[2..])
        .map(|(axis, size)| axis.place(*size).unwrap())
        .collect();
    let x = Random::new(5).floats(&dims);
    let placed = Placed::new(&x, &operand);
    let weights = vec![0.5f32; 27 * 32];
    for isa in Isa::available() {
        let windows = Windows::new(&axes, &operand, &operand).unwrap();
        let plan = Depthwise::plan(isa, windows, 20, (f32::NEG_INFINITY, f32::INFINITY)).unwrap();
        let run = |hook: Option<&super::RowHook<'_>>| {
            let mut y = Placed::blank(&operand);
            let arguments = DepthwiseArguments {
                x: placed.ptr().cast(),
                weights: weights.as_ptr(),
                bias: std::ptr::null(),
                y: y.mut_ptr().cast(),
                hook,
            };
            // SAFETY: the operands describe the memory.
            unsafe { plan.run(&arguments, &Team::alone()) };
            y.tensor().elements::<f32>().unwrap().to_vec()
        };
        let plain = run(None);
        let doubled = run(Some(&|row: OutputRow| {
            for pixel in 0..row.n_pixels {
                for channel in 0..row.channels.len() {
                    // SAFETY: the row is the hook's until it returns.
                    unsafe { *row.start.add(pixel * row.pixel_stride + channel) *= 2.0 };
                }
            }
        }));
        assert!(plain.iter().zip(&doubled).all(|(a, b)| 2.0 * a == *b));
    }
}

/// Conv, Clip, and Relu, HardSwish or the sum with an image as one region: candidates, packed weight and result
/// as a plan uses them.
#[test]
fn a_region_with_what_follows_runs_through_the_family() {
    region_with(planish_op::Relu {}.into(), false, &|v, _| v.clamp(0.0, 0.75));
    region_with(planish_op::HardSwish {}.into(), false, &|v, _| {
        let v = v.clamp(-0.5, 0.75);
        v * (v / 6.0 + 0.5)
    });
    region_with(planish_op::Add {}.into(), true, &|v, other| v.clamp(-0.5, 0.75) + other);
}

fn region_with(last: Op, with_image: bool, want: &dyn Fn(f32, f32) -> f32) {
    let mut random = Random::new(6);
    let other = random.floats(&[2, 24, 9, 11]);
    let (x, w, bias) = (random.floats(&[2, 24, 9, 11]), random.floats(&[24, 1, 3, 3]), random.floats(&[24]));
    let op: Op = Conv { group: 24, pads: vec![1; 4], ..conv() }.into();
    let node = |op: Op, inputs: Vec<Option<Ref>>| RegionNode {
        name: op.name().to_string(),
        op,
        inputs,
        n_outputs: 1,
    };
    let before = |node| Some(Ref::Node { node, output: 0 });
    let mut region = Region {
        n_inputs: 3,
        constants: vec![Tensor::scalar(-0.5f32), Tensor::scalar(0.75f32)],
        nodes: vec![
            node(op.clone(), (0..3).map(|idx| Some(Ref::Input(idx))).collect()),
            node(planish_op::Clip {}.into(), vec![before(0), Some(Ref::Constant(0)), Some(Ref::Constant(1))]),
            node(last, vec![before(1)]),
        ],
        outputs: vec![Ref::Node { node: 2, output: 0 }],
    };
    if with_image {
        region.n_inputs = 4;
        region.nodes[2].inputs.push(Some(Ref::Input(3)));
    }
    let sums = evaluate_op(&op, &[Some(&x), Some(&w), Some(&bias)], 1).remove(0);
    let others = other.elements::<f32>().unwrap();
    let clamped =
        sums.elements::<f32>().unwrap().iter().zip(others.iter()).map(|(v, o)| want(*v, *o)).collect();
    let want = Tensor::new(sums.shape(), clamped).unwrap();
    let image = Operand::dense(DType::F32, &[2, 24, 9, 11], Layout::Plain);
    let mut problem = Problem {
        region: region.clone(),
        inputs: vec![
            image.clone(),
            Operand::weight(DType::F32, w.shape()),
            Operand::weight(DType::F32, &[24]),
        ],
        outputs: vec![image],
        numeric: Numeric::F32,
        threads: 1,
    };
    if with_image {
        problem.inputs.push(problem.inputs[0].clone());
    }
    for isa in Isa::available() {
        let candidate = DepthwiseFamily.candidates(isa, &problem, &Budget::USUAL).remove(0);
        assert_eq!(candidate.inputs[0].layout, Layout::ChannelsLast);
        let packed = DepthwiseFamily.pack(isa, WeightUse::new(&problem, &candidate.tactic, 1), &w).unwrap();
        let mut laid = problem.clone();
        laid.inputs[0] = Operand::dense(DType::F32, x.shape(), Layout::ChannelsLast);
        laid.outputs[0] = laid.inputs[0].clone();
        assert!(DepthwiseFamily.prepare(isa, &laid, &candidate.tactic).is_err(), "the weight is not packed");
        laid.inputs[1].packed = candidate.packed[1].clone();
        if with_image {
            laid.inputs[3] = laid.inputs[0].clone();
        }
        let work = DepthwiseFamily.prepare(isa, &laid, &candidate.tactic).unwrap();
        let (from, mut to) = (Placed::new(&x, &laid.inputs[0]), Placed::blank(&laid.outputs[0]));
        let bias = bias.elements::<f32>().unwrap();
        let other = Placed::new(&other, &laid.inputs[0]);
        let inputs = [from.ptr(), packed.bytes.as_ptr(), bias.as_ptr().cast(), other.ptr()];
        let inputs = &inputs[..problem.inputs.len()];
        let team = Team::new(2);
        let mut workspace = Fenced::workspace(work.workspace_bytes(team.n_slots()));
        // SAFETY: the operands describe the memory, the workspace is as large as asked for.
        unsafe { work.run(Shared::new(inputs, &[to.mut_ptr()], workspace.mut_ptr()), &team).unwrap() };
        assert_close(&to.tensor(), &want, TOLERANCE, isa.name());
    }
    // What it cannot do it does not offer.
    region.nodes[0].op = Conv { group: 12, ..conv() }.into();
    problem.region = region;
    assert!(DepthwiseFamily.candidates(Isa::best(), &problem, &Budget::USUAL).is_empty());
}
