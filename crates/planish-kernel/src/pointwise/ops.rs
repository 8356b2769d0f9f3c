//! The instructions of a pointwise program, and which of them an operator is.

use planish_op::{GeluApproximation, Pointwise};
use planish_tensor::{DType, Tensor};

/// The type of a value in a program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    F32,
    I32,
    I64,
    /// Quantized values and bytes: read, written and cast, never computed in. So is `I8`.
    U8,
    I8,
    /// Floats of 8 bits, E4M3 without infinities: likewise.
    F8,
    /// One byte, 0 or 1.
    Bool,
}

impl Kind {
    pub fn of(dtype: DType) -> Option<Kind> {
        match dtype {
            DType::F32 => Some(Kind::F32),
            DType::I32 => Some(Kind::I32),
            DType::I64 => Some(Kind::I64),
            DType::U8 => Some(Kind::U8),
            DType::I8 => Some(Kind::I8),
            DType::F8E4M3FN => Some(Kind::F8),
            DType::Bool => Some(Kind::Bool),
            _ => None,
        }
    }

    /// The kind that elements of a stored type are computed in: f16 and bf16 are widened to f32 when they are
    /// read and rounded once when they are written.
    pub fn stored(dtype: DType) -> Option<Kind> {
        match dtype {
            DType::F16 | DType::BF16 => Some(Kind::F32),
            _ => Kind::of(dtype),
        }
    }

    pub fn dtype(self) -> DType {
        match self {
            Kind::F32 => DType::F32,
            Kind::I32 => DType::I32,
            Kind::I64 => DType::I64,
            Kind::U8 => DType::U8,
            Kind::I8 => DType::I8,
            Kind::F8 => DType::F8E4M3FN,
            Kind::Bool => DType::Bool,
        }
    }

    /// Whether values of it are computed with.
    pub fn is_number(self) -> bool {
        matches!(self, Kind::F32 | Kind::I32 | Kind::I64)
    }

    /// Integers that are computed with.
    pub fn is_int(self) -> bool {
        matches!(self, Kind::I32 | Kind::I64)
    }

    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Kind::F32 | Kind::I32 => 4,
            Kind::I64 => 8,
            Kind::U8 | Kind::I8 | Kind::F8 | Kind::Bool => 1,
        }
    }
}

/// A constant of a program.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scalar {
    F32(f32),
    I32(i32),
    I64(i64),
    U8(u8),
    I8(i8),
    /// By its code.
    F8(u8),
    Bool(bool),
}

impl Scalar {
    pub fn kind(self) -> Kind {
        match self {
            Scalar::F32(_) => Kind::F32,
            Scalar::I32(_) => Kind::I32,
            Scalar::I64(_) => Kind::I64,
            Scalar::U8(_) => Kind::U8,
            Scalar::I8(_) => Kind::I8,
            Scalar::F8(_) => Kind::F8,
            Scalar::Bool(_) => Kind::Bool,
        }
    }

    /// The only element of a tensor.
    pub fn of(tensor: &Tensor) -> Option<Scalar> {
        if tensor.len() != 1 {
            return None;
        }
        match tensor.dtype() {
            DType::F32 => tensor.elements::<f32>().ok().map(|all| Scalar::F32(all[0])),
            DType::I32 => tensor.elements::<i32>().ok().map(|all| Scalar::I32(all[0])),
            DType::I64 => tensor.elements::<i64>().ok().map(|all| Scalar::I64(all[0])),
            DType::U8 => tensor.elements::<u8>().ok().map(|all| Scalar::U8(all[0])),
            DType::I8 => tensor.elements::<i8>().ok().map(|all| Scalar::I8(all[0])),
            DType::F8E4M3FN => tensor.codes().ok().map(|all| Scalar::F8(all[0])),
            DType::Bool => tensor.elements::<bool>().ok().map(|all| Scalar::Bool(all[0])),
            // Every f16 and bf16 is an f32.
            DType::F16 | DType::BF16 => Some(Scalar::F32(tensor.to_f64s()[0] as f32)),
            _ => None,
        }
    }

