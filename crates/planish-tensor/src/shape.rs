//! Shapes: lists of dimensions, with the broadcasting and axis rules that all operators share.

mod error;
#[cfg(test)]
mod tests;

pub use error::{ShapeError, ShapeErrorKind};

use crate::dim::Dim;
use crate::dim::text::Parser;
use std::fmt;
use std::ops::Index;
use std::str::FromStr;

/// Longest text of a shape: a few dimensions of the greatest length, thousands of usual ones.
const MAX_SHAPE_TEXT: usize = 256 * 1024;

/// The dimensions of a tensor, outermost first. A scalar has none.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(Vec<Dim>);

impl Shape {
    /// The shape of these dimensions.
    pub fn new(dims: Vec<Dim>) -> Shape {
        Shape(dims)
    }

    /// The shape of a scalar, `[]`.
    pub fn scalar() -> Shape {
        Shape::default()
    }

    /// A shape of numbers.
    pub fn fixed(dims: &[i64]) -> Shape {
        dims.iter().copied().collect()
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The dimensions as a slice.
    pub fn dims(&self) -> &[Dim] {
        &self.0
    }

    /// The dimensions as a vector.
    pub fn into_dims(self) -> Vec<Dim> {
        self.0
    }

    /// The dimensions in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Dim> {
        self.0.iter()
    }

    /// Dimension `axis`, if there is one; indexing panics instead.
    pub fn get(&self, axis: usize) -> Option<&Dim> {
        self.0.get(axis)
    }

    /// The sizes, if every dimension is a number that can be a size.
    pub fn as_fixed(&self) -> Option<Vec<usize>> {
        self.iter().map(Dim::as_usize).collect()
    }

    /// The product of the dimensions, 1 for a scalar. A zero among them makes it 0 even where the other
    /// numbers overflow.
    pub fn element_count(&self) -> Dim {
        if self.0.contains(&Dim::ZERO) { Dim::ZERO } else { self.iter().product() }
    }

    /// Replaces symbols in every dimension; see [`Dim::substitute`].
    pub fn substitute(&self, lookup: &dyn Fn(&str) -> Option<Dim>) -> Shape {
        self.iter().map(|dim| dim.substitute(lookup)).collect()
    }

    /// The sizes under a binding of the symbols. `None` when a dimension has no value or a negative one; see
    /// [`Dim::eval`].
    pub fn eval(&self, lookup: &dyn Fn(&str) -> Option<i64>) -> Option<Vec<usize>> {
        self.iter().map(|dim| usize::try_from(dim.eval(lookup)?).ok()).collect()
    }

    /// The common shape of two operands by the multidirectional broadcasting rule: aligned at the last
    /// dimension, a 1 or a missing dimension takes the size of the other side.
    ///
    /// Only two different numbers, neither of them 1, are an error. Otherwise the broadcast is taken to be
    /// legal and the run must satisfy it: a symbol against a number above 1 gives the number, two different
    /// symbols give `broadcast(a,b)`; see [`Dim::broadcast`].
    pub fn broadcast(left: &Shape, right: &Shape) -> Result<Shape, ShapeError> {
        let rank = left.rank().max(right.rank());
        let aligned = |shape: &Shape, axis: usize| {
            (axis + shape.rank()).checked_sub(rank).and_then(|axis| shape.get(axis).cloned())
        };
        let pair = |axis| match (aligned(left, axis), aligned(right, axis)) {
            (Some(a), Some(b)) => match (a.as_const(), b.as_const()) {
                (Some(m), Some(n)) if m != n && m != 1 && n != 1 => {
                    let (left, right) = (left.clone(), right.clone());
                    Err(ShapeErrorKind::Broadcast { left, right, axis, sizes: (m, n) }.into())
                }
                _ => Ok(a.broadcast(&b)),
            },
            (Some(dim), None) | (None, Some(dim)) => Ok(dim),
            (None, None) => Ok(Dim::ONE),
        };
        (0..rank).map(pair).collect()
    }
}

/// The axis in `0..rank` that `axis` in `-rank..rank` means, counting from the end where it is negative.
pub fn normalize_axis(axis: i64, rank: usize) -> Result<usize, ShapeError> {
    let wide = i128::from(axis);
    let from_start = if axis < 0 { wide + rank as i128 } else { wide };
    let valid = usize::try_from(from_start).ok().filter(|axis| *axis < rank);
    valid.ok_or_else(|| ShapeErrorKind::Axis { axis, rank }.into())
}

/// The axes that these mean (see [`normalize_axis`]), each at most once.
pub fn distinct_axes(axes: &[i64], rank: usize) -> Result<Vec<usize>, ShapeError> {
    let mut seen = vec![false; rank];
    let once = |&axis: &i64| {
        let axis = normalize_axis(axis, rank)?;
        match std::mem::replace(&mut seen[axis], true) {
            true => Err(ShapeErrorKind::RepeatedAxis { axis }.into()),
            false => Ok(axis),
        }
    };
    axes.iter().map(once).collect()
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, dim) in self.iter().enumerate() {
            write!(f, "{}{dim}", if i == 0 { "" } else { "," })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shape{self}")
    }
}

impl FromStr for Shape {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Shape, ShapeError> {
        let mut parser = Parser::new(text, MAX_SHAPE_TEXT)?;
        parser.expect('[', "`[`")?;
        let mut dims = Vec::new();
        if !parser.take(']') {
            loop {
                dims.push(parser.sum()?);
                if !parser.take(',') {
                    break;
                }
            }
            parser.expect(']', "an operator, `,` or `]`")?;
        }
        parser.end()?;
        Ok(Shape(dims))
    }
}

impl Index<usize> for Shape {
    type Output = Dim;

    fn index(&self, axis: usize) -> &Dim {
        &self.0[axis]
    }
}

impl<T: Into<Dim>> FromIterator<T> for Shape {
    fn from_iter<I: IntoIterator<Item = T>>(dims: I) -> Shape {
        Shape(dims.into_iter().map(Into::into).collect())
    }
}

impl From<Vec<Dim>> for Shape {
    fn from(dims: Vec<Dim>) -> Shape {
        Shape(dims)
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Shape {
        dims.iter().copied().collect()
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Shape {
        dims.into_iter().collect()
    }
}

impl<'a> IntoIterator for &'a Shape {
    type Item = &'a Dim;
    type IntoIter = std::slice::Iter<'a, Dim>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for Shape {
    type Item = Dim;
    type IntoIter = std::vec::IntoIter<Dim>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
