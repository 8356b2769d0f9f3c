//! From a region's nodes to a program.

use planish_op::Op;
use planish_tensor::DType;

use super::ops::{Binary, Inst, Kind, Reg, Scalar, Unary};
use super::{Floats, Program, ProgramInput, Source};
use crate::types::Inner;
use crate::{KernelError, Problem, Ref, RegionNode};

/// Longer programs are refused: regions are a few nodes, and values are numbered by 16 bits.
const MAX_INSTRUCTIONS: usize = 512;

pub(super) type Built<T> = Result<T, KernelError>;

pub(super) fn refuse<T>(reason: impl Into<String>) -> Built<T> {
    Err(KernelError::unsupported(reason))
}

/// The program of the whole problem, or of what comes after `main`.
pub(super) fn program(problem: &Problem, main: Option<u32>, floats: Floats) -> Built<Program> {
    let types = problem.inner_types()?;
    let mut builder = Builder {
        problem,
        types: &types,
        main,
        floats,
        values: vec![None; problem.region.nodes.len()],
        code: Vec::new(),
        kinds: Vec::new(),
        inputs: Vec::new(),
    };
    let outputs = &problem.region.outputs;
    let dims = match (outputs.first(), main) {
        (Some(first), None) => builder.dims_of(*first)?,
        (Some(_), Some(main)) if outputs.len() == 1 => builder.main_output(main)?.dims.clone(),
        (Some(_), Some(_)) => return refuse("an epilogue has one output"),
        (None, _) => return refuse("the region has no output"),
    };
    if let Some(main) = main {
        builder.start_behind(main)?;
    }
    let mut regs = Vec::with_capacity(outputs.len());
    let mut output_types = Vec::with_capacity(outputs.len());
    for output in outputs {
        let inner = builder.inner(*output)?;
        if inner.dims != dims {
            return refuse(format!("outputs of other sizes than {dims:?}"));
        }
        regs.push(builder.value(*output)?);
        output_types.push(inner.dtype);
    }
    let Builder { code, kinds, inputs, .. } = builder;
    if let Some(input) = inputs.iter().find(|input| !reaches(input, &dims)) {
        return refuse(format!("an input of sizes {:?} does not spread over {dims:?}", input.dims));
    }
    Ok(Program { dims, inputs, code, kinds, outputs: regs, output_types }.without_dead_code())
}

/// Whether broadcasting the input gives elements of `dims` and no more.
fn reaches(input: &ProgramInput, dims: &[usize]) -> bool {
    let surplus = input.dims.len().saturating_sub(dims.len());
    if input.channel {
        return input.dims.len() == 1 && dims.len() >= 2 && input.dims[0] == dims[1];
    }
    input.dims[..surplus].iter().all(|dim| *dim == 1)
        && input.dims.iter().rev().zip(dims.iter().rev()).all(|(own, dim)| own == dim || *own == 1)
}

pub(super) struct Builder<'a> {
    problem: &'a Problem,
    types: &'a [Vec<Inner>],
    pub(super) main: Option<u32>,
    floats: Floats,
    /// What each node that was built left in its first output.
    values: Vec<Option<Reg>>,
    code: Vec<Inst>,
    kinds: Vec<Kind>,
    inputs: Vec<ProgramInput>,
}

