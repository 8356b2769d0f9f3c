//! The one generator of random numbers for tests and benchmarks: seeded, and the same on every machine.

use planish_kernel::{Layout, Operand, Problem};
use planish_op::two_of_four::{Fours, summed_axis};
use planish_tensor::{Bytes, DType, Tensor};

/// A repeatable stream of numbers: Marsaglia's xorshift over 64 bits. Its upper bits are used, which pass the tests that
/// the lowest ones fail.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed; every seed, 0 too, has one.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Below `n`, which must not be 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((self.bits() >> 11) % n as u64) as usize
    }

    /// Between both, included.
    pub fn between(&mut self, from: usize, to: usize) -> usize {
        from + self.below(to - from + 1)
    }

    /// Whether the one case in so many is met.
    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    /// One of a list.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// From 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From -1 to below 1.
    pub fn float(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// From `-scale` to below `scale`.
    pub fn real(&mut self, scale: f32) -> f32 {
        self.float() * scale
    }

    /// From -1 to below 1 in steps of 1/64: sums of a few products are exact in f32.
    pub fn coarse(&mut self) -> f32 {
        (self.bits() >> 57) as f32 / 64.0 - 1.0
    }

    /// Of the standard normal distribution (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        // Half a step above zero, which has no logarithm.
        let mut open = || ((self.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let (radius, angle) = ((-2.0 * open().ln()).sqrt(), std::f64::consts::TAU * open());
        radius * angle.cos()
    }

    /// So many of [`Random::float`].
    pub fn list(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }

    /// A tensor of [`Random::float`].
    pub fn floats(&mut self, dims: &[usize]) -> Tensor {
        let values = self.list(dims.iter().product());
        Tensor::new(dims, values).expect("as many numbers as the sizes say")
    }

    /// A tensor of reals up to `scale`, of whole numbers up to it where the type is one, of both booleans; bytes without a
    /// sign go up to 100, integers of 4 bits are any.
    pub fn tensor(&mut self, dtype: DType, dims: &[usize], scale: f32) -> Tensor {
        self.made(dtype, dims, |random| match dtype {
            DType::Bool => f64::from(u8::from(random.bits() & 1 == 1)),
            DType::U8 => f64::from(random.real(100.0)).abs().round(),
            DType::I8 => f64::from(random.real(127.0)).round(),
            DType::I4 => f64::from(random.real(8.0)).floor(),
            DType::U4 => f64::from(random.real(8.0)).floor() + 8.0,
            _ if dtype.is_float() => f64::from(random.real(scale)),
            _ => f64::from(random.real(scale)).round(),
        })
    }

    /// As [`Random::tensor`], 2:4 sparse along an axis: two of each four neighbours are zero, and now and then more.
    pub fn two_of_four(&mut self, dtype: DType, dims: &[usize], axis: usize, scale: f32) -> Tensor {
        let mut values = self.tensor(dtype, dims, scale).to_f64s();
        Fours::along(dims, axis).all(|places| {
            let n_zeros = places.len().saturating_sub(2) + usize::from(self.chance(5));
            let first = self.below(4);
            (0..n_zeros).for_each(|at| values[places[(first + at * (1 + first % 3)) % places.len()]] = 0.0);
            // Some of these may have been the same place.
            let mut n_left = 0;
            for &place in places {
                n_left += usize::from(values[place] != 0.0);
                values[place] = if n_left > 2 { 0.0 } else { values[place] };
            }
            true
        });
        Tensor::from_f64s(dtype, dims, &values).expect("as many numbers as the sizes say")
    }

    /// Values of a problem's input, sparse where it says so.
    pub fn input(&mut self, problem: &Problem, idx: usize, scale: f32) -> Tensor {
        let Operand { dtype, dims, two_of_four, .. } = &problem.inputs[idx];
        match summed_axis(&problem.region.nodes[0].op, dims.len()).filter(|_| *two_of_four) {
            Some(axis) => self.two_of_four(*dtype, dims, axis, scale),
            None => self.tensor(*dtype, dims, scale),
        }
    }

    /// A tensor of whole numbers between both, included.
    pub fn whole(&mut self, dtype: DType, dims: &[usize], from: i64, to: i64) -> Tensor {
        self.made(dtype, dims, |random| (from + random.below((to - from + 1) as usize) as i64) as f64)
    }

    /// A tensor whose elements are drawn one by one, and converted to the type.
    pub fn made(&mut self, dtype: DType, dims: &[usize], mut draw: impl FnMut(&mut Random) -> f64) -> Tensor {
        let values: Vec<f64> = (0..dims.iter().product()).map(|_| draw(self)).collect();
        Tensor::from_f64s(dtype, dims, &values).expect("as many numbers as the sizes say")
    }

    /// A tensor of any bits.
    pub fn raw(&mut self, dtype: DType, dims: &[usize]) -> Tensor {
        let n_bytes = dtype.bytes_for(dims.iter().product()).expect("sizes of a test fit memory");
        let bytes: Vec<u8> = (0..n_bytes).map(|_| (self.bits() >> 40) as u8).collect();
        Tensor::from_bytes(dtype, dims, Bytes::from_vec(bytes)).expect("as many bytes as the sizes say")
    }

    /// An operand of this layout, dense or inside something larger.
    pub fn operand(&mut self, dtype: DType, dims: &[usize], layout: Layout) -> Operand {
        let larger: Vec<usize> =
            dims.iter().map(|dim| dim + if self.chance(3) { self.below(4) } else { 0 }).collect();
        Operand { strides: layout.strides(&larger), ..Operand::dense(dtype, dims, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_depend_on_the_seed_alone() {
        // Numbers that tests of other crates were written with: a change of the stream changes all of them.
        let first: Vec<u64> = (0..3).map(|_| Random::new(1).bits()).collect();
        assert_eq!(first, [first[0]; 3]);
        let mut random = Random::new(7);
        assert_eq!([random.float(), random.float(), random.float()], Random::new(7).list(3)[..]);
        assert_ne!(Random::new(0).list(4), Random::new(1).list(4));
    }

    #[test]
    fn numbers_are_spread_as_said() {
        let mut random = Random::new(3);
        let n = 20_000;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let floats: Vec<f64> = random.list(n).into_iter().map(f64::from).collect();
        assert!(floats.iter().all(|x| (-1.0..1.0).contains(x)));
        // Three standard deviations of the mean of so many, here and below.
        assert!(mean(&floats).abs() < 3.0 * (1.0f64 / 3.0 / n as f64).sqrt());
        let normals: Vec<f64> = (0..n).map(|_| random.normal()).collect();
        let squares: Vec<f64> = normals.iter().map(|x| x * x).collect();
        assert!(mean(&normals).abs() < 0.022 && (mean(&squares) - 1.0).abs() < 0.03);
        let mut counts = [0usize; 7];
        (0..7 * 10_000).for_each(|_| counts[random.below(7)] += 1);
        // Five standard deviations of each: nothing that a look at seven of them would call a surprise.
        assert!(counts.iter().all(|count| (9_537..10_463).contains(count)), "{counts:?}");
    }

    #[test]
    fn tensors_hold_what_their_type_can() {
        let mut random = Random::new(5);
        let whole = random.tensor(DType::I32, &[100], 3.0).to_i64s();
        assert!(whole.iter().all(|x| (-3..=3).contains(x)) && whole.iter().any(|x| *x < 0));
        assert!(random.tensor(DType::Bool, &[100], 9.0).to_i64s().iter().all(|x| (0..=1).contains(x)));
        assert!(random.tensor(DType::U8, &[100], 9.0).to_i64s().iter().any(|x| *x > 50));
        assert!(random.whole(DType::I64, &[100], -2, 1).to_i64s().iter().all(|x| (-2..=1).contains(x)));
        assert_eq!(random.raw(DType::F16, &[3, 5]).bytes().len(), 30);
        let sparse = random.two_of_four(DType::F32, &[30, 17], 0, 1.0);
        assert!(planish_op::two_of_four::is_two_of_four(&sparse, 0));
        let n_set = sparse.to_f64s().iter().filter(|x| **x != 0.0).count();
        assert!((200..=272).contains(&n_set), "{n_set}");
    }
}
