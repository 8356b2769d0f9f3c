//! Lines of operands along one axis, as kernels that go along them take them.

use planish_kernel::{KernelError, Operand};

use crate::kernel_args;
use crate::operands::strides;
use crate::space::{self, Axis, Divisor, divisors, int, strides_along};

kernel_args! {
    /// Lines of an input and an output of the same sizes.
    pub struct LineArgs {
        n_lines: i32,
        len: i32,
        /// Strides along a line.
        x_step: i32,
        y_step: i32,
        /// The lines' axes, innermost first, and their strides.
        axes: Vec<Divisor>,
        x_strides: Vec<i32>,
        y_strides: Vec<i32>,
    }
}

/// The lines of operands along an axis.
#[derive(Clone, Debug)]
pub struct Lines {
    pub n: usize,
    pub len: usize,
    /// The other axes, joined.
    pub axes: Vec<Axis>,
    /// Each operand's stride along a line.
    pub steps: Vec<usize>,
}

impl Lines {
    /// `operands` begin with the input, whose lines these are; the others may be shorter along the axis.
    pub fn of(operands: &[&Operand], axis: usize) -> Lines {
        let mut dims = operands[0].dims.clone();
        let len = std::mem::replace(&mut dims[axis], 1);
        let all: Vec<Vec<isize>> = operands.iter().map(|operand| strides(operand)).collect();
        let all: Vec<&[isize]> = all.iter().map(Vec::as_slice).collect();
        let steps = operands.iter().map(|operand| operand.strides[axis]).collect();
        Lines { n: dims.iter().product(), len, axes: space::joined(&dims, &all, 0), steps }
    }

    /// For kernels of one input and one output.
    pub fn args(&self) -> Result<LineArgs, KernelError> {
        Ok(LineArgs {
            n_lines: int(self.n)?,
            len: int(self.len)?,
            x_step: int(self.steps[0])?,
            y_step: int(self.steps[1])?,
            axes: divisors(&self.axes),
            x_strides: strides_along(&self.axes, 0)?,
            y_strides: strides_along(&self.axes, 1)?,
        })
    }
}
