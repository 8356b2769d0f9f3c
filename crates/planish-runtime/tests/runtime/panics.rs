//! Kernels that panic in the middle of a run: the caller gets an error, the next run is right.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use planish::{Bindings, Builder, Device, View};
use planish_cpu::Cpu;
use planish_kernel::{Call, Kernel, KernelError, Problem, Queue, Tactic};
use planish_runtime::{Engine, RunErrorKind};
use planish_testing::{Altered, Change};

use crate::common::{ROW, numbers, small_model};

/// Launches left until one panics; none does while it is far from zero.
static LEFT: AtomicUsize = AtomicUsize::new(FAR);
const FAR: usize = usize::MAX / 2;

/// Has kernels panic when `LEFT` says so.
#[derive(Debug)]
struct Fragile;

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

impl Change for Fragile {
    fn kernel(&self, _: &Problem, _: &Tactic, kernel: Box<dyn Kernel>) -> Box<dyn Kernel> {
        Box::new(FragileKernel(kernel))
    }
}

#[test]
fn a_panic_becomes_an_error_and_the_next_run_is_right() {
    let plan = Builder::from_graph(small_model("batch")).device(Device::Cpu).tune_level(0).build().unwrap();
    let n_steps = plan.record().program.steps.len();
    let engine =
        Engine::new(plan.record().clone(), vec![Arc::new(Altered::new(Cpu::new(), Fragile))]).unwrap();
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
