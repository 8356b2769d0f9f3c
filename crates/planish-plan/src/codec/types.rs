//! Element types, dimensions, value types and tensors in the file.

use planish_kernel::{Arithmetic, Layout, Numeric};
use planish_op::{TensorType, ValueType};
use planish_tensor::{Bytes, DType, Dim, Shape, Tensor};

use super::{Reader, Stored, Writer, stored_struct};
use crate::error::{PlanErrorKind, Result, shorten};

impl Stored for DType {
    const MIN_BYTES: usize = 3;

    fn write(&self, to: &mut Writer) {
        to.text(self.name());
    }

    fn read(from: &mut Reader<'_>) -> Result<DType> {
        let at = from.at();
        let name = from.text()?;
        name.parse().map_err(|_| {
            from.error(PlanErrorKind::Unknown, at, format!("no element type is called `{}`", shorten(name)))
        })
    }
}

impl Stored for Layout {
    const MIN_BYTES: usize = 2;

    fn write(&self, to: &mut Writer) {
        to.text(self.name());
    }

    fn read(from: &mut Reader<'_>) -> Result<Layout> {
        let at = from.at();
        let name = from.text()?;
        Layout::named(name).ok_or_else(|| {
            from.error(PlanErrorKind::Unknown, at, format!("no layout is called `{}`", shorten(name)))
        })
    }
}

impl Stored for Arithmetic {
    const MIN_BYTES: usize = 3;

    fn write(&self, to: &mut Writer) {
        to.text(self.name());
    }

    fn read(from: &mut Reader<'_>) -> Result<Arithmetic> {
        let at = from.at();
        let name = from.text()?;
        Arithmetic::named(name).ok_or_else(|| {
            from.error(PlanErrorKind::Unknown, at, format!("no arithmetic is called `{}`", shorten(name)))
        })
    }
}

stored_struct!(Numeric { element: Arithmetic, accumulator: DType, scale: DType });

/// Numbers as they are, expressions as the text that they print.
impl Stored for Dim {
    const MIN_BYTES: usize = 2;

    fn write(&self, to: &mut Writer) {
        match self.as_const() {
            Some(value) => {
                to.byte(0);
                value.write(to);
            }
            None => {
                to.byte(1);
                to.text(&self.to_string());
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Dim> {
        match from.tag("a dimension", 2)? {
            0 => i64::read(from).map(Dim::from),
            _ => from.expression(),
        }
    }
}

impl Stored for Shape {
    const MIN_BYTES: usize = 1;

    fn write(&self, to: &mut Writer) {
        to.count(self.rank() as u64);
        self.iter().for_each(|dim| dim.write(to));
    }

    fn read(from: &mut Reader<'_>) -> Result<Shape> {
        Vec::read(from).map(Shape::new)
    }
}

stored_struct!(TensorType { dtype: DType, shape: Option<Shape> });

impl Stored for ValueType {
    const MIN_BYTES: usize = 2;

    fn write(&self, to: &mut Writer) {
        match self {
            ValueType::Tensor(tensor) => {
                to.byte(0);
                tensor.write(to);
            }
            ValueType::Sequence(element) => {
                to.byte(1);
                element.write(to);
            }
            ValueType::Optional(element) => {
                to.byte(2);
                element.write(to);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<ValueType> {
        let element = |from: &mut Reader<'_>| from.nested(ValueType::read).map(Box::new);
        Ok(match from.tag("a value's type", 3)? {
            0 => ValueType::Tensor(TensorType::read(from)?),
            1 => ValueType::Sequence(element(from)?),
            _ => ValueType::Optional(element(from)?),
        })
    }
}

/// Small tensors that are part of the structure; weights have sections of their own.
impl Stored for Tensor {
    const MIN_BYTES: usize = DType::MIN_BYTES + 2;

    fn write(&self, to: &mut Writer) {
        self.dtype().write(to);
        self.shape().to_vec().write(to);
        to.blob(self.bytes());
    }

    fn read(from: &mut Reader<'_>) -> Result<Tensor> {
        let at = from.at();
        let dtype = DType::read(from)?;
        let shape = Vec::<usize>::read(from)?;
        let bytes = from.blob()?;
        Tensor::from_bytes(dtype, &shape, Bytes::from_vec(bytes.to_vec()))
            .map_err(|error| from.malformed(at, error.to_string()))
    }
}
