//! A residual block of ResNet-18 with a convolution in its shortcut, at batch 1: all three convolutions in a row, and
//! the shortcut's on a stream beside.

use std::cell::RefCell;
use std::sync::Arc;

use planish_cuda::driver::{DeviceMemory, Event, Stream, Timing};
use planish_cuda::{Cuda, CudaQueue, Gpu, nvrtc, offline};
use planish_kernel::{Address, Call, Kernel, Memory, Wait};

use crate::Failure;
use crate::convolution::{Convolution, difference, halves, upload};
use crate::timing::Bench;

/// Blocks in one graph.
const REPEATS: usize = 7;
/// Runs whose results are compared, each on memory full of NaN.
const CHECKS: usize = 50;

/// Sides of the input, its channels, and the tactics that the tuner chose: the first convolution, the shortcut, the
/// second one.
#[rustfmt::skip]
const BLOCKS: [(usize, usize, [&str; 3]); 3] = [
    (56, 64, ["wconv_f16_64x32x64_s8_k2_b1", "wconv_f16_64x32x64_s8_k1_b1", "whalo_f16_32x64_g1x1x1_a2_t3_r3_k2_b1"]),
    (28, 128, ["wconv_f16_64x32x64_s8_k4_b1", "wconv_f16_64x32x64_s8_k1_b1", "whalo_f16_64x64_g1x1x1_a2_t3_r3_k4_b1"]),
    (14, 256, ["wconv_f16_64x32x64_s8_k4_b1", "wconv_f16_64x32x64_s8_k2_b1", "whalo_f16_64x64_g1x1x1_a2_t3_r3_k8_b1"]),
];

fn convolutions(side: usize, channels: usize, tactics: [&'static str; 3]) -> [Convolution; 3] {
    let [first, shortcut, second] = tactics;
    let half = Convolution {
        side,
        channels,
        columns: 2 * channels,
        kernel: 3,
        stride: 2,
        adds: false,
        relu: true,
        tactic: first,
    };
    [
        half,
        Convolution { kernel: 1, relu: false, tactic: shortcut, ..half },
        Convolution { side: side / 2, channels: 2 * channels, stride: 1, adds: true, tactic: second, ..half },
    ]
}

/// Compiles all kernels without a device.
pub(crate) fn compile(gpu: &Gpu) -> Result<(), Failure> {
    for (side, channels, tactics) in BLOCKS {
        for convolution in convolutions(side, channels, tactics) {
            let (problem, candidate) = convolution.arranged(gpu)?;
            for source in offline::sources(gpu, &problem, &candidate.tactic)? {
                nvrtc::compile_cached(&source, gpu)?;
            }
        }
    }
    Ok(())
}

/// How the three stand to each other.
#[derive(Clone, Copy)]
enum Order {
    /// First, shortcut, second.
    Row,
    /// Shortcut, first, second.
    ShortcutFirst,
    /// The shortcut beside the first.
    Forked,
}

struct Subject<'a> {
    bench: &'a Bench,
    kernels: Vec<Box<dyn Kernel>>,
    /// Weight and bias of each.
    weights: Vec<(DeviceMemory, DeviceMemory)>,
    input: DeviceMemory,
    /// What each writes.
    outputs: Vec<DeviceMemory>,
    /// The bench's stream, and the one beside.
    queues: [RefCell<CudaQueue>; 2],
    fork: Event,
    join: Event,
}

