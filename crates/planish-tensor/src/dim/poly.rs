//! The normal form itself: sorted sums of coefficient × monomial, their sums, products and quotients.
//!
//! Terms stand in lexicographic monomial order, greatest first, the constant last. That order is compatible
//! with multiplication, which is what makes the division by leading terms below end.
//!
//! Limits keep hostile input from exploding. A product of sums is multiplied out only while it has at most
//! [`MAX_PRODUCT_TERMS`] terms; beyond, it stays an opaque `mul` of its two operands. An expression of more
//! than [`MAX_SIZE`] nodes or [`MAX_DEPTH`] nested calls becomes unknown. Shape inference of real networks
//! stays in the tens of nodes.

use super::{Dim, Repr};
use std::cmp::Ordering;
use std::sync::Arc;

/// Terms that multiplying out may produce (before like terms merge), and steps of an exact division.
pub(super) const MAX_PRODUCT_TERMS: usize = 64;
/// Nodes of an expression counted as a tree; a symbol also counts one node per 8 bytes of name.
pub(super) const MAX_SIZE: u32 = 512;
/// Calls nested within calls. Everything recursive here recurses at most this deep.
pub(super) const MAX_DEPTH: u32 = 64;

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Func {
    FloorDiv,
    CeilDiv,
    Mod,
    Min,
    Max,
    /// The size that two or more broadcast sizes have together.
    Broadcast,
    /// A product that was too long to multiply out.
    Mul,
}

#[derive(PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub(super) func: Func,
    pub(super) args: Vec<Dim>,
    size: u32,
    depth: u32,
}

impl Ord for Call {
    fn cmp(&self, other: &Call) -> Ordering {
        let args = || self.args.iter().map(|arg| &arg.0).cmp(other.args.iter().map(|arg| &arg.0));
        self.func.cmp(&other.func).then_with(args)
    }
}

impl PartialOrd for Call {
    fn partial_cmp(&self, other: &Call) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What a polynomial is over.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Atom {
    Symbol(Arc<str>),
    Call(Arc<Call>),
}

impl Atom {
    fn size(&self) -> u32 {
        match self {
            Atom::Symbol(name) => u32::try_from(1 + name.len() / 8).unwrap_or(u32::MAX),
            Atom::Call(call) => call.size,
        }
    }

    fn depth(&self) -> u32 {
        match self {
            Atom::Symbol(_) => 0,
            Atom::Call(call) => call.depth,
        }
    }
}

/// A product of atoms with powers of at least 1, sorted by atom; the empty product is 1.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Mono(Arc<[(Atom, u32)]>);

impl Mono {
    fn one() -> Mono {
        Mono(Arc::new([]))
    }

    pub(super) fn factors(&self) -> &[(Atom, u32)] {
        &self.0
    }

    pub(super) fn is_one(&self) -> bool {
        self.0.is_empty()
    }

    /// The atom, if the product is exactly one.
    pub(super) fn as_atom(&self) -> Option<&Atom> {
        match self.factors() {
            [(atom, 1)] => Some(atom),
            _ => None,
        }
    }

    fn times(&self, other: &Mono) -> Option<Mono> {
        if self.is_one() {
            return Some(other.clone());
        }
        if other.is_one() {
            return Some(self.clone());
        }
        self.combine(other, |a, b| a.checked_add(b))
    }

    fn divided_by(&self, other: &Mono) -> Option<Mono> {
        self.combine(other, |a, b| a.checked_sub(b))
    }

    fn gcd(&self, other: &Mono) -> Mono {
        self.combine(other, |a, b| Some(a.min(b))).expect("the smaller of two powers always exists")
    }

    /// Merges two factor lists, the power of each atom being `power(here, there)`, 0 where it is absent.
    fn combine(&self, other: &Mono, power: impl Fn(u32, u32) -> Option<u32>) -> Option<Mono> {
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut out = Vec::with_capacity(self.0.len() + other.0.len());
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, None) => return Some(Mono(out.into())),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((a, _)), Some((b, _))) => a.cmp(b),
            };
            let here = if order.is_le() { left.next() } else { None };
            let there = if order.is_ge() { right.next() } else { None };
            let powers = (here.map_or(0, |factor| factor.1), there.map_or(0, |factor| factor.1));
            let power = power(powers.0, powers.1)?;
            if let (Some((atom, _)), true) = (here.or(there), power > 0) {
                out.push((atom.clone(), power));
            }
        }
    }
}

