//! Bottlenecks of all forms against the reference, stage by stage, on every instruction set.

use planish_kernel::{Budget, Layout, Numeric, Operand, Problem, Ref, Region, RegionNode, WeightUse};
use planish_op::{Add, Clip, Conv, HardSwish, Op, Relu};
use planish_tensor::{Bytes, DType, Tensor};
use planish_testing::{Fenced, Placed, Random, Tolerance, assert_close, evaluate_op};

use super::BottleneckFamily;
use crate::family::Family;
use crate::isa::Isa;
use crate::shared::Shared;
use crate::team::Team;

/// Three sums of at most 200 products each, of weights that keep values near 1: each sum rounds by at most 200
/// half units of a partial sum below 32.
const TOLERANCE: Tolerance = Tolerance::absolute(3.0 * 200.0 * 32.0 * f32::EPSILON as f64 / 2.0);

#[derive(Clone, Copy)]
struct Case {
    /// Whether a 1x1 convolution comes first; the image has `width` channels if not.
    widens: bool,
    batch: usize,
    size: (usize, usize),
    c: usize,
    width: usize,
    kernel: usize,
    stride: usize,
    /// Channels of the narrowed image, if there is one.
    k: Option<usize>,
    residual: bool,
    /// Relu6, or HardSwish.
    clamps: bool,
}

fn conv(group: usize, kernel: usize, stride: usize) -> Op {
    let pad = (kernel / 2) as i64;
    let Ok(Op::Conv(conv)) = Op::from_attributes("Conv", &[]) else {
        panic!("Conv has no required attributes")
    };
    Conv { group: group as i64, pads: vec![pad; 4], strides: vec![stride as i64; 2], ..conv }.into()
}

/// A region under construction, with what the reference makes of each node.
struct Builder {
    region: Region,
    inputs: Vec<Tensor>,
    made: Vec<Tensor>,
}

impl Builder {
    fn input(&mut self, tensor: Tensor) -> Option<Ref> {
        self.inputs.push(tensor);
        self.region.n_inputs += 1;
        Some(Ref::Input(self.inputs.len() as u32 - 1))
    }

    fn constant(&mut self, value: f32) -> Option<Ref> {
        self.region.constants.push(Tensor::scalar(value));
        Some(Ref::Constant(self.region.constants.len() as u32 - 1))
    }

    fn node(&mut self, op: impl Into<Op>, inputs: Vec<Option<Ref>>) -> Option<Ref> {
        let op = op.into();
        let tensors: Vec<Option<&Tensor>> = inputs
            .iter()
            .map(|reference| match reference {
                Some(Ref::Input(idx)) => Some(&self.inputs[*idx as usize]),
                Some(Ref::Constant(idx)) => Some(&self.region.constants[*idx as usize]),
                Some(Ref::Node { node, .. }) => Some(&self.made[*node as usize]),
                None => None,
            })
            .collect();
        let made = evaluate_op(&op, &tensors, 1).remove(0);
        self.made.push(made);
        self.region.nodes.push(RegionNode { name: op.name().to_string(), op, inputs, n_outputs: 1 });
        Some(Ref::Node { node: self.made.len() as u32 - 1, output: 0 })
    }

    fn activation(&mut self, clamps: bool, x: Option<Ref>) -> Option<Ref> {
        if !clamps {
            return self.node(HardSwish {}, vec![x]);
        }
        let bounds = [self.constant(0.0), self.constant(6.0)];
        self.node(Clip {}, vec![x, bounds[0], bounds[1]])
    }
}

