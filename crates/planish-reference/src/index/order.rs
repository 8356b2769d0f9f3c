//! One order for all element types: a key per element that sorts as the elements do.

use planish_tensor::{DType, Tensor};

/// One key per element: `a < b` as elements if and only if `key(a) < key(b)`. The two zeros of a float are
/// equal, and NaN, equal to itself, is above everything.
pub(super) fn keys(tensor: &Tensor) -> Vec<u64> {
    const SIGN: u64 = 1 << 63;
    if tensor.dtype().is_float() {
        let key = |value: f64| {
            // Adding a positive zero turns the negative one into it.
            let bits = if value.is_nan() { f64::NAN.to_bits() & !SIGN } else { (value + 0.0).to_bits() };
            if bits & SIGN == 0 { bits | SIGN } else { !bits }
        };
        return tensor.to_f64s().into_iter().map(key).collect();
    }
    // Unsigned 64-bit integers arrive as their bits, which are in order already.
    let flip = if tensor.dtype() == DType::U64 { 0 } else { SIGN };
    tensor.to_i64s().into_iter().map(|value| value as u64 ^ flip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_elements_do() {
        let floats = vec![f64::NEG_INFINITY, -1.5, -1e-310, 0.0, 1e-310, 2.0, f64::INFINITY, f64::NAN];
        assert!(keys(&Tensor::vector(floats)).is_sorted_by(|a, b| a < b));
        let zeros = keys(&Tensor::vector(vec![0f32, -0.0]));
        assert_eq!(zeros[0], zeros[1]);
        let nans = keys(&Tensor::vector(vec![f32::NAN, -f32::NAN]));
        assert_eq!(nans[0], nans[1]);
        assert!(keys(&Tensor::vector(vec![i64::MIN, -1, 0, i64::MAX])).is_sorted_by(|a, b| a < b));
        assert!(keys(&Tensor::vector(vec![0, 1u64 << 63, u64::MAX])).is_sorted_by(|a, b| a < b));
        assert!(keys(&Tensor::from_f64s(DType::I4, &[3], &[-8.0, -1.0, 7.0]).unwrap()).is_sorted());
        assert!(keys(&Tensor::vector(vec![false, true])).is_sorted_by(|a, b| a < b));
    }
}
