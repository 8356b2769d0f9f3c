//! Inference: recurrent networks.

use planish_tensor::{Dim, Shape};

use crate::{GRU, LSTM, RNN, RecurrentActivation, RecurrentDirection};

use super::checks;
use super::{InferError, InferResult, Inference, Inferred};

/// What the three operators differ in, as far as shapes and attributes go.
struct Layer<'a> {
    n_gates: i64,
    hidden_size: Option<i64>,
    layout: i64,
    direction: RecurrentDirection,
    clip: Option<f32>,
    activations: &'a [String],
    default_activations: &'a [RecurrentActivation],
}

/// Builds a `Layer` from an attribute struct of any of the three operators.
macro_rules! layer {
    ($op:expr, $n_gates:literal, $defaults:expr) => {
        Layer {
            n_gates: $n_gates,
            hidden_size: $op.hidden_size,
            layout: $op.layout,
            direction: $op.direction,
            clip: $op.clip,
            activations: &$op.activations,
            default_activations: $defaults,
        }
    };
}

pub(super) fn rnn(op: &RNN, cx: &mut Inference<'_>) -> InferResult {
    recurrent(&layer!(op, 1, RecurrentActivation::RNN), 1, cx)
}

pub(super) fn gru(op: &GRU, cx: &mut Inference<'_>) -> InferResult {
    recurrent(&layer!(op, 3, RecurrentActivation::GRU), 1, cx)
}

pub(super) fn lstm(op: &LSTM, cx: &mut Inference<'_>) -> InferResult {
    recurrent(&layer!(op, 4, RecurrentActivation::LSTM), 2, cx)
}

/// The outputs `Y` and one final state per kind of state (`Y_h`, and `Y_c` for LSTM).
fn recurrent(layer: &Layer<'_>, n_states: usize, cx: &mut Inference<'_>) -> InferResult {
    let dtype = checks::float(cx, 0)?;
    checks::float(cx, 1)?;
    checks::float(cx, 2)?;
    for idx in [3, 5, 6, 7] {
        checks::optional_float(cx, idx)?;
    }
    if cx.has_input(4) {
        checks::index(cx, 4)?;
    }
    let batch_first = match layer.layout {
        0 => false,
        1 => true,
        layout => return Err(cx.bad_attribute(format!("layout must be 0 or 1, it is {layout}"))),
    };
    let n_directions = match layer.direction {
        RecurrentDirection::Forward | RecurrentDirection::Reverse => 1,
        RecurrentDirection::Bidirectional => 2,
    };
    RecurrentActivation::list(layer.activations, &[], &[], layer.default_activations, n_directions)
        .map_err(|detail| cx.bad_attribute(detail))?;
    if let Some(clip) = layer.clip
        && (clip.is_nan() || clip < 0.0)
    {
        return Err(cx.bad_attribute(format!("clip must not be negative, it is {clip}")));
    }
    let n_directions = Dim::from(n_directions);
    let (seq, batch, input) = match cx.shape_of_rank(0, 3)? {
        Some(x) if batch_first => (x[1].clone(), x[0].clone(), x[2].clone()),
        Some(x) => (x[0].clone(), x[1].clone(), x[2].clone()),
        None => (cx.fresh_dim("sequence"), cx.fresh_dim("batch"), cx.fresh_dim("input")),
    };
    let hidden = hidden_size(layer, cx)?;
    let gates = &hidden * layer.n_gates;

    let directions = ("the number of directions", &n_directions);
    let gate_rows = ("the number of gate rows", &gates);
    checks::expect_dims(cx, 1, &[directions, gate_rows, ("the input size", &input)])?;
    checks::expect_dims(cx, 2, &[directions, gate_rows, ("the hidden size", &hidden)])?;
    checks::expect_dims(cx, 3, &[directions, ("the number of biases", &(&gates * 2))])?;
    checks::expect_dims(cx, 4, &[("the batch size", &batch)])?;
    let (of_batch, of_hidden) = (("the batch size", &batch), ("the hidden size", &hidden));
    let state =
        if batch_first { [of_batch, directions, of_hidden] } else { [directions, of_batch, of_hidden] };
    for idx in 5..5 + n_states {
        checks::expect_dims(cx, idx, &state)?;
    }
    if n_states == 2 {
        checks::expect_dims(cx, 7, &[directions, ("the number of peepholes", &(&hidden * 3))])?;
    }

    let y: Shape = if batch_first {
        [&batch, &seq, &n_directions, &hidden].into_iter().collect()
    } else {
        [&seq, &n_directions, &batch, &hidden].into_iter().collect()
    };
    let last: Shape = state.into_iter().map(|(_, dim)| dim).collect();
    let mut all = vec![Inferred::tensor(dtype, y)];
    all.extend((0..n_states).map(|_| Inferred::tensor(dtype, last.clone())));
    checks::outputs(cx, all)
}

