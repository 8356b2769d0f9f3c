//! The steps of a plan as C sees them.

use std::ffi::{CString, c_char};

use planish::record::{Plan, kernel_of};
use planish::{Error, ErrorKind};

use crate::given::{Crossing, c_text, write};

/// A step of a plan: what TensorRT calls a layer. Set `size` to `sizeof(PlanishStep)`; the library fills in the rest.
/// Texts are valid as long as the engine that was asked.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlanishStep {
    /// Of this structure.
    pub size: usize,
    /// The layers of the model that it computes; may be empty.
    pub name: *const c_char,
    /// Its operators, `Conv+Relu` say.
    pub operators: *const c_char,
    /// The kernel that computes it, or how else it is run.
    pub kernel: *const c_char,
    /// How long it took, where it was timed; else 0.
    pub nanoseconds: u64,
}

// SAFETY: its size first; it is only given out.
unsafe impl Crossing for PlanishStep {
    const NAME: &'static str = "PlanishStep";
    const FIRST_SIZE: usize = size_of::<PlanishStep>();
}

/// The texts of a step.
#[derive(Debug)]
struct Words {
    name: CString,
    operators: CString,
    kernel: CString,
}

/// The texts of all steps.
#[derive(Debug)]
pub(crate) struct Steps {
    all: Vec<Words>,
}

impl Steps {
    pub(crate) fn new(plan: &Plan) -> Steps {
        let words = |step: &planish::record::Step| Words {
            name: c_text(&step.name),
            operators: c_text(&step.region.ops()),
            kernel: c_text(&kernel_of(step)),
        };
        Steps { all: plan.program.steps.iter().map(words).collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// A step for C.
    pub(crate) fn step(&self, index: usize, nanoseconds: u64) -> Result<PlanishStep, Error> {
        let Some(Words { name, operators, kernel }) = self.all.get(index) else {
            let message = format!("there is no step {index}; there are {}, counted from 0", self.len());
            return Err(Error::new(ErrorKind::BadOption, message));
        };
        Ok(PlanishStep {
            size: size_of::<PlanishStep>(),
            name: name.as_ptr(),
            operators: operators.as_ptr(),
            kernel: kernel.as_ptr(),
            nanoseconds,
        })
    }

    /// Tells C of a step.
    ///
    /// # Safety
    /// As for [`write`].
    pub(crate) unsafe fn tell(&self, index: usize, step: *mut PlanishStep) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { write(step, &self.step(index, 0)?) }
    }
}
