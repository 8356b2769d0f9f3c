//! Matrix products by cuBLASLt: each algorithm that its heuristic proposes is a tactic of its own.
//!
//! The tactic's name is the algorithm as the library itself writes it, in digits. The bytes behind a name never go back
//! to the library: the heuristic is asked again, and the name picks one of what it proposes for this very problem. Rows are innermost here and columns there, so the product that is asked for is the transposed one:
//! `out^T = b^T a^T`.

mod ask;
mod shape;

use std::ffi::c_void;

use cudarc::cublaslt::sys::cublasLtHandle_t;
use planish_kernel::{
    Address, Budget, Call, Candidate, KernelError, KernelErrorKind, Layout, Problem, Tactic, Want,
};

use self::ask::{Algorithm, Asked, Functions};
use self::shape::Shape;
use super::offered;
use crate::backend::Cuda;
use crate::driver::Stream;
use crate::error::CudaError;
use crate::families::product::Offer;
use crate::family::{Family, Ready, Work};
use crate::find::Which;
use crate::gpu::Gpu;
use crate::source::Source;

/// What the names of tactics begin with.
const PREFIX: &str = "cublaslt_";

/// The library's handle of one device. It may be used from any number of threads.
#[derive(Debug)]
pub(crate) struct Handle {
    functions: Functions,
    raw: cublasLtHandle_t,
}

// SAFETY: cuBLASLt's handle holds no state that calls change.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// The library's functions.
pub(crate) use ask::describe;

pub(crate) fn functions() -> Result<Functions, CudaError> {
    Functions::of(Which::CublasLt)
}

impl Handle {
    /// Of the device whose context is current.
    pub(crate) fn new() -> Result<Handle, CudaError> {
        let functions = functions()?;
        let mut raw: cublasLtHandle_t = std::ptr::null_mut();
        // SAFETY: a context is current.
        let code = unsafe { (functions.cublasLtCreate)(&raw mut raw) };
        ask::check(code, "starting cuBLASLt")?;
        Ok(Handle { functions, raw })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made in `new`.
        let _ = unsafe { (self.functions.cublasLtDestroy)(self.raw) };
    }
}

/// Matrix products by the library.
pub(crate) struct CublasLtFamily;

impl Family for CublasLtFamily {
    fn name(&self) -> &'static str {
        "cublaslt"
    }

    fn source(&self) -> &'static str {
        "cublaslt"
    }

    fn candidates(&self, _gpu: &Gpu, _problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        // Only the library on a device knows its algorithms.
        Vec::new()
    }

    fn candidates_on(&self, cuda: &Cuda, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        let Ok(shape) = Shape::of(problem) else { return Vec::new() };
        let Ok(handle) = cuda.cublaslt() else { return Vec::new() };
        let asked = Asked::new(&handle.functions, &shape);
        let Ok(found) =
            asked.and_then(|asked| asked.algorithms(&handle.functions, handle.raw, budget.library))
        else {
            return Vec::new();
        };
        let gpu = cuda.gpu();
        let bytes = problem.traffic_bytes() as f64;
        let price = gpu.roofline_ns(shape.flops(), gpu.flops(problem.numeric.element), bytes);
        let offer = Offer {
            inputs: vec![Want::dense(Layout::Plain); problem.inputs.len()],
            outputs: vec![Want::dense(Layout::Plain)],
            packed: vec![None; problem.inputs.len()],
        };
        offered(&offer, PREFIX, found.iter().map(|(algorithm, _)| algorithm.name()), price)
    }

    fn sources(&self, _: &Gpu, _: &Problem, _: &Tactic) -> Result<Vec<Source>, KernelError> {
        Ok(Vec::new())
    }

    fn needs(&self) -> Option<Which> {
        Some(Which::CublasLt)
    }

    fn prepare(&self, ready: &Ready<'_>) -> Result<Box<dyn Work>, KernelError> {
        let Ready { cuda, problem, tactic, .. } = *ready;
        let handle = cuda.cublaslt()?;
        let shape = Shape::of(problem)?;
        let asked = Asked::new(&handle.functions, &shape)?;
        let proposed = asked.algorithms(&handle.functions, handle.raw, Budget::USUAL.library)?;
        // An algorithm is chosen at the sizes that a plan was tuned at; at others the library may propose others, best
        // first.
        let name = tactic.name.strip_prefix(PREFIX).unwrap_or_default();
        let named = proposed.iter().find(|(algorithm, _)| algorithm.name() == name);
        let &(algorithm, workspace) = named.or(proposed.first()).ok_or_else(|| {
            KernelError::unsupported(format!("{tactic}: cuBLASLt has no algorithm for this product"))
        })?;
        Ok(Box::new(Matmul { cuda: cuda.clone(), algorithm, asked, shape, workspace }))
    }
}

/// A product with its algorithm.
#[derive(Debug)]
struct Matmul {
    algorithm: Algorithm,
    asked: Asked,
    shape: Shape,
    workspace: usize,
    /// Last, so that the library's handle outlives the descriptions.
    cuda: Cuda,
}

/// What the library asks of a workspace's address; kernels are promised less ([`Call::workspace`]).
const WORKSPACE_ALIGNMENT: usize = 256;

impl Matmul {
    /// The first address in the workspace that the library takes; none where it needs no workspace.
    fn workspace(&self, given: Address) -> Address {
        match self.workspace {
            0 => Address::NULL,
            _ => Address(given.0.next_multiple_of(WORKSPACE_ALIGNMENT as u64)),
        }
    }
}

impl Work for Matmul {
    fn workspace_bytes(&self) -> usize {
        match self.workspace {
            0 => 0,
            bytes => bytes + WORKSPACE_ALIGNMENT,
        }
    }

    unsafe fn launch(&self, call: &Call<'_>, stream: &Stream) -> Result<(), KernelError> {
        let handle = self.cuda.cublaslt()?;
        let shape = &self.shape;
        let missing = || KernelError::new(KernelErrorKind::Failed, "a product without an operand");
        let input = |idx: usize| call.inputs.get(idx).copied().ok_or_else(missing);
        let pointer = |at: Address| std::ptr::without_provenance_mut::<c_void>(at.0 as usize);
        let output = call.outputs.first().copied().ok_or_else(missing)?;
        let (a, b) = (input(shape.a)?, input(shape.b)?);
        let added = shape.residual.map(input).transpose()?.unwrap_or(output);
        let bias = shape.bias.map(input).transpose()?;
        let alpha = 1.0f32;
        let beta = if shape.residual.is_some() { 1.0f32 } else { 0.0f32 };
        let asked = &self.asked;
        // SAFETY: the library proposed the algorithm for these descriptions, the addresses are the caller's to grant, and
        // the workspace has as many bytes as were asked for. Scalars are read before this returns.
        let run = |description| unsafe {
            (handle.functions.cublasLtMatmul)(
                handle.raw,
                description,
                (&raw const alpha).cast(),
                pointer(b),
                asked.first.raw,
                pointer(a),
                asked.second.raw,
                (&raw const beta).cast(),
                pointer(added),
                asked.added.raw,
                pointer(output),
                asked.output.raw,
                self.algorithm.raw(),
                pointer(self.workspace(call.workspace)),
                self.workspace,
                stream.raw.cast(),
            )
        };
        asked.with_bias(&handle.functions, bias.map(|bias| bias.0), run).map_err(KernelError::from)
    }
}