    /// Equal bits: NaN equals itself here, and the zeros differ.
    pub(super) fn same(self, other: Scalar) -> bool {
        match (self, other) {
            (Scalar::F32(a), Scalar::F32(b)) => a.to_bits() == b.to_bits(),
            _ => self == other,
        }
    }
}

/// A value of a program: the number of the instruction that makes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Reg(pub u16);

/// Functions of one value. Those without a note take and give f32, and are the reference's functions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Unary {
    /// Numbers; integers wrap.
    Abs,
    /// Numbers; integers wrap.
    Neg,
    /// Numbers.
    Sign,
    /// Booleans.
    Not,
    /// Integers.
    BitwiseNot,
    /// From f32 to a boolean.
    IsNaN,
    /// From f32 to a boolean.
    IsInf {
        negative: bool,
        positive: bool,
    },
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    Ceil,
    Cos,
    Cosh,
    Erf,
    Exp,
    Floor,
    Log,
    Reciprocal,
    /// Ties to even.
    Round,
    /// To the nearest f16, ties to even: what an explicit Cast leaves. Only in programs over stored types.
    RoundF16,
    /// To the nearest bf16, likewise.
    RoundBf16,
    Sigmoid,
    Sin,
    Sinh,
    Sqrt,
    Tan,
    Tanh,
    LeakyRelu {
        alpha: f32,
    },
    Elu {
        alpha: f32,
    },
    Selu {
        alpha: f32,
        gamma: f32,
    },
    Celu {
        alpha: f32,
    },
    Gelu,
    GeluTanh,
    HardSigmoid {
        alpha: f32,
        beta: f32,
    },
    HardSwish,
    Mish,
    Softplus,
    Softsign,
    /// `x · sigmoid(alpha · x)`
    Swish {
        alpha: f32,
    },
    Shrink {
        bias: f32,
        lambd: f32,
    },
    ThresholdedRelu {
        alpha: f32,
    },
}

/// Functions of two values of one type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Binary {
    /// Numbers; integers wrap. So do `Sub` and `Mul`.
    Add,
    Sub,
    Mul,
    /// Numbers; integers are cut towards zero, and their divisor is a constant other than zero.
    Div,
    /// f32.
    Pow,
    /// Integers, with the sign of the divisor, which is a constant other than zero.
    Mod,
    /// The remainder with the sign of the dividend: f32, or integers by a constant other than zero.
    Fmod,
    /// Numbers; NaN if either is.
    Min,
    Max,
    /// Numbers: the second times the first where that is below zero.
    PRelu,
    /// Two of a kind to a boolean; comparisons with NaN are false.
    Equal,
    Less,
    LessOrEqual,
    /// Booleans.
    And,
    Or,
    Xor,
    /// Integers.
    BitwiseAnd,
    BitwiseOr,
    BitwiseXor,
}

impl Binary {
    /// Whether the result is a boolean whatever the operands are.
    pub fn compares(self) -> bool {
        matches!(self, Binary::Equal | Binary::Less | Binary::LessOrEqual)
    }
}

/// How a pointwise operator is made of instructions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Made {
    Unary(Unary),
    Binary(Binary),
    /// With the operands swapped.
    Swapped(Binary),
    /// Folded over any number of operands.
    Variadic(Binary),
    /// The sum by the number of operands.
    Mean,
    Relu,
    Clip,
    Pow,
    Select,
    Cast(DType),
    /// There is no instruction for it.
    Refused,
}

