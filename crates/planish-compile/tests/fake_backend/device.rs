//! A device that is none: memory apart from the process's, streams that run when they get to it, a few kernels that
//! need code.
//!
//! Its addresses are numbers that no pointer has, so that host code which follows one is stopped at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use planish_cpu::evaluate_region;
use planish_kernel::{
    Address, Arithmetic, Backend, Budget, Call, Candidate, Code, Compiler, Device, Event, Fault, Kernel,
    KernelError, KernelErrorKind, Layout, Memory, MemoryInfo, MemoryKind, OWN_SOURCE, Operand, PackedForm,
    PackedWeight, Prices, Problem, Proposal, Queue, QueueOptions, Tactic, Target, Want, WeightUse, Whole,
};
use planish_op::{Op, Value};
use planish_tensor::{Bytes, DType, Tensor};
use planish_testing::operand;

use crate::queue::{FakeMemory, FakePinned, FakeQueue, Reached, Table, failed, lock};

/// The first address: not canonical on x86-64, so no pointer can be it.
const BASE: u64 = 0xFA4E_0000_0000_0000;
/// What it says that it has.
const MEMORY: usize = 1 << 30;
/// How long a kernel takes that is not quick.
const WORK: Duration = Duration::from_micros(500);
/// Between allocations, so that what runs over the end of one does not reach the next.
const GAP: u64 = 4096;
/// How right-hand sides of products are packed: transposed.
pub(crate) const TRANSPOSED: &str = "fake_transposed";

/// The backend.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fake {
    table: Arc<Table>,
    /// The code of one engine: what its plan brought, by key.
    brought: Arc<BTreeMap<String, Bytes>>,
    /// Engines and builds whose code is not given back yet: each set of code holds one of these.
    code_sets: Arc<()>,
    /// Whether there is no compiler, so that all code must be brought.
    bare: Arc<AtomicBool>,
    /// Whether transfers cost what they cost on a bus; else nothing, so that it is given even the least steps.
    far: Arc<AtomicBool>,
    /// Whether a library proposes what it then refuses.
    refusing: Arc<AtomicBool>,
    /// Streams of a caller's own.
    streams: Arc<Mutex<BTreeMap<u64, FakeQueue>>>,
}

impl Fake {
    /// Has branches of captured graphs forget what they were to wait for.
    pub(crate) fn forget_waits(&self) {
        self.table.forgets_waits.store(true, Ordering::Relaxed);
    }

    /// Pieces of work that queues have done.
    pub(crate) fn n_done(&self) -> usize {
        self.table.n_done.load(Ordering::Relaxed)
    }

