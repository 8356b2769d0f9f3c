//! Trials of plans, for tests: a problem run by each of a family's candidates on strided operands, and compared
//! with the reference. On a GPU if there is one; otherwise the kernels' text is compiled by the host's C++
//! compiler and its threads are fibers. Both compute with the same text.

mod speeds;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use planish_kernel::{Address, Backend, Call, Candidate, Operand, Problem, QueueOptions, Ref, Region, Want};
use planish_op::Value;
use planish_tensor::{Bytes, DType, Tensor};

use crate::backend::Cuda;
use crate::gpu::Gpu;
use crate::source::{PRELUDE, Source};
use crate::steps::{Arg, Plan, Planner, Slot, ints_len};

/// A repeatable stream of numbers (xorshift).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n
    }

    /// Between -1 and 1, times `scale`.
    fn real(&mut self, scale: f32) -> f32 {
        ((self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * scale
    }

    /// A tensor of such numbers (integers up to `scale`, booleans).
    pub(crate) fn tensor(&mut self, dtype: DType, dims: &[usize], scale: f32) -> Tensor {
        let n = dims.iter().product();
        let values: Vec<f64> = (0..n)
            .map(|_| match dtype {
                DType::F32 | DType::F16 | DType::BF16 => f64::from(self.real(scale)),
                DType::Bool => f64::from(u8::from(self.next() & 1 == 1)),
                DType::U8 => f64::from(self.real(100.0)).abs().round(),
                _ => f64::from(self.real(scale)).round(),
            })
            .collect();
        Tensor::from_f64s(dtype, dims, &values).unwrap()
    }
}

/// How far results may be from the reference: beyond `relative` of the reference's value, `absolute`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    pub(crate) relative: f64,
    pub(crate) absolute: f64,
}

/// Bit by bit.
pub(crate) const EXACT: Tolerance = Tolerance { relative: 0.0, absolute: 0.0 };

impl Tolerance {
    /// With what rounding to the output's type adds: half a unit in the last place.
    fn stored(self, dtype: DType) -> Tolerance {
        let (unit, least) = match dtype {
            DType::F16 => (2f64.powi(-11), 2f64.powi(-25)),
            DType::BF16 => (2f64.powi(-8), 0.0),
            _ => (0.0, 0.0),
        };
        // What is just at the middle may be rounded either way.
        let slack = if self.relative == 0.0 { 1.0 } else { 1.01 };
        Tolerance { relative: self.relative + unit * slack, absolute: self.absolute + least }
    }
}

fn evaluate(region: &Region, inputs: &[Tensor]) -> Vec<Tensor> {
    let constants: Vec<Value> = region.constants.iter().map(|tensor| Value::Tensor(wide(tensor))).collect();
    let inputs: Vec<Value> = inputs.iter().map(|tensor| Value::Tensor(wide(tensor))).collect();
    let mut made: Vec<Vec<Value>> = Vec::new();
    for node in &region.nodes {
        let operands: Vec<Option<&Value>> = node
            .inputs
            .iter()
            .map(|reference| match reference {
                None => None,
                Some(Ref::Input(idx)) => inputs.get(*idx as usize),
                Some(Ref::Constant(idx)) => constants.get(*idx as usize),
                Some(Ref::Node { node, output }) => made[*node as usize].get(*output as usize),
            })
            .collect();
        made.push(planish_reference::evaluate(&node.op, &operands, node.n_outputs as usize).unwrap());
    }
    let output = |reference: &Ref| match reference {
        Ref::Node { node, output } => made[*node as usize][*output as usize].as_tensor().unwrap().clone(),
        _ => panic!("an output that no node makes"),
    };
    region.outputs.iter().map(output).collect()
}

/// The same numbers in f32: what is computed with is f32 whatever it is stored in.
fn wide(tensor: &Tensor) -> Tensor {
    match tensor.dtype() {
        DType::F16 | DType::BF16 => Tensor::from_f64s(DType::F32, tensor.shape(), &tensor.to_f64s()).unwrap(),
        _ => tensor.clone(),
    }
}

/// What lies between elements before and must lie there after a run.
const GAP: u8 = 0x5a;

fn offsets(operand: &Operand) -> Vec<usize> {
    (0..operand.len())
        .map(|flat| {
            let index = planish_reference::nd::unravel(flat, &operand.dims);
            index.iter().zip(&operand.strides).map(|(place, stride)| place * stride).sum()
        })
        .collect()
}

