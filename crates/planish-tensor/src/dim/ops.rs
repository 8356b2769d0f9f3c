//! `Dim` with the operators of the language and conversions from integers.

use super::{Dim, Repr};
use std::iter::{Product, Sum};
use std::ops::{Add, Mul, Neg, Sub};

/// Implements an operator for owned and borrowed dimensions and for `i64` on either side.
macro_rules! operator {
    ($trait:ident, $method:ident, $apply:expr) => {
        impl $trait<&Dim> for &Dim {
            type Output = Dim;
            fn $method(self, other: &Dim) -> Dim {
                $apply(self, other)
            }
        }
        operator!(@forward $trait, $method, Dim, Dim);
        operator!(@forward $trait, $method, Dim, &Dim);
        operator!(@forward $trait, $method, &Dim, Dim);
        operator!(@forward $trait, $method, Dim, i64);
        operator!(@forward $trait, $method, &Dim, i64);
        operator!(@forward $trait, $method, i64, Dim);
        operator!(@forward $trait, $method, i64, &Dim);
    };
    (@forward $trait:ident, $method:ident, $left:ty, $right:ty) => {
        impl $trait<$right> for $left {
            type Output = Dim;
            fn $method(self, other: $right) -> Dim {
                $trait::$method(&Dim::from(self), &Dim::from(other))
            }
        }
    };
}

operator!(Add, add, Dim::plus);
operator!(Sub, sub, Dim::minus);
operator!(Mul, mul, Dim::times);

impl Neg for &Dim {
    type Output = Dim;
    fn neg(self) -> Dim {
        self.negated()
    }
}

impl Neg for Dim {
    type Output = Dim;
    fn neg(self) -> Dim {
        self.negated()
    }
}

impl Sum for Dim {
    fn sum<I: Iterator<Item = Dim>>(parts: I) -> Dim {
        Dim::sum_of(parts)
    }
}

impl<'a> Sum<&'a Dim> for Dim {
    fn sum<I: Iterator<Item = &'a Dim>>(parts: I) -> Dim {
        Dim::sum_of(parts.cloned())
    }
}

impl Product for Dim {
    fn product<I: Iterator<Item = Dim>>(parts: I) -> Dim {
        parts.fold(Dim::ONE, |product, part| product.times(&part))
    }
}

impl<'a> Product<&'a Dim> for Dim {
    fn product<I: Iterator<Item = &'a Dim>>(parts: I) -> Dim {
        parts.fold(Dim::ONE, |product, part| product.times(part))
    }
}

impl From<&Dim> for Dim {
    fn from(dim: &Dim) -> Dim {
        dim.clone()
    }
}

impl From<i64> for Dim {
    fn from(value: i64) -> Dim {
        Dim(Repr::Const(value))
    }
}

/// Conversions from types that may exceed `i64`: beyond it the dimension is unknown.
macro_rules! from_integer {
    ($($integer:ty),*) => {$(
        impl From<$integer> for Dim {
            fn from(value: $integer) -> Dim {
                i64::try_from(value).map_or(Dim::UNKNOWN, Dim::from)
            }
        }
    )*};
}

from_integer!(usize, u64, u32, i32);

impl PartialEq<i64> for Dim {
    fn eq(&self, other: &i64) -> bool {
        self.as_const() == Some(*other)
    }
}
