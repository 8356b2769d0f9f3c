//! One layer on the device: its operands, and a tactic's time and error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use planish_cuda::{Cuda, offline};
use planish_kernel::{
    Address, Call, Candidate, Compiler, Device, KernelError, Memory, Operand, Problem, Queue, QueueOptions,
    Tactic, WeightUse,
};
use planish_op::Op;
use planish_tensor::{Bytes, DType, Tensor};
use planish_testing::Random;

use crate::layers::Layer;

/// Launches in one graph, and how often it is replayed.
const LAUNCHES: usize = 20;
const REPLAYS: usize = 7;
/// Elements that are compared with their exact values.
const SAMPLES: usize = 3000;

/// Compiles what all pairs need on all cores, and gives it to the backend: how many modules, and what failed.
pub(crate) fn compile_all(cuda: &Cuda, pairs: Vec<(Problem, &Tactic)>) -> (usize, Vec<String>) {
    let mut seen = BTreeSet::new();
    let mut todo = Vec::new();
    let mut failed = Vec::new();
    for (problem, tactic) in pairs {
        match offline::sources(cuda.gpu(), &problem, tactic) {
            Err(error) => failed.push(format!("{tactic}: {error}")),
            Ok(sources) => {
                let keys: Vec<String> = sources.iter().map(|source| source.key(cuda.gpu())).collect();
                // Every key is put in, so none may be passed over.
                if keys.into_iter().filter(|key| seen.insert(key.clone())).count() > 0 {
                    todo.push((problem, tactic));
                }
            }
        }
    }
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(4, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((problem, tactic)) = todo.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let done = cuda.code(problem, tactic);
                    if let (Err(error), Ok(mut failures)) = (done, failures.lock()) {
                        failures.push(format!("{tactic}: {error}"));
                    }
                }
            });
        }
    });
    failed.extend(failures.into_inner().unwrap_or_default());
    (todo.len(), failed)
}

/// What one tactic gave.
pub(crate) struct Outcome {
    pub(crate) us: f64,
    pub(crate) error: f64,
}

