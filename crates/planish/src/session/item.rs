//! `Item`: what a caller hands in for one run or for one place of a batch, whatever holds it.

use planish_runtime::View;
use planish_tensor::Tensor;

use crate::{Error, ErrorKind};

/// The inputs of a model, in any form: a [`Tensor`] or a [`View`] for a model of one input, pairs of a name and one of
/// these for any. A program's own type of frame may be one, too.
///
/// ```
/// use planish::{Item, Tensor, View};
///
/// struct Photo {
///     pixels: Vec<f32>,
/// }
///
/// impl Item for Photo {
///     fn input(&self, name: &str) -> Option<View<'_>> {
///         (name == "pixels").then(|| View::new(&[3, 8, 8], &self.pixels).ok())?
///     }
///
///     fn n_inputs(&self) -> usize {
///         1
///     }
/// }
///
/// let photo = Photo { pixels: vec![0.0; 3 * 8 * 8] };
/// assert_eq!(photo.input("pixels").unwrap().dims(), [3, 8, 8]);
/// let named = [("pixels", Tensor::vector(vec![1f32, 2.0])), ("scale", Tensor::scalar(2f32))];
/// assert_eq!((named.n_inputs(), named.input("scale").unwrap().dims().len()), (2, 0));
/// ```
pub trait Item {
    /// The tensor for the input of this name.
    fn input(&self, name: &str) -> Option<View<'_>>;

    /// How many inputs it gives.
    fn n_inputs(&self) -> usize;
}

/// A single tensor answers to every name: that the model has one input is checked by number.
impl Item for Tensor {
    fn input(&self, _: &str) -> Option<View<'_>> {
        Some(View::from(self))
    }

    fn n_inputs(&self) -> usize {
        1
    }
}

impl Item for View<'_> {
    fn input(&self, _: &str) -> Option<View<'_>> {
        Some(*self)
    }

    fn n_inputs(&self) -> usize {
        1
    }
}

impl<N: AsRef<str>, T: Item> Item for [(N, T)] {
    fn input(&self, name: &str) -> Option<View<'_>> {
        self.iter().find(|(known, _)| known.as_ref() == name).and_then(|(_, tensor)| tensor.input(name))
    }

    fn n_inputs(&self) -> usize {
        self.len()
    }
}

impl<N: AsRef<str>, T: Item, const K: usize> Item for [(N, T); K] {
    fn input(&self, name: &str) -> Option<View<'_>> {
        self.as_slice().input(name)
    }

    fn n_inputs(&self) -> usize {
        K
    }
}

impl<N: AsRef<str>, T: Item> Item for Vec<(N, T)> {
    fn input(&self, name: &str) -> Option<View<'_>> {
        self.as_slice().input(name)
    }

    fn n_inputs(&self) -> usize {
        self.len()
    }
}

/// The views of an item in the model's order.
pub(crate) fn views<'a>(item: &'a (impl Item + ?Sized), names: &[String]) -> Result<Vec<View<'a>>, Error> {
    if item.n_inputs() != names.len() {
        let (given, wanted) = (item.n_inputs(), names.len());
        let message = format!("{given} inputs are given, the model takes {wanted}: {}", names.join(", "));
        return Err(Error::new(ErrorKind::WrongInputs, message));
    }
    let view = |name: &String| {
        item.input(name).ok_or_else(|| {
            let message =
                format!("no value is given for input `{name}`; the inputs are {}", names.join(", "));
            Error::new(ErrorKind::WrongInputs, message)
        })
    };
    names.iter().map(view).collect()
}
