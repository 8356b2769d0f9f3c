//! Operators whose outputs are as long as what is found: NonZero and Compress; and Concat, which in loops makes a longer list
//! in every trip, so that no kernel that was prepared serves again; and Unique. NonMaxSuppression is in `boxes`.

use planish_kernel::{KernelError, KernelErrorKind};
use planish_op::{Compress, Op, Unique, Value};
use planish_tensor::{Bytes, DType, Tensor, normalize_axis};

use super::boxes;
use crate::groups::Groups;
use crate::isa::Isa;

/// Bytes of a Concat that one thread copies.
const MOST_COPIED: usize = 1 << 20;

/// The outputs, or `None` for other operators and for what the reference is to refuse.
pub(super) fn outputs(
    isa: Isa,
    op: &Op,
    inputs: &[Option<&Tensor>],
    n_outputs: usize,
    max_bytes: usize,
) -> Result<Option<Vec<Value>>, KernelError> {
    if let (Op::Unique(op), [Some(x)]) = (op, inputs) {
        return Ok(unique(op, x, n_outputs, max_bytes));
    }
    if let Op::NonMaxSuppression(op) = op {
        return Ok(boxes::suppressed(isa, op, inputs, max_bytes).map(|kept| vec![Value::Tensor(kept)]));
    }
    let found = match (op, inputs) {
        _ if n_outputs != 1 => None,
        (Op::NonZero(_), [Some(x)]) => non_zero(x, max_bytes),
        (Op::Compress(op), [Some(x), Some(condition)]) => compress(op, x, condition),
        (Op::Concat(op), [Some(first), ..]) => {
            concat(normalize_axis(op.axis, first.rank()).ok(), inputs, max_bytes)
        }
        _ => None,
    };
    match found {
        Some(tensor) if tensor.bytes().len() > max_bytes => Err(KernelError::new(
            KernelErrorKind::Limit,
            format!("{} found more than the {max_bytes} bytes that are allowed", op.name()),
        )),
        found => Ok(found.map(|tensor| vec![Value::Tensor(tensor)])),
    }
}

/// Flat places of all elements that are not zero.
fn places(x: &Tensor) -> Option<Vec<usize>> {
    fn of<T: Copy>(bytes: &[T], is_set: impl Fn(T) -> bool) -> Vec<usize> {
        bytes.iter().enumerate().filter(|(_, x)| is_set(**x)).map(|(at, _)| at).collect()
    }
    Some(match x.dtype() {
        DType::Bool | DType::U8 | DType::I8 => of(x.bytes(), |x| x != 0),
        DType::F32 => of(&x.elements::<f32>().ok()?, |x| x != 0.0),
        DType::F64 => of(&x.elements::<f64>().ok()?, |x| x != 0.0),
        DType::I32 => of(&x.elements::<i32>().ok()?, |x| x != 0),
        DType::I64 => of(&x.elements::<i64>().ok()?, |x| x != 0),
        _ => return None,
    })
}

fn non_zero(x: &Tensor, max_bytes: usize) -> Option<Tensor> {
    let found = places(x)?;
    let dims = x.shape();
    let n = found.len();
    // Beyond what is allowed the reference says so.
    let len = n.checked_mul(dims.len()).filter(|len| len.checked_mul(8).is_some_and(|b| b <= max_bytes))?;
    let mut all = vec![0i64; len];
    match dims {
        [_] => all.iter_mut().zip(&found).for_each(|(to, at)| *to = *at as i64),
        _ => {
            for (idx, place) in found.iter().enumerate() {
                let mut rest = *place;
                for axis in (0..dims.len()).rev() {
                    all[axis * n + idx] = (rest % dims[axis]) as i64;
                    rest /= dims[axis];
                }
            }
        }
    }
    Tensor::new(&[dims.len(), n], all).ok()
}

