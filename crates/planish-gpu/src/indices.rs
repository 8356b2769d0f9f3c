//! Index tensors of lookups and writes: an input, or a small constant of the region that becomes part of the code.

use planish_kernel::{KernelError, Layout, Problem, Ref};
use planish_tensor::{DType, Tensor};

use crate::codegen;
use crate::operands::refuse;
use crate::plan::{Arg, KernelCode, Slot};

/// Where a kernel finds its indices.
#[derive(Debug)]
pub struct Index<'a> {
    pub dims: &'a [usize],
    dtype: DType,
    values: Option<&'a Tensor>,
    /// What the kernel is given for them.
    pub arg: Arg,
}

impl<'a> Index<'a> {
    /// The index that a node reads; dense where it is an input.
    pub fn of(problem: &'a Problem, read: Option<Ref>) -> Result<Index<'a>, KernelError> {
        let (dims, dtype, values, arg) = match read {
            Some(Ref::Input(at)) => {
                let operand = &problem.inputs[at as usize];
                if operand.packed.is_some() || !operand.is_dense(Layout::Plain) {
                    return refuse("an index with gaps");
                }
                (&operand.dims[..], operand.dtype, None, Arg::Address(Slot::Input(at as usize), 0))
            }
            _ => match problem.region.constant(read) {
                Some(tensor) => (tensor.shape(), tensor.dtype(), Some(tensor), Arg::Nothing),
                None => return refuse("an index that the region makes itself"),
            },
        };
        match dtype {
            DType::I32 | DType::I64 => Ok(Index { dims, dtype, values, arg }),
            other => refuse(format!("an index of type {other}")),
        }
    }

    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The code with `I_T` and `INDEX(i)` in it, beside an argument `index`.
    pub fn told(&self, code: KernelCode) -> Result<KernelCode, KernelError> {
        let name = if self.dtype == DType::I32 { "i32" } else { "i64" };
        let code = code.define("I_T", name);
        Ok(match self.values {
            Some(values) => code
                .before(&codegen::constant(values, "index_values")?)
                .define("INDEX(i)", format!("((i64)({name})index_values[i])")),
            None => code.define("INDEX(i)", "((i64)index[i])"),
        })
    }
}
