//! Seeded weights: every tensor has a stream of its own, from the seed and its name, so that a layer's numbers do
//! not depend on what was built before it.

/// How the numbers of a tensor are spread: a bell around `center`, cut at 3.46 deviations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    center: f32,
    deviation: f32,
}

impl Spread {
    pub(crate) fn around(center: f32, deviation: f32) -> Spread {
        Spread { center, deviation }
    }

    /// Keeps the second moment of what a product with `fan_in` terms sees, times `gain` (He and others, 2015).
    pub(crate) fn fan(fan_in: usize, gain: f32) -> Spread {
        Spread { center: 0.0, deviation: (gain / fan_in as f32).sqrt() }
    }
}

/// The standard deviation of the sum of four uniform 16-bit numbers: sqrt(4 (2^32 - 1) / 12).
const SUM_DEVIATION: f32 = 37_837.23;
/// Their mean: 4 (2^16 - 1) / 2.
const SUM_MEAN: i32 = 131_070;

/// `n` numbers. The bell is the sum of four uniform numbers out of one step of SplitMix64 (Steele, Lea, Flood
/// 2014): near enough to normal for weights, a nanosecond or two each, and only integer steps, one product and
/// one sum, so the same bits on every machine.
pub(crate) fn draw(seed: u64, name: &str, n: usize, spread: Spread) -> Vec<f32> {
    let mut state = seed ^ hash(name);
    let scale = spread.deviation / SUM_DEVIATION;
    let mut one = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let mixed = mixed ^ (mixed >> 31);
        let sum = (mixed & 0xffff) + (mixed >> 16 & 0xffff) + (mixed >> 32 & 0xffff) + (mixed >> 48);
        spread.center + scale * (sum as i32 - SUM_MEAN) as f32
    };
    (0..n).map(|_| one()).collect()
}

/// FNV-1a, 64 bits.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_as_asked_and_the_same_everywhere() {
        let numbers = draw(1, "w", 100_000, Spread::around(2.0, 0.5));
        let mean = numbers.iter().map(|&x| f64::from(x)).sum::<f64>() / 1e5;
        let variance = numbers.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / 1e5;
        // Four standard errors of each estimate.
        assert!((mean - 2.0).abs() < 0.0064 && (variance - 0.25).abs() < 0.0045, "{mean} {variance}");
        let bits: Vec<u32> = draw(0, "", 3, Spread::around(0.0, 1.0)).iter().map(|x| x.to_bits()).collect();
        assert_eq!(bits, BITS);
        assert_ne!(draw(0, "a", 4, Spread::around(0.0, 1.0)), draw(0, "b", 4, Spread::around(0.0, 1.0)));
        assert_ne!(draw(0, "a", 4, Spread::around(0.0, 1.0)), draw(1, "a", 4, Spread::around(0.0, 1.0)));
    }

    /// The first numbers of the seed 0 and the empty name, computed apart with numpy.
    const BITS: [u32; 3] = [1_066_632_610, 1_054_386_993, 1_014_561_655];
}
