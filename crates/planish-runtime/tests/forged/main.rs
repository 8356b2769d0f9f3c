//! Plans that were forged with right checksums, one lie each: every one ends in an error that names its own reason,
//! when it is read, opened or run, and no kernel reads or writes outside of its memory on the way.
//!
//! `bases` builds the honest plans, which run; the tables below change one thing each. The fuzz target `run_plan`
//! makes changes of the same kind at random, under AddressSanitizer.

mod bases;
mod bodies;
mod kernels;
mod life;
mod mutate;
mod plugins;
mod sizes;
mod storages;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use planish_cpu::Cpu;
use planish_kernel::Backend;
use planish_op::ValueType;
use planish_plan::{Plan, Program, Step, StepKind, Storage, Value};
use planish_runtime::{Engine, Error, ErrorKind};
use planish_tensor::{Bytes, DType, Dim, Shape};
use planish_testing::Random;

/// A lie: what it is, the plan that it is told in, what the error must say, and how it is told.
pub(crate) struct Forgery {
    name: &'static str,
    base: &'static str,
    says: &'static str,
    change: fn(&mut Plan),
}

pub(crate) const fn lie(
    name: &'static str,
    base: &'static str,
    says: &'static str,
    change: fn(&mut Plan),
) -> Forgery {
    Forgery { name, base, says, change }
}

static PLANS: LazyLock<HashMap<&str, Plan>> = LazyLock::new(|| {
    let plan = |base: &bases::Base| {
        (base.name, base.plan().unwrap_or_else(|error| panic!("{}: {error}", base.name)))
    };
    bases::BASES.iter().map(plan).collect()
});

/// As a file with right checksums, opened and run twice, at a size of 2 of its symbols. What validation refuses when a
/// plan is read, it refuses when it is written.
fn run(plan: &Plan) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let bytes = plan.to_bytes().map_err(|error| text(&error))?;
    let plan = Plan::from_bytes(Bytes::from_vec(bytes)).map_err(|error| text(&error))?;
    let inputs = bases::inputs(&plan, 2).expect("inputs of known types");
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new())];
    let engine = Engine::new(plan, backends).map_err(|error| text(&error))?;
    let mut context = engine.context().map_err(|error| text(&error))?;
    for _ in 0..2 {
        context.run_values(&inputs).map_err(|error| blamed(&error))?;
    }
    Ok(())
}

/// What a run says, which blames the plan where it calls it damaged.
fn blamed(error: &Error) -> String {
    let is_ours = *error.kind() == ErrorKind::Failed && error.to_string().contains("damaged");
    if is_ours { format!("called a mistake of Planish: {error}") } else { error.to_string() }
}

/// Random changes, a few of them each: an error or outputs, and no panic in between. `PLANISH_FORGED` says how many,
/// and `PLANISH_FORGED_SEED` from which on.
#[test]
fn random_plans_end_in_an_error_or_run() {
    let given = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let plans: Vec<Plan> = bases::BASES.iter().map(|base| PLANS[base.name].clone()).collect();
    let pool = mutate::Pool::of(&plans);
    let (first, n) = (given("PLANISH_FORGED_SEED").unwrap_or(0), given("PLANISH_FORGED").unwrap_or(3000));
    let (mut n_ran, mut panics) = (0, Vec::new());
    for seed in first..first + n {
        let mut random = Random::new(seed);
        let mut next = || (random.bits() >> 40) as u8;
        let n_bytes = 2 + next() % 40;
        let bytes: Vec<u8> = (0..n_bytes).map(|_| next()).collect();
        let (plan, size) = mutate::plan_of(&bytes, &plans, &pool);
        let run = std::panic::AssertUnwindSafe(|| mutate::run(&plan, size));
        match std::panic::catch_unwind(run) {
            Ok(Ok(())) => n_ran += 1,
            Ok(Err(error)) if error.contains("mistake of Planish") => panics.push(format!("{seed}: {error}")),
            Ok(Err(_)) => {}
            Err(_) => panics.push(format!("{seed}: a panic")),
        }
    }
    assert!(panics.is_empty(), "{} of {n}: {}", panics.len(), panics.join("\n"));
    assert!(n_ran as u64 > n / 20, "only {n_ran} of {n} ran");
}

#[track_caller]
pub(crate) fn all_refused(forgeries: &[Forgery]) {
    let mut wrong = Vec::new();
    for Forgery { name, base, says, change } in forgeries {
        let mut plan = PLANS[base].clone();
        change(&mut plan);
        assert_ne!(plan, PLANS[base], "{name}: nothing was changed");
        match run(&plan) {
            Err(error) if error.contains(says) && !error.contains("mistake of Planish") => {}
            Err(error) => wrong.push(format!("{name}: {error}")),
            Ok(()) => wrong.push(format!("{name}: it ran")),
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), forgeries.len(), wrong.join("\n"));
}

#[test]
fn honest_plans_run() {
    for base in &bases::BASES {
        run(&PLANS[base.name]).unwrap_or_else(|error| panic!("{}: {error}", base.name));
    }
}

