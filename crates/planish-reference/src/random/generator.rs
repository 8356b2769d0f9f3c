//! The random numbers themselves: a pure function of a key and a place.
//!
//! The generator is Philox 4x32 with ten rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as
//! easy as 1, 2, 3", 2011): a block cipher on a counter. Element `i` of an output reads block `i` and nothing
//! else, so outputs do not depend on the number of threads or the order of evaluation.
//!
//! ONNX leaves the generator to the implementation, so the values differ from those of ONNX Runtime even for
//! the same seed; their distributions do not.

use std::f64::consts::PI;

use planish_tensor::DType;

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const KEY_STEPS: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const N_ROUNDS: usize = 10;

/// The cipher: four words from four counter words under a key of two.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..N_ROUNDS {
        let first = u64::from(counter[0]) * u64::from(MULTIPLIERS[0]);
        let second = u64::from(counter[2]) * u64::from(MULTIPLIERS[1]);
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
    }
    counter
}

/// What the numbers are for. Operators with the same seed draw different numbers.
#[derive(Clone, Copy, Debug)]
pub enum Stream {
    Normal = 1,
    Uniform = 2,
    Bernoulli = 3,
    Multinomial = 4,
    Dropout = 5,
}

/// The random numbers of one evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Generator {
    key: [u32; 2],
    stream: u32,
}

/// The key when no seed is given: every evaluation draws the same numbers. Seeds that are floats have keys
/// below 2^32, so that none of them is this one.
const DEFAULT_KEY: u64 = 0x706c_616e_6973_6821;

impl Generator {
    fn new(key: u64, stream: Stream) -> Generator {
        Generator { key: [key as u32, (key >> 32) as u32], stream: stream as u32 }
    }

    pub fn from_float_seed(seed: Option<f32>, stream: Stream) -> Generator {
        Generator::new(seed.map_or(DEFAULT_KEY, |seed| u64::from(seed.to_bits())), stream)
    }

    pub fn from_int_seed(seed: Option<i64>, stream: Stream) -> Generator {
        Generator::new(seed.map_or(DEFAULT_KEY, |seed| seed as u64), stream)
    }

    /// Two independent words of 64 bits that belong to a place.
    fn words(&self, place: usize) -> [u64; 2] {
        let place = place as u64;
        let [a, b, c, d] = philox([place as u32, (place >> 32) as u32, self.stream, 0], self.key);
        [u64::from(a) << 32 | u64::from(b), u64::from(c) << 32 | u64::from(d)]
    }

    /// A number in [0, 1) that is a multiple of 2^-`bits`, `bits` from 1 to 53.
    fn fraction(word: u64, bits: u32) -> f64 {
        (word >> (64 - bits)) as f64 / (1u64 << bits) as f64
    }

    /// A number in [0, 1) that belongs to a place.
    pub fn uniform(&self, place: usize) -> f64 {
        Generator::fraction(self.words(place)[0], 53)
    }

    /// Like [`Generator::uniform`], and exact in `dtype`, so that rounding cannot reach 1.
    pub fn uniform_of(&self, dtype: DType, place: usize) -> f64 {
        let bits = match dtype {
            DType::F64 => 53,
            DType::F32 => 24,
            DType::F16 => 11,
            _ => 8,
        };
        Generator::fraction(self.words(place)[0], bits)
    }

    /// A number from the normal distribution of mean 0 and deviation 1, by Box and Muller's transform.
    pub fn normal(&self, place: usize) -> f64 {
        let [radius, angle] = self.words(place).map(|word| Generator::fraction(word, 53));
        // 1 - radius lies in (0, 1], so that the logarithm is finite.
        (-2.0 * (1.0 - radius).ln()).sqrt() * (2.0 * PI * angle).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cipher_gives_its_published_blocks() {
        let ones = u32::MAX;
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([ones; 4], [ones; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        // Digits of π as counter and key.
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn fractions_stay_below_one() {
        for bits in [1, 8, 11, 24, 53] {
            assert_eq!(Generator::fraction(0, bits), 0.0);
            let largest = Generator::fraction(u64::MAX, bits);
            assert!(largest < 1.0 && largest == 1.0 - 2f64.powi(-(bits as i32)));
        }
        assert!((Generator::fraction(u64::MAX, 24) as f32) < 1.0);
    }

    #[test]
    fn streams_and_seeds_differ() {
        let of = |seed, stream| Generator::from_float_seed(seed, stream).uniform(7);
        assert_ne!(of(Some(1.0), Stream::Uniform), of(Some(2.0), Stream::Uniform));
        assert_ne!(of(Some(1.0), Stream::Uniform), of(Some(1.0), Stream::Bernoulli));
        assert_ne!(of(None, Stream::Uniform), of(Some(0.0), Stream::Uniform));
        assert_eq!(of(None, Stream::Uniform), of(None, Stream::Uniform));
    }
}
