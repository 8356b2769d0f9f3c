//! Reference: recurrent networks.
//!
//! One layer is run for every sequence and direction on its own: all inputs are projected first, then the
//! cell is stepped through the sequence. States stay in `f64`; only the outputs are rounded.
//!
//! A sequence of length 0 has no last state; like ONNX Runtime, its final states are zeros.

mod cells;
mod inputs;
#[cfg(test)]
mod tests;

use planish_op::{GRU, LSTM, RNN, RecurrentActivation, RecurrentDirection, Value};
use planish_tensor::Tensor;

use crate::{EvalError, EvalResult, Evaluation, nd};
use cells::{Cell, GruCell, LstmCell, RnnCell, Weights};
use inputs::{Attributes, Inputs};

/// Collects what the three attribute structs have in common.
macro_rules! attributes {
    ($op:expr) => {
        Attributes {
            clip: $op.clip,
            activations: &$op.activations,
            alphas: &$op.activation_alpha,
            betas: &$op.activation_beta,
            hidden_size: $op.hidden_size,
            layout: $op.layout,
            direction: $op.direction,
        }
    };
}

pub(crate) fn rnn(op: &RNN, cx: &Evaluation<'_>) -> EvalResult {
    let attributes = attributes!(op);
    let acts = activations(cx, &attributes, RecurrentActivation::RNN)?;
    let inputs = Inputs::read(cx, &attributes, 1, false)?;
    run(cx, &inputs, |dir| RnnCell { clip: op.clip, f: acts[dir] })
}

pub(crate) fn gru(op: &GRU, cx: &Evaluation<'_>) -> EvalResult {
    let attributes = attributes!(op);
    let acts = activations(cx, &attributes, RecurrentActivation::GRU)?;
    let inputs = Inputs::read(cx, &attributes, 3, false)?;
    run(cx, &inputs, |dir| GruCell {
        clip: op.clip,
        f: acts[2 * dir],
        g: acts[2 * dir + 1],
        linear_before_reset: op.linear_before_reset,
    })
}

pub(crate) fn lstm(op: &LSTM, cx: &Evaluation<'_>) -> EvalResult {
    let attributes = attributes!(op);
    let acts = activations(cx, &attributes, RecurrentActivation::LSTM)?;
    let inputs = Inputs::read(cx, &attributes, 4, true)?;
    run(cx, &inputs, |dir| LstmCell {
        clip: op.clip,
        f: acts[3 * dir],
        g: acts[3 * dir + 1],
        h: acts[3 * dir + 2],
        input_forget: op.input_forget,
    })
}

/// The activation functions of every direction.
fn activations(
    cx: &Evaluation<'_>,
    attributes: &Attributes<'_>,
    defaults: &[RecurrentActivation],
) -> Result<Vec<RecurrentActivation>, EvalError> {
    let Attributes { activations, alphas, betas, .. } = attributes;
    RecurrentActivation::list(activations, alphas, betas, defaults, attributes.n_directions())
        .map_err(|detail| cx.bad_attribute(detail))
}