fn lay_out(operand: &Operand, tensor: &Tensor) -> Vec<u8> {
    let size = operand.dtype.bits() / 8;
    let mut bytes = vec![GAP; operand.span_bytes()];
    for (flat, offset) in offsets(operand).into_iter().enumerate() {
        let element = &tensor.bytes()[flat * size..(flat + 1) * size];
        bytes[offset * size..(offset + 1) * size].copy_from_slice(element);
    }
    bytes
}

fn collect(operand: &Operand, bytes: &[u8]) -> Tensor {
    let size = operand.dtype.bits() / 8;
    let mut written = vec![false; bytes.len()];
    let mut out = Vec::new();
    for offset in offsets(operand) {
        let range = offset * size..(offset + 1) * size;
        written[range.clone()].fill(true);
        out.extend_from_slice(&bytes[range]);
    }
    assert!(written.iter().zip(bytes).all(|(w, b)| *w || *b == GAP), "a gap was written to");
    Tensor::from_bytes(operand.dtype, &operand.dims, Bytes::from_vec(out)).unwrap()
}

#[track_caller]
fn assert_close(got: &Tensor, want: &Tensor, tolerance: Tolerance, what: &str) {
    assert_eq!(got.shape(), want.shape(), "{what}");
    if got.dtype().is_int() || got.dtype() == DType::Bool {
        assert_eq!(got.to_i64s(), want.to_i64s(), "{what}");
        return;
    }
    let tolerance = tolerance.stored(got.dtype());
    for (idx, (got, want)) in got.to_f64s().into_iter().zip(want.to_f64s()).enumerate() {
        let near = (got - want).abs() <= tolerance.absolute + tolerance.relative * want.abs();
        let same = (got.is_nan() && want.is_nan()) || got == want;
        assert!(near || same, "{what}: element {idx} is {got:e}, not {want:e}");
    }
}

/// Runs the problem by every candidate of the family, in its layouts, dense and inside larger values.
#[track_caller]
pub(crate) fn check(family: &dyn Planner, problem: &Problem, seed: u64, tolerance: Tolerance) {
    let mut numbers = Numbers::new(seed);
    let inputs: Vec<Tensor> =
        problem.inputs.iter().map(|operand| numbers.tensor(operand.dtype, &operand.dims, 2.0)).collect();
    check_on(family, problem, &inputs, tolerance);
}

/// The same on given inputs.
#[track_caller]
pub(crate) fn check_on(family: &dyn Planner, problem: &Problem, inputs: &[Tensor], tolerance: Tolerance) {
    let gpu = match cuda() {
        Some(cuda) => cuda.gpu().clone(),
        None => Gpu::known("h200").unwrap(),
    };
    let want = evaluate(&problem.region, inputs);
    let candidates = family.candidates(&gpu, problem);
    assert!(!candidates.is_empty(), "no candidate: {}", problem.key());
    for candidate in &candidates {
        let gaps: &[usize] = match candidate.inputs.iter().chain(&candidate.outputs).any(|want| want.inside) {
            true if cuda().is_some() => &[0, 8, 3],
            // The host's compiler is slow.
            true => &[0, 3],
            false => &[0],
        };
        for &gap in gaps {
            let mut arranged = problem.clone();
            let mut operands: Vec<Tensor> = inputs.to_vec();
            for (idx, operand) in arranged.inputs.iter_mut().enumerate() {
                lie(operand, candidate.inputs[idx], gap);
                if candidate.packed[idx].is_some() {
                    let packed = family.pack(problem, &candidate.tactic, idx, &inputs[idx]).unwrap();
                    assert_eq!(Some(&packed.format), candidate.packed[idx].as_ref());
                    let len = packed.bytes.len();
                    operands[idx] =
                        Tensor::from_bytes(DType::U8, &[len], Bytes::from_vec(packed.bytes)).unwrap();
                    operand.packed = Some(packed.format);
                }
            }
            for (idx, operand) in arranged.outputs.iter_mut().enumerate() {
                lie(operand, candidate.outputs[idx], gap);
            }
            let what = format!("{} gap {gap}: {}", candidate.tactic, arranged.key());
            let plan = || family.plan(&gpu, &arranged, &candidate.tactic).unwrap();
            if cuda().is_none() && plan().steps.iter().any(|step| step.cluster > 1) {
                println!("{what}: the host has no clusters");
                continue;
            }
            let got = run(family, &gpu, &arranged, candidate, &operands);
            assert_eq!(got.len(), want.len(), "{what}");
            for (got, want) in got.iter().zip(&want) {
                assert_close(got, want, tolerance, &what);
            }
        }
    }
}

