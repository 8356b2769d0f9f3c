//! `LinearAttention`: a state per head that every token writes to and every query reads from.

use planish_op::{LinearAttention, Value};
use planish_tensor::Tensor;

use super::{Heads, packed_width};
use crate::{EvalError, EvalResult, Evaluation, nd};

/// The inputs of one evaluation, checked.
struct Inputs {
    query: Heads,
    key: Heads,
    value: Heads,
    /// `[batch, heads, key size, value size]`; zeros if there is none.
    state: Vec<f64>,
    decay: Option<Gate>,
    beta: Option<Gate>,
    scale: f64,
}

/// Factors `[batch, sequence, last]`, where `last` is 1, one per head, or one per key element.
struct Gate {
    values: Vec<f64>,
    last: usize,
}

impl Gate {
    fn read(
        cx: &Evaluation<'_>,
        idx: usize,
        steps: [usize; 2],
        widths: [usize; 2],
    ) -> Result<Gate, EvalError> {
        match *cx.tensor(idx)?.shape() {
            [batch, seq, last] if [batch, seq] == steps && widths.contains(&last) => {
                Ok(Gate { values: cx.floats(idx)?, last })
            }
            ref found => Err(cx.bad_shape(format!(
                "input {idx} must have shape {steps:?} and {} or {}, it has {found:?}",
                widths[0], widths[1]
            ))),
        }
    }

    /// The factor of one element of a head, of `n_heads` heads with `size` elements each.
    fn at(&self, step: usize, head: usize, place: usize, n_heads: usize) -> f64 {
        let size = self.last / n_heads;
        let column = match self.last {
            1 => 0,
            last if last == n_heads => head,
            _ => head * size + place,
        };
        self.values[step * self.last + column]
    }
}

pub(crate) fn linear_attention(op: &LinearAttention, cx: &Evaluation<'_>) -> EvalResult {
    let inputs = Inputs::read(op, cx)?;
    let Inputs { query, key, value, .. } = &inputs;
    let (batch, seq) = (query.batch, query.seq);
    let (key_size, value_size) = (key.size, value.size);
    let group = query.heads / key.heads;
    let output_shape = [batch, seq, packed_width(cx, query.heads, value_size)?];
    // Both results with zeros left out, so that no product below overflows.
    nd::result_len(cx, &[batch.max(1), seq.max(1), query.heads, value_size.max(1)])?;
    nd::result_len(cx, &[batch.max(1), key.heads, key_size.max(1), value_size.max(1)])?;

    // One block per batch and key head: the outputs of its query heads at every step, then its state.
    let read = group * seq * value_size;
    let block = read + key_size * value_size;
    let steps = (key_size * value_size).saturating_mul(seq).saturating_mul(2 + group);
    let runs = nd::fill_blocks(batch * key.heads, block, steps, |idx, out| {
        let (out, state) = out.split_at_mut(read);
        run_head(&inputs, idx / key.heads, idx % key.heads, out, state);
    });

    let mut output = vec![0.0; batch * seq * query.heads * value_size];
    let mut present = Vec::with_capacity(batch * key.heads * key_size * value_size);
    for (idx, run) in runs.chunks(block.max(1)).enumerate() {
        let (batch, head) = (idx / key.heads, idx % key.heads);
        present.extend_from_slice(&run[read..]);
        for (row, vector) in run[..read].chunks(value_size.max(1)).enumerate() {
            let (member, step) = (row / seq, row % seq);
            let place = (batch * seq + step) * query.heads + head * group + member;
            output[place * value_size..][..value_size].copy_from_slice(vector);
        }
    }
    let state_dtype = cx.optional_tensor(3)?.map_or(query.dtype, Tensor::dtype);
    let mut outputs = vec![
        Value::Tensor(Tensor::from_f64s(query.dtype, &output_shape, &output)?),
        Value::Tensor(Tensor::from_f64s(state_dtype, &[batch, key.heads, key_size, value_size], &present)?),
    ];
    outputs.truncate(cx.n_outputs());
    Ok(outputs)
}

