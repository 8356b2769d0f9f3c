//! The discrete Fourier transform of one signal of any length.
//!
//! A length is split at its smallest prime factor p into p interleaved transforms, whose sums are put
//! together with p multiplications a point: n log n work for lengths of small factors, and the definition
//! itself for a prime. A length with a large prime factor is done as a convolution of a power of two.

use std::f64::consts::FRAC_PI_2;
use std::ops::{Add, Mul};

/// A complex number.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(super) struct Complex {
    pub(super) re: f64,
    pub(super) im: f64,
}

impl Complex {
    pub(super) fn conjugate(self) -> Complex {
        Complex { re: self.re, im: -self.im }
    }

    pub(super) fn scaled(self, factor: f64) -> Complex {
        Complex { re: self.re * factor, im: self.im * factor }
    }
}

impl Add for Complex {
    type Output = Complex;

    fn add(self, other: Complex) -> Complex {
        Complex { re: self.re + other.re, im: self.im + other.im }
    }
}

impl Mul for Complex {
    type Output = Complex;

    fn mul(self, other: Complex) -> Complex {
        Complex { re: self.re * other.re - self.im * other.im, im: self.re * other.im + self.im * other.re }
    }
}

/// Prime factors up to here are summed directly; beyond, three transforms of a power of two are less work.
const MAX_DIRECT_FACTOR: usize = 256;

/// The transform of signals of one length, with everything that depends on the length alone.
#[derive(Debug)]
pub(super) struct Fourier {
    /// `roots[k]` is exp(-2πi k/n).
    roots: Vec<Complex>,
    chirp: Option<Chirp>,
}

impl Fourier {
    /// For signals of `len` points, at least one.
    pub(super) fn new(len: usize) -> Fourier {
        let roots = (0..len).map(|k| root(k, len)).collect();
        let mut rest = len;
        let mut largest = 1;
        while rest > 1 {
            largest = smallest_factor(rest);
            rest /= largest;
        }
        Fourier { roots, chirp: (largest > MAX_DIRECT_FACTOR).then(|| Chirp::new(len)) }
    }

    /// The number of points.
    pub(super) fn len(&self) -> usize {
        self.roots.len()
    }

    /// The sums over n of x[n] exp(-2πi kn/N), for each k. The signal has `len` points.
    pub(super) fn forward(&self, signal: &[Complex]) -> Vec<Complex> {
        if let Some(chirp) = &self.chirp {
            return chirp.transform(signal);
        }
        let mut out = vec![Complex::default(); self.len()];
        self.interleaved(signal, 1, &mut out);
        out
    }

    /// The sums over k of X[k] exp(2πi kn/N) / N, for each n. The spectrum has `len` points.
    pub(super) fn inverse(&self, spectrum: &[Complex]) -> Vec<Complex> {
        let conjugate: Vec<Complex> = spectrum.iter().map(|value| value.conjugate()).collect();
        let n = self.len() as f64;
        let undo = |value: Complex| Complex { re: value.re / n, im: -value.im / n };
        self.forward(&conjugate).into_iter().map(undo).collect()
    }

    /// The transform of every `stride`-th point of `signal`, `out.len()` of them.
    fn interleaved(&self, signal: &[Complex], stride: usize, out: &mut [Complex]) {
        let len = out.len();
        if len == 1 {
            out[0] = signal[0];
            return;
        }
        let n_parts = smallest_factor(len);
        let part_len = len / n_parts;
        for (part, out) in out.chunks_mut(part_len).enumerate() {
            self.interleaved(&signal[part * stride..], stride * n_parts, out);
        }
        // X[k + q*part_len] = sum over parts r of P_r[k] * exp(-2πi r (k + q*part_len) / len)
        let step = self.len() / len;
        let mut parts = vec![Complex::default(); n_parts];
        for k in 0..part_len {
            for (part, value) in parts.iter_mut().enumerate() {
                *value = out[part * part_len + k];
            }
            for place in (k..len).step_by(part_len) {
                let mut turn = 0;
                let mut sum = Complex::default();
                for &value in &parts {
                    sum = sum + value * self.roots[turn * step];
                    turn += place;
                    if turn >= len {
                        turn -= len;
                    }
                }
                out[place] = sum;
            }
        }
    }
}

fn smallest_factor(n: usize) -> usize {
    (2..).take_while(|factor| factor * factor <= n).find(|factor| n.is_multiple_of(*factor)).unwrap_or(n)
}