    /// Keeps all queues from going on until the guard is dropped.
    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        lock(&self.table.gate)
    }

    /// Has the `n`th launch from now on panic.
    pub(crate) fn panic_at_launch(&self, n: usize) {
        self.table.until_panic.store(n, Ordering::Relaxed);
    }

    /// Has everybody panic who waits for a queue, or not.
    pub(crate) fn panic_in_waits(&self, panics: bool) {
        self.table.panics_in_waits.store(panics, Ordering::Relaxed);
    }

    /// From here on nothing works any more.
    pub(crate) fn lose(&self) {
        self.table.is_lost.store(true, Ordering::Relaxed);
    }

    /// Captured graphs that were begun and not ended.
    pub(crate) fn n_capturing(&self) -> usize {
        self.table.n_capturing.load(Ordering::Relaxed)
    }

    /// A device without a compiler.
    pub(crate) fn bare() -> Fake {
        let fake = Fake::default();
        fake.bare.store(true, Ordering::Relaxed);
        fake
    }

    /// A device behind a bus.
    pub(crate) fn far() -> Fake {
        let fake = Fake::default();
        fake.far.store(true, Ordering::Relaxed);
        fake
    }

    /// A device with a library that proposes the best there is for everything, and can do none of it.
    pub(crate) fn with_refusing_library() -> Fake {
        let fake = Fake::default();
        fake.refusing.store(true, Ordering::Relaxed);
        fake
    }

    /// Kernels launched outside captured graphs; captured graphs made; captured graphs replayed.
    pub(crate) fn launches(&self) -> (usize, usize, usize) {
        let count = |count: &std::sync::atomic::AtomicUsize| count.load(Ordering::Relaxed);
        (count(&self.table.n_launches), count(&self.table.n_recorded), count(&self.table.n_replayed))
    }

    /// A device with managed memory.
    pub(crate) fn with_managed_memory() -> Fake {
        let fake = Fake::default();
        *lock(&fake.table.managed) = Some(Vec::new());
        fake
    }

    /// The pieces of managed memory that were asked for.
    pub(crate) fn managed(&self) -> Vec<usize> {
        lock(&self.table.managed).clone().unwrap_or_default()
    }

    /// The ranges since the last call, each with how many it lies in.
    pub(crate) fn ranges(&self) -> Vec<(usize, String)> {
        let (n_open, begun) = &mut *lock(&self.table.ranges);
        assert_eq!(*n_open, 0, "a range was not ended");
        std::mem::take(begun)
    }

    /// Copies from and to host memory.
    pub(crate) fn n_copies(&self) -> usize {
        self.table.n_copies.load(Ordering::Relaxed)
    }

    /// A stream of the caller's own, by a number as foreign interfaces have them.
    pub(crate) fn stream(&self) -> u64 {
        let mut streams = lock(&self.streams);
        let handle = 0x5000 + streams.len() as u64;
        streams.insert(handle, FakeQueue::new(self.table.clone()));
        handle
    }

    /// Waits for a stream of the caller's own.
    pub(crate) fn synchronize(&self, stream: u64) {
        lock(&self.streams).get_mut(&stream).unwrap().synchronize().unwrap();
    }

    /// Sets of code that engines and builds still have, or their kernels.
    pub(crate) fn n_code_sets(&self) -> usize {
        Arc::strong_count(&self.code_sets)
    }

    /// Allocations that nobody has given back.
    pub(crate) fn n_blocks(&self) -> usize {
        lock(&self.table.blocks).len() + lock(&self.table.pinned).len()
    }
}

/// A device far away: transfers are dear, launches cheap.
pub(crate) const PRICES: Prices = Prices {
    step_ns: 300.0,
    reorder_ns: 2_500.0,
    reorder_ns_per_byte: 0.001,
    transfer_ns_per_byte: 0.04,
    transfer_ns: 8_000.0,
};

impl Backend for Fake {
    fn name(&self) -> &str {
        "fake"
    }

    fn target(&self) -> Target {
        Target { backend: "fake".into(), needs: vec!["threads".into()], device: "a thread per stream".into() }
    }

    fn with_code(&self, code: &[Code]) -> Result<Option<Arc<dyn Backend>>, KernelError> {
        let brought = code.iter().map(|code| (code.key.clone(), code.bytes.clone())).collect();
        Ok(Some(Arc::new(Fake { brought: Arc::new(brought), ..self.clone() })))
    }

    fn provides(&self, need: &str) -> bool {
        need == "threads" || need == "fake_multiplier"
    }
}

impl Compiler for Fake {
    fn prices(&self) -> Prices {
        match self.far.load(Ordering::Relaxed) {
            true => PRICES,
            false => Prices { transfer_ns: 0.0, transfer_ns_per_byte: 0.0, ..PRICES },
        }
    }

    /// A product with the Relu that alone reads it.
    fn regions(&self, whole: &Whole) -> Vec<Proposal> {
        let nodes = &whole.region.nodes;
        let pair = |main: u32| {
            let user = whole.only_user(main)?;
            let fits = matches!(nodes[main as usize].op, Op::MatMul(_))
                && matches!(nodes[user as usize].op, Op::Relu(_));
            fits.then(|| Proposal { nodes: vec![main, user] })
        };
        (0..nodes.len() as u32).filter_map(pair).collect()
    }

