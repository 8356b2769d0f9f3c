//! Epilogues: what a matrix product or convolution still has to do with each of its accumulators.
//!
//! [`Epilogue`] is the one description, for every backend. Each lowers it to what its kernels take, and those forms
//! differ in kind: the CPU's micro-kernels take addresses and bounds (`EpilogueCall`) and run the program over finished
//! blocks, the GPU's generated kernels take the program as text with the operands' strides (`TileEpilogue` after tiles
//! of products, `EpilogueCode` after kernels that make one result at a time).

use planish_op::Op;
use planish_tensor::Tensor;

use super::ops::{Binary, Inst, Kind, Reg, Scalar};
use super::{Program, Source};
use crate::{KernelError, Problem};

/// An input of the output's own sizes that is added.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Residual {
    /// Which input of the region.
    pub input: u32,
    /// Whether it is added after the clamp instead of before it.
    pub after_clamp: bool,
}

/// What comes after the main node, in this order: `+ bias`, `+ residual` (if not `after_clamp`), clamp to
/// `lo..=hi`, `+ residual` (if `after_clamp`), then the program with the result as the running value.
#[derive(Clone, PartialEq, Debug)]
pub struct Epilogue {
    /// Which input of the region is the bias: as many elements as the output has channels (axis 1 of a
    /// convolution, the last axis of a matrix product), dense.
    pub bias: Option<u32>,
    pub residual: Option<Residual>,
    /// `v < lo ? lo : v`, so that NaN stays; minus infinity where nothing bounds.
    pub lo: f32,
    /// `v > hi ? hi : v`; infinity where nothing bounds.
    pub hi: f32,
    pub program: Option<Program>,
}

impl Epilogue {
    /// Nothing to do.
    pub const NONE: Epilogue =
        Epilogue { bias: None, residual: None, lo: f32::NEG_INFINITY, hi: f32::INFINITY, program: None };

    /// The epilogue of `main` in this problem. The bias that `main` takes itself is part of it.
    pub fn of(problem: &Problem, main: u32) -> Result<Epilogue, KernelError> {
        Epilogue::after(problem, main, Program::epilogue(problem, main)?)
    }

    /// As [`Epilogue::of`], over operands that may be stored in f16 or bf16: look at the types of the bias and
    /// the residual.
    pub fn stored(problem: &Problem, main: u32) -> Result<Epilogue, KernelError> {
        Epilogue::after(problem, main, Program::stored_epilogue(problem, main)?)
    }

    /// The epilogue of a region's first node, a convolution, made by [`Epilogue::of`] or [`Epilogue::stored`]. A bias
    /// that is a constant of the region, as those of one channel are, is taken out of the program and comes beside it.
    pub fn of_conv(
        problem: &Problem,
        of: impl Fn(&Problem, u32) -> Result<Epilogue, KernelError>,
    ) -> Result<(Epilogue, Option<&Tensor>), KernelError> {
        let node = problem.region.nodes.first();
        let Some(bias) = node.and_then(|node| problem.region.constant(node.inputs.get(2).copied().flatten()))
        else {
            return Ok((of(problem, 0)?, None));
        };
        let mut bare = problem.clone();
        bare.region.nodes[0].inputs.truncate(2);
        let epilogue = of(&bare, 0)?;
        match epilogue.bias {
            None => Ok((epilogue, Some(bias))),
            Some(_) => Err(KernelError::unsupported("two biases after a convolution")),
        }
    }

    fn after(problem: &Problem, main: u32, program: Program) -> Result<Epilogue, KernelError> {
        let Some(node) = problem.region.nodes.get(main as usize) else {
            return Err(KernelError::unsupported(format!("the region has no node {main}")));
        };
        let channel_axis = match &node.op {
            Op::Conv(_) | Op::ConvTranspose(_) => Some(1),
            Op::MatMul(_) | Op::Gemm(_) => program.dims.len().checked_sub(1),
            _ => None,
        };
        Ok(Epilogue::from_program(program, channel_axis))
    }

    pub fn has_clamp(&self) -> bool {
        self.lo != f32::NEG_INFINITY || self.hi != f32::INFINITY
    }

    pub fn is_none(&self) -> bool {
        *self == Epilogue::NONE
    }

    /// Takes bias, residual and clamp off the front of a program, as far as they go.
    pub fn from_program(program: Program, channel_axis: Option<usize>) -> Epilogue {
        let mut epilogue = Epilogue::NONE;
        let n_uses = program.n_uses();
        let Some(running) = program.code.iter().position(|inst| *inst == Inst::Running) else {
            // A program that ignores what it follows.
            return Epilogue { program: Some(program), ..epilogue };
        };
        let mut value = Reg(running as u16);
        while program.kinds[value.0 as usize] == Kind::F32
            && n_uses[value.0 as usize] == 1
            && let Some(user) = program.code.iter().position(|inst| inst.operands().any(|reg| reg == value))
        {
            let taken = match program.code[user] {
                Inst::Clamp { lo: Scalar::F32(lo), hi: Scalar::F32(hi), .. } => epilogue.take_clamp(lo, hi),
                Inst::Binary(Binary::Add, a, b) => {
                    let other = if a == value { b } else { a };
                    epilogue.take_term(&program, other, channel_axis)
                }
                _ => false,
            };
            if !taken {
                break;
            }
            value = Reg(user as u16);
        }
        if program.outputs != [value] {
            epilogue.program = Some(program.starting_at(value));
        }
        epilogue
    }

    fn take_clamp(&mut self, lo: f32, hi: f32) -> bool {
        if self.residual.is_some_and(|residual| residual.after_clamp) {
            return false;
        }
        // Both are in order, so clamping twice is clamping once to what the second makes of the first's ends.
        let clamp = |v: f32| {
            if v < lo {
                lo
            } else if v > hi {
                hi
            } else {
                v
            }
        };
        (self.lo, self.hi) = (clamp(self.lo), clamp(self.hi));
        true
    }

    fn take_term(&mut self, program: &Program, term: Reg, channel_axis: Option<usize>) -> bool {
        let Inst::Input(idx) = program.code[term.0 as usize] else {
            return false;
        };
        let input = &program.inputs[idx as usize];
        let Source::Input(source) = input.source else {
            return false;
        };
        let full = !input.channel && input.dims == program.dims;
        let per_channel = channel_axis.is_some_and(|axis| {
            let n_channels = program.dims[axis];
            let follows = match input.channel {
                true => axis == 1,
                false => (input.dims.len() + axis)
                    .checked_sub(program.dims.len())
                    .is_some_and(|own| input.dims.get(own) == Some(&n_channels)),
            };
            follows && input.dims.iter().product::<usize>() == n_channels
        });
        if per_channel && self.bias.is_none() && self.residual.is_none() && !self.has_clamp() {
            self.bias = Some(source);
            return true;
        }
        if full && self.residual.is_none() {
            self.residual = Some(Residual { input: source, after_clamp: self.has_clamp() });
            return true;
        }
        false
    }
}

impl Program {
    /// The same program from `value` on, which becomes the running value.
    fn starting_at(mut self, value: Reg) -> Program {
        self.code[value.0 as usize] = Inst::Running;
        self.without_dead_code()
    }
}
