//! Pointwise programs as CUDA text: one inline function that makes the outputs of one element.
//!
//! The functions named `pl_…` stand in the prelude and mean what the reference means. Numbers are written by
//! their bits, so that the text computes with exactly the program's constants.

use std::fmt::Write;

use planish_kernel::KernelError;
use planish_kernel::pointwise::{Binary, Inst, Kind, Program, Scalar, Unary};
use planish_tensor::{DType, Tensor};

/// Constants of more elements are not made part of a kernel's text.
const MAX_CONSTANT: usize = 4096;
/// The same in bytes, of those that are part of a map.
const MAX_CONSTANT_BYTES: usize = 4096;

/// The type of a value in registers.
pub fn c_type(kind: Kind) -> &'static str {
    match kind {
        Kind::F32 => "float",
        Kind::I32 => "i32",
        Kind::I64 => "i64",
        Kind::U8 => "u8",
        Kind::I8 => "i8",
        Kind::F8 => "e4m3",
        Kind::Bool => "bool",
    }
}

/// The type of an element in memory.
pub fn storage_type(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F32 => Some("float"),
        DType::F16 => Some("f16"),
        DType::BF16 => Some("bf16"),
        DType::I32 => Some("i32"),
        DType::I64 => Some("i64"),
        DType::U8 => Some("u8"),
        DType::I8 => Some("i8"),
        DType::F8E4M3FN => Some("e4m3"),
        DType::Bool => Some("b8"),
        _ => None,
    }
}

/// A number by its bits.
pub fn number(value: f32) -> String {
    format!("__int_as_float(0x{:08x})", value.to_bits())
}

fn scalar(value: Scalar) -> String {
    match value {
        Scalar::F32(value) => number(value),
        Scalar::I32(value) => format!("(i32)0x{value:08x}u"),
        Scalar::I64(value) => format!("(i64)0x{value:016x}ull"),
        Scalar::U8(value) => format!("(u8){value}"),
        Scalar::I8(value) => format!("(i8){value}"),
        Scalar::F8(code) => format!("e4m3{{{code}}}"),
        Scalar::Bool(value) => value.to_string(),
    }
}

/// `void name(running, i0, i1, …, o0&, o1&, …)`: the outputs of one element. `running` is there if the program
/// reads it; inputs and outputs have the types of [`c_type`].
pub fn function(program: &Program, name: &str) -> String {
    let mut arguments = Vec::new();
    if has_running(program) {
        arguments.push("float running".to_string());
    }
    for (idx, input) in program.inputs.iter().enumerate() {
        arguments.push(format!("{} i{idx}", c_type(input.kind)));
    }
    for (idx, output) in program.outputs.iter().enumerate() {
        arguments.push(format!("{}& o{idx}", c_type(program.kinds[output.0 as usize])));
    }
    let mut text = format!("PL_INLINE void {name}({}) {{\n", arguments.join(", "));
    for (idx, inst) in program.code.iter().enumerate() {
        let kind = c_type(program.kinds[idx]);
        let made = divided(program, inst).unwrap_or_else(|| expression(inst, kind));
        let _ = writeln!(text, "  const {kind} v{idx} = {made};");
    }
    for (idx, output) in program.outputs.iter().enumerate() {
        let _ = writeln!(text, "  o{idx} = v{};", output.0);
    }
    text.push_str("}\n");
    text
}

/// Whether the program goes on from a value of the step before it.
pub fn has_running(program: &Program) -> bool {
    program.code.contains(&Inst::Running)
}

/// A quotient by a constant whose reciprocal is far from the ends of f32: scales of integers are such. A division takes some
/// ten instructions, of which a multiplication and its correction are three.
fn divided(program: &Program, inst: &Inst) -> Option<String> {
    let Inst::Binary(Binary::Div, x, by) = *inst else { return None };
    let Inst::Constant(Scalar::F32(by)) = program.code[by.0 as usize] else { return None };
    let is_usual = (1e-30..1e30).contains(&by.abs());
    is_usual.then(|| format!("pl_div_by(v{}, {}, {})", x.0, number(by), number(by.recip())))
}

