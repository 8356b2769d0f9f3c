//! What is known of a small tensor's elements, as an array that operators can rearrange.
//!
//! The operators that compute shapes only move elements about. Here they do it on elements that are numbers
//! or symbolic dimensions, so that what comes out of a chain of them is known as well.

use planish_tensor::{DType, Dim, Shape, Tensor};

use super::context::MAX_FOLLOWED_INTS;
use super::{Content, Inference, Inferred, SymbolicInts};
use crate::ValueType;

/// One known element.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Element {
    /// An integer or truth value.
    Int(Dim),
    Float(f64),
}

/// An array of known elements, row-major.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Known {
    pub(super) shape: Vec<usize>,
    pub(super) elements: Vec<Element>,
}

impl Known {
    /// The elements of an input, if they are known, few, and as many as its type says.
    pub(super) fn of(cx: &Inference<'_>, idx: usize) -> Option<Known> {
        let shape = cx.shape(idx).ok()?;
        let known = match cx.content(idx)? {
            Content::Tensor(tensor) => Known::of_tensor(tensor)?,
            Content::Ints(ints) if ints.is_scalar => Known::vector(ints.dims.clone()).reshaped(&[])?,
            Content::Ints(ints) => Known::vector(ints.dims.clone()),
            Content::Grid(dims) => Known::vector(dims.clone()).reshaped(&shape?.as_fixed()?)?,
        };
        let fits = shape.is_none_or(|shape| {
            let same =
                |(dim, &size): (&Dim, &usize)| dim.as_const().is_none_or(|_| dim.as_usize() == Some(size));
            shape.rank() == known.shape.len() && shape.iter().zip(&known.shape).all(same)
        });
        fits.then_some(known)
    }

    pub(super) fn of_tensor(tensor: &Tensor) -> Option<Known> {
        if tensor.len() > MAX_FOLLOWED_INTS {
            return None;
        }
        let elements: Vec<Element> = match tensor.dtype() {
            dtype if dtype.is_float() => tensor.to_f64s().into_iter().map(Element::Float).collect(),
            // Beyond `i64` the values would come out negative.
            DType::U64 if tensor.to_i64s().iter().any(|&value| value < 0) => return None,
            _ => tensor.to_i64s().into_iter().map(|value| Element::Int(value.into())).collect(),
        };
        Some(Known { shape: tensor.shape().to_vec(), elements })
    }

    /// The same element everywhere; `None` if there would be too many.
    pub(super) fn full(shape: &[usize], element: &Element) -> Option<Known> {
        let count = bounded_count(shape)?;
        Some(Known { shape: shape.to_vec(), elements: vec![element.clone(); count] })
    }

    /// A vector of integers.
    pub(super) fn vector(dims: Vec<Dim>) -> Known {
        Known { shape: vec![dims.len()], elements: dims.into_iter().map(Element::Int).collect() }
    }

    /// The elements, if all are integers.
    pub(super) fn ints(&self) -> Option<Vec<Dim>> {
        let int = |element: &Element| match element {
            Element::Int(dim) => Some(dim.clone()),
            Element::Float(_) => None,
        };
        self.elements.iter().map(int).collect()
    }

    /// The elements, if all are integers and known as numbers.
    pub(super) fn const_ints(&self) -> Option<Vec<i64>> {
        self.ints()?.iter().map(Dim::as_const).collect()
    }

    /// The same elements with another shape of this count.
    pub(super) fn reshaped(self, shape: &[usize]) -> Option<Known> {
        (bounded_count(shape)? == self.elements.len()).then(|| Known { shape: shape.to_vec(), ..self })
    }

    /// The array of `shape` whose element at each index is this one's at `source(index)`. `None` if there
    /// would be too many, or a source does not exist.
    pub(super) fn indexed(
        &self,
        shape: &[usize],
        source: impl Fn(&[usize]) -> Option<Vec<usize>>,
    ) -> Option<Known> {
        let elements: Option<Vec<Element>> = indices(shape)?
            .map(|index| {
                let flat = flat_place(&source(&index)?, &self.shape)?;
                self.elements.get(flat).cloned()
            })
            .collect();
        Some(Known { shape: shape.to_vec(), elements: elements? })
    }

    /// Every index of the array in row-major order, as the elements are.
    pub(super) fn places(&self) -> Option<impl Iterator<Item = Vec<usize>>> {
        indices(&self.shape)
    }

    /// The element at an index, to be replaced; `None` if it is outside.
    pub(super) fn element_mut(&mut self, index: &[usize]) -> Option<&mut Element> {
        let flat = flat_place(index, &self.shape)?;
        self.elements.get_mut(flat)
    }

    /// The arrays one after the other; `None` unless they agree beside `axis`.
    pub(super) fn concat(parts: &[Known], axis: usize) -> Option<Known> {
        let mut shape = parts.first()?.shape.clone();
        let mut total = 0usize;
        for part in parts {
            total = total.checked_add(*part.shape.get(axis)?)?;
            shape[axis] = part.shape[axis];
            if part.shape != shape {
                return None;
            }
        }
        shape[axis] = total;
        if bounded_count(&shape)? == 0 {
            return Some(Known { shape, elements: Vec::new() });
        }
        // In each part, what lies under one place of the axes before `axis` is one run.
        let run = |part: &Known| part.shape[axis..].iter().product::<usize>();
        let n_runs: usize = shape[..axis].iter().product();
        let mut elements = Vec::new();
        for nth in 0..n_runs {
            for part in parts {
                let run = run(part);
                elements.extend_from_slice(part.elements.get(nth * run..(nth + 1) * run)?);
            }
        }
        Some(Known { shape, elements })
    }