/// Strides as a candidate wants them, inside a value that is larger by `gap` along the innermost axis.
fn lie(operand: &mut Operand, want: Want, gap: usize) {
    let mut larger = operand.dims.clone();
    if want.inside
        && let Some(&innermost) = want.layout.order(larger.len()).last()
    {
        larger[innermost] += gap;
    }
    operand.strides = want.layout.strides(&larger);
}

fn run(
    family: &dyn Planner,
    gpu: &Gpu,
    problem: &Problem,
    candidate: &Candidate,
    inputs: &[Tensor],
) -> Vec<Tensor> {
    let lay = |(operand, tensor): (&Operand, &Tensor)| match operand.packed {
        Some(_) => tensor.bytes().to_vec(),
        None => lay_out(operand, tensor),
    };
    let from: Vec<Vec<u8>> = problem.inputs.iter().zip(inputs).map(lay).collect();
    let mut to: Vec<Vec<u8>> =
        problem.outputs.iter().map(|operand| vec![GAP; operand.span_bytes()]).collect();
    match cuda() {
        Some(cuda) => on_device(cuda, problem, candidate, &from, &mut to),
        None => {
            let plan = family.plan(gpu, problem, &candidate.tactic).unwrap();
            emulate(&plan, &from, &mut to);
        }
    }
    problem.outputs.iter().zip(&to).map(|(operand, bytes)| collect(operand, bytes)).collect()
}

/// The GPU of this machine, if it has one.
pub(crate) fn cuda() -> Option<&'static Cuda> {
    static CUDA: OnceLock<Option<Cuda>> = OnceLock::new();
    CUDA.get_or_init(|| match Cuda::open(0) {
        Ok(cuda) => Some(cuda),
        Err(error) => {
            println!("no GPU ({error}): kernels run on the host instead");
            None
        }
    })
    .as_ref()
}

fn on_device(cuda: &Cuda, problem: &Problem, candidate: &Candidate, from: &[Vec<u8>], to: &mut [Vec<u8>]) {
    let kernel = cuda.prepare(problem, &candidate.tactic).unwrap();
    let mut queue = cuda.queue(QueueOptions::new(1)).unwrap();
    let memory = |bytes: &[u8]| cuda.allocate(bytes.len().max(64)).unwrap();
    let inputs: Vec<_> = from.iter().map(|bytes| memory(bytes)).collect();
    let outputs: Vec<_> = to.iter().map(|bytes| memory(bytes)).collect();
    let workspace = cuda.allocate(kernel.workspace_bytes().max(64)).unwrap();
    // SAFETY: every address is memory of this backend, as large as what is copied or spanned, and used by
    // this queue alone until it is synchronized.
    unsafe {
        for (memory, bytes) in inputs.iter().zip(from).chain(outputs.iter().zip(to.iter())) {
            queue.upload(memory.address(), bytes).unwrap();
        }
        // Anything may lie in scratch memory; NaN is what would show.
        queue.upload(workspace.address(), &vec![0xff; kernel.workspace_bytes()]).unwrap();
        let inputs: Vec<Address> = inputs.iter().map(|memory| memory.address()).collect();
        let addresses: Vec<Address> = outputs.iter().map(|memory| memory.address()).collect();
        let call = Call { inputs: &inputs, outputs: &addresses, workspace: workspace.address() };
        kernel.launch(&call, queue.as_mut()).unwrap();
        for (memory, bytes) in outputs.iter().zip(to.iter_mut()) {
            queue.download(bytes, memory.address()).unwrap();
        }
        queue.synchronize().unwrap();
    }
}

