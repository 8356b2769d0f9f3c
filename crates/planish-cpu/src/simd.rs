//! One vocabulary of f32 vector arithmetic, so that a kernel is written once and compiled for each
//! instruction set.
//!
//! A kernel is a struct with its arguments that implements [`SimdKernel`]; `Isa::run` compiles its `run` for
//! each instruction set. Everything here is `#[inline(always)]`: the vector code must end up inside the one
//! function that has the instruction set switched on.

pub(crate) mod arrays;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

/// Work that is generic over the instruction set.
pub trait SimdKernel {
    type Output;

    /// Must be `#[inline(always)]` in every implementation.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Vector arithmetic of one instruction set; the value proves that it may run.
///
/// Comparisons are false on NaN (`ne` is true). `min` and `max` give the second operand when one is NaN, as
/// the machine does; kernels that must pass NaN on say so and compare.
pub trait Simd: Copy + Send + Sync + std::fmt::Debug + 'static {
    /// A vector of `LANES` f32.
    type F: Copy;
    /// A vector of `LANES` i32.
    type I: Copy;
    /// A truth value per lane.
    type M: Copy;

    const LANES: usize;
    /// How many vector registers there are: what a tile may use.
    const REGISTERS: usize;

    fn splat(self, value: f32) -> Self::F;
    #[inline(always)]
    fn zero(self) -> Self::F {
        self.splat(0.0)
    }
    /// # Safety
    /// `from` must be readable for `LANES` elements; no alignment is needed.
    unsafe fn load(self, from: *const f32) -> Self::F;
    /// # Safety
    /// `to` must be writable for `LANES` elements; no alignment is needed.
    unsafe fn store(self, to: *mut f32, vector: Self::F);
    /// The first `n` lanes from memory, zero in the others; `n` beyond `LANES` is all of them.
    ///
    /// # Safety
    /// `from` must be readable for `min(n, LANES)` elements.
    unsafe fn load_part(self, from: *const f32, n: usize) -> Self::F;
    /// # Safety
    /// `to` must be writable for `min(n, LANES)` elements.
    unsafe fn store_part(self, to: *mut f32, n: usize, vector: Self::F);

    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once where the machine can.
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `c - a * b`.
    fn neg_mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    fn sqrt(self, a: Self::F) -> Self::F;
    fn abs(self, a: Self::F) -> Self::F;
    fn neg(self, a: Self::F) -> Self::F;
    /// To the nearest whole number, ties to even.
    fn round(self, a: Self::F) -> Self::F;
    fn floor(self, a: Self::F) -> Self::F;
    fn ceil(self, a: Self::F) -> Self::F;
    fn trunc(self, a: Self::F) -> Self::F;

    fn eq(self, a: Self::F, b: Self::F) -> Self::M;
    fn lt(self, a: Self::F, b: Self::F) -> Self::M;
    fn le(self, a: Self::F, b: Self::F) -> Self::M;
    fn is_nan(self, a: Self::F) -> Self::M;
    fn mask_and(self, a: Self::M, b: Self::M) -> Self::M;
    fn mask_or(self, a: Self::M, b: Self::M) -> Self::M;
    fn mask_not(self, a: Self::M) -> Self::M;
    /// `yes` where the mask is set, else `no`.
    fn select(self, mask: Self::M, yes: Self::F, no: Self::F) -> Self::F;

