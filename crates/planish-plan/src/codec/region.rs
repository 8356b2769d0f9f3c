//! Operators, by name and attributes, and regions of them in the file.

use planish_kernel::{Ref, Region, RegionNode};
use planish_op::{Attribute, AttributeError, Custom, Op, ValueType};
use planish_tensor::{DType, Tensor};

use super::{Reader, Stored, Writer, stored_struct};
use crate::error::{PlanErrorKind, Result, shorten};

impl Stored for Attribute {
    const MIN_BYTES: usize = 2;

    fn write(&self, to: &mut Writer) {
        match self {
            Attribute::Bool(value) => tagged(to, 0, value),
            Attribute::Int(value) => tagged(to, 1, value),
            Attribute::Float(value) => tagged(to, 2, value),
            Attribute::Str(value) => tagged(to, 3, value),
            Attribute::Ints(value) => tagged(to, 4, value),
            Attribute::Floats(value) => tagged(to, 5, value),
            Attribute::Strs(value) => tagged(to, 6, value),
            Attribute::DType(value) => tagged(to, 7, value),
            Attribute::Tensor(value) => tagged(to, 8, value),
            Attribute::Type(value) => tagged(to, 9, value),
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Attribute> {
        Ok(match from.tag("an attribute", 10)? {
            0 => Attribute::Bool(bool::read(from)?),
            1 => Attribute::Int(i64::read(from)?),
            2 => Attribute::Float(f32::read(from)?),
            3 => Attribute::Str(String::read(from)?),
            4 => Attribute::Ints(Vec::read(from)?),
            5 => Attribute::Floats(Vec::read(from)?),
            6 => Attribute::Strs(Vec::read(from)?),
            7 => Attribute::DType(DType::read(from)?),
            8 => Attribute::Tensor(Tensor::read(from)?),
            _ => Attribute::Type(ValueType::read(from)?),
        })
    }
}

fn tagged<T: Stored>(to: &mut Writer, tag: u8, value: &T) {
    to.byte(tag);
    value.write(to);
}

stored_struct!(Custom { domain: String, name: String, version: i64, attributes: Vec<(String, Attribute)> });

impl Stored for Op {
    const MIN_BYTES: usize = 3;

    fn write(&self, to: &mut Writer) {
        if let Op::Custom(custom) = self {
            return tagged(to, 1, custom);
        }
        to.byte(0);
        to.text(self.name());
        let attributes = self.attributes();
        to.count(attributes.len() as u64);
        for (name, attribute) in attributes {
            to.text(name);
            attribute.write(to);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Op> {
        if from.tag("an operator", 2)? == 1 {
            return Custom::read(from).map(Op::Custom);
        }
        let at = from.at();
        let name = from.text()?;
        let attributes = Vec::<(String, Attribute)>::read(from)?;
        Op::from_attributes(name, &attributes).map_err(|error| {
            let what = match error {
                AttributeError::UnknownOp { .. } => format!("no operator is called `{}`", shorten(name)),
                error => shorten(&error.to_string()),
            };
            from.error(PlanErrorKind::Unknown, at, what)
        })
    }
}

impl Stored for Ref {
    const MIN_BYTES: usize = 2;

    fn write(&self, to: &mut Writer) {
        match self {
            Ref::Input(idx) => tagged(to, 0, idx),
            Ref::Constant(idx) => tagged(to, 1, idx),
            Ref::Node { node, output } => {
                tagged(to, 2, node);
                output.write(to);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Ref> {
        Ok(match from.tag("a reference of a region", 3)? {
            0 => Ref::Input(u32::read(from)?),
            1 => Ref::Constant(u32::read(from)?),
            _ => Ref::Node { node: u32::read(from)?, output: u32::read(from)? },
        })
    }
}

stored_struct!(RegionNode { name: String, op: Op, inputs: Vec<Option<Ref>>, n_outputs: u32 });
stored_struct!(Region { n_inputs: u32, constants: Vec<Tensor>, nodes: Vec<RegionNode>, outputs: Vec<Ref> });