/// `Less` is the greater monomial, which is printed first: at the first difference the product with the
/// smaller atom, or the higher power of it, leads; a product leads each of its own prefixes.
impl Ord for Mono {
    fn cmp(&self, other: &Mono) -> Ordering {
        for ((a, a_power), (b, b_power)) in self.0.iter().zip(other.0.iter()) {
            let order = a.cmp(b).then_with(|| b_power.cmp(a_power));
            if order.is_ne() {
                return order;
            }
        }
        other.0.len().cmp(&self.0.len())
    }
}

impl PartialOrd for Mono {
    fn partial_cmp(&self, other: &Mono) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Term {
    pub(super) mono: Mono,
    pub(super) coef: i64,
}

impl Term {
    fn times(&self, other: &Term) -> Option<Term> {
        Some(Term { mono: self.mono.times(&other.mono)?, coef: self.coef.checked_mul(other.coef)? })
    }

    fn divided_by(&self, other: &Term) -> Option<Term> {
        let exact = self.coef.checked_rem(other.coef)? == 0;
        let coef = exact.then(|| self.coef.checked_div(other.coef)).flatten()?;
        Some(Term { mono: self.mono.divided_by(&other.mono)?, coef })
    }
}

/// Sorted terms with distinct monomials and non-zero coefficients, not all constant.
#[derive(PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Poly {
    pub(super) terms: Vec<Term>,
    size: u32,
    depth: u32,
}

impl Dim {
    pub(super) fn size(&self) -> u32 {
        match &self.0 {
            Repr::Expr(poly) => poly.size,
            _ => 1,
        }
    }

    fn depth(&self) -> u32 {
        match &self.0 {
            Repr::Expr(poly) => poly.depth,
            _ => 0,
        }
    }

    /// The terms, the constant as one of them; `None` for unknown, no term for zero.
    pub(super) fn terms(&self) -> Option<Vec<Term>> {
        match &self.0 {
            Repr::Const(0) => Some(Vec::new()),
            Repr::Const(coef) => Some(vec![Term { mono: Mono::one(), coef: *coef }]),
            Repr::Expr(poly) => Some(poly.terms.clone()),
            Repr::Unknown => None,
        }
    }

    /// Sorts, merges like terms and checks the limits.
    pub(super) fn from_terms(mut terms: Vec<Term>) -> Dim {
        terms.sort_by(|a, b| a.mono.cmp(&b.mono));
        let mut merged: Vec<Term> = Vec::with_capacity(terms.len());
        for term in terms {
            match merged.last_mut() {
                Some(last) if last.mono == term.mono => match last.coef.checked_add(term.coef) {
                    Some(coef) => last.coef = coef,
                    None => return Dim::UNKNOWN,
                },
                _ => merged.push(term),
            }
        }
        merged.retain(|term| term.coef != 0);
        match merged.as_slice() {
            [] => return Dim::ZERO,
            [only] if only.mono.is_one() => return Dim::from(only.coef),
            _ => {}
        }
        let (mut size, mut depth) = (0u32, 0);
        for term in &merged {
            size = size.saturating_add(1);
            for (atom, _) in term.mono.factors() {
                size = size.saturating_add(atom.size());
                depth = depth.max(atom.depth());
            }
        }
        if size > MAX_SIZE || depth > MAX_DEPTH {
            return Dim::UNKNOWN;
        }
        Dim(Repr::Expr(Arc::new(Poly { terms: merged, size, depth })))
    }

    pub(super) fn from_atom(atom: Atom) -> Dim {
        Dim::from_terms(vec![Term { mono: Mono([(atom, 1)].into()), coef: 1 }])
    }

    /// A call that no rule simplifies further.
    pub(super) fn call(func: Func, args: Vec<Dim>) -> Dim {
        if args.iter().any(Dim::is_unknown) {
            return Dim::UNKNOWN;
        }
        let size = args.iter().fold(1u32, |size, arg| size.saturating_add(arg.size()));
        let depth = 1 + args.iter().map(Dim::depth).max().unwrap_or(0);
        Dim::from_atom(Atom::Call(Arc::new(Call { func, args, size, depth })))
    }

    /// The atom, if the expression is exactly one.
    pub(super) fn as_atom(&self) -> Option<&Atom> {
        let Repr::Expr(poly) = &self.0 else { return None };
        match poly.terms.as_slice() {
            [Term { mono, coef: 1 }] => mono.as_atom(),
            _ => None,
        }
    }

    /// The sum of many dimensions with one sort, where repeated `+` would be quadratic.
    pub(super) fn sum_of(parts: impl IntoIterator<Item = Dim>) -> Dim {
        let mut terms = Vec::new();
        for part in parts {
            match part.terms() {
                Some(more) => terms.extend(more),
                None => return Dim::UNKNOWN,
            }
        }
        Dim::from_terms(terms)
    }

