//! Plans changed in their structure (operands, homes, types, regions, tactics, formats, attributes, weights, bodies),
//! written with right checksums, opened and run twice: whatever they say, they end in a typed error or in outputs, and
//! AddressSanitizer finds no byte read or written that is not theirs.
//!
//! The input is a list of changes: the first byte chooses an honest plan, then each change takes what it needs. Plans
//! are kept small enough that none asks for more than some megabytes.

#![no_main]

#[path = "../../crates/planish-runtime/tests/forged/bases.rs"]
mod bases;
#[path = "run_plan/mutate.rs"]
mod mutate;

use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use planish_cpu::Cpu;
use planish_kernel::{Backend, Tactic};
use planish_op::Value;
use planish_plan::{Plan, Program, StepKind};
use planish_runtime::{Engine, problem_of};
use planish_tensor::Bytes;

use mutate::{Pool, Source};

/// Memory that a plan may ask for; what asks for more is not run.
const MOST_BYTES: usize = 32 << 20;

/// Changes that one input makes at most.
const MOST_CHANGES: usize = 12;

struct Start {
    plans: Vec<Plan>,
    pool: Pool,
}

fn start() -> &'static Start {
    static START: OnceLock<Start> = OnceLock::new();
    START.get_or_init(|| {
        let plan = |base: &bases::Base| match base.plan() {
            Ok(plan) => plan,
            Err(error) => panic!("{}: {error}", base.name),
        };
        let plans: Vec<Plan> = bases::BASES.iter().map(plan).collect();
        let mut pool = Pool::default();
        for plan in &plans {
            collect(plan, &plan.program, &mut pool);
        }
        for plan in &plans {
            run(plan.clone(), 2).expect("an honest plan");
        }
        Start { plans, pool }
    })
}

/// Regions, all tactics that could compute them, and the formats that those read.
fn collect(plan: &Plan, program: &Program, pool: &mut Pool) {
    let mut sizes = plan.tuned_at.clone();
    sizes.extend(["n".to_string()].into_iter().map(|name| (name, 2)));
    for step in &program.steps {
        pool.regions.push(step.region.clone());
        pool.types.extend(step.outputs.iter().flatten().map(|&value| program.values[value as usize].ty.clone()));
        if let StepKind::Kernel { variants, packed, .. } = &step.kind {
            pool.tactics.extend(variants.iter().map(|variant| variant.tactic.clone()));
            pool.formats.extend(packed.iter().flatten().cloned());
        }
        if let StepKind::Control(control) = &step.kind {
            control.bodies.iter().for_each(|body| collect(plan, body, pool));
        }
        let Ok(problem) = problem_of(program, step, &sizes, 1) else { continue };
        for candidate in Cpu::new().candidates(&problem) {
            pool.tactics.push(candidate.tactic);
            pool.formats.extend(candidate.packed.into_iter().flatten());
        }
    }
    pool.tactics.push(Tactic::new("reference", 1));
    pool.tactics.sort();
    pool.tactics.dedup();
    pool.formats.sort();
    pool.formats.dedup();
}

fuzz_target!(|bytes: &[u8]| {
    let Start { plans, pool } = start();
    let mut source = Source::new(bytes);
    let mut plan = source.pick(plans).clone();
    let size = [2, 1, 0, 3, 17][source.below(5)];
    for _ in 0..MOST_CHANGES {
        if source.is_empty() {
            break;
        }
        mutate::change(&mut plan, pool, &mut source);
    }
    let _ = run(plan, size);
});

/// Writes, opens and runs a plan twice: once at new sizes, once at sizes that are known.
fn run(plan: Plan, size: i64) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let bytes = plan.to_bytes().map_err(|error| text(&error))?;
    let plan = Plan::from_bytes(Bytes::from_vec(bytes)).expect("a plan that was written");
    let inputs: Vec<Value> = bases::inputs(&plan, size).ok_or("inputs that are not made here")?;
    if mutate::is_large(&plan, size, MOST_BYTES) {
        return Err("more memory than this target has".to_string());
    }
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new())];
    let engine = Engine::new(plan, backends).map_err(|error| text(&error))?;
    let mut context = engine.context().map_err(|error| text(&error))?;
    for _ in 0..2 {
        let outputs = context.run_values(&inputs).map_err(|error| text(&error))?;
        std::hint::black_box(outputs.iter().map(|value| value.as_tensor().map_or(0, |t| t.len())).sum::<usize>());
    }
    Ok(())
}