impl Made {
    pub(super) fn of(op: Pointwise<'_>) -> Made {
        match op {
            Pointwise::Abs(_) => Made::Unary(Unary::Abs),
            Pointwise::Acos(_) => Made::Unary(Unary::Acos),
            Pointwise::Acosh(_) => Made::Unary(Unary::Acosh),
            Pointwise::Asin(_) => Made::Unary(Unary::Asin),
            Pointwise::Asinh(_) => Made::Unary(Unary::Asinh),
            Pointwise::Atan(_) => Made::Unary(Unary::Atan),
            Pointwise::Atanh(_) => Made::Unary(Unary::Atanh),
            Pointwise::Ceil(_) => Made::Unary(Unary::Ceil),
            Pointwise::Cos(_) => Made::Unary(Unary::Cos),
            Pointwise::Cosh(_) => Made::Unary(Unary::Cosh),
            Pointwise::Erf(_) => Made::Unary(Unary::Erf),
            Pointwise::Exp(_) => Made::Unary(Unary::Exp),
            Pointwise::Floor(_) => Made::Unary(Unary::Floor),
            Pointwise::Log(_) => Made::Unary(Unary::Log),
            Pointwise::Neg(_) => Made::Unary(Unary::Neg),
            Pointwise::Reciprocal(_) => Made::Unary(Unary::Reciprocal),
            Pointwise::Round(_) => Made::Unary(Unary::Round),
            Pointwise::Sigmoid(_) => Made::Unary(Unary::Sigmoid),
            Pointwise::Sign(_) => Made::Unary(Unary::Sign),
            Pointwise::Sin(_) => Made::Unary(Unary::Sin),
            Pointwise::Sinh(_) => Made::Unary(Unary::Sinh),
            Pointwise::Sqrt(_) => Made::Unary(Unary::Sqrt),
            Pointwise::Tan(_) => Made::Unary(Unary::Tan),
            Pointwise::Tanh(_) => Made::Unary(Unary::Tanh),
            Pointwise::Not(_) => Made::Unary(Unary::Not),
            Pointwise::BitwiseNot(_) => Made::Unary(Unary::BitwiseNot),
            Pointwise::IsNaN(_) => Made::Unary(Unary::IsNaN),
            Pointwise::IsInf(op) => {
                Made::Unary(Unary::IsInf { negative: op.detect_negative, positive: op.detect_positive })
            }
            Pointwise::LeakyRelu(op) => Made::Unary(Unary::LeakyRelu { alpha: op.alpha }),
            Pointwise::Elu(op) => Made::Unary(Unary::Elu { alpha: op.alpha }),
            Pointwise::Selu(op) => Made::Unary(Unary::Selu { alpha: op.alpha, gamma: op.gamma }),
            Pointwise::Celu(op) => Made::Unary(Unary::Celu { alpha: op.alpha }),
            Pointwise::Gelu(op) => Made::Unary(match op.approximate {
                GeluApproximation::None => Unary::Gelu,
                GeluApproximation::Tanh => Unary::GeluTanh,
            }),
            Pointwise::HardSigmoid(op) => Made::Unary(Unary::HardSigmoid { alpha: op.alpha, beta: op.beta }),
            Pointwise::HardSwish(_) => Made::Unary(Unary::HardSwish),
            Pointwise::Mish(_) => Made::Unary(Unary::Mish),
            Pointwise::Softplus(_) => Made::Unary(Unary::Softplus),
            Pointwise::Softsign(_) => Made::Unary(Unary::Softsign),
            Pointwise::Swish(op) => Made::Unary(Unary::Swish { alpha: op.alpha }),
            Pointwise::Shrink(op) => Made::Unary(Unary::Shrink { bias: op.bias, lambd: op.lambd }),
            Pointwise::ThresholdedRelu(op) => Made::Unary(Unary::ThresholdedRelu { alpha: op.alpha }),
            Pointwise::Add(_) => Made::Binary(Binary::Add),
            Pointwise::Sub(_) => Made::Binary(Binary::Sub),
            Pointwise::Mul(_) => Made::Binary(Binary::Mul),
            Pointwise::Div(_) => Made::Binary(Binary::Div),
            Pointwise::Mod(op) if op.fmod => Made::Binary(Binary::Fmod),
            Pointwise::Mod(_) => Made::Binary(Binary::Mod),
            Pointwise::PRelu(_) => Made::Binary(Binary::PRelu),
            Pointwise::Equal(_) => Made::Binary(Binary::Equal),
            Pointwise::Less(_) => Made::Binary(Binary::Less),
            Pointwise::LessOrEqual(_) => Made::Binary(Binary::LessOrEqual),
            Pointwise::Greater(_) => Made::Swapped(Binary::Less),
            Pointwise::GreaterOrEqual(_) => Made::Swapped(Binary::LessOrEqual),
            Pointwise::And(_) => Made::Binary(Binary::And),
            Pointwise::Or(_) => Made::Binary(Binary::Or),
            Pointwise::Xor(_) => Made::Binary(Binary::Xor),
            Pointwise::BitwiseAnd(_) => Made::Binary(Binary::BitwiseAnd),
            Pointwise::BitwiseOr(_) => Made::Binary(Binary::BitwiseOr),
            Pointwise::BitwiseXor(_) => Made::Binary(Binary::BitwiseXor),
            Pointwise::Min(_) => Made::Variadic(Binary::Min),
            Pointwise::Max(_) => Made::Variadic(Binary::Max),
            Pointwise::Sum(_) => Made::Variadic(Binary::Add),
            Pointwise::Mean(_) => Made::Mean,
            Pointwise::Relu(_) => Made::Relu,
            Pointwise::Clip(_) => Made::Clip,
            Pointwise::Pow(_) => Made::Pow,
            Pointwise::Where(_) => Made::Select,
            Pointwise::Cast(op) => Made::Cast(op.to),
            // Of unsigned integers alone, which no program computes in.
            Pointwise::BitShift(_) => Made::Refused,
        }
    }
}

