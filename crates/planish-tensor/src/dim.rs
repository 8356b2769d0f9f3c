//! Symbolic dimensions: numbers and expressions over names such as `batch`, kept in a normal form.
//!
//! An expression is a polynomial with integer coefficients whose indeterminates ("atoms") are symbols and
//! calls (`floordiv`, `ceildiv`, `mod`, `min`, `max`, `broadcast`, `mul`) of dimensions in normal form.
//! Every operation returns a normal form, so `==` on two dimensions is a comparison of structure, and
//! `batch*12*seq / 12 == seq*batch` holds.
//!
//! What the simplifications assume:
//! - a symbol is a dimension, so its value is at least 0;
//! - a divisor is not zero, and a broadcast is legal. Where the written expression is undefined (division by
//!   zero, `broadcast(2,3)`), its simplified form may still have a value; where the written expression is
//!   defined, the simplified form has the same value.
//!
//! What cannot be expressed becomes the *unknown* dimension: overflow of a coefficient, division by the
//! constant zero, an expression beyond the size limits. Unknown absorbs everything it meets, is never equal
//! to a number and evaluates to `None`. Two unknowns compare equal although their values need not be, so a
//! caller that draws a conclusion from equality asks [`Dim::is_unknown`] first.

mod bounds;
mod calls;
mod ops;
mod poly;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use poly::{Atom, Func, Poly};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// A dimension: a number or an expression over symbols, in a normal form so that equal expressions compare
/// equal.
///
/// Cloning is cheap: a number is inline, an expression sits behind an `Arc`. There is deliberately no `Ord`:
/// an order of structure would make `a < b` and `Ord::max` compile and mean nothing. `Display` prints
/// what `FromStr` reads.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Dim(Repr);

/// The order (of structure, not of value) serves only to sort arguments and factors.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Repr {
    Const(i64),
    /// Holds at least one term that is not constant.
    Expr(Arc<Poly>),
    Unknown,
}

impl Dim {
    /// The number zero.
    pub const ZERO: Dim = Dim(Repr::Const(0));
    /// The number one.
    pub const ONE: Dim = Dim(Repr::Const(1));
    /// The dimension that cannot be expressed; see the module text.
    pub const UNKNOWN: Dim = Dim(Repr::Unknown);

    /// The symbol called `name`, which may be any string. A name longer than about 4 KiB exceeds the size
    /// limit of an expression and gives the unknown dimension.
    pub fn symbol(name: &str) -> Dim {
        Dim::from_atom(Atom::Symbol(name.into()))
    }

    /// The value, if this is a number.
    pub fn as_const(&self) -> Option<i64> {
        match self.0 {
            Repr::Const(value) => Some(value),
            _ => None,
        }
    }

    /// The value, if this is a number that can be a size.
    pub fn as_usize(&self) -> Option<usize> {
        self.as_const().and_then(|value| usize::try_from(value).ok())
    }

    /// The name, if this is one bare symbol.
    pub fn as_symbol(&self) -> Option<&str> {
        match self.as_atom()? {
            Atom::Symbol(name) => Some(name),
            Atom::Call(_) => None,
        }
    }

    /// How much there is to the expression: the nodes of its tree, long names counted more than once. A number
    /// has 1, and nothing has more than a few hundred. Memory and the cost of arithmetic follow it.
    pub fn complexity(&self) -> usize {
        self.size() as usize
    }

    /// Whether this is the dimension that cannot be expressed.
    pub fn is_unknown(&self) -> bool {
        matches!(self.0, Repr::Unknown)
    }

    /// Whether the value is at least 0 for every binding of the symbols to sizes, as far as interval
    /// arithmetic shows. `false` means "not shown".
    pub fn is_nonnegative(&self) -> bool {
        bounds::of(self).low.is_some_and(|low| low >= 0)
    }

    /// The symbols that the expression mentions.
    pub fn symbols(&self) -> BTreeSet<Arc<str>> {
        let mut names = BTreeSet::new();
        self.collect_symbols(&mut names);
        names
    }

