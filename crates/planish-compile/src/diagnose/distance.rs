//! How far tensors are apart, summed up over samples.

use planish_tensor::Tensor;

/// A sum of squared differences beside that of the squares.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Distance {
    error: f64,
    norm: f64,
    /// Numbers on one side where there are none on the other.
    n_wild: usize,
}

impl Distance {
    /// How far a tensor is from the one that was wanted; of other sizes it is infinitely far.
    pub(super) fn between(got: &Tensor, want: &Tensor) -> Distance {
        let mut distance = Distance::default();
        if got.len() != want.len() {
            distance.n_wild = 1;
            return distance;
        }
        for (x, y) in got.to_f64s().into_iter().zip(want.to_f64s()) {
            if x.is_finite() && y.is_finite() {
                distance.error += (x - y) * (x - y);
                distance.norm += y * y;
            } else if x != y && !(x.is_nan() && y.is_nan()) {
                distance.n_wild += 1;
            }
        }
        distance
    }

    pub(super) fn add(&mut self, other: &Distance) {
        self.error += other.error;
        self.norm += other.norm;
        self.n_wild += other.n_wild;
    }

    /// Relative L2.
    pub(super) fn relative(&self) -> f64 {
        match self.n_wild {
            0 if self.error == 0.0 => 0.0,
            0 => (self.error / self.norm.max(f64::MIN_POSITIVE)).sqrt(),
            _ => f64::INFINITY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_add_up_and_wild_numbers_are_infinitely_far() {
        let vector = |values: &[f32]| Tensor::vector(values.to_vec());
        let mut sum = Distance::between(&vector(&[1.0, 2.0]), &vector(&[1.0, 3.0]));
        assert_eq!(sum.relative(), 0.1f64.sqrt());
        sum.add(&Distance::between(&vector(&[f32::NAN]), &vector(&[f32::NAN])));
        assert_eq!(sum.relative(), 0.1f64.sqrt());
        sum.add(&Distance::between(&vector(&[f32::INFINITY]), &vector(&[7e4])));
        assert_eq!(sum.relative(), f64::INFINITY);
        assert_eq!(Distance::between(&vector(&[1.0]), &vector(&[1.0, 1.0])).relative(), f64::INFINITY);
    }
}
