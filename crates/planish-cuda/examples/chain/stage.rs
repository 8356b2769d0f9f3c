//! A stage of ResNet-18 at batch 1, four 3x3 convolutions over one image: as kernels behind each other with
//! programmatic launch, as a plan runs them, and as phases of one kernel.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use planish_cuda::driver::{DeviceMemory, Module, Swizzle, TensorMap};
use planish_cuda::launch::{Launch, Params, Slot};
use planish_cuda::{Cuda, CudaQueue, Gpu, Source, nvrtc, offline};
use planish_kernel::{
    Address, Backend, Call, Candidate, Kernel, Layout, Memory, Numeric, Operand, Problem, Queue, Ref, Region,
    RegionNode, Wait,
};
use planish_op::{self as op, AutoPad};
use planish_tensor::{DType, Tensor, f16};

use crate::Failure;
use crate::timing::Bench;

const TEXT: &str = include_str!("stage.cu");
/// Convolutions of a stage.
const PHASES: usize = 4;
/// Stages in one recording.
const REPEATS: usize = 5;
/// Runs whose results are compared, each on memory full of NaN.
const CHECKS: usize = 50;
const THREADS: u32 = 160;
/// Bytes of a kernel's flags: one of each block and a counter.
const FLAGS: usize = 1024;

/// One of the stages, and the tactic that the tuner chose for its convolutions.
struct Stage {
    side: usize,
    channels: usize,
    columns: usize,
    tactic: &'static str,
}

#[rustfmt::skip]
const STAGES: [Stage; 4] = [
    Stage { side: 56, channels: 64, columns: 32, tactic: "whalo_f16_32x64_g1x1x1_a1_t3_r3_k1_b4" },
    Stage { side: 28, channels: 128, columns: 32, tactic: "whalo_f16_32x64_g1x1x1_a2_t3_r3_k2_b1" },
    Stage { side: 14, channels: 256, columns: 64, tactic: "whalo_f16_64x64_g1x1x1_a2_t3_r3_k4_b1" },
    Stage { side: 7, channels: 512, columns: 64, tactic: "whalo_f16_64x64_g1x1x1_a2_t3_r3_k8_b1" },
];

/// A kernel of stage.cu: how many phases, how they wait (`SYNC`), what is left out (`LEAVE`).
#[derive(Clone, Copy)]
struct Variant {
    phases: usize,
    sync: u32,
    leave: u32,
}

impl Variant {
    const fn new(phases: usize, sync: u32) -> Variant {
        Variant { phases, sync, leave: 0 }
    }
}

/// The code of the tactic; the same behind flags of the kernel before; and phases of one kernel behind a counter, flags
/// of all blocks, flags of the blocks that are needed.
const VARIANTS: [Variant; 5] = [
    Variant::new(1, 0),
    Variant::new(1, 3),
    Variant::new(PHASES, 0),
    Variant::new(PHASES, 1),
    Variant::new(PHASES, 2),
];
/// Those of them whose parts are left out, by their names in the table.
const PARTED: [(&str, usize); 2] = [("alone", 0), ("counter", 2)];
const LEAVES: [(&str, u32); 7] = [
    ("all", 0),
    ("-weights", 1),
    ("-image", 2),
    ("-products", 4),
    ("-others", 8),
    ("-stores", 16),
    ("nothing", 31),
];

/// Everything that is compiled for a stage.
fn variants() -> Vec<Variant> {
    let mut variants = VARIANTS.to_vec();
    for (_, leave) in &LEAVES[1..] {
        variants.extend(PARTED.map(|(_, idx)| Variant { leave: *leave, ..VARIANTS[idx] }));
    }
    variants
}

impl Stage {
    fn image(&self) -> usize {
        self.side * self.side * self.channels
    }

    /// Blocks of a cluster: each has 64 channels of the sum.
    fn split(&self) -> usize {
        self.channels / 64
    }

