//! The rules for division, remainder, extremes and broadcasting: each takes dimensions in normal form and
//! returns one, a call remaining only where no rule applies.

use super::bounds::{self, at_most};
use super::poly::{Atom, Call, Func, Term, gcd};
use super::{Dim, Repr};

/// Arguments of one `min`, `max` or `broadcast`. They are compared pairwise, so the limit bounds the work;
/// more give the unknown dimension.
pub(super) const MAX_ARGS: usize = 64;

impl Dim {
    /// `self / den`, rounded down. Assumes that `den` is not zero; the constant zero gives unknown.
    pub fn floor_div(&self, den: &Dim) -> Dim {
        let Some(ratio) = Ratio::new(self, den) else { return Dim::UNKNOWN };
        let rest = match ratio.den.as_const() {
            Some(n) => floor_div_const(&ratio.num, n),
            None if is_proper(&ratio.num, &ratio.den) => Dim::ZERO,
            None => Dim::call(Func::FloorDiv, vec![ratio.num, ratio.den]),
        };
        ratio.quotient + rest
    }

    /// `self / den`, rounded up. Assumes that `den` is not zero; the constant zero gives unknown.
    pub fn ceil_div(&self, den: &Dim) -> Dim {
        let Some(ratio) = Ratio::new(self, den) else { return Dim::UNKNOWN };
        let rest = match ratio.den.as_const() {
            Some(n) => floor_div_const(&(ratio.num + (n - 1)), n),
            None if ratio.num == Dim::ZERO => Dim::ZERO,
            None => Dim::call(Func::CeilDiv, vec![ratio.num, ratio.den]),
        };
        ratio.quotient + rest
    }

    /// The remainder of [`Dim::floor_div`], which has the sign of `den`.
    pub fn rem(&self, den: &Dim) -> Dim {
        let Some(ratio) = Ratio::new(self, den) else { return Dim::UNKNOWN };
        let rest = match ratio.den.as_const() {
            Some(n) => rem_const(&ratio.num, n),
            None if is_proper(&ratio.num, &ratio.den) => ratio.num,
            None => Dim::call(Func::Mod, vec![ratio.num, ratio.den]),
        };
        ratio.factor * rest
    }

    /// The smaller value.
    pub fn min(&self, other: &Dim) -> Dim {
        extreme(Func::Min, [self, other], at_most)
    }

    /// The larger value.
    pub fn max(&self, other: &Dim) -> Dim {
        extreme(Func::Max, [self, other], |a, b| at_most(b, a))
    }

    /// The size that `self` and `other` have together by the broadcasting rule: a 1 gives way, anything else
    /// must be equal. Assumes that the broadcast is legal, so an operand that cannot be 1 is the answer; two
    /// different numbers give unknown. `max` would be wrong for 0 against 1, which makes 0.
    pub fn broadcast(&self, other: &Dim) -> Dim {
        let mut args = flattened(Func::Broadcast, [self, other]);
        if args.iter().any(Dim::is_unknown) {
            return Dim::UNKNOWN;
        }
        args.retain(|arg| *arg != Dim::ONE);
        let all = args.clone();
        args.retain(|arg| !all.iter().any(|other| gives_way(arg, other)));
        if args.iter().filter(|arg| arg.as_const().is_some()).count() > 1 {
            return Dim::UNKNOWN;
        }
        // Numbers come first, so a number wins over an expression.
        if let Some(sure) = args.iter().find(|arg| is_never_one(arg)) {
            return sure.clone();
        }
        collapse(Func::Broadcast, args).unwrap_or(Dim::ONE)
    }
}

