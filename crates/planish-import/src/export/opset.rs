//! The opset that a graph needs: 21, or what its newest operator, attribute or element type asks for.

use planish_ir::{Graph, Node};
use planish_op::{CastRounding, Op, ValueType};
use planish_tensor::DType;

/// Every operator means today what it meant here, and every reader of the last years knows it.
const OLDEST: i64 = 21;

/// The oldest opset from 21 on in which everything in the graph exists.
pub(super) fn needed(graph: &Graph) -> i64 {
    let of_values = graph.values().map(|(_, value)| of_type(&value.ty));
    let of_nodes = graph.nodes().map(|(_, node)| {
        let bodies = node.bodies.iter().map(needed).max().unwrap_or(OLDEST);
        of_node(graph, node).max(bodies)
    });
    of_values.chain(of_nodes).max().unwrap_or(OLDEST)
}

/// The version of the file format that came with an opset.
pub(super) fn ir_version(opset: i64) -> i64 {
    match opset {
        ..=22 => 10,
        23 => 11,
        24 => 12,
        _ => 13,
    }
}

fn of_type(ty: &ValueType) -> i64 {
    match ty {
        ValueType::Tensor(tensor) => match tensor.dtype {
            DType::F4E2M1 => 23,
            // Most operators know bfloat16 since 22, the last ones since 24.
            DType::F8E8M0 | DType::BF16 => 24,
            DType::I2 | DType::U2 => 25,
            _ => OLDEST,
        },
        ValueType::Sequence(element) | ValueType::Optional(element) => of_type(element),
    }
}

fn of_node(graph: &Graph, node: &Node) -> i64 {
    match &node.op {
        Op::RMSNormalization(_) | Op::RotaryEmbedding(_) => 23,
        Op::Attention(_) | Op::Swish(_) | Op::TensorScatter(_) => 24,
        Op::BitCast(_) | Op::CumProd(_) => 26,
        Op::CausalConvWithState(_) | Op::LinearAttention(_) => 27,
        Op::Cast(op) if op.round_mode != CastRounding::Up => 24,
        Op::QuantizeLinear(op) if op.precision.is_some() => 23,
        Op::DequantizeLinear(op) if op.output_dtype.is_some() => 23,
        Op::Range(_) => {
            let start = node.inputs.first().copied().flatten();
            let dtype = start.and_then(|id| Some(graph.value(id).ty.as_tensor()?.dtype));
            if matches!(dtype, Some(DType::F16 | DType::BF16)) { 27 } else { OLDEST }
        }
        _ => OLDEST,
    }
}
