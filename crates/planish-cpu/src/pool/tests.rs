//! Every instruction set and both layouts against the reference, on edge shapes and random windows.

use planish_kernel::{Budget, Layout, Operand};
use planish_op::{AutoPad, AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool, Op};
use planish_tensor::{DType, Tensor};
use planish_testing::{Placed, Placement, Random, Tolerance, assert_close, evaluate_op};

use super::{Element, Fold, Pool, PoolArguments, PoolFamily};
use crate::family::Family;
use crate::isa::Isa;
use crate::spatial::Windows;
use crate::team::Team;
use crate::trial::{Input, OpTrial, check_placed, of_bytes};

/// An average of at most 1,000 numbers below 1: partial sums round by at most half a unit of 1,000 each, and
/// the division by their number brings the total back to 1,000 halves.
const AVERAGE_TOLERANCE: Tolerance = Tolerance::absolute(1000.0 * f32::EPSILON as f64 / 2.0);

/// An average of up to 42 numbers up to 10, which the reference sums as floats and the kernel as integers.
const BYTES_TOLERANCE: Tolerance = Tolerance::absolute(42.0 * 10.0 * f32::EPSILON as f64);

/// The largest element is one of them.
const MAX_TOLERANCE: Tolerance = Tolerance::EXACT;

struct Case {
    x: Vec<usize>,
    kernel: Vec<i64>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    pads: Vec<i64>,
    auto_pad: AutoPad,
    ceil_mode: bool,
    include_pad: bool,
}

impl Case {
    fn check(&self, random: &mut Random) {
        let mut values = random.floats(&self.x).elements::<f32>().unwrap().to_vec();
        if random.chance(3) {
            for value in values.iter_mut().step_by(11) {
                *value = [f32::NAN, f32::NEG_INFINITY, -0.0][random.below(3)];
            }
        }
        let x = Tensor::new(&self.x, values).unwrap();
        let max = MaxPool {
            storage_order: 0,
            dilations: self.dilations.clone(),
            ceil_mode: self.ceil_mode,
            pads: self.pads.clone(),
            auto_pad: self.auto_pad,
            strides: self.strides.clone(),
            kernel_shape: self.kernel.clone(),
        };
        let average = AveragePool {
            count_include_pad: self.include_pad,
            dilations: self.dilations.clone(),
            ceil_mode: self.ceil_mode,
            pads: self.pads.clone(),
            auto_pad: self.auto_pad,
            strides: self.strides.clone(),
            kernel_shape: self.kernel.clone(),
        };
        let axes: Vec<_> = max
            .window()
            .axes(&max.window().kernel())
            .unwrap()
            .iter()
            .zip(&self.x[2..])
            .map(|(axis, size)| axis.place(*size).unwrap())
            .collect();
        for (op, fold, tolerance) in [
            (Op::MaxPool(max), Fold::Max, MAX_TOLERANCE),
            (Op::AveragePool(average), Fold::Average { include_pad: self.include_pad }, AVERAGE_TOLERANCE),
        ] {
            let want = evaluate_op(&op, &[Some(&x)], 1).remove(0);
            for layout in [Layout::ChannelsLast, Layout::Plain] {
                let from = random.operand(DType::F32, x.shape(), layout);
                let to = random.operand(DType::F32, want.shape(), layout);
                let placed = Placed::new(&x, &from);
                for isa in Isa::available() {
                    let plan =
                        Pool::plan(isa, Windows::new(&axes, &from, &to).unwrap(), fold, Element::F32, None)
                            .unwrap();
                    let mut y = Placed::blank(&to);
                    let mut workspace = vec![f32::NAN; plan.workspace_len()];
                    let arguments = PoolArguments {
                        x: placed.ptr().cast(),
                        y: y.mut_ptr().cast(),
                        workspace: workspace.as_mut_ptr(),
                    };
                    // SAFETY: the operands describe the memory.
                    unsafe { plan.run(&arguments, &Team::alone()) };
                    let what = format!("{isa} {layout:?} {op:?} on {:?}", self.x);
                    assert_close(&y.tensor(), &want, tolerance, &what);
                }
            }
        }
    }
}

#[test]
fn pools_of_usual_networks() {
    let mut random = Random::new(1);
    for (kernel, stride, pad) in [(2, 2, 0), (3, 2, 1), (3, 2, 0), (3, 1, 1), (5, 1, 2), (7, 7, 0)] {
        for size in [7, 8, 15, 16, 33, 70] {
            for channels in [1, 3, 16, 17, 64, 83] {
                Case {
                    x: vec![2, channels, size, size + 3],
                    kernel: vec![kernel; 2],
                    strides: vec![stride; 2],
                    dilations: vec![1; 2],
                    pads: vec![pad; 4],
                    auto_pad: AutoPad::NotSet,
                    ceil_mode: false,
                    include_pad: false,
                }
                .check(&mut random);
            }
        }
    }
}

#[test]
fn any_windows() {
    let mut random = Random::new(2);
    for _ in 0..200 {
        let n = random.between(1, 3);
        let mut case = Case {
            x: vec![random.between(0, 2), random.between(1, 40)],
            kernel: Vec::new(),
            strides: Vec::new(),
            dilations: Vec::new(),
            pads: vec![0; 2 * n],
            auto_pad: [
                AutoPad::NotSet,
                AutoPad::NotSet,
                AutoPad::SameUpper,
                AutoPad::SameLower,
                AutoPad::Valid,
            ][random.below(5)],
            ceil_mode: random.chance(2),
            include_pad: random.chance(2),
        };
        for axis in 0..n {
            let (kernel, dilation) = (random.between(1, 4), random.between(1, 2));
            case.kernel.push(kernel as i64);
            case.strides.push(random.between(1, 3) as i64);
            case.dilations.push(dilation as i64);
            case.pads[axis] = random.below(kernel) as i64;
            case.pads[n + axis] = random.below(kernel) as i64;
            case.x.push((kernel - 1) * dilation + 1 + random.below(9));
        }
        if case.auto_pad != AutoPad::NotSet {
            case.pads.clear();
        }
        case.check(&mut random);
    }
}