impl Func {
    /// Every function with its name in text.
    pub(super) const NAMES: [(&'static str, Func); 7] = [
        ("floordiv", Func::FloorDiv),
        ("ceildiv", Func::CeilDiv),
        ("mod", Func::Mod),
        ("min", Func::Min),
        ("max", Func::Max),
        ("broadcast", Func::Broadcast),
        ("mul", Func::Mul),
    ];

    /// Whether there may be more than two arguments.
    pub(super) fn is_variadic(self) -> bool {
        matches!(self, Func::Min | Func::Max | Func::Broadcast)
    }

    /// Applies the function to at least two arguments. Extremes take them at once: from the left, each
    /// step would compare all pairs again.
    pub(super) fn apply(self, args: &[Dim]) -> Dim {
        let apply = match self {
            Func::FloorDiv => Dim::floor_div,
            Func::CeilDiv => Dim::ceil_div,
            Func::Mod => Dim::rem,
            Func::Min => return extreme(Func::Min, args, at_most),
            Func::Max => return extreme(Func::Max, args, |a, b| at_most(b, a)),
            Func::Broadcast => Dim::broadcast,
            Func::Mul => Dim::times,
        };
        args.iter().cloned().reduce(|value, arg| apply(&value, &arg)).unwrap_or(Dim::UNKNOWN)
    }
}

/// A division after everything that divides exactly is out and common factors are cancelled:
/// `old num = quotient * old den + factor * num` and `old den = factor * den`, the leading coefficient of
/// `den` positive.
///
/// Cancelling is right for floor, ceiling and remainder alike, whatever the sign of the factor, because
/// `floor(f*x / (f*y)) = floor(x / y)` for every `f` that is not 0.
struct Ratio {
    quotient: Dim,
    factor: Dim,
    num: Dim,
    den: Dim,
}

impl Ratio {
    /// `None` for a divisor of zero or an unknown operand.
    fn new(num: &Dim, den: &Dim) -> Option<Ratio> {
        if num.is_unknown() || *den == Dim::ZERO {
            return None;
        }
        let sign = Dim::from(den.terms()?.first()?.coef.signum());
        let (num, den) = (num * &sign, den * &sign);
        if num.is_unknown() || den.is_unknown() {
            return None;
        }
        if den.as_const().is_some() {
            return Some(Ratio { quotient: Dim::ZERO, factor: sign, num, den });
        }
        let (quotient, rest) = num.divide(&den);
        if rest == Dim::ZERO {
            return Some(Ratio { quotient, factor: sign, num: rest, den });
        }
        let common = rest.common_factor(&den);
        let (num, den) = (rest.divide(&common).0, den.divide(&common).0);
        Some(Ratio { quotient, factor: sign * common, num, den })
    }
}

/// Whether `num` is 0 or `0 <= num < den`, so that the quotient is 0 and the remainder `num`.
fn is_proper(num: &Dim, den: &Dim) -> bool {
    *num == Dim::ZERO || num.is_nonnegative() && at_most(&(num + 1), den)
}

/// Splits terms into non-constant ones and the constant.
fn split_constant(dim: &Dim) -> Option<(Vec<Term>, i64)> {
    let mut terms = dim.terms()?;
    let constant = terms.pop_if(|term| term.mono.is_one()).map_or(0, |term| term.coef);
    Some((terms, constant))
}

/// `floor(num / n)` for positive `n`. In the result the constant inside lies in `0..n`, no coefficient is a
/// multiple of `n`, and nothing divides `n` and all coefficients.
fn floor_div_const(num: &Dim, n: i64) -> Dim {
    let Some((terms, constant)) = split_constant(num) else { return Dim::UNKNOWN };
    let (exact, rest): (Vec<Term>, Vec<Term>) = terms.into_iter().partition(|term| term.coef % n == 0);
    let quotient =
        Dim::from_terms(exact.into_iter().map(|term| Term { coef: term.coef / n, ..term }).collect())
            + constant.div_euclid(n);
    if rest.is_empty() {
        return quotient;
    }
    // floor((g*x + r) / (g*n)) = floor((x + floor(r/g)) / n)
    let common = common_divisor(&rest, n);
    let n = n / common;
    let rest: Vec<Term> = rest.into_iter().map(|term| Term { coef: term.coef / common, ..term }).collect();
    let num = Dim::from_terms(rest) + constant.rem_euclid(n * common).div_euclid(common);
    if n == 1 {
        return quotient + num;
    }
    if let Some((num, n)) = without_inner_division(&num, n) {
        return quotient + floor_div_const(&num, n);
    }
    if is_proper(&num, &Dim::from(n)) {
        return quotient;
    }
    quotient + Dim::call(Func::FloorDiv, vec![num, Dim::from(n)])
}

/// `floor((floor(x/m) + y) / n) = floor((x + m*y) / (m*n))`: chains of strided layers stay one division.
/// Only for a single inner division, so that the outcome does not depend on an order.
fn without_inner_division(num: &Dim, n: i64) -> Option<(Dim, i64)> {
    let Repr::Expr(poly) = &num.0 else { return None };
    let mut inner = poly.terms.iter().filter_map(|term| match (term.coef, term.mono.as_atom()?) {
        (1, atom @ Atom::Call(call)) => Some((atom, call_by_const(call, Func::FloorDiv)?)),
        _ => None,
    });
    let (atom, (x, m)) = inner.next()?;
    if inner.next().is_some() {
        return None;
    }
    let y = num - Dim::from_atom(atom.clone());
    let merged = x + y * m;
    (!merged.is_unknown()).then_some((merged, n.checked_mul(m)?))
}

/// `num mod n` for positive `n`.
fn rem_const(num: &Dim, n: i64) -> Dim {
    let Some((terms, constant)) = split_constant(num) else { return Dim::UNKNOWN };
    // c*mod(x,m) = c*x - c*m*floor(x/m): where c*m is a multiple of n, the inner remainder changes nothing.
    let inner = terms.iter().find_map(|term| {
        let Some(Atom::Call(call)) = term.mono.as_atom() else { return None };
        let (x, m) = call_by_const(call, Func::Mod)?;
        let vanishes = i128::from(term.coef) * i128::from(m) % i128::from(n) == 0;
        vanishes.then(|| (x - Dim::call(Func::Mod, call.args.clone())) * term.coef)
    });
    if let Some(change) = inner {
        let simpler = num + change;
        if !simpler.is_unknown() {
            return rem_const(&simpler, n);
        }
    }
    let reduced = |term: Term| Term { coef: term.coef.rem_euclid(n), ..term };
    let terms: Vec<Term> = terms.into_iter().map(reduced).filter(|term| term.coef != 0).collect();
    let constant = constant.rem_euclid(n);
    if terms.is_empty() {
        return Dim::from(constant);
    }
    // mod(g*x + r, g*n) = g*mod(x + floor(r/g), n) + mod(r, g)
    let common = common_divisor(&terms, n);
    let n = n / common;
    let terms = terms.into_iter().map(|term| Term { coef: term.coef / common, ..term }).collect();
    let num = Dim::from_terms(terms) + constant / common;
    let rest = match n {
        1 => Dim::ZERO,
        _ if is_proper(&num, &Dim::from(n)) => num,
        _ => Dim::call(Func::Mod, vec![num, Dim::from(n)]),
    };
    rest * common + constant % common
}

/// The greatest divisor of `n` and of every coefficient; it fits because it is at most `n`.
fn common_divisor(terms: &[Term], n: i64) -> i64 {
    let common = terms.iter().fold(n.unsigned_abs(), |common, term| gcd(common, term.coef));
    i64::try_from(common).unwrap_or(1)
}

/// Operands of a division or remainder by a positive number.
fn call_by_const(call: &Call, func: Func) -> Option<(&Dim, i64)> {
    match call.args.as_slice() {
        [x, m] if call.func == func => m.as_const().filter(|m| *m > 0).map(|m| (x, m)),
        _ => None,
    }
}

/// All arguments as one sorted list, nested calls of the same function opened.
fn flattened<'a>(func: Func, args: impl IntoIterator<Item = &'a Dim>) -> Vec<Dim> {
    let open = |dim: &Dim| match dim.as_atom() {
        Some(Atom::Call(call)) if call.func == func => call.args.clone(),
        _ => vec![dim.clone()],
    };
    let mut args: Vec<Dim> = args.into_iter().flat_map(open).collect();
    args.sort_by(|a, b| a.0.cmp(&b.0));
    args.dedup();
    args
}

