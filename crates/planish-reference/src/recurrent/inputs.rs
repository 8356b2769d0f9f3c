//! The inputs of a recurrent layer, checked, widened and in one layout.

use planish_op::RecurrentDirection;
use planish_tensor::DType;

use crate::{EvalError, EvalErrorKind, Evaluation, nd};

/// The attributes that RNN, GRU and LSTM share.
pub(super) struct Attributes<'a> {
    pub(super) clip: Option<f32>,
    pub(super) activations: &'a [String],
    pub(super) alphas: &'a [f32],
    pub(super) betas: &'a [f32],
    pub(super) hidden_size: Option<i64>,
    pub(super) layout: i64,
    pub(super) direction: RecurrentDirection,
}

impl Attributes<'_> {
    pub(super) fn n_directions(&self) -> usize {
        match self.direction {
            RecurrentDirection::Forward | RecurrentDirection::Reverse => 1,
            RecurrentDirection::Bidirectional => 2,
        }
    }
}

/// The inputs of one layer. Absent biases, states and peepholes are zeros.
pub(super) struct Inputs {
    pub(super) dtype: DType,
    pub(super) direction: RecurrentDirection,
    pub(super) batch_first: bool,
    pub(super) seq: usize,
    pub(super) batch: usize,
    pub(super) input: usize,
    pub(super) hidden: usize,
    pub(super) n_dirs: usize,
    pub(super) n_gates: usize,
    x: Vec<f64>,
    /// `[n_dirs, n_gates*hidden, input]`
    pub(super) w: Vec<f64>,
    /// `[n_dirs, n_gates*hidden, hidden]`
    pub(super) r: Vec<f64>,
    /// `[n_dirs, 2*n_gates*hidden]`: those of the input, then those of the recurrence.
    pub(super) b: Vec<f64>,
    /// The length of each sequence.
    pub(super) lengths: Vec<usize>,
    /// In the layout of the layer; see `state_place`.
    pub(super) initial_h: Vec<f64>,
    pub(super) initial_c: Vec<f64>,
    /// `[n_dirs, 3*hidden]`
    pub(super) p: Vec<f64>,
}

impl Inputs {
    pub(super) fn read(
        cx: &Evaluation<'_>,
        attributes: &Attributes<'_>,
        n_gates: usize,
        has_cell_state: bool,
    ) -> Result<Inputs, EvalError> {
        if let Some(clip) = attributes.clip
            && (clip.is_nan() || clip < 0.0)
        {
            return Err(cx.bad_attribute(format!("clip must not be negative, it is {clip}")));
        }
        let batch_first = match attributes.layout {
            0 => false,
            1 => true,
            layout => return Err(cx.bad_attribute(format!("layout must be 0 or 1, it is {layout}"))),
        };
        let rank_3 = |idx: usize| match cx.tensor(idx)?.shape() {
            &[a, b, c] => Ok([a, b, c]),
            shape => Err(cx.bad_shape(format!("input {idx} must have rank 3, its shape is {shape:?}"))),
        };
        let [first, second, input] = rank_3(0)?;
        let (seq, batch) = if batch_first { (second, first) } else { (first, second) };
        let [_, _, hidden] = rank_3(2)?;
        if attributes.hidden_size.is_some_and(|size| usize::try_from(size) != Ok(hidden)) {
            let given = attributes.hidden_size.unwrap_or_default();
            return Err(cx.bad_attribute(format!("hidden_size is {given}, the weights have {hidden}")));
        }
        let n_dirs = attributes.n_directions();
        let dtype = cx.tensor(0)?.dtype();
        if hidden == 0 {
            return Err(cx.bad_shape("the hidden size must be at least 1"));
        }
        // Large enough for the states of every step, the final states and the biases of all gates, so that no
        // product below overflows.
        nd::result_len(cx, &[seq.saturating_add(2), n_dirs, batch.max(1), 8, hidden])?;

        let gate_rows = n_gates * hidden;
        let state = if batch_first { [batch, n_dirs, hidden] } else { [n_dirs, batch, hidden] };
        Ok(Inputs {
            dtype,
            direction: attributes.direction,
            batch_first,
            seq,
            batch,
            input,
            hidden,
            n_dirs,
            n_gates,
            x: cx.floats(0)?,
            w: of_shape(cx, 1, &[n_dirs, gate_rows, input])?,
            r: of_shape(cx, 2, &[n_dirs, gate_rows, hidden])?,
            b: optional(cx, 3, &[n_dirs, 2 * gate_rows])?,
            lengths: lengths(cx, seq, batch)?,
            initial_h: optional(cx, 5, &state)?,
            initial_c: if has_cell_state { optional(cx, 6, &state)? } else { vec![0.0; nd::count(&state)] },
            p: if has_cell_state {
                optional(cx, 7, &[n_dirs, 3 * hidden])?
            } else {
                vec![0.0; n_dirs * 3 * hidden]
            },
        })
    }

    /// The input of one sequence at one step.
    pub(super) fn x_at(&self, step: usize, batch_idx: usize) -> &[f64] {
        let row = if self.batch_first { batch_idx * self.seq + step } else { step * self.batch + batch_idx };
        &self.x[row * self.input..][..self.input]
    }

    /// Where a state of a direction and sequence lies, in units of the hidden size.
    pub(super) fn state_place(&self, dir: usize, batch_idx: usize) -> usize {
        if self.batch_first { batch_idx * self.n_dirs + dir } else { dir * self.batch + batch_idx }
    }
}

fn of_shape(cx: &Evaluation<'_>, idx: usize, shape: &[usize]) -> Result<Vec<f64>, EvalError> {
    let found = cx.tensor(idx)?.shape();
    if found != shape {
        return Err(cx.bad_shape(format!("input {idx} must have shape {shape:?}, it has {found:?}")));
    }
    cx.floats(idx)
}

/// Zeros if the input is absent.
fn optional(cx: &Evaluation<'_>, idx: usize, shape: &[usize]) -> Result<Vec<f64>, EvalError> {
    match cx.optional_value(idx) {
        Some(_) => of_shape(cx, idx, shape),
        None => Ok(vec![0.0; nd::count(shape)]),
    }
}

fn lengths(cx: &Evaluation<'_>, seq: usize, batch: usize) -> Result<Vec<usize>, EvalError> {
    let Some(lengths) = cx.optional_tensor(4)? else { return Ok(vec![seq; batch]) };
    if !matches!(lengths.dtype(), DType::I32 | DType::I64) {
        return Err(cx.bad_type(lengths.dtype()));
    }
    if lengths.shape() != [batch] {
        let found = lengths.shape();
        return Err(cx.bad_shape(format!("sequence_lens must have shape [{batch}], they have {found:?}")));
    }
    let check = |length: i64| {
        usize::try_from(length).ok().filter(|length| *length <= seq).ok_or_else(|| {
            cx.error(EvalErrorKind::BadValue, format!("a sequence of length {length} in {seq} steps"))
        })
    };
    lengths.to_i64s().into_iter().map(check).collect()
}
