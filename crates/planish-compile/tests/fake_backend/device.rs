//! A device that is none: memory apart from the process's, streams that run when they get to it, a few kernels.
//!
//! Its addresses are numbers that no pointer has, so that host code which follows one is stopped at once. Each
//! queue is a thread; work on it begins late, so that whoever forgets to wait reads what is not there yet.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use planish_cpu::evaluate_region;
use planish_kernel::{
    Address, Backend, Call, Candidate, Event, Kernel, KernelError, KernelErrorKind, Layout, Memory,
    MemoryKind, Operand, PackedWeight, Problem, Proposal, Queue, QueueOptions, Region, Tactic, Target, Want,
    Whole,
};
use planish_op::{Op, Value};
use planish_tensor::{DType, Tensor};

/// The first address: not canonical on x86-64, so no pointer can be it.
const BASE: u64 = 0xFA4E_0000_0000_0000;
/// Between allocations, so that what runs over the end of one does not reach the next.
const GAP: u64 = 4096;
/// How late a queue begins each piece of work.
const DELAY: Duration = Duration::from_micros(300);
/// How right-hand sides of products are packed: transposed.
const TRANSPOSED: &str = "fake_transposed";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(message: impl Into<String>) -> KernelError {
    KernelError::new(KernelErrorKind::Failed, message)
}

/// The device's memory: allocations by their first address.
#[derive(Debug, Default)]
struct Table {
    blocks: Mutex<BTreeMap<u64, Vec<u8>>>,
    next: AtomicU64,
    /// Work done on each queue, counted over all queues.
    n_done: AtomicUsize,
    n_waits: AtomicUsize,
}

impl Table {
    fn with<T>(
        &self,
        address: Address,
        n_bytes: usize,
        act: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<T, KernelError> {
        let mut blocks = lock(&self.blocks);
        let outside = || failed(format!("{n_bytes} bytes at {:x} are no memory of this device", address.0));
        let (start, block) = blocks.range_mut(..=address.0).next_back().ok_or_else(outside)?;
        let offset = (address.0 - start) as usize;
        let range = offset..offset.checked_add(n_bytes).ok_or_else(outside)?;
        block.get_mut(range).map(act).ok_or_else(outside)
    }

    fn read(&self, address: Address, n_bytes: usize) -> Result<Vec<u8>, KernelError> {
        if n_bytes == 0 { Ok(Vec::new()) } else { self.with(address, n_bytes, |bytes| bytes.to_vec()) }
    }

    fn write(&self, address: Address, from: &[u8]) -> Result<(), KernelError> {
        if from.is_empty() {
            Ok(())
        } else {
            self.with(address, from.len(), |bytes| bytes.copy_from_slice(from))
        }
    }
}

/// The backend.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fake {
    table: Arc<Table>,
}

impl Fake {
    /// Pieces of work that queues have done.
    pub(crate) fn n_done(&self) -> usize {
        self.table.n_done.load(Ordering::Relaxed)
    }

    /// Events that queues have waited for.
    pub(crate) fn n_waits(&self) -> usize {
        self.table.n_waits.load(Ordering::Relaxed)
    }

    /// Allocations that nobody has given back.
    pub(crate) fn n_blocks(&self) -> usize {
        lock(&self.table.blocks).len()
    }
}

#[derive(Debug)]
struct FakeMemory {
    table: Arc<Table>,
    start: u64,
    len: usize,
}