/// Keeps the arguments that no other one is known to beat. They come sorted, so that of two that beat each
/// other (`mod(1,min(1,a))` and 0) the same one stays in any order of writing.
fn extreme<'a>(
    func: Func,
    args: impl IntoIterator<Item = &'a Dim>,
    beats: impl Fn(&Dim, &Dim) -> bool,
) -> Dim {
    let mut kept: Vec<Dim> = Vec::new();
    for arg in flattened(func, args) {
        if arg.is_unknown() || kept.len() > MAX_ARGS {
            return Dim::UNKNOWN;
        }
        if !kept.iter().any(|other| beats(other, &arg)) {
            kept.retain(|other| !beats(&arg, other));
            kept.push(arg);
        }
    }
    collapse(func, kept).unwrap_or(Dim::UNKNOWN)
}

/// The call over `args`, or the only argument; `None` without any.
fn collapse(func: Func, mut args: Vec<Dim>) -> Option<Dim> {
    match args.len() {
        0 | 1 => args.pop(),
        2..=MAX_ARGS => Some(Dim::call(func, args)),
        _ => Some(Dim::UNKNOWN),
    }
}

/// Whether `arg` is `min(other,…)` with everything else in it at least 1, so that it is 1 wherever `other` is
/// and otherwise must equal it: `broadcast(seq,min(512,seq))`, a table cut to the length of a sequence, is
/// `seq`.
fn gives_way(arg: &Dim, other: &Dim) -> bool {
    let Some(Atom::Call(call)) = arg.as_atom() else { return false };
    let is_positive = |arg: &Dim| bounds::of(arg).low.is_some_and(|low| low >= 1);
    call.func == Func::Min
        && call.args.contains(other)
        && call.args.iter().all(|arg| arg == other || is_positive(arg))
}

/// Whether no binding makes the value 1: it is bounded away from 1, or 1 leaves the wrong remainder.
fn is_never_one(dim: &Dim) -> bool {
    let bounds = bounds::of(dim);
    if bounds.low.is_some_and(|low| low > 1) || bounds.high.is_some_and(|high| high < 1) {
        return true;
    }
    let Some((terms, constant)) = split_constant(dim) else { return false };
    let common = i128::from(terms.iter().fold(0, |common, term| gcd(common, term.coef)));
    common > 1 && (1 - i128::from(constant)) % common != 0
}