/// One instruction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Inst {
    /// The element of an input of the program.
    Input(u16),
    /// What the step before left at this place; only in the program of an epilogue.
    Running,
    Constant(Scalar),
    Unary(Unary, Reg),
    Binary(Binary, Reg, Reg),
    /// `x < lo ? lo : x`, then `> hi ? hi`: NaN stays. The bounds are of the kind of `x` and `lo <= hi`.
    Clamp {
        x: Reg,
        lo: Scalar,
        hi: Scalar,
    },
    Select {
        condition: Reg,
        yes: Reg,
        no: Reg,
    },
    /// To the kind of the instruction's own value. f32 is cut towards zero, and what is out of range becomes
    /// the lowest number; integers keep their low bits; booleans ask for anything but zero. Never from f32 to
    /// 8 bits; from floats of 8 bits to f32 alone.
    Cast(Reg),
    /// A whole number in f32 to 8 bits, the kind of the instruction's own value: out of range it becomes the lowest or
    /// highest number, NaN the lowest. Any number to a float of 8 bits: the nearest, ties to even, NaN stays. The end of
    /// QuantizeLinear.
    Saturate(Reg),
}

impl Inst {
    /// The values that it reads.
    pub fn operands(&self) -> impl Iterator<Item = Reg> + use<> {
        let list = match *self {
            Inst::Input(_) | Inst::Running | Inst::Constant(_) => [None; 3],
            Inst::Unary(_, x) | Inst::Clamp { x, .. } | Inst::Cast(x) | Inst::Saturate(x) => {
                [Some(x), None, None]
            }
            Inst::Binary(_, a, b) => [Some(a), Some(b), None],
            Inst::Select { condition, yes, no } => [Some(condition), Some(yes), Some(no)],
        };
        list.into_iter().flatten()
    }

    /// The same instruction reading other values.
    pub(super) fn map(self, to: impl Fn(Reg) -> Reg) -> Inst {
        match self {
            Inst::Input(_) | Inst::Running | Inst::Constant(_) => self,
            Inst::Unary(op, x) => Inst::Unary(op, to(x)),
            Inst::Binary(op, a, b) => Inst::Binary(op, to(a), to(b)),
            Inst::Clamp { x, lo, hi } => Inst::Clamp { x: to(x), lo, hi },
            Inst::Select { condition, yes, no } => {
                Inst::Select { condition: to(condition), yes: to(yes), no: to(no) }
            }
            Inst::Cast(x) => Inst::Cast(to(x)),
            Inst::Saturate(x) => Inst::Saturate(to(x)),
        }
    }

    /// Whether both do the same, NaN bounds and constants included.
    pub(super) fn same(&self, other: &Inst) -> bool {
        match (self, other) {
            (Inst::Constant(a), Inst::Constant(b)) => a.same(*b),
            (Inst::Clamp { x, lo, hi }, Inst::Clamp { x: y, lo: other_lo, hi: other_hi }) => {
                x == y && lo.same(*other_lo) && hi.same(*other_hi)
            }
            _ => self == other,
        }
    }
}
