//! Plans changed in their structure (operands, homes, types, regions, tactics, formats, attributes, weights, bodies),
//! written with right checksums, opened and run twice: whatever they say, they end in a typed error or in outputs, and
//! AddressSanitizer finds no byte read or written that is not theirs.
//!
//! The input is a list of changes: the first byte chooses an honest plan, then each change takes what it needs. Plans
//! are kept small enough that none asks for more than some megabytes.

#![no_main]

#[path = "../../crates/planish-runtime/tests/forged/bases.rs"]
mod bases;
#[path = "../../crates/planish-runtime/tests/forged/mutate.rs"]
mod mutate;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use mutate::Pool;
use planish_plan::Plan;

fn start() -> &'static (Vec<Plan>, Pool) {
    static START: OnceLock<(Vec<Plan>, Pool)> = OnceLock::new();
    START.get_or_init(|| {
        let plans: Vec<Plan> = bases::BASES.iter().map(|base| base.plan().expect("an honest plan")).collect();
        plans.iter().for_each(|plan| mutate::run(plan, 2).expect("an honest plan"));
        let pool = Pool::of(&plans);
        (plans, pool)
    })
}

fuzz_target!(|bytes: &[u8]| {
    let (plans, pool) = start();
    let (plan, size) = mutate::plan_of(bytes, plans, pool);
    let _ = mutate::run(&plan, size);
});
