//! Kernels that panic in the middle of a run: the caller gets an error, the next run is right.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use planish::{Bindings, Builder, Device, Value, View};
use planish_cpu::Cpu;
use planish_kernel::{
    Arithmetic, Backend, Budget, Call, Candidate, Compiler, Host, Kernel, KernelError, Memory, MemoryKind,
    PackedWeight, Prices, Problem, Proposal, Queue, QueueOptions, Region, Tactic, Target, Whole,
};
use planish_runtime::{Engine, RunErrorKind};
use planish_tensor::{DType, Tensor};

use crate::common::{ROW, numbers, small_model};

/// Launches left until one panics; none does while it is far from zero.
static LEFT: AtomicUsize = AtomicUsize::new(FAR);
const FAR: usize = usize::MAX / 2;

/// The CPU, with kernels that panic when `LEFT` says so.
#[derive(Debug)]
struct Fragile(Cpu);

#[derive(Debug)]
struct FragileKernel(Box<dyn Kernel>);

impl Kernel for FragileKernel {
    fn workspace_bytes(&self) -> usize {
        self.0.workspace_bytes()
    }

    unsafe fn launch(&self, call: &Call<'_>, queue: &mut dyn Queue) -> Result<(), KernelError> {
        match LEFT.fetch_sub(1, SeqCst) {
            1 => panic!("the fragile kernel broke"),
            // SAFETY: the caller's promise is passed on.
            _ => unsafe { self.0.launch(call, queue) },
        }
    }
}

impl Backend for Fragile {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn target(&self) -> Target {
        self.0.target()
    }

    fn host(&self) -> Option<&dyn Host> {
        Some(self)
    }
}

impl Compiler for Fragile {
    fn regions(&self, whole: &Whole) -> Vec<Proposal> {
        self.0.regions(whole)
    }

    fn candidates(&self, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        self.0.candidates(problem, budget)
    }

    fn pack(
        &self,
        problem: &Problem,
        tactic: &Tactic,
        input: usize,
        weight: &Tensor,
    ) -> Result<PackedWeight, KernelError> {
        self.0.pack(problem, tactic, input, weight)
    }

    fn packed_bytes(&self, format: &str, dtype: DType, dims: &[usize]) -> Option<usize> {
        self.0.packed_bytes(format, dtype, dims)
    }

    fn in_place(&self, problem: &Problem, tactic: &Tactic) -> Vec<(usize, usize)> {
        self.0.in_place(problem, tactic)
    }

    fn sources(&self) -> &'static [&'static str] {
        self.0.sources()
    }

    fn source(&self, tactic: &Tactic) -> &'static str {
        self.0.source(tactic)
    }

    fn prices(&self) -> Prices {
        self.0.prices()
    }

    fn arithmetics(&self) -> &[Arithmetic] {
        self.0.arithmetics()
    }

    fn error_growth(&self, tactic: &Tactic) -> f64 {
        self.0.error_growth(tactic)
    }
}

impl planish_kernel::Device for Fragile {
    fn memory_kind(&self) -> MemoryKind {
        self.0.memory_kind()
    }

    fn prepare(&self, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Kernel>, KernelError> {
        Ok(Box::new(FragileKernel(self.0.prepare(problem, tactic)?)))
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>, KernelError> {
        self.0.allocate(bytes)
    }

    fn queue(&self, options: QueueOptions) -> Result<Box<dyn Queue>, KernelError> {
        self.0.queue(options)
    }

    fn checks_results(&self, tactic: &Tactic) -> bool {
        self.0.checks_results(tactic)
    }
}

impl Host for Fragile {
    fn evaluate(
        &self,
        region: &Region,
        inputs: &[Option<Value>],
        max_bytes: usize,
    ) -> Result<Vec<Value>, KernelError> {
        self.0.evaluate(region, inputs, max_bytes)
    }
}

#[test]
fn a_panic_becomes_an_error_and_the_next_run_is_right() {
    let plan = Builder::from_graph(small_model("batch")).device(Device::Cpu).tune_level(0).build().unwrap();
    let n_steps = plan.record().program.steps.len();
    let engine = Engine::new(plan.record().clone(), vec![Arc::new(Fragile(Cpu::new()))]).unwrap();
    let mut context = engine.context().unwrap();
    let x = numbers(ROW, 61);
    let view = View::new(&[1, 3, 12, 12], &x).unwrap();
    let right = context.run(&[("x", view)]).unwrap().at(0).unwrap().bytes().to_vec();
    for step in 1..=n_steps {
        LEFT.store(step, SeqCst);
        let error = context.run(&[("x", view)]).unwrap_err();
        assert_eq!(*error.kind(), RunErrorKind::Failed);
        assert!(error.to_string().contains("the fragile kernel broke"), "{error}");
        assert!(context.output(0).is_none());
        LEFT.store(step, SeqCst);
        let mut buffer = context.input_buffer("x", &[1, 3, 12, 12]).unwrap();
        buffer.as_mut_slice::<f32>().unwrap().copy_from_slice(&x);
        let (mut back, result) =
            context.run_async(Bindings::new().input("x", buffer)).unwrap().wait_with_buffers();
        assert!(result.unwrap_err().to_string().contains("the fragile kernel broke"));
        assert_eq!(back.input_mut("x").unwrap().as_slice::<f32>().unwrap(), x);
        LEFT.store(FAR, SeqCst);
        let again = context.run(&[("x", view)]).unwrap();
        assert_eq!(again.at(0).unwrap().bytes(), right);
    }
}