    fn collect_symbols(&self, names: &mut BTreeSet<Arc<str>>) {
        for atom in self.atoms() {
            match atom {
                Atom::Symbol(name) => {
                    names.insert(name.clone());
                }
                Atom::Call(call) => call.args.iter().for_each(|arg| arg.collect_symbols(names)),
            }
        }
    }

    /// Replaces each symbol for which `lookup` has an answer, and simplifies again.
    pub fn substitute(&self, lookup: &dyn Fn(&str) -> Option<Dim>) -> Dim {
        let Repr::Expr(poly) = &self.0 else { return self.clone() };
        Dim::sum_of(poly.terms.iter().map(|term| {
            let factors = term.mono.factors().iter().map(|(atom, power)| {
                let value = match atom {
                    Atom::Symbol(name) => lookup(name),
                    Atom::Call(call) => {
                        let args: Vec<Dim> = call.args.iter().map(|arg| arg.substitute(lookup)).collect();
                        Some(call.func.apply(&args))
                    }
                };
                value.unwrap_or_else(|| Dim::from_atom(atom.clone())).power(*power)
            });
            factors.fold(Dim::from(term.coef), |product, factor| product * factor)
        }))
    }

    /// The value under a binding of the symbols. `None` when a symbol is unbound, on division by zero, on an
    /// illegal broadcast, and when the value does not fit `i64` or a step on the way does not fit `i128`.
    pub fn eval(&self, lookup: &dyn Fn(&str) -> Option<i64>) -> Option<i64> {
        self.eval_wide(lookup).and_then(|value| i64::try_from(value).ok())
    }

    fn eval_wide(&self, lookup: &dyn Fn(&str) -> Option<i64>) -> Option<i128> {
        let poly = match &self.0 {
            Repr::Const(value) => return Some(i128::from(*value)),
            Repr::Unknown => return None,
            Repr::Expr(poly) => poly,
        };
        poly.terms.iter().try_fold(0i128, |sum, term| {
            let product = term.mono.factors().iter().try_fold(i128::from(term.coef), |product, factor| {
                let (atom, power) = factor;
                let value = match atom {
                    Atom::Symbol(name) => i128::from(lookup(name)?),
                    Atom::Call(call) => {
                        let args: Option<Vec<i128>> =
                            call.args.iter().map(|arg| arg.eval_wide(lookup)).collect();
                        call.func.eval(&args?)?
                    }
                };
                product.checked_mul(value.checked_pow(*power)?)
            })?;
            sum.checked_add(product)
        })
    }

    /// Every atom of every term, in order, with repetition.
    fn atoms(&self) -> impl Iterator<Item = &Atom> {
        let terms = match &self.0 {
            Repr::Expr(poly) => poly.terms.as_slice(),
            _ => &[],
        };
        terms.iter().flat_map(|term| term.mono.factors().iter().map(|(atom, _)| atom))
    }
}

impl Default for Dim {
    fn default() -> Dim {
        Dim::ZERO
    }
}

/// The text form in a wrapper: the structure behind it helps nobody who reads a failed assertion.
impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dim({self})")
    }
}

/// The meaning of each call on plain numbers.
impl Func {
    fn eval(self, args: &[i128]) -> Option<i128> {
        match (self, args) {
            (Func::FloorDiv, &[a, b]) => floor_div(a, b),
            (Func::CeilDiv, &[a, b]) => floor_div(a.checked_neg()?, b)?.checked_neg(),
            (Func::Mod, &[a, b]) => a.checked_sub(b.checked_mul(floor_div(a, b)?)?),
            (Func::Mul, &[a, b]) => a.checked_mul(b),
            (Func::Min, args) => args.iter().copied().min(),
            (Func::Max, args) => args.iter().copied().max(),
            (Func::Broadcast, args) => args.iter().try_fold(1, |size, &arg| match (size, arg) {
                (1, other) | (other, 1) => Some(other),
                (size, arg) => (size == arg).then_some(size),
            }),
            _ => None,
        }
    }
}

fn floor_div(a: i128, b: i128) -> Option<i128> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}