#[test]
fn a_tactic_that_does_not_fit_its_step_asks_for_a_rebuild() {
    let mut plan = PLANS["products"].clone();
    set_tactic(step(&mut plan, "LogSoftmax"), "conv_igemm_f32");
    let plan = Plan::from_bytes(Bytes::from_vec(plan.to_bytes().unwrap())).unwrap();
    let inputs = bases::inputs(&plan, 2).expect("inputs of known types");
    let engine = Engine::new(plan, vec![Arc::new(Cpu::new()) as Arc<dyn Backend>]).unwrap();
    let ran = engine.context().and_then(|mut context| context.run_values(&inputs).map(drop));
    let error = ran.expect_err("no convolution is a softmax");
    assert!(matches!(error.kind(), ErrorKind::NeedsRebuild { .. }), "{error}");
}

#[test]
fn there_are_enough_of_them() {
    let all = [
        storages::FORGERIES.len(),
        kernels::FORGERIES.len(),
        sizes::FORGERIES.len(),
        bodies::FORGERIES.len(),
        plugins::FORGERIES.len(),
    ];
    assert!(all.iter().sum::<usize>() >= 60, "{all:?}");
}

/// The first step with this operator.
pub(crate) fn step<'a>(plan: &'a mut Plan, op: &str) -> &'a mut Step {
    let at = place(plan, op);
    &mut plan.program.steps[at]
}

/// Its place.
pub(crate) fn place(plan: &Plan, op: &str) -> usize {
    let has = |step: &Step| step.region.nodes.iter().any(|node| node.op.name() == op);
    let names = || plan.program.steps.iter().map(|step| step.region.ops()).collect::<Vec<_>>();
    plan.program.steps.iter().position(has).unwrap_or_else(|| panic!("no {op} in {:?}", names()))
}

pub(crate) fn input(plan: &mut Plan, op: &str, idx: usize) -> u32 {
    step(plan, op).inputs[idx].expect("an input")
}

pub(crate) fn output(plan: &mut Plan, op: &str, idx: usize) -> u32 {
    step(plan, op).outputs[idx].expect("an output")
}

pub(crate) fn value(plan: &mut Plan, idx: u32) -> &mut Value {
    &mut plan.program.values[idx as usize]
}

pub(crate) fn ty(dtype: DType, dims: &[i64]) -> ValueType {
    ValueType::tensor(dtype, dims.iter().map(|&dim| Dim::from(dim)).collect::<Shape>())
}

/// Gives a value these sizes.
pub(crate) fn resize(plan: &mut Plan, idx: u32, dims: &[i64]) {
    let dtype = value(plan, idx).ty.as_tensor().expect("a tensor").dtype;
    value(plan, idx).ty = ty(dtype, dims);
}

/// Other sizes for what a step reads.
pub(crate) fn resize_input(plan: &mut Plan, op: &str, idx: usize, dims: &[i64]) {
    let at = input(plan, op, idx);
    resize(plan, at, dims);
}

/// Other sizes for what a step makes.
pub(crate) fn resize_output(plan: &mut Plan, op: &str, idx: usize, dims: &[i64]) {
    let at = output(plan, op, idx);
    resize(plan, at, dims);
}

/// A new value like another, with this storage.
pub(crate) fn like(program: &mut Program, idx: u32, storage: Storage) -> u32 {
    let mut value = program.values[idx as usize].clone();
    value.name.push_str(" again");
    value.storage = storage;
    program.values.push(value);
    program.values.len() as u32 - 1
}

/// Takes a value out of the outputs.
pub(crate) fn unlist(plan: &mut Plan, idx: u32) {
    plan.program.outputs.retain(|&output| output != idx);
}

/// Sets the tactic of a step.
pub(crate) fn set_tactic(step: &mut Step, name: &str) {
    let StepKind::Kernel { variants, .. } = &mut step.kind else { panic!("no kernel") };
    variants.iter_mut().for_each(|variant| variant.tactic.name = name.to_string());
}

/// The formats that a step reads its inputs in, one for each.
pub(crate) fn packed(step: &mut Step) -> &mut Vec<Option<String>> {
    let n_inputs = step.inputs.len();
    let StepKind::Kernel { packed, .. } = &mut step.kind else { panic!("no kernel") };
    packed.resize(n_inputs, None);
    packed
}

/// The weight that a step reads as this input.
pub(crate) fn weight(plan: &mut Plan, op: &str, idx: usize) -> usize {
    let at = input(plan, op, idx);
    let Storage::Weight(weight) = value(plan, at).storage else { panic!("no weight") };
    weight as usize
}

/// Sets an attribute of a step's first node.
pub(crate) fn set_attribute(step: &mut Step, name: &str, attribute: planish_op::Attribute) {
    let op = &mut step.region.nodes[0].op;
    let mut list: Vec<(String, planish_op::Attribute)> =
        op.attributes().into_iter().map(|(name, attribute)| (name.to_string(), attribute)).collect();
    list.retain(|(known, _)| known != name);
    list.push((name.to_string(), attribute));
    *op = planish_op::Op::from_attributes(op.name(), &list).expect("an attribute of the operator");
}
