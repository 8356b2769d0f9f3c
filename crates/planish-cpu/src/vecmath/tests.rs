//! Every function against the reference in f64: over all exponents, densely where it bends, on every
//! instruction set.

use planish_op as op;
use planish_op::{GeluApproximation, Op, Value};
use planish_tensor::Tensor;

use super::*;
use crate::isa::Isa;
use crate::simd::SimdKernel;

/// A prime step over all bit patterns: some 560,000 numbers, about 1,100 of each exponent and sign.
const BIT_STEP: usize = 7681;
/// Numbers between -20 and 20, where the functions bend.
const N_DENSE: usize = 200_000;

fn samples() -> Vec<f32> {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MIN_POSITIVE,
        -f32::MIN_POSITIVE,
        f32::MAX,
        f32::MIN,
        1e-45,
        -1e-45,
        88.72,
        88.73,
        -87.4,
        -103.9,
        -104.1,
        8192.0,
        8193.0,
    ];
    let mut samples = special.to_vec();
    samples.extend((0..=u32::MAX).step_by(BIT_STEP).map(f32::from_bits));
    samples.extend((0..N_DENSE).map(|idx| (idx as f32 / N_DENSE as f32 - 0.5) * 40.0));
    samples
}

/// A vector function under a name that generics can carry.
trait Function: Copy {
    fn apply<S: Simd>(s: S, x: S::F) -> S::F;
}

struct Map<'a, F> {
    x: &'a [f32],
    function: std::marker::PhantomData<F>,
}

impl<F: Function> SimdKernel for Map<'_, F> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Vec<f32> {
        let mut out = vec![0.0; self.x.len()];
        for (to, from) in out.chunks_mut(S::LANES).zip(self.x.chunks(S::LANES)) {
            // SAFETY: both chunks have the lengths given.
            unsafe {
                let y = F::apply(s, s.load_part(from.as_ptr(), from.len()));
                s.store_part(to.as_mut_ptr(), to.len(), y);
            }
        }
        out
    }
}

/// The size of the last place of an f32 of this magnitude, but not below that of `floor`.
fn ulp(magnitude: f64, floor: f64) -> f64 {
    let magnitude = magnitude.max(floor).min(f64::from(f32::MAX));
    let exponent = magnitude.log2().floor().max(-126.0);
    (exponent - 23.0).exp2()
}

/// Asserts that the function stays within `budget` ULPs of what the reference makes of `op` in f64.
#[track_caller]
fn check<F: Function>(op: Op, budget: f64, floor: f64) {
    check_where::<F>(op, budget, floor, |_| true);
}

#[track_caller]
fn check_where<F: Function>(op: Op, budget: f64, floor: f64, is_in: fn(f32) -> bool) {
    let x: Vec<f32> = samples().into_iter().filter(|x| is_in(*x)).collect();
    let exact: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
    let exact = Value::Tensor(Tensor::new(&[x.len()], exact).unwrap());
    let want = planish_reference::evaluate(&op, &[Some(&exact)], 1).unwrap();
    let want = want[0].as_tensor().unwrap().to_f64s();
    for isa in Isa::available() {
        let got = isa.run(Map::<F> { x: &x, function: std::marker::PhantomData });
        let mut worst = (0.0, 0.0, 0.0f32, 0.0);
        for ((&x, &want), &got) in x.iter().zip(&want).zip(&got) {
            let rounded = want as f32;
            if rounded.is_nan() || got.is_nan() || rounded.is_infinite() {
                // One ULP below overflow may round to it, and back.
                let near = f64::from(got).abs() >= f64::from(f32::MAX) * 0.999_999
                    && f64::from(got).signum() == want.signum();
                let same = rounded.is_nan() == got.is_nan() && (got.is_nan() || near);
                assert!(same, "{} of {x:e} on {isa}: {got:e}, not {rounded:e}", op.name());
                continue;
            }
            if want == 0.0 && x == 0.0 {
                assert_eq!(got.to_bits(), rounded.to_bits(), "{} of {x} on {isa}", op.name());
            }
            let error = (f64::from(got) - want).abs() / ulp(want.abs(), floor);
            if error > worst.0 {
                worst = (error, want, x, f64::from(got));
            }
        }
        let (error, want, x, got) = worst;
        assert!(error <= budget, "{} of {x:e} on {isa}: {got:e}, not {want:e}, {error} ULPs", op.name());
    }
}

macro_rules! functions {
    ($($test:ident: $op:expr, $budget:expr, $floor:expr, |$s:ident, $x:ident| $body:expr;)*) => {
        $(#[test]
        fn $test() {
            #[derive(Clone, Copy)]
            struct This;
            impl Function for This {
                #[inline(always)]
                fn apply<S: Simd>($s: S, $x: S::F) -> S::F {
                    $body
                }
            }
            check::<This>($op.into(), $budget, $floor);
        })*
    };
}