impl Memory for FakeMemory {
    fn address(&self) -> Address {
        Address(self.start)
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for FakeMemory {
    fn drop(&mut self) {
        lock(&self.table.blocks).remove(&self.start);
    }
}

type Work = Box<dyn FnOnce(&Table) -> Result<(), KernelError> + Send>;

#[derive(Debug)]
struct FakeQueue {
    table: Arc<Table>,
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
    error: Arc<Mutex<Option<KernelError>>>,
}

#[derive(Clone, Debug, Default)]
struct Reached {
    flag: Arc<(Mutex<bool>, Condvar)>,
}

impl Reached {
    fn set(&self) {
        *lock(&self.flag.0) = true;
        self.flag.1.notify_all();
    }

    fn wait(&self) {
        let mut reached = lock(&self.flag.0);
        while !*reached {
            reached = self.flag.1.wait(reached).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Event for Reached {
    fn is_reached(&self) -> Result<bool, KernelError> {
        Ok(*lock(&self.flag.0))
    }

    fn wait(&self) -> Result<(), KernelError> {
        Reached::wait(self);
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl FakeQueue {
    fn new(table: Arc<Table>) -> FakeQueue {
        let (work, orders) = channel::<Work>();
        let error = Arc::new(Mutex::new(None));
        let (shared, seen) = (table.clone(), error.clone());
        let thread = std::thread::spawn(move || {
            for work in orders {
                std::thread::sleep(DELAY);
                if let Err(error) = work(&shared) {
                    lock(&seen).get_or_insert(error);
                }
                shared.n_done.fetch_add(1, Ordering::Relaxed);
            }
        });
        FakeQueue { table, work: Some(work), thread: Some(thread), error }
    }

    fn push(
        &self,
        work: impl FnOnce(&Table) -> Result<(), KernelError> + Send + 'static,
    ) -> Result<(), KernelError> {
        let queue = self.work.as_ref().ok_or_else(|| failed("the queue is closed"))?;
        queue.send(Box::new(work)).map_err(|_| failed("the queue's thread is gone"))
    }
}

impl Drop for FakeQueue {
    fn drop(&mut self) {
        drop(self.work.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Queue for FakeQueue {
    unsafe fn upload(&mut self, to: Address, from: &[u8]) -> Result<(), KernelError> {
        let bytes = from.to_vec();
        self.push(move |table| table.write(to, &bytes))
    }

    unsafe fn download(&mut self, to: &mut [u8], from: Address) -> Result<(), KernelError> {
        self.synchronize()?;
        to.copy_from_slice(&self.table.read(from, to.len())?);
        Ok(())
    }

    unsafe fn copy(&mut self, to: Address, from: Address, bytes: usize) -> Result<(), KernelError> {
        self.push(move |table| table.write(to, &table.read(from, bytes)?))
    }

    fn synchronize(&mut self) -> Result<(), KernelError> {
        let here = Reached::default();
        let reached = here.clone();
        self.push(move |_| {
            reached.set();
            Ok(())
        })?;
        here.wait();
        lock(&self.error).take().map_or(Ok(()), Err)
    }

    fn record(&mut self) -> Result<Box<dyn Event>, KernelError> {
        let here = Reached::default();
        let reached = here.clone();
        self.push(move |_| {
            reached.set();
            Ok(())
        })?;
        Ok(Box::new(here))
    }

    fn wait_for(&mut self, event: &dyn Event) -> Result<(), KernelError> {
        let event = event.as_any().downcast_ref::<Reached>();
        let event = event.ok_or_else(|| failed("an event of another backend"))?.clone();
        self.push(move |table| {
            event.wait();
            table.n_waits.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl Backend for Fake {
    fn name(&self) -> &str {
        "fake"
    }

    fn target(&self) -> Target {
        Target { backend: "fake".into(), needs: vec!["threads".into()], device: "a thread per stream".into() }
    }

    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Device
    }

    /// A product with the Relu that alone reads it.
    fn regions(&self, whole: &Whole) -> Vec<Proposal> {
        let nodes = &whole.region.nodes;
        let pair = |main: u32| {
            let user = whole.only_user(main)?;
            let fits = matches!(nodes[main as usize].op, Op::MatMul(_))
                && matches!(nodes[user as usize].op, Op::Relu(_));
            fits.then(|| Proposal { nodes: vec![main, user], main })
        };
        (0..nodes.len() as u32).filter_map(pair).collect()
    }

    /// Add and Relu in place, products over packed weights, Mul in channels-last where there are channels.
    fn candidates(&self, problem: &Problem) -> Vec<Candidate> {
        let all_f32 =
            problem.inputs.iter().chain(&problem.outputs).all(|operand| operand.dtype == DType::F32);
        let known = |op: &Op| matches!(op, Op::Add(_) | Op::Relu(_) | Op::MatMul(_) | Op::Mul(_));
        if !all_f32 || !problem.region.nodes.iter().all(|node| known(&node.op)) {
            return Vec::new();
        }
        let op = &problem.region.nodes[0].op;
        let same_rank = problem.inputs.iter().all(|input| input.rank() == problem.outputs[0].rank());
        let layout = match op {
            Op::Mul(_) if problem.outputs[0].rank() == 4 && same_rank => Layout::ChannelsLast,
            _ => Layout::Plain,
        };
        let mut packed = vec![None; problem.inputs.len()];
        if matches!(op, Op::MatMul(_)) && problem.inputs[1].constant && problem.inputs[1].rank() == 2 {
            packed[1] = Some(TRANSPOSED.to_string());
        }
        let in_place = match op {
            Op::Relu(_) => vec![(0, 0)],
            _ => Vec::new(),
        };
        vec![Candidate {
            tactic: Tactic::new(format!("fake_{}", problem.region.ops()), 1),
            inputs: vec![Want::dense(layout); problem.inputs.len()],
            outputs: vec![Want::dense(layout); problem.outputs.len()],
            packed,
            predicted_ns: 1_000.0,
            in_place,
            slow: false,
        }]
    }

    fn pack(
        &self,
        _problem: &Problem,
        tactic: &Tactic,
        input: usize,
        weight: &Tensor,
    ) -> Result<PackedWeight, KernelError> {
        let &[rows, columns] = weight.shape() else {
            return Err(KernelError::unsupported(format!("{tactic} packs no input {input}")));
        };
        Ok(PackedWeight { format: TRANSPOSED.into(), bytes: transposed(weight.bytes(), rows, columns) })
    }

    fn packed_bytes(&self, format: &str, dtype: DType, dims: &[usize]) -> Option<usize> {
        let n: usize = dims.iter().product();
        (format == TRANSPOSED && dims.len() == 2).then(|| dtype.bytes_for(n))?
    }

    fn unpack(
        &self,
        _format: &str,
        dtype: DType,
        dims: &[usize],
        bytes: &[u8],
    ) -> Result<Tensor, KernelError> {
        tensor(&Operand::dense(dtype, dims, Layout::Plain), transposed(bytes, dims[1], dims[0]))
    }

    fn prepare(&self, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Kernel>, KernelError> {
        if !tactic.name.starts_with("fake_") {
            let message = format!("the fake backend has no tactic `{tactic}`");
            return Err(KernelError::new(KernelErrorKind::NoSuchTactic, message));
        }
        Ok(Box::new(FakeKernel { problem: Arc::new(problem.clone()) }))
    }

    fn evaluate(&self, region: &Region, inputs: &[Option<Value>]) -> Result<Vec<Value>, KernelError> {
        evaluate_region(region, inputs)
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>, KernelError> {
        let room = (bytes as u64).next_multiple_of(GAP) + GAP;
        let start = BASE + self.table.next.fetch_add(room, Ordering::Relaxed);
        lock(&self.table.blocks).insert(start, vec![0xAA; bytes]);
        Ok(Box::new(FakeMemory { table: self.table.clone(), start, len: bytes }))
    }

    fn queue(&self, _options: QueueOptions) -> Result<Box<dyn Queue>, KernelError> {
        Ok(Box::new(FakeQueue::new(self.table.clone())))
    }
}

#[derive(Debug)]
struct FakeKernel {
    problem: Arc<Problem>,
}

impl Kernel for FakeKernel {
    /// More than it needs, so that workspaces take part in the arena.
    fn workspace_bytes(&self) -> usize {
        128
    }

    unsafe fn launch(&self, call: &Call<'_>, queue: &mut dyn Queue) -> Result<(), KernelError> {
        let queue = queue.as_any().downcast_mut::<FakeQueue>();
        let queue = queue.ok_or_else(|| failed("a fake kernel was launched on another backend's queue"))?;
        let (inputs, outputs) = (call.inputs.to_vec(), call.outputs.to_vec());
        let (problem, workspace) = (self.problem.clone(), call.workspace);
        queue.push(move |table| {
            // Scratch is anybody's between launches; writing it shows what should not have been there.
            table.write(workspace, &[0x55; 128])?;
            let mut values = Vec::new();
            for (operand, &address) in problem.inputs.iter().zip(&inputs) {
                let bytes = table.read(address, operand.span_bytes())?;
                let plain = match (&operand.packed, &operand.dims[..]) {
                    (Some(_), &[rows, columns]) => transposed(&bytes, columns, rows),
                    _ => gathered(operand, &bytes),
                };
                values.push(Some(Value::Tensor(tensor(operand, plain)?)));
            }
            let results = evaluate_region(&problem.region, &values)?;
            for ((operand, &address), value) in problem.outputs.iter().zip(&outputs).zip(results) {
                let result = value.as_tensor().ok_or_else(|| failed("no tensor"))?;
                let mut bytes = table.read(address, operand.span_bytes())?;
                for (offset, element) in offsets(operand).zip(result.bytes().chunks(4)) {
                    bytes[offset * 4..offset * 4 + 4].copy_from_slice(element);
                }
                table.write(address, &bytes)?;
            }
            Ok(())
        })
    }
}

fn transposed(bytes: &[u8], rows: usize, columns: usize) -> Vec<u8> {
    let place = |column: usize, row: usize| (row * columns + column) * 4;
    let all = (0..columns).flat_map(|column| (0..rows).map(move |row| (column, row)));
    all.flat_map(|(column, row)| bytes[place(column, row)..place(column, row) + 4].to_vec()).collect()
}

fn offsets(operand: &Operand) -> impl Iterator<Item = usize> {
    let (dims, strides) = (operand.dims.clone(), operand.strides.clone());
    (0..operand.len()).map(move |flat| {
        let mut rest = flat;
        let mut offset = 0;
        for axis in (0..dims.len()).rev() {
            offset += rest % dims[axis] * strides[axis];
            rest /= dims[axis];
        }
        offset
    })
}

fn gathered(operand: &Operand, bytes: &[u8]) -> Vec<u8> {
    offsets(operand).flat_map(|offset| bytes[offset * 4..offset * 4 + 4].to_vec()).collect()
}

fn tensor(operand: &Operand, bytes: Vec<u8>) -> Result<Tensor, KernelError> {
    let elements = bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
    Tensor::new::<f32>(&operand.dims, elements).map_err(|error| failed(error.to_string()))
}
