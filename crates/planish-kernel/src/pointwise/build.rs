//! From a region's nodes to a program.

use planish_op::{GeluApproximation, Op};
use planish_tensor::DType;

use super::ops::{Binary, Inst, Kind, Reg, Scalar, Unary};
use super::{Floats, Program, ProgramInput, Source};
use crate::types::Inner;
use crate::{KernelError, Problem, Ref, RegionNode};

/// Longer programs are refused: regions are a few nodes, and values are numbered by 16 bits.
const MAX_INSTRUCTIONS: usize = 512;

type Built<T> = Result<T, KernelError>;

fn refuse<T>(reason: impl Into<String>) -> Built<T> {
    Err(KernelError::unsupported(reason))
}

/// The program of the whole problem, or of what comes behind `main`.
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

struct Builder<'a> {
    problem: &'a Problem,
    types: &'a [Vec<Inner>],
    main: Option<u32>,
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

    fn inner(&self, reference: Ref) -> Built<Inner> {
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

    fn emit(&mut self, inst: Inst, kind: Kind) -> Built<Reg> {
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

    fn constant(&mut self, value: Scalar) -> Built<Reg> {
        self.emit(Inst::Constant(value), value.kind())
    }

    /// What elements of a type are computed in, if this program may hold them.
    fn kind_of(&self, dtype: DType) -> Option<Kind> {
        match self.floats {
            Floats::Single => Kind::of(dtype),
            Floats::Stored => Kind::stored(dtype),
        }
    }

    fn kind(&self, reg: Reg) -> Kind {
        self.kinds[reg.0 as usize]
    }

    fn scalar(&self, reg: Reg) -> Option<Scalar> {
        match self.code[reg.0 as usize] {
            Inst::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// The value behind a reference, built if it was not yet.
    fn value(&mut self, reference: Ref) -> Built<Reg> {
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
    fn read(&mut self, reference: Ref, channel: bool) -> Built<Reg> {
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

    fn unary(&mut self, op: Unary, x: Reg) -> Built<Reg> {
        let kind = self.kind(x);
        let (fits, result) = match op {
            Unary::Abs | Unary::Neg | Unary::Sign => (kind != Kind::Bool, kind),
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

    fn binary(&mut self, op: Binary, a: Reg, b: Reg) -> Built<Reg> {
        let kind = self.kind(a);
        let nonzero = matches!(self.scalar(b), Some(Scalar::I32(1.. | ..=-1) | Scalar::I64(1.. | ..=-1)));
        let fits = kind == self.kind(b)
            && match op {
                Binary::Add | Binary::Sub | Binary::Mul | Binary::Min | Binary::Max | Binary::PRelu => {
                    kind != Kind::Bool
                }
                Binary::Div | Binary::Fmod => kind == Kind::F32 || (kind.is_int() && nonzero),
                Binary::Mod => kind.is_int() && nonzero,
                Binary::Pow => kind == Kind::F32,
                Binary::Equal | Binary::Less | Binary::LessOrEqual => true,
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

    fn fold(&mut self, op: Binary, operands: &[Reg]) -> Built<Reg> {
        let Some((first, rest)) = operands.split_first() else {
            return refuse("an operator without operands");
        };
        rest.iter().try_fold(*first, |all, next| self.binary(op, all, *next))
    }

    fn select(&mut self, condition: Reg, yes: Reg, no: Reg) -> Built<Reg> {
        if self.kind(condition) != Kind::Bool || self.kind(yes) != self.kind(no) {
            return refuse("a choice between values of different types");
        }
        self.emit(Inst::Select { condition, yes, no }, self.kind(yes))
    }

    fn clamp(&mut self, x: Reg, lo: Scalar, hi: Scalar) -> Built<Reg> {
        self.emit(Inst::Clamp { x, lo, hi }, self.kind(x))
    }

    fn operand(&mut self, node: &RegionNode, idx: usize) -> Built<Reg> {
        match node.inputs.get(idx).copied().flatten() {
            Some(reference) => self.value(reference),
            None => refuse(format!("{} without input {idx}", node.op.name())),
        }
    }

    /// The first output of a node.
    fn node(&mut self, node: &RegionNode) -> Built<Reg> {
        let simple = match &node.op {
            Op::Abs(_) => Some(Unary::Abs),
            Op::Acos(_) => Some(Unary::Acos),
            Op::Acosh(_) => Some(Unary::Acosh),
            Op::Asin(_) => Some(Unary::Asin),
            Op::Asinh(_) => Some(Unary::Asinh),
            Op::Atan(_) => Some(Unary::Atan),
            Op::Atanh(_) => Some(Unary::Atanh),
            Op::Ceil(_) => Some(Unary::Ceil),
            Op::Cos(_) => Some(Unary::Cos),
            Op::Cosh(_) => Some(Unary::Cosh),
            Op::Erf(_) => Some(Unary::Erf),
            Op::Exp(_) => Some(Unary::Exp),
            Op::Floor(_) => Some(Unary::Floor),
            Op::Log(_) => Some(Unary::Log),
            Op::Neg(_) => Some(Unary::Neg),
            Op::Reciprocal(_) => Some(Unary::Reciprocal),
            Op::Round(_) => Some(Unary::Round),
            Op::Sigmoid(_) => Some(Unary::Sigmoid),
            Op::Sign(_) => Some(Unary::Sign),
            Op::Sin(_) => Some(Unary::Sin),
            Op::Sinh(_) => Some(Unary::Sinh),
            Op::Sqrt(_) => Some(Unary::Sqrt),
            Op::Tan(_) => Some(Unary::Tan),
            Op::Tanh(_) => Some(Unary::Tanh),
            Op::Not(_) => Some(Unary::Not),
            Op::BitwiseNot(_) => Some(Unary::BitwiseNot),
            Op::IsNaN(_) => Some(Unary::IsNaN),
            Op::IsInf(op) => {
                Some(Unary::IsInf { negative: op.detect_negative, positive: op.detect_positive })
            }
            Op::LeakyRelu(op) => Some(Unary::LeakyRelu { alpha: op.alpha }),
            Op::Elu(op) => Some(Unary::Elu { alpha: op.alpha }),
            Op::Selu(op) => Some(Unary::Selu { alpha: op.alpha, gamma: op.gamma }),
            Op::Celu(op) => Some(Unary::Celu { alpha: op.alpha }),
            Op::Gelu(op) => Some(match op.approximate {
                GeluApproximation::None => Unary::Gelu,
                GeluApproximation::Tanh => Unary::GeluTanh,
            }),
            Op::HardSigmoid(op) => Some(Unary::HardSigmoid { alpha: op.alpha, beta: op.beta }),
            Op::HardSwish(_) => Some(Unary::HardSwish),
            Op::Mish(_) => Some(Unary::Mish),
            Op::Softplus(_) => Some(Unary::Softplus),
            Op::Softsign(_) => Some(Unary::Softsign),
            Op::Swish(op) => Some(Unary::Swish { alpha: op.alpha }),
            Op::Shrink(op) => Some(Unary::Shrink { bias: op.bias, lambd: op.lambd }),
            Op::ThresholdedRelu(op) => Some(Unary::ThresholdedRelu { alpha: op.alpha }),
            _ => None,
        };
        if let Some(op) = simple {
            let x = self.operand(node, 0)?;
            return self.unary(op, x);
        }
        let pair = match &node.op {
            Op::Add(_) => Some((Binary::Add, false)),
            Op::Sub(_) => Some((Binary::Sub, false)),
            Op::Mul(_) => Some((Binary::Mul, false)),
            Op::Div(_) => Some((Binary::Div, false)),
            Op::Mod(op) if op.fmod => Some((Binary::Fmod, false)),
            Op::Mod(_) => Some((Binary::Mod, false)),
            Op::PRelu(_) => Some((Binary::PRelu, false)),
            Op::Equal(_) => Some((Binary::Equal, false)),
            Op::Less(_) => Some((Binary::Less, false)),
            Op::LessOrEqual(_) => Some((Binary::LessOrEqual, false)),
            Op::Greater(_) => Some((Binary::Less, true)),
            Op::GreaterOrEqual(_) => Some((Binary::LessOrEqual, true)),
            Op::And(_) => Some((Binary::And, false)),
            Op::Or(_) => Some((Binary::Or, false)),
            Op::Xor(_) => Some((Binary::Xor, false)),
            Op::BitwiseAnd(_) => Some((Binary::BitwiseAnd, false)),
            Op::BitwiseOr(_) => Some((Binary::BitwiseOr, false)),
            Op::BitwiseXor(_) => Some((Binary::BitwiseXor, false)),
            _ => None,
        };
        if let Some((op, swapped)) = pair {
            let (a, b) = (self.operand(node, 0)?, self.operand(node, 1)?);
            return if swapped { self.binary(op, b, a) } else { self.binary(op, a, b) };
        }
        match &node.op {
            Op::Identity(_) | Op::Expand(_) => self.operand(node, 0),
            Op::Relu(_) => self.relu(node),
            Op::Clip(_) => self.clip(node),
            Op::Min(_) => self.variadic(node, Binary::Min),
            Op::Max(_) => self.variadic(node, Binary::Max),
            Op::Sum(_) => self.variadic(node, Binary::Add),
            Op::Mean(_) => {
                let sum = self.variadic(node, Binary::Add)?;
                let count = self.constant(Scalar::F32(node.inputs.len() as f32))?;
                self.binary(Binary::Div, sum, count)
            }
            Op::Where(_) => {
                let condition = self.operand(node, 0)?;
                let (yes, no) = (self.operand(node, 1)?, self.operand(node, 2)?);
                self.select(condition, yes, no)
            }
            Op::Cast(op) => self.cast(node, op.to),
            Op::Pow(_) => self.pow(node),
            Op::BatchNormalization(op) if !op.training_mode && node.n_outputs == 1 => {
                self.batch_normalization(node, op.epsilon)
            }
            op => match self.main {
                Some(_) => refuse(format!("{} stands behind the main node and is not pointwise", op.name())),
                None => refuse(format!("{} is not pointwise", op.name())),
            },
        }
    }

    fn variadic(&mut self, node: &RegionNode, op: Binary) -> Built<Reg> {
        let operands: Vec<Reg> =
            (0..node.inputs.len()).map(|idx| self.operand(node, idx)).collect::<Built<_>>()?;
        self.fold(op, &operands)
    }

    fn relu(&mut self, node: &RegionNode) -> Built<Reg> {
        let x = self.operand(node, 0)?;
        match self.kind(x) {
            Kind::F32 => self.clamp(x, Scalar::F32(0.0), Scalar::F32(f32::INFINITY)),
            Kind::I32 => self.clamp(x, Scalar::I32(0), Scalar::I32(i32::MAX)),
            Kind::I64 => self.clamp(x, Scalar::I64(0), Scalar::I64(i64::MAX)),
            Kind::Bool => refuse("Relu of booleans"),
        }
    }

    /// A bound that is absent is the lowest or highest finite number; one that is NaN bounds nothing.
    fn clip(&mut self, node: &RegionNode) -> Built<Reg> {
        let x = self.operand(node, 0)?;
        let (low, high) = match self.kind(x) {
            Kind::F32 => {
                let most = self.largest(node)?;
                (Scalar::F32(-most), Scalar::F32(most))
            }
            Kind::I32 => (Scalar::I32(i32::MIN), Scalar::I32(i32::MAX)),
            Kind::I64 => (Scalar::I64(i64::MIN), Scalar::I64(i64::MAX)),
            Kind::Bool => return refuse("Clip of booleans"),
        };
        let mut bounds = [low, high];
        let mut computed = [None; 2];
        for idx in 0..2 {
            let Some(reference) = node.inputs.get(idx + 1).copied().flatten() else {
                continue;
            };
            let Inner { dims, .. } = self.inner(reference)?;
            if dims.iter().product::<usize>() != 1 {
                return refuse(format!("a bound of Clip has sizes {dims:?}"));
            }
            let reg = self.value(reference)?;
            match self.scalar(reg) {
                Some(Scalar::F32(bound)) if bound.is_nan() => {
                    bounds[idx] = Scalar::F32(if idx == 0 { f32::NEG_INFINITY } else { f32::INFINITY });
                }
                Some(bound) if bound.kind() == self.kind(x) => bounds[idx] = bound,
                _ => computed[idx] = Some(reg),
            }
        }
        let in_order = match (bounds[0], bounds[1]) {
            (Scalar::F32(lo), Scalar::F32(hi)) => lo <= hi,
            (Scalar::I32(lo), Scalar::I32(hi)) => lo <= hi,
            (Scalar::I64(lo), Scalar::I64(hi)) => lo <= hi,
            _ => false,
        };
        if computed == [None; 2] && in_order {
            return self.clamp(x, bounds[0], bounds[1]);
        }
        let low = computed[0].map_or_else(|| self.constant(bounds[0]), Ok)?;
        let high = computed[1].map_or_else(|| self.constant(bounds[1]), Ok)?;
        let below = self.binary(Binary::Less, x, low)?;
        let raised = self.select(below, low, x)?;
        let above = self.binary(Binary::Less, high, raised)?;
        self.select(above, high, raised)
    }

    /// The largest finite number of the type that a node reads first.
    fn largest(&self, node: &RegionNode) -> Built<f32> {
        let Some(x) = node.inputs.first().copied().flatten() else {
            return refuse(format!("{} without an input", node.op.name()));
        };
        Ok(match self.inner(x)?.dtype {
            DType::F16 => 65504.0,
            // The upper half of the bits of f32::MAX.
            DType::BF16 => f32::from_bits(0x7f7f_0000),
            _ => f32::MAX,
        })
    }

    fn cast(&mut self, node: &RegionNode, to: DType) -> Built<Reg> {
        let mut x = self.operand(node, 0)?;
        let Some(kind) = self.kind_of(to) else {
            return refuse(format!("Cast to {to}"));
        };
        if kind != self.kind(x) {
            x = self.emit(Inst::Cast(x), kind)?;
        }
        match to {
            DType::F16 => self.unary(Unary::RoundF16, x),
            DType::BF16 => self.unary(Unary::RoundBf16, x),
            _ => Ok(x),
        }
    }

    /// Exponents that are constants become multiplications where that is the same function.
    fn pow(&mut self, node: &RegionNode) -> Built<Reg> {
        let (x, exponent) = (self.operand(node, 0)?, self.operand(node, 1)?);
        if self.kind(x) != Kind::F32 {
            return refuse("Pow of integers");
        }
        let power = match self.scalar(exponent) {
            Some(Scalar::F32(power)) => Some(f64::from(power)),
            Some(Scalar::I32(power)) => Some(f64::from(power)),
            Some(Scalar::I64(power)) => Some(power as f64),
            Some(Scalar::Bool(_)) => return refuse("Pow with a boolean exponent"),
            None => None,
        };
        match power {
            Some(0.0) => self.constant(Scalar::F32(1.0)),
            Some(1.0) => Ok(x),
            Some(2.0) => self.binary(Binary::Mul, x, x),
            Some(3.0) => {
                let square = self.binary(Binary::Mul, x, x)?;
                self.binary(Binary::Mul, square, x)
            }
            Some(-1.0) => self.unary(Unary::Reciprocal, x),
            Some(0.5) => self.half_power(x),
            Some(-0.5) => {
                let root = self.half_power(x)?;
                self.unary(Unary::Reciprocal, root)
            }
            Some(power) if f64::from(power as f32) == power || power.is_nan() => {
                let exponent = self.constant(Scalar::F32(power as f32))?;
                self.binary(Binary::Pow, x, exponent)
            }
            Some(power) => refuse(format!("Pow with the exponent {power}")),
            None if self.kind(exponent) == Kind::F32 => self.binary(Binary::Pow, x, exponent),
            None => refuse("Pow with integer exponents"),
        }
    }

    /// The square root, but for what powers say of minus zero (zero) and minus infinity (infinity).
    fn half_power(&mut self, x: Reg) -> Built<Reg> {
        let zero = self.constant(Scalar::F32(0.0))?;
        let positive = self.binary(Binary::Add, x, zero)?;
        let root = self.unary(Unary::Sqrt, positive)?;
        let lowest = self.constant(Scalar::F32(f32::NEG_INFINITY))?;
        let highest = self.constant(Scalar::F32(f32::INFINITY))?;
        let is_lowest = self.binary(Binary::Equal, x, lowest)?;
        self.select(is_lowest, highest, root)
    }

    fn batch_normalization(&mut self, node: &RegionNode, epsilon: f32) -> Built<Reg> {
        let x = self.operand(node, 0)?;
        let mut parameters = [Reg(0); 4];
        for (idx, parameter) in parameters.iter_mut().enumerate() {
            let Some(reference) = node.inputs.get(idx + 1).copied().flatten() else {
                return refuse("BatchNormalization without all its parameters");
            };
            *parameter = self.read(reference, true)?;
        }
        let [scale, bias, mean, variance] = parameters;
        let epsilon = self.constant(Scalar::F32(epsilon))?;
        let variance = self.binary(Binary::Add, variance, epsilon)?;
        let deviation = self.unary(Unary::Sqrt, variance)?;
        let centered = self.binary(Binary::Sub, x, mean)?;
        let normalized = self.binary(Binary::Div, centered, deviation)?;
        let scaled = self.binary(Binary::Mul, normalized, scale)?;
        self.binary(Binary::Add, scaled, bias)
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
