//! Convolutions of half floats over one image, as the tactics of a plan compute them.

use planish_cuda::driver::DeviceMemory;
use planish_cuda::{Cuda, Gpu, offline};
use planish_kernel::{
    Budget, Candidate, Compiler, Device, Kernel, Layout, Memory, Numeric, Operand, Problem, Ref, Region,
    RegionNode, Wait, WeightUse,
};
use planish_op::{self as op, AutoPad};
use planish_tensor::{DType, Tensor, f16};
use planish_testing::Random;

use crate::Failure;
use crate::timing::Bench;

/// A convolution with a bias, and a tactic for it by name.
#[derive(Clone, Copy)]
pub(crate) struct Convolution {
    /// Of the input.
    pub(crate) side: usize,
    pub(crate) channels: usize,
    pub(crate) columns: usize,
    /// Taps along a side; the padding keeps the size at stride 1.
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    /// A value of the output's size is added.
    pub(crate) adds: bool,
    pub(crate) relu: bool,
    pub(crate) tactic: &'static str,
}

impl Convolution {
    pub(crate) fn out_side(&self) -> usize {
        self.side.div_ceil(self.stride)
    }

    /// Bytes of the output.
    pub(crate) fn out_bytes(&self) -> usize {
        self.out_side().pow(2) * self.columns * 2
    }

    fn problem(&self) -> Problem {
        let Convolution { side, channels, columns, kernel, stride, .. } = *self;
        let out = [1, columns, self.out_side(), self.out_side()];
        let conv = op::Conv {
            group: 1,
            pads: vec![kernel as i64 / 2; 4],
            auto_pad: AutoPad::NotSet,
            strides: vec![stride as i64; 2],
            dilations: vec![1; 2],
            kernel_shape: None,
        };
        let mut region = Region::single(conv.into(), 3, 1);
        let mut inputs = vec![
            Operand::dense(DType::F16, &[1, channels, side, side], Layout::Plain),
            Operand::weight(DType::F16, &[columns, channels, kernel, kernel]),
            Operand::weight(DType::F16, &[columns]),
        ];
        let mut push = |op: op::Op, other: Option<Ref>| {
            let mut from = vec![Some(Ref::Node { node: region.nodes.len() as u32 - 1, output: 0 })];
            from.extend(other.map(Some));
            region.nodes.push(RegionNode { name: op.name().to_string(), op, inputs: from, n_outputs: 1 });
        };
        if self.adds {
            inputs.push(Operand::dense(DType::F16, &out, Layout::Plain));
            push(op::Add {}.into(), Some(Ref::Input(3)));
        }
        if self.relu {
            push(op::Relu {}.into(), None);
        }
        region.n_inputs = inputs.len() as u32;
        region.outputs = vec![Ref::Node { node: region.nodes.len() as u32 - 1, output: 0 }];
        let outputs = vec![Operand::dense(DType::F16, &out, Layout::Plain)];
        Problem { region, inputs, outputs, numeric: Numeric::F16, threads: 1 }
    }

    /// The tactic's candidate and the problem as it wants it.
    pub(crate) fn arranged(&self, gpu: &Gpu) -> Result<(Problem, Candidate), Failure> {
        let problem = self.problem();
        let family = self.tactic.split('_').next().unwrap_or_default();
        let candidate = offline::candidates(family, gpu, &problem, &Budget::EVERYTHING)
            .into_iter()
            .find(|candidate| candidate.tactic.name == self.tactic)
            .ok_or_else(|| format!("no candidate is called {}", self.tactic))?;
        Ok((problem.for_candidate(&candidate), candidate))
    }

    pub(crate) fn kernel(&self, cuda: &Cuda) -> Result<Box<dyn Kernel>, Failure> {
        let (problem, candidate) = self.arranged(cuda.gpu())?;
        Ok(cuda.prepare(&problem, &candidate.tactic)?)
    }

    /// Weights as the tactic wants them, such that sums are about one: activations keep their size from layer to
    /// layer.
    pub(crate) fn weights(&self, cuda: &Cuda, seed: u64) -> Result<Vec<u8>, Failure> {
        let Convolution { channels, columns, kernel, .. } = *self;
        let depth = channels * kernel * kernel;
        let scale = 2.0 / (depth as f64).sqrt();
        let mut random = Random::new(seed);
        let values: Vec<f64> = (0..columns * depth).map(|_| f64::from(random.float()) * scale).collect();
        let tensor = Tensor::from_f64s(DType::F16, &[columns, channels, kernel, kernel], &values)?;
        let (problem, candidate) = self.arranged(cuda.gpu())?;
        Ok(cuda.pack(WeightUse::new(&problem, &candidate.tactic, 1), &tensor)?.bytes.to_vec())
    }
}

/// The bytes of so many random half floats.
pub(crate) fn halves(n: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..n).flat_map(|_| f16::from_f32(random.real(0.5)).to_ne_bytes()).collect()
}

fn half(bytes: &[u8]) -> f64 {
    f16::from_ne_bytes([bytes[0], bytes[1]]).to_f64()
}

/// Root of the mean square of differences over that of what is wanted; infinite where there is a NaN.
pub(crate) fn apart(got: &[u8], wanted: &[u8]) -> f64 {
    let (mut off, mut size) = (0.0, 0.0);
    for (got, wanted) in got.chunks_exact(2).zip(wanted.chunks_exact(2)) {
        off += (half(got) - half(wanted)).powi(2);
        size += half(wanted).powi(2);
    }
    let apart = (off / size).sqrt();
    if apart.is_nan() { f64::INFINITY } else { apart }
}

/// Where two results differ as numbers: zeros may have any sign, and NaN is like nothing.
pub(crate) fn difference(got: &[u8], wanted: &[u8]) -> Option<usize> {
    got.chunks_exact(2).zip(wanted.chunks_exact(2)).position(|(got, wanted)| half(got) != half(wanted))
}

/// Memory that begins with the bytes and has `room` of them.
pub(crate) fn upload(bench: &Bench, bytes: &[u8], room: usize) -> Result<DeviceMemory, Failure> {
    let memory = DeviceMemory::new(&bench.context, room)?;
    // SAFETY: the memory has room for the bytes, which stay until the copy is done.
    unsafe { bench.stream.upload(memory.address().0, bytes.as_ptr(), bytes.len())? };
    bench.stream.synchronize(Wait::Block)?;
    Ok(memory)
}