impl Builder<'_> {
    fn main_output(&self, main: u32) -> Built<&Inner> {
        match self.types.get(main as usize).and_then(|outputs| outputs.first()) {
            Some(inner) => Ok(inner),
            None => refuse(format!("the region has no node {main}")),
        }
    }

    fn dims_of(&self, reference: Ref) -> Built<Vec<usize>> {
        Ok(self.inner(reference)?.dims)
    }

    pub(super) fn inner(&self, reference: Ref) -> Built<Inner> {
        let found = match reference {
            Ref::Input(idx) => self.problem.inputs.get(idx as usize).map(|operand| {
                let dims = operand.dims.clone();
                Inner { dtype: operand.dtype, dims }
            }),
            Ref::Constant(idx) => self.problem.region.constants.get(idx as usize).map(|tensor| {
                let dims = tensor.shape().to_vec();
                Inner { dtype: tensor.dtype(), dims }
            }),
            Ref::Node { node, output } => {
                self.types.get(node as usize).and_then(|outputs| outputs.get(output as usize)).cloned()
            }
        };
        found.ok_or_else(|| KernelError::unsupported("a reference that leads nowhere"))
    }

    /// The running value of an epilogue, and the bias that the main node itself has.
    fn start_behind(&mut self, main: u32) -> Built<()> {
        let dtype = self.main_output(main)?.dtype;
        let Some(kind) = self.kind_of(dtype) else {
            return refuse(format!("a running value of type {dtype}"));
        };
        let mut running = self.emit(Inst::Running, kind)?;
        let node = &self.problem.region.nodes[main as usize];
        match (&node.op, node.inputs.get(2).copied().flatten()) {
            (Op::Conv(_) | Op::ConvTranspose(_), Some(bias)) => {
                let bias = self.read(bias, true)?;
                running = self.binary(Binary::Add, running, bias)?;
            }
            (Op::Gemm(op), third) => {
                running = self.scaled(running, op.alpha)?;
                if let Some(third) = third {
                    let third = self.value(third)?;
                    let third = self.scaled(third, op.beta)?;
                    running = self.binary(Binary::Add, running, third)?;
                }
            }
            _ => {}
        }
        self.values[main as usize] = Some(running);
        Ok(())
    }

    fn scaled(&mut self, value: Reg, factor: f32) -> Built<Reg> {
        if factor == 1.0 {
            return Ok(value);
        }
        let factor = self.constant(Scalar::F32(factor))?;
        self.binary(Binary::Mul, value, factor)
    }

    pub(super) fn emit(&mut self, inst: Inst, kind: Kind) -> Built<Reg> {
        let found = (0..self.code.len()).find(|idx| self.code[*idx].same(&inst) && self.kinds[*idx] == kind);
        if let Some(idx) = found {
            return Ok(Reg(idx as u16));
        }
        if self.code.len() >= MAX_INSTRUCTIONS {
            return refuse(format!("more than {MAX_INSTRUCTIONS} instructions"));
        }
        self.code.push(inst);
        self.kinds.push(kind);
        Ok(Reg((self.code.len() - 1) as u16))
    }

    pub(super) fn constant(&mut self, value: Scalar) -> Built<Reg> {
        self.emit(Inst::Constant(value), value.kind())
    }

    /// What elements of a type are computed in, if this program may hold them.
    pub(super) fn kind_of(&self, dtype: DType) -> Option<Kind> {
        match self.floats {
            Floats::Single => Kind::of(dtype),
            Floats::Stored => Kind::stored(dtype),
        }
    }

    pub(super) fn kind(&self, reg: Reg) -> Kind {
        self.kinds[reg.0 as usize]
    }

    pub(super) fn scalar(&self, reg: Reg) -> Option<Scalar> {
        match self.code[reg.0 as usize] {
            Inst::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// The value behind a reference, built if it was not yet.
    pub(super) fn value(&mut self, reference: Ref) -> Built<Reg> {
        match reference {
            Ref::Node { node, output } => {
                if output != 0 {
                    return refuse("only first outputs are read here");
                }
                if let Some(reg) = self.values[node as usize] {
                    return Ok(reg);
                }
                // Nodes read only earlier ones, so this ends; regions are short, so it is not deep.
                let region_node = &self.problem.region.nodes[node as usize];
                let reg = self.node(region_node)?;
                self.values[node as usize] = Some(reg);
                Ok(reg)
            }
            Ref::Input(_) | Ref::Constant(_) => self.read(reference, false),
        }
    }

    /// An input or constant; a channel's parameter is a vector along axis 1.
    pub(super) fn read(&mut self, reference: Ref, channel: bool) -> Built<Reg> {
        let source = match reference {
            Ref::Input(idx) => Source::Input(idx),
            Ref::Constant(idx) => {
                let constant = self.problem.region.constants.get(idx as usize);
                if let Some(tensor) = constant.filter(|tensor| self.kind_of(tensor.dtype()).is_some())
                    && let Some(scalar) = Scalar::of(tensor)
                {
                    return self.constant(scalar);
                }
                Source::Constant(idx)
            }
            Ref::Node { .. } => return refuse("a parameter that is computed"),
        };
        let Inner { dtype, dims } = self.inner(reference)?;
        let Some(kind) = self.kind_of(dtype) else {
            return refuse(format!("elements of type {dtype}"));
        };
        let input = ProgramInput { source, kind, dtype, dims, channel };
        let idx = self.inputs.iter().position(|known| *known == input).unwrap_or_else(|| {
            self.inputs.push(input);
            self.inputs.len() - 1
        });
        self.emit(Inst::Input(idx as u16), kind)
    }

    pub(super) fn unary(&mut self, op: Unary, x: Reg) -> Built<Reg> {
        let kind = self.kind(x);
        let (fits, result) = match op {
            Unary::Abs | Unary::Neg | Unary::Sign => (kind.is_number(), kind),
            Unary::Not => (kind == Kind::Bool, kind),
            Unary::BitwiseNot => (kind.is_int(), kind),
            Unary::IsNaN | Unary::IsInf { .. } => (kind == Kind::F32, Kind::Bool),
            _ => (kind == Kind::F32, kind),
        };
        if !fits {
            return refuse(format!("{op:?} of {kind:?}"));
        }
        self.emit(Inst::Unary(op, x), result)
    }

    pub(super) fn binary(&mut self, op: Binary, a: Reg, b: Reg) -> Built<Reg> {
        let kind = self.kind(a);
        let nonzero = matches!(self.scalar(b), Some(Scalar::I32(1.. | ..=-1) | Scalar::I64(1.. | ..=-1)));
        let fits = kind == self.kind(b)
            && match op {
                Binary::Add | Binary::Sub | Binary::Mul | Binary::Min | Binary::Max | Binary::PRelu => {
                    kind.is_number()
                }
                Binary::Div | Binary::Fmod => kind == Kind::F32 || (kind.is_int() && nonzero),
                Binary::Mod => kind.is_int() && nonzero,
                Binary::Pow => kind == Kind::F32,
                Binary::Equal | Binary::Less | Binary::LessOrEqual => kind.is_number() || kind == Kind::Bool,
                Binary::And | Binary::Or | Binary::Xor => kind == Kind::Bool,
                Binary::BitwiseAnd | Binary::BitwiseOr | Binary::BitwiseXor => kind.is_int(),
            };
        if !fits {
            return refuse(format!("{op:?} of {kind:?} and {:?}", self.kind(b)));
        }
        if op == Binary::Mul
            && let Some(gated) = self.gate(a, b).or_else(|| self.gate(b, a))
        {
            return self.unary(gated.0, gated.1);
        }
        self.emit(Inst::Binary(op, a, b), if op.compares() { Kind::Bool } else { kind })
    }

    /// `x · sigmoid(alpha · x)` as one function.
    fn gate(&self, x: Reg, gate: Reg) -> Option<(Unary, Reg)> {
        let Inst::Unary(Unary::Sigmoid, inner) = self.code[gate.0 as usize] else {
            return None;
        };
        if inner == x {
            return Some((Unary::Swish { alpha: 1.0 }, x));
        }
        let Inst::Binary(Binary::Mul, a, b) = self.code[inner.0 as usize] else {
            return None;
        };
        let alpha = match (a == x, b == x) {
            (true, _) => self.scalar(b)?,
            (_, true) => self.scalar(a)?,
            _ => return None,
        };
        match alpha {
            Scalar::F32(alpha) => Some((Unary::Swish { alpha }, x)),
            _ => None,
        }
    }

    pub(super) fn fold(&mut self, op: Binary, operands: &[Reg]) -> Built<Reg> {
        let Some((first, rest)) = operands.split_first() else {
            return refuse("an operator without operands");
        };
        rest.iter().try_fold(*first, |all, next| self.binary(op, all, *next))
    }

    pub(super) fn select(&mut self, condition: Reg, yes: Reg, no: Reg) -> Built<Reg> {
        if self.kind(condition) != Kind::Bool || self.kind(yes) != self.kind(no) {
            return refuse("a choice between values of different types");
        }
        self.emit(Inst::Select { condition, yes, no }, self.kind(yes))
    }

    pub(super) fn clamp(&mut self, x: Reg, lo: Scalar, hi: Scalar) -> Built<Reg> {
        self.emit(Inst::Clamp { x, lo, hi }, self.kind(x))
    }

    pub(super) fn operand(&mut self, node: &RegionNode, idx: usize) -> Built<Reg> {
        match node.inputs.get(idx).copied().flatten() {
            Some(reference) => self.value(reference),
            None => refuse(format!("{} without input {idx}", node.op.name())),
        }
    }
}

impl Program {
    /// Drops instructions and inputs that no output depends on.
    pub(super) fn without_dead_code(self) -> Program {
        let mut live = vec![false; self.code.len()];
        self.outputs.iter().for_each(|reg| live[reg.0 as usize] = true);
        for idx in (0..self.code.len()).rev() {
            if live[idx] {
                self.code[idx].operands().for_each(|reg| live[reg.0 as usize] = true);
            }
        }
        let mut renamed = vec![Reg(0); self.code.len()];
        let mut input_of = vec![None; self.inputs.len()];
        let (mut code, mut kinds, mut inputs) = (Vec::new(), Vec::new(), Vec::new());
        for (idx, inst) in self.code.iter().enumerate().filter(|(idx, _)| live[*idx]) {
            renamed[idx] = Reg(code.len() as u16);
            code.push(match inst.map(|reg| renamed[reg.0 as usize]) {
                Inst::Input(input) => {
                    let place = *input_of[input as usize].get_or_insert_with(|| {
                        inputs.push(self.inputs[input as usize].clone());
                        (inputs.len() - 1) as u16
                    });
                    Inst::Input(place)
                }
                inst => inst,
            });
            kinds.push(self.kinds[idx]);
        }
        let outputs = self.outputs.iter().map(|reg| renamed[reg.0 as usize]).collect();
        Program { dims: self.dims, inputs, code, kinds, outputs, output_types: self.output_types }
    }
}
