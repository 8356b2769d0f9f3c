//! From the instructions of a program to loops: which function each one is, and which are joined.

use planish_kernel::pointwise::{Binary, Inst, Kind, Program, Reg, Scalar};

use super::bytes::{self, Joined};
use super::float8;
use super::loops::{Loop, Ternary, map1, map2, select, ternary};
use super::unary::{float_unary, other_unary};
use crate::simd::Simd;
use crate::vecmath;

/// An instruction with its loop. Operands are values of the program.
pub(super) struct Step {
    pub(super) run: Loop,
    pub(super) operands: Vec<Reg>,
    pub(super) value: Reg,
    /// Whether the result may lie where an operand of the same kind does: loops of vectors read before they
    /// write, and the compiler's own vectorization wants them apart.
    pub(super) in_place: bool,
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} <- {:?}", self.value, self.operands)
    }
}

macro_rules! binary_of {
    ($name:ident, $arity:literal, |$s:ident, $a:ident, $b:ident, $c:ident| $body:expr) => {
        #[derive(Clone, Copy)]
        struct $name;
        impl Ternary for $name {
            const ARITY: usize = $arity;
            #[inline(always)]
            fn apply<S: Simd>(&self, $s: S, $a: S::F, $b: S::F, $c: S::F) -> S::F {
                let _ = $c;
                $body
            }
        }
    };
}

binary_of!(AddOf, 2, |s, a, b, c| s.add(a, b));
binary_of!(SubOf, 2, |s, a, b, c| s.sub(a, b));
binary_of!(MulOf, 2, |s, a, b, c| s.mul(a, b));
binary_of!(DivOf, 2, |s, a, b, c| s.div(a, b));
binary_of!(MulAddOf, 3, |s, a, b, c| s.mul_add(a, b, c));
binary_of!(CopyOf, 1, |s, a, b, c| {
    let _ = (s, b);
    a
});
// The first where both are equal, and NaN if either is.
binary_of!(MaxOf, 2, |s, a, b, c| s.select(s.is_nan(a), a, s.select(s.le(b, a), a, b)));
binary_of!(MinOf, 2, |s, a, b, c| s.select(s.is_nan(a), a, s.select(s.le(a, b), a, b)));
binary_of!(PReluOf, 2, |s, a, b, c| vecmath::leaky_relu(s, a, b));

const OPEN: (f32, f32) = (f32::NEG_INFINITY, f32::INFINITY);

/// The steps of a program, in order; inputs, constants and the running value need none.
pub(super) fn compile(program: &Program) -> Vec<Step> {
    let steps = in_order(program);
    bytes::lookup(program, &steps).map_or(steps, |step| vec![step])
}

/// One step for each instruction, or for several that are joined.
fn in_order(program: &Program) -> Vec<Step> {
    let n_uses = program.n_uses();
    let once = |reg: Reg| n_uses[reg.0 as usize] == 1;
    let inst = |reg: Reg| &program.code[reg.0 as usize];
    // Which values are computed inside the step of their only reader.
    let mut joined = vec![false; program.code.len()];
    let mut steps = Vec::new();
    for idx in (0..program.code.len()).rev() {
        let value = Reg(idx as u16);
        if joined[idx] || program.code[idx].operands().next().is_none() {
            continue;
        }
        if let Some(Joined { run, operands, inside }) = bytes::joined(program, &n_uses, value) {
            inside.iter().for_each(|reg| joined[reg.0 as usize] = true);
            steps.push(Step { run, operands, value, in_place: false });
            continue;
        }
        let kind = program.kinds[idx];
        // A clamp goes into the step that makes what it clamps.
        let (of, clamp) = match *inst(value) {
            Inst::Clamp { x, lo: Scalar::F32(lo), hi: Scalar::F32(hi) } => {
                let simple = matches!(inst(x), Inst::Binary(op, ..) if takes_clamp(*op));
                if simple && once(x) {
                    joined[x.0 as usize] = true;
                    (x, (lo, hi))
                } else {
                    steps.push(Step {
                        run: ternary(CopyOf, lo, hi),
                        operands: vec![x],
                        value,
                        in_place: true,
                    });
                    continue;
                }
            }
            _ => (value, OPEN),
        };
        let product = |reg: Reg| match *inst(reg) {
            Inst::Binary(Binary::Mul, a, b) if once(reg) => Some((a, b)),
            _ => None,
        };
        if kind == Kind::F32
            && let Inst::Binary(Binary::Add, a, b) = *inst(of)
            && let Some((factor, (x, y), term)) =
                product(a).map(|p| (a, p, b)).or_else(|| product(b).map(|p| (b, p, a)))
        {
            joined[factor.0 as usize] = true;
            let run = ternary(MulAddOf, clamp.0, clamp.1);
            steps.push(Step { run, operands: vec![x, y, term], value, in_place: true });
            continue;
        }
        let operands: Vec<Reg> = inst(of).operands().collect();
        let from = program.kinds[operands[0].0 as usize];
        let (run, in_place) = single(inst(of), from, kind, clamp);
        steps.push(Step { run, operands, value, in_place });
    }
    steps.reverse();
    steps
}