fn expression(inst: &Inst, kind: &str) -> String {
    match *inst {
        Inst::Input(idx) => format!("i{idx}"),
        Inst::Running => "running".to_string(),
        Inst::Constant(value) => scalar(value),
        Inst::Unary(op, x) => unary(op, &format!("v{}", x.0)),
        Inst::Binary(op, a, b) => binary(op, &format!("v{}", a.0), &format!("v{}", b.0)),
        Inst::Clamp { x, lo, hi } => format!("pl_clamp(v{}, {}, {})", x.0, scalar(lo), scalar(hi)),
        Inst::Select { condition, yes, no } => format!("v{} ? v{} : v{}", condition.0, yes.0, no.0),
        Inst::Cast(x) => format!("pl_cast<{kind}>(v{})", x.0),
        Inst::Saturate(x) => format!("pl_saturate<{kind}>(v{})", x.0),
    }
}

fn unary(op: Unary, x: &str) -> String {
    let simple = |function: &str| format!("{function}({x})");
    match op {
        Unary::Abs => simple("pl_abs"),
        Unary::Neg => simple("pl_neg"),
        Unary::Sign => simple("pl_sign"),
        Unary::Not => format!("!{x}"),
        Unary::BitwiseNot => format!("~{x}"),
        Unary::IsNaN => format!("{x} != {x}"),
        Unary::IsInf { negative, positive } => format!("pl_is_infinite({x}, {negative}, {positive})"),
        Unary::Acos => simple("acosf"),
        Unary::Acosh => simple("acoshf"),
        Unary::Asin => simple("asinf"),
        Unary::Asinh => simple("asinhf"),
        Unary::Atan => simple("atanf"),
        Unary::Atanh => simple("atanhf"),
        Unary::Ceil => simple("ceilf"),
        Unary::Cos => simple("cosf"),
        Unary::Cosh => simple("coshf"),
        Unary::Erf => simple("erff"),
        Unary::Exp => simple("expf"),
        Unary::Floor => simple("floorf"),
        Unary::Log => simple("logf"),
        Unary::Reciprocal => format!("1.0f / {x}"),
        Unary::Round => simple("rintf"),
        Unary::RoundF16 => format!("to_f32(from_f32<f16>({x}))"),
        Unary::RoundBf16 => format!("to_f32(from_f32<bf16>({x}))"),
        Unary::Sigmoid => simple("pl_sigmoid"),
        Unary::Sin => simple("sinf"),
        Unary::Sinh => simple("sinhf"),
        Unary::Sqrt => simple("sqrtf"),
        Unary::Tan => simple("tanf"),
        Unary::Tanh => simple("tanhf"),
        Unary::LeakyRelu { alpha } => format!("pl_prelu({x}, {})", number(alpha)),
        Unary::Elu { alpha } => format!("pl_elu({x}, {})", number(alpha)),
        Unary::Selu { alpha, gamma } => format!("{} * pl_elu({x}, {})", number(gamma), number(alpha)),
        Unary::Celu { alpha } => format!("pl_celu({x}, {})", number(alpha)),
        Unary::Gelu => simple("pl_gelu"),
        Unary::GeluTanh => simple("pl_gelu_tanh"),
        Unary::HardSigmoid { alpha, beta } => {
            format!("pl_hard_sigmoid({x}, {}, {})", number(alpha), number(beta))
        }
        Unary::HardSwish => format!("{x} * pl_hard_sigmoid({x}, {}, 0.5f)", number(1.0 / 6.0)),
        Unary::Mish => format!("{x} * tanhf(pl_softplus({x}))"),
        Unary::Softplus => simple("pl_softplus"),
        Unary::Softsign => format!("{x} / (1.0f + fabsf({x}))"),
        Unary::Swish { alpha: 1.0 } => format!("{x} * pl_sigmoid({x})"),
        Unary::Swish { alpha } => format!("{x} * pl_sigmoid({} * {x})", number(alpha)),
        Unary::Shrink { bias, lambd } => format!("pl_shrink({x}, {}, {})", number(bias), number(lambd)),
        Unary::ThresholdedRelu { alpha } => format!("{x} > {} ? {x} : 0.0f", number(alpha)),
    }
}