/// Runs all tokens of one key head; `out` is `[query heads of the group, sequence, value size]`.
fn run_head(inputs: &Inputs, batch: usize, head: usize, out: &mut [f64], state: &mut [f64]) {
    let Inputs { query, key, value, decay, beta, scale, .. } = inputs;
    let (seq, key_size, value_size) = (query.seq, key.size, value.size);
    let group = query.heads / key.heads;
    let start = (batch * key.heads + head) * key_size * value_size;
    state.copy_from_slice(&inputs.state[start..][..key_size * value_size]);
    if value_size == 0 {
        return;
    }
    for step in 0..seq {
        let token = batch * seq + step;
        if let Some(decay) = decay {
            for (place, row) in state.chunks_mut(value_size).enumerate() {
                let factor = decay.at(token, head, place, key.heads).exp();
                row.iter_mut().for_each(|element| *element *= factor);
            }
        }
        let keys = key.at(batch, head, step);
        let mut written = value.at(batch, head, step).to_vec();
        if let Some(beta) = beta {
            // What the state already answers for this key is taken off what is written.
            let known = weighted_rows(keys, state, value_size);
            let rate = beta.at(token, head, 0, key.heads);
            written.iter_mut().zip(known).for_each(|(value, known)| *value = rate * (*value - known));
        }
        for (row, factor) in state.chunks_mut(value_size).zip(keys) {
            row.iter_mut().zip(&written).for_each(|(element, value)| *element += factor * value);
        }
        for member in 0..group {
            let read = weighted_rows(query.at(batch, head * group + member, step), state, value_size);
            let out = &mut out[(member * seq + step) * value_size..][..value_size];
            out.iter_mut().zip(read).for_each(|(out, read)| *out = scale * read);
        }
    }
}

/// The sum of the rows of `state`, each times its weight.
fn weighted_rows(weights: &[f64], state: &[f64], size: usize) -> Vec<f64> {
    let mut sum = vec![0.0; size];
    for (weight, row) in weights.iter().zip(state.chunks(size)) {
        sum.iter_mut().zip(row).for_each(|(sum, element)| *sum += weight * element);
    }
    sum
}

impl Inputs {
    fn read(op: &LinearAttention, cx: &Evaluation<'_>) -> Result<Inputs, EvalError> {
        let (q_heads, kv_heads) = (op.q_num_heads, op.kv_num_heads);
        if q_heads < 1 || kv_heads < 1 || q_heads % kv_heads != 0 {
            return Err(cx.bad_attribute(format!(
                "q_num_heads ({q_heads}) must be a positive multiple of kv_num_heads ({kv_heads})"
            )));
        }
        if let Some(idx) = (0..3).find(|idx| cx.tensor(*idx).is_ok_and(|tensor| tensor.rank() != 3)) {
            return Err(cx.bad_shape(format!("input {idx} must have rank 3")));
        }
        let query = Heads::read(cx, 0, Some(q_heads))?;
        let key = Heads::read(cx, 1, Some(kv_heads))?;
        let value = Heads::read(cx, 2, Some(kv_heads))?;
        let steps = [query.batch, query.seq];
        let fits =
            steps == [key.batch, key.seq] && steps == [value.batch, value.seq] && query.size == key.size;
        if !fits {
            return Err(cx.bad_shape(format!(
                "queries {:?}, keys {:?} and values {:?} do not fit together",
                query.shape(),
                key.shape(),
                value.shape()
            )));
        }
        let state_shape = [key.batch, key.heads, key.size, value.size];
        let state = match cx.optional_tensor(3)? {
            Some(state) if state.shape() != state_shape => {
                let found = state.shape();
                return Err(
                    cx.bad_shape(format!("past_state must have shape {state_shape:?}, it has {found:?}"))
                );
            }
            Some(_) => cx.floats(3)?,
            None => vec![0.0; nd::result_len(cx, &state_shape)?],
        };
        let (decays, corrects) = (op.update_rule.decays(), op.update_rule.corrects());
        for (idx, name, needed) in [(4, "decay", decays), (5, "beta", corrects)] {
            if cx.optional_value(idx).is_some() != needed {
                let verb = if needed { "needs" } else { "takes no" };
                return Err(cx.bad_attribute(format!("the rule {} {verb} {name}", op.update_rule.word())));
            }
        }
        let decay =
            decays.then(|| Gate::read(cx, 4, steps, [key.heads, key.heads * key.size])).transpose()?;
        let beta = corrects.then(|| Gate::read(cx, 5, steps, [key.heads, 1])).transpose()?;
        let scale = if op.scale == 0.0 { 1.0 / (key.size as f64).sqrt() } else { f64::from(op.scale) };
        Ok(Inputs { query, key, value, state, decay, beta, scale })
    }
}
