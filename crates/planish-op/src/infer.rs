//! Type and shape inference: from the inputs' types and known contents to the outputs'.
//!
//! One module per family of operators, in the order of the table. Besides types, small integer tensors carry
//! their *contents* along (numbers or symbolic dimensions), so that the Shape→Gather→Concat→Reshape chains of
//! exporters resolve.
//!
//! What the families share: `context` is what a rule sees and says, `checks` what several of them refuse,
//! `known` the rearrangement of known contents, `testing` the way to write a test.

mod attention;
mod checks;
mod context;
mod conv;
mod convert;
mod image;
mod index;
mod known;
mod matmul;
mod movement;
mod norm;
mod pointwise;
mod pool;
mod random;
mod recurrent;
mod reduce;
mod sequence;
mod signal;
#[cfg(test)]
mod testing;
mod trees;

pub use context::{
    Content, InferError, InferErrorKind, InferInput, Inference, Inferred, MAX_FOLLOWED_INTS, MAX_RANK,
    SymbolicInts,
};

use crate::{Op, dispatch_op, plugin};

/// What inference of one node gives: one entry per output.
pub type InferResult = Result<Vec<Inferred>, InferError>;

/// The outputs of `op`, by the rule that its row of the table names. Control flow is the business of whoever knows the
/// bodies (`planish-ir`), a plugin's operator that of the plugin.
pub fn infer(op: &Op, cx: &mut Inference<'_>) -> InferResult {
    if let Some(most) = op.max_inputs().filter(|&most| cx.n_inputs() > most) {
        let detail = format!("at most {most} inputs are taken, there are {}", cx.n_inputs());
        return Err(cx.error(InferErrorKind::ExtraInput, detail));
    }
    dispatch_op!(op, cx, control: cx.needs_graph(), custom: custom(op, cx))
}

fn custom(op: &Op, cx: &mut Inference<'_>) -> InferResult {
    let found = match op {
        Op::Custom(op) => plugin::find(op).map(|plugin| (op, plugin)),
        _ => None,
    };
    match found {
        Some((op, plugin)) => plugin.infer(op, cx),
        None => cx.needs_plugin(),
    }
}
