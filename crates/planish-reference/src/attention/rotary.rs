//! `RotaryEmbedding`: pairs of elements of each head are rotated by an angle that grows with the position.

use planish_op::{RotaryEmbedding, Value};
use planish_tensor::{DType, Tensor};

use super::Heads;
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation};

pub(crate) fn rotary_embedding(op: &RotaryEmbedding, cx: &Evaluation<'_>) -> EvalResult {
    let x = Heads::read(cx, 0, op.num_heads)?;
    let rotated = match usize::try_from(op.rotary_embedding_dim) {
        Ok(0) => x.size,
        Ok(dim) => dim,
        Err(_) => usize::MAX,
    };
    if rotated > x.size || !rotated.is_multiple_of(2) {
        return Err(cx.bad_attribute(format!(
            "{} elements of a head of size {} cannot be rotated: the number must be even and fit",
            op.rotary_embedding_dim, x.size
        )));
    }
    let half = rotated / 2;
    let rows = cache_rows(cx, &x, half)?;
    let (cos, sin) = (cx.floats(1)?, cx.floats(2)?);
    let mut y = x.values.clone();
    // Without elements the loops below could still be long.
    let n_batches = if y.is_empty() { 0 } else { x.batch };
    for batch in 0..n_batches {
        for step in 0..x.seq {
            let row = rows[batch * x.seq + step] * half;
            for head in 0..x.heads {
                let vector = &mut y[x.start(batch, head, step)..][..rotated];
                for pair in 0..half {
                    let (first, second) =
                        if op.interleaved { (2 * pair, 2 * pair + 1) } else { (pair, half + pair) };
                    let (real, imaginary) = (vector[first], vector[second]);
                    let (cos, sin) = (cos[row + pair], sin[row + pair]);
                    vector[first] = cos * real - sin * imaginary;
                    vector[second] = sin * real + cos * imaginary;
                }
            }
        }
    }
    Ok(vec![Value::Tensor(Tensor::from_f64s(x.dtype, &x.shape(), &y)?)])
}

/// For every step of every sequence its row in the caches: the position if positions are given, else there
/// is a row for each.
fn cache_rows(cx: &Evaluation<'_>, x: &Heads, half: usize) -> Result<Vec<usize>, EvalError> {
    let (cos, sin) = (cx.tensor(1)?.shape(), cx.tensor(2)?.shape());
    let refuse = |needed: &str| {
        Err(cx.bad_shape(format!("the caches must have shape {needed}, they have {cos:?} and {sin:?}")))
    };
    if cos != sin {
        return refuse("one and the same");
    }
    let Some(positions) = cx.optional_tensor(3)? else {
        if cos != [x.batch, x.seq, half] {
            return refuse(&format!("{:?} (there are no position_ids)", [x.batch, x.seq, half]));
        }
        return Ok(if x.values.is_empty() { Vec::new() } else { (0..x.batch * x.seq).collect() });
    };
    let n_positions = match *cos {
        [n_positions, found] if found == half => n_positions,
        _ => return refuse(&format!("[positions, {half}]")),
    };
    if !matches!(positions.dtype(), DType::I64 | DType::I32) {
        return Err(cx.bad_type(positions.dtype()));
    }
    if positions.shape() != [x.batch, x.seq] {
        let (needed, found) = ([x.batch, x.seq], positions.shape());
        return Err(cx.bad_shape(format!("position_ids must have shape {needed:?}, they have {found:?}")));
    }
    let check = |position: i64| {
        usize::try_from(position).ok().filter(|position| *position < n_positions).ok_or_else(|| {
            cx.error(EvalErrorKind::BadValue, format!("position {position} is not one of {n_positions}"))
        })
    };
    positions.to_i64s().into_iter().map(check).collect()
}
