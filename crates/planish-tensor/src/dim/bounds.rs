//! Interval arithmetic over expressions, with every symbol in `0..`: enough to see that `seq+past >= seq` or
//! that `mod(x,4)` needs no second `mod`.

use super::poly::{Atom, Func, Mono};
use super::{Dim, Repr};

/// Inclusive bounds; `None` is unbounded (or not known).
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Bounds {
    pub(super) low: Option<i128>,
    pub(super) high: Option<i128>,
}

const ANY: Bounds = Bounds { low: None, high: None };

/// The bounds of `dim`.
pub(super) fn of(dim: &Dim) -> Bounds {
    let poly = match &dim.0 {
        Repr::Const(value) => return exactly(i128::from(*value)),
        Repr::Unknown => return ANY,
        Repr::Expr(poly) => poly,
    };
    poly.terms.iter().fold(exactly(0), |sum, term| {
        let product = of_product(&term.mono).scaled(i128::from(term.coef));
        Bounds { low: add(sum.low, product.low), high: add(sum.high, product.high) }
    })
}

/// Whether `a <= b` for every binding, as far as the bounds of the difference show.
pub(super) fn at_most(a: &Dim, b: &Dim) -> bool {
    (b - a).is_nonnegative()
}

fn exactly(value: i128) -> Bounds {
    Bounds { low: Some(value), high: Some(value) }
}

fn add(a: Option<i128>, b: Option<i128>) -> Option<i128> {
    a?.checked_add(b?)
}

impl Bounds {
    fn scaled(self, factor: i128) -> Bounds {
        let scale = |bound: Option<i128>| bound?.checked_mul(factor);
        if factor < 0 {
            Bounds { low: scale(self.high), high: scale(self.low) }
        } else {
            Bounds { low: scale(self.low), high: scale(self.high) }
        }
    }

    /// The product, followed only while both sides are known to be at least 0.
    fn times(self, other: Bounds) -> Bounds {
        match (self.low, other.low) {
            (Some(a @ 0..), Some(b @ 0..)) => Bounds {
                low: Some(a.saturating_mul(b)),
                high: self.high.zip(other.high).and_then(|(a, b)| a.checked_mul(b)),
            },
            _ => ANY,
        }
    }
}

fn of_product(mono: &Mono) -> Bounds {
    mono.factors().iter().fold(exactly(1), |product, (atom, power)| {
        let bounds = of_atom(atom);
        // Powers beyond 4 do not occur in shapes; 0 stays a correct lower bound for them.
        let beyond = Bounds { low: bounds.low.filter(|low| *low >= 0).map(|_| 0), high: None };
        let powered = if *power <= 4 { (0..*power).fold(exactly(1), |p, _| p.times(bounds)) } else { beyond };
        match *power {
            1 if product == exactly(1) => bounds,
            _ => product.times(powered),
        }
    })
}

fn of_atom(atom: &Atom) -> Bounds {
    let call = match atom {
        Atom::Symbol(_) => return Bounds { low: Some(0), high: None },
        Atom::Call(call) => call,
    };
    let args: Vec<Bounds> = call.args.iter().map(of).collect();
    let lows = || args.iter().map(|arg| arg.low);
    let highs = || args.iter().map(|arg| arg.high);
    match (call.func, args.as_slice()) {
        (Func::FloorDiv, [a, Bounds { low: Some(n @ 1..), high }]) if *high == Some(*n) => {
            Bounds { low: a.low.map(|low| low.div_euclid(*n)), high: a.high.map(|high| high.div_euclid(*n)) }
        }
        // A divisor that is not negative is at least 1, or the expression is undefined.
        (
            Func::FloorDiv | Func::CeilDiv,
            [Bounds { low: Some(0..), high }, Bounds { low: Some(0..), .. }],
        ) => Bounds { low: Some(0), high: *high },
        (Func::Mod, [_, Bounds { low: Some(0..), high }]) => {
            Bounds { low: Some(0), high: high.map(|high| high - 1) }
        }
        (Func::Mul, [a, b]) => a.times(*b),
        (Func::Min, _) => Bounds { low: least(lows()), high: highs().flatten().min() },
        (Func::Max, _) => Bounds { low: lows().flatten().max(), high: greatest(highs()) },
        // The result is one of the arguments.
        (Func::Broadcast, _) => Bounds { low: least(lows()), high: greatest(highs()) },
        _ => ANY,
    }
}

fn least(lows: impl Iterator<Item = Option<i128>>) -> Option<i128> {
    lows.collect::<Option<Vec<i128>>>()?.into_iter().min()
}

fn greatest(highs: impl Iterator<Item = Option<i128>>) -> Option<i128> {
    highs.collect::<Option<Vec<i128>>>()?.into_iter().max()
}