/// Runs the layer and lays out `Y`, `Y_h` and, if the cell has one, `Y_c`.
fn run<C: Cell>(cx: &Evaluation<'_>, inputs: &Inputs, cell: impl Fn(usize) -> C + Sync) -> EvalResult {
    let &Inputs { seq, batch, hidden, n_dirs, .. } = inputs;
    // One block per direction and sequence: the hidden state of every step, then the final states.
    let block = (seq + 2) * hidden;
    let per_step = inputs.n_gates * hidden * (hidden + inputs.input);
    let runs = nd::fill_blocks(n_dirs * batch, block, seq.saturating_mul(per_step), |idx, out| {
        let (dir, batch_idx) = (idx / batch, idx % batch);
        run_sequence(inputs, &cell(dir), dir, batch_idx, out);
    });

    // The place of the state of (step, direction, sequence) in the outputs, in units of `hidden`.
    let mut y = vec![0.0; seq * n_dirs * batch * hidden];
    let mut last = vec![vec![0.0; n_dirs * batch * hidden]; 2];
    for dir in 0..n_dirs {
        for batch_idx in 0..batch {
            let run = &runs[(dir * batch + batch_idx) * block..][..block];
            for step in 0..seq {
                let place = match inputs.batch_first {
                    false => (step * n_dirs + dir) * batch + batch_idx,
                    true => (batch_idx * seq + step) * n_dirs + dir,
                };
                y[place * hidden..][..hidden].copy_from_slice(&run[step * hidden..][..hidden]);
            }
            let place = inputs.state_place(dir, batch_idx);
            for (kind, last) in last.iter_mut().enumerate() {
                last[place * hidden..][..hidden].copy_from_slice(&run[(seq + kind) * hidden..][..hidden]);
            }
        }
    }

    let (y_shape, last_shape) = match inputs.batch_first {
        false => ([seq, n_dirs, batch, hidden], [n_dirs, batch, hidden]),
        true => ([batch, seq, n_dirs, hidden], [batch, n_dirs, hidden]),
    };
    let mut outputs = vec![Value::Tensor(Tensor::from_f64s(inputs.dtype, &y_shape, &y)?)];
    for last in last.iter().take(if C::HAS_CELL_STATE { 2 } else { 1 }) {
        outputs.push(Value::Tensor(Tensor::from_f64s(inputs.dtype, &last_shape, last)?));
    }
    if cx.n_outputs() > outputs.len() {
        let n_outputs = cx.n_outputs();
        return Err(cx.bad_attribute(format!("there are {} outputs, not {n_outputs}", outputs.len())));
    }
    outputs.truncate(cx.n_outputs());
    Ok(outputs)
}

/// Runs one sequence in one direction; `out` takes the hidden states and the two final states.
fn run_sequence(inputs: &Inputs, cell: &impl Cell, dir: usize, batch_idx: usize, out: &mut [f64]) {
    let &Inputs { input, hidden, .. } = inputs;
    let len = inputs.lengths[batch_idx];
    if len == 0 {
        return;
    }
    let n_rows = inputs.n_gates * hidden;
    let w = &inputs.w[dir * n_rows * input..][..n_rows * input];
    let weights = Weights {
        hidden,
        recurrence: &inputs.r[dir * n_rows * hidden..][..n_rows * hidden],
        input_bias: &inputs.b[dir * 2 * n_rows..][..n_rows],
        recurrence_bias: &inputs.b[dir * 2 * n_rows + n_rows..][..n_rows],
        peepholes: &inputs.p[dir * 3 * hidden..][..3 * hidden],
    };
    // All projections at once, row by row of the weights, so that a row is read from memory only once.
    let mut projected = vec![0.0; len * n_rows];
    for row in 0..n_rows {
        let weights = &w[row * input..][..input];
        for step in 0..len {
            projected[step * n_rows + row] = nd::dot(weights, inputs.x_at(step, batch_idx));
        }
    }
    let start = inputs.state_place(dir, batch_idx) * hidden;
    let mut h = inputs.initial_h[start..][..hidden].to_vec();
    let mut c = inputs.initial_c[start..][..hidden].to_vec();
    let backward = match inputs.direction {
        RecurrentDirection::Forward => false,
        RecurrentDirection::Reverse => true,
        RecurrentDirection::Bidirectional => dir == 1,
    };
    for turn in 0..len {
        let step = if backward { len - 1 - turn } else { turn };
        cell.step(&weights, &projected[step * n_rows..][..n_rows], &mut h, &mut c);
        out[step * hidden..][..hidden].copy_from_slice(&h);
    }
    let finals = &mut out[inputs.seq * hidden..];
    finals[..hidden].copy_from_slice(&h);
    finals[hidden..].copy_from_slice(&c);
}
