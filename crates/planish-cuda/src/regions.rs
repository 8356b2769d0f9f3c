//! Which nodes one CUDA kernel may cover together: chains behind products and norms, and groups of pointwise nodes.

use planish_kernel::{Fusion, Proposal, Whole};
use planish_op::Op;
use planish_tensor::DType;

const FUSION: Fusion = Fusion {
    takes_epilogue,
    epilogue_types: &[DType::F32, DType::F16, DType::BF16],
    pointwise_types: &[DType::F32, DType::F16, DType::BF16, DType::I32, DType::I64, DType::Bool],
};

/// Every proposal, longer ones before their parts.
pub(crate) fn propose(whole: &Whole) -> Vec<Proposal> {
    FUSION.propose(whole)
}

/// Operators whose kernels can go on with each element while it is in a register.
fn takes_epilogue(op: &Op) -> bool {
    matches!(
        op,
        Op::Conv(_)
            | Op::ConvTranspose(_)
            | Op::MatMul(_)
            | Op::Gemm(_)
            | Op::GroupNormalization(_)
            | Op::InstanceNormalization(_)
            | Op::LayerNormalization(_)
            | Op::RMSNormalization(_)
    )
}
