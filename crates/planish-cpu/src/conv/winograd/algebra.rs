//! The algebra of Winograd's convolution along one axis: points, and the three transforms they give.
//!
//! `OUT` outputs of a window of three taps are a product of polynomials, found from its values at `OUT + 1`
//! points and at infinity: inputs and weights are evaluated there, multiplied point by point, and the outputs
//! interpolated. Two axes are done one after the other.
//!
//! The points decide the error. Measured for two axes, 256 channels of inputs from a normal distribution, f32
//! throughout but for the weights (f64, rounded once), relative L2 error: F(2,3) with 0, ±1: 5.0e-7; F(4,3)
//! with 0, ±1, ±2 (the textbook's): 3.2e-6; 0, ±1, ±1/2: 3.2e-6; 0, ±1/2, ±2: 2.0e-6; 0, ±3/4, ±3/2: 1.5e-6;
//! 0, ±5/8, ±3/2: 1.4e-6. The last are taken; all their products are exact in f32. What a sum of 2304 terms in
//! f32 has anyway is about 2e-7.

use crate::simd::{Simd, arrays};

/// The most points of an axis.
pub const POINTS: usize = 6;

/// How an axis is transformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AxisKind {
    /// One tap, one output: not transformed.
    One,
    /// F(2,3).
    Two,
    /// F(4,3).
    Four,
}

impl AxisKind {
    /// Inputs that a tile reads, which is also the number of points.
    pub fn n_in(self) -> usize {
        match self {
            AxisKind::One => One::IN,
            AxisKind::Two => Two::IN,
            AxisKind::Four => Four::IN,
        }
    }

    /// Outputs of a tile.
    pub fn n_out(self) -> usize {
        match self {
            AxisKind::One => One::OUT,
            AxisKind::Two => Two::OUT,
            AxisKind::Four => Four::OUT,
        }
    }

    /// Taps of the window.
    pub fn n_taps(self) -> usize {
        self.n_in() - self.n_out() + 1
    }

    /// The weights' transform: for each point the factors of the taps, in f64.
    pub fn weights(self) -> Vec<Vec<f64>> {
        let finite: &[f64] = match self {
            AxisKind::One => return vec![vec![1.0]],
            AxisKind::Two => &[0.0, 1.0, -1.0],
            AxisKind::Four => &[0.0, A, -A, B, -B],
        };
        let mut rows: Vec<Vec<f64>> = Vec::new();
        for (i, point) in finite.iter().enumerate() {
            let others = finite.iter().enumerate().filter(|(j, _)| *j != i);
            let scale: f64 = others.map(|(_, other)| point - other).product();
            rows.push(vec![1.0 / scale, point / scale, point * point / scale]);
        }
        rows.push(vec![0.0, 0.0, 1.0]);
        rows
    }
}

/// The transforms of one axis, on vectors of channels.
pub(super) trait Axis {
    const IN: usize;
    const OUT: usize;

    /// The first `IN` inputs to the values at the points.
    fn input<S: Simd>(s: S, d: [S::F; POINTS]) -> [S::F; POINTS];

    /// The products at the points to the first `OUT` outputs.
    fn output<S: Simd>(s: S, m: [S::F; POINTS]) -> [S::F; POINTS];

    /// The first `IN - OUT + 1` taps to the values at the points, in f32.
    fn taps<S: Simd>(s: S, g: [S::F; TAPS]) -> [S::F; POINTS];
}

/// The most taps of an axis.
pub(super) const TAPS: usize = 3;

pub(super) struct One;
pub(super) struct Two;
pub(super) struct Four;

impl Axis for One {
    const IN: usize = 1;
    const OUT: usize = 1;

    #[inline(always)]
    fn input<S: Simd>(_: S, d: [S::F; POINTS]) -> [S::F; POINTS] {
        d
    }

    #[inline(always)]
    fn output<S: Simd>(_: S, m: [S::F; POINTS]) -> [S::F; POINTS] {
        m
    }

    #[inline(always)]
    fn taps<S: Simd>(s: S, g: [S::F; TAPS]) -> [S::F; POINTS] {
        let zero = s.zero();
        [g[0], zero, zero, zero, zero, zero]
    }
}

impl Axis for Two {
    const IN: usize = 4;
    const OUT: usize = 2;

    #[inline(always)]
    fn input<S: Simd>(s: S, d: [S::F; POINTS]) -> [S::F; POINTS] {
        let zero = s.zero();
        [s.sub(d[2], d[0]), s.add(d[2], d[1]), s.sub(d[2], d[1]), s.sub(d[3], d[1]), zero, zero]
    }

    #[inline(always)]
    fn output<S: Simd>(s: S, m: [S::F; POINTS]) -> [S::F; POINTS] {
        let zero = s.zero();
        let first = s.add(s.add(m[1], m[2]), m[0]);
        let second = s.add(s.sub(m[1], m[2]), m[3]);
        [first, second, zero, zero, zero, zero]
    }

    #[inline(always)]
    fn taps<S: Simd>(s: S, g: [S::F; TAPS]) -> [S::F; POINTS] {
        let (zero, half) = (s.zero(), s.splat(0.5));
        let (even, odd) = (s.mul(s.add(g[0], g[2]), half), s.mul(g[1], half));
        [s.neg(g[0]), s.add(even, odd), s.sub(even, odd), g[2], zero, zero]
    }
}

