//! Second moments of what matrix products read: how its channels go together, for rounding weights with regard to it.

/// Channels are taken together in blocks of at most so many: what a block needs grows with its square.
const MAX_BLOCK: usize = 1024;
/// Rows that are looked at: some times as many as a block has channels, and more change little.
const MAX_ROWS: usize = 8192;
/// Rows that are added at once, so that sums are read and written once for all of them.
const ROWS_AT_ONCE: usize = 8;

/// The sums of `x[i] · x[j]` over all rows, for channels of the same block.
#[derive(Clone, PartialEq, Debug)]
pub struct SecondMoments {
    n_channels: usize,
    block: usize,
    n_rows: usize,
    /// Block by block a square matrix, of which the half from the diagonal on is kept up.
    sums: Vec<f32>,
}

impl SecondMoments {
    /// Nothing seen yet.
    pub fn new(n_channels: usize) -> SecondMoments {
        let block = n_channels.div_ceil(n_channels.div_ceil(MAX_BLOCK).max(1)).max(1);
        let n_blocks = n_channels.div_ceil(block);
        SecondMoments { n_channels, block, n_rows: 0, sums: vec![0.0; n_blocks * block * block] }
    }

    /// Takes in rows of all channels; beyond some thousand of them, none.
    pub fn observe(&mut self, rows: &[f32]) {
        let left = MAX_ROWS - self.n_rows.min(MAX_ROWS);
        let rows = &rows[..rows.len().min(left * self.n_channels)];
        for some in rows.chunks(ROWS_AT_ONCE * self.n_channels.max(1)) {
            let some: Vec<&[f32]> = some.chunks_exact(self.n_channels.max(1)).collect();
            self.n_rows += some.len();
            let squares = self.sums.chunks_exact_mut(self.block * self.block);
            for (square, start) in squares.zip((0..).step_by(self.block)) {
                let end = (start + self.block).min(self.n_channels);
                let parts: Vec<&[f32]> = some.iter().map(|row| &row[start..end]).collect();
                for (i, sums) in square.chunks_exact_mut(self.block).enumerate().take(end - start) {
                    for part in &parts {
                        let factor = part[i];
                        let pairs = sums[i..].iter_mut().zip(&part[i..]);
                        pairs.for_each(|(sum, other)| *sum += factor * other);
                    }
                }
            }
        }
    }

    /// How many channels there are.
    pub fn n_channels(&self) -> usize {
        self.n_channels
    }

    /// How many channels a block has; the last may have fewer.
    pub fn block(&self) -> usize {
        self.block
    }

    /// The mean of `x[i] · x[j]`, for channels of one block.
    pub fn mean(&self, i: usize, j: usize) -> f64 {
        let (low, high) = (i.min(j), i.max(j));
        let (start, square) = (low / self.block * self.block, self.block * self.block);
        debug_assert!(high < start + self.block, "channels of one block");
        let at = low / self.block * square + (low - start) * self.block + high - start;
        f64::from(self.sums[at]) / self.n_rows.max(1) as f64
    }

    /// Whether every sum is a number, and some row was not zero.
    pub fn is_usable(&self) -> bool {
        self.sums.iter().all(|sum| sum.is_finite()) && self.sums.iter().any(|sum| *sum > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_testing::Random;

    #[test]
    fn means_of_products_are_those_of_the_rows() {
        let mut random = Random::new(3);
        for (n_channels, n_rows) in [(1, 1), (3, 5), (8, 8), (13, 37)] {
            let rows: Vec<f32> = (0..n_channels * n_rows).map(|_| random.normal() as f32).collect();
            let mut moments = SecondMoments::new(n_channels);
            let middle = n_rows / 2 * n_channels;
            moments.observe(&rows[..middle]);
            moments.observe(&rows[middle..]);
            for i in 0..n_channels {
                for j in 0..n_channels {
                    let products = rows.chunks(n_channels).map(|row| f64::from(row[i]) * f64::from(row[j]));
                    let expected = products.sum::<f64>() / n_rows as f64;
                    assert!((moments.mean(i, j) - expected).abs() < 1e-5, "{n_channels} x {n_rows}");
                }
            }
            assert!(moments.is_usable());
        }
    }

    #[test]
    fn many_channels_are_in_blocks() {
        let mut moments = SecondMoments::new(2500);
        assert_eq!((moments.block(), moments.n_channels()), (834, 2500));
        let row: Vec<f32> = (0..2500).map(|channel| channel as f32).collect();
        moments.observe(&row);
        moments.observe(&row);
        assert_eq!(moments.mean(2, 833), 2.0 * 833.0);
        assert_eq!(moments.mean(2499, 1668), 2499.0 * 1668.0);
        assert!(!SecondMoments::new(4).is_usable());
    }
}
