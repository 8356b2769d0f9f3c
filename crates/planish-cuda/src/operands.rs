//! How families here look at operands: layouts that matter, wishes, storage types and strides.

use planish_kernel::{Candidate, KernelError, Layout, Operand, Problem, Tactic, Want};
use planish_tensor::DType;

use crate::codegen::storage_type;

/// A refusal with its reason.
pub(crate) fn refuse<T>(reason: impl Into<String>) -> Result<T, KernelError> {
    Err(KernelError::unsupported(reason))
}

/// The layouts in which these operands differ: one, or both.
pub(crate) fn layouts_for(operands: &[Operand]) -> impl Iterator<Item = Layout> + use<> {
    let both = operands.iter().any(|operand| !Layout::Plain.same_for(Layout::ChannelsLast, &operand.dims));
    [Layout::Plain, Layout::ChannelsLast].into_iter().take(if both { 2 } else { 1 })
}

/// Operands of the output's rank follow its layout; weights and those of lower rank stay plain.
pub(crate) fn want(input: &Operand, rank: usize, layout: Layout) -> Want {
    match input.constant || input.rank() != rank {
        true => Want::dense(Layout::Plain),
        false => Want::inside(layout),
    }
}

/// The problem with dense operands as a candidate wants them.
pub(crate) fn laid(problem: &Problem, inputs: &[Want], outputs: &[Want]) -> Problem {
    let lay = |(operand, want): (&Operand, &Want)| Operand {
        strides: want.layout.strides(&operand.dims),
        ..operand.clone()
    };
    Problem {
        inputs: problem.inputs.iter().zip(inputs).map(lay).collect(),
        outputs: problem.outputs.iter().zip(outputs).map(lay).collect(),
        ..problem.clone()
    }
}

/// A candidate without packed weights or shared memory of operands.
pub(crate) fn candidate(
    tactic: String,
    revision: u32,
    inputs: Vec<Want>,
    outputs: Vec<Want>,
    ns: f64,
) -> Candidate {
    Candidate {
        tactic: Tactic::new(tactic, revision),
        packed: vec![None; inputs.len()],
        inputs,
        outputs,
        predicted_ns: ns,
        in_place: Vec::new(),
        slow: false,
    }
}

/// The kernel's type of an operand that is not packed.
pub(crate) fn storage(operand: &Operand) -> Result<&'static str, KernelError> {
    match (&operand.packed, storage_type(operand.dtype)) {
        (None, Some(storage)) => Ok(storage),
        (Some(format), _) => refuse(format!("a weight packed as `{format}`")),
        (None, None) => refuse(format!("elements of type {}", operand.dtype)),
    }
}

/// Whether kernels compute with it in f32.
pub(crate) fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// Bytes of an element.
pub(crate) fn size_of_element(dtype: DType) -> usize {
    dtype.bits() / 8
}

/// Strides with a sign.
pub(crate) fn strides(operand: &Operand) -> Vec<isize> {
    operand.strides.iter().map(|stride| *stride as isize).collect()
}