/// The points of F(4,3) besides 0 and infinity are ±A and ±B.
const A: f64 = 0.625;
const B: f64 = 1.5;
const A2: f32 = (A * A) as f32;
const B2: f32 = (B * B) as f32;
/// What the values of weights at 0, ±A and ±B are divided by.
const SCALE_0: f64 = A * A * B * B;
const SCALE_A: f64 = 2.0 * A * A * (A * A - B * B);
const SCALE_B: f64 = 2.0 * B * B * (B * B - A * A);

impl Axis for Four {
    const IN: usize = 6;
    const OUT: usize = 4;

    #[inline(always)]
    fn input<S: Simd>(s: S, d: [S::F; POINTS]) -> [S::F; POINTS] {
        let (a, b) = (s.splat(A as f32), s.splat(B as f32));
        let (a2, b2) = (s.splat(A2), s.splat(B2));
        let (sum, product) = (s.splat(A2 + B2), s.splat(A2 * B2));
        let even_a = s.neg_mul_add(d[2], b2, d[4]);
        let odd_a = s.neg_mul_add(d[1], b2, d[3]);
        let even_b = s.neg_mul_add(d[2], a2, d[4]);
        let odd_b = s.neg_mul_add(d[1], a2, d[3]);
        [
            s.mul_add(d[0], product, s.neg_mul_add(d[2], sum, d[4])),
            s.mul_add(odd_a, a, even_a),
            s.neg_mul_add(odd_a, a, even_a),
            s.mul_add(odd_b, b, even_b),
            s.neg_mul_add(odd_b, b, even_b),
            s.mul_add(d[1], product, s.neg_mul_add(d[3], sum, d[5])),
        ]
    }

    #[inline(always)]
    fn output<S: Simd>(s: S, m: [S::F; POINTS]) -> [S::F; POINTS] {
        let (a, b) = (s.splat(A as f32), s.splat(B as f32));
        let (a2, b2) = (s.splat(A2), s.splat(B2));
        let (a3, b3) = (s.splat(A2 * A as f32), s.splat(B2 * B as f32));
        let (even_a, odd_a) = (s.add(m[1], m[2]), s.sub(m[1], m[2]));
        let (even_b, odd_b) = (s.add(m[3], m[4]), s.sub(m[3], m[4]));
        let zero = s.zero();
        [
            s.add(s.add(even_a, even_b), m[0]),
            s.mul_add(odd_a, a, s.mul(odd_b, b)),
            s.mul_add(even_a, a2, s.mul(even_b, b2)),
            s.mul_add(odd_b, b3, s.mul_add(odd_a, a3, m[5])),
            zero,
            zero,
        ]
    }

    #[inline(always)]
    fn taps<S: Simd>(s: S, g: [S::F; TAPS]) -> [S::F; POINTS] {
        let at = |point: f64, scale: f64| {
            let [one, two] =
                arrays::map([1.0 / scale, point * point / scale], |factor| s.splat(factor as f32));
            let even = s.mul_add(g[2], two, s.mul(g[0], one));
            (even, s.mul(g[1], s.splat((point / scale) as f32)))
        };
        let ((even_a, odd_a), (even_b, odd_b)) = (at(A, SCALE_A), at(B, SCALE_B));
        [
            s.mul(g[0], s.splat((1.0 / SCALE_0) as f32)),
            s.add(even_a, odd_a),
            s.sub(even_a, odd_a),
            s.add(even_b, odd_b),
            s.sub(even_b, odd_b),
            g[2],
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Portable;

    /// With every sum exact enough, the transforms give a convolution of three taps.
    fn check<A: Axis>(kind: AxisKind) {
        let d: Vec<f32> = (0..A::IN).map(|i| (i * i % 7) as f32 - 2.0).collect();
        let g = [1.0f64, -2.0, 0.5];
        let s = Portable;
        let mut vectors = [[0.0; 8]; POINTS];
        for (vector, d) in vectors.iter_mut().zip(&d) {
            *vector = [*d; 8];
        }
        let points = A::input(s, vectors);
        let weights = kind.weights();
        let mut products = [[0.0; 8]; POINTS];
        for i in 0..A::IN {
            let weight: f64 = weights[i].iter().zip(&g).map(|(w, g)| w * g).sum();
            products[i] = s.mul(points[i], [weight as f32; 8]);
        }
        let live = A::taps(s, g.map(|tap| [tap as f32; 8]));
        for i in 0..A::IN {
            let weight: f64 = weights[i].iter().zip(&g).map(|(w, g)| w * g).sum();
            assert!((f64::from(live[i][0]) - weight).abs() < 1e-6, "{kind:?} {i}: {live:?} for {weight}");
        }
        let outputs = A::output(s, products);
        for o in 0..A::OUT {
            let want: f64 = (0..kind.n_taps()).map(|t| g[t] * f64::from(d[o + t])).sum();
            assert!((f64::from(outputs[o][0]) - want).abs() < 1e-5, "{kind:?} {o}: {outputs:?} for {want}");
        }
    }

    #[test]
    fn transforms_give_a_convolution() {
        check::<One>(AxisKind::One);
        check::<Two>(AxisKind::Two);
        check::<Four>(AxisKind::Four);
    }
}