/// exp(-2πi k/n) for k < n, exact at quarter turns.
fn root(k: usize, n: usize) -> Complex {
    let (quarter, rest) = ((4 * k as u128) / n as u128, (4 * k as u128) % n as u128);
    let (sin, cos) = (rest as f64 / n as f64 * FRAC_PI_2).sin_cos();
    match quarter {
        0 => Complex { re: cos, im: -sin },
        1 => Complex { re: -sin, im: -cos },
        2 => Complex { re: -cos, im: sin },
        _ => Complex { re: sin, im: cos },
    }
}

/// A transform as a convolution: with kn = (k² + n² - (k-n)²) / 2, the sum over n becomes a convolution of
/// x[n] w^(n²/2) with w^(-m²/2), done with transforms of a power of two.
#[derive(Debug)]
struct Chirp {
    /// exp(-πi n²/N).
    factors: Vec<Complex>,
    fourier: Box<Fourier>,
    /// The transform of the conjugate factors, wrapped around.
    kernel: Vec<Complex>,
}

impl Chirp {
    fn new(len: usize) -> Chirp {
        // n² modulo 2N keeps the angle small and thus exact.
        let square = |n: usize| ((n as u128 * n as u128) % (2 * len as u128)) as usize;
        let factors: Vec<Complex> = (0..len).map(|n| root(square(n), 2 * len)).collect();
        let fourier = Box::new(Fourier::new((2 * len).next_power_of_two()));
        let mut kernel = vec![Complex::default(); fourier.len()];
        for (n, factor) in factors.iter().enumerate() {
            kernel[n] = factor.conjugate();
            let mirrored = (fourier.len() - n) % fourier.len();
            kernel[mirrored] = factor.conjugate();
        }
        let kernel = fourier.forward(&kernel);
        Chirp { factors, fourier, kernel }
    }

    fn transform(&self, signal: &[Complex]) -> Vec<Complex> {
        let mut turned: Vec<Complex> = signal.iter().zip(&self.factors).map(|(&x, &w)| x * w).collect();
        turned.resize(self.fourier.len(), Complex::default());
        let spectrum = self.fourier.forward(&turned);
        let product: Vec<Complex> = spectrum.iter().zip(&self.kernel).map(|(&a, &b)| a * b).collect();
        let sums = self.fourier.inverse(&product);
        sums.into_iter().zip(&self.factors).map(|(sum, &w)| sum * w).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounding of n log n operations on numbers of size 1, with room: 1e-16 times a few hundred.
    const TOLERANCE: f64 = 1e-12;

    fn signal(len: usize) -> Vec<Complex> {
        let value = |n: usize| ((n * n * 7 + n * 3) % 17) as f64 / 17.0 - 0.5;
        (0..len).map(|n| Complex { re: value(n), im: value(n + 5) }).collect()
    }

    fn definition(signal: &[Complex]) -> Vec<Complex> {
        let len = signal.len();
        let term = |k: usize, n: usize| signal[n] * root(k * n % len, len);
        (0..len).map(|k| (0..len).map(|n| term(k, n)).fold(Complex::default(), Complex::add)).collect()
    }

    fn assert_close(a: &[Complex], b: &[Complex]) {
        assert_eq!(a.len(), b.len());
        for (place, (a, b)) in a.iter().zip(b).enumerate() {
            let distance = (a.re - b.re).hypot(a.im - b.im);
            assert!(distance < TOLERANCE, "at {place}: {a:?}, expected {b:?}");
        }
    }

    #[test]
    fn every_kind_of_length_agrees_with_the_definition() {
        // Powers, products, primes, and primes beyond the direct sum with multiples of them.
        for len in [1, 2, 3, 4, 5, 8, 12, 16, 30, 97, 128, 210, 251, 257, 514, 521] {
            let signal = signal(len);
            let fourier = Fourier::new(len);
            let spectrum = fourier.forward(&signal);
            assert_close(&spectrum, &definition(&signal));
            assert_close(&fourier.inverse(&spectrum), &signal);
        }
    }

    #[test]
    fn roots_are_exact_at_quarters() {
        let exact = [(1.0, 0.0), (0.0, -1.0), (-1.0, 0.0), (0.0, 1.0)];
        for (k, (re, im)) in exact.into_iter().enumerate() {
            assert_eq!(root(3 * k, 12), Complex { re, im });
        }
    }

    #[test]
    fn an_impulse_has_a_flat_spectrum() {
        let mut impulse = vec![Complex::default(); 6];
        impulse[0].re = 1.0;
        assert!(Fourier::new(6).forward(&impulse).iter().all(|&value| value == Complex { re: 1.0, im: 0.0 }));
    }
}
