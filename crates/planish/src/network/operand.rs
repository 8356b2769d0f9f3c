//! What layers take besides wires: tensors, which become constants, and numbers in the type of their partner.

use planish_tensor::{DType, Dim, Shape, Tensor};

use super::{NetworkBuilder, Wire};
use crate::{Error, ErrorKind};

/// An operand of a layer: a wire, a tensor that becomes a constant, or a number.
///
/// ```
/// use planish::{DType, NetworkBuilder, Tensor};
///
/// let mut net = NetworkBuilder::new("operands");
/// let x = net.input("x", DType::F16, "n,2")?;
/// let y = net.add(x, 1.0)?;                                            // a number, in the type of `x`
/// let y = net.mul(y, Tensor::new(&[2], vec![planish::f16::ONE; 2])?)?; // a tensor becomes a constant
/// let y = net.sub(y, x)?;
/// let weights = Tensor::new(&[3, 2], vec![planish::f16::ONE; 6])?;
/// let y = net.linear(y, weights, Some(0.5.into()))?;                   // where one may be left out
/// assert_eq!(net.type_of(y)?.to_string(), "f16[n,3]");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// use planish::{DType, NetworkBuilder};
///
/// let mut net = NetworkBuilder::new("shapes");
/// let x = net.input("x", DType::F32, "batch,3,2*n")?;
/// let y = net.input("y", DType::F32, [1, 3, 8])?;
/// assert_eq!(net.type_of(x)?.to_string(), "f32[batch,3,2*n]");
/// assert_eq!(net.type_of(y)?.to_string(), "f32[1,3,8]");
/// # Ok::<(), planish::Error>(())
/// ```
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