impl<'a> Subject<'a> {
    fn new(bench: &'a Bench, cuda: &Cuda, all: &[Convolution; 3]) -> Result<Subject<'a>, Failure> {
        let mut weights = Vec::new();
        let (mut kernels, mut outputs) = (Vec::new(), Vec::new());
        for (convolution, seed) in all.iter().zip(1..) {
            let (weight, bias) = (convolution.weights(cuda, seed)?, halves(convolution.columns, seed));
            weights.push((upload(bench, &weight, weight.len())?, upload(bench, &bias, bias.len())?));
            kernels.push(convolution.kernel(cuda)?);
            outputs.push(upload(bench, &[], convolution.out_bytes())?);
        }
        let input = halves(all[0].side.pow(2) * all[0].channels, 9);
        let queue = |stream: &Arc<Stream>| RefCell::new(CudaQueue::on(Arc::clone(stream), Wait::Spin));
        Ok(Subject {
            bench,
            kernels,
            weights,
            input: upload(bench, &input, input.len())?,
            outputs,
            queues: [queue(&bench.stream), queue(&Arc::new(Stream::new(&bench.context)?))],
            fork: Event::new(&bench.context, Timing::None)?,
            join: Event::new(&bench.context, Timing::None)?,
        })
    }

    fn put_one(&self, idx: usize, on: usize) -> Result<(), Failure> {
        let (weight, bias) = &self.weights[idx];
        let mut inputs = vec![self.input.address(), weight.address(), bias.address()];
        if idx == 2 {
            inputs[0] = self.outputs[0].address();
            inputs.push(self.outputs[1].address());
        }
        let call = Call {
            inputs: &inputs,
            outputs: &[self.outputs[idx].address()],
            workspace: Address::NULL,
            fault: Address::NULL,
        };
        // SAFETY: the operands are as large as the problem says and outlive every replay.
        unsafe { self.kernels[idx].launch(&call, &mut *self.queues[on].borrow_mut())? };
        Ok(())
    }

    fn put(&self, order: Order) -> Result<(), Failure> {
        match order {
            Order::Row => [0, 1, 2].into_iter().try_for_each(|idx| self.put_one(idx, 0)),
            Order::ShortcutFirst => [1, 0, 2].into_iter().try_for_each(|idx| self.put_one(idx, 0)),
            Order::Forked => {
                let side = Arc::clone(self.queues[1].borrow().stream());
                self.fork.record(&self.bench.stream)?;
                side.wait_for(&self.fork)?;
                self.put_one(1, 1)?;
                self.join.record(&side)?;
                self.put_one(0, 0)?;
                self.bench.stream.wait_for(&self.join)?;
                self.put_one(2, 0)
            }
        }
    }

    fn result(&self, put: impl Fn() -> Result<(), Failure>) -> Result<Vec<u8>, Failure> {
        for output in &self.outputs {
            // SAFETY: the memory has these bytes.
            unsafe { self.bench.stream.fill(output.address().0, 0xff, output.len())? };
        }
        put()?;
        let last = &self.outputs[2];
        let mut bytes = vec![0u8; last.len()];
        // SAFETY: as above; the bytes are not touched before the stream is done.
        unsafe { self.bench.stream.download(bytes.as_mut_ptr(), last.address().0, bytes.len())? };
        self.bench.stream.synchronize(Wait::Block)?;
        Ok(bytes)
    }

    /// Microseconds of a block, after a check of the results in a captured graph.
    fn time(&self, order: Order, wanted: &[u8]) -> Result<f64, Failure> {
        let once = self.bench.record(|| self.put(order))?;
        for _ in 0..CHECKS {
            // SAFETY: all memory lives, and this thread alone starts graphs.
            let got = self.result(|| Ok(unsafe { once.launch(&self.bench.stream) }?))?;
            if difference(&got, wanted).is_some() {
                return Err("the shortcut beside gives another result".into());
            }
        }
        let graph = self.bench.record(|| (0..REPEATS).try_for_each(|_| self.put(order)))?;
        Ok(self.bench.time(&graph)? / REPEATS as f64)
    }
}

/// Measures and prints.
pub(crate) fn run(bench: &Bench, cuda: &Cuda) -> Result<(), Failure> {
    println!(
        "# Residual blocks of ResNet-18 with a convolution in the shortcut, batch 1: microseconds of a block."
    );
    println!("# All in a row (shortcut second, shortcut first), and the shortcut on a stream beside.");
    println!("input          row  shortcut first  forked");
    for (side, channels, tactics) in BLOCKS {
        let subject = Subject::new(bench, cuda, &convolutions(side, channels, tactics))?;
        let wanted = subject.result(|| subject.put(Order::Row))?;
        let (row, first) = (subject.time(Order::Row, &wanted)?, subject.time(Order::ShortcutFirst, &wanted)?);
        let forked = match subject.time(Order::Forked, &wanted) {
            Ok(us) => format!("{us:7.2}"),
            Err(failure) => failure.to_string(),
        };
        println!("{side:2}x{side:2}x{channels:3} {row:8.2} {first:15.2} {forked}");
    }
    Ok(())
}
