//! The conformance suite of backends on every instruction set of this machine.

use planish_cpu::Cpu;
use planish_cpu::isa::Isa;
use planish_kernel::{Budget, Compiler};
use planish_testing::conformance::{Case, Conduct, Gap, cases, rounded_cases, run};

const HALVES: &str = "there is no arithmetic of 16 bits: a model of such floats is computed in f32";

/// What only the reference computes here.
const GAPS: &[Gap] = &[
    Gap { cases: "recurrent/*f16*", reason: HALVES },
    Gap { cases: "attention/*f16*", reason: HALVES },
    Gap { cases: "conv*f16*", reason: HALVES },
    Gap { cases: "depthwise/*f16*", reason: HALVES },
    Gap { cases: "matmul/*f16*", reason: HALVES },
    Gap { cases: "nbits/*f16*", reason: HALVES },
    Gap { cases: "norm/*f16*", reason: HALVES },
    Gap { cases: "pointwise/*+*f16*", reason: HALVES },
    Gap { cases: "pointwise/Erf *f16*", reason: HALVES },
    Gap { cases: "pool/*f16*", reason: HALVES },
    Gap { cases: "reduce/GlobalAveragePool bf16*", reason: HALVES },
    Gap { cases: "resize/Resize f16[2x8x5x6]", reason: HALVES },
    Gap { cases: "rotary/*f16*", reason: HALVES },
    Gap { cases: "scatter/ScatterElements f16[3x4x6] i64[3x9x2] f16[3x9x2]", reason: HALVES },
    Gap { cases: "scatter/ScatterND bf16[3x2x7] i64[8x2] bf16[8x7]", reason: HALVES },
    Gap { cases: "softmax/*f16*", reason: HALVES },
    Gap { cases: "sparse/*f16*", reason: HALVES },
    Gap { cases: "conv/*tf32", reason: "there is no arithmetic of TF32" },
    Gap {
        cases: "attention/Attention f32[2x2x3x8]*",
        reason: "keys and values of earlier runs are not kept",
    },
    Gap { cases: "conv*/Conv+Relu+Add f32*", reason: "an epilogue adds before it clamps" },
    Gap {
        cases: "quantized/DequantizeLinear*",
        reason: "activations are u8 here; `conv/quantized` has tests of its own",
    },
    Gap { cases: "attention/e4m3/*", reason: "8-bit floats become numbers by a kernel of their own" },
    Gap { cases: "quantized/e4m3/*", reason: "8-bit floats are rounded by a kernel of their own" },
    Gap { cases: "quantized/i8/*f16*", reason: HALVES },
    Gap { cases: "quantized/i8/Conv+Relu+Add*", reason: "an epilogue adds before it clamps" },
    Gap { cases: "quantized/i8/MatMul*", reason: "matrix products of f32 store f32" },
];

#[test]
fn every_instruction_set_computes_what_the_reference_does() {
    let cases = cases();
    for isa in Isa::available() {
        match run(&Cpu::with_isa(isa), &cases, Conduct::with_gaps(GAPS)) {
            Ok(report) => println!("{isa}: {report}"),
            Err(wrong) => panic!("{isa}: {wrong}"),
        }
    }
}

/// Tactics that round factors compute sums in f32 like all others where there is nothing to round.
#[test]
fn products_of_bf16_are_those_of_rounded_factors() {
    let cpu = Cpu::new();
    if cpu.rounded_arithmetics().is_empty() {
        println!("{}: no instructions for bf16", cpu.isa());
        return;
    }
    let mut cases = rounded_cases();
    let rounds = |case: &Case| {
        let candidates = cpu.candidates(&case.problem, &Budget::USUAL);
        candidates.iter().any(|candidate| cpu.rounds_factors_to(&candidate.tactic).is_some())
    };
    cases.retain(rounds);
    assert!(cases.len() > 50, "{} cases", cases.len());
    match run(&cpu, &cases, Conduct::with_gaps(&[])) {
        Ok(report) => println!("{report}"),
        Err(wrong) => panic!("{wrong}"),
    }
}
