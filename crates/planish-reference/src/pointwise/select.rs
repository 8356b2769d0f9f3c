//! Where: elements of any type, moved and not looked at.

use planish_op::Value;
use planish_tensor::{DType, Element, Tensor, bf16, f16};

use super::elementwise::{Broadcast, broadcast_all};
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

/// The second operand's element where the first's is true, otherwise the third's.
pub(crate) fn where_(cx: &Evaluation<'_>) -> EvalResult {
    let (condition, x, y) = (cx.tensor(0)?, cx.tensor(1)?, cx.tensor(2)?);
    if condition.dtype() != DType::Bool {
        let detail = format!("the condition must be bool, it is {}", condition.dtype());
        return Err(cx.error(EvalErrorKind::BadType, detail));
    }
    let dtype = x.dtype();
    if y.dtype() != dtype {
        let detail = format!("the choices have types {dtype} and {}", y.dtype());
        return Err(cx.error(EvalErrorKind::BadType, detail));
    }
    let shape = broadcast_all(cx, &[condition, x, y])?;
    nd::output_len(cx, dtype, &shape)?;
    let conditions = Broadcast::of(condition, &shape)?;
    let output = match dtype {
        DType::F64 => select::<f64>(&conditions, x, y, &shape),
        DType::F32 => select::<f32>(&conditions, x, y, &shape),
        DType::F16 => select::<f16>(&conditions, x, y, &shape),
        DType::BF16 => select::<bf16>(&conditions, x, y, &shape),
        DType::I16 => select::<i16>(&conditions, x, y, &shape),
        DType::I32 => select::<i32>(&conditions, x, y, &shape),
        DType::I64 => select::<i64>(&conditions, x, y, &shape),
        DType::U16 => select::<u16>(&conditions, x, y, &shape),
        DType::U32 => select::<u32>(&conditions, x, y, &shape),
        DType::U64 => select::<u64>(&conditions, x, y, &shape),
        DType::Bool
        | DType::I8
        | DType::U8
        | DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2
        | DType::F8E5M2FNUZ
        | DType::F8E8M0
        | DType::F4E2M1
        | DType::I4
        | DType::U4
        | DType::I2
        | DType::U2 => select_codes(&conditions, x, y, &shape),
    };
    Ok(vec![Value::Tensor(output?)])
}

fn select<T: Element>(
    conditions: &Broadcast<'_, bool>,
    x: &Tensor,
    y: &Tensor,
    shape: &[usize],
) -> Result<Tensor, EvalError> {
    let (x, y) = (Broadcast::<T>::of(x, shape)?, Broadcast::of(y, shape)?);
    Ok(Tensor::new(shape, choose(conditions, &x, &y, nd::count(shape)))?)
}

/// The kinds of at most 8 bits.
fn select_codes(
    conditions: &Broadcast<'_, bool>,
    x: &Tensor,
    y: &Tensor,
    shape: &[usize],
) -> Result<Tensor, EvalError> {
    let left = Broadcast::new(x.codes()?, x.shape(), shape);
    let right = Broadcast::new(y.codes()?, y.shape(), shape);
    Ok(Tensor::from_codes(x.dtype(), shape, choose(conditions, &left, &right, nd::count(shape)))?)
}

fn choose<T: Element>(
    conditions: &Broadcast<'_, bool>,
    x: &Broadcast<'_, T>,
    y: &Broadcast<'_, T>,
    len: usize,
) -> Vec<T> {
    nd::fill_elements(len, |range, out: &mut [T]| {
        let (x, y, conditions) = (x.read(range.clone()), y.read(range.clone()), conditions.read(range));
        let choices = conditions.iter().zip(x.iter().zip(y.iter()));
        out.iter_mut().zip(choices).for_each(|(to, (&holds, (&x, &y)))| *to = if holds { x } else { y });
    })
}
