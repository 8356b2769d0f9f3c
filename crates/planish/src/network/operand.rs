//! What layers take besides wires: tensors, which become constants, and numbers in the type of their partner.

use planish_tensor::{DType, Dim, Shape, Tensor};

use super::{NetworkBuilder, Wire};
use crate::{Error, ErrorKind};

/// An operand of a layer: a wire, a tensor that becomes a constant, or a number.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A value of the network.
    Wire(Wire),
    /// A constant.
    Tensor(Tensor),
    /// A constant of rank 0 in the type of the layer's other operand.
    Number(f64),
}

impl From<Wire> for Operand {
    fn from(wire: Wire) -> Operand {
        Operand::Wire(wire)
    }
}

impl From<Tensor> for Operand {
    fn from(tensor: Tensor) -> Operand {
        Operand::Tensor(tensor)
    }
}

impl From<&Tensor> for Operand {
    fn from(tensor: &Tensor) -> Operand {
        Operand::Tensor(tensor.clone())
    }
}

macro_rules! from_number {
    ($($number:ty),*) => {$(
        impl From<$number> for Operand {
            fn from(number: $number) -> Operand {
                Operand::Number(f64::from(number))
            }
        }
    )*};
}

from_number!(f32, f64, i32, u32);

/// Sizes of an input: numbers, symbols, or a text of both.
pub trait IntoShape {
    /// The shape, or what is wrong with it.
    fn into_shape(self) -> Result<Shape, String>;
}

impl IntoShape for Shape {
    fn into_shape(self) -> Result<Shape, String> {
        Ok(self)
    }
}

impl IntoShape for &str {
    /// `batch,3,224,224`; an empty text is a scalar.
    fn into_shape(self) -> Result<Shape, String> {
        format!("[{self}]").parse().map_err(|error| format!("`{self}` is not a shape: {error}"))
    }
}

impl IntoShape for &[usize] {
    fn into_shape(self) -> Result<Shape, String> {
        Ok(Shape::from(self))
    }
}

impl<const N: usize> IntoShape for [usize; N] {
    fn into_shape(self) -> Result<Shape, String> {
        Ok(Shape::from(self))
    }
}

impl IntoShape for Vec<Dim> {
    fn into_shape(self) -> Result<Shape, String> {
        Ok(Shape::new(self))
    }
}

impl<const N: usize> IntoShape for [Dim; N] {
    fn into_shape(self) -> Result<Shape, String> {
        Ok(Shape::new(self.to_vec()))
    }
}

impl NetworkBuilder {
    /// The wire of an operand of the layer `layer`; `role` names the constant that it may become, `like` is the type
    /// of a number.
    pub(super) fn operand(
        &mut self,
        operand: Operand,
        layer: &str,
        role: &str,
        like: DType,
    ) -> Result<Wire, Error> {
        let tensor = match operand {
            Operand::Wire(wire) => return Ok(wire),
            Operand::Tensor(tensor) => tensor,
            Operand::Number(number) => number_of(number, like).map_err(|why| {
                Error::new(ErrorKind::BadModel, format!("layer `{layer}`: {why}; cast its other operand"))
            })?,
        };
        // A layer that was refused left its constants behind; the next attempt has others.
        let mut name = format!("{layer}.{role}");
        let mut n = 1;
        while self.graph.find(&name).is_some() {
            n += 1;
            name = format!("{layer}.{role}_{n}");
        }
        self.constant(&name, tensor)
    }

    /// The type of numbers beside an operand.
    pub(super) fn type_beside(&self, operand: &Operand) -> Option<DType> {
        match operand {
            Operand::Wire(wire) => self.type_of(*wire).ok()?.as_tensor().map(|ty| ty.dtype),
            Operand::Tensor(tensor) => Some(tensor.dtype()),
            Operand::Number(_) => None,
        }
    }
}

fn number_of(number: f64, dtype: DType) -> Result<Tensor, String> {
    if !dtype.is_float() && number.fract() != 0.0 {
        return Err(format!("{number} is not an {dtype}"));
    }
    Tensor::from_f64s(dtype, &[], &[number]).map_err(|error| error.to_string())
}
