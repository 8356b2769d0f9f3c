//! Reference: attention and position embedding.

mod linear;
mod rotary;
mod scaled_dot_product;
#[cfg(test)]
mod tests;

pub(crate) use linear::linear_attention;
pub(crate) use rotary::rotary_embedding;
pub(crate) use scaled_dot_product::attention;

use planish_tensor::DType;

use crate::{EvalError, EvalErrorKind, Evaluation};

/// A tensor seen as `[batch, heads, sequence, size]`, whatever its rank.
struct Heads {
    dtype: DType,
    batch: usize,
    heads: usize,
    seq: usize,
    size: usize,
    values: Vec<f64>,
    /// Whether the heads lie beside each other within a step: `[batch, sequence, heads*size]`.
    packed: bool,
}

impl Heads {
    /// Reads input `idx`: of rank 4 as it is, of rank 3 through the number of heads.
    fn read(cx: &Evaluation<'_>, idx: usize, n_heads: Option<i64>) -> Result<Heads, EvalError> {
        let tensor = cx.tensor(idx)?;
        let (batch, heads, seq, size, packed) = match *tensor.shape() {
            [batch, heads, seq, size] => {
                // 0 is how some exporters write "not given".
                if n_heads.is_some_and(|given| given != 0 && usize::try_from(given) != Ok(heads)) {
                    let given = n_heads.unwrap_or_default();
                    return Err(cx.bad_attribute(format!("input {idx} has {heads} heads, not {given}")));
                }
                (batch, heads, seq, size, false)
            }
            [batch, seq, hidden] => match n_heads.and_then(|heads| usize::try_from(heads).ok()) {
                Some(heads) if heads >= 1 && hidden % heads == 0 => (batch, heads, seq, hidden / heads, true),
                _ => {
                    return Err(cx.bad_attribute(format!(
                        "input {idx} of rank 3 needs a number of heads that divides {hidden}, not {n_heads:?}"
                    )));
                }
            },
            ref shape => {
                return Err(
                    cx.bad_shape(format!("input {idx} must have rank 3 or 4, its shape is {shape:?}"))
                );
            }
        };
        Ok(Heads { dtype: tensor.dtype(), batch, heads, seq, size, values: cx.floats(idx)?, packed })
    }

    /// Where the vector of one head at one step begins.
    fn start(&self, batch: usize, head: usize, step: usize) -> usize {
        let vector = match self.packed {
            true => (batch * self.seq + step) * self.heads + head,
            false => (batch * self.heads + head) * self.seq + step,
        };
        vector * self.size
    }

    fn at(&self, batch: usize, head: usize, step: usize) -> &[f64] {
        &self.values[self.start(batch, head, step)..][..self.size]
    }

    /// The shape under which the tensor is stored.
    fn shape(&self) -> Vec<usize> {
        match self.packed {
            true => vec![self.batch, self.seq, self.heads * self.size],
            false => vec![self.batch, self.heads, self.seq, self.size],
        }
    }
}

/// The width of several heads beside each other.
fn packed_width(cx: &Evaluation<'_>, heads: usize, size: usize) -> Result<usize, EvalError> {
    heads.checked_mul(size).ok_or_else(|| {
        cx.error(EvalErrorKind::TooLarge, format!("{heads} heads of size {size} are too large"))
    })
}
