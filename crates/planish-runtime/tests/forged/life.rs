//! What becomes of forged plans before anything opens them: their weights are taken out, put back, exchanged and
//! unpacked. All that reads the program and the weights' forms, which say whatever a forger likes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use planish::{Error, Model};
use planish_plan::Plan;
use planish_tensor::Bytes;
use planish_testing::Random;

use crate::{PLANS, bases, mutate, resize_input, weight};

/// The plan as whoever gets its file has it; nothing where it is refused.
fn opened(plan: &Plan) -> Option<planish::Plan> {
    let bytes = plan.to_bytes().ok()?;
    Plan::from_bytes(Bytes::from_vec(bytes)).ok().map(planish::Plan::from)
}

/// All that can be done to a plan that does not run.
fn live(plan: &Plan, model: &Model) -> Result<(), Error> {
    let mut ended = Ok(());
    for plan in [plan.clone(), plan.strip()] {
        let Some(plan) = opened(&plan) else { continue };
        for made in [plan.refit(model), plan.with_plain_weights(), plan.strip()] {
            ended = made.map(drop).and(ended);
        }
    }
    ended
}

#[test]
fn random_plans_are_refitted_or_refused() {
    let given = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let models: Vec<Model> = bases::BASES.iter().map(|base| base.model().unwrap()).collect();
    let plans: Vec<Plan> = bases::BASES.iter().map(|base| PLANS[base.name].clone()).collect();
    let pool = mutate::Pool::of(&plans);
    let (first, n) = (given("PLANISH_FORGED_SEED").unwrap_or(0), given("PLANISH_FORGED").unwrap_or(1000));
    let (mut n_well, mut panics) = (0, Vec::new());
    for seed in first..first + n {
        let mut random = Random::new(seed);
        let mut next = || (random.bits() >> 40) as u8;
        let n_bytes = 2 + next() % 12;
        let bytes: Vec<u8> = (0..n_bytes).map(|_| next()).collect();
        let (plan, _) = mutate::plan_of(&bytes, &plans, &pool);
        let model = bases::BASES.iter().position(|base| base.name == plan.header.name).map(|at| &models[at]);
        match catch_unwind(AssertUnwindSafe(|| live(&plan, model.expect("the plan of a base")))) {
            Ok(Ok(())) => n_well += 1,
            Ok(Err(error)) if error.to_string().contains("mistake of Planish") => {
                panics.push(format!("{seed}: {error}"));
            }
            Ok(Err(_)) => {}
            Err(_) => panics.push(format!("{seed}: a panic")),
        }
    }
    assert!(panics.is_empty(), "{} of {n}: {}", panics.len(), panics.join("\n"));
    assert!(n_well > n / 20, "only {n_well} of {n} went well");
}

/// A weight that is packed has any sizes until somebody reads it.
#[test]
fn sizes_that_no_memory_has_are_refused() {
    let base = bases::BASES.iter().find(|base| base.name == "products").unwrap();
    let mut plan = PLANS["products"].clone();
    let at = weight(&mut plan, "MatMul", 1);
    resize_input(&mut plan, "MatMul", 1, &[1 << 40, 1 << 18]);
    plan.weights[at].dims = vec![1 << 40, 1 << 18];
    plan.weights[at].format.get_or_insert_with(|| "panels32x16".to_string());
    plan.weights[at].packed_by = Some(0);
    let model = base.model().unwrap();
    for plan in [plan.clone(), plan.strip()] {
        plan.validate().expect("nobody looks at the sizes so far");
        let plan = opened(&plan).expect("a plan that is valid");
        let error = plan.refit(&model).unwrap_err().to_string();
        assert!(error.contains("larger than this machine's memory"), "{error}");
    }
}
