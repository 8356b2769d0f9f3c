//! Pointwise programs: what a region of element-wise operators computes for one element.
//!
//! A [`Program`] is straight-line code in single assignment: instruction `i` makes value `i`, reads earlier
//! ones, and every input is read through broadcasting. Backends interpret or compile it; its meaning is the
//! reference's. [`Epilogue`] is the form in which matrix products and convolutions take the operators after
//! them: bias, residual and clamp apart, because they have fast ways for these, and a program for the rest.

mod build;
mod epilogue;
mod nodes;
mod ops;
#[cfg(test)]
mod tests;

pub use epilogue::{Epilogue, Residual};
pub use ops::{Binary, Inst, Kind, Reg, Scalar, Unary};

use planish_tensor::{DType, Tensor};

use crate::{KernelError, Problem, Region};

/// Where a program's input comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// An input of the region.
    Input(u32),
    /// A constant of the region with more than one element; constants of one are part of the code.
    Constant(u32),
}

impl Source {
    /// The constant, if it is one.
    pub fn constant(self, region: &Region) -> Option<&Tensor> {
        match self {
            Source::Constant(idx) => region.constants.get(idx as usize),
            Source::Input(_) => None,
        }
    }
}

/// A tensor that a program reads one element of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramInput {
    pub source: Source,
    /// What it is computed in.
    pub kind: Kind,
    /// What it is stored in: `kind`'s own type, or f16 or bf16 for f32.
    pub dtype: DType,
    pub dims: Vec<usize>,
    /// The tensor is a vector along axis 1 of the output (a parameter of BatchNormalization, the bias of a
    /// convolution) instead of being aligned at the last axis.
    pub channel: bool,
}

impl ProgramInput {
    /// For each axis of an output of `rank` the axis of this input that follows it; `None` where it has none
    /// or repeats its one element.
    pub fn axes(&self, rank: usize) -> Vec<Option<usize>> {
        (0..rank)
            .map(|axis| {
                let own = if self.channel {
                    (axis == 1).then_some(0)
                } else {
                    (axis + self.dims.len()).checked_sub(rank)
                };
                own.filter(|own| self.dims.get(*own).is_some_and(|dim| *dim != 1))
            })
            .collect()
    }
}

/// Which floating-point types a program is made of. Kernels that know no f16 must never be given one, so they
/// have to ask for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Floats {
    /// f32 alone.
    Single,
    /// f16 and bf16 too, as storage.
    Stored,
}

/// Straight-line code for one element of the outputs.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// Sizes of every output: the space that the program runs over.
    pub dims: Vec<usize>,
    pub inputs: Vec<ProgramInput>,
    /// Instruction `i` makes value `i`.
    pub code: Vec<Inst>,
    /// The type of each value.
    pub kinds: Vec<Kind>,
    pub outputs: Vec<Reg>,
    /// What each output is stored in: the type of its kind, or f16 or bf16 for f32.
    pub output_types: Vec<DType>,
}

impl Program {
    /// The program of a problem whose nodes are all pointwise. All outputs must have the same sizes.
    pub fn of_problem(problem: &Problem) -> Result<Program, KernelError> {
        build::program(problem, None, Floats::Single)
    }

    /// As [`Program::of_problem`], over inputs and outputs that may be stored in f16 or bf16.
    pub fn stored(problem: &Problem) -> Result<Program, KernelError> {
        build::program(problem, None, Floats::Stored)
    }

    /// The program of the nodes after `main`, whose first output is the running value ([`Inst::Running`]).
    /// A bias that is an input of `main` itself (Conv's `B`, Gemm's `C` with its factors) comes first. The
    /// problem must have one output, and it must have the sizes of `main`'s.
    pub fn epilogue(problem: &Problem, main: u32) -> Result<Program, KernelError> {
        build::program(problem, Some(main), Floats::Single)
    }

    /// As [`Program::epilogue`], over operands that may be stored in f16 or bf16. The running value is f32.
    pub fn stored_epilogue(problem: &Problem, main: u32) -> Result<Program, KernelError> {
        build::program(problem, Some(main), Floats::Stored)
    }

    /// The values that an instruction reads.
    pub fn reads(&self, reg: Reg) -> impl Iterator<Item = Reg> + use<> {
        self.code[reg.0 as usize].operands()
    }

    /// How often each value is read, by instructions or as an output.
    pub fn n_uses(&self) -> Vec<u32> {
        let mut n_uses = vec![0; self.code.len()];
        for inst in &self.code {
            inst.operands().for_each(|reg| n_uses[reg.0 as usize] += 1);
        }
        self.outputs.iter().for_each(|reg| n_uses[reg.0 as usize] += 1);
        n_uses
    }

    /// Whether nothing is left to do: the running value is the output.
    pub fn is_identity(&self) -> bool {
        matches!((&*self.outputs, &*self.code), ([Reg(0)], [Inst::Running]))
    }
}
