//! The `Backend` trait: one that can compute, with its sides for the compiler ([`Compiler`]), the runtime
//! ([`Device`]) and values on the host ([`Host`]).

use std::sync::Arc;

use planish_op::Value;

use crate::{Code, Compiler, Device, KernelError, Region};

/// What a plan's kernels were chosen for; a plan whose target differs is rebuilt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The backend, as in `cpu`.
    pub backend: String,
    /// What must be there, as in `avx512`, or a compute capability: a plan runs where all of it is.
    pub needs: Vec<String>,
    /// What timings depend on besides: the CPU's or GPU's model, library versions.
    pub device: String,
}

/// One that can compute: a CPU, a GPU.
pub trait Backend: Compiler + Device {
    /// As users name it: `cpu`, `cuda`.
    fn name(&self) -> &str;

    fn target(&self) -> Target;

    /// What it computes on host values, where it is a host.
    fn host(&self) -> Option<&dyn Host> {
        None
    }

    /// This device with code of its own, for one engine or one build: kernels that are prepared by what this gives
    /// are made from `code` where it has what they need, and compiled here where not. Nobody else gets any of it,
    /// and all of it is given back with the last kernel. `None` where kernels are part of the program.
    fn with_code(&self, code: &[Code]) -> Result<Option<Arc<dyn Backend>>, KernelError> {
        let _ = code;
        Ok(None)
    }

    /// Whether something that a plan needs is here.
    fn provides(&self, need: &str) -> bool {
        self.target().needs.iter().any(|own| own == need)
    }
}

/// The side of a host: values in its memory, computed as they come.
pub trait Host: Send + Sync {
    /// Computes a region on values in host memory, for operators whose sizes only a run can tell, and for sequences and
    /// optionals: by kernels on up to `threads` threads where there are some for what the values turn out to be, else by the
    /// reference. A value of more than `max_bytes` is refused before it is made.
    fn evaluate(
        &self,
        region: &Region,
        inputs: &[Option<Value>],
        max_bytes: usize,
        threads: usize,
    ) -> Result<Vec<Value>, KernelError>;

    /// The same machine by other kernels, where it has them: those of a narrower instruction set. The self-check of a
    /// build compares steps element by element with what they make of them.
    fn other_kernels(&self) -> Option<Box<dyn Backend>> {
        None
    }
}
