//! `cargo xtask conformance --quantized`: ONNX's tests of quantization as plans, and which of their steps are not integer kernels.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use planish_op::Op;
use planish_plan::{Program, Step, StepKind};

use super::Test;
use super::case::{Outcome, Report};

/// Whether a test's model has an operator that quantizes, or multiplies what is quantized.
pub(super) fn is_quantized(folder: &Path) -> bool {
    let Ok(bytes) = fs::read(folder.join("model.onnx")) else { return false };
    let is_one =
        |name: &str| name.contains("Quantize") || name.contains("QLinear") || name.contains("Integer");
    planish_onnx::read(&bytes).is_ok_and(|model| model.graph.nodes.iter().any(|node| is_one(&node.op_type)))
}

/// How a step of a plan falls short of integer kernels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Short {
    /// The reference computes it.
    OnReference,
    /// It multiplies floats that stand for integers.
    InFloats,
}

/// The steps of a program that fall short, by their operators; bodies of control flow included.
pub(super) fn shortcomings(program: &Program) -> Vec<(Short, String)> {
    let mut found = Vec::new();
    for step in &program.steps {
        if let StepKind::Control(control) = &step.kind {
            found.extend(control.bodies.iter().flat_map(shortcomings));
        }
        found.extend(short(step).map(|short| (short, step.region.ops())));
    }
    found
}

fn short(step: &Step) -> Option<Short> {
    match &step.kind {
        StepKind::Evaluate => Some(Short::OnReference),
        StepKind::Kernel { slow: true, .. } => Some(Short::OnReference),
        StepKind::Kernel { variants, .. } => {
            let is_product =
                |op: &Op| matches!(op, Op::Conv(_) | Op::ConvTranspose(_) | Op::MatMul(_) | Op::Gemm(_));
            // Families of quantized operands begin so; `nbits` reads integers and multiplies floats, as it is asked to.
            let is_whole = |name: &str| name.starts_with('q') || name.starts_with("nbits");
            let multiplies = step.region.nodes.iter().any(|node| is_product(&node.op));
            let in_floats = multiplies && variants.iter().any(|variant| !is_whole(&variant.tactic.name));
            in_floats.then_some(Short::InFloats)
        }
        StepKind::Transfer | StepKind::Control(_) => None,
    }
}

/// Prints how many tests run on kernels throughout, and the others by what falls short.
pub(super) fn list(tests: &[Test], reports: &[Report]) {
    let mut others: BTreeMap<(Short, &str), Vec<&str>> = BTreeMap::new();
    let (mut n_whole, mut n_failed) = (0, 0);
    for (test, report) in tests.iter().zip(reports) {
        match &report.short {
            _ if !matches!(report.outcome, Outcome::Passed) => n_failed += 1,
            Some(short) if short.is_empty() => n_whole += 1,
            Some(short) => {
                for (how, ops) in short {
                    let names = others.entry((*how, ops)).or_default();
                    if names.last() != Some(&test.name.as_str()) {
                        names.push(&test.name);
                    }
                }
            }
            None => {}
        }
    }
    println!(
        "\n{n_whole} of {} tests of quantization run on kernels throughout, {n_failed} did not pass; of the others:",
        tests.len()
    );
    for ((how, ops), names) in &others {
        let how = match how {
            Short::OnReference => "on the reference",
            Short::InFloats => "in floats",
        };
        println!("  {ops} {how}: {}", names.join(", "));
    }
}