/// Microseconds of one run of a candidate among many in a recording, data mostly in the second-level cache.
fn microseconds(cuda: &Cuda, family: &dyn Planner, problem: &Problem, candidate: &Candidate) -> f64 {
    const LAUNCHES: usize = 50;
    let mut arranged = problem.clone();
    let mut numbers = Numbers::new(1);
    let mut inputs = Vec::new();
    for (idx, operand) in arranged.inputs.iter_mut().enumerate() {
        lie(operand, candidate.inputs[idx], 0);
        inputs.push(match &candidate.packed[idx] {
            Some(format) => {
                operand.packed = Some(format.clone());
                let tensor = numbers.tensor(operand.dtype, &operand.dims, 1.0);
                family.pack(problem, &candidate.tactic, idx, &tensor).unwrap().bytes
            }
            // A few numbers over and over: times do not depend on them.
            None => {
                let some = numbers.tensor(operand.dtype, &[4099], 1.0);
                some.bytes().iter().copied().cycle().take(operand.span_bytes()).collect()
            }
        });
    }
    arranged.outputs.iter_mut().zip(&candidate.outputs).for_each(|(operand, want)| lie(operand, *want, 0));
    let kernel = cuda.prepare(&arranged, &candidate.tactic).unwrap();
    let mut queue = cuda.queue(QueueOptions::new(1)).unwrap();
    let from: Vec<_> = inputs.iter().map(|bytes| cuda.allocate(bytes.len().max(64)).unwrap()).collect();
    let to: Vec<_> =
        arranged.outputs.iter().map(|operand| cuda.allocate(operand.span_bytes().max(64)).unwrap()).collect();
    let workspace = cuda.allocate(kernel.workspace_bytes().max(64)).unwrap();
    let addresses: Vec<Address> = from.iter().map(|memory| memory.address()).collect();
    let outputs: Vec<Address> = to.iter().map(|memory| memory.address()).collect();
    let call = Call { inputs: &addresses, outputs: &outputs, workspace: workspace.address() };
    let mut times = Vec::new();
    // SAFETY: as in `on_device`; the memory outlives the queue's work.
    unsafe {
        for (memory, bytes) in from.iter().zip(&inputs) {
            queue.upload(memory.address(), bytes).unwrap();
        }
        kernel.launch(&call, queue.as_mut()).unwrap();
        queue.synchronize().unwrap();
        queue.begin_capture().unwrap();
        for _ in 0..LAUNCHES {
            kernel.launch(&call, queue.as_mut()).unwrap();
        }
        let recording = queue.end_capture().unwrap();
        for _ in 0..7 {
            let start = std::time::Instant::now();
            queue.replay(recording.as_ref()).unwrap();
            queue.synchronize().unwrap();
            times.push(start.elapsed().as_secs_f64() * 1e6 / LAUNCHES as f64);
        }
    }
    times.sort_by(f64::total_cmp);
    times[0]
}

const SHIM: &str = include_str!("trial/shim.h");
const TAIL: &str = include_str!("trial/tail.h");

type Entry = unsafe extern "C" fn(*const u32, u32, *mut *mut std::ffi::c_void);