    fn blocks(&self) -> usize {
        self.side.div_ceil(8).pow(2) * (self.channels / self.columns) * self.split()
    }

    /// A convolution of it, with bias and ReLU, and perhaps a residual in front of that.
    fn problem(&self, adds: bool) -> Problem {
        let dims = [1, self.channels, self.side, self.side];
        let conv = op::Conv {
            group: 1,
            pads: vec![1; 4],
            auto_pad: AutoPad::NotSet,
            strides: vec![1; 2],
            dilations: vec![1; 2],
            kernel_shape: None,
        };
        let mut region = Region::single(conv.into(), 3, 1);
        let mut inputs = vec![
            Operand::dense(DType::F16, &dims, Layout::Plain),
            Operand::weight(DType::F16, &[self.channels, self.channels, 3, 3]),
            Operand::weight(DType::F16, &[self.channels]),
        ];
        let mut push = |op: op::Op, other: Option<Ref>| {
            let mut from = vec![Some(Ref::Node { node: region.nodes.len() as u32 - 1, output: 0 })];
            from.extend(other.map(Some));
            region.nodes.push(RegionNode { name: op.name().to_string(), op, inputs: from, n_outputs: 1 });
        };
        if adds {
            inputs.push(Operand::dense(DType::F16, &dims, Layout::Plain));
            push(op::Add {}.into(), Some(Ref::Input(3)));
        }
        push(op::Relu {}.into(), None);
        region.n_inputs = inputs.len() as u32;
        region.outputs = vec![Ref::Node { node: region.nodes.len() as u32 - 1, output: 0 }];
        let outputs = vec![Operand::dense(DType::F16, &dims, Layout::Plain)];
        Problem { region, inputs, outputs, numeric: Numeric::F16, threads: 1 }
    }

    /// The tactic's candidate and the problem as it wants it.
    fn arranged(&self, gpu: &Gpu, adds: bool) -> Result<(Problem, Candidate), Failure> {
        let problem = self.problem(adds);
        let candidate = offline::candidates("whalo", gpu, &problem)
            .into_iter()
            .find(|candidate| candidate.tactic.name == self.tactic)
            .ok_or_else(|| format!("no candidate is called {}", self.tactic))?;
        Ok((offline::arranged(&problem, &candidate), candidate))
    }

    fn source(&self, gpu: &Gpu, variant: Variant) -> Result<Source, Failure> {
        let (problem, candidate) = self.arranged(gpu, true)?;
        let sources = offline::sources(gpu, &problem, &candidate.tactic)?;
        let source = sources.into_iter().next().ok_or("the tactic has no source")?;
        let text = [&source.text, "\n#line 1 \"stage.cu\"\n", TEXT].concat();
        let made = Source { file: "whalo.cu", text: text.into(), entries: vec!["stage".into()], ..source };
        Ok(made
            .define("SIDE", self.side)
            .define("CHANNELS", self.channels)
            .define("PHASES", variant.phases)
            .define("SYNC", variant.sync)
            .define("LEAVE", variant.leave))
    }

    fn shared_bytes(&self, variant: Variant) -> usize {
        let slots = variant.phases.min(2);
        let sums = if self.split() > 1 { 64 * (self.columns * 4 + 64) } else { 0 };
        1024 + slots * (13312 + 3 * 3 * self.columns * 128 + sums + self.columns * 4 + 9 * 8)
    }