/// A layer with its values on host and device.
pub(crate) struct Subject<'a> {
    cuda: &'a Cuda,
    layer: &'a Layer,
    queue: Box<dyn Queue>,
    /// Every input in the order of the operator, rounded to its type.
    values: Vec<Vec<f32>>,
    /// On the device, by input, packing and strides.
    placed: BTreeMap<String, Box<dyn Memory>>,
    samples: Vec<(usize, f64)>,
    /// The first result that was right, with its strides.
    agreed: Option<(Vec<usize>, Vec<u8>)>,
    output: Box<dyn Memory>,
    /// NaN all over.
    poison: Box<dyn Memory>,
    workspace: Box<dyn Memory>,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(cuda: &'a Cuda, layer: &'a Layer) -> Result<Subject<'a>, KernelError> {
        let mut random = Random::new(1);
        let [_, _, depth] = layer.sizes();
        let values: Vec<Vec<f32>> = layer
            .problem
            .inputs
            .iter()
            .enumerate()
            .map(|(idx, operand)| {
                // Sums of about one whatever the depth.
                let scale = if idx == 1 { 3.0 / (depth as f32).sqrt() } else { 1.0 };
                (0..operand.len()).map(|_| rounded(random.real(scale), operand.dtype)).collect()
            })
            .collect();
        let n_out = layer.problem.outputs[0].len();
        let chosen: Vec<usize> = (0..SAMPLES.min(n_out))
            .map(|idx| if n_out <= SAMPLES { idx } else { (idx * 7919 + 13 * idx * idx) % n_out })
            .collect();
        let threads = std::thread::available_parallelism().map_or(4, usize::from);
        let mut samples: Vec<(usize, f64)> = Vec::with_capacity(chosen.len());
        std::thread::scope(|scope| {
            let parts: Vec<_> = chosen
                .chunks(chosen.len().div_ceil(threads).max(1))
                .map(|part| {
                    let values = &values;
                    scope.spawn(move || {
                        part.iter().map(|&at| (at, expected(layer, values, at))).collect::<Vec<_>>()
                    })
                })
                .collect();
            for part in parts {
                samples.extend(part.join().unwrap_or_default());
            }
        });
        let bytes = layer.problem.outputs[0].span_bytes();
        let poison = cuda.allocate(bytes)?;
        let mut queue = cuda.queue(QueueOptions::new(1))?;
        // SAFETY: the memory was made for these bytes.
        unsafe { queue.upload(poison.address(), &vec![0xff; bytes])? };
        Ok(Subject {
            cuda,
            layer,
            queue,
            output: cuda.allocate(bytes)?,
            poison,
            workspace: cuda.allocate(1 << 20)?,
            values,
            placed: BTreeMap::new(),
            samples,
            agreed: None,
        })
    }

    fn place(&mut self, problem: &Problem, tactic: &Tactic, idx: usize) -> Result<Address, KernelError> {
        let operand = &problem.inputs[idx];
        let key = format!("{idx} {:?} {:?}", operand.packed, operand.strides);
        if !self.placed.contains_key(&key) {
            let bytes = match &operand.packed {
                Some(_) => {
                    let values: Vec<f64> = self.values[idx].iter().map(|value| f64::from(*value)).collect();
                    let tensor = Tensor::from_f64s(operand.dtype, &operand.dims, &values)
                        .map_err(|error| KernelError::unsupported(error.to_string()))?;
                    self.cuda.pack(WeightUse::new(problem, tactic, idx), &tensor)?.bytes
                }
                None => Bytes::from_vec(laid_out(operand, &self.values[idx])),
            };
            let memory = self.cuda.allocate(bytes.len().max(16))?;
            // SAFETY: the memory was made for these bytes.
            unsafe { self.queue.upload(memory.address(), &bytes)? };
            self.placed.insert(key.clone(), memory);
        }
        Ok(self.placed.get(&key).map_or(Address::NULL, |memory| memory.address()))
    }

    /// Runs a candidate, checks its result and times it.
    pub(crate) fn run(&mut self, candidate: &Candidate) -> Result<Outcome, KernelError> {
        let problem = self.layer.problem.for_candidate(candidate);
        let tactic = &candidate.tactic;
        let inputs: Vec<Address> = (0..problem.inputs.len())
            .map(|idx| self.place(&problem, tactic, idx))
            .collect::<Result<_, _>>()?;
        let kernel = self.cuda.prepare(&problem, tactic)?;
        let output = &problem.outputs[0];
        if kernel.workspace_bytes() > self.workspace.len() {
            self.workspace = self.cuda.allocate(kernel.workspace_bytes())?;
        }
        let to = self.output.address();
        let outputs = [to];
        let call = Call {
            inputs: &inputs,
            outputs: &outputs,
            workspace: self.workspace.address(),
            fault: Address::NULL,
        };
        let mut bytes = vec![0u8; output.span_bytes()];
        // SAFETY: all memory was made for the operands and lives until the queue is synchronized below.
        unsafe {
            self.queue.copy(to, self.poison.address(), bytes.len())?;
            kernel.launch(&call, self.queue.as_mut())?;
            self.queue.download(&mut bytes, to)?;
        }
        let error = self.error(output, &bytes);
        self.queue.begin_capture()?;
        let mut launched = Ok(());
        for _ in 0..LAUNCHES {
            // SAFETY: as above.
            launched = launched.and(unsafe { kernel.launch(&call, self.queue.as_mut()) });
        }
        let graph = self.queue.end_capture()?;
        launched?;
        let mut times = Vec::with_capacity(REPLAYS);
        for round in 0..=REPLAYS {
            let (start, end) = (self.cuda.event(true)?, self.cuda.event(true)?);
            self.queue.record_at(start.as_ref())?;
            // SAFETY: as above; the captured graph outlives the queue's work.
            unsafe { self.queue.replay(graph.as_ref())? };
            self.queue.record_at(end.as_ref())?;
            self.queue.synchronize()?;
            if round > 0 {
                times.push(end.ns_since(start.as_ref())? * 1e-3 / LAUNCHES as f64);
            }
        }
        times.sort_by(f64::total_cmp);
        Ok(Outcome { us: times[times.len() / 2], error })
    }

    /// Root of the mean square of errors over that of values: of the samples against exact values, and of all
    /// elements against the first result that was right. NaN where an element was not written.
    fn error(&mut self, output: &Operand, bytes: &[u8]) -> f64 {
        let (mut off, mut size) = (0.0f64, 1e-30f64);
        for (at, exact) in &self.samples {
            let got = f64::from(element(output.dtype, bytes, place_of(output, *at)));
            off += (got - exact).powi(2);
            size += exact * exact;
        }
        let sampled = (off / size).sqrt();
        match &self.agreed {
            Some((strides, agreed)) if *strides == output.strides => {
                sampled.max(distance(output.dtype, bytes, agreed))
            }
            _ => {
                // Against itself every element that was written is at no distance.
                let own = distance(output.dtype, bytes, bytes);
                if own == 0.0 && sampled <= self.layer.tolerance() && self.agreed.is_none() {
                    self.agreed = Some((output.strides.clone(), bytes.to_vec()));
                }
                sampled + own
            }
        }
    }
}

