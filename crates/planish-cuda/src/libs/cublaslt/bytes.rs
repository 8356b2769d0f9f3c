//! What leads from numbers of 8 bits to the library's product and back, as far as it takes them.
//!
//! Seen with cuBLASLt 13.1 on an H200: integers become integers with one scale for all, a bias in f32 and a residual of
//! integers, no other type; E4M3 becomes f16, bf16 or f32 with scales of columns, or E4M3 with one scale for all, and a bias
//! has 16 bits. Sums in i32 for a kernel of ours to finish are not offered: they cost 8 bytes of traffic an element, 1,400
//! products of 8 bits each, more than any product of ours loses.

use planish_kernel::{KernelError, Problem};
use planish_tensor::DType;

use crate::families::product::epilogue::{Factors, Following, Numbers};

/// A vector with an element for each column that is added to sums.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Bias {
    /// An input of the region.
    pub(super) input: usize,
    pub(super) stored: DType,
    /// What the library takes: of this type, and so many times as large.
    pub(super) taken: DType,
    pub(super) factor: f32,
}

impl Bias {
    /// Whether it goes to the library as it is.
    pub(super) fn is_taken(&self) -> bool {
        self.stored == self.taken && self.factor == 1.0
    }
}

/// The numbers that the library is given, and the types that it stores and adds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Scaling {
    /// What sums and residuals are multiplied by.
    pub(super) alpha: f32,
    pub(super) beta: f32,
    /// An input of the region with a scale for each column.
    pub(super) columns: Option<usize>,
    /// What results are multiplied by before they are rounded.
    pub(super) steps: Option<f32>,
    pub(super) output: DType,
    pub(super) added: DType,
    /// The type that a bias must have, and what it is multiplied by.
    bias: (DType, f32),
}

impl Scaling {
    /// Of a product over wide floats, which are all of one type.
    pub(super) fn wide(dtype: DType, has_residual: bool) -> Scaling {
        let beta = if has_residual { 1.0 } else { 0.0 };
        let (columns, steps) = (None, None);
        Scaling { alpha: 1.0, beta, columns, steps, output: dtype, added: dtype, bias: (dtype, 1.0) }
    }

    /// Of a product of bytes; refused where the library does not take it.
    pub(super) fn of_bytes(problem: &Problem, following: &Following) -> Result<Scaling, KernelError> {
        let refuse = |what: &str| Err(KernelError::unsupported(format!("cuBLASLt: {what}")));
        let Following { bytes, epilogue, .. } = following;
        let Some(Factors { columns, .. }) = bytes.factors else { return refuse("one factor of bytes alone") };
        let Numbers { factor, residual_scale, inverse, .. } = bytes.numbers((epilogue.lo, epilogue.hi));
        let residual = epilogue.residual.map(|residual| problem.inputs[residual.input as usize].dtype);
        let output = problem.outputs[0].dtype;
        let around_zero = bytes.residual.iter().chain(&bytes.output).all(|stored| stored.zero == 0);
        let is_i8 = problem.inputs.iter().any(|operand| operand.dtype == DType::I8);
        if !around_zero || (is_i8 && columns.is_some()) {
            return refuse("integers around another number than zero, or with scales of columns");
        }
        let has = |is_there: bool, scale: f32| if is_there { scale } else { 0.0 };
        match (is_i8, output) {
            // Everything is counted in steps of the result.
            (true, DType::I8) if residual.is_none_or(|dtype| dtype == DType::I8) => Ok(Scaling {
                alpha: factor * inverse,
                beta: has(residual.is_some(), residual_scale * inverse),
                columns: None,
                steps: None,
                output,
                added: DType::I8,
                bias: (DType::F32, inverse),
            }),
            (false, DType::F8E4M3FN)
                if columns.is_none() && residual.is_none_or(|dtype| dtype == DType::F16) =>
            {
                Ok(Scaling {
                    alpha: factor,
                    beta: has(residual.is_some(), 1.0),
                    columns: None,
                    steps: Some(inverse),
                    output,
                    added: DType::F16,
                    bias: (DType::F16, 1.0),
                })
            }
            (false, DType::F32 | DType::F16 | DType::BF16)
                if residual.is_none_or(|dtype| dtype == output) =>
            {
                if output == DType::F32 && epilogue.bias.is_some() {
                    return refuse("a bias of 16 bits for results of 32");
                }
                let beta = has(residual.is_some(), 1.0);
                Ok(Scaling {
                    alpha: factor,
                    beta,
                    columns,
                    steps: None,
                    output,
                    added: output,
                    bias: (output, 1.0),
                })
            }
            _ => refuse("a result or residual of a type that it does not store beside these factors"),
        }
    }

    /// The region's input that is added to each row.
    pub(super) fn bias(&self, problem: &Problem, input: usize) -> Bias {
        let (taken, factor) = self.bias;
        Bias { input, stored: problem.inputs[input].dtype, taken, factor }
    }
}