impl Case {
    fn check(&self, random: &mut Random) {
        let mut b = Builder { region: Region::default(), inputs: Vec::new(), made: Vec::new() };
        let small = |random: &mut Random, dims: &[usize]| {
            let fan = dims[1..].iter().product::<usize>() as f32;
            let values = random.floats(dims);
            let scaled = values.elements::<f32>().unwrap().iter().map(|v| v * 2.0 / fan.sqrt()).collect();
            Tensor::new(dims, scaled).unwrap()
        };
        let c = if self.widens { self.c } else { self.width };
        let mut wide = b.input(random.floats(&[self.batch, c, self.size.0, self.size.1]));
        if self.widens {
            let w = b.input(small(random, &[self.width, c, 1, 1]));
            let bias = b.input(random.floats(&[self.width]));
            wide = b.node(conv(1, 1, 1), vec![wide, w, bias]);
            wide = b.activation(self.clamps, wide);
        }
        let w = b.input(small(random, &[self.width, 1, self.kernel, self.kernel]));
        let bias = b.input(random.floats(&[self.width]));
        let depth = b.node(conv(self.width, self.kernel, self.stride), vec![wide, w, bias]);
        let mut last = b.activation(self.clamps, depth);
        if let Some(k) = self.k {
            let w = b.input(small(random, &[k, self.width, 1, 1]));
            last = b.node(conv(1, 1, 1), vec![last, w]);
            if self.residual {
                let dims = b.made.last().unwrap().shape().to_vec();
                let residual = b.input(random.floats(&dims));
                last = b.node(Add {}, vec![residual, last]);
            } else {
                last = b.node(Relu {}, vec![last]);
            }
        }
        b.region.outputs = last.into_iter().collect();
        let want = b.made.last().unwrap();
        let operand = |tensor: &Tensor| Operand::dense(DType::F32, tensor.shape(), Layout::Plain);
        let mut problem = Problem {
            region: b.region.clone(),
            inputs: b.inputs.iter().map(operand).collect(),
            outputs: vec![operand(want)],
            numeric: Numeric::F32,
            threads: 2,
        };
        // Every input but the image and the residual is a weight.
        let has_residual = self.residual && self.k.is_some();
        let n_inputs = problem.inputs.len();
        for (idx, input) in problem.inputs.iter_mut().enumerate() {
            input.constant = idx != 0 && !(has_residual && idx + 1 == n_inputs);
        }
        for isa in Isa::available() {
            let candidate = BottleneckFamily.candidates(isa, &problem, &Budget::USUAL).remove(0);
            let mut laid = problem.clone();
            let mut memory: Vec<Placed> = Vec::new();
            let mut weights: Vec<Option<Bytes>> = Vec::new();
            for (idx, tensor) in b.inputs.iter().enumerate() {
                let dtype = DType::F32;
                let layout = candidate.inputs[idx].layout;
                laid.inputs[idx].strides = match candidate.inputs[idx].inside {
                    true => random.operand(dtype, tensor.shape(), layout).strides,
                    false => layout.strides(tensor.shape()),
                };
                laid.inputs[idx].packed = candidate.packed[idx].clone();
                weights.push(candidate.packed[idx].as_ref().map(|format| {
                    let used = WeightUse::new(&problem, &candidate.tactic, idx);
                    let packed = BottleneckFamily.pack(isa, used, tensor).unwrap();
                    assert_eq!(packed.format, *format);
                    packed.bytes
                }));
                memory.push(Placed::new(tensor, &laid.inputs[idx]));
            }
            laid.outputs[0] = random.operand(DType::F32, want.shape(), Layout::ChannelsLast);
            let work = BottleneckFamily.prepare(isa, &laid, &candidate.tactic).unwrap();
            let pointers: Vec<*const u8> = memory
                .iter()
                .zip(&weights)
                .map(|(placed, weight)| weight.as_ref().map_or(placed.ptr(), |bytes| bytes.as_ptr()))
                .collect();
            let run = |team: &Team| {
                let mut y = Placed::blank(&laid.outputs[0]);
                let mut workspace = Fenced::workspace(work.workspace_bytes(team.n_slots()));
                // SAFETY: the operands describe the memory, the workspace is as large as asked for.
                unsafe {
                    work.run(Shared::new(&pointers, &[y.mut_ptr()], workspace.mut_ptr()), team).unwrap()
                };
                y.tensor()
            };
            let got = run(&Team::alone());
            assert_close(&got, want, TOLERANCE, &format!("{isa} {:?} {:?}", self.size, problem.region.ops()));
            assert!(got == run(&Team::new(2)), "results depend on the number of threads");
        }
    }
}

#[test]
fn bottlenecks_of_usual_networks() {
    let mut random = Random::new(1);
    let size = (34, 41);
    let base = Case {
        widens: true,
        batch: 1,
        size,
        c: 16,
        width: 144,
        kernel: 3,
        stride: 1,
        k: Some(24),
        residual: true,
        clamps: true,
    };
    base.check(&mut random);
    Case { stride: 2, residual: false, ..base }.check(&mut random);
    Case { kernel: 5, clamps: false, k: None, ..base }.check(&mut random);
    Case { kernel: 5, stride: 2, k: None, ..base }.check(&mut random);
    Case { batch: 2, clamps: false, c: 19, width: 145, k: Some(33), ..base }.check(&mut random);
    let separable = Case { widens: false, ..base };
    separable.check(&mut random);
    Case { stride: 2, kernel: 5, residual: false, size: (72, 81), ..separable }.check(&mut random);
    Case { batch: 2, clamps: false, width: 145, k: Some(33), ..separable }.check(&mut random);
}

#[test]
fn small_images_are_left_to_separate_steps() {
    let mut b = Builder { region: Region::default(), inputs: Vec::new(), made: Vec::new() };
    let x = b.input(Tensor::new(&[1, 2, 4, 4], vec![1f32; 32]).unwrap());
    let w = b.input(Tensor::new(&[4, 2, 1, 1], vec![1f32; 8]).unwrap());
    let wide = b.node(conv(1, 1, 1), vec![x, w]);
    let w = b.input(Tensor::new(&[4, 1, 3, 3], vec![1f32; 36]).unwrap());
    b.region.outputs = b.node(conv(4, 3, 1), vec![wide, w]).into_iter().collect();
    let operand = |tensor: &Tensor| Operand::weight(DType::F32, tensor.shape());
    let problem = Problem {
        region: b.region.clone(),
        inputs: b.inputs.iter().map(operand).collect(),
        outputs: vec![operand(b.made.last().unwrap())],
        numeric: Numeric::F32,
        threads: 1,
    };
    assert!(BottleneckFamily.candidates(Isa::best(), &problem, &Budget::USUAL).is_empty());
}
