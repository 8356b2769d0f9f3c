//! Weights rounded to few bits so that products with them change least.
//!
//! Two things beyond the nearest integers. The scale of a group is searched for: of some around its largest magnitude the
//! one with the least squared error, each refined to the best one for the integers that it gives. Integers reach one
//! further below zero than above; a scale has the sign that puts the largest weight there. And where it is known how the
//! channels of what the product reads go together, what rounding a weight leaves over is made up for by those of the same
//! column that are not rounded yet (Frantar et al., GPTQ, 2022).

use crate::moments::SecondMoments;

/// How integers are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grouping {
    /// Elements along the sum with one scale.
    pub group: usize,
    /// The largest integer; the smallest is one further from zero where scales are searched for.
    pub largest: i8,
    /// Whether scales are searched for: what they gain goes with the square of a step, and 8 bits have small ones.
    pub searched: bool,
}

/// A matrix `[depth, columns]` by integers, with scales `[depth / group, columns]`.
#[derive(Clone, PartialEq, Debug)]
pub struct FewBits {
    pub integers: Vec<i8>,
    pub scales: Vec<f32>,
}

/// Scales that are tried: the largest magnitude over each of these parts of the largest integer and one.
const TRIALS: [f32; 11] = [0.70, 0.75, 0.80, 0.85, 0.90, 0.95, 1.0, 1.05, 1.10, 1.15, 1.20];
/// What is added to the diagonal of the moments, as a part of its mean: channels that were always zero, and samples that
/// are fewer than channels, must not make it singular. Between 0.001 and 0.2 embeddings of MiniLM differ by 0.0005.
const DAMPING: f64 = 0.01;

impl FewBits {
    /// Rounds a matrix of `n_columns`. `moments` are those of the rows that it is multiplied by. All weights must be finite.
    pub fn of(
        weights: &[f32],
        n_columns: usize,
        grouping: Grouping,
        moments: Option<&SecondMoments>,
    ) -> FewBits {
        let depth = weights.len() / n_columns.max(1);
        let n_groups = depth.div_ceil(grouping.group);
        let mut rest = weights.to_vec();
        let mut rounded =
            FewBits { integers: vec![0; weights.len()], scales: vec![1.0; n_groups * n_columns] };
        let moments = moments.filter(|moments| moments.n_channels() == depth && moments.is_usable());
        let block = moments.map_or(depth, SecondMoments::block).max(1);
        for start in (0..depth).step_by(block) {
            let end = (start + block).min(depth);
            let spread = moments.and_then(|moments| Spread::new(moments, start, end));
            for row in start..end {
                if row % grouping.group == 0 {
                    rounded.find_scales(&rest, n_columns, row, grouping, moments);
                }
                let left = rounded.round_row(&rest, n_columns, row, grouping);
                let Some(spread) = &spread else { continue };
                for later in row + 1..end {
                    let share = spread.share(row - start, later - start);
                    let row = &mut rest[later * n_columns..(later + 1) * n_columns];
                    row.iter_mut().zip(&left).for_each(|(weight, left)| *weight -= share * left);
                }
            }
        }
        rounded
    }

    /// Finds the scales of the group that begins at a row.
    fn find_scales(
        &mut self,
        rest: &[f32],
        n_columns: usize,
        row: usize,
        grouping: Grouping,
        moments: Option<&SecondMoments>,
    ) {
        let depth = rest.len() / n_columns.max(1);
        let rows = row..(row + grouping.group).min(depth);
        let importance: Vec<f32> = rows
            .clone()
            .map(|channel| moments.map_or(1.0, |moments| moments.mean(channel, channel) as f32))
            .collect();
        let mut column = vec![0f32; rows.len()];
        for at in 0..n_columns {
            for (weight, row) in column.iter_mut().zip(rows.clone()) {
                *weight = rest[row * n_columns + at];
            }
            let scale = best_scale(&column, &importance, grouping);
            self.scales[row / grouping.group * n_columns + at] = scale;
        }
    }

    /// Rounds a row; gives what is left over of it.
    fn round_row(&mut self, rest: &[f32], n_columns: usize, row: usize, grouping: Grouping) -> Vec<f32> {
        let first = row / grouping.group * n_columns;
        let scales = &self.scales[first..first + n_columns];
        let all = row * n_columns..(row + 1) * n_columns;
        let integers = &mut self.integers[all.clone()];
        let one = |((weight, scale), integer): ((&f32, &f32), &mut i8)| {
            let rounded = nearest(weight / scale, grouping);
            *integer = rounded as i8;
            weight - rounded * scale
        };
        rest[all].iter().zip(scales).zip(integers).map(one).collect()
    }
}

