//! The loops of the interpreter: one instruction over one chunk of elements.
//!
//! f32 functions are written with vectors; everything else is a plain loop that the compiler vectorizes for
//! the instruction set it is compiled for.

use crate::isa::Isa;
use crate::simd::{Simd, SimdKernel, arrays};

/// Operands and result of one instruction over one chunk. An operand's step is 1, or 0 where one element
/// stands for all; of such an f32 operand [`SPLAT_BYTES`] must be readable, filled with the element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args {
    pub(crate) from: [*const u8; 3],
    pub(crate) steps: [usize; 3],
    pub(crate) to: *mut u8,
    pub(crate) n: usize,
}

/// A splat of the widest vector, in elements of the largest kind.
pub(crate) const SPLAT_BYTES: usize = 16 * 8;

/// Runs an instruction over a chunk.
///
/// # Safety
/// The pointers must be good for `n` elements each (or a splat). The result may lie where an operand does,
/// element upon element, but not otherwise overlap one.
pub(crate) type Loop = Box<dyn Fn(Isa, &Args) + Send + Sync>;

/// A function of f32 vectors, with its parameters.
pub(crate) trait Unary: Copy + Send + Sync + 'static {
    fn apply<S: Simd>(&self, s: S, x: S::F) -> S::F;
}

/// A function of three f32 vectors; those of two ignore the third.
pub(crate) trait Ternary: Copy + Send + Sync + 'static {
    /// How many operands it reads.
    const ARITY: usize;

    fn apply<S: Simd>(&self, s: S, a: S::F, b: S::F, c: S::F) -> S::F;
}

struct UnaryLoop<'a, F> {
    function: F,
    args: &'a Args,
}

impl<F: Unary> SimdKernel for UnaryLoop<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Args { from: [from, ..], steps: [step, ..], to, n } = *self.args;
        let (from, to) = (from.cast::<f32>(), to.cast::<f32>());
        let mut at = 0;
        // SAFETY: the maker of the arguments grants `n` elements; a splat is read from its start only.
        unsafe {
            // Two vectors at a time, so that one's latencies hide behind the other's.
            while at + 2 * S::LANES <= n {
                let x = s.load(from.add(at * step));
                let y = s.load(from.add((at + S::LANES) * step));
                s.store(to.add(at), self.function.apply(s, x));
                s.store(to.add(at + S::LANES), self.function.apply(s, y));
                at += 2 * S::LANES;
            }
            while at < n {
                let x = s.load_part(from.add(at * step), n - at);
                s.store_part(to.add(at), n - at, self.function.apply(s, x));
                at += S::LANES;
            }
        }
    }
}

struct TernaryLoop<'a, F> {
    function: F,
    lo: f32,
    hi: f32,
    args: &'a Args,
}

impl<F: Ternary> TernaryLoop<'_, F> {
    #[inline(always)]
    fn one<S: Simd>(&self, s: S, [a, b, c]: [S::F; 3]) -> S::F {
        // NaN stays: minimum and maximum give their second operand when one is NaN.
        s.min(s.splat(self.hi), s.max(s.splat(self.lo), self.function.apply(s, a, b, c)))
    }
}

impl<F: Ternary> SimdKernel for TernaryLoop<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Args { from, steps, to, n } = *self.args;
        let to = to.cast::<f32>();
        let from = arrays::map(from, |from| from.cast::<f32>());
        let mut at = 0;
        // SAFETY: the maker of the arguments grants `n` elements; a splat is read from its start only.
        // Operands beyond the arity are not read.
        unsafe {
            let load = |idx: usize, at: usize| {
                if idx < F::ARITY { s.load(from[idx].add(at * steps[idx])) } else { s.zero() }
            };
            while at + 4 * S::LANES <= n {
                for part in 0..4 {
                    let at = at + part * S::LANES;
                    s.store(to.add(at), self.one(s, [load(0, at), load(1, at), load(2, at)]));
                }
                at += 4 * S::LANES;
            }
            while at < n {
                let rest = n - at;
                let load = |idx: usize| {
                    if idx < F::ARITY { s.load_part(from[idx].add(at * steps[idx]), rest) } else { s.zero() }
                };
                s.store_part(to.add(at), rest, self.one(s, [load(0), load(1), load(2)]));
                at += S::LANES;
            }
        }
    }
}

pub(crate) fn unary(function: impl Unary) -> Loop {
    Box::new(move |isa, args| isa.run(UnaryLoop { function, args }))
}