/// The hidden size, from the recurrence weights, the attribute or the initial state.
fn hidden_size(layer: &Layer<'_>, cx: &mut Inference<'_>) -> Result<Dim, InferError> {
    let attribute = match layer.hidden_size {
        Some(size) if size < 1 => {
            return Err(cx.bad_attribute(format!("hidden_size must be at least 1, it is {size}")));
        }
        size => size.map(Dim::from),
    };
    let weights = cx.shape_of_rank(2, 3)?.map(|shape| shape[2].clone());
    let state = match cx.has_input(5) {
        true => cx.shape_of_rank(5, 3)?.map(|shape| shape[2].clone()),
        false => None,
    };
    let mut hidden: Option<Dim> = None;
    for dim in [weights, attribute, state].into_iter().flatten() {
        hidden = Some(match hidden {
            Some(known) => checks::same_dim(cx, "the hidden size", &known, &dim)?,
            None => dim,
        });
    }
    Ok(hidden.unwrap_or_else(|| cx.fresh_dim("hidden")))
}

#[cfg(test)]
mod tests {
    use super::super::InferErrorKind::{BadAttribute, BadShape, BadType, MissingInput};
    use super::super::testing::check;
    use crate::Attribute;

    fn word(name: &'static str, word: &str) -> (&'static str, Attribute) {
        (name, Attribute::Str(word.into()))
    }

    #[test]
    fn outputs_follow_direction_and_layout() {
        let both = word("direction", "bidirectional");
        let inputs = ["f32[s,b,3]", "f32[2,20,3]", "f32[2,20,5]"];
        let outputs = check("LSTM", std::slice::from_ref(&both), &inputs, 3).unwrap();
        assert_eq!(outputs, ["f32[s,2,b,5]", "f32[2,b,5]", "f32[2,b,5]"]);
        let batch_first = [both, ("layout", Attribute::Int(1))];
        let outputs = check("LSTM", &batch_first, &["f32[b,s,3]", inputs[1], inputs[2]], 2).unwrap();
        assert_eq!(outputs, ["f32[b,s,2,5]", "f32[b,2,5]"]);
        let outputs = check("GRU", &[], &["bf16[s,b,3]", "bf16[1,15,3]", "bf16[1,15,5]"], 2).unwrap();
        assert_eq!(outputs, ["bf16[s,1,b,5]", "bf16[1,b,5]"]);
    }

    #[test]
    fn the_hidden_size_is_taken_from_wherever_it_is_known() {
        let hidden = ("hidden_size", Attribute::Int(5));
        assert_eq!(
            check("RNN", std::slice::from_ref(&hidden), &["f32[s,b,3]", "f32[*]", "f32[*]"], 1).unwrap(),
            ["f32[s,1,b,5]"]
        );
        let state = ["f32[s,b,3]", "f32[*]", "f32[*]", "", "", "f32[1,b,7]"];
        assert_eq!(check("RNN", &[], &state, 1).unwrap(), ["f32[s,1,b,7]"]);
        assert_eq!(
            check("RNN", &[], &["f32[*]", "f32[*]", "f32[*]"], 1).unwrap(),
            ["f32[sequence0,1,batch1,hidden3]"]
        );
        assert_eq!(check("RNN", &[hidden], &state, 1), Err(BadShape));
    }

    #[test]
    fn refusals() {
        let inputs = ["f32[s,b,3]", "f32[1,15,3]", "f32[1,15,5]", "f32[1,30]", "i32[b]", "f32[1,b,5]"];
        assert!(check("GRU", &[], &inputs, 2).is_ok());
        let with = |idx: usize, input: &'static str| {
            let mut changed = inputs;
            changed[idx] = input;
            check("GRU", &[], &changed, 2)
        };
        assert_eq!(with(0, "f32[s,3]"), Err(BadShape));
        assert_eq!(with(0, "i32[s,b,3]"), Err(BadType));
        assert_eq!(with(1, "f32[1,15,4]"), Err(BadShape));
        assert_eq!(with(1, "f32[2,15,3]"), Err(BadShape));
        assert_eq!(with(2, "f32[1,20,5]"), Err(BadShape));
        assert_eq!(with(3, "f32[1,15]"), Err(BadShape));
        assert_eq!(with(4, "f32[b]"), Err(BadType));
        assert_eq!(with(5, "f32[1,b,6]"), Err(BadShape));
        assert_eq!(check("GRU", &[], &inputs[..2], 1), Err(MissingInput));
        assert_eq!(check("GRU", &[], &inputs, 3), Err(BadAttribute));
        for attribute in [
            ("layout", Attribute::Int(2)),
            ("hidden_size", Attribute::Int(0)),
            ("hidden_size", Attribute::Int(i64::MIN)),
            ("clip", Attribute::Float(-1.0)),
            ("activations", Attribute::Strs(vec!["Tanh".into()])),
        ] {
            assert_eq!(check("GRU", &[attribute], &inputs, 1), Err(BadAttribute));
        }
    }
}