    /// The launch of a kernel of stage.cu that is number `idx` in a recording. Input 0 has the weights of all phases,
    /// input 1 their biases, the output is all activations, the workspace has the flags.
    fn launch(&self, module: &Arc<Module>, variant: Variant, idx: usize) -> Result<Launch, Failure> {
        let first = idx * variant.phases % PHASES;
        // A chained kernel has flags of its own, all others share theirs.
        let is_chained = variant.sync == 3;
        let own = if is_chained { idx * FLAGS } else { 0 };
        let (c, side) = (self.channels as u64, self.side as u64);
        let last = variant.phases - 1;
        let mut params = Params::new();
        for phase in 0..PHASES {
            let map = TensorMap::new(
                DType::F16,
                &[c, side, side, 1],
                &[c * 2, side * c * 2, side * side * c * 2],
                &[64, 10, 10, 1],
                Swizzle::B128,
            );
            let at = (first + phase.min(last)) * self.image() * 2;
            params = params.tensor_map(Slot::Output(0), at, map);
        }
        for phase in 0..PHASES {
            let map = TensorMap::new(
                DType::F16,
                &[c, c, 9],
                &[9 * c * 2, c * 2],
                &[64, self.columns as u32, 3],
                Swizzle::B128,
            );
            let at = (first + phase.min(last)) * 9 * self.channels * self.channels * 2;
            params = params.tensor_map(Slot::Input(0), at, map);
        }
        let params = params.input(1).output(0).workspace(own);
        let params = match own.checked_sub(FLAGS) {
            Some(before) if is_chained => params.workspace(before),
            _ => params.value(0u64),
        };
        let params = params.value(first as i32);
        let launch = Launch::line(module.function("stage")?, self.blocks(), THREADS, params);
        Ok(launch.with_shared(self.shared_bytes(variant))?.programmatic())
    }
}

/// Compiles everything on all cores, into the user's cache.
pub(crate) fn compile(gpu: &Gpu) -> Result<usize, Failure> {
    offline::offer_everything(true);
    let mut sources = Vec::new();
    for stage in &STAGES {
        for variant in variants() {
            sources.push(stage.source(gpu, variant)?);
        }
        for adds in [false, true] {
            let (problem, candidate) = stage.arranged(gpu, adds)?;
            sources.extend(offline::sources(gpu, &problem, &candidate.tactic)?);
        }
    }
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(source) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let (Err(error), Ok(mut failure)) =
                        (nvrtc::compile_cached(source, gpu), failure.lock())
                    {
                        *failure = Some(error);
                    }
                }
            });
        }
    });
    match failure.into_inner() {
        Ok(Some(error)) => Err(error.into()),
        _ => Ok(sources.len()),
    }
}

/// Numbers between -1 and 1 times `scale`.
fn random(seed: u64, scale: f64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 40) as f64 / (1u64 << 23) as f64 - 1.0) * scale
    }
}

/// A stage on the device.
struct Subject<'a> {
    bench: &'a Bench,
    cuda: &'a Cuda,
    stage: &'a Stage,
    /// Over the bench's stream, for the tactic's kernels.
    queue: RefCell<CudaQueue>,
    weights: DeviceMemory,
    biases: DeviceMemory,
    /// The input, then what each convolution writes.
    activations: DeviceMemory,
    flags: DeviceMemory,
}

