//! Small steps that several decompositions take.

use planish_ir::ValueId;
use planish_op as op;
use planish_op::Op;
use planish_tensor::{DType, Tensor};

use crate::error::ImportError;
use crate::node::NodeImport;

type Id = ValueId;
type Made = Result<ValueId, ImportError>;

impl NodeImport<'_, '_> {
    pub(crate) fn cast(&mut self, value: Id, to: DType) -> Made {
        if self.type_of(value)?.dtype == to {
            return Ok(value);
        }
        self.temporary(op::Cast { to, saturate: true, round_mode: op::CastRounding::Up }, &[Some(value)])
    }

    pub(crate) fn add_values(&mut self, a: Id, b: Id) -> Made {
        self.temporary(op::Add {}, &[Some(a), Some(b)])
    }

    pub(crate) fn mul_values(&mut self, a: Id, b: Id) -> Made {
        self.temporary(op::Mul {}, &[Some(a), Some(b)])
    }

    /// A scalar constant of this type.
    pub(crate) fn number(&mut self, hint: &str, dtype: DType, value: f64) -> Made {
        let tensor = Tensor::from_f64s(dtype, &[], &[value])
            .map_err(|error| ImportError::invalid(error.to_string()))?;
        self.constant(hint, tensor)
    }

    pub(crate) fn unsqueeze(&mut self, value: Id, axes: Vec<i64>) -> Made {
        let axes = self.int_vector("axes", axes)?;
        self.temporary(op::Unsqueeze {}, &[Some(value), Some(axes)])
    }

    pub(crate) fn reshape_to(&mut self, value: Id, shape: Vec<i64>) -> Made {
        let shape = self.int_vector("shape", shape)?;
        self.temporary(op::Reshape { allowzero: false }, &[Some(value), Some(shape)])
    }

    pub(crate) fn transpose(&mut self, value: Id, perm: Vec<i64>) -> Made {
        self.temporary(op::Transpose { perm: Some(perm) }, &[Some(value)])
    }

    /// One dimension of a value at run time, as a vector of one `i64`.
    pub(crate) fn dim_vector(&mut self, value: Id, axis: i64) -> Made {
        self.temporary(op::Shape { start: axis, end: (axis != -1).then_some(axis + 1) }, &[Some(value)])
    }

    pub(crate) fn dequantize(&mut self, value: Id, scale: Id, zero_point: Option<Id>, axis: i64) -> Made {
        let op = op::DequantizeLinear { output_dtype: None, block_size: 0, axis };
        self.temporary(op, &[Some(value), Some(scale), zero_point])
    }

    /// The node's output `idx` as the quantization of `value`.
    pub(crate) fn quantize_as(
        &mut self,
        output: usize,
        value: Id,
        scale: Id,
        zero_point: Option<Id>,
    ) -> Result<(), ImportError> {
        let list = &[("axis".to_string(), op::Attribute::Int(1))];
        let op = Op::from_attributes("QuantizeLinear", list)?;
        self.add(op, &[Some(value), Some(scale), zero_point], &[crate::node::Out::Node(output)]).map(|_| ())
    }

    /// Adds the node that makes the output `idx` of the ONNX node alone.
    pub(crate) fn make_output(
        &mut self,
        idx: usize,
        op: impl Into<Op>,
        inputs: &[Option<Id>],
    ) -> Result<(), ImportError> {
        self.add(op, inputs, &[crate::node::Out::Node(idx)]).map(|_| ())
    }
}