/// The smallest integer.
fn smallest(grouping: Grouping) -> f32 {
    -f32::from(grouping.largest) - f32::from(u8::from(grouping.searched))
}

/// The nearest integer, of two the even one.
fn nearest(value: f32, grouping: Grouping) -> f32 {
    /// From here on floats have steps of 1, and adding it rounds.
    const ROUNDS: f32 = 12_582_912.0;
    let value = value.clamp(smallest(grouping), f32::from(grouping.largest));
    (value + ROUNDS) - ROUNDS
}

/// The scale with the least squared error of a group, weighted by importance.
fn best_scale(weights: &[f32], importance: &[f32], grouping: Grouping) -> f32 {
    let by_magnitude = weights.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs()));
    let Some(largest) = by_magnitude.filter(|largest| (largest / 128.0).is_normal()) else { return 1.0 };
    if !grouping.searched {
        return largest.abs() / f32::from(grouping.largest);
    }
    let (mut best, mut least) = (-largest / -smallest(grouping), f32::INFINITY);
    for sign in [-1.0, 1.0] {
        for part in TRIALS {
            let scale = sign * largest / (part * -smallest(grouping));
            let (mut squares, mut products, mut all) = (0f32, 0f32, 0f32);
            for (weight, importance) in weights.iter().zip(importance) {
                let integer = nearest(weight / scale, grouping);
                squares += importance * integer * integer;
                products += importance * integer * weight;
                all += importance * weight * weight;
            }
            // The best scale for these integers, and what it leaves.
            let refined = if squares > 0.0 { products / squares } else { scale };
            let error = if squares > 0.0 { all - products * refined } else { all };
            if error < least && refined.is_normal() {
                (best, least) = (refined, error);
            }
        }
    }
    best
}

/// How what rounding one channel leaves over is spread over those behind it.
struct Spread {
    n: usize,
    /// The inverse of `r`, where `r · rᵀ` are the moments and `r` is zero below its diagonal.
    inverse: Vec<f64>,
}

impl Spread {
    /// Of the channels of a block; `None` where they are too much alike for it.
    fn new(moments: &SecondMoments, start: usize, end: usize) -> Option<Spread> {
        let n = end - start;
        let diagonal: f64 = (start..end).map(|channel| moments.mean(channel, channel)).sum();
        let damping = DAMPING * diagonal / n as f64;
        if damping <= 0.0 {
            return None;
        }
        // From the last channel to the first: `r[i][j]` for j >= i.
        let mut r = vec![0f64; n * n];
        for j in (0..n).rev() {
            let behind: f64 = r[j * n + j + 1..(j + 1) * n].iter().map(|x| x * x).sum();
            let square = moments.mean(start + j, start + j) + damping - behind;
            if square <= 0.0 {
                return None;
            }
            let root = square.sqrt();
            r[j * n + j] = root;
            for i in 0..j {
                let (upper, lower) = r.split_at(j * n);
                let (row, own) = (&upper[i * n + j + 1..(i + 1) * n], &lower[j + 1..n]);
                let behind: f64 = row.iter().zip(own).map(|(a, b)| a * b).sum();
                r[i * n + j] = (moments.mean(start + i, start + j) - behind) / root;
            }
        }
        let mut inverse = vec![0f64; n * n];
        for i in (0..n).rev() {
            // Row i of the inverse from those below it.
            let (above, below) = inverse.split_at_mut((i + 1) * n);
            let row = &mut above[i * n..];
            let own = r[i * n + i];
            for k in i + 1..n {
                let factor = r[i * n + k] / own;
                let other = &below[(k - i - 1) * n + k..(k - i) * n];
                row[k..].iter_mut().zip(other).for_each(|(sum, other)| *sum -= factor * other);
            }
            row[i] = 1.0 / own;
        }
        Some(Spread { n, inverse })
    }

