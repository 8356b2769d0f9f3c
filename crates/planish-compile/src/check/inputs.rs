//! Inputs that a check makes up: repeatable, and valid for any model that takes indices.

use planish_op::Value;
use planish_plan::Plan;
use planish_tensor::{DType, Tensor};

/// Integer inputs are below this: tokens, positions and indices that every table has.
const MAX_INTEGER: u64 = 2;

/// A repeatable stream of numbers (xorshift).
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n.max(1)
    }

    /// Around zero with a variance of about 1: the sum of twelve uniform numbers, less six.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| (self.next() >> 40) as f64 / (1u64 << 24) as f64).sum::<f64>() - 6.0
    }

    pub(super) fn tensor(&mut self, dtype: DType, dims: &[usize]) -> Option<Tensor> {
        let n = planish_tensor::element_count(dims)?;
        let values: Vec<f64> = (0..n)
            .map(
                |_| if dtype.is_float() { self.normal() } else { ((self.next() >> 20) % MAX_INTEGER) as f64 },
            )
            .collect();
        Tensor::from_f64s(dtype, dims, &values).ok()
    }
}

/// Values for the plan's inputs at these sizes.
pub(super) fn random(plan: &Plan, sizes: &[(String, i64)], seed: u64) -> Option<Vec<Value>> {
    let mut numbers = Numbers::new(seed + 1);
    let lookup = |name: &str| sizes.iter().find(|(known, _)| known == name).map(|(_, size)| *size);
    let mut values = Vec::with_capacity(plan.program.inputs.len());
    for &input in &plan.program.inputs {
        let ty = plan.program.values[input as usize].ty.as_tensor()?;
        let dims = ty.shape.as_ref()?.eval(&lookup)?;
        values.push(Value::Tensor(numbers.tensor(ty.dtype, &dims)?));
    }
    Some(values)
}
