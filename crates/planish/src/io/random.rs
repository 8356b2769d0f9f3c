//! Random inputs and demo weights: a small generator with a seed, the same on every machine.

use planish_tensor::{DType, Tensor, TensorError};

/// SplitMix64 (Steele, Lea, Flood 2014): one addition and three mixing steps per number.
///
/// ```
/// use planish::DType;
/// use planish::io::Random;
///
/// let x = Random::new(7).tensor(DType::F32, &[1, 3, 8, 8])?;
/// assert_eq!(x.shape(), [1, 3, 8, 8]);
///
/// let mut random = Random::new(7);
/// assert!((0.0..1.0).contains(&random.unit()));
/// assert_ne!(random.bits(), random.bits());
/// # Ok::<(), planish::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Values that most models take: floats between -1 and 1, bytes over their range, other integers 0 or 1
    /// (token numbers and masks of any vocabulary).
    pub fn tensor(&mut self, dtype: DType, shape: &[usize]) -> Result<Tensor, TensorError> {
        let n = planish_tensor::element_count(shape)
            .filter(|&n| dtype.bytes_for(n).is_some_and(|bytes| bytes < MAX_BYTES))
            .ok_or_else(|| TensorError::TooLarge { dtype, shape: shape.to_vec() })?;
        let values: Vec<f64> = (0..n).map(|_| self.value(dtype)).collect();
        Tensor::from_f64s(dtype, shape, &values)
    }

    fn value(&mut self, dtype: DType) -> f64 {
        match dtype {
            dtype if dtype.is_float() => 2.0 * self.unit() - 1.0,
            DType::U8 => (self.bits() & 255) as f64,
            DType::I8 => (self.bits() & 255) as f64 - 128.0,
            _ => (self.bits() & 1) as f64,
        }
    }
}

/// More than this is a slip in a size.
const MAX_BYTES: usize = 1 << 36;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_on_every_machine() {
        let mut random = Random::new(0);
        assert_eq!(random.bits(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.bits(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn numbers_are_spread_as_said() {
        let mut random = Random::new(7);
        let numbers = random.tensor(DType::F32, &[10_000]).unwrap().to_f64s();
        let mean = numbers.iter().sum::<f64>() / 1e4;
        let variance = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1e4;
        // Uniform between -1 and 1 has a variance of 1/3; four standard errors of each estimate.
        assert!(mean.abs() < 0.024 && (variance - 1.0 / 3.0).abs() < 0.012, "{mean} {variance}");
        let tokens = random.tensor(DType::I64, &[100]).unwrap().to_i64s();
        assert!(tokens.iter().all(|token| [0, 1].contains(token)));
        assert!(random.tensor(DType::F32, &[usize::MAX, 2]).is_err());
    }
}