    fn splat_int(self, value: i32) -> Self::I;
    /// # Safety
    /// `from` must be readable for `LANES` elements; no alignment is needed.
    unsafe fn load_int(self, from: *const i32) -> Self::I;
    /// The first `n` bytes from memory as integers, zero in the other lanes; `n` beyond `LANES` is all of them.
    ///
    /// # Safety
    /// `from` must be readable for `min(n, LANES)` bytes.
    unsafe fn load_bytes(self, from: *const u8, n: usize) -> Self::I;
    /// As [`Simd::load_bytes`], with their signs.
    ///
    /// # Safety
    /// As [`Simd::load_bytes`].
    unsafe fn load_signed_bytes(self, from: *const i8, n: usize) -> Self::I;
    /// The low bytes of the first `n` lanes.
    ///
    /// # Safety
    /// `to` must be writable for `min(n, LANES)` bytes.
    unsafe fn store_bytes(self, to: *mut u8, n: usize, vector: Self::I);
    /// The low bytes of all lanes, each of which is a byte with or without a sign: those of two vectors, one after the
    /// other.
    ///
    /// # Safety
    /// `to` must be writable for `2 * LANES` bytes.
    #[inline(always)]
    unsafe fn store_two_bytes(self, to: *mut u8, first: Self::I, second: Self::I) {
        // SAFETY: the caller grants the bytes.
        unsafe {
            self.store_bytes(to, Self::LANES, first);
            self.store_bytes(to.add(Self::LANES), Self::LANES, second);
        }
    }
    /// The low half of the products.
    fn mul_int(self, a: Self::I, b: Self::I) -> Self::I;
    fn add_int(self, a: Self::I, b: Self::I) -> Self::I;
    fn sub_int(self, a: Self::I, b: Self::I) -> Self::I;
    fn and_int(self, a: Self::I, b: Self::I) -> Self::I;
    fn or_int(self, a: Self::I, b: Self::I) -> Self::I;
    fn shift_left<const N: i32>(self, a: Self::I) -> Self::I;
    /// With the sign copied in.
    fn shift_right<const N: i32>(self, a: Self::I) -> Self::I;
    /// Nearest, ties to even; out of range gives `i32::MIN`.
    fn to_int(self, a: Self::F) -> Self::I;
    fn to_float(self, a: Self::I) -> Self::F;
    fn bits(self, a: Self::F) -> Self::I;
    /// The four bits `AT` of each integer, 0 being the lowest of eight, as numbers from -8 to 7.
    #[inline(always)]
    fn signed_nibble<const AT: usize>(self, words: Self::I) -> Self::F {
        let first = match AT {
            0 => self.shift_left::<28>(words),
            1 => self.shift_left::<24>(words),
            2 => self.shift_left::<20>(words),
            3 => self.shift_left::<16>(words),
            4 => self.shift_left::<12>(words),
            5 => self.shift_left::<8>(words),
            6 => self.shift_left::<4>(words),
            _ => words,
        };
        self.to_float(self.shift_right::<28>(first))
    }
    #[allow(clippy::wrong_self_convention)]
    fn from_bits(self, a: Self::I) -> Self::F;

    /// `a · 2^n` for whole `n` of magnitude at most 250, rounded once.
    #[inline(always)]
    fn scale(self, a: Self::F, n: Self::F) -> Self::F {
        // Two factors, because 2^n alone may be beyond the largest power of two, or below the smallest.
        let n = self.to_int(n);
        let half = self.shift_right::<1>(n);
        let power = |n| self.from_bits(self.shift_left::<23>(self.add_int(n, self.splat_int(127))));
        self.mul(self.mul(a, power(half)), power(self.sub_int(n, half)))
    }
    /// `a · 2^n` for whole `n` from -126 to 128, where the factor is infinite.
    #[inline(always)]
    fn scale_near(self, a: Self::F, n: Self::F) -> Self::F {
        let exponent = self.add_int(self.to_int(n), self.splat_int(127));
        self.mul(a, self.from_bits(self.shift_left::<23>(exponent)))
    }
    /// `a · 2^n` for whole `n` from -240 to 0 and `a` between 1/2 and 2, rounded once: the second factor alone can round.
    #[inline(always)]
    fn scale_down(self, a: Self::F, n: Self::F) -> Self::F {
        const HALF: i32 = 120;
        let exponent = self.add_int(self.to_int(n), self.splat_int(127 + HALF));
        let near = self.mul(a, self.from_bits(self.shift_left::<23>(exponent)));
        self.mul(near, self.from_bits(self.splat_int((127 - HALF) << 23)))
    }
    /// The pairs of neighbours in `a` and after them `b`, taken apart: all that come first, all that come second.
    fn unzip(self, a: Self::F, b: Self::F) -> (Self::F, Self::F);
    /// The way back from [`Simd::unzip`].
    fn zip(self, first: Self::F, second: Self::F) -> (Self::F, Self::F);
    /// Whether any lane of the mask is set.
    fn any(self, mask: Self::M) -> bool;