/// The kernel of a source as a function of the host; compiled once. The lock is held while it runs, since its
/// threads share one scheduler.
fn compiled(source: &Source) -> Entry {
    static KNOWN: OnceLock<Mutex<HashMap<String, Entry>>> = OnceLock::new();
    let mut text = String::new();
    for (name, value) in &source.defines {
        text.push_str(&format!("#define {name} {value}\n"));
    }
    text.push_str(SHIM);
    // The functions of programs are plain C++ and stand at the prelude's end.
    let functions =
        PRELUDE.split_once("// Functions of generated programs").expect("the prelude's last part").1;
    text.push_str("//");
    text.push_str(functions);
    text.push_str(&source.text);
    text.push_str(&format!("\n#define EMULATED {}\n", source.entries[0]));
    text.push_str(TAIL);
    let key = blake3::hash(text.as_bytes()).to_hex().to_string();
    let known = KNOWN.get_or_init(Mutex::default);
    if let Some(entry) = known.lock().unwrap().get(&key) {
        return *entry;
    }
    let folder: PathBuf = std::env::temp_dir().join(format!("planish-trial-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (file, library) = (folder.join(format!("{key}.cc")), folder.join(format!("{key}.so")));
    std::fs::write(&file, &text).unwrap();
    let output = std::process::Command::new("g++")
        .args([
            "-std=c++17",
            "-O0",
            "-w",
            "-shared",
            "-fPIC",
            "-fno-strict-aliasing",
            // Shared memory of a template in one kernel is not that of another kernel.
            "-fno-gnu-unique",
            "-ffp-contract=off",
            "-o",
        ])
        .args([&library, &file])
        .output()
        .expect("a C++ compiler");
    assert!(
        output.status.success(),
        "{}: {}\n{}",
        source.file,
        String::from_utf8_lossy(&output.stderr),
        source.text
    );
    // SAFETY: the library was just made from the text above; loading it runs nothing else.
    let loaded = unsafe { libloading::Library::new(&library) }.unwrap();
    // SAFETY: `emulate` is declared so at the end of every such text; the library stays loaded.
    let entry = unsafe { *loaded.get::<Entry>(b"emulate").unwrap() };
    std::mem::forget(loaded);
    // What was loaded stays in memory without its files.
    std::fs::remove_file(&library).unwrap();
    std::fs::remove_file(&file).unwrap();
    known.lock().unwrap().insert(key, entry);
    entry
}

/// Runs a plan on the host. Operands begin at multiples of 64 bytes, as on a device.
fn emulate(plan: &Plan, from: &[Vec<u8>], to: &mut [Vec<u8>]) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _held = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut inputs: Vec<Aligned> = from.iter().map(|bytes| Aligned::of(bytes)).collect();
    let mut outputs: Vec<Aligned> = to.iter().map(|bytes| Aligned::of(bytes)).collect();
    let mut workspace = Aligned::of(&vec![0xff; plan.workspace]);
    for step in &plan.steps {
        if step.grid.contains(&0) {
            continue;
        }
        let entry = compiled(&plan.sources[step.source]);
        let mut values: Vec<Vec<u64>> = Vec::new();
        for arg in &step.args {
            values.push(match arg {
                Arg::Address(slot, offset) => {
                    let memory = match slot {
                        Slot::Input(idx) => &mut inputs[*idx],
                        Slot::Output(idx) => &mut outputs[*idx],
                        Slot::Workspace => &mut workspace,
                    };
                    vec![memory.address() + *offset as u64]
                }
                Arg::Nothing => vec![0],
                Arg::Ints(ints) => {
                    let mut words = ints.clone();
                    words.resize(ints_len(ints.len()), 0);
                    let pair = |pair: &[i32]| u64::from(pair[0] as u32) | u64::from(pair[1] as u32) << 32;
                    words.chunks(2).map(pair).collect()
                }
            });
        }
        let mut pointers: Vec<*mut std::ffi::c_void> =
            values.iter_mut().map(|value| value.as_mut_ptr().cast()).collect();
        // SAFETY: the arguments are those of the kernel, and the operands are spanned by the memory above; a
        // kernel that leaves them is the fault that these tests look for.
        unsafe { entry(step.grid.as_ptr(), step.threads, pointers.as_mut_ptr()) };
    }
    for (memory, bytes) in outputs.iter().zip(to) {
        bytes.copy_from_slice(memory.bytes());
        memory.assert_fence();
    }
}

/// Bytes at a multiple of 64, with a fence behind them.
struct Aligned {
    words: Vec<[u64; 8]>,
    len: usize,
}

const FENCE: u8 = 0xa5;

impl Aligned {
    fn of(bytes: &[u8]) -> Aligned {
        // A vector of lines is aligned to 8 only; one line more leaves room to begin at the right place.
        let n_lines = bytes.len() / 64 + 4;
        let mut memory =
            Aligned { words: vec![[u64::from_ne_bytes([FENCE; 8]); 8]; n_lines], len: bytes.len() };
        let start = memory.start();
        memory.all_mut()[start..start + bytes.len()].copy_from_slice(bytes);
        memory
    }

    fn start(&self) -> usize {
        let at = self.words.as_ptr().addr();
        at.next_multiple_of(64) - at
    }

    fn all_mut(&mut self) -> &mut [u8] {
        let len = self.words.len() * 64;
        // SAFETY: the words are plain numbers.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), len) }
    }

    fn all(&self) -> &[u8] {
        // SAFETY: the words are plain numbers.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.words.len() * 64) }
    }

    fn address(&mut self) -> u64 {
        let start = self.start();
        self.all_mut()[start..].as_mut_ptr().expose_provenance() as u64
    }

    fn bytes(&self) -> &[u8] {
        &self.all()[self.start()..self.start() + self.len]
    }

    #[track_caller]
    fn assert_fence(&self) {
        let behind = &self.all()[self.start() + self.len..];
        assert!(behind.iter().all(|byte| *byte == FENCE), "a kernel wrote behind its output");
    }
}