    /// Add and Relu in place, products over packed weights, Mul in channels-last where there are channels.
    fn candidates(&self, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let is_float = |operand: &Operand| matches!(operand.dtype, DType::F32 | DType::F16);
        let is_lookup = match (&problem.region.nodes[0].op, &problem.inputs[..]) {
            (Op::Gather(op), [data, index]) => {
                op.axis == 0 && data.dtype == DType::F32 && index.dtype == DType::I64
            }
            _ => false,
        };
        let all_float = problem.inputs.iter().chain(&problem.outputs).all(is_float) || is_lookup;
        let known = |op: &Op| {
            matches!(op, Op::Add(_) | Op::Relu(_) | Op::MatMul(_) | Op::Mul(_) | Op::Cast(_)) || is_lookup
        };
        if !all_float || !problem.region.nodes.iter().all(|node| known(&node.op)) {
            return Vec::new();
        }
        let op = &problem.region.nodes[0].op;
        let same_rank = problem.inputs.iter().all(|input| input.rank() == problem.outputs[0].rank());
        let layout = match op {
            Op::Mul(_) if problem.outputs[0].rank() == 4 && same_rank => Layout::ChannelsLast,
            _ => Layout::Plain,
        };
        let (packed, in_place) = (formats(problem), in_place(problem));
        let candidate = |name: &str, predicted_ns: f64| Candidate {
            packed: packed.clone(),
            in_place: in_place.clone(),
            ..Candidate::new(
                Tactic::new(format!("{name}_{}", problem.region.ops()), 1),
                vec![Want::dense(layout); problem.inputs.len()],
                vec![Want::dense(layout); problem.outputs.len()],
                predicted_ns,
            )
        };
        // What the cost model likes less is what is faster: it takes a measurement to see that.
        let mut list = vec![candidate("fake", 1_000.0), candidate("fake_quick", 1_500.0)];
        if self.refusing.load(Ordering::Relaxed) {
            list.push(candidate("cudnn_e1", 900.0));
            list.push(candidate("cudnn_e2", 950.0));
        }
        list
    }

    fn pack(&self, used: WeightUse<'_>, weight: &Tensor) -> Result<PackedWeight, KernelError> {
        let &[rows, columns] = weight.shape() else {
            let WeightUse { tactic, input, .. } = used;
            return Err(KernelError::unsupported(format!("{tactic} packs no input {input}")));
        };
        let size = weight.dtype().bytes_for(1).unwrap_or(4);
        let bytes = Bytes::from_vec(transposed(weight.bytes(), rows, columns, size));
        Ok(PackedWeight { format: TRANSPOSED.into(), bytes })
    }

    fn packed_bytes(&self, PackedForm { format, dtype, dims }: PackedForm<'_>) -> Option<usize> {
        let n: usize = dims.iter().product();
        (format == TRANSPOSED && dims.len() == 2).then(|| dtype.bytes_for(n))?
    }

    fn unpack(&self, form: PackedForm<'_>, bytes: &[u8]) -> Result<Tensor, KernelError> {
        let PackedForm { dtype, dims, .. } = form;
        let size = dtype.bytes_for(1).unwrap_or(4);
        tensor(&Operand::dense(dtype, dims, Layout::Plain), transposed(bytes, dims[1], dims[0], size))
    }

    fn in_place(&self, problem: &Problem, _tactic: &Tactic) -> Vec<(usize, usize)> {
        in_place(problem)
    }

    /// Code by operators, whatever the sizes.
    fn code(&self, problem: &Problem, tactic: &Tactic) -> Result<Vec<Code>, KernelError> {
        let key = format!("{tactic} {}", problem.numeric.element.name());
        let bytes = Bytes::from_vec(key.clone().into_bytes());
        Ok(vec![Code { key, bytes }])
    }

    fn tactic_needs(&self, tactic: &Tactic) -> Vec<String> {
        if tactic.name.contains("Mul") { vec!["fake_multiplier".to_string()] } else { Vec::new() }
    }

    fn sources(&self) -> &'static [&'static str] {
        &[OWN_SOURCE, "cudnn"]
    }

    fn source(&self, tactic: &Tactic) -> &'static str {
        if tactic.name.starts_with("cudnn_") { "cudnn" } else { OWN_SOURCE }
    }

    fn arithmetics(&self) -> &[Arithmetic] {
        &[Arithmetic::F32, Arithmetic::Tf32, Arithmetic::F16, Arithmetic::Bf16]
    }
}