    /// The sum of all lanes, always in the same order.
    fn sum(self, a: Self::F) -> f32;
    /// The largest lane; NaN lanes may be passed over.
    fn max_lane(self, a: Self::F) -> f32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    struct Everything<'a> {
        a: &'a [f32],
        b: &'a [f32],
        n: usize,
    }

    impl SimdKernel for Everything<'_> {
        type Output = Vec<Vec<f32>>;

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Vec<Vec<f32>> {
            let n = self.n.min(S::LANES);
            let out = |v: S::F| {
                let mut all = vec![7.0; S::LANES + 1];
                // SAFETY: `all` has LANES elements and one more.
                unsafe { s.store_part(all.as_mut_ptr(), n, v) };
                assert!(all[n..].iter().all(|&x| x == 7.0), "a partial store wrote beyond its lanes");
                all.truncate(n);
                all
            };
            // SAFETY: both slices have at least `n` elements.
            let (a, b) = unsafe { (s.load_part(self.a.as_ptr(), n), s.load_part(self.b.as_ptr(), n)) };
            let truth = |m: S::M| out(s.select(m, s.splat(1.0), s.zero()));
            vec![
                out(s.add(a, b)),
                out(s.sub(a, b)),
                out(s.mul(a, b)),
                out(s.div(a, b)),
                out(s.mul_add(a, b, s.splat(2.0))),
                out(s.neg_mul_add(a, b, s.splat(2.0))),
                out(s.min(a, b)),
                out(s.max(a, b)),
                out(s.sqrt(s.abs(a))),
                out(s.neg(a)),
                out(s.round(a)),
                out(s.floor(a)),
                out(s.ceil(a)),
                out(s.trunc(a)),
                truth(s.eq(a, b)),
                truth(s.lt(a, b)),
                truth(s.le(a, b)),
                truth(s.is_nan(a)),
                truth(s.mask_not(s.mask_or(s.lt(a, b), s.mask_and(s.eq(a, b), s.le(a, b))))),
                out(s.to_float(s.to_int(a))),
                out(s.to_float(s.add_int(s.to_int(a), s.splat_int(3)))),
                out(s.to_float(s.sub_int(s.to_int(a), s.splat_int(3)))),
                out(s.to_float(s.mul_int(s.to_int(a), s.splat_int(-3)))),
                {
                    let mut bytes = [9u8; 17];
                    // SAFETY: there is room for the bytes of every instruction set; 17 integers are one vector or more.
                    unsafe {
                        s.store_bytes(bytes.as_mut_ptr(), n, s.and_int(s.to_int(a), s.splat_int(0x7f)));
                        assert!(bytes[n..].iter().all(|&byte| byte == 9), "a store wrote beyond its bytes");
                        let mut two = [9u8; 33];
                        let ends = [s.splat_int(-128), s.splat_int(255)];
                        s.store_two_bytes(two.as_mut_ptr(), ends[0], ends[1]);
                        let is_first = |at: usize| at < S::LANES;
                        let expected = |at: usize| if is_first(at) { 0x80 } else { 0xff };
                        assert!(
                            (0..2 * S::LANES).all(|at| two[at] == expected(at)) && two[2 * S::LANES] == 9
                        );
                        let bytes = s.add_int(
                            s.load_bytes(bytes.as_ptr(), n),
                            s.load_signed_bytes([200u8; 17].as_ptr().cast(), n),
                        );
                        out(s.to_float(s.add_int(bytes, s.load_int([5; 17].as_ptr()))))
                    }
                },
                out(s.from_bits(s.and_int(s.bits(a), s.splat_int(i32::MAX)))),
                out(s.from_bits(s.or_int(s.bits(a), s.splat_int(i32::MIN)))),
                out(s.to_float(s.shift_left::<3>(s.to_int(a)))),
                out(s.to_float(s.shift_right::<2>(s.to_int(a)))),
                out(s.signed_nibble::<0>(s.bits(b))),
                out(s.signed_nibble::<5>(s.bits(b))),
                out(s.signed_nibble::<7>(s.bits(b))),
                out(s.scale(a, s.splat(-130.0))),
                out(s.scale(s.scale(a, s.splat(-130.0)), s.splat(131.0))),
                out(s.scale_near(a, s.splat(-17.0))),
                out(s.scale_near(a, s.splat(127.0))),
            ]
        }
    }

    /// The values are dyadic, so that products are exact with and without a fused multiply and add.
    #[test]
    fn every_instruction_set_agrees_with_the_portable_one() {
        let a = [
            1.5,
            -2.5,
            0.0,
            -0.0,
            3.25,
            100.75,
            -7.0,
            2.5,
            f32::NAN,
            0.0009765625,
            -1.0,
            0.5,
            9.0,
            4.0,
            -3.5,
            8.0,
        ];
        let b = [2.0, -2.5, 1.0, 5.0, 3.25, -0.75, 7.0, 1.5, 1.0, 1024.0, -4.0, 0.25, 3.0, 2.0, -1.5, 0.125];
        for isa in Isa::available() {
            for n in 0..=isa.lanes() {
                let got = isa.run(Everything { a: &a, b: &b, n });
                // The portable vectors are shorter, so its answer is put together from pieces.
                let mut want: Vec<Vec<f32>> = vec![Vec::new(); got.len()];
                for start in (0..n).step_by(8) {
                    let piece = Everything { a: &a[start..], b: &b[start..], n: (n - start).min(8) };
                    for (whole, part) in want.iter_mut().zip(piece.run(crate::isa::Portable)) {
                        whole.extend(part);
                    }
                }
                for (idx, (got, want)) in got.iter().zip(&want).enumerate() {
                    let same = got
                        .iter()
                        .zip(want)
                        .all(|(x, y)| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan()));
                    assert!(
                        same && got.len() == want.len(),
                        "{isa}, n {n}, operation {idx}: {got:?} against {want:?}"
                    );
                }
            }
        }
    }

    /// A number times powers of two, by the three ways.
    struct Scaled {
        number: f32,
        n: i32,
    }

    impl SimdKernel for Scaled {
        type Output = [f32; 3];

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> [f32; 3] {
            let (a, n) = (s.splat(self.number), s.splat(self.n as f32));
            arrays::map([s.scale(a, n), s.scale_near(a, n), s.scale_down(a, n)], |v| s.max_lane(v))
        }
    }

    #[test]
    fn powers_of_two_are_multiplied_with_one_rounding() {
        // A mantissa whose last bits are lost among the denormal numbers, on either side of halves.
        for number in [0.75, 1.0, 1.000_000_1, 1.333_333_4, 1.421_356_2, 1.999_999_9] {
            for n in -240..=128 {
                // Exact in f64 down to 2^-1022, and rounded once.
                let want = (f64::from(number) * 2f64.powi(n)) as f32;
                for isa in Isa::available() {
                    let [scale, near, down] = isa.run(Scaled { number, n });
                    assert_eq!(scale, want, "{isa}: {number} * 2^{n}");
                    if (-126..=127).contains(&n) {
                        assert_eq!(near, want, "{isa}, near: {number} * 2^{n}");
                    }
                    if n == 128 && number >= 1.0 {
                        assert_eq!(near, f32::INFINITY, "{isa}: {number}");
                    }
                    if n <= 1 {
                        assert_eq!(down, want, "{isa}, down: {number} * 2^{n}");
                    }
                }
            }
        }
    }

    struct Across<'a>(&'a [f32]);

    impl SimdKernel for Across<'_> {
        type Output = (f32, f32, usize);

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> (f32, f32, usize) {
            // SAFETY: the slice has 16 elements, no vector has more.
            let v = unsafe { s.load(self.0.as_ptr()) };
            assert!(s.any(s.eq(v, s.splat(self.0[S::LANES - 1]))) && !s.any(s.lt(v, s.zero())));
            (s.sum(v), s.max_lane(v), S::LANES)
        }
    }

    struct Zipped<'a>(&'a [f32]);

    impl SimdKernel for Zipped<'_> {
        type Output = [Vec<f32>; 4];

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> [Vec<f32>; 4] {
            // SAFETY: the slice has 32 elements, no vector has more than half as many.
            let (a, b) = unsafe { (s.load(self.0.as_ptr()), s.load(self.0.as_ptr().add(S::LANES))) };
            let (first, second) = s.unzip(a, b);
            let (again_a, again_b) = s.zip(first, second);
            [first, second, again_a, again_b].map(|vector| {
                let mut all = vec![0.0; S::LANES];
                // SAFETY: there is room for all lanes.
                unsafe { s.store(all.as_mut_ptr(), vector) };
                all
            })
        }
    }

    #[test]
    fn pairs_are_taken_apart_and_put_together() {
        let values: Vec<f32> = (0..32).map(|i| i as f32).collect();
        for isa in Isa::available() {
            let [first, second, a, b] = isa.run(Zipped(&values));
            let every_other = |start: usize| -> Vec<f32> {
                values[..2 * isa.lanes()].iter().skip(start).step_by(2).copied().collect()
            };
            assert_eq!((first, second), (every_other(0), every_other(1)), "{isa}");
            assert_eq!([a, b].concat(), values[..2 * isa.lanes()], "{isa}");
        }
    }

    #[test]
    fn lanes_are_added_and_compared_across() {
        let values: Vec<f32> = (0..16).map(|i| (i * 37 % 16) as f32).collect();
        for isa in Isa::available() {
            let (sum, max, lanes) = isa.run(Across(&values));
            assert_eq!(sum, values[..lanes].iter().sum::<f32>());
            assert_eq!(max, values[..lanes].iter().copied().fold(f32::MIN, f32::max));
        }
    }
}