fn binary(op: Binary, a: &str, b: &str) -> String {
    let call = |function: &str| format!("{function}({a}, {b})");
    let sign = |sign: &str| format!("{a} {sign} {b}");
    match op {
        Binary::Add => call("pl_add"),
        Binary::Sub => call("pl_sub"),
        Binary::Mul => call("pl_mul"),
        Binary::Div => call("pl_div"),
        Binary::Pow => call("powf"),
        Binary::Mod => call("pl_mod"),
        Binary::Fmod => call("pl_fmod"),
        Binary::Min => call("pl_min"),
        Binary::Max => call("pl_max"),
        Binary::PRelu => call("pl_prelu"),
        Binary::Equal => sign("=="),
        Binary::Less => sign("<"),
        Binary::LessOrEqual => sign("<="),
        Binary::And => sign("&&"),
        Binary::Or => sign("||"),
        Binary::Xor => sign("!="),
        Binary::BitwiseAnd => sign("&"),
        Binary::BitwiseOr => sign("|"),
        Binary::BitwiseXor => sign("^"),
    }
}

/// A constant of a region as an array of its storage type in device memory, by its bits.
pub fn constant(tensor: &Tensor, name: &str) -> Result<String, KernelError> {
    let (word, bytes_each) = match tensor.dtype() {
        DType::F32 | DType::I32 => ("u32", 4),
        DType::F16 | DType::BF16 => ("u16", 2),
        DType::I64 => ("u64", 8),
        DType::U8 | DType::I8 | DType::F8E4M3FN | DType::Bool => ("u8", 1),
        dtype => return Err(KernelError::unsupported(format!("a constant of type {dtype} in a kernel"))),
    };
    if tensor.len() > MAX_CONSTANT {
        let message = format!("a constant of {} elements in a kernel, at most {MAX_CONSTANT}", tensor.len());
        return Err(KernelError::unsupported(message));
    }
    let mut text = format!("__device__ const {word} {name}[] = {{");
    for bytes in tensor.bytes().chunks_exact(bytes_each) {
        let value = bytes.iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
        let _ = write!(text, "0x{value:x}, ");
    }
    text.push_str("};\n");
    Ok(text)
}

/// An array of these bytes in a kernel's text.
pub fn constant_array(name: &str, bytes: &[u8]) -> Result<String, KernelError> {
    if bytes.len() > MAX_CONSTANT_BYTES {
        return Err(KernelError::unsupported("a constant that is too large for a kernel's text"));
    }
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        format!("{:#x}ull", u64::from_le_bytes(word))
    };
    let words: Vec<String> = bytes.chunks(8).map(word).collect();
    Ok(format!("__device__ const u64 {name}[] = {{{}}};\n", words.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_kernel::{Layout, Numeric, Operand, Problem, Ref, Region, RegionNode};
    use planish_op::{self as op, Op};

    fn node(op: Op, inputs: &[Ref]) -> RegionNode {
        let inputs = inputs.iter().map(|input| Some(*input)).collect();
        RegionNode { name: op.name().to_string(), op, inputs, n_outputs: 1 }
    }

    #[test]
    fn a_program_becomes_a_function_of_its_inputs() {
        let dims = [2, 3];
        let first = Ref::Node { node: 0, output: 0 };
        let region = Region {
            n_inputs: 2,
            constants: vec![],
            nodes: vec![
                node(op::Add {}.into(), &[Ref::Input(0), Ref::Input(1)]),
                node(op::LeakyRelu { alpha: 0.5 }.into(), &[first]),
            ],
            outputs: vec![Ref::Node { node: 1, output: 0 }],
        };
        let operand = Operand::dense(DType::F32, &dims, Layout::Plain);
        let problem = Problem {
            region,
            inputs: vec![operand.clone(), operand.clone()],
            outputs: vec![operand],
            numeric: Numeric::F32,
            threads: 1,
        };
        let program = Program::of_problem(&problem).unwrap();
        let expected = "PL_INLINE void f(float i0, float i1, float& o0) {\n  const float v0 = i0;\n  \
                        const float v1 = i1;\n  const float v2 = pl_add(v0, v1);\n  \
                        const float v3 = pl_prelu(v2, __int_as_float(0x3f000000));\n  o0 = v3;\n}\n";
        assert_eq!(function(&program, "f"), expected);
        assert!(!has_running(&program));
    }

    #[test]
    fn constants_keep_their_bits() {
        let tensor = Tensor::vector(vec![1.0f32, -2.0]);
        assert_eq!(
            constant(&tensor, "c").unwrap(),
            "__device__ const u32 c[] = {0x3f800000, 0xc0000000, };\n"
        );
        assert!(constant(&Tensor::vector(vec![0.0f32; MAX_CONSTANT + 1]), "c").is_err());
    }
}