/// The different elements, where each is first, the one that each element is, and how often each is there.
fn unique(op: &Unique, x: &Tensor, n_outputs: usize, max_bytes: usize) -> Option<Vec<Value>> {
    let is_whole = op.axis.is_none_or(|axis| x.rank() == 1 && normalize_axis(axis, 1).is_ok());
    let element_bytes = x.dtype().bits() / 8;
    let most = x.len().saturating_mul(element_bytes + 3 * size_of::<i64>());
    if !is_whole || !Groups::takes(x.dtype()) || most > max_bytes {
        return None;
    }
    let Groups { first, inverse, counts } = Groups::of(x, op.sorted)?;
    let bytes = x.bytes();
    let values = first.iter().flat_map(|at| &bytes[at * element_bytes..][..element_bytes]);
    let values: Vec<u8> = values.copied().collect();
    let values = Tensor::from_bytes(x.dtype(), &[first.len()], Bytes::from_vec(values)).ok()?;
    let first = first.into_iter().map(|at| at as i64).collect();
    let rest = [first, inverse, counts].map(|list| Value::Tensor(Tensor::vector(list)));
    Some([Value::Tensor(values)].into_iter().chain(rest).take(n_outputs.max(1)).collect())
}

/// Tensors one after the other along an axis; `None` where they do not fit, which is the reference's to say.
fn concat(axis: Option<usize>, inputs: &[Option<&Tensor>], max_bytes: usize) -> Option<Tensor> {
    let axis = axis?;
    let parts = inputs.iter().copied().collect::<Option<Vec<&Tensor>>>()?;
    let first = parts.first()?;
    let (dtype, dims) = (first.dtype(), first.shape());
    let beside = |shape: &[usize]| [&shape[..axis], &shape[axis + 1..]].concat();
    let fits = |part: &&Tensor| {
        part.dtype() == dtype && part.rank() == dims.len() && beside(part.shape()) == beside(dims)
    };
    if dtype.is_sub_byte() || !parts.iter().all(fits) {
        return None;
    }
    let outer: usize = dims[..axis].iter().product();
    let n_bytes = parts.iter().try_fold(0usize, |sum, part| sum.checked_add(part.bytes().len()))?;
    // Beyond what is allowed the reference says so; and what takes long several threads do.
    if n_bytes > max_bytes.min(MOST_COPIED) {
        return None;
    }
    let mut made = Vec::with_capacity(n_bytes);
    for at in 0..outer {
        for part in &parts {
            let run = part.bytes().len() / outer;
            made.extend_from_slice(&part.bytes()[at * run..(at + 1) * run]);
        }
    }
    let mut dims = dims.to_vec();
    dims[axis] = parts.iter().map(|part| part.shape()[axis]).sum();
    Tensor::from_bytes(dtype, &dims, Bytes::from_vec(made)).ok()
}

/// Slices along an axis, or elements of the whole, that a condition picks.
fn compress(op: &Compress, x: &Tensor, condition: &Tensor) -> Option<Tensor> {
    if condition.dtype() != DType::Bool || condition.rank() != 1 || x.dtype().is_sub_byte() {
        return None;
    }
    let width = x.dtype().bits() / 8;
    let (outer, len, inner, axis) = match op.axis {
        None => (1, x.len(), 1, None),
        Some(axis) => {
            let axis = normalize_axis(axis, x.rank()).ok()?;
            let dims = x.shape();
            (dims[..axis].iter().product(), dims[axis], dims[axis + 1..].iter().product(), Some(axis))
        }
    };
    let picked: Vec<usize> = places(condition)?.into_iter().take_while(|at| *at < len).collect();
    if condition.len() > len {
        return None;
    }
    let run = inner * width;
    let mut bytes = Vec::with_capacity(outer * picked.len() * run);
    for block in 0..outer {
        for at in &picked {
            let from = (block * len + at) * run;
            bytes.extend_from_slice(&x.bytes()[from..from + run]);
        }
    }
    let mut dims = x.shape().to_vec();
    match axis {
        Some(axis) => dims[axis] = picked.len(),
        None => dims = vec![picked.len()],
    }
    Tensor::from_bytes(x.dtype(), &dims, planish_tensor::Bytes::from_vec(bytes)).ok()
}