/// A step that copies an operand of this kind.
pub(super) fn copy(kind: Kind) -> Loop {
    match kind {
        Kind::F32 => ternary(CopyOf, OPEN.0, OPEN.1),
        Kind::I32 => map1(|x: i32| x),
        Kind::I64 => map1(|x: i64| x),
        Kind::U8 | Kind::I8 | Kind::F8 | Kind::Bool => map1(|x: u8| x),
    }
}

fn takes_clamp(op: Binary) -> bool {
    matches!(
        op,
        Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Min | Binary::Max | Binary::PRelu
    )
}

/// The loop of one instruction, and whether it may run in place.
fn single(inst: &Inst, from: Kind, to: Kind, (lo, hi): (f32, f32)) -> (Loop, bool) {
    match *inst {
        Inst::Unary(op, _) if from == Kind::F32 && to == Kind::F32 => (float_unary(op), true),
        Inst::Unary(op, _) => (other_unary(op, from), false),
        Inst::Binary(op, ..) if from == Kind::F32 && to == Kind::F32 => match op {
            Binary::Add => (ternary(AddOf, lo, hi), true),
            Binary::Sub => (ternary(SubOf, lo, hi), true),
            Binary::Mul => (ternary(MulOf, lo, hi), true),
            Binary::Div => (ternary(DivOf, lo, hi), true),
            Binary::Min => (ternary(MinOf, lo, hi), true),
            Binary::Max => (ternary(MaxOf, lo, hi), true),
            Binary::PRelu => (ternary(PReluOf, lo, hi), true),
            Binary::Fmod => (map2(|a: f32, b: f32| a % b), false),
            // As the reference does; rare enough that vectors are not worth it.
            _ => (map2(|a: f32, b: f32| f64::from(a).powf(f64::from(b)) as f32), false),
        },
        Inst::Binary(op, ..) => (other_binary(op, from), false),
        Inst::Clamp { lo: Scalar::I32(lo), hi: Scalar::I32(hi), .. } => {
            (map1(move |x: i32| x.max(lo).min(hi)), false)
        }
        Inst::Clamp { lo: Scalar::I64(lo), hi: Scalar::I64(hi), .. } => {
            (map1(move |x: i64| x.max(lo).min(hi)), false)
        }
        Inst::Select { .. } => {
            let run = match to {
                Kind::F32 | Kind::I32 => select::<u32>(),
                Kind::I64 => select::<u64>(),
                Kind::U8 | Kind::I8 | Kind::F8 | Kind::Bool => select::<u8>(),
            };
            (run, false)
        }
        Inst::Cast(_) => (cast(from, to), false),
        // A cast saturates, and makes 0 of NaN, which is the lowest u8 but not the lowest i8.
        Inst::Saturate(_) if to == Kind::U8 => (map1(|x: f32| x as u8), false),
        Inst::Saturate(_) if to == Kind::F8 => (map1(float8::rounded), false),
        Inst::Saturate(_) => (map1(|x: f32| if x.is_nan() { i8::MIN } else { x as i8 }), false),
        // Clamps of f32 are joined or copied above; the rest has no operands.
        Inst::Clamp { .. } | Inst::Input(_) | Inst::Running | Inst::Constant(_) => (copy(to), false),
    }
}

