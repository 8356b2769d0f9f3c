//! Every operator as a slow, obvious, exact function from attributes and tensors to tensors.
//!
//! This is the definition that everything else is measured against: the oracle of kernel tests, the
//! constant folder, and the last tactic of every operator. Floating-point results are computed in `f64`
//! and rounded once to the output's type; integers wrap as two's complement does.
//!
//! There is one module per family of operators, in the order of the table in `planish-op`. What they share:
//!
//! - `context`: what a function sees (inputs, element types, axes) and its typed refusals;
//! - [`nd`]: index arithmetic, broadcasting, the parallel loops, and whether a result fits memory;
//! - `cells`: moving elements of any width without looking at them;
//! - `number`: single elements, or all of a tensor, as exact wide numbers (`f64`, `i128`), for whatever is
//!   computed element by element or reduced;
//! - `scalar`: the arithmetic of sums of products, `f64` or an integer type's own, and `product`: matrix
//!   products in it;
//! - `points`: single elements of an output without the rest of it.

mod attention;
mod cells;
mod context;
mod conv;
mod convert;
mod image;
mod index;
mod matmul;
mod movement;
pub mod nd;
mod norm;
mod number;
mod points;
mod pointwise;
mod pool;
mod product;
pub mod random;
mod recurrent;
mod reduce;
mod scalar;
mod sequence;
mod signal;
#[cfg(test)]
mod testing;
mod trees;

pub use context::{EvalError, EvalErrorKind, EvalResult, Evaluation};
pub use points::evaluate_at;

use planish_op::{Op, Value, dispatch_op};

/// The outputs of `op` on these inputs (`None` where an optional input is absent), `n_outputs` of them.
///
/// Control flow is not evaluated here: its bodies belong to a graph (`planish_ir::interpret`).
pub fn evaluate(op: &Op, inputs: &[Option<&Value>], n_outputs: usize) -> EvalResult {
    evaluate_within(op, inputs, n_outputs, usize::MAX)
}

/// Like [`evaluate`], with outputs of more than `max_bytes` refused ([`EvalErrorKind::Limit`]) before they are made.
pub fn evaluate_within(op: &Op, inputs: &[Option<&Value>], n_outputs: usize, max_bytes: usize) -> EvalResult {
    let cx = &Evaluation::new(op.name(), inputs, n_outputs).within(max_bytes);
    dispatch_op!(
        op,
        cx,
        control: Err(cx.error(EvalErrorKind::NeedsGraph, "control flow is interpreted with its bodies")),
        custom: custom(op, cx),
    )
}

/// A plugin's operator, by the plugin's own reference.
fn custom(op: &Op, cx: &Evaluation<'_>) -> EvalResult {
    let found = match op {
        Op::Custom(op) => planish_op::plugin::find(op).map(|plugin| (op, plugin)),
        _ => None,
    };
    let Some((op, plugin)) = found else {
        let detail = "no plugin that is loaded provides this operator: give its file by `--plugin FILE`";
        return Err(cx.error(EvalErrorKind::NeedsPlugin, detail));
    };
    if !plugin.has_reference() {
        let detail = format!("the plugin {} has no reference", plugin.identity().origin);
        return Err(cx.error(EvalErrorKind::NeedsPlugin, detail));
    }
    let inputs = (0..cx.n_inputs()).map(|idx| cx.optional_tensor(idx)).collect::<Result<Vec<_>, _>>()?;
    let outputs = plugin.evaluate(op, &inputs, cx.n_outputs()).map_err(|why| {
        let detail = format!("the reference of the plugin {}: {why}", plugin.identity().origin);
        cx.error(EvalErrorKind::BadValue, detail)
    })?;
    if outputs.iter().any(|output| output.bytes().len() > cx.max_bytes()) {
        return Err(cx.error(EvalErrorKind::Limit, "an output is larger than is allowed"));
    }
    Ok(outputs.into_iter().map(Value::from).collect())
}
