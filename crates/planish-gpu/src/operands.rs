//! How families here look at operands: storage types, strides, and candidates without weights.

use planish_kernel::{Candidate, KernelError, Operand, Tactic, Want};
use planish_tensor::DType;

use crate::codegen::storage_type;

/// A refusal with its reason.
pub fn refuse<T>(reason: impl Into<String>) -> Result<T, KernelError> {
    Err(KernelError::unsupported(reason))
}

/// A candidate without packed weights or shared memory of operands.
pub fn candidate(tactic: String, revision: u32, inputs: Vec<Want>, outputs: Vec<Want>, ns: f64) -> Candidate {
    Candidate::new(Tactic::new(tactic, revision), inputs, outputs, ns)
}

/// The kernel's type of an operand that is not packed.
pub fn storage(operand: &Operand) -> Result<&'static str, KernelError> {
    match (&operand.packed, storage_type(operand.dtype)) {
        (None, Some(storage)) => Ok(storage),
        (Some(format), _) => refuse(format!("a weight packed as `{format}`")),
        (None, None) => refuse(format!("elements of type {}", operand.dtype)),
    }
}

/// Whether kernels compute with it in f32.
pub fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// Bytes of an element.
pub fn size_of_element(dtype: DType) -> usize {
    dtype.bits() / 8
}

/// A type of so many bytes, for kernels that only move elements.
pub fn moved_type(size: usize) -> Result<&'static str, KernelError> {
    match size {
        1 => Ok("i8"),
        2 => Ok("u16"),
        4 => Ok("u32"),
        8 => Ok("u64"),
        size => refuse(format!("elements of {size} bytes")),
    }
}

/// Strides with a sign.
pub fn strides(operand: &Operand) -> Vec<isize> {
    operand.strides.iter().map(|stride| *stride as isize).collect()
}