    /// The share of what is left over of one channel that a later one takes off.
    fn share(&self, from: usize, to: usize) -> f32 {
        (self.inverse[from * self.n + to] / self.inverse[from * self.n + from]) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_testing::Random;

    const INT4: Grouping = Grouping { group: 32, largest: 7, searched: true };
    const INT8: Grouping = Grouping { group: 128, largest: 127, searched: false };

    fn normal(random: &mut Random, n: usize) -> Vec<f32> {
        (0..n).map(|_| random.normal() as f32).collect()
    }

    fn numbers(rounded: &FewBits, n_columns: usize, grouping: Grouping) -> Vec<f32> {
        let one = |(at, integer): (usize, &i8)| {
            f32::from(*integer) * rounded.scales[at / n_columns / grouping.group * n_columns + at % n_columns]
        };
        rounded.integers.iter().enumerate().map(one).collect()
    }

    fn error(got: &[f32], want: &[f32]) -> f64 {
        let square =
            |numbers: &mut dyn Iterator<Item = f32>| numbers.map(|x| f64::from(x).powi(2)).sum::<f64>();
        let wrong = square(&mut got.iter().zip(want).map(|(a, b)| a - b));
        (wrong / square(&mut want.iter().copied())).sqrt()
    }

    #[test]
    fn searched_scales_are_closer_than_those_of_the_largest_weight() {
        let mut random = Random::new(5);
        let weights = normal(&mut random, 256 * 24);
        let plain = Grouping { searched: false, ..INT4 };
        let of = |grouping: Grouping| {
            let rounded = FewBits::of(&weights, 24, grouping, None);
            let reach = smallest(grouping)..=f32::from(grouping.largest);
            assert!(rounded.integers.iter().all(|&integer| reach.contains(&f32::from(integer))));
            error(&numbers(&rounded, 24, grouping), &weights)
        };
        // 0.095 and 0.081 of normal weights in groups of 32.
        assert!(of(INT4) < 0.9 * of(plain), "{} {}", of(INT4), of(plain));
        assert!((0.07..0.09).contains(&of(INT4)) && of(INT8) < 0.008);
    }

    #[test]
    fn columns_of_zeros_and_short_last_groups_come_back() {
        let mut weights = vec![0f32; 40 * 3];
        weights[38 * 3 + 1] = -2.0;
        for grouping in [INT4, INT8, Grouping { group: 16, ..INT4 }] {
            let rounded = FewBits::of(&weights, 3, grouping, None);
            let got = numbers(&rounded, 3, grouping);
            assert!(error(&got, &weights) < 1e-6 && got[0] == 0.0, "{grouping:?}");
        }
    }

    /// Products with rows whose channels go together change less than by rounding to nearest.
    #[test]
    fn known_moments_make_products_more_exact() {
        let mut random = Random::new(9);
        for (depth, n_columns) in [(64, 16), (96, 5), (33, 7)] {
            let mix = normal(&mut random, 4 * depth);
            let rows: Vec<f32> = (0..400)
                .flat_map(|_| {
                    let hidden = normal(&mut random, 4);
                    let noise = normal(&mut random, depth);
                    let value = |channel: usize| {
                        let sum: f32 = (0..4).map(|k| hidden[k] * mix[k * depth + channel]).sum();
                        sum + 0.3 * noise[channel]
                    };
                    (0..depth).map(value).collect::<Vec<f32>>()
                })
                .collect();
            let mut moments = SecondMoments::new(depth);
            moments.observe(&rows);
            let weights = normal(&mut random, depth * n_columns);
            let product = |weights: &[f32]| -> Vec<f32> {
                let sum = |row: &[f32], at: usize| -> f32 {
                    row.iter().enumerate().map(|(k, x)| x * weights[k * n_columns + at]).sum()
                };
                rows.chunks(depth)
                    .flat_map(|row| (0..n_columns).map(move |at| (row, at)))
                    .map(|(row, at)| sum(row, at))
                    .collect()
            };
            let exact = product(&weights);
            let of = |moments: Option<&SecondMoments>| {
                let rounded = FewBits::of(&weights, n_columns, INT4, moments);
                error(&product(&numbers(&rounded, n_columns, INT4)), &exact)
            };
            assert!(of(Some(&moments)) < 0.6 * of(None), "{} {}", of(Some(&moments)), of(None));
            // Moments of another product, and of nothing, are not used.
            assert_eq!(of(Some(&SecondMoments::new(depth))), of(None));
            assert_eq!(of(Some(&SecondMoments::new(depth + 1))), of(None));
        }
    }

    /// The share that later channels take off is that of the least squares of what is left.
    #[test]
    fn two_channels_that_are_equal_take_everything_over() {
        let mut moments = SecondMoments::new(2);
        (1..50).for_each(|n| moments.observe(&[n as f32, n as f32]));
        let spread = Spread::new(&moments, 0, 2).unwrap();
        // The second makes up for the first but for the damping.
        assert!((spread.share(0, 1) + 1.0).abs() < 0.02, "{}", spread.share(0, 1));
        assert!(Spread::new(&SecondMoments::new(2), 0, 2).is_none());
    }
}