#[test]
fn pools_over_whole_images_run_through_the_family() {
    let mut random = Random::new(3);
    for dims in [vec![2, 19, 7, 7], vec![1, 3, 5], vec![2, 8, 3, 4, 5]] {
        for op in [Op::from(GlobalAveragePool {}), Op::from(GlobalMaxPool {})] {
            let sample = OpTrial::new(op, &[Input::Data(random.floats(&dims))], 1);
            for isa in Isa::available() {
                let operand = |tensor: &Tensor, layout| Operand::dense(DType::F32, tensor.shape(), layout);
                let plain = |tensor: &Tensor| operand(tensor, Layout::Plain);
                let problem = sample.problem(&[plain(&sample.data[0])], &[plain(&sample.want[0])]);
                let candidates = PoolFamily.candidates(isa, &problem, &Budget::USUAL);
                assert_eq!(candidates.len(), 2);
                for candidate in candidates {
                    let (from, to) = (
                        operand(&sample.data[0], candidate.inputs[0].layout),
                        operand(&sample.want[0], candidate.outputs[0].layout),
                    );
                    let got = sample.run(&PoolFamily, isa, &[from], &[to]).unwrap().remove(0);
                    assert_close(&got, &sample.want[0], AVERAGE_TOLERANCE, isa.name());
                }
            }
        }
    }
}

#[test]
fn indices_of_the_largest_are_left_to_the_reference() {
    let op = MaxPool {
        storage_order: 0,
        dilations: Vec::new(),
        ceil_mode: false,
        pads: Vec::new(),
        auto_pad: AutoPad::NotSet,
        strides: Vec::new(),
        kernel_shape: vec![2],
    };
    let sample = OpTrial::new(op, &[Input::Data(Random::new(4).floats(&[1, 1, 4]))], 2);
    let plain = |tensor: &Tensor| Operand::dense(tensor.dtype(), tensor.shape(), Layout::Plain);
    let outputs: Vec<Operand> = sample.want.iter().map(plain).collect();
    let problem = sample.problem(&[plain(&sample.data[0])], &outputs);
    assert!(PoolFamily.candidates(Isa::best(), &problem, &Budget::USUAL).is_empty());
}

/// The largest of quantized values, along channels of every length around a block.
#[test]
fn bytes_are_compared_as_they_are() {
    let mut random = Random::new(9);
    for dtype in [DType::U8, DType::I8] {
        for (channels, stride, pads) in
            [(1, 1, [0; 4]), (63, 2, [1; 4]), (64, 1, [1, 0, 0, 1]), (130, 2, [1; 4])]
        {
            let op = MaxPool {
                storage_order: 0,
                dilations: Vec::new(),
                ceil_mode: false,
                pads: pads.to_vec(),
                auto_pad: AutoPad::NotSet,
                strides: vec![stride, stride],
                kernel_shape: vec![3, 3],
            };
            let x = random.raw(dtype, &[2, channels, 7, 6]);
            let sample = OpTrial::new(op, &[Input::Data(x)], 1);
            for isa in Isa::available() {
                let last = |tensor: &Tensor| Operand::dense(dtype, tensor.shape(), Layout::ChannelsLast);
                let problem = sample.problem(&[last(&sample.data[0])], &[last(&sample.want[0])]);
                let candidates = PoolFamily.candidates(isa, &problem, &Budget::USUAL);
                let names: Vec<&str> = candidates.iter().map(|one| one.tactic.name.as_str()).collect();
                assert_eq!(names[0], format!("pool_{dtype}_{isa}"));
                let work = PoolFamily.prepare(isa, &problem, &candidates[0].tactic).unwrap();
                let got = crate::trial::run_work(&*work, &problem, &sample.data, &Team::new(2)).unwrap();
                assert_close(&got[0], &sample.want[0], MAX_TOLERANCE, &format!("{isa} {channels}"));
            }
        }
    }
}

/// Averages of bytes, as bytes of either type and as numbers, along channels of every length around a block.
#[test]
fn bytes_are_averaged_in_integers() {
    let mut random = Random::new(10);
    let average = |include_pad: bool| AveragePool {
        count_include_pad: include_pad,
        dilations: Vec::new(),
        ceil_mode: include_pad,
        pads: vec![1, 0, 1, 1],
        auto_pad: AutoPad::NotSet,
        strides: vec![2, 1],
        kernel_shape: vec![3, 2],
    };
    let pools = [average(true).into(), average(false).into(), Op::from(GlobalAveragePool {})];
    let last = [2, 3].map(|at| Placement::ALL[at]);
    for (dtype, to) in [(DType::U8, Some(DType::U8)), (DType::I8, Some(DType::U8)), (DType::U8, None)] {
        for channels in [1, 15, 63, 64, 130] {
            for pool in &pools {
                let region = of_bytes(pool.clone(), &[], dtype, to);
                let x = random.raw(dtype, &[2, channels, 7, 6]);
                let tolerance = if to.is_some() { MAX_TOLERANCE } else { BYTES_TOLERANCE };
                check_placed(&PoolFamily, &region, &[x], tolerance, &last);
            }
        }
    }
}