impl Device for Fake {
    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Device
    }

    fn memory_space(&self) -> usize {
        Arc::as_ptr(&self.table).addr()
    }

    fn prepare(&self, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Kernel>, KernelError> {
        problem.check_packed(tactic, &formats(problem))?;
        if !tactic.name.starts_with("fake_") {
            let message = format!("the fake backend has no tactic `{tactic}`");
            return Err(KernelError::new(KernelErrorKind::NoSuchTactic, message));
        }
        let mut is_true = true;
        for Code { key, bytes } in self.code(problem, tactic)? {
            match self.brought.get(&key) {
                Some(brought) => is_true &= **brought == *bytes,
                None if self.bare.load(Ordering::Relaxed) => {
                    return Err(failed(format!("there is no code `{key}` and no compiler")));
                }
                None => {}
            }
        }
        let is_quick = tactic.name.starts_with("fake_quick_");
        Ok(Box::new(FakeKernel { problem: Arc::new(problem.clone()), is_quick, is_true }))
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>, KernelError> {
        let free = self.memory_info().map_or(0, |info| info.free);
        if bytes > free {
            let message = format!("{bytes} bytes of memory could not be had: {free} are free");
            return Err(KernelError::new(KernelErrorKind::OutOfMemory, message));
        }
        let room = (bytes as u64).next_multiple_of(GAP) + GAP;
        let start = BASE + self.table.next.fetch_add(room, Ordering::Relaxed);
        lock(&self.table.blocks).insert(start, vec![0xAA; bytes]);
        Ok(Box::new(FakeMemory { table: self.table.clone(), start, len: bytes }))
    }

    fn allocate_managed(&self, bytes: usize) -> Result<Box<dyn Memory>, KernelError> {
        let mut managed = lock(&self.table.managed);
        let managed =
            managed.as_mut().ok_or_else(|| KernelError::unsupported("fake has no managed memory"))?;
        managed.push(bytes);
        let free = self.memory_info().map_or(0, |info| info.free);
        if bytes > free {
            let message = format!("{bytes} bytes of managed memory could not be had: {free} are free");
            return Err(KernelError::new(KernelErrorKind::OutOfMemory, message));
        }
        self.allocate(bytes)
    }

    fn queue(&self, _options: QueueOptions) -> Result<Box<dyn Queue>, KernelError> {
        Ok(Box::new(FakeQueue::new(self.table.clone())))
    }

    fn allocate_pinned(&self, bytes: usize) -> Result<Option<Box<dyn Memory>>, KernelError> {
        Ok(Some(Box::new(FakePinned::new(self.table.clone(), bytes))))
    }

    fn memory_info(&self) -> Option<MemoryInfo> {
        let used: usize = lock(&self.table.blocks).values().map(Vec::len).sum();
        Some(MemoryInfo { free: MEMORY - used.min(MEMORY), total: MEMORY, pooled: used })
    }

    fn event(&self, _timed: bool) -> Result<Box<dyn Event>, KernelError> {
        Ok(Box::new(Reached::default()))
    }

    unsafe fn queue_over(&self, stream: u64, _options: QueueOptions) -> Result<Box<dyn Queue>, KernelError> {
        let streams = lock(&self.streams);
        let stream = streams.get(&stream).ok_or_else(|| failed(format!("{stream:x} is not a stream")))?;
        Ok(Box::new(stream.sharing()))
    }
}

/// Products read a constant matrix transposed.
fn formats(problem: &Problem) -> Vec<Option<String>> {
    let is_product = matches!(problem.region.nodes[0].op, Op::MatMul(_));
    let is_read = |(idx, input): (usize, &Operand)| {
        (is_product && idx == 1 && input.constant && input.rank() == 2).then(|| TRANSPOSED.to_string())
    };
    problem.inputs.iter().enumerate().map(is_read).collect()
}

/// Relu writes over its input.
fn in_place(problem: &Problem) -> Vec<(usize, usize)> {
    match problem.region.nodes[0].op {
        Op::Relu(_) => vec![(0, 0)],
        _ => Vec::new(),
    }
}

#[derive(Debug)]
struct FakeKernel {
    problem: Arc<Problem>,
    is_quick: bool,
    /// Whether its code is what a compiler makes of its source. Other code writes zeros.
    is_true: bool,
}

impl Kernel for FakeKernel {
    /// More than it needs, so that workspaces take part in the arena.
    fn workspace_bytes(&self) -> usize {
        128
    }

    fn may_fault(&self) -> bool {
        matches!(self.problem.region.nodes[0].op, Op::Gather(_))
    }

    unsafe fn launch(&self, call: &Call<'_>, queue: &mut dyn Queue) -> Result<(), KernelError> {
        let queue = queue.as_any().downcast_mut::<FakeQueue>();
        let queue = queue.ok_or_else(|| failed("a fake kernel was launched on another backend's queue"))?;
        let (inputs, outputs) = (call.inputs.to_vec(), call.outputs.to_vec());
        let (problem, workspace, is_quick) = (self.problem.clone(), call.workspace, self.is_quick);
        let (is_true, fault) = (self.is_true, call.fault);
        queue.count_launch();
        queue.push(move |table| {
            if !is_quick {
                table.spend(WORK);
            }
            // Workspace is anybody's between launches; writing it shows what should not have been there.
            table.write(workspace, &[0x55; 128])?;
            let mut values = Vec::new();
            for (operand, &address) in problem.inputs.iter().zip(&inputs) {
                let bytes = table.read(address, operand.span_bytes())?;
                values.push(Some(Value::Tensor(match (&operand.packed, &operand.dims[..]) {
                    (Some(_), &[rows, columns]) => {
                        tensor(operand, transposed(&bytes, columns, rows, element_size(operand)))?
                    }
                    _ => operand::read(operand, &bytes),
                })));
            }
            if let (Op::Gather(_), Some(Some(Value::Tensor(index)))) =
                (&problem.region.nodes[0].op, values.get_mut(1))
            {
                *index = brought_inside(index, problem.inputs[0].dims[0], fault);
            }
            let results = evaluate_region(&problem.region, &values, usize::MAX)?;
            for ((operand, &address), value) in problem.outputs.iter().zip(&outputs).zip(results) {
                let result = value.as_tensor().ok_or_else(|| failed("no tensor"))?;
                let mut bytes = table.read(address, operand.span_bytes())?;
                operand::write(operand, result, &mut bytes);
                if !is_true {
                    bytes.fill(0);
                }
                table.write(address, &bytes)?;
            }
            Ok(())
        })
    }
}

/// Indices of an axis, those outside brought inside and told, as a kernel on a device does it.
fn brought_inside(index: &Tensor, size: usize, fault: Address) -> Tensor {
    let size = size as i64;
    let inside = |index: i64| {
        let place = if index < 0 { index + size } else { index };
        if !(0..size).contains(&place) && fault != Address::NULL {
            let word = Fault { index: index as i32, size: size as u32 }.word();
            let to = std::ptr::with_exposed_provenance_mut::<u64>(fault.0 as usize);
            // SAFETY: the runtime gave the address of a word in pinned memory, which is there until the run was
            // waited for.
            unsafe { to.write_volatile(word) };
        }
        place.clamp(0, size - 1)
    };
    Tensor::new(index.shape(), index.to_i64s().into_iter().map(inside).collect()).unwrap()
}

fn element_size(operand: &Operand) -> usize {
    operand.dtype.bytes_for(1).unwrap_or(4)
}

fn transposed(bytes: &[u8], rows: usize, columns: usize, size: usize) -> Vec<u8> {
    let place = |column: usize, row: usize| (row * columns + column) * size;
    let all = (0..columns).flat_map(|column| (0..rows).map(move |row| (column, row)));
    all.flat_map(|(column, row)| bytes[place(column, row)..place(column, row) + size].to_vec()).collect()
}

fn tensor(operand: &Operand, bytes: Vec<u8>) -> Result<Tensor, KernelError> {
    let tensor = Tensor::from_bytes(operand.dtype, &operand.dims, Bytes::from_vec(bytes));
    tensor.map_err(|error| failed(error.to_string()))
}
