//! Refusals of layers in words: the layer, the shapes that it met, and what to try.

use planish_ir::{GraphError, GraphErrorKind};
use planish_op::Op;
use planish_op::infer::InferErrorKind;

use crate::{Error, ErrorKind};

pub(super) fn of_graph(error: GraphError) -> Error {
    Error::new(ErrorKind::BadModel, error.to_string())
}

/// The refusal of the layer `name` over inputs of these types.
pub(super) fn of_layer(name: &str, op: &Op, types: &[String], error: &GraphError) -> Error {
    let message = match error.kind() {
        GraphErrorKind::Infer(detail) => format!(
            "layer `{name}`: {detail} (inputs: {}); {}",
            if types.is_empty() { "none".to_string() } else { types.join(", ") },
            advice(op, detail.kind())
        ),
        GraphErrorKind::BadBody(detail) => format!(
            "layer `{name}`: {detail}; a body's inputs are what the operator hands it, in ONNX's order, then what \
             it captures"
        ),
        _ => format!("layer `{name}`: {error}"),
    };
    Error::new(ErrorKind::BadModel, message)
}

/// What to try.
fn advice(op: &Op, kind: InferErrorKind) -> String {
    match kind {
        InferErrorKind::MissingInput => {
            format!("{} takes its inputs in ONNX's order; give those that it needs", op.name())
        }
        InferErrorKind::ExtraInput => match op.max_inputs() {
            Some(most) => format!("{} takes at most {most}", op.name()),
            None => "leave some out".to_string(),
        },
        InferErrorKind::BadType => "bring its inputs to one type with `cast`".to_string(),
        InferErrorKind::BadAttribute => "check the layer's options against the rank of its input".to_string(),
        InferErrorKind::BadShape => of_shapes(op).to_string(),
        InferErrorKind::NeedsGraph => "add control flow with `control` and its bodies".to_string(),
        InferErrorKind::NeedsPlugin => "use operators of the table `planish::op`".to_string(),
        _ => "compare its inputs with what ONNX says of the operator".to_string(),
    }
}

fn of_shapes(op: &Op) -> &'static str {
    match op {
        Op::Conv(_) | Op::ConvInteger(_) | Op::QLinearConv(_) => {
            "weights are [filters, channels / groups, kernel...] over an input of [batch, channels, space...]; check \
             the order of axes and `Window::groups`"
        }
        Op::ConvTranspose(_) => {
            "weights are [channels, filters / groups, kernel...] over an input of [batch, channels, space...]"
        }
        Op::MatMul(_) | Op::MatMulInteger(_) | Op::QLinearMatMul(_) => {
            "the last axis of the first must be the last but one of the second; `transpose` turns one over"
        }
        Op::Gemm(_) => {
            "both are matrices; `flatten` the input, and a weight of `linear` is [outputs, inputs]"
        }
        Op::Reshape(_) => {
            "the number of elements stays; one size may be -1, and 0 keeps the size at its place"
        }
        Op::Concat(_) => "all sizes but those along the axis must agree",
        Op::Add(_) | Op::Sub(_) | Op::Mul(_) | Op::Div(_) | Op::Pow(_) | Op::Where(_) => {
            "sizes are compared from the last axis and must agree or be 1; `reshape` or `unsqueeze` one operand"
        }
        Op::Attention(_) => {
            "queries, keys and values are [batch, heads, length, size], or [batch, length, heads * size] with the \
             number of heads given"
        }
        Op::MaxPool(_) | Op::AveragePool(_) | Op::LpPool(_) => {
            "a window has a size for each axis after [batch, channels], and must fit into the padded input"
        }
        _ => "compare the sizes above, or bring one to the other with `reshape`",
    }
}