impl<'a> Subject<'a> {
    fn new(bench: &'a Bench, cuda: &'a Cuda, stage: &'a Stage) -> Result<Subject<'a>, Failure> {
        let c = stage.channels;
        let (problem, candidate) = stage.arranged(cuda.gpu(), false)?;
        let mut weights = Vec::new();
        // Sums of about one, so that activations keep their size from layer to layer.
        let mut number = random(0x2545_f491_4f6c_dd1d, 2.0 / ((9 * c) as f64).sqrt());
        for _ in 0..PHASES {
            let values: Vec<f64> = (0..c * c * 9).map(|_| number()).collect();
            let tensor = Tensor::from_f64s(DType::F16, &[c, c, 3, 3], &values)?;
            weights.extend(cuda.pack(&problem, &candidate.tactic, 1, &tensor)?.bytes.to_vec());
        }
        let mut number = random(0x9e37_79b9_7f4a_7c15, 0.5);
        let mut halves =
            |n: usize| -> Vec<u8> { (0..n).flat_map(|_| f16::from_f64(number()).to_ne_bytes()).collect() };
        let (biases, input) = (halves(PHASES * c), halves(stage.image()));
        if weights.len() != PHASES * 9 * c * c * 2 {
            return Err("the tactic packs its weights in another way".into());
        }
        let upload = |bytes: &[u8], room: usize| -> Result<DeviceMemory, Failure> {
            let memory = DeviceMemory::new(&bench.context, room)?;
            // SAFETY: the memory has room for the bytes, which stay until the copy is done.
            unsafe { bench.stream.upload(memory.address().0, bytes.as_ptr(), bytes.len())? };
            bench.stream.synchronize(Wait::Block)?;
            Ok(memory)
        };
        Ok(Subject {
            weights: upload(&weights, weights.len())?,
            biases: upload(&biases, biases.len())?,
            activations: upload(&input, (PHASES + 1) * stage.image() * 2)?,
            flags: upload(&[0; FLAGS], REPEATS * PHASES * FLAGS)?,
            queue: RefCell::new(CudaQueue::on(Arc::clone(&bench.stream), Wait::Spin)),
            bench,
            cuda,
            stage,
        })
    }

    fn activation(&self, idx: usize) -> Address {
        self.activations.address().offset(idx * self.stage.image() * 2)
    }

    /// Runs a stage on poisoned memory: all activations.
    fn results(&self, put: impl Fn() -> Result<(), Failure>) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![0u8; PHASES * self.stage.image() * 2];
        // SAFETY: what the convolutions write has these bytes.
        unsafe { self.bench.stream.fill(self.activation(1).0, 0xff, bytes.len())? };
        put()?;
        // SAFETY: as above; the bytes are not touched before the stream is done.
        unsafe { self.bench.stream.download(bytes.as_mut_ptr(), self.activation(1).0, bytes.len())? };
        self.bench.stream.synchronize(Wait::Block)?;
        Ok(bytes)
    }

    /// Puts all flags where they were before the first launch.
    fn lower_flags(&self) -> Result<(), Failure> {
        // SAFETY: the memory has these bytes; kernels before it on the stream are done then.
        unsafe { self.bench.stream.fill(self.flags.address().0, 0, self.flags.len())? };
        Ok(())
    }

    /// Microseconds of a convolution, where `put` puts all of a recording.
    fn time(&self, put: impl Fn() -> Result<(), Failure>) -> Result<f64, Failure> {
        self.lower_flags()?;
        let graph = self.bench.record(put)?;
        Ok(self.bench.time(&graph)? / (REPEATS * PHASES) as f64)
    }

    /// The tactic's own kernels, as a plan launches them.
    fn tactic(&self) -> Result<Vec<Box<dyn Kernel>>, Failure> {
        (0..PHASES)
            .map(|phase| {
                let (problem, candidate) = self.stage.arranged(self.cuda.gpu(), phase % 2 == 1)?;
                Ok(self.cuda.prepare(&problem, &candidate.tactic)?)
            })
            .collect()
    }

    fn put_tactic(&self, kernels: &[Box<dyn Kernel>]) -> Result<(), Failure> {
        let mut queue = self.queue.borrow_mut();
        let c = self.stage.channels;
        for (phase, kernel) in kernels.iter().enumerate() {
            let weight = self.weights.address().offset(phase * 9 * c * c * 2);
            let bias = self.biases.address().offset(phase * c * 2);
            let mut inputs = vec![self.activation(phase), weight, bias];
            if phase % 2 == 1 {
                inputs.push(self.activation(phase - 1));
            }
            let call =
                Call { inputs: &inputs, outputs: &[self.activation(phase + 1)], workspace: Address::NULL };
            // SAFETY: the operands are as large as the problem says and outlive every replay.
            unsafe { kernel.launch(&call, &mut *queue as &mut dyn Queue)? };
        }
        Ok(())
    }