    /// The array as contents of elements of type `dtype`, in the simplest form that holds them.
    pub(super) fn into_content(self, dtype: DType) -> Option<Content> {
        if self.elements.len() > MAX_FOLLOWED_INTS {
            return None;
        }
        match (self.ints(), self.shape.len()) {
            (Some(_), _) if dtype.is_float() => None,
            (Some(dims), rank @ (0 | 1)) => Some(Content::Ints(SymbolicInts { dims, is_scalar: rank == 0 })),
            (Some(dims), _) if self.const_ints().is_none() => Some(Content::Grid(dims)),
            _ => self.to_tensor(dtype).map(Content::Tensor),
        }
    }

    fn to_tensor(&self, dtype: DType) -> Option<Tensor> {
        if dtype.is_float() {
            let value = |element: &Element| match element {
                Element::Float(value) => Some(*value),
                Element::Int(_) => None,
            };
            let values: Option<Vec<f64>> = self.elements.iter().map(value).collect();
            return Tensor::from_f64s(dtype, &self.shape, &values?).ok();
        }
        let values = self.const_ints()?;
        match dtype {
            DType::I64 => Tensor::new(&self.shape, values).ok(),
            DType::U64 => {
                let values: Result<Vec<u64>, _> = values.into_iter().map(u64::try_from).collect();
                Tensor::new(&self.shape, values.ok()?).ok()
            }
            DType::Bool => Tensor::new(&self.shape, values.iter().map(|&value| value != 0).collect()).ok(),
            dtype => {
                // At most 32 bits, which `f64` holds exactly. What does not fit has no defined value.
                let (low, high) = dtype.int_range()?;
                let fits = |value: i64| (low..=high).contains(&i128::from(value)).then_some(value as f64);
                let values: Option<Vec<f64>> = values.into_iter().map(fits).collect();
                Tensor::from_f64s(dtype, &self.shape, &values?).ok()
            }
        }
    }
}

/// An output with contents, provided that they have the shape that inference found.
pub(super) fn with_known(dtype: DType, shape: Shape, known: Option<Known>) -> Inferred {
    let known = known.filter(|known| shape.as_fixed().as_deref() == Some(&known.shape[..]));
    let content = known.and_then(|known| known.into_content(dtype));
    Inferred { ty: ValueType::tensor(dtype, shape), content }
}

/// The product of the dimensions, if it is not beyond what is followed.
fn bounded_count(shape: &[usize]) -> Option<usize> {
    planish_tensor::element_count(shape).filter(|&count| count <= MAX_FOLLOWED_INTS)
}

/// Every index of a shape in row-major order; `None` if there are too many.
fn indices(shape: &[usize]) -> Option<impl Iterator<Item = Vec<usize>>> {
    let count = bounded_count(shape)?;
    Some((0..count).map(move |mut flat| {
        let mut index = vec![0; shape.len()];
        for (place, &dim) in index.iter_mut().zip(shape).rev() {
            *place = flat % dim;
            flat /= dim;
        }
        index
    }))
}

/// The flat place of an index; `None` if it is outside.
fn flat_place(index: &[usize], shape: &[usize]) -> Option<usize> {
    if index.len() != shape.len() {
        return None;
    }
    index.iter().zip(shape).try_fold(0usize, |flat, (&place, &dim)| (place < dim).then(|| flat * dim + place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[i64]) -> Known {
        Known::vector(values.iter().copied().map(Dim::from).collect())
    }

    #[test]
    fn arrays_are_rearranged() {
        let grid = row(&[1, 2, 3, 4, 5, 6]).reshaped(&[2, 3]).unwrap();
        let turned = grid.indexed(&[3, 2], |index| Some(vec![index[1], index[0]])).unwrap();
        assert_eq!(turned.const_ints(), Some(vec![1, 4, 2, 5, 3, 6]));
        let joined = Known::concat(&[grid.clone(), grid.clone()], 1).unwrap();
        assert_eq!(joined.const_ints(), Some(vec![1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6]));
        assert_eq!(Known::concat(&[grid.clone(), row(&[1])], 0), None);
        assert_eq!(grid.indexed(&[1], |_| Some(vec![2, 0])), None);
        assert_eq!(grid.reshaped(&[7]), None);
        assert_eq!(Known::full(&[usize::MAX, 2], &Element::Float(0.0)), None);
    }

    #[test]
    fn contents_take_the_simplest_form() {
        assert!(matches!(row(&[1, -1]).into_content(DType::I32), Some(Content::Ints(_))));
        let constant = row(&[1, -1]).reshaped(&[1, 2]).unwrap().into_content(DType::I32);
        let expected = Tensor::new(&[1, 2], vec![1, -1]).unwrap();
        assert!(matches!(constant, Some(Content::Tensor(tensor)) if tensor == expected));
        let symbolic = Known::vector(vec![Dim::symbol("n"), Dim::ONE]);
        assert!(matches!(symbolic.clone().into_content(DType::I64), Some(Content::Ints(_))));
        let grid = symbolic.reshaped(&[2, 1]).unwrap().into_content(DType::I64);
        assert!(matches!(grid, Some(Content::Grid(dims)) if dims.len() == 2));
        assert!(row(&[300]).reshaped(&[1, 1]).unwrap().into_content(DType::U8).is_none());
        // Without elements, integers and floats look the same.
        assert!(row(&[]).into_content(DType::F32).is_none());
        let large = Tensor::vector(vec![u64::MAX]);
        assert!(Known::of_tensor(&large).is_none());
    }
}