fn other_binary(op: Binary, from: Kind) -> Loop {
    macro_rules! ints {
        ($int:ident) => {
            match op {
                Binary::Add => map2($int::wrapping_add),
                Binary::Sub => map2($int::wrapping_sub),
                Binary::Mul => map2($int::wrapping_mul),
                // Divisors are constants other than zero.
                Binary::Div => map2(|a: $int, b: $int| if b == 0 { 0 } else { a.wrapping_div(b) }),
                Binary::Fmod => map2(|a: $int, b: $int| if b == 0 { 0 } else { a.wrapping_rem(b) }),
                Binary::Mod => map2(|a: $int, b: $int| {
                    let rest = if b == 0 { 0 } else { a.wrapping_rem(b) };
                    if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
                }),
                Binary::Min => map2(|a: $int, b: $int| a.min(b)),
                Binary::Max => map2(|a: $int, b: $int| a.max(b)),
                Binary::PRelu => map2(|a: $int, b: $int| if a < 0 { a.wrapping_mul(b) } else { a }),
                Binary::Equal => map2(|a: $int, b: $int| u8::from(a == b)),
                Binary::Less => map2(|a: $int, b: $int| u8::from(a < b)),
                Binary::LessOrEqual => map2(|a: $int, b: $int| u8::from(a <= b)),
                Binary::And | Binary::BitwiseAnd => map2(|a: $int, b: $int| a & b),
                Binary::Or | Binary::BitwiseOr => map2(|a: $int, b: $int| a | b),
                Binary::Xor | Binary::BitwiseXor => map2(|a: $int, b: $int| a ^ b),
                Binary::Pow => map2(|a: $int, _: $int| a),
            }
        };
    }
    match from {
        Kind::F32 => match op {
            Binary::Equal => map2(|a: f32, b: f32| u8::from(a == b)),
            Binary::Less => map2(|a: f32, b: f32| u8::from(a < b)),
            _ => map2(|a: f32, b: f32| u8::from(a <= b)),
        },
        Kind::I32 => ints!(i32),
        Kind::I64 => ints!(i64),
        Kind::Bool => match op {
            Binary::Equal => map2(|a: u8, b: u8| u8::from(a == b)),
            Binary::Less => map2(|a: u8, b: u8| u8::from(a < b)),
            Binary::LessOrEqual => map2(|a: u8, b: u8| u8::from(a <= b)),
            Binary::Or => map2(|a: u8, b: u8| a | b),
            Binary::Xor => map2(|a: u8, b: u8| a ^ b),
            _ => map2(|a: u8, b: u8| a & b),
        },
        // Never computed in: the builder refuses it.
        Kind::U8 | Kind::I8 | Kind::F8 => map2(|a: u8, _: u8| a),
    }
}

fn cast(from: Kind, to: Kind) -> Loop {
    // The first powers of two beyond the integers; both bounds are exact.
    const TWO_TO_31: f32 = 2_147_483_648.0;
    const TWO_TO_63: f32 = 9_223_372_036_854_775_808.0;
    match (from, to) {
        (Kind::F32, Kind::I32) => {
            map1(|x: f32| if (-TWO_TO_31..TWO_TO_31).contains(&x) { x as i32 } else { i32::MIN })
        }
        (Kind::F32, Kind::I64) => {
            map1(|x: f32| if (-TWO_TO_63..TWO_TO_63).contains(&x) { x as i64 } else { i64::MIN })
        }
        (Kind::F32, Kind::Bool) => map1(|x: f32| u8::from(x != 0.0)),
        (Kind::I32, Kind::F32) => map1(|x: i32| x as f32),
        (Kind::I32, Kind::I64) => map1(|x: i32| i64::from(x)),
        (Kind::I32, Kind::Bool) => map1(|x: i32| u8::from(x != 0)),
        (Kind::I64, Kind::F32) => map1(|x: i64| x as f32),
        (Kind::I64, Kind::I32) => map1(|x: i64| x as i32),
        (Kind::I64, Kind::Bool) => map1(|x: i64| u8::from(x != 0)),
        (Kind::Bool, Kind::F32) => map1(|x: u8| f32::from(x)),
        (Kind::Bool, Kind::I32) => map1(|x: u8| i32::from(x)),
        (Kind::Bool, Kind::I64) => map1(|x: u8| i64::from(x)),
        (Kind::U8, Kind::F32) => map1(|x: u8| f32::from(x)),
        (Kind::U8, Kind::I32) => map1(|x: u8| i32::from(x)),
        (Kind::U8, Kind::I64) => map1(|x: u8| i64::from(x)),
        (Kind::I8, Kind::F32) => map1(|x: i8| f32::from(x)),
        (Kind::I8, Kind::I32) => map1(|x: i8| i32::from(x)),
        (Kind::I8, Kind::I64) => map1(|x: i8| i64::from(x)),
        (Kind::U8 | Kind::I8, Kind::Bool) => map1(|x: u8| u8::from(x != 0)),
        (Kind::F8, Kind::F32) => map1(float8::widened),
        (Kind::I32, Kind::U8 | Kind::I8) => map1(|x: i32| x as u8),
        (Kind::I64, Kind::U8 | Kind::I8) => map1(|x: i64| x as u8),
        // From f32 they are saturated instead; the other kinds of one byte have the same bits. Floats of 8 bits are cast
        // to f32 alone: the builder refuses the rest.
        (Kind::F32, Kind::F32)
        | (Kind::I32, Kind::I32)
        | (Kind::I64, Kind::I64)
        | (Kind::F32 | Kind::U8 | Kind::I8 | Kind::Bool, Kind::U8 | Kind::I8)
        | (Kind::Bool, Kind::Bool)
        | (Kind::F8, _)
        | (_, Kind::F8) => copy(to),
    }
}