    pub(super) fn plus(&self, other: &Dim) -> Dim {
        if let (Repr::Const(a), Repr::Const(b)) = (&self.0, &other.0) {
            return a.checked_add(*b).map_or(Dim::UNKNOWN, Dim::from);
        }
        Dim::sum_of([self.clone(), other.clone()])
    }

    pub(super) fn minus(&self, other: &Dim) -> Dim {
        if let (Repr::Const(a), Repr::Const(b)) = (&self.0, &other.0) {
            return a.checked_sub(*b).map_or(Dim::UNKNOWN, Dim::from);
        }
        self.plus(&other.negated())
    }

    pub(super) fn times(&self, other: &Dim) -> Dim {
        match (&self.0, &other.0) {
            (Repr::Const(a), Repr::Const(b)) => return a.checked_mul(*b).map_or(Dim::UNKNOWN, Dim::from),
            (Repr::Const(1), _) => return other.clone(),
            (_, Repr::Const(1)) => return self.clone(),
            _ => {}
        }
        let (Some(left), Some(right)) = (self.terms(), other.terms()) else { return Dim::UNKNOWN };
        if left.len() > 1 && right.len() > 1 && left.len() * right.len() > MAX_PRODUCT_TERMS {
            let mut args = vec![self.clone(), other.clone()];
            args.sort_by(|a, b| a.0.cmp(&b.0));
            return Dim::call(Func::Mul, args);
        }
        let products: Option<Vec<Term>> =
            left.iter().flat_map(|a| right.iter().map(|b| a.times(b))).collect();
        products.map_or(Dim::UNKNOWN, Dim::from_terms)
    }

    pub(super) fn negated(&self) -> Dim {
        self.times(&Dim::from(-1))
    }

    /// `self` to a power. A single atom takes the power at once, anything else by repeated squaring.
    pub(super) fn power(&self, power: u32) -> Dim {
        if let Some(atom) = self.as_atom() {
            return match power {
                0 => Dim::ONE,
                _ => Dim::from_terms(vec![Term { mono: Mono([(atom.clone(), power)].into()), coef: 1 }]),
            };
        }
        if self.is_unknown() {
            return Dim::UNKNOWN;
        }
        let (mut result, mut square, mut left) = (Dim::ONE, self.clone(), power);
        while left > 0 {
            if left % 2 == 1 {
                result = result.times(&square);
            }
            left /= 2;
            if left > 0 {
                square = square.times(&square);
            }
        }
        result
    }

    /// Quotient and remainder with `self = quotient * den + remainder`. For a divisor of one term the
    /// quotient takes every term that divides exactly; a longer divisor divides exactly or not at all (a
    /// partial quotient such as `floordiv(x,x+1) = 1+floordiv(-1,x+1)` would be no simplification).
    pub(super) fn divide(&self, den: &Dim) -> (Dim, Dim) {
        let undivided = || (Dim::ZERO, self.clone());
        let (Some(terms), Some(den_terms)) = (self.terms(), den.terms()) else { return undivided() };
        let Some(lead) = den_terms.first() else { return undivided() };
        let mut quotient = Vec::new();
        if den_terms.len() == 1 {
            let mut rest = Vec::new();
            for term in terms {
                match term.divided_by(lead) {
                    Some(divided) => quotient.push(divided),
                    None => rest.push(term),
                }
            }
            return (Dim::from_terms(quotient), Dim::from_terms(rest));
        }
        let mut rest = self.clone();
        for _ in 0..MAX_PRODUCT_TERMS {
            let Some(divided) =
                rest.terms().and_then(|terms| terms.first().and_then(|term| term.divided_by(lead)))
            else {
                return undivided();
            };
            rest = rest.minus(&den.times(&Dim::from_terms(vec![divided.clone()])));
            quotient.push(divided);
            if rest == Dim::ZERO {
                return (Dim::from_terms(quotient), rest);
            }
        }
        undivided()
    }

    /// The greatest monomial with positive coefficient that divides every term of both.
    pub(super) fn common_factor(&self, other: &Dim) -> Dim {
        let (Some(mut terms), Some(more)) = (self.terms(), other.terms()) else { return Dim::ONE };
        terms.extend(more);
        let Some(first) = terms.first() else { return Dim::ONE };
        let start = (first.mono.clone(), 0u64);
        let (mono, coef) =
            terms.iter().fold(start, |(mono, coef), term| (mono.gcd(&term.mono), gcd(coef, term.coef)));
        Dim::from_terms(vec![Term { mono, coef: i64::try_from(coef).unwrap_or(1) }])
    }
}

/// Greatest common divisor of `a` and `|b|`; 0 is the neutral element.
pub(super) fn gcd(a: u64, b: i64) -> u64 {
    let (mut a, mut b) = (a, b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
