//! A stage of ResNet-18 at batch 1, four 3x3 convolutions over one image: as kernels one after another with
//! programmatic launch, as a plan runs them, and as phases of one kernel.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use planish_cuda::driver::{DeviceMemory, Module, Swizzle, TensorMap};
use planish_cuda::launch::{Launch, Params, Slot};
use planish_cuda::{Cuda, CudaQueue, Gpu, Source, nvrtc, offline};
use planish_kernel::{Address, Call, Kernel, Memory, Queue, Wait};
use planish_tensor::DType;

use crate::Failure;
use crate::convolution::{Convolution, apart, difference, halves, upload};
use crate::timing::Bench;

const TEXT: &str = include_str!("stage.cu");
/// Convolutions of a stage.
const PHASES: usize = 4;
/// Stages in one graph.
const REPEATS: usize = 5;
/// Runs whose results are compared, each on memory full of NaN.
const CHECKS: usize = 50;
const THREADS: u32 = 160;
/// Bytes of a kernel's flags: one of each block and a counter.
const FLAGS: usize = 1024;

/// Root of the mean square of differences over that of values, where sums are taken in another order: results are
/// rounded to 11 bits four times, and where sums differ in their 24th bit now and then one is rounded the other way.
const REORDERED: f64 = 1e-3;

/// How many sums of an element the tactic itself has.
const TACTIC_SUMS: u32 = 1;

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

/// A kernel of stage.cu: how many phases, how they wait (`SYNC`), what is left out (`LEAVE`), and how
/// many sums each thread has of an element (`SUMS`).
#[derive(Clone, Copy, Debug)]
struct Variant {
    phases: usize,
    sync: u32,
    leave: u32,
    sums: u32,
}

impl Variant {
    const fn new(phases: usize, sync: u32) -> Variant {
        Variant { phases, sync, leave: 0, sums: 1 }
    }
}

/// The code of the tactic; the same with two and four sums; after flags of the kernel before; and phases of one kernel
/// after a counter, flags of all blocks, flags of the blocks that are needed.
const VARIANTS: [Variant; 7] = [
    Variant::new(1, 0),
    Variant { sums: 2, ..Variant::new(1, 0) },
    Variant { sums: 4, ..Variant::new(1, 0) },
    Variant::new(1, 3),
    Variant::new(PHASES, 0),
    Variant::new(PHASES, 1),
    Variant::new(PHASES, 2),
];
/// Those of them whose parts are left out, by their names in the table.
const PARTED: [(&str, usize); 2] = [("alone", 0), ("counter", 4)];
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

    /// One of its convolutions; every second one has a residual.
    fn convolution(&self, phase: usize) -> Convolution {
        let Stage { side, channels, tactic, .. } = *self;
        let adds = phase % 2 == 1;
        Convolution { side, channels, columns: channels, kernel: 3, stride: 1, adds, relu: true, tactic }
    }

    fn source(&self, gpu: &Gpu, variant: Variant) -> Result<Source, Failure> {
        let (problem, candidate) = self.convolution(1).arranged(gpu)?;
        let sources = offline::sources(gpu, &problem, &candidate.tactic)?;
        let source = sources.into_iter().next().ok_or("the tactic has no source")?;
        let text = [&source.text, "\n#line 1 \"stage.cu\"\n", TEXT].concat();
        let made = Source { file: "whalo.cu", text: text.into(), entries: vec!["stage".into()], ..source };
        Ok(made
            .define("SIDE", self.side)
            .define("CHANNELS", self.channels)
            .define("PHASES", variant.phases)
            .define("SYNC", variant.sync)
            .define("LEAVE", variant.leave)
            .define("SUMS", variant.sums))
    }

    fn shared_bytes(&self, variant: Variant) -> usize {
        let slots = variant.phases.min(2);
        let sums = if self.split() > 1 { 64 * (self.columns * 4 + 64) } else { 0 };
        1024 + slots * (13312 + 3 * 3 * self.columns * 128 + sums + self.columns * 4 + 9 * 8)
    }

    /// The launch of a kernel of stage.cu that is number `idx` in a captured graph. Input 0 has the weights of all phases,
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
    let mut sources = Vec::new();
    for stage in &STAGES {
        for variant in variants() {
            sources.push(stage.source(gpu, variant)?);
        }
        for phase in 0..2 {
            let (problem, candidate) = stage.convolution(phase).arranged(gpu)?;
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
        let mut weights = Vec::new();
        for phase in 0..PHASES {
            weights.extend(stage.convolution(phase).weights(cuda, phase as u64)?);
        }
        let (biases, input) = (halves(PHASES * c, 10), halves(stage.image(), 11));
        if weights.len() != PHASES * 9 * c * c * 2 {
            return Err("the tactic packs its weights in another way".into());
        }
        Ok(Subject {
            weights: upload(bench, &weights, weights.len())?,
            biases: upload(bench, &biases, biases.len())?,
            activations: upload(bench, &input, (PHASES + 1) * stage.image() * 2)?,
            flags: upload(bench, &[0; FLAGS], REPEATS * PHASES * FLAGS)?,
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

    /// Microseconds of a convolution, where `put` puts all of a captured graph.
    fn time(&self, put: impl Fn() -> Result<(), Failure>) -> Result<f64, Failure> {
        self.lower_flags()?;
        let graph = self.bench.record(put)?;
        Ok(self.bench.time(&graph)? / (REPEATS * PHASES) as f64)
    }

    /// The tactic's own kernels, as a plan launches them.
    fn tactic(&self) -> Result<Vec<Box<dyn Kernel>>, Failure> {
        (0..PHASES).map(|phase| self.stage.convolution(phase).kernel(self.cuda)).collect()
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
            let call = Call {
                inputs: &inputs,
                outputs: &[self.activation(phase + 1)],
                workspace: Address::NULL,
                fault: Address::NULL,
            };
            // SAFETY: the operands are as large as the problem says and outlive every replay.
            unsafe { kernel.launch(&call, &mut *queue as &mut dyn Queue)? };
        }
        Ok(())
    }

    /// The launches of a captured graph.
    fn kernels(&self, variant: Variant) -> Result<Vec<Launch>, Failure> {
        let module = self.bench.module(&self.stage.source(self.cuda.gpu(), variant)?)?;
        let n_launches = REPEATS * PHASES / variant.phases;
        (0..n_launches).map(|idx| self.stage.launch(&module, variant, idx)).collect()
    }

    fn put_kernels(&self, launches: &[Launch]) -> Result<(), Failure> {
        let inputs = [self.weights.address(), self.biases.address()];
        let outputs = [self.activations.address()];
        let call = Call {
            inputs: &inputs,
            outputs: &outputs,
            workspace: self.flags.address(),
            fault: Address::NULL,
        };
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
            let off = if variant.sums == TACTIC_SUMS {
                difference(&got, wanted).is_some()
            } else {
                apart(&got, wanted) > REORDERED
            };
            if off {
                return Err(format!("{} of {variant:?} differs", self.stage.tactic).into());
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
        "# kernels with programmatic launch: the tuner's tactic; its code in stage.cu (alone); that with"
    );
    println!("# two or four sums of each element, after flags of the kernel before, not its end (chained).");
    println!("# phases of one kernel: after a counter, flags of all blocks, of those that are needed.");
    println!("image      blocks  tactic   alone     two    four chained counter   flags  needed");
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