/// Root of the mean square of differences over that of values, on all cores.
fn distance(dtype: DType, got: &[u8], want: &[u8]) -> f64 {
    let threads = std::thread::available_parallelism().map_or(4, usize::from);
    let size = dtype.bytes_for(1).unwrap_or(1);
    let part = (got.len() / size).div_ceil(threads).max(1) * size;
    let sums = std::thread::scope(|scope| {
        let parts: Vec<_> = got
            .chunks(part)
            .zip(want.chunks(part))
            .map(|(got, want)| {
                scope.spawn(move || {
                    let (mut off, mut all) = (0.0f64, 0.0f64);
                    for at in 0..got.len() / size {
                        let (got, want) = (element(dtype, got, at), element(dtype, want, at));
                        off += f64::from(got - want).powi(2);
                        all += f64::from(want).powi(2);
                    }
                    (off, all)
                })
            })
            .collect();
        parts
            .into_iter()
            .map(|part| part.join().unwrap_or((f64::NAN, 0.0)))
            .fold((0.0, 1e-30), |all, part| (all.0 + part.0, all.1 + part.1))
    });
    (sums.0 / sums.1).sqrt()
}

/// The exact value of an element, with all that follows the sum.
fn expected(layer: &Layer, values: &[Vec<f32>], at: usize) -> f64 {
    let out = &layer.problem.outputs[0].dims;
    let is_conv = matches!(layer.problem.region.nodes[0].op, Op::Conv(_));
    let mut sum = layer.exact(values, at);
    let inner: usize = if is_conv { out[2..].iter().product() } else { 1 };
    let channel = at / inner % out[if is_conv { 1 } else { out.len() - 1 }];
    let has_bias = layer.problem.inputs.get(2).is_some_and(|operand| operand.rank() == 1);
    if has_bias {
        sum += f64::from(values[2][channel]);
    }
    for node in &layer.problem.region.nodes[1..] {
        sum = match &node.op {
            Op::Relu(_) => sum.max(0.0),
            Op::Add(_) if node.name == "bias" => sum,
            Op::Add(_) => sum + f64::from(values[3][at]),
            // The kernel's own error function is what is tested, so this one is by a series of its own.
            Op::Gelu(_) => 0.5 * sum * (1.0 + erf(sum * std::f64::consts::FRAC_1_SQRT_2)),
            Op::Swish(_) => sum / (1.0 + (-sum).exp()),
            _ => f64::NAN,
        };
    }
    sum
}

/// By its Taylor series, good to 1e-12 where |x| < 4; 1 beyond.
fn erf(x: f64) -> f64 {
    if x.abs() >= 4.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..120 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

fn rounded(value: f32, dtype: DType) -> f32 {
    match dtype {
        DType::F16 => planish_tensor::f16::from_f32(value).to_f32(),
        DType::BF16 => planish_tensor::bf16::from_f32(value).to_f32(),
        _ => value,
    }
}

/// For each element in the order of the operator its place in memory.
fn places(operand: &Operand) -> impl Iterator<Item = usize> + '_ {
    let mut at = vec![0usize; operand.rank()];
    (0..operand.len()).map(move |idx| {
        if idx > 0 {
            for axis in (0..at.len()).rev() {
                at[axis] += 1;
                if at[axis] < operand.dims[axis] {
                    break;
                }
                at[axis] = 0;
            }
        }
        at.iter().zip(&operand.strides).map(|(place, stride)| place * stride).sum()
    })
}

fn laid_out(operand: &Operand, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0u8; operand.span_bytes()];
    for (place, value) in places(operand).zip(values) {
        match operand.dtype {
            DType::F16 => {
                bytes[2 * place..2 * place + 2]
                    .copy_from_slice(&planish_tensor::f16::from_f32(*value).to_ne_bytes());
            }
            DType::BF16 => {
                bytes[2 * place..2 * place + 2]
                    .copy_from_slice(&planish_tensor::bf16::from_f32(*value).to_ne_bytes());
            }
            _ => bytes[4 * place..4 * place + 4].copy_from_slice(&value.to_ne_bytes()),
        }
    }
    bytes
}

fn element(dtype: DType, bytes: &[u8], place: usize) -> f32 {
    let pair = || [bytes[2 * place], bytes[2 * place + 1]];
    match dtype {
        DType::F16 => planish_tensor::f16::from_ne_bytes(pair()).to_f32(),
        DType::BF16 => planish_tensor::bf16::from_ne_bytes(pair()).to_f32(),
        _ => f32::from_ne_bytes([
            bytes[4 * place],
            bytes[4 * place + 1],
            bytes[4 * place + 2],
            bytes[4 * place + 3],
        ]),
    }
}

/// Where an element, counted in the order of the operator, lies in memory.
fn place_of(operand: &Operand, element: usize) -> usize {
    let (mut rest, mut place) = (element, 0);
    for axis in (0..operand.rank()).rev() {
        place += rest % operand.dims[axis] * operand.strides[axis];
        rest /= operand.dims[axis];
    }
    place
}
