//! Matrix products by cuBLASLt: each algorithm that its heuristic proposes is a tactic of its own.
//!
//! The tactic's name is the algorithm as the library itself writes it, in digits. The bytes behind a name never go back
//! to the library: the heuristic is asked again, and the name picks one of what it proposes for this very problem. Rows are innermost here and columns there, so the product that is asked for is the transposed one:
//! `out^T = b^T a^T`. Numbers of 8 bits are taken as far as the library does (`bytes.rs`).

mod ask;
mod bytes;
mod shape;

use std::ffi::c_void;

use cudarc::cublaslt::sys::cublasLtHandle_t;
use planish_gpu::codegen;
use planish_gpu::space::{blocks, int};
use planish_kernel::{
    Address, Budget, Call, Candidate, KernelError, KernelErrorKind, Layout, Memory, Problem, Tactic, Want,
};

use self::ask::{Algorithm, Asked, Beside, Functions};
use self::bytes::{Bias, Scaling};
use self::shape::Shape;
use super::{offered, uploaded};
use crate::backend::Cuda;
use crate::driver::Stream;
use crate::error::CudaError;
use crate::families::product::Offer;
use crate::family::{Family, Ready, Work};
use crate::find::Which;
use crate::formats::Packing;
use crate::gpu::Gpu;
use crate::launch::{Launch, Params};
use crate::source::Source;

/// What the names of tactics begin with.
const PREFIX: &str = "cublaslt_";
/// The kernel that makes a bias what the library takes, and its threads.
const CONVERT: &str = "convert_bias";
const THREADS: usize = 256;

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
            packed: Packing::of_inputs(shape.packing, problem),
        };
        offered(&offer, PREFIX, found.iter().map(|(algorithm, _)| algorithm.name()), price)
    }

    fn packing(&self, problem: &Problem, _tactic: &Tactic) -> Result<Option<Packing>, KernelError> {
        Ok(Shape::of(problem)?.packing)
    }

    fn sources(&self, _: &Gpu, problem: &Problem, _: &Tactic) -> Result<Vec<Source>, KernelError> {
        let bias = Shape::of(problem)?.bias.filter(|bias| !bias.is_taken());
        let types =
            |bias: &Bias| Some((codegen::storage_type(bias.stored)?, codegen::storage_type(bias.taken)?));
        let source = |(from, to)| {
            let text = include_str!("../../kernels/cublaslt_bias.cu");
            Source::new("cublaslt_bias.cu", text, CONVERT).define("FROM", from).define("TO", to)
        };
        Ok(bias.as_ref().and_then(types).map(source).into_iter().collect())
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
        let converted = match shape.bias.filter(|bias| !bias.is_taken()) {
            None => None,
            Some(bias) => {
                let n = int(shape.output.rows as usize)?;
                let params = Params::new().input(bias.input).workspace(0).value(n).value(bias.factor);
                let function = ready.module()?.function(CONVERT)?;
                Some(Launch::line(function, blocks(n as usize, THREADS)? as usize, THREADS as u32, params))
            }
        };
        let numbers: Vec<f32> = match shape.scaling {
            Scaling { columns: Some(_), .. } => vec![1.0; shape.output.columns as usize],
            Scaling { steps, .. } => steps.into_iter().collect(),
        };
        let numbers: Vec<u8> = numbers.into_iter().flat_map(f32::to_le_bytes).collect();
        let numbers = if numbers.is_empty() { None } else { Some(uploaded(cuda, &numbers)?) };
        Ok(Box::new(Matmul { cuda: cuda.clone(), algorithm, asked, shape, workspace, converted, numbers }))
    }
}

/// A product with its algorithm.
#[derive(Debug)]
struct Matmul {
    algorithm: Algorithm,
    asked: Asked,
    shape: Shape,
    workspace: usize,
    /// Where the library takes the bias otherwise than it is stored: what writes that to the beginning of the workspace.
    converted: Option<Launch>,
    /// Ones for all rows where columns have scales, or what results are multiplied by.
    numbers: Option<Box<dyn Memory>>,
    /// Last, so that the library's handle outlives the descriptions.
    cuda: Cuda,
}

/// What the library asks of a workspace's address; kernels are promised less ([`Call::workspace`]).
const WORKSPACE_ALIGNMENT: usize = 256;

impl Matmul {
    /// Bytes of the converted bias, in front of the library's own workspace.
    fn bias_bytes(&self) -> usize {
        let wide = size_of::<f32>() * self.shape.output.rows as usize;
        if self.converted.is_some() { wide } else { 0 }
    }

    /// The first address in the workspace that the library takes; none where it needs no workspace.
    fn workspace(&self, given: Address) -> Address {
        match self.workspace {
            0 => Address::NULL,
            _ => {
                let behind = given.0 + self.bias_bytes() as u64;
                Address(behind.next_multiple_of(WORKSPACE_ALIGNMENT as u64))
            }
        }
    }
}

impl Work for Matmul {
    fn workspace_bytes(&self) -> usize {
        let own = match self.workspace {
            0 => 0,
            bytes => bytes + WORKSPACE_ALIGNMENT,
        };
        self.bias_bytes() + own
    }

    unsafe fn launch(&self, call: &Call<'_>, stream: &Stream) -> Result<(), KernelError> {
        let handle = self.cuda.cublaslt()?;
        let shape = &self.shape;
        let missing = || KernelError::new(KernelErrorKind::Failed, "a product without an operand");
        let input = |idx: usize| call.inputs.get(idx).copied().ok_or_else(missing);
        let pointer = |at: Address| std::ptr::without_provenance_mut::<c_void>(at.0 as usize);
        let output = call.outputs.first().copied().ok_or_else(missing)?;
        let (a, b) = (input(shape.a)?, input(shape.b)?);
        // Where nothing is added it is not read, but must lie elsewhere than a result of another type.
        let added = match shape.residual.map(input).transpose()? {
            Some(added) => added,
            None if shape.scaling.added == shape.scaling.output => output,
            None => a,
        };
        let bias = match (shape.bias, &self.converted) {
            (None, _) => None,
            (Some(bias), None) => Some(input(bias.input)?.0),
            (Some(_), Some(convert)) => {
                // SAFETY: the caller grants the bias and the workspace, in which there is room for it.
                unsafe { convert.launch(call, stream)? };
                Some(call.workspace.0)
            }
        };
        let Scaling { alpha, beta, columns, steps, .. } = shape.scaling;
        let columns = columns.map(input).transpose()?.map(|at| at.0);
        let numbers = self.numbers.as_ref().map(|memory| memory.address().0);
        let beside = Beside { bias, columns, rows: columns.and(numbers), steps: steps.and(numbers) };
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
        asked.with(&handle.functions, beside, run).map_err(KernelError::from)
    }
}