    /// The launches of a recording.
    fn kernels(&self, variant: Variant) -> Result<Vec<Launch>, Failure> {
        let module = self.bench.module(&self.stage.source(self.cuda.gpu(), variant)?)?;
        let n_launches = REPEATS * PHASES / variant.phases;
        (0..n_launches).map(|idx| self.stage.launch(&module, variant, idx)).collect()
    }

    fn put_kernels(&self, launches: &[Launch]) -> Result<(), Failure> {
        let inputs = [self.weights.address(), self.biases.address()];
        let outputs = [self.activations.address()];
        let call = Call { inputs: &inputs, outputs: &outputs, workspace: self.flags.address() };
        for launch in launches {
            // SAFETY: the kernel takes these arguments, and they outlive every replay.
            unsafe { launch.launch(&call, &self.bench.stream)? };
        }
        Ok(())
    }

    /// Whether a variant computes what the tactic does, again and again; then its time.
    fn checked(&self, variant: Variant, wanted: &[u8]) -> Result<f64, Failure> {
        let launches = self.kernels(variant)?;
        self.lower_flags()?;
        for _ in 0..CHECKS {
            let got = self.results(|| self.put_kernels(&launches[..PHASES / variant.phases]))?;
            let pairs = got.chunks_exact(2).zip(wanted.chunks_exact(2));
            let half = |bytes: &[u8]| f16::from_ne_bytes([bytes[0], bytes[1]]);
            // As numbers: zeros may differ in their signs, and NaN is like nothing.
            if let Some(at) = pairs.into_iter().position(|(got, wanted)| half(got) != half(wanted)) {
                let phase = at / self.stage.image();
                return Err(format!(
                    "{} phases differ from {} in phase {phase}",
                    variant.phases, self.stage.tactic
                )
                .into());
            }
        }
        self.time(|| self.put_kernels(&launches))
    }
}

/// Measures and prints.
pub(crate) fn run(bench: &Bench, cuda: &Cuda) -> Result<(), Failure> {
    let n_kernels = compile(cuda.gpu())?;
    println!(
        "# Stages of ResNet-18 at batch 1: microseconds of a convolution ({n_kernels} kernels compiled)."
    );
    println!(
        "# kernels with programmatic launch: the tuner's tactic; its code in stage.cu (alone); that behind"
    );
    println!("# flags of the kernel before instead of its end (chained).");
    println!("# phases of one kernel: behind a counter, flags of all blocks, of those that are needed.");
    println!("image      blocks  tactic   alone chained counter   flags  needed");
    let mut subjects = Vec::new();
    for stage in &STAGES {
        let subject = Subject::new(bench, cuda, stage)?;
        let tactic = subject.tactic()?;
        let wanted = subject.results(|| subject.put_tactic(&tactic))?;
        if wanted.iter().all(|byte| *byte == 0) {
            return Err("the tactic computes zeros alone".into());
        }
        let mut row = vec![subject.time(|| (0..REPEATS).try_for_each(|_| subject.put_tactic(&tactic)))?];
        for variant in VARIANTS {
            row.push(subject.checked(variant, &wanted)?);
        }
        let row: Vec<String> = row.iter().map(|us| format!("{us:7.2}")).collect();
        let Stage { side, channels, .. } = stage;
        println!("{side:2}x{side:2}x{channels:3} {:7} {}", stage.blocks(), row.join(" "));
        subjects.push(subject);
    }
    println!("# The same with parts left out (results are wrong then and not checked).");
    println!("image     kernels {}", LEAVES.map(|(name, _)| format!("{name:>9}")).join(" "));
    for subject in &subjects {
        for (name, idx) in PARTED {
            let mut row = Vec::new();
            for (_, leave) in LEAVES {
                let launches = subject.kernels(Variant { leave, ..VARIANTS[idx] })?;
                row.push(format!("{:9.2}", subject.time(|| subject.put_kernels(&launches))?));
            }
            let Stage { side, channels, .. } = subject.stage;
            println!("{side:2}x{side:2}x{channels:3} {name:7} {}", row.join(" "));
        }
    }
    Ok(())
}