/// Denormals are as good as any other number.
const EXACT_TAIL: f64 = 0.0;

functions! {
    exponential: op::Exp {}, EXP_ULPS, EXACT_TAIL, |s, x| exp(s, x);
    hyperbolic_tangent: op::Tanh {}, TANH_ULPS, EXACT_TAIL, |s, x| tanh(s, x);
    logarithm: op::Log {}, LOG_ULPS, EXACT_TAIL, |s, x| log(s, x);
    softplus_of_all: op::Softplus {}, SOFTPLUS_ULPS, EXACT_TAIL, |s, x| softplus(s, x);
    error_function: op::Erf {}, ERF_ULPS, EXACT_TAIL, |s, x| erf(s, x);
    gelu_by_tanh: op::Gelu { approximate: GeluApproximation::Tanh }, GELU_TANH_ULPS, 2f64.powi(-7),
        |s, x| gelu_tanh(s, x);
    sigmoid_of_all: op::Sigmoid {}, SIGMOID_ULPS, EXACT_TAIL, |s, x| sigmoid(s, x);
    mish_of_all: op::Mish {}, MISH_ULPS, TAIL, |s, x| mish(s, x);
    elu_below_zero: op::Elu { alpha: 1.0 }, EXP_M1_ULPS, EXACT_TAIL, |s, x| elu(s, x, 1.0);
    elu_scaled: op::Elu { alpha: 0.5 }, EXP_M1_ULPS + 1.0, EXACT_TAIL, |s, x| elu(s, x, 0.5);
    celu_scaled: op::Celu { alpha: 2.0 }, EXP_M1_ULPS + 1.0, EXACT_TAIL, |s, x| celu(s, x, 2.0);
    hard_sigmoid_of_all: op::HardSigmoid { alpha: 0.2, beta: 0.5 }, HARD_ULPS, 2f64.powi(-4),
        |s, x| hard_sigmoid(s, x, 0.2, 0.5);
    hard_swish_of_all: op::HardSwish {}, HARD_ULPS, 2f64.powi(-4), |s, x| hard_swish(s, x);
    softsign_of_all: op::Softsign {}, HARD_ULPS, EXACT_TAIL, |s, x| softsign(s, x);
    leaky: op::LeakyRelu { alpha: 0.01 }, HARD_ULPS, EXACT_TAIL, |s, x| leaky_relu(s, x, s.splat(0.01));
    thresholded: op::ThresholdedRelu { alpha: 1.5 }, 0.0, EXACT_TAIL, |s, x| thresholded_relu(s, x, 1.5);
    shrunk: op::Shrink { bias: 0.5, lambd: 1.5 }, HARD_ULPS, EXACT_TAIL, |s, x| shrink(s, x, 0.5, 1.5);
    sign_of_all: op::Sign {}, 0.0, EXACT_TAIL, |s, x| sign(s, x);
    sine: op::Sin {}, TRIG_ULPS, EXACT_TAIL, |s, x| sin(s, x);
    cosine: op::Cos {}, TRIG_ULPS, EXACT_TAIL, |s, x| cos(s, x);
}

#[derive(Clone, Copy)]
struct GeluByErf;

impl Function for GeluByErf {
    #[inline(always)]
    fn apply<S: Simd>(s: S, x: S::F) -> S::F {
        gelu(s, x)
    }
}

#[test]
fn gelu_by_erf_loses_digits_in_the_far_tail_only() {
    let op: Op = op::Gelu { approximate: GeluApproximation::None }.into();
    check_where::<GeluByErf>(op.clone(), GELU_ULPS, TAIL, |x| x >= -2.0 || x.is_nan());
    check_where::<GeluByErf>(op, GELU_TAIL_ULPS, TAIL, |x| x < -2.0);
}

#[derive(Clone, Copy)]
struct PlainSwish;

impl Function for PlainSwish {
    #[inline(always)]
    fn apply<S: Simd>(s: S, x: S::F) -> S::F {
        swish(s, x, 1.0)
    }
}

#[test]
fn swish_loses_digits_in_the_far_tail_only() {
    let op: Op = op::Swish { alpha: 1.0 }.into();
    check_where::<PlainSwish>(op.clone(), SWISH_ULPS, SWISH_TAIL, |x| x >= -2.0 || x.is_nan());
    check_where::<PlainSwish>(op, SWISH_TAIL_ULPS, SWISH_TAIL, |x| x < -2.0);
}
