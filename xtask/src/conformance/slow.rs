//! `cargo xtask conformance --reference`: ONNX's tests as plans, and which of their steps have no kernel, by operator, types
//! and test.

use std::collections::BTreeMap;

use planish_op::{Class, Op};
use planish_plan::{Program, Step, StepKind};

use super::Test;
use super::case::Report;

/// The steps of a program that the reference computes, as operators and types; bodies of control flow included.
pub(super) fn on_reference(program: &Program) -> Vec<String> {
    let mut found = Vec::new();
    for step in &program.steps {
        match &step.kind {
            StepKind::Control(control) => found.extend(control.bodies.iter().flat_map(on_reference)),
            StepKind::Kernel { slow: true, .. } => found.push(described(program, step)),
            // Prepared as they run: what has a kernel then cannot be told from the plan, sequences apart.
            StepKind::Evaluate if is_of_values(step) => found.push(described(program, step)),
            StepKind::Kernel { .. } | StepKind::Transfer | StepKind::Evaluate => {}
        }
    }
    found
}

/// Whether the step is of sequences or optionals, or searches by the reference's own loops.
fn is_of_values(step: &Step) -> bool {
    step.region.nodes.iter().any(|node| {
        let searches = matches!(node.op, Op::Unique(_) | Op::NonMaxSuppression(_));
        searches || node.op.class() == Class::Sequence
    })
}

/// A step by its operators and the types that it reads and makes.
fn described(program: &Program, step: &Step) -> String {
    let name = |value: &Option<u32>| {
        let ty = program.values.get((*value)? as usize)?.ty.as_tensor();
        Some(ty.map_or("-", |ty| ty.dtype.name()))
    };
    let names = |values: &[Option<u32>]| values.iter().filter_map(name).collect::<Vec<_>>().join(",");
    format!("{} {} -> {}", step.region.ops(), names(&step.inputs), names(&step.outputs))
}

/// Prints how many tests run on kernels throughout, and the steps of the others.
pub(super) fn list(tests: &[Test], reports: &[Report]) {
    let mut by_step: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let (mut n_plans, mut n_whole, mut n_steps) = (0, 0, 0);
    for (test, report) in tests.iter().zip(reports) {
        let Some(slow) = &report.on_reference else { continue };
        n_plans += 1;
        n_whole += usize::from(slow.is_empty());
        n_steps += slow.len();
        for step in slow {
            let names = by_step.entry(step).or_default();
            if names.last() != Some(&test.name.as_str()) {
                names.push(&test.name);
            }
        }
    }
    println!(
        "\n{n_whole} of {n_plans} plans have a kernel for every step; of the others {n_steps} steps run on the reference:"
    );
    for (step, names) in &by_step {
        println!("  {step}: {} ({})", names.len(), names[0]);
    }
}