/// A function of two or three f32 operands, its result clamped.
pub(crate) fn ternary(function: impl Ternary, lo: f32, hi: f32) -> Loop {
    Box::new(move |isa, args| isa.run(TernaryLoop { function, lo, hi, args }))
}

struct Map1<'a, A, O, F> {
    function: F,
    args: &'a Args,
    types: std::marker::PhantomData<(A, O)>,
}

impl<A: Copy, O, F: Fn(A) -> O> SimdKernel for Map1<'_, A, O, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Args { from: [a, ..], steps: [step, ..], to, n } = *self.args;
        let (a, to) = (a.cast::<A>(), to.cast::<O>());
        // SAFETY: the maker of the arguments grants `n` elements, or one where the step is 0.
        unsafe {
            if step == 0 {
                let a = a.read();
                (0..n).for_each(|at| to.add(at).write((self.function)(a)));
            } else {
                (0..n).for_each(|at| to.add(at).write((self.function)(a.add(at).read())));
            }
        }
    }
}

pub(crate) fn map1<A: Copy + 'static, O: 'static>(
    function: impl Fn(A) -> O + Copy + Send + Sync + 'static,
) -> Loop {
    Box::new(move |isa, args| isa.run(Map1 { function, args, types: std::marker::PhantomData }))
}

struct Map2<'a, A, B, O, F> {
    function: F,
    args: &'a Args,
    types: std::marker::PhantomData<(A, B, O)>,
}

impl<A: Copy, B: Copy, O, F: Fn(A, B) -> O> SimdKernel for Map2<'_, A, B, O, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Args { from: [a, b, _], steps, to, n } = *self.args;
        let (a, b, to) = (a.cast::<A>(), b.cast::<B>(), to.cast::<O>());
        // SAFETY: the maker of the arguments grants `n` elements, or one where the step is 0.
        unsafe {
            match (steps[0], steps[1]) {
                (1, 1) => (0..n).for_each(|at| {
                    to.add(at).write((self.function)(a.add(at).read(), b.add(at).read()));
                }),
                (1, _) => {
                    let b = b.read();
                    (0..n).for_each(|at| to.add(at).write((self.function)(a.add(at).read(), b)));
                }
                (_, 1) => {
                    let a = a.read();
                    (0..n).for_each(|at| to.add(at).write((self.function)(a, b.add(at).read())));
                }
                _ => {
                    let (a, b) = (a.read(), b.read());
                    (0..n).for_each(|at| to.add(at).write((self.function)(a, b)));
                }
            }
        }
    }
}

pub(crate) fn map2<A: Copy + 'static, B: Copy + 'static, O: 'static>(
    function: impl Fn(A, B) -> O + Copy + Send + Sync + 'static,
) -> Loop {
    Box::new(move |isa, args| isa.run(Map2 { function, args, types: std::marker::PhantomData }))
}

struct SelectLoop<'a, T> {
    args: &'a Args,
    types: std::marker::PhantomData<T>,
}

impl<T: Copy> SimdKernel for SelectLoop<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Args { from: [condition, yes, no], steps, to, n } = *self.args;
        let (yes, no, to) = (yes.cast::<T>(), no.cast::<T>(), to.cast::<T>());
        // SAFETY: the maker of the arguments grants `n` elements, or one where the step is 0.
        unsafe {
            match (steps[0], steps[1], steps[2]) {
                (1, 1, 1) => (0..n).for_each(|at| {
                    let (yes, no) = (yes.add(at).read(), no.add(at).read());
                    to.add(at).write(if condition.add(at).read() != 0 { yes } else { no });
                }),
                (1, 1, 0) => {
                    let no = no.read();
                    (0..n).for_each(|at| {
                        let yes = yes.add(at).read();
                        to.add(at).write(if condition.add(at).read() != 0 { yes } else { no });
                    });
                }
                (1, 0, 1) => {
                    let yes = yes.read();
                    (0..n).for_each(|at| {
                        let no = no.add(at).read();
                        to.add(at).write(if condition.add(at).read() != 0 { yes } else { no });
                    });
                }
                _ => (0..n).for_each(|at| {
                    let holds = condition.add(at * steps[0]).read() != 0;
                    let (yes, no) = (yes.add(at * steps[1]).read(), no.add(at * steps[2]).read());
                    to.add(at).write(if holds { yes } else { no });
                }),
            }
        }
    }
}

pub(crate) fn select<T: Copy + 'static>() -> Loop {
    Box::new(move |isa, args| isa.run(SelectLoop::<T> { args, types: std::marker::PhantomData }))
}
