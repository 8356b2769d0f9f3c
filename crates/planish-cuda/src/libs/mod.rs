//! NVIDIA's libraries as families: their algorithms compete with our own kernels, and plans that use them say so.

pub(crate) mod cublaslt;
pub(crate) mod cudnn;

use planish_kernel::pointwise::{Inst, Reg, Unary};
use planish_kernel::{Arithmetic, Candidate, Device, KernelError, Memory, Numeric, QueueOptions};
use planish_tensor::DType;

use crate::backend::Cuda;
use crate::families::product::Offer;
use crate::families::product::epilogue::Following;

/// Raised when tactics of the libraries mean something else.
const REVISION: u32 = 1;
/// What each further place in a library's list costs in the price that is only predicted.
const PLACE_PRICE: f64 = 0.02;

/// A candidate for each algorithm that a library proposes, best first; the first is expected to take `ns`.
fn offered(offer: &Offer, prefix: &str, names: impl Iterator<Item = String>, ns: f64) -> Vec<Candidate> {
    let candidate = |(place, name): (usize, String)| {
        offer.candidate(format!("{prefix}{name}"), REVISION, ns * (1.0 + PLACE_PRICE * place as f64))
    };
    names.enumerate().map(candidate).collect()
}

/// Constants in device memory.
fn uploaded(cuda: &Cuda, bytes: &[u8]) -> Result<Box<dyn Memory>, KernelError> {
    let memory = cuda.allocate(bytes.len())?;
    let mut queue = cuda.queue(QueueOptions::new(1))?;
    // SAFETY: the memory was taken for these bytes.
    unsafe { queue.upload(memory.address(), bytes)? };
    queue.synchronize()?;
    Ok(memory)
}

/// Whether the libraries multiply elements of this type, as the numbers of the problem say.
fn multiplies(numeric: &Numeric, dtype: DType) -> bool {
    let sums = if numeric.element == Arithmetic::I8 { DType::I32 } else { DType::F32 };
    numeric.accumulator == sums
        && match numeric.element {
            Arithmetic::F32 | Arithmetic::Tf32 => dtype == DType::F32,
            Arithmetic::F16 => dtype == DType::F16,
            Arithmetic::Bf16 => dtype == DType::BF16,
            Arithmetic::I8 => dtype == DType::I8,
            Arithmetic::F8 => dtype == DType::F8E4M3FN,
            _ => false,
        }
}

/// The one function of each sum that follows bias, residual and bounds, if any; refused where there is more. What rounds
/// results to the type that they are stored in says nothing.
fn function_after(following: &Following, stored: DType) -> Result<Option<Unary>, KernelError> {
    let Some(program) = &following.epilogue.program else { return Ok(None) };
    let rounds = match stored {
        DType::F16 => Some(Unary::RoundF16),
        DType::BF16 => Some(Unary::RoundBf16),
        _ => None,
    };
    let code = match program.code.split_last() {
        Some((Inst::Unary(last, _), rest)) if Some(*last) == rounds => rest,
        _ => &program.code[..],
    };
    match code {
        [Inst::Running] if program.outputs.len() == 1 => Ok(None),
        [Inst::Running, Inst::Unary(function, Reg(0))] if program.outputs.len() == 1 => Ok(Some(*function)),
        _ => Err(KernelError::unsupported("more than one function after bias and residual")),
    }
}
